/* usage.h - what executors say was used, on its way to the database.
 *
 * An executor says a batch until it is told that it is stored, to whoever leads by then; the
 * database counts each number of a source once (store_usage_add). So nothing is kept here but which
 * batches are being written: one of each source, however often it is said meanwhile.
 */
#ifndef SH_SCHEDULER_RECORDS_USAGE_H
#define SH_SCHEDULER_RECORDS_USAGE_H

#include "common/msg.h"
#include "scheduler/database/store.h"

#define USAGE_MAX_WRITING 128

struct exec;
struct sched;

struct usage {                                           /* zeroed: none */
    char writing[USAGE_MAX_WRITING][STORE_SOURCE_BYTES]; /* sources; "" = a free place */
};

void usage_on_batch(struct sched *s, struct exec *e, const struct msg_usage *m);

#endif
