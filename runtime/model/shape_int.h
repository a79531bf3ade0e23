/* shape_int.h - internals of graph_at_batch: one row for each operator, three steps for each node.
 *
 *   infer   types and shapes of the outputs; brings attributes into static form (graph.h)
 *   eval    the outputs' data, if every input is a constant
 *   finish  what stays in the graph if eval did not remove the node; NULL: the node itself
 *
 * A step works on struct shape_ctx: the current node (its inputs are values of the new graph) and
 * the new graph. infer calls shape__out() for each output that exists, or shape__alias().
 *
 * The first failure stays in err. Later calls of the helpers below do nothing but give something
 * that is defined: what they return is a value, or else the code of that failure. So a step reads
 * like a list of what has to be; it asks where it would read what a failure leaves open.
 */
#ifndef SH_RUNTIME_MODEL_SHAPE_INT_H
#define SH_RUNTIME_MODEL_SHAPE_INT_H

#include "runtime/model/graph_int.h"

#define SHAPE_FOLD_MAX_BYTES ((size_t)64 << 20) /* a larger constant result stays a node */

struct shape_ctx {
    struct graph *g;     /* being built */
    struct graph_node n; /* the current node; `in` are values of g, `out` is unused */
    uint32_t *outv;      /* [n.n_out]: the values of g that stand for the outputs */
    const char *
        *out_names; /* [n.n_out]: BORROWED from the source graph; NULL: not used, "": no name */
    bool training;
    uint32_t wanted;    /* the value that a step needed as a constant; GRAPH_NONE: none so far */
    const char *lost;   /* why the last node of a branch was not computed */
    bool aliased;       /* outv is set to existing values, nothing to emit */
    bool keep_node;     /* constant inputs, but the node must stay */
    bool in_branch;     /* of an If: what the node gives may not be wanted */
    bool plain;         /* takes inputs as they are, even counted ones (counted.h) */
    uint32_t fresh;     /* values of the current node begin here */
    uint32_t skip;      /* BOOL: writes by index happen only where it is true; 0: everywhere */
    struct sh_err *err; /* the first failure */
};

typedef int shape_step_fn(struct shape_ctx *c);

enum {
    SHAPE_RUNS = 1,     /* a device can run it; without this bit it must fold away */
    SHAPE_ALWAYS = 2,   /* eval needs only shapes: it folds with any input */
    SHAPE_COMPOSED = 4, /* infer replaces it by others, which run (rewrite.h) */
    SHAPE_CONTROL = 8,  /* works on sequences, or repeats other nodes: see shape_run.h */
};

#define SHAPE_ANY UINT32_MAX /* max_in: a list, of which none may be absent */

struct shape_op {
    const char *name;
    uint32_t min_in, max_in;
    shape_step_fn *infer, *eval, *finish;
    unsigned flags;
};

const struct shape_op *shape__op(const char *name); /* NULL if unknown */
/* What is wrong with how many inputs and outputs a node of this operator has; NULL: nothing. */
const char *shape__wrong_links(const struct shape_op *op, const struct graph_node *n);

