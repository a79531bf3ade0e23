/* onnx_reader.h - shared by the files that turn messages into a graph.
 *
 *   onnx_read.c    values, inputs, outputs; the whole
 *   onnx_node.c    nodes, their attributes and constants
 *   onnx_func.c    functions of the model, inlined in place of the nodes that call them
 *   onnx_branch.c  If, Loop and others with graphs as attributes, which are inlined
 *   onnx_norm.c    brings all opsets into one form (graph.h)
 *   onnx_pixels.c  inputs that requests bring as bytes
 */
#ifndef SH_RUNTIME_MODEL_ONNX_READER_H
#define SH_RUNTIME_MODEL_ONNX_READER_H

#include "runtime/model/names.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_kinds.h"

#define READER_ABSENT \
    (GRAPH_NONE - 1) /* in the names of a scope: an input that a call leaves out */

/* The scope of names and attributes: the graph, one call of a function, or a graph that is an
 * attribute (a branch of an If, the body of a loop); the latter has the function and call of its
 * surroundings. */
struct scope {
    struct scope *up;                /* of the call; NULL: this is the graph */
    const Onnx__FunctionProto *func; /* NULL: this is the graph, or a branch of it */
    const Onnx__NodeProto *call;
    bool is_branch, is_body;
    uint32_t loop;                   /* number of the innermost loop around; 0: none */
    Onnx__AttributeProto **defaults; /* OWNED, of the function's attributes */
    size_t n_defaults;
    struct names names; /* of a function or a branch: to values */
    char label[96];     /* begins the names of what is in it */
    int64_t opset;
    unsigned depth;
};

struct reader {
    Onnx__ModelProto *model;
    struct onnx_source *source;
    struct graph *g;
    struct param_kinds kinds;
    struct names names;     /* to values of the graph */
    struct names functions; /* "domain::name" to its place in the model */
    char **function_names;  /* OWNED */
    struct scope *scope;
    uint32_t n_calls, n_fresh, n_loops;
    struct sh_buf list; /* what is not supported */
    uint32_t n_refused;
    struct sh_err *err;
};

/* ---- values (onnx_read.c) */
const char *reader_text(const char *s); /* "" for NULL */
/* The value of that name in the scope; GRAPH_NONE if there is none yet, or none is meant. */
uint32_t reader_find(const struct reader *r, const char *name);
/* The same, made if this is its first mention. "" is GRAPH_NONE. */
int reader_mention(struct reader *r, const char *name, uint32_t *out);
/* A value that the file does not name: <base><mark><suffix>, made unique. */
int reader_fresh(struct reader *r, const char *base, char mark, const char *suffix,
                 struct onnx_array *a, uint32_t *out);

/* ---- nodes (onnx_node.c) */
int reader_node(struct reader *r, const Onnx__NodeProto *p);
/* The data of a tensor; those of a function are copied, since other calls need them too. */
int reader_take(struct reader *r, Onnx__TensorProto *t, const char *what, struct onnx_array *out);
bool reader_is_standard(const char *domain);
/* Constants of k numbers as an input of a node; rank 0 or 1. */
int reader_numbers(struct reader *r, const void *from, size_t k, enum sh_dtype t, int rank,
                   struct onnx_array *out);
/* Input `slot` of n becomes this constant; inputs before it that are missing are absent. */
int reader_set_input(struct reader *r, struct graph_node *n, uint32_t slot, const char *what,
                     struct onnx_array *a);

/* ---- functions (onnx_func.c) */
int reader_functions(struct reader *r); /* finds them all */
void reader_functions_fini(struct reader *r);
/* NULL: no function of the model. */
const Onnx__FunctionProto *reader_function(const struct reader *r, const Onnx__NodeProto *n);
int reader_call(struct reader *r, const Onnx__FunctionProto *f, const Onnx__NodeProto *call);
/* Gives a new scope its depth and its label; calls and branches are limited. */
int reader_deeper(struct reader *r, struct scope *s, const char *label);
/* The attribute that a stands for: itself, or, in a function, one of the call or the function's
 * default; NULL: it is left out. */
int reader_attr(const struct reader *r, const Onnx__AttributeProto *a,
                const Onnx__AttributeProto **out);

/* All attributes but graphs and types. */
int reader_attrs(struct reader *r, const Onnx__NodeProto *p, struct graph_node *n);
/* Marks a node of a branch or of the body of a loop. */
int reader_mark(struct reader *r, struct graph_node *n);

/* ---- graphs as attributes (onnx_branch.c) */
int reader_if(struct reader *r, const Onnx__NodeProto *p);
bool reader_has_body(const char *op);
int reader_loop(struct reader *r, const Onnx__NodeProto *p);
/* Is the scope, or one around it up to the graph or the call, a branch of an If? */
bool reader_in_branch(const struct reader *r); /* onnx_read.c */

/* ---- rows for padding (onnx_padding.c) */
/* Notes what the exporter wrote beside a Gather. */
int reader_padding(struct reader *r, const Onnx__NodeProto *p, struct graph_node *n);

/* ---- inputs that are bytes (onnx_pixels.c), when all else is known of the graph: what its rules
 * see is the file */
int reader_pixels(struct reader *r);

/* ---- what the order of initializers says (onnx_state.c) */
int reader_state(struct reader *r);

/* ---- opsets (onnx_norm.c) */
int reader_normalise(struct reader *r, struct graph_node *n);

#endif
