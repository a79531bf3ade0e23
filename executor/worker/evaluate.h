/* evaluate.h - how good a job's model is between two steps: its state, on the device as it is, over
 * the evaluation dataset, in batches of the job's. A stop is seen between operations; what is added
 * up stays here, so that only the batch at work is done again. */
#ifndef SH_EXECUTOR_WORKER_EVALUATE_H
#define SH_EXECUTOR_WORKER_EVALUATE_H

#include "common/train_score.h"
#include "executor/worker/worker.h"
#include "runtime/model/graph.h"

struct evaluation;
struct program;

struct evaluation_conf { /* all BORROWED as long as the evaluation lives */
    struct dev *dev;
    const struct graph *graph;
    const struct train_spec *train;
    const struct program *trained;
};

/* The caller closes fd, the evaluation dataset. *out: OWNED, evaluation_close(). Fails:
 * SH_E_INVALID: the dataset does not suit the model. */
int evaluation_open(int fd, const struct evaluation_conf *c, struct evaluation **out,
                    struct sh_err *err);
void evaluation_close(struct evaluation *e);
/* For what it needs of state and workspace. */
const struct program *evaluation_program(const struct evaluation *e);
int evaluation_write_state(struct evaluation *e, void *state, struct sh_err *err);
/* Goes on with the evaluation of the state of go->step. *done: it has come to its end, with
 * *scores; else a stop came first. */
int evaluation_run(struct worker *w, struct evaluation *e, const struct msg_wk_train_go *go,
                   struct train_scores *scores, bool *done, struct sh_err *err);

/* Training goes on, over what the evaluation had in the workspace. e: NULL is fine. */
void evaluation_forget(struct evaluation *e);

#endif
