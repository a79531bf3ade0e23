/* shape_table.c - which operators there are, and the helpers of their steps. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define ANY SHAPE_ANY
#define I(name) shape__infer_##name
#define E(name) shape__eval_##name
#define FIN(name) shape__finish_##name
#define W(name) shape__rewrite_##name

/* Sorted by name. */
static const struct shape_op OPS[] = {
    {"Abs", 1, 1, I(unary), E(unary), FIN(int_unary), SHAPE_RUNS},
    {"Acos", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Acosh", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Add", 2, 2, I(binary), E(binary), NULL, SHAPE_RUNS},
    {"AffineGrid", 2, 2, W(affine_grid), NULL, NULL, SHAPE_COMPOSED},
    {"And", 2, 2, I(logic), E(binary), FIN(logic), SHAPE_RUNS},
    {"ArgMax", 1, 1, I(arg), NULL, FIN(arg), SHAPE_RUNS},
    {"ArgMin", 1, 1, I(arg), NULL, FIN(arg), SHAPE_RUNS},
    {"Asin", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Asinh", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Atan", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Atanh", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Attention", 3, 7, W(attention), NULL, NULL, SHAPE_COMPOSED},
    {"AveragePool", 1, 1, I(pool), NULL, NULL, SHAPE_RUNS},
    {"BatchNormalization", 5, 5, I(batch_norm), NULL, NULL, SHAPE_RUNS},
    {"BitShift", 2, 2, I(bit_shift), E(binary), NULL, SHAPE_RUNS},
    {"BitwiseAnd", 2, 2, I(bitwise), E(binary), NULL, SHAPE_RUNS},
    {"BitwiseNot", 1, 1, I(bitwise_not), E(unary), FIN(int_unary), SHAPE_RUNS},
    {"BitwiseOr", 2, 2, I(bitwise), E(binary), NULL, SHAPE_RUNS},
    {"BitwiseXor", 2, 2, I(bitwise), E(binary), NULL, SHAPE_RUNS},
    {"BlackmanWindow", 1, 1, W(window), NULL, NULL, 0},
    {"Body", 0, ANY, NULL, NULL, NULL, SHAPE_CONTROL},
    {"Cast", 1, 1, I(cast), E(cast), NULL, SHAPE_RUNS},
    {"CastLike", 2, 2, I(cast_like), E(cast), NULL, SHAPE_RUNS},
    {"Ceil", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Celu", 1, 1, W(celu), NULL, NULL, SHAPE_COMPOSED},
    {"CenterCropPad", 2, 2, W(center_crop_pad), NULL, NULL, SHAPE_COMPOSED},
    {"Clip", 1, 3, I(clip), E(clip), FIN(clip), SHAPE_RUNS},
    {"Col2Im", 3, 3, W(col2im), NULL, NULL, SHAPE_COMPOSED},
    {"Compress", 2, 2, W(compress), NULL, NULL, SHAPE_COMPOSED},
    {"Concat", 1, ANY, I(concat), E(concat), NULL, SHAPE_RUNS},
    {"ConcatFromSequence", 1, 1, NULL, NULL, NULL, SHAPE_CONTROL},
    {"ConstantOfShape", 1, 2, I(const_of_shape), E(const_of_shape), NULL, 0},
    {"Conv", 2, 3, I(conv), NULL, NULL, SHAPE_RUNS},
    {"ConvInteger", 2, 4, I(conv_integer), NULL, NULL, SHAPE_RUNS},
    {"ConvTranspose", 2, 3, I(conv_transpose), NULL, NULL, SHAPE_RUNS},
    {"Cos", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Cosh", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"CumSum", 2, 2, I(cumsum), E(cumsum), FIN(narrow), SHAPE_RUNS},
    {"DFT", 1, 3, W(dft), NULL, NULL, SHAPE_COMPOSED},
    {"DeformConv", 3, 5, W(deform_conv), NULL, NULL, SHAPE_COMPOSED},
    {"DepthToSpace", 1, 1, W(depth_to_space), NULL, NULL, SHAPE_COMPOSED},
    {"DequantizeLinear", 2, 3, I(dequantize), E(dequantize), NULL, SHAPE_RUNS},
    {"Det", 1, 1, W(det), NULL, NULL, SHAPE_COMPOSED},
    {"Div", 2, 2, I(binary), E(binary), NULL, SHAPE_RUNS},
    {"Dropout", 1, 3, I(dropout), NULL, NULL, SHAPE_RUNS},
    {"DynamicQuantizeLinear", 1, 1, I(dynamic_quantize), NULL, NULL, SHAPE_RUNS},
    {"Einsum", 1, ANY, W(einsum), NULL, NULL, SHAPE_COMPOSED},
    {"Elu", 1, 1, I(act), NULL, NULL, SHAPE_RUNS},
    {"Equal", 2, 2, I(compare), E(binary), NULL, SHAPE_RUNS},
    {"Erf", 1, 1, I(unary_float), E(unary), NULL, SHAPE_RUNS},
    {"Exp", 1, 1, I(unary_float), E(unary), NULL, SHAPE_RUNS},
    {"Expand", 2, 2, I(expand), E(view), FIN(expand), SHAPE_RUNS},
    {"EyeLike", 1, 1, I(eye_like), E(eye_like), NULL, SHAPE_ALWAYS},
    {"Flatten", 1, 1, I(flatten), E(copy), FIN(reshape), SHAPE_RUNS},
    {"Floor", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"GRU", 3, 6, I(gru), NULL, NULL, SHAPE_RUNS},
    {"Gather", 2, 2, I(gather), E(gather), FIN(gather), SHAPE_RUNS},
    {"GatherElements", 2, 2, I(gather_elements), E(gather_elements), FIN(gather_elements),
     SHAPE_RUNS},
    {"GatherND", 2, 2, I(gather_nd), E(gather_nd), FIN(gather_nd), SHAPE_RUNS},
    {"Gelu", 1, 1, I(act), NULL, NULL, SHAPE_RUNS},
    {"Gemm", 2, 3, I(gemm), NULL, NULL, SHAPE_RUNS},
    {"GlobalAveragePool", 1, 1, I(global_pool), NULL, NULL, SHAPE_RUNS},
    {"GlobalLpPool", 1, 1, I(lp_pool), NULL, NULL, SHAPE_RUNS},
    {"GlobalMaxPool", 1, 1, I(global_pool), NULL, NULL, SHAPE_RUNS},
    {"Greater", 2, 2, I(compare), E(binary), NULL, SHAPE_RUNS},
    {"GreaterOrEqual", 2, 2, I(compare), E(binary), NULL, SHAPE_RUNS},
    {"GridSample", 2, 2, W(grid_sample), NULL, NULL, SHAPE_COMPOSED},
    {"GroupNormalization", 3, 3, I(group_norm), NULL, NULL, SHAPE_RUNS},
    {"HammingWindow", 1, 1, W(window), NULL, NULL, 0},
    {"HannWindow", 1, 1, W(window), NULL, NULL, 0},
    {"HardSigmoid", 1, 1, I(act), NULL, NULL, SHAPE_RUNS},
    {"HardSwish", 1, 1, I(act), NULL, NULL, SHAPE_RUNS},
    {"Hardmax", 1, 1, W(hardmax), NULL, NULL, SHAPE_COMPOSED},
    {"Identity", 1, 1, I(identity), NULL, NULL, SHAPE_RUNS},
    {"If", 3, ANY, I(if), NULL, NULL, SHAPE_COMPOSED},
    {"InstanceNormalization", 3, 3, I(instance_norm), NULL, NULL, SHAPE_RUNS},
    {"IsInf", 1, 1, W(is_inf), NULL, NULL, SHAPE_COMPOSED},
    {"IsNaN", 1, 1, W(is_nan), NULL, NULL, SHAPE_COMPOSED},
    {"LRN", 1, 1, I(lrn), NULL, NULL, SHAPE_RUNS},
    {"LSTM", 3, 8, I(lstm), NULL, NULL, SHAPE_RUNS},
    {"LayerNormalization", 2, 3, I(layer_norm), NULL, NULL, SHAPE_RUNS},
    {"LeakyRelu", 1, 1, I(act), NULL, NULL, SHAPE_RUNS},
    {"Less", 2, 2, I(compare), E(binary), NULL, SHAPE_RUNS},
    {"LessOrEqual", 2, 2, I(compare), E(binary), NULL, SHAPE_RUNS},
    {"Log", 1, 1, I(unary_float), E(unary), NULL, SHAPE_RUNS},
    {"LogSoftmax", 1, 1, I(softmax), NULL, FIN(softmax), SHAPE_RUNS},
    {"Loop", 2, ANY, NULL, NULL, NULL, SHAPE_CONTROL},
    {"LpNormalization", 1, 1, I(lp_norm), NULL, NULL, SHAPE_RUNS},
    {"LpPool", 1, 1, I(lp_pool), NULL, NULL, SHAPE_RUNS},
    {"MatMul", 2, 2, I(matmul), NULL, NULL, SHAPE_RUNS},
    {"MatMulInteger", 2, 4, I(matmul_integer), NULL, NULL, SHAPE_RUNS},
    {"Max", 1, ANY, I(variadic), E(variadic), FIN(variadic), SHAPE_RUNS},
    {"MaxPool", 1, 1, I(pool), NULL, NULL, SHAPE_RUNS},
    {"MaxRoiPool", 2, 2, W(max_roi_pool), NULL, NULL, SHAPE_COMPOSED},
    {"MaxUnpool", 2, 3, W(max_unpool), NULL, NULL, SHAPE_COMPOSED},
    {"Mean", 1, ANY, W(mean), NULL, NULL, SHAPE_COMPOSED},
    {"MeanVarianceNormalization", 1, 1, W(mean_variance), NULL, NULL, SHAPE_COMPOSED},
    {"MelWeightMatrix", 5, 5, W(mel_weights), NULL, NULL, 0},
    {"Min", 1, ANY, I(variadic), E(variadic), FIN(variadic), SHAPE_RUNS},
    {"Mish", 1, 1, W(mish), NULL, NULL, SHAPE_COMPOSED},
    {"Mod", 2, 2, I(mod), E(binary), NULL, SHAPE_RUNS},
    {"Mul", 2, 2, I(binary), E(binary), NULL, SHAPE_RUNS},
    {"Neg", 1, 1, I(unary), E(unary), FIN(int_unary), SHAPE_RUNS},
    {"NegativeLogLikelihoodLoss", 2, 3, W(nll_loss), NULL, NULL, SHAPE_COMPOSED},
    {"NonMaxSuppression", 2, 5, W(non_max_suppression), NULL, NULL, SHAPE_COMPOSED},
    {"NonZero", 1, 1, W(non_zero), NULL, NULL, SHAPE_COMPOSED},
    {"Not", 1, 1, I(logical_not), E(unary), NULL, SHAPE_RUNS},
    {"OneHot", 3, 3, W(one_hot), NULL, NULL, SHAPE_COMPOSED},
    {"Optional", 0, 1, NULL, NULL, NULL, SHAPE_CONTROL},
    {"OptionalGetElement", 1, 1, NULL, NULL, NULL, SHAPE_CONTROL},
    {"OptionalHasElement", 0, 1, NULL, NULL, NULL, SHAPE_CONTROL},
    {"Or", 2, 2, I(logic), E(binary), FIN(logic), SHAPE_RUNS},
    {"PRelu", 2, 2, W(prelu), NULL, NULL, SHAPE_COMPOSED},
    {"Pad", 2, 4, I(pad), NULL, NULL, SHAPE_RUNS},
    {GRAPH_PIXELS, 2, 2, I(pixels), NULL, NULL, SHAPE_RUNS},
    {"Pow", 2, 2, I(binary), E(binary), FIN(pow), SHAPE_RUNS},
    {"PutMasked", 4, 4, W(put_masked), NULL, NULL, SHAPE_COMPOSED},
    {"QLinearConv", 8, 9, I(qlinear_conv), NULL, NULL, SHAPE_RUNS},
    {"QLinearMatMul", 8, 8, I(qlinear_matmul), NULL, NULL, SHAPE_RUNS},
    {"QuantizeLinear", 2, 3, I(quantize), NULL, NULL, SHAPE_RUNS},
    {"RMSNormalization", 2, 2, W(rms_norm), NULL, NULL, SHAPE_COMPOSED},
    {"RNN", 3, 6, I(rnn), NULL, NULL, SHAPE_RUNS},
    {"Range", 3, 3, I(range), E(range), NULL, 0},
    {"Reciprocal", 1, 1, I(unary_float), E(unary), NULL, SHAPE_RUNS},
    {"ReduceL1", 1, 2, W(reduce_by_sum), NULL, NULL, SHAPE_COMPOSED},
    {"ReduceL2", 1, 2, W(reduce_by_sum), NULL, NULL, SHAPE_COMPOSED},
    {"ReduceLogSum", 1, 2, W(reduce_by_sum), NULL, NULL, SHAPE_COMPOSED},
    {"ReduceLogSumExp", 1, 2, W(log_sum_exp), NULL, NULL, SHAPE_COMPOSED},
    {"ReduceMax", 1, 2, I(reduce), E(reduce), FIN(narrow), SHAPE_RUNS},
    {"ReduceMean", 1, 2, I(reduce), E(reduce), FIN(narrow), SHAPE_RUNS},
    {"ReduceMin", 1, 2, I(reduce), E(reduce), FIN(narrow), SHAPE_RUNS},
    {"ReduceProd", 1, 2, I(reduce), E(reduce), FIN(narrow), SHAPE_RUNS},
    {"ReduceSum", 1, 2, I(reduce), E(reduce), FIN(narrow), SHAPE_RUNS},
    {"ReduceSumSquare", 1, 2, W(reduce_by_sum), NULL, NULL, SHAPE_COMPOSED},
    {"Relu", 1, 1, I(unary), E(unary), FIN(int_unary), SHAPE_RUNS},
    {"Reshape", 2, 2, I(reshape), E(copy), FIN(reshape), SHAPE_RUNS},
    {"Resize", 1, 4, I(resize), NULL, NULL, SHAPE_RUNS},
    {"ReverseSequence", 2, 2, W(reverse_sequence), NULL, NULL, SHAPE_COMPOSED},
    {"RoiAlign", 3, 3, W(roi_align), NULL, NULL, SHAPE_COMPOSED},
    {"RotaryEmbedding", 3, 4, W(rotary), NULL, NULL, SHAPE_COMPOSED},
    {"Round", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"STFT", 2, 4, W(stft), NULL, NULL, SHAPE_COMPOSED},
    {"Scan", 1, ANY, NULL, NULL, NULL, SHAPE_CONTROL},
    {"Scatter", 3, 3, I(scatter), E(scatter), FIN(scatter), SHAPE_RUNS},
    {"ScatterElements", 3, 3, I(scatter), E(scatter), FIN(scatter), SHAPE_RUNS},
    {"ScatterND", 3, 3, I(scatter), E(scatter), FIN(scatter), SHAPE_RUNS},
    {"Selu", 1, 1, W(selu), NULL, NULL, SHAPE_COMPOSED},
    {"SequenceAt", 2, 2, NULL, NULL, NULL, SHAPE_CONTROL},
    {"SequenceConstruct", 1, ANY, NULL, NULL, NULL, SHAPE_CONTROL},
    {"SequenceEmpty", 0, 0, NULL, NULL, NULL, SHAPE_CONTROL},
    {"SequenceErase", 1, 2, NULL, NULL, NULL, SHAPE_CONTROL},
    {"SequenceInsert", 2, 3, NULL, NULL, NULL, SHAPE_CONTROL},
    {"SequenceLength", 1, 1, NULL, NULL, NULL, SHAPE_CONTROL},
    {"SequenceMap", 1, ANY, NULL, NULL, NULL, SHAPE_CONTROL},
    {"Shape", 1, 1, I(shape), E(shape), NULL, SHAPE_ALWAYS},
    {"Shrink", 1, 1, W(shrink), NULL, NULL, SHAPE_COMPOSED},
    {"Sigmoid", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Sign", 1, 1, I(unary), E(unary), FIN(int_unary), SHAPE_RUNS},
    {"Sin", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Sinh", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Size", 1, 1, I(size), E(size), NULL, SHAPE_ALWAYS},
    {"Slice", 3, 5, I(slice), E(view), NULL, SHAPE_RUNS},
    {"Softmax", 1, 1, I(softmax), NULL, FIN(softmax), SHAPE_RUNS},
    {"SoftmaxCrossEntropyLoss", 2, 3, W(softmax_loss), NULL, NULL, SHAPE_COMPOSED},
    {"Softplus", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Softsign", 1, 1, W(softsign), NULL, NULL, SHAPE_COMPOSED},
    {"SpaceToDepth", 1, 1, W(space_to_depth), NULL, NULL, SHAPE_COMPOSED},
    {"Split", 1, 2, I(split), E(split), FIN(split), SHAPE_RUNS},
    {"SplitToSequence", 1, 2, NULL, NULL, NULL, SHAPE_CONTROL},
    {"Sqrt", 1, 1, I(unary_float), E(unary), NULL, SHAPE_RUNS},
    {"Squeeze", 1, 2, I(squeeze), E(copy), FIN(reshape), SHAPE_RUNS},
    {"Sub", 2, 2, I(binary), E(binary), NULL, SHAPE_RUNS},
    {"Sum", 1, ANY, I(variadic), E(variadic), FIN(variadic), SHAPE_RUNS},
    {"Swish", 1, 1, W(swish), NULL, NULL, SHAPE_COMPOSED},
    {"Tan", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"Tanh", 1, 1, I(act), E(unary), NULL, SHAPE_RUNS},
    {"ThresholdedRelu", 1, 1, W(thresholded_relu), NULL, NULL, SHAPE_COMPOSED},
    {"Tile", 2, 2, W(tile), NULL, NULL, SHAPE_COMPOSED},
    {"TopK", 2, 2, I(topk), NULL, FIN(topk), SHAPE_RUNS},
    {"Transpose", 1, 1, I(transpose), E(view), NULL, SHAPE_RUNS},
    {"Trilu", 1, 2, W(trilu), NULL, NULL, SHAPE_COMPOSED},
    {"Unique", 1, 1, W(unique), NULL, NULL, SHAPE_COMPOSED},
    {"Unsqueeze", 2, 2, I(unsqueeze), E(copy), FIN(reshape), SHAPE_RUNS},
    {"Upsample", 2, 2, I(upsample), NULL, NULL, SHAPE_RUNS},
    {"Where", 3, 3, I(where), E(where), NULL, SHAPE_RUNS},
    {"Xor", 2, 2, I(logic), E(binary), FIN(logic), SHAPE_RUNS},
};

static int by_op_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct shape_op *)row)->name);
}

