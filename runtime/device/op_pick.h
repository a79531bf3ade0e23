/* op_pick.h - operations whose number of results depends on the data (op.h).
 *
 * A result has room for the most that there can be; beside it is a count, I64 [1], of the valid
 * elements, which come first; the others are 0.
 *
 * NONZERO  x -> places count: the indices, in row-major order, of the elements of x that are not 0
 * (NaN is
 *          not 0); places: I64 [n]
 * MASK     count -> y: BOOL; is the index of the element below the count?
 * NMS      boxes [B, N, 4] scores [B, C, N], F32 -> picked count: for each class the boxes with a
 * score
 *          above `score` (NaN is above nothing), best first, the first of equal ones, without those
 *          that an
 *          earlier one overlaps by more than `overlap` of their union; at most `most`. picked: I64
 *          [B C most, 3] of batch, class, box
 */
#ifndef SH_RUNTIME_DEVICE_OP_PICK_H
#define SH_RUNTIME_DEVICE_OP_PICK_H

#include <stdbool.h>
#include <stdint.h>

struct dev_nms {
    int64_t most; /* for each class, at most N */
    float score, overlap;
    bool any_score;  /* ignores `score`, except for NaN */
    bool is_centred; /* a box is x, y of its centre, width, height; false: y, x of two corners */
};

#endif
