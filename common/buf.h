/* buf.h - a growing byte buffer with a stated maximum. Not thread-safe. */
#ifndef SH_COMMON_BUF_H
#define SH_COMMON_BUF_H

#include "common/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct sh_buf {
    char *data; /* OWNED; always NUL-terminated when not NULL */
    size_t len, cap, max;
};

void sh_buf_init(struct sh_buf *b, size_t max);
void sh_buf_fini(struct sh_buf *b);
void sh_buf_reset(struct sh_buf *b); /* len = 0, memory kept */
int sh_buf_append(struct sh_buf *b, const void *p, size_t n, struct sh_err *err); /* SH_E_TOOBIG */
int sh_buf_puts(struct sh_buf *b, const char *s, struct sh_err *err);
int sh_buf_printf(struct sh_buf *b, struct sh_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes n in decimal, with zeros before it up to min_digits (at most 20) and no NUL; returns the
 * end. For what each request prints: printf() takes ten times as long. */
char *sh_put_decimal(char *at, uint64_t n, unsigned min_digits);
/* Appends s, percent-encoding all but letters, digits and the characters in plain. */
int sh_buf_escape(struct sh_buf *b, const char *s, const char *plain, struct sh_err *err);
/* Makes room for n more bytes and returns where to write them; add to len yourself. */
int sh_buf_reserve(struct sh_buf *b, size_t n, char **out, struct sh_err *err);
char *sh_buf_take(struct sh_buf *b); /* OWNED, free(); b is then empty */

#endif
