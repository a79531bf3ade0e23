/* sweep.h - what is old goes: events, ended jobs, usage, the audit. By the leader alone.
 *
 * Events, usage and audit are in partitions (decision 15), which are made ahead and dropped here:
 * one a turn, in one statement. It waits 50 ms for its locks; while somebody holds one, the next
 * round tries again, and what should go goes row by row.
 *
 * Every SWEEP_EVERY_NS a round goes through the kinds (store.h). A kind is done in batches, one a
 * turn of SWEEP_PAUSE_NS, each in a transaction of its own under a short statement timeout, on a
 * connection of its own: neither a lease nor a job ever waits for one. A batch that does not finish
 * in time is halved. What fails is logged and left to the next round.
 */
#ifndef SH_SCHEDULER_RECORDS_SWEEP_H
#define SH_SCHEDULER_RECORDS_SWEEP_H

#include "scheduler/database/dbthread.h"
#include "scheduler/database/store.h"

#define SWEEP_EVERY_NS INT64_C(60000000000)
#define SWEEP_PAUSE_NS INT64_C(100000000)

struct sched;

struct sweep {
    struct dbthread *db; /* OWNED */
    int64_t next_ns;     /* of the next batch or round */
    enum store_sweep_kind kind;
    int64_t batch; /* rows */
    bool running;  /* a batch is on its way */
};

int sweep_init(struct sched *s, struct sh_err *err);
void sweep_fini(struct sched *s); /* waits for the batch that is on its way, not for more */
void sweep_collect(struct sched *s);
void sweep_reset(struct sched *s); /* we lead no more */
void sweep_tick(struct sched *s, int64_t now_ns);

#endif
