/* jobs.c - durable work: submit, look at, cancel. */
#include "api/api.h"
#include "api/handlers.h"
#include "api/jobspec.h"
#include "api/link.h"
#include "api/noun.h"
#include "api/store.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int jobs_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = store_job_list(q, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

static int get_job(struct api_req *q, json_t **out, struct sh_err *err)
{
    int rc = SH_OK;

    *out = NULL;
    if (noun_is_number(q->params[0], INT64_MAX))
        rc = store_job_get(q, q->params[0], out, err);
    if (!rc && !*out)
        rc = noun_missing("job", q->params[0], err);
    return rc;
}

int jobs_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = get_job(q, &j, err);

    return rc ? rc : req_reply(q, j, NULL, err);
}

/* The header wins over the field; both at once must agree. Quotes of the header's structured form
 * are optional. */
static int pick_token(const struct api_req *q, struct jobspec *s, char buf[static 256],
                      struct sh_err *err)
{
    const char *h = q->h.idempotency_key;
    size_t len = h ? strlen(h) : 0;

    if (!h)
        return SH_OK;
    if (len >= 2 && h[0] == '"' && h[len - 1] == '"') {
        h++;
        len -= 2;
    }
    if (len < 1 || len > 255)
        return SH_FAIL(err, SH_E_INVALID, "Idempotency-Key must have 1 to 255 characters");
    memcpy(buf, h, len);
    buf[len] = '\0';
    if (s->client_token && strcmp(s->client_token, buf) != 0)
        return SH_FAIL(err, SH_E_INVALID,
                       "Idempotency-Key and \"client_token\" are different; send one of them");
    s->client_token = buf;
    return SH_OK;
}

struct parts {                        /* what a job refers to */
    json_t *version, *dataset, *eval; /* OWNED */
};

static int find_dataset(struct api_req *q, const struct jobspec *s, const char *name,
                        const json_t *version, json_t **out, struct sh_err *err)
{
    int rc = store_job_dataset(q, name, out, err);

    if (!rc && !*out)
        rc = noun_missing("dataset", name, err);
    return rc ? rc : jobspec_fits_dataset(s, version, name, *out, err);
}

static int find_parts(struct api_req *q, const struct jobspec *s, struct parts *p,
                      struct sh_err *err)
{
    int rc = store_job_version(q, s->model, s->version, &p->version, err);

    if (!rc && !p->version && s->version > 0)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "there is no version %" PRId64 " of model \"%s\"",
                     s->version, s->model);
    else if (!rc && !p->version)
        rc = SH_FAIL(err, SH_E_NOTFOUND,
                     "there is no model \"%s\" of your own with an uploaded version", s->model);
    if (!rc)
        rc = jobspec_fits_model(s, p->version, err);
    if (!rc)
        rc = find_dataset(q, s, s->dataset, p->version, &p->dataset, err);
    if (!rc && s->eval_dataset)
        rc = find_dataset(q, s, s->eval_dataset, p->version, &p->eval, err);
    return rc;
}

static json_int_t id_of(const json_t *j)
{
    return json_integer_value(json_object_get(j, "id"));
}

/* A token that comes back with other contents is a client's bug: silence would hide it. */
static int check_same(struct api_req *q, const struct jobspec *s, const json_t *job,
                      struct sh_err *err)
{
    const char *model = json_string_value(json_object_get(job, "model"));
    const char *dataset = json_string_value(json_object_get(job, "dataset"));

    if (model && strcmp(model, s->model) == 0 && dataset && strcmp(dataset, s->dataset) == 0 &&
        json_equal(json_object_get(job, "spec"), s->spec))
        return SH_OK;
    q->reply.status = 422;
    return SH_FAIL(err, SH_E_CONFLICT,
                   "job %" JSON_INTEGER_FORMAT " was submitted with this token and asks for "
                   "something else; use a new token for a new job",
                   id_of(job));
}

static int create(struct api_req *q, const struct jobspec *s, json_t **out, bool *created,
                  struct sh_err *err)
{
    struct parts p = {0};
    char *spec = NULL;
    int rc = find_parts(q, s, &p, err);

    if (!rc)
        rc = sh_json_dump(s->spec, &spec, err);
    if (!rc) {
        struct store_job j = {.kind = s->kind,
                              .name = s->name,
                              .queue = s->queue,
                              .client_token = s->client_token,
                              .priority = s->priority,
                              .max_attempts = s->max_attempts,
                              .version_id = id_of(p.version),
                              .dataset_id = id_of(p.dataset),
                              .eval_dataset_id = p.eval ? id_of(p.eval) : 0,
                              .spec = spec};

        rc = store_job_create(q, &j, created, out, err);
    }
    free(spec);
    json_decref(p.version);
    json_decref(p.dataset);
    json_decref(p.eval);
    return rc;
}

int jobs_create(struct api_req *q, struct sh_err *err)
{
    struct jobspec s;
    char token[256], location[64];
    json_t *job = NULL;
    bool created = false;
    int rc = jobspec_read(q->json, &s, err);

    if (!rc)
        rc = pick_token(q, &s, token, err);
    if (!rc)
        rc = create(q, &s, &job, &created, err);
    if (!rc && !created)
        rc = check_same(q, &s, job, err);
    if (rc) {
        json_decref(job);
        return rc;
    }
    if (created)
        link_hint(q->api->link, "jobs");
    else
        q->reply.status = 200;
    snprintf(location, sizeof(location), "/api/v1/jobs/%" JSON_INTEGER_FORMAT, id_of(job));
    return req_reply(q, job, location, err);
}

int jobs_cancel(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    const char *state;
    int rc = noun_read(q, "", NULL, 0, err);

    if (!rc && noun_is_number(q->params[0], INT64_MAX))
        rc = store_job_cancel(q, q->params[0], &j, err);
    if (!rc && !j)
        rc = noun_missing("job", q->params[0], err);
    if (rc)
        return rc;
    link_hint(q->api->link, "jobs");
    state = json_string_value(json_object_get(j, "state"));
    if (state && (strcmp(state, "SUCCEEDED") == 0 || strcmp(state, "FAILED") == 0 ||
                  strcmp(state, "EXPIRED") == 0)) {
        rc = SH_FAIL(err, SH_E_CONFLICT, "the job is %s: it cannot be cancelled any more", state);
        json_decref(j);
        return rc;
    }
    return req_reply(q, j, NULL, err);
}

static int job_page(struct api_req *q,
                    int (*list)(struct api_req *, const char *, const struct req_page *, json_t **,
                                struct sh_err *),
                    struct sh_err *err)
{
    struct req_page page;
    json_t *job = NULL, *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = get_job(q, &job, err);
    json_decref(job);
    if (!rc)
        rc = list(q, q->params[0], &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

int jobs_events(struct api_req *q, struct sh_err *err)
{
    return job_page(q, store_job_events, err);
}

int jobs_checkpoints(struct api_req *q, struct sh_err *err)
{
    return job_page(q, store_job_checkpoints, err);
}
