/* jobs.c - see jobs.h: the cluster, and what came of a replay. */
#include "simulate/jobs.h"

#include "common/clock.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

enum { EVENT_ARRIVES, EVENT_ENDS, EVENT_STOPPED, EVENT_WAKES };

static void put_cluster_event(struct cluster *c, int64_t at_ns, uint32_t kind, uint32_t job)
{
    const uint32_t hold = job == SIM_NONE ? 0 : c->jobs[job].hold;

    if (!c->rc)
        c->rc = queue_put(&c->events, (struct event){at_ns, 0, kind, job, hold}, &c->err);
}

static void note_in_digest(struct cluster *c, uint64_t what)
{
    c->digest = (c->digest ^ what ^ (uint64_t)c->now_ns) * UINT64_C(1099511628211);
}

/* ------------------------------------------------------------------ lists */

void sim_list_init(struct sim_list *l, uint32_t id)
{
    *l = (struct sim_list){SIM_NONE, SIM_NONE, id, 0};
}

void sim_list_add(struct cluster *c, struct sim_list *l, uint32_t job)
{
    uint32_t before = l->last;

    if (l->first != SIM_NONE && job < l->first)
        before = SIM_NONE; /* who comes back is more often among the first */
    while (before != SIM_NONE && before > job)
        before = c->jobs[before].before;
    c->jobs[job].before = before;
    c->jobs[job].behind = before == SIM_NONE ? l->first : c->jobs[before].behind;
    *(before == SIM_NONE ? &l->first : &c->jobs[before].behind) = job;
    *(c->jobs[job].behind == SIM_NONE ? &l->last : &c->jobs[c->jobs[job].behind].before) = job;
    c->jobs[job].list = l->id;
    l->n++;
}

void sim_list_drop(struct cluster *c, struct sim_list *l, uint32_t job)
{
    struct sim_job *j = &c->jobs[job];

    *(j->before == SIM_NONE ? &l->first : &c->jobs[j->before].behind) = j->behind;
    *(j->behind == SIM_NONE ? &l->last : &c->jobs[j->behind].before) = j->before;
    j->list = 0;
    l->n--;
}

/* ------------------------------------------------------------------ the cluster */

int64_t cluster_start_ns(const struct cluster *c, uint32_t job)
{
    return c->world ? c->world->jobs[job].start_ns : c->start_ns;
}

int64_t cluster_end_ns(const struct cluster *c, const struct sim_job *j)
{
    return j->since_ns + cluster_start_ns(c, (uint32_t)(j - c->jobs)) + j->left_ns;
}

int64_t cluster_had_ns(const struct cluster *c, const struct sim_job *j)
{
    return j->had_ns +
           (j->state == SIM_RUNS || j->state == SIM_STOPS ? c->now_ns - j->since_ns : 0);
}

static void hold_gpus(struct cluster *c, uint32_t job, int64_t since_ns)
{
    struct sim_job *j = &c->jobs[job];

    j->state = SIM_RUNS;
    j->since_ns = since_ns;
    if (j->first_ns < 0)
        j->first_ns = SH_MAX(since_ns, INT64_C(0));
    j->hold++;
    j->at = c->n_running;
    c->running[c->n_running++] = job;
    c->n_free -= j->of.gpus;
    put_cluster_event(c, SH_MAX(cluster_end_ns(c, j), c->now_ns), EVENT_ENDS, job);
}

void cluster_start(struct cluster *c, uint32_t job)
{
    if (c->jobs[job].state != SIM_WAITS || c->jobs[job].of.gpus > c->n_free)
        abort(); /* the policy is wrong */
    c->n_starts++;
    note_in_digest(c, 2 * (uint64_t)job);
    hold_gpus(c, job, c->now_ns);
}

void cluster_stop(struct cluster *c, uint32_t job)
{
    struct sim_job *j = &c->jobs[job];
    const int64_t ran = c->now_ns - j->since_ns - cluster_start_ns(c, job);

    if (j->state != SIM_RUNS)
        abort();
    j->left_ns -= SH_MAX(ran, 0);
    j->state = SIM_STOPS;
    j->n_stops++;
    j->hold++;
    c->n_stops++;
    note_in_digest(c, 2 * (uint64_t)job + 1);
    put_cluster_event(c, c->now_ns + c->stop_ns, EVENT_STOPPED, job);
}

