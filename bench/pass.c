/* pass.c - what one event costs the scheduler's thread, as executors, requests and jobs grow.
 *
 *     make build/bench/pass
 *     build/bench/pass [EXECUTORS REQUESTS TENANTS MODELS]
 *     build/bench/pass jobs [EXECUTORS TENANTS JOBS]      the index of jobs alone
 *     build/bench/pass leader [EXECUTORS TENANTS JOBS]    jobs in a whole leader
 *     build/bench/pass scale EXECUTORS index|leader|requests    one, as lines of JSON (scale.py)
 *
 * The scheduler's own parts with no process around them: executors that answer at once, requests
 * that arrive, become ready and end. Prints for each event the CPU time of the pass behind it
 * (median, p99), beside a pass that looks at everything, in the same run.
 *
 * Each world runs three times, in processes that begin alike, and of each event the least time
 * counts: what others on the machine cost it is in one of them, what it costs by itself in all. */
#include "bench/pass_jobs.h"
#include "common/clock.h"
#include "common/conf.h"
#include "common/log.h"
#include "common/mem.h"
#include "scheduler/sched.h"
#include "simulate/core.h"
#include "simulate/draw.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_EVENTS 3000
#define N_FULL 20
#define LIMIT_NS INT64_C(600000000000) /* nothing is late while this runs */

/* ------------------------------------------------------------------ the world */

#define ROUNDS 3
#define MAX_ROWS 64

static bool as_json;
static int round_; /* of ROUNDS; the last one prints */
static size_t n_rows;
static struct least { /* in memory that all rounds share */
    double us[N_EVENTS];
    size_t n;
} * least;

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

static void on_refuse(void *ctx, uint64_t rid, const char *rule)
{
    (void)rid, (void)rule;
    ((struct world *)ctx)->n_refused++;
}

/* Returns what is on the heap now. */
static size_t tell_bytes(const char *what, size_t before, double n)
{
    fact(what, (double)(heap() - before) / n);
    return heap();
}

static void world_init(struct world *w, const struct size *n)
{
    const struct core_hooks hooks = {.ctx = w, .refuse = on_refuse};
    struct sh_err err = {0};
    size_t at;

    *w = (struct world){.n = *n};
    title("requests", &(struct jobs_size){n->execs, n->tenants, 0});
    fact("requests", n->requests);
    fact("models", n->models);
    at = heap();
    must(core_init(&w->core, &hooks, n->execs, 1u << 30, &err), &err);
    at = tell_bytes("bytes of heap for each executor", at, n->execs);
    add_models(w, &err);
    at = tell_bytes("for each model and executor", at, (double)n->models * n->execs);
    for (uint32_t i = 0; i < n->tenants; i++) {
        char name[32];

        snprintf(name, sizeof(name), "t%u", i);
        must(core_tenant(&w->core, name, &err), &err);
    }
    tell_bytes("for each tenant", at, n->tenants);
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
    return (double)sh_clock_cpu_ns() / 1e3;
}

static double pass_us(struct world *w)
{
    const double began = cpu_us();

    pass_requests(&w->core.s);
    return cpu_us() - began;
}

