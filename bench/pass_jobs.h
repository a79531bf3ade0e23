/* pass_jobs.h - the part of bench/pass.c about jobs. */
#ifndef SH_BENCH_PASS_JOBS_H
#define SH_BENCH_PASS_JOBS_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct jobs_size {
    uint32_t execs, tenants, jobs;
};

/* Prints what one event of a job costs. */
void bench_jobs(const struct jobs_size *n);

/* bench/pass.c: ends the bench with what failed; CPU time of this thread; a row of the table. */
void must(int rc, const struct sh_err *err);
double cpu_us(void);
void print(const char *what, double *us, size_t n);

#endif
