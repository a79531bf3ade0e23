/* link.c - see link.h: commands, the scheduler, deadlines. */
#include "api/infer/link.h"

#include "api/api.h"
#include "api/cache/waiters.h"
#include "api/infer/link_int.h"
#include "api/infer/serving.h"
#include "api/infer/traffic.h"
#include "api/request/front.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SWEEP_NS SH_MS(20)
#define HINT_NS SWEEP_NS /* between two hints about jobs, each of which makes the leader look */
#define COMES_AT_ONCE (8u << 10) /* a body so small is there with its headers, or soon after */
#define SENT_TOGETHER 32u        /* commands: while others keep coming, these do not wait longer */
#define ORPHAN_NS SH_S(2)        /* wait for a result after the scheduler's loss */

/* ---------------------------------------------------------------- the table */

struct infer *link__find(struct link *l, uint64_t rid)
{
    struct infer *i = l->buckets[rid % LINK_BUCKETS];

    while (i && i->rid != rid)
        i = i->link.next_hash;
    return i;
}

static void table_add(struct link *l, struct infer *i)
{
    struct infer **bucket = &l->buckets[i->rid % LINK_BUCKETS];

    infer_ref(i);
    i->link.next_hash = *bucket;
    *bucket = i;
    i->link.next = l->all;
    if (l->all)
        l->all->link.prev = i;
    l->all = i;
}

static void infer_forget(struct link *l, struct infer *i)
{
    struct infer **at = &l->buckets[i->rid % LINK_BUCKETS];

    while (*at && *at != i)
        at = &(*at)->link.next_hash;
    if (!*at)
        return;
    *at = i->link.next_hash;
    if (i->link.prev)
        i->link.prev->link.next = i->link.next;
    else
        l->all = i->link.next;
    if (i->link.next)
        i->link.next->link.prev = i->link.prev;
    infer_unref(i);
}

/* Its run begins before the time of the last request in it is over: not of this one, whose time may
 * have been cut short (ORPHAN_NS, or by its client). */
static int64_t drain_end(const struct link *l)
{
    int64_t wait_ns = SH_MS(SH_CONF_NOW(l->api->conf->infer_timeout_ms));

    return sh_clock_ns() + wait_ns + l->run_ns + LIMBO_NS;
}

void link__send(struct link *l, const struct sh_msg *m)
{
    struct sh_wire *w = l->scheduler ? sh_link_wire(l->scheduler) : NULL;

    /* A lost connection is told by on_down; what waited for an answer ends there. */
    if (w)
        sh_wire_send(w, m, NULL);
}

static void send_cancel(struct link *l, const struct infer *i)
{
    if (i->link.opened)
        link__send(l,
                   &(struct sh_msg){.type = MSG_INFER_CANCEL, .u.infer_cancel = {.rid = i->rid}});
}

/* Those whose requests were resumed in this turn: each of them finds all of its requests. */
static void rouse_fronts(struct link *l)
{
    while (l->n_asleep > 0) {
        const struct link_asleep *s = &l->asleep[--l->n_asleep];

        s->front->rouse(s->thread);
    }
}

static void resume_waiting(struct link *l, struct api_req *q)
{
    const struct api_front *front = q ? q->front : NULL;
    void *thread = front ? front->resume(q) : NULL;

    if (!thread)
        return;
    if (l->n_asleep == LINK_MAX_ASLEEP)
        rouse_fronts(l);
    l->asleep[l->n_asleep++] = (struct link_asleep){front, thread};
}

void link__end(struct link *l, struct infer *i, const struct infer_result *r, bool may_run)
{
    if (!i->link.over) {
        i->link.over = true;
        if (i->link.moved) /* perhaps it runs again, though the result of a run before has come */
            send_cancel(l, i);
        atomic_fetch_sub(&l->n_open, 1);
        /* Before the wake-up: the socket may be closed, and its number reused, right after. */
        sh_io_del(i->link.watch);
        i->link.watch = NULL;
        resume_waiting(l, infer_complete(i, r));
    }
    if ((may_run || i->link.moved) && i->link.ready)
        i->link.drain_until_ns = drain_end(l);
    else
        infer_forget(l, i);
}

void link__fail(struct link *l, struct infer *i, int rc, const char *msg, bool may_run)
{
    struct infer_result r = {.rc = rc, .retry_after_ms = sh_rc_retry(rc) ? LINK_RETRY_MS : 0};

    sh_strlcpy(r.msg, msg, sizeof(r.msg));
    link__end(l, i, &r, may_run);
}

