/* http.h - HTTP requests over one kept connection; the only user of libcurl.
 *
 * Every call ends: connecting within 5 s, a whole request within its time limit, a file that stands
 * still for too long is given up. One thread at a time. Blocking. The first sh_http_new() of a
 * process must come before its threads.
 */
#ifndef SH_COMMON_HTTP_H
#define SH_COMMON_HTTP_H

#include "common/hash.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sh_http;

/* A piece of the body of an answer with status 200. False: enough, end the call. */
typedef bool sh_http_data_fn(const char *data, size_t n, void *arg);
typedef void sh_http_progress_fn(int64_t done, int64_t total, void *arg);

/* The next at most n bytes of a body to send; 0: its end; < 0: they cannot be had. */
typedef ssize_t sh_http_read_fn(void *out, size_t n, void *arg);

struct sh_http_req {
    const char *method, *path; /* path: escaped, with its query; added to the server's URL */
    const void *body;          /* with body_len; or a file, if file_fd > 0 or with read */
    size_t body_len;
    int file_fd; /* BORROWED; read from its position */
    sh_http_read_fn *read;
    void *read_arg;
    int64_t file_bytes;      /* that file_fd or read will give */
    const char *type;        /* Content-Type; NULL = none */
    const atomic_bool *stop; /* raised by another thread: SH_E_CANCELLED; NULL = none */
    const char *headers[4];  /* further ones, "Name: value" */
    int out_fd; /* BORROWED; > 0: a body of 200 or 206 is written to it, of 200 from its start */
    sh_http_progress_fn *progress;
    void *progress_arg;
    sh_http_data_fn
        *data; /* takes a body as it comes, however long that takes; out->body stays empty */
    void *data_arg;
    int64_t timeout_ms; /* 0: 60 s; for files or with data: the longest time without any byte */
};

struct sh_http_reply {
    int status;
    char *body; /* OWNED, sh_http_reply_fini(); NUL-terminated */
    size_t len;
    int64_t json_len;      /* Inference-Header-Content-Length; -1 = none */
    int64_t retry_after_s; /* -1 = none */
    int64_t content_bytes; /* Content-Length; -1 = none */
    char etag[72];         /* with its quotes; "" = none */
};

/* server: "http://host:port". key: NULL = none. *out: OWNED, sh_http_free(). */
int sh_http_new(const char *server, const char *key, struct sh_http **out, struct sh_err *err);
/* PEM file of who signed the server's certificate, instead of those that the host trusts. */
int sh_http_trust(struct sh_http *h, const char *ca_file, struct sh_err *err);
void sh_http_free(struct sh_http *h);

/* SH_OK whenever there is an answer, whatever its status. Fails: SH_E_UNAVAILABLE (not reachable or
 * lost), SH_E_TIMEOUT, SH_E_TOOBIG (answer above 1 GiB), SH_E_NOMEM. */
int sh_http_call(struct sh_http *h, const struct sh_http_req *req, struct sh_http_reply *out,
                 struct sh_err *err);
void sh_http_reply_fini(struct sh_http_reply *r);
/* Content-Digest of a body with this SHA-256, as a header for sh_http_req. */
void sh_http_digest_header(const uint8_t sha[static SH_SHA256_BYTES], char *out, size_t size);

#endif
