/* scenario.h - what main.c runs: a system, the faults that may befall it, and what must hold.
 *
 * A seed draws a plan of faults before anything begins, so that leaving some of them out (to find
 * those that matter) does not change the others. */
#ifndef SH_TESTS_SIM_SCENARIO_H
#define SH_TESTS_SIM_SCENARIO_H

#include "tests/sim/world.h"

struct sim_fault_kind {
    const char *name;
    unsigned weight; /* how often, beside others */
    /* r: chance, for whom and how much: use it, and not sim_random() */
    void (*hit)(const uint64_t r[static 3]);
};

struct sim_scenario {
    const char *name;
    void (*setup)(void);  /* starts the system; nothing has happened before */
    void (*heal)(void);   /* ends what lasts: all is well from now on */
    void (*finish)(void); /* checks what must be true at the end */
    const struct sim_fault_kind *kinds;
    size_t n_kinds;
    unsigned n_faults;                  /* of a seed */
    unsigned few_each, n_few;           /* every few_each-th seed has n_few; 0: none has */
    int64_t calm_ns, faults_ns, end_ns; /* faults from the first to the second; then heal() */
};

extern const struct sim_scenario SIM_EXECUTOR; /* one real executor, and a script */
extern const struct sim_scenario SIM_SYSTEM;   /* real schedulers and real executors */
extern const struct sim_scenario
    SIM_WORLD, /* nothing but processes that talk: tests of the world */
    SIM_SCHED; /* schedulers, APIs and the database, with simple executors */

#endif
