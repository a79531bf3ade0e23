/* op_quant.h - operations on 8-bit integers, I8 and U8 (op.h). An integer q stands for (q - zero)
 * scale. Numbers are rounded to nearest, halves to even, and limited to the range of the type; NaN
 * becomes its least number.
 *
 * QUANTIZE  x [add] -> y, all of one shape; y = act(x + add). Each is F32, I8 or U8
 * QCONV     x w [factor] [offset] [residual] [sums] -> y; x is I8 or U8, w I8. Padding is x_zero.
 * With sum =
 *           conv(x - x_zero, w), which is exact: y is I32 and equals sum, or y = act(m + residual),
 *           where m
 *           = factor[c] sum + offset[c], first rounded to `mid` if that has a scale. residual and y
 *           are F32,
 *           I8 or U8; factor and offset are F32, one for each channel. sums, I32, is present if
 *           x_zero is
 *           not 0: x_zero times the sum of a channel's weights
 * QMATMUL   the same for x [.., K] and w [N, K], without a window
 *
 * LAYERNORM gives its y as integers, too, if it has a fourth output, I8 or U8.
 *
 * A sum has at most DEV_Q_MAX_TERMS products, so that it fits I32 even without x_zero.
 */
#ifndef SH_RUNTIME_DEVICE_OP_QUANT_H
#define SH_RUNTIME_DEVICE_OP_QUANT_H

#include "common/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define DEV_Q_MAX_TERMS 65536

enum { DEV_Q_X, DEV_Q_W, DEV_Q_FACTOR, DEV_Q_OFFSET, DEV_Q_RESIDUAL, DEV_Q_SUMS, DEV_Q_N_IN };

struct dev_quant {
    float scale; /* above 0 */
    int32_t zero;
};

struct dev_quantize { /* for the operands that are integers */
    struct dev_quant x, add, y;
};

struct dev_product {
    int32_t x_zero;
    struct dev_quant mid, residual, y; /* mid.scale 0: none */
    enum sh_dtype mid_type;
};

/* Least and largest number of I8 or U8. False: another type. */
static inline bool dev_range8(enum sh_dtype t, int32_t *lo, int32_t *hi)
{
    *lo = t == SH_I8 ? -128 : 0;
    *hi = *lo + 255;
    return t == SH_I8 || t == SH_U8;
}
static inline bool dev_is8(enum sh_dtype t)
{
    return t == SH_I8 || t == SH_U8;
}

#endif
