/* jobspec.c - see jobspec.h. */
#include "api/spec/jobspec.h"

#include "api/request/noun.h"
#include "api/spec/batchspec.h"
#include "common/importer.h"
#include "common/job.h"
#include "common/mem.h"
#include "common/sample.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHAPE_TEXT 128

static int read_training(const json_t *j, struct jobspec *out, struct sh_err *err)
{
    int rc = train_spec_read(j, &out->train, err);

    out->names_batch = sh_json_is_given(j, "batch");
    if (rc)
        return rc;
    out->batch = out->train.batch;
    if (out->train.evaluation.every && !out->eval_dataset)
        return sh_json_fail(err, "eval_dataset", "\"spec.evaluation\" needs an \"eval_dataset\"");
    return out->train.precision == DEV_FP64
               ? sh_json_fail(err, "spec.precision",
                              "\"spec.precision\" must be one of: fp32, tf32, fp16, bf16")
               : SH_OK;
}

bool jobspec_is_label(const char *key)
{
    size_t len = strlen(key);

    return len >= 1 && len <= 63 && !strchr("._/-", key[0]) &&
           strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-") == len;
}

static int check_labels_map(const json_t *labels, bool may_remove, struct sh_err *err)
{
    const char *key;
    json_t *v;
    int rc = SH_OK;

    if (json_object_size(labels) > JOBSPEC_MAX_LABELS)
        return sh_json_fail(err, "labels", "\"labels\" may have at most %u members",
                            JOBSPEC_MAX_LABELS);
    json_object_foreach((json_t *)labels, key, v)
    {
        if (!jobspec_is_label(key))
            rc = sh_json_fail(
                err, "labels",
                "the label \"%.64s\" must be 1 to 63 letters, digits, '.', '_', '/' or "
                "'-' and begin with a letter or digit",
                key);
        if (may_remove && json_is_null(v))
            continue;
        if (!json_is_string(v) || sh_utf8_count(json_string_value(v)) > JOBSPEC_MAX_TEXT)
            rc = sh_json_fail(err, "labels",
                              "the label \"%.64s\" must have a text of at most %d characters", key,
                              JOBSPEC_MAX_TEXT);
    }
    return rc;
}

int jobspec_read_patch(const json_t *body, struct sh_err *err)
{
    const char *deadline = NULL;
    json_t *labels = NULL;
    int64_t priority = 0;
    struct sh_json_field f[] = {
        {"priority", SH_JSON_INT, &priority, .min = -1000, .max = 1000},
        {"labels", SH_JSON_OBJ, &labels, .required = false},
        {"deadline", SH_JSON_STR, &deadline, .min = 1, .max = 35},
    };
    int rc = sh_json_read(body, "", f, SH_ARRAY_LEN(f), err);

    if (!rc && labels)
        rc = check_labels_map(labels, true, err);
    if (!rc && deadline)
        rc = noun_check_future("deadline", deadline, err);
    if (!rc && (json_is_null(json_object_get(body, "labels")) ||
                json_is_null(json_object_get(body, "priority"))))
        rc = SH_FAIL(err, SH_E_INVALID, "only a label and \"deadline\" can be removed with null");
    if (!rc && json_object_size(body) == 0)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "nothing to change: give \"priority\", \"labels\" or \"deadline\"");
    return rc;
}

static int check_gpus(const struct jobspec *s, struct sh_err *err)
{
    if (s->gpus <= SH_JOB_MAX_GPUS)
        return SH_OK;
    return SH_FAIL(err, SH_E_MULTIGPU,
                   "\"gpus\" is %" PRId64 ", and this release runs a job on at most %d GPU: leave "
                   "it out",
                   s->gpus, SH_JOB_MAX_GPUS);
}

