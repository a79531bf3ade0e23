/* shm.h - shared memory by memfd: create, size, map, seal. */
#ifndef SH_COMMON_SHM_H
#define SH_COMMON_SHM_H

#include "common/err.h"

#include <stddef.h>

struct sh_shm {
    int fd; /* OWNED, close-on-exec; -1 when unset */
    void *base;
    size_t bytes;
};

/* Zeroed memory; bytes is rounded up to the page size. Sealed against shrinking. Here and in
 * sh_shm_map(), where it has room for a huge page it begins at one. */
int sh_shm_create(const char *name, size_t bytes, struct sh_shm *out, struct sh_err *err);
/* TAKES fd. Checks that the file is at least `bytes` long and sealed against shrinking, so that no
 * access can fault. bytes 0: the whole file. */
int sh_shm_map(int fd, size_t bytes, bool writable, struct sh_shm *out, struct sh_err *err);
/* Maps part of a file on disk, read-only. The caller keeps fd and makes sure that nobody truncates
 * the file. off: a multiple of the page size. */
int sh_shm_map_file(int fd, uint64_t off, size_t bytes, struct sh_shm *out, struct sh_err *err);
/* From now on m can only be read here, and so can whatever is shown in it later. */
int sh_shm_close_to_writes(const struct sh_shm *m, struct sh_err *err);
/* Shows this part of `from` in place of the same part of m, for reading only; after a failure m
 * is of no use. `from` may be unmapped meanwhile, and nothing of it goes. off and bytes:
 * multiples of the page size. */
int sh_shm_show(const struct sh_shm *m, const struct sh_shm *from, size_t off, size_t bytes,
                struct sh_err *err);
/* Of memory that was just created and will be written to the end: makes all of it at once, in huge
 * pages, as long as the kernel has some without looking for them (MADV_COLLAPSE, Linux 6.1). To
 * write 240 MB of small pages for the first time takes 0.15 s and more, of huge ones 0.02. */
void sh_shm_prefer_huge(const struct sh_shm *m);
/* Gives the memory of this part back: it reads as zeros. Likewise for off and bytes. */
void sh_shm_clear(const struct sh_shm *m, size_t off, size_t bytes);
/* Closes the descriptor: from now on nothing is taken from the file by m, and other mappings of it
 * keep what they have. */
void sh_shm_forget_file(struct sh_shm *m);
/* Only so many of the first bytes stay (a multiple of the page size): the rest is unmapped, and its
 * memory given back. */
void sh_shm_cut(struct sh_shm *m, size_t bytes);
void sh_shm_fini(struct sh_shm *m); /* unmaps and closes; m->fd = -1 */

/* Waits while *word == seen; a change or timeout ends it. Shared between processes.
 * Returns SH_OK or SH_E_TIMEOUT (err untouched: a timeout is no failure here). */
int sh_futex_wait(const uint32_t *word, uint32_t seen, int64_t timeout_ns);
void sh_futex_wake(const uint32_t *word); /* all waiters */

#endif
