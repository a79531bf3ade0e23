/* buckets.h - sizes that requests are padded up to, by symbol (dim.h).
 *
 * As JSON {"length": [64, 128, 256]}, in ascending order. A size is padded to the first bucket that
 * is not smaller. A size above all buckets runs as it is, and so does 1, which broadcasts. Pure.
 */
#ifndef SH_COMMON_BUCKETS_H
#define SH_COMMON_BUCKETS_H

#include "common/dim.h"

#define SH_MAX_BUCKETS 16u     /* for one symbol */
#define SH_BUCKETS_TEXT 2048u  /* bytes of the JSON */
#define SH_BUCKET_MOST 1048576 /* the largest bucket */
#define SH_BUCKET_FROM 2u      /* the smallest size that is padded */

struct sh_buckets {
    uint32_t v[SH_MAX_SYMBOLS][SH_MAX_BUCKETS], n[SH_MAX_SYMBOLS];
};

/* j: NULL: none. s: NULL: checks the form only and leaves out alone. Fails: SH_E_INVALID. */
int sh_buckets_read(const json_t *j, const struct sh_symbols *s, struct sh_buckets *out,
                    struct sh_err *err);
/* The size at which symbol k runs. */
uint32_t sh_bucket_of(const struct sh_buckets *b, size_t k, uint32_t size);

#endif
