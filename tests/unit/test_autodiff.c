/* test_autodiff.c - Without it: one wrong gradient rule would make models train a little worse,
 * which no other test notices; or a step that is given up half way would change the model. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "common/mem.h"
#include "runtime/model/op_list.h"
#include "tests/unit/graph_text.h"
#include "tests/unit/train_bench.h"

/* Loss: mean squared error of the output; parameters: every p[...]. Numeric: the slope of the loss
 * along a random direction through all of them. range: parameters are drawn from it. */
static const struct {
    const char *op, *in, *attrs;
    double lo, hi;
} CASES[] = {
    {"Add", "p[4,3] p[3]", "", -1, 1},
    {"Add", "p[4,1,3] p[2,1]", "", -1, 1},
    {"Add", "p[4,3] c[]=0.5", "", -1, 1},
    {"Sub", "p[4,3] p[4,1]", "", -1, 1},
    {"Sub", "c[]=0.5 p[4,3]", "", -1, 1},
    {"Mul", "p[4,3] p[3]", "", -1, 1},
    {"Mul", "p[4,3] c[]=1.5", "", -1, 1},
    {"Div", "p[4,3] p[4,1]", "", 0.5, 2},
    {"Div", "c[]=2 p[4,3]", "", 0.5, 2},
    {"Min", "p[4,3] p[3]", "", -1, 1},
    {"Max", "p[4,3] p[3]", "", -1, 1},
    {"Pow", "p[4,3] c[]=2", "", 0.5, 2},
    {"Pow", "p[4,3] c[]=1.7", "", 0.5, 2},
    {"Pow", "p[4,3] c[3]=1,2,3", "", 0.5, 2},
    {"Pow", "p[4,3] p[3]", "", 0.5, 2},
    {"Mul", "p[4,3] p[]", "", 0.5, 2},
    {"Where", "t[4,3]=1,0,1,1,0,0,1,0,1,0,1,1 p[4,3] p[3]", "", -1, 1},
    {"Relu", "p[4,9]", "", -1, 1},
    {"LeakyRelu", "p[4,9]", "alpha~0.2", -1, 1},
    {"Clip", "p[4,9] c[]=-0.5 c[]=0.5", "", -1, 1},
    {"Sigmoid", "p[4,9]", "", -2, 2},
    {"Tanh", "p[4,9]", "", -2, 2},
    {"Gelu", "p[4,9]", "", -2, 2},
    {"Gelu", "p[4,9]", "approximate:tanh", -2, 2},
    {"HardSigmoid", "p[4,9]", "", -4, 4},
    {"HardSwish", "p[4,9]", "", -4, 4},
    {"Exp", "p[4,9]", "", -1, 1},
    {"Log", "p[4,9]", "", 0.5, 2},
    {"Sqrt", "p[4,9]", "", 0.5, 2},
    {"Erf", "p[4,9]", "", -1, 1},
    {"Abs", "p[4,9]", "", -1, 1},
    {"Neg", "p[4,9]", "", -1, 1},
    {"Reciprocal", "p[4,9]", "", 0.5, 2},
    {"Conv", "p[2,3,6,5] p[4,3,3,3] p[4]", "pads=1,1,1,1,", -1, 1},
    {"Conv", "p[2,4,7,7] p[6,2,3,3] p[6]", "group=2 strides=2,2, pads=1,1,1,1,", -1, 1},
    {"Conv", "p[2,3,9] p[4,3,3]", "strides=2,", -1, 1},
    {"Conv", "p[1,8,8,8] p[8,1,3,3]", "group=8 pads=1,1,1,1,", -1, 1},
    {"Conv", "p[2,4,5,4,6] p[6,2,3,3,2] p[6]", "group=2 strides=2,1,2, pads=1,1,0,1,1,1,", -1, 1},
    {"Conv", "p[2,3,7,4,4] p[4,3,3,1,1]", "dilations=2,1,1,", -1, 1},
    {"ConvTranspose", "p[2,3,4,5] p[3,4,3,3] p[4]", "strides=2,2, pads=1,1,1,1,", -1, 1},
    {"ConvTranspose", "p[2,4,4,5] p[4,3,3,2]", "group=2 strides=2,3, output_padding=1,2,", -1, 1},
    {"ConvTranspose", "p[2,3,5] p[3,4,3] p[4]", "dilations=2,", -1, 1},
    {"ConvTranspose", "p[1,4,3,2,3] p[4,2,3,2,2] p[4]", "group=2 strides=2,1,2, pads=1,0,0,0,1,1,",
     -1, 1},
    {"MaxPool", "p[1,2,5,4,4]", "kernel_shape=3,2,2, strides=2,2,1, pads=1,0,0,1,0,0,", -1, 1},
    {"AveragePool", "p[1,2,5,4,4]", "kernel_shape=3,2,2, strides=2,2,1, pads=1,0,0,1,0,0,", -1, 1},
    {"AveragePool", "p[1,2,5,4]", "kernel_shape=2,3, strides=2,2, ceil_mode=1 count_include_pad=1",
     -1, 1},
    {"LpPool", "p[1,2,5,4]", "kernel_shape=2,2,", 0.5, 1},
    {"LpPool", "p[1,2,5,4]", "kernel_shape=2,2, p=3", 0.5, 1},
    {"GlobalLpPool", "p[1,2,2,3]", "", 0.5, 1},
    {"GlobalAveragePool", "p[2,3,4,3,2]", "", -1, 1},
    {"InstanceNormalization", "p[2,3,4,4] p[3] p[3]", "", -1, 1},
    {"GroupNormalization", "p[2,6,4,4] p[6] p[6]", "num_groups=3", -1, 1},
    {"GroupNormalization", "p[2,6,4,4] p[3] p[3]", "num_groups=3", -1, 1},
    {"LpNormalization", "p[4,5]", "axis=1", -1, 1},
    {"LpNormalization", "p[4,5]", "axis=0 p=1", 0.5, 1},
    {"LRN", "p[2,6,3,3]", "size=3 alpha~0.5 beta~0.75", -1, 1},
    {"Resize", "p[2,3,4,5] - c[4]=1,1,2,2", "", -1, 1},
    {"Resize", "p[2,3,4,5] - c[4]=1,1,2,1.7", "mode:linear", -1, 1},
    {"Resize", "p[2,3,8,9] - - i[4]=2,3,5,4", "mode:linear antialias=1", -1, 1},
    {"Resize", "p[2,3,4,5] - c[4]=1,1,2,2", "mode:cubic exclude_outside=1", -1, 1},
    {"Resize", "p[1,2,3,4,3] - - i[5]=1,2,6,7,5",
     "mode:linear coordinate_transformation_mode:align_corners", -1, 1},
    {"LSTM", "p[3,2,4] p[1,12,4] p[1,12,3] p[1,24] - p[1,2,3] p[1,2,3] p[1,9]", "", -1, 1},
    {"LSTM", "p[2,3,4] p[2,12,4] p[2,12,3] p[2,24]", "direction:bidirectional layout=1", -1, 1},
    {"LSTM", "p[3,2,4] p[1,12,4] p[1,12,3]", "direction:reverse input_forget=1 clip~0.4", -1, 1},
    {"GRU", "p[3,2,4] p[1,9,4] p[1,9,3] p[1,18]", "", -1, 1},
    {"GRU", "p[3,2,4] p[1,9,4] p[1,9,3] p[1,18]", "linear_before_reset=1", -1, 1},
    {"RNN", "p[3,2,4] p[1,3,4] p[1,3,3] p[1,6]", "activations:ScaledTanh", -1, 1},
    {"Slice", "p[9,3] i[1]=1 i[1]=9 i[1]=0 i[1]=3", "", -1, 1},
    {"Slice", "p[4,9] i[1]=-2 i[1]=-20 i[1]=1 i[1]=-3", "", -1, 1},
    {"MaxPool", "p[2,3,6,6]", "kernel_shape=3,3, strides=2,2, pads=1,1,1,1,", -1, 1},
    {"MaxPool", "p[2,3,9]", "kernel_shape=2, strides=2,", -1, 1},
    {"AveragePool", "p[2,3,6,6]", "kernel_shape=3,3, strides=1,1, pads=1,1,1,1,", -1, 1},
    {"AveragePool", "p[2,3,6,6]", "kernel_shape=3,3, pads=1,1,1,1, count_include_pad=1", -1, 1},
    {"GlobalAveragePool", "p[2,3,5,5]", "", -1, 1},
    {"GlobalMaxPool", "p[2,3,5,5]", "", -1, 1},
    {"Gemm", "p[4,5] p[5,3] p[3]", "", -1, 1},
    {"Gemm", "p[5,4] p[3,5] p[3]", "transA=1 transB=1 alpha~0.5 beta~2", -1, 1},
    {"Gemm", "p[4,5] p[3,5] p[4,1]", "transB=1", -1, 1},
    {"Gemm", "p[4,5] p[5,3] p[4,3]", "", -1, 1},
    {"MatMul", "p[2,4,5] p[5,3]", "", -1, 1},
    {"MatMul", "p[2,4,5] p[2,5,3]", "", -1, 1},
    {"MatMul", "p[2,1,4,5] p[3,5,3]", "", -1, 1},
    {"MatMul", "p[4,5] p[2,5,3]", "", -1, 1},
    {"MatMul", "p[5] p[2,5,3]", "", -1, 1},
    {"MatMul", "p[2,4,5] p[5]", "", -1, 1},
    {"MatMul", "p[4,5] p[5]", "", -1, 1},
    {"BatchNormalization", "p[4,3,5,5] p[3] p[3] c[3]=0,0,0 c[3]=1,1,1", "", -1, 1},
    {"BatchNormalization", "p[8,3] p[3] p[3] c[3]=0,0,0 c[3]=1,1,1", "", -1, 1},
    {"LayerNormalization", "p[4,3,8] p[8] p[8]", "", -1, 1},
    {"LayerNormalization", "p[4,3,8] p[3,8]", "axis=1", -1, 1},
    {"Dropout", "p[4,9] c[]=0.4 t[]=1", "", -1, 1},
    {"Softmax", "p[4,9]", "axis=-1", -2, 2},
    {"Softmax", "p[4,5,3]", "axis=1", -2, 2},
    {"LogSoftmax", "p[4,9]", "axis=-1", -2, 2},
    {"Reshape", "p[4,6] i[3]=2,3,4", "", -1, 1},
    {"Flatten", "p[4,2,3]", "", -1, 1},
    {"Transpose", "p[4,2,3]", "perm=2,0,1,", -1, 1},
    {"Concat", "p[4,2] p[4,3] p[4,1]", "axis=1", -1, 1},
    {"Slice", "p[4,9] i[1]=2 i[1]=7 i[1]=1", "", -1, 1},
    {"Split", "p[4,9] i[2]=2,7", "axis=1", -1, 1},
    {"Pad", "p[2,3,4,4] i[8]=0,0,1,2,0,0,1,0 c[]=1", "", -1, 1},
    {"Expand", "p[4,1] i[3]=2,4,5", "", -1, 1},
    {"Gather", "p[6,5] i[2,3]=0,5,2,2,2,1", "", -1, 1},
    {"Gather", "p[4,6,2] i[3]=0,5,2", "axis=1", -1, 1},
    {"Gather", "p[4,6] i[]=2", "axis=1", -1, 1},
    {"ReduceMean", "p[4,3,5] i[1]=1", "keepdims=0", -1, 1},
    {"ReduceMean", "p[4,3,5,5] i[2]=2,3", "", -1, 1},
    {"ReduceSum", "p[4,3,5] i[2]=0,2", "", -1, 1},
    {"ReduceMax", "p[4,3,5] i[1]=2", "keepdims=0", -1, 1},
    {"ReduceMin", "p[4,3,5] i[1]=1", "", -1, 1},
    {"ReduceProd", "p[4,3,5] i[1]=1", "", -1, 1},
    {"ReduceProd", "p[4,3,5] i[2]=0,2", "keepdims=0", 0.5, 1.5},
    {"Identity", "p[4,5]", "", -1, 1},
    {"Sin", "p[4,9]", "", -2, 2},
    {"Cos", "p[4,9]", "", -2, 2},
    {"Tan", "p[4,9]", "", -1, 1},
    {"Asin", "p[4,9]", "", -0.8, 0.8},
    {"Acos", "p[4,9]", "", -0.8, 0.8},
    {"Atan", "p[4,9]", "", -2, 2},
    {"Sinh", "p[4,9]", "", -1, 1},
    {"Cosh", "p[4,9]", "", -1, 1},
    {"Asinh", "p[4,9]", "", -2, 2},
    {"Acosh", "p[4,9]", "", 1.5, 3},
    {"Atanh", "p[4,9]", "", -0.8, 0.8},
    {"Elu", "p[4,9]", "alpha~1.5", -2, 2},
    {"Selu", "p[4,9]", "", -2, 2},
    {"Celu", "p[4,9]", "alpha~2", -2, 2},
    {"Softplus", "p[4,9]", "", -2, 2},
    {"Softsign", "p[4,9]", "", -2, 2},
    {"Mish", "p[4,9]", "", -2, 2},
    {"Swish", "p[4,9]", "alpha~1.5", -2, 2},
    {"PRelu", "p[4,3,3] p[3,1]", "", -1, 1},
    {"ThresholdedRelu", "p[4,9]", "alpha~0.5", -2, 2},
    {"Shrink", "p[4,9]", "bias~0.25 lambd~0.25", -2, 2},
    {"Mod", "p[4,9] c[]=0.75", "fmod=1", -2, 2},
    {"CumSum", "p[4,9] i[]=1", "", -1, 1},
    {"CumSum", "p[4,3,2] i[]=1", "exclusive=1 reverse=1", -1, 1},
    {"TopK", "p[4,9] i[1]=3", "", -1, 1},
    {"TopK", "p[4,5,3] i[1]=2", "axis=1 largest=0", -1, 1},
    {"Tile", "p[4,3] i[2]=2,3", "", -1, 1},
    {"Trilu", "p[2,4,4] i[]=-1", "", -1, 1},
    {"Einsum", "p[2,3,4] p[4,5]", "equation:bij,jk->bki", -1, 1},
    {"Einsum", "p[2,3,3]", "equation:bii->b", -1, 1},
    {"GatherElements", "p[4,3] i[4,2]=0,1,2,0,1,1,0,2", "axis=1", -1, 1},
    {"GatherND", "p[4,3,2] i[3,2]=0,1,3,2,0,1", "", -1, 1},
    {"ScatterND", "p[4,3] i[2,1]=0,2 p[2,3]", "", -1, 1},
    {"ScatterElements", "p[4,3] i[4,2]=0,1,2,0,1,1,0,2 p[4,2]", "axis=1 reduction:add", -1, 1},
    {"ScatterElements", "p[4,3] i[4,2]=0,1,2,0,1,1,0,2 p[4,2]", "axis=1 reduction:max", -1, 1},
    {"ScatterND", "p[3,4] i[5,1]=0,2,2,0,2 p[5,4]", "reduction:min", -1, 1},
    {"ReduceL1", "p[4,3,5] i[1]=1", "", -1, 1},
    {"ReduceL2", "p[4,3,5] i[1]=1", "", -1, 1},
    {"ReduceLogSum", "p[4,3,5] i[1]=2", "", 0.5, 2},
    {"ReduceLogSumExp", "p[4,3,5] i[2]=0,2", "keepdims=0", -1, 1},
    {"ReduceSumSquare", "p[4,3,5] i[1]=2", "", -1, 1},
    {"DepthToSpace", "p[2,8,2,3]", "blocksize=2", -1, 1},
    {"SpaceToDepth", "p[2,2,4,6]", "blocksize=2", -1, 1},
    {"ReverseSequence", "p[3,4,2] i[3]=1,4,3", "batch_axis=0 time_axis=1", -1, 1},
    {"Pad", "p[2,3,4,4] i[8]=0,0,1,2,0,0,1,-1", "mode:reflect", -1, 1},
    {"Pad", "p[2,3,4] i[6]=0,0,-1,0,0,2", "", -1, 1},
    {"GridSample", "p[2,3,4,5] c[2,2,1,2]=0.1,0.3,-0.9,0.95,0.4,-0.2,1.3,0.2", "", -1, 1},
    {"Col2Im", "p[2,12,4] i[2]=3,3 i[2]=2,2", "", -1, 1},
    {"DeformConv", "p[1,2,4,4] p[2,2,2,2] c[1,8,3,3]=0.3,-0.2,0.4,0.6,0.1", "", -1, 1},
    {"Det", "p[2,3,3]", "", -1, 1},
    {"RoiAlign", "p[1,2,5,5] c[2,4]=0,0,3,3,1,1,4,4 i[2]=0,0",
     "output_height=2 output_width=2 sampling_ratio=2", -1, 1},
    {"MaxRoiPool", "p[1,2,5,5] c[2,5]=0,0,0,3,3,0,1,1,4,4", "pooled_shape=2,2,", -1, 1},
    {"MaxUnpool", "p[1,1,2,2] i[1,1,2,2]=5,3,9,15", "kernel_shape=2,2, strides=2,2,", -1, 1},
    {"SoftmaxCrossEntropyLoss", "p[4,3] i[4]=0,2,1,1 c[3]=1,2,0.5", "ignore_index=2", -1, 1},
    {"Squeeze", "p[4,1,3] i[1]=1", "", -1, 1},
    {"Unsqueeze", "p[4,3] i[1]=1", "", -1, 1},
    {"Sum", "p[4,3] p[3] p[4,1]", "", -1, 1},
    {"Mean", "p[4,3] p[3]", "", -1, 1},
    {"MeanVarianceNormalization", "p[2,3,4,4]", "", -1, 1},
    {"RMSNormalization", "p[4,3,8] p[8]", "", -1, 1},
    {"Attention", "p[1,2,3,4] p[1,2,5,4] p[1,2,5,4]", "is_causal=1", -1, 1},
    {"RotaryEmbedding", "p[1,2,3,4] c[1,3,2]=1,0.5,0.2,0.1,-1,0.3 c[1,3,2]=0,0.5,1,0.2,0.1,0.7", "",
     -1, 1},
    {"CenterCropPad", "p[4,3] i[2]=2,5", "", -1, 1},
    {"AffineGrid", "p[2,2,3] i[4]=2,1,3,4", "", -1, 1},
    {"DFT", "p[2,5,1]", "", -1, 1},
    {"STFT", "p[2,8,1] i[]=2 p[4]", "", -1, 1},
    {"GridSample", "p[1,2,4,5] c[1,2,1,2]=0.1,0.3,-0.9,0.95", "mode:cubic padding_mode:border", -1,
     1},
    {"NegativeLogLikelihoodLoss", "p[4,3] i[4]=0,2,1,1", "", -1, 1},
};

