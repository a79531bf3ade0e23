/* http.c - see http.h. */
#include "common/http.h"

#include "common/buf.h"
#include "common/conf.h"
#include "common/hash.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/wire.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#define CONNECT_MS 5000L
#define DEFAULT_MS 60000
#define MAX_REPLY (1u << 30)

struct sh_http {
    CURL *curl;
    char *server, *auth; /* OWNED; auth: the header with the key, or NULL */
    char error[CURL_ERROR_SIZE];
};

struct call {
    CURL *curl;
    const struct sh_http_req *req;
    struct sh_http_reply *reply;
    struct sh_buf body;
    int rc; /* what a callback ran into */
    bool is_file_broken, is_out_broken, is_enough;
    bool has_begun; /* something was written to out_fd */
    int64_t n_read; /* of a file */
};

/* url: with its scheme. */
static bool is_this_host(const char *url)
{
    const char *at = strstr(url, "://") + 3, *end = *at == '[' ? "]" : ":/?#";
    char host[256];

    at += *at == '[';
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(at, end), at);
    return sh_wire_is_loopback(host);
}

int sh_http_new(const char *server, const char *key, struct sh_http **out, struct sh_err *err)
{
    struct sh_http *h = NULL;
    char *agent = NULL;
    size_t n = strlen(server);
    int rc;

    *out = NULL;
    while (n > 0 && server[n - 1] == '/')
        n--;
    if (strncmp(server, "http://", 7) != 0 && strncmp(server, "https://", 8) != 0)
        return SH_FAIL(err, SH_E_INVALID,
                       "the server must be given as http://host:port, not \"%.100s\"", server);
    h = calloc(1, sizeof(*h));
    if (!h) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a connection");
        goto out;
    }
    rc = sh_asprintf(err, &h->server, "%.*s", (int)n, server);
    if (!rc && key)
        rc = sh_asprintf(err, &h->auth, "Authorization: Bearer %s", key);
    if (!rc)
        rc = sh_asprintf(err, &agent, "shunt/%s", sh_conf_version());
    if (rc)
        goto out;
    h->curl = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_easy_init() : NULL;
    if (!h->curl) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not initialise the HTTP library");
        goto out;
    }
    curl_easy_setopt(h->curl, CURLOPT_USERAGENT, agent);
    curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, h->error);
    curl_easy_setopt(h->curl, CURLOPT_NOSIGNAL, 1L);
    /* A call that is over, or stopped, does not wait for name servers that do not answer. */
    curl_easy_setopt(h->curl, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(h->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(h->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h->curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    /* A proxy of the environment cannot reach this host's own addresses. */
    if (is_this_host(h->server))
        curl_easy_setopt(h->curl, CURLOPT_PROXY, "");
    *out = h;
    h = NULL;
out:
    free(agent);
    sh_http_free(h);
    return rc;
}

int sh_http_trust(struct sh_http *h, const char *ca_file, struct sh_err *err)
{
    if (access(ca_file, R_OK))
        return SH_FAIL_ERRNO(err, SH_E_INVALID, "could not read the certificate in \"%s\": %m",
                             ca_file);
    return curl_easy_setopt(h->curl, CURLOPT_CAINFO, ca_file) == CURLE_OK
               ? SH_OK
               : SH_FAIL(err, SH_E_NOMEM, "could not keep the path of a certificate");
}

void sh_http_free(struct sh_http *h)
{
    if (!h)
        return;
    curl_easy_cleanup(h->curl);
    free(h->server);
    free(h->auth);
    free(h);
}

/* The usual alphabet of base64, with padding. */
void sh_http_digest_header(const uint8_t sha[static SH_SHA256_BYTES], char *out, size_t size)
{
    char text[48];

    sh_base64url(sha, SH_SHA256_BYTES, text);
    for (char *p = text; *p; p++)
        *p = *p == '-' ? '+' : *p == '_' ? '/' : *p;
    snprintf(out, size, "Content-Digest: sha-256=:%s=:", text);
}

void sh_http_reply_fini(struct sh_http_reply *r)
{
    free(r->body);
    *r = (struct sh_http_reply){0};
}

/* ---------------------------------------------------------------- callbacks of the library */

static bool write_body_out(struct call *c, const char *data, size_t n, long status)
{
    const int fd = c->req->out_fd;

    if (!c->has_begun && status == 200 && (ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET)))
        return false;
    c->has_begun = true;
    return sh_write_all(fd, data, n);
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct call *c = arg;
    long status = 0;

    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    if (c->req->out_fd > 0 && (status == 200 || status == 206)) {
        c->is_out_broken = !write_body_out(c, data, size * n, status);
        return c->is_out_broken ? 0 : size * n;
    }
    if (c->req->data && status == 200) {
        c->is_enough = !c->req->data(data, size * n, c->req->data_arg);
        return c->is_enough ? 0 : size * n;
    }
    c->rc = sh_buf_append(&c->body, data, size * n, NULL);
    return c->rc ? 0 : size * n;
}

static void header_text(const char *line, size_t n, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);

    if (n < len || strncasecmp(line, name, len) != 0)
        return;
    for (line += len, n -= len; n > 0 && *line == ' '; line++)
        n--;
    while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == '\n'))
        n--;
    snprintf(out, size, "%.*s", (int)n, line);
}

