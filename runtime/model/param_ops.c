/* param_ops.c - see param_ops.h. */
#include "runtime/model/param_ops.h"

#include "common/mem.h"

#include <string.h>

static bool is_one_of(const struct graph_node *n, const char *const *ops, size_t n_ops)
{
    for (size_t i = 0; i < n_ops; i++)
        if (strcmp(ops[i], n->op) == 0)
            return true;
    return false;
}

#define IS_ONE_OF(n, ops) is_one_of(n, ops, SH_ARRAY_LEN(ops))

/* Where a number without an axis may be one that learns, by inputs; elsewhere it says how to
 * compute. */
bool param_op_calculates(const struct graph_node *n, uint32_t k)
{
    static const char *const FIRST[] = {
        "Abs",       "Acos",      "Acosh",   "Asin",    "Asinh", "Atan",        "Atanh",
        "Cast",      "CastLike",  "Celu",    "Clip",    "Cos",   "Cosh",        "Elu",
        "Erf",       "Exp",       "Expand",  "Flatten", "Gelu",  "HardSigmoid", "HardSwish",
        "Identity",  "LeakyRelu", "Log",     "Mish",    "Neg",   "Reciprocal",  "Relu",
        "Reshape",   "Selu",      "Shrink",  "Sigmoid", "Sin",   "Sinh",        "Softplus",
        "Softsign",  "Sqrt",      "Squeeze", "Swish",   "Tan",   "Tanh",        "Tile",
        "Transpose", "Unsqueeze"};
    static const char *const TWO[] = {"Add", "Div", "Mul", "PRelu", "Pow", "Sub"};
    static const char *const EACH[] = {"Einsum", "Max", "Mean", "Min", "Sum", "Where"};

    return (k == 0 && (strncmp(n->op, "Reduce", 6) == 0 || IS_ONE_OF(n, FIRST))) ||
           (k < 2 && IS_ONE_OF(n, TWO)) || IS_ONE_OF(n, EACH);
}

bool param_op_is_elementwise(const struct graph_node *n)
{
    static const char *const OPS[] = {"Abs", "Add", "Clip", "Div",     "Exp",  "Max", "Min",
                                      "Mul", "Neg", "Pow",  "Sigmoid", "Sqrt", "Sub", "Tanh"};

    return IS_ONE_OF(n, OPS);
}

/* Operations whose numbers are those of their first input, of all where they join, or of either
 * branch. */
bool param_op_moves(const struct graph_node *n)
{
    static const char *const OPS[] = {"Cast",    "CastLike",       "Concat",   "Expand", "Flatten",
                                      "Gather",  "GatherElements", "GatherND", "If",     "Identity",
                                      "Reshape", "Resize",         "Slice",    "Split",  "Squeeze",
                                      "Tile",    "Transpose",      "Unsqueeze"};

    return IS_ONE_OF(n, OPS);
}

bool param_op_is_function(const struct graph_node *n)
{
    static const char *const OPS[] = {"Abs",  "Erf",     "Exp",      "Log",  "Neg", "Reciprocal",
                                      "Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh"};

    return IS_ONE_OF(n, OPS);
}

bool param_op_joins(const struct graph_node *n)
{
    static const char *const OPS[] = {"Add", "Concat", "Div", "GRU", "LSTM", "Max",
                                      "Min", "Mul",    "Pow", "RNN", "Sub",  "Where"};

    return IS_ONE_OF(n, OPS);
}