static void every_gradient_is_the_slope_of_the_loss(void **state)
{
    struct bench *b = *state;
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .lr = 0.1};
    uint64_t x = 5;

    for (size_t k = 0; k < 2 * SH_ARRAY_LEN(CASES); k++) { /* each in both precisions */
        const size_t i = k / 2;
        struct graph *g = text_graph(CASES[i].op, CASES[i].in, CASES[i].attrs,
                                     strcmp(CASES[i].op, "Split") == 0 ? 2 : 1);
        char what[200];

        t.batch = 1;
        t.precision = k % 2 ? DEV_FP64 : DEV_FP32;
        compile(b, g, CASES[i].lo, CASES[i].hi, &t);
        snprintf(what, sizeof(what), "%s %s %s", CASES[i].op, CASES[i].in, CASES[i].attrs);
        expect_slopes(b, &x, 3, 2e-2, what);
        clear(b);
    }
}

static void the_page_of_operators_says_which_have_gradients(void **state)
{
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        bool again = strcmp(CASES[i].op, "Swish") == 0; /* of opset 24: no row */

        for (size_t k = 0; k < i && !again; k++)
            again = strcmp(CASES[k].op, CASES[i].op) == 0;
        n += !again;
        if (!again && !op_list_trains(CASES[i].op))
            fail_msg("op_list.c does not say that %s trains", CASES[i].op);
    }
    assert_int_equal(n, op_list_n_trains());
}

