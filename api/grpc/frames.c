/* frames.c - see frames.h. */
#include "api/grpc/frames.h"

#include "common/mem.h"

#include <string.h>

int frames_prefix(struct frames *f, const void *data, size_t n, size_t *taken, struct sh_err *err)
{
    *taken = SH_MIN(n, FRAME_PREFIX - f->n_prefix);
    memcpy(f->prefix + f->n_prefix, data, *taken);
    f->n_prefix += *taken;
    if (f->n_prefix < FRAME_PREFIX)
        return SH_OK;
    if (f->prefix[0] > 1)
        return SH_FAIL(err, SH_E_INVALID,
                       "this is no gRPC message: its first byte is %u, not 0 or 1", f->prefix[0]);
    f->bytes = (uint64_t)f->prefix[1] << 24 | (uint64_t)f->prefix[2] << 16 |
               (uint64_t)f->prefix[3] << 8 | f->prefix[4];
    f->got = 0;
    return SH_OK;
}

bool frames_is_begun(const struct frames *f)
{
    return f->n_prefix > 0;
}

bool frames_has_size(const struct frames *f)
{
    return f->n_prefix == FRAME_PREFIX && f->prefix[0] <= 1;
}

bool frames_is_packed(const struct frames *f)
{
    return frames_has_size(f) && f->prefix[0] == 1;
}

bool frames_is_whole(const struct frames *f)
{
    return frames_has_size(f) && f->got == f->bytes;
}

void frames_next(struct frames *f)
{
    *f = (struct frames){0};
}

void frames_put_prefix(unsigned char out[static FRAME_PREFIX], uint32_t bytes)
{
    out[0] = 0;
    for (unsigned i = 0; i < 4; i++)
        out[1 + i] = (unsigned char)(bytes >> (24 - 8 * i));
}
