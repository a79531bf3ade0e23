/* usage.h - reports what tenants use here, for the database.
 *
 * Usage goes into a ledger (ledger.h) before anybody hears of the work. The scheduler gets it in
 * batches, once a second; a batch is sent again until USAGE_STORED says that the database has it.
 * Ledgers that other executors of the same state folder left behind are taken over.
 */
#ifndef SH_EXECUTOR_REPORT_USAGE_H
#define SH_EXECUTOR_REPORT_USAGE_H

#include "executor/report/ledger.h"
#include "executor/report/uplink.h"

struct usage;

/* Opens a ledger in <state_dir>/usage. KEEPS executor, its name, and up. *out: OWNED,
 * usage_free(). */
int usage_new(const char *state_dir, const char *executor, const struct uplink *up,
              struct usage **out, struct sh_err *err);
void usage_free(struct usage *u); /* usage not stored stays in its file. NULL is allowed */

/* Counts a run of requests. n_requests, n_samples: those that got a result. */
void usage_run(struct usage *u, const char *tenant, int64_t version_id, int64_t gpu_ns,
               size_t n_requests, int64_t n_samples);
/* Counts a job's time on the device since the last call, and its progress: `step`, of step_samples
 * samples each. */
void usage_job(struct usage *u, int64_t job, int64_t gpu_ns, int64_t step, int64_t step_samples);

void usage_on_up(struct usage *u); /* a scheduler was greeted: sends what it may not know */
void usage_on_stored(struct usage *u, const struct msg_usage_stored *m);
void usage_second(struct usage *u);
/* At the end of the process: hands over the rest. True: all is stored, nobody takes it, or
 * USAGE_DRAIN_NS have passed. */
#define USAGE_DRAIN_NS ((int64_t)2000000000)
bool usage_drain(struct usage *u);

#endif