static uint32_t some_bn(struct graph *g, const char *name, uint32_t x)
{
    const int64_t channels = 3;
    uint32_t in[5] = {x};

    for (uint32_t i = 1; i < 5; i++) {
        float *data = calloc(3, sizeof(*data));
        char n[24];

        assert_non_null(data);
        snprintf(n, sizeof(n), "%s.%u", name, i);
        data[0] = data[1] = data[2] = i == 4;
        assert_ok(graph_add_const(g, n, SH_F32, 1, &channels, data, &in[i], NULL));
        g->values[in[i]].is_param = i < 3;
    }
    return some_node(g, "BatchNormalization", name, in, 5);
}

/* Of a row with one 0 that element alone has a gradient, of one with two none has. */
static void zeros_of_a_product_have_the_gradient_of_the_others(void **state)
{
    struct bench *b = *state;
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .lr = 0.1,
                           .batch = 1,
                           .precision = DEV_FP64};
    struct graph *g = text_graph("Add", "p[3,3] c[3,3]=0,2,3,0,-2,0,2,3,-1", "", 1);
    const int64_t one = 1;
    uint32_t in[2] = {g->outputs[0]};
    int64_t *axes = calloc(1, sizeof(*axes));
    uint64_t x = 5;

    assert_non_null(axes);
    *axes = 1;
    assert_ok(graph_add_const(g, "axes", SH_I64, 1, &one, axes, &in[1], NULL));
    g->outputs[0] = some_node(g, "ReduceProd", "y", in, 2);
    compile(b, g, 0, 0, &t);
    expect_slopes(b, &x, 3, 2e-2, "ReduceProd of zeros");
    clear(b);
}

