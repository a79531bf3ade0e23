/* lower.h - a graph in static form (graph_at_batch) becomes operations of the device.
 *
 * Inference: constants are WEIGHT. Training: floating parameters are STATE (kind PARAM; the running
 * statistics of BatchNormalization: STAT), all other constants STATE without a kind, so that a
 * training program has one image only. A scalar of rank 0 is a constant, never a parameter: the
 * newer exporter writes factors as initializers.
 *
 * Reshapes become aliases; nothing is fused here (see pass.h).
 */
#ifndef SH_RUNTIME_MODEL_LOWER_H
#define SH_RUNTIME_MODEL_LOWER_H

#include "runtime/model/graph.h"
#include "runtime/model/ir.h"

/* *out: OWNED, ir_free(). g is BORROWED as long as the ir lives. Fails: SH_E_UNSUPPORTED,
 * SH_E_INVALID, naming the node. */
int lower_graph(const struct graph *g, bool training, struct ir **out, struct sh_err *err);

#endif
