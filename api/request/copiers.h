/* copiers.h - threads that help to copy between a file that is memory and ours.
 *
 * One core moves a few GB/s by pread(), whose caches are cold for what a client has just written.
 * So a large copy is cut into pieces. Its caller begins at once and helpers take some as they wake;
 * who is late costs nothing, since the caller only waits for pieces that were taken. Any number of
 * callers may copy at a time; the oldest copy is helped first. No copy allocates anything or holds
 * a lock. Thread-safe. docs/decisions/0059.
 */
#ifndef SH_API_REQUEST_COPIERS_H
#define SH_API_REQUEST_COPIERS_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define COPIERS_LARGE ((size_t)512 << 10) /* bytes from which a copy is shared out */
#define COPIERS_PIECE ((size_t)128 << 10)

struct copiers;

/* n_threads 0: every caller copies alone. *out: OWNED, copiers_free(). */
int copiers_new(unsigned n_threads, struct copiers **out, struct sh_err *err);
void copiers_free(struct copiers *c); /* NULL is allowed; all copies have ended */
/* As many as suit the cores that we may use; none on a few. */
unsigned copiers_by_cores(unsigned cores);

/* As sh_pread_all() and sh_pwrite_all() (common/io.h): what comes first in the file decides the
 * outcome, whoever found it; what lies behind may be copied or not. c NULL: alone. */
ssize_t copiers_pread(struct copiers *c, int fd, void *to, size_t n, uint64_t off);
bool copiers_pwrite(struct copiers *c, int fd, const void *from, size_t n, uint64_t off);

#endif
