/* worker_life.c - the states of a worker, as in the table of pool.h. */
#include "common/life.h"
#include "executor/pool/pool.h"

static const char *const STATE_NAME[WORKER_N_STATES] = {
    [WORKER_STARTING] = "starting", [WORKER_STANDBY] = "standby",   [WORKER_ACTIVE] = "active",
    [WORKER_PARKED] = "parked",     [WORKER_CLEANING] = "cleaning", [WORKER_DEAD] = "dead",
};
static const unsigned NEXT[WORKER_N_STATES] = {
    [WORKER_STARTING] = SH_LIFE(WORKER_STANDBY) | SH_LIFE(WORKER_DEAD),
    [WORKER_STANDBY] = SH_LIFE(WORKER_ACTIVE) | SH_LIFE(WORKER_DEAD),
    [WORKER_ACTIVE] = SH_LIFE(WORKER_STANDBY) | SH_LIFE(WORKER_PARKED) | SH_LIFE(WORKER_DEAD),
    [WORKER_PARKED] = SH_LIFE(WORKER_ACTIVE) | SH_LIFE(WORKER_STANDBY) | SH_LIFE(WORKER_CLEANING) |
                      SH_LIFE(WORKER_DEAD),
    [WORKER_CLEANING] = SH_LIFE(WORKER_STANDBY) | SH_LIFE(WORKER_DEAD),
    [WORKER_DEAD] = SH_LIFE(WORKER_STARTING),
};
const struct sh_life WORKER_LIFE = {"worker", WORKER_N_STATES, STATE_NAME, NEXT};
