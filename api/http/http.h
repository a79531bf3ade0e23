/* http.h - the HTTP server. Only http*.c know libmicrohttpd.
 *
 * Its threads never block: work that may block runs on a pool thread or waits for the link, and the
 * connection is suspended meanwhile.
 */
#ifndef SH_API_HTTP_HTTP_H
#define SH_API_HTTP_HTTP_H

#include "api/request/req.h"

struct http;
struct tls;

/* What the server asks of those who know what a request means (request.c). An api_fn may return
 * API_AGAIN; it is then called again on a pool thread. */
struct http_steps {
    api_fn *route;  /* from the head only: sets q->route; on an HTTP thread */
    api_fn *auth;   /* sets q->who */
    api_fn *begin;  /* before the body; for a packed body, before it is unpacked */
    api_fn *handle; /* after the body */
    /* Gets body bytes of inference or of a file. API_AGAIN: flush before the next piece. */
    int (*piece)(struct api_req *q, const char *data, size_t n, struct sh_err *err);
    api_fn *flush;                            /* on a pool thread */
    bool (*has_key)(const struct api_req *q); /* is its key known, by the cache? */
    /* Called before the reply, whose code is rc, is sent. */
    void (*settle)(struct api_req *q, int rc);
    /* Called once, last: frees what the request still has. */
    void (*close)(struct api_req *q);
};

/* KEEPS a, steps and tls (NULL: no TLS). *out: OWNED, http_stop(). */
int http_start(struct api *a, const struct http_steps *steps, struct tls *tls, struct http **out,
               struct sh_err *err);
int http_port(const struct http *h);
int http_admin_port(const struct http *h); /* 0: no --admin-listen */
/* Accepts no new connections; open ones go on. */
void http_quiesce(struct http *h);
/* Number of requests between headers and reply. */
int http_active(const struct http *h);
/* Closes connections of clients that are too slow or have left; call a few times a second. */
void http_sweep(struct http *h);
/* All suspended requests must have been woken before. */
void http_stop(struct http *h);

/* Any thread: the handler that returned API_WAIT is called again, on an HTTP thread. Call it
 * exactly once for each API_WAIT, perhaps before the handler has returned; do not touch q
 * afterwards. */
void http_wake(struct api_req *q);
/* The connection's socket, to notice when the client leaves while the request sleeps. */
int http_fd(const struct api_req *q);

#endif
