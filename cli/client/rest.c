/* rest.c - calls to the control plane: keys, paths, pages, refusals. */
#include "cli/client/rest.h"

#include "cli/cli.h"
#include "cli/client/profile.h"
#include "cli/client/terms.h"
#include "cli/local/state.h"
#include "cli/text/field.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_SERVER "http://127.0.0.1:8000"
#define MAX_KEY_FILE 512
#define PAGE 1000 /* the server gives no more at once */
#define MAX_JSON (256u << 20)
#define AWAY_NS SH_S(30) /* a server that is restarted meanwhile does not end a wait */

/* ---------------------------------------------------------------- where, and with which key */

/* The first word of a file. *out: OWNED. */
static int read_key_file(const char *path, char **out, struct sh_err *err)
{
    char text[MAX_KEY_FILE + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_INVALID, "could not open the key file \"%s\": %m", path);
    n = read(fd, text, MAX_KEY_FILE);
    close(fd);
    if (n <= 0)
        return SH_FAIL(err, SH_E_INVALID, "the key file \"%s\" is empty", path);
    text[n] = '\0';
    text[strcspn(text, " \t\r\n")] = '\0';
    return sh_strdup(text, out, err);
}

/* Where a key was read from, for what a refusal says. */
static void note_source(struct cli *c, const char *var, const char *field, const char *value)
{
    const char *env = sh_conf_env(var), *profile = c->conf->profile;

    c->key_env = env && strcmp(env, value) == 0 ? var : NULL;
    free(c->key_profile);
    c->key_profile = NULL;
    if (!c->key_env && profile && profile[0] && config_has(c, profile, field, value))
        sh_asprintf(NULL, &c->key_profile, "%s of %s", profile, c->config_path);
}

static int find_key(struct cli *c, char **out, struct sh_err *err)
{
    const struct cli_conf *conf = c->conf;
    char *path = NULL;
    int rc;

    *out = NULL;
    if (!c->own_key && conf->key && conf->key[0]) {
        note_source(c, "SHUNT_KEY", "key", conf->key);
        return sh_strdup(conf->key, out, err);
    }
    if (!c->own_key && conf->key_file && conf->key_file[0]) {
        note_source(c, "SHUNT_KEY_FILE", "key-file", conf->key_file);
        return read_key_file(conf->key_file, out, err);
    }
    rc = sh_asprintf(err, &path, "%s/admin.key", conf->state_dir);
    if (!rc && access(path, R_OK) == 0)
        rc = read_key_file(path, out, err);
    free(path);
    return rc;
}

int rest_no_system(struct cli *c, struct sh_err *err)
{
    c->exit_code = CLI_NOT_REACHABLE;
    return SH_FAIL(err, SH_E_UNAVAILABLE, CLI_NO_SYSTEM ": nothing runs in \"%s\"",
                   c->conf->state_dir);
}

/* Who names a folder means the system there: another one would get its orders, and its key. */
static int find_server(struct cli *c, struct sh_err *err)
{
    const struct cli_conf *conf = c->conf;
    int rc;

    if (conf->server && conf->server[0])
        return sh_strdup(conf->server, &c->server, err);
    rc = state_server(conf->state_dir, &c->server, err);
    if (rc || c->server)
        return rc;
    return strcmp(conf->state_dir, CLI_STATE_DIR) == 0 ? sh_strdup(DEFAULT_SERVER, &c->server, err)
                                                       : rest_no_system(c, err);
}

int rest_open(struct cli *c, struct sh_err *err)
{
    char *key = NULL;
    int rc;

    if (c->http)
        return SH_OK;
    rc = find_key(c, &key, err);
    if (!rc)
        rc = find_server(c, err);
    if (!rc)
        rc = sh_http_new(c->server, key, &c->http, err);
    if (!rc && c->conf->ca_file && c->conf->ca_file[0])
        rc = sh_http_trust(c->http, c->conf->ca_file, err);
    if (rc == SH_E_INVALID)
        c->exit_code = CLI_USAGE;
    free(key);
    return rc;
}

/* ---------------------------------------------------------------- paths */

#define UNRESERVED "-._~" /* RFC 3986, beside letters and digits */

int rest_path(char out[static REST_PATH_MAX], struct sh_err *err, const char *first, ...)
{
    struct sh_buf b;
    va_list ap;
    int rc = SH_OK;

    sh_buf_init(&b, REST_PATH_MAX - 1);
    va_start(ap, first);
    for (const char *s = first; !rc && s; s = va_arg(ap, const char *)) {
        rc = sh_buf_puts(&b, "/", err);
        if (!rc && (!s[0] || strcmp(s, ".") == 0 || strcmp(s, "..") == 0))
            rc = SH_FAIL(err, SH_E_INVALID, "\"%s\" is not a name", s);
        if (!rc && strchr(s, '/'))
            rc = SH_FAIL(err, SH_E_INVALID, "\"%.140s\" is not a name: it has a slash", s);
        if (!rc)
            rc = sh_buf_escape(&b, s, UNRESERVED, err);
    }
    va_end(ap);
    if (!rc)
        sh_strlcpy(out, b.data, REST_PATH_MAX);
    sh_buf_fini(&b);
    return rc;
}

