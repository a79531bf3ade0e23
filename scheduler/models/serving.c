/* serving.c - see serving.h. */
#include "scheduler/models/serving.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/models/homes.h"
#include "scheduler/sched.h"

#include <string.h>

#define SERVING_RETRY "retry" /* a step: none loads it, one will again */

static bool is_model_served(const struct model *m)
{
    return !m->gone && m->state < MODEL_UNLOADING && m->state != MODEL_FAILED;
}

/* It is up and lives there, or might: it lives nowhere yet. */
static bool may_have(const struct model *m, const struct exec *e)
{
    const struct model_on *on = &m->on[e->index];

    if (m->lives.n > 0 && !homes_has(m, e))
        return false;
    return on->phase == MODEL_ON_FAILED ? on->retry_ns != 0 : m->n_failed < HOMES_MAX_FAILED;
}

enum msg_up serving_state(const struct sched *s, const struct model *m)
{
    enum msg_up best = MSG_UP_ABSENT;

    if (!is_model_served(m))
        return MSG_UP_NONE;
    for (size_t i = 0; i < s->execs.n; i++) {
        const struct exec *e = s->execs.items[i];

        if (!e->session)
            continue;
        if (exec_is_up(e) && (m->on[i].phase == MODEL_ON_READY || m->on[i].is_aside))
            return MSG_UP_READY;
        if (!exec_is_up(e) || may_have(m, e))
            best = MSG_UP_LOADING;
        else if (best == MSG_UP_ABSENT)
            best = MSG_UP_FAILED;
    }
    return best;
}

/* On one executor. */
static int64_t expected_on(const struct exec *e, const struct model *m, int64_t now_ns,
                           int64_t away_ns)
{
    const struct model_on *on = &m->on[e->index];

    if (!e->session) /* it may be on its way back */
        return now_ns - e->lost_ns < away_ns ? now_ns : SERVING_NEVER;
    if (exec_is_up(e) && !may_have(m, e))
        return SERVING_NEVER;
    if (!exec_is_up(e) || on->phase == MODEL_ON_ABSENT || on->phase == MODEL_ON_UNLOADING ||
        on->phase == MODEL_ON_ASIDE)
        return now_ns;
    if (on->phase == MODEL_ON_LOADING)
        return on->step.left_ns < 0 ? now_ns : SH_MAX(now_ns, on->step.at_ns + on->step.left_ns);
    return on->phase == MODEL_ON_FAILED && on->retry_ns ? on->retry_ns : SERVING_NEVER;
}

int64_t serving_expected_ns(const struct sched *s, const struct model *m, int64_t now_ns)
{
    int64_t first = SERVING_NEVER, away_ns = SH_MS(s->conf->load_wait_ms);

    for (size_t i = 0; is_model_served(m) && i < s->execs.n; i++)
        first = SH_MIN(first, expected_on(s->execs.items[i], m, now_ns, away_ns));
    return first;
}

/* One that could not load it tries again in a while: `failed` then. */
static bool has_load_step(const struct model_on *on, bool failed)
{
    return failed ? on->phase == MODEL_ON_FAILED && on->retry_ns : on->phase == MODEL_ON_LOADING;
}

static struct model_step step_on(const struct model_on *on, int64_t now_ns)
{
    struct model_step x = {.at_ns = now_ns};

    if (on->phase == MODEL_ON_LOADING)
        return on->step;
    sh_strlcpy(x.step, SERVING_RETRY, sizeof(x.step));
    x.left_ns = SH_MAX(on->retry_ns - now_ns, 0);
    return x;
}

/* The step of the executor that will be ready first, by what each of them says. */
static struct model_step serving_step(const struct sched *s, const struct model *m, bool failed)
{
    struct model_step best = {.left_ns = -1};
    bool any = false;

    for (size_t i = 0; i < s->execs.n; i++) {
        const struct model_on *on = &m->on[i];
        struct model_step x;

        if (!exec_is_up(s->execs.items[i]) || !has_load_step(on, failed))
            continue;
        x = step_on(on, sh_clock_ns());
        if (!any || (x.left_ns >= 0 &&
                     (best.left_ns < 0 || x.at_ns + x.left_ns < best.at_ns + best.left_ns)))
            best = x;
        any = true;
    }
    return any || failed ? best : serving_step(s, m, true);
}

static bool says_why(const struct model *m)
{
    return m->told.state == MSG_UP_FAILED || strcmp(m->told.step.step, SERVING_RETRY) == 0;
}

