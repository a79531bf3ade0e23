/* whatif.h - asks shunt-simulate a what-if question (simulate/answer.h): a process of its own that
 * has limits. */
#ifndef SH_COMMON_WHATIF_H
#define SH_COMMON_WHATIF_H

#include "common/json.h"

#include <stdatomic.h>

#define SH_WHATIF_MAX_ANSWER (16u << 20)
#define SH_WHATIF_MAX_TRACE (16u << 20) /* bytes of requests that come instead of recorded ones */
#define SH_WHATIF_MAX_HOURS 24          /* of recorded requests */

/* Blocks, for at most timeout_ms. *out: OWNED. stop: another thread may raise it; NULL: none.
 * Fails: as the program says, SH_E_INVALID for a question that is wrong, SH_E_NOMEM for one that
 * needs more memory than it may have; SH_E_UNSUPPORTED: it took all its processor time;
 * SH_E_UNAVAILABLE: somebody killed it, as the system does without memory; SH_E_BUG: it crashed, or
 * said nothing; SH_E_TIMEOUT; SH_E_CANCELLED; SH_E_IO. */
int sh_whatif_ask(const json_t *question, int64_t timeout_ms, const atomic_bool *stop, json_t **out,
                  struct sh_err *err);

#endif
