/* train_flags.c - see train_flags.h. */
#include "cli/client/train_flags.h"

#include "cli/cli.h"
#include "common/mem.h"

#include <string.h>

const struct train_flag TRAIN_FLAGS[] = {
#define TRAIN_OPTION(...)
#define TRAIN_FLAG(flag, part, name, ...) \
    {flag, TRAIN_##part, #name, offsetof(struct cli_conf, train.part##_##name)},
#include "common/train_option.def"
#undef TRAIN_FLAG
#undef TRAIN_OPTION
};
const size_t TRAIN_N_FLAGS = SH_ARRAY_LEN(TRAIN_FLAGS);

const char *train_object(enum train_part part)
{
    return part == TRAIN_SPEC ? "spec" : train_part_member(part);
}

const char *train_flag(const char *object, const char *member)
{
    for (size_t i = 0; i < TRAIN_N_FLAGS; i++)
        if (strcmp(train_object(TRAIN_FLAGS[i].part), object) == 0 &&
            strcmp(TRAIN_FLAGS[i].name, member) == 0)
            return TRAIN_FLAGS[i].flag;
    return NULL;
}

bool train_object_has_flags(const char *object)
{
    for (size_t i = 0; i < TRAIN_N_FLAGS; i++)
        if (strcmp(train_object(TRAIN_FLAGS[i].part), object) == 0)
            return true;
    return false;
}

const char *train_flag_words(const char *option)
{
    for (size_t i = 0; i < TRAIN_N_FLAGS; i++)
        if (strcmp(TRAIN_FLAGS[i].flag, option) == 0)
            return train_field(TRAIN_FLAGS[i].part, TRAIN_FLAGS[i].name)->words;
    return NULL;
}
