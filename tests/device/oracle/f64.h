/* f64.h - the operations in double, by plain loops: what others are checked with (oracle.c).
 *
 * For checking, not for speed: what a model computes when rounding does not matter. Activations and
 * temporaries of type F32 are stored as doubles in the workspace; everything that others read
 * (inputs, outputs, state, gradients, the loss) stays F32 as op.h says.
 *
 * A kernel sees doubles only: operands of other types are converted before and after, in scratch.
 */
#ifndef SH_TESTS_DEVICE_ORACLE_F64_H
#define SH_TESTS_DEVICE_ORACLE_F64_H

#include "runtime/device/cpu/cpu_wide.h"

struct f64_call {
    const struct dev_op *op;
    const struct dev_tensor *in[DEV_MAX_IN], *out[DEV_MAX_OUT]; /* NULL: absent */
    const double *x[DEV_MAX_IN];
    double *y[DEV_MAX_OUT];
    uint32_t index;
    unsigned threads;
    int64_t step;
};
typedef int f64_fn(const struct f64_call *c, struct sh_err *err);

/* clang-format off */
#define F64_KERNELS(X)                                                                            \
    X(conv)                                                                                       \
    X(attention) X(attention_bwd)                                                                 \
    X(conv_bwd_data) X(conv_bwd_weight) X(matmul) X(pool_max) X(pool_avg) X(pool_max_bwd)         \
        X(pool_avg_bwd) X(bn_infer) X(bn_train) X(bn_train_bwd) X(layernorm) X(layernorm_bwd)     \
            X(softmax) X(softmax_bwd) X(dropout) X(dropout_bwd) X(loss_xent) X(loss_each) X(act)   \
                X(act_bwd) X(binary) X(where) X(reduce) X(fill) X(copy) X(concat) X(slice) X(pad) \
                    X(transpose) X(expand) X(gather) X(gather_bwd) X(resample) X(cumsum) X(topk)  \
    X(scatter) X(pixels) X(lstm_cell) X(lstm_cell_bwd)
/* clang-format on */
#define X(name) f64_fn f64__##name;
F64_KERNELS(X)
#undef X

/* The activation of op over the first output. */
void f64__act_out(const struct f64_call *c);
/* dy/dx of it at x, where it is y. */
double f64__act_slope(const struct dev_op *op, double x, double y);
/* Adds input i, broadcast, to the first output. */
int f64__add_to_out(const struct f64_call *c, uint32_t i, struct sh_err *err);
static inline int64_t f64__n(const struct dev_tensor *t)
{
    return dev_tensor_elements(t);
}

/* Of struct cpu_wide. */
bool f64__has(const struct dev_graph *g, const struct dev_op *op);
cpu_builder f64__build;

#endif
