/* idem.h - a create that comes with an Idempotency-Key: done once, answered again for a day.
 *
 * The key, what the handler makes and its answer are one transaction (store_idem.c): a request that
 * died half-way leaves nothing, and one that was answered is never done twice. A failure is not
 * kept: the same key may try again.
 */
#ifndef SH_API_IDEM_H
#define SH_API_IDEM_H

#include "api/req.h"

/* The route's handler in such a transaction, or its first answer. Pool threads only. */
int idem_create(struct api_req *q, struct sh_err *err);

#endif
