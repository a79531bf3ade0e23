/* op_list.c - every ONNX operator up to opset 23 and how it is handled; printed as
 * docs/operators.md. shape_table.c has the supported ones; this list adds what no table says.
 */
#include "runtime/model/op_list.h"

#include "common/mem.h"
#include "runtime/model/shape_int.h"

enum why { NOT_YET, TEXT, RANDOM, FROM_FILE };

static const char *const WHY[] = {
    [NOT_YET] = "not built yet",
    [TEXT] = "made for texts, which devices have not",
    [RANDOM] = "its result would be random; of a dropout: call model.eval() before the export",
    [FROM_FILE] = "decodes files, as `shunt infer --image` and `shunt push dataset` do before",
};

/* Sorted by name, as ONNX sorts. since: the first opset that has it. trains: test_autodiff.c
 * compares its gradient with differences, and fails where this list says otherwise. */
static const struct row {
    const char *name;
    int since;
    bool trains;
    enum why why; /* if it is not supported */
} ROWS[] = {
    {"Abs", 1, true, NOT_YET},
    {"Acos", 7, true, NOT_YET},
    {"Acosh", 9, true, NOT_YET},
    {"Add", 1, true, NOT_YET},
    {"AffineGrid", 20, true, NOT_YET},
    {"And", 1, false, NOT_YET},
    {"ArgMax", 1, false, NOT_YET},
    {"ArgMin", 1, false, NOT_YET},
    {"Asin", 7, true, NOT_YET},
    {"Asinh", 9, true, NOT_YET},
    {"Atan", 7, true, NOT_YET},
    {"Atanh", 9, true, NOT_YET},
    {"Attention", 23, true, NOT_YET},
    {"AveragePool", 1, true, NOT_YET},
    {"BatchNormalization", 1, true, NOT_YET},
    {"Bernoulli", 15, false, RANDOM},
    {"BitShift", 11, false, NOT_YET},
    {"BitwiseAnd", 18, false, NOT_YET},
    {"BitwiseNot", 18, false, NOT_YET},
    {"BitwiseOr", 18, false, NOT_YET},
    {"BitwiseXor", 18, false, NOT_YET},
    {"BlackmanWindow", 17, false, NOT_YET},
    {"Cast", 1, false, NOT_YET},
    {"CastLike", 15, false, NOT_YET},
    {"Ceil", 1, false, NOT_YET},
    {"Celu", 12, true, NOT_YET},
    {"CenterCropPad", 18, true, NOT_YET},
    {"Clip", 1, true, NOT_YET},
    {"Col2Im", 18, true, NOT_YET},
    {"Compress", 9, false, NOT_YET},
    {"Concat", 1, true, NOT_YET},
    {"ConcatFromSequence", 11, false, NOT_YET},
    {"Constant", 1, false, NOT_YET},
    {"ConstantOfShape", 9, false, NOT_YET},
    {"Conv", 1, true, NOT_YET},
    {"ConvInteger", 10, false, NOT_YET},
    {"ConvTranspose", 1, true, NOT_YET},
    {"Cos", 7, true, NOT_YET},
    {"Cosh", 9, true, NOT_YET},
    {"CumSum", 11, true, NOT_YET},
    {"DFT", 17, true, NOT_YET},
    {"DeformConv", 19, true, NOT_YET},
    {"DepthToSpace", 1, true, NOT_YET},
    {"DequantizeLinear", 10, false, NOT_YET},
    {"Det", 11, true, NOT_YET},
    {"Div", 1, true, NOT_YET},
    {"Dropout", 1, true, NOT_YET},
    {"DynamicQuantizeLinear", 11, false, NOT_YET},
    {"Einsum", 12, true, NOT_YET},
    {"Elu", 1, true, NOT_YET},
    {"Equal", 1, false, NOT_YET},
    {"Erf", 9, true, NOT_YET},
    {"Exp", 1, true, NOT_YET},
    {"Expand", 8, true, NOT_YET},
    {"EyeLike", 9, false, NOT_YET},
    {"Flatten", 1, true, NOT_YET},
    {"Floor", 1, false, NOT_YET},
    {"GRU", 1, true, NOT_YET},
    {"Gather", 1, true, NOT_YET},
    {"GatherElements", 11, true, NOT_YET},
    {"GatherND", 11, true, NOT_YET},
    {"Gelu", 20, true, NOT_YET},
    {"Gemm", 1, true, NOT_YET},
    {"GlobalAveragePool", 1, true, NOT_YET},
    {"GlobalLpPool", 1, true, NOT_YET},
    {"GlobalMaxPool", 1, true, NOT_YET},
    {"Greater", 1, false, NOT_YET},
    {"GreaterOrEqual", 12, false, NOT_YET},
    {"GridSample", 16, true, NOT_YET},
    {"GroupNormalization", 18, true, NOT_YET},
    {"HammingWindow", 17, false, NOT_YET},
    {"HannWindow", 17, false, NOT_YET},
    {"HardSigmoid", 1, true, NOT_YET},
    {"HardSwish", 14, true, NOT_YET},
    {"Hardmax", 1, false, NOT_YET},
    {"Identity", 1, true, NOT_YET},
    {"If", 1, false, NOT_YET},
    {"ImageDecoder", 20, false, FROM_FILE},
    {"InstanceNormalization", 1, true, NOT_YET},
    {"IsInf", 10, false, NOT_YET},
    {"IsNaN", 9, false, NOT_YET},
    {"LRN", 1, true, NOT_YET},
    {"LSTM", 1, true, NOT_YET},
    {"LayerNormalization", 17, true, NOT_YET},
    {"LeakyRelu", 1, true, NOT_YET},
    {"Less", 1, false, NOT_YET},
    {"LessOrEqual", 12, false, NOT_YET},
    {"Log", 1, true, NOT_YET},
    {"LogSoftmax", 1, true, NOT_YET},
    {"Loop", 1, false, NOT_YET},
    {"LpNormalization", 1, true, NOT_YET},
    {"LpPool", 1, true, NOT_YET},
    {"MatMul", 1, true, NOT_YET},
    {"MatMulInteger", 10, false, NOT_YET},
    {"Max", 1, true, NOT_YET},
    {"MaxPool", 1, true, NOT_YET},
    {"MaxRoiPool", 1, true, NOT_YET},
    {"MaxUnpool", 9, true, NOT_YET},
    {"Mean", 1, true, NOT_YET},
    {"MeanVarianceNormalization", 9, true, NOT_YET},
    {"MelWeightMatrix", 17, false, NOT_YET},
    {"Min", 1, true, NOT_YET},
    {"Mish", 18, true, NOT_YET},
    {"Mod", 10, true, NOT_YET},
    {"Mul", 1, true, NOT_YET},
    {"Multinomial", 7, false, RANDOM},
    {"Neg", 1, true, NOT_YET},
    {"NegativeLogLikelihoodLoss", 12, true, NOT_YET},
    {"NonMaxSuppression", 10, false, NOT_YET},
    {"NonZero", 9, false, NOT_YET},
    {"Not", 1, false, NOT_YET},
    {"OneHot", 9, false, NOT_YET},
    {"Optional", 15, false, NOT_YET},
    {"OptionalGetElement", 15, false, NOT_YET},
    {"OptionalHasElement", 15, false, NOT_YET},
    {"Or", 1, false, NOT_YET},
    {"PRelu", 1, true, NOT_YET},
    {"Pad", 1, true, NOT_YET},
    {"Pow", 1, true, NOT_YET},
    {"QLinearConv", 10, false, NOT_YET},
    {"QLinearMatMul", 10, false, NOT_YET},
    {"QuantizeLinear", 10, false, NOT_YET},
    {"RMSNormalization", 23, true, NOT_YET},
    {"RNN", 1, true, NOT_YET},
    {"RandomNormal", 1, false, RANDOM},
    {"RandomNormalLike", 1, false, RANDOM},
    {"RandomUniform", 1, false, RANDOM},
    {"RandomUniformLike", 1, false, RANDOM},
    {"Range", 11, false, NOT_YET},
    {"Reciprocal", 1, true, NOT_YET},
    {"ReduceL1", 1, true, NOT_YET},
    {"ReduceL2", 1, true, NOT_YET},
    {"ReduceLogSum", 1, true, NOT_YET},
    {"ReduceLogSumExp", 1, true, NOT_YET},
    {"ReduceMax", 1, true, NOT_YET},
    {"ReduceMean", 1, true, NOT_YET},
    {"ReduceMin", 1, true, NOT_YET},
    {"ReduceProd", 1, true, NOT_YET},
    {"ReduceSum", 1, true, NOT_YET},
    {"ReduceSumSquare", 1, true, NOT_YET},
    {"RegexFullMatch", 20, false, TEXT},
    {"Relu", 1, true, NOT_YET},
    {"Reshape", 1, true, NOT_YET},
    {"Resize", 10, true, NOT_YET},
    {"ReverseSequence", 10, true, NOT_YET},
    {"RoiAlign", 10, true, NOT_YET},
    {"RotaryEmbedding", 23, true, NOT_YET},
    {"Round", 11, false, NOT_YET},
    {"STFT", 17, true, NOT_YET},
    {"Scan", 8, false, NOT_YET},
    {"Scatter", 9, false, NOT_YET},
    {"ScatterElements", 11, true, NOT_YET},
    {"ScatterND", 11, true, NOT_YET},
    {"Selu", 1, true, NOT_YET},
    {"SequenceAt", 11, false, NOT_YET},
    {"SequenceConstruct", 11, false, NOT_YET},
    {"SequenceEmpty", 11, false, NOT_YET},
    {"SequenceErase", 11, false, NOT_YET},
    {"SequenceInsert", 11, false, NOT_YET},
    {"SequenceLength", 11, false, NOT_YET},
    {"SequenceMap", 17, false, NOT_YET},
    {"Shape", 1, false, NOT_YET},
    {"Shrink", 9, true, NOT_YET},
    {"Sigmoid", 1, true, NOT_YET},
    {"Sign", 9, false, NOT_YET},
    {"Sin", 7, true, NOT_YET},
    {"Sinh", 9, true, NOT_YET},
    {"Size", 1, false, NOT_YET},
    {"Slice", 1, true, NOT_YET},
    {"Softmax", 1, true, NOT_YET},
    {"SoftmaxCrossEntropyLoss", 12, true, NOT_YET},
    {"Softplus", 1, true, NOT_YET},
    {"Softsign", 1, true, NOT_YET},
    {"SpaceToDepth", 1, true, NOT_YET},
    {"Split", 1, true, NOT_YET},
    {"SplitToSequence", 11, false, NOT_YET},
    {"Sqrt", 1, true, NOT_YET},
    {"Squeeze", 1, true, NOT_YET},
    {"StringConcat", 20, false, TEXT},
    {"StringNormalizer", 10, false, TEXT},
    {"StringSplit", 20, false, TEXT},
    {"Sub", 1, true, NOT_YET},
    {"Sum", 1, true, NOT_YET},
    {"Tan", 7, true, NOT_YET},
    {"Tanh", 1, true, NOT_YET},
    {"TfIdfVectorizer", 9, false, TEXT},
    {"ThresholdedRelu", 10, true, NOT_YET},
    {"Tile", 1, true, NOT_YET},
    {"TopK", 1, true, NOT_YET},
    {"Transpose", 1, true, NOT_YET},
    {"Trilu", 14, true, NOT_YET},
    {"Unique", 11, false, NOT_YET},
    {"Unsqueeze", 1, true, NOT_YET},
    {"Upsample", 1, false, NOT_YET},
    {"Where", 9, true, NOT_YET},
    {"Xor", 1, false, NOT_YET},
};

