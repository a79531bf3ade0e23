/* oracles_system.h - what must be true of what real executors leave behind: checkpoints, results of
 * batch inference, published models. */
#ifndef SH_TESTS_SIM_ORACLES_SYSTEM_H
#define SH_TESTS_SIM_ORACLES_SYSTEM_H

#include "tests/sim/database.h"

/* From now on it is looked again and again. state_dir: BORROWED for good. */
void oracles_system_begin(const char *state_dir);
/* All is well from now on. */
void oracles_system_healed(void);
/* All that was to end has ended. */
void oracles_system_finish(void);
/* The number of a dataset of n samples for a model: what its samples are follows from it. */
unsigned oracles_system_dataset(int64_t model_id, int64_t n);

#endif
