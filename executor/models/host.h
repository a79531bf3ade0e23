/* host.h - host memory that models take: their images, and what each worker has compiled.
 *
 * A small file can be compiled to a thousand times its size, in every worker. So a model whose
 * image and programs find no room beside those that there are is not loaded, with QUOTA and the
 * sizes; nothing is taken away for it here, but the scheduler may unload what is idle and ask
 * again. The models of one tenant take what its quota says (host_memory_max_bytes), half of all
 * without one. An internal model (of an evaluation) is not counted: there is one, for a while.
 */
#ifndef SH_EXECUTOR_MODELS_HOST_H
#define SH_EXECUTOR_MODELS_HOST_H

#include "executor/models/store.h"

uint64_t host_held(const struct model *m); /* by it now, in all processes */
/* What m may take beside all others, at least 1; 0: any. */
uint64_t host_left(const struct model *m);
/* Is there room for an image, and a program of this size in every worker? Fails: SH_E_QUOTA; then
 * short_bytes is set. */
int host_check(struct model *m, uint64_t image, uint64_t program, struct sh_err *err);
struct host_totals {
    uint64_t images, programs /* in all workers */, limit;
};
struct host_totals host_totals(struct store *s);
void host_update_metrics(struct store *s);
/* bytes 0: no quota. Fails: SH_E_NOMEM. */
int host_set_quota(struct store *s, const char *tenant, uint64_t bytes, struct sh_err *err);
void host_clear_quotas(struct store *s);

#endif
