/* param_ops.h - what operators do to numbers that may be parameters. Pure functions. */
#ifndef SH_RUNTIME_MODEL_PARAM_OPS_H
#define SH_RUNTIME_MODEL_PARAM_OPS_H

#include "runtime/model/graph.h"

/* Where a number without an axis may be one that learns, as input k; elsewhere it says how to
 * compute. */
bool param_op_calculates(const struct graph_node *n, uint32_t k);
/* Gives numbers in the places of those that it takes. */
bool param_op_is_elementwise(const struct graph_node *n);
/* Operations whose numbers are those of their first input, of all where they join, or of either
 * branch. */
bool param_op_moves(const struct graph_node *n);
/* A parameter may go through these before it meets what is computed: exp(-log_scale). */
bool param_op_is_function(const struct graph_node *n);
bool param_op_joins(const struct graph_node *n);

#endif
