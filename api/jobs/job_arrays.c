/* job_arrays.c - jobs submitted as one array: all are created, or none. */
#include "api/api.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/jobs/submit.h"
#include "api/request/noun.h"
#include "api/spec/arrayspec.h"
#include "api/spec/gridspec.h"
#include "api/spec/jobctl.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ look */

int job_arrays_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = store_array_list(q, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

static int named(struct api_req *q, json_t **out, struct sh_err *err)
{
    int rc = SH_OK;

    *out = NULL;
    if (noun_is_number(q->params[0], INT64_MAX))
        rc = store_array_get(q, q->params[0], out, err);
    if (!rc && !*out)
        rc = noun_missing("array of jobs", q->params[0], err);
    return rc;
}

int job_arrays_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = named(q, &j, err);

    return rc ? rc : req_reply(q, j, NULL, err);
}

/* ------------------------------------------------------------------ submit */

struct asked {
    const char *indices, *token; /* BORROWED from the body */
    int64_t count, max_parallel; /* 0: not given */
    json_t *job, *grid;          /* BORROWED; grid NULL: none */
    char range[32];              /* what count stands for */
};

static int read_body(struct api_req *q, struct asked *a, struct sh_err *err)
{
    struct sh_json_field f[] = {
        {"indices", SH_JSON_STR, &a->indices, .min = 1, .max = 255},
        {"count", SH_JSON_INT, &a->count, .min = 1, .max = SUBMIT_MAX_JOBS},
        {"max_parallel", SH_JSON_INT, &a->max_parallel, .min = 1, .max = INT32_MAX},
        {"client_token", SH_JSON_STR, &a->token, .min = 1, .max = 255},
        {"grid", SH_JSON_OBJ, &a->grid, .required = false},
        {"job", SH_JSON_OBJ, &a->job, .required = true},
    };
    int rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);

    if (!rc && a->grid && !a->indices && !a->count)
        a->count = 1;
    if (!rc && !a->indices == !a->count)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "give \"indices\", \"count\" or \"grid\"; not both \"indices\" and \"count\"");
    if (!rc && json_is_string(json_object_get(a->job, "client_token")))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"client_token\" identifies the array, not its jobs: put it beside \"job\"");
    if (rc || a->indices)
        return rc;
    snprintf(a->range, sizeof(a->range), "0-%" PRId64, a->count - 1);
    a->indices = a->count == 1 ? "0" : a->range;
    return SH_OK;
}

/* bodies: what the items borrow from. */
static int fill_items(struct submit *s, const struct asked *a, const struct arrayspec *spec,
                      json_t *bodies, struct sh_err *err)
{
    s->q->reply.faults.below = "/job";
    for (size_t i = 0; i < s->n; i++) {
        json_t *job = NULL;
        int rc = arrayspec_job_at(spec, a->job, i, &job, err);

        if (!rc && json_array_append_new(bodies, job))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
        if (rc)
            return rc;
        submit_read(&s->items[i], job, &s->q->reply.faults);
        s->items[i].index = arrayspec_number(spec, i);
        if (s->items[i].err.rc)
            return sh_err_copy(err, &s->items[i].err);
    }
    return SH_OK;
}

/* As it was asked for now? */
static bool is_same_array(const json_t *earlier, const json_t *row)
{
    json_t *template = json_copy(json_object_get(row, "template"));
    json_t *grid = json_incref(json_object_get(template, "grid"));
    bool same;

    json_object_del(template, "grid");
    same = json_equal(json_object_get(earlier, "template"), template) &&
           json_equal(json_object_get(earlier, "indices"), json_object_get(row, "indices")) &&
           (grid ? json_equal(json_object_get(earlier, "grid"), grid)
                 : json_is_null(json_object_get(earlier, "grid")));
    json_decref(grid);
    json_decref(template);
    return same;
}

/* The token was known, or the queue takes no jobs. */
static int find_earlier(struct submit *s, json_t **out, struct sh_err *err)
{
    const char *token = json_string_value(json_object_get(s->array, "client_token"));
    int rc = token ? store_array_by_token(s->q, token, out, err) : SH_OK;

    if (rc || !*out)
        return rc ? rc : store_queue_refuse(s->q, s->items->spec.queue, err);
    s->items->made = SUBMIT_EARLIER;
    if (is_same_array(*out, s->array))
        return SH_OK;
    s->q->reply.status = 422;
    return SH_FAIL(err, SH_E_CONFLICT,
                   "array %" JSON_INTEGER_FORMAT " was submitted with this token and asks for "
                   "something else; use a new token for a new array",
                   json_integer_value(json_object_get(*out, "id")));
}

static int array_create(struct submit *s, json_t **out, struct sh_err *err)
{
    char id[24];
    int rc = SH_OK;

    for (size_t i = 0; i < s->n; i++)
        if (s->items[i].err.rc)
            return sh_err_copy(err, &s->items[i].err);
    rc = submit_store(s, err);
    if (rc)
        return rc;
    if (!s->array_id)
        return find_earlier(s, out, err);
    snprintf(id, sizeof(id), "%" PRId64, s->array_id);
    rc = store_array_get(s->q, id, out, err);
    submit_say_assumes(s, *out);
    return rc;
}