/* Weights that are standardised, as PyTorch writes them: the statistics have gradients too. */
static void statistics_that_are_computed_have_gradients(void **state)
{
    struct bench *b = *state;
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .lr = 0.1,
                           .batch = 1};
    struct graph *g = text_graph("ReduceMean", "p[4,3,5] i[2]=0,2", "keepdims=0", 1);
    const uint32_t p = g->nodes[0].in[0], axes = g->nodes[0].in[1], mean = g->outputs[0];
    uint32_t in[5] = {p, 0, 0, mean, 0}, square;
    uint64_t x = 5;

    for (uint32_t i = 1; i < 3; i++) {
        const int64_t channels = 3;
        float *data = calloc(3, sizeof(*data));

        assert_non_null(data);
        data[0] = 1.5f, data[1] = -0.5f, data[2] = 0.75f;
        assert_ok(
            graph_add_const(g, i == 1 ? "gain" : "bias", SH_F32, 1, &channels, data, &in[i], NULL));
        g->values[in[i]].is_param = true;
    }
    square = some_node(g, "Mul", "square", (uint32_t[]){p, p}, 2);
    in[4] = some_node(g, "ReduceMean", "var", (uint32_t[]){square, axes}, 2);
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "keepdims", 0, NULL));
    g->outputs[0] = some_node(g, "BatchNormalization", "y", in, 5);
    compile(b, g, -1, 1, &t);
    expect_slopes(b, &x, 3, 2e-2, "BatchNormalization of statistics that are computed");
    clear(b);
}

