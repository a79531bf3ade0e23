/* train_spec.c - see train_spec.h. */
#include "common/train_spec.h"

#include "common/job.h"
#include "common/mem.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct train_spec DEFAULTS = {
    .heads = {{.loss = TRAIN_LOSS_XENT,
               .ignore_index = TRAIN_IGNORE_INDEX,
               .delta = 1,
               .weight = 1,
               .labels = "label"}},
    .n_heads = 1,
    .optimizer = TRAIN_SGD,
    .lr = 1e-3,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 1e-8,
    .schedule = {.gamma = 0.1, .peak_at = 0.3, .divide = 25, .end_divide = 1e4},
    .accumulate = 1,
    .batch = SH_JOB_BATCH,
    .precision = DEV_FP32,
    .shuffle = true,
    .publish = true,
};

static const char *const LOSSES[] = {
    [TRAIN_LOSS_XENT] = "cross-entropy",
    [TRAIN_LOSS_BCE] = "binary-cross-entropy",
    [TRAIN_LOSS_MSE] = "mse",
    [TRAIN_LOSS_L1] = "l1",
    [TRAIN_LOSS_HUBER] = "huber",
};
static const char *const OPTIMIZERS[] = {
    [TRAIN_SGD] = "sgd", [TRAIN_ADAM] = "adam", [TRAIN_ADAMW] = "adamw"};

static const char *const SCHEDULES[] = {
    [TRAIN_CONSTANT] = "constant", [TRAIN_LINEAR] = "linear",       [TRAIN_COSINE] = "cosine",
    [TRAIN_STEPWISE] = "step",     [TRAIN_ONE_CYCLE] = "one-cycle",
};

static const char *const METRICS[] = {
    [TRAIN_NO_METRIC] = "",
    [TRAIN_BY_LOSS] = "loss",
    [TRAIN_BY_PERPLEXITY] = "perplexity",
    [TRAIN_BY_ACCURACY] = "accuracy",
    [TRAIN_BY_TOP5] = "top5",
    [TRAIN_BY_F1] = "f1",
};

/* The first failure counts; what comes behind it is looked at all the same, for err->faults. */
static int also(int first, int next)
{
    return first ? first : next;
}

static bool is_given(const json_t *j, const char *name)
{
    const json_t *v = json_object_get(j, name);

    return v && !json_is_null(v);
}

static int choose(const char *field, const char *name, const char *const *list, size_t n, int *out,
                  struct sh_err *err)
{
    char known[160] = "";
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i], name) == 0) {
            *out = (int)i;
            return SH_OK;
        }
        if (len < sizeof(known))
            len +=
                (size_t)snprintf(known + len, sizeof(known) - len, "%s%s", i ? ", " : "", list[i]);
    }
    return sh_json_fail(err, field, "\"%s\" must be one of: %s; it is \"%.40s\"", field, known,
                        name);
}

/* A field of an object that is there for some of its names only. */
struct owned {
    const char *field;
    unsigned owners; /* bit set by number of the name */
};

/* A field that the chosen one has no use for is a mistake worth an answer. */
static int refuse_foreign(const json_t *obj, const char *path, const char *name, int chosen,
                          const struct owned *o, size_t n, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < n; i++)
        if (!(o[i].owners >> chosen & 1) && json_object_get(obj, o[i].field))
            rc = also(rc, sh_json_fail(err, path, "\"%s.%s\" does not belong to \"%s\"", path,
                                       o[i].field, name));
    return rc;
}

/* ------------------------------------------------------------------ the loss */

/* path: of the list, such as spec.loss.class_weights. */
static int check_weights(const char *path, const json_t *list, struct sh_err *err)
{
    double sum = 0;
    json_t *v;
    size_t i;

    json_array_foreach((json_t *)list, i, v)
    {
        if (!json_is_number(v) || !(json_number_value(v) >= 0 && json_number_value(v) <= 1e9))
            return sh_json_fail(err, path, "element %zu of \"%s\" is not a number from 0 to 1e9", i,
                                path);
        sum += json_number_value(v);
    }
    return sum > 0 ? SH_OK : sh_json_fail(err, path, "\"%s\" has nothing above 0", path);
}

