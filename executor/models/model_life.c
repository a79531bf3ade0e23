/* model_life.c - the phases of a model, as in the table of store.h. */
#include "common/life.h"
#include "executor/models/model_int.h"

static const char *const PHASE_NAME[MODEL_N_PHASES] = {
    [MODEL_BUILDING] = "building",
    [MODEL_READY] = "ready",
    [MODEL_FAILED] = "failed",
    [MODEL_GOING] = "going",
};
static const unsigned NEXT[MODEL_N_PHASES] = {
    [MODEL_BUILDING] = SH_LIFE(MODEL_READY) | SH_LIFE(MODEL_FAILED) | SH_LIFE(MODEL_GOING),
    [MODEL_READY] = SH_LIFE(MODEL_GOING),
    [MODEL_FAILED] = SH_LIFE(MODEL_BUILDING) | SH_LIFE(MODEL_GOING),
};
const struct sh_life MODEL_LIFE = {"model", MODEL_N_PHASES, PHASE_NAME, NEXT};
