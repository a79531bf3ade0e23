/* decide.c - see decide.h: who is admitted and where, and the whole decision. */
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/decide/decide_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DECIDE_MAX 1000000u
#define TIE_NS SH_US(100) /* predictions closer than this count as equal */
#define STOP_AND_GO 2     /* an interruption takes training so many times what a stop takes */
#define RETRY_SOON_MS 1000
#define RETRY_MAX_MS 60000
/* Refused for so long while nothing is before it, and at least for so many times the time that it
 * is expected to take: one is let in. */
#define PROBE_NS SH_S(1)
#define PROBE_RUNS 10

static const char *const REASON_NAMES[DECIDE_N_REASONS] = {
#define X(name, text) [DECIDE_##name] = (text),
    DECIDE_REASON_MAP(X)
#undef X
};

const char *decide_reason_name(enum decide_reason r)
{
    return REASON_NAMES[r];
}

int64_t decide_price_ns(int64_t finish_ns, int64_t cost_ns)
{
    return finish_ns + cost_ns;
}

int64_t decide_displaced_ns(int64_t added_ns, int64_t stop_ns, bool is_first)
{
    return added_ns + (is_first ? STOP_AND_GO * stop_ns : 0);
}

void decisions_fini(struct decisions *d)
{
    free(d->items);
    free(d->members);
    free(d->shares);
    free(d->scratch);
    *d = (struct decisions){0};
}

/* Without memory for one of them nothing is decided at all: decide() fails. */
void decide__add(struct decisions *out, const struct decision *d)
{
    if (!out->rc)
        out->rc = sh_grow(&out->items, &out->cap, out->n + 1, sizeof(*out->items), DECIDE_MAX,
                          "decisions of one pass", NULL);
    if (!out->rc)
        out->items[out->n++] = *d;
}

/* Zeroed memory that lives until the next call. */
int decide__scratch(struct decisions *out, size_t bytes, void **p, struct sh_err *err)
{
    int rc = sh_grow(&out->scratch, &out->scratch_bytes, bytes, 1, SIZE_MAX, "a pass", err);

    if (rc)
        return rc;
    if (bytes)
        memset(out->scratch, 0, bytes);
    *p = out->scratch;
    return SH_OK;
}

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    if (x->late != y->late)
        return x->late ? 1 : -1;
    if (x->is_modest != y->is_modest)
        return x->is_modest ? -1 : 1;
    if (x->deadline_ns != y->deadline_ns)
        return x->deadline_ns < y->deadline_ns ? -1 : 1;
    if (x->turn_ns != y->turn_ns)
        return x->turn_ns < y->turn_ns ? -1 : 1;
    if (x->arrived_ns != y->arrived_ns)
        return x->arrived_ns < y->arrived_ns ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

static void rank_requests(struct work *w)
{
    const struct snapshot *in = w->in;

    for (size_t i = 0; i < in->n_requests; i++) {
        const struct snap_request *r = &in->requests[i];
        bool late = r->on_miss == SNAP_BEST_EFFORT && r->deadline_ns != SNAP_NO_DEADLINE &&
                    in->now_ns + decide__run_ns(in, r->model, r->batch) > r->deadline_ns;

        w->order[i] = (struct ranked){.i = (uint32_t)i,
                                      .priority = r->priority,
                                      .late = late,
                                      .is_modest = r->is_modest,
                                      .deadline_ns = r->deadline_ns,
                                      .turn_ns = r->turn_ns,
                                      .arrived_ns = r->arrived_ns};
        w->exec[i] = r->exec;
    }
    qsort(w->order, in->n_requests, sizeof(w->order[0]), by_rank);
}