/* ---------------------------------------------------------------- commands */

static void on_client_gone(struct sh_loop *loop, int fd, unsigned events, void *arg)
{
    struct infer *i = arg;
    struct link *l = i->api->link;

    (void)loop;
    (void)fd;
    if (!(events & SH_IO_HUP))
        return;
    send_cancel(l, i);
    link__fail(l, i, SH_E_CANCELLED, "the client went away", true);
}

static void run_open(struct link *l, struct infer *i)
{
    struct sh_msg m = {.type = MSG_INFER_OPEN,
                       .u.infer_open = {.rid = i->rid,
                                        .tenant = i->tenant,
                                        .model = i->v->model,
                                        .version_id = i->v->id,
                                        .body_bytes = i->body_bytes,
                                        .priority = (uint32_t)i->v->slo_priority,
                                        .has_sizes = i->v->symbols.n > 0,
                                        .age_ns = sh_clock_ns() - i->begin_ns}};

    sh_loop_stay_awake(l->loop);
    table_add(l, i);
    i->link.deadline_ns = i->begin_ns + SH_MS(SH_CONF_NOW(l->api->conf->infer_timeout_ms));
    if (!atomic_load(&l->up)) {
        link__fail(l, i, SH_E_UNAVAILABLE, "no scheduler is reachable; try again later", false);
        return;
    }
    i->link.opened = true;
    link__send(l, &m);
}

static void fill_link_spans(const struct infer *i, struct msg_span *in, struct msg_span *out)
{
    const char *base = slab_at(i->api->slab, 0);

    for (size_t k = 0; k < i->v->n_inputs; k++)
        in[k] = (struct msg_span){(uint64_t)(i->plan.in[k].binary - base), i->plan.in[k].run_bytes};
    for (size_t k = 0; k < i->v->n_outputs; k++)
        out[k] = (struct msg_span){i->outputs->off + i->plan.out_off[k], i->plan.run_out_bytes[k]};
}

static void run_ready(struct link *l, struct infer *i)
{
    struct msg_span in[CAT_MAX_IO], out[CAT_MAX_IO];
    int64_t budget_ns = SH_US(i->plan.timeout_us);
    struct sh_msg m = {.type = MSG_INFER_READY};

    if (i->link.over)
        return;
    sh_loop_stay_awake(l->loop);
    fill_link_spans(i, in, out);
    m.u.infer_ready =
        (struct msg_infer_ready){.rid = i->rid,
                                 .batch = (uint32_t)i->plan.batch,
                                 .in_spans = {in, i->v->n_inputs * sizeof(in[0])},
                                 .out_spans = {out, i->v->n_outputs * sizeof(out[0])},
                                 .priority = i->plan.priority,
                                 .sizes = {i->plan.run.v, i->plan.run.n * sizeof(uint32_t)}};
    if (budget_ns > 0) { /* counts from the headers; a client can only ask for less time */
        int64_t left_ns;

        i->link.deadline_ns = SH_MIN(i->link.deadline_ns, i->begin_ns + budget_ns);
        left_ns = sh_clock_until(i->link.deadline_ns);
        m.u.infer_ready.budget_ns = SH_MAX(left_ns, 1);
    }
    i->link.ready = true;
    i->link.ready_ns = sh_clock_ns();
    link__send(l, &m);
    link__send_inputs(l, i);
}

static void run_cancel(struct link *l, struct infer *i)
{
    if (i->link.over)
        return;
    send_cancel(l, i);
    link__fail(l, i, SH_E_CANCELLED, "the client went away", true);
}

static struct infer *next_command(struct link *l, unsigned *what)
{
    struct infer *i;

    pthread_mutex_lock(&l->lock);
    i = l->head;
    if (i) {
        l->head = i->link.next_command;
        if (!l->head)
            l->tail = NULL;
        *what = i->link.commands;
        i->link.commands = 0;
        i->link.queued = false;
    }
    pthread_mutex_unlock(&l->lock);
    return i; /* with the queue's reference */
}

static void run_loads(struct link *l)
{
    int64_t loads[LINK_MAX_LOADS];
    size_t n;

    pthread_mutex_lock(&l->lock);
    n = l->n_loads;
    memcpy(loads, l->loads, n * sizeof(loads[0]));
    l->n_loads = 0;
    pthread_mutex_unlock(&l->lock);
    for (size_t i = 0; i < n; i++) {
        char what[32];

        snprintf(what, sizeof(what), "load %" PRId64, loads[i]);
        link__send(l, &(struct sh_msg){.type = MSG_HINT, .u.hint = {.what = what}});
    }
}

