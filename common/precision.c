/* precision.c - see precision.h. */
#include "common/precision.h"

#include "common/mem.h"

#include <string.h>

int dev_precision_parse(const char *name, enum dev_precision *out, struct sh_err *err)
{
    static const struct {
        const char *name;
        enum dev_precision p;
    } NAMES[] = {{"fp32", DEV_FP32},
                 {"tf32", DEV_TF32},
                 {"fp16", DEV_FP16},
                 {"bf16", DEV_BF16},
                 {"fp64", DEV_FP64}};

    for (size_t i = 0; name && i < SH_ARRAY_LEN(NAMES); i++)
        if (strcmp(name, NAMES[i].name) == 0) {
            *out = NAMES[i].p;
            return SH_OK;
        }
    return SH_FAIL(err, SH_E_INVALID,
                   "precision \"%.32s\" is unknown; use fp32, tf32, fp16 or bf16",
                   name ? name : "");
}
