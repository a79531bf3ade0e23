/* msg.c - one encoder and one decoder, generated from the field lists of msg.def.
 *
 *   u32 u64 i64 f64   little-endian, 4 or 8 bytes, no alignment
 *   str               u32 n | n bytes, the last one NUL, no other NUL inside
 *   blob              u32 n | zeros up to a multiple of 8 | n bytes
 *   end               zeros up to a multiple of 8
 *
 * Positions count from the start of the payload. The frame header has 8 bytes and payloads are
 * multiples of 8, so every blob starts at a multiple of 8 in the receive buffer, and can be read in
 * place as an array of structs.
 */
#include "common/msg.h"

#include "common/mem.h"

#include <endian.h>
#include <stdio.h>

#define ALIGN 8u

struct writer {
    struct sh_buf *out;
    size_t base; /* where the payload starts in out */
    const char *msg;
    struct sh_err *err;
};

struct reader {
    const unsigned char *p;
    size_t len, pos;
    const char *msg;
    struct sh_err *err;
};

const char *sh_msg_name(enum sh_msg_type t)
{
    switch (t) {
#define F(type, name)
#define SH_MSG(NAME, name, number, ...) \
    case MSG_##NAME:                    \
        return #NAME;
#include "common/msg.def"
#undef SH_MSG
#undef F
    }
    return "?";
}

const char *const SH_MSG_FENCE_NAME[MSG_N_FENCES] = {
#define X(name, text) [MSG_FENCE_AT_##name] = (text),
    MSG_FENCE_MAP(X)
#undef X
};

const char *const SH_MSG_USE_NAME[MSG_N_USES] = {
#define X(name, text) [MSG_USE_##name] = (text),
    MSG_USE_MAP(X)
#undef X
};

void sh_msg_fences_text(uint32_t fences, char out[static SH_MSG_FENCES_TEXT])
{
    size_t n = 0;

    sh_strlcpy(out, "none", SH_MSG_FENCES_TEXT);
    for (int i = 0; i < MSG_N_FENCES; i++)
        if (fences & (1u << i))
            n += (size_t)snprintf(out + n, SH_MSG_FENCES_TEXT - n, "%s%s", n ? "," : "",
                                  SH_MSG_FENCE_NAME[i]);
}

/* ---------------------------------------------------------------- encode */

static int put_u32(struct writer *w, uint32_t v, const char *field)
{
    uint32_t le = htole32(v);

    (void)field;
    return sh_buf_append(w->out, &le, sizeof(le), w->err);
}

static int put_u64(struct writer *w, uint64_t v, const char *field)
{
    uint64_t le = htole64(v);

    (void)field;
    return sh_buf_append(w->out, &le, sizeof(le), w->err);
}

static int put_i64(struct writer *w, int64_t v, const char *field)
{
    return put_u64(w, (uint64_t)v, field);
}

static int put_f64(struct writer *w, double v, const char *field)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return put_u64(w, bits, field);
}

static int put_msg_padding(struct writer *w)
{
    static const char zeros[ALIGN];
    size_t at = w->out->len - w->base;

    return sh_buf_append(w->out, zeros, SH_ALIGN_UP(at, ALIGN) - at, w->err);
}

static int put_len(struct writer *w, size_t n, const char *field)
{
    if (n > UINT32_MAX)
        return SH_FAIL(w->err, SH_E_TOOBIG, "field %s of message %s is too long: %zu bytes", field,
                       w->msg, n);
    return put_u32(w, (uint32_t)n, field);
}

static int put_str(struct writer *w, const char *s, const char *field)
{
    size_t n = strlen(s ? s : "") + 1;
    int rc = put_len(w, n, field);

    if (rc)
        return rc;
    return sh_buf_append(w->out, s ? s : "", n, w->err);
}

static int put_blob(struct writer *w, struct sh_blob b, const char *field)
{
    int rc;

    if (!b.data && b.len > 0)
        return SH_FAIL(w->err, SH_E_BUG, "field %s of message %s has a length but no data", field,
                       w->msg);
    rc = put_len(w, b.len, field);
    if (!rc)
        rc = put_msg_padding(w);
    if (!rc)
        rc = sh_buf_append(w->out, b.data, b.len, w->err);
    return rc;
}

#define F(type, name) \
    if (!rc)          \
        rc = put_##type(w, m->name, #name);
#define SH_MSG(NAME, name, number, ...)                                    \
    static int encode_##name(struct writer *w, const struct msg_##name *m) \
    {                                                                      \
        int rc = SH_OK;                                                    \
                                                                           \
        (void)w;                                                           \
        (void)m;                                                           \
        __VA_ARGS__                                                        \
        return rc;                                                         \
    }
#include "common/msg.def"
#undef SH_MSG
#undef F

static int encode_fields(struct writer *w, const struct sh_msg *m)
{
    switch (m->type) {
#define F(type, name)
#define SH_MSG(NAME, name, number, ...) \
    case MSG_##NAME:                    \
        return encode_##name(w, &m->u.name);
#include "common/msg.def"
#undef SH_MSG
#undef F
    }
    return SH_FAIL(w->err, SH_E_BUG, "cannot send a message of unknown type %u", (unsigned)m->type);
}

