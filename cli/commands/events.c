/* events.c - the events of one job or of all: a list, or a stream that is reopened whenever it
 * breaks. */
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/job.h"
#include "cli/text/out.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"

#include <stdio.h>
#include <stdlib.h>

#define AGAIN_MS 500
#define SILENCE_MS 45000 /* the server says something every 15 s */
#define AWAY_NS SH_S(30) /* a server that is restarted meanwhile does not end this */
#define MAX_LINE (1u << 20)

struct follow {
    struct cli *c;
    struct sh_buf line; /* not complete yet */
    json_int_t last;    /* event that was printed */
    char place[64];     /* of it, among those of all jobs */
    bool of_all;
    bool is_over; /* that was the job's last one */
    int rc;
    int64_t heard_ns;
};

/* Of all jobs, an event says whose it is. */
static void print_whose(const json_t *e)
{
    char tenant[128], job[32];

    if (!json_object_get(e, "job"))
        return;
    out_text(e, "tenant", OUT_TEXT, tenant, sizeof(tenant));
    out_text(e, "job", OUT_TEXT, job, sizeof(job));
    printf("%-12s  %6s  ", tenant, job);
}

static void print_event(const struct cli *c, const json_t *e)
{
    char at[64], from[32], to[32], reason[64], detail[512];

    if (c->output == OUTPUT_DATA) {
        out_item(c, e); /* one by one: --follow has no end to close a list */
        return;
    }
    out_text(e, "at", OUT_TEXT, at, sizeof(at));
    out_text(e, "from", OUT_TEXT, from, sizeof(from));
    out_text(e, "to", OUT_TEXT, to, sizeof(to));
    out_text(e, "reason", OUT_TEXT, reason, sizeof(reason));
    out_text(e, "detail", OUT_TEXT, detail, sizeof(detail));
    print_whose(e);
    printf("%-24s  %-10s -> %-10s  %-16s  %s\n", at, from, to, reason, detail);
    fflush(stdout);
}

/* ---------------------------------------------------------------- the stream */

/* Of an event only the line with its data matters: the rest is in there too. */
static int take_line(struct follow *f, const char *line, size_t n)
{
    json_t *e = NULL;
    int rc;

    if (n < 6 || strncmp(line, "data: ", 6) != 0)
        return SH_OK;
    rc = sh_json_parse(line + 6, n - 6, MAX_LINE, &e, NULL);
    if (!rc && (f->of_all || json_integer_value(json_object_get(e, "id")) > f->last)) {
        f->last = json_integer_value(json_object_get(e, "id"));
        sh_strlcpy(f->place, sh_json_text(e, "position"), sizeof(f->place));
        f->is_over = !f->of_all && job_is_final(sh_json_text(e, "to"));
        print_event(f->c, e);
    }
    json_decref(e);
    return rc;
}

static bool on_data(const char *data, size_t n, void *arg)
{
    struct follow *f = arg;

    f->heard_ns = sh_clock_ns();
    while (n > 0 && !f->rc) {
        const char *end = memchr(data, '\n', n);
        size_t len = end ? (size_t)(end - data) : n;

        f->rc = sh_buf_append(&f->line, data, len, NULL);
        if (!f->rc && end) {
            f->rc = take_line(f, f->line.data, f->line.len);
            sh_buf_reset(&f->line);
        }
        data += end ? len + 1 : len;
        n -= end ? len + 1 : len;
    }
    return !f->rc;
}

/* One connection. *more: the job goes on as far as we know. */
static int listen_once(struct follow *f, const char *path, bool *more, struct sh_err *err)
{
    struct sh_http_reply r = {0};
    struct sh_http_req q = {.method = "GET",
                            .headers = {"Accept: text/event-stream"},
                            .data = on_data,
                            .data_arg = f,
                            .timeout_ms = SILENCE_MS};
    char last[96], *full = NULL;
    int rc = rest_open(f->c, err);

    if (f->of_all)
        snprintf(last, sizeof(last), "Last-Event-ID: %s", f->place);
    else
        snprintf(last, sizeof(last), "Last-Event-ID: %" JSON_INTEGER_FORMAT, f->last);
    if (f->last > 0)
        q.headers[1] = last;
    if (!rc)
        rc = rest_with_tenant(f->c, path, &full, err);
    q.path = full;
    sh_buf_reset(&f->line);
    if (!rc) {
        rc = sh_http_call(f->c->http, &q, &r, err);
        if (rc)
            f->c->exit_code = CLI_NOT_REACHABLE;
    }
    if (!rc)
        rc = rest_check(f->c, &r, 0, err);
    if (!rc && f->rc)
        rc = SH_FAIL(err, f->rc, "the server's answer is not a stream of events");
    *more = !f->is_over && r.status != 204;
    sh_http_reply_fini(&r);
    free(full);
    return rc;
}

static int events_follow(struct cli *c, const char *path, bool of_all, struct sh_err *err)
{
    struct follow f = {.c = c, .of_all = of_all};
    bool more = true;
    int rc = SH_OK;

    sh_buf_init(&f.line, MAX_LINE);
    rc = sh_buf_append(&f.line, "", 0, err);
    while (!rc && more) {
        struct sh_err now = {0};

        rc = listen_once(&f, path, &more, &now);
        if (f.is_over)
            rc = SH_OK;
        if (rc && (c->exit_code == CLI_NOT_REACHABLE || sh_rc_retry(rc)) && f.heard_ns > 0 &&
            sh_clock_ns() - f.heard_ns < AWAY_NS + SH_MS(SILENCE_MS))
            rc = SH_OK; /* it was there a moment ago */
        if (rc)
            sh_err_copy(err, &now);
        else if (more)
            cli_sleep_ms(AGAIN_MS);
    }
    sh_buf_fini(&f.line);
    return rc;
}

/* ---------------------------------------------------------------- the command */

/* The newest come first from the server; people read on downwards. With --follow only new ones. */
static int events_of_all(struct cli *c, struct sh_err *err)
{
    const struct cli_conf *f = c->conf;
    bool since = f->from && f->from[0], goes_on = f->follow || f->watch;
    char last[24], *url = NULL;
    json_t *j = NULL, *items;
    int rc;

    snprintf(last, sizeof(last), "%lld", (long long)f->last);
    rc = rest_query("/api/v1/events", &url, err, "state", f->state, "queue", f->queue, "label",
                    f->job_labels, "from", f->from, "limit", since || goes_on ? NULL : last, NULL);
    if (!rc && goes_on)
        rc = events_follow(c, url, true, err);
    else if (!rc && since)
        rc = rest_list(c, url, REST_TENANT, &j, err);
    else if (!rc)
        rc = rest_get(c, url, REST_TENANT, &j, err);
    items = json_is_array(j) ? j : json_object_get(j, "items");
    for (size_t i = json_array_size(items); !rc && i > 0; i--)
        print_event(c, json_array_get(items, i - 1));
    json_decref(j);
    free(url);
    return rc;
}

int job_events(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    json_t *list = NULL, *e;
    size_t i;
    int rc;

    if (c->n_args == 0)
        return events_of_all(c, err);
    rc = job_path(c, path, c->args[0], "events", err);
    if (!rc && (c->conf->follow || c->conf->watch))
        return events_follow(c, path, false, err);
    if (!rc)
        rc = rest_list(c, path, REST_TENANT, &list, err);
    json_array_foreach(list, i, e)
    {
        print_event(c, e);
    }
    json_decref(list);
    return rc;
}