/* One that comes soon after another waits for the timer. */
static void run_hints(struct link *l)
{
    int64_t now_ns = sh_clock_ns();
    unsigned hints, later = now_ns - l->hinted_ns < HINT_NS ? HINT_JOBS : 0;

    pthread_mutex_lock(&l->lock);
    hints = l->hints & ~later;
    l->hints &= later;
    pthread_mutex_unlock(&l->lock);
    if (hints & HINT_JOBS)
        l->hinted_ns = now_ns;
    if (hints & HINT_JOBS)
        link__send(l, &(struct sh_msg){.type = MSG_HINT, .u.hint = {.what = "jobs"}});
    if (hints & HINT_MODELS)
        link__send(l, &(struct sh_msg){.type = MSG_HINT, .u.hint = {.what = "models"}});
    if (hints & HINT_REACHED)
        link__send(l, &(struct sh_msg){.type = MSG_HINT, .u.hint = {.what = "reached"}});
}

/* To every executor: the scheduler knows where a request ran, and may be another one by now. */
static void run_wishes(struct link *l)
{
    struct msg_span_wish rows[MSG_SPAN_WISHES];
    struct sh_msg m = {.type = MSG_SPANS_WANTED};
    size_t n;

    pthread_mutex_lock(&l->lock);
    n = l->n_wishes;
    memcpy(rows, l->wishes, n * sizeof(rows[0]));
    l->n_wishes = 0;
    pthread_mutex_unlock(&l->lock);
    if (n == 0)
        return;
    m.u.spans_wanted.rows = (struct sh_blob){rows, n * sizeof(rows[0])};
    link__send(l, &m);
    link__send_to_all(l, &m);
}

static void run_command(struct link *l, struct infer *i, unsigned what)
{
    if (what == (CMD_OPEN | CMD_CANCEL)) { /* it never began: the scheduler need not hear of it */
        if (!i->link.is_late)
            atomic_fetch_sub(&l->n_open, 1);
        return;
    }
    if (what & CMD_OPEN)
        run_open(l, i);
    if (what & CMD_READY)
        run_ready(l, i);
    if (what & CMD_CANCEL)
        run_cancel(l, i);
}

static void on_wake(struct sh_loop *loop, void *arg)
{
    struct link *l = arg;
    struct sh_wire *w = l->scheduler ? sh_link_wire(l->scheduler) : NULL;
    struct infer *i;
    unsigned what = 0, n = 0;

    (void)loop;
    if (w)
        sh_wire_cork(w);
    while ((i = next_command(l, &what))) {
        run_command(l, i, what);
        infer_unref(i);
        if (w && ++n % SENT_TOGETHER == 0) {
            sh_wire_uncork(w);
            sh_wire_cork(w);
        }
    }
    link__ask_send(l);
    run_hints(l);
    run_loads(l);
    if (w)
        sh_wire_uncork(w);
    if (atomic_load(&l->stop))
        sh_loop_stop(l->loop);
}

/* False: the thread has ended. later: it is woken by link_wake(). */
static bool post(struct link *l, struct infer *i, unsigned what, bool later)
{
    bool ended;

    pthread_mutex_lock(&l->lock);
    ended = l->ended;
    i->link.commands |= what;
    if (!i->link.queued && !ended) {
        i->link.queued = true;
        i->link.next_command = NULL;
        infer_ref(i);
        if (l->tail)
            l->tail->link.next_command = i;
        else
            l->head = i;
        l->tail = i;
    }
    pthread_mutex_unlock(&l->lock);
    if (!ended && !later)
        sh_loop_wake(l->loop);
    return !ended;
}

/* A place among those in flight; link__end() gives it back. */
static int take_link_place(struct link *l, struct sh_err *err)
{
    if (!atomic_load(&l->up) || atomic_load(&l->stop))
        return SH_FAIL(err, SH_E_UNAVAILABLE, "no scheduler is reachable; try again later");
    if (atomic_fetch_add(&l->n_open, 1) < SH_CONF_NOW(l->api->conf->max_inflight))
        return SH_OK;
    atomic_fetch_sub(&l->n_open, 1);
    return SH_FAIL(err, SH_E_QUEUEFULL, "too many requests are in flight; try again later");
}