int rest_below(const char *path, const char *name, char **out, struct sh_err *err)
{
    char last[REST_PATH_MAX];
    int rc = rest_path(last, err, name, NULL);

    *out = NULL;
    return rc ? rc : sh_asprintf(err, out, "%s%s", path, last);
}

int rest_with_tenant(const struct cli *c, const char *path, char **out, struct sh_err *err)
{
    struct sh_buf b;
    int rc;

    *out = NULL;
    sh_buf_init(&b, 4096);
    rc = sh_buf_puts(&b, path, err);
    if (!rc && c->conf->tenant && c->conf->tenant[0]) {
        rc = sh_buf_printf(&b, err, "%ctenant=", strchr(path, '?') ? '&' : '?');
        if (!rc)
            rc = sh_buf_escape(&b, c->conf->tenant, UNRESERVED, err);
    }
    if (!rc)
        *out = sh_buf_take(&b);
    sh_buf_fini(&b);
    return rc;
}

int rest_query(const char *path, char **out, struct sh_err *err, ...)
{
    const char *name, *value;
    struct sh_buf b;
    va_list ap;
    char sep = strchr(path, '?') ? '&' : '?';
    int rc;

    *out = NULL;
    sh_buf_init(&b, 4096);
    rc = sh_buf_puts(&b, path, err);
    va_start(ap, err);
    while ((name = va_arg(ap, const char *))) {
        value = va_arg(ap, const char *);
        if (rc || !value || !value[0])
            continue;
        rc = sh_buf_printf(&b, err, "%c%s=", sep, name);
        if (!rc)
            rc = sh_buf_escape(&b, value, UNRESERVED, err);
        sep = '&';
    }
    va_end(ap);
    if (!rc)
        *out = sh_buf_take(&b);
    sh_buf_fini(&b);
    return rc;
}

/* "NAME:WHAT". *what: behind the colon; NULL: there is none. */
static int split_model(struct cli *c, const char *ref, char name[static 129], const char **what,
                       struct sh_err *err)
{
    const char *colon = strrchr(ref, ':');
    size_t n = colon ? (size_t)(colon - ref) : strlen(ref);

    *what = colon ? colon + 1 : NULL;
    if (n < 1 || n > 128)
        return cli_usage(c, err, "\"%.140s\" is not a model: give NAME or NAME:VERSION", ref);
    memcpy(name, ref, n);
    name[n] = '\0';
    return SH_OK;
}

int rest_model_ref(struct cli *c, const char *ref, char name[static 129], int64_t *version,
                   struct sh_err *err)
{
    const char *what;
    int rc = split_model(c, ref, name, &what, err);

    *version = 0;
    if (!rc && what && sh_parse_i64(what, 1, INT32_MAX, "version", version, NULL))
        rc = cli_usage(c, err, "\"%.40s\" is not a version: give NAME:VERSION", what);
    return rc;
}

int rest_model_choice(struct cli *c, const char *ref, char name[static 129],
                      char choice[static REST_CHOICE_MAX], struct sh_err *err)
{
    const char *what;
    int64_t version;
    int rc = split_model(c, ref, name, &what, err);
    bool is_alias = what && what[0] >= 'a' && what[0] <= 'z' && strlen(what) < REST_CHOICE_MAX;

    choice[0] = '\0';
    if (rc || !what)
        return rc;
    if (!is_alias && sh_parse_i64(what, 1, INT32_MAX, "version", &version, NULL))
        return cli_usage(c, err, "\"%.40s\" is neither a version nor an alias", what);
    sh_strlcpy(choice, what, REST_CHOICE_MAX);
    return SH_OK;
}

/* ---------------------------------------------------------------- refusals */

int rest_check(struct cli *c, const struct sh_http_reply *r, unsigned flags, struct sh_err *err)
{
    const char *detail, *error;
    json_t *j = NULL;
    int rc;

    if (r->status < 400)
        return SH_OK;
    if (sh_json_parse(r->body, r->len, MAX_JSON, &j, NULL) != SH_OK || !json_is_object(j)) {
        json_decref(j);
        j = json_object();
    }
    terms_translate(c, j);
    rc = sh_json_refusal(j, r->status == 404 ? SH_E_NOTFOUND : SH_E_UNAVAILABLE, &error);
    detail = json_string_value(json_object_get(j, "detail"));
    detail = detail ? detail : error;
    if (detail && r->retry_after_s >= 0)
        SH_FAIL(err, rc, "%.400s (try again in %lld s)", detail, (long long)r->retry_after_s);
    else if (detail)
        SH_FAIL(err, rc, "%.400s", detail);
    else
        SH_FAIL(err, rc, "the server answered with HTTP status %d", r->status);
    if (flags & REST_QUIET) {
        json_decref(j);
        return rc;
    }
    json_decref(c->problem);
    c->problem = j;
    c->exit_code = CLI_REFUSED;
    return rc;
}

/* ---------------------------------------------------------------- calls */

int rest_call(struct cli *c, const char *method, const char *path, const json_t *body,
              unsigned flags, json_t **out, struct sh_err *err)
{
    return rest_send(
        c, &(struct rest_req){.method = method, .path = path, .body = body, .flags = flags}, out,
        err);
}

