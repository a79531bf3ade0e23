/* cluster.c - see cluster.h. */
#include "tests/sim/cluster.h"

#include "common/units.h"

#define WATCH_NS SH_MS(500)

static const char *const OPTIONS[] = {"--min-run-ms=500", "--level-ms=300", "--full-look-ms=2000",
                                      "--metrics-addr=", NULL};

static const struct cluster_conf *conf;
static struct sim_scheduler *schedulers[CLUSTER_N_SCHEDULERS];
static struct sim_api *apis[CLUSTER_N_APIS];
static bool is_healed;
static int64_t away_ns[CLUSTER_N_SCHEDULERS + CLUSTER_N_APIS + CLUSTER_MAX_EXECUTORS];

unsigned cluster_n_procs(void)
{
    return CLUSTER_N_SCHEDULERS + CLUSTER_N_APIS + conf->n_executors;
}

unsigned cluster_n_hosts(void)
{
    return CLUSTER_N_SCHEDULERS + conf->n_executors;
}

struct sim_proc *cluster_proc(size_t i)
{
    if (i < CLUSTER_N_SCHEDULERS)
        return sim_scheduler_proc(schedulers[i]);
    if (i < CLUSTER_N_SCHEDULERS + CLUSTER_N_APIS)
        return sim_api_proc(apis[i - CLUSTER_N_SCHEDULERS]);
    return conf->proc((unsigned)i - CLUSTER_N_SCHEDULERS - CLUSTER_N_APIS);
}

static void begin_load(void *arg)
{
    sim_load_begin(arg, conf->actions_per_s, &conf->load);
}

static void start(void *arg, uint64_t i)
{
    struct sim_proc *p = cluster_proc(i);

    (void)arg;
    if (p && sim_proc_is_alive(p))
        return;
    if (i < CLUSTER_N_SCHEDULERS) {
        sim_scheduler_start(schedulers[i]);
    } else if (i < CLUSTER_N_SCHEDULERS + CLUSTER_N_APIS) {
        sim_api_start(apis[i - CLUSTER_N_SCHEDULERS]);
        sim_within(p, begin_load, apis[i - CLUSTER_N_SCHEDULERS]);
    } else {
        conf->start((unsigned)i - CLUSTER_N_SCHEDULERS - CLUSTER_N_APIS);
    }
}

static void start_later(size_t i, int64_t ns)
{
    away_ns[i] = SH_MAX(away_ns[i], sim_now() + ns);
    sim_world_after(ns, start, NULL, i);
}

void cluster_begin(const struct cluster_conf *c)
{
    static const char *const S[] = {"s0", "s1"}, *const A[] = {"a0", "a1"};
    static struct oracles_world w;

    conf = c;
    for (unsigned i = 0; i < cluster_n_hosts(); i++)
        sim_host_clock(i, SH_S(sim_below(100)), (int64_t)sim_below(5000), sim_between(-100, 100));
    for (unsigned i = 0; i < CLUSTER_N_SCHEDULERS; i++)
        schedulers[i] = sim_scheduler_new(S[i], i, OPTIONS);
    for (unsigned i = 0; i < conf->n_executors; i++)
        conf->make(i, CLUSTER_N_SCHEDULERS + i);
    for (unsigned i = 0; i < CLUSTER_N_APIS; i++) {
        apis[i] = sim_api_new(A[i], CLUSTER_N_SCHEDULERS + i, CLUSTER_SCHEDULERS);
        sim_api_rate(apis[i], conf->requests_per_s);
    }
    for (size_t i = 0; i < cluster_n_procs(); i++)
        start(NULL, i);
    w = (struct oracles_world){schedulers, CLUSTER_N_SCHEDULERS, conf->fakes,
                               conf->fakes ? conf->n_executors : 0};
    oracles_sched_begin(&w);
}

static void watch(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    for (size_t i = 0; i < cluster_n_procs(); i++)
        if (sim_now() > away_ns[i])
            start(NULL, i);
    sim_world_after(WATCH_NS, watch, NULL, 0);
}

void cluster_watch(void)
{
    sim_world_after(WATCH_NS, watch, NULL, 0);
}

static void on_quiet(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    for (unsigned i = 0; i < CLUSTER_N_APIS; i++)
        sim_api_rate(apis[i], 0);
}

void cluster_heal(void)
{
    is_healed = true;
    database_heal();
    for (unsigned i = 0; i < CLUSTER_N_APIS; i++)
        sim_api_rate(apis[i], conf->calm_requests_per_s);
    for (size_t i = 0; i < cluster_n_procs(); i++) {
        if (cluster_proc(i))
            sim_proc_resume(cluster_proc(i));
        start(NULL, i);
    }
    sim_load_stop();
    oracles_sched_healed();
    sim_world_after(conf->quiet_ns - sim_now(), on_quiet, NULL, 0);
}

