/* fake_executor.h - executors that are simple and right: the scheduler's and the API's side of
 * their protocol with times of their own, for simulations of the scheduler with many of them.
 *
 * One has a device on which one run happens at a time, and at most one job. What it counted as used
 * and its checkpoints outlive its process, as files do; nothing else does.
 */
#ifndef SH_TESTS_SIM_FAKE_EXECUTOR_H
#define SH_TESTS_SIM_FAKE_EXECUTOR_H

#include "tests/sim/world.h"

#include <stdbool.h>
#include <stdint.h>

struct fake;

/* name: static; schedulers: addresses, BORROWED for good. is_local: APIs of its host share memory
 * with it. Not started. */
struct fake *fake_new(const char *name, unsigned host, const char *schedulers, bool is_local);
void fake_start(struct fake *f);
struct sim_proc *fake_proc(const struct fake *f);

/* Faults. */
void fake_fail_job(struct fake *f, int rc);               /* what it trains fails */
void fake_fail_loads(struct fake *f, int rc, unsigned n); /* its next n loads fail */
/* Says that a request of an API is done, which it was not given. Not to one of its own host. */
void fake_lie(struct fake *f, uint64_t api_id, uint64_t rid);
void fake_slow(struct fake *f, int64_t times, int64_t for_ns); /* all runs and jobs */

/* The job that it has and that goes on; 0: none. *epoch: of the order to start it. */
int64_t fake_live_job(const struct fake *f, uint32_t *attempt, uint64_t *epoch);
bool fake_has_to_save(const struct fake *f, int64_t job); /* it was told to, and has not */
/* It is connected, and has said all that it holds to the leader of this epoch; 0: it is not. */
uint64_t fake_synced_with(const struct fake *f);
size_t fake_n_runs(const struct fake *f);

/* What all of them counted as used, since the beginning. */
struct fake_used {
    bool is_job;
    char tenant[64]; /* of runs */
    int64_t id;      /* of the version, of the job */
    int64_t gpu_ns, requests, samples;
    int64_t step, step_samples; /* of a job */
};
const struct fake_used *fake_used(size_t *n);
bool fake_all_stored(void); /* every ledger is empty */

#endif
