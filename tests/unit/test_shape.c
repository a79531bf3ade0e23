/* test_shape.c - Without it: a wrong shape rule would write past a buffer on the device, or refuse
 * a model that every exporter writes; a wrong constant would silently change a model's results. */
/* uses: libmodel.a */
#include "common/mem.h"
#include "tests/unit/graph_text.h"

#include <math.h>

static const struct {
    const char *op, *in, *attrs,
        *want; /* want: shape of the first output, or "!part of the error" */
} SHAPES[] = {
    {"Relu", "f[8,3]", "", "FP32[8,3]"},
    {"Relu", "l[8,3]", "", "INT64[8,3]"},
    {"Tanh", "l[8,3]", "", "!must be of a float type"},
    {"Sin", "f[8,3]", "", "FP32[8,3]"},
    {"Round", "f[8,3]", "", "FP32[8,3]"},
    {"Sign", "l[8]", "", "INT64[8]"},
    {"Elu", "f[8,3]", "", "FP32[8,3]"},
    {"Selu", "f[8,3]", "", "FP32[8,3]"},
    {"Celu", "f[8,3]", "alpha~0", "!must be above 0"},
    {"Mish", "f[8,3]", "", "FP32[8,3]"},
    {"Swish", "f[8,3]", "alpha~2", "FP32[8,3]"},
    {"PRelu", "f[8,3,4] p[3,1]", "", "FP32[8,3,4]"},
    {"Shrink", "f[8]", "bias~1.5 lambd~1.5", "FP32[8]"},
    {"ThresholdedRelu", "f[8]", "", "FP32[8]"},
    {"Hardmax", "f[8,3,4]", "axis=1", "FP32[8,3,4]"},
    {"PRelu", "f[8,3,4] p[3]", "first_axis=1", "FP32[8,3,4]"},
    {"Add", "f[8,3,4] f[3]", "first_axis=1", "FP32[8,3,4]"},
    {"Less", "f[8,3,4] f[8,3]", "first_axis=0", "BOOL[8,3,4]"},
    {"Or", "b[8,3] b[8]", "first_axis=0", "BOOL[8,3]"},
    {"Mul", "f[8,3] f[]", "first_axis=5", "FP32[8,3]"},
    {"Add", "f[8,3] f[3,4]", "first_axis=1", "!do not fit"},
    {"Add", "f[8,3] f[3]", "first_axis=2", "!outside the rank"},
    {"DFT", "f[8,6,1]", "", "FP32[8,6,2]"},
    {"DFT", "f[8,6,1] i[]=9 i[]=1", "onesided=1", "FP32[8,5,2]"},
    {"DFT", "f[8,5,2]", "onesided=1 inverse=1", "FP32[8,8,1]"},
    {"DFT", "f[8,5,2] - i[]=0", "", "FP32[8,5,2]"},
    {"DFT", "f[8,5,2]", "onesided=1", "!onesided does not fit"},
    {"DFT", "f[8,5,3]", "", "!cannot transform"},
    {"DFT", "f[8,5,2] - i[]=2", "", "!the parts of a number"},
    {"DFT", "f[8,100000,1]", "", "!could not allocate"},
    {"STFT", "f[8,128,1] i[]=8 f[16]", "", "FP32[8,15,9,2]"},
    {"STFT", "f[8,128,1] i[]=8 - i[]=16", "onesided=0", "FP32[8,15,16,2]"},
    {"STFT", "f[8,128,1] i[]=0 - i[]=16", "", "!do not fit to signal"},
    {"STFT", "f[8,128,1] i[]=8 f[16] i[]=12", "", "!do not fit to signal"},
    {"MelWeightMatrix", "i[]=8 i[]=16 i[]=8192 c[]=0 c[]=4096", "", "FP32[9,8]"},
    {"MelWeightMatrix", "i[]=8 i[]=16 i[]=0 c[]=0 c[]=4096", "", "!no spectrum"},
    {"If", "b[] f[8,3] f[8,3]", "", "FP32[8,3]"},
    {"If", "b[] f[8,3] f[8,4]", "", "FP32[8,4]"},
    {"If", "b[2] f[8,3] f[8,3]", "", "!one BOOL"},
    {"If", "t[0]= f[8,3] f[8,3]", "", "!one BOOL"},
    {"If", "i[]=7 f[8,3] f[8,3]", "", "!one BOOL"},
    {"Concat", "f[8,3] - f[8,3]", "axis=1", "!lacks an input"},
    {"Max", "f[8,3] - f[8,3]", "", "!lacks an input"},
    {"IsNaN", "f[8,3]", "", "BOOL[8,3]"},
    {"RoiAlign", "f[8,3,5,5] f[4,4] l[4]", "sampling_ratio=2 output_height=3", "FP32[4,3,3,1]"},
    {"RoiAlign", "f[8,3,5,5] f[4,4] l[4]", "", "!sampling_ratio of 0"},
    {"RoiAlign", "f[8,3,5,5] f[4,4] l[3]", "sampling_ratio=2", "!must have 4"},
    {"RoiAlign", "f[8,3,5,5] f[4,4] l[4]", "sampling_ratio=2 output_width=0",
     "!size of the result"},
    {"RoiAlign", "f[8,3,5,5] f[4,4] l[4]", "sampling_ratio=-1", "!sampling_ratio is -1"},
    {"MaxRoiPool", "f[8,3,5,5] f[4,5]", "pooled_shape=2,3,", "FP32[4,3,2,3]"},
    {"MaxRoiPool", "f[8,3,5,5] f[4,4]", "pooled_shape=2,3,", "!regions [n,5]"},
    {"MaxRoiPool", "f[8,3,5,5] f[4,5]", "", "!size of the result"},
    {"MaxUnpool", "f[8,3,2,2] l[8,3,2,2]", "kernel_shape=2,2, strides=2,2,", "FP32[8,3,4,4]"},
    {"MaxUnpool", "f[8,3,2,2] l[8,3,2,2] i[4]=8,3,5,5", "kernel_shape=2,2, strides=2,2,",
     "FP32[8,3,5,5]"},
    {"MaxUnpool", "f[8,3,2,2] l[8,3,2,2] i[4]=8,3,3,5", "kernel_shape=2,2, strides=2,2,",
     "!smaller than the result"},
    {"MaxUnpool", "f[8,3,2,2] l[8,3,2,1]", "kernel_shape=2,2,", "!do not fit together"},
    {"MaxUnpool", "f[8,3,2,2] l[8,3,2,2]", "", "!does not fit axis"},
    {"DeformConv", "f[8,4,5,5] p[6,2,3,3] f[8,18,3,3]", "group=2", "FP32[8,6,3,3]"},
    {"DeformConv", "f[8,4,5,5] p[6,2,3,3] f[8,17,3,3]", "group=2", "!the offsets do not fit"},
    {"DeformConv", "f[8,4,5,5] p[6,4,3,3] f[8,18,3,3] - f[8,9,3,2]", "", "!the masks do not fit"},
    {"DeformConv", "f[8,4,5,5] p[6,4,3,3] f[8,54,3,3]", "offset_group=3", "!offset_group is 3"},
    {"DeformConv", "f[8,4,5,5] p[6,4,3,3] f[8,18,3,3]", "offset_group=9223372036854775807",
     "!offset_group is 9223372036854775807"},
    {"Det", "f[8,3,3]", "", "FP32[8]"},
    {"Det", "f[8,3]", "", "!square"},
    {"Det", "f[2,65,65]", "", "!more than 64 rows"},
    {"IsInf", "f[8,3]", "detect_negative=0", "BOOL[8,3]"},
    {"IsNaN", "l[8,3]", "", "!must be of a float type"},
    {"Mod", "l[8,3] i[]=3", "", "INT64[8,3]"},
    {"BitShift", "l[8] i[]=3", "direction:LEFT", "INT64[8]"},
    {"BitShift", "l[8] i[]=3", "", "!LEFT or RIGHT"},
    {"BitwiseAnd", "f[8] c[]=3", "", "!of an integer type"},
    {"BitwiseNot", "l[8]", "", "INT64[8]"},
    {"Xor", "b[8,1] b[3]", "", "BOOL[8,3]"},
    {"CumSum", "f[8,3,4] i[]=-1", "reverse=1", "FP32[8,3,4]"},
    {"CumSum", "f[8,3,4] l[1]", "", "!computed from data"},
    {"ArgMax", "f[8,3,4]", "axis=1", "INT64[8,1,4]"},
    {"ArgMin", "l[8,3,4]", "axis=-1 keepdims=0 select_last_index=1", "INT64[8,3]"},
    {"TopK", "f[8,10] i[1]=3", "", "FP32[8,3]"},
    {"TopK", "f[8,10] i[1]=11", "", "!from 0 to 10"},
    {"EyeLike", "f[8,4]", "k=1 dtype=7", "INT64[8,4]"},
    {"Tile", "f[8,3,4] i[3]=1,2,3", "", "FP32[8,6,12]"},
    {"Tile", "f[8,3,4] i[2]=1,2", "", "!2 repeats"},
    {"Trilu", "f[8,3,4] i[]=1", "upper=0", "FP32[8,3,4]"},
    {"Trilu", "f[8]", "", "!rank 2"},
    {"OneHot", "l[8,3] i[]=5 c[2]=0,1", "axis=1", "FP32[8,5,3]"},
    {"OneHot", "l[8,3] l[1] c[2]=0,1", "", "!computed from data"},
    {"Einsum", "f[8,3,4] f[8,4,5]", "equation:bij,bjk->bik", "FP32[8,3,5]"},
    {"Einsum", "f[8,2,3,4] f[8,2,5,4]", "equation:...qd,...kd->...qk", "FP32[8,2,3,5]"},
    {"Einsum", "f[8,3,3]", "equation:bii->bi", "FP32[8,3]"},
    {"Einsum", "f[8,3] f[3,4] f[4,2]", "equation:bi,ij,jk", "FP32[8,2]"},
    {"Einsum", "f[8,3] f[5]", "equation:bi,b->i", "!two sizes"},
    {"Einsum", "f[8,3]", "equation:bi->bj", "!unknown"},
    {"DepthToSpace", "f[8,12,2,3]", "blocksize=2 mode:CRD", "FP32[8,3,4,6]"},
    {"SpaceToDepth", "f[8,3,4,6]", "blocksize=2", "FP32[8,12,2,3]"},
    {"SpaceToDepth", "f[8,3,4,5]", "blocksize=2", "!does not divide"},
    {"ReverseSequence", "f[8,5,3] l[8]", "batch_axis=0 time_axis=1", "FP32[8,5,3]"},
    {"ScatterND", "f[8,3] l[2,1] f[2,3]", "", "FP32[8,3]"},
    {"ScatterND", "f[8,3] l[2,1] f[2,4]", "", "!do not fit together"},
    {"ScatterElements", "f[8,3] l[8,2] f[8,2]", "axis=1 reduction:add", "FP32[8,3]"},
    {"ScatterElements", "f[8,3] l[8,2] f[8,2]", "axis=1 reduction:sum", "!not known"},
    {"ReduceL2", "f[8,3,4] i[1]=1", "keepdims=0", "FP32[8,4]"},
    {"ReduceL1", "f[8,3,4]", "noop_with_empty_axes=1", "FP32[8,3,4]"},
    {"ReduceLogSumExp", "f[8,3,4] i[1]=-1", "", "FP32[8,3,1]"},
    {"Abs", "l[8,3]", "", "INT64[8,3]"},
    {"Not", "b[8]", "", "BOOL[8]"},
    {"Not", "f[8]", "", "!needs a BOOL"},
    {"Add", "f[8,3,5] f[5]", "", "FP32[8,3,5]"},
    {"Add", "f[8,1,5] f[3,1]", "", "FP32[8,3,5]"},
    {"Add", "f[8,2,5] f[3,1]", "", "!do not fit together"},
    {"Add", "f[8] l[8]", "", "!differ in type"},
    {"Add", "f[8]", "", "!number of inputs"},
    {"Pow", "f[8,3] i[]=2", "", "FP32[8,3]"},
    {"Less", "f[8,3] f[3]", "", "BOOL[8,3]"},
    {"GreaterOrEqual", "f[8,3] f[3]", "", "BOOL[8,3]"},
    {"And", "b[8,1] b[3]", "", "BOOL[8,3]"},
    {"And", "f[8,1] b[3]", "", "!needs BOOL"},
    {"Max", "f[8,1] f[3] f[1,1]", "", "FP32[8,3]"},
    {"Sum", "f[8,1] f[8,3]", "", "FP32[8,3]"},
    {"Where", "b[8,1] f[] f[3]", "", "FP32[8,3]"},
    {"Where", "f[8,1] f[] f[3]", "", "!BOOL condition"},
    {"Cast", "l[8]", "to=9", "BOOL[8]"},
    {"Cast", "l[8]", "to=8", "!casts to element type 8"},
    {"CastLike", "l[8] f[1]", "", "FP32[8]"},
    {"Clip", "f[8] c[]=0 c[]=6", "", "FP32[8]"},
    {"Clip", "f[8] - c[]=6", "", "FP32[8]"},
    {"Clip", "f[8] f[]", "", "FP32[8]"},
    {"LeakyRelu", "f[8]", "alpha~0.1", "FP32[8]"},
    {"Gelu", "f[8]", "approximate:fast", "!none or tanh"},
    {"Conv", "f[8,3,224,224] p[64,3,7,7]", "strides=2,2, pads=3,3,3,3,", "FP32[8,64,112,112]"},
    {"Conv", "f[8,16,9,9] p[16,1,3,3] p[16]", "group=16", "FP32[8,16,7,7]"},
    {"Conv", "f[8,3,9,9] p[4,3,3,3]", "dilations=2,2, auto_pad:SAME_UPPER strides=2,2,",
     "FP32[8,4,5,5]"},
    {"Conv", "f[8,3,9] p[4,3,3]", "", "FP32[8,4,7]"},
    {"Conv", "f[8,3,9,9] p[4,3,3,3]", "auto_pad:VALID", "FP32[8,4,7,7]"},
    {"Conv", "f[8,3,9,9] p[4,2,3,3]", "", "!do not fit together"},
    {"Conv", "f[8,3,9,9] p[4,3,11,11]", "", "!does not fit into axis 2"},
    {"Conv", "f[8,3,9,9] p[4,3,3,3]", "strides=0,1,", "!strides holds 0"},
    {"Conv", "f[8,3,9,9] p[4,3,3,3]", "strides=1,", "!strides has 1 numbers"},
    {"Conv", "f[8,3,9,9] p[4,3,3,3] p[5]", "", "!must have 4 elements"},
    {"Conv", "f[8,3,5,6,7] p[4,3,3,3,3]", "pads=1,0,0,1,0,0,", "FP32[8,4,5,4,5]"},
    {"Conv", "f[8,3,5,5,5,5] p[4,3,3,3,3,3]", "", "!at most 3 are supported"},
    {"ConvTranspose", "f[8,4,5,6] p[4,3,3,3] p[3]", "strides=2,2, pads=1,1,1,1,", "FP32[8,3,9,11]"},
    {"ConvTranspose", "f[8,4,5,6] p[4,3,3,3]", "strides=3,2, output_shape=16,12,",
     "FP32[8,3,16,12]"},
    {"ConvTranspose", "f[8,4,5,6] p[4,3,3,3]", "strides=2,2, auto_pad:SAME_UPPER",
     "FP32[8,3,10,12]"},
    {"ConvTranspose", "f[8,4,5] p[4,3,3]", "group=2 dilations=2, output_padding=1,",
     "FP32[8,6,10]"},
    {"ConvTranspose", "f[8,4,5,6] p[3,3,3,3]", "", "!do not fit together"},
    {"ConvTranspose", "f[8,4,5,6] p[4,3,3,3]", "pads=9,9,9,9,", "!would have"},
    {"MaxPool", "f[8,3,112,112]", "kernel_shape=3,3, strides=2,2, pads=1,1,1,1,",
     "FP32[8,3,56,56]"},
    {"MaxPool", "f[8,3,112,112]", "kernel_shape=3,3, strides=2,2, ceil_mode=1", "FP32[8,3,56,56]"},
    {"MaxPool", "f[8,3,9,9]", "strides=2,2,", "!kernel_shape holds 0"},
    {"AveragePool", "f[8,3,7,7]", "kernel_shape=2,2, strides=2,2, ceil_mode=1 count_include_pad=1",
     "FP32[8,3,4,4]"},
    {"AveragePool", "f[8,3,7,7,9]", "kernel_shape=2,2,3,", "FP32[8,3,6,6,7]"},
    {"LpPool", "f[8,3,7,7]", "kernel_shape=2,2, p=3", "FP32[8,3,6,6]"},
    {"LpPool", "f[8,3,7,7]", "kernel_shape=2,2, p=0", "!at least 1"},
    {"GlobalLpPool", "f[8,3,7,7]", "", "FP32[8,3,1,1]"},
    {"InstanceNormalization", "f[8,3,7,7] p[3] p[3]", "", "FP32[8,3,7,7]"},
    {"InstanceNormalization", "f[8,3,7,7] p[4] p[3]", "", "!must have 3 elements"},
    {"GroupNormalization", "f[8,6,7,7] p[6] p[6]", "num_groups=3", "FP32[8,6,7,7]"},
    {"GroupNormalization", "f[8,6,7,7] p[3] p[3]", "num_groups=3", "FP32[8,6,7,7]"},
    {"GroupNormalization", "f[8,6,7,7] p[6] p[6]", "num_groups=4", "!not 4 equal groups"},
    {"LpNormalization", "f[8,6]", "p=3", "!must be 1 or 2"},
    {"LRN", "f[8,6,5,5]", "size=3", "FP32[8,6,5,5]"},
    {"LRN", "f[8,6,5,5]", "", "!size is 0"},
    {"Resize", "f[8,3,4,5] - c[4]=1,1,2,1.5", "", "FP32[8,3,8,7]"},
    {"Resize", "f[8,3,4,5] - - i[4]=8,3,7,9", "mode:linear", "FP32[8,3,7,9]"},
    {"Resize", "f[8,3,4,5] - - i[2]=7,9", "axes=2,3, keep_aspect_ratio_policy:not_larger",
     "FP32[8,3,7,9]"},
    {"Resize", "f[8,3,4,5] - - i[2]=8,9", "axes=2,3, keep_aspect_ratio_policy:not_smaller",
     "FP32[8,3,8,10]"},
    {"Resize", "f[8,3,4,5] - c[4]=1,1,0,1", "", "!scale of 0"},
    {"Resize", "f[8,3,4,5] - c[4]=1,1,nan,1", "", "!scale of nan"},
    {"Resize", "f[8,3,4,5] - c[2]=2,2", "", "!2 scales for 4 axes"},
    {"Resize", "f[8,3,4,5] - f[4]", "", "!computed from data"},
    {"Resize", "f[8,3,4,5] - c[4]=1,1,2,2", "mode:bicubic", "!bicubic is not known"},
    {"QuantizeLinear", "f[8,3] c[]=0.5", "", "UINT8[8,3]"},
    {"QuantizeLinear", "f[8,3] c[3]=1,2,3", "axis=-1", "UINT8[8,3]"},
    {"QuantizeLinear", "f[2,4] c[2,2]=1,2,3,4", "axis=1 block_size=2", "UINT8[2,4]"},
    {"QuantizeLinear", "f[2,4] c[2,2]=1,2,3,4", "axis=1 block_size=3", "!nor whole blocks"},
    {"QuantizeLinear", "f[8,3] c[]=0", "", "!must be above 0"},
    {"QuantizeLinear", "f[8,3] c[3]=1,nan,1", "", "!scale 1 is nan"},
    {"QuantizeLinear", "f[8,3] c[]=1", "output_dtype=5", "INT16[8,3]"},
    {"DequantizeLinear", "f[8,3] c[]=1", "", "!FP32 are not supported"},
    {"DynamicQuantizeLinear", "f[8,3]", "", "UINT8[8,3]"},
    {"MatMulInteger", "f[8,3] f[3,2]", "", "!FP32 are not supported"},
    {"LSTM", "f[5,2,4] p[1,12,4] p[1,12,3] p[1,24]", "", "FP32[5,1,2,3]"},
    {"LSTM", "f[2,5,4] p[2,12,4] p[2,12,3]", "direction:bidirectional layout=1", "FP32[2,5,2,3]"},
    {"LSTM", "f[5,2,4] p[1,12,4] p[1,12,3] p[1,12]", "", "!it must be FP32[1,24]"},
    {"LSTM", "f[5,2,4] p[1,12,4] p[1,12,3]", "direction:sideways", "!sideways is not known"},
    {"LSTM", "f[5,2,4] p[1,12,4] p[1,12,3]", "hidden_size=4", "!the weights have 3"},
    {"LSTM", "f[5000,2,4] p[1,12,4] p[1,12,3]", "", "!at most 4096"},
    {"GRU", "f[5,2,4] p[1,9,4] p[1,9,3]", "", "FP32[5,1,2,3]"},
    {"RNN", "f[5,2,4] p[1,3,4] p[1,3,3]", "", "FP32[5,1,2,3]"},
    {"RNN", "f[5,2] p[1,3,4] p[1,3,3]", "", "!must have 3 axes"},
    {"Upsample", "f[8,3,4,5] c[4]=1,1,2,2", "mode:linear", "FP32[8,3,8,10]"},
    {"GlobalAveragePool", "f[8,3,7,7]", "", "FP32[8,3,1,1]"},
    {"GlobalMaxPool", "f[8,3]", "", "!spatial axes"},
    {"Gemm", "f[8,5] p[7,5] p[7]", "transB=1", "FP32[8,7]"},
    {"Gemm", "f[5,8] p[5,7]", "transA=1", "FP32[8,7]"},
    {"Gemm", "f[8,5] p[7,5]", "", "!do not fit together"},
    {"Gemm", "f[8,5] p[7,5] p[3,8,7]", "transB=1", "!do not fit together"},
    {"MatMul", "f[8,2,5,3] f[3,7]", "", "FP32[8,2,5,7]"},
    {"MatMul", "f[8,1,5,3] f[4,3,7]", "", "FP32[8,4,5,7]"},
    {"MatMul", "f[3] f[8,3,7]", "", "FP32[8,7]"},
    {"MatMul", "f[8,3] f[3]", "", "FP32[8]"},
    {"MatMul", "f[8,3] f[4,5]", "", "!do not fit together"},
    {"MatMul", "f[] f[4,5]", "", "!do not fit together"},
    {"BatchNormalization", "f[8,3,5,5] p[3] p[3] p[3] p[3]", "", "FP32[8,3,5,5]"},
    {"BatchNormalization", "f[8,3,5,5] p[3] p[4] p[3] p[3]", "", "!must have 3 elements"},
    {"LayerNormalization", "f[8,16,64] p[64] p[64]", "axis=-1", "FP32[8,16,64]"},
    {"LayerNormalization", "f[8,16,64] p[16,64]", "axis=1", "FP32[8,16,64]"},
    {"LayerNormalization", "f[8,16,64] p[16]", "", "!do not fit together"},
    {"Softmax", "f[8,3]", "axis=2", "!outside the rank"},
    {"LogSoftmax", "f[8,3]", "axis=-1", "FP32[8,3]"},
    {"Reshape", "f[8,3,4] i[3]=0,-1,2", "", "FP32[8,6,2]"},
    {"Reshape", "f[8,3,4] i[2]=-1,-1", "", "!holds -1 at place 1"},
    {"Reshape", "f[8,3,4] i[2]=5,5", "", "!cannot give"},
    {"Reshape", "f[8,3] l[2]", "", "!computed from data"},
    {"Reshape", "f[8,3] i[9]=1,1,1,1,1,1,1,1,24", "", "!at most 8"},
    {"Reshape", "f[8,3] i[2]=4294967296,4294967296", "", "!shape holds 4294967296"},
    {"Flatten", "f[8,3,4]", "", "FP32[8,12]"},
    {"Flatten", "f[8,3,4]", "axis=-1", "FP32[24,4]"},
    {"Flatten", "f[8,3,4]", "axis=4", "!outside the input's rank"},
    {"Squeeze", "f[8,1,4,1] i[1]=-1", "", "FP32[8,1,4]"},
    {"Squeeze", "f[8,1,4,1]", "", "FP32[8,4]"},
    {"Squeeze", "f[8,1,4] i[1]=2", "", "!cannot drop axis 2"},
    {"Unsqueeze", "f[8,4] i[2]=0,-1", "", "FP32[1,8,4,1]"},
    {"Unsqueeze", "f[8,4] i[2]=0,0", "", "!there twice"},
    {"Transpose", "f[8,3,4]", "perm=0,2,1,", "FP32[8,4,3]"},
    {"Transpose", "f[8,3,4]", "", "FP32[4,3,8]"},
    {"Transpose", "f[8,3,4]", "perm=0,2,2,", "!no permutation"},
    {"Concat", "f[8,3] f[8,4]", "axis=1", "FP32[8,7]"},
    {"Concat", "f[8,3] f[9,4]", "axis=1", "!cannot join"},
    {"Concat", "f[8,3] c[8,0]=", "axis=1", "FP32[8,3]"},
    {"Split", "f[8,10]", "axis=1", "FP32[8,10]"},
    {"Split", "f[8,10] i[1]=9", "axis=1", "!sum to 9"},
    {"Slice", "f[8,10] i[1]=1 i[1]=-1 i[1]=1", "", "FP32[8,8]"},
    {"Slice", "f[8,10] i[1]=-1 i[1]=-9223372036854775807 i[1]=1 i[1]=-3", "", "FP32[8,4]"},
    {"Slice", "f[8,10] i[1]=2 i[1]=9223372036854775807 i[1]=0 i[1]=2", "", "FP32[3,10]"},
    {"Slice", "f[8,10] i[1]=5 i[1]=5 i[1]=1", "", "!no elements"},
    {"Slice", "f[8,10] i[1]=0 i[1]=5 i[1]=1 i[1]=0", "", "!a step is 0"},
    {"Slice", "f[8,10] i[2]=0,0 i[1]=5", "", "!differ in length"},
    {"Pad", "f[8,3,4,4] i[8]=0,0,1,1,0,0,2,2 c[]=1", "", "FP32[8,3,7,7]"},
    {"Pad", "f[8,3,4] i[2]=1,1 - i[1]=-1", "", "FP32[8,3,6]"},
    {"Pad", "f[8,3,4] i[2]=1,1 - i[1]=-1", "mode:reflect", "FP32[8,3,6]"},
    {"Pad", "f[8,3,4] i[2]=1,1 - i[1]=-1", "mode:mirror", "!mode mirror"},
    {"Pad", "f[8,3,4] i[6]=0,0,-1,0,0,0", "", "FP32[8,3,3]"},
    {"Pad", "f[8,3,4] i[6]=0,0,-5,0,0,0", "", "!cut more than axis 2"},
    {"CenterCropPad", "f[8,3,4] i[3]=8,2,6", "", "FP32[8,2,6]"},
    {"NegativeLogLikelihoodLoss", "f[8,3,4] l[8,4]", "reduction:none", "FP32[8,4]"},
    {"SoftmaxCrossEntropyLoss", "f[8,3] l[8] p[3]", "ignore_index=-1", "FP32[]"},
    {"SoftmaxCrossEntropyLoss", "f[8,3] l[7]", "", "!do not fit together"},
    {"AffineGrid", "f[8,2,3] i[4]=8,3,5,6", "", "FP32[8,5,6,2]"},
    {"AffineGrid", "f[8,2,3] i[4]=7,3,5,6", "", "!do not fit together"},
    {"GridSample", "f[8,3,5,6] f[8,2,4,2]", "padding_mode:reflection", "FP32[8,3,2,4]"},
    {"GridSample", "f[8,3,5,6] f[8,4,2,2]", "mode:cubic", "FP32[8,3,4,2]"},
    {"GridSample", "f[8,3,5,6] h[8,4,2,2]", "", "FP32[8,3,4,2]"},
    {"GridSample", "f[8,3,5,6] f[4,4,2,2]", "", "!and grid FP32[4,4,2,2]"},
    {"GridSample", "f[8,3,5,6] f[8,4,2,2]", "mode:quintic", "!mode quintic"},
    {"Col2Im", "f[8,12,4] i[2]=3,3 i[2]=2,2", "", "FP32[8,3,3,3]"},
    {"Col2Im", "f[8,12,5] i[2]=3,3 i[2]=2,2", "", "!do not fit image"},
    {"Mean", "f[8,3] f[3]", "", "FP32[8,3]"},
    {"NonZero", "f[8,3]", "", "INT64[2,24]"},
    {"Compress", "f[8,3] t[3]=1,0,1", "axis=1", "FP32[8,2]"},
    {"Compress", "f[] t[2]=1,0", "axis=-1", "!axis"},
    {"GatherND", "f[8,5] i[1,2]=4611686018427387904,0", "", "!is outside"},
    {"Unique", "f[8]", "", "FP32[8]"},
    {"Unique", "f[8,65]", "axis=0", "!more than 64 numbers"},
    {"NonMaxSuppression", "f[2,9,4] f[2,3,9] i[1]=4", "", "INT64[24,3]"},
    {"NonMaxSuppression", "f[2,9,4] f[2,3,9] i[1]=99", "", "INT64[54,3]"},
    {"NonMaxSuppression", "f[2,9,4] f[2,3,9]", "", "!no elements"},
    {"NonMaxSuppression", "f[2,9,4] f[2,3,8] i[1]=4", "", "!do not fit"},
    {"NonMaxSuppression", "f[9,99999,4] f[9,999,99999] i[1]=99999", "", "!16777216 rows"},
    {"Expand", "f[8,1] i[2]=1,5", "", "FP32[8,5]"},
    {"Expand", "f[8,3] i[2]=1,5", "", "!do not fit together"},
    {"Expand", "f[8,3] i[3]=1099511627776,1,1", "", "!too large"},
    {"Gather", "p[100,16] l[8,5]", "", "FP32[8,5,16]"},
    {"Gather", "f[8,5,16] i[]=-1", "axis=1", "FP32[8,16]"},
    {"Gather", "f[8,5] i[]=5", "axis=1", "!index 5 is outside"},
    {"Gather", "f[8,5] f[3]", "", "!indices must be"},
    {"GatherElements", "f[4,3] i[4,2]=0,1,2,0,1,1,0,2", "axis=1", "FP32[4,2]"},
    {"GatherElements", "f[4,3] l[4,2]", "axis=1", "FP32[4,2]"},
    {"GatherND", "f[4,3,5] l[4,2,1]", "batch_dims=1", "FP32[4,2,5]"},
    {"GatherND", "f[4,3] i[4,1,2]=0,0,1,2,3,1,2,2", "", "FP32[4,1]"},
    {"GatherND", "f[4,3] i[2,1]=0,3", "", "FP32[2,3]"},
    {"GatherND", "f[4,3] i[2,1]=0,4", "", "!index 4 is outside"},
    {"ReduceMean", "f[8,3,4] i[2]=-1,-2", "", "FP32[8,1,1]"},
    {"ReduceSum", "f[8,3,4] i[1]=1", "keepdims=0", "FP32[8,4]"},
    {"ReduceMax", "f[8,3]", "keepdims=0", "FP32[]"},
    {"ReduceMin", "f[8,3] i[1]=2", "", "!outside the rank"},
    {"ReduceProd", "f[8,3]", "", "FP32[1,1]"},
    {"Identity", "f[8,3]", "", "FP32[8,3]"},
    {"Range", "i[]=0 l[] i[]=1", "", "!computed from data"},
    {"Range", "i[]=0 i[]=2000000000 i[]=1", "", "!counts 2000000000 numbers"},
    {"Range", "i[]=0 i[]=9000000 i[]=1", "", "!a constant of more than 64 MiB"},
    {"Range", "i[]=0 i[]=5 i[]=0", "", "!cannot count from 0 to 5 by 0"},
    {"ConstantOfShape", "i[1]=2000000000", "", "!a constant of more than 64 MiB"},
    {"ImageDecoder", "f[8,3]", "", "!operator is not supported"},
};

