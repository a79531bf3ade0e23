/* tar.h - writing and reading a tar file of regular files, each with its SHA-256.
 *
 * The format is ustar, so that `tar -tvf` shows what is in it. The last entry lists the digest,
 * size and name of all before it: a file without it is not whole, and one whose list differs is
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

/* The next `size` bytes of from. SH_E_IO if it has fewer. */
int tar_add_file(struct tar *t, const char *name, int from, uint64_t size, struct sh_err *err);
int tar_add_text(struct tar *t, const char *name, const char *text, size_t len, struct sh_err *err);
/* The list of digests under this name, and the end. */
int tar_finish(struct tar *t, const char *sums_name, struct sh_err *err);

/* The next header; then all of its bytes are to be taken by one of the two below. SH_E_INVALID:
 * this is no tar file, or one of other things than regular files; SH_E_IO: it ends too early. */
int tar_next(struct tar *t, struct tar_entry *out, struct sh_err *err);
int tar_take_file(struct tar *t, const struct tar_entry *e, int to, struct sh_err *err);
/* *out: OWNED, NUL-terminated. SH_E_INVALID above max bytes. */
int tar_take_text(struct tar *t, const struct tar_entry *e, size_t max, char **out,
                  struct sh_err *err);
/* e is the list of digests: it must be that of what was taken. */
int tar_check(struct tar *t, const struct tar_entry *e, struct sh_err *err);

#endif
