/* scenario_system.c - the whole system: real schedulers, the real link of APIs and real executors
 * over one database, one net and one folder of state, with the oracles of all of them. */
#include "common/mem.h"
#include "executor/pool/pool.h"
#include "tests/sim/disk.h"
#include "tests/sim/executor.h"
#include "tests/sim/load.h"
#include "tests/sim/oracles_exec.h"
#include "tests/sim/oracles_sched.h"
#include "tests/sim/scenario.h"
#include "tests/sim/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PROFILE "tests/sim/profiles/h200.txt"
#define N_SCHEDULERS 2u
#define N_APIS 2u
#define N_EXECS 4u
#define N_PROCS (N_SCHEDULERS + N_APIS + N_EXECS)
#define N_HOSTS (N_SCHEDULERS + N_EXECS) /* an API shares the host of an executor */
#define N_TENANTS 3u
#define MAX_BATCH 8
#define N_SAMPLES 32
#define CALM_REQUESTS_PER_S 5.0
#define DISTURBED_NS SIM_S(40)
#define FAULTS_NS SIM_S(25)
#define QUIET_NS SIM_S(70)
#define END_NS SIM_S(85)

static const char ADDRESSES[] = "tcp:s0:1,tcp:s1:1";
static const char *const OPTIONS[] = {"--min-run-ms=500", "--full-look-ms=2000",
                                      "--metrics-addr=", NULL};
static const char *const MODELS[] = {"digits-cnn", "resnet18"};

static struct sim_scheduler *schedulers[N_SCHEDULERS];
static struct sim_api *apis[N_APIS];
static struct sim_exec execs[N_EXECS];
static const struct sim_profile *profile;
static const char *state_dir;

/* ------------------------------------------------------------------ processes by number */

static struct sim_proc *proc_of(size_t i)
{
    if (i < N_SCHEDULERS)
        return sim_scheduler_proc(schedulers[i]);
    if (i < N_SCHEDULERS + N_APIS)
        return sim_api_proc(apis[i - N_SCHEDULERS]);
    return execs[i - N_SCHEDULERS - N_APIS].proc;
}

/* What a job needs to be one of a real executor. */
static void prepare(struct database_job *j)
{
    const struct database_version *v = &database.versions[j->version_id - 1];
    const struct database_model *m = &database.models[v->model_id - 1];
    const uint32_t batch = 4 * sim_profile_model(profile, m->profile)->sizes[0].batch;

    j->step_samples = batch;
    sim_dataset_make(state_dir, v->content.tenant, (unsigned)m->id,
                     m->in_bytes < 4096 ? m->in_bytes : 64, N_SAMPLES, j->dataset);
    snprintf(j->spec, sizeof(j->spec),
             "{\"loss\":\"cross-entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},"
             "\"labels\":\"label\",\"batch\":%u,\"steps\":%" PRId64
             ",\"checkpoint_interval_ms\":%" PRId64 ",\"publish\":%s}",
             batch, j->all_steps, sim_between(30, 3000), j->publishes ? "true" : "false");
}

static void begin_load(void *arg)
{
    static const struct sim_load_kind load = {.prepare = prepare};

    sim_load_begin(arg, 1.5, &load);
}

static void start(void *arg, uint64_t i)
{
    struct sim_proc *p = proc_of(i);

    (void)arg;
    if (p && sim_proc_is_alive(p))
        return;
    if (i < N_SCHEDULERS) {
        sim_scheduler_start(schedulers[i]);
    } else if (i < N_SCHEDULERS + N_APIS) {
        sim_api_start(apis[i - N_SCHEDULERS]);
        sim_within(p, begin_load, apis[i - N_SCHEDULERS]);
    } else {
        sim_exec_start(&execs[i - N_SCHEDULERS - N_APIS]);
    }
}

/* ------------------------------------------------------------------ faults */

static void disturbed(int64_t ns)
{
    oracles_exec_disturbed(ns + DISTURBED_NS);
}

static void hit_kill(const uint64_t r[static 3])
{
    disturbed(0);
    sim_proc_kill(proc_of(r[0] % N_PROCS), 9);
    sim_world_after(SIM_MS(r[1] % (r[2] % 4 ? 3000 : 15000)), start, NULL, r[0] % N_PROCS);
}

static void hit_pause(const uint64_t r[static 3])
{
    const int64_t ns = SIM_MS(r[1] % (r[2] % 4 ? 3000 : 12000));

    disturbed(ns);
    sim_proc_pause_for(proc_of(r[0] % N_PROCS), ns);
}

static void hit_cut(const uint64_t r[static 3])
{
    disturbed(0);
    sim_net_cut(r[0] % N_HOSTS, r[1] % N_HOSTS);
}

static void hit_island(const uint64_t r[static 3])
{
    disturbed(SIM_S(20));
    for (unsigned h = 0; h < N_HOSTS; h++)
        if (h != r[0] % N_HOSTS)
            sim_net_block(r[0] % N_HOSTS, h, SIM_MS(r[1] % (r[2] % 3 ? 5000 : 18000)));
}

static void hit_database(const uint64_t r[static 3])
{
    switch (r[0] % 5) {
    case 0:
        database_stop(SIM_MS(r[1] % 4000));
        break;
    case 1:
        database_crash(SIM_MS(r[1] % 2000));
        break;
    case 2:
        database_cut((unsigned)(r[2] % N_SCHEDULERS), SIM_MS(r[1] % 8000));
        break;
    case 3:
        database_doubt(0.3, SIM_MS(r[1] % 4000));
        break;
    default:
        database_time_out(0.2, SIM_MS(r[1] % 4000));
    }
}

