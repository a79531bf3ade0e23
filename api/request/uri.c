/* uri.c - see uri.h. */
#include "api/request/uri.h"

#include "common/hash.h"
#include "common/mem.h"

#include <string.h>

/* In place. '+' is a blank only in queries. */
static int decode(char *s, bool query, struct sh_err *err)
{
    const char *text = s;
    char *to = s;

    for (; *s; s++) {
        int hi, lo, c = (unsigned char)*s;

        if (c == '%') {
            hi = sh_hex_digit(s[1]);
            lo = hi < 0 ? -1 : sh_hex_digit(s[2]);
            if (lo < 0)
                return SH_FAIL(err, SH_E_INVALID, "the URL has a %% without two hex digits");
            c = hi * 16 + lo;
            s += 2;
            if (c == 0 || (c == '/' && !query))
                return SH_FAIL(err, SH_E_INVALID,
                               "the URL has an encoded %s, which no name may contain",
                               c ? "slash" : "NUL");
        } else if (query && c == '+') {
            c = ' ';
        } else if (c < 0x21 || c == 0x7f) {
            return SH_FAIL(err, SH_E_INVALID, "the URL has a control character");
        }
        *to++ = (char)c;
    }
    *to = '\0';
    /* Names become JSON and columns. */
    for (; *text; text += sh_utf8_len(text))
        if (sh_utf8_len(text) == 0)
            return SH_FAIL(err, SH_E_INVALID, "the URL is not UTF-8");
    return SH_OK;
}

static int split_path(char *path, struct uri *u, struct sh_err *err)
{
    char *next;
    int rc = SH_OK;

    for (char *s = path + 1; !rc && s; s = next) {
        next = strchr(s, '/');
        if (next)
            *next++ = '\0';
        if (u->n_segments == URI_MAX_SEGMENTS)
            return SH_FAIL(err, SH_E_NOTFOUND, "there is nothing at this URL: too many segments");
        rc = decode(s, false, err);
        u->segments[u->n_segments++] = s;
    }
    return rc;
}

static int split_query(char *query, struct uri *u, struct sh_err *err)
{
    char *next, *value;
    int rc = SH_OK;

    for (char *s = query; !rc && s; s = next) {
        next = strchr(s, '&');
        if (next)
            *next++ = '\0';
        if (!*s)
            continue;
        value = strchr(s, '=');
        if (value)
            *value++ = '\0';
        if (u->n_query == URI_MAX_QUERY)
            return SH_FAIL(err, SH_E_INVALID, "the URL has more than %d query parameters",
                           URI_MAX_QUERY);
        rc = decode(s, true, err);
        if (!rc && value)
            rc = decode(value, true, err);
        if (!rc && uri_query(u, s))
            rc = SH_FAIL(err, SH_E_INVALID, "the URL has the same query parameter twice");
        u->query[u->n_query++] = (struct uri_pair){s, value ? value : s + strlen(s)};
    }
    return rc;
}

int uri_parse(const char *raw, struct uri *out, struct sh_err *err)
{
    size_t len = strlen(raw);
    char *query;
    int rc;

    out->n_segments = out->n_query = 0;
    if (len > URI_MAX_BYTES)
        return SH_FAIL(err, SH_E_TOOBIG, "the URL has %zu bytes, at most %d are allowed", len,
                       URI_MAX_BYTES);
    if (raw[0] != '/')
        return SH_FAIL(err, SH_E_INVALID, "the request target must begin with a slash");
    memcpy(out->text, raw, len + 1);
    query = strchr(out->text, '?');
    if (query)
        *query++ = '\0';
    rc = split_path(out->text, out, err);
    if (!rc && query)
        rc = split_query(query, out, err);
    return rc;
}

/* All pointers lead into the text. */
void uri_copy(const struct uri *from, struct uri *to)
{
    *to = *from;
    for (size_t i = 0; i < to->n_segments; i++)
        to->segments[i] = to->text + (from->segments[i] - from->text);
    for (size_t i = 0; i < to->n_query; i++) {
        to->query[i].name = to->text + (from->query[i].name - from->text);
        to->query[i].value = to->text + (from->query[i].value - from->text);
    }
}

const char *uri_query(const struct uri *u, const char *name)
{
    for (size_t i = 0; i < u->n_query; i++)
        if (strcmp(u->query[i].name, name) == 0)
            return u->query[i].value;
    return NULL;
}
