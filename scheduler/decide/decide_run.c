/* decide_run.c - see decide.h: which requests run next on an executor, and together. */
#include "common/mem.h"
#include "scheduler/decide/decide_int.h"

#include <string.h>

/* The latest end of the run that leaves every other request on e, of at least this priority, its
 * deadline, and what is kept free before it as far as it is; those that miss theirs even if the run
 * ended at now_end do not count. slack: by so much the run may end later. */
static int64_t latest_end_behind(const struct work *w, uint32_t e, uint32_t head, int64_t now_end,
                                 int64_t slack)
{
    const struct snapshot *in = w->in;
    const struct snap_request *h = &in->requests[head];
    int64_t limit = INT64_MAX;

    for (uint32_t k = w->plans[e].first_ready; k != SNAP_NONE; k = w->next_ready[k]) {
        const uint32_t i = w->order[k].i;
        const struct snap_request *o = &in->requests[i];
        int64_t end;

        if (w->done[i] || o->deadline_ns == SNAP_NO_DEADLINE || o->priority < h->priority ||
            decide__joins(in, head, i))
            continue;
        end = o->deadline_ns - decide__run_ns(in, o->model, o->batch);
        if (end >= now_end)
            limit = SH_MIN(limit, decide__before(w, e, o, o->deadline_ns, end, now_end, slack));
    }
    return limit;
}

static void add_run_member(struct work *w, struct decision *d, uint32_t i)
{
    w->out->members[w->out->n_members++] = i; /* each is in one run at most */
    w->done[i] = true;
    d->n++;
    d->batch += w->in->requests[i].batch;
}

/* Takes the last ones out again until at most `batch` samples are left. */
static void cut_run(struct work *w, struct decision *d, uint32_t batch)
{
    while (d->n && d->batch > batch) {
        uint32_t i = w->out->members[--w->out->n_members];

        w->done[i] = false;
        d->n--;
        d->batch -= w->in->requests[i].batch;
    }
}

static struct run_of run_of_decision(const struct work *w, const struct decision *d)
{
    return (struct run_of){
        .exec = d->exec, .model = w->in->requests[d->request].model, .batch = d->batch};
}

struct due { /* the latest end of a run; and with all that it may be slower by */
    int64_t end_ns, slow_end_ns;
};

/* What is right for r, which alone would end so: a deadline that it makes stays made, and what is
 * kept free before it stays free as far as it is. */
static struct due due_of(const struct snapshot *in, const struct snap_request *r, int64_t end,
                         int64_t slack, double reserve)
{
    if (r->deadline_ns == SNAP_NO_DEADLINE || end > r->deadline_ns)
        return (struct due){INT64_MAX, INT64_MAX}; /* it must not stop others from joining */
    slack = decide__heed(r, r->deadline_ns, slack, reserve);
    return (struct due){r->deadline_ns, SH_MAX(r->deadline_ns - in->margin_ns, end + slack)};
}

static struct due due_of_both(struct due a, struct due b)
{
    return (struct due){SH_MIN(a.end_ns, b.end_ns), SH_MIN(a.slow_end_ns, b.slow_end_ns)};
}

/* Those behind k in the order join while nobody misses a deadline by it. */
static void grow_run(struct work *w, struct decision *d, uint32_t k, int64_t start_ns)
{
    const struct snapshot *in = w->in;
    const struct snap_request *h = &in->requests[d->request];
    const uint32_t most = decide__most(in, h->model);
    const double reserve = w->plans[d->exec].reserve;
    struct run_of run = run_of_decision(w, d);
    int64_t slack, end = decide__end_ns(w, &run, start_ns, &slack);
    struct due all = due_of(in, h, end, slack, reserve);

    all.end_ns = SH_MIN(all.end_ns, latest_end_behind(w, d->exec, d->request, end, slack));
    while (d->batch < most && (k = w->next_ready[k]) != SNAP_NONE) {
        uint32_t i = w->order[k].i;
        const struct snap_request *r = &in->requests[i];
        struct due due;

        if (w->done[i] || !decide__joins(in, d->request, i) || d->batch + r->batch > most)
            continue;
        run.batch = r->batch;
        end = decide__end_ns(w, &run, start_ns, &slack);
        due = due_of_both(all, due_of(in, r, end, slack, reserve));
        run.batch = d->batch + r->batch;
        end = decide__end_ns(w, &run, start_ns, &slack);
        slack = decide__heed(r, SH_MIN(h->deadline_ns, r->deadline_ns), slack, reserve);
        if (end > due.end_ns || end + slack > due.slow_end_ns)
            continue;
        all = due;
        add_run_member(w, d, i);
    }
}

