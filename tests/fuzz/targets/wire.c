/* wire.c - frames between processes: header and payload. What is decoded is encoded again in as
 * many bytes: a frame says nothing that is not in its struct. */
#include "common/buf.h"
#include "common/wire_int.h"
#include "tests/fuzz/targets/fuzz.h"

static void one_frame(const struct sh_wire__header *h, const uint8_t *payload)
{
    char *own = copy_of(payload, h->len, 0);
    struct sh_err err = {0};
    struct sh_buf again;
    struct sh_msg m;
    int rc = sh_msg_decode(h->type, own, h->len, &m, &err);

    must_say_why(rc, &err);
    sh_buf_init(&again, SH_WIRE_MAX_FRAME);
    if (!rc) {
        must(sh_msg_encode(&m, &again, &err) == SH_OK);
        must(again.len == h->len);
    }
    sh_buf_fini(&again);
    free(own);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct sh_wire__header h;

    for (size_t at = 0; n - at >= SH_WIRE__HEADER; at += SH_WIRE__HEADER + h.len) {
        unsigned char p[SH_WIRE__HEADER];
        struct sh_err err = {0};
        int rc;

        memcpy(p, data + at, sizeof(p));
        p[4] ^= data[4] ^ SH_WIRE_VERSION; /* the corpus stays good: its first frame has it */
        rc = sh_wire__header(p, &h, &err);
        must_say_why(rc, &err);
        if (rc || n - at - SH_WIRE__HEADER < h.len)
            return 0;
        one_frame(&h, data + at + SH_WIRE__HEADER);
    }
    return 0;
}
