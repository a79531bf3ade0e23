/* decide_scan.c - see decide_scan.h. */
#include "tests/unit/decide_scan.h"

#include <math.h>

static enum decide_reason scan_blocked(const struct scan *p, const struct snap_job *j)
{
    const struct snap_tenant *t = &p->in->tenants[j->tenant];
    const double held = p->held[j->tenant];

    if (!p->in->db_up)
        return DECIDE_DATABASE_DOWN;
    if (!t->active)
        return DECIDE_TENANT_SUSPENDED;
    if (!j->queue_open)
        return DECIDE_QUEUE_HELD;
    if (!p->any_up)
        return DECIDE_NO_EXECUTOR;
    if (!j->model_ready)
        return DECIDE_MODEL_LOADING;
    if (j->need_bytes > p->most_bytes ||
        (t->max_memory_bytes && j->need_bytes > t->max_memory_bytes))
        return DECIDE_GPU_MEMORY;
    if (j->not_before_ns > p->in->now_ns)
        return DECIDE_BACKOFF;
    if (j->array && p->in_array[j->array] >= j->array_max)
        return DECIDE_ARRAY_LIMIT;
    if (held >= t->max_running_jobs || (t->max_gpus >= 0 && held >= t->max_gpus) ||
        (t->weight <= 0 && held >= t->guaranteed_gpus))
        return DECIDE_QUOTA_LIMIT;
    if (j->is_fixed && p->fixed[j->tenant] + 1 > t->guaranteed_gpus)
        return DECIDE_QUOTA_GUARANTEED;
    return DECIDE_NONE;
}

static bool scan_below(const struct scan *p, uint32_t tenant)
{
    return p->running[tenant] < p->in->tenants[tenant].guaranteed_gpus;
}

static bool scan_goes_first(const struct scan *p, const struct snap_job *a,
                            const struct snap_job *b)
{
    const bool ga = scan_below(p, a->tenant), gb = scan_below(p, b->tenant);

    if (a->tenant != b->tenant && ga != gb)
        return ga;
    if (a->tenant != b->tenant && p->share[a->tenant] != p->share[b->tenant])
        return p->share[a->tenant] < p->share[b->tenant];
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->line_us != b->line_us ? a->line_us < b->line_us : a->id < b->id;
}

static double scan_kept(const struct snap_tenant *t, double held)
{
    return t->active && t->lending_limit >= 0
               ? fmax(t->guaranteed_gpus - t->lending_limit - held, 0)
               : 0;
}

static bool scan_may_take(const struct scan *p, uint32_t tenant, double n_free)
{
    double others = 0;

    for (uint32_t t = 0; t < p->in->n_tenants; t++)
        if (t != tenant)
            others += scan_kept(&p->in->tenants[t], p->held[t]);
    return scan_below(p, tenant) || n_free - others >= 1;
}

static bool scan_is_free(const struct scan *p, uint32_t e)
{
    return p->in->execs[e].up && !p->in->execs[e].slot_taken && p->slot[e] == SNAP_NONE;
}

static bool scan_fits(const struct scan *p, const struct snap_job *j, uint32_t e)
{
    return p->in->execs[e].pool_bytes >= j->need_bytes &&
           !(p->in->execs[e].unfit >> j->version & 1);
}

static bool scan_has_free(const struct scan *p, const struct snap_job *j)
{
    for (uint32_t e = 0; e < p->in->n_execs; e++)
        if (scan_is_free(p, e) && scan_fits(p, j, e))
            return true;
    return false;
}

/* starts: of those for which there is a free slot. */
static uint32_t scan_next(const struct scan *p, double n_free, bool starts)
{
    uint32_t best = SNAP_NONE;

    for (uint32_t i = 0; i < p->in->n_jobs; i++) {
        const struct snap_job *j = &p->in->jobs[i];

        if (j->state == SNAP_QUEUED && !p->taken[i] && scan_blocked(p, j) == DECIDE_NONE &&
            (!starts || scan_has_free(p, j)) && scan_may_take(p, j->tenant, n_free) &&
            (best == SNAP_NONE || scan_goes_first(p, j, &p->in->jobs[best])))
            best = i;
    }
    return best;
}

static double scan_free(const struct scan *p)
{
    double n = 0;

    for (uint32_t e = 0; e < p->in->n_execs; e++)
        n += scan_is_free(p, e);
    return n;
}

