/* idem.h - a create that comes with an Idempotency-Key: done once, answered again for a day.
 *
 * The key, what the handler makes and its answer are one transaction (store_idem.c): a request that
 * died half-way leaves nothing, and one that was answered is never done twice. A failure is not
 * kept: the same key may try again.
 */
#ifndef SH_API_STORE_IDEM_H
#define SH_API_STORE_IDEM_H

#include "api/request/req.h"

/* Makes what is asked for. *out: OWNED: what is kept, and answered again. May be called again in
 * another transaction; a db_tx() in it is part of it. */
typedef int idem_fn(void *arg, json_t **out, struct sh_err *err);

/* What the key was answered before (*replayed), or fn's. *out: OWNED. Fails: SH_E_CONFLICT: it came
 * with another request, or one is being carried out. Pool threads only. */
int idem_run(struct api_req *q, const struct req_idem *idem, idem_fn *fn, void *arg, bool *replayed,
             json_t **out, struct sh_err *err);
/* The route's handler in such a transaction, or its first answer. Pool threads only. */
int idem_create(struct api_req *q, struct sh_err *err);

#endif
