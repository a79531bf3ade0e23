/* param_ops.c - see param_ops.h. */
#include "runtime/model/param_ops.h"

#include "common/mem.h"

#include <string.h>

/* Where a number without an axis may be one that learns, by inputs; elsewhere it says how to
 * compute. */
bool param_op_calculates(const struct graph_node *n, uint32_t k)
{
    static const struct {
        const char *op;
        uint32_t n_in;
    } OPS[] = {
        {"Abs", 1},          {"Acos", 1},          {"Acosh", 1},        {"Add", 2},
        {"Asin", 1},         {"Asinh", 1},         {"Atan", 1},         {"Atanh", 1},
        {"Cast", 1},         {"Celu", 1},          {"Clip", 1},         {"Cos", 1},
        {"Cosh", 1},         {"Div", 2},           {"Elu", 1},          {"Erf", 1},
        {"Exp", 1},          {"Expand", 1},        {"Gelu", 1},         {"HardSigmoid", 1},
        {"HardSwish", 1},    {"Identity", 1},      {"LeakyRelu", 1},    {"Log", 1},
        {"Max", UINT32_MAX}, {"Mean", UINT32_MAX}, {"Min", UINT32_MAX}, {"Mish", 1},
        {"Mul", 2},          {"Neg", 1},           {"Pow", 2},          {"Reciprocal", 1},
        {"Relu", 1},         {"Reshape", 1},       {"Selu", 1},         {"Sigmoid", 1},
        {"Sin", 1},          {"Sinh", 1},          {"Softplus", 1},     {"Softsign", 1},
        {"Sqrt", 1},         {"Sub", 2},           {"Sum", UINT32_MAX}, {"Swish", 1},
        {"Tan", 1},          {"Tanh", 1},          {"Unsqueeze", 1},    {"Where", 3},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++)
        if (strcmp(OPS[i].op, n->op) == 0)
            return k < OPS[i].n_in;
    return false;
}

bool param_op_is_elementwise(const struct graph_node *n)
{
    static const char *const OPS[] = {"Abs", "Add", "Clip", "Div",     "Exp",  "Max", "Min",
                                      "Mul", "Neg", "Pow",  "Sigmoid", "Sqrt", "Sub", "Tanh"};

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++)
        if (strcmp(OPS[i], n->op) == 0)
            return true;
    return false;
}

/* Operations whose numbers are those of their first input, of all where they join, or of either
 * branch. */
bool param_op_moves(const struct graph_node *n)
{
    static const char *const OPS[] = {"Cast",           "Concat",   "Expand", "Flatten",  "Gather",
                                      "GatherElements", "GatherND", "If",     "Identity", "Reshape",
                                      "Resize",         "Slice",    "Split",  "Squeeze",  "Tile",
                                      "Transpose",      "Unsqueeze"};

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++)
        if (strcmp(OPS[i], n->op) == 0)
            return true;
    return false;
}

bool param_op_is_function(const struct graph_node *n)
{
    static const char *const OPS[] = {"Abs",  "Erf",     "Exp",      "Log",  "Neg", "Reciprocal",
                                      "Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh"};

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++)
        if (strcmp(OPS[i], n->op) == 0)
            return true;
    return false;
}

bool param_op_joins(const struct graph_node *n)
{
    static const char *const OPS[] = {"Add", "Concat", "Div", "GRU", "LSTM", "Max",
                                      "Min", "Mul",    "Pow", "RNN", "Sub",  "Where"};

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++)
        if (strcmp(OPS[i], n->op) == 0)
            return true;
    return false;
}
