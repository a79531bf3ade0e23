/* waiting.h - which requests wait where, and what the next pass has to look at.
 *
 * A request that is OPEN or READY is in one list: that of the executor it was placed on, `fresh` if
 * it has none yet and a pass has to look at it, or `parked` if a pass has looked and found nothing
 * (its model, its shape or its sizes are still to come). An executor is touched when something
 * changed for those who wait there. A pass looks at what is fresh and touched, and at nothing else,
 * so it costs what has changed and not what there is.
 *
 * Time alone changes things too: waiting_tick() brings everything to a pass in turn.
 */
#ifndef SH_SCHEDULER_PASS_WAITING_H
#define SH_SCHEDULER_PASS_WAITING_H

#include "scheduler/peers/executors.h"

struct request;
struct sched;

struct waiting {
    struct exec_requests fresh, parked;
    struct exec *touched; /* list, by next_touched */
    uint32_t next_exec;   /* waiting_tick() goes on here */
};

/* Puts it where its state and its executor say; the executor is touched. */
void waiting_sort(struct sched *s, struct request *r);
void waiting_leave(struct sched *s, struct request *r); /* it is in no list; touches as well */
void waiting_touch(struct sched *s, struct exec *e);
void waiting_touch_all(struct sched *s); /* and what is parked is fresh again */
void waiting_unpark(struct sched *s);    /* only the latter */
void waiting_tick(struct sched *s);

/* For the pass: the first that is fresh is parked from now on; NULL: none is. */
struct request *waiting_take(struct sched *s);
struct exec *waiting_take_exec(struct sched *s); /* untouched from now on; NULL: none was */

#endif
