/* http.h - the HTTP server. Only http*.c know libmicrohttpd.
 *
 * Its threads never block: what may block runs on a pool thread or waits for the link, and the
 * connection is suspended meanwhile.
 */
#ifndef SH_API_HTTP_HTTP_H
#define SH_API_HTTP_HTTP_H

#include "api/request/req.h"

struct http;
struct tls;

/* What the server asks of those who know what a request is about (request.c). An api_fn may answer
 * API_AGAIN, and is then called on a pool thread. */
struct http_steps {
    api_fn *route;  /* by the head alone: sets q->route; on an HTTP thread */
    api_fn *auth;   /* sets q->who */
    api_fn *begin;  /* before the body; of one that was packed: before it is unpacked */
    api_fn *handle; /* the body is there */
    /* Body bytes of inference or of a file. API_AGAIN: flush before the next piece. */
    int (*piece)(struct api_req *q, const char *data, size_t n, struct sh_err *err);
    api_fn *flush;                             /* on a pool thread */
    bool (*has_key)(const struct api_req *q);  /* that is known, by what is in memory */
    void (*settle)(struct api_req *q, int rc); /* rc: of the reply, which is sent after this */
    void (*close)(struct api_req *q);          /* once, last: frees what the request still has */
};

/* KEEPS a, steps and tls (NULL: without). *out: OWNED, http_stop(). */
int http_start(struct api *a, const struct http_steps *steps, struct tls *tls, struct http **out,
               struct sh_err *err);
int http_port(const struct http *h);
int http_admin_port(const struct http *h); /* 0: there is no --admin-listen */
/* No new connections from now on; open ones go on. */
void http_quiesce(struct http *h);
/* Requests that are between their headers and their reply. */
int http_active(const struct http *h);
/* Closes connections of clients that are too slow or have left; call a few times a second. */
void http_sweep(struct http *h);
/* Every suspended request must have been woken before. */
void http_stop(struct http *h);

/* Any thread: the handler that returned API_WAIT is called again, on an HTTP thread. Exactly once
 * for each API_WAIT; q must not be touched afterwards. May come before the handler has returned. */
void http_wake(struct api_req *q);
/* The socket of the connection: to watch for the client's going away while the request sleeps. */
int http_fd(const struct api_req *q);

#endif
