/* pass_leader.c - see pass.c: jobs in a whole leader, beside those of the index alone.
 *
 * What a look at the database would bring is put in as rows, so that all parts of the scheduler do
 * their work but for PostgreSQL's: a new leader takes the rows, each executor reports its job, and
 * the first pass finds nothing to start, for all slots are taken. What is then written is recorded
 * at once, outside of what is measured. */
#include "bench/pass_jobs.h"
#include "common/clock.h"
#include "common/mem.h"
#include "scheduler/sched.h"
#include "simulate/core.h"
#include "simulate/draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_EVENTS 3000
#define EVERY 100 /* events: a look at all */
#define MAX_WRITES 64
#define STEPS 1000000

int __wrap_sched_submit(struct sched *s, const struct sched_op *op, void *arg, struct sh_err *err);

struct write {
    const struct sched_op *op;
    void *arg;
};
static struct write writes[MAX_WRITES]; /* the database has them as soon as answer() says so */
static size_t n_writes;

struct site {
    struct core core;
    struct jobs_size n;
    char (*names)[16]; /* of tenants */
    int64_t last_id;
};

static void *rows(size_t n, size_t one)
{
    void *p = calloc(n, one);

    if (!p)
        abort();
    return p;
}

int __wrap_sched_submit(struct sched *s, const struct sched_op *op, void *arg, struct sh_err *err)
{
    const bool is_jobs = !strcmp(op->name, "job.start") || !strcmp(op->name, "job.write");

    (void)s, (void)err;
    if (is_jobs && n_writes < MAX_WRITES)
        writes[n_writes++] = (struct write){op, arg};
    else
        op->free_arg(arg); /* looks at the database: merge() is one */
    return SH_OK;
}

static void answer(struct site *x)
{
    const struct sh_err none = {0};

    for (size_t i = 0; i < n_writes; i++) { /* more may follow while it is gone through */
        const struct write w = writes[i];

        if (strcmp(w.op->name, "job.start") == 0) {
            struct store_start_out *out = ((struct store_start *)w.arg)->out;

            out->state = JOB_STARTING;
            out->resume = strdup("");
            out->tenant = strdup("t");
            out->model = strdup("m");
        }
        w.op->done(&x->core.s, w.arg, SH_OK, &none);
        w.op->free_arg(w.arg);
    }
    n_writes = 0;
}

/* ------------------------------------------------------------------ rows */

/* The job's executor: NULL: it waits. One line for each tenant. */
static struct store_job row(struct site *x, uint32_t tenant, const char *exec)
{
    const int64_t id = ++x->last_id;

    return (struct store_job){.id = id,
                              .line = {.tenant_id = 1 + (int64_t)tenant,
                                       .queue_id = 1 + (int64_t)tenant,
                                       .version_id = 1,
                                       .gpus = 1,
                                       .preemptible = true},
                              .place = {.line_us = id, .id = id},
                              .queued_us = id,
                              .model_id = 1,
                              .tenant = x->names[tenant],
                              .model = "m",
                              .state = exec ? "RUNNING" : "QUEUED",
                              .queue_state = "OPEN",
                              .version_state = "READY",
                              .executor = exec ? exec : "",
                              .reason = "",
                              .wish = "",
                              .deadline_s = NAN,
                              .not_before_s = NAN,
                              .attempt = 1,
                              .max_attempts = 1,
                              .step_samples = 1,
                              .all_steps = STEPS};
}

/* The first jobs of each line, as a full look reads them, and what runs. */
static void take_rows(struct site *x, struct store_view *v)
{
    const uint32_t n_lines = x->n.tenants;
    const size_t window = lines_window(n_lines, LINES_MAX);

    *v = (struct store_view){.full = true, .with_tenants = true, .window = window};
    v->now.open = strdup("");
    v->tenants = rows(n_lines, sizeof(*v->tenants));
    v->totals = rows(n_lines, sizeof(*v->totals));
    v->jobs = rows(x->n.execs + n_lines * window, sizeof(*v->jobs));
    v->places = rows(n_lines * window, sizeof(*v->places));
    for (uint32_t t = 0; t < n_lines; t++) {
        v->tenants[v->n_tenants++] = (struct store_tenant){.id = 1 + (int64_t)t,
                                                           .name = x->names[t],
                                                           .active = true,
                                                           .max_gpus = -1,
                                                           .weight = 1 + draw(4),
                                                           .guaranteed_gpus = t % 10 ? 0 : 1,
                                                           .lending_limit = -1,
                                                           .max_running_jobs = UINT32_MAX,
                                                           .max_concurrent_requests = UINT32_MAX};
        v->totals[v->n_totals++] =
            (struct store_count){1 + (int64_t)t, x->n.jobs / n_lines, "QUEUED"};
    }
    for (uint32_t e = 0; e < x->n.execs; e++)
        v->jobs[v->n_jobs++] = row(x, e % n_lines, x->core.s.execs.items[e]->info.name);
    for (uint32_t t = 0; t < n_lines; t++)
        for (size_t k = 0; k < SH_MIN(window, x->n.jobs / n_lines); k++) {
            const struct store_job j = row(x, t, NULL);

            v->jobs[v->n_jobs++] = j;
            v->places[v->n_places++] = (struct store_place){j.line, j.place};
        }
}

static void free_rows(struct store_view *v)
{
    free(v->tenants);
    free(v->totals);
    free(v->jobs);
    free(v->places);
    store_seen_free(&v->now);
}

/* ------------------------------------------------------------------ events */

static void turn(struct sched *s) /* what the loop does after a message about a job */
{
    jobs_sync(s);
    if (s->jobs_woken)
        pass_jobs(s);
    s->jobs_woken = false;
}