static void count_share(const struct cluster *c, const struct sim_job *j)
{
    const struct job_world *w = c->world;

    if (w && w->share_ns)
        w->share_ns[j->of.tenant] +=
            (double)SH_MAX(SH_MIN(c->now_ns, w->share_until_ns) - SH_MAX(j->since_ns, INT64_C(0)),
                           INT64_C(0)) *
            j->of.gpus;
}

static void give_gpus_back(struct cluster *c, uint32_t job)
{
    struct sim_job *j = &c->jobs[job];
    const uint32_t last = c->running[--c->n_running];

    count_share(c, j);
    c->running[j->at] = last;
    c->jobs[last].at = j->at;
    j->had_ns += c->now_ns - j->since_ns;
    c->n_free += j->of.gpus;
}

static void count_until(struct cluster *c, int64_t at_ns)
{
    const int64_t until = SH_MIN(at_ns, c->window_ns);

    if (until > c->counted_ns) {
        c->busy_ns += (double)(until - c->counted_ns) * (c->n_gpus - c->n_free);
        c->counted_ns = until;
    }
    c->now_ns = at_ns;
}

/* True: the policy has something to decide. */
static bool happen(struct cluster *c, const struct job_policy *p, void *policy,
                   const struct event *e)
{
    struct sim_job *j = e->a == SIM_NONE ? NULL : &c->jobs[e->a];

    if (e->kind == EVENT_WAKES) {
        if (e->at_ns == c->wake_ns)
            c->wake_ns = SIM_NEVER;
        return true;
    }
    if (e->b != j->hold)
        return false;
    if (e->kind == EVENT_ARRIVES) {
        j->state = SIM_WAITS;
        p->arrived(policy, e->a);
    } else if (e->kind == EVENT_ENDS) {
        give_gpus_back(c, e->a);
        j->state = SIM_OVER;
        j->left_ns = 0;
        j->end_ns = c->now_ns;
        if (p->over)
            p->over(policy, e->a);
    } else {
        give_gpus_back(c, e->a);
        j->state = SIM_WAITS;
        p->waits(policy, e->a);
    }
    return true;
}

static void run_cluster(struct cluster *c, const struct job_policy *p, void *policy)
{
    struct event e;
    bool any = false;

    while (!c->rc && queue_take(&c->events, &e)) {
        int64_t wake_ns;

        if (c->world && e.at_ns > c->world->end_ns)
            return;
        count_until(c, e.at_ns);
        any |= happen(c, p, policy, &e);
        if (!any || (c->events.n && c->events.items[0].at_ns == c->now_ns))
            continue; /* all of one moment are decided together */
        any = false;
        c->n_passes++;
        wake_ns = p->pass(policy);
        if (wake_ns < c->wake_ns && (c->n_running || wake_ns > c->now_ns)) {
            c->wake_ns = wake_ns;
            put_cluster_event(c, wake_ns, EVENT_WAKES, SIM_NONE);
        }
    }
}

/* ------------------------------------------------------------------ results */

static double percentile_of(const double *sorted, size_t n, double p)
{
    return sorted[SH_MIN((size_t)(p * (double)n), n - 1)];
}

