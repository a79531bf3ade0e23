/* cors.c - see cors.h. */
#include "api/http/cors.h"

#include <string.h>
#include <strings.h>

/* The item at *at without blanks around it; *at goes behind it. False: there is none. */
static bool next_item(const char **at, const char **item, size_t *n)
{
    *at += strspn(*at, ", \t");
    *item = *at;
    *n = strcspn(*at, ",");
    *at += *n;
    while (*n && ((*item)[*n - 1] == ' ' || (*item)[*n - 1] == '\t'))
        --*n;
    return *n > 0;
}

static bool is_all(const char *item, size_t n)
{
    return n == 1 && item[0] == '*';
}

/* As a browser sends it: scheme, host, perhaps a port, and no more. */
static bool is_origin(const char *item, size_t n)
{
    size_t scheme = strncmp(item, "https://", 8) == 0  ? 8
                    : strncmp(item, "http://", 7) == 0 ? 7
                                                       : 0;

    if (!scheme || n == scheme)
        return false;
    for (size_t i = scheme; i < n; i++)
        if (item[i] <= ' ' || item[i] > '~' || strchr("/*?#@", item[i]))
            return false;
    return true;
}

int cors_check(const char *origins, struct sh_err *err)
{
    const char *item;
    size_t n;

    while (next_item(&origins, &item, &n))
        if (!is_all(item, n) && !is_origin(item, n))
            return SH_FAIL(err, SH_E_INVALID,
                           "cors-origins: \"%.*s\" is not an origin; write it like "
                           "https://a.example or http://localhost:3000, without a path",
                           (int)(n < 80 ? n : 80), item);
    return SH_OK;
}

bool cors_allows(const char *origins, const char *origin)
{
    const char *item;
    size_t n;

    while (origin && next_item(&origins, &item, &n))
        if (is_all(item, n) || (n == strlen(origin) && strncasecmp(item, origin, n) == 0))
            return true;
    return false;
}
