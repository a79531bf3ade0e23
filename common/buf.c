/* buf.c - a growing byte buffer with a stated maximum. */
#include "common/buf.h"

#include "common/mem.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FIRST_CAP 256u

void sh_buf_init(struct sh_buf *b, size_t max)
{
    *b = (struct sh_buf){.max = SH_MIN(max, SIZE_MAX / 2)};
}

void sh_buf_fini(struct sh_buf *b)
{
    free(b->data);
    *b = (struct sh_buf){.max = b->max};
}

void sh_buf_reset(struct sh_buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

/* For n more bytes and the terminating NUL. No capacity is larger than max + 1. */
static bool has_buf_room(const struct sh_buf *b, size_t n)
{
    return b->cap - b->len > n;
}

/* After this there is room. */
static int make_buf_room(struct sh_buf *b, size_t n, struct sh_err *err)
{
    size_t cap;
    char *p;

    if (b->len > b->max || n > b->max - b->len)
        return SH_FAIL(err, SH_E_TOOBIG, "the data is larger than the limit of %zu bytes", b->max);
    if (has_buf_room(b, n))
        return SH_OK;
    cap = SH_MAX(SH_MAX(b->cap * 2, b->len + n + 1), (size_t)FIRST_CAP);
    cap = SH_MIN(cap, b->max + 1);
    p = realloc(b->data, cap);
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer of %zu bytes", cap);
    b->data = p;
    b->cap = cap;
    b->data[b->len] = '\0';
    return SH_OK;
}

int sh_buf_append(struct sh_buf *b, const void *p, size_t n, struct sh_err *err)
{
    int rc =
        has_buf_room(b, n) ? SH_OK : make_buf_room(b, n, err); /* a message is some ten fields */

    if (rc)
        return rc;
    if (n > 0)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = '\0';
    return SH_OK;
}

int sh_buf_puts(struct sh_buf *b, const char *s, struct sh_err *err)
{
    return sh_buf_append(b, s, strlen(s), err);
}

int sh_buf_printf(struct sh_buf *b, struct sh_err *err, const char *fmt, ...)
{
    const size_t left = b->cap - b->len; /* as a rule enough: then the text is made once */
    va_list ap;
    int n, rc;

    va_start(ap, fmt);
    n = vsnprintf(left ? b->data + b->len : NULL, left, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < left) {
        b->len += (size_t)n;
        return SH_OK;
    }
    if (left)
        b->data[b->len] = '\0'; /* nothing of what did not fit */
    if (n < 0)
        return SH_FAIL(err, SH_E_BUG, "could not format text");
    rc = make_buf_room(b, (size_t)n, err);
    if (rc)
        return rc;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return SH_OK;
}

char *sh_put_decimal(char *at, uint64_t n, unsigned min_digits)
{
    char digits[20];
    unsigned len = 0;

    while (n > 0 || len < min_digits) {
        digits[len++] = (char)('0' + n % 10);
        n /= 10;
    }
    while (len > 0)
        *at++ = digits[--len];
    return at;
}

int sh_buf_escape(struct sh_buf *b, const char *s, const char *plain, struct sh_err *err)
{
    int rc = SH_OK;

    for (; !rc && *s; s++)
        rc = isalnum((unsigned char)*s) || strchr(plain, *s)
                 ? sh_buf_append(b, s, 1, err)
                 : sh_buf_printf(b, err, "%%%02X", (unsigned)(unsigned char)*s);
    return rc;
}

int sh_buf_reserve(struct sh_buf *b, size_t n, char **out, struct sh_err *err)
{
    int rc = make_buf_room(b, n, err);

    *out = NULL;
    if (rc)
        return rc;
    /* However many of the bytes the caller fills, a NUL follows them. */
    memset(b->data + b->len, 0, n + 1);
    *out = b->data + b->len;
    return SH_OK;
}

char *sh_buf_take(struct sh_buf *b)
{
    char *p = b->data;

    b->data = NULL;
    b->len = 0;
    b->cap = 0;
    return p;
}
