/* op_attn.h - ATTENTION and ATTENTION_BWD: what they compute, and where their operands lie (op.h).
 *
 * lse, F32 [B, H, Sq], is the natural logarithm of the sum of exp of a row's scores, scale and mask
 * included. Only training has it, and only then u.attn.ratio may be > 0: after the softmax a part
 * of the weights becomes 0 (which: philox.h), the others are multiplied by 1 / (1 - ratio), 0 if
 * ratio is 1. A row all of whose scores are -Inf is NaN, or, with u.attn.zero_hidden, zeros.
 *
 * The mask is broadcast to [B, H, Sq, Sk]; of n along B, a divisor of B, sample b has b % n.
 *
 * In training each tensor that q, k or v is a view of is covered by these views, each element once.
 * Where k or v is a view of what one before it is a view of, its gradient goes there, too, and d_k
 * or d_v is DEV_NONE. d_mask, [B, H, Sq, Sk], is the gradient of every score. Backward, the same
 * weights are dropped. A row whose lse is less than -1e6, as a mask of large numbers hides all its
 * keys, may be left out.
 */
#ifndef SH_RUNTIME_DEVICE_OP_ATTN_H
#define SH_RUNTIME_DEVICE_OP_ATTN_H

#include "runtime/device/op.h"

/* Where the operands of an ATTENTION lie, in elements, for q, k, v: head h of row s of batch b
 * begins at at[i] + b * batch_stride[i] + s * row_stride[i] + h * width. */
struct dev_attn {
    int64_t batch, heads, width, q_rows, k_rows;
    int64_t at[3], batch_stride[3], row_stride[3];
    int64_t mask_batches;   /* sample b has the mask of b % mask_batches */
    int64_t mask_stride[4]; /* along batch, head, q row, k row; 0 = broadcast */
};
/* in: q, k, v, mask (NULL: none). false: the shapes do not fit. */
bool dev_attn_of(const struct dev_op *op, const struct dev_tensor *const in[4],
                 const struct dev_tensor *y, struct dev_attn *out);
/* The same with all operands of an ATTENTION or ATTENTION_BWD of g. */
bool dev_attn_of_op(const struct dev_graph *g, const struct dev_op *op, struct dev_attn *out);
/* The first operand that operand i is a view of the same tensor as; i itself if there is none. */
int dev_attn_shares(const struct dev_op *op, int i);
/* Of training, beyond that: what operands are views of is covered; gradients fit to operands. */
bool dev_attn_trains(const struct dev_graph *g, const struct dev_op *op, const struct dev_attn *a);
/* Has dropout a random number for each weight? With ratio > 0 a device must refuse otherwise. */
bool dev_attn_can_drop(const struct dev_attn *a);

#endif
