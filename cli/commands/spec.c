/* spec.c - the spec of a job from the options of `shunt submit`, which are those of
 * common/train_option.def; some are fields of batch inference too. */
#include "cli/commands/spec.h"

#include "cli/client/rest.h"
#include "cli/client/train_flags.h"
#include "cli/text/field.h"
#include "common/batch_spec.h"
#include "common/mem.h"

#include <string.h>

#define MAX_SPEC (1u << 20)

/* ---------------------------------------------------------------- one option */

static const char *flag_text(const struct cli *c, const struct train_flag *f)
{
    return *(char *const *)((const char *)c->conf + f->offset);
}

static bool is_flag_given(const struct cli *c, const struct train_flag *f)
{
    const char *text;

    if (train_field(f->part, f->name)->type == SH_JSON_BOOL)
        return *(const bool *)((const char *)c->conf + f->offset);
    text = flag_text(c, f);
    return text && text[0];
}

static int set_new(json_t *obj, const char *name, json_t *v, struct sh_err *err)
{
    return json_object_set_new(obj, name, v) ? SH_FAIL(err, SH_E_NOMEM, "could not allocate a job")
                                             : SH_OK;
}

/* A refusal names the option, which may be called otherwise than the member. */
static int put_number(struct cli *c, const struct train_flag *f, bool is_int, json_t *obj,
                      struct sh_err *err)
{
    json_t *read = json_object();
    int rc = read ? cli_set_number(c, read, f->flag, flag_text(c, f), is_int, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");

    if (!rc)
        rc = set_new(obj, f->name, json_incref(json_object_get(read, f->flag)), err);
    json_decref(read);
    return rc;
}

static int put_flag(struct cli *c, const struct train_flag *f, json_t *obj, struct sh_err *err)
{
    const struct sh_field *field = train_field(f->part, f->name);

    if (field->type == SH_JSON_BOOL)
        return set_new(obj, f->name, json_boolean(strcmp(field->value, "true") != 0), err);
    if (field->type == SH_JSON_INT || field->type == SH_JSON_F64)
        return put_number(c, f, field->type == SH_JSON_INT, obj, err);
    return set_new(obj, f->name, json_string(flag_text(c, f)), err);
}

/* ---------------------------------------------------------------- all of them */

/* An object in the spec; where it has none, a new one. */
static int get_part(struct cli *c, json_t *spec, const char *name, json_t **out, bool *is_new,
                    struct sh_err *err)
{
    *out = json_object_get(spec, name);
    *is_new = !*out || json_is_null(*out);
    if (!*is_new && !json_is_object(*out))
        return cli_usage(c, err, "\"%s\" in the file of --spec is not a JSON object", name);
    return *is_new ? set_new(spec, name, *out = json_object(), err) : SH_OK;
}

/* What is needed and was not said is what the table says. */
static int put_needed(enum train_part part, json_t *obj, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < TRAIN_N_FIELDS; i++) {
        const struct sh_field *f = &TRAIN_FIELDS[i];

        if (f->part == part && f->required && f->value && !json_object_get(obj, f->name))
            rc = set_new(obj, f->name, json_string(f->value), err);
    }
    return rc;
}

static int fill_spec_part(struct cli *c, enum train_part part, json_t *spec, struct sh_err *err)
{
    json_t *obj = spec;
    bool is_new = false;
    int rc =
        part == TRAIN_SPEC ? SH_OK : get_part(c, spec, train_part_member(part), &obj, &is_new, err);

    for (size_t i = 0; !rc && i < TRAIN_N_FLAGS; i++)
        if (TRAIN_FLAGS[i].part == part && is_flag_given(c, &TRAIN_FLAGS[i]))
            rc = put_flag(c, &TRAIN_FLAGS[i], obj, err);
    if (!rc)
        rc = put_needed(part, obj, err);
    if (!rc && is_new && json_object_size(obj) == 0)
        json_object_del(spec, train_part_member(part)); /* none of this was said */
    return rc;
}

static int fill_training(struct cli *c, json_t *spec, struct sh_err *err)
{
    int rc = batch_refuse(c, err);

    for (unsigned part = 0; !rc && part < TRAIN_N_PARTS; part++)
        if (train_object_has_flags(train_object(part)))
            rc = fill_spec_part(c, part, spec, err);
    return rc;
}

static bool is_of_batch(const struct train_flag *f)
{
    for (size_t i = 0; i < BATCH_FIELDS.n; i++)
        if (f->part == TRAIN_SPEC && strcmp(BATCH_FIELDS.list[i].name, f->name) == 0)
            return true;
    return false;
}

/* Each of training's options that is given would be without effect. */
static int refuse_training(struct cli *c, struct sh_err *err)
{
    const char *odd = c->conf->go_on ? "continue" : NULL;

    if (c->conf->eval_dataset && c->conf->eval_dataset[0])
        odd = "eval-dataset";
    for (size_t i = 0; i < TRAIN_N_FLAGS; i++)
        if (is_flag_given(c, &TRAIN_FLAGS[i]) && !is_of_batch(&TRAIN_FLAGS[i]))
            odd = TRAIN_FLAGS[i].flag;
    return odd ? cli_usage(c, err, "--%s does not belong to --kind batch-inference", odd) : SH_OK;
}

static int fill_batch(struct cli *c, json_t *spec, struct sh_err *err)
{
    int rc = refuse_training(c, err);

    for (size_t i = 0; !rc && i < TRAIN_N_FLAGS; i++)
        if (is_of_batch(&TRAIN_FLAGS[i]) && is_flag_given(c, &TRAIN_FLAGS[i]))
            rc = put_flag(c, &TRAIN_FLAGS[i], spec, err);
    return rc ? rc : batch_fill_spec(c, spec, err);
}

int spec_fill(struct cli *c, bool is_batch, json_t **out, struct sh_err *err)
{
    const char *file = c->conf->spec;
    json_t *spec = NULL;
    int rc = SH_OK;

    if (file && file[0])
        rc = sh_json_load_file(file, MAX_SPEC, &spec, err);
    else
        spec = json_object();
    if (!rc && !json_is_object(spec))
        rc = SH_FAIL(err, SH_E_INVALID, "the spec is not a JSON object");
    if (!rc)
        rc = is_batch ? fill_batch(c, spec, err) : fill_training(c, spec, err);
    if (rc)
        json_decref(spec);
    else
        *out = spec;
    return rc;
}