/* q + x - x where q is computed of x, and no choice: the gradient is that of q alone. */
static void what_was_added_and_is_taken_away_again_has_no_gradient(void **state)
{
    struct bench *b = *state;
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .lr = 0.1,
                           .batch = 1,
                           .precision = DEV_FP64};
    uint64_t seed = 5;

    for (int turned = 0; turned < 2; turned++) {
        struct graph *g = text_graph("Exp", "p[4,3]", "", 1);
        const uint32_t x = g->nodes[0].in[0], q = g->outputs[0];
        const uint32_t sum =
            some_node(g, "Add", "sum", turned ? (uint32_t[]){x, q} : (uint32_t[]){q, x}, 2);

        g->outputs[0] = some_node(g, "Sub", "y", (uint32_t[]){sum, x}, 2);
        compile(b, g, -1, 1, &t);
        expect_slopes(b, &seed, 3, 2e-2, "(q + x) - x");
        clear(b);
    }
}

/* What PyTorch writes of x + (q - x).detach(), and of q + x - x.detach() for a choice q: the value
 * of q, and the gradient goes on to x as it is. */
static void what_goes_straight_through_has_the_gradient_of_its_result(void **state)
{
    struct bench *b = *state;
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .lr = 0.1,
                           .batch = 1};

    for (int form = 0; form < 4; form++) {
        struct graph *g = text_graph(form < 2 ? "Exp" : "Floor", "p[4,3]", "", 1);
        const uint32_t x = g->nodes[0].in[0], q = g->outputs[0];
        const uint32_t d = some_node(g, form < 2 ? "Sub" : "Add", "d",
                                     form == 3 ? (uint32_t[]){x, q} : (uint32_t[]){q, x}, 2);
        float *label, *grad;
        double loss;

        g->outputs[0] = some_node(g, form < 2 ? "Add" : "Sub", "y",
                                  form == 0 ? (uint32_t[]){x, d} : (uint32_t[]){d, x}, 2);
        compile(b, g, -1, 1, &t);
        label = some_label(b);
        grad = all_gradients(b, &loss);
        for (int i = 0; i < 12; i++) {
            const float y = form < 2 ? expf(b->state[i]) : floorf(b->state[i]);
            const float want = (y - label[i]) * 2 / 12;

            assert_true(fabsf(grad[i] - want) < 1e-5f);
        }
        free(label);
        free(grad);
        clear(b);
    }
}

/* a = relu(bn(p)), b = relu(bn(a) + a), y = bn(b) + b */
static struct graph *residual_net(void)
{
    struct graph *g =
        text_graph("BatchNormalization", "p[4,3,5,5] p[3] p[3] c[3]=0,0,0 c[3]=1,1,1", "", 1);
    uint32_t a = g->outputs[0], b;

    a = some_node(g, "Relu", "a", &a, 1);
    b = some_node(g, "Add", "sum", (uint32_t[]){some_bn(g, "bn2", a), a}, 2);
    b = some_node(g, "Relu", "b", &b, 1);
    g->outputs[0] = some_node(g, "Add", "y", (uint32_t[]){b, some_bn(g, "bn3", b)}, 2);
    return g;
}

/* Takes g, whose program has so many ACT and BINARY, and gradients that are slopes of the loss. */
static void check_fused(struct bench *b, struct graph *g, enum dev_precision precision,
                        uint32_t n_acts, uint32_t n_binaries, const char *what)
{
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .lr = 0.1,
                           .batch = 1,
                           .precision = precision};
    uint64_t x = 5;

    compile(b, g, 0.5, 1, &t);
    if (count_ops(b, "ACT") != n_acts || count_ops(b, "BINARY") != n_binaries)
        fail_msg("%s: %u ACT and %u BINARY stand alone, not %u and %u", what, count_ops(b, "ACT"),
                 count_ops(b, "BINARY"), n_acts, n_binaries);
    expect_slopes(b, &x, 3, 2e-2, what);
    clear(b);
}

static void fused_normalisations_have_the_same_gradients(void **state)
{
    check_fused(*state, residual_net(), DEV_FP32, 0, 0, "residual net");
}

/* a = tanh(p) has several readers, one or two of them products. p of three axes: they are products
 * of [6,8], with reshapes before and behind them. */
static struct graph *shared_net(int which, bool has_reshapes)
{
    const int64_t square[] = {8, 8}, like_p[] = {2, 3, 8}, *dims = like_p + 1;
    struct graph *g = text_graph("Tanh", has_reshapes ? "p[2,3,8]" : "p[3,8]", "", 1);
    uint32_t a = g->outputs[0], w = some_weight(g, "w", 2, square), q, k = GRAPH_NONE;