const struct shape_op *shape__op(const char *name)
{
    return bsearch(name, OPS, SH_ARRAY_LEN(OPS), sizeof(OPS[0]), by_op_name);
}

const char *shape__wrong_links(const struct shape_op *op, const struct graph_node *n)
{
    if (n->n_in < op->min_in || n->n_in > op->max_in || n->n_out < 1)
        return "has a wrong number of inputs or outputs";
    for (uint32_t i = 0; i < n->n_in && !(op->flags & SHAPE_CONTROL); i++)
        if (n->in[i] == GRAPH_NONE && (i < op->min_in || op->max_in == SHAPE_ANY))
            return "lacks an input";
    return NULL;
}

bool graph__op_known(const char *op)
{
    return shape__op(op) != NULL;
}

int shape__fail(struct shape_ctx *c, int rc, const char *fmt, ...)
{
    char text[320], node[96], op[48];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    SH_FAIL(c->err, rc, "%s node %s: %s", graph__clean(c->n.op, op, sizeof(op)),
            graph__clean(c->n.name, node, sizeof(node)), text);
    return c->err->rc;
}

bool shape__has(const struct shape_ctx *c, uint32_t i)
{
    return i < c->n.n_in && c->n.in[i] != GRAPH_NONE;
}

const struct graph_value *shape__in(const struct shape_ctx *c, uint32_t i)
{
    return &c->g->values[c->n.in[i]];
}

