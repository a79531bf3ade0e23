/* scenario_sched.c - schedulers, APIs and the database under faults: real schedulers and the real
 * link of APIs, with executors that are simple and right (fake_executor.h). */
#include "common/err.h"
#include "common/mem.h"
#include "tests/sim/load.h"
#include "tests/sim/oracles_sched.h"
#include "tests/sim/scenario.h"

#include <stdio.h>
#include <string.h>

#define N_SCHEDULERS 2u
#define N_APIS 2u
#define N_FAKES 8u
#define N_PROCS (N_SCHEDULERS + N_APIS + N_FAKES)
#define N_HOSTS (N_SCHEDULERS + N_FAKES) /* an API shares the host of an executor */
#define N_TENANTS 4u
#define CALM_REQUESTS_PER_S 10.0 /* from the healing on */
#define FAULTS_NS SIM_S(35)
#define QUIET_NS SIM_S(90) /* when the last request is opened */
#define END_NS SIM_S(105)

static const char ADDRESSES[] = "tcp:s0:1,tcp:s1:1";
static const char *const OPTIONS[] = {"--min-run-ms=500", "--full-look-ms=2000",
                                      "--metrics-addr=", NULL};

static struct sim_scheduler *schedulers[N_SCHEDULERS];
static struct sim_api *apis[N_APIS];
static struct fake *fakes[N_FAKES];
static double actions_per_s;
static struct sim_load_kind load;

/* ------------------------------------------------------------------ processes by number */

static struct sim_proc *proc_of(size_t i)
{
    if (i < N_SCHEDULERS)
        return sim_scheduler_proc(schedulers[i]);
    if (i < N_SCHEDULERS + N_APIS)
        return sim_api_proc(apis[i - N_SCHEDULERS]);
    return fake_proc(fakes[i - N_SCHEDULERS - N_APIS]);
}

static void begin_load(void *arg)
{
    sim_load_begin(arg, actions_per_s, &load);
}

static void start(void *arg, uint64_t i)
{
    (void)arg;
    if (sim_proc_is_alive(proc_of(i)))
        return;
    if (i < N_SCHEDULERS) {
        sim_scheduler_start(schedulers[i]);
    } else if (i < N_SCHEDULERS + N_APIS) {
        sim_api_start(apis[i - N_SCHEDULERS]);
        sim_within(proc_of(i), begin_load, apis[i - N_SCHEDULERS]);
    } else {
        fake_start(fakes[i - N_SCHEDULERS - N_APIS]);
    }
}

/* ------------------------------------------------------------------ faults */

/* Of all, or one that leads, which matters most. */
static size_t whom(const uint64_t r[static 3])
{
    return r[0] % 4 == 0 ? r[0] / 4 % N_SCHEDULERS : r[0] / 4 % N_PROCS;
}

static void hit_kill(const uint64_t r[static 3])
{
    sim_proc_kill(proc_of(whom(r)), 9);
    sim_world_after(SIM_MS(r[1] % (r[2] % 4 ? 3000 : 20000)), start, NULL, whom(r));
}

/* Everything but what is on disks. */
static void hit_power(const uint64_t r[static 3])
{
    database_stop(SIM_MS(r[0] % 2000));
    for (size_t i = 0; i < N_PROCS; i++) {
        sim_proc_kill(proc_of(i), 9);
        sim_world_after(SIM_MS((r[1] >> (4 * i)) % 16 * 100), start, NULL, i);
    }
}

static void hit_stop(const uint64_t r[static 3])
{
    sim_scheduler_stop(schedulers[r[0] % N_SCHEDULERS]);
    sim_world_after(SIM_MS(r[1] % 1000), start, NULL, r[0] % N_SCHEDULERS);
}

static void hit_pause(const uint64_t r[static 3])
{
    sim_proc_pause_for(proc_of(whom(r)), SIM_MS(r[1] % (r[2] % 4 ? 3000 : 14000)));
}

static void hit_cut(const uint64_t r[static 3])
{
    sim_net_cut(r[0] % N_HOSTS, r[1] % N_HOSTS);
}

static void hit_block(const uint64_t r[static 3])
{
    sim_net_block(r[0] % N_HOSTS, r[1] % N_HOSTS, SIM_MS(r[2] % 7000));
}

/* A scheduler, or a host of executors, from all others. */
static void hit_island(const uint64_t r[static 3])
{
    for (unsigned h = 0; h < N_HOSTS; h++)
        if (h != r[0] % N_HOSTS)
            sim_net_block(r[0] % N_HOSTS, h, SIM_MS(r[1] % (r[2] % 3 ? 6000 : 22000)));
}

