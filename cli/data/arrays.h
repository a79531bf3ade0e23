/* arrays.h - makes a dataset file from NumPy arrays, tables of text, or parts of a dataset. */
#ifndef SH_CLI_DATA_ARRAYS_H
#define SH_CLI_DATA_ARRAYS_H

#include "cli/cli.h"
#include "cli/data/setfile.h"

/* files: "FILE" or "TENSOR=FILE" of .npy, each a tensor, by default named as its file without the
 * ending; or one .npz, whose arrays have names. All must have the same number of samples. FP64
 * becomes FP32, and integers of a tensor "label" become INT64; it says so. *out: OWNED,
 * setfile_fini(), whatever is returned. Fails: SH_E_INVALID, SH_E_UNSUPPORTED, SH_E_DISKFULL,
 * naming the file. */
int arrays_read(struct cli *c, char **files, size_t n, struct setfile *out, struct sh_err *err);

/* shards.c: joins safetensors files with the same tensors into one with all their samples, in this
 * order. Fails: SH_E_INVALID, SH_E_DISKFULL, naming the file. */
int shards_read(struct cli *c, char **files, size_t n, struct setfile *out, struct sh_err *err);

/* table.c: a file of comma-separated values whose first row names the columns. `column` becomes the
 * tensor "label": INT64 if all values are integers; FP32 [samples, 1] if all are numbers; if none
 * is, classes, numbered in the order of their names, which go to the file's metadata as "classes";
 * it says how many there are. An empty label, or a text among numbers, is refused. The other
 * columns become the FP32 tensor `tensor` [samples, columns]. */
struct table_plan {
    const char *tensor, *column;
};
int table_read(struct cli *c, const char *path, const struct table_plan *p, struct setfile *out,
               struct sh_err *err);

#endif