static int64_t header_number(const char *line, size_t n, const char *name)
{
    char text[32] = "";
    int64_t v;

    header_text(line, n, name, text, sizeof(text));
    return sh_parse_i64(text, 0, INT64_MAX, name, &v, NULL) ? -1 : v;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    struct call *c = arg;
    int64_t v = header_number(data, size * n, "Inference-Header-Content-Length:");

    if (v >= 0)
        c->reply->json_len = v;
    v = header_number(data, size * n, "Retry-After:");
    if (v >= 0)
        c->reply->retry_after_s = v;
    header_text(data, size * n, "ETag:", c->reply->etag, sizeof(c->reply->etag));
    return size * n;
}

static size_t on_read(char *out, size_t size, size_t n, void *arg)
{
    struct call *c = arg;
    ssize_t got;

    do {
        got = c->req->read ? c->req->read(out, size * n, c->req->read_arg)
                           : read(c->req->file_fd, out, size * n);
    } while (got < 0 && errno == EINTR);
    c->n_read += got > 0 ? got : 0;
    /* An end before its time would leave both sides waiting for the other. */
    if (got > 0 || (got == 0 && c->n_read >= c->req->file_bytes))
        return (size_t)got;
    c->is_file_broken = true;
    return CURL_READFUNC_ABORT;
}

static int on_progress(void *arg, curl_off_t dl_total, curl_off_t dl, curl_off_t ul_total,
                       curl_off_t ul)
{
    struct call *c = arg;

    if (c->req->stop && atomic_load(c->req->stop))
        return 1;
    if (!c->req->progress)
        return 0;
    if (c->req->out_fd > 0)
        c->req->progress(dl, dl_total, c->req->progress_arg);
    else if (ul_total > 0)
        c->req->progress(ul, ul_total, c->req->progress_arg);
    return 0;
}

/* ---------------------------------------------------------------- one call */

static int add_header(struct curl_slist **list, const char *line, struct sh_err *err)
{
    struct curl_slist *longer = curl_slist_append(*list, line);

    if (!longer)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a header");
    *list = longer;
    return SH_OK;
}

static int make_headers(const struct sh_http *h, const struct sh_http_req *r,
                        struct curl_slist **out, struct sh_err *err)
{
    char type[128];
    /* No "Expect: 100-continue": it would cost a round trip for each larger body. */
    int rc = add_header(out, "Expect:", err);

    snprintf(type, sizeof(type), "Content-Type: %s", r->type ? r->type : "");
    if (!rc)
        rc = add_header(out, r->type ? type : "Content-Type:", err);
    if (!rc && h->auth)
        rc = add_header(out, h->auth, err);
    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(r->headers) && r->headers[i]; i++)
        rc = add_header(out, r->headers[i], err);
    return rc;
}

static bool sends_body_file(const struct sh_http_req *r)
{
    return r->file_fd > 0 || r->read;
}

