/* trials.h - evaluations between the steps of a training job: when the next one is due, which was
 * best, and whether training goes on at all. What is known of them travels with checkpoints, as
 * text, so that a job that goes on elsewhere decides as it would have. Pure but for that text.
 *
 * A checkpoint may know of evaluations behind its step: training comes to them again, and what they
 * said counts once. */
#ifndef SH_EXECUTOR_TRAINING_TRIALS_H
#define SH_EXECUTOR_TRAINING_TRIALS_H

#include "common/job.h"
#include "common/train_score.h"

struct trials {
    int64_t every; /* 0: there are none */
    enum train_metric best_by;
    int64_t patience;
    double min_delta;

    int64_t last_step; /* of the newest; 0: none yet */
    struct train_scores last;
    int64_t best_step; /* 0: none yet, or best_by says none */
    double best;
    double mark;          /* the last one that was a gain */
    int64_t without_gain; /* evaluations since then */
    bool has_stopped;     /* by the newest */
};

void trials_init(struct trials *t, const struct train_spec *spec);
/* The step after `step` to stop at, of `steps`. */
int64_t trials_next(const struct trials *t, int64_t step, int64_t steps);
/* Has the state of this step to be evaluated, before training goes on or ends? */
bool trials_are_due(const struct trials *t, int64_t step, int64_t steps);
/* Does training end at this step, whatever is left? */
bool trials_have_stopped(const struct trials *t, int64_t step);
/* Would it be the best? */
bool trials_is_best(const struct trials *t, const struct train_scores *s);
/* Fails: SH_E_NAN: what it is measured by is not a number. */
int trials_note(struct trials *t, int64_t step, const struct train_scores *s, struct sh_err *err);

/* JSON, as clients see it. Fails: SH_E_NOMEM. */
int trials_text(const struct trials *t, char out[static SH_JOB_EVALUATION_BYTES],
                struct sh_err *err);
int trials_read(struct trials *t, const char *text, struct sh_err *err); /* SH_E_INVALID */

#endif
