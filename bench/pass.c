/* pass.c - what one event costs the scheduler's thread, as executors, requests and jobs grow.
 *
 *     make build/bench/pass
 *     build/bench/pass [EXECUTORS REQUESTS TENANTS MODELS]
 *     build/bench/pass jobs [EXECUTORS TENANTS JOBS]
 *
 * The scheduler's own parts with no process around them: executors that answer at once, requests
 * that arrive, become ready and end. Prints for each event the CPU time of the pass behind it
 * (median, p99), beside a pass that looks at everything, in the same run. */
#include "bench/pass_jobs.h"
#include "common/clock.h"
#include "common/conf.h"
#include "common/log.h"
#include "common/mem.h"
#include "scheduler/sched.h"
#include "simulate/core.h"
#include "simulate/draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_EVENTS 3000
#define N_FULL 20
#define LIMIT_NS INT64_C(600000000000) /* nothing is late while this runs */

/* ------------------------------------------------------------------ the world */

struct size {
    uint32_t execs, requests, tenants, models;
};

struct world {
    struct core core;
    struct size n;
    uint64_t last_rid, n_refused;
};

void must(int rc, const struct sh_err *err)
{
    if (rc == SH_OK)
        return;
    fprintf(stderr, "pass: %s\n", err->msg);
    abort();
}

static void add_models(struct world *w, struct sh_err *err)
{
    struct msg_profile profile[PREDICT_N_BUCKETS];
    struct store_model *rows = calloc(w->n.models, sizeof(*rows));

    for (unsigned b = 0; b < PREDICT_N_BUCKETS; b++)
        profile[b] = (struct msg_profile){.batch = 1u << b, .compute_ns = 4e6 * (1 + b)};
    for (uint32_t i = 0; rows && i < w->n.models; i++) {
        char name[32];

        snprintf(name, sizeof(name), "m%u", i);
        rows[i] = (struct store_model){.version_id = i + 1,
                                       .model_id = i + 1,
                                       .tenant_id = 1,
                                       .tenant = "t0",
                                       .model = strdup(name),
                                       .state = "READY",
                                       .package = "/nowhere",
                                       .precision = "fp32",
                                       .version = 1,
                                       .max_batch = 8,
                                       .image_bytes = 1u << 20,
                                       .slo_percentile = 99,
                                       .on_miss = "best-effort"};
    }
    must(core_models(&w->core, rows, w->n.models, err), err);
    /* Each model on 16 executors, or on all there are. */
    for (uint32_t i = 0; i < w->n.models; i++)
        for (uint32_t k = 0; k < SH_MIN(w->n.execs, 16u); k++)
            core_loaded(&w->core, (i * 16 + k) % w->n.execs, i + 1, 1u << 20, 1u << 20, profile,
                        SH_ARRAY_LEN(profile));
    free(rows);
}

static uint64_t open_request(struct world *w)
{
    const uint64_t rid = ++w->last_rid;
    char tenant[32];

    snprintf(tenant, sizeof(tenant), "t%u", (unsigned)(rid % w->n.tenants));
    core_open(&w->core, rid, tenant, 1 + (int64_t)(rid * 2654435761u % w->n.models), LIMIT_NS);
    return rid;
}

static void on_refuse(void *ctx, uint64_t rid, int rc)
{
    (void)rid, (void)rc;
    ((struct world *)ctx)->n_refused++;
}

static void world_init(struct world *w, const struct size *n)
{
    const struct core_hooks hooks = {.ctx = w, .refuse = on_refuse};
    struct sh_err err = {0};

    *w = (struct world){.n = *n};
    must(core_init(&w->core, &hooks, n->execs, 1u << 30, &err), &err);
    add_models(w, &err);
    for (uint32_t i = 0; i < n->tenants; i++) {
        char name[32];

        snprintf(name, sizeof(name), "t%u", i);
        must(core_tenant(&w->core, name, &err), &err);
    }
}

