/* graph_int.h - shared about graphs by the files of the model room, for nobody else. */
#ifndef SH_RUNTIME_MODEL_GRAPH_INT_H
#define SH_RUNTIME_MODEL_GRAPH_INT_H

#include "common/buf.h"
#include "runtime/model/graph.h"
#include "runtime/model/why.h"

#define GRAPH_OPSET 18 /* the form that readers normalise to */
#define GRAPH_MAX_IO 256u
#define GRAPH_MAX_TENSOR_BYTES ((size_t)1 << 40)
#define GRAPH_MAX_NAME 4096u
#define GRAPH_TEMP_PREFIX \
    "shunt~"                 /* prefix for names of our own values, forbidden in a file's names */
#define GRAPH_SHAPE_TEXT 192 /* bytes for graph__shape_text */

void graph__node_fini(struct graph_node *n);
void graph__value_fini(struct graph_value *v);
/* A node outside a graph: name and operator copied, no links yet. */
int graph__node_init(struct graph_node *n, const char *name, const char *op, uint32_t number,
                     struct sh_err *err);
int graph__node_links(struct graph_node *n, const uint32_t *in, uint32_t n_in, const uint32_t *outs,
                      uint32_t n_out, struct sh_err *err);
/* TAKES the contents of n; n is zeroed on success. */
int graph__push_node(struct graph *g, struct graph_node *n, struct sh_err *err);
int graph__copy_attrs(struct graph_node *to, const struct graph_node *from, struct sh_err *err);
int graph__set_floats(struct graph_node *n, const char *name, const float *v, size_t k,
                      struct sh_err *err);
const struct graph_attr *graph__attr(const struct graph_node *n, const char *name);
bool graph__same_attr(const struct graph_attr *a, const struct graph_attr *b); /* b may be NULL */
void graph__drop_attr(struct graph_node *n, const char *name);

/* Size of a tensor; SH_E_INVALID for a negative dimension, SH_E_TOOBIG above the limit. */
int graph__bytes(enum sh_dtype t, int rank, const int64_t *dims, size_t *out, struct sh_err *err);
/* "FP32[8,3,224,224]", for messages. Returns out. */
const char *graph__shape_text(const struct graph_value *v, char *out, size_t size);

/* Checks numbers in range, one producer for each value, inputs before use, how many inputs and
 * outputs each operator that is known has, sizes of constants, names: what looks at a graph may
 * rely on it. The reader of a file calls it before it returns one. Fails: SH_E_INVALID. */
int graph__validate(const struct graph *g, struct sh_err *err);
/* Puts nodes into topological order, keeping their order where possible. Fails: SH_E_INVALID,
 * naming a node on a cycle. */
int graph__sort(struct graph *g, struct sh_err *err);
/* Clears is_param of initializers that are not parameters: params.c. */
int graph__find_params(struct graph *g, struct sh_err *err);
/* Marks the Gathers from tables with a row for padding: onnx_padding.c. */
int graph__find_padding(struct graph *g, struct sh_err *err);
/* Marks the Splits of loops over what was found: hits.c. */
int graph__find_hits(struct graph *g, struct sh_err *err);
/* Makes one node of x[mask] = v: masked.c. */
int graph__find_masked(struct graph *g, struct sh_err *err);
/* UTF-8 without control characters, 1 to GRAPH_MAX_NAME bytes, and none of our own. */
bool graph__name_ok(const char *name);
#define GRAPH_BAD_NAME "a tensor name is reserved, or not plain text of 1 to %u bytes: %s"
/* A copy of text that is safe in messages: control and non-ASCII bytes become '?'. Returns out. */
const char *graph__clean(const char *text, char *out, size_t size);
/* One line "operator node: reason". */
int graph__list_add(struct sh_buf *list, const char *op, const char *node, const char *reason,
                    struct sh_err *err);
#define GRAPH_LIST_MAX ((size_t)4 << 20)

/* As graph_at(), but continues after unsupported nodes: each gets a line in list, and the rest is
 * checked as far as shapes are known. list may be NULL: the first one then fails. *n_done: NULL, or
 * the number of correct nodes. */
int graph__at(const struct graph *g, const struct graph_sizes *at, bool training,
              struct sh_buf *list, uint32_t *n_done, struct graph **out, struct sh_err *err);
/* Is the operator in the table of shape inference? */
bool graph__op_known(const char *op);

#endif