/* It has its place. */
static int post_open(struct link *l, struct infer *i, struct sh_err *err)
{
    if (post(l, i, CMD_OPEN, false))
        return SH_OK;
    atomic_fetch_sub(&l->n_open, 1);
    return SH_FAIL(err, SH_E_UNAVAILABLE, "this server is shutting down; try another one");
}

int link_open(struct link *l, struct infer *i, struct sh_err *err)
{
    int rc = take_link_place(l, err);

    if (rc)
        return rc;
    i->rid = link_new_rid(l);
    i->link.is_late = i->body_bytes <= COMES_AT_ONCE;
    if (i->link.is_late) { /* no quota counts it yet: a tenant whose bodies stall takes no place */
        atomic_fetch_sub(&l->n_open, 1);
        i->link.commands = CMD_OPEN; /* goes with READY; nobody else has `i` yet */
        return SH_OK;
    }
    return post_open(l, i, err);
}

int link_open_late(struct link *l, struct infer *i, struct sh_err *err)
{
    int rc = i->link.is_late ? take_link_place(l, err) : SH_OK;

    if (rc || !i->link.is_late)
        return rc;
    i->link.is_late = false;
    return post_open(l, i, err);
}

void link_wake(struct link *l)
{
    sh_loop_wake(l->loop);
}

void link_ready(struct link *l, struct infer *i, bool later)
{
    struct infer_result r = {0};
    struct sh_err err = {0};
    struct api_req *q;

    if (i->link.is_late)
        r.rc = take_link_place(l, &err);
    if (!r.rc && !post(l, i, CMD_READY, later))
        r.rc = SH_FAIL(&err, SH_E_UNAVAILABLE, "this server is shutting down; try another one");
    if (!r.rc)
        return;
    r.retry_after_ms = sh_rc_retry(r.rc) ? LINK_RETRY_MS : 0;
    sh_strlcpy(r.msg, err.msg, sizeof(r.msg));
    q = infer_complete(i, &r);
    if (q)
        req_wake(q);
}

void link_cancel(struct link *l, struct infer *i)
{
    post(l, i, CMD_CANCEL, false);
}

void link_hint(struct link *l, const char *what)
{
    unsigned hint = strcmp(what, "jobs") == 0     ? HINT_JOBS
                    : strcmp(what, "models") == 0 ? HINT_MODELS
                                                  : HINT_REACHED;

    pthread_mutex_lock(&l->lock);
    l->hints |= hint;
    pthread_mutex_unlock(&l->lock);
    sh_loop_wake(l->loop);
}

void link_want_spans(struct link *l, const struct msg_span_wish *w)
{
    bool has_room;

    pthread_mutex_lock(&l->lock);
    has_room = l->n_wishes < MSG_SPAN_WISHES;
    if (has_room)
        l->wishes[l->n_wishes++] = *w; /* the timer sends them */
    pthread_mutex_unlock(&l->lock);
    if (!has_room)
        sh_metric_add(M_shunt_otlp_dropped_spans_total, SH_LABELS("full"), 1);
}

void link_hint_load(struct link *l, int64_t version_id)
{
    pthread_mutex_lock(&l->lock);
    if (l->n_loads < LINK_MAX_LOADS)
        l->loads[l->n_loads++] = version_id;
    pthread_mutex_unlock(&l->lock);
    sh_loop_wake(l->loop);
}

uint64_t link_new_rid(struct link *l)
{
    return atomic_fetch_add(&l->next_rid, 1);
}

uint64_t link_api_id(const struct link *l)
{
    return l->api_id;
}

bool link_is_up(const struct link *l)
{
    return atomic_load(&((struct link *)l)->up);
}

/* ---------------------------------------------------------------- the scheduler */

static void on_refused(struct link *l, const struct msg_infer_refused *m)
{
    struct infer *i = link__find(l, m->rid);
    struct infer_result r = {.rc = m->rc < 0 ? (int)m->rc : SH_E_UNAVAILABLE,
                             /* The model alone is too slow for its deadline. */
                             .retry_after_ms = m->rc == SH_E_SLO && m->retry_after_ms == 0
                                                   ? API_NO_RETRY
                                                   : m->retry_after_ms,
                             .predicted_ms = m->predicted_ms};

    if (!i)
        return;
    sh_strlcpy(r.msg, m->msg, sizeof(r.msg));
    /* It never reached an executor, or has left it; but UNAVAILABLE may mean that only the
     * scheduler's connection to the executor is gone, and the run goes on. */
    link__end(l, i, &r, i->link.placed && r.rc == SH_E_UNAVAILABLE);
}

