/* scenario_exec.c - one real executor, with a scheduler and an API that a script plays
 * (exec_script.h): everything that may befall it. */
#include "common/mem.h"
#include "common/units.h"
#include "tests/sim/exec_faults.h"
#include "tests/sim/exec_script.h"
#include "tests/sim/oracles_exec.h"
#include "tests/sim/scenario.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROFILE "tests/sim/profiles/h200.txt"
#define EXEC_HOST 0u
#define WATCH_NS SH_MS(100)
#define END_NS SH_S(40)

static struct sim_exec executor;
static bool is_healed;

/* ------------------------------------------------------------------ the system */

static void tune(const struct sim_exec *e, struct exec_conf *c, struct lab_wishes *lab)
{
    c->request_weight = e->n_blocks % 2 ? 100 : c->request_weight;
    c->workers = sim_between(2, 4);
    c->compile_ms = 30000;
    c->hang_ms = sim_between(500, 6000);
    c->run_ms = 15000;
    c->checkpoint_interval_ms = sim_between(100, 3000);
    c->max_queued_runs = sim_between(8, 200);
    c->kept_bytes = sim_below(3) ? SIM_KEPT_BYTES : 0;
    c->keep_renew_s = sim_between(0, 5);
    c->model_shapes = sim_between(1, 6);
    sim_exec_packs(c);
    if (sim_below(3) == 0) /* images leave it for disk, if they are kept */
        c->model_host_bytes = sim_between((int64_t)100 << 10, (int64_t)600 << 10);
    if (script.is_remote && sh_strdup("https://sim", &c->api, NULL))
        abort();
    lab->is_cold = sim_below(8) == 0;
    /* Without what makes a switch fast. Not "one-process": it takes the job from its worker as it
     * stands, which a real worker makes good by compiling it anew. */
    if (sim_below(10) == 0 && sim_below(2))
        lab->ablation = "pageable";
    if (e->n_blocks % 3 == 0) /* whatever images are worth */
        lab->hold_ms = 20 + e->n_blocks % 300;
    if (sim_below(3) == 0) /* each way of stopping, whatever the memory needs */
        lab->stop_way = "turns";
}

/* As whoever supervises daemons. */
static void watch(void *arg, uint64_t n)
{
    static int64_t down_ns;

    (void)arg, (void)n;
    sim_world_after(WATCH_NS, watch, NULL, 0);
    script_start_sched();
    script_start_api();
    if (sim_proc_is_alive(executor.proc))
        down_ns = 0;
    else if (down_ns == 0)
        down_ns = sim_now();
    else if (is_healed || sim_below(4) == 0)
        sim_exec_start(&executor);
}

#define STALE "e0/blobs/packages/.job-901"
#define YOUNG "e0/blobs/packages/.job-902"

/* What executors that were killed have left: one long ago, one that may still be at work. */
static void make_leftovers(void)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

    if (mkdir(STALE, 0750) < 0 || mkdir(YOUNG, 0750) < 0 ||
        utimensat(AT_FDCWD, STALE, times, 0) < 0)
        sim_broken("world", "leftovers: %m");
}

static void setup(void)
{
    const struct sim_profile *p = sim_profile_read(PROFILE);
    const bool is_local = sim_below(2);

    for (unsigned i = 0; i < 3; i++)
        sim_host_clock(i, SH_S(sim_below(1000)), (int64_t)sim_below(5000), sim_between(-80, 80));
    executor = (struct sim_exec){.name = "e0",
                                 .host = EXEC_HOST,
                                 .data_addr = is_local ? "unix:/sim/e0" : "tcp:e0:2",
                                 .state_dir = sim_state_dir("e0"),
                                 .n_blocks = (uint32_t)sim_between(300, 1900),
                                 .device = {.profile = p, .is_queued = sim_below(3) > 0},
                                 .tune = tune};
    sim_exec_links(&executor);
    sim_programs(SIM_EXEC_PROGRAMS, SIM_N_EXEC_PROGRAMS);
    script_begin(&executor, p, is_local, !is_local && sim_below(2));
    oracles_exec_begin();
    make_leftovers();
    sim_exec_start(&executor);
    watch(NULL, 0);
}

