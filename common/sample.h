/* sample.h - one sample of a tensor as shunt-import describes it: {"name","datatype","shape"}. */
#ifndef SH_COMMON_SAMPLE_H
#define SH_COMMON_SAMPLE_H

#include "common/dim.h"
#include "common/safetensors.h"

#include <jansson.h>
#include <stdbool.h>

/* Most samples of a request to a model whose samples may interact: it has a program for each
 * number. */
#define SH_SAMPLE_MAX_SOLO 12

struct sh_sample_sizes { /* sizes that the model's file leaves open: one list for a dataset */
    struct sh_symbols symbols;
    struct sh_sizes sizes;
};
/* Reads the symbols of the inputs; their sizes are still unknown. Fails as sh_symbols_read(). */
int sh_sample_sizes_begin(const json_t *inputs, struct sh_sample_sizes *out, struct sh_err *err);
/* Sizes from one input, whose tensor is t in the dataset. Fails: SH_E_INVALID. */
int sh_sample_sizes_take(const json_t *io, const struct sh_st_tensor *t, struct sh_sample_sizes *z,
                         struct sh_err *err);
/* All sizes, from the dataset's tensors named as the inputs. Fails: SH_E_INVALID. */
int sh_sample_sizes(const json_t *inputs, const struct sh_st *dataset, struct sh_sample_sizes *out,
                    struct sh_err *err);
/* Describes one sample: name is BORROWED from io, bytes are those of one sample, dims[0] (the
 * batch) is 1. z: NULL: unknown. Fails: SH_E_UNSUPPORTED (no batch axis, or an axis of no fixed
 * size), SH_E_TOOBIG. */
int sh_sample_read(const json_t *io, const struct sh_sample_sizes *z, struct sh_st_tensor *out,
                   struct sh_err *err);

/* The only batch that a model with these inputs (a list) runs with; 0: any. If no input's first
 * axis follows the batch, it is the first axis of the first input that has one; 1 if none has. As
 * graph_fixed_batch(), but from what shunt-import says of the file. */
int64_t sh_sample_fixed_batch(const json_t *inputs);
/* The same for tensors in another form: start with SH_BATCH_OPEN, call sh_batch_next() for each
 * input (first_axis < 0: it follows the batch), then sh_batch_end() for the result. */
#define SH_BATCH_OPEN INT64_C(-1)
int64_t sh_batch_next(int64_t so_far, size_t rank, int64_t first_axis);
int64_t sh_batch_end(int64_t so_far);
/* Is axis 0 of each tensor of the list the batch? fixed: from sh_sample_fixed_batch(). *name:
 * BORROWED, the first tensor for which it is not; NULL: none. */
bool sh_sample_is_axis(const json_t *tensors, int64_t fixed, const char **name);

#endif
