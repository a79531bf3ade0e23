/* trace_shares.h - a rate of traces that tenants share: each may have what the others leave.
 *
 * Each tenant has a bucket, as in api/cache/rate.h, that holds a second's tokens. But there is one
 * rate for all: what flows in is divided equally among the buckets that are not full. So who asks
 * for less than an equal part always gets it, and what is left is divided among the others (max-min
 * fairness). Only buckets that are not full are kept: a tenant is forgotten when its own is full.
 *
 * In t seconds with n tenants at most (t + n) * per_second are taken. Thread-safe.
 */
#ifndef SH_API_INFER_TRACE_SHARES_H
#define SH_API_INFER_TRACE_SHARES_H

#include "common/err.h"

#include <stdbool.h>

#define TRACE_SHARES_MAX 1024u /* buckets; for one more the fullest is forgotten */

struct trace_shares;

int trace_shares_new(struct trace_shares **out, struct sh_err *err); /* OWNED, .._free() */
void trace_shares_free(struct trace_shares *s);                      /* NULL is allowed */
/* per_second > 0; it may differ from call to call. False: the tenant has had its share. */
bool trace_shares_take(struct trace_shares *s, int64_t tenant_id, double per_second,
                       int64_t now_ns);

#endif