/* ------------------------------------------------------------------ faults */

static void hit_kill(const uint64_t r[static 3])
{
    (void)r;
    sim_proc_kill(executor.proc, 9);
}

static void hit_term(const uint64_t r[static 3])
{
    (void)r;
    sim_exec_term(&executor);
}

static void hit_pause(const uint64_t r[static 3])
{
    const int64_t ns = (int64_t)(r[0] % (uint64_t)SH_S(4));

    sim_proc_pause_for(executor.proc, ns);
    oracles_exec_disturbed(ns);
}

static void hit_sched(const uint64_t r[static 3])
{
    (void)r;
    sim_proc_kill(script.sched, 9);
}

static void hit_api(const uint64_t r[static 3])
{
    (void)r;
    sim_proc_kill(script.api, 9);
}

static void hit_net(const uint64_t r[static 3])
{
    const unsigned other = r[0] % 3;

    if (r[1] % 3 == 0)
        sim_net_cut(EXEC_HOST, r[2] % 2 ? SCRIPT_API_HOST : other);
    else if (r[1] % 3 == 1)
        sim_net_block(EXEC_HOST, other, exec_fault_time(r[2]));
    else
        sim_net_slow(EXEC_HOST, other, SH_MS(r[2] % 40), SH_S(2));
}

static void hit_worker(const uint64_t r[static 3])
{
    exec_fault_worker(&executor, r);
}

/* It starts where workers cannot: they say why not, or end without a word. */
static void hit_start(const uint64_t r[static 3])
{
    sim_proc_kill(executor.proc, 9);
    exec_fault_starts(r);
}

/* Somebody has taken a worker over, and fills the only folder that it can write to. */
static void hit_folder(const uint64_t r[static 3])
{
    exec_fault_folder(&executor, r);
}

static void hit_device(const uint64_t r[static 3])
{
    exec_fault_device(&executor, r);
}

static void hit_disk(const uint64_t r[static 3])
{
    exec_fault_disk(EXEC_HOST, r);
}

static const struct sim_fault_kind KINDS[] = {
    {"kill", 3, hit_kill},        {"term", 2, hit_term},
    {"pause", 3, hit_pause},      {"scheduler", 3, hit_sched},
    {"api", 2, hit_api},          {"net", 6, hit_net},
    {"worker", 8, hit_worker},    {"workers", 7, exec_fault_workers},
    {"lies", 1, exec_fault_lies}, {"device", 6, hit_device},
    {"disk", 5, hit_disk},        {"shortage", 6, exec_fault_shortage},
    {"start", 2, hit_start},      {"folder", 1, hit_folder},
};

/* ------------------------------------------------------------------ the end */

static void heal(void)
{
    is_healed = true;
    script.calm_ns = sim_now();
    exec_calm_workers();
    exec_calm_device(&executor);
    exec_calm_disk(EXEC_HOST);
    exec_calm_shortage();
    sim_proc_resume(executor.proc);
    script_start_sched();
    script_start_api();
    sim_exec_start(&executor);
}

static void finish(void)
{
    script_begin_end();
    for (int i = 0; i < 90 && !script_is_through(); i++)
        sim_run(sim_now() + SH_S(1));
    script_check_end();
    SIM_CHECK("files", access(STALE, F_OK) < 0 && access(YOUNG, F_OK) == 0,
              "what an executor left long ago is still there, or another one's is not");
}

const struct sim_scenario SIM_EXECUTOR = {
    .name = "executor",
    .setup = setup,
    .heal = heal,
    .finish = finish,
    .kinds = KINDS,
    .n_kinds = SH_ARRAY_LEN(KINDS),
    .n_faults = 60,
    .calm_ns = SH_S(2),
    .faults_ns = SH_S(25),
    .end_ns = SH_S(25) + END_NS,
};
