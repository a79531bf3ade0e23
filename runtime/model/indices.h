/* indices.h - which inputs of a program are rows of a table, so that a wrong one is found on the
 * host, before anything runs, and is known to be of this sample and of no other.
 *
 * Only those that come to the table as they are, perhaps in another order or a wider type. What is
 * computed on the way the device alone sees; it refuses such a run as a whole.
 */
#ifndef SH_RUNTIME_MODEL_INDICES_H
#define SH_RUNTIME_MODEL_INDICES_H

#include "runtime/model/ir.h"

struct indices; /* of one program */

/* *out: OWNED, indices_free(); it borrows names of ir, which must outlive it. */
int indices_find(const struct ir *ir, struct indices **out, struct sh_err *err);
void indices_free(struct indices *x); /* NULL is allowed */
/* n values of input `input`, of type t, at any address. Fails: SH_E_INVALID, with the value, its
 * position among the n, and the table. */
int indices_check(const struct indices *x, uint32_t input, enum sh_dtype t, const void *values,
                  size_t n, struct sh_err *err);

#endif
