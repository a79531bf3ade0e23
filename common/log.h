/* log.h - one event, one line, key=value, to stderr.
 *
 *   ts=2026-11-21T05:53:00.123Z lvl=info proc=shunt-api tenant=a job=42 ev=worker.hello pid=81
 *
 * The event name is a constant like "lease.grant"; dashboards and alerts match on it. Libraries do
 * not log: the top of a daemon does (main, the loop's callbacks, api/http/http.c). A value with
 * blanks goes in quotes: msg="..."; sh_log_quote() makes it safe.
 *
 * Thread-safe; scopes are per thread.
 */
#ifndef SH_COMMON_LOG_H
#define SH_COMMON_LOG_H

#include "common/err.h"

#include <stdint.h>

enum sh_log_level { SH_LOG_ERROR, SH_LOG_WARN, SH_LOG_INFO, SH_LOG_DEBUG, SH_LOG_N_LEVELS };

void sh_log_init(const char *proc, enum sh_log_level level); /* KEEPS proc */
void sh_log_set_level(enum sh_log_level level);
enum sh_log_level sh_log_get_level(void);
int sh_log_level_parse(const char *name, enum sh_log_level *out, struct sh_err *err);

void sh_log(enum sh_log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Logs a failure with code, msg, detail, file and line. */
void sh_log_err(enum sh_log_level level, const char *event, const struct sh_err *err);

#define SH_ERROR(...) sh_log(SH_LOG_ERROR, __VA_ARGS__)
#define SH_WARN(...) sh_log(SH_LOG_WARN, __VA_ARGS__)
#define SH_INFO(...) sh_log(SH_LOG_INFO, __VA_ARGS__)
#define SH_DEBUG(...) sh_log(SH_LOG_DEBUG, __VA_ARGS__)

/* Escapes quotes, backslashes and control characters, so that s can stand between quotes in a line.
 * Cuts what does not fit; NULL gives "". Returns out. */
char *sh_log_quote(const char *s, char *out, size_t size);

/* Limits a log line: true at most once per every_ms. *last_ns: 0 at first; *left_out counts the
 * others. After true, log *left_out and set it to 0. */
bool sh_log_ratelimit(int64_t *last_ns, uint64_t *left_out, int64_t every_ms);

/* Adds this identity to every line of the thread until the block ends. First statement of a
 * block. */
struct sh_log_scope {
    const char *tenant; /* BORROWED for the scope */
    int64_t job;        /* 0: none */
    uint64_t request;   /* 0: none */
    int worker;         /* 0: none */
    struct sh_log_scope *outer;
};
void sh_log_scope_push(struct sh_log_scope *s);
void sh_log_scope_pop(struct sh_log_scope *s);

#define SH_LOG_SCOPE(...)                                                                     \
    struct sh_log_scope sh_scope_ __attribute__((cleanup(sh_log_scope_pop))) = {__VA_ARGS__}; \
    sh_log_scope_push(&sh_scope_)

#endif
