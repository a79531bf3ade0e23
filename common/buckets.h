/* buckets.h - sizes that a request is filled up to, by symbol (dim.h).
 *
 * As JSON {"length": [64, 128, 256]}: the sizes rise. A size runs at the first that is not smaller;
 * one that is greater than all of them runs as it is, and so does 1, which broadcasts. Pure.
 */
#ifndef SH_COMMON_BUCKETS_H
#define SH_COMMON_BUCKETS_H

#include "common/dim.h"

#define SH_MAX_BUCKETS 16u     /* of one symbol */
#define SH_BUCKETS_TEXT 2048u  /* bytes of the JSON */
#define SH_BUCKET_MOST 1048576 /* the greatest size */
#define SH_BUCKET_FROM 2u      /* the least size that is filled up */

struct sh_buckets {
    uint32_t v[SH_MAX_SYMBOLS][SH_MAX_BUCKETS], n[SH_MAX_SYMBOLS];
};

/* j: NULL is none. s: NULL: only the form is checked, and out is not used. Fails: SH_E_INVALID. */
int sh_buckets_read(const json_t *j, const struct sh_symbols *s, struct sh_buckets *out,
                    struct sh_err *err);
/* That symbol k runs at. */
uint32_t sh_bucket_of(const struct sh_buckets *b, size_t k, uint32_t size);

#endif
