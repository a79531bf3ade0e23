/* logs.c - shunt logs: the log of a job, once or as it grows. */
#include "cli/cli.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/job.h"
#include "cli/text/out.h"
#include "common/clock.h"
#include "common/http.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define POLL_MS 1000
#define LAST_LOOKS 2 /* after the job's end: its last lines are written behind it */

/* What was printed last is asked for again, so that it is noticed when the server has written the
 * log anew: then all of it is read, and what follows that line is new. */
struct logs {
    struct cli *c;
    char *path;      /* OWNED; with --tenant */
    char *last;      /* OWNED: the line that was printed last, with its end; NULL: none */
    int64_t last_at; /* where it lies on the server */
    int64_t tail;    /* of the first look; -1: all */
    bool got_some;   /* at the last look */
};

/* From that byte on. *out: OWNED. SH_E_INVALID: there is no such place any more. */
static int read_log_from(struct logs *l, int64_t from, struct sh_http_reply *r, struct sh_err *err)
{
    struct sh_http_req q = {.method = "GET", .path = l->path};
    char range[48];
    int rc;

    if (from > 0) {
        snprintf(range, sizeof(range), "Range: bytes=%" PRId64 "-", from);
        q.headers[0] = range;
    }
    rc = rest_open(l->c, err);
    if (!rc) {
        rc = sh_http_call(l->c->http, &q, r, err);
        if (rc)
            l->c->exit_code = CLI_NOT_REACHABLE;
    }
    if (!rc && r->status == 416)
        return SH_FAIL(err, SH_E_INVALID, "the log has become shorter");
    return rc ? rc : rest_check(l->c, r, 0, err);
}

static const char *last_lines(const char *text, size_t n, int64_t lines)
{
    const char *p = text + n;

    if (lines < 0)
        return text;
    while (lines > 0 && p > text) {
        p--;
        while (p > text && p[-1] != '\n')
            p--;
        lines--;
    }
    return p;
}

/* What of the text is new: text itself, or behind the line that was printed last. */
static const char *new_log_text(const struct logs *l, const char *text, size_t n)
{
    const char *found = NULL;

    if (!l->last)
        return last_lines(text, n, l->tail);
    for (const char *p = strstr(text, l->last); p; p = strstr(p + 1, l->last))
        found = p;
    return found ? found + strlen(l->last) : text;
}

/* Whole lines; text begins at byte `at` of the log. */
static int print_log(struct logs *l, const char *text, size_t n, int64_t at, struct sh_err *err)
{
    const char *p, *last;

    while (n > 0 && text[n - 1] != '\n')
        n--;
    p = n > 0 ? new_log_text(l, text, n) : text;
    l->got_some = p < text + n;
    if (l->got_some && fwrite(p, 1, (size_t)(text + n - p), stdout) == 0)
        return SH_FAIL(err, SH_E_IO, "could not print the log");
    fflush(stdout);
    if (n == 0)
        return SH_OK;
    last = last_lines(text, n, 1);
    free(l->last);
    l->last = strndup(last, (size_t)(text + n - last));
    l->last_at = at + (last - text);
    return l->last ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not keep a line of the log");
}

static int logs_look(struct logs *l, struct sh_err *err)
{
    struct sh_http_reply r = {0};
    struct sh_err one = {0};
    int64_t from = l->last ? l->last_at : 0;
    int rc = read_log_from(l, from, &r, &one);
    bool fits = !rc && (from == 0 || (r.status == 206 && r.body &&
                                      strncmp(r.body, l->last, strlen(l->last)) == 0));

    if (from > 0 && ((!rc && !fits) || rc == SH_E_INVALID)) {
        sh_http_reply_fini(&r);
        r = (struct sh_http_reply){0};
        one = (struct sh_err){0};
        from = 0;
        rc = read_log_from(l, 0, &r, &one);
    }
    if (!rc)
        rc = print_log(l, r.body ? r.body : "", r.len, from, &one);
    sh_http_reply_fini(&r);
    return rc ? sh_err_copy(err, &one) : SH_OK;
}

/* Both calls of a round, so that a server that is away for a moment ends nothing. *has_ended: as it
 * was before the log was read. */
static int round_of(struct logs *l, const char *job, bool *has_ended, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = rest_get(l->c, job, REST_TENANT, &j, err);

    *has_ended = job_is_final(sh_json_text(j, "state"));
    json_decref(j);
    return rc ? rc : logs_look(l, err);
}

static int logs_follow(struct logs *l, struct sh_err *err)
{
    char job[REST_PATH_MAX];
    int64_t seen_ns = 0;
    int n_last = 0, rc = job_path(l->c, job, l->c->args[0], NULL, err);

    while (!rc && n_last < LAST_LOOKS) {
        struct sh_err now = {0};
        bool has_ended = false;

        rc = round_of(l, job, &has_ended, &now);
        if (rest_is_away(l->c, rc, seen_ns))
            rc = SH_OK;
        else if (rc)
            sh_err_copy(err, &now);
        else
            seen_ns = sh_clock_ns();
        n_last = has_ended && !l->got_some ? n_last + 1 : 0;
        if (!rc && n_last < LAST_LOOKS)
            cli_sleep_ms(POLL_MS);
    }
    return rc;
}

int job_logs(struct cli *c, struct sh_err *err)
{
    struct logs l = {.c = c, .tail = c->conf->tail};
    char path[REST_PATH_MAX];
    int rc = job_path(c, path, c->args[0], "log", err);

    if (!rc)
        rc = rest_with_tenant(c, path, &l.path, err);
    if (!rc)
        rc = c->conf->follow ? logs_follow(&l, err) : logs_look(&l, err);
    free(l.path);
    free(l.last);
    return rc;
}
