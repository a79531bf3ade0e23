/* places.h - where a value holds one item for each sample (or each step) in its axes. Axis `axis`
 * is [before, N, after] merged into one, and element e (row-major) belongs to item (e / step) % N.
 * Reshapes keep the order of elements, so they keep step. */
#ifndef SH_RUNTIME_MODEL_PLACES_H
#define SH_RUNTIME_MODEL_PLACES_H

#include "runtime/model/graph.h"

struct place {
    int axis;
    int64_t before, after;
};

int64_t place_behind(const struct graph_value *v, int axis); /* elements behind that axis */
int64_t place_step(const struct graph_value *v, struct place p);
/* n: number of items. False: no axis of v holds whole items. */
bool place_of(const struct graph_value *v, int64_t step, int64_t n, struct place *out);
bool place_same(struct place a, struct place b);
/* Where MatMul of a and b into y puts a place of its operand i (0 or 1): rows (of a) or columns (of
 * b) stay behind the leading axes, which are aligned at their right. *leads: it is one of those.
 * False: it is on the axis that is summed over. */
bool place_in_product(const struct graph_value *a, const struct graph_value *b,
                      const struct graph_value *y, uint32_t i, struct place *p, bool *leads);

#endif
