/* counted.h - axes whose length the data decide, in a program of fixed sizes.
 *
 * Such an axis has a bound, which is its size, and a count: an integer that the device computes.
 * Valid elements come first; the others are undefined and must not influence the valid ones. How
 * that is ensured depends on the operator: counted_rules.c has a rule for each operator that may
 * meet such an axis, and refuses the others. A value has at most one counted axis.
 *
 * A rule runs the three steps of its operator on the inputs as they are (shape_ctx.plain), with
 * undefined elements covered where they would matter, and says which axis of the results is
 * counted. Lists of sizes that follow from counts (Shape of a counted axis, and what exporters
 * compute with it) are tracked number by number, each with its bounds: counted_numbers.c.
 */
#ifndef SH_RUNTIME_MODEL_COUNTED_H
#define SH_RUNTIME_MODEL_COUNTED_H

#include "runtime/model/rewrite.h"

/* Does the current node have an input that is counted, or follows from counts? */
bool counted__concerns(const struct shape_ctx *c);
int counted__steps(struct shape_ctx *c, const struct shape_op *op);

/* Only the first elements along axis `axis` of output k are valid: n of them, at most its size. */
int counted__is(struct shape_ctx *c, uint32_t k, int axis, struct graph_number n);
/* BOOL [n]: true for the first `count`. */
uint32_t counted__first(struct shape_ctx *c, uint32_t count, int64_t n);
/* Indices of the elements of x that are not 0, I64 [elements], and their count. */
uint32_t counted__places(struct shape_ctx *c, uint32_t x, struct graph_number *n);
/* A count computed by a node: an integer in [0, most]. */
struct graph_number counted__new(struct shape_ctx *c, uint32_t count, int64_t most);
/* A Split whose sizes, its second input, are data. */
int counted__split_by(struct shape_ctx *c, int64_t axis);
/* Output k is a if cond is true, else b, which may differ in size along one axis. */
int counted__choose(struct shape_ctx *c, uint32_t k, uint32_t a, uint32_t b);

#endif
