/* train_spec.c - see train_spec.h. */
#include "common/train_spec.h"

#include "common/mem.h"
#include "common/train_option.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

static int check_lists(const char *path, const struct train_reading *r, struct sh_err *err)
{
    char field[PATH_BYTES];
    int rc = SH_OK;

    if (r->class_weights) {
        snprintf(field, sizeof(field), "%s.class_weights", path);
        rc = check_weights(field, r->class_weights, err);
    }
    if (r->pos_weight) {
        snprintf(field, sizeof(field), "%s.pos_weight", path);
        rc = sh_rc_first(rc, check_pos_weight(field, r->pos_weight, err));
    }
    return rc;
}

/* path: "spec.loss", or "spec.loss[1]". */
static int read_head_spec(const json_t *obj, const char *path, struct train_head *h,
                          struct sh_err *err)
{
    const struct sh_fields *f = &TRAIN_PART_FIELDS[TRAIN_LOSS];
    struct train_reading r = {.head = *h};
    char field[PATH_BYTES];
    unsigned chosen = 0;
    int rc = sh_fields_take(obj, path, f, &r, err);

    if (!r.name)
        return rc;
    snprintf(field, sizeof(field), "%s.name", path);
    rc = sh_rc_first(rc, sh_field_word(field, r.name, train_part_names(TRAIN_LOSS), &chosen, err));
    if (rc)
        return rc;
    *h = r.head;
    h->loss = (enum train_loss)chosen;
    rc = sh_fields_refuse(obj, path, f, r.name, chosen, err);
    rc = sh_rc_first(rc, check_lists(path, &r, err));
    h->weights = r.class_weights ? r.class_weights : r.pos_weight;
    if (r.output)
        sh_strlcpy(h->output, r.output, sizeof(h->output));
    if (r.head_labels)
        sh_strlcpy(h->labels, r.head_labels, sizeof(h->labels));
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
            rc = sh_rc_first(
                rc, sh_json_fail(err, path, "\"%s\" must be an object with a \"name\"", path));
        else
            rc = sh_rc_first(rc, read_head_spec(obj, path, &t->heads[i], err));
        if (!rc && n > 1 && !t->heads[i].output[0])
            rc = sh_rc_first(
                rc, sh_json_fail(err, path,
                                 "\"%s.output\" is missing: of several losses each names the "
                                 "output that it is of",
                                 path));
    }
    return rc;
}