static void scan_starts(struct scan *p)
{
    for (;;) {
        const double n_free = scan_free(p);
        const uint32_t i = n_free > 0 ? scan_next(p, n_free, true) : SNAP_NONE;
        const struct snap_job *j = &p->in->jobs[i];
        uint32_t best = SNAP_NONE;

        if (i == SNAP_NONE)
            return;
        for (uint32_t e = 0; e < p->in->n_execs; e++)
            if (scan_is_free(p, e) && scan_fits(p, j, e) &&
                (best == SNAP_NONE || p->in->execs[e].n_runs < p->in->execs[best].n_runs))
                best = e;
        p->slot[best] = i;
        p->taken[i] = SCAN_STARTS;
        p->running[j->tenant]++;
        p->held[j->tenant]++;
        p->in_array[j->array]++;
        p->fixed[j->tenant] += j->is_fixed;
        if (p->in->tenants[j->tenant].weight > 0)
            p->share[j->tenant] += (double)p->in->min_run_ns / p->in->tenants[j->tenant].weight;
        p->start_exec[p->n_started] = best;
        p->started[p->n_started++] = i;
    }
}

/* r minimum runs of all the r slots that a tenant with jobs has in the mean; 20 of them at most. */
static double margin_ns(const struct scan *p)
{
    bool is_busy[SCAN_MAX] = {false};
    double n_busy = 0, n_up = 0, r;

    for (uint32_t i = 0; i < p->in->n_jobs; i++) {
        n_busy += !is_busy[p->in->jobs[i].tenant];
        is_busy[p->in->jobs[i].tenant] = true;
    }
    for (uint32_t e = 0; e < p->in->n_execs; e++)
        n_up += p->in->execs[e].up;
    r = n_busy > 0 && n_up > n_busy ? n_up / n_busy : 1;
    return (double)p->in->min_run_ns * r * (r < 20 ? r : 20);
}

/* Slots by weight. */
static double scan_load(const struct scan *p, uint32_t t)
{
    const double weight = p->in->tenants[t].weight;

    return weight > 0 ? p->running[t] / weight : INFINITY;
}

static enum decide_reason scan_own_claim(const struct snap_job *want, const struct snap_job *have)
{
    if (want->priority != have->priority)
        return want->priority > have->priority ? DECIDE_PRIORITY : DECIDE_NONE;
    if (have->level == 0 || want->line_us > have->line_us ||
        (want->line_us == have->line_us && want->id > have->id))
        return DECIDE_NONE;
    return DECIDE_ATTAINED;
}

static enum decide_reason scan_claim(const struct scan *p, const struct snap_job *want,
                                     const struct snap_job *have)
{
    const bool lends = p->running[have->tenant] - 1 >= p->in->tenants[have->tenant].guaranteed_gpus;

    if (want->tenant == have->tenant)
        return scan_own_claim(want, have);
    if (!lends)
        return DECIDE_NONE;
    if (scan_below(p, want->tenant))
        return DECIDE_QUOTA_GUARANTEED;
    return p->share[want->tenant] + margin_ns(p) < p->share[have->tenant] &&
                   scan_load(p, want->tenant) < scan_load(p, have->tenant)
               ? DECIDE_FAIR_SHARE
               : DECIDE_NONE;
}

static bool scan_keeps_longer(const struct scan *p, const struct snap_job *a,
                              const struct snap_job *b)
{
    if (p->share[a->tenant] != p->share[b->tenant])
        return p->share[a->tenant] < p->share[b->tenant];
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if ((a->level == 0) != (b->level == 0))
        return a->level == 0;
    if (a->level && a->line_us != b->line_us)
        return a->line_us < b->line_us;
    return a->loss_ns != b->loss_ns ? a->loss_ns > b->loss_ns : a->id < b->id;
}

/* Those that give way to `want` now, or later; the first of them, and by what right. */
static uint32_t scan_victim(const struct scan *p, const struct snap_job *want, bool later,
                            enum decide_reason *why)
{
    const struct snapshot *in = p->in;
    uint32_t best = SNAP_NONE;

    for (uint32_t i = 0; i < in->n_jobs; i++) {
        const struct snap_job *j = &in->jobs[i];
        const int64_t least = j->min_run_ns > 0 ? j->min_run_ns : in->min_run_ns;
        const bool is_later = !j->may_suspend || in->now_ns - j->since_ns < least;
        enum decide_reason c;

        if (j->state != SNAP_RUNNING || j->exec == SNAP_NONE || j->is_fixed || p->taken[i] ||
            !scan_fits(p, want, j->exec) || is_later != later)
            continue;
        c = scan_claim(p, want, j);
        if (c == DECIDE_NONE || (best != SNAP_NONE && scan_keeps_longer(p, j, &in->jobs[best])))
            continue;
        best = i;
        *why = c;
    }
    return best;
}

