/* trials.c - see trials.h. */
#include "executor/training/trials.h"

#include "common/json.h"
#include "common/mem.h"

#include <inttypes.h>
#include <math.h>

void trials_init(struct trials *t, const struct train_spec *spec)
{
    *t = (struct trials){.every = spec->evaluation.every,
                         .best_by = spec->evaluation.best,
                         .patience = spec->evaluation.patience,
                         .min_delta = spec->evaluation.min_delta,
                         .best = NAN,
                         .mark = NAN};
}

int64_t trials_next(const struct trials *t, int64_t step, int64_t steps)
{
    return t->every ? SH_MIN((step / t->every + 1) * t->every, steps) : steps;
}

bool trials_are_due(const struct trials *t, int64_t step, int64_t steps)
{
    return t->every && step > t->last_step && (step % t->every == 0 || step == steps);
}

bool trials_have_stopped(const struct trials *t, int64_t step)
{
    return t->has_stopped && step >= t->last_step;
}

static double score_value(const struct trials *t, const struct train_scores *s)
{
    switch (t->best_by) {
    case TRAIN_BY_ACCURACY:
        return s->accuracy;
    case TRAIN_BY_TOP5:
        return s->top5;
    case TRAIN_BY_F1:
        return s->f1;
    case TRAIN_BY_PERPLEXITY:
        return s->perplexity;
    default:
        return s->loss;
    }
}

/* By more than delta; the first one always is. */
static bool is_better_score(const struct trials *t, double v, double than, double delta)
{
    const bool less = t->best_by == TRAIN_BY_LOSS || t->best_by == TRAIN_BY_PERPLEXITY;

    return isnan(than) || (less ? v < than - delta : v > than + delta);
}

bool trials_is_best(const struct trials *t, const struct train_scores *s)
{
    const double v = score_value(t, s);

    return t->best_by && !isnan(v) && !isnan(s->loss) && is_better_score(t, v, t->best, 0);
}

int trials_note(struct trials *t, int64_t step, const struct train_scores *s, struct sh_err *err)
{
    const double v = score_value(t, s);

    if (isnan(v) || isnan(s->loss))
        return SH_FAIL(err, SH_E_NAN,
                       "the evaluation after step %" PRId64 " has no %s: the model's answers are "
                       "not numbers, no label counts, or there are not more than five classes",
                       step, t->best_by ? train_metric_name(t->best_by) : "loss");
    t->last = *s;
    t->last_step = step;
    if (!t->best_by)
        return SH_OK;
    if (is_better_score(t, v, t->best, 0)) {
        t->best = v;
        t->best_step = step;
    }
    if (is_better_score(t, v, t->mark, t->min_delta)) {
        t->mark = v;
        t->without_gain = 0;
    } else {
        t->without_gain++;
    }
    t->has_stopped = t->patience && t->without_gain >= t->patience;
    return SH_OK;
}

/* ------------------------------------------------------------------ as text */

static json_t *score_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

int trials_text(const struct trials *t, char out[static SH_JOB_EVALUATION_BYTES],
                struct sh_err *err)
{
    json_t *j =
        json_pack("{s:I,s:I,s:o,s:o,s:o,s:o,s:o}", "step", (json_int_t)t->last_step, "samples",
                  (json_int_t)t->last.n_samples, "loss", score_number(t->last.loss), "accuracy",
                  score_number(t->last.accuracy), "top5", score_number(t->last.top5), "f1",
                  score_number(t->last.f1), "perplexity", score_number(t->last.perplexity));
    json_t *best = json_pack("{s:s,s:o,s:I,s:o,s:I,s:b}", "best_by", train_metric_name(t->best_by),
                             "best", score_number(t->best), "best_step", (json_int_t)t->best_step,
                             "gained", score_number(t->mark), "without_gain",
                             (json_int_t)t->without_gain, "stopped", (int)t->has_stopped);
    size_t n = SH_JOB_EVALUATION_BYTES;

    if (j && best && (t->best_by == TRAIN_NO_METRIC || json_object_update(j, best) == 0))
        n = json_dumpb(j, out, SH_JOB_EVALUATION_BYTES - 1, JSON_COMPACT);
    json_decref(j);
    json_decref(best);
    if (n == 0 || n >= SH_JOB_EVALUATION_BYTES)
        return SH_FAIL(err, SH_E_NOMEM, "could not write the results of evaluations");
    out[n] = '\0';
    return SH_OK;
}

static void take_score(const json_t *j, const char *name, double *out)
{
    const json_t *v = json_object_get(j, name);

    *out = json_is_number(v) ? json_number_value(v) : NAN;
}

int trials_read(struct trials *t, const char *text, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = sh_json_parse(text, strlen(text), SH_JOB_EVALUATION_BYTES, &j, err);

    if (rc)
        return rc;
    t->last_step = json_integer_value(json_object_get(j, "step"));
    t->last.n_samples = json_integer_value(json_object_get(j, "samples"));
    take_score(j, "loss", &t->last.loss);
    take_score(j, "accuracy", &t->last.accuracy);
    take_score(j, "top5", &t->last.top5);
    take_score(j, "f1", &t->last.f1);
    take_score(j, "perplexity", &t->last.perplexity);
    take_score(j, "best", &t->best);
    take_score(j, "gained", &t->mark);
    t->best_step = json_integer_value(json_object_get(j, "best_step"));
    t->without_gain = json_integer_value(json_object_get(j, "without_gain"));
    t->has_stopped = json_is_true(json_object_get(j, "stopped"));
    json_decref(j);
    if (t->last_step < 0 || t->best_step < 0 || t->without_gain < 0)
        return SH_FAIL(err, SH_E_INVALID, "the checkpoint's record of evaluations is damaged");
    return SH_OK;
}
