/* cargo.h - what is sent as one body: a file, or a model with the files that its tensors lie in.
 *
 * The latter is a tar file that is never written: headers and fillings are in memory, the rest is
 * read from the files as it is sent. The same files make the same bytes, whenever and from wherever
 * they are sent, so that a broken upload goes on.
 */
#ifndef SH_CLI_DATA_CARGO_H
#define SH_CLI_DATA_CARGO_H

#include "common/err.h"

#include <stdint.h>
#include <sys/types.h>

struct cargo_part {
    char *path; /* OWNED; NULL: the bytes are in text */
    char *text; /* OWNED */
    int64_t bytes;
};

struct cargo {
    struct cargo_part *parts;
    size_t n, cap;
    int64_t bytes;
    size_t open; /* the part that fd is of */
    int fd;      /* -1: none */
};

/* file: an ONNX file takes the files that it names with it; any other goes alone. weights: a
 * safetensors file that goes with the model as SH_EXTERNAL_WEIGHTS, or NULL. What the model names
 * may be missing then: the server says which tensors lack values. Each must be a file on a disk
 * that is not empty. cargo_fini(), whatever is returned. */
int cargo_open(const char *file, const char *weights, struct cargo *out, struct sh_err *err);
int cargo_file(const char *file, struct cargo *out, struct sh_err *err); /* alone, whatever it is */
void cargo_fini(struct cargo *c);
/* At most n of the bytes from `at` on; 0: there are no more; -1 with errno: they cannot be read,
 * or a file has changed its length. */
ssize_t cargo_read(struct cargo *c, int64_t at, void *out, size_t n);

#endif
