/* jobfilter.c - see jobfilter.h. */
#include "api/spec/jobfilter.h"

#include "api/request/noun.h"
#include "api/spec/jobspec.h"
#include "common/buf.h"
#include "common/job_state.h"

#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 32

/* Calls fn for each word between commas. */
static int each_word(const char *what, const char *text,
                     int (*fn)(void *ctx, const char *word, struct sh_err *err), void *ctx,
                     struct sh_err *err)
{
    char word[256];
    int n = 0, rc = SH_OK;

    for (const char *p = text; !rc && p; n++) {
        size_t len = strcspn(p, ",");

        if (len >= sizeof(word) || n == MAX_WORDS)
            return SH_FAIL(err, SH_E_INVALID, "\"%s\" takes at most %d words, each below 256 bytes",
                           what, MAX_WORDS);
        memcpy(word, p, len);
        word[len] = '\0';
        rc = fn(ctx, word, err);
        p = p[len] ? p + len + 1 : NULL;
    }
    return rc;
}

static int add_state(void *ctx, const char *word, struct sh_err *err)
{
    struct sh_buf *b = ctx;
    int rc = noun_check_choice("state", word, SH_JOB_STATES(SH_JOB_TEXT, ","), err);

    return rc ? rc : sh_buf_printf(b, err, "%c%s", b->len ? ',' : '{', word);
}

static int add_filter_label(void *ctx, const char *word, struct sh_err *err)
{
    json_t *labels = ctx;
    char key[256];
    size_t len = strcspn(word, "=");

    memcpy(key, word, len);
    key[len] = '\0';
    if (!word[len] || !jobspec_is_label(key))
        return SH_FAIL(err, SH_E_INVALID, "\"label\" must be KEY=VALUE, not \"%.64s\"", word);
    if (json_object_set_new(labels, key, json_string(word + len + 1)))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a filter"); /* a URL is UTF-8 */
    return SH_OK;
}

static int read_filter_labels(const char *text, char **out, struct sh_err *err)
{
    json_t *labels = json_object();
    int rc = labels ? each_word("label", text, add_filter_label, labels, err)
                    : SH_FAIL(err, SH_E_NOMEM, "could not allocate a filter");

    if (!rc)
        rc = sh_json_dump(labels, out, err);
    json_decref(labels);
    return rc;
}

int jobfilter_read(const struct uri *u, struct jobfilter *out, struct sh_err *err)
{
    const char *state = uri_query(u, "state"), *label = uri_query(u, "label");
    struct sh_buf b;
    int rc = SH_OK;

    *out = (struct jobfilter){.queue = uri_query(u, "queue"), .array = uri_query(u, "array")};
    sh_buf_init(&b, 512);
    if (state)
        rc = each_word("state", state, add_state, &b, err);
    if (state && !rc)
        rc = sh_buf_puts(&b, "}", err);
    if (state && !rc)
        out->states = sh_buf_take(&b);
    sh_buf_fini(&b);
    if (!rc && out->queue)
        rc = noun_check_tenant_name("queue", out->queue, err);
    if (!rc && out->array && !noun_is_number(out->array, INT64_MAX))
        rc = SH_FAIL(err, SH_E_INVALID, "\"array\" must be the number of an array of jobs");
    if (!rc && label)
        rc = read_filter_labels(label, &out->labels, err);
    if (rc)
        jobfilter_fini(out);
    return rc;
}

void jobfilter_fini(struct jobfilter *f)
{
    free(f->states);
    free(f->labels);
    *f = (struct jobfilter){0};
}
