/* predict.c - see predict.h. */
#include "scheduler/decide/predict.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HALF_LIFE_NS 1e9  /* a run that is so old counts half as much as one of this moment */
#define OUTLIER_WEIGHT 1. /* of the slowest runs so much stands alone */
#define USUAL_PERCENTILE 99.
#define MANY_WEIGH 8.   /* runs that weigh less together have a median, not a mean */
#define SPREADS 3       /* a slow one exceeds the median by so many of what half of them differ */
#define STRETCH_STEP .3 /* of the logarithm, where a slow run's time did not hold */
#define STRETCH_LEAST (-1.4)
#define STRETCH_MOST 3.5
#define STRETCH_FLOOR .05    /* of the usual time: where runs have been all the same */
#define RESERVE_STEP .02     /* of the logarithm */
#define RESERVE_BROKEN .0004 /* of all promises, in the long run */
#define MOST_SCALED 4.       /* what runs of another batch say of this one's profile */

int64_t predict_copy_ns(uint64_t bytes, double ns_per_byte)
{
    const double ns = (double)bytes * ns_per_byte;

    return ns < (double)PREDICT_MAX_COPY_NS ? (int64_t)ns : PREDICT_MAX_COPY_NS;
}

int64_t predict_missing_ns(uint64_t image_bytes, uint64_t resident_bytes, double ns_per_byte,
                           double disk_ns_per_byte)
{
    if (resident_bytes >= image_bytes)
        return 0;
    return predict_copy_ns(image_bytes - resident_bytes, SH_MAX(ns_per_byte, disk_ns_per_byte));
}

/* So that in the long run this part of all held (Gibbs and Candes). */
static void adapt(double *x, double step, double part, bool held)
{
    *x += step * (held ? part - 1 : part);
    *x = SH_MIN(SH_MAX(*x, STRETCH_LEAST), STRETCH_MOST);
}

void predict_promise(double *reserve, bool kept)
{
    adapt(reserve, RESERVE_STEP, 1 - RESERVE_BROKEN, kept);
}

int64_t predict_slack(int64_t a_ns, int64_t b_ns)
{
    const double a = (double)a_ns, b = (double)b_ns;

    if (a_ns <= 0 || b_ns <= 0)
        return SH_MAX(a_ns, b_ns);
    return (int64_t)ceil(sqrt(a * a + b * b));
}

unsigned predict_bucket(uint32_t batch)
{
    unsigned b = 0;

    while (b + 1 < PREDICT_N_BUCKETS && (1u << b) < batch)
        b++;
    return b;
}

void predict_profile(struct predict *p, const struct msg_profile *profile, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned b = predict_bucket(profile[i].batch);
        double ns = profile[i].compute_ns, tail = profile[i].tail_ns;

        if (!isfinite(ns) || ns <= 0 || ns >= 1e15)
            continue;
        p->profile_ns[b] = SH_MAX((int64_t)ns, 1);
        p->tail_ns[b] = isfinite(tail) && tail >= 0 && tail < ns ? (int64_t)tail : p->profile_ns[b];
    }
}

/* Slot `at` has another time from now on. */
static void put_in_order(struct predict_ring *r, uint8_t at, int64_t ns)
{
    uint32_t i = 0;

    while (i < r->n && r->order[i] != at)
        i++;
    if (i == r->n)
        r->n++; /* a new slot */
    for (; i + 1 < r->n && r->ns[r->order[i + 1]] < ns; i++)
        r->order[i] = r->order[i + 1];
    for (; i > 0 && r->ns[r->order[i - 1]] > ns; i--)
        r->order[i] = r->order[i - 1];
    r->order[i] = at;
    r->ns[at] = ns;
}

static void add_to_ring(struct predict_ring *r, int64_t ns, int64_t now_ns)
{
    put_in_order(r, (uint8_t)r->next, ns);
    r->at_ns[r->next] = now_ns;
    r->next = (r->next + 1) % PREDICT_RING;
    r->n_runs++;
}

void predict_add(struct predict *p, uint32_t batch, int64_t run_ns, int64_t now_ns)
{
    add_to_ring(&p->ring[predict_bucket(batch)], run_ns, now_ns);
    p->n_runs++;
}

void predict_add_cold(struct predict *p, uint32_t batch, int64_t over_ns, int64_t now_ns)
{
    add_to_ring(&p->cold, SH_MAX(over_ns, 0), now_ns);
    p->ring[predict_bucket(batch)].n_runs++;
    p->n_runs++;
}

