/* jobpool_decide.c - see jobpool.h: who starts, who gives way, and why others wait.
 *
 * Of those that wait only a few are looked at. If no other tenant has to give way for a job, then
 * for no job behind it whose tenant has as many slots by weight: such a tenant has a greater share
 * and no better guarantee, so its claims are a part of those. So one job is looked at for each
 * different number of slots by weight, at most. What is left are tenants whose own jobs have to
 * give way; they are in a tree of their own. A job that needs much memory speaks only for those of
 * its group. */
#include "common/mem.h"
#include "scheduler/decide/jobpool_int.h"

#include <math.h>
#include <stdlib.h>

#define MOST_GANGS 1 /* of a decision, besides the one with the reservation, that claim slots */
#define NEXT_TENANT(n) SH_TREE_OF(n, struct jobpool_tenant, next)

/* ------------------------------------------------------------------ who is next */

struct wanted {          /* what is asked of a tenant that is among the next */
    uint64_t most_bytes; /* that a job of it needs no more than that ... */
    uint32_t most_gpus;  /* ... and that */
    double below_load;   /* that it has fewer slots by weight */
};

static bool group_is(const struct sh_tree_node *n, const void *arg)
{
    const struct wanted *w = arg;

    return JOBPOOL_GROUP(n)->need_bytes <= w->most_bytes && JOBPOOL_GROUP(n)->gpus <= w->most_gpus;
}

static bool group_has(const struct sh_tree_node *n, const void *arg)
{
    const struct wanted *w = arg;

    return JOBPOOL_GROUP(n)->least_need <= w->most_bytes &&
           JOBPOOL_GROUP(n)->least_gpus <= w->most_gpus;
}

static bool tenant_is(const struct sh_tree_node *n, const void *arg)
{
    const struct wanted *w = arg;

    return NEXT_TENANT(n)->least_need <= w->most_bytes &&
           NEXT_TENANT(n)->least_gpus <= w->most_gpus && NEXT_TENANT(n)->load < w->below_load;
}

static bool tenant_has(const struct sh_tree_node *n, const void *arg)
{
    const struct wanted *w = arg;

    return NEXT_TENANT(n)->least_below <= w->most_bytes &&
           NEXT_TENANT(n)->least_gpus_below <= w->most_gpus &&
           NEXT_TENANT(n)->load_below < w->below_load;
}

static bool quota_allows(const struct jobpool_tenant *t, const struct jobpool_job *j)
{
    const uint32_t gpus = jobpool__gpus(j);

    return jobpool__has_room(t, gpus) && (!j->f.is.is_fixed || jobpool__has_fixed_room(t, gpus));
}

/* Of a tenant that may start jobs: its first one that needs no more than so much; NULL. */
static struct jobpool_job *first_of_groups(const struct jobpool_tenant *t, const struct wanted *w)
{
    const struct sh_tree_ask ask = {group_is, group_has, w};
    struct jobpool_job *best = NULL;

    for (int k = 0; k < 2; k++) {
        struct sh_tree_node *n =
            jobpool__is_open(t, k) ? sh_tree_first_with(&t->heads[k], &ask) : NULL;
        struct jobpool_job *j = n ? JOBPOOL_GROUP(n)->head : NULL;

        if (j && quota_allows(t, j) && (!best || jobpool__line_cmp(j, best) < 0))
            best = j;
    }
    return best;
}

/* The same of one that is among the next. */
static struct jobpool_job *first_job(const struct jobpool_tenant *t, const struct wanted *w)
{
    return t->head->f.is.need_bytes <= w->most_bytes && jobpool__gpus(t->head) <= w->most_gpus
               ? t->head
               : first_of_groups(t, w);
}

/* The first job of all that is wanted. Tenants of one share are in the order of their first jobs,
 * which may not be those that are asked for. */
static struct jobpool_job *next_wanted(const struct jobpool *q, const struct wanted *w)
{
    const struct sh_tree_ask ask = {tenant_is, tenant_has, w};
    struct jobpool_job *best = NULL;
    struct jobpool_rank least = {.share = 0};

