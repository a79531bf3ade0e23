/* graph.h - a model as a typed graph of ONNX operators, with its weights.
 *
 *   ONNX file      --(onnx_read, in a limited process)--> struct graph --(package_write)--> package
 *   package folder --(package_read, in a worker)--> struct graph --(graph_at_batch)--> shapes
 *   fixed, constants folded --(lower)--> struct dev_graph --(plan)--> program
 *
 * Values are numbered; node inputs and outputs are value numbers, in topological order. Weights and
 * constants are values with data. An axis of a graph input may be dynamic: the batch (dim -1, only
 * axis 0), or a symbol (GRAPH_SYMBOL), whose name stands for the same size everywhere.
 *
 * There is one opset: readers normalise the differences between opsets 1 and 23, so that later
 * stages see the form of opset 18 (axes of reductions are an input), without Constant nodes and
 * with functions of the model inlined; the value of ConstantOfShape is its second input. With the
 * attribute flat = 1, Softmax, LogSoftmax or Hardmax treats all axes from `axis` on as one, as
 * before opset 13. With GRAPH_FIRST_AXIS the second operand begins at that axis of the first, as
 * was possible before opset 7. A node with GRAPH_BRANCH may fail unless an If takes its result; the
 * inputs of If are the condition and the results of both branches. The body of a Loop, Scan or
 * SequenceMap precedes it, as nodes with GRAPH_LOOP = k, the first of them a "Body" whose outputs
 * are the inputs of the body; then comes the node itself with GRAPH_BODY = k, whose inputs are
 * GRAPH_GIVEN of its own and the results of the body. An attribute that is a list of strings is one
 * string with commas.
 *
 * Not thread-safe. Strings and data live as long as the graph.
 */
#ifndef SH_RUNTIME_MODEL_GRAPH_H
#define SH_RUNTIME_MODEL_GRAPH_H

#include "common/dim.h"
#include "common/dtype.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAPH_MAX_NODES 65536u
#define GRAPH_MAX_VALUES 262144u
#define GRAPH_NONE UINT32_MAX /* an absent optional input */
#define GRAPH_FIRST_AXIS "first_axis"
#define GRAPH_WHOLE_SIZE "whole_size" /* of a Resize: align_corners is by sizes, not by scales */
#define GRAPH_BRANCH "branch"
#define GRAPH_PIXELS "Pixels"   /* an operator of ours: see graph_at() */
#define GRAPH_HELD "held"       /* of an Identity: no gradient goes on from there */
#define GRAPH_LOOP "shunt~loop" /* a file has no such names */
#define GRAPH_BODY "shunt~body"
#define GRAPH_GIVEN "shunt~given"
#define GRAPH_BY_SAMPLE "shunt~by_sample" /* of a Scan: axis 0 of all is that of samples */
#define GRAPH_HITS "shunt~hits"           /* of a Split: hits.c */
#define GRAPH_PADDING "shunt~padding"     /* of a Gather: row that learns nothing; -1: none */
#define GRAPH_BATCH ((int64_t)SH_DIM_BATCH)
#define GRAPH_SYMBOL(k) (-2 - (int64_t)(k)) /* as a dim: symbol k; and back */
#define GRAPH_DERIVED INT32_MIN             /* a dim of an output: graph.output_dims knows */

enum graph_said { /* onnx_meta.h; LEARNS: whoever pushed the file says that it is a parameter */
                  GRAPH_SAID_NOTHING,
                  GRAPH_SAID_PARAM,
                  GRAPH_SAID_BUFFER,
                  GRAPH_SAID_LEARNS
};

