/* pass_jobs.c - see pass.c: jobs, in an index that holds all of them.
 *
 * All slots are taken, so an event decides something: who has the slot that a job leaves, or whose
 * job gives way. Each event is set, decided and acted on, as the leader does it. Beside it, in the
 * same run: a look at all jobs for the next one, which is the least that deciding without an index
 * takes, and the decision of a snapshot of everything. */
#include "bench/pass_jobs.h"

#include "common/mem.h"
#include "scheduler/decide/jobpool.h"
#include "scheduler/peers/executors.h"
#include "scheduler/peers/tenants.h"
#include "simulate/draw.h"

#include <stdio.h>
#include <stdlib.h>

#define N_EVENTS 3000
#define N_SCANS 5
#define SECOND_NS INT64_C(1000000000)
#define GIB (UINT64_C(1) << 30)

struct site {
    struct jobs_size n;
    struct jobpool q;
    struct jobpool_slot *slots;
    struct jobpool_tenant *tenants;
    struct jobpool_job *jobs;
    struct snap_exec *snap_execs; /* what a look at everything sees */
    struct snap_tenant *snap_tenants;
    struct snap_job *snap_jobs;
    uint32_t *runs;     /* by executor: the job that has its slot */
    uint32_t *stopping; /* jobs that give way */
    size_t n_stopping;
    int64_t now_ns, last_id;
};

static void *rows(size_t n, size_t one)
{
    void *p = calloc(n, one);

    if (!p)
        abort();
    return p;
}

/* ------------------------------------------------------------------ what there is */

static void set_slot(struct site *s, uint32_t e)
{
    const struct jobpool_slot_facts f = {.index = e,
                                         .pool_bytes = s->snap_execs[e].pool_bytes,
                                         .is_up = true,
                                         .is_taken = s->runs[e] != SNAP_NONE};

    s->snap_execs[e].job = s->runs[e];
    jobpool_set_slot(&s->q, &s->slots[e], &f);
}

static void set_tenant(struct site *s, uint32_t t)
{
    jobpool_set_tenant(&s->q, &s->tenants[t], &s->snap_tenants[t]);
}

static void set_job(struct site *s, uint32_t i)
{
    const struct snap_job *j = &s->snap_jobs[i];
    struct jobpool_job_facts f = {.is = *j, .tenant = &s->tenants[j->tenant], .array = j->array};
    struct sh_err err = {0};

    f.is_on_exec = j->exec != SNAP_NONE;
    f.exec_bytes = f.is_on_exec ? s->snap_execs[j->exec].pool_bytes : 0;
    must(jobpool_set_job(&s->q, &s->jobs[i], &f, &err), &err);
}

/* One in ten needs more memory than a smaller device has, one in ten is in an array. */
static void draw_job(struct site *s, uint32_t i, uint32_t tenant)
{
    s->snap_jobs[i] = (struct snap_job){.id = ++s->last_id,
                                        .line_us = s->last_id,
                                        .tenant = tenant,
                                        .exec = SNAP_NONE,
                                        .priority = (int32_t)draw(3),
                                        .queue_open = true,
                                        .model_ready = true,
                                        .need_bytes = draw(10) ? 0 : 60 * GIB};
    if (draw(10) == 0) {
        s->snap_jobs[i].array = 1 + s->snap_jobs[i].tenant;
        s->snap_jobs[i].array_max = 4;
    }
}

/* Half the devices have 80 GiB, half 48. One tenant in ten has a guarantee. */
static void site_draw(struct site *s, const struct jobs_size *n)
{
    *s = (struct site){.n = *n, .now_ns = 1000 * SECOND_NS, .q.min_run_ns = 30 * SECOND_NS};
    s->slots = rows(n->execs, sizeof(*s->slots));
    s->tenants = rows(n->tenants, sizeof(*s->tenants));
    s->jobs = rows(n->jobs, sizeof(*s->jobs));
    s->snap_execs = rows(n->execs, sizeof(*s->snap_execs));
    s->snap_tenants = rows(n->tenants, sizeof(*s->snap_tenants));
    s->snap_jobs = rows(n->jobs, sizeof(*s->snap_jobs));
    s->runs = rows(n->execs, sizeof(*s->runs));
    s->stopping = rows(n->execs, sizeof(*s->stopping));
    for (uint32_t e = 0; e < n->execs; e++) {
        s->snap_execs[e] =
            (struct snap_exec){.up = true, .job = SNAP_NONE, .pool_bytes = (e % 2 ? 48 : 80) * GIB};
        s->runs[e] = SNAP_NONE;
    }
    for (uint32_t t = 0; t < n->tenants; t++)
        s->snap_tenants[t] = (struct snap_tenant){.active = true,
                                                  .weight = 1 + draw(4),
                                                  .guaranteed_gpus = draw(10) ? 0 : 1 + draw(2),
                                                  .max_gpus = -1,
                                                  .lending_limit = -1,
                                                  .max_running_jobs = UINT32_MAX,
                                                  .usage_ns = draw(1000000) * 1e9};
    for (uint32_t i = 0; i < n->jobs; i++) /* as a look at the database reads them: by lines */
        draw_job(s, i, (uint32_t)((uint64_t)i * n->tenants / n->jobs));
}

