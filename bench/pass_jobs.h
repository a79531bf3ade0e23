/* pass_jobs.h - the parts of bench/pass.c about jobs: the index alone, and a whole leader. */
#ifndef SH_BENCH_PASS_JOBS_H
#define SH_BENCH_PASS_JOBS_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct jobs_size {
    uint32_t execs, tenants, jobs;
};

/* Print what one event of a job costs. */
void bench_jobs(const struct jobs_size *n);
void bench_leader(const struct jobs_size *n);

/* bench/pass.c: ends the bench with what failed; CPU time of this thread; bytes on the heap. */
void must(int rc, const struct sh_err *err);
double cpu_us(void);
size_t heap(void);
/* What is measured, for people or as lines of JSON: the world, then facts and rows of a table. */
void title(const char *what, const struct jobs_size *n);
void fact(const char *what, double value);
void heading(void);
void print(const char *what, double *us, size_t n); /* sorts us */

#endif