int jobspec_read(const json_t *body, struct jobspec *out, struct sh_err *err)
{
    json_t *spec = NULL, *labels = NULL;
    struct sh_json_field f[] = {
        {"kind", SH_JSON_STR, &out->kind, .required = true},
        {"model", SH_JSON_STR, &out->model, .required = true, .min = 1, .max = 128},
        {"version", SH_JSON_INT, &out->version, .min = 1, .max = INT32_MAX, .word = "latest"},
        {"dataset", SH_JSON_STR, &out->dataset, .required = true, .min = 1, .max = 128},
        {"eval_dataset", SH_JSON_STR, &out->eval_dataset, .min = 1, .max = 128},
        {"queue", SH_JSON_STR, &out->queue, .min = 1, .max = 63},
        {"priority", SH_JSON_INT, &out->priority, .min = -1000, .max = 1000},
        {"name", SH_JSON_STR, &out->name, .max = JOBSPEC_MAX_TEXT},
        {"max_attempts", SH_JSON_INT, &out->max_attempts, .min = 1, .max = 100},
        {"labels", SH_JSON_OBJ, &labels, .required = false},
        {"deadline", SH_JSON_STR, &out->deadline, .min = 1, .max = 35},
        {"min_runtime_ms", SH_JSON_INT, &out->min_runtime_ms, .min = 0, .max = 864e5},
        {"gpus", SH_JSON_INT, &out->gpus, .min = 1, .max = SH_JOB_MOST_GPUS},
        {"hold", SH_JSON_BOOL, &out->hold, .required = false},
        {"preemptible", SH_JSON_BOOL, &out->preemptible, .required = false},
        {"client_token", SH_JSON_STR, &out->client_token, .min = 1, .max = 255},
        {"spec", SH_JSON_OBJ, &spec, .required = true},
    };
    int rc;

    *out = (struct jobspec){.queue = "default",
                            .name = "",
                            .max_attempts = 5,
                            .preemptible = true,
                            .gpus = 1,
                            .batch = SH_JOB_BATCH};
    rc = sh_json_read(body, "", f, SH_ARRAY_LEN(f), err);
    out->spec = spec;
    out->label_map = labels;
    out->is_batch = out->kind && strcmp(out->kind, "batch_inference") == 0;
    if (out->kind)
        rc = sh_rc_first(rc, noun_check_choice("kind", out->kind, SH_JOB_KINDS, err));
    if (out->model)
        rc = sh_rc_first(rc, noun_check_name("model", out->model, err));
    if (out->dataset)
        rc = sh_rc_first(rc, noun_check_name("dataset", out->dataset, err));
    if (out->eval_dataset)
        rc = sh_rc_first(rc, noun_check_name("eval_dataset", out->eval_dataset, err));
    rc = sh_rc_first(rc, noun_check_tenant_name("queue", out->queue, err));
    if (labels)
        rc = sh_rc_first(rc, check_labels_map(labels, false, err));
    if (out->deadline)
        rc = sh_rc_first(rc, noun_check_future("deadline", out->deadline, err));
    if (spec && out->kind)
        rc = sh_rc_first(rc, out->is_batch ? batchspec_read(spec, out, err)
                                           : read_training(spec, out, err));
    return rc ? rc : check_gpus(out, err);
}

bool jobspec_wants_upload(const struct jobspec *s)
{
    return s->version == 0 && !s->is_batch;
}

/* A file with a fixed batch trains with that one. */
static int settle_batch(struct jobspec *s, const json_t *version, struct sh_err *err)
{
    const json_t *inputs = json_object_get(version, "inputs");
    int64_t fixed = sh_sample_fixed_batch(inputs);
    const char *odd;

    if (!sh_sample_is_axis(inputs, fixed, &odd))
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "the first axis of input \"%s\" of model \"%s\" is not the batch: there "
                       "are no samples of it in a dataset",
                       odd ? odd : "", s->model);
    if (fixed && s->names_batch && s->batch != fixed)
        return sh_json_fail(err, "spec.batch",
                            "\"spec.batch\" is %" PRId64 ", and model \"%s\" has a fixed batch of "
                            "%" PRId64 ": leave it out, or export the model with a dynamic first "
                            "axis",
                            s->batch, s->model, fixed);
    if (!fixed || s->names_batch)
        return SH_OK;
    s->batch = fixed;
    return json_object_set_new((json_t *)s->spec, "batch", json_integer(fixed))
               ? SH_FAIL(err, SH_E_NOMEM, "could not note the batch of a job")
               : SH_OK;
}

static uint32_t dims_of(const json_t *shape, int64_t dims[static SH_MAX_RANK])
{
    size_t n = json_array_size(shape);

    for (size_t i = 0; i < n && i < SH_MAX_RANK; i++)
        dims[i] = json_integer_value(json_array_get(shape, i));
    return n <= SH_MAX_RANK ? (uint32_t)n : 0;
}

const json_t *jobspec_find_tensor(const json_t *list, const char *name)
{
    size_t i;
    json_t *t;

    json_array_foreach((json_t *)list, i, t)
    {
        if (strcmp(sh_json_text(t, "name"), name) == 0)
            return t;
    }
    return NULL;
}