/* ------------------------------------------------------------------ what is decided */

static void start(struct site *s, struct jobpool_job *p)
{
    const uint32_t i = (uint32_t)(p - s->jobs), e = (uint32_t)(p->slot - s->slots);

    s->snap_jobs[i].state = SNAP_RUNNING;
    s->snap_jobs[i].may_suspend = true;
    s->snap_jobs[i].since_ns = s->now_ns;
    s->snap_jobs[i].exec = e;
    s->runs[e] = i;
    set_job(s, i);
    set_slot(s, e);
}

static void decide_and_act(struct site *s)
{
    struct jobpool_job *next;

    jobpool_begin(&s->q, &(struct jobpool_now){s->now_ns, true, 1});
    jobpool_decide(&s->q);
    jobpool_end(&s->q);
    for (struct jobpool_job *p = s->q.started; p; p = next) {
        next = p->next_moved;
        start(s, p);
    }
    for (struct jobpool_job *p = s->q.stopped; p; p = next) {
        const uint32_t i = (uint32_t)(p - s->jobs);

        next = p->next_moved;
        s->snap_jobs[i].state = SNAP_STOPPING;
        set_job(s, i);
        s->stopping[s->n_stopping++] = i;
    }
}

/* It leaves its executor, and another job comes into the queue in its place. */
static void end_job(struct site *s, uint32_t i)
{
    const uint32_t e = s->snap_jobs[i].exec, t = s->snap_jobs[i].tenant;

    s->snap_tenants[t].usage_ns += 600e9;
    set_tenant(s, t);
    s->runs[e] = SNAP_NONE;
    set_slot(s, e);
    draw_job(s, i, draw(s->n.tenants));
    set_job(s, i);
}

/* ------------------------------------------------------------------ measuring */

static bool goes_first(const struct site *s, const struct snap_job *a, const struct snap_job *b)
{
    const struct snap_tenant *x = &s->snap_tenants[a->tenant], *y = &s->snap_tenants[b->tenant];
    const double sx = x->usage_ns / x->weight, sy = y->usage_ns / y->weight;

    if (a->tenant != b->tenant && sx != sy)
        return sx < sy;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->line_us < b->line_us;
}

/* The least of all that is done without an index. */
static double scan_us(const struct site *s)
{
    const double began = cpu_us();
    const struct snap_job *best = NULL;

    for (uint32_t i = 0; i < s->n.jobs; i++)
        if (s->snap_jobs[i].state == SNAP_QUEUED &&
            (!best || goes_first(s, &s->snap_jobs[i], best)))
            best = &s->snap_jobs[i];
    if (!best)
        abort();
    return cpu_us() - began;
}

static double everything_us(struct site *s, struct decisions *out)
{
    const struct snapshot in = {.now_ns = s->now_ns,
                                .db_up = true,
                                .with_jobs = true,
                                .min_run_ns = s->q.min_run_ns,
                                .execs = s->snap_execs,
                                .n_execs = s->n.execs,
                                .tenants = s->snap_tenants,
                                .n_tenants = s->n.tenants,
                                .jobs = s->snap_jobs,
                                .n_jobs = s->n.jobs,
                                .n_arrays = s->n.tenants};
    const double began = cpu_us();
    struct sh_err err = {0};

    must(decide(&in, out, &err), &err);
    return cpu_us() - began;
}