/* One number for all, or a list. */
static int check_pos_weight(const char *path, const json_t *v, struct sh_err *err)
{
    if (json_is_array(v) && json_array_size(v) >= 1 && json_array_size(v) <= TRAIN_MAX_CLASSES)
        return check_weights(path, v, err);
    if (json_is_number(v) && json_number_value(v) > 0 && json_number_value(v) <= 1e9)
        return SH_OK;
    return sh_json_fail(err, path,
                        "\"%s\" must be a number above 0 and up to 1e9, or an array of 1 to %u, "
                        "one for each element of the output's last axis",
                        path, TRAIN_MAX_CLASSES);
}

#define PATH_BYTES 64 /* "spec.loss[7].label_smoothing" */

/* What cannot be said by ranges of fields. path: "spec.loss", or "spec.loss[1]". */
static int check_head(const char *path, const struct train_head *h, const json_t *class_weights,
                      const json_t *pos_weight, struct sh_err *err)
{
    char field[PATH_BYTES];
    int rc = SH_OK;

    if (class_weights) {
        snprintf(field, sizeof(field), "%s.class_weights", path);
        rc = check_weights(field, class_weights, err);
    }
    if (pos_weight) {
        snprintf(field, sizeof(field), "%s.pos_weight", path);
        rc = also(rc, check_pos_weight(field, pos_weight, err));
    }
    snprintf(field, sizeof(field), "%s.delta", path);
    if (!(h->delta > 0))
        rc = also(rc, sh_json_fail(err, field, "\"%s\" must be above 0", field));
    snprintf(field, sizeof(field), "%s.weight", path);
    if (!(h->weight > 0))
        rc = also(rc, sh_json_fail(err, field, "\"%s\" must be above 0", field));
    return rc;
}

static int read_head(const json_t *obj, const char *path, struct train_head *h, struct sh_err *err)
{
    static const struct owned OWNED[] = {
        {"ignore_index", 1u << TRAIN_LOSS_XENT},    {"class_weights", 1u << TRAIN_LOSS_XENT},
        {"label_smoothing", 1u << TRAIN_LOSS_XENT}, {"class_axis", 1u << TRAIN_LOSS_XENT},
        {"pos_weight", 1u << TRAIN_LOSS_BCE},       {"delta", 1u << TRAIN_LOSS_HUBER}};
    const char *name = NULL, *output = h->output, *labels = h->labels;
    json_t *class_weights = NULL, *pos_weight = NULL;
    char field[PATH_BYTES];
    int chosen = 0;
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true, .max = 32},
        {"output", SH_JSON_STR, &output, .min = 1, .max = TRAIN_MAX_TENSOR - 1, .in_bytes = true},
        {"labels", SH_JSON_STR, &labels, .min = 1, .max = TRAIN_MAX_TENSOR - 1, .in_bytes = true},
        {"weight", SH_JSON_F64, &h->weight, .min = 0, .max = 1e9},
        {"ignore_index", SH_JSON_INT, &h->ignore_index, .min = -1e9, .max = 1e9},
        {"class_weights", SH_JSON_ARR, &class_weights, .min = 1, .max = TRAIN_MAX_CLASSES},
        {"label_smoothing", SH_JSON_F64, &h->label_smoothing, .min = 0, .max = 1},
        {"class_axis", SH_JSON_INT, &h->class_axis, .min = -1, .max = SH_MAX_RANK - 1},
        {"pos_weight", SH_JSON_ANY, &pos_weight, .required = false},
        {"delta", SH_JSON_F64, &h->delta, .min = 0, .max = 1e9},
    };
    int rc = sh_json_read(obj, path, f, SH_ARRAY_LEN(f), err);

    if (!name)
        return rc;
    snprintf(field, sizeof(field), "%s.name", path);
    rc = also(rc, choose(field, name, LOSSES, SH_ARRAY_LEN(LOSSES), &chosen, err));
    if (rc)
        return rc;
    h->loss = (enum train_loss)chosen;
    rc = refuse_foreign(obj, path, name, chosen, OWNED, SH_ARRAY_LEN(OWNED), err);
    rc = also(rc, check_head(path, h, class_weights, pos_weight, err));
    h->weights = class_weights ? class_weights : pos_weight;
    if (output != h->output)
        sh_strlcpy(h->output, output, sizeof(h->output));
    if (labels != h->labels)
        sh_strlcpy(h->labels, labels, sizeof(h->labels));
    return rc;
}

