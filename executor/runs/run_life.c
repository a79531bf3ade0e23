/* run_life.c - the phases of a run, as in the diagram of switch.h. */
#include "common/life.h"
#include "executor/runs/switch_int.h"

static const char *const PHASE_NAME[RUN_N_PHASES] = {"queued", "memory", "send", "active"};
static const unsigned NEXT[RUN_N_PHASES] = {
    [RUN_QUEUED] = SH_LIFE(RUN_MEMORY),
    [RUN_MEMORY] = SH_LIFE(RUN_SEND),
    [RUN_SEND] = SH_LIFE(RUN_ACTIVE) | SH_LIFE(RUN_MEMORY) | SH_LIFE(RUN_QUEUED),
    [RUN_ACTIVE] = SH_LIFE(RUN_SEND) | SH_LIFE(RUN_QUEUED),
};
const struct sh_life RUN_LIFE = {"run", RUN_N_PHASES, PHASE_NAME, NEXT};
