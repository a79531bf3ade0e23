/* keep.h - decides whose work is kept on disk (kept_dir.h).
 *
 * A model that has taken over its worker can forge what that worker makes for others, and a file
 * would outlive the worker. So what a worker makes for a tenant is kept only if its process has
 * never had anything of another tenant. That is rare when tenants share workers. Then, in a quiet
 * moment, a worker that can be spared is restarted and makes it again before it gets anything else
 * (--keep-renew-s).
 */
#ifndef SH_EXECUTOR_MODELS_KEEP_H
#define SH_EXECUTOR_MODELS_KEEP_H

#include "executor/models/store.h"

/* What a file that is kept of m has to fit, but for its key. batches: filled in. */
struct kept_about keep_about(const struct model *m, uint32_t batches[static MODEL_MAX_BATCHES]);
/* Keeps what m's worker has made; image: a memfd, BORROWED. */
void keep_made(struct model *m, const struct worker *w, const struct msg_wk_model_done *d,
               int image);
/* The model that this worker makes again before it gets anything else; NULL: none. */
struct model *keep_next(struct store *s, const struct worker *w);
/* Once a second, but not while the executor stops. */
void keep_second(struct store *s);

#endif
