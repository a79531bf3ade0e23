/* scenario_system.c - the whole system: real schedulers, the real link of APIs and real executors
 * over one database, one net and one folder of state, with the oracles of all of them. */
#include "common/units.h"
#include "tests/sim/cluster.h"
#include "tests/sim/exec_faults.h"
#include "tests/sim/oracles_exec.h"
#include "tests/sim/oracles_system.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PROFILE "tests/sim/profiles/h200.txt"
#define N_EXECS 8u
#define MAX_BATCH 8
#define N_SAMPLES 32 /* of a dataset to train on */
#define MIN_BLOCKS 500
#define MAX_BLOCKS 1900
#define DISTURBED_NS SH_S(30)
#define FAULTS_NS SH_S(34)
#define QUIET_NS SH_S(80)
#define END_NS SH_S(95)

static struct sim_exec execs[N_EXECS];
static const struct sim_profile *profile;
static const char *state_dir;

/* A tenant of its own each. The large ones are not trained: every step looks at all of a state. */
static const struct kind {
    const char *profile;
    bool trains;
    uint32_t own_size;
    double slo_ms;
    const char *on_miss;
} MODELS[][2] = {
    {{"digits-cnn", true, 16, 0, "best-effort"}, {"resnet18", true, 0, 400, "delay"}},
    {{"digits-cnn", true, 0, 200, "reject"}, {"bert-base", false, 128, 0, "best-effort"}},
    {{"resnet18", true, 0, 0, "best-effort"}, {"resnet152", false, 0, 800, "best-effort"}},
};

/* ------------------------------------------------------------------ jobs */

static void prepare_batch(struct database_job *j)
{
    const struct database_version *v = &database.versions[j->version_id - 1];
    const struct database_model *m = &database.models[v->model_id - 1];

    sim_dataset_make(state_dir, v->content.tenant, oracles_system_dataset(m->id, j->all_steps),
                     m->in_bytes, j->all_steps, j->dataset);
    snprintf(j->inputs, sizeof(j->inputs),
             "[{\"name\":\"input\",\"datatype\":\"FP32\",\"shape\":[-1,%zu]}]", m->in_bytes / 4);
    snprintf(j->outputs, sizeof(j->outputs),
             "[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,%zu]}]", m->out_bytes / 4);
    snprintf(j->spec, sizeof(j->spec),
             "{\"batch\":%" PRId64 ",\"checkpoint_interval_ms\":%" PRId64 "}",
             sim_between(1, MAX_BATCH), sim_between(30, 2000));
}

static void prepare_training(struct database_job *j)
{
    const struct database_version *v = &database.versions[j->version_id - 1];
    const struct database_model *m = &database.models[v->model_id - 1];
    const uint32_t batch = 4 * sim_profile_model(profile, m->profile)->sizes[0].batch;
    char evaluation[120] = "";

    j->step_samples = batch;
    sim_dataset_make(state_dir, v->content.tenant, (unsigned)m->id,
                     m->in_bytes < 4096 ? m->in_bytes : 64, N_SAMPLES, j->dataset);
    if (sim_chance(0.4)) {
        sh_strlcpy(j->eval_dataset, j->dataset, sizeof(j->eval_dataset));
        j->may_stop = sim_chance(0.4);
        snprintf(evaluation, sizeof(evaluation),
                 ",\"evaluation\":{\"every\":%" PRId64 ",\"best\":\"%s\",\"patience\":%d}",
                 1 + j->all_steps / sim_between(2, 9), sim_chance(0.5) ? "accuracy" : "loss",
                 j->may_stop ? 3 : 0);
    }
    snprintf(j->spec, sizeof(j->spec),
             "{\"loss\":\"cross-entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},"
             "\"labels\":\"label\",\"batch\":%u,\"steps\":%" PRId64
             ",\"checkpoint_interval_ms\":%" PRId64 ",\"publish\":%s%s}",
             batch, j->all_steps, sim_between(30, 3000), j->publishes ? "true" : "false",
             evaluation);
}

/* What a job needs to be one of a real executor. */
static void prepare(struct database_job *j)
{
    if (j->is_batch)
        prepare_batch(j);
    else
        prepare_training(j);
}

/* ------------------------------------------------------------------ faults of executors */

static struct sim_exec *any(uint64_t r)
{
    return &execs[(r >> 32) % N_EXECS];
}

static void disturbed(int64_t ns)
{
    oracles_exec_disturbed(ns + DISTURBED_NS);
}

static void hit_term(const uint64_t r[static 3])
{
    disturbed(0);
    sim_exec_term(any(r[0]));
}

static void hit_worker(const uint64_t r[static 3])
{
    exec_fault_worker(any(r[0]), r);
}