struct graph_value *shape__outv(const struct shape_ctx *c, uint32_t k)
{
    return &c->g->values[c->outv[k]];
}

/* Names that the file does not have get a number; the file's names are checked for that prefix. */
int shape__temp(struct shape_ctx *c, const char *suffix, enum sh_dtype t, int rank,
                const int64_t *dims, uint32_t *out)
{
    char name[64];

    *out = GRAPH_NONE;
    if (c->err->rc)
        return c->err->rc;
    snprintf(name, sizeof(name), GRAPH_TEMP_PREFIX "%u.%.24s", c->g->n_values, suffix);
    return graph_add_value(c->g, name, t, rank, dims, out, c->err);
}

int shape__out(struct shape_ctx *c, uint32_t k, enum sh_dtype t, int rank, const int64_t *dims)
{
    struct sh_err local = {0};
    const char *name = k < c->n.n_out ? c->out_names[k] : NULL;

    if (!name || !name[0])
        return shape__temp(c, "unused", t, rank, dims, &c->outv[k]);
    if (c->err->rc == SH_OK)
        graph_add_value(c->g, name, t, rank, dims, &c->outv[k], &local);
    if (local.rc == SH_E_TOOBIG)
        return shape__fail(c, local.rc, "the result is too large");
    sh_err_copy(c->err, &local);
    return c->err->rc;
}

