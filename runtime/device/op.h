/* op.h - the operations that a device runs, and the tensors between them.
 *
 * The model compiler (runtime/model) lowers a graph to one struct dev_graph: a static list of
 * operations in execution order over a table of tensors. Shapes are fixed; a dev_graph is for one
 * batch size. Inference, the forward and backward passes of training, the loss and the update are
 * all operations of this list.
 *
 * The logical layout is row-major with ONNX axis order (activations N,C,spatial...; convolution
 * weights M,C/g,spatial...). The device may store a tensor differently (blocked, NHWC, 16 bit):
 * dev_plan_new sets the `bytes` it needs, and dev_plan_pack / unpack convert. Tensors with role
 * STATE, INPUT, LABEL, OUTPUT and KEEP are always stored plain: row-major in their dtype.
 *
 * `alias_of`: the tensor is another name of the same bytes (reshape of a plain tensor). Both are
 * stored plain. dev_plan_new adds such names, of which the device alone knows how they are stored.
 */
#ifndef SH_RUNTIME_DEVICE_OP_H
#define SH_RUNTIME_DEVICE_OP_H

#include "common/dtype.h"
#include "runtime/device/op_elem.h"
#include "runtime/device/op_pick.h"
#include "runtime/device/op_quant.h"
#include "runtime/device/turn.h"
#include "runtime/pack/pack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEV_NONE UINT32_MAX
#define DEV_MAX_IN 32 /* Concat has the most */
#define DEV_MAX_OUT 5
#define DEV_MAX_KEYS 16384     /* of ATTENTION: a device may hold a row of scores on the chip */
#define DEV_MAX_TRAIN_WIDTH 64 /* of ATTENTION with lse, and a multiple of 16 */

enum dev_role {
    DEV_ROLE_ACT,    /* activation, gradient, temporary: workspace, from first write to last read */
    DEV_ROLE_WEIGHT, /* read-only, part of the image in order of first use */
    DEV_ROLE_TABLE,  /* read-only, read by GATHER alone: in a place of its own, on the device or in
                        host memory (struct dev_bases); stored as a WEIGHT would be, row by row */
    DEV_ROLE_STATE,  /* training: parameter, optimizer state, running statistics; F32 plain */
    DEV_ROLE_INPUT,  /* filled before the run: workspace, plain */
    DEV_ROLE_LABEL,  /* the same, for training */
    DEV_ROLE_OUTPUT, /* read after the run: workspace, plain, never overwritten */
    DEV_ROLE_KEEP    /* like ACT but lives through the whole run (loss, accumulators) */
};

struct dev_tensor {
    const char *name; /* BORROWED from the owner of the graph; for messages and profiles */
    enum sh_dtype dtype;
    enum dev_role role;
    uint32_t rank;
    int64_t dims[SH_MAX_RANK];
    uint32_t alias_of;     /* DEV_NONE, or an earlier tensor with the same number of elements */
    size_t bytes;          /* stored size: filled by dev_plan_new ... */
    enum pack_type stored; /* ... and what numbers these are, of a WEIGHT */
    size_t offset; /* in the image (WEIGHT), among the tables (TABLE), in the state (STATE) or
                      workspace: set by the planner */
};

