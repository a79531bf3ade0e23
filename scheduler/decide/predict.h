/* predict.h - forecasts for one model version: how long a run takes, and the demand.
 *
 * Times come from recent runs and from the profile.
 *
 * Warm runs, whose weights were on the device, have a ring of recent times for each batch bucket
 * (1, 2, 4 ... 1024). If at least PREDICT_MIN of them are no older than PREDICT_MAX_AGE_NS, they
 * yield two times, in which newer runs count more:
 *
 *   slow   the percentile of the model's latency target: that share of its runs has ended by then
 *   usual  the mean without outliers, or the median where they weigh little: what one more run
 *          ahead in a queue costs
 *
 * Outliers are the slowest runs, in a ring of any size, as long as they together weigh no more than
 * one run of this moment. So one stall of a host is forgotten at once, and a few of them within
 * seconds. With fewer runs the profile counts, which the executor measured when it loaded the
 * model, scaled by what runs of the nearest batch take compared with their own profile.
 *
 * Cold runs, which waited for weights or unpacked them, never count among these. Their time follows
 * from the missing bytes (decide.h), from `tail`, which the executor found with its exact grouping,
 * and from what it says that the unpacking of what is packed on the device takes. What is
 * always added to that, or never needed of it, is learnt as `over_ns`; a separate ring remembers
 * how much single runs exceeded both.
 *
 * Whoever compares a run with its prediction says whether the slow time held (predict_judge). From
 * then on what a slow run takes beyond a usual one is stretched where that failed more often than
 * the percentile says, and shortened where it failed less often: each failure by so much as the
 * others undo (Gibbs and Candes, "Adaptive conformal inference"). So in the long run it holds as
 * often as it says, whatever the runs are like.
 *
 * A run takes longer after one of another model (its memory has to be opened to the worker, and no
 * cache holds its weights), and after a rest (processes sleep, caches are others'). What waits in a
 * queue is predicted without that; where a run is sent, what came before is known, and its time is
 * that in the middle of the last few such runs.
 *
 * Demand includes refused requests, and halves every PREDICT_ASKED_NS.
 *
 * Pure: times are arguments. Not thread-safe.
 */
#ifndef SH_SCHEDULER_DECIDE_PREDICT_H
#define SH_SCHEDULER_DECIDE_PREDICT_H

#include "common/msg.h"
#include "common/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREDICT_N_BUCKETS 11u
#define PREDICT_RING 64u /* at most 256 */
#define PREDICT_MIN 4u
#define PREDICT_MAX_AGE_NS SH_S(30)
#define PREDICT_ASKED_NS SH_MS(100)
#define PREDICT_MAX_COPY_NS SH_DAYS(1)
#define PREDICT_UNKNOWN_NS SH_MS(20) /* a safe guess if there is neither run nor profile */

struct predict_ring {
    int64_t ns[PREDICT_RING], at_ns[PREDICT_RING];
    uint8_t order[PREDICT_RING]; /* the n slots, by ns */
    uint32_t n, next;
    uint64_t n_runs; /* in all, including cold ones */
};

#define PREDICT_FEW 9u
#define PREDICT_FEW_LEAST 3u /* one stall among fewer would be half of what is known */
#define PREDICT_N_RESTS 4u
#define PREDICT_N_BEFORE (2 * PREDICT_N_RESTS) /* predict_before() */

/* Of the weights of a run: what was on the device when it was sent. */
enum predict_kind {
    PREDICT_WARM,
    PREDICT_PARTIAL,
    PREDICT_COLD,
    PREDICT_PACKED, /* all, but some have to be unpacked */
    PREDICT_N_KINDS
};

struct predict_few { /* the last ones of something, and the one in the middle: of no stall */
    float v[PREDICT_FEW], median; /* 0: there are fewer than PREDICT_FEW_LEAST */
    uint32_t n;                   /* in all */
};

struct predict {
    struct predict_ring ring[PREDICT_N_BUCKETS], cold;
    int64_t profile_ns[PREDICT_N_BUCKETS]; /* 0: not measured */
    int64_t tail_ns[PREDICT_N_BUCKETS]; /* the part of it that remains once all weights are there */
    uint64_t n_runs;
    double stretch[PREDICT_N_KINDS];             /* logarithm of what slow times are stretched by */
    struct predict_few over_ns[PREDICT_N_KINDS]; /* of runs that wait for weights ... */
    int64_t over_at_ns[PREDICT_N_KINDS];         /* ... the last one */
    struct predict_few after_ns[PREDICT_N_BUCKETS][PREDICT_N_BEFORE]; /* of warm runs */
    double asked;     /* samples, with their weights ... */
    int64_t asked_ns; /* ... at this time */
};

