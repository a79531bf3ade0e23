/* io.h - all bytes of a descriptor's read or write, however many calls that takes. Blocking;
 * thread-safe. A failure of these is in errno: the caller knows what it was about.
 */
#ifndef SH_COMMON_IO_H
#define SH_COMMON_IO_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

bool sh_write_all(int fd, const void *p, size_t n);
bool sh_pwrite_all(int fd, const void *p, size_t n, uint64_t off);
/* How many bytes came: less than n only at the file's end. -1: failed. */
ssize_t sh_read_all(int fd, void *p, size_t n);
ssize_t sh_pread_all(int fd, void *p, size_t n, uint64_t off);

/* The folder that path lies in: a rename is durable only when that is on the disk too. */
int sh_sync_folder(const char *path, struct sh_err *err);
/* What an open() that failed with this errno fails with: SH_E_NOTFOUND, SH_E_NOMEM (also of
 * descriptors: later it may work), SH_E_IO. */
int sh_open_rc(int why);
/* To read, close-on-exec; never waits for a pipe's other end. *fd: OWNED. Fails: sh_open_rc(). */
int sh_open_in(const char *dir, const char *name, int *fd, struct sh_err *err);

#endif
