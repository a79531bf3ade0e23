/* io.h - reads and writes all bytes, however many calls that takes. Blocks; thread-safe. A failure
 * is in errno, since only the caller knows what the file is.
 */
#ifndef SH_COMMON_IO_H
#define SH_COMMON_IO_H

#include "common/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

bool sh_write_all(int fd, const void *p, size_t n);
bool sh_pwrite_all(int fd, const void *p, size_t n, uint64_t off);
/* Bytes read: fewer than n only at the end of the file. -1: failed. */
ssize_t sh_read_all(int fd, void *p, size_t n);
ssize_t sh_pread_all(int fd, void *p, size_t n, uint64_t off);

/* Copies a file into another, each from where it stands. stop: NULL, or what ends it once it is
 * set, with ECANCELED. */
bool sh_copy_all(int from, int to, const atomic_bool *stop);

/* Syncs the folder of path: a rename is durable only when the folder is on disk too. */
int sh_sync_folder(const char *path, struct sh_err *err);
/* The code for an open() that failed with this errno: SH_E_NOTFOUND, SH_E_NOMEM (also for lack of
 * descriptors: may pass), SH_E_IO. */
int sh_open_rc(int why);
/* Opens to read, close-on-exec; never waits for a pipe's writer. *fd: OWNED. Fails:
 * sh_open_rc(). */
int sh_open_in(const char *dir, const char *name, int *fd, struct sh_err *err);

/* A small file of the kernel, at root + path (root "": the machine's own), as text without the
 * newlines at its end. "": there is none, or it cannot be read; cut to size. */
void sh_read_text(const char *root, const char *path, char *out, size_t size);

#define SH_BOOT_ID 40 /* bytes, with the 0 */
/* The same for all processes of a host until it starts anew; "": not known. */
void sh_boot_id(char out[static SH_BOOT_ID]);

/* Raises the limit of open files as far as it goes. Returns it; INT64_MAX: not known. */
int64_t sh_raise_open_files(void);

#endif