    for (struct sh_tree_node *n = sh_tree_first_with(&q->next, &ask); n;
         n = sh_tree_next_with(n, &ask)) {
        struct jobpool_job *j;
        struct jobpool_rank rank;

        if (best && jobpool__next_cmp(&least, &NEXT_TENANT(n)->rank) < 0)
            break;
        j = first_job(NEXT_TENANT(n), w);
        if (!j)
            continue; /* one needs little memory, another one few slots, and none both */
        rank = jobpool__rank(j);
        if (best && jobpool__next_cmp(&rank, &least) > 0)
            continue;
        best = j;
        least = rank;
    }
    return best;
}

/* The first job of all that needs no more than so much. */
static struct jobpool_job *next_job(const struct jobpool *q, uint64_t most_bytes)
{
    return next_wanted(q, &(struct wanted){most_bytes, (uint32_t)q->slots.n, HUGE_VAL});
}

/* Of device memory: of the largest that is up. */
static uint64_t largest_slot(const struct jobpool *q)
{
    const struct sh_tree_node *n = sh_tree_first(&q->slots);

    return n ? SH_TREE_OF(n, struct jobpool_slot, by_size)->f.pool_bytes : 0;
}

static uint64_t largest_free(const struct jobpool *q)
{
    const struct sh_tree_node *n = q->free.root;

    return n ? SH_TREE_OF(n, struct jobpool_slot, by_load)->most_bytes : 0;
}

/* Can nothing start at all? */
static bool is_closed(const struct jobpool *q)
{
    return !q->at.db_up || !q->slots.n;
}

/* Its group goes on behind it. */
static void pass_over(struct jobpool *q, struct jobpool_job *j, enum jobpool_taken how)
{
    j->taken = (uint8_t)how;
    j->group->head = jobpool__untaken(sh_tree_next(&j->node));
    jobpool__sort_group(j->group);
    jobpool__touch(q, j->group);
}

/* Its tenant is not put where it belongs yet. */
static void note_taken(struct jobpool *q, struct jobpool_job *j, enum jobpool_taken how)
{
    struct jobpool_job **first = &j->f.tenant->first_taken;

    pass_over(q, j, how);
    if (!*first || jobpool__line_cmp(j, *first) < 0)
        *first = j;
    j->next_taken = q->taken;
    q->taken = j;
    q->n_taken++;
    if (how != TAKEN_LOOKED) { /* as good as started: the next one sees it */
        j->f.tenant->running += jobpool__gpus(j);
        jobpool__count_array(q, j->array, 1);
    }
    jobpool__unsort(q, j->f.tenant);
}

void jobpool__take(struct jobpool *q, struct jobpool_job *j, enum jobpool_taken how)
{
    note_taken(q, j, how);
    jobpool__sort(q);
}

struct jobpool_job *jobpool_next(struct jobpool *q)
{
    struct jobpool_job *j = is_closed(q) ? NULL : next_job(q, largest_slot(q));

    if (j)
        jobpool__take(q, j, TAKEN_LOOKED);
    return j;
}

/* ------------------------------------------------------------------ who starts */

/* Charged at once, so that one tenant does not take every slot. */
static void charge_tenant(struct jobpool *q, struct jobpool_tenant *t, uint32_t gpus)
{
    if (!t->is_charged) {
        t->is_charged = true;
        t->share_before = t->share;
        t->next_charged = q->charged;
        q->charged = t;
    }
    if (t->f.weight > 0)
        t->share += gpus * q->step / t->f.weight;
    jobpool__unsort(q, t);
}

/* There is no slot for its head, or nobody gives way for it, nor will for those behind that: they
 * need the same, and their claims are a part of its own. It may be otherwise for another group. */
static void let_by(struct jobpool *q, struct jobpool_group *g, struct jobpool_group **passed)
{
    g->passed = g->head;
    g->head = NULL;
    jobpool__sort_group(g);
    jobpool__unsort(q, g->tenant);
    jobpool__sort(q);
    g->next_passed = *passed;
    *passed = g;
}

/* They may be looked at again. */
static void put_back(struct jobpool *q, struct jobpool_group *passed)
{
    for (struct jobpool_group *g = passed; g; g = g->next_passed) {
        g->head = g->passed;
        jobpool__sort_group(g);
        jobpool__unsort(q, g->tenant);
    }
    jobpool__sort(q);
}

bool jobpool__fits(const struct jobpool *q, const struct jobpool_job *j,
                   const struct jobpool_slot *x)
{
    return !j->f.is.version || !q->fits || q->fits(q->fits_arg, j->f.is.version, x);
}

