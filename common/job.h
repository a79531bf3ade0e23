/* job.h - what API, scheduler and executor know alike of a job. */
#ifndef SH_COMMON_JOB_H
#define SH_COMMON_JOB_H

#define SH_JOB_BATCH 32 /* samples of a training step, where the spec says none */

/* SQL: `at` of an event. Not now(), when the transaction began: the job's row is locked by then, so
 * its events have times in their order, unless the clock is set. */
#define SH_JOB_EVENT_TIME "clock_timestamp()"

#endif
