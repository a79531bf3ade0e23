/* request_life.c - the states of a request, as in the table of request.h. */
#include "common/life.h"
#include "scheduler/pass/request.h"

static const char *const STATE_NAME[REQUEST_N_STATES] = {"open", "ready", "running", "lost"};
static const unsigned NEXT[REQUEST_N_STATES] = {
    [REQUEST_OPEN] = SH_LIFE(REQUEST_READY),
    [REQUEST_READY] = SH_LIFE(REQUEST_RUNNING),
    [REQUEST_RUNNING] = SH_LIFE(REQUEST_LOST),
    [REQUEST_LOST] = SH_LIFE(REQUEST_READY),
};
const struct sh_life REQUEST_LIFE = {"request", REQUEST_N_STATES, STATE_NAME, NEXT};