struct graph_value {
    char *name; /* OWNED by the graph, unique, not empty */
    char *of;   /* a parameter that the file has turned, under another name: what the module calls
                   it; NULL: nothing is known. OWNED */
    enum sh_dtype dtype;
    int32_t rank;              /* -1: not yet inferred */
    int64_t dims[SH_MAX_RANK]; /* GRAPH_BATCH, GRAPH_SYMBOL(k) */
    void *data;                /* constant: row-major; NULL otherwise. OWNED unless data_borrowed */
    size_t bytes;
    bool data_borrowed; /* points into a mapped file that the graph keeps open */
    bool is_param; /* a weight that training may change (params.c), or BatchNormalization's running
                      statistics: an initializer of floats */
    bool is_assumed;  /* a parameter by its use alone: the file has no word on whether it is one */
    uint8_t said;     /* enum graph_said: what the file says of a constant; for params.c */
    bool is_computed; /* an exporter computed it of parameters; trained, it goes other ways */
    bool is_held;     /* no parameter by its name or use alone, though its numbers may be learned */
    bool is_folded;   /* PyTorch's older exporter computed it of something of the module */
    bool is_letter;   /* the file says that it is of a parameter with a single letter's name */
    bool is_taken;    /* the file says that it is, or may be, a part of one, whatever its form */
    bool is_of_lost;  /* the file says that it is of a parameter of which it has nothing else */
    bool by_size;     /* of graph_at(): its shape or data may follow from the sizes of symbols */
    uint64_t by_batch; /* of graph_at(): bit i: so may element i from the batch size; ~0: any */
    uint32_t counted; /* of graph_at(): 1 + an axis of which only the first are there, as many as */
    uint32_t count;   /* this value says (I64, one element); 0: all are there. See counted.h */
    struct graph_number *numbers; /* OWNED; while shapes are inferred: what is known of each */
    uint32_t next_part; /* of graph_at(): of a count of one of consecutive parts: 1 + that of the
                           next; 0: none */
    int64_t all_parts;  /* of the first of them: how many all are together; 0: it is no such */
    uint32_t writer;    /* while shapes are inferred: 1 + the node that gives it; 0: none */
};

struct graph_number { /* an integer that follows from counts: element `at` of value `of` */
    int64_t lo, hi;
    uint32_t of, at; /* GRAPH_NONE: it is a constant, lo */
};

enum graph_attr_kind {
    GRAPH_ATTR_INT,
    GRAPH_ATTR_FLOAT,
    GRAPH_ATTR_STR,
    GRAPH_ATTR_INTS,
    GRAPH_ATTR_FLOATS
};

struct graph_attr {
    char *name;
    enum graph_attr_kind kind;
    int64_t i;
    double f;
    char *s;
    int64_t *ints;
    float *floats;
    size_t n; /* of ints or floats */
};

struct graph_node {
    char *name; /* never empty: made up from the operator and its number if the file has none */
    char *op;   /* ONNX operator type, domain "" */
    uint32_t *in, *out; /* value numbers; GRAPH_NONE for an absent one */
    uint32_t n_in, n_out;
    struct graph_attr *attrs; /* tensors as attributes become constant values and inputs */
    uint32_t n_attrs;
};

struct graph {
    struct graph_value *values;
    struct graph_node *nodes;   /* topological order */
    uint32_t *inputs, *outputs; /* value numbers */
    uint32_t n_values, n_nodes, n_inputs, n_outputs;
    int64_t opset;
    int64_t importer;     /* SH_IMPORTER of who imported it; 0: older */
    uint32_t n_untied;    /* parameters that were one in the file: onnx_untie.h */
    uint32_t n_guessed;   /* numbers matched with parameters by chance, maybe: onnx_again.h */
    uint32_t n_unbounded; /* parameters whose bound is lost: onnx_forms.h */
    uint32_t n_unfolded, n_folded; /* norms that came back, that are lost: onnx_unfold.h */
    char left_out[96];             /* a parameter that the exporter left out: onnx_literals.h */
    json_t *preprocess; /* OWNED: of inputs that are bytes, as declared; only what reads a file sets
                           it. NULL: none */
    char unmatched[96]; /* names that whoever pushed it gave to no constant: SH_EXTERNAL_BUFFERS */
    bool says_kinds;    /* the file says what its initializers are: said of values */
    bool is_as_written; /* by PyTorch's older exporter: words are names of the module */
    bool is_solo;       /* samples may meet (samples.h): each request runs by itself */
    uint32_t holds;     /* while shapes are inferred: 1 + a BOOL, what the file takes for granted of
                       counts; 0: nothing. Where it is false, float outputs are NaN */
    struct sh_symbols symbols;
    struct sh_sizes own; /* sizes at which the model is known to work; graph_settle() */
    struct sh_dim (*output_dims)[SH_MAX_RANK]; /* OWNED: graph_infer_outputs(); NULL before */
    void *backing;                             /* keeps mapped weights alive */
    void (*backing_free)(void *);
    size_t cap_values, cap_nodes; /* for the builders */
};

int graph_new(struct graph **out, struct sh_err *err); /* OWNED, graph_free() */
void graph_free(struct graph *g);

/* Builders. Return the number of the new value or node in *out. Names are copied. */
int graph_add_value(struct graph *g, const char *name, enum sh_dtype t, int rank,
                    const int64_t *dims, uint32_t *out, struct sh_err *err);