/* Each has to say which output it is of. */
static int read_heads(const json_t *list, struct train_spec *t, struct sh_err *err)
{
    const size_t n = json_array_size(list);
    int rc = SH_OK;

    if (n < 1 || n > TRAIN_MAX_HEADS)
        return sh_json_fail(err, "spec.loss", "\"spec.loss\" may list 1 to %u losses, not %zu",
                            TRAIN_MAX_HEADS, n);
    t->n_heads = (uint32_t)n;
    for (size_t i = 1; i < n; i++)
        t->heads[i] = t->heads[0];
    for (size_t i = 0; i < n; i++) {
        const json_t *obj = json_array_get(list, i);
        char path[PATH_BYTES];

        snprintf(path, sizeof(path), "spec.loss[%zu]", i);
        if (!json_is_object(obj))
            rc =
                also(rc, sh_json_fail(err, path, "\"%s\" must be an object with a \"name\"", path));
        else
            rc = also(rc, read_head(obj, path, &t->heads[i], err));
        if (!rc && n > 1 && !t->heads[i].output[0])
            rc = also(rc, sh_json_fail(err, path,
                                       "\"%s.output\" is missing: of several losses each names the "
                                       "output that it is of",
                                       path));
    }
    return rc;
}

/* A name, an object with it, or a list of those. */
static int read_loss(const json_t *loss, struct train_spec *t, struct sh_err *err)
{
    int chosen = 0, rc;

    if (json_is_array(loss))
        return read_heads(loss, t, err);
    if (json_is_object(loss))
        return read_head(loss, "spec.loss", &t->heads[0], err);
    if (!json_is_string(loss))
        return sh_json_fail(err, "spec.loss",
                            "\"spec.loss\" must be a name or an object with a \"name\", or an "
                            "array of such objects");
    rc = choose("spec.loss", json_string_value(loss), LOSSES, SH_ARRAY_LEN(LOSSES), &chosen, err);
    t->heads[0].loss = (enum train_loss)chosen;
    return rc;
}

static bool is_alike(int64_t got, int64_t dim)
{
    return got == dim || dim < 1; /* an axis of any length */
}

int train_class_axis(const struct train_head *t, const char *output, uint32_t rank,
                     const int64_t *dims, uint32_t *out, struct sh_err *err)
{
    uint32_t wanted[2] = {1, rank - 1}, n = 2;

    *out = 1;
    if (rank < 2)
        return SH_FAIL(err, SH_E_INVALID,
                       "cross-entropy needs an output of shape [batch, classes], [batch, length, "
                       "classes] or [batch, classes, ...]; \"%s\" has %u dimensions",
                       output, rank);
    if (t->class_axis > 0 && t->class_axis >= (int64_t)rank)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"spec.loss.class_axis\" is %" PRId64 ", and \"%s\" has %u dimensions",
                       t->class_axis, output, rank);
    if (t->class_axis)
        wanted[0] = t->class_axis > 0 ? (uint32_t)t->class_axis : rank - 1, n = 1;
    if (t->label_rank == 0 && !t->class_axis && rank == 3)
        wanted[0] = 2;
    for (uint32_t i = 0; i < n; i++) {
        bool fits = t->label_rank == 0 || t->label_rank == rank - 1;

        for (uint32_t k = 1; fits && k < t->label_rank; k++)
            fits = is_alike(t->label_dims[k], dims[k < wanted[i] ? k : k + 1]);
        *out = wanted[i];
        if (fits)
            return SH_OK;
    }
    *out = wanted[0];
    return SH_FAIL(err, SH_E_INVALID,
                   "the labels do not have the shape of output \"%s\" without its axis of the "
                   "classes, which is axis 1 or the last; \"spec.loss.class_axis\" may say which",
                   output);
}

