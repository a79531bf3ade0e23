/* past.h - how long ended jobs took, by what makes them alike: model, kind, samples of a step.
 *
 * It yields estimates for jobs that have no measurement of their own. It holds a running mean, in
 * which newer jobs count more, for each of the last PAST_MAX kinds; the kind that was not seen for
 * the longest time makes room. In memory only: a new leader starts with the last ended jobs in the
 * database (store.h).
 *
 * Pure: times are arguments. Not thread-safe.
 */
#ifndef SH_SCHEDULER_DECIDE_PAST_H
#define SH_SCHEDULER_DECIDE_PAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAST_MAX 256u

struct past_like {
    int64_t model_id, step_samples;
    bool is_batch;
};

struct past_kind {
    struct past_like like;
    double step_ns, start_ns; /* of one step; of all before and after the steps, 0: unknown */
    uint64_t at;
};

struct past {
    struct past_kind kinds[PAST_MAX];
    size_t n;
    uint64_t clock;  /* counts additions */
    double whole_ns; /* mean of jobs of any kind; 0: none has ended */
};

/* Adds a job that succeeded. whole_ns: from start to end; 0: unknown, as it was interrupted.
 * busy_ns: device time of its steps. One of the two may be 0. */
void past_add(struct past *p, const struct past_like *like, int64_t steps, int64_t busy_ns,
              int64_t whole_ns);
/* Expected time of so many steps and all around them; 0: no job like it is known. */
int64_t past_expect_ns(const struct past *p, const struct past_like *like, int64_t steps);

#endif
