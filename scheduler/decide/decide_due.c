/* decide_due.c - keeps track of promises: who was promised what, and whether it still holds.
 *
 * The promised requests of an executor form a list by limit. A look goes through it as a schedule
 * would: the earliest limit first, joined by others of its model as long as nobody misses a limit.
 * A step depends only on the requests left and on the time, so what remains after the first run is
 * a schedule again. So if the list can be kept now, doing that run keeps it, and so does every
 * other run after which a new look finds no end too late.
 *
 * The steps of a look grow with the list, not with its square: hundreds of requests come each
 * second, and each costs looks. So filling a run considers at most AHEAD requests that are not in
 * it. Those behind them may be planned later than possible; their own ends reveal it.
 *
 * A request that is late even by the usual times is left out of a look: it costs others nothing,
 * since it is given up before it runs. */
#include "common/mem.h"
#include "scheduler/decide/decide_int.h"

#include <math.h>
#include <stdlib.h>

#define AHEAD 64u     /* of requests with a limit, which one run has regard for */
#define NEARLY 0.9    /* of what the best size of runs achieves */
#define MODEST_RUNS 6 /* that find a gap at any time */
#define SPARE 1.25    /* runs should be able to carry so many times what is asked for */

static const struct snap_request *req(const struct work *w, uint32_t i)
{
    return &w->in->requests[i];
}

void due__insert(struct work *w, uint32_t i, uint32_t e)
{
    uint32_t *at = &w->plans[e].first_due;

    while (*at != SNAP_NONE && req(w, *at)->limit_ns <= req(w, i)->limit_ns)
        at = &w->next_due[*at];
    w->next_due[i] = *at;
    w->kept_ns[i] = INT64_MIN;
    w->was_lost[i] = false;
    *at = i;
}

void due__remove(struct work *w, uint32_t i, uint32_t e)
{
    uint32_t *at = &w->plans[e].first_due;

    while (*at != i)
        at = &w->next_due[*at];
    *at = w->next_due[i];
}

/* How runs are filled. No single way finds a schedule wherever there is one. */
enum way {
    FILL_WITH_ROOM, /* each for as long as a batch that may still form; what is free stays so */
    FILL_SAFELY,    /* the same without that batch */
    FILL_UP,        /* up to everybody's limit, whatever is free before it */
    FILL_IN_ORDER,  /* up to the head's limit, and up to the first who cannot join */
    N_WAYS
};

static bool counts_in_look(const struct work *w, const struct look *at, uint32_t i)
{
    return !w->done[i] && (!at->ready_only || req(w, i)->state == SNAP_READY || i == at->newcomer);
}

static void link_models(struct work *w, const struct look *at)
{
    const uint32_t first = w->plans[at->exec].first_due;

    w->longest_ns = 0;
    for (uint32_t i = first; i != SNAP_NONE; i = w->next_due[i]) {
        const int64_t run_ns = decide__run_ns(w->in, req(w, i)->model, req(w, i)->batch);

        w->longest_ns = SH_MAX(w->longest_ns, run_ns);
        w->next_left[i] = w->next_due[i];
        w->last_of_model[req(w, i)->model] = SNAP_NONE;
        w->is_warm[req(w, i)->model] = false;
        w->next_same[i] = SNAP_NONE;
        w->taken[i] = !counts_in_look(w, at, i);
    }
    for (uint32_t i = first; i != SNAP_NONE; i = w->next_due[i]) {
        uint32_t *last = &w->last_of_model[req(w, i)->model];

        if (w->taken[i])
            continue;
        if (*last != SNAP_NONE)
            w->next_same[*last] = i;
        *last = i;
    }
}

/* Samples a ns that would be answered in time if `asked` came and all runs had this size. Who comes
 * while one of them runs waits for it and for his own: where two are longer than his time, only a
 * part of all can be let in. */
static double met(const struct snapshot *in, const struct snap_request *r, unsigned bucket,
                  double asked)
{
    const uint32_t batch = SH_MIN(1u << bucket, in->models[r->model].max_batch);
    const double run = (double)decide__run_ns(in, r->model, batch);
    const int64_t heed = decide__heed(r, r->limit_ns, decide__slack_ns(in, r->model, batch), 1);
    const double rest = (double)(r->limit_ns - r->arrived_ns - in->margin_ns - heed) - run;

    return rest > 0 ? SH_MIN(asked * SH_MIN(rest / run, 1), batch / run) : 0;
}

/* The least size with which nearly as much is answered in time as with any. */
static uint32_t least_size(const struct snapshot *in, const struct snap_request *r, double asked)
{
    const struct snap_model *m = &in->models[r->model];
    const unsigned last = m->is_solo ? 0 : predict_bucket(m->max_batch);
    double most = 0;
    unsigned b;

    for (b = 0; b <= last; b++)
        most = SH_MAX(most, met(in, r, b, asked));
    for (b = 0; b < last && met(in, r, b, asked) < most * NEARLY; b++)
        ;
    return SH_MIN(1u << b, m->max_batch);
}