/* "image, label", as many as there is room for. */
static void names_text(const json_t *list, char out[static SHAPE_TEXT])
{
    size_t i, n = 0;
    json_t *t;

    out[0] = '\0';
    json_array_foreach((json_t *)list, i, t)
    {
        const char *name = sh_json_text(t, "name"), *comma = n ? ", " : "";

        if (n + strlen(name) + 2 * sizeof(", ...") > SHAPE_TEXT) {
            snprintf(out + n, SHAPE_TEXT - n, "%s...", comma);
            return;
        }
        n += (size_t)snprintf(out + n, SHAPE_TEXT - n, "%s%s", comma, name);
    }
}

/* What of the loss can be known without the labels. */
static int fits_output(const struct train_head *t, const json_t *out, struct sh_err *err)
{
    int64_t dims[SH_MAX_RANK];
    uint32_t axis, rank = dims_of(json_object_get(out, "shape"), dims);
    struct sh_err why = {0};

    if (t->loss != TRAIN_LOSS_XENT ||
        train_class_axis(t, sh_json_text(out, "name"), rank, dims, &axis, &why) == SH_OK)
        return SH_OK;
    return SH_FAIL(err, SH_E_UNSUPPORTED, "%s", why.msg);
}

/* A head that names no output is of the first. NULL: there is none. */
static const json_t *output_of(const json_t *outputs, const struct train_head *h)
{
    return h->output[0] ? jobspec_find_tensor(outputs, h->output) : json_array_get(outputs, 0);
}

static int fits_heads(const struct jobspec *s, const json_t *outputs, struct sh_err *err)
{
    char names[SHAPE_TEXT];
    int rc = SH_OK;

    names_text(outputs, names);
    if (s->train.n_heads == 1 && !s->train.heads[0].output[0] && json_array_size(outputs) != 1)
        return sh_json_fail(
            err, "spec.loss",
            "model \"%s\" has %zu outputs (%s): name the one to train in \"spec.loss.output\"; to "
            "train several, make \"spec.loss\" an array of such objects",
            s->model, json_array_size(outputs), names);
    for (uint32_t i = 0; !rc && i < s->train.n_heads; i++) {
        const struct train_head *h = &s->train.heads[i];
        const json_t *out = output_of(outputs, h);

        rc = out ? fits_output(h, out, err)
                 : sh_json_fail(err, "spec.loss", "model \"%s\" has no output \"%s\"; it has: %s",
                                s->model, h->output, names);
    }
    return rc;
}

int jobspec_fits_model(struct jobspec *s, const json_t *version, struct sh_err *err)
{
    const json_t *meta = json_object_get(version, "meta");
    const json_t *outputs = json_object_get(version, "outputs");
    const char *state = sh_json_text(version, "state"), *note = sh_json_text(meta, "training_note");
    json_int_t number = json_integer_value(json_object_get(version, "version"));
    int rc;

    if (strcmp(state, "UPLOADING") == 0 || strcmp(state, "FAILED") == 0)
        return SH_FAIL(err, SH_E_CONFLICT,
                       "version %" JSON_INTEGER_FORMAT " of model \"%s\" is %s; a job needs one "
                       "that was uploaded and accepted",
                       number, s->model, state);
    if (s->is_batch)
        return batchspec_fits_model(s, version, err);
    if (json_integer_value(json_object_get(meta, "importer")) != SH_IMPORTER)
        return SH_FAIL(err, SH_E_CONFLICT,
                       "version %" JSON_INTEGER_FORMAT " of model \"%s\" was imported by another "
                       "release, which may have found other parameters in its file; push the file "
                       "again (shunt push model %s FILE) and train the new version",
                       number, s->model, s->model);
    if (!json_is_true(json_object_get(meta, "trainable")))
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "version %" JSON_INTEGER_FORMAT " of model \"%s\" cannot be trained%s%s",
                       number, s->model, note[0] ? ": " : "", note);
    rc = fits_heads(s, outputs, err);
    return rc ? rc : settle_batch(s, version, err);
}

json_t *jobspec_assumes(const struct jobspec *s, const json_t *version)
{
    const json_t *all = json_object_get(json_object_get(version, "meta"), "training_assumes");
    json_t *list = s->is_batch ? NULL : json_array(), *name;
    size_t i;

    json_array_foreach(all, i, name)
    {
        if (list && json_is_string(name) && !train_names(s->train.frozen, json_string_value(name)))
            json_array_append(list, name);
    }
    if (json_array_size(list) > 0)
        return list;
    json_decref(list);
    return NULL;
}

