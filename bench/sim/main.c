/* main.c - replays a trace by several policies: see README.md. Prints a JSON object a line. */
#include "bench/sim/load.h"
#include "bench/sim/models.h"
#include "common/conf.h"
#include "common/log.h"
#include "common/mem.h"
#include "simulate/jobs.h"
#include "simulate/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Training on an H200 (docs/benchmarks.md): a stop drains in 0.07 to 0.12 ms in the median and 0.31
 * in the 99th percentile ("Switches"); an interruption took 0.2 ms more than the run in the median
 * of eight loads, 0.36 at most ("Sharing", 50 requests a second). */
#define STOP_NS 170000
#define RESUME_NS 300000

struct options {
    char *trace, *order, *profile, *policies;
    int64_t gpus, min_run_ms, level_ms, half_life_s, start_ms, stop_ms; /* jobs; stop in ms */
    bool one_gpu, one_tenant;
    int64_t half, n, n_models, load_percent, rate, slo_ms, pool_mib, state_mib, train_mib, step_us,
        weight, from_s, to_s;
    int64_t train_percent, warm_percent, enough_percent, most_cpu_s;
};

#define STR(field, name, def, help) SH_OPT_STR(struct options, field, name, def, 0, help)
#define INT(field, name, def, min, max, help) \
    SH_OPT_INT(struct options, field, name, def, min, max, 0, help)

static const struct sh_conf_opt OPTIONS[] = {
    STR(trace, "trace", "", "file, or folder of servegen; its format is told by its columns"),
    STR(order, "order", "", "requests: another trace, whose models and tenants are asked for"),
    STR(profile, "profile", "bench/sim/h200.txt", "requests: device and models"),
    STR(policies, "policies", "", "comma-separated; empty: all"),
    INT(gpus, "gpus", 1, 1, 16384, "GPUs"),
    INT(min_run_ms, "min-run-ms", 30000, 0, 86400000, "jobs: as the scheduler's option"),
    INT(level_ms, "level-ms", 60000, 0, 86400000, "jobs: as the scheduler's option"),
    INT(half_life_s, "usage-half-life-s", 3600, 1, 31536000, "jobs: as the scheduler's option"),
    INT(start_ms, "start-ms", 4200, 0, 3600000, "jobs: from a start to the first step, ms"),
    INT(stop_ms, "stop-ms", 100, 0, 3600000, "jobs: until a stopped one has left, ms"),
    SH_OPT_BOOL(struct options, one_gpu, "one-gpu", false, 0, "jobs: leaves out those of several"),
    INT(half, "half", 0, 0, 2,
        "jobs: only the first or second half of the rows, by arrival; 0: all"),
    INT(n, "requests", 300000, 1, 100000000, "requests: so many in all"),
    INT(load_percent, "load-percent", 60, 1, 100000,
        "requests: mean rate, of what the GPUs could do with resident models, one by one"),
    INT(rate, "rate", 0, 0, 1000000000, "requests: mean rate, a second; 0: by --load-percent"),
    INT(n_models, "models", 0, 0, 1000000,
        "requests: only those for as many models, the most asked for; 0: all"),
    SH_OPT_BOOL(struct options, one_tenant, "one-tenant", false, 0,
                "requests: all are of one tenant, whoever asked"),
    INT(warm_percent, "warm-percent", 50, 0, 99,
        "requests: only what comes after this part of the time is counted"),
    INT(enough_percent, "enough-percent", 0, 0, 99,
        "requests: a replay ends as soon as fewer than these are in time; 0: none does"),
    INT(most_cpu_s, "most-cpu-s", 0, 0, 1000000,
        "requests: a replay ends when it has taken so long; who has no answer then has missed; 0: "
        "none does"),
    INT(slo_ms, "slo-ms", 50, 1, 3600000, "requests: the latency target, ms"),
    INT(pool_mib, "pool-mib", 8192, 64, 1048576, "requests: device memory for images, MiB"),
    INT(state_mib, "train-state-mib", 0, 0, 1048576,
        "requests: ours: state of the training job on each GPU, in that memory, MiB"),
    INT(train_mib, "train-workspace-mib", 0, 0, 1048576,
        "requests: ours: its workspace, which images may take, MiB; 0: as if it took nothing"),
    INT(weight, "request-weight", 3, 0, 1000, "requests: ours: as the executor's option"),
    INT(step_us, "train-step-us", 23000, 0, 100000000, "requests: ours: a step of it, us"),
    INT(from_s, "from-s", 72000, 0, 100000000, "servegen, azure-fn: begins there, s"),
    INT(to_s, "to-s", 72600, 0, 100000000, "servegen, azure-fn: ends there, s"),
    INT(train_percent, "train-percent", 20, 0, 99, "static partition: GPUs that only train"),
};