/* Do all promises stand that stood, if e goes on behind the run d? */
static bool stands(struct work *w, const struct decision *d, int64_t start_ns, int64_t slack_ns)
{
    const struct run_of run = run_of_decision(w, d);
    struct look at = {.exec = d->exec, .ready_only = true, .newcomer = SNAP_NONE};
    int64_t slack;

    if (w->plans[d->exec].first_due == SNAP_NONE)
        return true;
    at.start_ns = decide__end_ns(w, &run, start_ns, &slack);
    at.slack_ns = predict_slack(slack, slack_ns);
    due__look(w, &at);
    return due__broken_ns(w, &at) <= 0;
}

/* The kth of the order leads a run of as many as may join it. */
static void gather_run(struct work *w, struct decision *d, uint32_t k, int64_t start_ns)
{
    d->request = w->order[k].i;
    add_run_member(w, d, d->request);
    grow_run(w, d, k, start_ns);
    if (d->n > 1)
        cut_run(w, d,
                SH_MAX(decide__whole(w->in, w->in->requests[d->request].model, d->batch),
                       w->in->requests[d->request].batch));
}

/* Takes the last ones out again until no promise is broken; d->n = 0: the first alone would. */
static void cut_to_promises(struct work *w, struct decision *d, const struct look *at)
{
    while (d->n && !stands(w, d, at->start_ns, at->slack_ns)) {
        const uint32_t head = w->in->requests[d->request].batch;

        cut_run(w, d, d->n == 1 ? 0 : SH_MAX(1u << (predict_bucket(d->batch) - 1), head));
    }
}

/* What the books say comes first: it keeps every promise that can be kept. */
static void form_due_run(struct work *w, struct decision *d, const struct look *at)
{
    uint32_t n = due__look(w, at);

    d->request = n ? w->run[0] : SNAP_NONE;
    for (uint32_t k = 0; k < n; k++)
        add_run_member(w, d, w->run[k]);
}

static bool is_exec_free(const struct work *w, const struct look *at)
{
    return !w->in->execs[at->exec].n_runs && at->start_ns == w->plans[at->exec].start_ns;
}

/* Sent before the device is free it would be work for nobody. */
static bool is_too_early(const struct work *w, uint32_t i, const struct look *at)
{
    const struct snap_request *r = &w->in->requests[i];
    const struct run_of run = {.exec = at->exec, .model = r->model, .batch = r->batch};
    int64_t slack;

    return !is_exec_free(w, at) && r->limit_ns != SNAP_NO_DEADLINE &&
           decide__end_ns(w, &run, at->start_ns, &slack) > r->limit_ns;
}

/* Nor is a run sent so early that others may still join to their advantage, or that a modest tenant
 * would wait for it without need. */
static bool is_held_back(const struct work *w, const struct decision *d, const struct look *at)
{
    const struct snap_request *h = &w->in->requests[d->request];

    if (!d->n || is_exec_free(w, at))
        return false;
    return (w->in->execs[at->exec].has_modest && !h->is_modest) ||
           (h->limit_ns != SNAP_NO_DEADLINE && d->batch < due__ahead(w, d->request));
}