struct fresh { /* the runs of a ring that are not too old, the fastest first */
    int64_t ns[PREDICT_RING];
    double weight[PREDICT_RING], sum;
    size_t n;
};

/* 2^-x, near enough: straight between whole numbers. Of each run that is looked at, so several
 * hundred times for a request: without a call of the library. */
static double age_weight(int64_t age_ns)
{
    const double x = (double)SH_MAX(age_ns, 0) / HALF_LIFE_NS;
    const unsigned whole = (unsigned)x;
    const double part = 1 - (x - whole) / 2;

    _Static_assert(PREDICT_MAX_AGE_NS / (int64_t)HALF_LIFE_NS < 32, "a shift of 32 bits");
    return whole ? part / (double)(1u << whole) : part; /* mostly the runs are of this moment */
}

static void take_fresh(const struct predict_ring *r, int64_t now_ns, struct fresh *out)
{
    double sum = 0; /* in memory each would wait for the one before */
    size_t n = 0;

    for (uint32_t i = 0; i < r->n; i++) {
        const int64_t age = now_ns - r->at_ns[r->order[i]];

        if (age > PREDICT_MAX_AGE_NS)
            continue;
        out->ns[n] = r->ns[r->order[i]];
        sum += out->weight[n++] = age_weight(age);
    }
    out->n = n;
    out->sum = sum;
}

/* How many of them count: without those that may exceed the percentile, and without outliers. */
static size_t without_slowest(const struct fresh *f, double percentile)
{
    double left = SH_MAX(f->sum * (1 - percentile / 100), OUTLIER_WEIGHT) * (1 + 1e-9);
    size_t n = f->n;

    while (n > 1 && f->weight[n - 1] <= left)
        left -= f->weight[--n];
    return n;
}

static double weighted_mean(const struct fresh *f, size_t n)
{
    double sum = 0, weight = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)f->ns[i] * f->weight[i];
        weight += f->weight[i];
    }
    return sum / weight;
}

/* By so much or less half of them differ from the one in the middle. */
static int64_t half_spread(const struct fresh *f)
{
    const size_t mid = f->n / 2;
    size_t low = mid, high = mid + 1; /* those from low up to high are within it */
    int64_t ns = 0;

    while (high - low < (f->n + 2) / 2 && (low > 0 || high < f->n)) {
        const int64_t down = low > 0 ? f->ns[mid] - f->ns[low - 1] : INT64_MAX;
        const int64_t up = high < f->n ? f->ns[high] - f->ns[mid] : INT64_MAX;

        ns = SH_MIN(down, up);
        low -= down <= up;
        high += down > up;
    }
    return ns;
}

/* Few runs, or old ones: only the newest two or three would count, and any could be left out as an
 * outlier. */
static bool has_few(const struct fresh *f)
{
    return f->sum < MANY_WEIGH;
}

/* What one more run takes. */
static double usual(const struct fresh *f)
{
    return has_few(f) ? (double)f->ns[f->n / 2]
                      : weighted_mean(f, without_slowest(f, USUAL_PERCENTILE));
}

void predict_judge(struct predict *p, enum predict_kind kind, double percentile, bool held)
{
    adapt(&p->stretch[kind], STRETCH_STEP, percentile / 100, held);
}

/* By how much a slow run exceeds the usual one, as far as that has held. */
static int64_t stretched_ns(const struct predict *p, enum predict_kind kind, int64_t slack_ns,
                            int64_t usual_ns)
{
    const double by = exp(p->stretch[kind]);

    return (int64_t)((double)slack_ns * by + (double)usual_ns * SH_MAX(by - 1, 0) * STRETCH_FLOOR);
}

/* The profile of the bucket, else of the nearest one, scaled by size when that one is smaller. */
static int64_t from_profile(const struct predict *p, unsigned bucket)
{
    if (p->profile_ns[bucket] > 0)
        return p->profile_ns[bucket];
    for (unsigned b = bucket + 1; b < PREDICT_N_BUCKETS; b++) {
        if (p->profile_ns[b] > 0)
            return p->profile_ns[b];
    }
    for (unsigned b = bucket; b-- > 0;) {
        if (p->profile_ns[b] > 0)
            return p->profile_ns[b] << (bucket - b);
    }
    return 0;
}

