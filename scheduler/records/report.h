/* report.h - what people may read of placements and predictions: written to the database.
 *
 * A table and not questions over the links, because every API process can answer from it, a new
 * leader needs no word with the old one, and a scheduler that is busy answers nobody. Once a second
 * the placements that changed go in one transaction, every REPORT_EXECS_S seconds what executors
 * do, every REPORT_PROFILE_S the profiles of versions that ran; at most REPORT_MAX_ROWS rows each,
 * the rest follows. What is lost when a scheduler dies is sent anew by the executors.
 */
#ifndef SH_SCHEDULER_RECORDS_REPORT_H
#define SH_SCHEDULER_RECORDS_REPORT_H

#include "scheduler/peers/executors.h"

#include <stdbool.h>
#include <stdint.h>

#define REPORT_MAX_ROWS 1024u
#define REPORT_PROFILE_S 5u
#define REPORT_EXECS_S 2u

struct sched;

struct report {
    bool reset[EXECS_MAX]; /* its rows are from before it connected: away with them */
    bool flushing;
    uint64_t n_seconds;
};

void report_second(struct sched *s); /* nothing while a write is on its way */

#endif
