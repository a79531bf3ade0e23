/* train_flags.h - the options of `shunt submit` that fill the spec of a training job; from
 * common/train_option.def. */
#ifndef SH_CLI_CLIENT_TRAIN_FLAGS_H
#define SH_CLI_CLIENT_TRAIN_FLAGS_H

#include "common/train_option.h"

struct train_flag {
    const char *flag;
    enum train_part part;
    const char *name; /* of the field */
    size_t offset;    /* in struct cli_conf: a string, or a bool for a BOOL */
};
extern const struct train_flag TRAIN_FLAGS[];
extern const size_t TRAIN_N_FLAGS;

/* How refusals name the object with the fields of a part: "spec", "optimizer". */
const char *train_object(enum train_part part);
bool train_object_has_flags(const char *object);
/* The option that fills this member of the object; and the words that an option accepts. NULL:
 * none. */
const char *train_flag(const char *object, const char *member);
const char *train_flag_words(const char *option);

#endif