static void start_pooled(struct jobpool *q, struct jobpool_job *j, struct jobpool_slot *slots)
{
    j->slot = slots;
    for (struct jobpool_slot *x = slots; x; x = x->next) {
        x->f.is_taken = true;
        jobpool__sort_slot(q, x);
    }
    jobpool__leave(q, j);
    j->f.is.state = SNAP_STARTING;
    j->f.is.fills = q->kept && !j->f.is.is_fixed;
    jobpool__enter(q, j, NULL);
    charge_tenant(q, j->f.tenant, jobpool__gpus(j));
    jobpool__sort(q);
    j->next_moved = NULL;
    *q->end_started = j;
    q->end_started = &j->next_moved;
}

static void start_next_jobs(struct jobpool *q)
{
    struct jobpool_group *passed = NULL;

    while (q->free.n) {
        const bool is_owned = (int64_t)q->free.n * JOBPOOL_SLOT - q->reserved < JOBPOOL_SLOT;
        const size_t most = q->kept ? q->free.n : q->slots.n;
        struct jobpool_job *j =
            next_wanted(q, &(struct wanted){largest_free(q), (uint32_t)most, HUGE_VAL});
        struct jobpool_slot *slots;

        /* What is reserved is for those below their guarantee, and they come first. */
        if (!j || (is_owned && jobpool__gpus(j) == 1 && !jobpool__is_below(j->f.tenant, 1)))
            break;
        slots = jobpool__free_slots(q, j);
        if (slots && (!q->kept || jobpool__may_fill(q, j))) {
            start_pooled(q, j, slots);
            continue;
        }
        if (!q->kept && jobpool__gpus(j) > 1 && jobpool__is_possible(q, j)) {
            jobpool__keep(q, j);
            if (j->taken)
                continue;
        }
        let_by(q, j->group, &passed);
    }
    if (q->kept) {
        q->kept->f.tenant->kept = 0;
        jobpool__unsort(q, q->kept->f.tenant);
    }
    put_back(q, passed);
}

/* ------------------------------------------------------------------ who gives way */

#define GIVES_TENANT(n, when) SH_TREE_OF(n, struct jobpool_tenant, gives[when].node)

static bool run_is(const struct sh_tree_node *n, const void *arg)
{
    return JOBPOOL_JOB(n)->f.exec_bytes >= *(const uint64_t *)arg;
}

static bool run_has(const struct sh_tree_node *n, const void *arg)
{
    return JOBPOOL_JOB(n)->most_bytes >= *(const uint64_t *)arg;
}

struct given {      /* what is asked of a tenant that may give a slot */
    uint64_t bytes; /* so much memory, on the device of one of its jobs */
    double load;    /* that it has more slots by weight */
};

#define ASK_GIVES(when)                                                                      \
    static bool gives_is_##when(const struct sh_tree_node *n, const void *arg)               \
    {                                                                                        \
        const struct given *g = arg;                                                         \
        const struct jobpool_tenant *t = GIVES_TENANT(n, when);                              \
        return t->gives[when].most_bytes >= g->bytes && t->gives[when].load > g->load;       \
    }                                                                                        \
    static bool gives_has_##when(const struct sh_tree_node *n, const void *arg)              \
    {                                                                                        \
        const struct given *g = arg;                                                         \
        const struct jobpool_tenant *t = GIVES_TENANT(n, when);                              \
        return t->gives[when].most_below >= g->bytes && t->gives[when].load_below > g->load; \
    }
ASK_GIVES(0)
ASK_GIVES(1)

/* A job of several slots gives all of them, so its tenant has to have more without it, and with one
 * of them, than it is guaranteed and than who asks. Where a version can run is known of one. */
static bool may_give(const struct jobpool_job *want, const struct jobpool_job *have)
{
    const struct jobpool_tenant *t = have->f.tenant;
    const uint32_t gpus = jobpool__gpus(have);

    if (gpus == 1)
        return true;
    if (want->f.is.version)
        return false;
    if (t == want->f.tenant)
        return true;
    return t->running >= gpus && t->running - gpus >= t->f.guaranteed_gpus &&
           (t->f.weight <= 0 ||
            (t->running - gpus + 1) / t->f.weight > jobpool__load(want->f.tenant));
}

/* Of the jobs of t that give way now, or later: the first, where `want` can run. */
static struct jobpool_job *first_run(const struct jobpool *q, const struct jobpool_tenant *t,
                                     enum jobpool_when when, const struct jobpool_job *want)
{
    const struct sh_tree_ask ask = {run_is, run_has, &want->f.is.need_bytes};

