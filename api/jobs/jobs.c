/* jobs.c - jobs: submit, show, list, change, cancel. */
#include "api/jobs/jobs.h"

#include "api/api.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/jobs/events.h"
#include "api/jobs/submit.h"
#include "api/jobs/watch.h"
#include "api/request/noun.h"
#include "api/store/store_job.h"
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

static json_int_t id_of(const json_t *j)
{
    return json_integer_value(json_object_get(j, "id"));
}

static int job_create(struct submit *s, json_t **out, struct sh_err *err)
{
    struct submit_item *x = s->items;
    int rc = x->err.rc ? SH_OK : submit_store(s, err);

    if (rc || x->err.rc) {
        s->q->reply.status = rc ? 0 : x->status;
        return rc ? rc : sh_err_copy(err, &x->err);
    }
    *out = json_incref(x->job);
    submit_say_assumes(s, *out);
    return SH_OK;
}

/* An answer that was given once is given again, whatever has become of the job since. */
int jobs_create(struct api_req *q, struct sh_err *err)
{
    struct submit s;
    char location[64];
    json_t *job = NULL;
    int rc = submit_init(&s, q, STORE_SUBMIT_JOB, 1, err);

    if (!rc)
        submit_read(s.items, q->json, err ? err->faults : NULL);
    if (!rc && s.items->err.rc)
        rc = sh_err_copy(err, &s.items->err);
    if (!rc)
        rc = submit_once(&s, job_create, &job, err);
    if (!rc && s.items->made == SUBMIT_MADE)
        link_hint(q->api->link, "jobs");
    if (!rc && s.items->made == SUBMIT_EARLIER)
        q->reply.status = 200;
    submit_fini(&s);
    if (rc)
        return rc;
    snprintf(location, sizeof(location), "/api/v1/jobs/%" JSON_INTEGER_FORMAT, id_of(job));
    return req_reply(q, job, location, err);
}

/* 409 with what is allowed instead. */
static int action_refused(struct api_req *q, const char *what, const json_t *job,
                          struct sh_err *err)
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
    int64_t n_changed = 0;
    int rc = noun_read(q, "", NULL, 0, err);

    if (!rc && !c)
        rc = SH_FAIL(err, SH_E_BUG, "a route names an action that jobctl.c does not have");
    if (!rc && noun_is_number(q->params[0], INT64_MAX))
        rc = store_job_control(q, q->params[0], NULL, c, &n_changed, err);
    if (!rc)
        rc = jobs_named(q, &j, err);
    if (!rc && !n_changed && !jobctl_is_done(c, j))
        rc = action_refused(q, c->name, j, err);
    if (rc) {
        json_decref(j);
        return rc;
    }
    if (n_changed)
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
        rc = action_refused(q, "a change", now, err);
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
