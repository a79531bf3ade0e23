/* strided.h - where the elements of a tensor lie in the tensor that it was cut out of: TRANSPOSE,
 * SLICE and aliases only rename elements, and a kernel that takes strides can read through them.
 *
 * The tensor is seen by axes (the dims that the caller gives, in row-major order of its elements);
 * the answer is one stride an axis, in elements of the source, which is as far up as there is one.
 */
#ifndef SH_RUNTIME_MODEL_STRIDED_H
#define SH_RUNTIME_MODEL_STRIDED_H

#include "runtime/model/ir.h"

struct strided {
    uint32_t source;             /* root of the tensor that all elements are in */
    int64_t at;                  /* of element 0 in it */
    int64_t stride[SH_MAX_RANK]; /* 0 of an axis of one element */
};

/* Called for each operation on the way that is none of the above; *t: its result. true: it went
 * above it, to *t, which has the same shape. NULL: nothing else is on the way. */
typedef bool strided_peel(void *ctx, uint32_t *t);

void strided_of(const struct ir *ir, const struct ir_uses *u, uint32_t t, uint32_t rank,
                const int64_t *dims, strided_peel *peel, void *ctx, struct strided *out);

#endif