static void on_placed(struct link *l, const struct msg_infer_placed *m)
{
    struct infer *i = link__find(l, m->rid);

    if (!i)
        return;
    if (i->link.over) { /* its end is told by who has it */
        sh_strlcpy(i->link.executor, m->executor, sizeof(i->link.executor));
        link__take_early(l, i);
        return;
    }
    if (strcmp(i->link.executor, m->executor) != 0) {
        i->link.sent = false;
        i->link.out_bytes = 0;
    }
    i->link.placed = true;
    i->link.n_placed++;
    i->link.compile_ns = m->compile_ns;
    sh_strlcpy(i->link.executor, m->executor, sizeof(i->link.executor));
    if (!link__take_early(l, i))
        link__send_inputs(l, i);
}

/* What a scheduler has said counts no longer. */
static void forget_told(struct link *l)
{
    serving_clear(l->api->serving);
    traffic_clear(l->api->traffic);
}

static void on_scheduler_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                             void *arg)
{
    struct link *l = arg;

    (void)fds;
    (void)n_fds;
    switch (m->type) {
    case MSG_WELCOME:
        SH_INFO("scheduler.up", "name=%s epoch=%llu", m->u.welcome.name,
                (unsigned long long)m->u.welcome.epoch);
        l->welcome_ns = sh_clock_ns();
        forget_told(l);
        for (size_t k = 0; k < l->n_execs; k++)
            l->execs[k]->confirmed = false;
        atomic_store(&l->up, true);
        sh_metrics_set_ready(true);
        break;
    case MSG_EXEC_UP:
        link__exec_up(l, &m->u.exec_up);
        break;
    case MSG_MODEL_UP:
        serving_note(l->api->serving, &m->u.model_up);
        waiters_wake(l->api->waiters);
        break;
    case MSG_MODEL_TRAFFIC:
        traffic_note(l->api->traffic, &m->u.model_traffic);
        break;
    case MSG_SERVING:
        serving_count(l->api->serving, &m->u.serving);
        break;
    case MSG_INFER_PLACED:
        on_placed(l, &m->u.infer_placed);
        break;
    case MSG_INFER_REFUSED:
        on_refused(l, &m->u.infer_refused);
        break;
    case MSG_JOB_EXPLAINED:
        link__ask_answer(l, &m->u.job_explained);
        break;
    case MSG_PING:
        sh_wire_send(w, &(struct sh_msg){.type = MSG_PONG, .u.pong = {m->u.ping.cookie}}, NULL);
        break;
    default:
        SH_WARN("scheduler.message", "type=%s msg=\"not for an API\"", sh_msg_name(m->type));
    }
}

static void on_scheduler_up(struct sh_wire *w, void *arg)
{
    struct link *l = arg;
    struct sh_msg m = {.type = MSG_API_HELLO,
                       .u.api_hello = {.api_id = l->api_id, .name = l->api->conf->name}};

    sh_wire_send(w, &m, NULL);
}

/* What was dispatched may still bring its result straight from the executor; the rest cannot. */
static void on_scheduler_down(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct link *l = arg;
    const int64_t orphans_end_ns = sh_clock_ns() + ORPHAN_NS;
    struct infer *next;

    (void)w;
    link__ask_sweep(l, true);
    forget_told(l);
    sh_metrics_set_ready(false);
    if (atomic_exchange(&l->up, false))
        SH_WARN("scheduler.down", "code=%s msg=\"%s\"", sh_rc_name(why->rc), why->msg);
    for (struct infer *i = l->all; i; i = next) {
        next = i->link.next;
        if (i->link.over)
            continue;
        if (!i->link.ready || !i->link.placed) {
            link__fail(l, i, SH_E_UNAVAILABLE, LINK_LOST_TEXT, true);
        } else {
            i->link.orphan = true;
            i->link.deadline_ns = SH_MIN(i->link.deadline_ns, orphans_end_ns);
        }
    }
}

/* ---------------------------------------------------------------- time */

static void refuse_unreached(struct link *l, struct infer *i)
{
    char why[160];

    snprintf(why, sizeof(why), "executor \"%s\" cannot be reached by this API server; try again",
             i->link.executor);
    send_cancel(l, i);
    link__fail(l, i, SH_E_UNAVAILABLE, why, true);
}