/* May the kth of the order lead a run? */
static bool may_lead(const struct work *w, uint32_t k, const struct look *at)
{
    const uint32_t i = w->order[k].i;
    const uint32_t model = w->in->requests[i].model;

    return !w->done[i] && w->held[model] != HELD && decide__place(w->in, model, at->exec)->ready &&
           !is_too_early(w, i, at);
}

/* What was gathered shrinks until it breaks no promise. If what is left is held back, those behind
 * it of its model are as well. */
static void settle_run(struct work *w, struct decision *d, const struct look *at)
{
    cut_to_promises(w, d, at);
    if (!is_held_back(w, d, at))
        return;
    w->held[w->in->requests[d->request].model] = HELD;
    cut_run(w, d, 0);
}

/* Is a run of that model held back, of those before the kth of the order? All of them are too small
 * even with all who join. */
static bool any_held(struct work *w, struct decision *d, uint32_t model, uint32_t until,
                     const struct look *at)
{
    w->held[model] = ASKED;
    for (uint32_t k = w->plans[at->exec].first_ready; k != until && w->held[model] != HELD;
         k = w->next_ready[k]) {
        if (w->in->requests[w->order[k].i].model != model || !may_lead(w, k, at))
            continue;
        gather_run(w, d, k, at->start_ns);
        settle_run(w, d, at);
    }
    return w->held[model] == HELD;
}

/* Whether one breaks a promise takes a look at all that waits there. It is not asked of those that
 * would be held back anyway, unless one behind them depends on it. */
static void try_run(struct work *w, struct decision *d, uint32_t k, const struct look *at)
{
    const uint32_t model = w->in->requests[w->order[k].i].model;

    gather_run(w, d, k, at->start_ns);
    if (w->held[model] != ASKED && is_held_back(w, d, at)) {
        w->held[model] = PERHAPS;
        cut_run(w, d, 0);
        return;
    }
    if (w->held[model] == PERHAPS) {
        cut_run(w, d, 0);
        if (any_held(w, d, model, k, at))
            return;
        gather_run(w, d, k, at->start_ns);
    }
    settle_run(w, d, at);
}

/* The next run of e, if there is one: d->n > 0. */
static void next_run(struct work *w, struct decision *d, const struct look *at)
{
    bool any = false;

    due__look(w, at);
    due__keep(w, at);
    memset(w->held, 0, w->in->n_models * sizeof(w->held[0]));
    for (uint32_t k = w->plans[at->exec].first_ready; k != SNAP_NONE && !d->n;
         k = w->next_ready[k]) {
        if (!may_lead(w, k, at))
            continue;
        any = true;
        try_run(w, d, k, at);
    }
    if (d->n || !any)
        return;
    form_due_run(w, d, at);
    if (is_held_back(w, d, at))
        cut_run(w, d, 0);
}

void decide__dispatch(struct work *w, uint32_t e)
{
    const struct snapshot *in = w->in;
    struct look at = decide__look_at(w, e);

    at.ready_only = true;
    if (w->plans[e].first_ready == SNAP_NONE)
        return;
    for (uint32_t n_runs = in->execs[e].n_runs; n_runs < in->max_runs; n_runs++) {
        struct decision d = {.kind = DECISION_RUN,
                             .exec = e,
                             .job = SNAP_NONE,
                             .first = (uint32_t)w->out->n_members};
        struct run_of run;
        struct foreseen f;

        next_run(w, &d, &at);
        if (!d.n)
            return;
        run = run_of_decision(w, &d);
        decide__foresee(w, &run, at.start_ns, &f);
        d.predicted_ns = f.end_ns - at.start_ns;
        d.forecast_ns = f.forecast_ns - at.start_ns;
        d.slack_ns = f.slack_ns;
        d.weights = f.weights;
        decide__add(w->out, &d);
        decide__bring(w, run.model, e);
        w->unpack_ns[(size_t)run.model * in->n_execs + e] = 0;
        at.start_ns = f.end_ns;
        at.slack_ns = predict_slack(at.slack_ns, f.slack_ns);
    }
}
