/* train_conf.h - options of `shunt submit` that are fields of a training job's spec: one for each
 * TRAIN_FLAG of common/train_option.def, as train.OPTIMIZER_lr. */
#ifndef SH_CLI_TRAIN_CONF_H
#define SH_CLI_TRAIN_CONF_H

#include <stdbool.h>

#define CLI_HOLDS_BOOL bool
#define CLI_HOLDS_INT char *
#define CLI_HOLDS_F64 char *
#define CLI_HOLDS_STR char *
#define CLI_HOLDS_ANY char *

struct cli_train {
#define TRAIN_OPTION(...)
#define TRAIN_FLAG(flag, part, name, type, ...) CLI_HOLDS_##type part##_##name;
#include "common/train_option.def"
#undef TRAIN_FLAG
#undef TRAIN_OPTION
};

#endif