size_t heap(void)
{
    const struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static bool is_last(void)
{
    return round_ == ROUNDS - 1;
}

void title(const char *what, const struct jobs_size *n)
{
    if (is_last() && as_json)
        printf("{\"world\": \"%s\"}\n", what);
    else if (is_last())
        printf("%s: %u executors, %u tenants, %u jobs\n", what, n->execs, n->tenants, n->jobs);
}

void fact(const char *what, double value)
{
    if (is_last() && as_json)
        printf("{\"fact\": \"%s\", \"value\": %.6g}\n", what, value);
    else if (is_last())
        printf("  %-50s %12.6g\n", what, value);
}

void heading(void)
{
    if (is_last() && !as_json)
        printf("  %-24s %9s %9s %6s\n", "us of CPU behind", "median", "p99", "of");
}

void print(const char *what, double *us, size_t n)
{
    struct least *l = &least[n_rows++];
    const size_t all = round_ ? SH_MIN(n, l->n) : n;

    if (n_rows > MAX_ROWS || !n)
        return;
    for (size_t k = 0; k < all; k++)
        l->us[k] = round_ ? SH_MIN(us[k], l->us[k]) : us[k];
    l->n = all;
    if (!is_last())
        return;
    qsort(l->us, all, sizeof(*us), by_size);
    printf(as_json ? "{\"row\": \"%s\", \"median\": %.2f, \"p99\": %.2f, \"n\": %zu}\n"
                   : "  %-24s %9.1f %9.1f %6zu\n",
           what, l->us[all / 2], l->us[all * 99 / 100], all);
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
    const size_t before = heap(), n_before = w->core.s.requests.n;

    while (w->core.s.requests.n < w->n.requests) {
        const uint64_t rid = open_request(w);

        pass_requests(&w->core.s);
        core_ready(&w->core, rid, 1);
        pass_requests(&w->core.s);
    }
    fact("bytes of heap for each request",
         (double)(heap() - before) / (double)(w->core.s.requests.n - n_before));
    fact("refused", (double)w->n_refused);
    for (int i = 0; i < N_EVENTS; i++) {
        const uint64_t rid = open_request(w);

        open_us[i] = pass_us(w);
        core_ready(&w->core, rid, 1);
        ready_us[i] = pass_us(w);
        if (end_a_run(w))
            done_us[n_done++] = pass_us(w);
    }
    for (int i = 0; i < N_FULL; i++) {
        waiting_touch_all(&w->core.s);
        full_us[i] = pass_us(w);
    }
    heading();
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

static void bench_requests(const struct size *n)
{
    static struct world w;

    world_init(&w, n);
    measure(&w);
}

/* Ten requests, a hundred jobs and a tenant for each executor. */
static void scale(uint32_t n, const char *world)
{
    const struct jobs_size jobs = {n, n, 100 * n};

    as_json = true;
    if (strcmp(world, "index") == 0)
        bench_jobs(&jobs);
    else if (strcmp(world, "leader") == 0)
        bench_leader(&jobs);
    else
        bench_requests(&(struct size){n, 10 * n, n, SH_MIN(n, UINT32_C(5000))});
}

static void measure_all(int argc, char **argv)
{
    static const struct size SIZES[] = {
        {10, 100, 10, 10}, {100, 1000, 100, 100}, {1000, 10000, 1000, 1000}};
    static const struct jobs_size JOBS[] = {
        {10, 10, 1000}, {100, 100, 10000}, {1000, 1000, 10000}, {10000, 10000, 1000000}};
    const char *what = argc >= 2 ? argv[1] : "";

    if (strcmp(what, "scale") == 0 && argc == 4) {
        scale(number(argv[2]), argv[3]);
    } else if (strcmp(what, "jobs") == 0 || strcmp(what, "leader") == 0) {
        void (*bench)(const struct jobs_size *n) = *what == 'j' ? bench_jobs : bench_leader;
        const struct jobs_size own = {argc == 5 ? number(argv[2]) : 0,
                                      argc == 5 ? number(argv[3]) : 0,
                                      argc == 5 ? number(argv[4]) : 0};

        for (size_t i = 0; i < (argc == 5 ? 1 : SH_ARRAY_LEN(JOBS)); i++)
            bench(argc == 5 ? &own : &JOBS[i]);
    } else if (argc == 5) {
        bench_requests(
            &(struct size){number(argv[1]), number(argv[2]), number(argv[3]), number(argv[4])});
    } else {
        for (size_t i = 0; i < SH_ARRAY_LEN(SIZES); i++)
            bench_requests(&SIZES[i]);
    }
}

int main(int argc, char **argv)
{
    sh_log_init("pass", SH_LOG_ERROR);
    least = mmap(NULL, MAX_ROWS * sizeof(*least), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (least == MAP_FAILED)
        return 1;
    for (round_ = 0; round_ < ROUNDS; round_++) {
        const pid_t child = fork();
        int status;

        if (child == 0) {
            setvbuf(stdout, NULL, _IOLBF, 0);
            measure_all(argc, argv);
            return 0;
        }
        if (child < 0 || waitpid(child, &status, 0) < 0 || status)
            return 1;
    }
    return 0;
}
