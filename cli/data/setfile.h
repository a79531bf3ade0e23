/* setfile.h - the file of a dataset that is made here from other files: pictures, arrays, parts,
 * a table.
 *
 * It is a safetensors file on the disk that no folder names: whatever ends the program, nothing is
 * left. The same files make the same bytes, so that an upload that broke goes on when they are
 * pushed again. Blocking.
 */
#ifndef SH_CLI_DATA_SETFILE_H
#define SH_CLI_DATA_SETFILE_H

#include "common/safetensors.h"

struct setfile {
    int fd;        /* -1: none */
    char path[32]; /* as which others can open it, while fd is open */
    uint64_t data; /* where the first tensor begins */
};

/* A file in the folder dir that no folder names, with room for so many bytes. *fd: OWNED, close().
 * Fails as setfile_new() does. */
int setfile_temp(const char *dir, uint64_t bytes, int *fd, struct sh_err *err);

/* In the folder dir, for these tensors, or fewer samples of them (data pointers are not used); meta
 * as in sh_st_write(). Fails: SH_E_DISKFULL, before anything is written, SH_E_IO. */
int setfile_new(const char *dir, const struct sh_st_tensor *t, size_t n, const char *const *meta,
                struct setfile *out, struct sh_err *err);
/* `at` counts from the first tensor. Thread-safe. */
int setfile_put(struct setfile *s, uint64_t at, const void *data, size_t bytes, struct sh_err *err);
/* Moves bytes within the file to an earlier place. */
int setfile_move(struct setfile *s, uint64_t to, uint64_t from, uint64_t bytes, struct sh_err *err);
/* Writes what stands before the data, and cuts the file behind them. */
int setfile_end(struct setfile *s, const struct sh_st_tensor *t, size_t n, const char *const *meta,
                struct sh_err *err);
void setfile_fini(struct setfile *s);

#endif