static void plan_execs(struct work *w)
{
    const struct snapshot *in = w->in;

    for (size_t e = 0; e < in->n_execs; e++) {
        const struct snap_exec *x = &in->execs[e];

        w->plans[e].start_ns = SH_MAX(in->now_ns, x->busy_until_ns);
        w->plans[e].slack_ns = x->slack_ns;
        w->plans[e].reserve = exp(x->reserve);
        w->plans[e].lane_ns = SH_MAX(in->now_ns, x->lane_ns);
        if (x->n_runs == 0 && x->trains)
            w->plans[e].start_ns += x->stop_ns;
        w->plans[e].due_end_ns = w->plans[e].start_ns;
        w->plans[e].first_ready = SNAP_NONE;
        for (size_t m = 0; m < in->n_models; m++) {
            const struct snap_place *p = &in->places[m * in->n_execs + e];

            if (p->resident_bytes >= in->models[m].image_bytes)
                w->arrives_ns[m * in->n_execs + e] = SH_MAX(p->arrives_ns, in->now_ns);
            w->unpack_ns[m * in->n_execs + e] = p->unpack_ns;
        }
    }
}

/* What the request adds to the executor's backlog: it may join the batch being filled there. */
static int64_t added_ns(const struct work *w, const struct snap_request *r, uint32_t e)
{
    const struct snapshot *in = w->in;
    uint32_t have = w->samples[(size_t)r->model * in->n_execs + e];
    int64_t whole;

    if (have == 0)
        return decide__missing_ns(in, r->model, e) + decide__place(in, r->model, e)->unpack_ns +
               decide__run_ns(in, r->model, r->batch);
    if (have + r->batch > decide__most(in, r->model))
        return decide__run_ns(in, r->model, r->batch);
    whole = decide__run_ns(in, r->model, have + r->batch) - decide__run_ns(in, r->model, have);
    return SH_MAX(whole, 0);
}

static void charge_exec(struct work *w, const struct snap_request *r, uint32_t e)
{
    const struct snapshot *in = w->in;
    uint32_t *have = &w->samples[(size_t)r->model * in->n_execs + e];

    w->plans[e].backlog_ns += added_ns(w, r, e);
    w->plans[e].n_placed++;
    if (*have + r->batch > decide__most(in, r->model))
        *have = 0;
    *have += r->batch;
}

static void refuse_request(struct work *w, uint32_t i, struct decision *d)
{
    d->kind = DECISION_REFUSE;
    d->request = i;
    w->done[i] = true;
    decide__add(w->out, d);
}

struct offer { /* what letting a request in at an executor would mean */
    uint32_t exec;
    int64_t finish_ns,
        late_ns;     /* late: beyond its limit, or what others were promised or are due */
    int64_t cost_ns; /* what it takes from others: copies, and time of a device that trains */
    bool is_beyond;  /* it would be in time, but has no part in that time */
};

static void refuse_late_request(struct work *w, uint32_t i, const struct offer *o, uint32_t bring)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = &in->requests[i];
    struct decision d = {.exec = bring,
                         .rc = SH_E_SLO,
                         .reason = o->is_beyond ? DECIDE_FAIR_SHARE : DECIDE_DEADLINE,
                         .predicted_ns = o->finish_ns - r->arrived_ns};

    d.is_alone_too_slow =
        decide__run_ns(in, r->model, r->batch) > r->limit_ns - r->arrived_ns - in->margin_ns;
    if (!d.is_alone_too_slow)
        d.retry_after_ms = SH_MIN(o->late_ns / SH_MS(1) + 1, RETRY_MAX_MS);
    refuse_request(w, i, &d);
}

static bool is_better_offer(const struct work *w, uint32_t model, const struct offer *a,
                            const struct offer *b)
{
    const struct snapshot *in = w->in;
    uint64_t ra = decide__place(in, model, a->exec)->resident_bytes;
    uint64_t rb = decide__place(in, model, b->exec)->resident_bytes;
    const int64_t fa = decide_price_ns(a->finish_ns, a->cost_ns);
    const int64_t fb = decide_price_ns(b->finish_ns, b->cost_ns);

    if ((a->late_ns <= 0) != (b->late_ns <= 0))
        return a->late_ns <= 0;
    if (fa + TIE_NS < fb || fb + TIE_NS < fa)
        return fa < fb;
    if (ra != rb)
        return ra > rb;
    return in->execs[a->exec].n_runs + w->plans[a->exec].n_placed <
           in->execs[b->exec].n_runs + w->plans[b->exec].n_placed;
}

/* ------------------------------------------------------------------ admission */

