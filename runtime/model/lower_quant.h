/* lower_quant.h - between the files that lower quantisation. */
#ifndef SH_RUNTIME_MODEL_LOWER_QUANT_H
#define SH_RUNTIME_MODEL_LOWER_QUANT_H

#include "runtime/model/lower_int.h"
#include "runtime/model/q8.h"

/* A scale or zero point with `after` axes of one behind it; one number stays one. */
uint32_t lower__behind(struct lower *lo, uint32_t t, uint32_t after);
/* x less its zero point, as floats; zero may be DEV_NONE. after: as above. */
uint32_t lower__centred(struct lower *lo, const char *name, uint32_t x, uint32_t zero,
                        uint32_t after);
/* round(x) + zero, within the type t. */
uint32_t lower__rounded(struct lower *lo, const char *name, uint32_t x, uint32_t zero,
                        enum sh_dtype t);

/* The numbers of constant input i; NULL: it is absent or no constant. */
const void *lower__data(const struct lower *lo, const struct graph_node *n, uint32_t i);
/* Is what stands at input s, and the zero point behind it, one constant for all of a tensor? */
bool lower__one_quant(const struct lower *lo, const struct graph_node *n, uint32_t s,
                      enum sh_dtype t, struct dev_quant *q);
/* x to the type t, or from integers to F32. */
uint32_t lower__requantize(struct lower *lo, const char *name, uint32_t x, enum sh_dtype t,
                           const struct dev_quant *q);
/* A constant of 8 bits: at which inputs it, its scale (GRAPH_NONE: there is none) and its zero
 * point stand, and the axis of its channels. false: something is not known. */
struct lower_q8 {
    uint32_t x, scale, zero, axis;
};
bool lower__q8(const struct lower *lo, const struct graph_node *n, const struct lower_q8 *at,
               struct q8 *q);

#endif
