/* arrayspec.c - see arrayspec.h. */
#include "api/spec/arrayspec.h"

#include "api/spec/gridspec.h"
#include "api/spec/jobtext.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 4096

/* ------------------------------------------------------------------ indices */

/* A number at *p, which moves behind it. */
static bool read_index(const char **p, int64_t *out)
{
    size_t len = strspn(*p, "0123456789");
    char word[16];

    if (len == 0 || len >= sizeof(word))
        return false;
    memcpy(word, *p, len);
    word[len] = '\0';
    *p += len;
    return sh_parse_i64(word, 0, ARRAYSPEC_MAX_INDEX, "index", out, NULL) == SH_OK;
}

/* "A", "A-B" or "A-B:STEP" */
static bool read_index_range(const char **p, int64_t *first, int64_t *last, int64_t *step)
{
    *step = 1;
    if (!read_index(p, first))
        return false;
    *last = *first;
    if (**p != '-')
        return true;
    (*p)++;
    if (!read_index(p, last) || *last < *first)
        return false;
    if (**p != ':')
        return true;
    (*p)++;
    return read_index(p, step) && *step > 0;
}

int arrayspec_indices(const char *text, int64_t *out, size_t max, size_t *n, struct sh_err *err)
{
    int64_t first, last, step;
    const char *p = text;

    *n = 0;
    do {
        p += p != text; /* the comma */
        if (!read_index_range(&p, &first, &last, &step) || (*p && *p != ','))
            return SH_FAIL(err, SH_E_INVALID,
                           "indices \"%.64s\" must be numbers and ranges up to %d, such as 0-99, "
                           "0-98:2 or 1,5,7-9",
                           text, ARRAYSPEC_MAX_INDEX);
        for (int64_t i = first; i <= last; i += step) {
            if (*n == max)
                return SH_FAIL(err, SH_E_TOOBIG, "an array has at most %zu jobs; submit several",
                               max);
            out[(*n)++] = i;
        }
    } while (*p);
    sh_sort_i64(out, *n);
    for (size_t i = 1; i < *n; i++)
        if (out[i] == out[i - 1])
            return SH_FAIL(err, SH_E_INVALID, "index %" PRId64 " is there twice", out[i]);
    return SH_OK;
}

/* ------------------------------------------------------------------ the job of an index */

static int fill_seed(json_t *job, int64_t index, struct sh_err *err)
{
    const char *kind = json_string_value(json_object_get(job, "kind"));
    json_t *spec = json_object_get(job, "spec"), *seed = json_object_get(spec, "seed");

    if (!kind || strcmp(kind, "training") != 0 || !json_is_object(spec) ||
        (seed && !json_is_integer(seed) && !json_is_null(seed)))
        return SH_OK; /* jobspec_read() says what is wrong */
    if (json_integer_value(seed) > INT64_MAX - index)
        return SH_OK; /* likewise */
    if (json_object_set_new(spec, "seed", json_integer(json_integer_value(seed) + index)))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    return SH_OK;
}

/* Of a deep copy, which is the caller's own. */
static int job_fill(json_t *job, int64_t number, int64_t seed, struct sh_err *err)
{
    char text[24];
    int rc;

    snprintf(text, sizeof(text), "%" PRId64, number);
    rc = jobtext_fill(job, "index", text, MAX_TEXT, NULL, err);
    return rc ? rc : fill_seed(job, seed, err);
}

int64_t arrayspec_number(const struct arrayspec *a, size_t place)
{
    int64_t stride = a->indices[a->n_indices - 1] + 1; /* they are in ascending order */
    size_t combination = place / a->n_indices;

    return (int64_t)combination * stride + a->indices[place % a->n_indices];
}

int arrayspec_job_at(const struct arrayspec *a, const json_t *template, size_t place, json_t **out,
                     struct sh_err *err)
{
    json_t *job = json_deep_copy(template);
    int rc = job ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");

    if (!rc && a->grid)
        rc = gridspec_apply(a->grid, place / a->n_indices, job, err);
    if (!rc)
        rc = job_fill(job, arrayspec_number(a, place), a->indices[place % a->n_indices], err);
    if (rc) {
        json_decref(job);
        job = NULL;
    }
    *out = job;
    return rc;
}
