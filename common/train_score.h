/* train_score.h - how good a model's answers are: adds up what it says of a dataset, in any number
 * of batches, beside the labels. docs/training.md says what each number is.
 */
#ifndef SH_COMMON_TRAIN_SCORE_H
#define SH_COMMON_TRAIN_SCORE_H

#include "common/safetensors.h"
#include "common/train_spec.h"

struct train_scores {
    double loss; /* the mean, without weights and smoothing */
    /* Of classes; NAN for the other losses. */
    double accuracy, perplexity; /* perplexity: exp(loss) */
    double top5;                 /* share of labels among the five largest; NAN: no more classes */
    double f1;                   /* the mean over classes that are a label or an answer (macro) */
    int64_t n_samples;
};

struct train_score; /* a sum under way */

/* out: the head's output, one of [batch, ...] or [1, ...], without data; its
 * `bytes` are those of one sample. labels: of the whole dataset. All are BORROWED for the call, but
 * h's weights, which are not looked at. *s: OWNED, train_score_free(). Fails: SH_E_INVALID: the
 * labels do not suit the output; SH_E_UNSUPPORTED, SH_E_NOMEM. */
int train_score_new(const struct train_head *h, const struct sh_st_tensor *out,
                    const struct sh_st_tensor *labels, struct train_score **s, struct sh_err *err);
void train_score_free(struct train_score *s); /* NULL is allowed */
/* Reads all labels. Fails: SH_E_INVALID, with the label and its sample. */
int train_score_check(const struct train_score *s, const struct sh_st_tensor *labels,
                      struct sh_err *err);
/* n samples: F32 of the output and labels, one behind the other. */
void train_score_add(struct train_score *s, const void *out, const void *labels, size_t n);
void train_score_end(const struct train_score *s, struct train_scores *out);
void train_score_clear(struct train_score *s); /* nothing has been added */
/* From those of all heads: the loss is the sum of theirs, weighed; the other numbers are those of
 * the head that the evaluation goes by. */
void train_scores_join(const struct train_spec *t, const struct train_scores *heads,
                       struct train_scores *out);

#endif
