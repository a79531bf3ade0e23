/* mem.h - sizes that cannot overflow, owned strings, strict numbers. Thread-safe. */
#ifndef SH_COMMON_MEM_H
#define SH_COMMON_MEM_H

#include "common/err.h"

#include <stddef.h>
#include <string.h>

#define SH_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define SH_ALIGN_UP(x, a) (((x) + (a)-1) / (a) * (a))
#define SH_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SH_MAX(a, b) ((a) > (b) ? (a) : (b))

/* *out = a * b or a + b. Fails: SH_E_TOOBIG; *out is then untouched. */
int sh_mul_size(size_t a, size_t b, size_t *out, struct sh_err *err);
int sh_add_size(size_t a, size_t b, size_t *out, struct sh_err *err);

/* The part of *amount that n of *shares get. Both become the rest, so that nothing is lost where it
 * is handed out part by part. */
int64_t sh_share(int64_t *amount, uint32_t *shares, uint32_t n);

/* In ascending order. */
void sh_sort_f64(double *v, size_t n);
void sh_sort_i64(int64_t *v, size_t n);

/* *out: OWNED, free(). A NULL s gives NULL. Fails: SH_E_NOMEM. */
int sh_strdup(const char *s, char **out, struct sh_err *err);
int sh_asprintf(struct sh_err *err, char **out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Copies with truncation and always terminates. Never splits a UTF-8 character, so that the result
 * can become JSON or a column. Returns false if it did not fit. */
bool sh_strlcpy(char *dst, const char *src, size_t size);

/* Bytes of the UTF-8 character at s; 0: none (also at the terminating NUL). */
size_t sh_utf8_len(const char *s);
/* How many of the first n bytes of s, which is longer, can be kept without splitting a character.
 * Text that is not UTF-8 is cut anywhere. */
size_t sh_utf8_cut(const char *s, size_t n);
/* Number of characters of a UTF-8 text. */
size_t sh_utf8_count(const char *s);

/* Grows *items (element size `item`) so that it holds at least `need`; doubles *cap; refuses above
 * `max` with SH_E_TOOBIG "<what> ...". New elements are zeroed. */
int sh_grow(void *items, size_t *cap, size_t need, size_t item, size_t max, const char *what,
            struct sh_err *err);
/* Releases the memory behind the first n elements: *cap becomes n, or is unchanged if there is no
 * memory to move them. */
void sh_shrink(void *items, size_t *cap, size_t n, size_t item);

/* Compares in constant time, for secrets. */
bool sh_mem_equal_ct(const void *a, const void *b, size_t n);

/* Strict decimal parsing: the whole string, no blanks, inside [min,max]. Fails: SH_E_INVALID
 * naming `what`. */
int sh_parse_i64(const char *s, int64_t min, int64_t max, const char *what, int64_t *out,
                 struct sh_err *err);
int sh_parse_f64(const char *s, double min, double max, const char *what, double *out,
                 struct sh_err *err);
/* The same for a size: 1048576, 512M, 8Gi, 1.5 GiB. Units are powers of 1024, upper or lower case;
 * fractions of a byte are dropped. */
int sh_parse_bytes(const char *s, int64_t min, int64_t max, const char *what, int64_t *out,
                   struct sh_err *err);

/* A number for people: 9000000000000000, 0.9999999. Returns out. */
#define SH_NUMBER_TEXT 32
const char *sh_number_text(double v, char out[SH_NUMBER_TEXT]);

#endif
