/* op_attn.h - ATTENTION and ATTENTION_BWD: what they compute, and where their operands are (op.h).
 *
 * lse, F32 [B, H, Sq], is the natural logarithm of the sum of exp of a row's scores, including
 * scale and mask. Only training has it, and only with it may u.attn.ratio be > 0: after the softmax
 * some weights become 0 (philox.h), and the others are multiplied by 1 / (1 - ratio), or by 0 if
 * ratio is 1. A row whose scores are all -Inf is NaN or, with u.attn.zero_hidden, zeros.
 *
 * The mask is broadcast to [B, H, Sq, Sk]; with n along B, a divisor of B, sample b uses b % n.
 *
 * In training, views cover each tensor of which q, k or v is a view, each element once. If k or v
 * is a view of the same tensor as an earlier operand, its gradient goes there too, and d_k or d_v
 * is DEV_NONE. d_mask, [B, H, Sq, Sk], is the gradient of every score. The backward operation drops
 * the same weights. It may skip a row whose lse is below -1e6, because a mask of large numbers
 * hides all its keys.
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
    int64_t mask_stride[4]; /* along batch, head, q row, k row; 0: broadcast */
};
/* in: q, k, v, mask (NULL: none). False: the shapes do not fit. */
bool dev_attn_of(const struct dev_op *op, const struct dev_tensor *const in[4],
                 const struct dev_tensor *y, struct dev_attn *out);
/* The same with all operands of an ATTENTION or ATTENTION_BWD of g. */
bool dev_attn_of_op(const struct dev_graph *g, const struct dev_op *op, struct dev_attn *out);
/* The first operand that is a view of the same tensor as operand i; i itself: none. */
int dev_attn_shares(const struct dev_op *op, int i);
/* Checks for training too: views cover their tensors, and gradients fit the operands. */
bool dev_attn_trains(const struct dev_graph *g, const struct dev_op *op, const struct dev_attn *a);
/* Does dropout have a random number for each weight? If not, a device must refuse ratio > 0. */
bool dev_attn_can_drop(const struct dev_attn *a);

#endif