/* ------------------------------------------------------------------ faults */

static void disturbed(int64_t for_ns)
{
    if (conf->disturbed)
        conf->disturbed(for_ns);
}

/* Of all, or one that leads, which matters most. */
static size_t whom(const uint64_t r[static 3])
{
    return r[0] % 4 == 0 ? r[0] / 4 % CLUSTER_N_SCHEDULERS : r[0] / 4 % cluster_n_procs();
}

static void kill_one(size_t i)
{
    if (cluster_proc(i))
        sim_proc_kill(cluster_proc(i), 9);
}

void cluster_kill(const uint64_t r[static 3])
{
    disturbed(0);
    kill_one(whom(r));
    start_later(whom(r), SH_MS(r[1] % (r[2] % 4 ? 3000 : 20000)));
}

/* Everything but what is on disks. */
void cluster_power(const uint64_t r[static 3])
{
    disturbed(SH_S(2));
    database_stop(SH_MS(r[0] % 2000));
    for (size_t i = 0; i < cluster_n_procs(); i++) {
        kill_one(i);
        start_later(i, SH_MS((r[1] >> (4 * i)) % 16 * 100));
    }
}

void cluster_stop(const uint64_t r[static 3])
{
    sim_scheduler_stop(schedulers[r[0] % CLUSTER_N_SCHEDULERS]);
    start_later(r[0] % CLUSTER_N_SCHEDULERS, SH_MS(r[1] % 1000));
}

void cluster_pause(const uint64_t r[static 3])
{
    const int64_t ns = SH_MS(r[1] % (r[2] % 4 ? 3000 : 14000));

    disturbed(ns);
    if (cluster_proc(whom(r)))
        sim_proc_pause_for(cluster_proc(whom(r)), ns);
}

void cluster_cut(const uint64_t r[static 3])
{
    disturbed(0);
    sim_net_cut(r[0] % cluster_n_hosts(), r[1] % cluster_n_hosts());
}

void cluster_block(const uint64_t r[static 3])
{
    disturbed(SH_MS(r[2] % 7000));
    sim_net_block(r[0] % cluster_n_hosts(), r[1] % cluster_n_hosts(), SH_MS(r[2] % 7000));
}

/* A scheduler, or a host of executors, from all others. */
void cluster_island(const uint64_t r[static 3])
{
    const int64_t ns = SH_MS(r[1] % (r[2] % 3 ? 6000 : 22000));

    disturbed(ns);
    for (unsigned h = 0; h < cluster_n_hosts(); h++)
        if (h != r[0] % cluster_n_hosts())
            sim_net_block(r[0] % cluster_n_hosts(), h, ns);
}

void cluster_slow_net(const uint64_t r[static 3])
{
    disturbed(SH_S(3));
    sim_net_slow(r[0] % cluster_n_hosts(), r[1] % cluster_n_hosts(), SH_MS(r[2] % 300), SH_S(3));
}

void cluster_database_stop(const uint64_t r[static 3])
{
    database_stop(SH_MS(r[0] % 5000));
}

static void crash(void *arg, uint64_t ms)
{
    (void)arg;
    if (!is_healed)
        database_crash(SH_MS(ms));
}

/* Often it could not write any more for a while: looks have seen transactions, then, of which
 * nothing is left. */
void cluster_database_crash(const uint64_t r[static 3])
{
    const int64_t ns = SH_MS(r[1] % 2 ? r[2] % 1500 : 0);

    if (ns)
        database_no_log((unsigned)(r[2] >> 32) % 40, ns);
    sim_world_after(ns, crash, NULL, r[0] % 2000);
}

void cluster_database_slow(const uint64_t r[static 3])
{
    database_slow(SH_MS(1 + r[0] % 900), SH_MS(r[1] % 5000));
}

void cluster_database_cut(const uint64_t r[static 3])
{
    database_cut((unsigned)(r[0] % CLUSTER_N_SCHEDULERS), SH_MS(r[1] % (r[2] % 3 ? 5000 : 40000)));
}

void cluster_commit_unknown(const uint64_t r[static 3])
{
    database_doubt(0.05 * (double)(1 + r[0] % 10), SH_MS(r[1] % 4000));
}

void cluster_time_out(const uint64_t r[static 3])
{
    database_time_out(0.05 * (double)(1 + r[0] % 6), SH_MS(r[1] % 4000));
}

void cluster_lock(const uint64_t r[static 3])
{
    database_lock_job(r[0], SH_MS(r[1] % 6000));
}

void cluster_clock(const uint64_t r[static 3])
{
    sim_host_wall((unsigned)(r[0] % cluster_n_hosts()),
                  (int64_t)(r[1] % 7200000) - (r[2] % 2 ? 3600000 : 0));
}