int shape__alias(struct shape_ctx *c, uint32_t v)
{
    c->outv[0] = v;
    c->aliased = true;
    return c->err->rc;
}

int shape__computed(struct shape_ctx *c, uint32_t i)
{
    if (c->err->rc == SH_OK)
        c->wanted = c->n.in[i];
    return shape__fail(c, SH_E_UNSUPPORTED, WHY_COMPUTED, i);
}

int shape__ints(struct shape_ctx *c, uint32_t i, int64_t *out, size_t max, size_t *k)
{
    const struct graph_value *v;
    int64_t n;

    *k = 0;
    if (c->err->rc || !shape__has(c, i))
        return c->err->rc;
    v = shape__in(c, i);
    if (v->dtype != SH_I64 && v->dtype != SH_I32)
        return shape__fail(c, SH_E_INVALID, "input %u must be INT64", i);
    if (v->rank > 1)
        return shape__fail(c, SH_E_INVALID, "input %u must be a list of numbers", i);
    if (!v->data)
        return shape__computed(c, i);
    n = graph_elements(v);
    if (n < 0 || (uint64_t)n > max)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_NUMBERS, i, (long long)n, max);
    for (int64_t j = 0; j < n; j++)
        out[j] = shape__get_i64(v->dtype, v->data, (size_t)j);
    *k = (size_t)n;
    return SH_OK;
}

