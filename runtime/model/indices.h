/* indices.h - which inputs of a program are row numbers of a table, so that a bad one is found on
 * the host, before anything runs, and is known to be of this sample only.
 *
 * It covers inputs that reach the table unchanged, except for order and a wider type. Indices
 * computed on the way are seen only by the device, which refuses the whole run.
 */
#ifndef SH_RUNTIME_MODEL_INDICES_H
#define SH_RUNTIME_MODEL_INDICES_H

#include "runtime/model/ir.h"

struct indices; /* of one program */

/* *out: OWNED, indices_free(); borrows names of ir, which must outlive it. */
int indices_find(const struct ir *ir, struct indices **out, struct sh_err *err);
void indices_free(struct indices *x); /* NULL is allowed */
/* Checks n values of input `input`, of type t, at any address. Fails: SH_E_INVALID, naming the
 * value, its position among the n, and the table. */
int indices_check(const struct indices *x, uint32_t input, enum sh_dtype t, const void *values,
                  size_t n, struct sh_err *err);

#endif
