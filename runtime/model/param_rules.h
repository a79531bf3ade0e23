/* param_rules.h - was a constant learned or computed? By its name and numbers.
 *
 * An exporter computes what it can in advance, and names the result after the last operation
 * ("embedding_1", "val_12", "onnx::Mul_77"). Some of these are parameters that were only moved,
 * some are tables from code. Where the name does not tell, the numbers do. */
#ifndef SH_RUNTIME_MODEL_PARAM_RULES_H
#define SH_RUNTIME_MODEL_PARAM_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A name invented by an exporter for a number in the code or for a computed value; a module's
 * parameter has the name of its attribute. */
bool param_is_made_up(const char *name);
/* It may hold a parameter's numbers: taken from one, transposed, expanded or joined. */
bool param_is_moved(const char *name);
/* It was made of nothing that a parameter was before: "arange", "zeros_1". */
bool param_is_maker(const char *name);
struct param_kinds;
/* "['arange', 'mul', 'scalar_tensor_default']": of what an exporter says that it computed a
 * constant. It is the code's numbers and operations, and buffers at most; where the file does not
 * name all parameters, what has a dot is of a module. */
bool param_is_of_code(const char *list, const struct param_kinds *kinds);
/* The next quoted name of such a list, n bytes; NULL: there is none. */
const char *param_next_name(const char *list, size_t *n);
/* What onnxscript's lerp calls the weight that it casts to the type of its sides: "weight_0", and
 * "weight_0_2" of the next one. Nothing else is in the list. */
bool param_is_cast_weight(const char *name, const char *list);
/* "exp", or "exp_12" */
bool param_is_called(const char *name, const char *operation);
/* The constant `name` of such a list is no parameter in another form: an operation on some gave it.
 */
bool param_is_computed(const char *name, const char *list, const struct param_kinds *kinds);
/* n bytes of a name by which exporters call the result of an operation that changes numbers. */
bool param_is_operation(const char *name, size_t n);
/* It was computed, perhaps from something with a name in the module. */
bool param_is_turned(const char *name);
/* A single number that is one of a module's, as an exporter took it (an element that was selected),
 * or added to it (1 + the epsilon of a graph's layer). Those of the code have no axes, and names of
 * their own. */
bool param_is_lone(const char *name, int rank);
/* "mean", "t", "scale_2": a word by which a module may call what it has. */
bool param_is_word(const char *name);
/* "onnx::Mul_77", "919": what PyTorch's older exporter calls what it computed of a module. In a
 * file as it wrote it, numbers of the code alone are no initializers: it leaves them to Constant
 * nodes, also what it computes of them (hasParamInput() in its constant_fold.cpp). So even a number
 * without an axis is an element of something of the module, or was computed of it. */
bool param_is_folded(const char *name);
/* The same without "onnx::". */
const char *param_bare_name(const char *name);
/* "layers.0.attn_mask", as modules call their buffers. */
bool param_is_buffer(const char *name);
/* "layers.0.weight", as PyTorch's own modules call parameters, and the statistics of norms. */
bool param_is_of_torch(const char *name);

/* One of many F32 numbers, which may be unaligned. */
static inline float param_number(const void *data, int64_t i)
{
    float x;

    memcpy(&x, (const uint8_t *)data + (size_t)i * sizeof(x), sizeof(x));
    return x;
}

/* F32 numbers, unaligned, that no formula gives: hardly any are equal (masks, identities), not all
 * lines along an axis rise or fall (ranges and what is computed from one), nor have all the same
 * length (sines and cosines of the same angle: positions). */
bool param_is_scattered(const void *data, int rank, const int64_t *dims);

/* Numbers that a formula gives, whatever their name: a table of positions whose rows all have the
 * length of sines and cosines, or whose pairs lie on one circle, or whose columns are sines of the
 * row, scaled and shifted, or whose rows are sines of the column; a line, as for distances or
 * powers; a bank of filters over the bins of a spectrum; or which node is whose neighbour. */
bool param_is_formula(const void *data, int rank, const int64_t *dims);

/* n numbers, four or more, each as far from the next as all others. */
bool param_is_line(const void *data, int64_t n);

/* A filter that was not learned: integers of which three differ (edges, 0, 1, 2, ...), or the same,
 * varying numbers for each of several channels (a blur), or plus and minus one number (Haar), or
 * kernels each of which is its own mirror (waves, a Gaussian). */
bool param_is_filter(const void *data, int rank, const int64_t *dims);

#endif