int shape__number(struct shape_ctx *c, uint32_t i, double def, double *out)
{
    const struct graph_value *v;

    *out = def;
    if (c->err->rc || !shape__has(c, i))
        return c->err->rc;
    v = shape__in(c, i);
    if (!v->data)
        return shape__computed(c, i);
    if (graph_elements(v) != 1 || !(shape__is_float(v->dtype) || shape__is_int(v->dtype)))
        return shape__fail(c, SH_E_INVALID, "input %u must be one number", i);
    *out = shape__get_f64(v->dtype, v->data, 0);
    return SH_OK;
}

int shape__axis(struct shape_ctx *c, int64_t axis, int rank, int64_t *out)
{
    if (axis < -rank || axis >= rank)
        shape__fail(c, SH_E_INVALID, "axis %lld is outside the rank %d", (long long)axis, rank);
    *out = c->err->rc ? 0 : axis < 0 ? axis + rank : axis;
    return c->err->rc;
}

int shape__want_float(struct shape_ctx *c, uint32_t i)
{
    enum sh_dtype t = shape__in(c, i)->dtype;

    if (!shape__is_float(t))
        shape__fail(c, SH_E_INVALID, "input %u is %s, it must be of a float type", i,
                    sh_dtype_v2(t));
    return c->err->rc;
}