/* ---- helpers for the steps */
int shape__fail(struct shape_ctx *c, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool shape__has(const struct shape_ctx *c, uint32_t i); /* is input i there? */
const struct graph_value *shape__in(const struct shape_ctx *c, uint32_t i);
struct graph_value *shape__outv(const struct shape_ctx *c, uint32_t k);
int shape__out(struct shape_ctx *c, uint32_t k, enum sh_dtype t, int rank, const int64_t *dims);
int shape__alias(struct shape_ctx *c, uint32_t v); /* the first output is another name of v */
/* Attributes of the node at work. */
int64_t shape__int(struct shape_ctx *c, const char *name, int64_t def);
double shape__float(struct shape_ctx *c, const char *name, double def);
const char *shape__str(struct shape_ctx *c, const char *name, const char *def);
size_t shape__list(struct shape_ctx *c, const char *name, int64_t *out, size_t max); /* how many */
int shape__set_int(struct shape_ctx *c, const char *name, int64_t v);
int shape__set_float(struct shape_ctx *c, const char *name, double v);
int shape__set_str(struct shape_ctx *c, const char *name, const char *v);
int shape__set_list(struct shape_ctx *c, const char *name, const int64_t *v, size_t k);
/* The same, and the node has the attribute from here on, default or not. */
int64_t shape__own_int(struct shape_ctx *c, const char *name, int64_t def);
bool shape__own_flag(struct shape_ctx *c, const char *name, bool def); /* 0 or 1 */
double shape__own_float(struct shape_ctx *c, const char *name, double def);
const char *shape__own_str(struct shape_ctx *c, const char *name, const char *def);
int64_t shape__own_axis(struct shape_ctx *c, int64_t def, int rank); /* "axis", in [0, rank) */
/* Integers of a constant input (I64 or I32). *k = 0 if the input is absent. */
int shape__ints(struct shape_ctx *c, uint32_t i, int64_t *out, size_t max, size_t *k);
int shape__number(struct shape_ctx *c, uint32_t i, double def, double *out); /* constant scalar */
/* Input i would have to be a constant: fails, and notes it for graph_deciding_inputs(). */
int shape__computed(struct shape_ctx *c, uint32_t i);
int shape__axis(struct shape_ctx *c, int64_t axis, int rank, int64_t *out); /* to [0, rank) */
/* Axes of input 1 as a set of bits: of Squeeze those that go (without the input all of size 1), of
 * Unsqueeze those that come, of a reduction those that are reduced. */
int shape__squeezed(struct shape_ctx *c, uint32_t *set);
int shape__unsqueezed(struct shape_ctx *c, uint32_t *set, int *rank); /* of the result */
int shape__reduced(struct shape_ctx *c, uint32_t *set);
/* The type in which devices reduce, scan and sort integers of type t; t itself for all else. */
enum sh_dtype shape__wide(enum sh_dtype t);
int shape__want_float(struct shape_ctx *c, uint32_t i);
int shape__want_same_type(struct shape_ctx *c, uint32_t a, uint32_t b);
int shape__want_vector(struct shape_ctx *c, uint32_t i, int64_t want); /* [want] */
int shape__broadcast(struct shape_ctx *c, const struct graph_value *a, const struct graph_value *b,
                     int *rank, int64_t *dims);
/* Input 1 gets the axes that GRAPH_FIRST_AXIS asks for; after that the attribute is gone. */
int shape__align(struct shape_ctx *c);
void shape__drop_inputs(struct shape_ctx *c, uint32_t keep);
int shape__set_op(struct shape_ctx *c, const char *op);
/* A new value of g with a name of its own, derived from the node's first output. */
int shape__temp(struct shape_ctx *c, const char *suffix, enum sh_dtype t, int rank,
                const int64_t *dims, uint32_t *out);
/* Emits a node with one output. */
int shape__emit(struct shape_ctx *c, const char *op, const uint32_t *in, uint32_t n_in,
                uint32_t out, const struct graph_attr *attrs, uint32_t n_attrs);
/* Emits a node with the attributes of another. */
int shape__emit_as(struct shape_ctx *c, const char *op, const uint32_t *in, uint32_t n_in,
                   const uint32_t *out, uint32_t n_out, const struct graph_node *like);
/* Takes the node `call` (its inputs are values of g, its outputs have no numbers yet) through the
 * three steps and gives its outputs: how an operator is put together from others (rewrite.h). */
int shape__call(struct shape_ctx *c, const struct graph_node *call, uint32_t *out);
/* The three steps of the node at work, whatever is counted. */
int shape__steps(struct shape_ctx *c, const struct shape_op *op);
int shape__emit_self(struct shape_ctx *c); /* the node at work, with outv as outputs */
/* The shape of a convolution of input x_at with weight w_at, and its window in static form. */
int shape__conv_of(struct shape_ctx *c, uint32_t x_at, uint32_t w_at, uint32_t bias_at,
                   enum sh_dtype t);
/* outv[0] = Reshape(from), or from itself if the shapes agree. */
int shape__reshape_to(struct shape_ctx *c, uint32_t from);
int shape__expand_to(struct shape_ctx *c, uint32_t from); /* the same with broadcasting */

/* ---- steps, by family */
/* clang-format off */
#define SHAPE_STEPS(X)                                                                             \
    X(unary) X(unary_float) X(logical_not) X(binary) X(compare) X(logic) X(variadic) X(where)      \
    X(cast) X(cast_like) X(clip) X(act) X(identity) X(dropout) X(conv) X(pool) X(global_pool)      \
    X(conv_transpose) X(lp_pool) X(instance_norm) X(group_norm) X(lp_norm) X(lrn) X(resize)        \
    X(upsample) X(lstm) X(gru) X(rnn) X(quantize) X(dequantize) X(dynamic_quantize)                \
    X(matmul_integer) X(qlinear_matmul) X(conv_integer) X(qlinear_conv)                            \
    X(gemm) X(matmul) X(batch_norm) X(layer_norm) X(softmax) X(reshape) X(flatten) X(squeeze)      \
    X(unsqueeze) X(transpose) X(pixels) X(concat) X(split) X(slice) X(pad) X(expand) X(gather)     \
    X(gather_elements) X(gather_nd) X(reduce) X(shape) X(size) X(const_of_shape) X(range)          \
    X(mod) X(bit_shift) X(bitwise) X(bitwise_not) X(cumsum) X(eye_like) X(arg) X(topk) X(scatter) \
    X(if)
#define SHAPE_EVALS(X)                                                                             \
    X(unary) X(binary) X(variadic) X(where) X(cast) X(clip) X(copy) X(view) X(concat) X(split)     \
    X(dequantize)                                                                                  \
    X(gather) X(gather_elements) X(gather_nd) X(reduce) X(shape) X(size) X(const_of_shape)         \
    X(range) X(cumsum) X(eye_like) X(scatter)
#define SHAPE_FINISHES(X)                                                                          \
    X(variadic) X(logic) X(split) X(gather) X(gather_elements) X(gather_nd) X(expand) X(reshape)   \
    X(narrow) X(int_unary) X(pow) X(clip) X(arg) X(topk) X(scatter) X(softmax)
/* clang-format on */
#define X(name) int shape__infer_##name(struct shape_ctx *c);
SHAPE_STEPS(X)
#undef X
#define X(name) int shape__eval_##name(struct shape_ctx *c);
SHAPE_EVALS(X)
#undef X
#define X(name) int shape__finish_##name(struct shape_ctx *c);
SHAPE_FINISHES(X)
#undef X

/* ---- indices (shape_index.c) */
/* Which row of a table each index names: its numbers, each in [-size, size), times stride, and the
 * places along the axes of the indices times base. */
struct shape_flat {
    int rank; /* of the indices without the axis of their numbers */
    int64_t dims[SH_MAX_RANK];
    int depth; /* numbers of an index */
    int64_t size[SH_MAX_RANK], stride[SH_MAX_RANK], base[SH_MAX_RANK];
    int64_t rows; /* of the table */
    int tail;     /* trailing axes of the table that an index names as a whole */
};
/* Of the node at work: input 0 is the table, input 1 the indices. */
int shape__flat(struct shape_ctx *c, struct shape_flat *f);
/* The rows of constant indices, OWNED; NULL after a failure. Fails: SH_E_INVALID, an index is
 * outside. */
int64_t *shape__flat_const(struct shape_ctx *c, const struct shape_flat *f);

/* ---- numbers of constants */
bool shape__is_float(enum sh_dtype t);
bool shape__is_int(enum sh_dtype t); /* integers and BOOL */
int64_t shape__get_i64(enum sh_dtype t, const void *data, size_t i);
double shape__get_f64(enum sh_dtype t, const void *data, size_t i);
void shape__put_i64(enum sh_dtype t, void *data, size_t i, int64_t v);
void shape__put_f64(enum sh_dtype t, void *data, size_t i, double v);
/* Memory for output k; the caller fills it. NULL after a failure. */
void *shape__alloc(struct shape_ctx *c, uint32_t k);
/* Walks the elements of an array of the given dims in row-major order; off[j] follows with
 * stride[j] per axis. Start: struct shape_walk w = {rank, dims, {stride0, ..}}; */
struct shape_walk {
    int rank;
    const int64_t *dims;
    const int64_t *stride[3]; /* NULL = not used */
    int64_t at[SH_MAX_RANK], off[3];
};
void shape__step(struct shape_walk *w);
void shape__strides(const struct graph_value *v, int64_t *out); /* row-major, in elements */
/* Strides of v seen as an array of `rank` axes; 0 along broadcast axes. */
void shape__broadcast_strides(const struct graph_value *v, int rank, int64_t *out);

/* Removes nodes and values that no output needs; renumbers. */
int graph__sweep(struct graph *g, struct sh_err *err);
/* Floats other than F32 become F32, but for inputs and outputs. */
int graph__retype(struct graph *g, struct sh_err *err);
/* Constants that repeat along an axis shrink to one slice where they broadcast. */
int graph__shrink(struct graph *g, struct sh_err *err);

#endif
