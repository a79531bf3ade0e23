/* usage.h - what tenants used here, on its way to the database.
 *
 * It is counted in a ledger (ledger.h) before anybody hears of what was done, and handed to the
 * scheduler in batches, once a second, each until USAGE_STORED says that the database has it. What
 * other executors of the same state folder have left is taken over and handed over too.
 */
#ifndef SH_EXECUTOR_REPORT_USAGE_H
#define SH_EXECUTOR_REPORT_USAGE_H

#include "executor/report/ledger.h"
#include "executor/report/uplink.h"

struct usage;

/* In <state_dir>/usage. KEEPS executor, its name, and up. *out: OWNED, usage_free(). */
int usage_new(const char *state_dir, const char *executor, const struct uplink *up,
              struct usage **out, struct sh_err *err);
void usage_free(struct usage *u); /* what is not stored stays in its file. NULL is allowed */

/* A run of requests. n_requests, n_samples: those that were answered with a result. */
void usage_run(struct usage *u, const char *tenant, int64_t version_id, int64_t gpu_ns,
               size_t n_requests, int64_t n_samples);
/* A job used the device for so long since it was last counted, and has got as far as `step`, of so
 * many samples each. */
void usage_job(struct usage *u, int64_t job, int64_t gpu_ns, int64_t step, int64_t step_samples);

void usage_on_up(struct usage *u); /* a scheduler has been greeted: what it may not know is said */
void usage_on_stored(struct usage *u, const struct msg_usage_stored *m);
void usage_second(struct usage *u);
/* At the end of this process: what is left is handed over. True when all is stored, when nobody
 * takes it, or when it has been asked for USAGE_DRAIN_NS. */
#define USAGE_DRAIN_NS ((int64_t)2000000000)
bool usage_drain(struct usage *u);

#endif
