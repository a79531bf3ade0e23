/* oracles_sched.h - what must hold of schedulers, whatever happens. */
#ifndef SH_TESTS_SIM_ORACLES_SCHED_H
#define SH_TESTS_SIM_ORACLES_SCHED_H

#include "tests/sim/api.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/scheduler.h"

struct oracles_world {
    struct sim_scheduler **schedulers;
    size_t n_schedulers;
    struct fake **fakes;
    size_t n_fakes;
};

/* From now on it is looked again and again. KEEPS w. */
void oracles_sched_begin(const struct oracles_world *w);
/* All is well from now on: what has to happen has a time from here. */
void oracles_sched_healed(void);
/* All that was to end has had its time. */
void oracles_sched_finish(void);

#endif
