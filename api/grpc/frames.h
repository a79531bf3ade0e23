/* frames.h - the messages of a gRPC stream: each has 5 bytes before it, is it compressed (0 or 1)
 * and its length (big-endian). The bytes come in pieces of any size. Pure. */
#ifndef SH_API_GRPC_FRAMES_H
#define SH_API_GRPC_FRAMES_H

#include "common/err.h"

#define FRAME_PREFIX 5u

struct frames { /* zeroed: before the first message */
    unsigned char prefix[FRAME_PREFIX];
    size_t n_prefix;
    uint64_t bytes, got; /* of the message, once the prefix is complete */
};

/* Takes bytes of the prefix from data. *taken: how many. Fails: SH_E_INVALID. */
int frames_prefix(struct frames *f, const void *data, size_t n, size_t *taken, struct sh_err *err);
bool frames_is_begun(const struct frames *f);  /* some of a message has come */
bool frames_has_size(const struct frames *f);  /* bytes is known */
bool frames_is_packed(const struct frames *f); /* it is compressed, and its size is known */
bool frames_is_whole(const struct frames *f);  /* all of a message has come */
void frames_next(struct frames *f);            /* another message begins */
void frames_put_prefix(unsigned char out[static FRAME_PREFIX], uint32_t bytes);

#endif
