/* jobs_fifo.c - two policies that stop nobody.
 *
 * FIFO with backfill. D. Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995 (EASY): jobs start
 * in the order of their arrival; when the first does not fit, it gets a reservation, and others may
 * start that do not delay it. Simplified: no user's estimates, but each job's true length, which is
 * to its advantage.
 *
 * Dominant share. A. Ghodsi et al., "Dominant Resource Fairness", NSDI 2011: the next GPUs go to
 * the tenant that holds the least of its dominant resource. Simplified: GPUs are the only one;
 * within a tenant the first that arrived is next; a tenant whose next job does not fit is passed
 * over, so that large jobs have no reservation. */
#include "common/mem.h"
#include "simulate/jobs.h"

#include <stdlib.h>
#include <string.h>

struct fifo {
    struct cluster *c;
    struct sim_list waits;
    uint32_t *ends; /* running jobs by their end */
    size_t n_ends;
};

static void *fifo_create(struct cluster *c, const struct job_conf *conf)
{
    struct fifo *f = calloc(1, sizeof(*f));

    (void)conf;
    if (!f)
        return NULL;
    f->c = c;
    sim_list_init(&f->waits, 1);
    f->ends = calloc(c->n_jobs, sizeof(*f->ends));
    if (f->ends)
        return f;
    free(f);
    return NULL;
}

static void fifo_destroy(void *p)
{
    free(((struct fifo *)p)->ends);
    free(p);
}

static void fifo_arrived(void *p, uint32_t job)
{
    struct fifo *f = p;

    sim_list_add(f->c, &f->waits, job);
}

/* How many running jobs end before this one; ties by number. */
static size_t place_of(const struct fifo *f, uint32_t job)
{
    const int64_t end = cluster_end_ns(f->c, &f->c->jobs[job]);
    size_t lo = 0, hi = f->n_ends;

    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        const int64_t other = cluster_end_ns(f->c, &f->c->jobs[f->ends[mid]]);

        if (other < end || (other == end && f->ends[mid] < job))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void fifo_over(void *p, uint32_t job)
{
    struct fifo *f = p;
    const size_t i = place_of(f, job);

    memmove(&f->ends[i], &f->ends[i + 1], (f->n_ends - i - 1) * sizeof(f->ends[0]));
    f->n_ends--;
}

static void fifo_start(struct fifo *f, uint32_t job)
{
    size_t i;

    sim_list_drop(f->c, &f->waits, job);
    cluster_start(f->c, job);
    i = place_of(f, job);
    memmove(&f->ends[i + 1], &f->ends[i], (f->n_ends - i) * sizeof(f->ends[0]));
    f->ends[i] = job;
    f->n_ends++;
}

static int64_t fifo_pass(void *p)
{
    struct fifo *f = p;
    struct cluster *c = f->c;
    uint32_t head, spare;
    int64_t begins_ns = c->now_ns;

    while ((head = f->waits.first) != SIM_NONE && c->jobs[head].of.gpus <= c->n_free)
        fifo_start(f, head);
    if (head == SIM_NONE || c->n_free == 0)
        return SIM_NEVER;
    spare = c->n_free;
    for (size_t i = 0; i < f->n_ends && spare < c->jobs[head].of.gpus; i++) {
        spare += c->jobs[f->ends[i]].of.gpus;
        begins_ns = cluster_end_ns(c, &c->jobs[f->ends[i]]);
    }
    spare -= c->jobs[head].of.gpus; /* free beside it when it starts */
    for (uint32_t i = c->jobs[head].behind, next; i != SIM_NONE && c->n_free > 0; i = next) {
        const struct sim_job *j = &c->jobs[i];
        const bool ends_before = c->now_ns + c->start_ns + j->left_ns <= begins_ns;

        next = j->behind;
        if (j->of.gpus > c->n_free || (!ends_before && j->of.gpus > spare))
            continue;
        if (!ends_before)
            spare -= j->of.gpus;
        fifo_start(f, i);
    }
    return SIM_NEVER;
}

const struct job_policy JOBS_FIFO = {"fifo", fifo_create, fifo_destroy, fifo_arrived,
                                     NULL,   fifo_over,   fifo_pass};

/* ------------------------------------------------------------------ dominant share */

struct drf {
    struct cluster *c;
    struct sim_list *waits; /* by tenant */
    uint32_t *held;
    bool *passed; /* in this pass */
};

static void drf_destroy(void *p)
{
    struct drf *d = p;

    free(d->waits);
    free(d->held);
    free(d->passed);
    free(d);
}

static void *drf_create(struct cluster *c, const struct job_conf *conf)
{
    struct drf *d = calloc(1, sizeof(*d));

    (void)conf;
    if (!d)
        return NULL;
    d->c = c;
    d->waits = calloc(c->n_tenants, sizeof(*d->waits));
    d->held = calloc(c->n_tenants, sizeof(*d->held));
    d->passed = calloc(c->n_tenants, sizeof(*d->passed));
    if (!d->waits || !d->held || !d->passed) {
        drf_destroy(d);
        return NULL;
    }
    for (size_t t = 0; t < c->n_tenants; t++)
        sim_list_init(&d->waits[t], 1);
    return d;
}

static void drf_arrived(void *p, uint32_t job)
{
    struct drf *d = p;

    sim_list_add(d->c, &d->waits[d->c->jobs[job].of.tenant], job);
}

static void drf_over(void *p, uint32_t job)
{
    struct drf *d = p;

    d->held[d->c->jobs[job].of.tenant] -= d->c->jobs[job].of.gpus;
}

static int64_t drf_pass(void *p)
{
    struct drf *d = p;
    struct cluster *c = d->c;

    memset(d->passed, 0, c->n_tenants * sizeof(d->passed[0]));
    for (;;) {
        size_t best = c->n_tenants;
        uint32_t job;

        for (size_t t = 0; t < c->n_tenants; t++)
            if (d->waits[t].n && !d->passed[t] &&
                (best == c->n_tenants || d->held[t] < d->held[best]))
                best = t;
        if (best == c->n_tenants || c->n_free == 0)
            return SIM_NEVER;
        job = d->waits[best].first;
        if (c->jobs[job].of.gpus > c->n_free) {
            d->passed[best] = true;
            continue;
        }
        sim_list_drop(c, &d->waits[best], job);
        d->held[best] += c->jobs[job].of.gpus;
        cluster_start(c, job);
    }
}

const struct job_policy JOBS_DRF = {"drf", drf_create, drf_destroy, drf_arrived,
                                    NULL,  drf_over,   drf_pass};
