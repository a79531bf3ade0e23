/* bounds.h - between which numbers the elements of a value lie, whatever the data. */
#ifndef SH_RUNTIME_MODEL_BOUNDS_H
#define SH_RUNTIME_MODEL_BOUNDS_H

#include "runtime/model/shape_int.h"

struct bounds {
    double lo, hi; /* infinite: not known */
};

/* Of a value of the graph that is being built. Follows what moves numbers and what bounds them. */
int bounds_of(struct shape_ctx *c, uint32_t value, struct bounds *out); /* Fails: SH_E_NOMEM */

#endif
