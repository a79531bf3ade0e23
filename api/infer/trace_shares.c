/* trace_shares.c - see trace_shares.h. */
#include "api/infer/trace_shares.h"

#include "common/mem.h"

#include <pthread.h>
#include <stdlib.h>

struct bucket {
    int64_t tenant_id;
    double tokens;
};

struct trace_shares {
    pthread_mutex_t lock; /* of all; held for one pass over the buckets */
    int64_t at_ns;        /* when they were right */
    size_t n;
    struct bucket buckets[TRACE_SHARES_MAX];
};

int trace_shares_new(struct trace_shares **out, struct sh_err *err)
{
    struct trace_shares *s = calloc(1, sizeof(*s));

    *out = NULL;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the shares of traces");
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return SH_OK;
}

void trace_shares_free(struct trace_shares *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void forget_share(struct trace_shares *s, size_t at)
{
    s->buckets[at] = s->buckets[--s->n];
}

/* What a bucket cannot hold is left for the others, so a round either fills one or is the last. */
static void pour(struct trace_shares *s, double tokens, double most)
{
    bool any_full = true;

    while (any_full && s->n) {
        const double each = tokens / (double)s->n;

        any_full = false;
        for (size_t i = s->n; i-- > 0;) {
            struct bucket *b = &s->buckets[i];

            if (b->tokens + each < most)
                continue;
            tokens -= most - b->tokens;
            forget_share(s, i);
            any_full = true;
        }
    }
    for (size_t i = 0; i < s->n; i++)
        s->buckets[i].tokens += tokens / (double)s->n;
}

/* The tenant's bucket; a full one if it had none. */
static struct bucket *share_of(struct trace_shares *s, int64_t tenant_id, double most)
{
    size_t fullest = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (s->buckets[i].tenant_id == tenant_id)
            return &s->buckets[i];
        if (s->buckets[i].tokens > s->buckets[fullest].tokens)
            fullest = i;
    }
    if (s->n == TRACE_SHARES_MAX)
        forget_share(s, fullest);
    s->buckets[s->n] = (struct bucket){.tenant_id = tenant_id, .tokens = most};
    return &s->buckets[s->n++];
}

bool trace_shares_take(struct trace_shares *s, int64_t tenant_id, double per_second, int64_t now_ns)
{
    const double most = SH_MAX(per_second, 1.0);
    struct bucket *b;
    bool has_one;

    pthread_mutex_lock(&s->lock);
    if (now_ns > s->at_ns) { /* threads may come in another order than they read the clock */
        pour(s, (double)(now_ns - s->at_ns) / 1e9 * per_second, most);
        s->at_ns = now_ns;
    }
    b = share_of(s, tenant_id, most);
    has_one = b->tokens >= 1;
    if (has_one)
        b->tokens -= 1;
    pthread_mutex_unlock(&s->lock);
    return has_one;
}
