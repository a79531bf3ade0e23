/* grpc.c - a message of an inference over gRPC, as it comes from a stranger: its frame, its fields
 * and tensors. The first byte says in what kind of message the rest is. What was read is a request:
 * JSON that has its sizes, and parts that lie in the message or in memory of their own. */
/* uses: api/grpc/frames.o api/grpc/message.o api/grpc/methods.o api/grpc/status.o api/grpc/tensors.o gen/inference.pb-c.o */
/* link: -lprotobuf-c */
#include "api/grpc/frames.h"
#include "api/grpc/methods.h"
#include "api/grpc/status.h"
#include "api/grpc/tensors.h"
#include "tests/fuzz/targets/fuzz.h"

#define MOST_HEAD 4096u

static void as_frames(const char *data, size_t n)
{
    struct frames f = {.n_prefix = 0};
    struct sh_err err = {0};
    size_t at = 0, taken;
    int rc = SH_OK;

    while (!rc && at < n && !frames_has_size(&f)) {
        rc = frames_prefix(&f, data + at, n - at, &taken, &err);
        must(taken > 0 && taken <= n - at);
        at += taken;
    }
    must_say_why(rc, &err);
}

static void as_inference(const struct grpc_method *m, const char *data, size_t n)
{
    struct tensors t = {.n_parts = 0};
    struct sh_err err = {0};
    struct sh_buf uri;
    json_t *j = NULL;
    size_t bytes;
    int rc;

    sh_buf_init(&uri, MOST_HEAD);
    rc = tensors_read(m, data, n, MOST_HEAD, 1000, &t, &uri, &err);
    must_say_why(rc, &err);
    if (!rc) {
        j = json_loadb(t.json, t.json_bytes, 0, NULL);
        must(json_is_object(j) && uri.len > 0 && t.n_parts <= CAT_MAX_IO);
        bytes = t.json_bytes;
        for (size_t i = 0; i < t.n_parts; i++) {
            const char *at = t.part[i].iov_base;

            must(t.part[i].iov_len == 0 || t.typed ||
                 (at >= data && at + t.part[i].iov_len <= data + n));
            bytes += t.part[i].iov_len;
        }
        must(bytes == t.bytes);
    }
    json_decref(j);
    tensors_drop(&t);
    sh_buf_fini(&uri);
}

static void as_other(const struct grpc_method *m, const char *data, size_t n)
{
    struct sh_err err = {0};
    struct sh_buf uri, packed;
    json_t *j = NULL;
    int rc = method_read(m, data, n, &j, &err);

    sh_buf_init(&uri, MOST_HEAD);
    sh_buf_init(&packed, (size_t)1 << 20);
    must_say_why(rc, &err);
    if (!rc) { /* it is no answer, but names may be the same */
        must_say_why(method_write(m, j, &packed, &err), &err);
        err = (struct sh_err){0};
        must_say_why(method_uri(m, j, &uri, &err), &err);
    }
    json_decref(j);
    sh_buf_fini(&uri);
    sh_buf_fini(&packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *own = copy_of(data, n, 1);
    int64_t ns;

    if (n > 0) {
        const struct grpc_method *m = &GRPC_METHODS[(uint8_t)own[0] % GRPC_N_METHODS];

        if (m->kind == CALL_JSON)
            as_other(m, own + 1, n - 1);
        else
            as_inference(m, own + 1, n - 1);
        as_frames(own + 1, n - 1);
        if (!grpc_parse_timeout(own, &ns, NULL))
            must(ns >= 0);
    }
    free(own);
    return 0;
}