static void every_operator_gives_the_shape_of_the_standard_or_says_what_is_wrong(void **state)
{
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(SHAPES); i++) {
        struct graph *g = text_graph(SHAPES[i].op, SHAPES[i].in, SHAPES[i].attrs, 1), *b = NULL;
        struct sh_err err = {0};
        char got[256];
        int rc = graph_at_batch(g, text_batch(g), false, &b, &err);

        if (SHAPES[i].want[0] == '!') {
            if (rc == SH_OK || err.rc != rc || !strstr(err.msg, SHAPES[i].want + 1))
                fail_msg("row %zu: %s %s: got %s \"%s\", want an error with \"%s\"", i,
                         SHAPES[i].op, SHAPES[i].in, sh_rc_name(rc), err.msg, SHAPES[i].want + 1);
            assert_null(b);
        } else {
            if (rc != SH_OK)
                fail_msg("row %zu: %s %s: %s", i, SHAPES[i].op, SHAPES[i].in, err.msg);
            text_shape(&b->values[b->outputs[0]], got, sizeof(got));
            if (strcmp(got, SHAPES[i].want) != 0)
                fail_msg("row %zu: %s %s: got %s, want %s", i, SHAPES[i].op, SHAPES[i].in, got,
                         SHAPES[i].want);
            assert_string_equal(b->values[b->outputs[0]].name, "y0");
        }
        graph_free(b);
        graph_free(g);
    }
}

