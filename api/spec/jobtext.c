/* jobtext.c - see jobtext.h. */
#include "api/spec/jobtext.h"

#include "common/buf.h"

#include <stdio.h>
#include <string.h>

/* braced: the word with its braces. */
static int fill_text(json_t *object, const char *key, const char *braced, const char *value,
                     size_t max_bytes, bool *found, struct sh_err *err)
{
    const char *text = json_string_value(json_object_get(object, key)), *at;
    struct sh_buf b;
    int rc = SH_OK;

    if (!text || !strstr(text, braced))
        return SH_OK;
    if (found)
        *found = true;
    sh_buf_init(&b, max_bytes);
    for (; !rc && (at = strstr(text, braced)); text = at + strlen(braced)) {
        rc = sh_buf_append(&b, text, (size_t)(at - text), err);
        if (!rc)
            rc = sh_buf_puts(&b, value, err);
    }
    if (!rc)
        rc = sh_buf_puts(&b, text, err);
    if (!rc && json_object_set_new(object, key, json_string(b.data)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    sh_buf_fini(&b);
    return rc;
}

int jobtext_fill(json_t *job, const char *word, const char *value, size_t max_bytes, bool *in_name,
                 struct sh_err *err)
{
    json_t *labels = json_object_get(job, "labels"), *v;
    char braced[JOBTEXT_MAX_WORD + 3];
    const char *key;
    void *next;
    int rc;

    snprintf(braced, sizeof(braced), "{%s}", word);
    rc = fill_text(job, "name", braced, value, max_bytes, in_name, err);
    json_object_foreach_safe(labels, next, key, v)
    {
        if (!rc)
            rc = fill_text(labels, key, braced, value, max_bytes, NULL, err);
    }
    return rc;
}
