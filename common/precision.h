/* precision.h - the arithmetic of a model's runs or training. */
#ifndef SH_COMMON_PRECISION_H
#define SH_COMMON_PRECISION_H

#include "common/err.h"

/* FP64: only in the tests' oracle (tests/device/oracle), slow: everything except what op.h calls
 * plain F32 is in double. */
enum dev_precision { DEV_FP32, DEV_TF32, DEV_FP16, DEV_BF16, DEV_FP64 };

int dev_precision_parse(const char *name, enum dev_precision *out, struct sh_err *err);

#endif