static const struct {
    const char *op, *in, *attrs, *shape;
    double want[12];
} CONSTANTS[] = {
    {"Add", "i[2]=1,2 i[]=10", "", "INT64[2]", {11, 12}},
    {"Sub", "i[2]=1,2 i[2,1]=1,2", "", "INT64[2,2]", {0, 1, -1, 0}},
    {"Mul", "c[2]=0.5,2 c[2]=4,-1", "", "FP32[2]", {2, -2}},
    {"Div", "i[3]=7,-7,9 i[]=2", "", "INT64[3]", {3, -3, 4}},
    {"Mod", "i[2]=7,-7 i[]=3", "", "INT64[2]", {1, 2}},
    {"Pow", "c[2]=2,3 c[]=2", "", "FP32[2]", {4, 9}},
    {"Min", "i[2]=1,5 i[]=3 i[]=2", "", "INT64[2]", {1, 2}},
    {"Max", "i[2]=1,5 i[]=3 i[]=4", "", "INT64[2]", {4, 5}},
    {"Sum", "i[2]=1,5 i[]=3 i[]=4", "", "INT64[2]", {8, 12}},
    {"Equal", "i[2]=1,2 i[]=2", "", "BOOL[2]", {0, 1}},
    {"Less", "c[2]=1,2 c[]=2", "", "BOOL[2]", {1, 0}},
    {"GreaterOrEqual", "i[3]=1,2,3 i[]=2", "", "BOOL[3]", {0, 1, 1}},
    {"And", "t[2]=1,1 t[2]=1,0", "", "BOOL[2]", {1, 0}},
    {"Or", "t[2]=1,0 t[2]=0,0", "", "BOOL[2]", {1, 0}},
    {"Xor", "t[2]=1,1 t[2]=0,1", "", "BOOL[2]", {1, 0}},
    {"Not", "t[2]=1,0", "", "BOOL[2]", {0, 1}},
    {"Neg", "i[2]=1,-2", "", "INT64[2]", {-1, 2}},
    {"Sqrt", "c[1]=16", "", "FP32[1]", {4}},
    {"Floor", "c[2]=1.5,-1.5", "", "FP32[2]", {1, -2}},
    {"Where", "t[2]=1,0 i[]=7 i[2]=1,2", "", "INT64[2]", {7, 2}},
    {"Cast", "c[3]=1.9,-1.9,0", "to=7", "INT64[3]", {1, -1, 0}},
    {"Cast", "c[3]=0.5,0,-3", "to=9", "BOOL[3]", {1, 0, 1}},
    {"Clip", "i[3]=-5,1,9 i[]=0 i[]=6", "", "INT64[3]", {0, 1, 6}},
    {"Concat", "i[1,2]=1,2 i[1,1]=3", "axis=1", "INT64[1,3]", {1, 2, 3}},
    {"Concat", "i[2,1]=1,2 i[2,2]=3,4,5,6", "axis=1", "INT64[2,3]", {1, 3, 4, 2, 5, 6}},
    {"Slice", "i[5]=0,1,2,3,4 i[1]=-1 i[1]=-9 i[1]=0 i[1]=-2", "", "INT64[3]", {4, 2, 0}},
    {"Slice", "i[2,3]=0,1,2,3,4,5 i[1]=1 i[1]=3 i[1]=1", "", "INT64[2,2]", {1, 2, 4, 5}},
    {"Transpose", "i[2,3]=0,1,2,3,4,5", "", "INT64[3,2]", {0, 3, 1, 4, 2, 5}},
    {"Expand", "i[2,1]=1,2 i[2]=1,3", "", "INT64[2,3]", {1, 1, 1, 2, 2, 2}},
    {"Reshape", "i[4]=1,2,3,4 i[2]=2,-1", "", "INT64[2,2]", {1, 2, 3, 4}},
    {"Reshape", "i[1]=5 i[0]=", "", "INT64[]", {5}},
    {"Squeeze", "i[1,2]=1,2 i[1]=0", "", "INT64[2]", {1, 2}},
    {"Unsqueeze", "i[]=3 i[1]=0", "", "INT64[1]", {3}},
    {"Gather", "i[4]=5,6,7,8 i[2]=-1,0", "", "INT64[2]", {8, 5}},
    {"Gather", "i[2,3]=0,1,2,3,4,5 i[]=1", "axis=1", "INT64[2]", {1, 4}},
    {"GatherElements", "i[2,2]=1,2,3,4 i[2,2]=0,0,1,0", "axis=1", "INT64[2,2]", {1, 1, 4, 3}},
    {"GatherND", "i[2,2]=1,2,3,4 i[2,2]=0,0,1,1", "", "INT64[2]", {1, 4}},
    {"GatherND", "i[2,2]=1,2,3,4 i[2,1]=1,0", "batch_dims=1", "INT64[2]", {2, 3}},
    {"ReduceProd", "i[3]=2,3,4", "keepdims=0", "INT64[]", {24}},
    {"ReduceMean", "c[2,2]=1,3,5,7 i[1]=1", "keepdims=0", "FP32[2]", {2, 6}},
    {"ReduceMax", "i[2,2]=1,3,7,5 i[1]=0", "", "INT64[1,2]", {7, 5}},
    {"ReduceSum", "i[2,2]=1,3,7,5 i[0]=", "noop_with_empty_axes=1", "INT64[2,2]", {1, 3, 7, 5}},
    {"Shape", "f[8,3,5]", "", "INT64[3]", {8, 3, 5}},
    {"Shape", "f[8,3,5]", "start=-2 end=-1", "INT64[1]", {3}},
    {"Size", "f[8,3,5]", "", "INT64[]", {120}},
    {"ConstantOfShape", "i[2]=1,2 i[1]=7", "", "INT64[1,2]", {7, 7}},
    {"ConstantOfShape", "i[1]=2", "", "FP32[2]", {0, 0}},
    {"Range", "i[]=2 i[]=8 i[]=3", "", "INT64[2]", {2, 5}},
    {"Range", "c[]=1 c[]=0 c[]=-0.5", "", "FP32[2]", {1, 0.5}},
};