    for (struct sh_tree_node *n = sh_tree_first_with(&t->runs[when], &ask); n;
         n = sh_tree_next_with(n, &ask))
        if (jobpool__fits(q, want, JOBPOOL_JOB(n)->f.on) && may_give(want, JOBPOOL_JOB(n)))
            return JOBPOOL_JOB(n);
    return NULL;
}

/* Of another tenant, one that would give way to `want` first: of those that have more. */
static struct jobpool_job *first_of_others(const struct jobpool *q, const struct jobpool_job *want,
                                           enum jobpool_when when)
{
    const struct given given = {want->f.is.need_bytes, jobpool__load(want->f.tenant)};
    const struct sh_tree_ask ask = {when ? gives_is_1 : gives_is_0,
                                    when ? gives_has_1 : gives_has_0, &given};
    struct jobpool_job *best = NULL;
    struct jobpool_rank least = {.share = 0};

    for (struct sh_tree_node *n = sh_tree_first_with(&q->gives[when], &ask); n;
         n = sh_tree_next_with(n, &ask)) {
        const struct jobpool_tenant *t = GIVES_TENANT(n, when);
        struct jobpool_job *j;
        struct jobpool_rank rank;

        if (best && jobpool__way_cmp(&least, &t->gives[when].rank) < 0)
            break;
        if (t == want->f.tenant)
            continue;
        j = first_run(q, t, when, want);
        if (!j)
            continue;
        rank = jobpool__rank(j);
        if (best && jobpool__way_cmp(&rank, &least) > 0)
            continue;
        best = j;
        least = rank;
    }
    return best;
}

static bool gives_way_before(const struct jobpool_job *a, const struct jobpool_job *b)
{
    const struct jobpool_rank x = jobpool__rank(a), y = jobpool__rank(b);

    return jobpool__way_cmp(&x, &y) < 0;
}

bool jobpool__goes_before(const struct jobpool_job *a, const struct jobpool_job *b)
{
    const struct jobpool_rank x = jobpool__rank(a), y = jobpool__rank(b);

    return jobpool__next_cmp(&x, &y) < 0;
}

struct jobpool_job *jobpool__claim(const struct jobpool *q, const struct jobpool_job *want,
                                   enum jobpool_when when, enum decide_reason *why)
{
    const struct jobpool_tenant *t = want->f.tenant;
    struct jobpool_job *other = first_of_others(q, want, when);
    struct jobpool_job *own = first_run(q, t, when, want);

    const bool is_below = jobpool__is_below(t, jobpool__gpus(want));

    if (own && !jobpool__own_claim(want, own))
        own = NULL;
    if (other && !is_below && t->share + q->margin >= other->f.tenant->share)
        other = NULL;
    if (own && (!other || gives_way_before(own, other))) {
        *why = want->f.is.priority > own->f.is.priority ? DECIDE_PRIORITY : DECIDE_ATTAINED;
        return own;
    }
    *why = other ? is_below ? DECIDE_QUOTA_GUARANTEED : DECIDE_FAIR_SHARE : DECIDE_NONE;
    return other;
}

static void stop(struct jobpool *q, struct jobpool_job *j, enum decide_reason why)
{
    jobpool__leave(q, j);
    j->f.is.state = SNAP_STOPPING;
    jobpool__enter(q, j, NULL);
    j->why = why;
    j->next_moved = NULL;
    *q->end_stopped = j;
    q->end_stopped = &j->next_moved;
}

/* The first of those whose tenant runs one of a lower priority. */
static struct jobpool_job *next_want(const struct jobpool *q)
{
    const struct sh_tree_node *n = sh_tree_first(&q->wants);

    return n ? SH_TREE_OF(n, struct jobpool_tenant, wants)->head : NULL;
}

/* Is nobody else to be put where he belongs? */
static bool is_alone_unsorted(const struct jobpool *q, const struct jobpool_tenant *t)
{
    return q->unsorted == t && !t->next_unsorted;
}

/* j, which is next, and those behind it of its tenant, up to the first of another. There may be
 * hundreds, so the tenant leaves its place among the others once for all of them. */