int train_check_weights(const struct train_head *t, int64_t n, struct sh_err *err)
{
    const size_t have = json_array_size(t->weights);

    if (!json_is_array(t->weights) || (int64_t)have == n)
        return SH_OK;
    return sh_json_fail(err, "spec.loss",
                        "\"spec.loss.%s\" has %zu elements, the output has %" PRId64,
                        t->loss == TRAIN_LOSS_XENT ? "class_weights" : "pos_weight", have, n);
}

/* ------------------------------------------------------------------ the optimizer */

static int read_optimizer(const json_t *obj, struct train_spec *t, struct sh_err *err)
{
    static const unsigned SGD = 1u << TRAIN_SGD, ADAM = 1u << TRAIN_ADAM | 1u << TRAIN_ADAMW;
    const struct owned OWNED[] = {
        {"momentum", SGD}, {"nesterov", SGD}, {"beta1", ADAM}, {"beta2", ADAM}, {"eps", ADAM}};
    const char *name = json_string_value(json_object_get(obj, "name"));
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true, .max = 16},
        {"lr", SH_JSON_F64, &t->lr, .min = 0, .max = 1e6},
        {"momentum", SH_JSON_F64, &t->momentum, .min = 0, .max = 1},
        {"weight_decay", SH_JSON_F64, &t->weight_decay, .min = 0, .max = 1e6},
        {"beta1", SH_JSON_F64, &t->beta1, .min = 0, .max = 0.9999999},
        {"beta2", SH_JSON_F64, &t->beta2, .min = 0, .max = 0.9999999},
        {"eps", SH_JSON_F64, &t->eps, .min = 0, .max = 1},
        {"nesterov", SH_JSON_BOOL, &t->nesterov, .required = false},
    };
    int rc, chosen = 0;

    if (name && strcmp(name, OPTIMIZERS[TRAIN_ADAMW]) == 0)
        t->weight_decay = 1e-2;
    rc = sh_json_read(obj, "spec.optimizer", f, SH_ARRAY_LEN(f), err);
    if (name)
        rc = also(rc, choose("spec.optimizer.name", name, OPTIMIZERS, SH_ARRAY_LEN(OPTIMIZERS),
                             &chosen, err));
    if (rc)
        return rc;
    t->optimizer = (enum train_optim)chosen;
    rc = refuse_foreign(obj, "spec.optimizer", name, chosen, OWNED, SH_ARRAY_LEN(OWNED), err);
    if (t->nesterov && t->momentum == 0.0)
        rc = also(rc, sh_json_fail(err, "spec.optimizer.nesterov",
                                   "\"spec.optimizer.nesterov\" needs a momentum above 0"));
    return rc;
}

/* ------------------------------------------------------------------ the schedule */

