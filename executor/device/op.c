/* op.c - names and sizes; linked into every program that uses a device and into every back end. */
#include "executor/device/op.h"

static const char *const OP_NAMES[DEV_N_OPS] = {
#define X(k) [DEV_OP_##k] = #k,
    DEV_OP_MAP(X)
#undef X
};

static const char *const ACT_NAMES[DEV_N_ACTS] = {
    [DEV_ACT_NONE] = "NONE",
    [DEV_ACT_RELU] = "RELU",
    [DEV_ACT_LEAKY_RELU] = "LEAKY_RELU",
    [DEV_ACT_CLIP] = "CLIP",
    [DEV_ACT_SIGMOID] = "SIGMOID",
    [DEV_ACT_TANH] = "TANH",
    [DEV_ACT_GELU_ERF] = "GELU_ERF",
    [DEV_ACT_GELU_TANH] = "GELU_TANH",
    [DEV_ACT_HARDSIGMOID] = "HARDSIGMOID",
    [DEV_ACT_HARDSWISH] = "HARDSWISH",
    [DEV_ACT_EXP] = "EXP",
    [DEV_ACT_LOG] = "LOG",
    [DEV_ACT_SQRT] = "SQRT",
    [DEV_ACT_ERF] = "ERF",
    [DEV_ACT_ABS] = "ABS",
    [DEV_ACT_NEG] = "NEG",
    [DEV_ACT_RECIP] = "RECIP",
    [DEV_ACT_POW] = "POW",
    [DEV_ACT_LINEAR] = "LINEAR",
};

const char *dev_op_name(enum dev_op_kind k)
{
    return (unsigned)k < DEV_N_OPS ? OP_NAMES[k] : "?";
}

const char *dev_act_name(enum dev_act a)
{
    return (unsigned)a < DEV_N_ACTS ? ACT_NAMES[a] : "?";
}

int64_t dev_tensor_elements(const struct dev_tensor *t)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}
