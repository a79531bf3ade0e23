/* numpy.c - see inputs.h. The format: numpy/lib/format.py. */
#include "cli/data/inputs.h"
#include "cli/files/user_file.h"
#include "common/io.h"
#include "common/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC_BYTES 8u /* and the version */
#define MAX_HEADER 65536u
#define MAX_DIM (INT64_C(1) << 40)

struct
    header { /* a literal of Python: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } */
    const char *p;
    char descr[16];
    bool is_fortran, has_descr, has_order, has_shape;
    size_t rank; /* beyond SH_MAX_RANK: of that many axes the sizes are not kept */
    int64_t dims[SH_MAX_RANK];
};

static void skip_blanks(struct header *h)
{
    h->p += strspn(h->p, " \t\n");
}

static bool header_take(struct header *h, char c)
{
    skip_blanks(h);
    if (*h->p != c)
        return false;
    h->p++;
    return true;
}

static bool take_word(struct header *h, const char *word)
{
    skip_blanks(h);
    if (strncmp(h->p, word, strlen(word)) != 0)
        return false;
    h->p += strlen(word);
    return true;
}

/* 'text' or "text", without escapes: names of fields and types have none. */
static bool take_text(struct header *h, char *out, size_t size)
{
    char quote;
    size_t n;

    skip_blanks(h);
    quote = *h->p;
    if (quote != '\'' && quote != '"')
        return false;
    n = strcspn(h->p + 1, quote == '\'' ? "'\\" : "\"\\");
    if (h->p[1 + n] != quote || n >= size)
        return false;
    memcpy(out, h->p + 1, n);
    out[n] = '\0';
    h->p += n + 2;
    return true;
}

/* (2, 3), (2,) or () */
static bool take_shape(struct header *h)
{
    if (!header_take(h, '('))
        return false;
    while (!header_take(h, ')')) {
        char digits[16];
        size_t n;

        skip_blanks(h);
        n = strspn(h->p, "0123456789");
        if (n == 0 || n >= sizeof(digits))
            return false;
        memcpy(digits, h->p, n);
        digits[n] = '\0';
        h->p += n;
        h->p += *h->p == 'L'; /* Python 2 */
        if (sh_parse_i64(digits, 0, MAX_DIM, "axis", &h->dims[SH_MIN(h->rank, SH_MAX_RANK - 1)],
                         NULL))
            return false;
        h->rank++;
        if (!header_take(h, ',')) {
            if (!header_take(h, ')'))
                return false;
            break;
        }
    }
    h->has_shape = true;
    return true;
}

static bool take_member(struct header *h)
{
    char key[24];

    if (!take_text(h, key, sizeof(key)) || !header_take(h, ':'))
        return false;
    if (strcmp(key, "descr") == 0 && !h->has_descr) {
        skip_blanks(h);
        if (*h->p == '[') { /* of a table, whose rows have named fields */
            sh_strlcpy(h->descr, "a table", sizeof(h->descr));
            return h->has_descr = true;
        }
        return h->has_descr = take_text(h, h->descr, sizeof(h->descr));
    }
    if (strcmp(key, "fortran_order") == 0 && !h->has_order) {
        h->is_fortran = take_word(h, "True");
        return h->has_order = h->is_fortran || take_word(h, "False");
    }
    return strcmp(key, "shape") == 0 && !h->has_shape && take_shape(h);
}

static bool header_parse(struct header *h)
{
    if (!header_take(h, '{'))
        return false;
    while (!header_take(h, '}')) {
        if (!take_member(h))
            return false;
        if (strcmp(h->descr, "a table") == 0)
            return true; /* what follows is not looked at: it is refused */
        if (!header_take(h, ',') && *(h->p + strspn(h->p, " \t\n")) != '}')
            return false;
    }
    skip_blanks(h);
    return *h->p == '\0' && h->has_descr && h->has_order && h->has_shape;
}

static enum sh_dtype type_of_descr(const char *descr)
{
    static const struct {
        const char *code;
        enum sh_dtype type;
    } TYPES[] = {{"f4", SH_F32}, {"f8", SH_F64}, {"f2", SH_F16}, {"i1", SH_I8},
                 {"i2", SH_I16}, {"i4", SH_I32}, {"i8", SH_I64}, {"u1", SH_U8},
                 {"u2", SH_U16}, {"u4", SH_U32}, {"u8", SH_U64}, {"b1", SH_BOOL}};

    for (size_t i = 0; i < SH_ARRAY_LEN(TYPES); i++)
        if (descr[0] && strchr("<|=", descr[0]) && strcmp(descr + 1, TYPES[i].code) == 0)
            return TYPES[i].type;
    return SH_N_DTYPES;
}

