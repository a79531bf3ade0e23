/* explain.h - what a request for an explanation keeps while the scheduler is asked. */
#ifndef SH_API_JOBS_EXPLAIN_H
#define SH_API_JOBS_EXPLAIN_H

struct explain;

void explain_free(struct explain *e); /* NULL is allowed; the scheduler must have answered */

#endif
