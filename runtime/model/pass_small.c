/* pass_small.c - FP16: what keeps a divisor away from zero still does.
 *
 * PyTorch divides by max(norm, 1e-12) to normalise, and variances get as little added to them. FP16
 * has nothing between 0 and 2^-24, so 1e-12 is stored as 0, and a row of zeros is 0 / 0. The
 * smallest number that FP16 has takes its place; constants that are tensors are the device's
 * matter (cuda_pack.c).
 */
#include "runtime/model/pass.h"

#include <math.h>

static const float SMALLEST = 0x1p-24f;

static float not_below(float x)
{
    return x != 0.0f && fabsf(x) < SMALLEST ? copysignf(SMALLEST, x) : x;
}

void pass_small(struct ir *ir)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        struct dev_op *op = &ir->g.ops[i];

        if (op->act == DEV_ACT_CLIP) {
            op->act_p0 = not_below(op->act_p0);
            op->act_p1 = not_below(op->act_p1);
        } else if (op->act == DEV_ACT_LINEAR) {
            op->act_p1 = not_below(op->act_p1);
        }
    }
}