static void rebuild(struct site *s)
{
    const size_t before = heap();
    const double began = cpu_us();
    double all_us;

    for (uint32_t e = 0; e < s->n.execs; e++)
        set_slot(s, e);
    for (uint32_t t = 0; t < s->n.tenants; t++)
        set_tenant(s, t);
    for (uint32_t i = 0; i < s->n.jobs; i++)
        set_job(s, i);
    decide_and_act(s);
    all_us = cpu_us() - began;
    fact("a rebuild, and a decision that fills all slots, s", all_us / 1e6);
    fact("bytes in the index for each job", (double)sizeof(*s->jobs));
    fact("for each tenant", (double)sizeof(*s->tenants));
    fact("for each executor", (double)sizeof(*s->slots));
    fact("for each job, of groups and arrays", (double)(heap() - before) / s->n.jobs);
}

static uint32_t any_running(const struct site *s)
{
    for (;;) {
        const uint32_t i = s->runs[draw(s->n.execs)];

        if (i != SNAP_NONE && s->snap_jobs[i].state == SNAP_RUNNING)
            return i;
    }
}

/* So that a job of its own tenant gives way. */
static void urge(struct site *s, uint32_t i)
{
    const uint32_t of = any_running(s);

    draw_job(s, i, s->snap_jobs[of].tenant);
    s->snap_jobs[i].array = s->snap_jobs[i].array_max = 0;
    s->snap_jobs[i].need_bytes = 0;
    s->snap_jobs[i].priority = 9;
}

static uint32_t any_waiting(const struct site *s)
{
    for (;;) {
        const uint32_t i = draw(s->n.jobs);

        if (s->snap_jobs[i].state == SNAP_QUEUED)
            return i;
    }
}

static void measure(struct site *s)
{
    static double end_us[N_EVENTS], new_us[N_EVENTS], use_us[N_EVENTS], urge_us[N_EVENTS],
        stop_us[N_EVENTS], scans_us[N_SCANS], all_us[N_SCANS];
    struct decisions out = {0};
    size_t n_stops = 0;

    for (int k = 0; k < N_EVENTS; k++) {
        uint32_t i, t = draw(s->n.tenants);
        double began;

        s->now_ns += SECOND_NS / 10;
        i = any_running(s);
        began = cpu_us();
        end_job(s, i);
        decide_and_act(s);
        end_us[k] = cpu_us() - began;
        i = any_waiting(s);
        jobpool_del_job(&s->q, &s->jobs[i]);
        draw_job(s, i, draw(s->n.tenants));
        began = cpu_us();
        set_job(s, i);
        decide_and_act(s);
        new_us[k] = cpu_us() - began;
        s->snap_tenants[t].usage_ns += draw(1000) * 1e6;
        began = cpu_us();
        set_tenant(s, t);
        decide_and_act(s);
        use_us[k] = cpu_us() - began;
        i = any_waiting(s);
        urge(s, i);
        began = cpu_us();
        set_job(s, i);
        decide_and_act(s);
        urge_us[k] = cpu_us() - began;
        while (s->n_stopping) {
            began = cpu_us();
            end_job(s, s->stopping[--s->n_stopping]);
            decide_and_act(s);
            if (n_stops < N_EVENTS)
                stop_us[n_stops++] = cpu_us() - began;
        }
    }
    for (int k = 0; k < N_SCANS; k++) {
        scans_us[k] = scan_us(s);
        all_us[k] = everything_us(s, &out);
    }
    decisions_fini(&out);
    heading();
    print("the end of a job", end_us, N_EVENTS);
    print("a new job", new_us, N_EVENTS);
    print("usage", use_us, N_EVENTS);
    print("a job before others", urge_us, N_EVENTS);
    print("one has given way", stop_us, n_stops);
    print("a look at all jobs", scans_us, N_SCANS);
    print("all is decided", all_us, N_SCANS);
    fact("a look at all jobs, in p99s of the end of a job",
         scans_us[N_SCANS / 2] / end_us[N_EVENTS * 99 / 100]);
    fact("all decided, in p99s of the end of a job",
         all_us[N_SCANS / 2] / end_us[N_EVENTS * 99 / 100]);
}

void bench_jobs(const struct jobs_size *n)
{
    static struct site s;

    site_draw(&s, n);
    title("index", n);
    rebuild(&s);
    measure(&s);
    for (uint32_t t = 0; t < n->tenants; t++)
        jobpool_forget_tenant(&s.tenants[t]);
    jobpool_fini(&s.q);
    free(s.slots);
    free(s.tenants);
    free(s.jobs);
    free(s.snap_execs);
    free(s.snap_tenants);
    free(s.snap_jobs);
    free(s.runs);
    free(s.stopping);
}
