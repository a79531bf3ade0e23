/* tar.h - writes and reads a tar file of regular files, each with its SHA-256.
 *
 * The format is ustar, so that `tar -tvf` shows its contents. The last entry lists digest, size and
 * name of all entries before it: a file without it is incomplete, and one that does not match it is
 * damaged. Names are shorter than 100 bytes; links, folders and devices are neither written nor
 * read.
 */
#ifndef SH_CLI_FILES_TAR_H
#define SH_CLI_FILES_TAR_H

#include "common/buf.h"
#include "common/hash.h"
#include "common/ustar.h"

#include <stdbool.h>
#include <stdint.h>

#define TAR_NAME_MAX USTAR_SHORT

/* Called as bytes are moved; false ends the transfer with SH_E_CANCELLED. */
typedef bool tar_moved_fn(uint64_t bytes, void *arg);

struct tar {
    int fd; /* BORROWED: written to, or read from, at its position */
    tar_moved_fn *moved;
    void *arg;
    struct sh_buf sums; /* "DIGEST SIZE NAME\n" of each file */
};

struct tar_entry {
    char name[TAR_NAME_MAX];
    uint64_t size;
};

void tar_init(struct tar *t, int fd, tar_moved_fn *moved, void *arg);
void tar_fini(struct tar *t);

/* Adds the next `size` bytes of from. Fails: SH_E_IO: there are fewer. */
int tar_add_file(struct tar *t, const char *name, int from, uint64_t size, struct sh_err *err);
int tar_add_text(struct tar *t, const char *name, const char *text, size_t len, struct sh_err *err);
/* Adds the list of digests under this name, and the end. */
int tar_finish(struct tar *t, const char *sums_name, struct sh_err *err);

/* Reads the next header; one of the next two calls must then take all its bytes. Fails:
 * SH_E_INVALID: not a tar file, or not of regular files; SH_E_IO: it ends too early. */
int tar_next(struct tar *t, struct tar_entry *out, struct sh_err *err);
int tar_take_file(struct tar *t, const struct tar_entry *e, int to, struct sh_err *err);
/* *out: OWNED, NUL-terminated. Fails: SH_E_INVALID: more than max bytes. */
int tar_take_text(struct tar *t, const struct tar_entry *e, size_t max, char **out,
                  struct sh_err *err);
/* e is the list of digests: checks it against what was taken. */
int tar_check(struct tar *t, const struct tar_entry *e, struct sh_err *err);

#endif