static int sum_up_jobs(const struct cluster *c, const int64_t *ideal_ns, struct job_result *out,
                       struct sh_err *err)
{
    const size_t n = c->n_jobs;
    double *s = malloc((n + 1) * sizeof(*s)), sum = 0;

    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the results");
    for (size_t i = 0; i < n; i++) {
        const struct sim_job *j = &c->jobs[i];

        if (j->state != SIM_OVER) {
            free(s);
            return SH_FAIL(err, SH_E_BUG, "job %zu waits for ever", i);
        }
        s[i] = (double)(j->end_ns - j->of.at_ns) / 1e9;
        sum += s[i];
        out->mean_wait_s += (s[i] - (double)j->of.run_ns / 1e9) / (double)n;
        out->longest_wait_s =
            SH_MAX(out->longest_wait_s, (double)(j->first_ns - j->of.at_ns) / 1e9);
    }
    sh_sort_f64(s, n);
    out->mean_s = sum / (double)n;
    out->p50_s = percentile_of(s, n, 0.5);
    out->p95_s = percentile_of(s, n, 0.95);
    out->p99_s = percentile_of(s, n, 0.99);
    for (size_t i = 0; ideal_ns && i < n; i++) {
        const struct sim_job *j = &c->jobs[i];

        s[i] = (double)(j->end_ns - j->of.at_ns) / (double)(ideal_ns[i] - j->of.at_ns);
        out->ftf_mean += s[i] / (double)n;
    }
    if (ideal_ns) {
        sh_sort_f64(s, n);
        out->ftf_p95 = percentile_of(s, n, 0.95);
        out->ftf_max = s[n - 1];
    }
    free(s);
    return SH_OK;
}

static int cluster_init(struct cluster *c, const struct trace_jobs *t, const struct job_conf *conf,
                        struct sh_err *err)
{
    *c = (struct cluster){.n_jobs = t->n,
                          .n_tenants = t->tenants.n,
                          .n_gpus = conf->n_gpus,
                          .n_free = conf->n_gpus,
                          .start_ns = conf->start_ns,
                          .stop_ns = conf->stop_ns,
                          .world = conf->world,
                          .wake_ns = SIM_NEVER,
                          .digest = UINT64_C(14695981039346656037),
                          .jobs = calloc(t->n, sizeof(*c->jobs)),
                          .running = calloc(t->n, sizeof(*c->running))};
    if (!c->jobs || !c->running)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", t->n);
    for (size_t i = 0; i < t->n; i++) {
        c->jobs[i] =
            (struct sim_job){.of = t->items[i], .left_ns = t->items[i].run_ns, .first_ns = -1};
        if (t->items[i].gpus > conf->n_gpus && !conf->world) /* with one, it waits for more */
            return SH_FAIL(err, SH_E_INVALID, "job %zu asks for %u of %u GPUs", i, t->items[i].gpus,
                           conf->n_gpus);
        c->window_ns = SH_MAX(c->window_ns, t->items[i].at_ns);
        if (!conf->world || conf->world->jobs[i].gpu == SIM_NONE)
            put_cluster_event(c, t->items[i].at_ns, EVENT_ARRIVES, (uint32_t)i);
        else
            hold_gpus(c, (uint32_t)i, conf->world->jobs[i].since_ns);
    }
    *err = c->err;
    return c->rc;
}

int jobs_replay(const struct trace_jobs *t, const struct job_policy *p, const struct job_conf *conf,
                const int64_t *ideal_ns, struct job_result *out, struct sh_err *err)
{
    const double began = (double)sh_clock_cpu_ns() / 1e9;
    struct cluster c;
    void *policy = NULL;
    int rc;

    *out = (struct job_result){0};
    if (!t->n)
        return SH_FAIL(err, SH_E_INVALID, "the trace has no jobs");
    rc = cluster_init(&c, t, conf, err);
    if (!rc && !(policy = p->create(&c, conf)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a policy");
    if (!rc) {
        run_cluster(&c, p, policy);
        out->cpu_s = (double)sh_clock_cpu_ns() / 1e9 - began;
        *err = c.err;
        rc = c.rc;
    }
    if (!rc && !conf->world)
        rc = sum_up_jobs(&c, ideal_ns, out, err);
    for (uint32_t k = 0; !rc && k < c.n_running; k++)
        count_share(&c, &c.jobs[c.running[k]]);
    for (size_t i = 0; !rc && conf->ends && i < c.n_jobs; i++) {
        conf->ends[i] = c.jobs[i];
        conf->ends[i].had_ns = cluster_had_ns(&c, &c.jobs[i]);
    }
    if (c.window_ns)
        out->used = c.busy_ns / ((double)c.window_ns * c.n_gpus);
    out->n_starts = c.n_starts;
    out->n_stops = c.n_stops;
    out->n_passes = c.n_passes;
    out->digest = c.digest;
    if (policy)
        p->destroy(policy);
    queue_fini(&c.events);
    free(c.jobs);
    free(c.running);
    return rc;
}