static void on_timer(struct sh_loop *loop, void *arg)
{
    struct link *l = arg;
    int64_t now = sh_clock_ns();
    bool up = atomic_load(&l->up);
    struct infer *next;

    (void)loop;
    for (struct infer *i = l->all; i; i = next) {
        bool lost = !up || i->link.orphan; /* the next scheduler knows nothing of it */

        next = i->link.next;
        if (i->link.over && now >= i->link.drain_until_ns) {
            infer_forget(l, i);
        } else if (link__is_out_of_reach(l, i, now)) {
            refuse_unreached(l, i);
        } else if (!i->link.over && i->link.ready && !i->link.watch && i->fd >= 0 &&
                   now < i->link.deadline_ns) {
            /* Not before: most are over sooner. Failing to watch costs only early notice. */
            sh_io_add(l->loop, i->fd, SH_IO_HUP, on_client_gone, i, &i->link.watch, NULL);
        } else if (!i->link.over && now >= i->link.deadline_ns) {
            send_cancel(l, i);
            link__fail(l, i, lost ? SH_E_UNAVAILABLE : SH_E_TIMEOUT,
                       lost ? LINK_LOST_TEXT : LINK_LATE_TEXT, true);
        }
    }
    link__exec_sweep(l);
    link__ask_sweep(l, false);
    run_hints(l);
    run_wishes(l);
    sh_metric_set(M_shunt_payload_bytes, SH_LABELS("used"), (double)slab_used(l->api->slab));
    sh_metric_set(M_shunt_payload_bytes, SH_LABELS("total"), (double)slab_bytes(l->api->slab));
}

/* ---------------------------------------------------------------- start, stop */

static void on_link_turn(struct sh_loop *loop, void *arg)
{
    (void)loop;
    rouse_fronts(arg);
}

static void *link_main(void *arg)
{
    struct link *l = arg;
    struct sh_err err = {0};

    if (sh_loop_run(l->loop, &err))
        sh_log_err(SH_LOG_ERROR, "link.loop", &err);
    pthread_mutex_lock(&l->lock);
    l->ended = true;
    pthread_mutex_unlock(&l->lock);
    on_wake(l->loop, l); /* commands that came while it ended */
    atomic_store(&l->up, false);
    link__ask_sweep(l, true);
    while (l->all) { /* nobody waits any longer: the process is about to end */
        struct infer *i = l->all;

        i->link.ready = false;
        link__fail(l, i, SH_E_UNAVAILABLE, "this server is shutting down; try another one", false);
    }
    rouse_fronts(l);
    return NULL;
}

int link_start(struct api *a, struct link **out, struct sh_err *err)
{
    struct link *l = calloc(1, sizeof(*l));
    struct sh_link_handler h = {.on_up = on_scheduler_up,
                                .on_msg = on_scheduler_msg,
                                .on_down = on_scheduler_down,
                                .arg = l,
                                .max_silence_ms = a->conf->scheduler_silence_ms,
                                .keys = a->link_keys};
    int rc;

    *out = NULL;
    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the link");
    l->api = a;
    pthread_mutex_init(&l->lock, NULL);
    atomic_init(&l->next_rid, 1);
    rc = sh_random(&l->api_id, sizeof(l->api_id), err);
    if (!rc)
        rc = sh_loop_new(&l->loop, err);
    if (!rc)
        rc = sh_timer_add(l->loop, SWEEP_NS, SWEEP_NS, on_timer, l, &l->timer, err);
    if (!rc)
        rc = sh_link_new(l->loop, a->conf->scheduler, &h, &l->scheduler, err);
    if (!rc) {
        sh_loop_on_wake(l->loop, on_wake, l);
        sh_loop_before_sleep(l->loop, on_link_turn, l);
        sh_loop_busy_poll(l->loop, SH_US(a->conf->busy_poll_us));
        a->link = l; /* callbacks look for it there */
        l->has_thread = pthread_create(&l->thread, NULL, link_main, l) == 0;
        if (!l->has_thread)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not start the link's thread");
    }
    if (rc) {
        a->link = NULL;
        link_free(l);
        return rc;
    }
    *out = l;
    return SH_OK;
}

void link_stop(struct link *l)
{
    if (!l || !l->has_thread)
        return;
    atomic_store(&l->stop, true);
    sh_loop_wake(l->loop);
    pthread_join(l->thread, NULL);
    l->has_thread = false;
}

void link_free(struct link *l)
{
    struct infer *i;
    unsigned what;

    if (!l)
        return;
    if (l->loop) {
        while ((i = next_command(l, &what)))
            infer_unref(i);
        link__exec_free_all(l);
        sh_link_free(l->scheduler);
        sh_timer_del(l->timer);
        sh_loop_free(l->loop);
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}
