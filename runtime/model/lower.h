/* lower.h - lowers a graph in static form (graph_at_batch) to operations of the device.
 *
 * Inference: constants become WEIGHT. Training: float parameters become STATE (kind PARAM; running
 * statistics of BatchNormalization: STAT), and all other constants STATE without a kind, so that a
 * training program has only one image. A scalar of rank 0 is a constant, never a parameter: the
 * newer exporter writes factors as initializers.
 *
 * Reshapes become aliases. Nothing is fused here (see pass.h).
 */
#ifndef SH_RUNTIME_MODEL_LOWER_H
#define SH_RUNTIME_MODEL_LOWER_H

#include "runtime/model/graph.h"
#include "runtime/model/ir.h"

/* *out: OWNED, ir_free(). g: BORROWED for the life of the ir. Fails: SH_E_UNSUPPORTED,
 * SH_E_INVALID, naming the node. */
int lower_graph(const struct graph *g, bool training, struct ir **out, struct sh_err *err);

#endif
