/* sweep.h - removes old rows: events, ended jobs, usage, the audit log. Only the leader does.
 *
 * Events, usage and audit are partitioned (decision 15). Partitions are created ahead and dropped
 * here, one each turn, in one statement. It waits 50 ms for its locks; if somebody holds one, the
 * next round tries again, and old rows are removed one by one.
 *
 * Every SWEEP_EVERY_NS a round goes through the kinds (store.h), in batches, one every
 * SWEEP_PAUSE_NS. Each batch is a transaction under a short statement timeout, on a connection and
 * thread of its own, so that no lease and no job ever waits for it. A batch that takes too long is
 * halved. A failure is logged and left to the next round.
 */
#ifndef SH_SCHEDULER_RECORDS_SWEEP_H
#define SH_SCHEDULER_RECORDS_SWEEP_H

#include "common/units.h"
#include "scheduler/database/dbthread.h"
#include "scheduler/database/store.h"

#define SWEEP_EVERY_NS SH_S(60)
#define SWEEP_PAUSE_NS SH_MS(100)

struct sched;

struct sweep {
    struct dbthread *db; /* OWNED */
    int64_t next_ns;     /* time of the next batch or round */
    enum store_sweep_kind kind;
    int64_t batch; /* rows */
    bool running;  /* a batch is under way */
};

int sweep_init(struct sched *s, struct sh_err *err);
void sweep_fini(struct sched *s); /* waits for the current batch only */
void sweep_collect(struct sched *s);
void sweep_reset(struct sched *s); /* we no longer lead */
void sweep_tick(struct sched *s, int64_t now_ns);

#endif
