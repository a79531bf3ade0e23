/* cluster.h - schedulers, APIs and executors over one database, as one list of processes: what
 * starts them, the load of clients, and the faults that befall any of them. The executors are the
 * scenario's: simple ones or real ones.
 *
 * Hosts: each scheduler has one, then each executor; an API shares the host of an executor.
 */
#ifndef SH_TESTS_SIM_CLUSTER_H
#define SH_TESTS_SIM_CLUSTER_H

#include "common/mem.h"
#include "tests/sim/load.h"
#include "tests/sim/oracles_sched.h"
#include "tests/sim/scenario.h"

#define CLUSTER_N_SCHEDULERS 2u
#define CLUSTER_N_APIS 2u
#define CLUSTER_MAX_EXECUTORS 16u
#define CLUSTER_SCHEDULERS "tcp:s0:1,tcp:s1:1" /* addresses */

struct cluster_conf {
    unsigned n_executors;
    void (*make)(unsigned i, unsigned host); /* executor i; not started */
    void (*start)(unsigned i);
    struct sim_proc *(*proc)(unsigned i); /* NULL: it was not started yet */
    void (*disturbed)(int64_t for_ns);    /* a fault that lasts so long; NULL: nobody asks */
    double requests_per_s, calm_requests_per_s, actions_per_s; /* of each API; calm: healed */
    struct sim_load_kind load;
    int64_t quiet_ns;    /* when the last request is opened */
    struct fake **fakes; /* for the oracles; NULL: they are real */
};

/* Makes and starts all of it. The database is there. KEEPS c. */
void cluster_begin(const struct cluster_conf *c);
/* Starts who is dead though nobody has taken it away: for what ends by itself. */
void cluster_watch(void);
void cluster_heal(void);
unsigned cluster_n_hosts(void);
struct sim_proc *cluster_proc(size_t i); /* schedulers, APIs, executors */
unsigned cluster_n_procs(void);

typedef void cluster_fault(const uint64_t r[static 3]);
cluster_fault cluster_kill, cluster_power, cluster_stop, cluster_pause, cluster_cut, cluster_block,
    cluster_island, cluster_slow_net, cluster_database_stop, cluster_database_crash,
    cluster_database_slow, cluster_database_cut, cluster_commit_unknown, cluster_time_out,
    cluster_lock, cluster_clock;

/* The head of a scenario's list of faults. */
#define CLUSTER_FAULTS                                                                          \
    {"kill", 6, cluster_kill}, {"power", 1, cluster_power}, {"stop", 2, cluster_stop},          \
        {"pause", 5, cluster_pause}, {"cut", 5, cluster_cut}, {"block", 4, cluster_block},      \
        {"island", 3, cluster_island}, {"slow-net", 3, cluster_slow_net},                       \
        {"database-stop", 2, cluster_database_stop},                                            \
        {"database-crash", 2, cluster_database_crash},                                          \
        {"database-slow", 2, cluster_database_slow}, {"database-cut", 3, cluster_database_cut}, \
        {"commit-unknown", 4, cluster_commit_unknown}, {"time-out", 3, cluster_time_out},       \
    {                                                                                           \
        "lock", 3, cluster_lock                                                                 \
    }

#endif
