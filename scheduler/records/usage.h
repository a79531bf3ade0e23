/* usage.h - carries the usage that executors report to the database.
 *
 * An executor sends a batch to the current leader until it is told that the batch is stored; the
 * database counts each number of a source once (store_usage_add). So nothing is kept here except
 * which batches are being written: one for each source, however often it is sent meanwhile.
 */
#ifndef SH_SCHEDULER_RECORDS_USAGE_H
#define SH_SCHEDULER_RECORDS_USAGE_H

#include "common/msg.h"
#include "scheduler/database/store.h"

#define USAGE_MAX_WRITING 128

struct exec;
struct sched;

struct usage {                                           /* zeroed: none */
    char writing[USAGE_MAX_WRITING][STORE_SOURCE_BYTES]; /* sources; "": free */
};

void usage_on_batch(struct sched *s, struct exec *e, const struct msg_usage *m);

#endif
