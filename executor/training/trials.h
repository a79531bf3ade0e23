/* trials.h - evaluations between the steps of a training job: when the next is due, which was best,
 * and whether training stops early. The result travels with checkpoints, as text, so that a job
 * that continues elsewhere decides as it would have here. Pure.
 *
 * A checkpoint may know of evaluations after its step. Training reaches them again, and each counts
 * once. */
#ifndef SH_EXECUTOR_TRAINING_TRIALS_H
#define SH_EXECUTOR_TRAINING_TRIALS_H

#include "common/job.h"
#include "common/train_score.h"

struct trials {
    int64_t every; /* steps between evaluations; 0: none */
    enum train_metric best_by;
    int64_t patience;
    double min_delta;

    int64_t last_step; /* step of the newest; 0: none yet */
    struct train_scores last;
    int64_t best_step; /* 0: none yet, or best_by says none */
    double best;
    double mark;          /* the last value that was a gain */
    int64_t without_gain; /* evaluations since then */
    bool has_stopped;     /* the newest evaluation has stopped training */
};

void trials_init(struct trials *t, const struct train_spec *spec);
/* The next step after `step` to stop at, of `steps` in all. */
int64_t trials_next(const struct trials *t, int64_t step, int64_t steps);
/* Must the state of this step be evaluated before training goes on or ends? */
bool trials_are_due(const struct trials *t, int64_t step, int64_t steps);
/* Does training end early at this step? */
bool trials_have_stopped(const struct trials *t, int64_t step);
/* Would it be the best? */
bool trials_is_best(const struct trials *t, const struct train_scores *s);
/* Notes an evaluation. Fails: SH_E_NAN: the metric to compare is not a number. */
int trials_note(struct trials *t, int64_t step, const struct train_scores *s, struct sh_err *err);

/* JSON, as clients see it. Fails: SH_E_NOMEM. */
int trials_text(const struct trials *t, char out[static SH_JOB_EVALUATION_BYTES],
                struct sh_err *err);
int trials_read(struct trials *t, const char *text, struct sh_err *err); /* SH_E_INVALID */

#endif