    if (which == 2)
        k = some_node(g, "Sigmoid", "k", &a, 1);
    if (which == 3) {
        k = has_reshapes ? some_weight(g, "c", 3, like_p) : some_weight(g, "c", 2, dims);
        k = some_node(g, "Add", "b", (uint32_t[]){some_node(g, "Exp", "e", &k, 1), a}, 2);
    }
    q = some_node(g, "MatMul", "q", (uint32_t[]){which == 3 ? k : a, w}, 2);
    if (which < 2)
        k = some_node(g, "MatMul", "k", (uint32_t[]){a, some_weight(g, "v", 2, square)}, 2);
    g->outputs[0] = some_node(g, "Mul", "y", (uint32_t[]){q, which == 3 ? a : k}, 2);
    if (which == 1)
        g->outputs[0] = some_node(g, "Add", "z", (uint32_t[]){g->outputs[0], a}, 2);
    return g;
}

static void products_add_their_gradients_to_others(void **state)
{
    static const struct {
        uint32_t acts, binaries; /* beside sums: a product of two operands and its gradients, 3 */
        const char *what;
    } NETS[] = {
        {1, 3, "two products"},
        {1, 4, "two products and the gradient that was there"}, /* one addition is the model's */
        {2, 3, "a product and what comes after it"},
        {2, 5, "a product with another reader"}, /* the model's addition, and one sum stays */
    };

    for (int i = 0; i < (int)SH_ARRAY_LEN(NETS); i++)
        for (int k = 0; k < 4; k++)
            check_fused(*state, shared_net(i, k & 1), k & 2 ? DEV_FP64 : DEV_FP32, NETS[i].acts,
                        NETS[i].binaries, NETS[i].what);
}

/* d = dropout(a), with what is added to it or reads it. */
static struct graph *dropout_net(int which)
{
    struct graph *g = text_graph("Dropout", "p[4,3,5,5] c[]=0.4 t[]=1", "", 1);
    uint32_t d = g->outputs[0], a = g->nodes[0].in[0], c;

    if (which == 1) {
        g->outputs[0] = some_node(g, "Add", "y", (uint32_t[]){a, d}, 2);
        return g;
    }
    c = some_weight(g, "c", 4, (int64_t[]){4, 3, 5, 5});
    c = which == 3 ? some_bn(g, "bn", c) : some_node(g, "Tanh", "c2", &c, 1);
    g->outputs[0] = some_node(g, "Add", "y", (uint32_t[]){d, c}, 2);
    if (which == 2)
        g->outputs[0] = some_node(g, "Mul", "z", (uint32_t[]){g->outputs[0], d}, 2);
    if (which == 3)
        g->outputs[0] = some_node(g, "Relu", "z", &g->outputs[0], 1);
    return g;
}

static void dropout_takes_what_is_added_to_it(void **state)
{
    static const struct {
        uint32_t acts, binaries;
        const char *what;
    } NETS[] = {
        {1, 0, "dropout and another"},
        {0, 1, "dropout and what went into it"}, /* whose two gradients are added up */
        {1, 5, "dropout with another reader"},
        {0, 0, "dropout and a normalisation"}, /* which takes both */
    };

    for (int i = 0; i < (int)SH_ARRAY_LEN(NETS); i++)
        for (int k = 0; k < 2; k++)
            check_fused(*state, dropout_net(i), k ? DEV_FP64 : DEV_FP32, NETS[i].acts,
                        NETS[i].binaries, NETS[i].what);
}

/* y = conv(relu(conv(x))) with one weight and one bias: their gradients are sums already. */
static struct graph *two_convolutions(void)
{
    struct graph *g = text_graph("Conv", "f[5,3,6,7] p[3,3,3,3] p[3]", "pads=1,1,1,1,", 1);
    uint32_t in[3] = {g->outputs[0], g->nodes[0].in[1], g->nodes[0].in[2]};

    in[0] = some_node(g, "Relu", "relu", in, 1);
    g->outputs[0] = some_node(g, "Conv", "second", in, 3);
    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "pads", (int64_t[]){1, 1, 1, 1}, 4, NULL));
    return g;
}

#define STEPS 3

struct trained {
    double losses[STEPS];
    float *gradient, *state; /* OWNED: of the first step, of the last */
    size_t bytes, workspace;
};

/* In fp64, so that what differs is not rounding. piece: bytes, as in struct train_spec. */
static void train(struct bench *b, int64_t piece, uint32_t n_pieces, uint32_t n_sums,
                  struct trained *out)
{
    const struct train_spec t = {
        .heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
        .n_heads = 1,
        .lr = 0.1,
        .momentum = 0.9,
        .batch = 5,
        .precision = DEV_FP64,
        .conv_piece_bytes = piece};
    const struct program_io *in;
    float *label, *x, loss;
    uint64_t seed = 3;

    compile(b, two_convolutions(), -0.5, 0.5, &t);
    assert_int_equal(count_ops(b, "CONV_BWD_WEIGHT"), n_pieces);
    assert_int_equal(count_ops(b, "BINARY"), n_sums);
    label = some_label(b);
    in = program_input(b->p, 0);
    x = calloc(1, in->bytes);
    *out = (struct trained){.bytes = program_state_bytes(b->p),
                            .workspace = program_workspace_bytes(b->p)};
    out->gradient = calloc(1, out->bytes);
    out->state = calloc(1, out->bytes);
    assert_true(x && out->gradient && out->state);
    for (size_t i = 0; i < in->bytes / sizeof(float); i++)
        x[i] = (float)(uniform(&seed) - 0.5);
    put_state(b, b->state);
    for (int i = 0; i < STEPS; i++) {
        b->bases.step = b->bases.turn.update = i;
        assert_ok(dev_upload(b->dev, b->bases.workspace + in->offset, x, in->bytes, NULL));
        assert_ok(dev_upload(b->dev, b->bases.workspace + program_label(b->p, 0)->offset, label,
                             program_label(b->p, 0)->bytes, NULL));
        assert_ok(program_run(b->p, &b->bases, 0, program_update_begin(b->p), NULL));
        get(b, b->bases.workspace + program_loss_offset(b->p), &loss, sizeof(loss));
        out->losses[i] = (double)loss;
        for (size_t k = 0; k < program_n_state(b->p) && i == 0; k++)
            if (program_state(b->p, k)->has_gradient)
                assert_ok(program_gradient(
                    b->p, &b->bases, k,
                    out->gradient + program_state(b->p, k)->offset / sizeof(float), NULL));
        assert_ok(
            program_run(b->p, &b->bases, program_update_begin(b->p), program_n_ops(b->p), NULL));
    }
    get(b, b->bases.state, out->state, out->bytes);
    free(x);
    free(label);
    clear(b);
}

