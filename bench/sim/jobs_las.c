/* jobs_las.c - two policies that stop jobs for others.
 *
 * Least attained service. J. Gu et al., "Tiresias", NSDI 2019: GPUs go to the jobs that have had
 * the least GPU time, in two queues parted by a limit, first come first served within each (their
 * 2D-LAS with K = 2). Simplified: no profile of models for placement, no promotion of starved jobs
 * (their default as well); switches cost what ours do.
 *
 * Finish-time fairness. K. Mahajan et al., "Themis", NSDI 2020: GPUs are leased for 20 minutes;
 * those whose lease has ended go to the jobs that are furthest behind what they would have had by
 * themselves, (age + work left) / work. Simplified: a job is an app by itself and knows its true
 * length; no auction and no placement, so nobody has an interest to bid falsely. */
#include "common/mem.h"
#include "common/units.h"
#include "simulate/jobs.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT_NS SH_S(3600) /* GPU time after which a job is in the second queue */
#define LEASE_NS SH_S(1200)
#define AUCTION_NS SH_S(300) /* leases that end within so long end together */

struct las {
    struct cluster *c;
    struct sim_list active[2]; /* all that have arrived and are not over */
    uint64_t *chosen;          /* by job: the pass that chose it last */
    uint64_t n_passes;
};

static void las_destroy(void *p)
{
    free(((struct las *)p)->chosen);
    free(p);
}

static void *las_create(struct cluster *c, const struct job_conf *conf)
{
    struct las *l = calloc(1, sizeof(*l));

    (void)conf;
    if (!l)
        return NULL;
    l->c = c;
    sim_list_init(&l->active[0], 1);
    sim_list_init(&l->active[1], 2);
    l->chosen = calloc(c->n_jobs, sizeof(*l->chosen));
    if (l->chosen)
        return l;
    free(l);
    return NULL;
}

static void las_arrived(void *p, uint32_t job)
{
    struct las *l = p;

    sim_list_add(l->c, &l->active[0], job);
}

static void las_waits(void *p, uint32_t job)
{
    (void)p, (void)job; /* it has not left its queue */
}

static void las_over(void *p, uint32_t job)
{
    struct las *l = p;

    sim_list_drop(l->c, &l->active[l->c->jobs[job].list - 1], job);
}

/* When the job will have had LIMIT_NS, if it goes on. */
static int64_t limit_ns(const struct cluster *c, const struct sim_job *j)
{
    return c->now_ns + LIMIT_NS / j->of.gpus - cluster_had_ns(c, j);
}

static int64_t demote(struct las *l)
{
    struct cluster *c = l->c;
    int64_t next_ns = SIM_NEVER;

    for (uint32_t k = 0; k < c->n_running; k++) {
        const uint32_t i = c->running[k];

        if (c->jobs[i].list != 1)
            continue;
        if (limit_ns(c, &c->jobs[i]) > c->now_ns) {
            next_ns = SH_MIN(next_ns, limit_ns(c, &c->jobs[i]));
            continue;
        }
        sim_list_drop(c, &l->active[0], i);
        sim_list_add(c, &l->active[1], i);
    }
    return next_ns;
}

static int64_t las_pass(void *p)
{
    struct las *l = p;
    struct cluster *c = l->c;
    int64_t next_ns = demote(l);
    uint32_t left = c->n_gpus;

    l->n_passes++;
    for (int q = 0; q < 2; q++) {
        for (uint32_t i = l->active[q].first; i != SIM_NONE && left; i = c->jobs[i].behind) {
            if (c->jobs[i].of.gpus > left)
                continue;
            left -= c->jobs[i].of.gpus;
            l->chosen[i] = l->n_passes;
        }
    }
    for (uint32_t k = 0; k < c->n_running; k++) {
        const uint32_t i = c->running[k];

        if (c->jobs[i].state == SIM_RUNS && l->chosen[i] != l->n_passes)
            cluster_stop(c, i);
    }
    for (int q = 0; q < 2; q++)
        for (uint32_t i = l->active[q].first; i != SIM_NONE && c->n_free; i = c->jobs[i].behind)
            if (c->jobs[i].state == SIM_WAITS && l->chosen[i] == l->n_passes &&
                c->jobs[i].of.gpus <= c->n_free)
                cluster_start(c, i);
    return next_ns;
}

const struct job_policy JOBS_LAS = {"las",     las_create, las_destroy, las_arrived,
                                    las_waits, las_over,   las_pass};

/* ------------------------------------------------------------------ finish-time fairness */

