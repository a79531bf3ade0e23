/* train_score.c - see train_score.h. */
#include "common/train_score.h"

#include "common/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct tally { /* of one class */
    int64_t labels, answers, both;
};

struct train_score {
    struct train_head head;
    enum sh_dtype label_type;
    size_t label_bytes, out_bytes; /* of one sample */
    size_t classes, behind;        /* of a sample's output [before, classes, behind]; XENT */
    int64_t n_samples, correct, in_top, n_values;
    struct tally *tally; /* OWNED by class; XENT */
    double loss;
};

static bool is_of_classes(const struct train_score *s)
{
    return s->head.loss == TRAIN_LOSS_XENT;
}

static int find_classes(struct train_score *s, const struct sh_st_tensor *out,
                        const struct sh_st_tensor *labels, struct sh_err *err)
{
    uint32_t axis;
    int rc;

    if (s->label_type != SH_I64 && s->label_type != SH_I32)
        return SH_FAIL(err, SH_E_INVALID, "labels of classes must be INT64 or INT32");
    s->head.label_rank = (uint32_t)labels->rank;
    memcpy(s->head.label_dims, labels->dims, sizeof(s->head.label_dims));
    rc = train_class_axis(&s->head, out->name, (uint32_t)out->rank, out->dims, &axis, err);
    if (rc)
        return rc;
    s->classes = (size_t)out->dims[axis];
    s->behind = 1;
    for (size_t i = axis + 1; i < out->rank; i++)
        s->behind *= (size_t)out->dims[i];
    s->tally = calloc(s->classes + 1, sizeof(*s->tally));
    return s->tally ? SH_OK
                    : SH_FAIL(err, SH_E_NOMEM, "could not allocate the counts of %zu classes",
                              s->classes);
}

int train_score_new(const struct train_head *h, const struct sh_st_tensor *out,
                    const struct sh_st_tensor *labels, struct train_score **to, struct sh_err *err)
{
    struct train_score *s = calloc(1, sizeof(*s));
    int rc = SH_OK;

    *to = NULL;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an evaluation");
    *s = (struct train_score){.head = *h, .label_type = labels->dtype, .out_bytes = out->bytes};
    s->label_bytes = labels->bytes / (size_t)labels->dims[0];
    if (is_of_classes(s))
        rc = find_classes(s, out, labels, err);
    else if (labels->dtype != SH_F32 || s->label_bytes != out->bytes)
        rc = SH_FAIL(err, SH_E_INVALID, "the labels of output \"%s\" must be FP32 and of its size",
                     out->name);
    if (!rc && out->dtype != SH_F32)
        rc = SH_FAIL(err, SH_E_UNSUPPORTED,
                     "output \"%s\" of the trained model is %s; only FP32 can be evaluated",
                     out->name, sh_dtype_v2(out->dtype));
    if (rc) {
        train_score_free(s);
        return rc;
    }
    *to = s;
    return SH_OK;
}

void train_score_free(struct train_score *s)
{
    if (!s)
        return;
    free(s->tally);
    free(s);
}

static int64_t label_of(const struct train_score *s, const char *labels, int64_t i)
{
    int64_t v64;
    int32_t v32;

    if (s->label_type == SH_I32) {
        memcpy(&v32, labels + i * 4, sizeof(v32));
        return v32;
    }
    memcpy(&v64, labels + i * 8, sizeof(v64));
    return v64;
}

int train_score_check(const struct train_score *s, const struct sh_st_tensor *labels,
                      struct sh_err *err)
{
    int64_t each;

    if (!is_of_classes(s))
        return SH_OK;
    each = (int64_t)(s->label_bytes / sh_dtype_bytes(s->label_type));
    for (int64_t i = 0; i < labels->dims[0] * each; i++) {
        int64_t label = label_of(s, labels->data, i);

        if ((label < 0 || label >= (int64_t)s->classes) && label != s->head.ignore_index)
            return SH_FAIL(err, SH_E_INVALID,
                           "label %" PRId64 " of sample %" PRId64 " of the evaluation dataset is "
                           "not a class from 0 to %zu, as many as the model has outputs",
                           label, i / each, s->classes - 1);
    }
    return SH_OK;
}