static double number_at(const struct graph_value *v, size_t i)
{
    if (v->dtype == SH_F32)
        return (double)((const float *)v->data)[i];
    if (v->dtype == SH_I64)
        return (double)((const int64_t *)v->data)[i];
    return ((const uint8_t *)v->data)[i];
}

static void arithmetic_on_constants_is_done_before_anything_runs(void **state)
{
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CONSTANTS); i++) {
        struct graph *g = text_graph(CONSTANTS[i].op, CONSTANTS[i].in, CONSTANTS[i].attrs, 1), *b;
        const struct graph_value *v;
        struct sh_err err = {0};
        char got[256];

        if (graph_at_batch(g, text_batch(g), false, &b, &err) != SH_OK)
            fail_msg("row %zu: %s %s: %s", i, CONSTANTS[i].op, CONSTANTS[i].in, err.msg);
        assert_int_equal(b->n_nodes, 1); /* the output of a constant */
        assert_string_equal(b->nodes[0].op, "Identity");
        v = &b->values[b->nodes[0].in[0]];
        assert_non_null(v->data);
        text_shape(v, got, sizeof(got));
        assert_string_equal(got, CONSTANTS[i].shape);
        for (int64_t j = 0; j < graph_elements(v); j++)
            if (fabs(number_at(v, (size_t)j) - CONSTANTS[i].want[j]) > 1e-6)
                fail_msg("row %zu: %s %s: element %lld is %g", i, CONSTANTS[i].op, CONSTANTS[i].in,
                         (long long)j, number_at(v, (size_t)j));
        graph_free(b);
        graph_free(g);
    }
}

