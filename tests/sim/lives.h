/* lives.h - which steps of which lives (common/life.h) the simulation has taken. */
#ifndef SH_TESTS_SIM_LIVES_H
#define SH_TESTS_SIM_LIVES_H

#include "tests/taken.h"

extern struct taken sim_lives; /* of this process; zeros at first */
void sim_lives_add(struct taken *to, const struct taken *more);
/* How many of the steps that there are, and each that was not taken. */
void sim_lives_print(const struct taken *l);

#endif
