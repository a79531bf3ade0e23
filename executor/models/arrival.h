/* arrival.h - images that workers have made, before the model is ready: their pages are locked.
 *
 * While the driver locks pages nobody can enqueue a copy or a ticket, so a large image is locked
 * piece by piece between runs (executor/memory/locking.h). Until all of it is locked the worker
 * counts as one that compiles the model yet; then its message is taken as if it had just come. What
 * goes meanwhile, the worker or the model, goes as from any compilation.
 */
#ifndef SH_EXECUTOR_MODELS_ARRIVAL_H
#define SH_EXECUTOR_MODELS_ARRIVAL_H

#include "executor/models/store.h"

void arrival__lose(struct store *s, int64_t handle); /* its worker is dead */
void arrival__stop(struct store *s);

#endif