const char *op_list_why(const char *op)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++)
        if (strcmp(ROWS[i].name, op) == 0 && ROWS[i].why != NOT_YET)
            return WHY[ROWS[i].why];
    return WHY_OPERATOR;
}

bool op_list_trains(const char *op)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++)
        if (strcmp(ROWS[i].name, op) == 0)
            return ROWS[i].trains;
    return false;
}

size_t op_list_n_trains(void)
{
    size_t n = 0;

    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++)
        n += ROWS[i].trains;
    return n;
}

static void print_row(FILE *out, const struct row *r)
{
    const struct shape_op *op = shape__op(r->name);
    /* The reader takes Constant away. */
    const bool reads = strcmp(r->name, "Constant") == 0;
    const char *runs =
        reads || (op && op->flags & (SHAPE_RUNS | SHAPE_ALWAYS | SHAPE_COMPOSED | SHAPE_CONTROL))
            ? "yes"
        : op ? "of constants"
             : "no";

    fprintf(out, "| %s | %d | %s | %s | %s |\n", r->name, r->since, runs,
            op && r->trains ? "yes" : "no", op || reads ? "" : WHY[r->why]);
}

static const struct {
    const char *op, *why;
} FORMS[] = {
#define X(op, why) {op, why},
    WHY_ROWS(X)
#undef X
};