static void set_body(CURL *curl, const struct sh_http_req *r, struct call *c)
{
    bool heads = strcmp(r->method, "HEAD") == 0;

    curl_easy_setopt(curl, CURLOPT_UPLOAD, 0L); /* forgets what the call before was */
    /* When a kept connection breaks, the library would send all of a file once more by itself. */
    curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, sends_body_file(r) ? 1L : 0L);
    if (sends_body_file(r)) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(curl, CURLOPT_READDATA, c);
        curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->file_bytes);
        curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
    } else if (r->body) {
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, r->body);
    } else {
        curl_easy_setopt(curl, heads ? CURLOPT_NOBODY : CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, heads ? NULL : r->method);
}

static void set_call_limits(CURL *curl, const struct sh_http_req *r, struct call *c)
{
    long ms = (long)(r->timeout_ms > 0 ? r->timeout_ms : DEFAULT_MS);

    if (sends_body_file(r) || r->out_fd > 0 || r->data) { /* as long as it takes, but moving */
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 0L);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, ms / 1000 + 1);
    } else {
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ms);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 0L);
    }
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, r->progress || r->stop ? 0L : 1L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, c);
}

static int explain(struct sh_http *h, const struct call *c, CURLcode code, struct sh_err *err)
{
    if (c->is_file_broken)
        return SH_FAIL(err, SH_E_IO, "could not read the file to send");
    if (c->is_out_broken)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not write what the server sends: %m");
    if (c->rc)
        return SH_FAIL(err, c->rc, "the server's answer is too large");
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return SH_FAIL(err, SH_E_CANCELLED, "the transfer was stopped");
    if (code == CURLE_OPERATION_TIMEDOUT)
        return SH_FAIL(err, SH_E_TIMEOUT, "the server at %s did not answer in time", h->server);
    if (code == CURLE_SSL_CACERT_BADFILE)
        return SH_FAIL(err, SH_E_INVALID, "the file of trusted certificates holds none: %s",
                       h->error[0] ? h->error : curl_easy_strerror(code));
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the certificate of %s is not trusted: %s", h->server,
                       h->error[0] ? h->error : curl_easy_strerror(code));
    return SH_FAIL(err, SH_E_UNAVAILABLE, "could not reach the server at %s: %s", h->server,
                   h->error[0] ? h->error : curl_easy_strerror(code));
}

int sh_http_call(struct sh_http *h, const struct sh_http_req *req, struct sh_http_reply *out,
                 struct sh_err *err)
{
    struct call c = {.curl = h->curl, .req = req, .reply = out};
    struct curl_slist *headers = NULL;
    char *url = NULL;
    curl_off_t bytes = -1;
    long status = 0;
    CURLcode code;
    int rc;

    *out = (struct sh_http_reply){.json_len = -1, .retry_after_s = -1};
    sh_buf_init(&c.body, req->max_reply ? req->max_reply : MAX_REPLY);
    rc = sh_buf_append(&c.body, "", 0, err);
    if (!rc)
        rc = sh_asprintf(err, &url, "%s%s", h->server, req->path);
    if (!rc)
        rc = make_headers(h, req, &headers, err);
    if (rc)
        goto out;
    h->error[0] = '\0';
    set_body(h->curl, req, &c);
    set_call_limits(h->curl, req, &c);
    curl_easy_setopt(h->curl, CURLOPT_URL, url);
    curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, &c);
    curl_easy_setopt(h->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h->curl, CURLOPT_HEADERDATA, &c);
    code = curl_easy_perform(h->curl);
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &status);
    /* A server that refuses an upload half-way answers, then closes: the answer counts. */
    if (code != CURLE_OK && !c.is_enough && !(code == CURLE_SEND_ERROR && status >= 400)) {
        rc = explain(h, &c, code, err);
        goto out;
    }
    curl_easy_getinfo(h->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &bytes);
    out->status = (int)status;
    out->content_bytes = (int64_t)bytes;
    out->len = c.body.len;
    out->body = sh_buf_take(&c.body);
out:
    curl_slist_free_all(headers);
    sh_buf_fini(&c.body);
    free(url);
    return rc;
}
