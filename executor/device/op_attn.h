/* op_attn.h - where the operands of an ATTENTION lie (op.h). */
#ifndef SH_EXECUTOR_DEVICE_OP_ATTN_H
#define SH_EXECUTOR_DEVICE_OP_ATTN_H

#include "executor/device/op.h"

/* Where the operands of an ATTENTION lie, in elements, for q, k, v: head h of row s of batch b
 * begins at at[i] + b * batch_stride[i] + s * row_stride[i] + h * width. */
struct dev_attn {
    int64_t batch, heads, width, q_rows, k_rows;
    int64_t at[3], batch_stride[3], row_stride[3];
    int64_t mask_stride[4]; /* along batch, head, q row, k row; 0 = broadcast */
};
/* in: q, k, v, mask (NULL: none). false: the shapes do not fit. */
bool dev_attn_of(const struct dev_op *op, const struct dev_tensor *const in[4],
                 const struct dev_tensor *y, struct dev_attn *out);
/* The same with all operands of an ATTENTION or ATTENTION_BWD of g. */
bool dev_attn_of_op(const struct dev_graph *g, const struct dev_op *op, struct dev_attn *out);
/* Has dropout a random number for each weight? With ratio > 0 a device must refuse otherwise. */
bool dev_attn_can_drop(const struct dev_attn *a);

#endif
