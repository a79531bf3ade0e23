/* explain.h - why a job waits, or keeps its place: for people, when somebody asks.
 *
 * The answer is a JSON object: reason, text (plain words), position and waiting (its place among
 * the jobs that may start), estimated_wait_ms with basis, waits_for (what holds the executors),
 * factors (what the order is made of). Jobs of other tenants appear without their number. Counted
 * are the jobs that are held (lines.h); of one that is not, nothing is known here.
 *
 * The estimate assumes that what runs now ends at the rate measured since it started, that jobs
 * ahead take what they took before or else as long as those that run now, and that nothing is
 * submitted, cancelled or taken away. Where something has no measured rate there is no estimate.
 */
#ifndef SH_SCHEDULER_EXPLAIN_H
#define SH_SCHEDULER_EXPLAIN_H

#include "common/json.h"

struct sched;

/* *out: OWNED, json_decref(). Fails: SH_E_NOTFOUND (not a live job that we know), SH_E_NOMEM. */
int explain_job(struct sched *s, int64_t job, json_t **out, struct sh_err *err);

#endif
