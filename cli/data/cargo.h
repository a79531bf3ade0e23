/* cargo.h - what is sent as one body: a file, or a model with the files that hold its tensors.
 *
 * The latter is a tar file that is never written: headers and padding are in memory, the rest is
 * read from the files while it is sent. The same files always make the same bytes, so that a broken
 * upload can be resumed.
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
    size_t open; /* the part to which fd belongs */
    int fd;      /* -1: none */
};

struct cargo_with {
    const char *weights;              /* a safetensors file, sent as SH_EXTERNAL_WEIGHTS; NULL */
    const char *buffers, *parameters; /* common/external.h; NULL: nothing is said */
    const char *preprocess;           /* the same: JSON */
};
/* file: an ONNX file is sent with the files that it names; any other is sent alone. with: what is
 * sent with a model, or NULL. If weights are, files that the model names may be missing, and the
 * server reports tensors without values. What is said of its constants and inputs follows the
 * file's bytes, where it is a part of the model. Each must be a non-empty file on a disk. Call
 * cargo_fini(), whatever is returned. */
int cargo_open(const char *file, const struct cargo_with *with, struct cargo *out,
               struct sh_err *err);
int cargo_file(const char *file, struct cargo *out, struct sh_err *err); /* always alone */
void cargo_fini(struct cargo *c);
/* Reads at most n bytes from `at` on; 0: the end; -1 with errno: unreadable, or a file has changed
 * its length. */
ssize_t cargo_read(struct cargo *c, int64_t at, void *out, size_t n);

#endif