/* What stands in its place is known only in an error. */
static void print_escaped(FILE *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p != '%') {
            fputc(*p, out);
            continue;
        }
        p += strcspn(p + 1, "diusgx") + 1;
        fputs("…", out);
    }
}

static void print_forms(FILE *out)
{
    fputs("\n## Forms that are refused\n\n"
          "With these words, after the name of the node. \"…\": a number, a type or a name.\n\n"
          "| operator | why |\n| --- | --- |\n",
          out);
    for (size_t i = 0; i < SH_ARRAY_LEN(FORMS); i++) {
        const char *op = FORMS[i].op;

        fprintf(out, "| %s | ", !op[0] ? "any" : strcmp(op, "-") == 0 ? "the model" : op);
        print_escaped(out, FORMS[i].why);
        fputs(" |\n", out);
    }
}

static void print_sizes(FILE *out)
{
    fputs(
        "\n## Results whose size the data decide\n\n"
        "NonZero, Compress, Unique and NonMaxSuppression give as many elements as the data "
        "decide. A program\nhas fixed sizes: it has room for all that there may be, and the "
        "number of those that are there is\ncomputed beside them. What follows such an operator "
        "sees just those, and an answer has just those: its\n`shape` says how many, which may "
        "be none. What `shape` says before, -1, is at most the room.\n\n"
        "That goes through operators element by element, reductions, TopK, gathers and scatters, "
        "Concat,\nSlice up to a number, shapes as data and what is computed of them, products, "
        "convolutions of cut\nregions, RoiAlign, and another NonZero or NonMaxSuppression. One "
        "axis of a tensor may be so; where two\nsuch axes meet, it has to follow from the graph "
        "that they are alike. What is not carried is refused,\nnever guessed: \"an axis whose "
        "size the data decide\" above.\n\n"
        "TopK with k above the number of elements gives all of them. The mean of nothing is NaN. "
        "Thresholds of\nNonMaxSuppression are constants, and of a NaN score there is no box. "
        "Requests to such\nmodels run one by one unless the file fixes the batch to 1, and batch "
        "jobs do not keep such outputs. Rows\nthat NonZero and Compress choose are trained, as "
        "those of an expert in a mixture, where they end in a\nscatter or a reduction; a loss of "
        "such an output, and BatchNormalization of such rows, are refused.\n\n"
        "Split into parts whose sizes the data decide, as rows that are sorted by experts are "
        "dealt out, is right\nwhere the sizes add up to the axis; else outputs of floats are NaN. "
        "Joined in their order, the parts are\nthe whole again. Each has room for all, so an "
        "expert computes as many rows as there are.\n\n"
        "Split into parts of fixed sizes is right of as many elements as they have together: "
        "of more or\nfewer, as an export has them that unrolled a loop over what one sample had, "
        "all outputs of floats are NaN,\nand integers mean nothing; a model that has no output "
        "of floats is refused. A loop over the experts that\ntokens chose is right of fewer, "
        "too: who was not chosen adds nothing. That is seen where a turn\ndoes nothing but "
        "scatter: where it also halves the sum, or is the only one, outputs of fewer are NaN.\n",
        out);
}