/* What is known of r's shape: it follows from the model and from how much time r has. */
static struct due_shape *due_shape_of(const struct work *w, const struct snap_request *r)
{
    struct due_shape *known = &w->shapes[r->model];
    const int64_t within_ns = r->limit_ns - r->arrived_ns;

    if (known->within_ns != within_ns)
        *known = (struct due_shape){.within_ns = within_ns};
    return known;
}

uint32_t due__room(const struct work *w, uint32_t i)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = req(w, i);
    struct due_shape *shape = due_shape_of(w, r);
    double n_execs = 0;

    if (shape->room)
        return shape->room;
    for (size_t e = 0; e < in->n_execs; e++)
        n_execs += in->execs[e].up && decide__place(in, r->model, e)->ready;
    shape->room = least_size(in, r, in->models[r->model].asked * SPARE / SH_MAX(n_execs, 1));
    return shape->room;
}

uint32_t due__ahead(const struct work *w, uint32_t i)
{
    struct due_shape *shape = due_shape_of(w, req(w, i));

    if (!shape->ahead)
        shape->ahead = least_size(w->in, req(w, i), INFINITY);
    return shape->ahead;
}

/* Of samples in runs as large as present demand makes them. */
static double cost_ns(const struct work *w, uint32_t i)
{
    const struct snap_request *r = req(w, i);
    const uint32_t batch = SH_MAX(due__room(w, i), r->batch);

    return (double)decide__run_ns(w->in, r->model, batch) * r->batch / batch;
}

/* Time that may be promised away before i is due: without what is kept free for a slow run, and for
 * the runs of modest tenants, which come in random order: they are to find gaps. */
static int64_t time_left(const struct work *w, uint32_t i, uint32_t e)
{
    const struct snap_request *r = req(w, i);
    const int64_t slack = decide__slack_ns(w->in, r->model, due__room(w, i));
    const int64_t gaps = MODEST_RUNS * decide__run_ns(w->in, r->model, r->batch);
    const int64_t left =
        r->limit_ns - w->in->margin_ns - w->plans[e].start_ns -
        decide__heed(r, r->limit_ns, SH_MAX(slack, w->plans[e].slack_ns), w->plans[e].reserve);

    return w->in->execs[e].has_modest && !r->is_modest ? left - SH_MIN(gaps, left / 3 * 2) : left;
}

int64_t due__beyond_ns(const struct work *w, uint32_t i, uint32_t e)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = req(w, i);
    const double share = i < in->n_shared ? in->shares[i * in->n_execs + e] : 1;
    double own = 0;

    if (share >= 1)
        return 0;
    for (uint32_t k = w->plans[e].first_due; k != SNAP_NONE; k = w->next_due[k])
        if (!w->done[k] && req(w, k)->model == r->model && req(w, k)->tenant == r->tenant)
            own += cost_ns(w, k);
    if (own <= 0)
        return 0;
    return (int64_t)((own + cost_ns(w, i)) / share) - time_left(w, i, e);
}

static int64_t end_of(const struct work *w, const struct run_of *run, uint32_t h, enum way way,
                      int64_t start_ns, int64_t *slack)
{
    int64_t end = decide__end_ns(w, run, start_ns, slack), full_end, full_slack;
    struct run_of full = *run;

    if (way != FILL_WITH_ROOM)
        return end;
    full.batch = SH_MAX(run->batch, due__room(w, h));
    full_end = decide__end_ns(w, &full, start_ns, &full_slack);
    *slack = SH_MAX(*slack, full_slack);
    return SH_MAX(end, full_end);
}

/* The one behind i in a list, of those who are in no run. They leave the list here, so nobody goes
 * past them twice. */
static uint32_t next_in(const struct work *w, uint32_t *next, uint32_t i)
{
    while (next[i] != SNAP_NONE && w->taken[next[i]])
        next[i] = next[next[i]];
    return next[i];
}

/* The latest end of a run of h, within its limit, that leaves everybody who cannot join it his
 * limit, and what is kept free before it as far as it is. Who is of its model but finds no room in
 * it cannot join. Whose limit is later by the longest run changes nothing any more. slack: by so
 * much this run may end later. */