/* x and d_y of each of the two: 5 samples of 2 x 3 x 6 x 7 elements of 4 bytes. */
static void a_weight_gradient_in_pieces_is_the_same(void **state)
{
    const int64_t sample = (int64_t)2 * 3 * 6 * 7 * 4;
    const struct {
        int64_t piece;
        uint32_t pieces; /* of each gradient */
    } CUTS[] = {
        {5 * sample - 4, 2}, {2 * sample, 3}, {sample, 5}, {1, 5}, /* no less than a sample */
    };
    struct bench *b = *state;
    struct trained whole, cut;

    train(b, 0, 2, 2, &whole);
    for (size_t i = 0; i <= SH_ARRAY_LEN(CUTS); i++) {
        const bool fits = i == SH_ARRAY_LEN(CUTS);
        const uint32_t n = fits ? 1 : CUTS[i].pieces;

        /* weight and bias each have the gradients of two convolutions in n pieces to add */
        train(b, fits ? 5 * sample : CUTS[i].piece, 2 * n, 2 * (2 * n - 1), &cut);
        for (int k = 0; k < STEPS; k++)
            if (fabs(cut.losses[k] - whole.losses[k]) > 1e-6 * fabs(whole.losses[k]))
                fail_msg("%u pieces, step %d: loss %.9g, in one piece %.9g", n, k, cut.losses[k],
                         whole.losses[k]);
        assert_int_equal(cut.bytes, whole.bytes);
        expect_close(cut.gradient, whole.gradient, whole.bytes, "gradient");
        expect_close(cut.state, whole.state, whole.bytes, "state");
        /* results of pieces are what they need, not parts of x and d_y */
        assert_true(cut.workspace <= whole.workspace + (size_t)8 * DEV_ALIGN * n);
        free(cut.gradient);
        free(cut.state);
    }
    free(whole.gradient);
    free(whole.state);
}

static struct graph *small_net(void)
{
    struct graph *g = text_graph("BatchNormalization",
                                 "f[4,3,5,5] p[3]=1,1,1 p[3]=0,0,0 p[3]=0,0,0 p[3]=1,1,1", "", 1);

    return g;
}

/* Until the update begins nothing of the state has changed; then everything has. */
static void check_atomic(struct bench *b, enum train_optim o)
{
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .optimizer = o,
                           .lr = 0.1,
                           .momentum = o == TRAIN_SGD ? 0.9 : 0,
                           .beta1 = 0.9,
                           .beta2 = 0.999,
                           .eps = 1e-8,
                           .batch = 4};
    uint32_t n = 0;
    float *label, *after;

    compile(b, small_net(), 0.5, 1, &t);
    label = some_label(b);
    after = calloc(1, program_state_bytes(b->p));
    assert_non_null(after);
    (void)loss_at(b, b->state, label);
    get(b, b->bases.state, after, program_state_bytes(b->p));
    assert_memory_equal(after, b->state, program_state_bytes(b->p));
    assert_ok(program_run(b->p, &b->bases, program_update_begin(b->p), program_n_ops(b->p), NULL));
    get(b, b->bases.state, after, program_state_bytes(b->p));
    for (size_t i = 0; i < program_n_state(b->p); i++) {
        const struct program_state_entry *e = program_state(b->p, i);

        n++;
        if (memcmp((char *)after + e->offset, (char *)b->state + e->offset, e->bytes) == 0)
            fail_msg("the update does not change \"%s\"", e->name);
    }
    assert_int_equal(n, o == TRAIN_SGD ? 6 : 8); /* scale, bias, statistics, momentum or m, v */
    free(label);
    free(after);
    clear(b);
}

static void nothing_before_the_update_changes_the_state(void **state)
{
    check_atomic(*state, TRAIN_SGD);
    check_atomic(*state, TRAIN_ADAM);
    check_atomic(*state, TRAIN_ADAMW);
}

/* Training is as fast as it was where nothing of this is wanted: no other pass over gradients, no
 * state that nobody needs; and a frozen part costs neither. */
/* As nn.Embedding has it: what stands for padding learns nothing, wherever it is taken. */
static void a_row_for_padding_gets_no_gradient(void **state)
{
    struct bench *b = *state;
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .lr = 0.1,
                           .batch = 1};
    static const char *const TAKEN[] = {"p[6,5] i[2,3]=0,5,2,2,2,1", "p[6,5] i[4]=3,2,2,0",
                                        "p[6,5] i[]=2"};

    for (size_t i = 0; i < SH_ARRAY_LEN(TAKEN); i++) {
        struct graph *g = text_graph("Gather", TAKEN[i], "", 1);
        double loss, row[6] = {0};
        float *grad;

        assert_ok(graph_set_int(&g->nodes[0], GRAPH_PADDING, 2, NULL));
        compile(b, g, -1, 1, &t);
        grad = all_gradients(b, &loss);
        for (size_t k = 0; k < 30; k++)
            row[k / 5] += fabs((double)grad[program_state(b->p, 0)->offset / sizeof(float) + k]);
        assert_true(row[2] == 0);
        assert_true(row[0] > 0 || i == 2);
        free(grad);
        clear(b);
    }
}

