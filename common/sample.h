/* sample.h - one sample of a tensor that shunt-import describes: {"name","datatype","shape"}. */
#ifndef SH_COMMON_SAMPLE_H
#define SH_COMMON_SAMPLE_H

#include "common/dim.h"
#include "common/safetensors.h"

#include <jansson.h>
#include <stdbool.h>

/* Samples of a request to a model where they may meet: it has a program for each number of them. */
#define SH_SAMPLE_MAX_SOLO 12

struct sh_sample_sizes { /* of what the model's file leaves open: one list for a dataset */
    struct sh_symbols symbols;
    struct sh_sizes sizes;
};
/* The symbols of the inputs, of which no size is known yet. Fails: as sh_symbols_read. */
int sh_sample_sizes_begin(const json_t *inputs, struct sh_sample_sizes *out, struct sh_err *err);
/* Those of one input, from the tensor of a dataset that it gets. Fails: SH_E_INVALID. */
int sh_sample_sizes_take(const json_t *io, const struct sh_st_tensor *t, struct sh_sample_sizes *z,
                         struct sh_err *err);
/* All, from the tensors of a dataset that have the names of the inputs. Fails: SH_E_INVALID. */
int sh_sample_sizes(const json_t *inputs, const struct sh_st *dataset, struct sh_sample_sizes *out,
                    struct sh_err *err);
/* name is BORROWED from io; bytes are those of one sample; dims[0], the batch, is 1. z: NULL where
 * nobody knows. Fails: SH_E_UNSUPPORTED (no batch axis, or an axis of no fixed size), SH_E_TOOBIG.
 */
int sh_sample_read(const json_t *io, const struct sh_sample_sizes *z, struct sh_st_tensor *out,
                   struct sh_err *err);

/* The only batch that a model with these inputs (a list) runs with; 0 if any. Where the first axis
 * of no input follows the batch it is that of the first input that has an axis, and 1 where none
 * has: graph_fixed_batch(), told by what shunt-import says of the file. */
int64_t sh_sample_fixed_batch(const json_t *inputs);
/* The same, of who has their tensors in another form: begins with SH_BATCH_OPEN, takes each of the
 * inputs (its first axis, < 0: it follows the batch), and says what came of it at the end. */
#define SH_BATCH_OPEN INT64_C(-1)
int64_t sh_batch_next(int64_t so_far, size_t rank, int64_t first_axis);
int64_t sh_batch_end(int64_t so_far);
/* Is axis 0 of each tensor of the list the batch? fixed: of sh_sample_fixed_batch().
 * *name: BORROWED, the first for which it is not; NULL if there is none. */
bool sh_sample_is_axis(const json_t *tensors, int64_t fixed, const char **name);

#endif