int sh_msg_encode(const struct sh_msg *m, struct sh_buf *out, struct sh_err *err)
{
    struct writer w = {.out = out, .base = out->len, .msg = sh_msg_name(m->type), .err = err};
    int rc = encode_fields(&w, m);

    if (!rc)
        rc = put_msg_padding(&w);
    if (rc && out->data) { /* half a message must not stay behind */
        out->len = w.base;
        out->data[w.base] = '\0';
    }
    return rc;
}

/* ---------------------------------------------------------------- decode */

static int need(struct reader *r, size_t n, const char *field)
{
    if (n > r->len - r->pos)
        return SH_FAIL(r->err, SH_E_PROTO,
                       "message %s ends inside field %s: %zu bytes wanted, %zu left", r->msg, field,
                       n, r->len - r->pos);
    return SH_OK;
}

static int get_u32(struct reader *r, uint32_t *out, const char *field)
{
    uint32_t le;
    int rc = need(r, sizeof(le), field);

    if (rc)
        return rc;
    memcpy(&le, r->p + r->pos, sizeof(le));
    r->pos += sizeof(le);
    *out = le32toh(le);
    return SH_OK;
}

static int get_u64(struct reader *r, uint64_t *out, const char *field)
{
    uint64_t le;
    int rc = need(r, sizeof(le), field);

    if (rc)
        return rc;
    memcpy(&le, r->p + r->pos, sizeof(le));
    r->pos += sizeof(le);
    *out = le64toh(le);
    return SH_OK;
}

static int get_i64(struct reader *r, int64_t *out, const char *field)
{
    uint64_t v = 0;
    int rc = get_u64(r, &v, field);

    *out = (int64_t)v;
    return rc;
}

static int get_f64(struct reader *r, double *out, const char *field)
{
    uint64_t bits = 0;
    int rc = get_u64(r, &bits, field);

    memcpy(out, &bits, sizeof(bits));
    return rc;
}

static int get_padding(struct reader *r, const char *field)
{
    size_t n = SH_ALIGN_UP(r->pos, ALIGN) - r->pos;
    int rc = need(r, n, field);

    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        if (r->p[r->pos + i] != 0)
            return SH_FAIL(r->err, SH_E_PROTO, "message %s has bytes that are not zero around %s",
                           r->msg, field);
    r->pos += n;
    return SH_OK;
}

static int get_str(struct reader *r, const char **out, const char *field)
{
    const char *s;
    uint32_t n = 0;
    int rc = get_u32(r, &n, field);

    if (!rc)
        rc = need(r, n, field);
    if (rc)
        return rc;
    s = (const char *)r->p + r->pos;
    if (n == 0 || memchr(s, '\0', n) != s + n - 1)
        return SH_FAIL(r->err, SH_E_PROTO, "field %s of message %s is not one terminated string",
                       field, r->msg);
    r->pos += n;
    *out = s;
    return SH_OK;
}

static int get_blob(struct reader *r, struct sh_blob *out, const char *field)
{
    uint32_t n = 0;
    int rc = get_u32(r, &n, field);

    if (!rc)
        rc = get_padding(r, field);
    if (!rc)
        rc = need(r, n, field);
    if (rc)
        return rc;
    *out = (struct sh_blob){.data = r->p + r->pos, .len = n};
    r->pos += n;
    return SH_OK;
}

#define F(type, name) \
    if (!rc)          \
        rc = get_##type(r, &m->name, #name);
#define SH_MSG(NAME, name, number, ...)                              \
    static int decode_##name(struct reader *r, struct msg_##name *m) \
    {                                                                \
        int rc = SH_OK;                                              \
                                                                     \
        (void)r;                                                     \
        (void)m;                                                     \
        __VA_ARGS__                                                  \
        return rc;                                                   \
    }
#include "common/msg.def"
#undef SH_MSG
#undef F

static int decode_fields(struct reader *r, struct sh_msg *m)
{
    switch (m->type) {
#define F(type, name)
#define SH_MSG(NAME, name, number, ...) \
    case MSG_##NAME:                    \
        return decode_##name(r, &m->u.name);
#include "common/msg.def"
#undef SH_MSG
#undef F
    }
    return SH_FAIL(r->err, SH_E_PROTO, "message of unknown type %u", (unsigned)m->type);
}

int sh_msg_decode(uint16_t type, const void *payload, size_t len, struct sh_msg *out,
                  struct sh_err *err)
{
    struct reader r = {.p = payload, .len = len, .err = err};
    int rc;

    memset(out, 0, sizeof(*out));
    out->type = (enum sh_msg_type)type;
    r.msg = sh_msg_name(out->type);
    rc = decode_fields(&r, out);
    if (!rc)
        rc = get_padding(&r, "the end");
    if (!rc && r.pos != r.len)
        rc = SH_FAIL(err, SH_E_PROTO, "message %s has %zu bytes too many", r.msg, r.len - r.pos);
    return rc;
}
