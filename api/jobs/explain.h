/* explain.h - the state of a request that asks the scheduler for an explanation. */
#ifndef SH_API_JOBS_EXPLAIN_H
#define SH_API_JOBS_EXPLAIN_H

struct explain;

void explain_free(struct explain *e); /* NULL is allowed; the scheduler must have answered */

#endif
