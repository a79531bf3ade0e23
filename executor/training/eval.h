/* eval.h - evaluates a trained model: runs it over a dataset on the normal path (queue, switch,
 * workers), from the executor's own slab, and compares its outputs with the labels. */
#ifndef SH_EXECUTOR_TRAINING_EVAL_H
#define SH_EXECUTOR_TRAINING_EVAL_H

#include "common/train_score.h"
#include "executor/models/store.h"

#include <jansson.h>

struct eval;
struct disk;
struct slabs;
struct switcher;

struct eval_conf {
    struct slabs *slabs; /* KEEPS these three */
    struct switcher *sw;
    struct disk *disk;
    struct model *model;            /* READY; BORROWED until eval_free() */
    const char *dataset;            /* path; BORROWED for the call */
    const struct train_spec *train; /* its losses and metrics; BORROWED for the call */
    /* from shunt-import: "inputs", "outputs"; the eval takes a reference */
    json_t *meta;
    int64_t *busy_ns; /* KEEPS: adds the time of its runs to this */
};

struct eval_result {
    struct train_scores all, heads[TRAIN_MAX_HEADS];
};

/* Called once, on the loop; it may free the eval. Also reports a dataset that cannot be read or
 * does not fit the model. */
typedef void eval_done_fn(void *arg, const struct eval_result *r, const struct sh_err *why);

/* Reads the dataset on the disk thread. *out: OWNED, eval_free(). Fails: SH_E_NOMEM,
 * SH_E_QUEUEFULL. */
int eval_start(const struct eval_conf *c, eval_done_fn *fn, void *arg, struct eval **out,
               struct sh_err *err);
void eval_free(struct eval *e); /* also before it has ended */

#endif
