/* rate.h - how many inference requests a tenant may start: a token bucket for each tenant.
 *
 * A bucket holds `burst` tokens and gains per_second tokens each second; a request takes one. Each
 * API process counts for itself: with n of them a tenant gets up to n times its rate. The table has
 * a fixed size; when a neighbourhood is full the bucket that was idle the longest makes room, and
 * is full when it comes back. Thread-safe.
 */
#ifndef SH_API_CACHE_RATE_H
#define SH_API_CACHE_RATE_H

#include "common/err.h"

struct rate;

int rate_new(struct rate **out, struct sh_err *err); /* OWNED, rate_free() */
void rate_free(struct rate *r);                      /* NULL is allowed */
/* 0: go ahead. Else the milliseconds until there is a token. per_second > 0; burst 0: one second's
 * tokens, at least 1. */
int64_t rate_take(struct rate *r, int64_t tenant_id, double per_second, int64_t burst,
                  int64_t now_ns);
/* The same, with what a client may be told: `most` requests in `window_s`; `left` of them now, and
 * more (if some are left: all) after reset_s. */
struct rate_left {
    int64_t most, window_s, left, reset_s;
};
int64_t rate_take_left(struct rate *r, int64_t tenant_id, double per_second, int64_t burst,
                       int64_t now_ns, struct rate_left *out);

#endif
