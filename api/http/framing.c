/* framing.c - see framing.h. */
#include "api/http/framing.h"

#include <string.h>
#include <strings.h>

static bool is(const char *name, size_t len, const char *want)
{
    return len == strlen(want) && strncasecmp(name, want, len) == 0;
}

/* RFC 9110 "token": anything else in a name is a trick with blanks or separators. */
static bool is_token(const char *s, size_t len)
{
    static const bool IS_SEPARATOR[0x7f] = {
        ['"'] = true, ['('] = true, [')'] = true, [','] = true,  ['/'] = true, [':'] = true,
        [';'] = true, ['<'] = true, ['='] = true, ['>'] = true,  ['?'] = true, ['@'] = true,
        ['['] = true, [']'] = true, ['{'] = true, ['\\'] = true, ['}'] = true,
    };

    for (size_t i = 0; i < len; i++)
        if (s[i] <= ' ' || s[i] >= 0x7f || IS_SEPARATOR[(unsigned char)s[i]])
            return false;
    return len > 0;
}

static bool is_header_text(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f)
            return false;
    return true;
}

void framing_length(struct framing *f, const char *name, size_t name_len, const char *value,
                    size_t len)
{
    if (!is(name, name_len, "Content-Length"))
        return;
    f->n_length++;
    f->length = 0;
    f->bad_length |= len == 0 || len > 18;
    for (size_t i = 0; i < len && len <= 18; i++) {
        f->bad_length |= value[i] < '0' || value[i] > '9';
        f->length = f->length * 10 + (uint64_t)(value[i] - '0');
    }
}

void framing_target(struct framing *f, const char *raw)
{
    f->next = raw + strlen(raw) + 1; /* one blank */
}

/* A text of n bytes at `at`, with CRLF behind it. */
static void put_header_line(struct framing *f, const char *at, const char *text, size_t n)
{
    if (!f->next)
        return;
    f->gap |= at != f->next || text[n] || text[n + 1];
    f->next = text + n + 2;
}

void framing_version(struct framing *f, const char *version)
{
    f->needs_host = strcmp(version, "HTTP/1.0") != 0;
    put_header_line(f, version, version, strlen(version));
}

void framing_add(struct framing *f, const char *name, size_t name_len, const char *value,
                 size_t value_len)
{
    put_header_line(f, name, value, value_len);
    f->bad_name |= !is_token(name, name_len);
    f->bad_value |= !is_header_text(value, value_len);
    framing_length(f, name, name_len, value, value_len);
    if (is(name, name_len, "Transfer-Encoding")) {
        f->n_encoding++;
        f->chunked = is(value, value_len, "chunked");
        f->bad_encoding |= !f->chunked;
    } else if (is(name, name_len, "Host")) {
        f->n_host++;
    }
}

int framing_check(const struct framing *f, struct sh_err *err)
{
    if (f->bad_name)
        return SH_FAIL(err, SH_E_INVALID, "a header's name has a character that is not allowed");
    if (f->bad_value)
        return SH_FAIL(err, SH_E_INVALID, "a header's value has a control character");
    if (f->gap || (f->next && (f->next[0] || f->next[1])))
        return SH_FAIL(err, SH_E_INVALID,
                       "a line of the request's head does not end with CRLF, is folded, or has a "
                       "NUL");
    if (f->needs_host && f->n_host == 0)
        return SH_FAIL(err, SH_E_INVALID, "the request has no Host header");
    if (f->n_host > 1)
        return SH_FAIL(err, SH_E_INVALID, "there is more than one Host header");
    if (f->bad_encoding || f->n_encoding > 1)
        return SH_FAIL(err, SH_E_INVALID,
                       "the only Transfer-Encoding accepted here is \"chunked\"");
    if (f->n_length && f->n_encoding)
        return SH_FAIL(err, SH_E_INVALID,
                       "Content-Length and Transfer-Encoding must not come together");
    if (f->n_length > 1)
        return SH_FAIL(err, SH_E_INVALID, "there is more than one Content-Length header");
    if (f->bad_length)
        return SH_FAIL(err, SH_E_INVALID,
                       "Content-Length must be a decimal number of at most 18 digits");
    return SH_OK;
}
