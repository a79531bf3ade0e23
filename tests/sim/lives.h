/* lives.h - which steps of which lives (common/life.h) the simulation has taken. */
#ifndef SH_TESTS_SIM_LIVES_H
#define SH_TESTS_SIM_LIVES_H

#define SIM_MAX_LIVES 16u
#define SIM_MAX_STATES 32u

struct sim_lives {
    unsigned taken[SIM_MAX_LIVES][SIM_MAX_STATES]; /* sets of SH_LIFE(to), by life and from */
};

extern struct sim_lives sim_lives; /* of this process; zeros at first */
void sim_lives_add(struct sim_lives *to, const struct sim_lives *more);
/* How many of the steps that there are, and each that was not taken. */
void sim_lives_print(const struct sim_lives *l);

#endif