static const struct sh_conf_table TABLE = {
    .program = "replay",
    .purpose = "Replays a trace by the daemons' own decisions and by other policies.",
    .opts = OPTIONS,
    .n_opts = SH_ARRAY_LEN(OPTIONS),
    .struct_bytes = sizeof(struct options),
};

static const struct job_policy *const JOBS[] = {&JOBS_FIFO, &JOBS_LAS, &JOBS_THEMIS, &JOBS_DRF,
                                                &JOBS_OURS};
static const struct serve_policy *const SERVE[] = {&SERVE_STOP_START, &SERVE_PIPESWITCH,
                                                   &SERVE_TRITON,     &SERVE_CLOCKWORK,
                                                   &SERVE_STATIC,     &SERVE_OURS};

static bool is_asked(const struct options *o, const char *name)
{
    const size_t n = strlen(name);

    for (const char *at = o->policies; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!*o->policies || (strncmp(at, name, n) == 0 && (at[n] == ',' || !at[n])))
            return true;
    return false;
}

/* ------------------------------------------------------------------ jobs */

static void print_jobs(const struct trace_jobs *t, const struct job_policy *p,
                       const struct job_conf *conf, long long half, const struct job_result *r)
{
    printf("{\"what\": \"jobs\", \"format\": \"%s\", \"jobs\": %zu, \"half\": %lld, \"gpus\": %u, "
           "\"policy\": "
           "\"%s\", \"mean_s\": %.1f, \"p50_s\": %.1f, \"p95_s\": %.1f, \"p99_s\": %.1f, "
           "\"mean_wait_s\": %.1f, \"ftf_mean\": %.3f, \"ftf_p95\": %.3f, \"ftf_max\": %.1f, "
           "\"used\": %.4f, \"longest_wait_s\": %.1f, \"starts\": %llu, \"stops\": %llu, "
           "\"passes\": %llu, \"digest\": \"%016llx\", \"cpu_s\": %.2f}\n",
           t->format, t->n, half, conf->n_gpus, p->name, r->mean_s, r->p50_s, r->p95_s, r->p99_s,
           r->mean_wait_s, r->ftf_mean, r->ftf_p95, r->ftf_max, r->used, r->longest_wait_s,
           (unsigned long long)r->n_starts, (unsigned long long)r->n_stops,
           (unsigned long long)r->n_passes, (unsigned long long)r->digest, r->cpu_s);
    fflush(stdout);
}

static void without_wide(struct trace_jobs *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].gpus == 1)
            t->items[n++] = t->items[i];
    t->n = n;
}

/* Tenants that have none of them stay, and have none. */
static void only_half(struct trace_jobs *t, int64_t half)
{
    const size_t from = half == 2 ? t->n / 2 : 0, to = half == 1 ? t->n / 2 : t->n;
    const int64_t begin_ns = t->n ? t->items[from].at_ns : 0;

    for (size_t i = from; i < to; i++) {
        t->items[i - from] = t->items[i];
        t->items[i - from].at_ns -= begin_ns;
    }
    t->n = to - from;
}

