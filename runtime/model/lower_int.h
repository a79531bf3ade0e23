/* lower_int.h - internals of lowering: the context, and one function for each operator.
 *
 * They build as ir.h says: the first failure stays in lo->ir, and the walk ends behind the node.
 */
#ifndef SH_RUNTIME_MODEL_LOWER_INT_H
#define SH_RUNTIME_MODEL_LOWER_INT_H

#include "runtime/model/lower.h"

struct lower {
    struct ir *ir;
    const struct graph *g;
    uint32_t *tensor_of; /* value -> tensor; DEV_NONE until it exists */
    uint32_t *writer_of; /* value -> node; GRAPH_NONE for inputs and constants */
    bool training;
};

typedef void lower_fn(struct lower *lo, const struct graph_node *n);

/* ---- helpers */
const struct graph_value *lower__in(const struct lower *lo, const struct graph_node *n, uint32_t i);
const struct graph_value *lower__out(const struct lower *lo, const struct graph_node *n);
bool lower__has(const struct graph_node *n, uint32_t i);
/* The tensor of input i, DEV_NONE if it is absent; a constant becomes one when it is first asked
 * for. */
uint32_t lower__use(struct lower *lo, const struct graph_node *n, uint32_t i);
uint32_t lower__use_value(struct lower *lo, uint32_t value);
/* The same for the first k inputs. */
void lower__use_all(struct lower *lo, const struct graph_node *n, uint32_t k, uint32_t *out);
/* An operation on the first k inputs. */
struct dev_op lower__op(struct lower *lo, const struct graph_node *n, enum dev_op_kind kind,
                        uint32_t k);
/* Pushes op, whose first output is the node's. */
void lower__emit(struct lower *lo, const struct graph_node *n, struct dev_op *op);
/* The node's output is tensor t, seen with the output's shape. Output k: if somebody wants it. */
void lower__is(struct lower *lo, const struct graph_node *n, uint32_t t);
void lower__gives(struct lower *lo, const struct graph_node *n, uint32_t k, uint32_t t);
/* A constant that training does not change, with one element of type F32 or I64. */
bool lower__scalar(const struct lower *lo, uint32_t value, double *out);
void lower__unsupported(struct lower *lo, const struct graph_node *n, const char *why);
/* Attributes. */
int64_t lower__int(struct lower *lo, const struct graph_node *n, const char *name, int64_t def);
float lower__float(struct lower *lo, const struct graph_node *n, const char *name);
const char *lower__str(struct lower *lo, const struct graph_node *n, const char *name,
                       const char *def);
size_t lower__ints(struct lower *lo, const struct graph_node *n, const char *name, int64_t *out,
                   size_t max);

/* ---- building blocks of compositions (lower_emit.c); each result has its own shape */
struct lower_cut { /* n elements of an axis, from start on in steps of step */
    uint32_t axis;
    int64_t start, step, n;
};
struct lower_pad { /* zeros along an axis */
    uint32_t axis;
    int64_t before, after;
};
uint32_t lower__cut(struct lower *lo, const char *name, uint32_t x, struct lower_cut c);
uint32_t lower__pad_axis(struct lower *lo, const char *name, uint32_t x, struct lower_pad p);
uint32_t lower__turn(struct lower *lo, const char *name, uint32_t x, const uint32_t *perm);
/* axes: bit set; they remain, with size 1. */
uint32_t lower__reduced(struct lower *lo, const char *name, uint32_t x, enum dev_red kind,
                        uint32_t axes);
/* Rows [first, first + n) of axis 0; of a constant at inference: cut before the program runs. */
uint32_t lower__rows(struct lower *lo, const char *name, uint32_t x, int64_t first, int64_t n);
/* n numbers made by the compiler, as a constant of rank 1. TAKES data (malloc), also on failure. */
struct lower_table {
    const char *name; /* unique among the model's tables, whatever the batch */
    enum sh_dtype dtype;
    int64_t n;
    /* It depends on the sizes of symbols (graph.h), or its node does, which at some sizes becomes
     * part of another. So it is not a weight. */
    bool by_size;
};
uint32_t lower__table(struct lower *lo, const struct lower_table *t, void *data);
/* One number, [1], for this node. */
uint32_t lower__number(struct lower *lo, const struct graph_node *n, float v);
/* x (k) c, where c has one number for each channel, axis 1 of x. */
uint32_t lower__per_channel(struct lower *lo, const char *name, uint32_t x, enum dev_bin k,
                            uint32_t c);
/* The same numbers in another type. */
uint32_t lower__as(struct lower *lo, const char *name, uint32_t x, enum sh_dtype t);
/* x where it is not 0, else 1. */
uint32_t lower__not_zero(struct lower *lo, const struct graph_node *n, uint32_t x);
/* The convolution described by the node's window, on float tensors (lower_window.c). */
uint32_t lower__convolve(struct lower *lo, const struct graph_node *n, uint32_t x, uint32_t w,
                         uint32_t bias);
/* The window of a node over two axes. */
struct dev_conv lower__plane(struct lower *lo, const struct graph_node *n);
/* |x|^p, and x^(1/p) of what is not negative. */
uint32_t lower__power(struct lower *lo, const char *name, uint32_t x, int64_t p);
uint32_t lower__root(struct lower *lo, const char *name, uint32_t x, int64_t p);

/* ---- operators */
/* clang-format off */
#define LOWER_FNS(X)                                                                        \
    X(conv) X(conv_transpose) X(lp_pool) X(rnn)                                                    \
    X(quantize) X(dequantize) X(dynamic_quantize) X(matmul_integer) X(qlinear_matmul)       \
    X(conv_integer) X(qlinear_conv)                                                         \
    X(instance_norm) X(group_norm) X(lp_norm) X(lrn) X(resize)                              \
    X(pool) X(global_pool) X(batch_norm) X(layer_norm) X(dropout) X(gemm) X(matmul) X(act)  \
        X(binary) X(logic_not) X(where) X(softmax) X(reduce) X(cast) X(identity) \
            X(transpose) X(concat) X(slice) X(pad) X(expand) X(gather)                             \
                X(cumsum) X(topk) X(locate) X(scatter) X(places) X(first) X(nms)     \
                X(pixels)
/* clang-format on */
#define X(name) lower_fn lower__##name;
LOWER_FNS(X)
#undef X

#endif