/* By how much runs of a bucket exceed its profile: what several others may ask in a moment. */
struct excess {
    double by[PREDICT_N_BUCKETS]; /* 0: nobody has asked; below 0: it has no runs or no profile */
};

static double excess_of(const struct predict *p, unsigned b, int64_t now_ns, struct excess *x)
{
    struct fresh f;

    if (x->by[b] != 0)
        return x->by[b];
    f.n = 0;
    if (p->ring[b].n >= PREDICT_MIN && p->profile_ns[b] > 0)
        take_fresh(&p->ring[b], now_ns, &f);
    if (f.n < PREDICT_MIN)
        return x->by[b] = -1;
    x->by[b] = usual(&f) / (double)p->profile_ns[b];
    return x->by[b] = SH_MIN(SH_MAX(x->by[b], 1 / MOST_SCALED), MOST_SCALED);
}

/* The profile of the bucket, as runs of the nearest one that has some exceed theirs. */
static int64_t scaled_profile(const struct predict *p, unsigned bucket, int64_t now_ns,
                              struct excess *x)
{
    const int64_t profile = from_profile(p, bucket);

    for (unsigned d = 1; d < PREDICT_N_BUCKETS && profile > 0; d++) {
        for (int side = -1; side <= 1; side += 2) {
            const unsigned b = bucket + (unsigned)(side * (int)d);
            const double by = b < PREDICT_N_BUCKETS ? excess_of(p, b, now_ns, x) : -1;

            if (by > 0)
                return SH_MAX((int64_t)((double)profile * by), 1);
        }
    }
    return profile;
}

/* The profile's, in proportion. */
static int64_t tail_of(const struct predict *p, unsigned bucket, int64_t usual_ns)
{
    double part = 1;

    if (p->profile_ns[bucket] > 0)
        part = (double)p->tail_ns[bucket] / (double)p->profile_ns[bucket];
    return (int64_t)((double)usual_ns * part);
}

static void predict(const struct predict *p, unsigned b, double percentile, int64_t now_ns,
                    struct excess *x, struct predict_time *out)
{
    struct fresh f;
    int64_t profile;

    take_fresh(&p->ring[b], now_ns, &f);
    *out = (struct predict_time){.source = PREDICT_FROM_RUNS, .fastest_ns = f.n ? f.ns[0] : 0};
    if (f.n >= PREDICT_MIN) {
        out->slow_ns = f.ns[without_slowest(&f, percentile) - 1];
        out->usual_ns = SH_MAX((int64_t)usual(&f), 1);
        if (has_few(&f))
            out->slow_ns = SH_MAX(out->slow_ns, out->usual_ns + SPREADS * half_spread(&f));
        else
            out->usual_ns = SH_MIN(out->usual_ns, out->slow_ns);
    } else if ((profile = scaled_profile(p, b, now_ns, x)) > 0) {
        out->source = PREDICT_FROM_PROFILE;
        out->slow_ns = out->usual_ns = profile;
    } else {
        out->source = PREDICT_FROM_GUESS;
        out->slow_ns = out->usual_ns = f.n ? f.ns[f.n - 1] : PREDICT_UNKNOWN_NS;
    }
    out->slow_ns =
        out->usual_ns + stretched_ns(p, PREDICT_WARM, out->slow_ns - out->usual_ns, out->usual_ns);
    out->tail_ns = tail_of(p, b, out->usual_ns);
}

void predict_run(const struct predict *p, uint32_t batch, double percentile, int64_t now_ns,
                 struct predict_time *out)
{
    predict(p, predict_bucket(batch), percentile, now_ns, &(struct excess){{0}}, out);
}

void predict_runs(const struct predict *p, unsigned last, double percentile, int64_t now_ns,
                  struct predict_time *out)
{
    struct excess x = {{0}};

    for (unsigned b = 0; b <= last; b++)
        predict(p, b, percentile, now_ns, &x, &out[b]);
}

void predict_few_add(struct predict_few *f, double v)
{
    float order[PREDICT_FEW];
    uint32_t n = 0;

    f->v[f->n++ % PREDICT_FEW] = (float)v;
    for (; n < SH_MIN(f->n, PREDICT_FEW); n++) {
        uint32_t i = n;

        for (; i > 0 && order[i - 1] > f->v[n]; i--)
            order[i] = order[i - 1];
        order[i] = f->v[n];
    }
    if (n >= PREDICT_FEW_LEAST)
        f->median = n % 2 ? order[n / 2] : (order[n / 2 - 1] + order[n / 2]) / 2;
}