static struct sh_msg message(const struct model *m)
{
    const struct model_step *x = &m->told.step;
    int64_t left_ns = x->left_ns;

    if (left_ns > 0)
        left_ns = sh_clock_until(x->at_ns + left_ns);
    return (struct sh_msg){.type = MSG_MODEL_UP,
                           .u.model_up = {.version_id = m->version_id,
                                          .state = m->told.state,
                                          .step = x->step,
                                          .done = x->done,
                                          .total = x->total,
                                          .left_ns = left_ns,
                                          .msg = says_why(m) ? m->fail_msg : ""}};
}

static void tell_apis(struct sched *s, const struct sh_msg *m)
{
    for (size_t i = 0; i < s->sessions.n; i++)
        if (s->sessions.items[i]->api)
            session_send(s->sessions.items[i], m);
}

static bool same_step(const struct model_step *a, const struct model_step *b)
{
    if (strcmp(a->step, SERVING_RETRY) == 0) /* its time was told */
        return strcmp(b->step, SERVING_RETRY) == 0;
    return strcmp(a->step, b->step) == 0 && a->done == b->done && a->total == b->total &&
           a->left_ns == b->left_ns && (a->left_ns < 0 || a->at_ns == b->at_ns);
}

static void tell_model(struct sched *s, struct model *m)
{
    struct model_told now = {.state = serving_state(s, m), .step = {.left_ns = -1}};
    struct sh_msg msg;

    if (now.state == MSG_UP_LOADING)
        now.step = serving_step(s, m, false);
    if (now.state == m->told.state && same_step(&now.step, &m->told.step))
        return;
    m->told = now;
    msg = message(m);
    tell_apis(s, &msg);
}

static struct msg_serving count_serving(const struct sched *s)
{
    struct msg_serving now = {0};

    for (size_t i = 0; i < s->execs.n; i++)
        now.executors += exec_is_up(s->execs.items[i]);
    for (size_t i = 0; i < s->models.n; i++) {
        const struct model *m = s->models.items[i];

        now.missing += m->state == MODEL_READY && !m->gone &&
                       (m->told.state == MSG_UP_LOADING || m->told.state == MSG_UP_ABSENT);
    }
    return now;
}

void serving_tell(struct sched *s)
{
    struct msg_serving now;

    if (!s->models.changed)
        return;
    s->models.changed = false;
    for (size_t i = 0; i < s->models.n; i++)
        tell_model(s, s->models.items[i]);
    now = count_serving(s);
    if (now.executors != s->models.told.executors || now.missing != s->models.told.missing) {
        s->models.told = now;
        tell_apis(s, &(struct sh_msg){.type = MSG_SERVING, .u.serving = now});
    }
}

void serving_second(struct sched *s)
{
    const int64_t now = sh_clock_ns();
    struct sh_msg m = {.type = MSG_MODEL_TRAFFIC};
    struct msg_model_traffic *t = &m.u.model_traffic;

    if (s->traffics.n_seconds++ % TRAFFIC_TELL_S)
        return;
    *t = (struct msg_model_traffic){
        .tenant = "", .model = "", .window_s = traffics_window_s(&s->traffics, now)};
    tell_apis(s, &m);
    for (struct traffic *x = traffics_next(&s->traffics, NULL); x;
         x = traffics_next(&s->traffics, x)) {
        struct traffic_line l;

        traffic_look(x, now, &l);
        t->tenant = l.tenant;
        t->model = l.model;
        t->n_requests = l.n_requests;
        t->p50_ms = l.p50_ms;
        t->p99_ms = l.p99_ms;
        tell_apis(s, &m);
    }
    traffics_sweep(&s->traffics, now);
}

void serving_tell_api(struct sched *s, struct session *api)
{
    serving_tell(s);
    for (size_t i = 0; i < s->models.n; i++) {
        struct sh_msg m = message(s->models.items[i]);

        if (s->models.items[i]->told.state != MSG_UP_NONE)
            session_send(api, &m);
    }
    session_send(api, &(struct sh_msg){.type = MSG_SERVING, .u.serving = s->models.told});
}

void serving_forget(struct sched *s, struct model *m)
{
    struct sh_msg gone;

    if (m->told.state == MSG_UP_NONE)
        return;
    m->told = (struct model_told){.state = MSG_UP_NONE};
    s->models.changed = true; /* it may have been one that is missing */
    gone = message(m);
    tell_apis(s, &gone);
}