struct look decide__look_at(const struct work *w, uint32_t e)
{
    return (struct look){.exec = e,
                         .start_ns = w->plans[e].start_ns,
                         .slack_ns = w->plans[e].slack_ns,
                         .ready_only = w->plans[e].ready_only,
                         .newcomer = SNAP_NONE};
}

static void look_first(struct work *w, uint32_t e)
{
    struct look at = decide__look_at(w, e);

    if (w->plans[e].is_known)
        return;
    w->plans[e].is_known = true;
    due__look(w, &at);
    /* A body that does not come must not cost others what they were promised. */
    if (due__broken_ns(w, &at) > 0) {
        at.ready_only = w->plans[e].ready_only = true;
        due__look(w, &at);
    }
    due__keep(w, &at);
}

void decide__bring(struct work *w, uint32_t model, uint32_t e)
{
    int64_t *arrives = &w->arrives_ns[(size_t)model * w->in->n_execs + e];

    if (!*arrives)
        *arrives = w->plans[e].lane_ns += decide__missing_ns(w->in, model, e);
}

static void take_on_exec(struct work *w, uint32_t i, uint32_t e)
{
    const struct snap_request *r = &w->in->requests[i];
    struct look at = decide__look_at(w, e);

    decide__bring(w, r->model, e);
    w->exec[i] = e;
    if (r->limit_ns == SNAP_NO_DEADLINE) {
        charge_exec(w, r, e);
        return;
    }
    w->plans[e].n_placed++;
    at.newcomer = i;
    due__insert(w, i, e);
    due__look(w, &at);
    due__keep(w, &at);
}

/* What training on e loses by so much more work there. */
static int64_t displaced_ns(const struct work *w, uint32_t e, int64_t added_ns)
{
    const struct snap_exec *x = &w->in->execs[e];

    return x->trains
               ? decide_displaced_ns(added_ns, x->stop_ns, !x->n_runs && !w->plans[e].n_placed)
               : 0;
}

/* Leaves everything as it was. */
static struct offer offer_of(struct work *w, uint32_t i, uint32_t e)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = &in->requests[i];
    struct plan *p = &w->plans[e];
    struct plan before;
    int64_t *arrives = &w->arrives_ns[(size_t)r->model * in->n_execs + e], arrived = *arrives;
    struct offer o = {.exec = e, .cost_ns = *arrives ? 0 : decide__missing_ns(in, r->model, e)};
    struct look at;

    look_first(w, e);
    at = decide__look_at(w, e);
    at.newcomer = i;
    before = *p;
    if (r->limit_ns == SNAP_NO_DEADLINE) {
        o.finish_ns = p->due_end_ns + p->backlog_ns + added_ns(w, r, e) +
                      decide__place(in, r->model, e)->worker_ns;
        o.cost_ns += displaced_ns(w, e, added_ns(w, r, e));
        return o;
    }
    decide__bring(w, r->model, e);
    due__insert(w, i, e);
    due__look(w, &at);
    o.finish_ns = w->end_ns[i] + p->backlog_ns + in->margin_ns;
    o.cost_ns += displaced_ns(w, e, SH_MAX(p->due_end_ns - before.due_end_ns, 0));
    o.late_ns = SH_MAX(due__broken_ns(w, &at), o.finish_ns - r->limit_ns);
    due__remove(w, i, e);
    /* One sample had its part when it was placed. */
    if (o.late_ns <= 0 && (r->exec == SNAP_NONE || r->batch > 1)) {
        o.late_ns = SH_MAX(due__beyond_ns(w, i, e), 0);
        o.is_beyond = o.late_ns > 0;
    }
    *p = before;
    *arrives = arrived;
    return o;
}

static bool has_nothing_before(const struct work *w, uint32_t model, uint32_t e)
{
    const struct plan *p = &w->plans[e];

    return !decide__place(w->in, model, e)->worker_ns && !w->in->execs[e].n_runs && !p->n_placed &&
           p->first_due == SNAP_NONE;
}

