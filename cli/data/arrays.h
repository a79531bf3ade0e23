/* arrays.h - arrays of NumPy, tables of text and parts of a dataset as the file of one. */
#ifndef SH_CLI_DATA_ARRAYS_H
#define SH_CLI_DATA_ARRAYS_H

#include "cli/cli.h"
#include "cli/data/setfile.h"

/* files: "FILE" or "TENSOR=FILE" of .npy, each a tensor, named as its file without the ending; or
 * one .npz, whose arrays have names. All have as many samples. FP64 becomes FP32, and integers of a
 * tensor "label" become INT64, which is said. *out: OWNED, setfile_fini(), whatever is returned.
 * Fails: SH_E_INVALID, SH_E_UNSUPPORTED, SH_E_DISKFULL, with the name of the file. */
int arrays_read(struct cli *c, char **files, size_t n, struct setfile *out, struct sh_err *err);

/* shards.c: safetensors files with the same tensors, as one with the samples of all, in this order.
 * Fails: SH_E_INVALID, SH_E_DISKFULL, with the name of the file. */
int shards_read(struct cli *c, char **files, size_t n, struct setfile *out, struct sh_err *err);

/* table.c: a file of comma-separated values, whose first row has the names of the columns. `column`
 * becomes the tensor "label": INT64 where all are whole numbers; FP32 [samples, 1] where all are
 * numbers; where none is one, classes, numbered in the order of their names, which are in the
 * file's metadata as "classes", and how many there are is said. An empty label, or a text among
 * numbers, is refused. All others become the FP32 tensor `tensor` [samples, columns]. */
struct table_plan {
    const char *tensor, *column;
};
int table_read(struct cli *c, const char *path, const struct table_plan *p, struct setfile *out,
               struct sh_err *err);

#endif