void predict_add_over(struct predict *p, enum predict_kind kind, int64_t forecast_ns,
                      int64_t run_ns, int64_t now_ns)
{
    predict_few_add(&p->over_ns[kind], (double)(run_ns - forecast_ns));
    p->over_at_ns[kind] = now_ns;
}

int64_t predict_over_ns(const struct predict *p, enum predict_kind kind, int64_t now_ns)
{
    const int64_t over = (int64_t)p->over_ns[kind].median;

    return over > 0 && now_ns - p->over_at_ns[kind] > PREDICT_MAX_AGE_NS ? 0 : over;
}

unsigned predict_before(bool is_other, int64_t rest_ns)
{
    static const int64_t REST_NS[PREDICT_N_RESTS - 1] = {SH_MS(4), SH_MS(16), SH_MS(64)};
    unsigned rest = 0;

    while (rest < PREDICT_N_RESTS - 1 && rest_ns >= REST_NS[rest])
        rest++;
    return is_other * PREDICT_N_RESTS + rest;
}

int64_t predict_after(const struct predict *p, uint32_t batch, unsigned before, int64_t usual_ns)
{
    const struct predict_few *of =
        &p->after_ns[predict_bucket(batch)][before - before % PREDICT_N_RESTS];
    const unsigned rest = before % PREDICT_N_RESTS;

    for (unsigned d = 0; d < PREDICT_N_RESTS; d++) { /* the nearest rest that is known */
        if (d <= rest && of[rest - d].n >= PREDICT_FEW_LEAST)
            return (int64_t)of[rest - d].median;
        if (rest + d < PREDICT_N_RESTS && of[rest + d].n >= PREDICT_FEW_LEAST)
            return (int64_t)of[rest + d].median;
    }
    return usual_ns;
}

void predict_add_after(struct predict *p, uint32_t batch, unsigned before, int64_t run_ns)
{
    predict_few_add(&p->after_ns[predict_bucket(batch)][before], (double)run_ns);
}

int64_t predict_cold_ns(const struct predict *p, enum predict_kind kind, double percentile,
                        int64_t now_ns)
{
    struct fresh f;

    take_fresh(&p->cold, now_ns, &f);
    return f.n > 1 ? stretched_ns(p, kind, f.ns[without_slowest(&f, percentile) - 1], 0) : 0;
}

static double asked_until(const struct predict *p, int64_t now_ns)
{
    return p->asked * exp2(-(double)SH_MAX(now_ns - p->asked_ns, 0) / PREDICT_ASKED_NS);
}

void predict_ask(struct predict *p, uint32_t samples, int64_t now_ns)
{
    p->asked = asked_until(p, now_ns) + samples;
    p->asked_ns = now_ns;
}

double predict_asked(const struct predict *p, int64_t now_ns)
{
    return asked_until(p, now_ns) * log(2) / PREDICT_ASKED_NS;
}

/* The least of the n > 0 values in order that so many of them do not exceed. */
static int64_t at_percentile(const struct predict_ring *r, double percentile)
{
    double rank = ceil((double)r->n * percentile / 100);

    return r->ns[r->order[(size_t)SH_MIN(SH_MAX(rank, 1.0), (double)r->n) - 1]];
}

size_t predict_recent(const struct predict_ring *r, int64_t now_ns,
                      int64_t out[static PREDICT_RING])
{
    struct fresh f;

    take_fresh(r, now_ns, &f);
    for (uint32_t i = 0; !f.n && i < r->n; i++)
        out[i] = r->ns[r->order[i]];
    if (!f.n)
        return r->n;
    memcpy(out, f.ns, f.n * sizeof(*out));
    return f.n;
}

void predict_line(const struct predict *p, unsigned bucket, double percentile, int64_t now_ns,
                  struct predict_line *out)
{
    const struct predict_ring *r = &p->ring[bucket];
    struct predict_time t;

    predict(p, bucket, percentile, now_ns, &(struct excess){{0}}, &t);
    *out = (struct predict_line){
        .predicted_ns = t.slow_ns, .source = t.source, .runs = r->n_runs, .recent = r->n};
    if (r->n) {
        out->p50_ns = at_percentile(r, 50);
        out->p99_ns = at_percentile(r, 99);
    }
}
