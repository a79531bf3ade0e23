/* scenario_sched.c - schedulers, APIs and the database under faults: real schedulers and the real
 * link of APIs, with executors that are simple and right (fake_executor.h). */
#include "common/err.h"
#include "common/units.h"
#include "tests/sim/cluster.h"
#include "tests/sim/fake_executor.h"

#include <stdio.h>
#include <string.h>

#define N_FAKES 8u
#define N_TENANTS 4u
#define FAULTS_NS SH_S(35)
#define QUIET_NS SH_S(90)
#define END_NS SH_S(105)

static struct fake *fakes[N_FAKES];

/* ------------------------------------------------------------------ faults of simple executors */

static void fail_job(void *arg)
{
    fake_fail_job(arg, SH_E_DEVLOST);
}

static void fail_job_for_good(void *arg)
{
    fake_fail_job(arg, SH_E_NAN);
}

static void hit_job(const uint64_t r[static 3])
{
    struct fake *f = fakes[r[0] % N_FAKES];

    if (sim_proc_is_alive(fake_proc(f)) && !sim_proc_is_paused(fake_proc(f)))
        sim_within(fake_proc(f), r[1] % 5 ? fail_job : fail_job_for_good, f);
}

static void hit_loads(const uint64_t r[static 3])
{
    fake_fail_loads(fakes[r[0] % N_FAKES], r[1] % 2 ? SH_E_DEVMEM : SH_E_INVALID,
                    1 + (unsigned)(r[2] % 3));
}

static void hit_slow_executor(const uint64_t r[static 3])
{
    fake_slow(fakes[r[0] % N_FAKES], 2 + (int64_t)(r[1] % 50), SH_MS(r[2] % 5000));
}

static void lie(void *arg)
{
    uint64_t *what = arg;

    fake_lie(fakes[what[0]], what[1], what[2]);
}

static void hit_lie(const uint64_t r[static 3])
{
    uint64_t what[3] = {r[0] % N_FAKES};
    struct sim_proc *p = fake_proc(fakes[what[0]]);

    if (sim_proc_is_alive(p) && !sim_proc_is_paused(p) &&
        sim_api_placed(sim_proc_name(p), r[2] % 2, r[1], &what[1], &what[2]))
        sim_within(p, lie, what);
}

/* ------------------------------------------------------------------ the scenario */

static void add_models(int64_t tenant_id)
{
    static const char *const ON_MISS[] = {"reject", "delay", "best-effort"};
    static const double SLO_MS[] = {0, 50, 200};
    static unsigned n;

    for (unsigned i = 0; i < 2; i++) {
        char name[16];
        int64_t m;

        snprintf(name, sizeof(name), "m%u", ++n);
        m = database_add_model(tenant_id, name, SLO_MS[n % SH_ARRAY_LEN(SLO_MS)],
                               ON_MISS[n % SH_ARRAY_LEN(ON_MISS)]);
        database.models[m - 1].own_size = m % 4 == 0 ? 16 : 0;
        database_add_version(m, 8);
    }
}

static void setup_database(void)
{
    struct database_quota q = DATABASE_QUOTA;

    database_begin();
    database_add_queue(5);
    for (unsigned i = 0; i < N_TENANTS; i++) {
        char name[16];

        q.guaranteed_gpus = (double)i;
        q.lending_limit = i == 2 ? 1 : -1;
        q.max_gpus = i == 3 ? 5 : -1;
        q.max_running_jobs = i == 0 ? 3 : 16;
        q.max_concurrent_requests = i == 1 ? 6 : 256;
        q.weight = 1 + i;
        snprintf(name, sizeof(name), "t%u", i);
        add_models(database_add_tenant(name, &q));
    }
}

static void make(unsigned i, unsigned host)
{
    static const char *const E[] = {"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7"};

    fakes[i] = fake_new(E[i], host, CLUSTER_SCHEDULERS, i < CLUSTER_N_APIS && i % 2 == 0);
}

static void start(unsigned i)
{
    fake_start(fakes[i]);
}

static struct sim_proc *proc(unsigned i)
{
    return fake_proc(fakes[i]);
}

static void setup(void)
{
    static struct cluster_conf c;

    c = (struct cluster_conf){.n_executors = N_FAKES,
                              .make = make,
                              .start = start,
                              .proc = proc,
                              .calm_requests_per_s = 10,
                              .quiet_ns = QUIET_NS,
                              .fakes = fakes};
    /* From a few that can be followed to more than there is room for. */
    c.requests_per_s = (double)sim_between(5, 40) * (double)sim_between(1, 8);
    c.actions_per_s = (double)sim_between(1, 8);
    c.load.floods = sim_chance(0.15);
    c.load.memory_bytes = (uint64_t)1 << 31;
    setup_database();
    cluster_begin(&c);
}

static void heal(void)
{
    for (unsigned i = 0; i < N_FAKES; i++) {
        fake_fail_loads(fakes[i], 0, 0);
        fake_slow(fakes[i], 1, 0);
    }
    cluster_heal();
}

static const struct sim_fault_kind KINDS[] = {
    CLUSTER_FAULTS,
    {"job-fails", 4, hit_job},
    {"load-fails", 2, hit_loads},
    {"slow-executor", 2, hit_slow_executor},
    {"lie", 4, hit_lie},
};

const struct sim_scenario SIM_SCHED = {
    .name = "sched",
    .setup = setup,
    .heal = heal,
    .finish = oracles_sched_finish,
    .kinds = KINDS,
    .n_kinds = SH_ARRAY_LEN(KINDS),
    .n_faults = 150,
    .few_each = 3,
    .n_few = 25,
    .calm_ns = SH_S(2),
    .faults_ns = FAULTS_NS,
    .end_ns = END_NS,
};
