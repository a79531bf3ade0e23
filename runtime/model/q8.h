/* q8.h - 8-bit constants: weights as in a quantised file, and what integer products (op_quant.h)
 * take from them.
 *
 * Element i of such a constant means (x[i] - zero[c]) scale[c], with c = i / inner % channels, or c
 * = 0 if there is one scale.
 */
#ifndef SH_RUNTIME_MODEL_Q8_H
#define SH_RUNTIME_MODEL_Q8_H

#include "runtime/model/ir.h"

struct q8 {               /* BORROWED from the source graph: outlives every ir */
    const void *x, *zero; /* I8 or U8; zero NULL: 0 */
    const float *scale;   /* NULL: 1 */
    enum sh_dtype dtype;
    int64_t n, channels, inner;
    bool one_scale, one_zero;
};

/* As floats, made on demand, with the shape of `like`. */
uint32_t q8_floats(struct ir *ir, const struct q8 *q, const struct dev_tensor *like,
                   const char *name);
/* The source from which q8_floats() made t, or t's root; NULL: another origin. */
const struct q8 *q8_of(const struct ir *ir, uint32_t t);

/* Do all x - zero fit I8? */
bool q8_fits(const struct q8 *q);
/* Each of these is made on demand, and named after `name`.
 * q8_weight  x - zero as I8, with the given shape; turned: [K, N] becomes [N, K]
 * q8_sums    I32, for each channel: the sum of x - zero, times `times` */
struct q8_shape {
    uint32_t rank;
    const int64_t *dims; /* shape of the weight as products take it: channels first */
    bool turned;
};
uint32_t q8_weight(struct ir *ir, const struct q8 *q, const struct q8_shape *s, const char *name);
uint32_t q8_sums(struct ir *ir, const struct q8 *q, const struct q8_shape *s, int32_t times,
                 const char *name);
/* F32, [channels]: the scale of each, times `times`. DEV_NONE: one is not above 0. */
uint32_t q8_factor(struct ir *ir, const struct q8 *q, int64_t channels, double times,
                   const char *name);

#endif