static bool may_probe(const struct work *w, uint32_t i, uint32_t e)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = &in->requests[i];
    const struct snap_model *m = &in->models[r->model];
    const struct plan *p = &w->plans[e];
    const struct run_of run = {.exec = e, .model = r->model, .batch = r->batch};
    int64_t slack, end = decide__end_ns(w, &run, p->start_ns, &slack);
    int64_t wait = SH_MAX(PROBE_NS, PROBE_RUNS * (end - in->now_ns));

    if (!m->refused_ns || !has_nothing_before(w, r->model, e))
        return false;
    return in->now_ns - m->refused_ns >= wait && in->now_ns + m->fastest_ns <= r->limit_ns;
}

static void let_in(struct work *w, uint32_t i, const struct offer *o, bool is_probe)
{
    const struct snap_request *r = &w->in->requests[i];

    if (is_probe) {
        w->exec[i] = o->exec;
        charge_exec(w, r, o->exec);
    } else {
        take_on_exec(w, i, o->exec);
    }
    decide__add(w->out, &(struct decision){.kind = DECISION_PLACE,
                                           .request = i,
                                           .exec = o->exec,
                                           .is_probe = is_probe,
                                           .predicted_ns = o->finish_ns - r->arrived_ns});
}

static bool takes(const struct snapshot *in, uint32_t model, uint32_t e)
{
    return decide__place(in, model, e)->ready && !decide__place(in, model, e)->is_shut;
}

/* It has no limit, or only that of those whose sizes were compiled first. */
static bool is_patient(const struct snap_request *r)
{
    return r->limit_ns == SNAP_NO_DEADLINE || r->deadline_ns == SNAP_NO_DEADLINE;
}

/* A model that is shut harms nobody where nobody else runs; who has waited long comes anyway. */
static bool takes_one(const struct work *w, const struct snap_request *r, uint32_t e)
{
    return takes(w->in, r->model, e) ||
           (decide__place(w->in, r->model, e)->ready && is_patient(r) &&
            (w->in->now_ns >= r->patience_ns ||
             (w->in->execs[e].is_idle && has_nothing_before(w, r->model, e))));
}

static bool may_bring(const struct work *w, uint32_t model, uint32_t e)
{
    const struct snapshot *in = w->in;

    return in->execs[e].up && takes(in, model, e) &&
           !w->arrives_ns[(size_t)model * in->n_execs + e] && w->plans[e].lane_ns <= in->now_ns;
}

/* Where the image goes, so that those who come later are not refused as well: one image at a time,
 * who is let in must not wait for those of who is not. If the best place has it and is too busy, it
 * goes to one that has nothing to do, one copy of it at a time. */
static uint32_t spread_to(const struct work *w, uint32_t model, uint32_t best)
{
    const struct snapshot *in = w->in;

    if (may_bring(w, model, best))
        return best;
    for (size_t e = 0; e < in->n_execs; e++)
        if (w->arrives_ns[model * in->n_execs + e] > in->now_ns)
            return SNAP_NONE;
    for (uint32_t e = 0; e < in->n_execs && in->models[model].copied_ns <= in->now_ns; e++)
        if (may_bring(w, model, e) && has_nothing_before(w, model, e))
            return e;
    return SNAP_NONE;
}

/* Nobody can take it in time: o is the best there is. */
static void turn_away(struct work *w, uint32_t i, const struct offer *o)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = &in->requests[i];
    uint32_t to;

    for (uint32_t e = 0; e < in->n_execs; e++) {
        if (in->execs[e].up && takes(in, r->model, e) && may_probe(w, i, e)) {
            let_in(w, i, &(struct offer){.exec = e, .finish_ns = o->finish_ns}, true);
            return;
        }
    }
    to = spread_to(w, r->model, o->exec);
    if (to != SNAP_NONE)
        decide__bring(w, r->model, to);
    refuse_late_request(w, i, o, to);
}

static void let_wait(struct work *w, uint32_t i, enum decide_reason why)
{
    if (w->in->requests[i].waits != (int)why)
        decide__add(w->out, &(struct decision){.kind = DECISION_WAIT,
                                               .request = i,
                                               .job = SNAP_NONE,
                                               .exec = SNAP_NONE,
                                               .reason = why});
}

