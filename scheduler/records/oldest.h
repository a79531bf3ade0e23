/* oldest.h - how long the oldest of what waits has waited: a number that grows while nothing moves,
 * whatever else is answered. */
#ifndef SH_SCHEDULER_RECORDS_OLDEST_H
#define SH_SCHEDULER_RECORDS_OLDEST_H

struct sched;

/* Shows it for each tenant. Of jobs, those in memory count: the first of each line (lines.h). */
void oldest_second(struct sched *s);

#endif
