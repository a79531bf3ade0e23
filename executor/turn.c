/* turn.c - see turn.h. */
#include "executor/turn.h"

#include "common/log.h"
#include "executor/batch/batch.h"
#include "executor/models/store.h"
#include "executor/pool/pool.h"
#include "executor/runs/switch.h"
#include "executor/training/train.h"

#include <inttypes.h>

static uint64_t most_steps(const struct exec *x)
{
    return TURN_PER_MODEL * (uint64_t)store_size(x->store) +
           TURN_PER_WORKER * (uint64_t)pool_size(x->pool) +
           TURN_PER_RUN * (switch_n_runs(x->sw) + TURN_OWN_RUNS) + TURN_PER_JOBS;
}

bool turn_run(struct exec *x)
{
    const uint64_t most = most_steps(x);

    for (uint64_t i = 0; i <= most; i++)
        if (!store_turn(x->store) && !switch_turn(x->sw) && !train_turn(x->train) &&
            !batch_turn(x->batch))
            return true;
    SH_ERROR("turn.bug", "steps=%" PRIu64 " msg=\"the modules do not come to rest\"", most);
    return false;
}