int rest_send(struct cli *c, const struct rest_req *req, json_t **out, struct sh_err *err)
{
    const char *path = req->path;
    const unsigned flags = req->flags;
    struct sh_http_reply r = {0};
    char *text = NULL, *full = NULL, *dry = NULL, if_match[48];
    int rc;

    if (out)
        *out = NULL;
    rc = rest_open(c, err);
    if (!rc && req->body)
        rc = sh_json_dump(req->body, &text, err);
    if (!rc && (flags & REST_TENANT))
        rc = rest_with_tenant(c, path, &full, err);
    if (!rc && c->conf->dry_run && strcmp(req->method, "GET") != 0)
        rc = rest_query(full ? full : path, &dry, err, "dry_run", "true", NULL);
    if (!rc) {
        struct sh_http_req q = {.method = req->method,
                                .path = dry    ? dry
                                        : full ? full
                                               : path,
                                .body = text,
                                .body_len = text ? strlen(text) : 0,
                                .type = text ? "application/json" : NULL,
                                .headers = {req->row_version ? if_match : NULL},
                                .timeout_ms = c->timeout_ms};

        snprintf(if_match, sizeof(if_match), "If-Match: \"%lld\"", (long long)req->row_version);
        rc = sh_http_call(c->http, &q, &r, err);
        if (rc && !(flags & REST_QUIET))
            c->exit_code = CLI_NOT_REACHABLE;
    }
    if (!rc)
        rc = rest_check(c, &r, flags, err);
    if (!rc && out && r.len > 0)
        rc = sh_json_parse(r.body, r.len, MAX_JSON, out, err);
    sh_http_reply_fini(&r);
    free(text);
    free(full);
    free(dry);
    return rc;
}

int rest_get(struct cli *c, const char *path, unsigned flags, json_t **out, struct sh_err *err)
{
    return rest_call(c, "GET", path, NULL, flags, out, err);
}

int rest_ensure(struct cli *c, const char *path, const char *collection, const char *name,
                bool *made, struct sh_err *err)
{
    struct sh_err ignored = {0};
    json_t *body;
    int rc;

    *made = false;
    if (rest_get(c, path, REST_TENANT | REST_QUIET, NULL, &ignored) != SH_E_NOTFOUND)
        return SH_OK;
    body = json_pack("{s:s}", "name", name);
    rc = rest_call(c, "POST", collection, body, REST_TENANT, NULL, err);
    *made = rc == SH_OK;
    json_decref(body);
    return rc;
}

bool rest_is_away(struct cli *c, int rc, int64_t seen_ns)
{
    bool away = rc && (c->exit_code == CLI_NOT_REACHABLE || sh_rc_retry(rc)) && seen_ns > 0 &&
                sh_clock_ns() - seen_ns < AWAY_NS;

    if (!rc || away)
        c->exit_code = CLI_REFUSED;
    return away;
}

int rest_list(struct cli *c, const char *path, unsigned flags, json_t **out, struct sh_err *err)
{
    return rest_first(c, path, REST_MOST, flags, out, err);
}

int rest_first(struct cli *c, const char *path, size_t most, unsigned flags, json_t **out,
               struct sh_err *err)
{
    json_t *all = json_array(), *page = NULL;
    char cursor[256] = "", *url = NULL;
    int rc = all ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");

    *out = NULL;
    do {
        const char *next;

        if (!rc)
            rc = sh_asprintf(err, &url, "%s%climit=%zu%s%s", path, strchr(path, '?') ? '&' : '?',
                             SH_MIN(most, (size_t)PAGE), cursor[0] ? "&cursor=" : "", cursor);
        if (!rc)
            rc = rest_get(c, url, flags, &page, err);
        if (!rc && json_array_extend(all, json_object_get(page, "items")))
            rc = SH_FAIL(err, SH_E_PROTO, "the server's answer is not a list");
        next = rc ? "" : sh_json_text(page, "next_cursor");
        /* Cursors are base64url: nothing in them has to be escaped. */
        sh_strlcpy(cursor, next, sizeof(cursor));
        json_decref(page);
        page = NULL;
        free(url);
        url = NULL;
    } while (!rc && cursor[0] && json_array_size(all) < most);
    if (rc)
        json_decref(all);
    else
        *out = all;
    return rc;
}

int rest_tenant(struct cli *c, const char *what, const char **out, struct sh_err *err)
{
    json_t *me = NULL;
    int rc = SH_OK;

    if (!c->conf->tenant || !c->conf->tenant[0]) {
        rc = rest_get(c, "/api/v1/whoami", 0, &me, err);
        if (!rc && sh_json_text(me, "tenant")[0]) {
            free(c->conf->tenant);
            rc = sh_strdup(sh_json_text(me, "tenant"), &c->conf->tenant, err);
        } else if (!rc) {
            rc = cli_usage(c, err, "say whose %s: --tenant NAME (this is an admin key)", what);
        }
    }
    json_decref(me);
    *out = rc ? NULL : c->conf->tenant;
    return rc;
}