/* Windows of which none is there, joined along another axis: what is behind expects their size. */
static void parts_without_elements_are_as_large_as_their_sum_when_joined(void **state)
{
    static const struct {
        const char *in; /* of which the slice is joined with itself */
        int64_t axis, want[3];
    } ROWS[] = {
        {"c[2,2,1]=1,2,3,4 i[1]=0 i[1]=0 i[1]=0", 2, {0, 2, 2}},
        {"c[2,2,1]=1,2,3,4 i[1]=0 i[1]=0 i[1]=0", 0, {0, 2, 1}},
        {"f[8,2,1] i[1]=2 i[1]=2 i[1]=1", 2, {8, 0, 2}},
        {"f[8,2,1] i[1]=2 i[1]=2 i[1]=1", 1, {8, 0, 1}},
        {"f[8,2,1] i[1]=0 i[1]=1 i[1]=1", 1, {8, 2, 1}},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++) {
        struct graph *g = text_graph("Slice", ROWS[i].in, "", 1), *b = NULL;
        const uint32_t parts[2] = {g->outputs[0], g->outputs[0]};
        struct sh_err err = {0};
        const struct graph_value *v;
        uint32_t joined, size, at;

        assert_ok(graph_add_value(g, "joined", SH_F32, -1, NULL, &joined, NULL));
        assert_ok(graph_add_node(g, "j", "Concat", parts, 2, &joined, 1, &at, NULL));
        assert_ok(graph_set_int(&g->nodes[at], "axis", ROWS[i].axis, NULL));
        assert_ok(graph_add_value(g, "size", SH_I64, -1, NULL, &size, NULL));
        assert_ok(graph_add_node(g, "s", "Shape", &joined, 1, &size, 1, &at, NULL));
        g->outputs[0] = size;
        if (graph_at_batch(g, text_batch(g), false, &b, &err) != SH_OK)
            fail_msg("row %zu: %s", i, err.msg);
        v = &b->values[b->nodes[b->n_nodes - 1].in[0]];
        assert_int_equal(v->bytes, sizeof(ROWS[i].want));
        for (int j = 0; j < 3; j++)
            if (((const int64_t *)v->data)[j] != ROWS[i].want[j])
                fail_msg("row %zu: axis %d has %lld", i, j,
                         (long long)((const int64_t *)v->data)[j]);
        graph_free(b);
        graph_free(g);
    }
}

