/* explain.h - explains to people why a job waits, or keeps its place.
 *
 * The answer is a JSON object: reason, text (plain words), position and waiting (its place among
 * the jobs that may start), estimated_wait_ms with basis, waits_for (what holds the executors),
 * factors (what the order is made of). Jobs of other tenants appear without their ids. Only jobs
 * held in memory (lines.h) are counted; nothing is known of the others.
 *
 * The estimate assumes that running jobs end at the rate measured since their start, that jobs
 * ahead take what they took before, or else as long as the running ones, and that nothing is
 * submitted, cancelled or taken away. There is no estimate if something has no measured rate.
 */
#ifndef SH_SCHEDULER_EXPLAIN_H
#define SH_SCHEDULER_EXPLAIN_H

#include "common/json.h"

struct sched;

/* *out: OWNED, json_decref(). Fails: SH_E_NOTFOUND (not a live job in memory), SH_E_NOMEM. */
int explain_job(struct sched *s, int64_t job, json_t **out, struct sh_err *err);

#endif