/* A name, an object with it, or a list of those. */
static int read_loss(const json_t *loss, struct train_spec *t, struct sh_err *err)
{
    unsigned chosen = 0;
    int rc;

    if (json_is_array(loss))
        return read_heads(loss, t, err);
    if (json_is_object(loss))
        return read_head_spec(loss, "spec.loss", &t->heads[0], err);
    if (!json_is_string(loss))
        return sh_json_fail(err, "spec.loss",
                            "\"spec.loss\" must be a name or an object with a \"name\", or an "
                            "array of such objects");
    rc = sh_field_word("spec.loss", json_string_value(loss), train_part_names(TRAIN_LOSS), &chosen,
                       err);
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

static int read_optimizer(const json_t *obj, struct train_reading *r, struct sh_err *err)
{
    const struct sh_fields *f = &TRAIN_PART_FIELDS[TRAIN_OPTIMIZER];
    struct train_spec *t = &r->t;
    unsigned chosen = 0;
    int rc;

    if (strcmp(sh_json_text(obj, "name"), "adamw") == 0)
        t->weight_decay = 1e-2;
    r->name = NULL;
    rc = sh_fields_take(obj, "spec.optimizer", f, r, err);
    if (r->name)
        rc = sh_rc_first(rc, sh_field_word("spec.optimizer.name", r->name,
                                           train_part_names(TRAIN_OPTIMIZER), &chosen, err));
    if (rc)
        return rc;
    t->optimizer = (enum train_optim)chosen;
    rc = sh_fields_refuse(obj, "spec.optimizer", f, r->name, chosen, err);
    if (t->nesterov && t->momentum == 0.0)
        rc = sh_rc_first(rc, sh_json_fail(err, "spec.optimizer.nesterov",
                                          "\"spec.optimizer.nesterov\" needs a momentum above 0"));
    return rc;
}

/* ------------------------------------------------------------------ the learning rate */

static int read_schedule_object(const json_t *obj, struct train_reading *r, struct sh_err *err)
{
    const struct sh_fields *f = &TRAIN_PART_FIELDS[TRAIN_SCHEDULE];
    struct train_spec *t = &r->t;
    unsigned chosen = 0;
    int rc;

    r->name = NULL;
    rc = sh_fields_take(obj, "spec.schedule", f, r, err);
    if (r->name)
        rc = sh_rc_first(rc, sh_field_word("spec.schedule.name", r->name,
                                           train_part_names(TRAIN_SCHEDULE), &chosen, err));
    if (rc)
        return rc;
    t->schedule.kind = (enum train_schedule)chosen;
    rc = sh_fields_refuse(obj, "spec.schedule", f, r->name, chosen, err);
    if (t->schedule.kind == TRAIN_STEPWISE && t->schedule.every == 0)
        rc = sh_rc_first(
            rc, sh_json_fail(err, "spec.schedule",
                             "\"spec.schedule.every\" is missing: after how many steps the "
                             "rate is multiplied by gamma"));
    return rc;
}

static int read_schedule(const json_t *schedule, struct train_reading *r, struct sh_err *err)
{
    struct train_spec *t = &r->t;
    unsigned chosen = 0;
    int rc;

    if (json_is_object(schedule))
        return read_schedule_object(schedule, r, err);
    if (!json_is_string(schedule))
        return sh_json_fail(err, "spec.schedule",
                            "\"spec.schedule\" must be a name or an object with a \"name\"");
    rc = sh_field_word("spec.schedule", json_string_value(schedule),
                       train_part_names(TRAIN_SCHEDULE), &chosen, err);
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
static int read_scale(const json_t *scale, struct train_reading *r, struct sh_err *err)
{
    static const char PATH[] = "spec.loss_scale";
    const struct sh_fields *f = &TRAIN_PART_FIELDS[TRAIN_SCALE];
    const double fixed = json_number_value(scale);
    struct train_spec *t = &r->t;

    if (json_is_object(scale) || (!scale && t->precision == DEV_FP16))
        sh_fields_preset(f, r);
    if (json_is_object(scale))
        return sh_fields_take(scale, PATH, f, r, err);
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
    static const char *const NAMES[] = {"",
#define X(id, word) word,
                                        TRAIN_METRICS(X, )
#undef X
    };

    return NAMES[m];
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
static int read_evaluation_spec(const json_t *obj, struct train_reading *r, struct sh_err *err)
{
    static const char PATH[] = "spec.evaluation";
    const struct sh_fields *f = &TRAIN_PART_FIELDS[TRAIN_EVALUATION];
    struct train_spec *t = &r->t;
    unsigned chosen = 0;
    int rc;

    sh_fields_preset(f, r);
    rc = sh_fields_take(obj, PATH, f, r, err);
    if (r->best)
        rc = sh_rc_first(rc, sh_field_word("spec.evaluation.best", r->best,
                                           TRAIN_METRICS(TRAIN_WORD, ","), &chosen, err));
    if (!rc && r->of_output)
        rc = choose_head(r->of_output, t, err);
    if (rc)
        return rc;
    if (r->best)
        t->evaluation.best = (enum train_metric)(chosen + 1);
    if (t->evaluation.best > TRAIN_BY_LOSS && t->heads[t->evaluation.head].loss != TRAIN_LOSS_XENT)
        rc = sh_json_fail(err, "spec.evaluation.best",
                          "\"spec.evaluation.best\" can be \"%s\" with the loss "
                          "\"cross-entropy\" alone; \"loss\" goes with all",
                          r->best);
    if (!r->best && (t->evaluation.patience || t->evaluation.min_delta > 0))
        rc = sh_rc_first(rc,
                         sh_json_fail(err, PATH,
                                      "\"patience\" and \"min_delta\" of \"%s\" need \"best\", the "
                                      "metric that they go by",
                                      PATH));
    return rc;
}

/* ------------------------------------------------------------------ names of parameters */

/* A glob, or a list of them. */
static int check_glob_list(const char *path, const json_t *v, struct sh_err *err)
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
        return check_glob_list("spec.init.random", t->init = names, err);
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
    else if (sh_json_is_given(spec, "no_decay"))
        rc = check_glob_list("spec.no_decay", t->no_decay = no_decay, err);
    if (sh_json_is_given(spec, "frozen"))
        rc = sh_rc_first(
            rc, check_glob_list("spec.frozen", t->frozen = json_object_get(spec, "frozen"), err));
    rc = sh_rc_first(rc, read_init(json_object_get(spec, "init"), t, err));
    if (t->clip_norm > 0 && t->clip_value > 0)
        rc = sh_rc_first(rc, sh_json_fail(err, "spec.clip_value",
                                          "give either \"spec.clip_norm\" or \"spec.clip_value\""));
    if (t->steps && t->schedule.warmup_steps > (t->steps - 1) / t->accumulate + 1)
        rc = sh_rc_first(rc, sh_json_fail(err, "spec.schedule.warmup_steps",
                                          "\"spec.schedule.warmup_steps\" is %" PRId64
                                          ", more than the %" PRId64 " updates of \"spec.steps\"",
                                          t->schedule.warmup_steps,
                                          (t->steps - 1) / t->accumulate + 1));
    return rc;
}

/* ------------------------------------------------------------------ the whole */

/* Objects and lists of the spec, each by its part of the table. */
static int read_parts(const json_t *spec, struct train_reading *r, struct sh_err *err)
{
    struct train_spec *t = &r->t;
    struct sh_err why = {0};
    int rc = SH_OK;

    if (r->loss)
        rc = read_loss(r->loss, t, err);
    if (dev_precision_parse(r->precision, &t->precision, &why))
        rc =
            sh_rc_first(rc, sh_json_fail(err, "spec.precision", "\"spec.precision\": %s", why.msg));
    rc = sh_rc_first(rc, read_scale(r->scale, r, err));
    if (r->optimizer)
        rc = sh_rc_first(rc, read_optimizer(r->optimizer, r, err));
    if (r->schedule)
        rc = sh_rc_first(rc, read_schedule(r->schedule, r, err));
    if (r->augment)
        rc = sh_rc_first(rc, augment_read(r->augment, &t->augment, err));
    if (r->evaluation)
        rc = sh_rc_first(rc, read_evaluation_spec(r->evaluation, r, err));
    if (sh_json_is_given(spec, "steps") == sh_json_is_given(spec, "epochs"))
        rc = sh_rc_first(
            rc, sh_json_fail(err, "spec",
                             "give either \"spec.steps\" or \"spec.epochs\", one of them"));
    if (r->publish_as && !sh_alias_is_name(r->publish_as))
        rc = sh_rc_first(rc,
                         sh_json_fail(err, "spec.publish_as",
                                      "\"spec.publish_as\" must be an alias: 1 to %d lower-case "
                                      "letters, digits or hyphens, of which the first is a letter",
                                      SH_ALIAS_NAME - 1));
    if (r->publish_as && !t->publish)
        rc = sh_rc_first(rc,
                         sh_json_fail(err, "spec.publish_as",
                                      "\"spec.publish_as\" names a version that \"spec.publish\" "
                                      "says not to make"));
    return sh_rc_first(rc, read_update(spec, t, err));
}

/* What holds where a spec says nothing. */
static void preset(struct train_reading *r)
{
    static const enum train_part PARTS[] = {TRAIN_SPEC, TRAIN_LOSS, TRAIN_OPTIMIZER,
                                            TRAIN_SCHEDULE};

    for (size_t i = 0; i < SH_ARRAY_LEN(PARTS); i++)
        sh_fields_preset(&TRAIN_PART_FIELDS[PARTS[i]], r);
}

int train_spec_read(const json_t *spec, struct train_spec *out, struct sh_err *err)
{
    const struct sh_fields *f = &TRAIN_PART_FIELDS[TRAIN_SPEC];
    struct train_reading r = {0};
    int rc;

    preset(&r);
    rc = sh_fields_take(spec, "spec", f, &r, err);
    r.t.n_heads = 1;
    r.t.heads[0] = r.head;
    sh_strlcpy(r.t.heads[0].labels, r.labels, sizeof(r.t.heads[0].labels));
    rc = sh_rc_first(rc, read_parts(spec, &r, err));
    if (rc)
        return rc;
    r.t.seed = (uint64_t)r.seed;
    *out = r.t;
    return SH_OK;
}
