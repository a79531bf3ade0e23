/* jobs_ours.c - the daemon's own decisions (scheduler/decide/jobpool.h) on the cluster of a replay.
 *
 * What scheduler/jobs does around them is done here for the cluster: facts are set when they
 * change, usage is charged and decays, of each line so many jobs are held as lines_window() says,
 * and there is a pass at each event and, while somebody waits, whenever a job stops being protected
 * and at least once in a minimum run. Without a world a tenant has a line for each number of GPUs:
 * its jobs are alike but for that and their time, and the time that a start takes is charged as
 * well; with one only the time of its steps is, as executors report it. Of a job that has run it is
 * known how long the rest takes, as steps are counted and measured; of others nothing is.
 */
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/decide/jobpool.h"
#include "scheduler/decide/lines.h"
#include "simulate/jobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WIDTHS 32 /* different numbers of GPUs of a tenant; all wider jobs are in one line */
#define REBASE 256     /* half-lives, as in scheduler/jobs/jobs_pool.c */

struct waiting { /* a job in its line */
    struct sh_tree_node node;
    struct line_place place;
};

struct ours_line {
    struct sh_tree waits;   /* all that wait */
    struct line_place edge; /* if cut: of the last one that is held */
    size_t n_held;
    bool is_cut;
};

struct ours {
    struct cluster *c;
    double half_life_ns;
    size_t window, n_wait;
    struct jobpool pool;
    int64_t from_ns, charged_ns; /* of the scale of usage; all was charged then */
    struct jobpool_tenant *tenants;
    uint32_t *held;      /* GPUs that are charged, by tenant */
    struct queue begins; /* jobs, by the time from which they are */
    bool *is_charged;    /* by job */
    struct ours_line *lines;
    struct waiting *waiting; /* by job */
    struct jobpool_job *jobs;
    struct jobpool_slot *slots;
    struct jobpool_slot **held_by; /* by job: a list */
    uint32_t *line_by;             /* by job, without a world */
    bool *fills;                   /* by job: as it was started */
    int64_t level_ns;
    struct queue rises; /* jobs, by the time at which their level rises */
};

static void ours_jobs_destroy(void *p)
{
    struct ours *o = p;

    for (size_t t = 0; o->tenants && t < o->c->n_tenants; t++)
        jobpool_forget_tenant(&o->tenants[t]);
    jobpool_fini(&o->pool);
    free(o->tenants);
    free(o->held);
    queue_fini(&o->begins);
    free(o->is_charged);
    free(o->lines);
    free(o->waiting);
    free(o->jobs);
    free(o->slots);
    free(o->held_by);
    free(o->line_by);
    free(o->fills);
    queue_fini(&o->rises);
    free(o);
}

static double usage_scale(const struct ours *o)
{
    return exp2(-(double)(o->c->now_ns - o->from_ns) / o->half_life_ns);
}

static uint64_t pool_of(const struct ours *o, uint32_t e)
{
    return o->c->world ? o->c->world->pools[e] : 1;
}

static void set_slot(struct ours *o, uint32_t e, bool is_taken)
{
    jobpool_set_slot(
        &o->pool, &o->slots[e],
        &(struct jobpool_slot_facts){
            .index = e, .pool_bytes = pool_of(o, e), .is_up = true, .is_taken = is_taken});
}

static const struct job_more *job_more_of(const struct ours *o, uint32_t job)
{
    return o->c->world ? &o->c->world->jobs[job] : NULL;
}

static struct ours_line *line_of_job(struct ours *o, uint32_t job)
{
    const struct job_more *more = job_more_of(o, job);

    return &o->lines[more ? more->line : o->line_by[job]];
}

static void set_job(struct ours *o, uint32_t i);
static void await_rise(struct ours *o, uint32_t i);
static void charge_from(struct ours *o, uint32_t i);

