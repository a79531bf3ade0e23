/* host.h - the host memory that models take: their images, and what each worker compiles.
 *
 * Compiled, a small file can take a thousand times its size in every worker. So a model is not
 * loaded if its image and programs do not fit beside the others. Images that nobody uses leave for
 * it (tier.h); if that is not enough it fails with SH_E_QUOTA and the sizes, and the scheduler may
 * unload idle models and ask again. A tenant's models may take what its quota allows
 * (host_memory_max_bytes), or half of the total without a quota. Internal models (for an
 * evaluation) do not count: there is one, for a short time. What images of a tenant share counts in
 * equal parts for each (share.h). All sizes are bytes.
 */
#ifndef SH_EXECUTOR_MODELS_HOST_H
#define SH_EXECUTOR_MODELS_HOST_H

#include "executor/models/store.h"

uint64_t host_limit(const struct store *s); /* what all models may take */
uint64_t host_held(const struct model *m);  /* by m now, in all processes */
/* What m may take beside all others, at least 1; 0: no limit. */
uint64_t host_left(const struct model *m);
/* The same for what a worker makes of it; unless it builds, the image is there. */
uint64_t host_left_for(const struct model *m, bool builds);
/* Is there room for m with an image, and with a program of this size in every worker? An image that
 * is in host memory already counts as it does there, whatever `image` says. Others leave as far as
 * they can. */
bool host_make_room(const struct model *m, uint64_t image, uint64_t program);
/* The same, but nothing leaves in vain. Fails: SH_E_QUOTA, and sets short_bytes. */
int host_check(struct model *m, uint64_t image, uint64_t program, struct sh_err *err);
struct host_totals {
    uint64_t images, on_disk /* alone */, programs /* in all workers */, limit;
};
struct host_totals host_totals(struct store *s);
void host_update_metrics(struct store *s);
/* bytes: 0 removes the quota. Fails: SH_E_NOMEM. */
int host_set_quota(struct store *s, const char *tenant, uint64_t bytes, struct sh_err *err);
void host_clear_quotas(struct store *s);

#endif
