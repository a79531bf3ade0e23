/* precision.h - the arithmetic that a model is run or trained in. */
#ifndef SH_COMMON_PRECISION_H
#define SH_COMMON_PRECISION_H

#include "common/err.h"

/* FP64: of the tests' oracle alone (tests/device/oracle), slow: everything but what op.h says is
 * F32 plain is in double. */
enum dev_precision { DEV_FP32, DEV_TF32, DEV_FP16, DEV_BF16, DEV_FP64 };

int dev_precision_parse(const char *name, enum dev_precision *out, struct sh_err *err);

#endif