static void hit_slow_net(const uint64_t r[static 3])
{
    sim_net_slow(r[0] % N_HOSTS, r[1] % N_HOSTS, SIM_MS(r[2] % 300), SIM_S(3));
}

static void hit_database_stop(const uint64_t r[static 3])
{
    database_stop(SIM_MS(r[0] % 5000));
}

static void hit_database_crash(const uint64_t r[static 3])
{
    database_crash(SIM_MS(r[0] % 2000));
}

static void hit_database_slow(const uint64_t r[static 3])
{
    database_slow(SIM_MS(1 + r[0] % 900), SIM_MS(r[1] % 5000));
}

static void hit_database_cut(const uint64_t r[static 3])
{
    database_cut((unsigned)(r[0] % N_SCHEDULERS), SIM_MS(r[1] % (r[2] % 3 ? 5000 : 40000)));
}

static void hit_doubt(const uint64_t r[static 3])
{
    database_doubt(0.05 * (double)(1 + r[0] % 10), SIM_MS(r[1] % 4000));
}

static void hit_time_out(const uint64_t r[static 3])
{
    database_time_out(0.05 * (double)(1 + r[0] % 6), SIM_MS(r[1] % 4000));
}

static void hit_lock(const uint64_t r[static 3])
{
    database_lock_job(r[0], SIM_MS(r[1] % 6000));
}

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
    fake_slow(fakes[r[0] % N_FAKES], 2 + (int64_t)(r[1] % 50), SIM_MS(r[2] % 5000));
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
        database.models[m - 1].has_symbol = m % 4 == 0;
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

static void setup(void)
{
    static const char *const S[] = {"s0", "s1"};
    static const char *const A[] = {"a0", "a1"};
    static const char *const E[] = {"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7"};
    static struct oracles_world w = {schedulers, N_SCHEDULERS, fakes, N_FAKES};

    /* From a few that can be followed to more than there is room for. */
    const double requests_per_s = (double)sim_between(5, 40) * (double)sim_between(1, 8);

    actions_per_s = (double)sim_between(1, 8);
    load.floods = sim_chance(0.15);
    setup_database();
    for (unsigned i = 0; i < N_HOSTS; i++)
        sim_host_clock(i, SIM_S(sim_below(100)), (int64_t)sim_below(5000), sim_between(-100, 100));
    for (unsigned i = 0; i < N_SCHEDULERS; i++)
        schedulers[i] = sim_scheduler_new(S[i], i, OPTIONS);
    for (unsigned i = 0; i < N_FAKES; i++)
        fakes[i] = fake_new(E[i], N_SCHEDULERS + i, ADDRESSES, i < N_APIS && i % 2 == 0);
    for (unsigned i = 0; i < N_APIS; i++) {
        apis[i] = sim_api_new(A[i], N_SCHEDULERS + i, ADDRESSES);
        sim_api_rate(apis[i], requests_per_s);
    }
    for (unsigned i = 0; i < N_PROCS; i++)
        start(NULL, i);
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
        sim_proc_resume(proc_of(i));
        start(NULL, i);
    }
    for (unsigned i = 0; i < N_FAKES; i++) {
        fake_fail_loads(fakes[i], 0, 0);
        fake_slow(fakes[i], 1, 0);
    }
    sim_load_stop();
    oracles_sched_healed();
    sim_world_after(QUIET_NS - sim_now(), on_quiet, NULL, 0);
}

static const struct sim_fault_kind KINDS[] = {
    {"kill", 6, hit_kill},
    {"power", 1, hit_power},
    {"stop", 2, hit_stop},
    {"pause", 5, hit_pause},
    {"cut", 5, hit_cut},
    {"block", 4, hit_block},
    {"island", 3, hit_island},
    {"slow-net", 3, hit_slow_net},
    {"database-stop", 2, hit_database_stop},
    {"database-crash", 2, hit_database_crash},
    {"database-slow", 2, hit_database_slow},
    {"database-cut", 3, hit_database_cut},
    {"commit-unknown", 4, hit_doubt},
    {"time-out", 3, hit_time_out},
    {"lock", 3, hit_lock},
    {"job-fails", 4, hit_job},
    {"load-fails", 2, hit_loads},
    {"slow-executor", 2, hit_slow_executor},
};

const struct sim_scenario SIM_SCHED = {
    .name = "sched",
    .setup = setup,
    .heal = heal,
    .finish = oracles_sched_finish,
    .kinds = KINDS,
    .n_kinds = SH_ARRAY_LEN(KINDS),
    .n_faults = 150,
    .calm_ns = SIM_S(2),
    .faults_ns = FAULTS_NS,
    .end_ns = END_NS,
};
