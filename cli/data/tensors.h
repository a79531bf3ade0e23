/* tensors.h - the tensors of inference requests: read from a file or invented, split into requests,
 * and reassembled from the answers.
 */
#ifndef SH_CLI_DATA_TENSORS_H
#define SH_CLI_DATA_TENSORS_H

#include "common/buf.h"
#include "common/json.h"
#include "common/safetensors.h"

#define TENSORS_MAX 64

struct tensor { /* rows along axis 0 */
    char name[128];
    enum sh_dtype dtype;
    size_t rank;
    int64_t dims[SH_MAX_RANK]; /* dims[0]: rows */
    size_t row_bytes;
    const char *data; /* BORROWED from the file, or own */
    char *own;        /* OWNED; NULL if from a file */
};

struct tensors {
    struct tensor list[TENSORS_MAX];
    size_t n;
    int64_t rows;
    int64_t skip;       /* rows at the start of each answer that are not kept */
    struct sh_st *file; /* OWNED */
};

/* wanted: "inputs" of the model's metadata; path: a safetensors file. */
int tensors_from_file(const char *path, const json_t *wanted, struct tensors *out,
                      struct sh_err *err);
/* Appends x as the model's input w, if it is as the model wants it. TAKES x->own, even on
 * failure. */
int tensors_add(struct tensors *t, const json_t *w, const struct tensor *x, struct sh_err *err);
/* sizes: of the open axes of each input except the first; used in turn. */
int tensors_random(const json_t *wanted, int64_t rows, const int64_t *sizes, size_t n_sizes,
                   uint64_t seed, struct tensors *out, struct sh_err *err);
void tensors_fini(struct tensors *t);

/* Rows [first, first + rows) as the body of a request; *json_len: length of its JSON part. */
int tensors_encode(const struct tensors *t, int64_t first, int64_t rows, struct sh_buf *out,
                   size_t *json_len, struct sh_err *err);
/* Appends the outputs of an answer to t, by name. Keeps at most max_bytes. */
int tensors_append(struct tensors *t, const char *body, size_t len, int64_t json_len,
                   size_t max_bytes, struct sh_err *err);
int tensors_write(const struct tensors *t, const char *path, struct sh_err *err);
struct tensor_score {
    int64_t index;
    double score;
};
/* The k largest elements of a row of a float tensor, largest first. Returns their number. */
size_t tensor_top(const struct tensor *t, int64_t row, size_t k, struct tensor_score *out);
/* Index of the largest element; -1: not a float tensor. */
int64_t tensor_argmax(const struct tensor *t, int64_t row);

#endif