static void say(struct sched *s, struct exec *e, const struct job *j, enum msg_job_phase state)
{
    const struct msg_job_state m = {.job = j->id,
                                    .attempt = j->attempt,
                                    .state = state,
                                    .step = j->progress.step + 1,
                                    .steps = STEPS,
                                    .busy_ns = j->progress.busy_ns + 1000000000,
                                    .rc = state == MSG_JOB_FAILED ? SH_E_INVALID : SH_OK,
                                    .msg = "",
                                    .result = ""};

    jobs_on_state(s, e, &m);
}

static void rebuild(struct site *x)
{
    struct sched *s = &x->core.s;
    const size_t before = heap();
    struct sh_err err = {0};
    struct store_view v;
    double began, merged;

    take_rows(x, &v);
    began = cpu_us();
    s->n_polls++;
    must(tenants_merge(&s->tenants, &v, s->n_polls, sh_clock_ns(), &err), &err);
    must(jobs_merge(s, &v, &err), &err);
    merged = cpu_us() - began;
    for (size_t e = 0; e < s->execs.n; e++) {
        jobs_on_exec_hello(s, s->execs.items[e]);
        say(s, s->execs.items[e], jobs__first_on(s, s->execs.items[e]->info.name), MSG_JOB_RUNNING);
        answer(x);
        jobs_on_exec_synced(s, s->execs.items[e]);
    }
    s->jobs_woken = true;
    turn(s);
    answer(x);
    fact("a new leader, from rows to its first pass, s", (cpu_us() - began) / 1e6);
    fact("of that the rows, s", merged / 1e6);
    fact("jobs held", (double)s->jobs.n);
    free_rows(&v);
    fact("bytes of heap for each job held", (double)(heap() - before) / (double)s->jobs.n);
}

/* The least that any event about one executor took when all jobs were looked at. */
static double scan_us(struct sched *s, const char *exec)
{
    const double began = cpu_us();
    size_t n = 0;

    for (size_t i = 0; i < s->jobs.n; i++)
        n += strcmp(s->jobs.items[i]->executor, exec) == 0;
    if (n > 1)
        abort();
    return cpu_us() - began;
}

static struct job *any_running(struct sched *s, struct exec **e)
{
    for (;;) {
        struct job *j;

        *e = s->execs.items[draw((uint32_t)s->execs.n)];
        j = jobs__first_on(s, (*e)->info.name);
        if (j && j->state == JOB_RUNNING && !jobs__is_busy(j))
            return j;
    }
}

static void tick(struct sched *s)
{
    const int64_t now = sh_clock_ns();

    requests_expire(s, now);
    jobs_tick(s, now);
    waiting_tick(s);
}

/* A look at the database that found nothing new. */
static double look_us(struct sched *s)
{
    struct store_view v = {0};
    struct sh_err err = {0};
    const double began = cpu_us();

    must(jobs_ask(s, &v, &err), &err);
    v.full = false;
    v.n_asked = 0;
    v.now = v.before;
    v.before = (struct store_seen){0};
    must(jobs_merge(s, &v, &err), &err);
    free(v.doubtful);
    free(v.asked);
    return cpu_us() - began;
}

static void measure(struct site *x)
{
    static double end_us[N_EVENTS], says_us[N_EVENTS], lost_us[N_EVENTS], tick_us[N_EVENTS],
        scans_us[N_EVENTS / EVERY], looks_us[N_EVENTS / EVERY];
    struct sched *s = &x->core.s;
    const int n = (int)SH_MIN((uint32_t)N_EVENTS, x->n.jobs / 4);
    size_t n_looks = 0;

    for (int k = 0; k < n; k++) {
        struct exec *e;
        struct job *j = any_running(s, &e);
        double began = cpu_us();

        say(s, e, j, MSG_JOB_RUNNING);
        turn(s);
        says_us[k] = cpu_us() - began;
        answer(x);
        began = cpu_us();
        jobs_on_exec_lost(s, e);
        jobs_on_exec_hello(s, e);
        turn(s);
        lost_us[k] = cpu_us() - began;
        j = any_running(s, &e);
        began = cpu_us();
        say(s, e, j, MSG_JOB_FAILED);
        turn(s);
        end_us[k] = cpu_us() - began;
        answer(x);
        turn(s);
        j = jobs__first_on(s, e->info.name);
        if (j)
            say(s, e, j, MSG_JOB_RUNNING);
        answer(x);
        began = cpu_us();
        tick(s);
        tick_us[k] = cpu_us() - began;
        answer(x);
        if (k % EVERY)
            continue;
        looks_us[n_looks] = look_us(s);
        scans_us[n_looks++] = scan_us(s, e->info.name);
    }
    heading();
    print("the end of a job", end_us, (size_t)n);
    print("a job's progress", says_us, (size_t)n);
    print("an executor goes, comes", lost_us, (size_t)n);
    print("a tick", tick_us, (size_t)n);
    print("a look, nothing new", looks_us, n_looks);
    print("a look at all held", scans_us, n_looks);
}

void bench_leader(const struct jobs_size *n)
{
    static struct site x;
    struct sh_err err = {0};

    x = (struct site){.n = *n};
    x.names = rows(n->tenants, sizeof(*x.names));
    for (uint32_t t = 0; t < n->tenants; t++)
        snprintf(x.names[t], sizeof(x.names[t]), "t%u", t);
    must(core_init(&x.core, &(struct core_hooks){0}, n->execs, UINT64_C(1) << 34, &err), &err);
    x.core.s.epoch = 1;
    x.core.s.polling = true; /* this bench is the database */
    jobs_init(&x.core.s);
    title("leader", n);
    rebuild(&x);
    measure(&x);
    jobs_fini(&x.core.s);
    core_fini(&x.core);
    free(x.names);
}