/* TAKES data (malloc) on success. */
int graph_add_const(struct graph *g, const char *name, enum sh_dtype t, int rank,
                    const int64_t *dims, void *data, uint32_t *out, struct sh_err *err);
int graph_add_node(struct graph *g, const char *name, const char *op, const uint32_t *in,
                   uint32_t n_in, const uint32_t *outs, uint32_t n_out, uint32_t *out,
                   struct sh_err *err);
/* Declares a value as the next input or output of the graph. */
int graph_add_input(struct graph *g, uint32_t value, struct sh_err *err);
int graph_add_output(struct graph *g, uint32_t value, struct sh_err *err);
int graph_set_int(struct graph_node *n, const char *name, int64_t v, struct sh_err *err);
int graph_set_float(struct graph_node *n, const char *name, double v, struct sh_err *err);
int graph_set_str(struct graph_node *n, const char *name, const char *v, struct sh_err *err);
int graph_set_ints(struct graph_node *n, const char *name, const int64_t *v, size_t k,
                   struct sh_err *err);

/* Attribute readers with defaults; a wrong kind is SH_E_INVALID naming node and attribute. */
int graph_int(const struct graph_node *n, const char *name, int64_t def, int64_t *out,
              struct sh_err *err);
int graph_float(const struct graph_node *n, const char *name, double def, double *out,
                struct sh_err *err);
int graph_str(const struct graph_node *n, const char *name, const char *def, const char **out,
              struct sh_err *err);
/* *k = how many were there (0: absent); at most max. */
int graph_ints(const struct graph_node *n, const char *name, int64_t *out, size_t max, size_t *k,
               struct sh_err *err);

uint32_t graph_find(const struct graph *g, const char *name); /* GRAPH_NONE if there is none */
/* Its axes, of an input: v->dims, as common/dim.h has them. */
void graph_axes(const struct graph_value *v, struct sh_dim out[SH_MAX_RANK]);
int64_t graph_elements(const struct graph_value *v); /* -1 while a dim is unknown */

struct graph_sizes {
    int64_t batch;
    struct sh_sizes of; /* 0: as in graph.own */
};

