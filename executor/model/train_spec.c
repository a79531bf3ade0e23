/* train_spec.c - the training part of a job's spec. */
#include "common/job.h"
#include "common/json.h"
#include "common/mem.h"
#include "executor/model/program.h"

static const struct train_spec DEFAULTS = {
    .loss = PROGRAM_LOSS_XENT,
    .optimizer = PROGRAM_SGD,
    .lr = 1e-3,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 1e-8,
    .batch = SH_JOB_BATCH,
    .labels = "label",
    .precision = DEV_FP32,
    .shuffle = true,
};

static int read_loss(const char *name, struct train_spec *t, struct sh_err *err)
{
    if (strcmp(name, "cross-entropy") == 0)
        t->loss = PROGRAM_LOSS_XENT;
    else if (strcmp(name, "mse") == 0)
        t->loss = PROGRAM_LOSS_MSE;
    else
        return SH_FAIL(err, SH_E_INVALID,
                       "\"loss\" must be \"cross-entropy\" or \"mse\", not \"%.40s\"", name);
    return SH_OK;
}

static int read_optimizer_name(const char *name, struct train_spec *t, struct sh_err *err)
{
    if (strcmp(name, "sgd") == 0)
        t->optimizer = PROGRAM_SGD;
    else if (strcmp(name, "adam") == 0)
        t->optimizer = PROGRAM_ADAM;
    else if (strcmp(name, "adamw") == 0)
        t->optimizer = PROGRAM_ADAMW;
    else
        return SH_FAIL(err, SH_E_INVALID,
                       "\"optimizer.name\" must be \"sgd\", \"adam\" or \"adamw\", not \"%.40s\"",
                       name);
    if (t->optimizer == PROGRAM_ADAMW)
        t->weight_decay = 1e-2;
    return SH_OK;
}

/* A field that the chosen optimizer has no use for is a mistake worth an answer. */
static int refuse_foreign(const json_t *obj, const struct train_spec *t, struct sh_err *err)
{
    static const char *const SGD_ONLY[] = {"momentum", "nesterov"};
    static const char *const ADAM_ONLY[] = {"beta1", "beta2", "eps"};
    bool is_sgd = t->optimizer == PROGRAM_SGD;
    const char *const *list = is_sgd ? ADAM_ONLY : SGD_ONLY;
    size_t n = is_sgd ? SH_ARRAY_LEN(ADAM_ONLY) : SH_ARRAY_LEN(SGD_ONLY);

    for (size_t i = 0; i < n; i++)
        if (json_object_get(obj, list[i]))
            return SH_FAIL(err, SH_E_INVALID, "\"optimizer.%s\" does not belong to this optimizer",
                           list[i]);
    if (t->nesterov && t->momentum == 0.0)
        return SH_FAIL(err, SH_E_INVALID, "\"optimizer.nesterov\" needs a momentum above 0");
    return SH_OK;
}

static int read_optimizer(const json_t *obj, struct train_spec *t, struct sh_err *err)
{
    const char *name = "sgd";
    struct sh_json_field f[] = {
        {.name = "name", .type = SH_JSON_STR, .out = &name, .required = true, .max = 16},
        {.name = "lr", .type = SH_JSON_F64, .out = &t->lr, .min = 0, .max = 1e6},
        {.name = "momentum", .type = SH_JSON_F64, .out = &t->momentum, .min = 0, .max = 1},
        {.name = "weight_decay",
         .type = SH_JSON_F64,
         .out = &t->weight_decay,
         .min = 0,
         .max = 1e6},
        {.name = "beta1", .type = SH_JSON_F64, .out = &t->beta1, .min = 0, .max = 0.9999999},
        {.name = "beta2", .type = SH_JSON_F64, .out = &t->beta2, .min = 0, .max = 0.9999999},
        {.name = "eps", .type = SH_JSON_F64, .out = &t->eps, .min = 0, .max = 1},
        {.name = "nesterov", .type = SH_JSON_BOOL, .out = &t->nesterov},
    };
    const json_t *jname = json_object_get(obj, "name");
    int rc = SH_OK;

    /* The name first: it decides the default of weight_decay. */
    if (json_is_string(jname))
        rc = read_optimizer_name(json_string_value(jname), t, err);
    if (!rc)
        rc = sh_json_read(obj, "optimizer", f, SH_ARRAY_LEN(f), err);
    return rc ? rc : refuse_foreign(obj, t, err);
}

static int read_length(struct train_spec *t, struct sh_err *err)
{
    if ((t->steps > 0) == (t->epochs > 0))
        return SH_FAIL(err, SH_E_INVALID, "give either \"steps\" or \"epochs\", one of them");
    return SH_OK;
}

int train_spec_read(const json_t *spec, struct train_spec *out, struct sh_err *err)
{
    struct train_spec t = DEFAULTS;
    const char *loss = "cross-entropy", *labels = t.labels, *precision = "fp32";
    json_t *optimizer = NULL;
    bool publish = true;
    int64_t seed = 0;
    struct sh_json_field f[] = {
        {.name = "loss", .type = SH_JSON_STR, .out = &loss, .max = 32},
        {.name = "optimizer", .type = SH_JSON_OBJ, .out = &optimizer, .required = true},
        {.name = "batch", .type = SH_JSON_INT, .out = &t.batch, .min = 1, .max = 65536},
        {.name = "steps", .type = SH_JSON_INT, .out = &t.steps, .min = 1, .max = 1e12},
        {.name = "epochs", .type = SH_JSON_INT, .out = &t.epochs, .min = 1, .max = 1e9},
        {.name = "seed", .type = SH_JSON_INT, .out = &seed, .min = 0, .max = 9e15},
        {.name = "labels",
         .type = SH_JSON_STR,
         .out = &labels,
         .min = 1,
         .max = sizeof(t.labels) - 1,
         .in_bytes = true},
        {.name = "precision", .type = SH_JSON_STR, .out = &precision, .max = 8},
        {.name = "shuffle", .type = SH_JSON_BOOL, .out = &t.shuffle},
        {.name = "publish", .type = SH_JSON_BOOL, .out = &publish}, /* the executor's affair */
        {.name = "checkpoint_interval_ms",
         .type = SH_JSON_INT,
         .out = &t.checkpoint_interval_ms,
         .min = 0,
         .max = 864e5},
    };
    int rc = sh_json_read(spec, "training", f, SH_ARRAY_LEN(f), err);

    if (!rc)
        rc = read_loss(loss, &t, err);
    if (!rc)
        rc = read_optimizer(optimizer, &t, err);
    if (!rc)
        rc = read_length(&t, err);
    if (!rc)
        rc = dev_precision_parse(precision, &t.precision, err);
    if (rc)
        return rc;
    t.seed = (uint64_t)seed;
    if (labels != t.labels)
        sh_strlcpy(t.labels, labels, sizeof(t.labels));
    *out = t;
    return SH_OK;
}