/* op.def lists in[] and out[] of every kind. More about some of them:
 *
 * ATTENTION     q k v [mask] -> y [lse]; y = drop(softmax(scale q k^T + mask)) v by head; op_attn.h
 * ATTENTION_BWD q k v mask y d_y lse -> d_q [d_k] [d_v] [d_mask], all written; op_attn.h
 * RESAMPLE      x from0 weight0 [from1 weight1] -> y; along axis u.axis.axis, and along the one
 *               behind it if there are from1 and weight1, an element of y is a sum of elements of
 *               x: number p along the first is sum_k weight0[p, k] x[from0[p, k]]. from: I32
 *               within the axis of x; both of rank 1, as many for each p. It is its own gradient,
 *               with other tables
 * BN_TRAIN      x scale bias run_mean run_var [residual] -> y save_mean save_invstd new_mean
 *               new_var; y = act(bn(x) + residual), act NONE, RELU, or CLIP with p0 <= 0 <= p1,
 *               or, without residual, SILU or HARDSWISH
 * BN_TRAIN_BWD  x d_y scale save_mean save_invstd [bias] [y] [d_y2] -> d_x d_scale d_bias
 *               [d_residual]; d_residual = act'(y) (d_y + d_y2), and the rest follows from it. With
 *               an act it needs y or, when there was no residual, bias: then bn(x) is computed
 *               again, of which SILU and HARDSWISH take their slope
 * PIXELS        x, U8 -> y, F32: pictures of four axes, of which the channels are axis 1, or 3
 *               where x_last or y_last is set; a byte b of channel c becomes table[256 c + b], F32
 *               of rank 1
 * REDUCE        F32, I64 or I32; sums of integers wrap, their means are cut
 * TOPK          the dims[axis] of y best elements along an axis, best first, and where they are
 *               (I64); NaN is larger than all numbers. Of equal ones the first, or (last) the last
 * LOCATE        indices, I64 or I32 -> rows, I64: of the depth numbers of each index, which count
 *               from the end where negative and must be in [-size, size), times stride, and of the
 *               place in rows times base, all added up. A bad one ends the run as GATHER's does
 * SCATTER       data rows updates -> y: a copy of data [n, ...] in which row rows[i] is set to, or
 *               combined with, the i-th element of updates, in this order, unless rows[i] < 0
 * LSTM_CELL     one step: of sums [N, 4 H], columns i, o, f, g, and the cell's state [N, H]:
 *               cell' = s(f) cell + s(i) tanh(g), hidden = s(o) tanh(cell'); s: logistic
 * DROPOUT       x [residual] -> y [mask U8]; y = drop(x) + residual. What it drops is drawn by
 *               Philox on (seed, step, op), so it has no state
 * LOSS_XENT     logits [N, C] or [N, C, S], a label for each of the others' elements, weights [C]:
 *               the sum of the rows' losses over the sum of their labels' weights (without weights
 *               1 each); rows with the label u.loss.ignore are left out. With e = u.loss.smoothing
 *               a row's is (1 - e) w[label] -log p[label] + e / C sum_c w[c] -log p[c]
 * LOSS_EACH     u.loss.kind: op_elem.h
 *               Both: the loss and its gradient are multiplied by u.loss.weight, the gradient also
 *               by scaler[0], where there is a scaler
 * SGD, ADAM      in a turn of n parts what is called grad is the gradients' sum divided by n, then
 *               multiplied by min(1, clip_norm / (norm + 1e-6)), norm being the root of squares
 *               divided by n, and cut to [-clip_value, clip_value]; 0: not cut. With a scaler all
 *               are divided by scaler[0] first, squares that are not finite skip the update, and
 *               Adam does not count it
 * SQUARES       before + the sum of the squares of all elements of the others
 * LOSS_SCALE    scaler is F32 [DEV_SCALER]: the factor, updates since it changed, updates skipped
 *               in all, and in a row up to now. A skipped update multiplies the factor by
 *               u.scaler.backoff, u.scaler.interval others in a row by u.scaler.growth. It stays
 *               finite and at least FLT_MIN
 */
enum dev_op_kind {
#define DEV_OP(kind, ...) DEV_OP_##kind,
#include "runtime/device/op.def"
#undef DEV_OP
    DEV_N_OPS
};

struct dev_conv { /* also pooling windows; 2-D; 1-D is lowered to it with height 1 */
    int64_t kernel[2], stride[2], dilation[2], pad_begin[2], pad_end[2];
    int64_t groups;
    bool count_include_pad; /* POOL_AVG */
    /* CONV_BWD_WEIGHT: the samples (axis 0) of x and d_y that it reads; the sum over ranges that
     * cover all of them is the gradient. count 0, with first 0: all; every other kind has this. */
    int64_t first, count;
};

/* Head h of row s of sample b begins at element at + b batch + s row + h D. */
struct dev_heads {
    int64_t at, batch, row;
};

