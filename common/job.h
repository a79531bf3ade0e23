/* job.h - what API, scheduler and executor know alike of a job. */
#ifndef SH_COMMON_JOB_H
#define SH_COMMON_JOB_H

#define SH_JOB_BATCH 32 /* samples of a training step, where the spec says none */

#endif
