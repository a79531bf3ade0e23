/* ranges.h - bounds of the elements of a value, through element-wise operators.
 *
 * Bounds hold for each element separately, so a range says nothing of how elements are related. An
 * infinite bound means that the element may be infinite. What is computed from numbers of ordinary
 * size is assumed to be of ordinary size too: below RANGE_ORDINARY, far from the numbers that masks
 * use. Pure.
 */
#ifndef SH_RUNTIME_MODEL_RANGES_H
#define SH_RUNTIME_MODEL_RANGES_H

#include "runtime/model/graph.h"

#define RANGE_ORDINARY 1e8
#define RANGE_MASKED (-5e8) /* so far below ordinary numbers that exp() of the difference is 0 */

struct range {
    double lo, hi; /* lo > hi: no elements */
    bool nan;      /* some may be NaN */
};

struct range range_none(void);
struct range range_ordinary(void);
struct range range_wild(void); /* nothing is known */
struct range range_of(double lo, double hi);
struct range range_join(struct range a, struct range b);
bool range_is(struct range r, double v); /* all of them are v */
bool range_is_finite(struct range r);
/* k products of an element of a and one of b, added up. */
struct range range_dot(struct range a, struct range b);
/* k elements added up. */
struct range range_sum(struct range a, double k);
/* One element of the result of an element-wise node, from one of each input. False: the operator is
 * not known here. */
bool range_each(const struct graph_node *n, const struct range *in, uint32_t n_in,
                struct range *out);

#endif