struct dev_op {
    enum dev_op_kind kind;
    uint32_t n_in, n_out;
    uint32_t in[DEV_MAX_IN], out[DEV_MAX_OUT];
    uint32_t layer;   /* layer of the image to which it belongs: its group must have arrived */
    const char *name; /* BORROWED: node name */
    enum dev_act act; /* of CONV, MATMUL, BINARY, BN_INFER (fused) and ACT, ACT_BWD */
    float act_p0, act_p1;
    union {
        struct dev_conv conv, pool;
        struct dev_quantize quant;
        struct {
            struct dev_conv conv;
            struct dev_product q;
        } qconv;
        struct {
            bool trans_a, trans_b;
            float alpha;
        } matmul; /* last two axes; leading broadcast */
        /* q, y: [B, Sq, H, D]; k, v: [B, Sk, H, D]; mask: added, broadcast to [B, H, Sq, Sk], but
         * of n along B, a divisor of B, sample b has number b % n. With
         * view[i].row > 0 operand i has any shape, and its heads lie as the view says. */
        struct {
            float scale;
            struct dev_heads view[3];
            int64_t k_rows; /* Sk, where k or v is a view */
            bool zero_hidden;
            float ratio; /* of dropout; 0: none */
            uint64_t seed;
        } attn;
        struct {
            enum dev_bin kind;
        } binary;
        struct {
            int64_t axis;
            bool log;
        } axis;
        struct {
            int64_t start[SH_MAX_RANK], step[SH_MAX_RANK];
        } slice; /* sizes from y */
        struct {
            int64_t before[SH_MAX_RANK];
            float value;
        } pad; /* after from y */
        struct {
            uint32_t perm[SH_MAX_RANK];
        } perm;
        struct {
            enum dev_red kind;
            uint32_t axes;
            bool keep_dims;
        } reduce; /* axes: bit set */
        struct {
            int64_t axis;
            bool exclusive, reverse; /* without the element itself; from the end */
        } scan;
        struct {
            int64_t axis;
            bool largest, last;
        } topk;
        struct {
            uint32_t depth;
            int64_t size[SH_MAX_RANK], stride[SH_MAX_RANK]; /* of each number of an index */
            int64_t base[SH_MAX_RANK];                      /* of each axis of rows */
        } locate;
        struct {
            enum dev_scatter kind;
        } scatter;
        struct dev_nms nms;
        struct {
            float eps, momentum;
            int64_t axis;
            struct dev_quant q;
        } norm; /* BN: new = momentum old + (1-momentum) batch (unbiased variance); LN: axis, and
                 * q of y in 8 bits (op_quant.h) */
        struct {
            float ratio;
            uint64_t seed;
        } dropout;
        struct dev_loss_of loss;
        struct dev_jitter jitter;
        struct {
            bool x_last, y_last;
        } pixels;
        struct dev_tokens tokens;
        struct {
            float growth, backoff, interval;
        } scaler;
        /* betas as given; the turn comes with dev_plan_run */
        struct {
            float clip_norm, clip_value, momentum, weight_decay, beta1, beta2, eps;
            bool nesterov, decoupled;
        } optim;
    } u;
};

struct dev_graph {
    struct dev_tensor *tensors;
    struct dev_op *ops;
    uint32_t n_tensors, n_ops, n_layers;
    uint32_t update_begin; /* first operation of the update; n_ops: none */
};

/* The tensors of the state that the operation writes; all it writes besides lies in the workspace.
 * out: [DEV_MAX_IN + DEV_MAX_OUT]. Returns how many. */
uint32_t dev_op_written(const struct dev_graph *g, const struct dev_op *op, uint32_t *out);
const char *dev_op_name(enum dev_op_kind k);
const char *dev_act_name(enum dev_act a);
/* The interval [lo, hi] to which NONE, RELU, and CLIP around 0 limit x. False: another
 * activation. */
bool dev_act_bounds(const struct dev_op *op, float *lo, float *hi);
/* The operation's scaler; DEV_NONE: none. */
uint32_t dev_op_scaler(const struct dev_op *op);
int64_t dev_tensor_elements(const struct dev_tensor *t);
int64_t dev_axes_elements(const struct dev_tensor *t, uint32_t from, uint32_t to); /* [from, to) */
/* `axis` may count from the end (-1: the last). False: the tensor has no such axis. */
bool dev_axis_of(const struct dev_tensor *t, int64_t axis, uint32_t *out);
bool dev_same_dims(const struct dev_tensor *a, const struct dev_tensor *b);
/* How many samples a CONV_BWD_WEIGHT reads, from u.conv.first on. */
int64_t dev_conv_samples(const struct dev_conv *c, const struct dev_tensor *x);

#endif
