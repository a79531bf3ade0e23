/* ustar.c - see ustar.h. */
#include "common/ustar.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OCTAL_MAX 077777777777ull /* what 11 digits hold */

struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == USTAR_BLOCK, "a header is one block");

static unsigned checksum(const struct header *h)
{
    const unsigned char *p = (const unsigned char *)h;
    unsigned sum = 0;

    for (size_t i = 0; i < USTAR_BLOCK; i++) {
        bool own =
            i >= offsetof(struct header, sum) && i < offsetof(struct header, sum) + sizeof(h->sum);

        sum += own ? ' ' : p[i];
    }
    return sum;
}

int ustar_write(const char *name, uint64_t size, int64_t mtime_s, void *block, struct sh_err *err)
{
    struct header h = {.type = '0'};

    if (!sh_strlcpy(h.name, name, sizeof(h.name)))
        return SH_FAIL(err, SH_E_TOOBIG, "the name \"%s\" is too long for an archive", name);
    memcpy(h.mode, "0000600", 8);
    memcpy(h.uid, "0000000", 8);
    memcpy(h.gid, "0000000", 8);
    memcpy(h.magic, "ustar", 6);
    memcpy(h.version, "00", 2);
    snprintf(h.mtime, sizeof(h.mtime), "%011" PRIo64, (uint64_t)mtime_s);
    if (size <= OCTAL_MAX) {
        char digits[24];

        snprintf(digits, sizeof(digits), "%011" PRIo64, size);
        memcpy(h.size, digits, sizeof(h.size));
    } else {
        h.size[0] = (char)0x80;
        for (size_t i = 0; i < 8; i++)
            h.size[11 - i] = (char)(size >> (8 * i) & 0xff);
    }
    snprintf(h.sum, sizeof(h.sum), "%06o", checksum(&h));
    h.sum[7] = ' ';
    memcpy(block, &h, sizeof(h));
    return SH_OK;
}

static bool read_octal(const char *p, size_t n, uint64_t *out)
{
    size_t i = 0;

    *out = 0;
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++)
        *out = *out * 8 + (uint64_t)(p[i] - '0');
    return i > 0 && (i == n || p[i] == '\0' || p[i] == ' ');
}

static bool read_octal_size(const struct header *h, uint64_t *out)
{
    if (!((unsigned char)h->size[0] & 0x80))
        return read_octal(h->size, sizeof(h->size), out);
    *out = 0;
    for (size_t i = 4; i < sizeof(h->size); i++)
        *out = *out << 8 | (unsigned char)h->size[i];
    return (unsigned char)h->size[0] == 0x80 && !h->size[1] && !h->size[2] && !h->size[3] &&
           *out <= INT64_MAX;
}

static enum ustar_kind kind_of(const struct header *h)
{
    switch (h->type) {
    case '0':
    case '\0':
        return h->link[0] ? USTAR_OTHER : USTAR_FILE;
    case '5':
        return USTAR_DIR;
    case 'x':
        return USTAR_PAX;
    case 'g':
        return USTAR_PAX_GLOBAL;
    case 'L':
        return USTAR_LONG;
    default:
        return USTAR_OTHER;
    }
}

enum ustar_kind ustar_read(const void *block, struct ustar_entry *out)
{
    struct header h;
    uint64_t sum = 0;
    bool is_posix;

    *out = (struct ustar_entry){{0}, 0};
    memcpy(&h, block, sizeof(h));
    if (h.name[0] == '\0')
        return USTAR_END;
    if (memcmp(h.magic, "ustar", 5) != 0 || !read_octal(h.sum, sizeof(h.sum), &sum) ||
        sum != checksum(&h) || !read_octal_size(&h, &out->size))
        return USTAR_BAD;
    is_posix = h.magic[5] == '\0'; /* GNU tar has something else where the prefix is */
    snprintf(out->name, sizeof(out->name), "%.*s%s%.*s", is_posix ? (int)sizeof(h.prefix) : 0,
             h.prefix, is_posix && h.prefix[0] ? "/" : "", (int)sizeof(h.name), h.name);
    return kind_of(&h);
}

/* "LENGTH key=value\n", where LENGTH counts all of it. */
bool ustar_pax(const char *text, size_t n, struct ustar_entry *e)
{
    while (n > 0) {
        size_t len = 0, at = 0;
        const char *value, *end;

        for (; at < n && at < 8 && text[at] >= '0' && text[at] <= '9'; at++)
            len = len * 10 + (size_t)(text[at] - '0');
        if (at == 0 || at >= n || text[at] != ' ' || len <= at + 1 || len > n ||
            text[len - 1] != '\n')
            return false;
        end = text + len - 1;
        value = memchr(text + at + 1, '=', (size_t)(end - text) - at - 1);
        if (!value)
            return false;
        value++;
        if (strncmp(text + at + 1, "path=", 5) == 0) {
            if ((size_t)(end - value) >= sizeof(e->name) || end == value ||
                memchr(value, 0, (size_t)(end - value)))
                return false;
            snprintf(e->name, sizeof(e->name), "%.*s", (int)(end - value), value);
        } else if (strncmp(text + at + 1, "size=", 5) == 0) {
            char digits[24];
            int64_t size = 0;

            if ((size_t)(end - value) >= sizeof(digits))
                return false;
            snprintf(digits, sizeof(digits), "%.*s", (int)(end - value), value);
            if (sh_parse_i64(digits, 0, INT64_MAX, "a size", &size, NULL))
                return false;
            e->size = (uint64_t)size;
        }
        text += len;
        n -= len;
    }
    return true;
}

bool ustar_long(const char *text, size_t n, struct ustar_entry *e)
{
    n -= n > 0 && text[n - 1] == '\0';
    if (n == 0 || n >= sizeof(e->name) || memchr(text, '\0', n))
        return false;
    memcpy(e->name, text, n);
    e->name[n] = '\0';
    return true;
}
