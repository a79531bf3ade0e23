/* predict.h - what to expect of one model version: how long a run takes, how much is asked for.
 *
 * Times come from recent runs and from the profile.
 *
 * Warm runs, whose weights were on the device: one ring of recent ones for each batch bucket (1, 2,
 * 4 ... 1024). With at least PREDICT_MIN of them not older than PREDICT_MAX_AGE_NS two times come
 * from them, the newer ones counting more:
 *
 *   slow   the percentile of the model's latency target: so many of its runs are over by then
 *   usual  the mean of those that are no outliers: what one more run ahead in a queue costs
 *
 * What stands alone is an outlier, of a ring of any size: the slowest runs do not count while
 * together they weigh no more than one run of this moment, so that one stall of a host is forgotten
 * at once, and a few of them within seconds. Before there are so many runs the profile counts that
 * the executor measured when it loaded the model, scaled by what runs of the nearest batch take
 * beside theirs.
 *
 * Cold runs, which waited for weights, never count among those. Their time follows from the bytes
 * that are missing (decide.h) and `tail`, which the executor found with its exact grouping; a ring
 * of its own remembers by how much they exceeded that.
 *
 * What is asked for counts refused requests as well, and half as much after PREDICT_ASKED_NS.
 *
 * Pure: time comes in as a parameter. Not thread-safe.
 */
#ifndef SH_SCHEDULER_DECIDE_PREDICT_H
#define SH_SCHEDULER_DECIDE_PREDICT_H

#include "common/msg.h"

#include <stddef.h>
#include <stdint.h>

#define PREDICT_N_BUCKETS 11u
#define PREDICT_RING 64u /* at most 256 */
#define PREDICT_MIN 10u
#define PREDICT_MAX_AGE_NS INT64_C(10000000000)
#define PREDICT_ASKED_NS INT64_C(100000000)
#define PREDICT_MAX_COPY_NS (INT64_C(86400) * 1000000000)
#define PREDICT_UNKNOWN_NS \
    INT64_C(20000000) /* neither run nor profile: a guess, on the safe side */

struct predict_ring {
    int64_t ns[PREDICT_RING], at_ns[PREDICT_RING];
    uint8_t order[PREDICT_RING]; /* of the n slots, by ns */
    uint32_t n, next;
    uint64_t n_runs; /* in all, cold ones too */
};

struct predict {
    struct predict_ring ring[PREDICT_N_BUCKETS], cold;
    int64_t profile_ns[PREDICT_N_BUCKETS]; /* 0 = not measured */
    int64_t
        tail_ns[PREDICT_N_BUCKETS]; /* of the profile, that goes on once all weights are there */
    uint64_t n_runs;
    double asked;     /* samples, as they weighed ... */
    int64_t asked_ns; /* ... then */
};

enum predict_source { PREDICT_FROM_RUNS, PREDICT_FROM_PROFILE, PREDICT_FROM_GUESS };
struct predict_time { /* of a warm run; all positive, usual <= slow */
    int64_t usual_ns, slow_ns;
    int64_t tail_ns;    /* of the usual time, at most: what is left when the last weights arrive */
    int64_t fastest_ns; /* of the fresh runs; 0: there is none */
    enum predict_source source;
};
struct predict_line {                     /* of one bucket, for people */
    int64_t predicted_ns, p50_ns, p99_ns; /* p50, p99: of the recent runs, 0 without one */
    enum predict_source source;
    uint64_t runs;
    uint32_t recent;
};

/* For so many bytes; at most PREDICT_MAX_COPY_NS, whatever the link. */
int64_t predict_copy_ns(uint64_t bytes, double ns_per_byte);

/* The bucket whose size is the least power of two >= batch; the last one for anything larger. */
unsigned predict_bucket(uint32_t batch);
void predict_profile(struct predict *p, const struct msg_profile *profile, size_t n);
void predict_add(struct predict *p, uint32_t batch, int64_t run_ns, int64_t now_ns);
/* A cold run took so much longer than it should have; <= 0: it did not. */
void predict_add_cold(struct predict *p, uint32_t batch, int64_t over_ns, int64_t now_ns);
/* percentile: above 0, below 100. */
void predict_run(const struct predict *p, uint32_t batch, double percentile, int64_t now_ns,
                 struct predict_time *out);
/* What to allow a cold run beyond its own time; 0 when nothing is known. */
int64_t predict_cold_ns(const struct predict *p, double percentile, int64_t now_ns);
/* So many samples more are asked for, whether or not they are let in. */
void predict_ask(struct predict *p, uint32_t samples, int64_t now_ns);
/* Samples a ns that were asked for of late. */
double predict_asked(const struct predict *p, int64_t now_ns);
void predict_line(const struct predict *p, unsigned bucket, double percentile, int64_t now_ns,
                  struct predict_line *out);

#endif