/* Its model is shut on all executors that have it. */
static void wait_for_room(struct work *w, uint32_t i)
{
    const struct snap_request *r = &w->in->requests[i];

    if (is_patient(r))
        let_wait(w, i, DECIDE_THRASHING);
    else
        refuse_request(w, i,
                       &(struct decision){.exec = SNAP_NONE,
                                          .rc = SH_E_UNAVAILABLE,
                                          .reason = DECIDE_THRASHING,
                                          .retry_after_ms = RETRY_SOON_MS,
                                          .predicted_ns = w->in->now_ns - r->arrived_ns});
}

/* No executor has its model. It stays where it is if one will have it soon enough. */
static void wait_for_missing(struct work *w, uint32_t i, bool any_up)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = &in->requests[i];
    const struct snap_model *m = &in->models[r->model];
    int64_t late_ms = m->expected_ns == SNAP_NEVER ? 0 : (m->expected_ns - in->now_ns) / SH_MS(1);
    struct decision d = {.exec = SNAP_NONE,
                         .rc = SH_E_UNAVAILABLE,
                         .reason = m->failed ? DECIDE_MODEL_FAILED
                                   : any_up  ? DECIDE_MODEL_LOADING
                                             : DECIDE_NO_EXECUTOR,
                         .retry_after_ms = SH_MIN(SH_MAX(late_ms, RETRY_SOON_MS), RETRY_MAX_MS),
                         .predicted_ns = in->now_ns - r->arrived_ns};

    if (in->now_ns >= r->wait_ns || m->expected_ns > SH_MIN(r->wait_ns, r->limit_ns))
        refuse_request(w, i, &d);
    else
        let_wait(w, i, d.reason);
}

static void place_request(struct work *w, uint32_t i)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = &in->requests[i];
    struct offer best = {.exec = SNAP_NONE};
    bool any_up = false, any_shut = false;

    for (uint32_t e = 0; e < in->n_execs; e++) {
        struct offer o;

        any_up |= in->execs[e].up;
        any_shut |= in->execs[e].up && decide__place(in, r->model, e)->is_shut;
        if (!in->execs[e].up || !takes_one(w, r, e))
            continue;
        o = offer_of(w, i, e);
        if (best.exec == SNAP_NONE || is_better_offer(w, r->model, &o, &best))
            best = o;
    }
    if (best.exec == SNAP_NONE && any_shut)
        wait_for_room(w, i);
    else if (best.exec == SNAP_NONE)
        wait_for_missing(w, i, any_up);
    else if (best.late_ns > 0)
        turn_away(w, i, &best);
    else
        let_in(w, i, &best, false);
}

/* Its body is here, perhaps with more samples, with less time or later than it was let in for. */
static void promise_again(struct work *w, uint32_t i)
{
    const struct snap_request *r = &w->in->requests[i];
    const struct offer o = offer_of(w, i, r->exec);

    if (o.late_ns <= 0)
        let_in(w, i, &o, false);
    else if (r->batch > 1 ||
             (r->limit_ns < r->let_in_ns && !has_nothing_before(w, r->model, r->exec)))
        refuse_late_request(w, i, &o, SNAP_NONE);
    else
        charge_exec(w, r, r->exec); /* it may still come to its turn where that breaks no promise */
}

/* Gives up who can no longer be in time, even as the next run. */
static void give_up_doubtful(struct work *w)
{
    const struct snapshot *in = w->in;

    for (uint32_t i = 0; i < in->n_requests; i++) {
        const struct snap_request *r = &in->requests[i];
        int64_t alone_ns = in->now_ns + decide__run_ns(in, r->model, r->batch);

        if (r->exec != SNAP_NONE && r->state == SNAP_READY && alone_ns > r->limit_ns)
            refuse_late_request(
                w, i, &(struct offer){r->exec, alone_ns, alone_ns - r->limit_ns, false}, SNAP_NONE);
    }
}

/* The kth of the order, if it may run: behind those of its executor. */
static void queue(struct work *w, uint32_t k)
{
    const uint32_t i = w->order[k].i;
    struct plan *p = w->exec[i] == SNAP_NONE ? NULL : &w->plans[w->exec[i]];

    if (!p || w->done[i] || w->in->requests[i].state != SNAP_READY)
        return;
    w->next_ready[k] = SNAP_NONE;
    *(p->first_ready == SNAP_NONE ? &p->first_ready : &w->next_ready[p->last_ready]) = k;
    p->last_ready = k;
}