static void scan_stops(struct scan *p)
{
    uint32_t i;

    while ((i = scan_next(p, INFINITY, false)) != SNAP_NONE) {
        const struct snap_job *j = &p->in->jobs[i];
        enum decide_reason why;
        uint32_t victim = SNAP_NONE;

        if (p->coming > 0) {
            p->coming--;
            p->taken[i] = SCAN_COMING;
        } else if ((victim = scan_victim(p, j, false, &why)) != SNAP_NONE) {
            p->taken[i] = SCAN_SERVED;
            p->taken[victim] = SCAN_STOPS;
            p->running[p->in->jobs[victim].tenant]--;
            p->stop_why[p->n_stopped] = why;
            p->stopped[p->n_stopped++] = victim;
        } else {
            p->taken[i] = SCAN_FAILED;
            continue;
        }
        p->running[j->tenant]++;
        p->in_array[j->array]++;
    }
}

static const struct snap_job *scan_first(const struct scan *p, uint32_t tenant, bool is_taken)
{
    const struct snap_job *first = NULL;

    for (uint32_t i = 0; i < p->in->n_jobs; i++) {
        const struct snap_job *o = &p->in->jobs[i];

        if (o->tenant != tenant || o->state != SNAP_QUEUED || p->taken[i] == SCAN_STARTS ||
            is_taken != (p->taken[i] != SCAN_NOT))
            continue;
        if ((is_taken || scan_blocked(p, o) == DECIDE_NONE) &&
            (!first || scan_goes_first(p, o, first)))
            first = o;
    }
    return first;
}

/* Behind others: of its own tenant, with less device time? The first of those is meant. */
static enum decide_reason scan_behind(const struct scan *p, const struct snap_job *j)
{
    const struct snap_job *first = scan_first(p, j->tenant, true);

    if (!first)
        first = scan_first(p, j->tenant, false);
    return first && first->priority == j->priority && first->level < j->level ? DECIDE_ATTAINED
                                                                              : DECIDE_PRIORITY;
}

static void scan_reasons(struct scan *p)
{
    enum decide_reason right;
    size_t n = 0;
    uint32_t i;

    for (i = 0; i < p->in->n_jobs; i++) {
        if (p->in->jobs[i].state != SNAP_QUEUED || p->taken[i] == SCAN_STARTS)
            continue;
        if (p->taken[i] == SCAN_FAILED)
            p->taken[i] = SCAN_NOT;
        n += p->taken[i] != SCAN_NOT;
        p->wait[i] = DECIDE_RESOURCES;
        if (p->taken[i] == SCAN_COMING && scan_has_free(p, &p->in->jobs[i]))
            p->wait[i] = DECIDE_LENDING_LIMIT;
    }
    for (; n < p->in->n_execs && (i = scan_next(p, INFINITY, false)) != SNAP_NONE; n++) {
        p->taken[i] = SCAN_FAILED;
        if (scan_victim(p, &p->in->jobs[i], true, &right) != SNAP_NONE)
            p->wait[i] = DECIDE_MIN_RUN;
        else if (scan_has_free(p, &p->in->jobs[i]))
            p->wait[i] = DECIDE_LENDING_LIMIT;
    }
    for (i = 0; i < p->in->n_jobs; i++) {
        if (p->in->jobs[i].state != SNAP_QUEUED || p->taken[i] != SCAN_NOT)
            continue;
        p->wait[i] = scan_blocked(p, &p->in->jobs[i]);
        if (p->wait[i] == DECIDE_NONE)
            p->wait[i] = scan_behind(p, &p->in->jobs[i]);
    }
}

static void scan_begin(struct scan *p, const struct snapshot *in)
{
    *p = (struct scan){.in = in};
    for (uint32_t t = 0; t < in->n_tenants; t++)
        p->share[t] =
            in->tenants[t].weight > 0 ? in->tenants[t].usage_ns / in->tenants[t].weight : INFINITY;
    for (uint32_t e = 0; e < in->n_execs; e++) {
        p->slot[e] = in->execs[e].job;
        p->any_up |= in->execs[e].up;
        if (in->execs[e].up && in->execs[e].pool_bytes > p->most_bytes)
            p->most_bytes = in->execs[e].pool_bytes;
    }
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        const struct snap_job *j = &in->jobs[i];

        if (j->state == SNAP_QUEUED)
            continue;
        p->in_array[j->array]++;
        if (j->state == SNAP_LEFT)
            continue;
        p->held[j->tenant]++;
        p->fixed[j->tenant] += j->is_fixed;
        p->coming += j->state == SNAP_STOPPING && j->exec != SNAP_NONE;
        p->running[j->tenant] += j->state != SNAP_STOPPING;
    }
}

void scan_decide(struct scan *p, const struct snapshot *in)
{
    scan_begin(p, in);
    scan_starts(p);
    scan_stops(p);
    scan_reasons(p);
}
