/* scheduler.h - real schedulers in a simulation: the objects of scheduler/ but for main.c, the
 * statements (database.h) and the thread that runs them (dbthread.c). */
#ifndef SH_TESTS_SIM_SCHEDULER_H
#define SH_TESTS_SIM_SCHEDULER_H

#include "common/metrics.h"
#include "tests/sim/world.h"

struct sched;
struct sim_scheduler;

/* name: of its process, static; it listens at "tcp:NAME:1". options: as on the command line,
 * ends with NULL, BORROWED for good. Not started. Lives as long as the simulation. */
struct sim_scheduler *sim_scheduler_new(const char *name, unsigned host,
                                        const char *const *options);
void sim_scheduler_start(struct sim_scheduler *s);
void sim_scheduler_stop(struct sim_scheduler *s); /* SIGTERM: it gives its lease back, and ends */
struct sim_proc *sim_scheduler_proc(const struct sim_scheduler *s);
/* To look at only. NULL: it is dead. */
const struct sched *sim_scheduler_look(const struct sim_scheduler *s);

/* What its code calls instead of nanosleep(), sh_random(), sh_metric_add(). */
struct timespec;
int sim_nanosleep(const struct timespec *t, struct timespec *rest);
int sim_bytes(void *out, size_t n, struct sh_err *err);
void sim_count(enum sh_metric m, const char *const *labels, double v);

/* dbthread.c: what the process that waits has sent to the database goes on. */
void sim_dbthreads_pump(void);
void sim__dbthread_go_on(void *arg, uint64_t turn);

#endif