/* The grid is kept in the template: no job has such a field. */
static json_t *array_row(const struct asked *a, size_t n)
{
    json_t *template = json_copy(a->job);
    json_t *row;

    if (a->grid)
        json_object_set(template, "grid", a->grid);
    row = json_pack("{s:s, s:I, s:o, s:s?}", "indices", a->indices, "n_jobs", (json_int_t)n,
                    "template", template, "client_token", a->token);

    if (a->max_parallel)
        json_object_set_new(row, "max_parallel", json_integer(a->max_parallel));
    return row;
}

static int submit_all(struct api_req *q, const struct asked *a, const struct arrayspec *spec,
                      json_t **out, struct sh_err *err)
{
    size_t n = spec->n_indices * spec->n_combinations;
    json_t *bodies = json_array(), *row = array_row(a, n);
    struct submit s = {0};
    int rc = bodies && row ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", n);

    if (!rc)
        rc = submit_init(&s, q, STORE_SUBMIT_ARRAY, n, err);
    if (!rc)
        rc = fill_items(&s, a, spec, bodies, err);
    s.array = row;
    if (!rc)
        rc = submit_once(&s, array_create, out, err);
    if (!rc && s.array_id)
        link_hint(q->api->link, "jobs");
    if (!rc && s.items->made == SUBMIT_EARLIER)
        q->reply.status = 200;
    submit_fini(&s);
    json_decref(bodies);
    json_decref(row);
    return rc;
}

int job_arrays_create(struct api_req *q, struct sh_err *err)
{
    int64_t *indices = calloc(SUBMIT_MAX_JOBS, sizeof(*indices));
    struct asked a = {0};
    struct arrayspec spec = {.indices = indices, .n_combinations = 1};
    json_t *j = NULL;
    char location[64];
    int rc =
        indices ? read_body(q, &a, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");

    if (!rc)
        rc = arrayspec_indices(a.indices, indices, SUBMIT_MAX_JOBS, &spec.n_indices, err);
    spec.grid = a.grid;
    if (!rc && a.grid)
        rc = gridspec_count(a.grid, SUBMIT_MAX_JOBS, &spec.n_combinations, err);
    if (!rc && spec.n_indices * spec.n_combinations > SUBMIT_MAX_JOBS)
        rc = SH_FAIL(err, SH_E_TOOBIG,
                     "%zu combinations with %zu indices each are more than the %d jobs of an array",
                     spec.n_combinations, spec.n_indices, SUBMIT_MAX_JOBS);
    if (!rc)
        rc = submit_all(q, &a, &spec, &j, err);
    free(indices);
    if (rc)
        return rc;
    snprintf(location, sizeof(location), "/api/v1/job-arrays/%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(j, "id")));
    return req_reply(q, j, location, err);
}

/* ------------------------------------------------------------------ change */

int job_arrays_patch(struct api_req *q, struct sh_err *err)
{
    int64_t max = 0;
    struct sh_json_field f[] = {
        {"max_parallel", SH_JSON_INT, &max, .min = 1, .max = INT32_MAX},
    };
    const char *match = NULL;
    char buf[24], text[24];
    json_t *j = NULL, *now = NULL;
    int rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);

    if (!rc && !json_object_get(q->json, "max_parallel"))
        rc = SH_FAIL(err, SH_E_INVALID, "give \"max_parallel\"; null removes the limit");
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    snprintf(text, sizeof(text), "%" PRId64, max);
    if (!rc && noun_is_number(q->params[0], INT64_MAX))
        rc = store_array_patch(q, q->params[0], match, max ? text : NULL, &j, err);
    if (!rc && !j)
        rc = named(q, &now, err);
    if (!rc && now)
        rc = noun_refused(now, match, "array of jobs", q->params[0], "it was changed meanwhile",
                          err);
    json_decref(now);
    if (rc)
        return rc;
    link_hint(q->api->link, "jobs");
    return req_reply(q, j, NULL, err);
}

/* POST /job-arrays/{array}/ACTION, as for one job; jobs that do not allow it stay as they are. */
int job_arrays_control(struct api_req *q, struct sh_err *err)
{
    const struct jobctl *c = jobctl_find(q->uri.segments[q->uri.n_segments - 1]);
    json_t *j = NULL;
    int64_t n = 0;
    int rc = noun_read(q, "", NULL, 0, err);

    if (!rc && !c)
        rc = SH_FAIL(err, SH_E_BUG, "a route names an action that jobctl.c does not have");
    if (!rc)
        rc = named(q, &j, err);
    json_decref(j);
    j = NULL;
    if (!rc)
        rc = store_job_control(q, NULL, q->params[0], c, &n, err);
    if (!rc)
        rc = named(q, &j, err);
    if (rc)
        return rc;
    if (n)
        link_hint(q->api->link, "jobs");
    return req_reply(q, json_pack("{s:I, s:o}", "changed", (json_int_t)n, "array", j), NULL, err);
}
