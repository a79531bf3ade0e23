/* pass_int.h - between pass.c (jobs) and pass_requests.c. */
#ifndef SH_SCHEDULER_PASS_PASS_INT_H
#define SH_SCHEDULER_PASS_PASS_INT_H

#include "scheduler/sched.h"

/* Room for n of an array of struct pass. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int pass__grow(void *array, size_t *cap, size_t n, size_t one, struct sh_err *err);
struct snapshot pass__conf(const struct sched *s); /* now, and what options say */
struct snap_exec pass__exec(const struct sched *s, const struct exec *e, int64_t now_ns);
void pass__took(int64_t began_ns);

#endif