int shape__want_same_type(struct shape_ctx *c, uint32_t a, uint32_t b)
{
    enum sh_dtype s = shape__in(c, a)->dtype, t = shape__in(c, b)->dtype;

    if (s != t)
        shape__fail(c, SH_E_INVALID, "inputs %u and %u differ in type: %s and %s", a, b,
                    sh_dtype_v2(s), sh_dtype_v2(t));
    return c->err->rc;
}

int shape__want_vector(struct shape_ctx *c, uint32_t i, int64_t want)
{
    const struct graph_value *v = shape__in(c, i);
    char text[GRAPH_SHAPE_TEXT];

    if (v->rank != 1 || v->dims[0] != want)
        shape__fail(c, SH_E_INVALID, "input %u is %s, it must have %lld elements", i,
                    graph__shape_text(v, text, sizeof(text)), (long long)want);
    return c->err->rc;
}

int shape__broadcast(struct shape_ctx *c, const struct graph_value *a, const struct graph_value *b,
                     int *rank, int64_t *dims)
{
    int n = c->err->rc ? 0 : SH_MAX(a->rank, b->rank);

    *rank = 0;
    for (int i = 0; i < n; i++) {
        int ia = i - (n - a->rank), ib = i - (n - b->rank);
        int64_t da = ia < 0 ? 1 : a->dims[ia], db = ib < 0 ? 1 : b->dims[ib];
        char as[GRAPH_SHAPE_TEXT], bs[GRAPH_SHAPE_TEXT];

        if (da != db && da != 1 && db != 1)
            return shape__fail(c, SH_E_INVALID, "shapes %s and %s do not fit together",
                               graph__shape_text(a, as, sizeof(as)),
                               graph__shape_text(b, bs, sizeof(bs)));
        dims[i] = da == 1 ? db : da;
    }
    *rank = n;
    return c->err->rc;
}

