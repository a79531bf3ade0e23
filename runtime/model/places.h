/* places.h - where something that a value has one of for each sample (or each step) lies in its
 * axes: axis `axis` is [before, N, after] merged into one, and element number e (row-major) belongs
 * to number (e / step) % N. Reshapes keep the numbers of elements, so they keep step. */
#ifndef SH_RUNTIME_MODEL_PLACES_H
#define SH_RUNTIME_MODEL_PLACES_H

#include "runtime/model/graph.h"

struct place {
    int axis;
    int64_t before, after;
};

int64_t place_behind(const struct graph_value *v, int axis); /* elements behind that axis */
int64_t place_step(const struct graph_value *v, struct place p);
/* n: how many there are. false: with the axes of v no axis holds whole ones. */
bool place_of(const struct graph_value *v, int64_t step, int64_t n, struct place *out);
bool place_same(struct place a, struct place b);
/* Where MatMul of a and b into y puts a place of its operand i (0 or 1): its rows (of a) or columns
 * (of b) stay behind the leading axes, which stand on the right of each other. *leads: it is one of
 * those. false: it is on the axis over which products are added up. */
bool place_in_product(const struct graph_value *a, const struct graph_value *b,
                      const struct graph_value *y, uint32_t i, struct place *p, bool *leads);

#endif
