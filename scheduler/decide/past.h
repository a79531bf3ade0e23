/* past.h - how long jobs took that have ended, by what makes them alike: the model, the kind and
 * the samples of a step.
 *
 * From it comes an estimate for a job that has not measured anything itself. A running mean for
 * each of the last PAST_MAX kinds of jobs, in which newer ones count more; a kind that was not seen
 * for longest makes room. In memory alone: a leader begins with what the database holds of the
 * last jobs that ended (store.h).
 *
 * Pure: time comes in as a parameter. Not thread-safe.
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
    double step_ns, start_ns; /* of a step; of what is before and behind the steps, 0: not known */
    uint64_t at;
};

struct past {
    struct past_kind kinds[PAST_MAX];
    size_t n;
    uint64_t clock;  /* counts what was added */
    double whole_ns; /* of a job of any kind; 0: none has ended */
};

/* One that succeeded. whole_ns: from its start to its end, 0: not known, as it was interrupted;
 * busy_ns: of these, what its steps took of the device; one of them may be 0. */
void past_add(struct past *p, const struct past_like *like, int64_t steps, int64_t busy_ns,
              int64_t whole_ns);
/* What so many steps would take, with all around them; 0: none of its like is known. */
int64_t past_expect_ns(const struct past *p, const struct past_like *like, int64_t steps);

#endif
