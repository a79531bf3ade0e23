/* dim.h - sizes of axes that a model's file leaves open: symbols, and what follows from them.
 *
 * Axis 0 of a tensor may be the batch. Any other axis that is not fixed is a symbol: a name that
 * stands for the same size everywhere. Symbols are numbered in the order in which the model's
 * inputs mention them; a list of sizes has that order in every process. An axis of an output may
 * depend on several:
 *
 *   size = add + mul * (x0 + plus0) / div0 * (x1 + plus1) / div1 ...    each quotient rounded down
 *
 * shunt-import describes a tensor with such an axis as {"name","datatype","shape","dims"}. shape
 * has -1 for each axis that is not fixed. dims has the fixed sizes, -1 for the batch, the name of a
 * symbol, or {"add","mul","of": [[-1 or name, plus, div]...]}. Without dims, -1 is the batch.
 *
 * A run may decide how many elements an axis of an output has. Its size is then the most it can be,
 * and dims has {"most": size}. In such a tensor the first elements of that axis are valid, and an
 * I64 behind the data says how many. Pure.
 */
#ifndef SH_COMMON_DIM_H
#define SH_COMMON_DIM_H

#include "common/dtype.h"
#include "common/err.h"
#include "common/safetensors.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SH_MAX_SYMBOLS 8u
#define SH_SYMBOL_BYTES 64u /* of a name, with its NUL */
#define SH_DIM_BATCH (-1)
#define SH_MAX_SIZE ((int64_t)1 << 31) /* largest size of one axis */

struct sh_symbols {
    char name[SH_MAX_SYMBOLS][SH_SYMBOL_BYTES];
    size_t n;
};

struct sh_sizes { /* sizes of symbols; v[n..] are 0, so that lists can be compared as bytes */
    uint32_t v[SH_MAX_SYMBOLS];
    uint32_t n;
};

struct sh_dim_of {
    int32_t of; /* SH_DIM_BATCH, or a symbol */
    int64_t plus, div;
};
struct sh_dim {
    int64_t add, mul;
    uint32_t n;
    bool is_most; /* the size is the most that a run may produce */
    struct sh_dim_of f[SH_MAX_SYMBOLS + 1];
};

struct sh_dim sh_dim_fixed(int64_t size);
struct sh_dim sh_dim_is(int of); /* the batch, or one symbol */
bool sh_dim_is_fixed(const struct sh_dim *d);
/* The axis whose length a run decides; -1: none. */
int sh_dims_counted(const struct sh_dim *dims, size_t rank);
#define SH_COUNT_BYTES sizeof(int64_t)
/* Compacts the data to the first n elements of `axis`, each of `unit` bytes; sets dims[axis] to n.
 * Fails: SH_E_BUG: n exceeds the axis. */
int sh_dims_cut(void *data, int64_t *dims, size_t rank, size_t unit, size_t axis, int64_t n,
                struct sh_err *err);
bool sh_dim_is_of(const struct sh_dim *d, int of); /* exactly that symbol or the batch */
/* Fails: SH_E_INVALID (the size would be negative), SH_E_TOOBIG. */
int sh_dim_size(const struct sh_dim *d, int64_t batch, const struct sh_sizes *s, int64_t *out,
                struct sh_err *err);

int sh_symbol_find(const struct sh_symbols *s, const char *name); /* -1: not found */
/* The number of the symbol with this name, found or added. Fails: SH_E_UNSUPPORTED (too many),
 * SH_E_INVALID (too long). */
int sh_symbol_add(struct sh_symbols *s, const char *name, int *out, struct sh_err *err);
/* The symbols of a list of inputs, in order. Fails as sh_dim_read. */
int sh_symbols_read(const json_t *inputs, struct sh_symbols *out, struct sh_err *err);

/* The axes of a tensor as shunt-import describes it, into dims[rank]. Fails: SH_E_BUG: it is not
 * described properly. */
int sh_dims_read(const json_t *io, const struct sh_symbols *s, struct sh_dim dims[SH_MAX_RANK],
                 size_t *rank, struct sh_err *err);
/* The member "dims"; NULL: no memory. */
json_t *sh_dims_json(const struct sh_dim *dims, size_t rank, const struct sh_symbols *s);
/* Are "shape" and the rule for -1 enough? */
bool sh_dims_are_plain(const struct sh_dim *dims, size_t rank);

/* Fills in the unknown sizes (0) of symbols among these axes from a tensor that holds all samples.
 * Fails: SH_E_INVALID: another number of axes, or another size than before. */
int sh_sizes_take(const struct sh_dim *dims, size_t rank, const struct sh_st_tensor *t,
                  struct sh_sizes *z, struct sh_err *err);
/* "seq=128, h=64", for messages. Returns out. */
const char *sh_sizes_text(const struct sh_symbols *s, const struct sh_sizes *z, char *out,
                          size_t size);

#endif
