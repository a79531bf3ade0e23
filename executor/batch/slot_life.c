/* slot_life.c - the states of a slot, as in the diagram of batch.h. */
#include "common/life.h"
#include "executor/batch/batch_int.h"

static const char *const STATE_NAME[SLOT_N_STATES] = {"free", "busy", "full", "running", "ran"};
static const unsigned NEXT[SLOT_N_STATES] = {
    [SLOT_FREE] = SH_LIFE(SLOT_BUSY),
    [SLOT_BUSY] = SH_LIFE(SLOT_FULL) | SH_LIFE(SLOT_FREE),
    [SLOT_FULL] = SH_LIFE(SLOT_RUNNING),
    [SLOT_RUNNING] = SH_LIFE(SLOT_RAN) | SH_LIFE(SLOT_FULL) | SH_LIFE(SLOT_FREE),
    [SLOT_RAN] = SH_LIFE(SLOT_BUSY),
};
const struct sh_life SLOT_LIFE = {"slot", SLOT_N_STATES, STATE_NAME, NEXT};
