/* counted.h - axes whose extent the data decide, in a program of fixed sizes.
 *
 * Such an axis has a bound, which is its size, and a count: an integer that the device computes.
 * What is there comes first; what lies behind is undefined, and must not reach what is there. How
 * that is kept depends on the operator: counted_rules.c has a rule for each that may meet such an
 * axis, and refuses the others. A value has at most one counted axis.
 *
 * A rule runs the three steps of its operator on inputs as they lie (shape_ctx.plain), with what is
 * undefined covered where it would matter, and says which axis of the results is counted. Lists of
 * sizes that follow from counts (Shape of a counted axis, and what exporters compute with it) are
 * known number by number, each with its bounds: counted_numbers.c.
 */
#ifndef SH_RUNTIME_MODEL_COUNTED_H
#define SH_RUNTIME_MODEL_COUNTED_H

#include "runtime/model/rewrite.h"

/* Has the node at work an input that is counted, or that follows from counts? */
bool counted__concerns(const struct shape_ctx *c);
int counted__steps(struct shape_ctx *c, const struct shape_op *op);

/* Of axis `axis` of output k only the first are there: as many as n says, at most its size. */
int counted__is(struct shape_ctx *c, uint32_t k, int axis, struct graph_number n);
/* BOOL [n]: true for the first `count`. */
uint32_t counted__first(struct rewrite *w, uint32_t count, int64_t n);
/* Numbers of what is not 0 in x, I64 [elements], and how many there are. */
uint32_t counted__places(struct rewrite *w, uint32_t x, struct graph_number *n);
/* A count that a node gave: an integer in [0, most]. */
struct graph_number counted__new(struct rewrite *w, uint32_t count, int64_t most);
/* Output k is a where cond is true, else b, which may differ in size along one axis. */
int counted__choose(struct shape_ctx *c, uint32_t k, uint32_t a, uint32_t b);

#endif
