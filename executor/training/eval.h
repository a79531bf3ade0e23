/* eval.h - how good a trained model is: runs it over a dataset through the normal path (queue,
 * switch, workers), from a slab of our own, and compares outputs with labels. */
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
    const struct train_spec *train; /* its losses; BORROWED for the call */
    json_t *meta;                   /* shunt-import's: "inputs", "outputs"; the eval holds it too */
    int64_t *busy_ns;               /* KEEPS: the time that its runs took is added there */
};

struct eval_result {
    struct train_scores all, heads[TRAIN_MAX_HEADS];
};

/* Called once, from the loop; the eval may be freed in it. A dataset that cannot be read or does
 * not fit the model is told here too. */
typedef void eval_done_fn(void *arg, const struct eval_result *r, const struct sh_err *why);

/* Reads the dataset on the checkpoint thread. *out: OWNED, eval_free(). Fails: SH_E_NOMEM,
 * SH_E_QUEUEFULL. */
int eval_start(const struct eval_conf *c, eval_done_fn *fn, void *arg, struct eval **out,
               struct sh_err *err);
void eval_free(struct eval *e); /* also half-way */

#endif
