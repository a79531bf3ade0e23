/* leader.h - the lease: who may act.
 *
 * The lease is one row of the database with a holder, an epoch and an end. It is taken when it has
 * ended, with epoch + 1, and renewed every third of its time. Every write of a leader checks holder
 * and epoch in its transaction (store.h), every order to an executor carries the epoch, and
 * executors ignore lower ones: a leader that was replaced without noticing can do no harm. When a
 * renewal finds another holder the scheduler stands down at once.
 *
 * While the database is not reachable nobody can take the lease either. The leader then goes on
 * with what needs no database, synchronous requests, and starts no job; the first renewal that
 * succeeds or fails decides. But if an API says meanwhile that it has reached the database, we are
 * cut off alone, and somebody else may take the lease: then we stop before it ends
 * (lease_watch.h), and executors and APIs look for the next leader.
 */
#ifndef SH_SCHEDULER_LEADER_H
#define SH_SCHEDULER_LEADER_H

#include "common/err.h"

struct sched;
struct leader;

/* Begins to try. *out: OWNED, leader_free(). */
int leader_new(struct sched *s, struct leader **out, struct sh_err *err);
/* An API has reached the database just now. */
void leader_on_word(struct sched *s);
/* Gives the lease back if it is ours, for a standby to take it at once. NULL is allowed. */
void leader_free(struct leader *l);

#endif