static int replay_jobs(const struct options *o, struct sh_err *err)
{
    const struct job_conf conf = {.n_gpus = (uint32_t)o->gpus,
                                  .start_ns = o->start_ms * 1000000,
                                  .stop_ns = o->stop_ms * 1000000,
                                  .min_run_ns = o->min_run_ms * 1000000,
                                  .level_ns = o->level_ms * 1000000,
                                  .half_life_s = (double)o->half_life_s};
    struct trace_jobs t;
    struct job_result r;
    int64_t *ideal = NULL;
    int rc = trace_jobs_read(o->trace, &t, err);

    if (rc)
        return rc;
    only_half(&t, o->half);
    if (o->one_gpu)
        without_wide(&t);
    ideal = calloc(t.n + 1, sizeof(*ideal));
    rc = ideal ? jobs_ideal(&t, conf.n_gpus, ideal, err)
               : SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", t.n);
    for (size_t i = 0; i < SH_ARRAY_LEN(JOBS) && !rc; i++) {
        if (!is_asked(o, JOBS[i]->name))
            continue;
        rc = jobs_replay(&t, JOBS[i], &conf, ideal, &r, err);
        if (!rc)
            print_jobs(&t, JOBS[i], &conf, o->half, &r);
    }
    free(ideal);
    trace_jobs_fini(&t);
    return rc;
}

/* ------------------------------------------------------------------ requests */

static void print_requests(const struct trace_requests *t, const char *name,
                           const struct options *o, double rate, const struct serve_result *r)
{
    printf(
        "{\"what\": \"requests\", \"format\": \"%s\", \"order\": %s, \"requests\": %zu, "
        "\"models\": %zu, \"tenants\": %zu, \"gpus\": %lld, \"rate\": %.1f, \"load\": %.2f, "
        "\"slo_ms\": %lld, \"pool_mib\": %lld, \"policy\": \"%s\", \"attained\": %.5f, "
        "\"refused\": %.5f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"trained\": %.4f, \"busy\": %.4f, "
        "\"batch\": %.2f, \"switches_s\": %.1f, \"gb_s\": %.2f, \"digest\": \"%016llx\", "
        "\"cpu_s\": %.2f, \"by_clock\": %s}\n",
        t->format, *o->order ? "true" : "false", t->n, t->models.n, t->tenants.n,
        (long long)o->gpus, rate, o->rate ? 0 : (double)o->load_percent / 100, (long long)o->slo_ms,
        (long long)o->pool_mib, name, r->attained, r->refused, r->p50_ms, r->p99_ms, r->trained,
        r->busy, r->mean_batch, r->switches_s, r->gb_s, (unsigned long long)r->digest, r->cpu_s,
        r->by_clock ? "true" : "false");
    fflush(stdout);
}

static uint64_t most_missed(const struct trace_requests *load, int64_t from_ns, int64_t percent)
{
    uint64_t n = 0;

    for (size_t i = 0; i < load->n; i++)
        n += load->items[i].at_ns >= from_ns;
    return percent ? SH_MAX(n * (uint64_t)(100 - percent) / 100, UINT64_C(1)) : 0;
}

static int replay_load(const struct options *o, const struct trace_requests *load,
                       const struct sim_profile *profile, struct serve_model *models, double rate,
                       struct sh_err *err)
{
    struct serve_place *places = calloc((size_t)o->gpus, sizeof(*places));
    const int64_t from_ns = load->items[load->n - 1].at_ns / 100 * o->warm_percent;
    const struct serve_conf conf = {.n_gpus = (uint32_t)o->gpus,
                                    .places = places,
                                    .latency_ns = profile->latency_ns,
                                    .from_ns = from_ns,
                                    .most_cpu_s = (double)o->most_cpu_s,
                                    .most_missed = most_missed(load, from_ns, o->enough_percent),
                                    .stop_ns = STOP_NS,
                                    .resume_ns = RESUME_NS,
                                    .process_ns = INT64_C(11000000000),
                                    .train_part = (double)o->train_percent / 100};
    int rc = places ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the GPUs");

