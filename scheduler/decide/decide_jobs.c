/* decide_jobs.c - see decide.h: which jobs start and which give way. */
#include "common/mem.h"
#include "scheduler/decide/decide.h"

#include <math.h>
#include <stdlib.h>

/* Training: who gets a free slot, who has to give one up, and why the others wait. */

struct pool {
    const struct snapshot *in;
    struct decisions *out;
    double
        *running;  /* by tenant: jobs that hold a slot and keep it, those that start now included */
    double *held;  /* by tenant: the same and those that are giving their slot up */
    double *fixed; /* by tenant: those of `held` that never give their slot up */
    double *share; /* by tenant: decayed usage / weight */
    uint32_t *in_array;  /* by array, from 1: as `held` */
    uint32_t *slot;      /* by executor: the job that holds it, or SNAP_NONE */
    bool *settled;       /* by job: started now, or its wait has its reason */
    double reserved;     /* slots kept free, for all tenants together */
    bool any_up;         /* is there an executor? */
    uint64_t most_bytes; /* of device memory: of the largest that is up */
};

static double share_of(const struct snap_tenant *t)
{
    return t->weight > 0 ? t->usage_ns / t->weight : INFINITY;
}

/* Why this queued job may not start whatever is free; DECIDE_NONE if it may. */
static enum decide_reason blocked(const struct pool *p, const struct snap_job *j)
{
    const struct snap_tenant *t = &p->in->tenants[j->tenant];
    double held = p->held[j->tenant];

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
    if (held >= t->max_running_jobs || (t->max_gpus >= 0 && held >= t->max_gpus))
        return DECIDE_QUOTA_LIMIT;
    if (t->weight <= 0 && held >= t->guaranteed_gpus)
        return DECIDE_QUOTA_LIMIT;
    if (j->is_fixed && p->fixed[j->tenant] + 1 > t->guaranteed_gpus)
        return DECIDE_QUOTA_GUARANTEED;
    return DECIDE_NONE;
}

static bool below_guarantee(const struct pool *p, uint32_t tenant)
{
    return p->running[tenant] < p->in->tenants[tenant].guaranteed_gpus;
}

static bool goes_first(const struct pool *p, const struct snap_job *a, const struct snap_job *b)
{
    bool ga = below_guarantee(p, a->tenant), gb = below_guarantee(p, b->tenant);

    if (a->tenant != b->tenant) {
        if (ga != gb)
            return ga;
        if (p->share[a->tenant] != p->share[b->tenant])
            return p->share[a->tenant] < p->share[b->tenant];
    }
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->queued_us != b->queued_us ? a->queued_us < b->queued_us : a->id < b->id;
}

/* May this tenant take one of n_free slots, as far as others have reserved some? */
static bool may_take(const struct pool *p, uint32_t tenant, double n_free)
{
    double own = decide__reserved(&p->in->tenants[tenant], p->held[tenant]);

    return below_guarantee(p, tenant) || n_free - (p->reserved - own) >= 1;
}

/* The queued job that is next for one of n_free slots, on devices of at most so many bytes, or
 * SNAP_NONE. */
static uint32_t next_job(const struct pool *p, double n_free, uint64_t bytes)
{
    uint32_t best = SNAP_NONE;

    for (uint32_t i = 0; i < p->in->n_jobs; i++) {
        const struct snap_job *j = &p->in->jobs[i];

        if (j->state != SNAP_QUEUED || p->settled[i] || blocked(p, j) != DECIDE_NONE ||
            j->need_bytes > bytes || !may_take(p, j->tenant, n_free))
            continue;
        if (best == SNAP_NONE || goes_first(p, j, &p->in->jobs[best]))
            best = i;
    }
    return best;
}

static bool is_free(const struct pool *p, uint32_t e)
{
    return p->in->execs[e].up && !p->in->execs[e].slot_taken && p->slot[e] == SNAP_NONE;
}

/* *n_out: how many there are; *most_out: bytes of the largest device among them. */
static void free_slots(const struct pool *p, double *n_out, uint64_t *most_out)
{
    *n_out = 0;
    *most_out = 0;
    for (uint32_t e = 0; e < p->in->n_execs; e++) {
        if (!is_free(p, e))
            continue;
        *n_out += 1;
        *most_out = SH_MAX(*most_out, p->in->execs[e].pool_bytes);
    }
}

static uint32_t free_slot_for(const struct pool *p, const struct snap_job *j)
{
    uint32_t best = SNAP_NONE;

    for (uint32_t e = 0; e < p->in->n_execs; e++) {
        if (!is_free(p, e) || p->in->execs[e].pool_bytes < j->need_bytes)
            continue;
        if (best == SNAP_NONE || p->in->execs[e].n_runs < p->in->execs[best].n_runs)
            best = e;
    }
    return best;
}