void shape__drop_inputs(struct shape_ctx *c, uint32_t keep)
{
    c->n.n_in = SH_MIN(c->n.n_in, keep);
}

int shape__set_op(struct shape_ctx *c, const char *op)
{
    char *copy;

    if (c->err->rc == SH_OK && sh_strdup(op, &copy, c->err) == SH_OK) {
        free(c->n.op);
        c->n.op = copy;
    }
    return c->err->rc;
}

int64_t shape__int(struct shape_ctx *c, const char *name, int64_t def)
{
    int64_t v;

    graph_int(&c->n, name, def, &v, c->err);
    return v;
}

double shape__float(struct shape_ctx *c, const char *name, double def)
{
    double v;

    graph_float(&c->n, name, def, &v, c->err);
    return v;
}

const char *shape__str(struct shape_ctx *c, const char *name, const char *def)
{
    const char *v;

    graph_str(&c->n, name, def, &v, c->err);
    return v;
}

size_t shape__list(struct shape_ctx *c, const char *name, int64_t *out, size_t max)
{
    size_t k;

    graph_ints(&c->n, name, out, max, &k, c->err);
    return c->err->rc ? 0 : k;
}

int shape__set_int(struct shape_ctx *c, const char *name, int64_t v)
{
    if (c->err->rc == SH_OK)
        graph_set_int(&c->n, name, v, c->err);
    return c->err->rc;
}