static void a_division_of_constants_by_zero_is_an_error_not_a_signal(void **state)
{
    struct graph *g = text_graph("Div", "i[1]=1 i[1]=0", "", 1), *b;
    struct sh_err err = {0};
    (void)state;

    assert_fails(graph_at_batch(g, 1, false, &b, &err), SH_E_INVALID, &err, "divides by zero");
    graph_free(g);
    memset(&err, 0, sizeof(err));
    g = text_graph("Div", "i[1]=-9223372036854775808 i[1]=-1", "", 1);
    assert_ok_err(graph_at_batch(g, 1, false, &b, &err), &err);
    graph_free(b);
    graph_free(g);
}

/* The static form that graph.h promises to the lowering. */
static void attributes_are_complete_and_inputs_are_data_only(void **state)
{
    struct graph *g = text_graph("Slice", "f[8,10] i[1]=-2 i[1]=-9 i[1]=-1 i[1]=-2", "", 1), *b;
    int64_t list[16], one;
    double f;
    size_t k;
    (void)state;

    assert_ok(graph_at_batch(g, 8, false, &b, NULL));
    assert_int_equal(b->nodes[0].n_in, 1);
    assert_ok(graph_ints(&b->nodes[0], "starts", list, 16, &k, NULL));
    assert_int_equal(k, 2);
    assert_int_equal(list[1], 8);
    assert_ok(graph_ints(&b->nodes[0], "steps", list, 16, &k, NULL));
    assert_true(list[0] == 1 && list[1] == -2);
    graph_free(b);
    graph_free(g);

    g = text_graph("MaxPool", "f[8,3,112,112]", "kernel_shape=3,3, strides=2,2, ceil_mode=1", 1);
    assert_ok(graph_at_batch(g, 8, false, &b, NULL));
    assert_ok(graph_ints(&b->nodes[0], "pads", list, 16, &k, NULL));
    assert_true(k == 4 && list[0] == 0 && list[1] == 0 && list[2] == 1 && list[3] == 1);
    graph_free(b);
    graph_free(g);

    g = text_graph("Clip", "f[8] - c[]=6", "", 1);
    assert_ok(graph_at_batch(g, 8, false, &b, NULL));
    assert_int_equal(b->nodes[0].n_in, 1);
    assert_ok(graph_float(&b->nodes[0], "min", 0, &f, NULL));
    assert_true(isinf(f) && f < 0);
    graph_free(b);
    graph_free(g);

    g = text_graph("ReduceMean", "f[8,3,4] i[2]=-1,1", "", 1);
    assert_ok(graph_at_batch(g, 8, false, &b, NULL));
    assert_ok(graph_ints(&b->nodes[0], "axes", list, 16, &k, NULL));
    assert_true(k == 2 && list[0] == 1 && list[1] == 2 && b->nodes[0].n_in == 1);
    assert_ok(graph_int(&b->nodes[0], "keepdims", -1, &one, NULL));
    assert_int_equal(one, 1);
    graph_free(b);
    graph_free(g);
}

