/* apis.c - see apis.h: what APIs say. */
#include "scheduler/apis.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/trace.h"
#include "scheduler/explain.h"
#include "scheduler/leader.h"
#include "scheduler/sched.h"

#include <stdlib.h>
#include <string.h>

int apis_on_hello(struct sched *s, struct session *x, const struct msg_api_hello *m,
                  struct sh_err *err)
{
    struct api *a;

    /* The same API after a broken connection: the old session just has not noticed yet. */
    for (size_t i = 0; i < s->sessions.n; i++) {
        struct session *old = s->sessions.items[i];

        if (old->api && old->api->id == m->api_id)
            session_end(old, "the API connected again");
    }
    a = calloc(1, sizeof(*a));
    if (!a)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an API");
    a->session = x;
    a->id = m->api_id;
    sh_strlcpy(a->name, m->name, sizeof(a->name));
    x->api = a;
    SH_INFO("api.up", "api=%s id=%llx", a->name, (unsigned long long)a->id);
    return SH_OK;
}

void apis_on_close(struct sched *s, struct api *a, const char *why)
{
    SH_INFO("api.lost", "api=%s why=\"%s\"", a->name, why);
    requests_on_api_lost(s, a);
    idmap_fini(&a->requests);
    free(a);
}

static void on_explain(struct sched *s, struct api *a, const struct msg_job_explain *m)
{
    struct sh_err err = {0};
    json_t *j = NULL;
    char *text = NULL;
    int rc = explain_job(s, m->job, &j, &err);

    if (!rc)
        rc = sh_json_dump(j, &text, &err);
    session_send(a->session,
                 &(struct sh_msg){
                     .type = MSG_JOB_EXPLAINED,
                     .u.job_explained = {.rid = m->rid, .rc = rc, .msg = err.msg, .text = text}});
    free(text);
    json_decref(j);
}

void apis_on_msg(struct sched *s, struct api *a, const struct sh_msg *m)
{
    switch (m->type) {
    case MSG_INFER_OPEN:
        sh_loop_stay_awake(s->loop);
        requests_on_open(s, a, &m->u.infer_open);
        break;
    case MSG_INFER_READY:
        sh_loop_stay_awake(s->loop);
        requests_on_ready(s, a, &m->u.infer_ready);
        break;
    case MSG_INFER_CANCEL:
        requests_on_cancel(s, a, m->u.infer_cancel.rid);
        break;
    case MSG_INFER_AGAIN:
        requests_on_again(s, a, &m->u.infer_again);
        break;
    case MSG_SPANS_WANTED:
        sh_trace_wish_all(a->id, &m->u.spans_wanted);
        break;
    case MSG_JOB_EXPLAIN:
        on_explain(s, a, &m->u.job_explain);
        break;
    case MSG_HINT:
        leader_on_word(s);
        if (strncmp(m->u.hint.what, "load ", 5) == 0)
            models_load_again(s, m->u.hint.what + 5);
        else if (strcmp(m->u.hint.what, "reached") != 0)
            sched_poll(s);
        break;
    default:
        SH_ERROR("api.message", "api=%s type=%s msg=\"not for a scheduler\"", a->name,
                 sh_msg_name(m->type));
        session_end(a->session, "it sent a message that is not for a scheduler");
    }
}
