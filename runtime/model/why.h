/* why.h - why a model that other programs may run is refused: the texts of errors and of rows in
 * docs/operators.md (op_list.c), in one place. Faults in a file are not here.
 *
 * A row: name of the text, operator ("": any, "-": none, about the model), text.
 */
#ifndef SH_RUNTIME_MODEL_WHY_H
#define SH_RUNTIME_MODEL_WHY_H

/* ---- any operator */
#define WHY_OPERATOR "the operator is not supported"
#define WHY_DOMAIN "operators of other domains are not supported"
#define WHY_ATTRIBUTE "an attribute is of a kind that is not supported"
#define WHY_COMPUTED "input %u is computed from data; only constants and sizes work"
#define WHY_CONSTANTS "works only where its inputs are constants"
#define WHY_FOLDS "its result would be a constant of more than %zu MiB"
#define WHY_NUMBERS "input %u has %lld numbers; at most %zu work"
#define WHY_AXES "the result has more than %d axes"
#define WHY_NO_RESULT "uses a result that its producer does not give"
#define WHY_COUNTED "does not work with an axis whose size the data decide"
#define WHY_COUNTS_MEET \
    "an axis whose size the data decide meets another one, and that they are alike is not known"
#define WHY_COUNTS_TWO "its result would have two axes whose sizes the data decide"
#define WHY_COUNTED_PLACE "takes a fixed place from an axis whose size the data decide"
#define WHY_COUNTED_VIEW "cannot give this shape to what has an axis whose size the data decide"
#define WHY_COUNTED_SLICE \
    "of an axis whose size the data decide only the first, or all but the first, can be taken"

/* ---- single operators */
#define WHY_LOST                                                                               \
    "the exporter computed %u constants from parameters (%.64s%s), and training those is not " \
    "training the parameters; torch.onnx.export(..., dynamo=True, optimize=False) keeps them"
#define WHY_LEFT_OUT                                                                           \
    "the exporter left out parameter %.64s, as its value changes nothing so far, or what was " \
    "computed of it is what was computed of another one; "                                     \
    "torch.onnx.export(..., dynamo=True, optimize=False) keeps it"
#define WHY_SIZE "the size of its result depends on the data, which training cannot follow"
#define WHY_EMPTY "its input has no elements"
#define WHY_COLUMNS "compares rows of more than %d numbers"
#define WHY_MANY_ROWS "its result may have more than %lld rows"
#define WHY_CONSTANT "a constant of this kind is not supported"
#define WHY_BRANCH "the branch is not possible: %s"
#define WHY_CAST "casts to element type %lld"
#define WHY_LOOP_LONG "bodies of loops have more than %u nodes when they are unrolled"
#define WHY_LOOP_FOLDS "bodies of loops compute constants of more than %zu MiB"
#define WHY_LOOP_TRIPS                                                                           \
    "how often it runs is computed from data: export the model up to what goes into it, and do " \
    "with the outputs what it does"
#define WHY_LOOP_NO_BOUND "its condition is computed from data, and no trip count bounds it"
#define WHY_LOOP_ROWS                                                                             \
    "its condition is computed from data: how many rows its outputs have is not known before it " \
    "runs"
#define WHY_LOOP_GROWS "its condition is computed from data, and what it carries changes its shape"
#define WHY_SCAN_LENGTHS "lengths of sequences as an input do not work"
#define WHY_WINDOWS "windows of keys do not work"
#define WHY_KEY_LENGTHS "lengths of keys as an input do not work"
#define WHY_ALPHA "alpha is %g, it must be above 0"
#define WHY_MODE "mode %.32s is not supported"
#define WHY_REDUCTION "reduction %s of %s is not supported"
#define WHY_QUANTISED "quantised numbers of type %s are not supported, only INT8%s and UINT8"
#define WHY_SCALES "scales fit neither all of the input, nor axis %lld, nor whole blocks along it"
#define WHY_QUANT_TYPE "numbers of element type %lld are not supported"
#define WHY_VECTORS "products of vectors are not supported"
#define WHY_SCALE_NUMBERS "input %u has %lld numbers; 1 or %lld are supported"
#define WHY_STEPS "has %lld steps, at most %d are supported"
#define WHY_MATRIX "needs a matrix and a type of 32 or 64 bits"
#define WHY_SPACE "has %d spatial axes; at most 3 are supported"
#define WHY_TAPS "the places of maxima are wanted, and its kernel has more than %d places"
#define WHY_ROI_SAMPLES                                                                          \
    "sampling_ratio of 0: how many samples it takes follows from the regions; export with 1 or " \
    "more"
#define WHY_DET "the matrices have more than %d rows"
#define WHY_P "p of %g does not work, only 1, 2 and 3"
#define WHY_TILE "repeats one axis, as before opset 6; convert the model to opset 6"
#define WHY_SPATIAL "has statistics by place (spatial = 0), which is not supported"

/* ---- the model */
#define WHY_NO_INPUT "the model has no inputs: it would say the same to every request"
#define WHY_NO_ROWS "the %s \"%s\" has no rows" /* of a request */
#define WHY_NO_OUTPUT "output %s is a result that its node does not give"
#define WHY_EMPTY_OUTPUT "output %s has no elements"
#define WHY_NO_FLOATS                                                                           \
    "no output is of floats, to be NaN where a Split does not fit an axis whose size the data " \
    "decide"