    for (int64_t g = 0; !rc && g < o->gpus; g++)
        places[g] = (struct serve_place){.pool_bytes = (uint64_t)o->pool_mib << 20,
                                         .state_bytes = (uint64_t)o->state_mib << 20,
                                         .train_bytes = (uint64_t)o->train_mib << 20,
                                         .weight = o->weight,
                                         .step_ns = o->step_us * 1000,
                                         .ns_per_byte = models_ns_per_byte(profile)};
    for (size_t i = 0; i < SH_ARRAY_LEN(SERVE) && !rc; i++) {
        struct serve_result r;

        if (!is_asked(o, SERVE[i]->name))
            continue;
        rc = serve_replay(load, models, SERVE[i], &conf, &r, err);
        if (!rc)
            print_requests(load, SERVE[i]->name, o, rate, &r);
    }
    free(places);
    return rc;
}

/* The requests that are asked for, with models for them. *rate: a second, in the mean. */
static int read_load(const struct options *o, const struct sim_profile *profile,
                     struct trace_requests *load, struct serve_model **models, double *rate,
                     struct sh_err *err)
{
    const struct trace_part part = {(double)o->from_s, (double)o->to_s, 1, 1};
    struct trace_requests t = {0}, order = {0}, *asked = *o->order ? &order : &t;
    int rc = trace_requests_read(o->trace, &part, &t, err);

    *rate = (double)o->rate;
    if (!rc && *o->order)
        rc = trace_requests_read(o->order, &part, &order, err);
    if (!rc && o->n_models)
        rc = load_most_asked(asked, (size_t)o->n_models, err);
    if (!rc && o->one_tenant)
        rc = load_one_tenant(asked, err);
    if (!rc)
        rc = models_make(profile, asked->models.n, o->slo_ms * 1000000, models, err);
    if (!rc) {
        if (!o->rate)
            *rate =
                models_capacity(asked, *models) * (double)o->gpus * (double)o->load_percent / 100;
        rc = load_make(&t, *o->order ? &order : NULL, *rate, (size_t)o->n, load, err);
    }
    trace_requests_fini(&t);
    trace_requests_fini(&order);
    return rc;
}

static void print_load(const struct trace_requests *load)
{
    for (size_t i = 0; i < load->n; i++)
        printf("%lld %u %u\n", (long long)load->items[i].at_ns, load->items[i].model,
               load->items[i].tenant);
}

static int replay_requests(const struct options *o, bool prints, struct sh_err *err)
{
    const struct sim_profile *profile = sim_profile_read(o->profile);
    struct trace_requests load = {0};
    struct serve_model *models = NULL;
    double rate;
    int rc = read_load(o, profile, &load, &models, &rate, err);

    if (!rc && prints)
        print_load(&load);
    else if (!rc)
        rc = replay_load(o, &load, profile, models, rate, err);
    trace_requests_fini(&load);
    free(models);
    return rc;
}

int main(int argc, char **argv)
{
    static struct options o;
    enum sh_conf_action action;
    struct sh_err err = {0};
    char **rest;
    int n_rest, rc;

    sh_log_init("replay", SH_LOG_ERROR);
    rc = sh_conf_load(&TABLE, &o, argc, argv, &rest, &n_rest, &action, &err);
    if (!rc && action != SH_CONF_RUN)
        return 0;
    if (!rc && n_rest == 1 && strcmp(rest[0], "jobs") == 0)
        rc = replay_jobs(&o, &err);
    else if (!rc && n_rest == 1 && strcmp(rest[0], "requests") == 0)
        rc = replay_requests(&o, false, &err);
    else if (!rc && n_rest == 1 && strcmp(rest[0], "load") == 0)
        rc = replay_requests(&o, true, &err);
    else if (!rc)
        rc = SH_FAIL(&err, SH_E_INVALID,
                     "say what to replay: jobs or requests; or load, to print the requests");
    sh_conf_free(&TABLE, &o);
    if (rc)
        fprintf(stderr, "replay: %s\n", err.msg);
    return rc ? 1 : 0;
}
