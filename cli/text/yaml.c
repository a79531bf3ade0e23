/* yaml.c - see yaml.h.
 *
 * Few forms are written plain, everything else in double quotes: the rules for plain text differ
 * between versions (in 1.1 `no` is false, 1:30 is 90, 0x1f and 010 are numbers), those for double
 * quotes do not.
 */
#include "cli/text/yaml.h"

#include "common/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct yaml {
    struct sh_buf *b;
    struct sh_err *err;
    int rc;
};

static void emit_text(struct yaml *y, const char *s, size_t n)
{
    if (!y->rc)
        y->rc = sh_buf_append(y->b, s, n, y->err);
}

static void puts_to(struct yaml *y, const char *s)
{
    emit_text(y, s, strlen(s));
}

static void blanks(struct yaml *y, int n)
{
    for (; n > 0; n--)
        emit_text(y, " ", 1);
}

/* A word that begins with a letter, means nothing else, and has no character with a meaning. */
static bool is_plain_scalar(const char *s, size_t n)
{
    static const char *const WORDS[] = {"y",    "n",     "yes",  "no",  "on", "off",
                                        "true", "false", "null", "nan", "inf"};

    if (n == 0 || !(isalpha((unsigned char)s[0]) || s[0] == '/' || s[0] == '_') || s[n - 1] == ' ')
        return false;
    for (size_t i = 0; i < SH_ARRAY_LEN(WORDS); i++)
        if (strlen(WORDS[i]) == n && strncasecmp(s, WORDS[i], n) == 0)
            return false;
    for (size_t i = 0; i < n; i++)
        if (!isascii((unsigned char)s[i]) ||
            !(isalnum((unsigned char)s[i]) || strchr("_./+@%- ", s[i])) || s[i] == '\0')
            return false;
    return true;
}

/* The code point at s; *len: its bytes. jansson gives valid UTF-8. */
static unsigned code_point(const char *s, size_t *len)
{
    unsigned char c = (unsigned char)s[0];
    unsigned v = c < 0x80 ? c : c < 0xe0 ? c & 0x1fu : c < 0xf0 ? c & 0x0fu : c & 0x07u;

    *len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    for (size_t i = 1; i < *len; i++)
        v = v << 6 | ((unsigned char)s[i] & 0x3fu);
    return v;
}

/* Neither a reader nor a terminal takes these as they are. */
static bool is_printable(unsigned v)
{
    return v >= 0x20 && !(v >= 0x7f && v < 0xa0) && v != 0x2028 && v != 0x2029 &&
           !(v >= 0x202a && v <= 0x202e) && !(v >= 0x2066 && v <= 0x2069) && v != 0xfeff &&
           (v & 0xfffe) != 0xfffe;
}

static void quoted(struct yaml *y, const char *s, size_t n)
{
    char esc[16];
    size_t len;

    emit_text(y, "\"", 1);
    for (size_t i = 0; i < n; i += len) {
        unsigned v = code_point(s + i, &len);

        if (v == '"' || v == '\\')
            snprintf(esc, sizeof(esc), "\\%c", (int)v);
        else if (v == '\n' || v == '\t' || v == '\r')
            snprintf(esc, sizeof(esc), "\\%c", v == '\n' ? 'n' : v == '\t' ? 't' : 'r');
        else if (v < 0x100)
            snprintf(esc, sizeof(esc), "\\x%02x", v);
        else
            snprintf(esc, sizeof(esc), v < 0x10000 ? "\\u%04x" : "\\U%08x", v);
        if (is_printable(v) && v != '"' && v != '\\')
            emit_text(y, s + i, len);
        else
            puts_to(y, esc);
    }
    emit_text(y, "\"", 1);
}

static void put_scalar(struct yaml *y, const char *s, size_t n)
{
    if (is_plain_scalar(s, n))
        emit_text(y, s, n);
    else
        quoted(y, s, n);
}

/* A float needs a point for a reader of YAML 1.1: there 1e20 is a text. */
static void real(struct yaml *y, double v)
{
    char digits[40];
    const char *e;

    snprintf(digits, sizeof(digits), "%.15g", v);
    e = strchr(digits, 'e');
    if (strchr(digits, '.')) {
        puts_to(y, digits);
        return;
    }
    emit_text(y, digits, e ? (size_t)(e - digits) : strlen(digits));
    puts_to(y, ".0");
    puts_to(y, e ? e : "");
}

static bool is_block(const json_t *j)
{
    return json_array_size(j) > 0 || json_object_size(j) > 0;
}

/* What stands on the line of its key or dash. */
static void scalar(struct yaml *y, const json_t *j)
{
    char digits[40];

    switch (json_typeof(j)) {
    case JSON_STRING:
        put_scalar(y, json_string_value(j), json_string_length(j));
        break;
    case JSON_INTEGER:
        snprintf(digits, sizeof(digits), "%" JSON_INTEGER_FORMAT, json_integer_value(j));
        puts_to(y, digits);
        break;
    case JSON_REAL:
        real(y, json_real_value(j));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        puts_to(y, json_is_true(j) ? "true" : "false");
        break;
    case JSON_NULL:
        puts_to(y, "null");
        break;
    case JSON_OBJECT:
        puts_to(y, "{}");
        break;
    case JSON_ARRAY:
        puts_to(y, "[]");
        break;
    }
}

/* is_open: the line has begun, with a dash. */
static void put_node(struct yaml *y, const json_t *j, int indent, bool is_open)
{
    const char *key;
    json_t *v;
    size_t i;

    if (!is_block(j)) {
        blanks(y, is_open ? 0 : indent);
        scalar(y, j);
        emit_text(y, "\n", 1);
        return;
    }
    json_array_foreach((json_t *)j, i, v)
    {
        blanks(y, is_open ? 0 : indent);
        puts_to(y, "- ");
        put_node(y, v, indent + 2, true);
        is_open = false;
    }
    json_object_foreach((json_t *)j, key, v)
    {
        blanks(y, is_open ? 0 : indent);
        put_scalar(y, key, strlen(key));
        puts_to(y, is_block(v) ? ":\n" : ": ");
        put_node(y, v, is_block(v) ? indent + 2 : 0, !is_block(v));
        is_open = false;
    }
}

int yaml_append(struct sh_buf *b, const json_t *j, int indent, struct sh_err *err)
{
    struct yaml y = {.b = b, .err = err};

    put_node(&y, j, indent, false);
    return y.rc;
}
