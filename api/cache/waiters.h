/* waiters.h - requests that sleep until something changes in the database.
 *
 * A handler on a pool thread adds its request and returns API_WAIT. It is called again after the
 * next change of the catalog, or after a second, and then answers or waits on. No thread waits
 * meanwhile. Thread-safe.
 */
#ifndef SH_API_CACHE_WAITERS_H
#define SH_API_CACHE_WAITERS_H

#include "api/request/req.h"

struct waiters;

int waiters_new(size_t most, struct waiters **out, struct sh_err *err); /* OWNED, waiters_free() */
void waiters_free(struct waiters *w);
/* After success q belongs to whoever wakes it: do not touch it. Fails: SH_E_QUEUEFULL,
 * SH_E_UNAVAILABLE (closed). */
int waiters_add(struct waiters *w, struct api_req *q, struct sh_err *err);
void waiters_wake(struct waiters *w); /* wakes all */
/* Wakes all and accepts no more. */
void waiters_close(struct waiters *w);

#endif