static void print_control(FILE *out)
{
    fputs("\n## Branches, loops, sequences\n\n"
          "If: where the condition is a constant, or follows from sizes, only the branch that is "
          "taken is\nthere. Where it is computed from data both are computed, and one is "
          "selected: they may differ\nin size along one axis.\n\n"
          "Loop, Scan and SequenceMap are unrolled: how often a body runs has to follow from "
          "constants and\nsizes. A Loop whose condition is computed from data makes all trips of "
          "its trip count, and keeps\nwhat it carries once the condition is false.\n\n"
          "Sequences and optionals exist only while a model is compiled: one that is built and "
          "taken apart\nagain costs nothing. Places and lengths have to be known by then.\n",
          out);
}

void op_list_print(FILE *out)
{
    size_t n = 0;

    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++)
        n += shape__op(ROWS[i].name) != NULL;
    fprintf(out,
            "# Operators\n\n"
            "Printed by `shunt-run operators` from `runtime/model/shape_table.c` and `op_list.c`.\n"
            "%zu of the %zu operators of ONNX up to opset 23 are supported on both devices, in\n"
            "all opsets from 1 on: older forms become the newest at import. Functions of the model "
            "are\n"
            "replaced by their nodes. \"of constants\": only if the inputs are constants or follow "
            "from\n"
            "shapes. \"trains\": the gradient goes through it, and is tested.\n\n"
            "Float inputs and outputs have the file's types (FP32, FP64, FP16, BF16); in between, "
            "FP32 is\n"
            "used, with the version's precision. Integers of all widths and BOOL are moved, "
            "compared and\n"
            "computed exactly if the operator computes with integers; other types are refused by "
            "name.\n"
            "`tests/e2e/test_node_tests.py` runs ONNX's own tests of all operators.\n\n"
            "| operator | since opset | runs | trains | why not |\n"
            "| --- | --- | --- | --- | --- |\n",
            n, SH_ARRAY_LEN(ROWS));
    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++)
        print_row(out, &ROWS[i]);
    print_forms(out);
    print_control(out);
    print_sizes(out);
}