static void take_tenant_row(struct jobpool *q, struct jobpool_job *j)
{
    const struct wanted any = {largest_slot(q), (uint32_t)q->slots.n, HUGE_VAL};
    struct jobpool_tenant *t = j->f.tenant;
    const struct jobpool_job *rival;

    sh_tree_del(&q->next, &JOBPOOL_NEXT, &t->next);
    rival = next_wanted(q, &any);
    do {
        note_taken(q, j, TAKEN_COMING);
        q->n_untaken--;
        j = first_of_groups(t, &any);
    } while (q->n_untaken && j && jobpool__gpus(j) == 1 && is_alone_unsorted(q, t) &&
             (!rival || jobpool__goes_before(j, rival)));
    jobpool__sort(q);
}

/* Those that are next get the slots that are being given up already. One of several slots needs
 * others besides; if they are too few, it is let by. */
static void take_coming(struct jobpool *q, struct jobpool_group **passed)
{
    struct jobpool_job *j;

    while (q->n_untaken && (j = next_job(q, largest_slot(q)))) {
        if (jobpool__gpus(j) == 1)
            take_tenant_row(q, j);
        else if (j == q->kept || !jobpool__claim_gang(q, j))
            let_by(q, j->group, passed);
    }
}

/* Might somebody have to give way? False: certainly not. */
static bool any_claim(const struct jobpool *q)
{
    const struct sh_tree_node *gives = sh_tree_first(&q->gives[JOBPOOL_NOW]);
    const struct jobpool_job *j = gives ? next_job(q, largest_slot(q)) : NULL;

    return q->wants.n || jobpool__any_fills(q) ||
           (j && (jobpool__is_below(j->f.tenant, jobpool__gpus(j)) ||
                  j->f.tenant->share + q->margin < GIVES_TENANT(gives, JOBPOOL_NOW)->share));
}

/* Jobs in their order, of those that may have a claim. */
static void stop_jobs(struct jobpool *q)
{
    /* Of those that have a claim on others. */
    struct wanted asks = {largest_slot(q), (uint32_t)q->slots.n, HUGE_VAL};
    struct jobpool_group *passed = NULL;
    int n_gangs = MOST_GANGS;

    if (!any_claim(q))
        return;
    take_coming(q, &passed);
    for (;;) {
        struct jobpool_job *want = next_want(q), *victim;
        struct jobpool_job *j = next_wanted(q, &asks);
        enum decide_reason why;

        if (want && want->f.is.need_bytes > largest_slot(q)) {
            let_by(q, want->group, &passed);
            continue;
        }
        if (!j || (want && jobpool__goes_before(want, j)))
            j = want;
        if (!j)
            break;
        if (jobpool__gpus(j) > 1) {
            if (j == q->kept || n_gangs-- <= 0 || !jobpool__claim_gang(q, j))
                let_by(q, j->group, &passed);
            asks.most_gpus = n_gangs > 0 ? asks.most_gpus : 1;
            continue;
        }
        victim = jobpool__claim(q, j, JOBPOOL_NOW, &why);
        if (victim) {
            stop(q, victim, why);
            q->n_untaken += jobpool__gpus(victim) - 1;
            jobpool__take(q, j, TAKEN_VICTIM);
            if (jobpool__gpus(victim) > 1)
                take_coming(q, &passed);
        } else if (j->f.is.need_bytes || j->f.is.version || j == want) {
            let_by(q, j->group, &passed);
        } else {
            asks.below_load = jobpool__load(j->f.tenant);
        }
    }
    put_back(q, passed);
}

/* ------------------------------------------------------------------ a decision */

void jobpool_begin(struct jobpool *q, const struct jobpool_now *now)
{
    q->at = *now;
    q->step = (double)q->min_run_ns / now->scale;
    q->margin = q->step * decide__margin((double)q->slots.n, q->n_busy);
    q->decides = true;
    q->started = q->stopped = q->taken = NULL;
    q->end_started = &q->started;
    q->end_stopped = &q->stopped;
    q->charged = NULL;
    q->touched = NULL;
    q->n_taken = q->n_untaken = 0;
    q->kept = NULL;
    jobpool__ripen(q);
    jobpool__sort(q);
}

void jobpool_decide(struct jobpool *q)
{
    if (is_closed(q))
        return;
    q->n_untaken = q->coming;
    start_next_jobs(q);
    stop_jobs(q);
}

