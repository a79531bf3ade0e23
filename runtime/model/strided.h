/* strided.h - where the elements of a tensor are in the tensor that it was cut from. TRANSPOSE,
 * SLICE and aliases only rename elements, and a kernel with strides can read through them.
 *
 * The caller gives the axes (dims, in row-major order of the elements); the result is one stride
 * for each axis, in elements of the source, which is as far up as possible.
 */
#ifndef SH_RUNTIME_MODEL_STRIDED_H
#define SH_RUNTIME_MODEL_STRIDED_H

#include "runtime/model/ir.h"

struct strided {
    uint32_t source;             /* root of the tensor that holds all elements */
    int64_t at;                  /* position of element 0 in it */
    int64_t stride[SH_MAX_RANK]; /* 0 for an axis of one element */
};

/* Called for each other operation on the way; *t: its result. True: it moved to the operand *t,
 * which has the same shape. NULL: there are no others on the way. */
typedef bool strided_peel(void *ctx, uint32_t *t);

void strided_of(const struct ir *ir, const struct ir_uses *u, uint32_t t, uint32_t rank,
                const int64_t *dims, strided_peel *peel, void *ctx, struct strided *out);

#endif
