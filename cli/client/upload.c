/* upload.c - see upload.h. */
#include "cli/client/upload.h"

#include "cli/client/rest.h"
#include "cli/files/held.h"
#include "cli/files/user_file.h"
#include "cli/text/out.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (1u << 20)
#define WORTH_ASKING (8 << 20)
#define GIVE_UP_NS SH_S(60) /* a broken connection, since the last one that got further */
#define PAUSE_MIN_MS INT64_C(200)
#define PAUSE_MAX_MS INT64_C(5000)
#define STILL_MS 330000 /* the server checks a model for up to 300 s before it answers */

int upload_digest(struct cargo *c, struct progress *bar, uint8_t *out, struct sh_err *err)
{
    struct sh_sha256 *h = NULL;
    char *chunk = malloc(CHUNK);
    int64_t done = 0;
    int rc =
        chunk ? sh_sha256_new(&h, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");

    while (!rc && done < c->bytes) {
        ssize_t n = cargo_read(c, done, chunk, CHUNK);

        if (n <= 0) {
            rc = SH_FAIL_ERRNO(err, SH_E_IO,
                               "could not read the file, or it changes while it is read: %m");
            break;
        }
        rc = sh_sha256_update(h, chunk, (size_t)n, err);
        done += n;
        progress_show(bar, (double)done / (double)c->bytes, "reading the file");
    }
    if (!rc)
        sh_sha256_final(h, out);
    sh_sha256_free(h);
    free(chunk);
    return rc;
}

int upload_check(const char *file, enum sh_file_kind want, struct sh_err *err)
{
    enum sh_file_kind kind;
    int rc = user_file_kind(file, &kind, err);

    /* A tar file may be a model with its data. */
    if (!rc && kind != SH_FILE_OTHER && kind != want &&
        !(kind == SH_FILE_TAR && want == SH_FILE_ONNX))
        rc = SH_FAIL(err, SH_E_INVALID, "\"%s\" is no %s file but %s", file,
                     want == SH_FILE_ONNX ? "ONNX" : "safetensors", sh_file_kind_text(kind));
    return rc;
}

struct upload {
    struct cli *c;
    const char *path; /* BORROWED while it is sent: of the artifact */
    char digest[128]; /* the header */
    char hex[SH_SHA256_HEX];
    struct cargo cargo;
    int64_t at;         /* of the cargo: what is sent next */
    int64_t from, done; /* done: as far as a connection has come */
    struct progress bar;
    struct held held; /* the first INT or TERM ends the upload, as a lost connection would */
    atomic_bool stop;
};

static bool is_stopped(struct upload *s)
{
    if (held_came(&s->held))
        atomic_store(&s->stop, true);
    return atomic_load(&s->stop);
}

/* The bar goes on where the connection before has left it. */
static void on_progress(int64_t done, int64_t total, void *arg)
{
    struct upload *s = arg;

    (void)total;
    is_stopped(s); /* looked at by the transfer */
    s->done = SH_MAX(s->done, s->from + done);
    progress_upload(s->from + done, s->cargo.bytes, &s->bar);
}

static ssize_t on_read(void *out, size_t n, void *arg)
{
    struct upload *s = arg;
    ssize_t got = cargo_read(&s->cargo, s->at, out, n);

    s->at += got > 0 ? got : 0;
    return got;
}

/* From s->from on. A failure is one of the connection; what the server says is in r. */
static int upload_put(struct upload *s, struct sh_http_reply *r, struct sh_err *err)
{
    char range[96], *full = NULL;
    struct sh_http_req q = {.method = "PUT",
                            .read = on_read,
                            .read_arg = s,
                            .file_bytes = s->cargo.bytes - s->from,
                            .type = "application/octet-stream",
                            .headers = {s->digest, s->from ? range : NULL},
                            .progress = on_progress,
                            .progress_arg = s,
                            .stop = &s->stop,
                            .timeout_ms = STILL_MS};
    int rc = rest_with_tenant(s->c, s->path, &full, err);

    snprintf(range, sizeof(range), "Content-Range: bytes %" PRId64 "-%" PRId64 "/%" PRId64, s->from,
             s->cargo.bytes - 1, s->cargo.bytes);
    s->at = s->from;
    q.path = full;
    if (!rc)
        rc = sh_http_call(s->c->http, &q, r, err);
    free(full);
    return rc;
}

/* The path of what the file is of. OWNED; NULL without memory. */
static char *owner_path(const char *artifact)
{
    char *path = NULL;

    sh_asprintf(NULL, &path, "%.*s", (int)(strrchr(artifact, '/') - artifact), artifact);
    return path;
}

/* The thing itself, if it has the file already: the answer was lost, not the file. OWNED; NULL if
 * it has not. */
static json_t *find_whole(struct upload *s)
{
    char *path = owner_path(s->path);
    json_t *j = NULL;

    if (path)
        rest_get(s->c, path, REST_TENANT | REST_QUIET, &j, NULL);
    free(path);
    if (strcmp(sh_json_text(j, "digest"), s->hex) == 0)
        return j;
    json_decref(j);
    return NULL;
}

/* How much the server has. Fails while it cannot be asked. */
static int ask_part(struct upload *s, struct sh_err *err)
{
    char *path = NULL;
    json_t *j = NULL;
    int rc = sh_asprintf(err, &path, "%s/parts/%s", s->path, s->hex);

    if (!rc)
        rc = rest_get(s->c, path, REST_TENANT | REST_QUIET, &j, err);
    if (rc == SH_E_NOTFOUND || rc == SH_E_METHOD) /* or it is a server that keeps none */
        s->from = 0;
    else if (!rc)
        s->from = SH_MIN(json_integer_value(json_object_get(j, "bytes")), s->cargo.bytes - 1);
    json_decref(j);
    free(path);
    return rc == SH_E_NOTFOUND || rc == SH_E_METHOD ? SH_OK : rc;
}

/* After a broken connection: waits until the server says where to go on. True: send the rest;
 * false: *whole is what it has, or the time is over. */
static bool find_rest(struct upload *s, int64_t until_ns, json_t **whole)
{
    for (int64_t ms = PAUSE_MIN_MS; sh_clock_ns() < until_ns && !is_stopped(s);
         ms = SH_MIN(2 * ms, PAUSE_MAX_MS)) {
        struct sh_err one = {0};

        progress_show(&s->bar, (double)s->done / (double)s->cargo.bytes,
                      "interrupted; trying again");
        cli_sleep_ms(ms);
        *whole = find_whole(s);
        if (*whole)
            return false;
        if (ask_part(s, &one) == SH_OK)
            return true;
        if (!sh_rc_retry(one.rc))
            return false;
    }
    return false;
}

/* The same connection would fail again: only one that has carried something is worth another. */
static int send_pieces(struct upload *s, struct sh_http_reply *r, json_t **whole,
                       struct sh_err *err)
{
    int64_t best = 0, until_ns = 0;

    for (;;) {
        struct sh_err one = {0};
        int rc = upload_put(s, r, &one);
        /* Its first connection is not yet gone; or all of it is there, and cannot be taken now. */
        bool busy = !rc && (s->from || s->done == s->cargo.bytes) && r->status == 503;

        if (!rc && !busy)
            return SH_OK;
        if (s->done > best) {
            best = s->done;
            until_ns = sh_clock_ns() + GIVE_UP_NS;
        }
        if ((rc && rc != SH_E_UNAVAILABLE && rc != SH_E_TIMEOUT) || !best ||
            !find_rest(s, until_ns, whole)) {
            if (!*whole && rc && rc != SH_E_CANCELLED)
                s->c->exit_code = CLI_NOT_REACHABLE;
            return *whole || busy ? SH_OK : sh_err_copy(err, &one);
        }
        sh_http_reply_fini(r);
    }
}

/* Who pushes again after a failure wants to know that it was not for nothing. */
static void say_rest(const struct upload *s)
{
    char had[32], all[32];

    out_bytes((double)s->from, had, sizeof(had));
    out_bytes((double)s->cargo.bytes, all, sizeof(all));
    out_say(s->c, "The server has %s of %s already; the rest is sent.", had, all);
}

int upload_open(struct cli *c, const char *file, const struct cargo_with *with, struct upload **out,
                struct sh_err *err)
{
    struct upload *s = calloc(1, sizeof(*s));
    uint8_t sha[SH_SHA256_BYTES];
    int rc;

    *out = s;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an upload");
    s->c = c;
    rc = cargo_open(file, with, &s->cargo, err);
    progress_begin(c, &s->bar);
    if (!rc)
        rc = upload_digest(&s->cargo, &s->bar, sha, err);
    progress_end(&s->bar);
    if (rc)
        return rc;
    sh_http_digest_header(sha, s->digest, sizeof(s->digest));
    sh_hex(sha, sizeof(sha), s->hex);
    held_begin(&s->held);
    return rest_open(c, err);
}

void upload_close(struct upload *s)
{
    if (!s)
        return;
    cargo_fini(&s->cargo);
    held_end(&s->held);
    free(s);
}

bool upload_is_large(const struct upload *s)
{
    return s->cargo.bytes >= WORTH_ASKING;
}

bool upload_has_part(struct upload *s, const char *path)
{
    struct sh_err ignored = {0};

    s->path = path;
    s->from = 0;
    if (upload_is_large(s))
        ask_part(s, &ignored);
    return s->from > 0;
}

int upload_send(struct upload *s, const char *path, json_t **out, struct sh_err *err)
{
    struct sh_http_reply r = {0};
    int rc;

    *out = NULL;
    if (upload_has_part(s, path)) /* this program may have been stopped half-way */
        say_rest(s);
    progress_begin(s->c, &s->bar);
    rc = send_pieces(s, &r, out, err);
    progress_end(&s->bar);
    if (!rc && !*out)
        rc = rest_check(s->c, &r, 0, err);
    if (!rc && !*out)
        rc = sh_json_parse(r.body, r.len, 64 << 20, out, err);
    sh_http_reply_fini(&r);
    return rc;
}

void upload_undo(struct upload *s, const char *path)
{
    char *owner = owner_path(path);
    json_t *j = NULL;
    struct rest_req q = {.method = "DELETE", .path = owner, .flags = REST_TENANT | REST_QUIET};

    if (owner && !upload_has_part(s, path) && rest_get(s->c, owner, q.flags, &j, NULL) == SH_OK &&
        !sh_json_text(j, "digest")[0]) {
        q.row_version = json_integer_value(json_object_get(j, "row_version"));
        rest_send(s->c, &q, NULL, NULL);
    }
    json_decref(j);
    free(owner);
}
