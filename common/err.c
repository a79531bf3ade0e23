/* err.c - failures: recording, naming, mapping to HTTP. */
#include "common/err.h"

#include "common/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct rc_row {
    int rc;
    const char *name, *text;
    int http;
    bool retry;
} ROWS[] = {{SH_OK, "OK", "ok", 200, false},
#define X(code, rc_name, rc_http, rc_retry, rc_text) {code, #rc_name, rc_text, rc_http, rc_retry},
            SH_RC_MAP(X)
#undef X
};

static const struct rc_row *find_rc(int rc)
{
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++)
        if (ROWS[i].rc == rc)
            return &ROWS[i];
    return NULL;
}

/* A message quotes what strangers sent, cut at any byte. It must still become JSON and one line of
 * log, so what is not UTF-8 turns into '?' and control characters into blanks. */
static void format(char *out, size_t size, const char *fmt, va_list ap)
{
    size_t n;

    if (size == 0)
        return;
    if (vsnprintf(out, size, fmt, ap) < 0)
        out[0] = '\0';
    for (char *p = out; *p; p += n ? n : 1) {
        n = sh_utf8_len(p);
        if (n == 0)
            *p = '?';
        else if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = ' ';
    }
}

/* Returns false if there is nowhere to record, or the place is taken: the first failure wins. */
static bool record(struct sh_err *err, int rc, const char *file, int line)
{
    if (!err || err->rc != SH_OK)
        return false;
    err->rc = rc;
    err->native = 0;
    err->file = file;
    err->line = line;
    err->detail[0] = '\0';
    return true;
}

int sh_err_set(struct sh_err *err, int rc, const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    if (rc >= SH_OK)
        rc = SH_E_BUG; /* a "failure" with the code for success would be lost */
    if (record(err, rc, file, line)) {
        va_start(ap, fmt);
        format(err->msg, sizeof(err->msg), fmt, ap);
        va_end(ap);
    }
    return rc;
}

int sh_err_errno(struct sh_err *err, int rc, const char *file, int line, const char *fmt, ...)
{
    int saved = errno;
    char text[128];
    va_list ap;

    if (saved == ENOSPC || saved == EDQUOT)
        rc = SH_E_DISKFULL;
    else if (saved == ENOMEM)
        rc = SH_E_NOMEM;
    else if (rc >= SH_OK)
        rc = SH_E_BUG;
    if (record(err, rc, file, line)) {
        va_start(ap, fmt);
        format(err->msg, sizeof(err->msg), fmt, ap);
        va_end(ap);
        err->native = saved;
        sh_err_detail(err, "%s", strerror_r(saved, text, sizeof(text)));
    }
    errno = saved;
    return rc;
}

void sh_err_detail(struct sh_err *err, const char *fmt, ...)
{
    size_t used;
    va_list ap;

    if (!err || err->rc == SH_OK)
        return;
    used = strnlen(err->detail, sizeof(err->detail) - 1);
    if (used > 0 && used + 2 < sizeof(err->detail)) {
        err->detail[used++] = ';';
        err->detail[used++] = ' ';
        err->detail[used] = '\0';
    }
    va_start(ap, fmt);
    format(err->detail + used, sizeof(err->detail) - used, fmt, ap);
    va_end(ap);
}

int sh_err_copy(struct sh_err *to, const struct sh_err *from)
{
    if (to && to != from && to->rc == SH_OK) {
        struct sh_faults *faults = to->faults;

        *to = *from;
        to->faults = faults;
    }
    return from->rc;
}

const char *sh_rc_name(int rc)
{
    const struct rc_row *r = find_rc(rc);

    return r ? r->name : "?";
}

const char *sh_rc_text(int rc)
{
    const struct rc_row *r = find_rc(rc);

    return r ? r->text : "unknown error";
}

int sh_rc_http(int rc)
{
    const struct rc_row *r = find_rc(rc);

    return r ? r->http : 500;
}

bool sh_rc_retry(int rc)
{
    const struct rc_row *r = find_rc(rc);

    return r && r->retry;
}

int sh_rc_parse(const char *name)
{
    for (size_t i = 0; name && i < sizeof(ROWS) / sizeof(ROWS[0]); i++)
        if (strcmp(ROWS[i].name, name) == 0)
            return ROWS[i].rc;
    return SH_E_BUG;
}
