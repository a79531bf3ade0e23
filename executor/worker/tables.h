/* tables.h - tables of embeddings that this worker reads in host memory (runtime/model/tables.h).
 *
 * The executor sends a file that can only be read, once it has the image of a model, and takes it
 * back when the image leaves host memory; the mapping ends with that, or with the model.
 */
#ifndef SH_EXECUTOR_WORKER_TABLES_H
#define SH_EXECUTOR_WORKER_TABLES_H

#include "executor/worker/worker.h"

/* WK_TABLES; answers it. Takes nothing out of fds. Fails only if the executor is gone. */
int tables_on_message(struct worker *w, const struct msg_wk_tables *m, const int *fds, size_t n_fds,
                      struct sh_err *err);
void tables_drop(struct worker *w, struct wk_model *m);
/* Where a run finds the tables of p, a program of m. Fails: SH_E_UNAVAILABLE: in host memory, and
 * they are not there. */
int tables_find(const struct wk_model *m, const struct program *p, const struct msg_wk_run *r,
                struct dev_bases *b, struct sh_err *err);
/* [enqueue] Waits for the groups that bring tables to the device, if the run reads them there: no
 * operation's own group does. */
int tables_wait(struct worker *w, const struct program *p, const struct msg_wk_run *r,
                struct sh_err *err);

#endif
