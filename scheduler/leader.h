/* leader.h - the lease: who may act.
 *
 * The lease is one row of the database with a holder, an epoch and an end. A scheduler takes it
 * after its end, with epoch + 1, and renews it every third of its time. Every write of a leader
 * checks holder and epoch in its transaction (store.h). Every command to an executor carries the
 * epoch, and executors refuse lower ones. So a leader that was replaced without noticing does no
 * harm. When a renewal finds another holder the scheduler stands down at once.
 *
 * While the database is unreachable nobody can take the lease. The leader then goes on with
 * synchronous requests, which need no database, and starts no job; the first renewal that succeeds
 * or is refused decides. But if an API reports meanwhile that it has reached the database, only we
 * are cut off, and somebody else may take the lease. Then we stop before it ends (lease_watch.h),
 * and executors and APIs look for the next leader.
 */
#ifndef SH_SCHEDULER_LEADER_H
#define SH_SCHEDULER_LEADER_H

#include "common/err.h"

struct sched;
struct leader;

/* Starts trying to take the lease. *out: OWNED, leader_free(). */
int leader_new(struct sched *s, struct leader **out, struct sh_err *err);
/* An API has just reached the database. */
void leader_on_word(struct sched *s);
/* Releases the lease if it is ours, so that a standby can take it at once. NULL is allowed. */
void leader_free(struct leader *l);

#endif