static void begin_ours(struct ours *o)
{
    const struct job_world *w = o->c->world;

    for (size_t t = 0; t < o->c->n_tenants; t++)
        jobpool_set_tenant(&o->pool, &o->tenants[t],
                           w ? &w->tenants[t]
                             : &(struct snap_tenant){.active = true,
                                                     .weight = 1,
                                                     .max_gpus = -1,
                                                     .lending_limit = -1,
                                                     .max_running_jobs = UINT32_MAX});
    for (uint32_t e = 0; e < o->c->n_gpus; e++)
        set_slot(o, e, false);
    for (uint32_t k = 0; k < o->c->n_running; k++) {
        const uint32_t i = o->c->running[k];

        set_slot(o, w->jobs[i].gpu, true); /* one of several GPUs waits when a replay begins */
        o->held_by[i] = &o->slots[w->jobs[i].gpu];
        set_job(o, i);
        await_rise(o, i);
        charge_from(o, i);
    }
}

/* A line for each tenant and number of GPUs, as far as there are not very many. Returns their
 * number; 0: there is no memory. */
static size_t part_lines(struct ours *o, const struct cluster *c)
{
    uint32_t widths[MOST_WIDTHS] = {0}, *lines = calloc(c->n_tenants * MOST_WIDTHS, sizeof(*lines));
    size_t n = 0;

    for (size_t i = 0; lines && i < c->n_jobs; i++) {
        const struct trace_job *j = &c->jobs[i].of;
        size_t k = 0;
        uint32_t *line;

        while (k + 1 < MOST_WIDTHS && widths[k] && widths[k] != j->gpus)
            k++;
        widths[k] = j->gpus;
        line = &lines[j->tenant * MOST_WIDTHS + k];
        if (!*line)
            *line = (uint32_t)++n;
        o->line_by[i] = *line - 1;
    }
    free(lines);
    return n;
}

static void *ours_jobs_create(struct cluster *c, const struct job_conf *conf)
{
    struct ours *o = calloc(1, sizeof(*o));
    size_t n_lines = conf->world ? conf->world->n_lines : 0;

    if (!o)
        return NULL;
    o->line_by = calloc(c->n_jobs, sizeof(*o->line_by));
    if (o->line_by && !conf->world && !(n_lines = part_lines(o, c))) {
        free(o->line_by);
        o->line_by = NULL;
    }
    o->c = c;
    o->half_life_ns = conf->half_life_s * 1e9;
    o->level_ns = conf->level_ns;
    o->window = lines_window(n_lines, LINES_MAX);
    o->pool.min_run_ns = conf->min_run_ns;
    o->tenants = calloc(c->n_tenants, sizeof(*o->tenants));
    o->held = calloc(c->n_tenants, sizeof(*o->held));
    o->is_charged = calloc(c->n_jobs, sizeof(*o->is_charged));
    o->lines = calloc(n_lines + 1, sizeof(*o->lines));
    o->waiting = calloc(c->n_jobs, sizeof(*o->waiting));
    o->jobs = calloc(c->n_jobs, sizeof(*o->jobs));
    o->slots = calloc(c->n_gpus, sizeof(*o->slots));
    o->held_by = calloc(c->n_jobs, sizeof(*o->held_by));
    o->fills = calloc(c->n_jobs, sizeof(*o->fills));
    if (!o->tenants || !o->held || !o->is_charged || !o->lines || !o->waiting || !o->jobs ||
        !o->slots || !o->held_by || !o->line_by || !o->fills) {
        ours_jobs_destroy(o);
        return NULL;
    }
    begin_ours(o);
    return o;
}

/* ------------------------------------------------------------------ facts */

/* Device time: what a start takes until the first step is none. */
static int64_t had_ns(const struct ours *o, uint32_t i)
{
    const struct sim_job *j = &o->c->jobs[i];
    const struct job_more *more = job_more_of(o, i);
    const int64_t ran_ns = o->c->now_ns - j->since_ns - cluster_start_ns(o->c, i);

    return (more ? more->had_ns : 0) + j->of.run_ns - j->left_ns +
           (j->state == SIM_RUNS ? SH_MAX(ran_ns, INT64_C(0)) : 0);
}