static int read_schedule_object(const json_t *obj, struct train_spec *t, struct sh_err *err)
{
    static const unsigned CYCLE = 1u << TRAIN_ONE_CYCLE, STEP = 1u << TRAIN_STEPWISE,
                          FALL = 1u << TRAIN_LINEAR | 1u << TRAIN_COSINE;
    const struct owned OWNED[] = {
        {"warmup_steps", ~CYCLE}, {"warmup_start", ~CYCLE}, {"end", FALL},
        {"every", STEP},          {"gamma", STEP},          {"peak_at", CYCLE},
        {"divide", CYCLE},        {"end_divide", CYCLE}};
    const char *name = NULL;
    int chosen = 0, rc;
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true, .max = 16},
        {"warmup_steps", SH_JSON_INT, &t->schedule.warmup_steps, .min = 0, .max = 1e12},
        {"warmup_start", SH_JSON_F64, &t->schedule.warmup_start, .min = 0, .max = 1},
        {"end", SH_JSON_F64, &t->schedule.end, .min = 0, .max = 1},
        {"every", SH_JSON_INT, &t->schedule.every, .min = 1, .max = 1e12},
        {"gamma", SH_JSON_F64, &t->schedule.gamma, .min = 0, .max = 1},
        {"peak_at", SH_JSON_F64, &t->schedule.peak_at, .min = 0, .max = 1},
        {"divide", SH_JSON_F64, &t->schedule.divide, .min = 1, .max = 1e9},
        {"end_divide", SH_JSON_F64, &t->schedule.end_divide, .min = 1, .max = 1e9},
    };

    rc = sh_json_read(obj, "spec.schedule", f, SH_ARRAY_LEN(f), err);
    if (name)
        rc = also(rc, choose("spec.schedule.name", name, SCHEDULES, SH_ARRAY_LEN(SCHEDULES),
                             &chosen, err));
    if (rc)
        return rc;
    t->schedule.kind = (enum train_schedule)chosen;
    rc = refuse_foreign(obj, "spec.schedule", name, chosen, OWNED, SH_ARRAY_LEN(OWNED), err);
    if (t->schedule.kind == TRAIN_STEPWISE && t->schedule.every == 0)
        rc = also(rc, sh_json_fail(err, "spec.schedule",
                                   "\"spec.schedule.every\" is missing: after how many steps the "
                                   "rate is multiplied by gamma"));
    return rc;
}

static int read_schedule(const json_t *schedule, struct train_spec *t, struct sh_err *err)
{
    int chosen = 0, rc;

    if (json_is_object(schedule))
        return read_schedule_object(schedule, t, err);
    if (!json_is_string(schedule))
        return sh_json_fail(err, "spec.schedule",
                            "\"spec.schedule\" must be a name or an object with a \"name\"");
    rc = choose("spec.schedule", json_string_value(schedule), SCHEDULES, SH_ARRAY_LEN(SCHEDULES),
                &chosen, err);
    t->schedule.kind = (enum train_schedule)chosen;
    if (!rc && t->schedule.kind == TRAIN_STEPWISE)
        rc = sh_json_fail(err, "spec.schedule",
                          "\"step\" needs an object: {\"name\":\"step\",\"every\":STEPS}");
    return rc;
}

/* From a to b along half a wave. part: 0 to 1. */
static double along_cosine(double a, double b, double part)
{
    return b + (a - b) * (1 + cos(3.14159265358979323846 * part)) / 2;
}

/* As torch.optim.lr_scheduler.OneCycleLR, of which lr is the largest rate. */
static double one_cycle(const struct train_spec *t, int64_t step, int64_t steps)
{
    const double top = (double)steps * t->schedule.peak_at - 1, last = (double)steps - 1;
    const double start = t->lr / t->schedule.divide, at = (double)step;

    if (at <= top && top > 0)
        return along_cosine(start, t->lr, at / top);
    return along_cosine(t->lr, start / t->schedule.end_divide,
                        last > top ? fmin((at - top) / (last - top), 1) : 1);
}

double train_rate(const struct train_spec *t, int64_t update, int64_t updates)
{
    const int64_t warmup = t->schedule.warmup_steps, at = update - warmup;
    const double start = t->schedule.warmup_start, end = t->schedule.end;
    const double part = updates > warmup ? fmin((double)at / (double)(updates - warmup), 1) : 1;

    if (t->schedule.kind == TRAIN_ONE_CYCLE)
        return one_cycle(t, update, updates);
    if (at < 0)
        return t->lr * (start + (1 - start) * (double)update / (double)warmup);
    switch (t->schedule.kind) {
    case TRAIN_LINEAR:
        return t->lr * (1 + (end - 1) * part);
    case TRAIN_COSINE:
        return t->lr * along_cosine(1, end, part);
    case TRAIN_STEPWISE:
        return t->lr * pow(t->schedule.gamma, (double)(at / t->schedule.every));
    default:
        return t->lr;
    }
}