int shape__set_str(struct shape_ctx *c, const char *name, const char *v)
{
    if (c->err->rc == SH_OK)
        graph_set_str(&c->n, name, v, c->err);
    return c->err->rc;
}

int shape__set_list(struct shape_ctx *c, const char *name, const int64_t *v, size_t k)
{
    if (c->err->rc == SH_OK)
        graph_set_ints(&c->n, name, v, k, c->err);
    return c->err->rc;
}

int shape__set_float(struct shape_ctx *c, const char *name, double v)
{
    if (c->err->rc == SH_OK)
        graph_set_float(&c->n, name, v, c->err);
    return c->err->rc;
}

int64_t shape__own_int(struct shape_ctx *c, const char *name, int64_t def)
{
    const int64_t v = shape__int(c, name, def);

    shape__set_int(c, name, v);
    return v;
}

bool shape__own_flag(struct shape_ctx *c, const char *name, bool def)
{
    const bool v = shape__int(c, name, def) != 0;

    shape__set_int(c, name, v);
    return v;
}

double shape__own_float(struct shape_ctx *c, const char *name, double def)
{
    const double v = shape__float(c, name, def);

    shape__set_float(c, name, v);
    return v;
}

const char *shape__own_str(struct shape_ctx *c, const char *name, const char *def)
{
    const char *v = shape__str(c, name, def);

    if (!graph__attr(&c->n, name))
        shape__set_str(c, name, v);
    return v;
}

int64_t shape__own_axis(struct shape_ctx *c, int64_t def, int rank)
{
    int64_t axis = shape__int(c, "axis", def);

    shape__axis(c, axis, rank, &axis);
    shape__set_int(c, "axis", axis);
    return axis;
}

int shape__emit_as(struct shape_ctx *c, const char *op, const uint32_t *in, uint32_t n_in,
                   const uint32_t *out, uint32_t n_out, const struct graph_node *like)
{
    uint32_t i;

    if (c->err->rc == SH_OK &&
        graph_add_node(c->g, c->n.name, op, in, n_in, out, n_out, &i, c->err) == SH_OK)
        graph__copy_attrs(&c->g->nodes[i], like, c->err);
    return c->err->rc;
}

int shape__emit(struct shape_ctx *c, const char *op, const uint32_t *in, uint32_t n_in,
                uint32_t out, const struct graph_attr *attrs, uint32_t n_attrs)
{
    const struct graph_node has = {.attrs = (struct graph_attr *)(uintptr_t)attrs,
                                   .n_attrs = n_attrs};

    return shape__emit_as(c, op, in, n_in, &out, 1, &has);
}

int shape__emit_self(struct shape_ctx *c)
{
    while (c->n.n_in > 0 && c->n.in[c->n.n_in - 1] == GRAPH_NONE)
        c->n.n_in--;
    return shape__emit_as(c, c->n.op, c->n.in, c->n.n_in, c->outv, c->n.n_out, &c->n);
}

int shape__reshape_to(struct shape_ctx *c, uint32_t from)
{
    const struct graph_value *x, *y = shape__outv(c, 0);

    if (c->err->rc)
        return c->err->rc;
    x = &c->g->values[from];
    if (x->rank == y->rank && memcmp(x->dims, y->dims, sizeof(x->dims[0]) * (size_t)x->rank) == 0) {
        c->outv[0] = from; /* the value made by infer stays unused and is swept away */
        return SH_OK;
    }
    return shape__emit(c, "Reshape", &from, 1, c->outv[0], NULL, 0);
}
