/* op_elem.h - what element-wise operations, reductions and writes by index compute (op.h). */
#ifndef SH_RUNTIME_DEVICE_OP_ELEM_H
#define SH_RUNTIME_DEVICE_OP_ELEM_H

#include <stdbool.h>
#include <stdint.h>

enum dev_act { /* unary, element-wise; p0 and p1 as noted */
               DEV_ACT_NONE,
               DEV_ACT_RELU,
               DEV_ACT_LEAKY_RELU, /* p0 = slope */
               DEV_ACT_CLIP,       /* [p0, p1] */
               DEV_ACT_SIGMOID,
               DEV_ACT_TANH,
               DEV_ACT_GELU_ERF,
               DEV_ACT_GELU_TANH,
               DEV_ACT_HARDSIGMOID, /* max(0, min(1, p0 x + p1)) */
               DEV_ACT_HARDSWISH,   /* x max(0, min(1, x/6 + 1/2)) */
               DEV_ACT_SILU,        /* x sigmoid(x) */
               DEV_ACT_EXP,
               DEV_ACT_LOG,
               DEV_ACT_SQRT,
               DEV_ACT_ERF,
               DEV_ACT_ABS,
               DEV_ACT_NEG,
               DEV_ACT_RECIP,
               DEV_ACT_POW,    /* x^p0 */
               DEV_ACT_LINEAR, /* p0 x + p1 */
               /* From here on none is fused into the operation before it (pass_fuse.c). */
               DEV_ACT_ELU,      /* x above 0, else p0 (e^x - 1) */
               DEV_ACT_SOFTPLUS, /* log(1 + e^x) */
               DEV_ACT_SIN,
               DEV_ACT_COS,
               DEV_ACT_TAN,
               DEV_ACT_ASIN,
               DEV_ACT_ACOS,
               DEV_ACT_ATAN,
               DEV_ACT_SINH,
               DEV_ACT_COSH,
               DEV_ACT_ASINH,
               DEV_ACT_ACOSH,
               DEV_ACT_ATANH,
               DEV_ACT_FLOOR,
               DEV_ACT_CEIL,
               DEV_ACT_ROUND, /* halves to even */
               DEV_ACT_SIGN,
               DEV_N_ACTS
};

enum dev_bin {
    DEV_BIN_ADD,
    DEV_BIN_SUB,
    DEV_BIN_MUL,
    DEV_BIN_DIV,
    DEV_BIN_MIN,
    DEV_BIN_MAX,
    DEV_BIN_POW,
    DEV_BIN_EQUAL,
    DEV_BIN_LESS,
    DEV_BIN_GREATER,
    DEV_BIN_LESS_EQUAL,
    DEV_BIN_GREATER_EQUAL,
    DEV_BIN_MOD,     /* a - b floor(a / b): the sign of b */
    DEV_BIN_FMOD,    /* a - b trunc(a / b): the sign of a */
    DEV_BIN_BIT_AND, /* integers only from here on */
    DEV_BIN_BIT_OR,
    DEV_BIN_BIT_XOR,
    DEV_BIN_SHIFT_LEFT, /* shifts fill with zeros; a negative shift, or one by all bits, gives 0 */
    DEV_BIN_SHIFT_RIGHT,
    DEV_N_BINS
};
#define DEV_SCALER 4 /* elements of the scaler of a loss */
/* LOSS_EACH: the mean over all elements. weights, only for BCE: element i of pred uses weight i %
 * (number of weights). */
enum dev_loss {                 /* of an element x and its target t */
                DEV_LOSS_MSE,   /* (x - t)^2 */
                DEV_LOSS_L1,    /* |x - t| */
                DEV_LOSS_HUBER, /* (x - t)^2 / 2, and beyond delta: delta (|x - t| - delta / 2) */
                DEV_LOSS_BCE,   /* -(w t log s(x) + (1 - t) log(1 - s(x))), s the sigmoid */
                DEV_N_LOSSES
};
struct dev_loss_of {
    int64_t ignore;  /* XENT */
    float smoothing; /* XENT */
    enum dev_loss kind;
    float delta, weight;
};
/* For each picture of a batch, drawn from the sample's number, seed and step: moved by up to `pad`
 * pixels along height and width, filled with zeros, and mirrored along width with probability
 * `flip`. */
struct dev_jitter {
    int64_t pad;
    float flip;
    bool channels_last;
    uint64_t seed;
};
/* For each number not in `keep`, drawn from its place, seed and step: with probability `share` it
 * becomes a label, and the model sees `mask` (8 of 10), any number below `size` (1), or the number
 * itself (1). All others have the label `ignore`. */
#define DEV_MAX_KEPT 16
struct dev_tokens {
    float share;
    uint32_t n_keep;
    int64_t mask, size, ignore, keep[DEV_MAX_KEPT];
    uint64_t seed;
};
enum dev_red { DEV_RED_SUM, DEV_RED_MEAN, DEV_RED_MAX, DEV_RED_MIN, DEV_RED_PROD };
enum dev_scatter {
    DEV_SCATTER_SET,
    DEV_SCATTER_ADD,
    DEV_SCATTER_MUL,
    DEV_SCATTER_MAX,
    DEV_SCATTER_MIN,
    DEV_N_SCATTERS
};

/* y is BOOL (or U8). */
static inline bool dev_bin_compares(enum dev_bin k)
{
    return k >= DEV_BIN_EQUAL && k <= DEV_BIN_GREATER_EQUAL;
}
static inline bool dev_bin_of_bits(enum dev_bin k)
{
    return k >= DEV_BIN_BIT_AND;
}

/* Activations, besides those with bounds, that a BN_TRAIN without residual may have. */
bool dev_act_is_gated(enum dev_act a);

#endif
