/* setfile.h - a dataset file made here from other files: pictures, arrays, parts, a table.
 *
 * It is a safetensors file on disk without a name, so nothing is left, however the program ends.
 * The same files make the same bytes, so that a broken upload continues when they are pushed again.
 * Blocks.
 */
#ifndef SH_CLI_DATA_SETFILE_H
#define SH_CLI_DATA_SETFILE_H

#include "common/safetensors.h"

struct setfile {
    int fd;        /* -1: none */
    char path[32]; /* path by which others can open it while fd is open */
    uint64_t data; /* where the first tensor begins */
};

/* Creates a nameless file in the folder dir, with room for so many bytes. *fd: OWNED, close().
 * Fails as setfile_new(). */
int setfile_temp(const char *dir, uint64_t bytes, int *fd, struct sh_err *err);

/* Creates it in the folder dir, for these tensors or fewer samples of them (data pointers are not
 * used); meta as in sh_st_write(). Fails: SH_E_DISKFULL, before anything is written; SH_E_IO. */
int setfile_new(const char *dir, const struct sh_st_tensor *t, size_t n, const char *const *meta,
                struct setfile *out, struct sh_err *err);
/* at: offset from the first tensor. Thread-safe. */
int setfile_put(struct setfile *s, uint64_t at, const void *data, size_t bytes, struct sh_err *err);
/* Moves bytes within the file to an earlier place. */
int setfile_move(struct setfile *s, uint64_t to, uint64_t from, uint64_t bytes, struct sh_err *err);
/* Writes the header and truncates the file after the data. */
int setfile_end(struct setfile *s, const struct sh_st_tensor *t, size_t n, const char *const *meta,
                struct sh_err *err);
void setfile_fini(struct setfile *s);
/* The names of the classes as the metadata has them: a JSON array. OWNED; NULL: no memory. */
char *setfile_class_names(char *const *names, size_t n);

#endif