/* ------------------------------------------------------------------ measuring */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of this thread: others on the machine do not count. */
double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double pass_us(struct world *w)
{
    const double began = cpu_us();

    pass_requests(&w->core.s);
    return cpu_us() - began;
}

void print(const char *what, double *us, size_t n)
{
    if (!n)
        return;
    qsort(us, n, sizeof(*us), by_size);
    printf("  %-22s %9.1f %9.1f %6zu\n", what, us[n / 2], us[n * 99 / 100], n);
}

static bool end_a_run(struct world *w)
{
    for (uint32_t tries = 0; tries < w->n.execs; tries++) {
        const uint32_t i = draw(w->n.execs);
        const struct run *run = w->core.sessions[i].exec->runs;

        if (!run)
            continue;
        core_run_done(&w->core, i,
                      &(struct msg_run_done){.run_id = run->id,
                                             .busy_ns = 4000000,
                                             .compute_ns = 4000000,
                                             .resident_bytes = 1u << 20});
        return true;
    }
    return false;
}

static void measure(struct world *w)
{
    static double open_us[N_EVENTS], ready_us[N_EVENTS], done_us[N_EVENTS], full_us[N_FULL];
    size_t n_done = 0;
    int64_t began;

    began = sh_clock_ns();
    while (w->core.s.requests.n < w->n.requests) {
        const uint64_t rid = open_request(w);

        pass_requests(&w->core.s);
        core_ready(&w->core, rid);
        pass_requests(&w->core.s);
    }
    printf(
        "%u executors, %zu requests of %u tenants for %u models; filled in %.1f s, %llu refused\n",
        w->n.execs, w->core.s.requests.n, w->n.tenants, w->n.models,
        (double)(sh_clock_ns() - began) / 1e9, (unsigned long long)w->n_refused);
    for (int i = 0; i < N_EVENTS; i++) {
        const uint64_t rid = open_request(w);

        open_us[i] = pass_us(w);
        core_ready(&w->core, rid);
        ready_us[i] = pass_us(w);
        if (end_a_run(w))
            done_us[n_done++] = pass_us(w);
    }
    for (int i = 0; i < N_FULL; i++) {
        waiting_touch_all(&w->core.s);
        full_us[i] = pass_us(w);
    }
    printf("  %-22s %9s %9s %6s\n", "us of CPU behind", "median", "p99", "of");
    print("a new request", open_us, N_EVENTS);
    print("a request is ready", ready_us, N_EVENTS);
    print("the end of a run", done_us, n_done);
    print("all is looked at", full_us, N_FULL);
}

static uint32_t number(const char *text)
{
    struct sh_err err = {0};
    int64_t n = 0;

    must(sh_parse_i64(text, 1, 10000000, "a size", &n, &err), &err);
    return (uint32_t)n;
}

int main(int argc, char **argv)
{
    static const struct size SIZES[] = {
        {10, 100, 10, 10}, {100, 1000, 100, 100}, {1000, 10000, 1000, 1000}};
    static const struct jobs_size JOBS[] = {
        {10, 10, 1000}, {100, 100, 10000}, {1000, 1000, 10000}, {10000, 10000, 1000000}};
    static struct world w;

    sh_log_init("pass", SH_LOG_ERROR);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc >= 2 && strcmp(argv[1], "jobs") == 0) {
        const struct jobs_size own = {argc == 5 ? number(argv[2]) : 0,
                                      argc == 5 ? number(argv[3]) : 0,
                                      argc == 5 ? number(argv[4]) : 0};

        for (size_t i = 0; i < (argc == 5 ? 1 : SH_ARRAY_LEN(JOBS)); i++)
            bench_jobs(argc == 5 ? &own : &JOBS[i]);
        return 0;
    }
    if (argc == 5) {
        const struct size n = {number(argv[1]), number(argv[2]), number(argv[3]), number(argv[4])};

        world_init(&w, &n);
        measure(&w);
        return 0;
    }
    for (size_t i = 0; i < SH_ARRAY_LEN(SIZES); i++) {
        world_init(&w, &SIZES[i]);
        measure(&w);
    }
    return 0;
}