void train_group(const struct train_spec *t, int64_t step, int64_t steps, int64_t *first,
                 int64_t *n)
{
    *first = step / t->accumulate * t->accumulate;
    *n = SH_MIN(*first + t->accumulate, steps) - *first;
}

/* ------------------------------------------------------------------ the scale of the loss */

/* A number that stays, or an object, of which all may be left out. Without either FP16 alone has
 * one, as torch.amp.GradScaler is by default. */
static int read_scale(const json_t *scale, struct train_spec *t, struct sh_err *err)
{
    static const char PATH[] = "spec.loss_scale";
    struct sh_json_field f[] = {
        {"init", SH_JSON_F64, &t->scale.init, .min = TRAIN_MIN_SCALE, .max = TRAIN_MAX_SCALE},
        {"growth", SH_JSON_F64, &t->scale.growth, .min = 1, .max = 1024},
        {"backoff", SH_JSON_F64, &t->scale.backoff, .min = 1.0 / 1024, .max = 1},
        {"interval", SH_JSON_INT, &t->scale.interval, .min = 1, .max = 1e6},
    };
    const double fixed = json_number_value(scale);

    if (json_is_object(scale) || (!scale && t->precision == DEV_FP16)) {
        t->scale.init = 65536;
        t->scale.growth = 2;
        t->scale.backoff = 0.5;
        t->scale.interval = 2000;
    }
    if (json_is_object(scale))
        return sh_json_read(scale, PATH, f, SH_ARRAY_LEN(f), err);
    if (!scale)
        return SH_OK;
    t->scale.init = fixed;
    t->scale.growth = t->scale.backoff = 1;
    t->scale.interval = 1;
    return json_is_number(scale) &&
                   (fixed == 0 || (fixed >= TRAIN_MIN_SCALE && fixed <= TRAIN_MAX_SCALE))
               ? SH_OK
               : sh_json_fail(err, PATH,
                              "\"%s\" must be 0 (none), a number from %g to %g that stays, or an "
                              "object with \"init\", \"growth\", \"backoff\" and \"interval\"",
                              PATH, TRAIN_MIN_SCALE, TRAIN_MAX_SCALE);
}

/* ------------------------------------------------------------------ evaluations */

const char *train_metric_name(enum train_metric m)
{
    return METRICS[m];
}

static int choose_head(const char *output, struct train_spec *t, struct sh_err *err)
{
    for (uint32_t i = 0; i < t->n_heads; i++)
        if (strcmp(t->heads[i].output, output) == 0) {
            t->evaluation.head = i;
            return SH_OK;
        }
    return sh_json_fail(err, "spec.evaluation.output",
                        "\"spec.evaluation.output\" is \"%s\", and no loss is of that output",
                        output);
}

/* Behind the loss, as most metrics are of classes. */
static int read_evaluation(const json_t *obj, struct train_spec *t, struct sh_err *err)
{
    static const char PATH[] = "spec.evaluation";
    const char *best = NULL, *output = NULL;
    int chosen = 0, rc;
    struct sh_json_field f[] = {
        {"output", SH_JSON_STR, &output, .min = 1, .max = TRAIN_MAX_TENSOR - 1, .in_bytes = true},
        {"every", SH_JSON_INT, &t->evaluation.every, .required = true, .min = 1, .max = 1e12},
        {"best", SH_JSON_STR, &best, .min = 1, .max = 16},
        {"patience", SH_JSON_INT, &t->evaluation.patience, .min = 0, .max = 1e9},
        {"min_delta", SH_JSON_F64, &t->evaluation.min_delta, .min = 0, .max = 1e30},
    };

    rc = sh_json_read(obj, PATH, f, SH_ARRAY_LEN(f), err);
    if (best)
        rc = also(rc, choose("spec.evaluation.best", best, METRICS + 1, SH_ARRAY_LEN(METRICS) - 1,
                             &chosen, err));
    if (!rc && output)
        rc = choose_head(output, t, err);
    if (rc)
        return rc;
    if (best)
        t->evaluation.best = (enum train_metric)(chosen + 1);
    if (t->evaluation.best > TRAIN_BY_LOSS && t->heads[t->evaluation.head].loss != TRAIN_LOSS_XENT)
        rc = sh_json_fail(err, "spec.evaluation.best",
                          "\"spec.evaluation.best\" can be \"%s\" with the loss "
                          "\"cross-entropy\" alone; \"loss\" goes with all",
                          best);
    if (!best && (t->evaluation.patience || t->evaluation.min_delta > 0))
        rc = also(rc, sh_json_fail(err, PATH,
                                   "\"patience\" and \"min_delta\" of \"%s\" need \"best\", the "
                                   "metric that they go by",
                                   PATH));
    return rc;
}

