/* spec_schema.c - see spec_schema.h. It adds what a table of fields cannot say: which forms a field
 * of a spec may have. */
#include "api/spec_schema.h"

#include "api/options.h"
#include "api/request/schema.h"
#include "common/mem.h"
#include "common/train_option.h"

#include <string.h>

/* ---------------------------------------------------------------- training */

static json_t *json_zero(void)
{
    return json_pack("{s:i}", "const", 0);
}

/* Has this schedule something that has to be said? Then its name alone is not enough. */
static bool needs_object(unsigned name)
{
    for (size_t i = 0; i < TRAIN_N_FIELDS; i++) {
        const struct sh_field *f = &TRAIN_FIELDS[i];

        if (f->part == TRAIN_SCHEDULE && f->required && (f->of >> name & 1))
            return true;
    }
    return false;
}

static json_t *plain_schedules(void)
{
    json_t *list = json_array();
    const char *one;
    size_t len;

    for (unsigned i = 0; (one = sh_words_at(train_part_names(TRAIN_SCHEDULE), i, &len)); i++)
        if (!needs_object(i) && json_array_append_new(list, json_stringn(one, len))) {
            json_decref(list);
            return NULL;
        }
    return json_pack("{s:o}", "enum", list);
}

/* clang-format off */
static const struct schema COLOURS[] = { /* of mean, of std */
    {S_CHOICES(S_NUMS(-1e6, 1e6), S_LIST(S_NUMS(-1e6, 1e6), .min = 3, .max = 3))},
    {S_CHOICES(S_NUMS(1e-6, 1e6), S_LIST(S_NUMS(1e-6, 1e6), .min = 3, .max = 3))},
};
/* clang-format on */
static const struct schema TOKENS = S_LIST(S_INT());

/* One of the objects of "augment", by its name. */
static json_t *augment_object(enum augment_kind kind, const char *name, size_t len)
{
    const struct schema body = S_BODY("", NULL, .fields = &AUGMENT_FIELDS[kind]);
    json_t *out = schema_build(&body), *all = json_object_get(out, "properties");
    static const struct {
        enum augment_kind kind;
        const char *field;
        const struct schema *more;
    } MORE[] = {{AUGMENT_NORMALISE, "mean", &COLOURS[0]},
                {AUGMENT_NORMALISE, "std", &COLOURS[1]},
                {AUGMENT_TOKENS, "special", &TOKENS}};

    for (size_t i = 0; i < SH_ARRAY_LEN(MORE); i++) {
        json_t *more = MORE[i].kind == kind ? schema_build(MORE[i].more) : NULL;

        json_object_update(json_object_get(all, MORE[i].field), more);
        json_decref(more);
    }
    json_object_set_new(all, "name", json_pack("{s:o}", "const", json_stringn(name, len)));
    return out;
}

static json_t *augment_objects(void)
{
    json_t *list = json_array();
    const char *one;
    size_t len;

    for (unsigned i = 0; (one = sh_words_at(AUGMENT_KINDS(AUGMENT_WORD, ","), i, &len)); i++)
        json_array_append_new(list, augment_object(i, one, len));
    return json_pack("{s:o}", "oneOf", list);
}

/* clang-format off */
#define GLOB S_STR(1, TRAIN_MAX_GLOB)
#define GLOBS S_LIST(GLOB, .min = 1, .max = TRAIN_MAX_GLOBS)
#define WEIGHTS S_LIST(S_NUMS(0, 1e9), .min = 1, .max = TRAIN_MAX_CLASSES)
#define LOSS_OBJECTS                                                                               \
    {.by_name = TRAIN_LOSSES(TRAIN_WORD, ","), .fields = &TRAIN_PART_FIELDS[TRAIN_LOSS],           \
     .members = MEMBERS({"class_weights", WEIGHTS},                                                \
        {"pos_weight", {S_CHOICES(S_NUMS(0, 1e9, .above = true), WEIGHTS)}})}
#define SCHEDULE_OBJECTS                                                                           \
    {.by_name = TRAIN_SCHEDULES(TRAIN_WORD, ","), .fields = &TRAIN_PART_FIELDS[TRAIN_SCHEDULE]}

static const struct schema SPEC = S_BODY("", MEMBERS(
    {"loss", {S_CHOICES(S_WORDS(TRAIN_LOSSES(TRAIN_WORD, ",")), LOSS_OBJECTS,
        S_LIST({S_CHOICES(LOSS_OBJECTS)}, .min = 1, .max = TRAIN_MAX_HEADS))}},
    {"optimizer", {.by_name = TRAIN_OPTIMIZERS(TRAIN_WORD, ","),
        .fields = &TRAIN_PART_FIELDS[TRAIN_OPTIMIZER]}},
    {"schedule", {S_CHOICES({.build = plain_schedules}, SCHEDULE_OBJECTS)}},
    {"no_decay", {S_CHOICES(S_BOOL(), GLOB, GLOBS)}},
    {"frozen", {S_CHOICES(GLOB, GLOBS)}},
    {"init", {S_CHOICES(S_WORDS(TRAIN_INITS),
        S_BODY("random", MEMBERS({"random", {S_CHOICES(GLOB, GLOBS)}})))}},
    {"loss_scale", {S_CHOICES({.build = json_zero}, S_NUMS(TRAIN_MIN_SCALE, TRAIN_MAX_SCALE),
        S_BODY("", NULL, .fields = &TRAIN_PART_FIELDS[TRAIN_SCALE]))}},
    {"evaluation", S_BODY("", NULL, .fields = &TRAIN_PART_FIELDS[TRAIN_EVALUATION])},
    {"augment", {.items = &(const struct schema){.build = augment_objects}}}),
    .fields = &TRAIN_PART_FIELDS[TRAIN_SPEC], .one_of = "steps,epochs");
/* clang-format on */

json_t *spec_schema(void)
{
    return schema_build(&SPEC);
}

/* ---------------------------------------------------------------- live options */

json_t *config_schema(void)
{
    const struct schema none = S_BODY("", NULL, .min = 1);
    json_t *out = schema_build(&none), *all = json_object_get(out, "properties");

    for (size_t i = 0; i < API_CONF_TABLE.n_opts; i++) {
        const struct sh_conf_opt *o = &API_CONF_TABLE.opts[i];
        const struct schema number = S_INTS(o->min, o->max);
        const struct schema level = S_WORDS("error,warn,info,debug"); /* log-level, the one text */

        if (o->flags & SH_CONF_LIVE)
            json_object_set_new(all, o->name,
                                schema_build(o->type == SH_CONF_STR ? &level : &number));
    }
    return out;
}
