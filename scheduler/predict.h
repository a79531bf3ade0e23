/* predict.h - how long a run of one model version takes, from recent runs and from the profile.
 *
 * One ring of recent runs for each batch bucket (1, 2, 4 ... 1024). With at least PREDICT_MIN runs
 * not older than PREDICT_MAX_AGE_NS the answer is a percentile of them: that of the model's latency
 * target, so that so many of its runs are over by then; before that the profile that the executor
 * measured when it loaded the model. Runs age, because a model whose requests are
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
#define PREDICT_RING 64u /* at most 256 */
#define PREDICT_MIN 10u
#define PREDICT_MAX_AGE_NS INT64_C(10000000000)
#define PREDICT_UNKNOWN_NS \
    INT64_C(20000000) /* neither run nor profile: a guess, on the safe side */

struct predict_ring {
    int64_t ns[PREDICT_RING], at_ns[PREDICT_RING];
    uint8_t order[PREDICT_RING]; /* of the n slots, by ns */
    uint32_t n, next;
    uint64_t n_runs; /* in all */
};

struct predict {
    struct predict_ring ring[PREDICT_N_BUCKETS];
    int64_t profile_ns[PREDICT_N_BUCKETS]; /* 0 = not measured */
    uint64_t n_runs;
};

enum predict_source { PREDICT_FROM_RUNS, PREDICT_FROM_PROFILE, PREDICT_FROM_GUESS };
struct predict_line {                     /* of one bucket, for people */
    int64_t predicted_ns, p50_ns, p99_ns; /* p50, p99: of the recent runs, 0 without one */
    enum predict_source source;
    uint64_t runs;
    uint32_t recent;
};

/* The bucket whose size is the least power of two >= batch; the last one for anything larger. */
unsigned predict_bucket(uint32_t batch);
void predict_profile(struct predict *p, const struct msg_profile *profile, size_t n);
void predict_add(struct predict *p, uint32_t batch, int64_t run_ns, int64_t now_ns);
/* percentile: above 0, below 100. Always positive. */
int64_t predict_run_ns(const struct predict *p, uint32_t batch, double percentile, int64_t now_ns);
void predict_line(const struct predict *p, unsigned bucket, double percentile, int64_t now_ns,
                  struct predict_line *out);

#endif
