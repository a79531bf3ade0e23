/* usage.h - device time by tenant, model and class, added up in memory and flushed once a second.
 *
 * While the database is away sums grow, rows do not: their number is bounded by tenants x models
 * and by USAGE_MAX_ROWS; what has no row then is counted in `dropped`.
 */
#ifndef SH_SCHEDULER_USAGE_H
#define SH_SCHEDULER_USAGE_H

#include "scheduler/store.h"

#define USAGE_MAX_ROWS 16384

struct sched;

struct usage {
    struct store_usage_row *rows; /* OWNED */
    size_t n, cap;
    uint64_t dropped;
    int64_t seq;
    bool flushing;
};

void usage_fini(struct usage *u);
/* row: the amounts are added to what is there for its tenant, model and class. */
void usage_count(struct usage *u, const struct store_usage_row *row);
void usage_flush(struct sched *s); /* nothing while a flush is on its way */

#endif
