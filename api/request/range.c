/* range.c - see range.h. */
#include "api/request/range.h"

#include "common/mem.h"

#include <string.h>
#include <strings.h>

/* A number at *p; false if there is none. What is too large is as good as the largest. */
static bool read_range_number(const char **p, uint64_t *out)
{
    const char *s = *p;

    *out = 0;
    for (; *s >= '0' && *s <= '9'; s++)
        *out = *out > (UINT64_MAX - 9) / 10 ? UINT64_MAX : *out * 10 + (uint64_t)(*s - '0');
    if (s == *p)
        return false;
    *p = s;
    return true;
}

enum range range_parse(const char *header, uint64_t size, uint64_t *from, uint64_t *n)
{
    static const char UNIT[] = "bytes=";
    const char *p = header;
    uint64_t first, last = UINT64_MAX;
    bool has_first;

    *from = 0;
    *n = size;
    if (!p || strncasecmp(p, UNIT, sizeof(UNIT) - 1) != 0)
        return RANGE_ALL;
    p += sizeof(UNIT) - 1;
    has_first = read_range_number(&p, &first);
    if (*p++ != '-')
        return RANGE_ALL;
    if (*p && !read_range_number(&p, &last))
        return RANGE_ALL;
    if (*p || (!has_first && last == UINT64_MAX) || (has_first && last < first))
        return RANGE_ALL;
    if (!has_first) { /* the last so many */
        first = size - SH_MIN(last, size);
        last = UINT64_MAX;
    }
    if (first >= size)
        return RANGE_BAD;
    *from = first;
    *n = SH_MIN(last, size - 1) - first + 1;
    return RANGE_PART;
}

bool range_etag_listed(const char *header, const char *etag)
{
    size_t len = strlen(etag);

    if (!header)
        return false;
    if (strcmp(header, "*") == 0)
        return true;
    for (const char *p = strstr(header, etag); p; p = strstr(p + 1, etag)) {
        const char *end = p + len + strspn(p + len, " \t");

        if (*end == '\0' || *end == ',') /* it begins with a quote, so nothing else can precede */
            return true;
    }
    return false;
}