static void what_is_not_asked_for_costs_nothing(void **state)
{
    static const struct {
        int64_t accumulate;
        double clip_norm, clip_value, ema;
        const char *frozen;
        uint32_t accums, squares, updates, means, entries;
    } ASKED[] = {
        {1, 0, 0, 0, NULL, 0, 0, 2, 0, 4},      {1, 0, 0.5, 0, NULL, 0, 0, 2, 0, 4},
        {1, 0.5, 0, 0, NULL, 0, 1, 2, 0, 4},    {4, 0, 0, 0, NULL, 2, 0, 2, 0, 6},
        {4, 0.5, 0, 0.9, NULL, 2, 1, 2, 2, 8},  {1, 0, 0, 0.9, NULL, 0, 0, 2, 2, 6},
        {4, 0.5, 0, 0.9, "in2", 1, 1, 1, 1, 5},
    };
    struct bench *b = *state;

    for (size_t i = 0; i < SH_ARRAY_LEN(ASKED); i++) {
        json_t *frozen = ASKED[i].frozen ? json_string(ASKED[i].frozen) : NULL;
        struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                               .n_heads = 1,
                               .lr = 0.1,
                               .momentum = 0.9,
                               .batch = 4,
                               .accumulate = ASKED[i].accumulate,
                               .clip_norm = ASKED[i].clip_norm,
                               .clip_value = ASKED[i].clip_value,
                               .ema = ASKED[i].ema,
                               .frozen = frozen};

        compile(b, text_graph("Gemm", "f[4,3] p[3,2] p[2]", "", 1), -1, 1, &t);
        assert_int_equal(count_ops(b, "ACCUM"), ASKED[i].accums);
        assert_int_equal(count_ops(b, "SQUARES"), ASKED[i].squares);
        assert_int_equal(count_ops(b, "SGD"), ASKED[i].updates);
        assert_int_equal(count_ops(b, "EMA"), ASKED[i].means);
        assert_int_equal(program_n_state(b->p), ASKED[i].entries);
        clear(b);
        json_decref(frozen);
    }
}

static void masks_of_dropout_follow_seed_and_step(void **state)
{
    struct bench *b = *state;
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .lr = 0.1,
                           .batch = 1};
    double loss[4];

    for (int i = 0; i < 4; i++) { /* the same twice, another step, another seed */
        float *label;

        t.seed = i == 3 ? 8 : 7;
        compile(b, text_graph("Dropout", "p[16,64] c[]=0.5 t[]=1", "", 1), -1, 1, &t);
        b->bases.step = i == 2 ? 3 : 2;
        label = some_label(b);
        loss[i] = loss_at(b, b->state, label);
        free(label);
        clear(b);
    }
    assert_true(loss[0] == loss[1]);
    assert_true(loss[0] != loss[2]);
    assert_true(loss[0] != loss[3]);
}

static void what_cannot_be_trained_is_refused_with_a_reason(void **state)
{
    static const struct {
        const char *op, *in, *attrs, *text;
        enum train_loss loss;
        int rc;
    } BAD[] = {
        {"Relu", "f[4,3]", "", "nothing to train", TRAIN_LOSS_MSE, SH_E_INVALID},
        {"Mod", "p[4,9] p[9]", "fmod=1", "node \"n\"", TRAIN_LOSS_MSE, SH_E_UNSUPPORTED},
        {"Relu", "p[4]", "", "[batch, classes]", TRAIN_LOSS_XENT, SH_E_INVALID},
        {"Less", "p[4,3] p[3]", "", "not FP32", TRAIN_LOSS_MSE, SH_E_INVALID},
        {"ScatterElements", "p[4,3] i[4,2]=0,1,2,0,1,1,0,2 p[4,2]", "axis=1 reduction:mul",
         "multiplied", TRAIN_LOSS_MSE, SH_E_UNSUPPORTED},
    };
    struct bench *b = *state;

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct graph *g = text_graph(BAD[i].op, BAD[i].in, BAD[i].attrs, 1);
        struct train_spec t = {.heads = {{.loss = BAD[i].loss, .weight = 1, .labels = "label"}},
                               .n_heads = 1,
                               .lr = 0.1,
                               .batch = text_batch(g)};
        struct sh_err err = {0};
        struct program *p;

        assert_fails(program_train(b->dev, g, &t, &p, &err), BAD[i].rc, &err, BAD[i].text);
        assert_null(p);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gradient_is_the_slope_of_the_loss),
        cmocka_unit_test(zeros_of_a_product_have_the_gradient_of_the_others),
        cmocka_unit_test(statistics_that_are_computed_have_gradients),
        cmocka_unit_test(the_page_of_operators_says_which_have_gradients),
        cmocka_unit_test(fused_normalisations_have_the_same_gradients),
        cmocka_unit_test(a_weight_gradient_in_pieces_is_the_same),
        cmocka_unit_test(nothing_before_the_update_changes_the_state),
        cmocka_unit_test(products_add_their_gradients_to_others),
        cmocka_unit_test(dropout_takes_what_is_added_to_it),
        cmocka_unit_test(a_row_for_padding_gets_no_gradient),
        cmocka_unit_test(what_goes_straight_through_has_the_gradient_of_its_result),
        cmocka_unit_test(what_was_added_and_is_taken_away_again_has_no_gradient),
        cmocka_unit_test(what_is_not_asked_for_costs_nothing),
        cmocka_unit_test(masks_of_dropout_follow_seed_and_step),
        cmocka_unit_test(what_cannot_be_trained_is_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
