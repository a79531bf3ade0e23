/* answer.h - a what-if question: what would become of a snapshot as it is, and with changes.
 *
 * A question is {"snapshot": {...}, "changes": [...], "hours": N, "trace": TEXT}. changes:
 * change.h; hours: of the recorded time that comes again from now on, 0: only what waits and runs
 * now; trace: requests that come instead of recorded ones.
 *
 * The answer has "before" and "after", each with the same members: what becomes of all jobs, and of
 * those of each tenant; of all requests, and of those of each tenant for each model. Jobs and
 * requests are looked at one without the other.
 *
 * Of a job, waiting is from the moment of the snapshot, or from a later arrival, to the first
 * start; a job that had a GPU at the snapshot does not count there. "share" is a tenant's part of
 * the GPU time that was given out in the first half of the simulated time, while most of them still
 * have work; of requests, their part of all GPU time. The same question has the same answer.
 */
#ifndef SH_SIMULATE_ANSWER_H
#define SH_SIMULATE_ANSWER_H

#include "simulate/world.h"

#define ANSWER_DAYS 60 /* nobody looks further */

/* *out: OWNED. Fails: SH_E_INVALID, SH_E_TOOBIG, SH_E_NOMEM. */
int answer(const json_t *question, json_t **out, struct sh_err *err);

/* answer_requests.c: adds "requests" and "models" to an object. */
int answer__requests(const struct world *w, json_t *out, struct sh_err *err);

#endif
