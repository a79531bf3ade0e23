/* rate.c - see rate.h. */
#include "api/cache/rate.h"

#include "common/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define N_BUCKETS 4096u /* a power of two */
#define PROBES 8u

struct bucket {
    int64_t tenant_id; /* 0 = free */
    double tokens;
    int64_t at_ns; /* when `tokens` was right */
};

struct rate {
    pthread_mutex_t lock; /* the buckets; held for one look-up */
    struct bucket buckets[N_BUCKETS];
};

int rate_new(struct rate **out, struct sh_err *err)
{
    struct rate *r = calloc(1, sizeof(*r));

    *out = NULL;
    if (!r)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the request rates");
    pthread_mutex_init(&r->lock, NULL);
    *out = r;
    return SH_OK;
}

void rate_free(struct rate *r)
{
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* The tenant's bucket, else one for it: its tenant_id is another then. lock is held. */
static struct bucket *bucket_of(struct rate *r, int64_t tenant_id)
{
    uint64_t h = (uint64_t)tenant_id * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    struct bucket *oldest = NULL;

    for (uint64_t i = 0; i < PROBES; i++) {
        struct bucket *b = &r->buckets[(h + i) & (N_BUCKETS - 1)];

        if (b->tenant_id == tenant_id)
            return b;
        if (!oldest || b->at_ns < oldest->at_ns)
            oldest = b;
    }
    return oldest;
}

int64_t rate_take_left(struct rate *r, int64_t tenant_id, double per_second, int64_t burst,
                       int64_t now_ns, struct rate_left *out)
{
    double most = burst > 0 ? (double)burst : SH_MAX(ceil(per_second), 1.0);
    double tokens, reset_s;
    int64_t wait_ms = 0;
    struct bucket *b;

    pthread_mutex_lock(&r->lock);
    b = bucket_of(r, tenant_id);
    if (b->tenant_id != tenant_id)
        *b = (struct bucket){.tenant_id = tenant_id, .tokens = most, .at_ns = now_ns};
    /* Two threads may come in another order than they read the clock. */
    if (now_ns > b->at_ns) {
        b->tokens += (double)(now_ns - b->at_ns) / 1e9 * per_second;
        b->at_ns = now_ns;
    }
    b->tokens = SH_MIN(b->tokens, most); /* the quota may have become smaller */
    if (b->tokens >= 1)
        b->tokens -= 1;
    else
        wait_ms = (int64_t)ceil((1 - b->tokens) / per_second * 1e3);
    tokens = b->tokens;
    pthread_mutex_unlock(&r->lock);
    reset_s = wait_ms ? (double)wait_ms / 1e3 : (most - tokens) / per_second;
    *out = (struct rate_left){.most = (int64_t)most,
                              .window_s = (int64_t)SH_MAX(ceil(most / per_second), 1.0),
                              .left = (int64_t)tokens,
                              .reset_s = (int64_t)ceil(reset_s)};
    return wait_ms;
}

int64_t rate_take(struct rate *r, int64_t tenant_id, double per_second, int64_t burst,
                  int64_t now_ns)
{
    struct rate_left left;

    return rate_take_left(r, tenant_id, per_second, burst, now_ns, &left);
}
