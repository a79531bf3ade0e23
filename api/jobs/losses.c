/* losses.c - the losses of a job: one range of a file that may hold a million of them.
 *
 * The executor rewrites losses.json, an array of numbers and nulls, with each checkpoint. Each
 * request scans the file once, by its commas, and parses only the requested range.
 */
#include "api/jobs/losses.h"

#include "api/api.h"
#include "api/handlers.h"
#include "api/jobs/jobs.h"
#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LIMIT_DEFAULT 10000
#define LIMIT_MAX 100000
#define NUMBER_BYTES 32         /* longest number, with its comma */
#define MAX_FILE (256ull << 20) /* an executor writes at most 64 MiB */

struct range {
    int64_t offset, limit;
    int64_t total; /* of the file */
};

static int range_take(struct range *r, int c, struct sh_buf *out, struct sh_err *err)
{
    const char text = (char)c;
    bool in = r->total >= r->offset && r->total - r->offset < r->limit;

    if (c == ',') {
        r->total++;
        /* Between two numbers of the range. */
        in = in && r->total - r->offset < r->limit;
    }
    return in ? sh_buf_append(out, &text, 1, err) : SH_OK;
}

/* Text of the range as a JSON array; r->total is set. */
static int scan(FILE *f, struct range *r, struct sh_buf *out, struct sh_err *err)
{
    bool is_empty = true;
    uint64_t n = 0;
    int c, rc = sh_buf_puts(out, "[", err);

    if (!rc && getc_unlocked(f) != '[')
        rc = SH_FAIL(err, SH_E_IO, "the file of losses is damaged");
    while (!rc && (c = getc_unlocked(f)) != ']') {
        if (c == EOF || ++n > MAX_FILE)
            rc = SH_FAIL(err, SH_E_IO, "the file of losses is damaged");
        else
            rc = range_take(r, c, out, err);
        is_empty = false;
    }
    r->total += !is_empty; /* one more than commas */
    return rc ? rc : sh_buf_puts(out, "]", err);
}

int losses_read(const char *path, int64_t offset, int64_t limit, json_t **out, int64_t *total,
                struct sh_err *err)
{
    struct range r = {.offset = offset, .limit = limit};
    struct sh_buf text;
    FILE *f = fopen(path, "re");
    int rc = SH_OK;

    *out = NULL;
    *total = 0;
    if (!f && errno == ENOENT) { /* before the first checkpoint */
        *out = json_array();
        return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
    }
    sh_buf_init(&text, (size_t)limit * NUMBER_BYTES + 16);
    if (!f)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the losses");
    if (!rc)
        rc = scan(f, &r, &text, err);
    if (!rc && sh_json_parse(text.data, text.len, text.len, out, NULL))
        rc = SH_FAIL(err, SH_E_IO, "the file of losses is damaged");
    *total = r.total;
    sh_buf_fini(&text);
    if (f)
        fclose(f);
    return rc;
}

static int read_losses_range(const struct api_req *q, int64_t *offset, int64_t *limit,
                             struct sh_err *err)
{
    const char *from = uri_query(&q->uri, "offset"), *most = uri_query(&q->uri, "limit");
    int rc = SH_OK;

    *offset = 0;
    *limit = LIMIT_DEFAULT;
    if (from)
        rc = sh_parse_i64(from, 0, INT64_MAX, "offset", offset, err);
    if (!rc && most)
        rc = sh_parse_i64(most, 1, INT64_MAX, "limit", limit, err);
    *limit = SH_MIN(*limit, LIMIT_MAX);
    return rc;
}

int jobs_losses(struct api_req *q, struct sh_err *err)
{
    json_t *job = NULL, *losses = NULL;
    int64_t offset, limit, total = 0;
    char *path = NULL;
    int rc = read_losses_range(q, &offset, &limit, err);

    if (!rc)
        rc = jobs_named(q, &job, err);
    if (!rc)
        rc = sh_asprintf(err, &path, "%s/jobs/%s/losses.json", q->api->conf->state_dir,
                         q->params[0]);
    if (!rc)
        rc = losses_read(path, offset, limit, &losses, &total, err);
    if (!rc)
        rc =
            req_reply(q,
                      json_pack("{s:O, s:I, s:I, s:O}", "job", json_object_get(job, "id"), "offset",
                                (json_int_t)offset, "total", (json_int_t)total, "losses", losses),
                      NULL, err);
    json_decref(job);
    json_decref(losses);
    free(path);
    return rc;
}
