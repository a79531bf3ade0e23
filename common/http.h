/* http.h - HTTP requests over one kept connection; the only user of libcurl.
 *
 * Every call ends: connecting takes at most 5 s and a request its time limit; a file transfer that
 * stalls for too long is given up. One thread at a time. Blocks. The first sh_http_new() of a
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

/* Gets a piece of the body of an answer with status 200. False: end the call. */
typedef bool sh_http_data_fn(const char *data, size_t n, void *arg);
typedef void sh_http_progress_fn(int64_t done, int64_t total, void *arg);

/* Fills in the next, at most n, bytes of a body to send. Returns their number; 0: end; < 0:
 * failed. */
typedef ssize_t sh_http_read_fn(void *out, size_t n, void *arg);

struct sh_http_req {
    const char *method, *path; /* path: escaped, with query; appended to the server's URL */
    const void *body;          /* with body_len; or use file_fd > 0, or read */
    size_t body_len;
    int file_fd; /* BORROWED; read from its present position */
    sh_http_read_fn *read;
    void *read_arg;
    int64_t file_bytes;      /* size of what file_fd or read delivers */
    const char *type;        /* Content-Type; NULL: none */
    const atomic_bool *stop; /* another thread may raise it: SH_E_CANCELLED; NULL: none */
    const char *headers[4];  /* more headers, "Name: value" */
    /* BORROWED; > 0: takes the body of a 200 (from the start of the file) or 206 */
    int out_fd;
    sh_http_progress_fn *progress;
    void *progress_arg;
    sh_http_data_fn
        *data; /* takes a body as it comes, however long that lasts; out->body stays empty */
    void *data_arg;
    size_t max_reply;   /* longest body of an answer that is kept, bytes; 0: 1 GiB */
    int64_t timeout_ms; /* 0: 60 s; with a file or data: the longest time without a byte */
};

struct sh_http_reply {
    int status;
    char *body; /* OWNED, sh_http_reply_fini(); NUL-terminated */
    size_t len;
    int64_t json_len;      /* Inference-Header-Content-Length; -1: none */
    int64_t retry_after_s; /* -1: none */
    int64_t content_bytes; /* Content-Length; -1: none */
    char etag[72];         /* including its quotes; "": none */
};

/* server: "http://host:port". key: NULL: none. *out: OWNED, sh_http_free(). */
int sh_http_new(const char *server, const char *key, struct sh_http **out, struct sh_err *err);
/* PEM file of the authorities to trust, instead of the host's. */
int sh_http_trust(struct sh_http *h, const char *ca_file, struct sh_err *err);
void sh_http_free(struct sh_http *h);

/* SH_OK whenever there is an answer, whatever its status. Fails: SH_E_UNAVAILABLE (unreachable, or
 * connection lost), SH_E_TIMEOUT, SH_E_TOOBIG (answer above max_reply), SH_E_NOMEM. */
int sh_http_call(struct sh_http *h, const struct sh_http_req *req, struct sh_http_reply *out,
                 struct sh_err *err);
void sh_http_reply_fini(struct sh_http_reply *r);
/* The Content-Digest header of a body with this SHA-256, for sh_http_req. */
void sh_http_digest_header(const uint8_t sha[static SH_SHA256_BYTES], char *out, size_t size);

#endif