static void hit_device(const uint64_t r[static 3])
{
    exec_fault_device(any(r[0]), r);
}

static void hit_disk(const uint64_t r[static 3])
{
    disturbed(SH_S(3));
    exec_fault_disk(any(r[0])->host, r);
}

/* ------------------------------------------------------------------ the scenario */

static void upload(struct database_version *v)
{
    sim_package_make(state_dir, &v->content, v->package);
}

static void add_model(int64_t tenant_id, const struct kind *k)
{
    const struct sim_model *like = sim_profile_model(profile, k->profile);
    static unsigned n;
    struct database_model *m;
    char name[16];
    int64_t id;

    snprintf(name, sizeof(name), "m%u", ++n);
    id = database_add_model(tenant_id, name, k->slo_ms, k->on_miss);
    m = &database.models[id - 1];
    sh_strlcpy(m->profile, like->name, sizeof(m->profile));
    m->in_bytes = like->in_bytes;
    m->out_bytes = like->out_bytes;
    m->trains = k->trains;
    m->own_size = k->own_size;
    database_add_version(id, MAX_BATCH);
}

static void setup_database(void)
{
    struct database_quota q = DATABASE_QUOTA;

    database_begin();
    database_upload = upload;
    database_add_queue(5);
    for (unsigned i = 0; i < SH_ARRAY_LEN(MODELS); i++) {
        char name[16];
        int64_t t;

        snprintf(name, sizeof(name), "t%u", i);
        q.guaranteed_gpus = i + 1;
        t = database_add_tenant(name, &q);
        for (size_t k = 0; k < SH_ARRAY_LEN(MODELS[i]); k++)
            add_model(t, &MODELS[i][k]);
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
    sim_exec_packs(c);
}

static void make(unsigned i, unsigned host)
{
    static const char *const NAMES[N_EXECS] = {"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7"};
    static const char *const AT[N_EXECS] = {"unix:/sim/e0", "tcp:e1:2", "tcp:e2:2", "tcp:e3:2",
                                            "tcp:e4:2",     "tcp:e5:2", "tcp:e6:2", "tcp:e7:2"};

    execs[i] = (struct sim_exec){.name = NAMES[i],
                                 .host = host,
                                 .scheduler = CLUSTER_SCHEDULERS,
                                 .data_addr = AT[i],
                                 .state_dir = state_dir,
                                 .n_blocks = (uint32_t)sim_between(MIN_BLOCKS, MAX_BLOCKS),
                                 .device = {.profile = profile, .is_queued = sim_below(2)},
                                 .tune = tune};
    sim_exec_links(&execs[i]);
}

static void start(unsigned i)
{
    sim_exec_start(&execs[i]);
}

static struct sim_proc *proc(unsigned i)
{
    return execs[i].proc;
}

static void setup(void)
{
    static struct cluster_conf c;

    profile = sim_profile_read(PROFILE);
    state_dir = sim_state_dir("state");
    c = (struct cluster_conf){
        .n_executors = N_EXECS,
        .make = make,
        .start = start,
        .proc = proc,
        .disturbed = disturbed,
        .requests_per_s = (double)sim_between(2, 30),
        .calm_requests_per_s = 5,
        .actions_per_s = 2,
        .load = {.prepare = prepare, .memory_bytes = MIN_BLOCKS * DEV_BLOCK, .limits_memory = true},
        .quiet_ns = QUIET_NS,
    };
    setup_database();
    sim_programs(SIM_EXEC_PROGRAMS, SIM_N_EXEC_PROGRAMS);
    cluster_begin(&c);
    cluster_watch();
    oracles_exec_begin();
    oracles_system_begin(state_dir);
}

static void heal(void)
{
    exec_calm_workers();
    for (unsigned i = 0; i < N_EXECS; i++) {
        exec_calm_device(&execs[i]);
        exec_calm_disk(execs[i].host);
    }
    cluster_heal();
    oracles_system_healed();
}

static void finish(void)
{
    oracles_sched_finish();
    oracles_system_finish();
}

static const struct sim_fault_kind KINDS[] = {
    CLUSTER_FAULTS,
    {"clock", 2, cluster_clock},
    {"term", 2, hit_term},
    {"worker", 8, hit_worker},
    {"workers", 6, exec_fault_workers},
    {"device", 6, hit_device},
    {"disk", 6, hit_disk},
};

const struct sim_scenario SIM_SYSTEM = {
    .name = "system",
    .setup = setup,
    .heal = heal,
    .finish = finish,
    .kinds = KINDS,
    .n_kinds = SH_ARRAY_LEN(KINDS),
    .n_faults = 120,
    .calm_ns = SH_S(4),
    .faults_ns = FAULTS_NS,
    .end_ns = END_NS,
};