struct bid {
    double behind;
    uint32_t job;
};

struct themis {
    struct cluster *c;
    struct sim_list waits;
    int64_t auction_ns; /* the next one */
    struct bid *bids;   /* OWNED; room for all jobs */
};

static void *themis_create(struct cluster *c, const struct job_conf *conf)
{
    struct themis *t = calloc(1, sizeof(*t));

    (void)conf;
    if (!t)
        return NULL;
    t->c = c;
    sim_list_init(&t->waits, 1);
    t->bids = calloc(c->n_jobs, sizeof(*t->bids));
    if (t->bids)
        return t;
    free(t);
    return NULL;
}

static void themis_waits(void *p, uint32_t job)
{
    struct themis *t = p;

    sim_list_add(t->c, &t->waits, job);
}

/* How far it is behind. */
static double behind(const struct cluster *c, const struct sim_job *j)
{
    int64_t left = j->left_ns;

    if (j->state == SIM_RUNS)
        left -= SH_MAX(c->now_ns - j->since_ns - c->start_ns, 0);
    return (double)(c->now_ns - j->of.at_ns + left) / (double)j->of.run_ns;
}

/* Who waits and is furthest behind, of those that fit into so many GPUs. */
static uint32_t furthest(const struct themis *t, uint32_t gpus)
{
    const struct cluster *c = t->c;
    uint32_t best = SIM_NONE;
    double worst = -1;

    for (uint32_t i = t->waits.first; i != SIM_NONE; i = c->jobs[i].behind) {
        double x;

        if (c->jobs[i].of.gpus > gpus || (x = behind(c, &c->jobs[i])) <= worst)
            continue;
        best = i;
        worst = x;
    }
    return best;
}

/* GPUs that stop being held soon, and are promised to the one that is furthest behind. */
static uint32_t coming(const struct cluster *c)
{
    uint32_t n = c->n_free;

    for (uint32_t k = 0; k < c->n_running; k++)
        if (c->jobs[c->running[k]].state == SIM_STOPS)
            n += c->jobs[c->running[k]].of.gpus;
    return n;
}

static int by_behind(const void *a, const void *b)
{
    const struct bid *x = a, *y = b;

    if (x->behind != y->behind)
        return x->behind > y->behind ? -1 : 1;
    return (x->job > y->job) - (x->job < y->job);
}

/* Those who wait and those whose lease has ended bid for what both have; of the latter, who does
 * not get it has to stop. */
static void auction(struct themis *t)
{
    struct cluster *c = t->c;
    uint32_t left = coming(c);
    size_t n = 0;

    for (uint32_t i = t->waits.first; i != SIM_NONE; i = c->jobs[i].behind)
        t->bids[n++] = (struct bid){behind(c, &c->jobs[i]), i};
    for (uint32_t k = 0; k < c->n_running; k++) {
        const struct sim_job *j = &c->jobs[c->running[k]];

        if (j->state != SIM_RUNS || j->since_ns + LEASE_NS > c->now_ns)
            continue;
        t->bids[n++] = (struct bid){behind(c, j), c->running[k]};
        left += j->of.gpus;
    }
    if (n)
        qsort(t->bids, n, sizeof(t->bids[0]), by_behind);
    for (size_t k = 0; k < n; k++) {
        const uint32_t i = t->bids[k].job;

        if (c->jobs[i].of.gpus <= left)
            left -= c->jobs[i].of.gpus;
        else if (c->jobs[i].state == SIM_RUNS)
            cluster_stop(c, i);
    }
}

static int64_t themis_pass(void *p)
{
    struct themis *t = p;
    struct cluster *c = t->c;
    uint32_t i;

    while (c->n_free && (i = furthest(t, c->n_free)) != SIM_NONE) {
        const uint32_t first = furthest(t, coming(c));

        if (first != i && first != SIM_NONE && c->jobs[first].of.gpus > c->n_free)
            break; /* what is free is for that one */
        sim_list_drop(c, &t->waits, i);
        cluster_start(c, i);
    }
    if (c->now_ns >= t->auction_ns && t->waits.n) {
        t->auction_ns = c->now_ns + AUCTION_NS;
        auction(t);
    }
    return t->waits.n ? t->auction_ns : SIM_NEVER;
}

static void themis_destroy(void *p)
{
    free(((struct themis *)p)->bids);
    free(p);
}

const struct job_policy JOBS_THEMIS = {"themis",     themis_create, themis_destroy, themis_waits,
                                       themis_waits, NULL,          themis_pass};
