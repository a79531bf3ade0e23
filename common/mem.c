/* mem.c - sizes, strings, strict numbers. */
#include "common/mem.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int64_t sh_share(int64_t *amount, uint32_t *shares, uint32_t n)
{
    const int64_t part =
        n < *shares ? (int64_t)((double)*amount * (double)n / (double)*shares) : *amount;

    *amount -= part;
    *shares -= SH_MIN(n, *shares);
    return part;
}

static int by_f64(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int by_i64(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

void sh_sort_f64(double *v, size_t n)
{
    if (n > 1)
        qsort(v, n, sizeof(*v), by_f64);
}

void sh_sort_i64(int64_t *v, size_t n)
{
    if (n > 1)
        qsort(v, n, sizeof(*v), by_i64);
}

int sh_mul_size(size_t a, size_t b, size_t *out, struct sh_err *err)
{
    size_t r;

    if (__builtin_mul_overflow(a, b, &r))
        return SH_FAIL(err, SH_E_TOOBIG, "a size of %zu times %zu is too large", a, b);
    *out = r;
    return SH_OK;
}

int sh_add_size(size_t a, size_t b, size_t *out, struct sh_err *err)
{
    size_t r;

    if (__builtin_add_overflow(a, b, &r))
        return SH_FAIL(err, SH_E_TOOBIG, "a size of %zu plus %zu is too large", a, b);
    *out = r;
    return SH_OK;
}

int sh_strdup(const char *s, char **out, struct sh_err *err)
{
    size_t n;

    *out = NULL;
    if (!s)
        return SH_OK;
    n = strlen(s) + 1;
    *out = malloc(n);
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a string of %zu bytes", n);
    memcpy(*out, s, n);
    return SH_OK;
}

int sh_asprintf(struct sh_err *err, char **out, const char *fmt, ...)
{
    va_list ap;
    int n;

    *out = NULL;
    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return SH_FAIL(err, SH_E_BUG, "could not format a string");
    *out = malloc((size_t)n + 1);
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a string of %d bytes", n + 1);
    va_start(ap, fmt);
    vsnprintf(*out, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return SH_OK;
}

bool sh_strlcpy(char *dst, const char *src, size_t size)
{
    size_t n = strlen(src);

    if (size == 0)
        return false;
    if (n < size) {
        memcpy(dst, src, n + 1);
        return true;
    }
    n = sh_utf8_cut(src, size - 1);
    memcpy(dst, src, n);
    dst[n] = '\0';
    return false;
}

size_t sh_utf8_cut(const char *s, size_t n)
{
    size_t k = n;

    while (k > 0 && n - k < 3 && ((unsigned char)s[k] & 0xC0) == 0x80)
        k--;
    return ((unsigned char)s[k] & 0xC0) == 0x80 ? n : k;
}

size_t sh_utf8_len(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;

    if (p[0] == 0 || p[0] > 0xF4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) /* the NUL ends here too */
            return 0;
    /* too long a form, a surrogate, above the last code point */
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
        (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
        return 0;
    return n;
}

size_t sh_utf8_count(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80; /* no byte that continues a character */
    return n;
}

int sh_grow(void *items, size_t *cap, size_t need, size_t item, size_t max, const char *what,
            struct sh_err *err)
{
    size_t want, bytes = 0;
    void *p;
    int rc;

    if (need <= *cap)
        return SH_OK;
    if (need > max)
        return SH_FAIL(err, SH_E_TOOBIG, "%s: at most %zu are allowed, %zu are needed", what, max,
                       need);
    want = *cap > max / 2 ? max : *cap * 2;
    want = SH_MAX(SH_MAX(want, need), SH_MIN((size_t)8, max));
    rc = sh_mul_size(want, item, &bytes, err);
    if (rc)
        return rc;
    memcpy(&p, items, sizeof(p)); /* items points to a pointer of unknown type */
    p = realloc(p, bytes);
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes for %s", bytes, what);
    memset((char *)p + *cap * item, 0, (want - *cap) * item);
    memcpy(items, &p, sizeof(p));
    *cap = want;
    return SH_OK;
}

void sh_shrink(void *items, size_t *cap, size_t n, size_t item)
{
    void *p;

    if (n == 0 || n >= *cap)
        return;
    memcpy(&p, items, sizeof(p));
    p = realloc(p, n * item);
    if (!p)
        return;
    memcpy(items, &p, sizeof(p));
    *cap = n;
}

bool sh_mem_equal_ct(const void *a, const void *b, size_t n)
{
    const volatile unsigned char *x = a, *y = b;
    unsigned char diff = 0;

    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)(x[i] ^ y[i]);
    return diff == 0;
}

int sh_parse_i64(const char *s, int64_t min, int64_t max, const char *what, int64_t *out,
                 struct sh_err *err)
{
    const char *digits = s && s[0] == '-' ? s + 1 : s;
    bool good = digits && digits[0] != '\0';
    long long v = 0;

    for (const char *p = digits; good && *p; p++)
        good = *p >= '0' && *p <= '9';
    if (good) {
        errno = 0;
        v = strtoll(s, NULL, 10);
        good = errno == 0 && v >= min && v <= max;
    }
    if (!good)
        return SH_FAIL(err, SH_E_INVALID,
                       "%s must be a whole number from %lld to %lld, not \"%.40s\"", what,
                       (long long)min, (long long)max, s ? s : "");
    *out = v;
    return SH_OK;
}

int sh_parse_f64(const char *s, double min, double max, const char *what, double *out,
                 struct sh_err *err)
{
    /* strtod would also take blanks, hexadecimal, "inf" and "nan". */
    bool good = s && s[0] != '\0' && s[0] != '+' && s[strspn(s, "0123456789.eE+-")] == '\0';
    char *end = NULL;
    double v = 0;

    if (good) {
        errno = 0;
        v = strtod(s, &end);
        /* ERANGE also says "so small that it is 0"; that is no error. */
        good = end != s && *end == '\0' && v >= min && v <= max && v - v == 0;
    }
    if (!good)
        return SH_FAIL(err, SH_E_INVALID, "%s must be a number from %g to %g, not \"%.40s\"", what,
                       min, max, s ? s : "");
    *out = v;
    return SH_OK;
}

/* How many bytes the unit has that ends a size; 0: it is none. */
static double unit_factor(const char *s)
{
    static const char UNITS[] = "KMGTP";
    const char *at = *s ? strchr(UNITS, toupper((unsigned char)*s)) : NULL;
    double bytes = at ? (double)(INT64_C(1) << (10 * (at - UNITS + 1))) : 1;

    if (at)
        s++;
    if (at && (*s == 'i' || *s == 'I'))
        s++;
    if (*s == 'B' || *s == 'b')
        s++;
    return *s ? 0 : bytes;
}

int sh_parse_bytes(const char *s, int64_t min, int64_t max, const char *what, int64_t *out,
                   struct sh_err *err)
{
    char digits[32] = "";
    size_t n = s ? strspn(s, "0123456789.") : 0;
    double unit = 0, v = 0;
    int64_t whole = 0;
    bool good = n > 0 && n < sizeof(digits);

    if (good) {
        memcpy(digits, s, n);
        unit = unit_factor(s + n + (s[n] == ' ' && s[n + 1]));
        good = unit > 0;
    }
    /* Whole bytes are exact beyond what a double holds. */
    if (good && unit == 1)
        good = sh_parse_i64(digits, min, max, what, &whole, NULL) == SH_OK;
    else if (good)
        good = sh_parse_f64(digits, 0, 0x1p62 / unit, what, &v, NULL) == SH_OK;
    if (good && unit > 1)
        whole = (int64_t)(v * unit);
    if (!good || whole < min || whole > max) {
        char range[64] = "";

        if (max != INT64_MAX) /* else whoever gets it knows the limit */
            snprintf(range, sizeof(range), " from %lld to %lld bytes", (long long)min,
                     (long long)max);
        return SH_FAIL(err, SH_E_INVALID,
                       "%s must be a size%s, such as 1048576, 512M or 1.5Gi, not \"%.40s\"", what,
                       range, s ? s : "");
    }
    *out = whole;
    return SH_OK;
}

const char *sh_number_text(double v, char out[SH_NUMBER_TEXT])
{
    snprintf(out, SH_NUMBER_TEXT, fabs(v) < 1e16 && v == floor(v) ? "%.0f" : "%.15g", v);
    return out;
}
