/* evaluate.h - evaluates a job's model between two steps: its present state on the device, over the
 * evaluation dataset, in batches of the job's size. A stop is seen between operations. Sums stay
 * here, so only the current batch is repeated. */
#ifndef SH_EXECUTOR_WORKER_EVALUATE_H
#define SH_EXECUTOR_WORKER_EVALUATE_H

#include "common/train_score.h"
#include "executor/worker/worker.h"
#include "runtime/model/graph.h"

struct evaluation;
struct program;

struct evaluation_conf { /* all BORROWED for the life of the evaluation */
    struct dev *dev;
    const struct graph *graph;
    const struct train_spec *train;
    const struct program *trained;
};

/* The caller closes fd, the evaluation dataset. *out: OWNED, evaluation_close(). Fails:
 * SH_E_INVALID: the dataset does not fit the model. */
int evaluation_open(int fd, const struct evaluation_conf *c, struct evaluation **out,
                    struct sh_err *err);
void evaluation_close(struct evaluation *e);
/* Tells what state and workspace it needs. */
const struct program *evaluation_program(const struct evaluation *e);
int evaluation_write_state(struct evaluation *e, void *state, struct sh_err *err);
/* Continues the evaluation of the state of go->step. *done: it is complete, with *scores; false: a
 * stop came first. */
int evaluation_run(struct worker *w, struct evaluation *e, const struct msg_wk_train_go *go,
                   struct train_scores *scores, bool *done, struct sh_err *err);

/* Training goes on and overwrites the evaluation's workspace. NULL is allowed. */
void evaluation_forget(struct evaluation *e);

#endif
