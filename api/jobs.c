/* jobs.c - durable work: submit, look at, cancel. */
#include "api/api.h"
#include "api/handlers.h"
#include "api/jobspec.h"
#include "api/link.h"
#include "api/noun.h"
#include "api/store.h"
#include "api/watch.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int jobs_list(struct api_req *q, struct sh_err *err)
{
    struct jobfilter f = {0};
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = jobfilter_read(&q->uri, &f, err);
    if (!rc)
        rc = store_job_list(q, &f, &page, &j, err);
    jobfilter_fini(&f);
    return noun_page_reply(q, rc, j, err);
}

int jobs_named(struct api_req *q, json_t **out, struct sh_err *err)
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
    int rc = jobs_named(q, &j, err);

    return rc ? rc : req_reply(q, j, NULL, err);
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

static int create(struct api_req *q, const struct jobspec *s, const struct req_idem *idem,
                  json_t **out, enum store_made *made, struct sh_err *err)
{
    struct parts p = {0};
    char *spec = NULL, *labels = NULL;
    int rc = find_parts(q, s, &p, err);

    if (!rc)
        rc = sh_json_dump(s->spec, &spec, err);
    if (!rc && s->label_map)
        rc = sh_json_dump(s->label_map, &labels, err);
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
                              .spec = spec,
                              .labels = labels ? labels : "{}",
                              .deadline = s->deadline,
                              .min_runtime_ms = s->min_runtime_ms,
                              .hold = s->hold,
                              .preemptible = s->preemptible,
                              .idem = idem->key[0] ? idem : NULL};

        rc = store_job_create(q, &j, made, out, err);
    }
    free(spec);
    free(labels);
    json_decref(p.version);
    json_decref(p.dataset);
    json_decref(p.eval);
    return rc;
}

/* An answer that was given once is given again, whatever has become of the job since. */
int jobs_create(struct api_req *q, struct sh_err *err)
{
    enum store_made made = STORE_REPLAYED;
    struct req_idem idem;
    struct jobspec s;
    char location[64];
    json_t *job = NULL;
    int rc = jobspec_read(q->json, &s, err);

    if (!rc)
        rc = req_idem(q, &idem, err);
    if (!rc && idem.key[0])
        rc = store_idem_find(q, &idem, &job, err);
    if (!rc && !job)
        rc = create(q, &s, &idem, &job, &made, err);
    if (!rc && made == STORE_MADE_EARLIER)
        rc = check_same(q, &s, job, err);
    if (rc) {
        json_decref(job);
        return rc;
    }
    if (made == STORE_MADE)
        link_hint(q->api->link, "jobs");
    if (made == STORE_MADE_EARLIER)
        q->reply.status = 200;
    q->reply.replayed = made == STORE_REPLAYED;
    snprintf(location, sizeof(location), "/api/v1/jobs/%" JSON_INTEGER_FORMAT, id_of(job));
    return req_reply(q, job, location, err);
}

/* 409 with what is allowed instead. */
static int refuse(struct api_req *q, const char *what, const json_t *job, struct sh_err *err)
{
    char text[256];
    int rc = jobctl_choices(job, &q->reply.problem, err);

    if (rc)
        return rc;
    jobctl_say(q->reply.problem, text, sizeof(text));
    return SH_FAIL(err, SH_E_CONFLICT, "%s is not possible for job %s: %s", what, q->params[0],
                   text);
}

/* POST /jobs/{job}/ACTION: the last segment names it, and the route table has no other ones. */
int jobs_control(struct api_req *q, struct sh_err *err)
{
    const struct jobctl *c = jobctl_find(q->uri.segments[q->uri.n_segments - 1]);
    json_t *j = NULL;
    bool changed = false;
    int rc = noun_read(q, "", NULL, 0, err);

    if (!rc && !c)
        rc = SH_FAIL(err, SH_E_BUG, "a route names an action that jobctl.c does not have");
    if (!rc && noun_is_number(q->params[0], INT64_MAX))
        rc = store_job_control(q, q->params[0], c, &changed, &j, err);
    if (!rc && !j)
        rc = noun_missing("job", q->params[0], err);
    if (!rc && !changed && !jobctl_is_done(c, j))
        rc = refuse(q, c->name, j, err);
    if (rc) {
        json_decref(j);
        return rc;
    }
    if (changed)
        link_hint(q->api->link, "jobs");
    return req_reply(q, j, NULL, err);
}

/* Why a change touched no row. */
static int refuse_patch(struct api_req *q, const char *match, struct sh_err *err)
{
    json_t *now = NULL;
    int rc = jobs_named(q, &now, err);

    if (!rc && json_is_null(json_object_get(now, "finished_at")))
        rc = noun_refused(now, match, "job", q->params[0],
                          "the job would have more than 32 labels; remove some with null", err);
    else if (!rc)
        rc = refuse(q, "a change", now, err);
    json_decref(now);
    return rc;
}

int jobs_patch(struct api_req *q, struct sh_err *err)
{
    const char *match = NULL;
    char buf[24], *patch = NULL;
    json_t *j = NULL;
    int rc = jobspec_read_patch(q->json, err);

    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = sh_json_dump(q->json, &patch, err);
    if (!rc && noun_is_number(q->params[0], INT64_MAX))
        rc = store_job_patch(q, q->params[0], match, patch, &j, err);
    if (!rc && !j)
        rc = refuse_patch(q, match, err);
    free(patch);
    if (rc)
        return rc;
    link_hint(q->api->link, "jobs");
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
        rc = jobs_named(q, &job, err);
    json_decref(job);
    if (!rc)
        rc = list(q, q->params[0], &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

bool events_wants_stream(const struct api_req *q)
{
    return q->h.accept && strstr(q->h.accept, "text/event-stream");
}

/* A client that has heard the last event of a job gets 204, which ends its reconnecting.
 * after: 0: none was heard. */
static int stream_events(struct api_req *q, int64_t after, struct sh_err *err)
{
    int64_t newest = 0;
    bool exists = false, is_final = false;
    int rc = SH_OK;

    if (noun_is_number(q->params[0], INT64_MAX))
        rc = store_job_newest_event(q, q->params[0], &exists, &newest, &is_final, err);
    if (!rc && !exists)
        rc = noun_missing("job", q->params[0], err);
    if (rc)
        return rc;
    if (q->h.last_event_id && is_final && after >= newest) {
        q->reply.status = 204;
        return SH_OK;
    }
    return watch_open(q->api->watch, q, strtoll(q->params[0], NULL, 10), SH_MIN(after, newest),
                      is_final, err);
}

int jobs_events(struct api_req *q, struct sh_err *err)
{
    const char *last = q->h.last_event_id;
    int64_t after = 0;
    int rc = last ? sh_parse_i64(last, 0, INT64_MAX, "Last-Event-ID", &after, err) : SH_OK;

    if (rc)
        return rc;
    return events_wants_stream(q) ? stream_events(q, after, err)
                                  : job_page(q, store_job_events, err);
}

int jobs_checkpoints(struct api_req *q, struct sh_err *err)
{
    return job_page(q, store_job_checkpoints, err);
}