static uint32_t had_level(const struct ours *o, uint32_t i)
{
    return lines_level(had_ns(o, i), o->level_ns);
}

/* Device time in all. The daemon judges it when a job stops, or what it has had rises a level. */
static int64_t ours_takes_ns(const struct ours *o, uint32_t i)
{
    const struct sim_job *j = &o->c->jobs[i];
    const struct job_more *more = job_more_of(o, i);
    const int64_t had_before_ns = more ? more->had_ns : 0;
    const bool is_known = j->n_stops || had_before_ns || had_level(o, i);

    return is_known ? had_before_ns + j->of.run_ns : had_ns(o, i);
}

static uint32_t level_of(const struct ours *o, uint32_t i)
{
    return lines_level(ours_takes_ns(o, i), o->level_ns);
}

static int64_t line_us(const struct ours *o, uint32_t i)
{
    const struct job_more *more = job_more_of(o, i);

    return (more ? more->queued_us : o->c->jobs[i].of.at_ns / 1000) +
           lines_handicap_us(ours_takes_ns(o, i), o->level_ns);
}

static uint64_t least_pool_bytes(const struct ours *o, const struct jobpool_slot *list)
{
    uint64_t least = UINT64_MAX;

    for (; list; list = list->next)
        least = SH_MIN(least, pool_of(o, list->f.index));
    return least;
}

/* From its first step on, if that is known. */
static int64_t lasts_ns(const struct ours *o, uint32_t i)
{
    const struct sim_job *j = &o->c->jobs[i];

    if (j->state == SIM_WAITS)
        return j->n_stops ? cluster_start_ns(o->c, i) + j->left_ns : 0;
    return j->state == SIM_RUNS ? j->left_ns : 0;
}

/* Of all its GPUs, as in decide/loss.h; no step is dropped here. */
static int64_t loss_of_job(const struct ours *o, uint32_t i)
{
    return o->c->jobs[i].of.gpus * (o->c->stop_ns + cluster_start_ns(o->c, i));
}

static void set_job(struct ours *o, uint32_t i)
{
    static const enum snap_job_state STATES[] = {
        [SIM_WAITS] = SNAP_QUEUED, [SIM_RUNS] = SNAP_RUNNING, [SIM_STOPS] = SNAP_STOPPING};
    const struct sim_job *j = &o->c->jobs[i];
    const bool holds = j->state != SIM_WAITS;
    const struct job_more *more = job_more_of(o, i);
    struct jobpool_job_facts f = {.is = {.queue_open = true, .model_ready = true},
                                  .tenant = &o->tenants[j->of.tenant],
                                  .is_on_exec = holds,
                                  .exec_bytes = holds ? least_pool_bytes(o, o->held_by[i]) : 0};

    if (more) {
        f.is = more->is;
        f.array = more->array;
    }
    f.is.id = i;
    f.is.line_us = line_us(o, i);
    f.is.level = level_of(o, i);
    f.is.state = STATES[j->state];
    /* It runs from then on, and has to have its time. */
    f.is.since_ns = holds ? j->since_ns + cluster_start_ns(o->c, i) : 0;
    f.is.may_suspend = j->state == SIM_RUNS;
    f.is.gpus = j->of.gpus;
    f.is.fills = holds && o->fills[i];
    f.is.lasts_ns = lasts_ns(o, i);
    f.is.loss_ns = j->state == SIM_RUNS ? loss_of_job(o, i) : 0;
    if (!o->c->rc)
        o->c->rc = jobpool_set_job(&o->pool, &o->jobs[i], &f, &o->c->err);
}

/* When the level of what a running job has had rises, it is judged anew. */
static void await_rise(struct ours *o, uint32_t i)
{
    const struct sim_job *j = &o->c->jobs[i];
    const struct job_more *more = job_more_of(o, i);
    const int64_t from_ns =
        lines_level_from_ns(had_level(o, i) + 1, o->level_ns) - (more ? more->had_ns : 0);

    if (!o->level_ns || from_ns > j->of.run_ns || o->c->rc)
        return;
    o->c->rc = queue_put(&o->rises,
                         (struct event){.at_ns = cluster_end_ns(o->c, j) - j->of.run_ns + from_ns,
                                        .a = i,
                                        .b = j->hold},
                         &o->c->err);
}