/* A copy for one purpose, batch size and sizes of symbols: dynamic dims replaced, every shape
 * inferred, constants (shape arithmetic too) folded, dead nodes gone. Training keeps
 * BatchNormalization and Dropout in training form; inference turns Dropout into nothing. Weights
 * are shared with g (BORROWED: g must outlive the copy). *out: OWNED, graph_free(). Fails:
 * SH_E_INVALID naming node and shapes, SH_E_UNSUPPORTED.
 *
 * The copy is in static form, so that later stages read attributes and never the values of inputs.
 * Every axis is in [0, rank), every attribute below is present, and what is not listed has the
 * inputs of ONNX:
 *   Reshape x                    also Squeeze, Unsqueeze, Flatten; the shape is that of the output
 *   Expand x                     the shape is that of the output
 *   Transpose x                  perm
 *   Concat x...  axis            at least two inputs
 *   Slice x                      starts, steps: one per axis, steps may be negative; Split too
 *   Pad x                        pads (2 * rank; negative ones cut), value (float); constant mode
 *   Gather x indices             axis; constant indices are >= 0 and I64
 *   ReduceMean|Sum|Prod|Max|Min x   axes (sorted, not empty), keepdims; integers: I32, I64
 *   Softmax, LogSoftmax x        axis
 *   CumSum x                     axis, exclusive, reverse (0 or 1)
 *   Identity x  GRAPH_HELD       only in training
 *   TopK x                       axis, largest, select_last_index; two outputs, sorted
 *   Locate indices               sizes, strides (by number of an index), base (by axis): rows, I64
 *   Scatter data rows updates    reduction, skips (0 or 1: rows may be -1, and are not written
 *                                then); data are [rows, ...]
 *   Pixels x table               perm, axis: x, U8, is transposed, and a byte of channel c along
 *                                axis (1 or 3) of the result becomes table[256 c + byte], F32
 *   Places x                     two outputs: numbers of what is not 0, [n], and how many, I64
 *   First count                  BOOL [n]: is the number of an element below the count?
 *   NonMaxSuppression boxes scores   center_point_box, most, overlap, and score unless any will do;
 *                                two outputs: triples, and how many, I64
 *   LayerNormalization x scale [bias]   axis, epsilon; one output
 *   BatchNormalization x scale bias mean var   epsilon, momentum, training_mode; one output at
 *                                inference, three (y, new mean, new variance) in training
 *   Dropout x                    ratio (> 0); only in training; one output
 *   Clip x                       min, max (floats, may be infinite)
 *   Cast x                       to (enum sh_dtype, not ONNX's number)
 *   Conv x w [bias]              kernel_shape, strides, dilations, pads, group
 *   ConvTranspose x w [bias]     kernel_shape, strides, dilations, pads (cut off; < 0: zeros added;
 *                                with output_padding, output_shape and auto_pad in it), group
 *   MaxPool, AveragePool, LpPool x   kernel_shape, strides, dilations, pads (the end pads include
 *                                what ceil_mode adds, unless the padding counts),
 *                                count_include_pad; one output
 *   Resize x                     mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a,
 *                                exclude_outside, extrapolation_value, antialias; scales and roi
 *                                for every axis; Upsample too
 *   QuantizeLinear, DequantizeLinear x scale [zero]   axis, block_size (0: none)
 *   ConvInteger, QLinearConv     as Conv; their inputs, and those of other products, are ONNX's
 *   LSTM, GRU, RNN x w r ...     direction, layout, activations (words with commas), and what they
 *                                depend on; lengths and first states only where they say something
 *   InstanceNormalization, GroupNormalization x scale bias   epsilon, num_groups
 *   Gemm a b [c]                 alpha, beta, transA, transB
 *   LeakyRelu, Elu alpha; HardSigmoid alpha, beta; Gelu approximate ("none", "tanh")
 *   Add Sub Mul Div Pow Min Max Mod FMod Equal Less Greater LessOrEqual GreaterOrEqual And Or Xor
 *   BitwiseAnd|Or|Xor ShiftLeft|Right Where    exactly two (three) inputs
 * Floats are F32 all of them, but for inputs and outputs of the model: a Cast stands behind or
 * before those of another type. Identity stays only where an output of the graph is an input, a
 * constant or another output, and for casts between floats.
 *
 * Constants that repeat along an axis, where they only broadcast, have size 1 there, so that the
 * weights of a model do not depend on the batch. At inference a constant result of parameters is
 * folded too, except the Transpose of a 2-D parameter: a product can read its operand transposed
 * without a copy. In training nothing that depends on a parameter is folded. What parameters give
 * together with the batch size (by_batch) or the sizes of symbols is not folded either, and
 * constants that follow from the latter are marked (by_size), so that weights depend on neither. */
int graph_at(const struct graph *g, const struct graph_sizes *at, bool training, struct graph **out,
             struct sh_err *err);
/* The same with the graph's own sizes. */
int graph_at_batch(const struct graph *g, int64_t batch, bool training, struct graph **out,
                   struct sh_err *err);
/* Looks for sizes of the symbols at which shapes agree: graph.own. Those that get the furthest
 * where none does; graph_check() says what is wrong then. */
void graph_settle(struct graph *g, bool training);

/* Is every node one that shape inference and lowering know? Otherwise SH_E_UNSUPPORTED and *list
 * (OWNED, free()) holds a line "operator node-name: reason" for EACH such node. Dataflow is checked
 * too: order, cycles, missing values, types. */
int graph_check(const struct graph *g, bool training, char **list, struct sh_err *err);
/* The only batch that the model runs with; 0 if any. Without a dynamic first axis it is that of the
 * first input that has one, and 1 where none has. common/sample.h has the same rule for what
 * shunt-import says of a model. */
int64_t graph_fixed_batch(const struct graph *g);
/* A batch that the model accepts: its own where the first axis is fixed. */
int64_t graph_some_batch(const struct graph *g);
/* Where graph_at_batch refuses a shape, an axis or a bound as computed from data: wanted[i] is set
 * for each input that it is computed from, if each of them is a number or a short list. */
int graph_deciding_inputs(const struct graph *g, bool *wanted, bool *any, struct sh_err *err);
/* Input i becomes a constant; the later ones move up by one. Its axes are fixed. */
int graph_bind_input(struct graph *g, uint32_t i, const void *data, size_t bytes,
                     struct sh_err *err);
/* Fills in type and shape of the outputs (rank < 0 so far), and output_dims: how they follow from
 * the batch and the symbols, found by trying sizes. Fails: SH_E_UNSUPPORTED (not found). */
int graph_infer_outputs(struct graph *g, bool training, struct sh_err *err);

#endif
