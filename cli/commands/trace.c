/* trace.c - `shunt trace`: what a system did in the last seconds, as one file for Perfetto. */
#include "cli/commands.h"
#include "cli/data/perfetto.h"
#include "cli/files/file.h"
#include "cli/local/state.h"
#include "cli/text/out.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SOURCES 128
#define MAX_TRACE ((size_t)64 << 20) /* of one process */
#define ASK_MS 10000
#define NAME_BYTES 96

struct sources {
    struct perfetto_source list[MAX_SOURCES]; /* OWNS each trace */
    char names[MAX_SOURCES][NAME_BYTES];
    char urls[MAX_SOURCES][STATE_URL_MAX]; /* without a path */
    size_t n;
};

static int add_source(struct sources *s, const char *name, const char *url, struct sh_err *err)
{
    if (s->n == MAX_SOURCES)
        return SH_FAIL(err, SH_E_TOOBIG, "a trace takes at most %d processes", MAX_SOURCES);
    if (!sh_strlcpy(s->urls[s->n], url, STATE_URL_MAX))
        return SH_FAIL(err, SH_E_INVALID, "the address \"%.60s\" is too long", url);
    sh_strlcpy(s->names[s->n], name, NAME_BYTES);
    s->list[s->n].name = s->names[s->n];
    s->n++;
    return SH_OK;
}

/* The daemons of the local system, where they serve their metrics. */
static int find_local(struct cli *c, struct sources *out, struct sh_err *err)
{
    struct state s;
    json_t *system = NULL, *port;
    const char *host, *name;
    int rc = state_open(c->conf->state_dir, false, &s, err);

    if (rc)
        return rc;
    rc = state_read_system(&s, &system, err);
    host = json_string_value(json_object_get(system, "metrics_host"));
    json_object_foreach(json_object_get(system, "metrics_ports"), name, port)
    {
        char url[STATE_URL_MAX];

        state_metrics_url(host, (int)json_integer_value(port), url);
        *strrchr(url, '/') = '\0';
        if (!rc)
            rc = add_source(out, name, url, err);
    }
    if (!rc && out->n == 0)
        rc = SH_FAIL(err, SH_E_NOTFOUND,
                     "nothing runs in \"%s\": `shunt up` starts a system; for one elsewhere, name "
                     "the metrics addresses of its processes with --metrics",
                     s.dir);
    json_decref(system);
    state_close(&s);
    return rc;
}

/* "10.0.0.1:9101,10.0.0.2:9110" */
static int take_given(const char *given, struct sources *out, struct sh_err *err)
{
    char one[NAME_BYTES], url[NAME_BYTES + 8];
    int rc = SH_OK;

    for (const char *p = given; !rc && *p; p += *p == ',') {
        size_t n = strcspn(p, ",");

        if (n == 0 || n >= sizeof(one))
            return SH_FAIL(err, SH_E_INVALID, "--metrics wants host:port[,host:port ...]");
        memcpy(one, p, n);
        one[n] = '\0';
        snprintf(url, sizeof(url), "http://%s", one);
        rc = add_source(out, one, url, err);
        p += n;
    }
    return rc;
}

static int ask_one(const char *url, const char *path, json_t **out, struct sh_err *err)
{
    struct sh_http_req q = {.method = "GET", .path = path, .timeout_ms = ASK_MS};
    struct sh_http_reply r = {0};
    struct sh_http *h = NULL;
    int rc = sh_http_new(url, NULL, &h, err);

    if (!rc)
        rc = sh_http_call(h, &q, &r, err);
    if (!rc && r.status != 200)
        rc =
            SH_FAIL(err, SH_E_UNSUPPORTED, "%s answers %d: is it an older release?", url, r.status);
    if (!rc)
        rc = sh_json_parse(r.body, r.len, MAX_TRACE, out, err);
    sh_http_reply_fini(&r);
    sh_http_free(h);
    return rc;
}

/* One that does not answer is told of and left out, unless nobody answers. */
static int ask_all(struct sources *s, double seconds, double detail, struct sh_err *err)
{
    char path[96];
    struct sh_err why = {0};
    size_t n = 0;

    snprintf(path, sizeof(path), "/trace?seconds=%g&detail=%g", seconds, detail);
    for (size_t i = 0; i < s->n; i++) {
        json_decref(s->list[i].trace);
        s->list[i].trace = NULL;
        why = (struct sh_err){0};
        if (ask_one(s->urls[i], path, &s->list[i].trace, &why) == SH_OK)
            n++;
        else
            fprintf(stderr, "shunt: %s is left out: %s\n", s->names[i], why.msg);
    }
    return n ? SH_OK : sh_err_copy(err, &why);
}

static int write_trace(const struct cli *c, const json_t *j, struct sh_err *err)
{
    char *text = NULL;
    int rc = sh_json_dump_unsorted(j, &text, err);

    if (!rc && strcmp(c->conf->out, "-") == 0)
        puts(text);
    else if (!rc)
        rc = file_write(c->conf->out, text, strlen(text), 0644, err);
    free(text);
    return rc;
}

static int merge_and_write(struct cli *c, const struct sources *s, struct sh_err *err)
{
    struct perfetto_source answered[MAX_SOURCES];
    json_t *j = NULL;
    size_t n = 0, n_spans = 0, n_cut = 0;
    int rc;

    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].trace)
            answered[n++] = s->list[i];
    rc = perfetto_merge(answered, n, &j, &n_spans, &n_cut, err);
    if (!rc)
        rc = write_trace(c, j, err);
    json_decref(j);
    if (rc || strcmp(c->conf->out, "-") == 0)
        return rc;
    if (n_spans)
        out_say(c, "%zu spans of %zu processes are in %s: open it at https://ui.perfetto.dev",
                n_spans, n, c->conf->out);
    else
        out_say(c,
                "%s has no spans: none of %zu processes did anything in these %g s. --seconds goes "
                "further back, --next waits for what comes",
                c->conf->out, n, c->conf->next_s > 0 ? c->conf->next_s : c->conf->seconds);
    if (n_cut)
        out_say(c, "%zu of them did more than they keep: what is older than that is missing",
                n_cut);
    return SH_OK;
}

int trace_main(struct cli *c, struct sh_err *err)
{
    const struct cli_conf *o = c->conf;
    struct sources *s = calloc(1, sizeof(*s));
    int rc;

    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of processes");
    rc = o->metrics && o->metrics[0] ? take_given(o->metrics, s, err) : find_local(c, s, err);
    if (!rc && o->next_s > 0) {
        rc = ask_all(s, 0, o->next_s, err);
        if (!rc)
            cli_sleep_ms((int64_t)(o->next_s * 1e3));
    }
    if (!rc)
        rc = ask_all(s, o->next_s > 0 ? o->next_s : o->seconds, 0, err);
    if (!rc)
        rc = merge_and_write(c, s, err);
    for (size_t i = 0; i < s->n; i++)
        json_decref(s->list[i].trace);
    free(s);
    return rc;
}