/* ------------------------------------------------------------------ names of parameters */

/* A glob, or a list of them. */
static int check_globs(const char *path, const json_t *v, struct sh_err *err)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    bool ok = n >= 1 && n <= TRAIN_MAX_GLOBS;

    for (size_t i = 0; ok && i < n; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        const size_t len = json_string_length(one);

        ok = json_is_string(one) && len >= 1 && len <= TRAIN_MAX_GLOB;
    }
    return ok ? SH_OK
              : sh_json_fail(err, path,
                             "\"%s\" must be a name of parameters such as \"layer1.*\", or an "
                             "array of 1 to %u, each of at most %u characters",
                             path, TRAIN_MAX_GLOBS, TRAIN_MAX_GLOB);
}

bool train_names(const json_t *globs, const char *name)
{
    for (size_t i = 0; i < json_array_size(globs); i++)
        if (fnmatch(json_string_value(json_array_get(globs, i)), name, 0) == 0)
            return true;
    return json_is_string(globs) && fnmatch(json_string_value(globs), name, 0) == 0;
}

/* "version", "random", or {"random": names}. */
static int read_init(const json_t *init, struct train_spec *t, struct sh_err *err)
{
    const char *word = json_is_string(init) ? json_string_value(init) : "";
    const json_t *names = json_object_get(init, "random");

    if (!init || json_is_null(init) || strcmp(word, "version") == 0)
        return SH_OK;
    t->draws = true;
    if (strcmp(word, "random") == 0)
        return SH_OK;
    if (names && json_object_size(init) == 1)
        return check_globs("spec.init.random", t->init = names, err);
    return sh_json_fail(err, "spec.init",
                        "\"spec.init\" must be \"version\" (the version's weights), \"random\" "
                        "(from scratch), or {\"random\": NAMES} for some parameters");
}

/* What is done with gradients and weights beside the optimizer's formula. */
static int read_update(const json_t *spec, struct train_spec *t, struct sh_err *err)
{
    const json_t *no_decay = json_object_get(spec, "no_decay");
    int rc = SH_OK;

    if (json_is_boolean(no_decay))
        t->no_decay_vectors = json_is_true(no_decay);
    else if (is_given(spec, "no_decay"))
        rc = check_globs("spec.no_decay", t->no_decay = no_decay, err);
    if (is_given(spec, "frozen"))
        rc = also(rc, check_globs("spec.frozen", t->frozen = json_object_get(spec, "frozen"), err));
    rc = also(rc, read_init(json_object_get(spec, "init"), t, err));
    if (t->clip_norm > 0 && t->clip_value > 0)
        rc = also(rc, sh_json_fail(err, "spec.clip_value",
                                   "give either \"spec.clip_norm\" or \"spec.clip_value\""));
    if (t->steps && t->schedule.warmup_steps > (t->steps - 1) / t->accumulate + 1)
        rc = also(rc, sh_json_fail(err, "spec.schedule.warmup_steps",
                                   "\"spec.schedule.warmup_steps\" is %" PRId64
                                   ", more than the %" PRId64 " updates of \"spec.steps\"",
                                   t->schedule.warmup_steps, (t->steps - 1) / t->accumulate + 1));
    return rc;
}

