/* executor.h - a real executor in a simulated process: executor/exec.h with options of its own, a
 * device (device.h), a state folder that outlives it, and programs that it starts (worker.h, and
 * shunt-import here).
 */
#ifndef SH_TESTS_SIM_EXECUTOR_H
#define SH_TESTS_SIM_EXECUTOR_H

#include "executor/exec.h"
#include "tests/lab/lab.h"
#include "tests/sim/device.h"
#include "tests/sim/world.h"

/* More than all models have: what goes when there is too much depends on the real disk's clock. */
#define SIM_KEPT_BYTES ((int64_t)1 << 30)

struct sim_exec {
    /* set by the owner before sim_exec_start(); strings BORROWED for good */
    const char *name; /* of the process, and --name */
    unsigned host;
    const char *scheduler; /* addresses */
    const char *data_addr;
    const char *state_dir;
    uint32_t n_blocks; /* of device memory */
    struct sim_device_conf device;
    /* what options get other than their defaults; NULL: nothing */
    void (*tune)(const struct sim_exec *e, struct exec_conf *c, struct lab_wishes *lab);
    /* kept by executor.c */
    struct sim_proc *proc;
    struct exec_conf conf;
    struct lab_wishes wishes;
    struct lab lab;
    struct exec *x; /* of the process that is alive; NULL: none */
    int64_t started_ns, stopped_ns;
};

/* Most executors pack what they make; some do not, and read what others have packed. For tune(). */
void sim_exec_packs(struct exec_conf *c);
/* Before its first start: how many links it has, and how fast. */
void sim_exec_links(struct sim_exec *e);
/* Starts it (again). Does nothing while it is alive. */
void sim_exec_start(struct sim_exec *e);
void sim_exec_term(struct sim_exec *e);                  /* SIGTERM */
struct exec *sim_exec_running(const struct sim_exec *e); /* NULL: its process is not there */
struct sim_exec *sim_exec_of(const struct sim_proc *p);  /* NULL: it is none */

/* For sim_programs(). */
extern const struct sim_program SIM_EXEC_PROGRAMS[];
#define SIM_N_EXEC_PROGRAMS 2u

/* An empty folder for this seed, on a disk in memory; another call empties it. BORROWED for good.
 * The path is the same in each run: it goes into messages. */
const char *sim_state_dir(const char *name);

#endif
