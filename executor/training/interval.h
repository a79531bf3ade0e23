/* interval.h - how long a job trains between two checkpoints, if nobody has said how long.
 *
 * Too often, and checkpoints cost training; too seldom, and a failure costs the steps since the
 * last one. With d the time that a checkpoint takes, f failures and s swaps in a time, Young (1974)
 * has
 *
 *   t = sqrt(2 d / f)                                     where s = 0
 *
 * A swap copies the state for another reason, so after each the interval begins anew, and less of
 * it has to be paid for. If they come by chance, what both cost in the mean is least where
 *
 *   x - 1 + exp(-x) = d s^2 / f      with x = s t         Young's for small x
 *
 * Derived: a checkpoint is due at the age t, so there are s / (exp(s t) - 1) of them in a time, and
 * the mean age of the newest copy is 1 / s - t / (exp(s t) - 1); d times the one and f times the
 * other are what they cost. Daly's (2006) further terms are for d of the order of 1 / f.
 *
 * Rates are those of the job since it came to this executor. What is not known yet is taken to be a
 * failure a day, and weighs as much as what an hour has shown. Pure. */
#ifndef SH_EXECUTOR_TRAINING_INTERVAL_H
#define SH_EXECUTOR_TRAINING_INTERVAL_H

#include "common/units.h"

#include <stdint.h>

#define INTERVAL_MIN_NS SH_S(1)
#define INTERVAL_MAX_NS SH_S(900) /* half of what an alert waits (docs/alerts.md) */
#define INTERVAL_WRITES 10        /* so many times what it takes to write one to disk, at least */

struct interval_facts {
    int64_t copy_ns;  /* to copy the state to host memory: what training waits for at most */
    int64_t write_ns; /* to write it to disk; 0: unknown */
    int64_t here_ns;  /* since the job came */
    uint32_t n_failures, n_swaps; /* since then; swaps: copies of the state for other reasons */
};

int64_t interval_ns(const struct interval_facts *f);

#endif
