/* eval.h - how good a trained model is: runs it over a dataset through the normal path (queue,
 * switch, workers), from a slab of our own, and compares the first output with the labels. */
#ifndef SH_EXECUTOR_EVAL_H
#define SH_EXECUTOR_EVAL_H

#include "executor/store.h"

#include <jansson.h>

struct eval;

struct eval_conf {
    struct model *model; /* READY; BORROWED */
    const char *dataset, *labels;
    bool is_xent;       /* cross-entropy over classes; else mean squared error */
    const json_t *meta; /* shunt-import's: "inputs", "outputs" */
};

struct eval_result {
    double accuracy; /* NAN for mean squared error */
    double loss;
    int64_t n_samples;
};

/* Called once, from the loop; the eval may be freed in it. */
typedef void eval_done_fn(void *arg, const struct eval_result *r, const struct sh_err *why);

/* *out: OWNED, eval_free(). */
int eval_start(struct exec *x, const struct eval_conf *c, eval_done_fn *fn, void *arg,
               struct eval **out, struct sh_err *err);
void eval_free(struct eval *e); /* also half-way */

#endif
