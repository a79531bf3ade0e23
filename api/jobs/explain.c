/* explain.c - GET /jobs/{job}/explain: the job's state from its row, the reason from the
 * scheduler. */
#include "api/jobs/explain.h"

#include "api/api.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/jobs/jobs.h"
#include "api/request/front.h"
#include "api/spec/jobctl.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_ANSWER (1u << 20)

struct explain {
    struct link_ask ask;
    json_t *job; /* OWNED */
};

void explain_free(struct explain *e)
{
    if (!e)
        return;
    json_decref(e->job);
    free(e->ask.text);
    free(e);
}

static void on_answer(void *arg)
{
    req_wake(arg);
}

/* States in which there is nothing to ask the scheduler. */
static const char *known_reason(const json_t *job)
{
    static const struct {
        const char *state, *text;
    } WORDS[] = {
        {"HELD", "It is held: release it and it takes its place in the queue."},
        {"SUSPENDED", "It was suspended, and its state is in a checkpoint. Resume it, and it takes "
                      "its place in the queue."},
        {"CANCELLING", "It was cancelled; its executor has not confirmed yet that it has stopped."},
        {"COMPLETING", "All its steps are done; its results are being written and checked."},
        {"SUCCEEDED", "It has succeeded; see its result."},
        {"FAILED", "It has failed; \"error\" of the job says why."},
        {"CANCELLED", "It was cancelled."},
        {"EXPIRED", "It could not end by its deadline; \"error\" of the job says why."},
    };
    const char *state = json_string_value(json_object_get(job, "state"));

    for (size_t i = 0; state && i < SH_ARRAY_LEN(WORDS); i++)
        if (strcmp(WORDS[i].state, state) == 0)
            return WORDS[i].text;
    return NULL;
}

/* What was asked for outweighs what the scheduler says of its place; NULL: nothing was. */
static const char *wished(const json_t *job)
{
    if (jobctl_has_flag(job, "SUSPEND_PENDING"))
        return "It is being suspended: its executor writes a checkpoint and stops it; then it is "
               "SUSPENDED until it is resumed.";
    if (jobctl_has_flag(job, "REQUEUE_PENDING"))
        return "It is being requeued: its executor writes a checkpoint and stops it; then it is "
               "QUEUED behind jobs of the same rank.";
    return NULL;
}

static json_t *from_row(const json_t *job, const char *text)
{
    return json_pack("{s:O?, s:s}", "reason", json_object_get(job, "reason"), "text", text);
}

/* The wait becomes a time, because answers are read later than they are made. */
static void add_start(json_t *o)
{
    const json_t *wait = json_object_get(o, "estimated_wait_ms");
    char text[40];
    struct tm tm;
    time_t at;

    if (!json_is_integer(wait))
        return;
    at = time(NULL) + (time_t)(json_integer_value(wait) / 1000);
    if (gmtime_r(&at, &tm) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm))
        json_object_set_new(o, "estimated_start", json_string(text));
}

static int explain_answer(struct api_req *q, const struct explain *e, struct sh_err *err)
{
    const char *words = known_reason(e->job), *wish = wished(e->job);
    json_t *o = NULL, *choices = NULL;
    char text[160];
    int rc = jobctl_choices(e->job, &choices, err);

    if (!rc && !words && e->ask.rc == SH_OK)
        rc = sh_json_parse(e->ask.text, strlen(e->ask.text), MAX_ANSWER, &o, err);
    if (!words && e->ask.rc == SH_E_NOTFOUND) {
        words = "The scheduler has not read it yet: it was submitted a moment ago, or many jobs of "
                "the same queue, model and kind are ahead of it.";
    } else if (!words && e->ask.rc) {
        snprintf(text, sizeof(text),
                 "The scheduler did not answer (%s); \"reason\" is the last one that it stored.",
                 sh_rc_text(e->ask.rc));
        words = text;
    }
    if (!rc && !o)
        o = from_row(e->job, words);
    else if (o && wish)
        json_object_set_new(o, "text", json_string(wish));
    if (!rc && (!o || json_object_set(o, "id", json_object_get(e->job, "id")) ||
                json_object_update(o, choices)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    json_decref(choices);
    if (rc) {
        json_decref(o);
        return rc;
    }
    add_start(o);
    return req_reply(q, o, NULL, err);
}

/* Called again when the scheduler has answered. */
int jobs_explain(struct api_req *q, struct sh_err *err)
{
    struct explain *e = q->explain;
    int rc;

    if (e)
        return explain_answer(q, e, err);
    e = calloc(1, sizeof(*e));
    if (!e)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the request");
    q->explain = e;
    rc = jobs_named(q, &e->job, err);
    if (rc)
        return rc;
    if (known_reason(e->job))
        return explain_answer(q, e, err);
    e->ask.job = json_integer_value(json_object_get(e->job, "id"));
    e->ask.done = on_answer;
    e->ask.arg = q;
    link_ask(q->api->link, &e->ask);
    return API_WAIT;
}