/* ------------------------------------------------------------------ the whole */

int train_spec_read(const json_t *spec, struct train_spec *out, struct sh_err *err)
{
    struct train_spec t = DEFAULTS;
    const char *labels = NULL, *precision = "fp32";
    json_t *optimizer = NULL, *loss = NULL, *schedule = NULL, *names = NULL, *augment = NULL,
           *evaluation = NULL, *scale = NULL;
    int64_t seed = 0;
    struct sh_json_field f[] = {
        {"loss", SH_JSON_ANY, &loss, .required = false},
        {"optimizer", SH_JSON_OBJ, &optimizer, .required = true},
        {"schedule", SH_JSON_ANY, &schedule, .required = false},
        {"batch", SH_JSON_INT, &t.batch, .min = 1, .max = 65536},
        {"steps", SH_JSON_INT, &t.steps, .min = 1, .max = 1e12},
        {"epochs", SH_JSON_INT, &t.epochs, .min = 1, .max = 1e9},
        {"seed", SH_JSON_INT, &seed, .min = 0, .max = 9e15},
        {"labels", SH_JSON_STR, &labels, .min = 1, .max = TRAIN_MAX_TENSOR - 1, .in_bytes = true},
        {"precision", SH_JSON_STR, &precision, .max = 8},
        {"clip_norm", SH_JSON_F64, &t.clip_norm, .min = 0, .max = 1e30},
        {"clip_value", SH_JSON_F64, &t.clip_value, .min = 0, .max = 1e30},
        {"no_decay", SH_JSON_ANY, &names, .required = false},
        {"frozen", SH_JSON_ANY, &names, .required = false},
        {"init", SH_JSON_ANY, &names, .required = false},
        {"accumulate", SH_JSON_INT, &t.accumulate, .min = 1, .max = 65536},
        {"ema", SH_JSON_F64, &t.ema, .min = 0, .max = 0.9999999},
        {"loss_scale", SH_JSON_ANY, &scale, .required = false},
        {"evaluation", SH_JSON_OBJ, &evaluation, .required = false},
        {"shuffle", SH_JSON_BOOL, &t.shuffle, .required = false},
        {"shuffle_window", SH_JSON_INT, &t.shuffle_window, .min = 0, .max = UINT32_MAX},
        {"publish", SH_JSON_BOOL, &t.publish, .required = false},
        {"checkpoint_interval_ms", SH_JSON_INT, &t.checkpoint_interval_ms, .min = 0, .max = 864e5},
        {"augment", SH_JSON_ARR, &augment, .min = 0, .max = 16},
    };
    int rc = sh_json_read(spec, "spec", f, SH_ARRAY_LEN(f), err);
    struct sh_err why = {0};

    if (labels) /* of every head that has none of its own */
        sh_strlcpy(t.heads[0].labels, labels, sizeof(t.heads[0].labels));
    if (loss)
        rc = also(rc, read_loss(loss, &t, err));
    if (dev_precision_parse(precision, &t.precision, &why))
        rc = also(rc, sh_json_fail(err, "spec.precision", "\"spec.precision\": %s", why.msg));
    rc = also(rc, read_scale(scale, &t, err));
    if (optimizer)
        rc = also(rc, read_optimizer(optimizer, &t, err));
    if (schedule)
        rc = also(rc, read_schedule(schedule, &t, err));
    if (augment)
        rc = also(rc, augment_read(augment, &t.augment, err));
    if (evaluation)
        rc = also(rc, read_evaluation(evaluation, &t, err));
    if (is_given(spec, "steps") == is_given(spec, "epochs"))
        rc = also(rc, sh_json_fail(err, "spec",
                                   "give either \"spec.steps\" or \"spec.epochs\", one of them"));
    rc = also(rc, read_update(spec, &t, err));
    if (rc)
        return rc;
    t.seed = (uint64_t)seed;
    *out = t;
    return SH_OK;
}