/* "[*, 1, 8, 8]": axis 0 stands for the samples. */
static void json_shape_text(const json_t *shape, char out[static SHAPE_TEXT])
{
    size_t len = (size_t)snprintf(out, SHAPE_TEXT, "[*");

    for (size_t i = 1; i < json_array_size(shape) && len < SHAPE_TEXT; i++)
        len += (size_t)snprintf(out + len, SHAPE_TEXT - len, ", %" JSON_INTEGER_FORMAT,
                                json_integer_value(json_array_get(shape, i)));
    if (len < SHAPE_TEXT)
        snprintf(out + len, SHAPE_TEXT - len, "]");
}

/* An axis that the model leaves open (-1) is as large as in the dataset; which of them have to be
 * equal the job finds. */
static bool same_sample(const json_t *is, const json_t *want)
{
    if (json_array_size(is) != json_array_size(want))
        return false;
    for (size_t i = 1; i < json_array_size(is); i++)
        if (!json_equal(json_array_get(is, i), json_array_get(want, i)) &&
            json_integer_value(json_array_get(want, i)) != -1)
            return false;
    return true;
}

static enum sh_dtype io_dtype(const json_t *t)
{
    return sh_dtype_from_v2(sh_json_text(t, "datatype"));
}

int jobspec_check_tensor(const json_t *tensors, const struct jobspec_want *w, struct sh_err *err)
{
    const json_t *t = jobspec_find_tensor(tensors, w->tensor);
    char got[SHAPE_TEXT], wanted[SHAPE_TEXT];

    if (!t) {
        names_text(tensors, got);
        return SH_FAIL(err, SH_E_INVALID, "dataset \"%s\" has no tensor \"%s\"; it has: %s%s",
                       w->dataset, w->tensor, got, w->advice ? w->advice : "");
    }
    if (io_dtype(t) != w->dtype && !(w->may_be_bytes && io_dtype(t) == SH_U8 &&
                                     augment_is_picture(w->dtype, json_array_size(w->shape))))
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor \"%s\" of dataset \"%s\" has datatype %s, the job wants %s",
                       w->tensor, w->dataset, sh_json_text(t, "datatype"), sh_dtype_v2(w->dtype));
    if (same_sample(json_object_get(t, "shape"), w->shape))
        return SH_OK;
    json_shape_text(json_object_get(t, "shape"), got);
    json_shape_text(w->shape, wanted);
    return SH_FAIL(err, SH_E_INVALID,
                   "tensor \"%s\" of dataset \"%s\" has shape %s, the job wants %s", w->tensor,
                   w->dataset, got, wanted);
}

/* Known to be none before the job finds it at its first evaluation. */
static int check_best(const struct jobspec *s, const struct train_head *h, int64_t classes,
                      struct sh_err *err)
{
    if (s->train.evaluation.best != TRAIN_BY_TOP5 ||
        h != &s->train.heads[s->train.evaluation.head] || classes > TRAIN_TOP || classes < 1)
        return SH_OK;
    return sh_json_fail(err, "spec.evaluation.best",
                        "\"spec.evaluation.best\" is \"top5\", and the model has %" PRId64
                        " classes: with %d or fewer every answer is right by it",
                        classes, TRAIN_TOP);
}

/* The labels of classes: the shape of the output without their axis. */
static int class_labels_shape(const struct jobspec *s, const struct train_head *h,
                              const json_t *out, const json_t *tensors, json_t **shape,
                              struct sh_err *err)
{
    const json_t *got = json_object_get(jobspec_find_tensor(tensors, h->labels), "shape");
    struct train_head t = *h;
    int64_t dims[SH_MAX_RANK];
    uint32_t axis, rank = dims_of(json_object_get(out, "shape"), dims);
    struct sh_err unsaid = {0}; /* what does not fit is told by its shape */

    t.label_rank = dims_of(got, t.label_dims);
    if (train_class_axis(&t, sh_json_text(out, "name"), rank, dims, &axis, &unsaid) == SH_OK) {
        int rc = train_check_weights(&t, dims[axis], err);

        if (!rc)
            rc = check_best(s, h, dims[axis], err);
        if (rc)
            return rc;
    }
    *shape = json_array();
    for (uint32_t i = 0; *shape && i < rank; i++)
        if (i != axis)
            json_array_append_new(*shape, json_integer(i ? dims[i] : -1));
    return *shape ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a shape");
}

