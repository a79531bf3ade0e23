/* usage.h - reports what tenants use here, for the database.
 *
 * What is billed and what metrics say of device time are one number: shunt_device_seconds_total
 * counts what the ledger does, and what is on nobody's bill: switches, loads, idle time
 * (device_time.h).
 *
 * Usage goes into a ledger (ledger.h) before anybody hears of the work. The scheduler gets it in
 * batches, once a second; a batch is sent again until USAGE_STORED says that the database has it.
 * Ledgers that other executors of the same state folder left behind are taken over.
 */
#ifndef SH_EXECUTOR_REPORT_USAGE_H
#define SH_EXECUTOR_REPORT_USAGE_H

#include "common/units.h"
#include "executor/report/ledger.h"
#include "executor/report/recent.h"
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
struct usage_job {
    int64_t id;
    const char *tenant; /* BORROWED for the call */
    enum msg_use use;   /* training or batch */
};
void usage_job(struct usage *u, const struct usage_job *j, int64_t gpu_ns, int64_t step,
               int64_t step_samples);
void usage_switch(struct usage *u, const char *tenant, int64_t ns); /* had, but nobody's bill */

/* Says a switch with the next report of who has had the device. */
void usage_switched(struct usage *u, const struct msg_switch *s);
bool usage_has_training(const struct usage *u); /* it has the device, or has not stopped yet */

/* Who has the device from now on (device_time.h). */
void usage_trains(struct usage *u, bool on, int64_t now_ns);
void usage_runs(struct usage *u, bool on, int64_t now_ns);
void usage_loads(struct usage *u, bool on); /* in every turn: a worker compiles a version or job */
/* What the current run held, or the last one, since this was last asked. */
int64_t usage_take_held(struct usage *u);

void usage_on_up(struct usage *u); /* a scheduler was greeted: sends what it may not know */
void usage_on_stored(struct usage *u, const struct msg_usage_stored *m);
/* Wall time that is neither counted nor held by a run: what jobs will count. For tests. */
int64_t usage_uncounted_ns(const struct usage *u);
/* The device's energy so far; those who have it get their shares of it. */
void usage_energy(struct usage *u, double joules);
void usage_second(struct usage *u);
void usage_count_rest(struct usage *u); /* often: until then nobody sees the time that nobody had */
/* At the end of the process: hands over the rest. True: all is stored, nobody takes it, or
 * USAGE_DRAIN_NS have passed. */
#define USAGE_DRAIN_NS SH_S(2)
bool usage_drain(struct usage *u);

#endif
