/* version_life.c - the states of a version in a leader's memory, as in the table of models.h. */
#include "common/life.h"
#include "scheduler/models/models.h"

static const char *const STATE_NAME[MODEL_N_STATES] = {
#define X(name) [MODEL_##name] = #name,
    SH_VERSION_UPLOADED(X, )
#undef X
};
#define SETTLED (SH_LIFE(MODEL_READY) | SH_LIFE(MODEL_FAILED))
static const unsigned NEXT[MODEL_N_STATES] = {
    [MODEL_REGISTERED] = SH_LIFE(MODEL_LOADING) | SETTLED | SH_LIFE(MODEL_UNLOADING),
    [MODEL_LOADING] = SETTLED | SH_LIFE(MODEL_UNLOADING),
    [MODEL_READY] = SH_LIFE(MODEL_UNLOADING),
    [MODEL_FAILED] = SH_LIFE(MODEL_REGISTERED) | SH_LIFE(MODEL_UNLOADING),
    [MODEL_UNLOADING] = SH_LIFE(MODEL_UNLOADED) | SH_LIFE(MODEL_REGISTERED),
    [MODEL_UNLOADED] = SH_LIFE(MODEL_REGISTERED),
};
const struct sh_life VERSION_LIFE = {"version", MODEL_N_STATES, STATE_NAME, NEXT};
