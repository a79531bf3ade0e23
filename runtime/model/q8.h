/* q8.h - constants of 8 bits: weights as a quantised file has them, and what products of integers
 * (op_quant.h) take of them.
 *
 * Element i of such a constant means (x[i] - zero[c]) scale[c], c = i / inner % channels, or c = 0
 * where there is one scale for all.
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

/* As floats, made when they are wanted, with the shape of `like`. */
int q8_floats(struct ir *ir, const struct q8 *q, const struct dev_tensor *like, const char *name,
              uint32_t *out, struct sh_err *err);
/* What q8_floats() made t, or what t is another name of, from; NULL: something else did. */
const struct q8 *q8_of(const struct ir *ir, uint32_t t);

/* Are all of x - zero within I8? */
bool q8_fits(const struct q8 *q);
/* Each of these is made when it is wanted, and named after `name`.
 * q8_weight  x - zero as I8, with the shape given; turned: [K, N] becomes [N, K]
 * q8_sums    I32, by channel: the sum of x - zero, times `times` */
struct q8_shape {
    uint32_t rank;
    const int64_t *dims; /* of the weight as products take it: channels first */
    bool turned;
};
int q8_weight(struct ir *ir, const struct q8 *q, const struct q8_shape *s, const char *name,
              uint32_t *out, struct sh_err *err);
int q8_sums(struct ir *ir, const struct q8 *q, const struct q8_shape *s, int32_t times,
            const char *name, uint32_t *out, struct sh_err *err);
/* F32, [channels]: the scale of each, times `times`; false in *sound if one is not above 0. */
int q8_factor(struct ir *ir, const struct q8 *q, int64_t channels, double times, const char *name,
              uint32_t *out, bool *sound, struct sh_err *err);

#endif