static void composite_operators_become_those_that_devices_have(void **state)
{
    static const struct {
        const char *op, *in, *attrs, *want;
        uint32_t n_out;
    } ROWS[] = {
        {"Split", "f[8,10] i[2]=3,7", "axis=1", "Slice Slice", 2},
        {"Max", "f[8] f[8] f[8]", "", "Max Max", 1},
        {"Sum", "f[8] f[8] f[8]", "", "Add Add", 1},
        {"LessOrEqual", "f[8] f[8]", "", "LessOrEqual", 1},
        {"IsNaN", "f[8]", "", "Equal Not", 1},
        {"Pow", "f[8] l[8]", "", "Cast Pow", 1},
        {"Abs", "l[8]", "", "Sub Max", 1},
        {"ReduceMax", "b[8,3]", "axes=1,", "Cast ReduceMax Cast", 1},
        {"ReduceL2", "f[8,3] i[1]=1", "", "Mul ReduceSum Sqrt", 1},
        {"ArgMax", "f[8,3]", "axis=1 keepdims=0", "TopK Reshape", 1},
        {"Tile", "f[8,3] i[2]=1,2", "", "Reshape Expand Reshape", 1},
        {"GatherND", "f[8,3,4] l[8,2]", "", "Locate Reshape Gather", 1},
        {"ScatterND", "f[8,3] l[2,1] f[2,3]", "", "Locate Scatter", 1},
        {"Einsum", "f[8,3,4] f[8,4,5]", "equation:bij,bjk->bik", "MatMul", 1},
        {"Flatten", "f[8,2,2]", "", "Reshape", 1},
        {"Unsqueeze", "f[8,2,2] i[1]=0", "", "Reshape", 1},
        {"And", "b[8,1] t[2]=1,1", "", "Expand", 1},
        {"And", "b[8,2] t[2]=1,0", "", "And", 1},
        {"GatherND", "f[2,3] i[2,2]=1,2,0,0", "", "Reshape Gather", 1},
        {"GatherND", "f[2,2] i[4,2]=0,0,0,1,1,0,1,1", "", "Reshape", 1},
        {"GatherElements", "f[2,2] i[2,1]=1,0", "axis=1", "Reshape Gather", 1},
        {"Gather", "f[3,2] i[2]=0,1", "", "Gather", 1},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++) {
        struct graph *g = text_graph(ROWS[i].op, ROWS[i].in, ROWS[i].attrs, ROWS[i].n_out), *b;
        char got[128] = "";

        assert_ok(graph_at_batch(g, text_batch(g), false, &b, NULL));
        for (uint32_t j = 0; j < b->n_nodes; j++)
            snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", j ? " " : "",
                     b->nodes[j].op);
        assert_string_equal(got, ROWS[i].want);
        graph_free(b);
        graph_free(g);
    }
}

