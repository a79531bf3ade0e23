/* report.h - writes to the database what people and what-if questions ask for: placements,
 * predictions, arrivals of requests.
 *
 * They are tables, and not queries over the links, so that every API process can answer from it, a
 * new leader needs nothing from the old one, and a busy scheduler answers nobody. Once a second
 * changed placements are written in one transaction, every REPORT_EXECS_S seconds the work of
 * executors, every REPORT_PROFILE_S the profiles of versions that ran: at most REPORT_MAX_ROWS rows
 * each, the rest later. If a scheduler dies, the executors send again what was lost, but for the
 * last arrivals: only what-if questions rest on those.
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

struct report { /* zeroed; report_fini() */
    bool flushing;
    uint64_t n_seconds;
    struct report_slice { /* of arrivals, that is over and not yet written */
        char *rows;       /* OWNED; NULL: there is none */
        uint64_t n_requests;
        int64_t begun_ns, end_ns;
    } slice;
};

void report_fini(struct report *r);  /* what was not written is lost */
void report_second(struct sched *s); /* nothing while a write is on its way */

#endif