static int header_check(const char *path, const struct header *h, struct sh_err *err)
{
    if (h->descr[0] == '>')
        return SH_FAIL(
            err, SH_E_UNSUPPORTED,
            "\"%s\" is big-endian (%s): write it with x.astype(x.dtype.newbyteorder('<'))", path,
            h->descr);
    if (type_of_descr(h->descr) == SH_N_DTYPES)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "\"%s\" holds %s, which is no type of a tensor; give it one such as float32",
                       path, h->descr);
    if (h->rank > SH_MAX_RANK)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "\"%s\" has %zu axes, at most %d are supported", path,
                       h->rank, SH_MAX_RANK);
    if (h->is_fortran)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "\"%s\" is in the order of Fortran: write it with "
                       "numpy.save(FILE, numpy.ascontiguousarray(x))",
                       path);
    return SH_OK;
}

/* *at: where the header begins, then where it ends. */
static int read_npy_header(int fd, const char *path, struct header *h, char *text, uint64_t *at,
                           struct sh_err *err)
{
    const uint64_t from = *at;
    uint8_t head[MAGIC_BYTES + 4];
    ssize_t n = sh_pread_all(fd, head, sizeof(head), from);
    uint32_t len;

    if (n < (ssize_t)sizeof(head) || memcmp(head, "\x93NUMPY", 6) != 0)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" is not a NumPy array", path);
    if (head[6] < 1 || head[6] > 3)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "\"%s\" is of version %u.%u of NumPy's format; 1 to 3 "
                       "are read",
                       path, head[6], head[7]);
    len = (uint32_t)head[8] | (uint32_t)head[9] << 8;
    if (head[6] > 1)
        len |= (uint32_t)head[10] << 16 | (uint32_t)head[11] << 24;
    *at = from + MAGIC_BYTES + (head[6] > 1 ? 4 : 2);
    if (len >= MAX_HEADER)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" has a header of %u bytes, at most %u are read",
                       path, len, MAX_HEADER - 1);
    if (sh_pread_all(fd, text, len, *at) != (ssize_t)len)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" ends within its header", path);
    text[len] = '\0';
    *at += len;
    *h = (struct header){.p = text};
    return header_parse(h)
               ? header_check(path, h, err)
               : SH_FAIL(err, SH_E_INVALID, "\"%s\" has a header that is not NumPy's", path);
}

int npy_find(int fd, const char *path, uint64_t from, int64_t file_bytes, struct tensor *out,
             uint64_t *at, struct sh_err *err)
{
    char *text = malloc(MAX_HEADER);
    struct header h = {0};
    size_t bytes;
    int rc = SH_OK;

    *out = (struct tensor){0};
    *at = from;
    if (!text)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a header");
    rc = read_npy_header(fd, path, &h, text, at, err);
    free(text);
    if (rc)
        return rc;
    *out = (struct tensor){.dtype = type_of_descr(h.descr), .rank = h.rank};
    memcpy(out->dims, h.dims, sizeof(out->dims));
    bytes = sh_dtype_bytes(out->dtype);
    for (size_t i = 0; !rc && i < out->rank; i++)
        if (sh_mul_size(bytes, (size_t)out->dims[i], &bytes, NULL))
            rc = SH_FAIL(err, SH_E_TOOBIG, "\"%s\" has a shape that no memory holds", path);
    if (!rc && (*at - from > (uint64_t)file_bytes || (uint64_t)file_bytes - (*at - from) != bytes))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"%s\" has %lld bytes behind its header, its shape wants %zu", path,
                     (long long)file_bytes - (long long)(*at - from), bytes);
    return rc;
}

static int read_npy_data(int fd, const char *path, uint64_t at, size_t bytes, struct tensor *out,
                         struct sh_err *err)
{
    if (bytes > INPUTS_MAX_BYTES)
        return SH_FAIL(err, SH_E_TOOBIG, "\"%s\" holds %zu bytes, at most %zu are sent", path,
                       bytes, INPUTS_MAX_BYTES);
    out->own = malloc(bytes ? bytes : 1);
    out->data = out->own;
    if (!out->own)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes", bytes);
    return sh_pread_all(fd, out->own, bytes, at) == (ssize_t)bytes
               ? SH_OK
               : SH_FAIL(err, SH_E_IO, "could not read \"%s\"", path);
}

int npy_read(const char *path, struct tensor *out, struct sh_err *err)
{
    uint64_t at = 0;
    int64_t bytes = 0;
    int fd = -1, rc = user_file_open(path, &fd, &bytes, err);

    *out = (struct tensor){0};
    if (!rc)
        rc = npy_find(fd, path, 0, bytes, out, &at, err);
    if (!rc)
        rc = read_npy_data(fd, path, at, (size_t)bytes - at, out, err);
    if (rc) {
        free(out->own);
        *out = (struct tensor){0};
    }
    if (fd >= 0)
        close(fd);
    return rc;
}
