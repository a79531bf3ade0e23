/* noun.c - see noun.h. */
#include "api/request/noun.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

json_t *noun_body(struct api_req *q, struct sh_err *err)
{
    json_t *body = q->json ? json_incref(q->json) : json_object();

    if (!body)
        SH_FAIL(err, SH_E_NOMEM, "could not allocate the body");
    return body;
}

int noun_read(struct api_req *q, const char *what, const struct sh_json_field *f, size_t n,
              struct sh_err *err)
{
    json_t *body = noun_body(q, err);
    int rc = body ? sh_json_read(body, what, f, n, err) : SH_E_NOMEM;

    json_decref(body);
    return rc;
}

bool noun_is_name(const char *s)
{
    size_t len = strlen(s);

    return len >= 1 && len <= 128 && s[0] != '.' && s[0] != '_' && s[0] != '-' &&
           strspn(s, LOWER UPPER "._-") == len;
}

bool noun_is_tenant_name(const char *s)
{
    size_t len = strlen(s);

    return len >= 1 && len <= 63 && s[0] != '-' && strspn(s, LOWER "-") == len;
}

int noun_check_name(const char *field, const char *s, struct sh_err *err)
{
    if (noun_is_name(s))
        return SH_OK;
    return sh_json_fail(err, field,
                        "\"%s\" must be 1 to 128 letters, digits, '.', '_' or '-' and begin with a "
                        "letter or digit",
                        field);
}

int noun_check_tenant_name(const char *field, const char *s, struct sh_err *err)
{
    if (noun_is_tenant_name(s))
        return SH_OK;
    return sh_json_fail(
        err, field,
        "\"%s\" must be 1 to 63 lower-case letters, digits or '-' and not begin with '-'", field);
}

bool noun_is_number(const char *s, int64_t max)
{
    int64_t n;

    return s[0] >= '1' && s[0] <= '9' && sh_parse_i64(s, 1, max, "number", &n, NULL) == SH_OK;
}

int noun_check_choice(const char *field, const char *s, const char *words, struct sh_err *err)
{
    char text[160];
    const char *one;
    size_t len, n = 0;

    if (sh_words_have(words, s))
        return SH_OK;
    text[0] = '\0';
    for (size_t i = 0; (one = sh_words_at(words, i, &len)) && n < sizeof(text); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%.*s", i ? ", " : "", (int)len, one);
    return sh_json_fail(err, field, "\"%s\" must be one of: %s", field, text);
}

/* Does s have the form of the pattern, d standing for a digit? Returns the rest, NULL if not. */
static const char *after_form(const char *s, const char *pattern)
{
    for (; *pattern; pattern++, s++)
        if (*pattern == 'd' ? *s < '0' || *s > '9' : *s != *pattern)
            return NULL;
    return s;
}

/* "Z" or "+hh:mm" as minutes. */
static bool read_zone(const char *s, int *out)
{
    int h, m;

    *out = 0;
    if (strcmp(s, "Z") == 0)
        return true;
    if ((s[0] != '+' && s[0] != '-') || !after_form(s + 1, "dd:dd") || s[6])
        return false;
    h = (s[1] - '0') * 10 + s[2] - '0';
    m = (s[4] - '0') * 10 + s[5] - '0';
    *out = (s[0] == '-' ? -1 : 1) * (h * 60 + m);
    return h < 24 && m < 60;
}

static int digits_at(const char *s, int digits)
{
    int n = 0;

    while (digits-- > 0)
        n = n * 10 + (*s++ - '0');
    return n;
}

int noun_read_time(const char *field, const char *s, int64_t *ms_out, struct sh_err *err)
{
    const char *rest = strlen(s) <= 35 ? after_form(s, "dddd-dd-ddTdd:dd:dd") : NULL;
    struct tm tm = {0}, asked;
    int ms = 0, zone = 0;
    int64_t at;

    if (!rest)
        goto bad;
    if (rest[0] == '.' && rest[1] >= '0' && rest[1] <= '9') {
        rest++;
        for (int scale = 100; *rest >= '0' && *rest <= '9'; rest++, scale /= 10)
            ms += (*rest - '0') * scale;
    }
    asked = (struct tm){.tm_year = digits_at(s, 4) - 1900,
                        .tm_mon = digits_at(s + 5, 2) - 1,
                        .tm_mday = digits_at(s + 8, 2),
                        .tm_hour = digits_at(s + 11, 2),
                        .tm_min = digits_at(s + 14, 2),
                        .tm_sec = digits_at(s + 17, 2)};
    tm = asked;
    at = timegm(&tm); /* normalises: what is no date comes out as another */
    if (!read_zone(rest, &zone) || tm.tm_mon != asked.tm_mon || tm.tm_mday != asked.tm_mday ||
        tm.tm_hour != asked.tm_hour || tm.tm_min != asked.tm_min || tm.tm_sec != asked.tm_sec)
        goto bad;
    *ms_out = SH_MAX((at - zone * 60) * 1000 + ms, INT64_C(0));
    return SH_OK;
bad:
    return sh_json_fail(err, field, "\"%s\" must be a time such as 2027-01-31T00:00:00Z", field);
}

int noun_check_future(const char *field, const char *s, struct sh_err *err)
{
    int64_t when_ms = 0;
    int rc = noun_read_time(field, s, &when_ms, err);

    if (!rc && when_ms <= (int64_t)time(NULL) * 1000)
        rc = sh_json_fail(err, field, "\"%s\" %s has passed already", field, s);
    return rc;
}

int noun_missing(const char *what, const char *name, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_NOTFOUND, "there is no %s \"%.128s\"", what, name);
}

int noun_check_version(int64_t have, const char *if_match, const char *what, struct sh_err *err)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, have);
    if (strcmp(text, if_match) == 0)
        return SH_OK;
    return SH_FAIL(err, SH_E_PRECONDITION,
                   "the %s was changed: its ETag is now \"%s\", not \"%s\"; read it again", what,
                   text, if_match);
}

int noun_refused(const json_t *now, const char *if_match, const char *what, const char *name,
                 const char *reason, struct sh_err *err)
{
    int64_t have = json_integer_value(json_object_get(now, "row_version"));

    if (!now)
        return noun_missing(what, name, err);
    if (if_match && noun_check_version(have, if_match, what, err))
        return SH_E_PRECONDITION;
    return SH_FAIL(err, SH_E_CONFLICT, "%s", reason);
}

int noun_path_tenant(const struct api_req *q, const char *name, struct sh_err *err)
{
    if (!noun_is_tenant_name(name) ||
        (q->who.role != ROLE_ADMIN && strcmp(name, q->who.tenant) != 0))
        return noun_missing("tenant", name, err);
    return SH_OK;
}

int noun_reply(struct api_req *q, int rc, json_t *j, const char *what, const char *name,
               struct sh_err *err)
{
    if (!rc && !j)
        rc = noun_missing(what, name, err);
    return rc ? rc : req_reply(q, j, NULL, err);
}

int noun_page_reply(struct api_req *q, int rc, json_t *page, struct sh_err *err)
{
    return rc ? rc : req_reply(q, page, NULL, err);
}