enum predict_source { PREDICT_FROM_RUNS, PREDICT_FROM_PROFILE, PREDICT_FROM_GUESS };
struct predict_time { /* of a warm run; all > 0, usual <= slow */
    int64_t usual_ns, slow_ns;
    int64_t tail_ns;    /* part of usual, at most: what remains when the last weights arrive */
    int64_t fastest_ns; /* of the fresh runs; 0: none */
    enum predict_source source;
};
struct predict_line {                     /* one bucket, for people */
    int64_t predicted_ns, p50_ns, p99_ns; /* p50, p99: of recent runs; 0: none */
    enum predict_source source;
    uint64_t runs;
    uint32_t recent;
};

/* Time to copy so many bytes; at most PREDICT_MAX_COPY_NS. */
int64_t predict_copy_ns(uint64_t bytes, double ns_per_byte);
/* Time to copy what the device lacks, at the rate of the slower of link and disk; 0: nothing.
 * disk_ns_per_byte: 0 if all of it is in host memory. */
int64_t predict_missing_ns(uint64_t image_bytes, uint64_t resident_bytes, double ns_per_byte,
                           double disk_ns_per_byte);

/* By how much two runs, one after the other, may take longer together than usual, where each alone
 * may by so much: like independent errors, since they are seldom both slow. */
int64_t predict_slack(int64_t a_ns, int64_t b_ns);
/* What became of a promise. *reserve is the logarithm of how many times the slack of runs is kept
 * free before a limit: each broken promise raises it by so much as 2,500 kept ones lower it, so in
 * the long run one of so many breaks (Gibbs and Candes, as for slow runs). It covers what runs have
 * in common, for example a machine that is slow for a moment. */
void predict_promise(double *reserve, bool kept);
/* The bucket of the smallest power of two >= batch; the last bucket for anything larger. */
unsigned predict_bucket(uint32_t batch);
void predict_profile(struct predict *p, const struct msg_profile *profile, size_t n);
void predict_add(struct predict *p, uint32_t batch, int64_t run_ns /* > 0 */, int64_t now_ns);
/* A cold run took over_ns longer than it should have; <= 0: it did not. */
void predict_add_cold(struct predict *p, uint32_t batch, int64_t over_ns, int64_t now_ns);
/* It was sent as one of that kind, and took run_ns; by bytes and layers alone forecast_ns. */
void predict_add_over(struct predict *p, enum predict_kind kind, int64_t forecast_ns,
                      int64_t run_ns, int64_t now_ns);
/* What such runs take beyond that; below 0: they take less. What is more is forgotten with age: it
 * may be why there are no such runs, as whoever is refused teaches nothing. */
int64_t predict_over_ns(const struct predict *p, enum predict_kind kind, int64_t now_ns);
/* Did a run stay within what was predicted for a slow one? percentile: above 0, below 100. */
void predict_judge(struct predict *p, enum predict_kind kind, double percentile, bool held);
void predict_run(const struct predict *p, uint32_t batch, double percentile, int64_t now_ns,
                 struct predict_time *out);
/* Of the largest batch of each bucket up to the last one, into as many places. */
void predict_runs(const struct predict *p, unsigned last, double percentile, int64_t now_ns,
                  struct predict_time *out);
/* What came before a run on its executor, as a number less than PREDICT_N_BEFORE: is_other: a run
 * of another model. It ended rest_ns ago; <= 0: it has not. */
unsigned predict_before(bool is_other, int64_t rest_ns);
/* What a warm run takes that usually takes usual_ns > 0; and what it took. */
int64_t predict_after(const struct predict *p, uint32_t batch, unsigned before, int64_t usual_ns);
void predict_add_after(struct predict *p, uint32_t batch, unsigned before, int64_t run_ns);
/* Time to allow a run that waits for weights beyond its forecast; 0: unknown. */
int64_t predict_cold_ns(const struct predict *p, enum predict_kind kind, double percentile,
                        int64_t now_ns);
void predict_few_add(struct predict_few *f, double v);
/* Adds to the demand, whether or not the samples are admitted. */
void predict_ask(struct predict *p, uint32_t samples, int64_t now_ns);
/* Recent demand, in samples per ns. */
double predict_asked(const struct predict *p, int64_t now_ns);
/* Times of recent runs, or the last ones if none is recent; the fastest first. Returns how many. */
size_t predict_recent(const struct predict_ring *r, int64_t now_ns,
                      int64_t out[static PREDICT_RING]);
void predict_line(const struct predict *p, unsigned bucket, double percentile, int64_t now_ns,
                  struct predict_line *out);

#endif
