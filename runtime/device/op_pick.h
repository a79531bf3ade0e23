/* op_pick.h - operations whose results have as many elements as the data decide (op.h).
 *
 * A result has room for all that there may be, and beside it is a count, I64 [1], of those that are
 * there, which come first; the others are 0.
 *
 * NONZERO  x -> places count: the numbers, in row-major order, of those of the n elements of x that
 *          are not 0 (NaN is not); places: I64 [n]
 * MASK     count -> y: BOOL; is the number of an element less than the count?
 * NMS      boxes [B, N, 4] scores [B, C, N], F32 -> picked count: of each class the boxes with a
 *          score above `score` (NaN is above nothing), best first, of equal ones the first, without
 *          those that one before them covers by more than `overlap` of what both cover; at most
 *          `most`. picked: I64 [B C most, 3] of batch, class, box
 */
#ifndef SH_RUNTIME_DEVICE_OP_PICK_H
#define SH_RUNTIME_DEVICE_OP_PICK_H

#include <stdbool.h>
#include <stdint.h>

struct dev_nms {
    int64_t most; /* of each class, at most N */
    float score, overlap;
    bool any_score;  /* but NaN */
    bool is_centred; /* a box is x, y of its centre, width, height; else y, x of two corners */
};

#endif
