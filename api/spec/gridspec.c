/* gridspec.c - see gridspec.h. */
#include "api/spec/gridspec.h"

#include "api/spec/jobspec.h"
#include "api/spec/jobtext.h"
#include "common/job.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES 1000
#define MAX_NAME JOBTEXT_MAX_WORD /* as of a label, which it becomes */
#define MAX_TEXT 8192
#define VALUE_BYTES (4 * JOBSPEC_MAX_TEXT + 1)
#define TAIL_BYTES (GRIDSPEC_MAX_NAMES * (MAX_NAME + VALUE_BYTES + 2))

/* Lower-case words, of which one may have another before it: fields are called so. */
static bool is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    const char *rest = name[n] == '.' ? name + n + 1 : "x";

    return n > 0 && strlen(name) <= MAX_NAME && (name[n] == '\0' || name[n] == '.') && rest[0] &&
           rest[strspn(rest, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static void value_text(const json_t *v, char out[static VALUE_BYTES])
{
    if (json_is_string(v))
        sh_strlcpy(out, json_string_value(v), VALUE_BYTES);
    else if (json_is_integer(v))
        snprintf(out, VALUE_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        snprintf(out, VALUE_BYTES, "%.15g", json_real_value(v));
    else
        sh_strlcpy(out, json_is_true(v) ? "true" : "false", VALUE_BYTES);
}

static int check_grid_values(const char *name, const json_t *values, struct sh_err *err)
{
    char path[MAX_NAME + 8];

    snprintf(path, sizeof(path), "grid.%s", name);
    if (!json_is_array(values) || json_array_size(values) < 1 ||
        json_array_size(values) > MAX_VALUES)
        return sh_json_fail(err, path, "\"%s\" must be a list of 1 to %d values", path, MAX_VALUES);
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);

        if (!json_is_number(v) && !json_is_string(v) && !json_is_boolean(v))
            return sh_json_fail(err, path, "\"%s\" must hold numbers, strings, true or false",
                                path);
        if (json_is_string(v) && sh_utf8_count(json_string_value(v)) > JOBSPEC_MAX_TEXT)
            return sh_json_fail(err, path, "a value of \"%s\" has more than %d characters", path,
                                JOBSPEC_MAX_TEXT);
        for (size_t k = 0; k < i; k++)
            if (json_equal(v, json_array_get(values, k)))
                return sh_json_fail(err, path, "\"%s\" holds the same value twice", path);
    }
    return SH_OK;
}

/* "lr" and "optimizer.lr" would be one field, and one label. */
static bool is_twice(const json_t *grid, const char *name)
{
    const char *key;
    json_t *v;
    int n = 0;

    json_object_foreach((json_t *)grid, key, v) n +=
        strcmp(sh_job_field_name(key), sh_job_field_name(name)) == 0;
    return n > 1;
}

int gridspec_count(const json_t *grid, size_t max, size_t *n, struct sh_err *err)
{
    const char *name;
    json_t *values;

    *n = 1;
    if (json_object_size(grid) < 1 || json_object_size(grid) > GRIDSPEC_MAX_NAMES)
        return sh_json_fail(err, "grid", "\"grid\" must have 1 to %d members", GRIDSPEC_MAX_NAMES);
    json_object_foreach((json_t *)grid, name, values)
    {
        int rc;

        if (!is_name(name))
            return sh_json_fail(err, "grid",
                                "\"grid\" names \"%.64s\", which is no field of the spec such as "
                                "\"batch\" or \"optimizer.lr\"",
                                name);
        if (is_twice(grid, name))
            return sh_json_fail(err, "grid", "\"grid\" names \"%.64s\" twice",
                                sh_job_field_name(name));
        rc = check_grid_values(name, values, err);
        if (rc)
            return rc;
        *n *= json_array_size(values); /* both are small */
        if (*n > max)
            return SH_FAIL(err, SH_E_TOOBIG,
                           "the grid has more than %zu combinations; submit several arrays", max);
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ a combination */

static int add_grid_label(json_t *job, const char *name, const char *value, struct sh_err *err)
{
    json_t *labels = json_object_get(job, "labels");

    if (!labels && json_object_set_new(job, "labels", json_object()) == 0)
        labels = json_object_get(job, "labels");
    if (labels && !json_is_object(labels)) /* likewise */
        return SH_OK;
    if (json_object_get(labels, name))
        return SH_FAIL(err, SH_E_INVALID,
                       "the label \"%s\" is the grid's: each job gets its value of \"%s\" as one",
                       name, name);
    return json_object_set_new(labels, name, json_string(value))
               ? SH_FAIL(err, SH_E_NOMEM, "could not allocate a job")
               : SH_OK;
}

/* What stands behind it is for people: the labels have all of it. */
static void cut_name(char *name)
{
    char *end = name;

    if (sh_utf8_count(name) <= JOBSPEC_MAX_TEXT)
        return;
    for (size_t n = 0; n < JOBSPEC_MAX_TEXT - 3; n++)
        end += sh_utf8_len(end);
    memcpy(end, "...", 4);
}

/* The name that is given, and the values behind it. */
static int extend_name(json_t *job, const char *tail, struct sh_err *err)
{
    const char *given = json_string_value(json_object_get(job, "name"));
    char *name = NULL;
    int rc =
        sh_asprintf(err, &name, "%s%s%s", given ? given : "", given && given[0] ? " " : "", tail);

    if (!rc && (!given || sh_utf8_count(given) <= JOBSPEC_MAX_TEXT)) /* else it is refused */
        cut_name(name);
    if (!rc && json_object_set_new(job, "name", json_string(name)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    free(name);
    return rc;
}

int gridspec_apply(const json_t *grid, size_t combination, json_t *job, struct sh_err *err)
{
    const char *name;
    size_t left = 1, rest;
    char tail[TAIL_BYTES] = "";
    bool found = false;
    json_t *values;
    int rc = SH_OK;

    if (json_is_null(json_object_get(job, "labels")))
        json_object_del(job, "labels");
    json_object_foreach((json_t *)grid, name, values) left *= json_array_size(values);
    rest = combination;
    json_object_foreach((json_t *)grid, name, values)
    {
        size_t n = strlen(tail), i;
        char text[VALUE_BYTES];

        if (rc)
            break;
        left /= json_array_size(values);
        i = rest / left;
        rest %= left;
        value_text(json_array_get(values, i), text);
        rc = sh_job_set_field(job, name, json_array_get(values, i), err);
        if (!rc) /* before the label "lr" is there */
            rc = jobtext_fill(job, sh_job_field_name(name), text, MAX_TEXT, &found, err);
        if (!rc)
            rc = add_grid_label(job, sh_job_field_name(name), text, err);
        snprintf(tail + n, sizeof(tail) - n, "%s%s=%s", n ? " " : "", sh_job_field_name(name),
                 text);
    }
    return rc || found ? rc : extend_name(job, tail, err);
}