/* y: the outputs of one position's classes, `behind` elements apart. */
static void add_class_score(struct train_score *s, const float *y, int64_t label)
{
    const size_t n = s->classes, step = s->behind;
    const float own = y[label == s->head.ignore_index ? 0 : (size_t)label * step];
    size_t best = 0, larger = 0;
    double sum = 0;

    if (label == s->head.ignore_index)
        return;
    for (size_t i = 1; i < n; i++)
        if (y[i * step] > y[best * step])
            best = i;
    for (size_t i = 0; i < n; i++) {
        sum += exp((double)y[i * step] - (double)y[best * step]);
        larger += y[i * step] > own || (y[i * step] == own && i < (size_t)label);
    }
    s->n_values++;
    s->loss += log(sum) + (double)y[best * step] - (double)y[(size_t)label * step];
    s->tally[label].labels++;
    if (!isfinite(sum)) /* one of them is no number: nothing was answered */
        return;
    s->correct += (size_t)label == best;
    s->in_top += larger < TRAIN_TOP;
    s->tally[best].answers++;
    s->tally[label].both += (size_t)label == best;
}

static double loss_of(const struct train_head *t, double y, double want)
{
    const double d = fabs(y - want);

    switch (t->loss) {
    case TRAIN_LOSS_L1:
        return d;
    case TRAIN_LOSS_HUBER:
        return d <= t->delta ? d * d / 2 : t->delta * (d - t->delta / 2);
    case TRAIN_LOSS_BCE:
        return fmax(y, 0) - y * want + log1p(exp(-fabs(y)));
    default:
        return d * d;
    }
}

static void add_value_scores(struct train_score *s, const float *y, size_t n, const char *label)
{
    for (size_t i = 0; i < n; i++) {
        float want;

        memcpy(&want, label + i * sizeof(want), sizeof(want));
        s->loss += loss_of(&s->head, (double)y[i], (double)want);
        s->n_values++;
    }
}

void train_score_add(struct train_score *s, const void *out, const void *labels, size_t n)
{
    const bool classes = is_of_classes(s);
    const size_t values = s->out_bytes / sizeof(float), each = classes ? values / s->classes : 1;

    for (size_t i = 0; i < n; i++) {
        const float *y = (const float *)out + i * values;

        if (!classes)
            add_value_scores(s, y, values, (const char *)labels + i * s->label_bytes);
        for (size_t k = 0; classes && k < each; k++)
            add_class_score(s, y + k / s->behind * s->behind * s->classes + k % s->behind,
                            label_of(s, labels, (int64_t)(i * each + k)));
    }
    s->n_samples += (int64_t)n;
}

/* A class that neither has a label nor was answered says nothing. */
static double macro_f1(const struct train_score *s)
{
    double sum = 0, n = 0;

    for (size_t i = 0; i < s->classes; i++) {
        const struct tally *c = &s->tally[i];

        if (c->labels + c->answers == 0)
            continue;
        sum += 2 * (double)c->both / (double)(c->labels + c->answers);
        n++;
    }
    return sum / n;
}

void train_score_end(const struct train_score *s, struct train_scores *out)
{
    const double n = (double)s->n_values;

    *out = (struct train_scores){.n_samples = s->n_samples,
                                 .loss = NAN,
                                 .accuracy = NAN,
                                 .perplexity = NAN,
                                 .top5 = NAN,
                                 .f1 = NAN};
    if (s->n_values)
        out->loss = s->loss / n;
    if (!s->n_values || !is_of_classes(s))
        return;
    out->accuracy = (double)s->correct / n;
    out->perplexity = exp(out->loss);
    out->f1 = macro_f1(s);
    if (s->classes > TRAIN_TOP)
        out->top5 = (double)s->in_top / n;
}

void train_score_clear(struct train_score *s)
{
    s->n_samples = s->correct = s->in_top = s->n_values = 0;
    s->loss = 0;
    if (s->tally)
        memset(s->tally, 0, s->classes * sizeof(*s->tally));
}

void train_scores_join(const struct train_spec *t, const struct train_scores *heads,
                       struct train_scores *out)
{
    *out = heads[t->evaluation.head];
    out->loss = 0;
    for (uint32_t i = 0; i < t->n_heads; i++)
        out->loss += t->heads[i].weight * heads[i].loss;
}