static int64_t latest_end_beside(const struct work *w, uint32_t e, uint32_t h, enum way way,
                                 int64_t now_end, int64_t slack)
{
    const uint32_t most = decide__most(w->in, req(w, h)->model);
    int64_t latest = req(w, h)->limit_ns;
    uint32_t joined = req(w, h)->batch, n = 0;

    for (uint32_t i = w->first_left; n < AHEAD && i != SNAP_NONE; i = next_in(w, w->next_left, i)) {
        const struct snap_request *r = req(w, i);
        const int64_t end = r->limit_ns - decide__run_ns(w->in, r->model, r->batch);

        if (i == h)
            continue;
        if (r->limit_ns - w->longest_ns >= latest)
            break;
        n++;
        if (decide__joins(w->in, h, i) && joined + r->batch <= most) {
            joined += r->batch;
            continue;
        }
        if (end < now_end)
            continue;
        latest = SH_MIN(latest, way == FILL_WITH_ROOM || way == FILL_SAFELY
                                    ? decide__before(w, e, r, r->limit_ns, end, now_end, slack)
                                    : end);
    }
    return latest;
}

/* The run of h and those who join it, in w->run; when it is over. before_slack: by so much it may
 * begin later. */
static int64_t fill_due_run(struct work *w, uint32_t e, uint32_t h, enum way way, int64_t start_ns,
                            int64_t before_slack, int64_t *slack, uint32_t *n_out)
{
    const struct snapshot *in = w->in;
    const struct snap_request *head = req(w, h);
    const uint32_t model = head->model, most = decide__most(in, model);
    struct run_of run = {e, model, head->batch, w->is_warm[model]};
    int64_t limit = INT64_MAX, alone = end_of(w, &run, h, way, start_ns, slack);
    const double reserve = w->plans[e].reserve;
    uint32_t n = 1, n_passed = 0, whole, i = h;

    w->run[0] = h;
    if (next_in(w, w->next_same, h) != SNAP_NONE && run.batch < most)
        limit = latest_end_beside(w, e, h, way, alone, predict_slack(before_slack, *slack));
    while (run.batch < most && (i = next_in(w, w->next_same, i)) != SNAP_NONE) {
        const struct snap_request *r = req(w, i);
        int64_t end, keep = 0;

        if (way == FILL_IN_ORDER && w->next_due[w->run[n - 1]] != i)
            break;
        if (!decide__joins(in, h, i) || run.batch + r->batch > most) {
            if (++n_passed == AHEAD)
                break;
            continue;
        }
        run.batch += r->batch;
        end = end_of(w, &run, h, way, start_ns, slack);
        if (way != FILL_IN_ORDER)
            keep = in->margin_ns +
                   decide__heed(head, head->limit_ns, predict_slack(before_slack, *slack), reserve);
        if (end > limit || end + keep > head->limit_ns) {
            run.batch -= r->batch;
            break;
        }
        w->run[n++] = i;
    }
    whole = decide__whole(in, model, run.batch);
    while (n > 1 && run.batch > whole)
        run.batch -= req(w, w->run[--n])->batch;
    *n_out = n;
    return end_of(w, &run, h, way, start_ns, slack);
}

/* From when on a run of i has not to wait for weights that are on their way; INT64_MIN: always. */
static int64_t waits_ns(const struct work *w, uint32_t e, uint32_t i)
{
    const struct snap_request *r = req(w, i);
    const int64_t arrives = w->arrives_ns[(size_t)r->model * w->in->n_execs + e];

    if (w->is_warm[r->model] || !arrives)
        return INT64_MIN;
    return arrives + w->in->models[r->model].tail_ns[predict_bucket(r->batch)] -
           decide__run_ns(w->in, r->model, r->batch) - decide__place(w->in, r->model, e)->worker_ns;
}

/* Who runs next: h, or while its weights are on their way the first behind it that alone is done
 * before they are here; those who join may make that run longer, within h's limit. */
static uint32_t next_up(struct work *w, uint32_t e, uint32_t h, int64_t start_ns)
{
    const int64_t until = waits_ns(w, e, h);
    uint32_t i = h;

    for (uint32_t n = 0; n < AHEAD && start_ns < until; n++) {
        struct run_of run = {.exec = e};
        int64_t slack;

        if ((i = next_in(w, w->next_left, i)) == SNAP_NONE)
            break;
        run.model = req(w, i)->model;
        run.batch = req(w, i)->batch;
        run.is_warm = w->is_warm[run.model];
        if (waits_ns(w, e, i) <= start_ns && decide__end_ns(w, &run, start_ns, &slack) <= until)
            return i;
    }
    return h;
}

struct course { /* of a look */
    int64_t t, slack;
    uint32_t n_first; /* requests of its first run */
};

/* The run of h and those who join it, or nothing if h is late. */
static void go_on_with_run(struct work *w, const struct look *at, enum way way, uint32_t h,
                           struct course *c)
{
    const double reserve = w->plans[at->exec].reserve;
    const struct snap_request *r = req(w, h);
    const struct run_of alone = {at->exec, r->model, r->batch, w->is_warm[r->model]};
    int64_t more = 0, end = end_of(w, &alone, h, way, c->t, &more);
    uint32_t n;