void jobpool_look(struct jobpool *q, size_t n)
{
    struct jobpool_job *j;

    while (q->n_untaken && (j = next_job(q, largest_slot(q))) && jobpool__gpus(j) == 1)
        take_tenant_row(q, j);
    while (q->n_taken < n && jobpool_next(q))
        ;
}

void jobpool_end(struct jobpool *q)
{
    for (struct jobpool_job *j = q->taken; j; j = j->next_taken) {
        if (j->taken != TAKEN_LOOKED) {
            j->f.tenant->running -= jobpool__gpus(j);
            jobpool__count_array(q, j->array, -1);
        }
        j->taken = TAKEN_NOT;
        j->f.tenant->first_taken = NULL;
    }
    for (struct jobpool_tenant *t = q->charged; t; t = t->next_charged) {
        t->share = t->share_before;
        t->is_charged = false;
        jobpool__unsort(q, t);
    }
    while (q->touched) {
        struct jobpool_group *g = q->touched;
        struct jobpool_tenant *t = g->tenant;

        q->touched = g->next_touched;
        g->is_touched = false;
        g->head = jobpool__untaken(sh_tree_first(&g->line));
        jobpool__sort_group(g);
        jobpool__drop_empty(g);
        jobpool__unsort(q, t);
    }
    q->taken = NULL;
    q->decides = false;
}

/* ------------------------------------------------------------------ why a job waits */

static enum decide_reason why_blocked(const struct jobpool *q, const struct jobpool_job *j)
{
    const struct jobpool_tenant *t = j->f.tenant;
    const struct snap_job *is = &j->f.is;

    if (!q->at.db_up)
        return DECIDE_DATABASE_DOWN;
    if (!t->f.active)
        return DECIDE_TENANT_SUSPENDED;
    if (!is->queue_open)
        return DECIDE_QUEUE_HELD;
    if (!q->slots.n)
        return DECIDE_NO_EXECUTOR;
    if (!is->model_ready)
        return DECIDE_MODEL_LOADING;
    if (jobpool__gpus(j) > q->slots.n)
        return DECIDE_TOO_FEW_GPUS;
    if (!jobpool__are_large(q, j) ||
        (t->f.max_memory_bytes && is->need_bytes > t->f.max_memory_bytes))
        return DECIDE_GPU_MEMORY;
    if (is->not_before_ns > q->at.now_ns)
        return DECIDE_BACKOFF;
    if (j->array && j->array->n >= is->array_max)
        return DECIDE_ARRAY_LIMIT;
    if (!jobpool__has_room(t, jobpool__gpus(j)))
        return DECIDE_QUOTA_LIMIT;
    if (is->is_fixed && !jobpool__has_fixed_room(t, jobpool__gpus(j)))
        return DECIDE_QUOTA_GUARANTEED;
    return jobpool__is_possible(q, j) ? DECIDE_NONE : DECIDE_LENDING_LIMIT;
}

/* It waits behind others: of its own tenant, with less device time? The first of those is meant:
 * one that was looked at goes before all that were not. */
static enum decide_reason why_behind(const struct jobpool *q, const struct jobpool_job *j)
{
    const struct jobpool_tenant *t = j->f.tenant;
    const struct wanted any = {largest_slot(q), (uint32_t)q->slots.n, HUGE_VAL};
    const struct jobpool_job *first = t->first_taken;

    if (!first && t->head)
        first = first_job(t, &any);
    return first && first->f.is.priority == j->f.is.priority && first->f.is.level < j->f.is.level
               ? DECIDE_ATTAINED
               : DECIDE_PRIORITY;
}

enum decide_reason jobpool_why(const struct jobpool *q, const struct jobpool_job *j)
{
    const enum decide_reason why =
        j->taken && jobpool__is_possible(q, j) ? DECIDE_NONE : why_blocked(q, j);
    enum decide_reason right;

    if (why != DECIDE_NONE)
        return why;
    if (!j->taken)
        return why_behind(q, j);
    if (j->taken == TAKEN_VICTIM)
        return DECIDE_RESOURCES;
    if (j->taken == TAKEN_LOOKED && jobpool__claim(q, j, JOBPOOL_LATER, &right))
        return DECIDE_MIN_RUN;
    if (q->kept && q->kept != j && q->free.n >= jobpool__gpus(j))
        return DECIDE_GANG;
    if (q->kept != j && jobpool__n_free(q, j) == jobpool__gpus(j))
        return DECIDE_LENDING_LIMIT;
    return DECIDE_RESOURCES;
}
