#include "scheduler/predict.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

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
        double ns = profile[i].compute_ns;

        if (isfinite(ns) && ns > 0 && ns < 1e15)
            p->profile_ns[predict_bucket(profile[i].batch)] = SH_MAX((int64_t)ns, 1);
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

void predict_add(struct predict *p, uint32_t batch, int64_t run_ns, int64_t now_ns)
{
    struct predict_ring *r = &p->ring[predict_bucket(batch)];

    if (run_ns <= 0)
        return;
    put_in_order(r, (uint8_t)r->next, run_ns);
    r->at_ns[r->next] = now_ns;
    r->next = (r->next + 1) % PREDICT_RING;
    r->n_runs++;
    p->n_runs++;
}

/* The runs that are fresh (max_age_ns < 0: all), in order; how many there are. */
static size_t sorted(const struct predict_ring *r, int64_t now_ns, int64_t max_age_ns,
                     int64_t ns[static PREDICT_RING])
{
    size_t n = 0;

    for (uint32_t i = 0; i < r->n; i++)
        if (max_age_ns < 0 || now_ns - r->at_ns[r->order[i]] <= max_age_ns)
            ns[n++] = r->ns[r->order[i]];
    return n;
}

/* The least of the n > 0 values in order that so many of them do not exceed. */
static int64_t at_percentile(const int64_t *ns, size_t n, double percentile)
{
    double rank = ceil((double)n * percentile / 100);

    return ns[(size_t)SH_MIN(SH_MAX(rank, 1.0), (double)n) - 1];
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

static int64_t predict(const struct predict *p, unsigned b, double percentile, int64_t now_ns,
                       enum predict_source *source)
{
    int64_t ns[PREDICT_RING], profile = from_profile(p, b);
    size_t n = sorted(&p->ring[b], now_ns, PREDICT_MAX_AGE_NS, ns);

    *source = PREDICT_FROM_RUNS;
    if (n >= PREDICT_MIN)
        return at_percentile(ns, n, percentile);
    *source = PREDICT_FROM_PROFILE;
    if (profile > 0)
        return profile;
    *source = PREDICT_FROM_GUESS;
    return n ? ns[n - 1] : PREDICT_UNKNOWN_NS;
}

int64_t predict_run_ns(const struct predict *p, uint32_t batch, double percentile, int64_t now_ns)
{
    enum predict_source source;

    return predict(p, predict_bucket(batch), percentile, now_ns, &source);
}

void predict_line(const struct predict *p, unsigned bucket, double percentile, int64_t now_ns,
                  struct predict_line *out)
{
    int64_t ns[PREDICT_RING];
    size_t n = sorted(&p->ring[bucket], now_ns, -1, ns);

    *out = (struct predict_line){.runs = p->ring[bucket].n_runs, .recent = (uint32_t)n};
    out->predicted_ns = predict(p, bucket, percentile, now_ns, &out->source);
    if (n) {
        out->p50_ns = at_percentile(ns, n, 50);
        out->p99_ns = at_percentile(ns, n, 99);
    }
}
