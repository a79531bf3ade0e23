/* idem.h - creates with an Idempotency-Key: done once, and answered again for a day.
 *
 * The key, what the handler creates and its answer are one transaction (store_idem.c). A request
 * that died half-way leaves nothing, and one that was answered is never done twice. A failure is
 * not kept: the same key may try again.
 */
#ifndef SH_API_STORE_IDEM_H
#define SH_API_STORE_IDEM_H

#include "api/request/req.h"

/* Creates what is asked for. *out: OWNED: the answer, which is kept and repeated. May be called
 * again in another transaction; a db_tx() in it is part of it. */
typedef int idem_fn(void *arg, json_t **out, struct sh_err *err);

/* The earlier answer to this key (*replayed), or fn's. *out: OWNED. Fails: SH_E_CONFLICT: the key
 * came with another request, or one is under way. Pool threads only. */
int idem_run(struct api_req *q, const struct req_idem *idem, idem_fn *fn, void *arg, bool *replayed,
             json_t **out, struct sh_err *err);
/* Runs the route's handler in such a transaction, or repeats its answer. Pool threads only. */
int idem_create(struct api_req *q, struct sh_err *err);

#endif