static void rise(struct ours *o)
{
    struct event e;

    while (o->rises.n && o->rises.items[0].at_ns <= o->c->now_ns && queue_take(&o->rises, &e)) {
        if (e.b != o->c->jobs[e.a].hold || o->c->jobs[e.a].state != SIM_RUNS)
            continue;
        set_job(o, e.a);
        await_rise(o, e.a);
    }
}

static int by_queue_place(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    return line_place_cmp(&SH_TREE_OF(a, struct waiting, node)->place,
                          &SH_TREE_OF(b, struct waiting, node)->place);
}

static const struct sh_tree_kind LINE = {by_queue_place, NULL};

/* The first so many of a line are held, from half a window to two of them (lines.h). */
static void sort_line(struct ours *o, struct ours_line *l)
{
    struct sh_tree_node *at = sh_tree_first(&l->waits);

    if (l->n_held > 2 * o->window) {
        for (size_t n = 0; n < l->n_held; n++, at = sh_tree_next(at)) {
            const struct waiting *w = SH_TREE_OF(at, struct waiting, node);

            if (n + 1 == o->window)
                l->edge = w->place;
            else if (n >= o->window)
                jobpool_del_job(&o->pool, &o->jobs[w->place.id]);
        }
        l->n_held = o->window;
        l->is_cut = true;
    }
    if (!l->is_cut || 2 * l->n_held > o->window)
        return;
    for (size_t n = 0; n < l->n_held; n++)
        at = sh_tree_next(at);
    for (; at && l->n_held < o->window; at = sh_tree_next(at), l->n_held++) {
        l->edge = SH_TREE_OF(at, struct waiting, node)->place;
        set_job(o, (uint32_t)l->edge.id);
    }
    l->is_cut = at != NULL;
}

static void ours_waits(void *p, uint32_t job)
{
    struct ours *o = p;
    struct ours_line *l = line_of_job(o, job);
    struct waiting *w = &o->waiting[job];
    const struct job_more *more = job_more_of(o, job);

    w->place = (struct line_place){
        .priority = more ? more->is.priority : 0, .line_us = line_us(o, job), .id = job};
    sh_tree_add(&l->waits, &LINE, &w->node);
    o->n_wait++;
    if (l->is_cut && line_place_cmp(&w->place, &l->edge) > 0) {
        jobpool_del_job(&o->pool, &o->jobs[job]);
        return;
    }
    set_job(o, job);
    l->n_held++;
    sort_line(o, l);
}

static void started(struct ours *o, uint32_t job)
{
    struct ours_line *l = line_of_job(o, job);

    sh_tree_del(&l->waits, &LINE, &o->waiting[job].node);
    o->n_wait--;
    l->n_held--;
    set_job(o, job);
    await_rise(o, job);
    sort_line(o, l);
}

static void rebase_ours(struct ours *o)
{
    const int64_t by_ns = (int64_t)(REBASE * o->half_life_ns);

    while (o->c->now_ns - o->from_ns > by_ns) {
        for (size_t t = 0; t < o->c->n_tenants; t++)
            jobpool_scale_tenant(&o->tenants[t], REBASE);
        o->from_ns += by_ns;
    }
}

static void charge_from(struct ours *o, uint32_t i)
{
    const struct sim_job *j = &o->c->jobs[i];
    const int64_t at_ns = o->c->world ? j->since_ns + cluster_start_ns(o->c, i) : o->c->now_ns;

    if (at_ns <= o->c->now_ns) {
        o->is_charged[i] = true;
        o->held[j->of.tenant] += j->of.gpus;
    } else if (!o->c->rc) {
        o->c->rc =
            queue_put(&o->begins, (struct event){.at_ns = at_ns, .a = i, .b = j->hold}, &o->c->err);
    }
}

