/* external.c - see external.h. */
#include "common/external.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_DEPTH 48

/* The messages on the way from a model to the entries of external_data. */
enum message { MODEL, FUNCTION, GRAPH, NODE, ATTRIBUTE, TENSOR, ENTRY };

static const struct {
    enum message in;
    uint64_t field;
    enum message is;
} FIELDS[] = {
    {MODEL, 7, GRAPH},     {MODEL, 25, FUNCTION},  {FUNCTION, 7, NODE},    {GRAPH, 1, NODE},
    {GRAPH, 5, TENSOR},    {NODE, 5, ATTRIBUTE},   {ATTRIBUTE, 5, TENSOR}, {ATTRIBUTE, 10, TENSOR},
    {ATTRIBUTE, 6, GRAPH}, {ATTRIBUTE, 11, GRAPH}, {TENSOR, 13, ENTRY},
};

struct walk {
    sh_external_fn *fn;
    void *arg;
};

static bool read_proto_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && *p < end; shift += 7) {
        uint8_t byte = *(*p)++;

        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* The next field: its number, and its content in [*p, *p + *n); *p is behind the tag then. */
static bool read_proto_field(const uint8_t **p, const uint8_t *end, uint64_t *tag, uint64_t *n)
{
    uint64_t ignored;

    if (!read_proto_varint(p, end, tag))
        return false;
    switch (*tag & 7) {
    case 0:
        *n = 0;
        return read_proto_varint(p, end, &ignored);
    case 1:
        *n = 8;
        break;
    case 2:
        if (!read_proto_varint(p, end, n))
            return false;
        break;
    case 5:
        *n = 4;
        break;
    default:
        return false;
    }
    return *n <= (uint64_t)(end - *p);
}

/* An entry of two texts, "location" and the name. */
static bool read_proto_entry(const struct walk *w, const uint8_t *p, const uint8_t *end)
{
    const uint8_t *value = NULL;
    uint64_t tag, n, n_value = 0;
    bool is_location = false;

    for (; p < end; p += n) {
        if (!read_proto_field(&p, end, &tag, &n))
            return false;
        if (tag == (1 << 3 | 2))
            is_location = n == 8 && memcmp(p, "location", 8) == 0;
        if (tag == (2 << 3 | 2)) {
            value = p;
            n_value = n;
        }
    }
    return !is_location || !value || w->fn((const char *)value, (size_t)n_value, w->arg);
}

static bool read_message(const struct walk *w, enum message m, const uint8_t *p, const uint8_t *end,
                         int depth)
{
    uint64_t tag, n;
    bool ok = depth <= MAX_DEPTH;

    if (m == ENTRY)
        return read_proto_entry(w, p, end);
    for (; ok && p < end; p += n) {
        ok = read_proto_field(&p, end, &tag, &n);
        for (size_t i = 0; ok && i < SH_ARRAY_LEN(FIELDS); i++)
            if (FIELDS[i].in == m && tag == (FIELDS[i].field << 3 | 2))
                ok = read_message(w, FIELDS[i].is, p, p + n, depth + 1);
        if (!ok)
            break;
    }
    return ok;
}

bool sh_external_each(const void *onnx, size_t bytes, sh_external_fn *fn, void *arg)
{
    const struct walk w = {fn, arg};
    const uint8_t *p = onnx;

    return read_message(&w, MODEL, p, p + bytes, 0);
}

bool sh_external_inside(const char *path)
{
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");

        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
        if (!*p)
            return true;
    }
}

int sh_external_open(int folder, const char *name)
{
    int at = folder, fd = -1;

    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");
        char part[256];
        bool is_last = !p[n];

        fd = -1;
        if (n < sizeof(part)) {
            snprintf(part, sizeof(part), "%.*s", (int)n, p);
            fd = openat(at, part,
                        O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
                            (is_last ? 0 : O_DIRECTORY));
        } else {
            errno = ENAMETOOLONG;
        }
        if (at != folder)
            close(at);
        at = fd;
        if (fd < 0 || is_last)
            break;
        p += n + 1;
    }
    return fd;
}
