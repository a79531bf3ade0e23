/* device_time.h - who has the device: every moment of its wall time, once.
 *
 * In this order:
 *
 *   training   a worker was told to train and has not stopped; a run that is current waits for that
 *   a run      it is current: it gets its memory, its weights come, it computes
 *   nobody     a worker compiles or profiles a version (load), or there is nothing to do (idle)
 *
 * Jobs count their own time, from when their worker was told to go on until it has stopped. What a
 * run held is asked for when it gives the device up, and shared out: to its tenants' bills and to
 * what the switch cost. So no moment is billed twice, and all of them add up to the wall time but
 * for the current run's.
 *
 * Pure: the caller has the clock. Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_REPORT_DEVICE_TIME_H
#define SH_EXECUTOR_REPORT_DEVICE_TIME_H

#include <stdbool.h>
#include <stdint.h>

struct device_time {
    int64_t at_ns; /* all before has its owner */
    bool trains, runs, loads;
    int64_t held_ns, load_ns, idle_ns; /* not asked for yet */
};

/* What has become of the time up to now belongs to who had the device; from now on to: */
void device_time_trains(struct device_time *t, bool on, int64_t now_ns);
void device_time_runs(struct device_time *t, bool on, int64_t now_ns);
void device_time_loads(struct device_time *t, bool on, int64_t now_ns);
/* What the current run held, or the last one, since this was last asked. */
int64_t device_time_take_held(struct device_time *t, int64_t now_ns);
/* What nobody had, since this was last asked. */
void device_time_take_rest(struct device_time *t, int64_t now_ns, int64_t *load_ns,
                           int64_t *idle_ns);

#endif