static int check_head_labels(const struct jobspec *s, const struct train_head *h, const json_t *out,
                             const char *name, const json_t *tensors, struct sh_err *err)
{
    bool classes = h->loss == TRAIN_LOSS_XENT;
    json_t *shape = NULL;
    struct jobspec_want w = {name, h->labels, classes ? SH_I64 : io_dtype(out),
                             json_object_get(out, "shape")};
    int rc = classes ? class_labels_shape(s, h, out, tensors, &shape, err) : SH_OK;

    if (shape)
        w.shape = shape;
    if (!rc)
        rc = jobspec_check_tensor(tensors, &w, err);
    json_decref(shape);
    return rc;
}

static int fits_tokens(const struct jobspec *s, const json_t *inputs, struct sh_err *err)
{
    const char *name = s->train.augment.tokens.input;
    const json_t *in = jobspec_find_tensor(inputs, name);
    char names[SHAPE_TEXT];

    if (!name[0] || (in && io_dtype(in) == SH_I64))
        return SH_OK;
    names_text(inputs, names);
    return sh_json_fail(err, "spec.augment",
                        "\"mask-tokens\" needs an INT64 input \"%s\"; model \"%s\" has: %s", name,
                        s->model, names);
}

/* Sizes may be open: then the job finds whether they fit. */
static int fits_augment(const struct jobspec *s, const json_t *version, struct sh_err *err)
{
    const json_t *inputs = json_object_get(version, "inputs");
    const json_t *bytes = json_object_get(json_object_get(version, "meta"), "preprocess");
    bool any = !augment_has_pictures(&s->train.augment);
    int rc = fits_tokens(s, inputs, err);

    for (size_t i = 0; !rc && i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i);
        const char *name = sh_json_text(in, "name");
        const json_t *as_bytes = json_object_get(bytes, name);
        int64_t dims[SH_MAX_RANK];
        uint32_t rank = dims_of(json_object_get(in, "shape"), dims);

        if (!as_bytes && !augment_is_picture(io_dtype(in), rank))
            continue;
        any = true;
        rc = as_bytes
                 ? augment_check_bytes(&s->train.augment, name, dims,
                                       strcmp(sh_json_text(as_bytes, "layout"), "NHWC") == 0, err)
                 : augment_check(&s->train.augment, name, dims, err);
    }
    if (!rc && s->train.augment.mixup > 0 && s->batch == 1)
        rc = sh_json_fail(err, "spec.augment",
                          "\"mixup\" mixes the samples of a batch, which is of 1: \"spec.batch\" "
                          "must be above that");
    if (rc || any)
        return rc;
    return sh_json_fail(err, "spec.augment",
                        "\"spec.augment\" is for pictures, and model \"%s\" has no FP32 input of "
                        "shape [batch, channels, height, width]",
                        s->model);
}

int jobspec_fits_dataset(const struct jobspec *s, bool is_main, const json_t *version,
                         const char *name, const json_t *dataset, struct sh_err *err)
{
    const json_t *tensors = json_object_get(dataset, "tensors");
    const json_t *inputs = json_object_get(version, "inputs");
    int64_t n = json_integer_value(json_object_get(dataset, "n_samples"));
    int rc = SH_OK;

    if (strcmp(sh_json_text(dataset, "state"), "READY") != 0)
        return SH_FAIL(err, SH_E_CONFLICT, "dataset \"%s\" is %s; upload its file first", name,
                       sh_json_text(dataset, "state"));
    if (s->is_batch)
        return batchspec_fits_dataset(s, version, name, dataset, err);
    for (size_t i = 0; !rc && i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i);
        struct jobspec_want w = {name,
                                 sh_json_text(in, "name"),
                                 io_dtype(in),
                                 json_object_get(in, "shape"),
                                 .may_be_bytes = true,
                                 .advice = ". An input of the model is known by its name: `shunt "
                                           "push dataset` takes --tensor NAME for it"};

        rc = jobspec_check_tensor(tensors, &w, err);
    }
    if (!rc)
        rc = fits_augment(s, version, err);
    for (uint32_t i = 0; !rc && i < s->train.n_heads; i++) {
        const struct train_head *h = &s->train.heads[i];

        /* Masked ids are labels while it trains; an evaluation takes those of its dataset. */
        if (!is_main || !augment_makes_labels(&s->train.augment, h->labels))
            rc = check_head_labels(s, h, output_of(json_object_get(version, "outputs"), h), name,
                                   tensors, err);
    }
    if (!rc && n < s->batch)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "dataset \"%s\" has %" PRId64 " samples, fewer than one batch of %" PRId64,
                     name, n, s->batch);
    return rc;
}
