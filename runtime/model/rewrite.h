/* rewrite.h - operators composed of others.
 *
 * A rewrite is an infer step (shape_int.h) that makes other operators and then says which values
 * the node's outputs are. It reads like an expression. Each call makes one node, which goes through
 * its own three steps (so it has its shape, and disappears if its inputs are constants), and
 * returns the node's first output. The first failure stays in the context, as in any step; later
 * calls do nothing and return GRAPH_NONE, so that only the end has to check.
 *
 * What rw_v() points to is valid until the next call.
 */
#ifndef SH_RUNTIME_MODEL_REWRITE_H
#define SH_RUNTIME_MODEL_REWRITE_H

#include "runtime/model/shape_int.h"

#define RW_INT(n, v) ((struct graph_attr){.name = (char[]){n}, .kind = GRAPH_ATTR_INT, .i = (v)})
#define RW_FLOAT(n, v) \
    ((struct graph_attr){.name = (char[]){n}, .kind = GRAPH_ATTR_FLOAT, .f = (v)})
#define RW_STR(n, v) \
    ((struct graph_attr){.name = (char[]){n}, .kind = GRAPH_ATTR_STR, .s = (char[]){v}})
#define RW_INTS(name_, v, k) \
    ((struct graph_attr){    \
        .name = (char[]){name_}, .kind = GRAPH_ATTR_INTS, .ints = (v), .n = (size_t)(k)})

/* Any node with one output; at most 3 attributes. */
uint32_t rw_node(struct shape_ctx *c, const char *op, const uint32_t *in, uint32_t n_in,
                 const struct graph_attr *attrs, uint32_t n_attrs);
uint32_t rw1(struct shape_ctx *c, const char *op, uint32_t a);
uint32_t rw2(struct shape_ctx *c, const char *op, uint32_t a, uint32_t b);
uint32_t rw3(struct shape_ctx *c, const char *op, uint32_t x, uint32_t y, uint32_t z);
/* The same with an attribute. */
uint32_t rw1_with(struct shape_ctx *c, const char *op, uint32_t a, struct graph_attr attr);
uint32_t rw2_with(struct shape_ctx *c, const char *op, uint32_t a, uint32_t b,
                  struct graph_attr attr);

/* Constants. */
uint32_t rw_number(struct shape_ctx *c, enum sh_dtype t, double v); /* rank 0 */
uint32_t rw_list(struct shape_ctx *c, const int64_t *v, int n);     /* INT64 [n] */
/* TAKES data (malloc), on failure too. */
uint32_t rw_const(struct shape_ctx *c, enum sh_dtype t, int rank, const int64_t *dims, void *data);
/* Zeroed memory for such data. */
void *rw_alloc(struct shape_ctx *c, enum sh_dtype t, int64_t n);
uint32_t rw_iota(struct shape_ctx *c, int64_t n); /* INT64 [n]: 0, 1, ... */

uint32_t rw_cast(struct shape_ctx *c, uint32_t x, enum sh_dtype t);
uint32_t rw_reshape(struct shape_ctx *c, uint32_t x, int rank, const int64_t *dims);
uint32_t rw_expand(struct shape_ctx *c, uint32_t x, int rank, const int64_t *dims);
uint32_t rw_transpose(struct shape_ctx *c, uint32_t x, const int64_t *perm, int rank);
uint32_t rw_reduce(struct shape_ctx *c, const char *op, uint32_t x, const int64_t *axes, int k,
                   bool keep);
/* [from, to) along one axis, by `step` > 0. */
uint32_t rw_slice(struct shape_ctx *c, uint32_t x, int axis, int64_t from, int64_t to,
                  int64_t step);
uint32_t rw_concat(struct shape_ctx *c, const uint32_t *parts, uint32_t n, int axis);

const struct graph_value *rw_v(const struct shape_ctx *c, uint32_t v);
uint32_t rw_in(const struct shape_ctx *c, uint32_t i);  /* input i, GRAPH_NONE if absent */
int rw_is(struct shape_ctx *c, uint32_t k, uint32_t v); /* output k is v; returns err->rc */

/* ---- the rewrites: infer steps */
/* clang-format off */
#define REWRITES(X)                                                                               \
    X(is_nan) X(is_inf) X(softsign) X(mish) X(swish) X(celu) X(selu) X(prelu) X(thresholded_relu) \
    X(shrink) X(hardmax) X(tile) X(trilu) X(one_hot) X(einsum)                                    \
    X(depth_to_space) X(space_to_depth) X(reverse_sequence) X(reduce_by_sum) X(log_sum_exp)       \
    X(nll_loss) X(softmax_loss) X(center_crop_pad) X(affine_grid) X(grid_sample) X(col2im)        \
    X(window) X(mean) X(non_zero) X(compress) X(unique) X(non_max_suppression) X(attention)       \
    X(rotary) X(rms_norm) X(mean_variance) X(layer_norm) X(dft) X(stft) X(mel_weights)            \
    X(deform_conv) X(det) X(max_roi_pool) X(max_unpool) X(roi_align) X(put_masked)
/* clang-format on */
#define X(name) int shape__rewrite_##name(struct shape_ctx *c);
REWRITES(X)
#undef X
/* MaxPool that also returns the places of its maxima; window in static form; dims: of its
 * result. */
int shape__rewrite_max_pool(struct shape_ctx *c, const int64_t *dims, bool by_column);
/* Pad in a mode other than constant; pads as in static form. */
int shape__pad_from_data(struct shape_ctx *c, const char *mode, const int64_t *pads);

#endif
