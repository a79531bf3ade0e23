/* front.h - between a front end, which speaks with clients (http/, grpc/), and those who know what
 * a request means (request.c). Neither knows the other: each has a table of the other's functions.
 */
#ifndef SH_API_REQUEST_FRONT_H
#define SH_API_REQUEST_FRONT_H

#include "api/request/req.h"

/* What a front end asks of request.c. An api_fn may return API_AGAIN; it is then called again on a
 * pool thread. */
struct api_steps {
    api_fn *route;  /* from the head only: sets q->route; on a front end's thread */
    api_fn *auth;   /* sets q->who */
    api_fn *begin;  /* before the body; for a packed body, before it is unpacked */
    api_fn *handle; /* after the body */
    /* Gets body bytes of inference or of a file. API_AGAIN: flush before the next piece. */
    int (*piece)(struct api_req *q, const char *data, size_t n, struct sh_err *err);
    api_fn *flush;                            /* on a pool thread */
    bool (*has_key)(const struct api_req *q); /* is its key known, by the cache? */
    /* The client has left a request that waits: what can end early does, with the wake-up that was
     * promised. */
    void (*abandon)(struct api_req *q);
    /* Called before the reply, whose code is rc, is sent. */
    void (*settle)(struct api_req *q, int rc);
    /* Called once, last: frees what the request still has. */
    void (*close)(struct api_req *q);
    /* At the end of a turn of a front end's thread in which front->defers said so. */
    void (*turn)(struct api *a);
};

/* What handlers ask of the front end that a request came through (q->front). */
struct api_front {
    void (*wake)(struct api_req *q); /* see req_wake() */
    /* As wake, except that a thread that sleeps is not woken but returned: soon rouse() it. NULL:
     * there is nothing left to do. For who wakes many requests at a time. */
    void *(*resume)(struct api_req *q);
    void (*rouse)(void *thread);
    int (*fd)(const struct api_req *q);
    /* On its own thread: will it call steps->turn soon? For what a thread does once for all
     * requests of a turn. */
    bool (*defers)(struct api_req *q);
    /* On its own thread, before something that takes as long as a few requests: those that were
     * deferred do not wait for it. */
    void (*catch_up)(struct api_req *q);
};

/* Any thread: the handler that returned API_WAIT is called again, on a thread of its front end.
 * Call it exactly once for each API_WAIT, perhaps before the handler has returned; do not touch q
 * afterwards. */
static inline void req_wake(struct api_req *q)
{
    q->front->wake(q);
}

/* The connection's socket, to notice when the client leaves while the request sleeps. -1: the front
 * end notices by itself (struct api_steps, abandon). */
static inline int req_fd(const struct api_req *q)
{
    return q->front->fd(q);
}

#endif
