/* sample.h - one sample of a tensor that shunt-import describes: {"name","datatype","shape"}. */
#ifndef SH_COMMON_SAMPLE_H
#define SH_COMMON_SAMPLE_H

#include "common/safetensors.h"

#include <jansson.h>

/* name is BORROWED from io; bytes are those of one sample; dims[0], the batch, is 1.
 * Fails: SH_E_UNSUPPORTED (no batch axis, or an axis of no fixed size), SH_E_TOOBIG. */
int sh_sample_read(const json_t *io, struct sh_st_tensor *out, struct sh_err *err);

#endif
