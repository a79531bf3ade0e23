/* http.h - HTTP requests over one kept connection; the only user of libcurl.
 *
 * Every call ends: connecting within 5 s, a whole request within its time limit, an upload that
 * stands still for too long is given up. Not thread-safe. Blocking.
 */
#ifndef SH_CLI_HTTP_H
#define SH_CLI_HTTP_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http;

/* A piece of the body of an answer with status 200. False: enough, end the call. */
typedef bool http_data_fn(const char *data, size_t n, void *arg);
typedef void http_progress_fn(int64_t done, int64_t total, void *arg);

struct http_req {
    const char *method, *path; /* path: escaped, with its query; added to the server's URL */
    const void *body;          /* with body_len; or a file, if file_fd > 0 */
    size_t body_len;
    int file_fd; /* BORROWED; read from its position */
    int64_t file_bytes;
    const char *type;       /* Content-Type; NULL = none */
    const char *headers[4]; /* further ones, "Name: value" */
    int out_fd; /* BORROWED; > 0: a body of 200 or 206 is written to it, of 200 from its start */
    http_progress_fn *progress;
    void *progress_arg;
    http_data_fn
        *data; /* takes a body as it comes, however long that takes; out->body stays empty */
    void *data_arg;
    int64_t timeout_ms; /* 0: 60 s; for files or with data: the longest time without any byte */
};

struct http_reply {
    int status;
    char *body; /* OWNED, http_reply_fini(); NUL-terminated */
    size_t len;
    int64_t json_len;      /* Inference-Header-Content-Length; -1 = none */
    int64_t retry_after_s; /* -1 = none */
};

/* server: "http://host:port". key: NULL = none. *out: OWNED, http_free(). */
int http_new(const char *server, const char *key, struct http **out, struct sh_err *err);
void http_free(struct http *h);

/* SH_OK whenever there is an answer, whatever its status. Fails: SH_E_UNAVAILABLE (not reachable or
 * lost), SH_E_TIMEOUT, SH_E_TOOBIG (answer above 1 GiB), SH_E_NOMEM. */
int http_call(struct http *h, const struct http_req *req, struct http_reply *out,
              struct sh_err *err);
void http_reply_fini(struct http_reply *r);

#endif