    w->end_ns[h] = end + decide__heed(r, r->limit_ns, predict_slack(c->slack, more), reserve);
    w->is_lost[h] = w->taken[h] = end > r->limit_ns;
    if (w->is_lost[h])
        return;
    c->t = fill_due_run(w, at->exec, h, way, c->t, c->slack, &more, &n);
    c->slack = predict_slack(c->slack, more);
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = w->run[k];

        w->taken[i] = true;
        w->end_ns[i] = c->t + decide__heed(req(w, i), req(w, i)->limit_ns, c->slack, reserve);
        w->is_lost[i] = false;
    }
    w->is_warm[r->model] = true;
    if (c->n_first)
        return;
    c->n_first = n;
    w->run += n; /* the first run stays where it is */
}

static uint32_t look_at_order(struct work *w, const struct look *at, enum way way)
{
    struct course c = {at->start_ns, at->slack_ns, 0};

    link_models(w, at);
    w->first_left = w->plans[at->exec].first_due;
    while (w->first_left != SNAP_NONE) {
        if (w->taken[w->first_left])
            w->first_left = w->next_due[w->first_left];
        else
            go_on_with_run(w, at, way, next_up(w, at->exec, w->first_left, c.t), &c);
    }
    w->run -= c.n_first;
    w->plans[at->exec].due_end_ns = c.t;
    return c.n_first;
}

/* Who is late even as the next run, which begins with the look, is lost. Whom a look leaves out
 * although he is not may still find his place if runs end early: nobody who comes, and no run,
 * makes him later than he is now. Others need not wait until it is known what becomes of him. */
void due__keep(struct work *w, const struct look *at)
{
    for (uint32_t i = w->plans[at->exec].first_due; i != SNAP_NONE; i = w->next_due[i]) {
        const struct snap_request *r = req(w, i);
        const int64_t next_ns = at->start_ns + decide__run_ns(w->in, r->model, r->batch);

        w->was_lost[i] = w->is_lost[i];
        w->kept_ns[i] = w->is_lost[i] && next_ns > r->limit_ns ? INT64_MAX : w->end_ns[i];
    }
}

int64_t due__broken_ns(const struct work *w, const struct look *at)
{
    int64_t worst = 0;

    for (uint32_t i = w->plans[at->exec].first_due; i != SNAP_NONE; i = w->next_due[i]) {
        const int64_t may = SH_MAX(w->kept_ns[i], req(w, i)->limit_ns - w->in->margin_ns);
        const bool lost = w->is_lost[i] && !w->was_lost[i];

        if (counts_in_look(w, at, i) && w->kept_ns[i] != INT64_MAX)
            worst = SH_MAX(worst, SH_MAX(w->end_ns[i] - may, (int64_t)lost));
    }
    return worst;
}

/* A newcomer is let in only where there is room for those who may join him. */
uint32_t due__look(struct work *w, const struct look *at)
{
    const enum way last = at->newcomer == SNAP_NONE ? N_WAYS - 1 : FILL_WITH_ROOM;
    int64_t least = INT64_MAX;
    enum way best = FILL_WITH_ROOM;

    for (enum way way = FILL_WITH_ROOM; way <= last; way++) {
        const uint32_t n = look_at_order(w, at, way);
        const int64_t broken = due__broken_ns(w, at);

        if (broken <= 0)
            return n;
        if (broken < least)
            best = way;
        least = SH_MIN(least, broken);
    }
    return look_at_order(w, at, best);
}

static int by_limit_down(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return (x->deadline_ns < y->deadline_ns) - (x->deadline_ns > y->deadline_ns);
}

/* w->order is not sorted yet: its rows serve to sort by limit. */
void due__init(struct work *w)
{
    const struct snapshot *in = w->in;
    size_t n = 0;

    for (size_t e = 0; e < in->n_execs; e++)
        w->plans[e].first_due = SNAP_NONE;
    for (uint32_t i = 0; i < in->n_requests; i++) {
        const struct snap_request *r = req(w, i);

        if (r->promised && r->exec != SNAP_NONE && !w->done[i] && in->execs[r->exec].up &&
            decide__place(in, r->model, r->exec)->ready && r->limit_ns != SNAP_NO_DEADLINE)
            w->order[n++] = (struct ranked){.i = i, .deadline_ns = r->limit_ns};
    }
    qsort(w->order, n, sizeof(w->order[0]), by_limit_down);
    for (size_t k = 0; k < n; k++) {
        uint32_t i = w->order[k].i, *first = &w->plans[req(w, i)->exec].first_due;

        w->next_due[i] = *first;
        w->kept_ns[i] = INT64_MIN;
        w->was_lost[i] = false;
        *first = i;
    }
}
