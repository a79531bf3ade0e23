/* predict.h - how long a run of one model version takes, from recent runs and from the profile.
 *
 * One ring of recent runs for each batch bucket (1, 2, 4 ... 1024). With at least PREDICT_MIN runs
 * not older than PREDICT_MAX_AGE_NS the answer is their 99th percentile; before that the profile
 * that the executor measured when it loaded the model. Runs age, because a model whose requests are
 * all refused for one slow run would never be measured again.
 *
 * Pure: time comes in as a parameter. Not thread-safe.
 */
#ifndef SH_SCHEDULER_PREDICT_H
#define SH_SCHEDULER_PREDICT_H

#include "common/msg.h"

#include <stddef.h>
#include <stdint.h>

#define PREDICT_N_BUCKETS 11u
#define PREDICT_RING 64u
#define PREDICT_MIN 10u
#define PREDICT_MAX_AGE_NS INT64_C(10000000000)
#define PREDICT_UNKNOWN_NS \
    INT64_C(20000000) /* neither run nor profile: a guess, on the safe side */

struct predict_ring {
    int64_t ns[PREDICT_RING], at_ns[PREDICT_RING];
    uint32_t n, next;
};

struct predict {
    struct predict_ring ring[PREDICT_N_BUCKETS];
    int64_t profile_ns[PREDICT_N_BUCKETS]; /* 0 = not measured */
};

/* The bucket whose size is the least power of two >= batch; the last one for anything larger. */
unsigned predict_bucket(uint32_t batch);
void predict_profile(struct predict *p, const struct msg_profile *profile, size_t n);
void predict_add(struct predict *p, uint32_t batch, int64_t run_ns, int64_t now_ns);
/* Always positive. */
int64_t predict_run_ns(const struct predict *p, uint32_t batch, int64_t now_ns);

#endif
