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

void predict_add(struct predict *p, uint32_t batch, int64_t run_ns, int64_t now_ns)
{
    struct predict_ring *r = &p->ring[predict_bucket(batch)];

    if (run_ns <= 0)
        return;
    r->ns[r->next] = run_ns;
    r->at_ns[r->next] = now_ns;
    r->next = (r->next + 1) % PREDICT_RING;
    if (r->n < PREDICT_RING)
        r->n++;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* p99 of what is fresh, 0 if that is less than PREDICT_MIN runs. *max_out: the slowest fresh run.
 * */
static int64_t recent(const struct predict_ring *r, int64_t now_ns, int64_t *max_out)
{
    int64_t ns[PREDICT_RING];
    size_t n = 0;

    *max_out = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        if (now_ns - r->at_ns[i] > PREDICT_MAX_AGE_NS)
            continue;
        ns[n++] = r->ns[i];
        *max_out = SH_MAX(*max_out, r->ns[i]);
    }
    if (n < PREDICT_MIN)
        return 0;
    qsort(ns, n, sizeof(ns[0]), by_value);
    return ns[(n * 99 + 99) / 100 - 1];
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

int64_t predict_run_ns(const struct predict *p, uint32_t batch, int64_t now_ns)
{
    unsigned b = predict_bucket(batch);
    int64_t max, ns;

    ns = recent(&p->ring[b], now_ns, &max);
    if (ns == 0)
        ns = from_profile(p, b);
    if (ns == 0)
        ns = max;
    return ns > 0 ? ns : PREDICT_UNKNOWN_NS;
}