/* In order: places what is new, counts what is placed. */
static void admit_requests(struct work *w)
{
    const struct snapshot *in = w->in;

    for (uint32_t k = 0; k < in->n_requests; k++) {
        uint32_t i = w->order[k].i;
        const struct snap_request *r = &in->requests[i];

        if (w->done[i])
            continue;
        if (r->exec == SNAP_NONE)
            place_request(w, i);
        else if (r->limit_ns == SNAP_NO_DEADLINE)
            charge_exec(w, r, r->exec);
        else if (!r->promised && r->state == SNAP_READY && in->execs[r->exec].up &&
                 decide__place(in, r->model, r->exec)->ready)
            promise_again(w, i);
        else
            w->plans[r->exec].n_placed++;
        queue(w, k);
    }
}

/* Room for n things of a size, behind those that were laid out before. */
static size_t lay_out_array(size_t *at, size_t n, size_t size)
{
    size_t begin = SH_ALIGN_UP(*at, sizeof(int64_t));

    *at = begin + n * size;
    return begin;
}

static int make_work_room(struct work *w, struct sh_err *err)
{
    const size_t n = w->in->n_requests, n_execs = w->in->n_execs, n_models = w->in->n_models;
#define EACH_ARRAY(X)                \
    X(order, n)                      \
    X(plans, n_execs)                \
    X(samples, n_models *n_execs)    \
    X(arrives_ns, n_models *n_execs) \
    X(unpack_ns, n_models *n_execs)  \
    X(exec, n)                       \
    X(done, n)                       \
    X(next_due, n)                   \
    X(end_ns, n)                     \
    X(kept_ns, n)                    \
    X(was_lost, n)                   \
    X(is_lost, n)                    \
    X(shapes, n_models)              \
    X(next_ready, n)                 \
    X(next_same, n)                  \
    X(next_left, n)                  \
    X(taken, n)                      \
    X(run, n)                        \
    X(last_of_model, n_models)       \
    X(is_warm, n_models)             \
    X(held, n_models)
#define ONE(what, count) +1
    size_t at[0 EACH_ARRAY(ONE)], bytes = 0, k = 0;
    char *p;
    int rc;
#undef ONE

#define SIZE(what, count) at[k++] = lay_out_array(&bytes, (count), sizeof(*w->what));
    EACH_ARRAY(SIZE)
#undef SIZE
    rc = decide__scratch(w->out, bytes, (void **)&p, err);
    if (rc)
        return rc;
    k = 0;
#define PLACE(what, count) w->what = (void *)(p + at[k++]);
    EACH_ARRAY(PLACE)
#undef PLACE
#undef EACH_ARRAY
    return SH_OK;
}

static int decide_requests(const struct snapshot *in, struct decisions *out, struct sh_err *err)
{
    struct work w = {.in = in, .out = out};
    int rc = make_work_room(&w, err);

    if (rc)
        return rc;
    plan_execs(&w);
    give_up_doubtful(&w);
    due__init(&w);
    rank_requests(&w);
    admit_requests(&w);
    for (uint32_t e = 0; e < in->n_execs; e++)
        if (in->execs[e].up)
            decide__dispatch(&w, e);
    return SH_OK;
}

int decide(const struct snapshot *in, struct decisions *out, struct sh_err *err)
{
    const size_t n = in->n_requests + (in->with_jobs ? in->n_execs : 0);
    int rc = sh_grow(&out->members, &out->cap_members, n, sizeof(*out->members), DECIDE_MAX,
                     "requests of one pass", err);

    out->rc = SH_OK;
    out->n = 0;
    out->n_members = 0;
    if (!rc && in->n_requests)
        rc = decide_requests(in, out, err);
    if (!rc && in->with_jobs)
        rc = decide__jobs(in, out, err);
    if (!rc && out->rc)
        rc = SH_FAIL(err, out->rc, "could not keep all decisions of a pass");
    return rc;
}
