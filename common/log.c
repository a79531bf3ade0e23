/* log.c - one event, one line, key=value. Each line is one write(), so that lines of several
 * threads and processes do not mix. */
#include "common/log.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096 /* PIPE_BUF: a pipe takes it whole or not at all */

static const char *const LEVEL_NAME[SH_LOG_N_LEVELS] = {
    [SH_LOG_ERROR] = "error",
    [SH_LOG_WARN] = "warn",
    [SH_LOG_INFO] = "info",
    [SH_LOG_DEBUG] = "debug",
};

static const char *_Atomic log_proc = "shunt";
static atomic_int log_level = SH_LOG_INFO;
static _Thread_local struct sh_log_scope *scope_top;

struct line {
    char text[LINE_MAX_BYTES];
    size_t len;
};

void sh_log_init(const char *proc, enum sh_log_level level)
{
    atomic_store(&log_proc, proc);
    atomic_store(&log_level, (int)level);
}

void sh_log_set_level(enum sh_log_level level)
{
    atomic_store(&log_level, (int)level);
}

enum sh_log_level sh_log_get_level(void)
{
    return (enum sh_log_level)atomic_load(&log_level);
}

int sh_log_level_parse(const char *name, enum sh_log_level *out, struct sh_err *err)
{
    for (int i = 0; name && i < SH_LOG_N_LEVELS; i++) {
        if (strcasecmp(name, LEVEL_NAME[i]) == 0) {
            *out = (enum sh_log_level)i;
            return SH_OK;
        }
    }
    return SH_FAIL(err, SH_E_INVALID,
                   "the log level must be error, warn, info or debug, not \"%.20s\"",
                   name ? name : "");
}

static void add_v(struct line *l, const char *fmt, va_list ap)
{
    size_t room = sizeof(l->text) - 1 - l->len; /* one byte stays free for the newline */
    size_t start = l->len;
    int n;

    if (room == 0)
        return;
    n = vsnprintf(l->text + l->len, room, fmt, ap);
    if (n < 0)
        return;
    if ((size_t)n >= room) {
        l->len += room - 1;
        if (l->len >= 3)
            memcpy(l->text + l->len - 3, "...", 3);
    } else {
        l->len += (size_t)n;
    }
    /* One event is one line, whatever a caller put into a field. */
    for (size_t i = start; i < l->len; i++)
        if ((unsigned char)l->text[i] < 0x20 || l->text[i] == 0x7F)
            l->text[i] = ' ';
}

__attribute__((format(printf, 2, 3))) static void add_text(struct line *l, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    add_v(l, fmt, ap);
    va_end(ap);
}

/* The innermost scope that knows a field gives it. */
static void add_scope(struct line *l)
{
    struct sh_log_scope all = {0};

    for (const struct sh_log_scope *s = scope_top; s; s = s->outer) {
        if (!all.tenant)
            all.tenant = s->tenant;
        if (!all.job)
            all.job = s->job;
        if (!all.request)
            all.request = s->request;
        if (!all.worker)
            all.worker = s->worker;
    }
    if (all.tenant)
        add_text(l, " tenant=%s", all.tenant);
    if (all.job)
        add_text(l, " job=%lld", (long long)all.job);
    if (all.request)
        add_text(l, " request=%llu", (unsigned long long)all.request);
    if (all.worker)
        add_text(l, " worker=%d", all.worker);
}

static void write_line(struct line *l)
{
    ssize_t n;

    l->text[l->len++] = '\n';
    /* A line that stderr does not take is lost: waiting here would stop the daemon. */
    do {
        n = write(STDERR_FILENO, l->text, l->len);
    } while (n < 0 && errno == EINTR);
}

void sh_log(enum sh_log_level level, const char *event, const char *fmt, ...)
{
    int saved = errno;
    struct line l;
    char ts[25];
    va_list ap;

    if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed) || (int)level < 0)
        return;
    l.len = 0;
    sh_clock_format(sh_clock_wall_ms(), ts);
    add_text(&l, "ts=%s lvl=%s proc=%s", ts, LEVEL_NAME[level], atomic_load(&log_proc));
    add_scope(&l);
    add_text(&l, " ev=%s", event);
    if (fmt && fmt[0]) {
        add_text(&l, " ");
        va_start(ap, fmt);
        add_v(&l, fmt, ap);
        va_end(ap);
    }
    write_line(&l);
    sh_metric_add(M_shunt_log_lines_total, SH_LABELS(LEVEL_NAME[level]), 1);
    errno = saved;
}

char *sh_log_quote(const char *s, char *out, size_t size)
{
    size_t n = 0;

    if (size == 0)
        return out;
    for (const char *p = s ? s : ""; *p; p++) {
        char esc = *p == '"' || *p == '\\' ? *p
                   : *p == '\n'            ? 'n'
                   : *p == '\r'            ? 'r'
                   : *p == '\t'            ? 't'
                                           : '\0';

        if (n + (esc ? 2 : 1) >= size)
            break;
        if (esc)
            out[n++] = '\\';
        out[n++] = esc ? esc : (unsigned char)*p < 0x20 || *p == 0x7F ? ' ' : *p;
    }
    out[n] = '\0';
    return out;
}

void sh_log_err(enum sh_log_level level, const char *event, const struct sh_err *err)
{
    char msg[2 * sizeof(err->msg)], detail[2 * sizeof(err->detail)];
    const char *file = err->file ? err->file : "?";

    sh_log(level, event, "code=%s msg=\"%s\" detail=\"%s\" native=%d at=%s:%d", sh_rc_name(err->rc),
           sh_log_quote(err->msg, msg, sizeof(msg)),
           sh_log_quote(err->detail, detail, sizeof(detail)), err->native, file, err->line);
}

bool sh_log_ratelimit(int64_t *last_ns, uint64_t *left_out, int64_t every_ms)
{
    int64_t now = sh_clock_ns(), last = __atomic_load_n(last_ns, __ATOMIC_RELAXED);

    if (now == 0)
        now = 1; /* 0 means "never" */
    if ((last == 0 || now - last >= SH_MS(every_ms)) &&
        __atomic_compare_exchange_n(last_ns, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return true;
    __atomic_fetch_add(left_out, 1, __ATOMIC_RELAXED);
    return false;
}

void sh_log_scope_push(struct sh_log_scope *s)
{
    s->outer = scope_top;
    scope_top = s;
}

void sh_log_scope_pop(struct sh_log_scope *s)
{
    scope_top = s->outer;
}
