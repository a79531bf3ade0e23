/* keep.h - whose work is kept (kept_dir.h).
 *
 * A model that has taken its worker over can forge what that worker makes for others, and a file
 * would outlive the worker. So what a worker makes for a tenant is kept only if its process has had
 * nothing of any other tenant, since it began. Where tenants share workers that is seldom so:
 * then, in a quiet moment, a worker that nobody misses is begun anew, and makes it once more before
 * it gets anything else (--keep-renew-s).
 */
#ifndef SH_EXECUTOR_MODELS_KEEP_H
#define SH_EXECUTOR_MODELS_KEEP_H

#include "executor/models/store.h"

/* What m's worker has made of it; its image is this memfd. */
void keep_made(struct model *m, const struct worker *w, const struct msg_wk_model_done *d,
               int image);
/* What this worker makes once more, before it gets anything else; NULL: nothing. */
struct model *keep_next(struct store *s, const struct worker *w);
/* Once a second, but not while the executor stops. */
void keep_second(struct store *s);

#endif
