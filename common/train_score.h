/* train_score.h - how good a model's answers are: compares them with the labels of a dataset, in
 * any number of batches. docs/training.md explains each number.
 */
#ifndef SH_COMMON_TRAIN_SCORE_H
#define SH_COMMON_TRAIN_SCORE_H

#include "common/safetensors.h"
#include "common/train_spec.h"

struct train_scores {
    double loss; /* mean, without weights and smoothing */
    /* For classes; NAN for the other losses. */
    double accuracy, perplexity; /* perplexity: exp(loss) */
    /* share of labels among the five largest; NAN: five classes or fewer */
    double top5;
    double f1; /* mean over classes that occur as label or answer (macro) */
    int64_t n_samples;
};

struct train_score; /* a sum under way */

/* out: the head's output, [batch, ...] or [1, ...], without data; its `bytes` are those of one
 * sample. labels: of the whole dataset. All are BORROWED for the call; h's weights are ignored. *s:
 * OWNED, train_score_free(). Fails: SH_E_INVALID: the labels do not fit the output;
 * SH_E_UNSUPPORTED, SH_E_NOMEM. */
int train_score_new(const struct train_head *h, const struct sh_st_tensor *out,
                    const struct sh_st_tensor *labels, struct train_score **s, struct sh_err *err);
void train_score_free(struct train_score *s); /* NULL is allowed */
/* Checks all labels. Fails: SH_E_INVALID, naming the label and its sample. */
int train_score_check(const struct train_score *s, const struct sh_st_tensor *labels,
                      struct sh_err *err);
/* Adds n samples: outputs (F32) and labels, each contiguous. */
void train_score_add(struct train_score *s, const void *out, const void *labels, size_t n);
void train_score_end(const struct train_score *s, struct train_scores *out);
void train_score_clear(struct train_score *s); /* forgets what was added */
/* Combines all heads: the loss is the weighted sum of theirs; the other numbers are those of the
 * head that the evaluation goes by. */
void train_scores_join(const struct train_spec *t, const struct train_scores *heads,
                       struct train_scores *out);

#endif
