/* waiters.h - requests that sleep until what the database says changes.
 *
 * A handler on a pool thread adds its request, returns API_WAIT, and is called again after the next
 * change of the catalog or after a second, whichever comes first; it looks again and answers or
 * waits on. No thread waits meanwhile. Thread-safe.
 */
#ifndef SH_API_CACHE_WAITERS_H
#define SH_API_CACHE_WAITERS_H

#include "api/request/req.h"

#define WAITERS_MAX 64

struct waiters;

int waiters_new(struct waiters **out, struct sh_err *err); /* OWNED, waiters_free() */
void waiters_free(struct waiters *w);
/* After success q belongs to whoever wakes it: nothing of it may be touched. Fails: SH_E_QUEUEFULL,
 * SH_E_UNAVAILABLE when closed. */
int waiters_add(struct waiters *w, struct api_req *q, struct sh_err *err);
void waiters_wake(struct waiters *w); /* all */
/* Wakes all, takes nobody any more. */
void waiters_close(struct waiters *w);

#endif