static void training_keeps_what_inference_folds(void **state)
{
    struct graph *g = text_graph("Dropout", "f[8,3] c[]=0.25 t[]=1", "", 1), *b;
    double ratio;
    (void)state;

    assert_ok(graph_at_batch(g, 8, true, &b, NULL));
    assert_string_equal(b->nodes[0].op, "Dropout");
    assert_int_equal(b->nodes[0].n_in, 1);
    assert_ok(graph_float(&b->nodes[0], "ratio", 0, &ratio, NULL));
    assert_true(ratio == 0.25);
    graph_free(b);
    assert_ok(graph_at_batch(g, 8, false, &b, NULL));
    assert_string_equal(b->nodes[0].op, "Identity"); /* the output is the input */
    graph_free(b);
    graph_free(g);

    g = text_graph("BatchNormalization", "f[8,3] p[3] p[3] p[3] p[3]", "", 1);
    assert_ok(graph_at_batch(g, 8, true, &b, NULL));
    assert_int_equal(b->nodes[0].n_out, 3);
    graph_free(b);
    assert_ok(graph_at_batch(g, 8, false, &b, NULL));
    assert_int_equal(b->nodes[0].n_out, 1);
    graph_free(b);
    graph_free(g);

    g = text_graph("Mul", "p[3] c[]=2", "", 1);
    assert_ok(graph_at_batch(g, 1, true, &b, NULL));
    assert_string_equal(b->nodes[0].op, "Mul"); /* the parameter changes in training */
    graph_free(b);
    assert_ok(graph_at_batch(g, 1, false, &b, NULL));
    assert_string_equal(b->nodes[0].op, "Identity");
    graph_free(b);
    graph_free(g);
}

static void the_batch_replaces_the_dynamic_axis_only(void **state)
{
    struct graph *g = text_graph("Relu", "f[-1,3]", "", 1), *b = NULL;
    struct sh_err err = {0};
    (void)state;

    assert_ok(graph_at_batch(g, 5, false, &b, &err));
    assert_int_equal(b->values[b->outputs[0]].dims[0], 5);
    graph_free(b);
    assert_fails(graph_at_batch(g, 0, false, &b, &err), SH_E_INVALID, &err, "batch of 0");
    assert_ok(graph_infer_outputs(g, false, NULL));
    assert_int_equal(g->values[g->outputs[0]].dims[0], -1);
    assert_int_equal(g->values[g->outputs[0]].dims[1], 3);
    graph_free(g);

    memset(&err, 0, sizeof(err));
    g = text_graph("Relu", "f[2,3]", "", 1);
    assert_fails(graph_at_batch(g, 3, false, &b, &err), SH_E_INVALID, &err, "fixed batch of 2");
    graph_free(g);
}

/* Two programs of one model share their weights only if these do not depend on the batch. */
static void constants_do_not_grow_with_the_batch(void **state)
{
    struct graph *g = text_graph("Add",
                                 "f[4,2,3] c[4,2,3]=1,2,3,1,2,3,1,2,3,1,2,3,1,2,3,1,2,3,1,2,3,"
                                 "1,2,3",
                                 "", 1);
    struct graph *b;
    const struct graph_value *v;
    (void)state;

    assert_ok(graph_at_batch(g, 4, false, &b, NULL));
    v = &b->values[b->nodes[0].in[1]];
    assert_true(v->dims[0] == 1 && v->dims[1] == 1 && v->dims[2] == 3);
    assert_int_equal(v->bytes, 12);
    assert_true(((const float *)v->data)[2] == 3.0f);
    graph_free(b);
    graph_free(g);

    g = text_graph("Add", "f[1,3] c[2,3]=1,2,3,1,2,3", "", 1); /* here it makes the result larger */
    assert_ok(graph_at_batch(g, 1, false, &b, NULL));
    assert_int_equal(b->values[b->nodes[0].in[1]].dims[0], 2);
    assert_int_equal(b->values[b->outputs[0]].dims[0], 2);
    graph_free(b);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_gives_the_shape_of_the_standard_or_says_what_is_wrong),
        cmocka_unit_test(arithmetic_on_constants_is_done_before_anything_runs),
        cmocka_unit_test(parts_without_elements_are_as_large_as_their_sum_when_joined),
        cmocka_unit_test(a_division_of_constants_by_zero_is_an_error_not_a_signal),
        cmocka_unit_test(attributes_are_complete_and_inputs_are_data_only),
        cmocka_unit_test(composite_operators_become_those_that_devices_have),
        cmocka_unit_test(training_keeps_what_inference_folds),
        cmocka_unit_test(the_batch_replaces_the_dynamic_axis_only),
        cmocka_unit_test(constants_do_not_grow_with_the_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