#define WHY_OUTPUT_KIND "output %s is no tensor"
#define WHY_INPUT_KIND "input %s is no tensor"
#define WHY_INPUT_TYPE "input %s has element type %d"
#define WHY_INPUT_SHAPE "input %s has no shape"
#define WHY_INPUT_AXES "input %s has more than %d axes"
#define WHY_SPARSE "sparse initializers are not supported"
#define WHY_OPSET "opset %lld is not supported; export with an opset from %d to %d"
#define WHY_ELEMENTS "%s has an element type that is not supported (%d)"
#define WHY_TENSOR_AXES "%s has %zu axes; at most %d are supported"
#define WHY_SEGMENTS "%s comes in segments, which is not supported"

/* clang-format off */
#define WHY_ROWS(X)                                                                               \
    X("", WHY_DOMAIN) X("", WHY_ATTRIBUTE) X("", WHY_COMPUTED) X("", WHY_CONSTANTS)               \
    X("", WHY_FOLDS) X("", WHY_NUMBERS) X("", WHY_AXES) X("", WHY_NO_RESULT) X("", WHY_COUNTED)   \
    X("", WHY_COUNTS_MEET) X("", WHY_COUNTS_TWO) X("", WHY_COUNTED_PLACE)                         \
    X("", WHY_COUNTED_VIEW) X("", WHY_COUNTED_SLICE) X("Attention", WHY_WINDOWS)                  \
    X("Attention", WHY_KEY_LENGTHS) X("BatchNormalization", WHY_SPATIAL)                          \
    X("BatchNormalization", WHY_SIZE) X("Cast", WHY_CAST) X("CastLike", WHY_CAST)                 \
    X("Celu", WHY_ALPHA) X("Constant", WHY_CONSTANT) X("Conv", WHY_SPACE)                         \
    X("ConvInteger", WHY_SPACE) X("ConvInteger", WHY_QUANTISED)                                   \
    X("ConvInteger", WHY_SCALE_NUMBERS) X("ConvTranspose", WHY_SPACE) X("DeformConv", WHY_SPACE)  \
    X("DequantizeLinear", WHY_QUANTISED) X("DequantizeLinear", WHY_SCALES) X("Det", WHY_DET)      \
    X("EyeLike", WHY_MATRIX) X("GRU", WHY_STEPS) X("GridSample", WHY_MODE) X("If", WHY_BRANCH)    \
    X("LSTM", WHY_STEPS) X("Loop", WHY_LOOP_LONG) X("Loop", WHY_LOOP_FOLDS)                       \
    X("Loop", WHY_LOOP_TRIPS) X("Loop", WHY_LOOP_NO_BOUND) X("Loop", WHY_LOOP_ROWS)               \
    X("Loop", WHY_LOOP_GROWS)                                                                     \
    X("LpNormalization", WHY_P) X("LpPool", WHY_P) X("MatMulInteger", WHY_VECTORS)                \
    X("MatMulInteger", WHY_QUANTISED) X("MatMulInteger", WHY_SCALE_NUMBERS)                       \
    X("MaxPool", WHY_TAPS) X("NonMaxSuppression", WHY_SIZE)                                       \
    X("NonMaxSuppression", WHY_MANY_ROWS) X("QLinearConv", WHY_SPACE)                             \
    X("QLinearConv", WHY_QUANTISED) X("QLinearConv", WHY_SCALE_NUMBERS)                           \
    X("QLinearMatMul", WHY_VECTORS) X("QLinearMatMul", WHY_QUANTISED)                             \
    X("QLinearMatMul", WHY_SCALE_NUMBERS) X("QuantizeLinear", WHY_QUANTISED)                      \
    X("QuantizeLinear", WHY_SCALES) X("QuantizeLinear", WHY_QUANT_TYPE) X("RNN", WHY_STEPS)       \
    X("RoiAlign", WHY_ROI_SAMPLES) X("Scan", WHY_LOOP_LONG) X("Scan", WHY_LOOP_FOLDS)             \
    X("Scan", WHY_SCAN_LENGTHS) X("Scatter", WHY_REDUCTION) X("ScatterElements", WHY_REDUCTION)   \
    X("ScatterND", WHY_REDUCTION) X("SequenceMap", WHY_LOOP_LONG)                                 \
    X("SequenceMap", WHY_LOOP_FOLDS) X("Tile", WHY_TILE) X("Unique", WHY_SIZE)                    \
    X("Unique", WHY_EMPTY) X("Unique", WHY_COLUMNS) X("-", WHY_NO_ROWS) X("-", WHY_NO_OUTPUT)     \
    X("-", WHY_NO_INPUT) X("-", WHY_EMPTY_OUTPUT) X("-", WHY_NO_FLOATS) X("-", WHY_OUTPUT_KIND)   \
    X("-", WHY_INPUT_KIND) X("-", WHY_INPUT_TYPE) X("-", WHY_INPUT_SHAPE) X("-", WHY_INPUT_AXES)  \
    X("-", WHY_SPARSE) X("-", WHY_OPSET) X("-", WHY_ELEMENTS) X("-", WHY_TENSOR_AXES)             \
    X("-", WHY_SEGMENTS)
/* clang-format on */

#endif