static void start_jobs(struct pool *p)
{
    const struct snapshot *in = p->in;

    for (;;) {
        double n_free;
        uint64_t most;
        uint32_t e, i;
        const struct snap_tenant *t;

        free_slots(p, &n_free, &most);
        i = n_free > 0 ? next_job(p, n_free, most) : SNAP_NONE;
        if (i == SNAP_NONE)
            return;
        e = free_slot_for(p, &in->jobs[i]);
        t = &in->tenants[in->jobs[i].tenant];
        p->slot[e] = i;
        p->settled[i] = true;
        p->running[in->jobs[i].tenant] += 1;
        p->reserved -= decide__reserved(t, p->held[in->jobs[i].tenant]);
        p->held[in->jobs[i].tenant] += 1;
        p->in_array[in->jobs[i].array]++;
        p->fixed[in->jobs[i].tenant] += in->jobs[i].is_fixed;
        p->reserved += decide__reserved(t, p->held[in->jobs[i].tenant]);
        /* Charged at once, so that one tenant does not take every slot of this pass. */
        if (t->weight > 0)
            p->share[in->jobs[i].tenant] += (double)in->min_run_ns / t->weight;
        decide__add(p->out, &(struct decision){
                                .kind = DECISION_START, .job = i, .exec = e, .request = SNAP_NONE});
    }
}

/* Has job `want` a right to the slot of job `have`? DECIDE_NONE: no. */
static enum decide_reason claim(const struct pool *p, const struct snap_job *want,
                                const struct snap_job *have)
{
    const struct snap_tenant *h = &p->in->tenants[have->tenant];
    bool lends = p->running[have->tenant] - 1 >= h->guaranteed_gpus;

    if (want->tenant == have->tenant)
        return want->priority > have->priority ? DECIDE_PRIORITY : DECIDE_NONE;
    if (!lends)
        return DECIDE_NONE;
    if (below_guarantee(p, want->tenant))
        return DECIDE_QUOTA_GUARANTEED;
    if (p->share[want->tenant] + (double)p->in->min_run_ns < p->share[have->tenant])
        return DECIDE_FAIR_SHARE;
    return DECIDE_NONE;
}

static int64_t min_run_of(const struct snapshot *in, const struct snap_job *j)
{
    return j->min_run_ns > 0 ? j->min_run_ns : in->min_run_ns;
}

/* Does job a keep its slot longer than b? */
static bool keeps_longer(const struct pool *p, const struct snap_job *a, const struct snap_job *b)
{
    if (p->share[a->tenant] != p->share[b->tenant])
        return p->share[a->tenant] < p->share[b->tenant];
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->id < b->id;
}

/* The job that gives way to `want`: of the tenant with the greatest share, the lowest priority, the
 * youngest. *why_out: the claim, or why nobody has to. */
static uint32_t find_victim(const struct pool *p, const struct snap_job *want,
                            enum decide_reason *why_out)
{
    const struct snapshot *in = p->in;
    uint32_t best = SNAP_NONE;
    enum decide_reason why = DECIDE_RESOURCES;

    for (uint32_t i = 0; i < in->n_jobs; i++) {
        const struct snap_job *j = &in->jobs[i];
        const struct snap_job *b = best == SNAP_NONE ? NULL : &in->jobs[best];
        enum decide_reason c;

        if (j->state != SNAP_RUNNING || j->exec == SNAP_NONE || j->is_fixed || p->settled[i] ||
            in->execs[j->exec].pool_bytes < want->need_bytes)
            continue;
        c = claim(p, want, j);
        if (c == DECIDE_NONE)
            continue;
        if (!j->may_suspend || in->now_ns - j->since_ns < min_run_of(in, j)) {
            if (!b)
                why = DECIDE_MIN_RUN;
            continue;
        }
        if (b && keeps_longer(p, j, b))
            continue;
        best = i;
        why = c;
    }
    *why_out = why;
    return best;
}

static void wait_for(struct pool *p, uint32_t i, enum decide_reason why)
{
    p->settled[i] = true;
    decide__add(p->out, &(struct decision){.kind = DECISION_WAIT,
                                           .job = i,
                                           .exec = SNAP_NONE,
                                           .request = SNAP_NONE,
                                           .reason = why});
}

/* Those next in line: the first `coming` get slots that are being given up already. A slot that is
 * free by now is reserved for others. */