static void charge_until(struct ours *o, int64_t until_ns)
{
    const int64_t since_ns = o->charged_ns;
    double scale;

    if (until_ns <= since_ns)
        return;
    scale = usage_scale(o);
    o->charged_ns = until_ns;
    for (size_t t = 0; t < o->c->n_tenants; t++) {
        struct snap_tenant f = o->tenants[t].f;

        if (!o->held[t])
            continue;
        f.usage_ns += (double)o->held[t] * (double)(until_ns - since_ns) / scale;
        jobpool_set_tenant(&o->pool, &o->tenants[t], &f);
    }
}

static void charge_running(struct ours *o)
{
    struct event e;

    rebase_ours(o);
    while (o->begins.n && o->begins.items[0].at_ns <= o->c->now_ns && queue_take(&o->begins, &e)) {
        charge_until(o, e.at_ns);
        if (e.b == o->c->jobs[e.a].hold) /* else it was stopped before */
            charge_from(o, e.a);
    }
    charge_until(o, o->c->now_ns);
}

static void let_job_go(struct ours *o, uint32_t job)
{
    charge_running(o);
    if (o->is_charged[job])
        o->held[o->c->jobs[job].of.tenant] -= o->c->jobs[job].of.gpus;
    o->is_charged[job] = false;
    for (struct jobpool_slot *x = o->held_by[job]; x; x = x->next)
        set_slot(o, x->f.index, false);
}

static void ours_over(void *p, uint32_t job)
{
    struct ours *o = p;

    let_job_go(o, job);
    jobpool_del_job(&o->pool, &o->jobs[job]);
}

static void ours_stopped(void *p, uint32_t job)
{
    let_job_go(p, job);
    ours_waits(p, job);
}

/* ------------------------------------------------------------------ a pass */

/* While somebody waits: when the next running job may be stopped, and at least so often as shares
 * may have changed enough for a claim. */
static int64_t next_look(const struct ours *o)
{
    const struct sh_tree_node *n = sh_tree_first(&o->pool.guarded);
    int64_t next_ns = o->c->now_ns + SH_MAX(o->pool.min_run_ns, SH_S(1));

    if (!o->n_wait)
        return SIM_NEVER;
    if (!o->c->n_running) { /* nothing changes but by time that somebody has to wait */
        n = sh_tree_first(&o->pool.later);
        return n ? SH_MAX(SH_TREE_OF(n, struct jobpool_job, timed)->f.is.not_before_ns,
                          o->c->now_ns + 1)
                 : SIM_NEVER;
    }
    if (n)
        next_ns = SH_MIN(next_ns, SH_TREE_OF(n, struct jobpool_job, timed)->guarded_until_ns);
    if (o->rises.n)
        next_ns = SH_MIN(next_ns, o->rises.items[0].at_ns);
    return SH_MAX(next_ns, o->c->now_ns + 1);
}

static int64_t ours_pass(void *p)
{
    struct ours *o = p;
    struct jobpool *q = &o->pool;
    struct jobpool_job *started_jobs, *stopped_jobs, *next;

    charge_running(o);
    rise(o);
    jobpool_begin(q, &(struct jobpool_now){o->c->now_ns, true, usage_scale(o)});
    jobpool_decide(q);
    jobpool_end(q);
    started_jobs = q->started;
    stopped_jobs = q->stopped;
    for (struct jobpool_job *j = stopped_jobs; j; j = next) {
        next = j->next_moved;
        cluster_stop(o->c, (uint32_t)(j - o->jobs));
        set_job(o, (uint32_t)(j - o->jobs));
    }
    for (struct jobpool_job *j = started_jobs; j; j = next) {
        const uint32_t i = (uint32_t)(j - o->jobs);

        next = j->next_moved;
        o->held_by[i] = j->slot;
        o->fills[i] = j->f.is.fills;
        cluster_start(o->c, i);
        started(o, i);
        charge_from(o, i);
    }
    return next_look(o);
}

const struct job_policy JOBS_OURS = {"ours",       ours_jobs_create, ours_jobs_destroy, ours_waits,
                                     ours_stopped, ours_over,        ours_pass};