static void hit_worker(const uint64_t r[static 3])
{
    const struct exec *x = sim_exec_running(&execs[r[0] % N_EXECS]);
    const struct worker *w = x && x->pool ? pool_at(x->pool, r[1] % pool_size(x->pool)) : NULL;
    struct sim_proc *p = w && w->pid > 0 ? sim_proc_of_pid(w->pid) : NULL;

    if (!p)
        return;
    disturbed(0);
    sim_proc_kill(p, r[2] % 2 ? 9 : 11);
}

/* ------------------------------------------------------------------ the scenario */

static void upload(struct database_version *v)
{
    sim_package_make(state_dir, &v->content, v->package);
}

static void setup_database(void)
{
    struct database_quota q = DATABASE_QUOTA;

    database_begin();
    database_upload = upload;
    for (unsigned i = 0; i < N_TENANTS; i++) {
        char name[16];
        int64_t t;

        snprintf(name, sizeof(name), "t%u", i);
        q.guaranteed_gpus = 1;
        t = database_add_tenant(name, &q);
        for (size_t k = 0; k < SH_ARRAY_LEN(MODELS); k++) {
            const struct sim_model *like = sim_profile_model(profile, MODELS[k]);
            int64_t id;
            struct database_model *m;

            snprintf(name, sizeof(name), "m%u%zu", i, k);
            id = database_add_model(t, name, 0, "best-effort");
            m = &database.models[id - 1];
            sh_strlcpy(m->profile, like->name, sizeof(m->profile));
            m->in_bytes = like->in_bytes;
            m->out_bytes = like->out_bytes;
            m->trains = like->n_ops > 0;
            database_add_version(id, MAX_BATCH);
        }
    }
}

static void tune(const struct sim_exec *e, struct exec_conf *c, struct lab_wishes *lab)
{
    (void)e, (void)lab;
    c->workers = sim_between(2, 4);
    c->compile_ms = 30000;
    c->hang_ms = 3000;
    c->run_ms = 15000;
    c->kept_bytes = 0;
}

static void setup(void)
{
    static const char *const S[] = {"s0", "s1"}, *const A[] = {"a0", "a1"};
    static const char *const E[] = {"e0", "e1", "e2", "e3"};
    static const char *const AT[] = {"unix:/sim/e0", "tcp:e1:2", "tcp:e2:2", "tcp:e3:2"};
    static struct oracles_world w = {schedulers, N_SCHEDULERS, NULL, 0};

    profile = sim_profile_read(PROFILE);
    state_dir = sim_state_dir("state");
    setup_database();
    sim_programs(SIM_EXEC_PROGRAMS, SIM_N_EXEC_PROGRAMS);
    for (unsigned i = 0; i < N_HOSTS; i++)
        sim_host_clock(i, SIM_S(sim_below(100)), (int64_t)sim_below(5000), sim_between(-80, 80));
    for (unsigned i = 0; i < N_SCHEDULERS; i++)
        schedulers[i] = sim_scheduler_new(S[i], i, OPTIONS);
    for (unsigned i = 0; i < N_EXECS; i++)
        execs[i] = (struct sim_exec){.name = E[i],
                                     .host = N_SCHEDULERS + i,
                                     .scheduler = ADDRESSES,
                                     .data_addr = AT[i],
                                     .state_dir = state_dir,
                                     .n_blocks = (uint32_t)sim_between(600, 1900),
                                     .device = {.profile = profile, .is_queued = sim_below(2)},
                                     .tune = tune};
    for (unsigned i = 0; i < N_APIS; i++) {
        apis[i] = sim_api_new(A[i], N_SCHEDULERS + i, ADDRESSES);
        sim_api_rate(apis[i], (double)sim_between(2, 30));
    }
    for (unsigned i = 0; i < N_PROCS; i++)
        start(NULL, i);
    oracles_exec_begin();
    oracles_sched_begin(&w);
}

static void on_quiet(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    for (unsigned i = 0; i < N_APIS; i++)
        sim_api_rate(apis[i], 0);
}

static void heal(void)
{
    database_heal();
    for (unsigned i = 0; i < N_APIS; i++)
        sim_api_rate(apis[i], CALM_REQUESTS_PER_S);
    for (unsigned i = 0; i < N_PROCS; i++) {
        if (proc_of(i))
            sim_proc_resume(proc_of(i));
        start(NULL, i);
    }
    sim_load_stop();
    oracles_sched_healed();
    sim_world_after(QUIET_NS - sim_now(), on_quiet, NULL, 0);
}

static const struct sim_fault_kind KINDS[] = {
    {"kill", 5, hit_kill},     {"pause", 4, hit_pause},       {"cut", 4, hit_cut},
    {"island", 3, hit_island}, {"database", 6, hit_database}, {"worker", 6, hit_worker},
};

const struct sim_scenario SIM_SYSTEM = {
    .name = "system",
    .setup = setup,
    .heal = heal,
    .finish = oracles_sched_finish,
    .kinds = KINDS,
    .n_kinds = SH_ARRAY_LEN(KINDS),
    .n_faults = 50,
    .calm_ns = SIM_S(4),
    .faults_ns = FAULTS_NS,
    .end_ns = END_NS,
};