static void suspend_jobs(struct pool *p, uint32_t coming)
{
    const struct snapshot *in = p->in;
    double n_free;
    uint64_t most;

    free_slots(p, &n_free, &most);
    for (size_t n = 0; n < in->n_execs; n++) {
        uint32_t i = next_job(p, INFINITY, UINT64_MAX), victim = SNAP_NONE;
        enum decide_reason why = DECIDE_RESOURCES;

        if (i == SNAP_NONE)
            break;
        if (coming > 0)
            coming--;
        else
            victim = find_victim(p, &in->jobs[i], &why);
        if (victim == SNAP_NONE && why == DECIDE_RESOURCES && n_free > 0 &&
            in->jobs[i].need_bytes <= most)
            why = DECIDE_LENDING_LIMIT;
        if (victim != SNAP_NONE) {
            p->settled[victim] = true;
            p->running[in->jobs[victim].tenant] -= 1;
            decide__add(p->out, &(struct decision){.kind = DECISION_SUSPEND,
                                                   .job = victim,
                                                   .exec = in->jobs[victim].exec,
                                                   .request = SNAP_NONE,
                                                   .reason = why});
            why = DECIDE_RESOURCES;
            p->running[in->jobs[i].tenant] += 1; /* as good as started: the next one sees it */
            p->in_array[in->jobs[i].array]++;
        }
        wait_for(p, i, why);
    }
}

/* Counts who holds what. Returns how many slots are being given up. */
static uint32_t survey(struct pool *p)
{
    const struct snapshot *in = p->in;
    uint32_t coming = 0;

    for (size_t t = 0; t < in->n_tenants; t++) {
        p->share[t] = share_of(&in->tenants[t]);
        p->held[t] = p->out->shares[t].running;
        p->reserved += p->out->shares[t].reserved;
    }
    for (size_t e = 0; e < in->n_execs; e++) {
        p->slot[e] = in->execs[e].job;
        p->any_up = p->any_up || in->execs[e].up;
        if (in->execs[e].up)
            p->most_bytes = SH_MAX(p->most_bytes, in->execs[e].pool_bytes);
    }
    for (size_t i = 0; i < in->n_jobs; i++) {
        const struct snap_job *j = &in->jobs[i];

        if (j->state == SNAP_QUEUED)
            continue;
        p->in_array[j->array]++;
        if (j->state == SNAP_LEFT)
            continue;
        p->fixed[j->tenant] += j->is_fixed;
        if (j->state == SNAP_STOPPING)
            coming++;
        else
            p->running[j->tenant] += 1;
    }
    return coming;
}

static int pool_init(struct pool *p, const struct snapshot *in, struct decisions *out,
                     struct sh_err *err)
{
    size_t at_held = in->n_tenants * sizeof(*p->running);
    size_t at_fixed = at_held + in->n_tenants * sizeof(*p->held);
    size_t at_share = at_fixed + in->n_tenants * sizeof(*p->fixed);
    size_t at_slot = at_share + in->n_tenants * sizeof(*p->share);
    size_t at_array = at_slot + in->n_execs * sizeof(*p->slot);
    size_t at_settled = at_array + (in->n_arrays + 1) * sizeof(*p->in_array);
    void *mem;
    int rc = decide__shares(in, out, err);

    if (!rc)
        rc = decide__scratch(out, at_settled + in->n_jobs * sizeof(*p->settled), &mem, err);
    if (rc)
        return rc;
    *p = (struct pool){.in = in,
                       .out = out,
                       .running = mem,
                       .held = (void *)((char *)mem + at_held),
                       .fixed = (void *)((char *)mem + at_fixed),
                       .share = (void *)((char *)mem + at_share),
                       .slot = (void *)((char *)mem + at_slot),
                       .in_array = (void *)((char *)mem + at_array),
                       .settled = (void *)((char *)mem + at_settled)};
    return SH_OK;
}

static int compare(const void *a, const void *b, void *pool)
{
    const struct pool *p = pool;
    const struct snap_job *x = &p->in->jobs[*(const uint32_t *)a];
    const struct snap_job *y = &p->in->jobs[*(const uint32_t *)b];

    return x == y ? 0 : goes_first(p, x, y) ? -1 : 1;
}

int decide_order(const struct snapshot *in, struct decisions *d, uint32_t *order, size_t *n,
                 struct sh_err *err)
{
    struct pool p;
    int rc = pool_init(&p, in, d, err);

    *n = 0;
    if (rc)
        return rc;
    survey(&p);
    for (uint32_t i = 0; i < in->n_jobs; i++)
        if (in->jobs[i].state == SNAP_QUEUED && blocked(&p, &in->jobs[i]) == DECIDE_NONE)
            order[(*n)++] = i;
    qsort_r(order, *n, sizeof(*order), compare, &p);
    return SH_OK;
}

int decide__jobs(const struct snapshot *in, struct decisions *out, struct sh_err *err)
{
    struct pool p;
    uint32_t coming;
    int rc = pool_init(&p, in, out, err);

    if (rc)
        return rc;
    coming = survey(&p);
    start_jobs(&p);
    suspend_jobs(&p, coming);
    for (uint32_t i = 0; i < in->n_jobs; i++) {
        enum decide_reason why;

        if (in->jobs[i].state != SNAP_QUEUED || p.settled[i])
            continue;
        why = blocked(&p, &in->jobs[i]);
        wait_for(&p, i, why == DECIDE_NONE ? DECIDE_PRIORITY : why);
    }
    return SH_OK;
}
