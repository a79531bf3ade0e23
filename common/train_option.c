/* train_option.c - the table of train_option.def. */
#include "common/train_option.h"

#include "common/mem.h"

#include <string.h>

const struct sh_field TRAIN_FIELDS[] = {
#define TRAIN_FLAG(flag, ...) TRAIN_OPTION(__VA_ARGS__)
#define TRAIN_OPTION(part_, name_, type_, least, most, value_, into, text_, ...) \
    {.part = TRAIN_##part_,                                                      \
     .name = #name_,                                                             \
     .type = SH_JSON_##type_,                                                    \
     .min = least,                                                               \
     .max = most,                                                                \
     .value = value_,                                                            \
     .offset = offsetof(struct train_reading, into),                             \
     .text = text_,                                                              \
     __VA_ARGS__},
#include "common/train_option.def"
#undef TRAIN_OPTION
#undef TRAIN_FLAG
};
const size_t TRAIN_N_FIELDS = SH_ARRAY_LEN(TRAIN_FIELDS);

/* A member of another type than its row says would be written over what lies behind it. */
#define TYPE_OF(x) \
    _Generic((x),                   \
        int64_t: SH_JSON_INT,       \
        double: SH_JSON_F64,        \
        bool: SH_JSON_BOOL,         \
        const char *: SH_JSON_STR,  \
        json_t *: SH_JSON_ANY)
#define IS_JSON(type) ((type) == SH_JSON_OBJ || (type) == SH_JSON_ARR)
#define TRAIN_FLAG(flag, ...) TRAIN_OPTION(__VA_ARGS__)
#define TRAIN_OPTION(part, name, type, least, most, value, into, ...)            \
    _Static_assert(TYPE_OF(((struct train_reading *)0)->into) ==                 \
                       (IS_JSON(SH_JSON_##type) ? SH_JSON_ANY : SH_JSON_##type), \
                   #name " has another type in struct train_reading than in the table");
#include "common/train_option.def"
#undef TRAIN_OPTION
#undef TRAIN_FLAG

static const struct {
    const char *id, *member, *names;
} PARTS[] = {
#define X(part, member, names) [TRAIN_##part] = {#part, member, names},
    TRAIN_PARTS(X)
#undef X
};

const struct sh_fields TRAIN_PART_FIELDS[] = {
#define X(part, member, names) \
    [TRAIN_##part] = {TRAIN_FIELDS, SH_ARRAY_LEN(TRAIN_FIELDS), TRAIN_##part},
    TRAIN_PARTS(X)
#undef X
};

const char *train_part_member(enum train_part part)
{
    return PARTS[part].member;
}

const char *train_part_names(enum train_part part)
{
    return PARTS[part].names;
}

const struct sh_field *train_field(enum train_part part, const char *name)
{
    for (size_t i = 0; i < TRAIN_N_FIELDS; i++)
        if (TRAIN_FIELDS[i].part == part && strcmp(TRAIN_FIELDS[i].name, name) == 0)
            return &TRAIN_FIELDS[i];
    return NULL;
}

void train_print_docs(FILE *out)
{
    for (unsigned part = 0; part < TRAIN_N_PARTS; part++) {
        fprintf(out, "fields %s\n", PARTS[part].id);
        sh_fields_print_docs(&TRAIN_PART_FIELDS[part], PARTS[part].names, out);
    }
}
