/* http_int.h - what http*.c share. Nobody else includes it. */
#ifndef SH_API_HTTP_INT_H
#define SH_API_HTTP_INT_H

#include "api/framing.h"
#include "api/http.h"
#include "api/pool.h"
#include "api/routes.h"
#include "common/buf.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

struct http_conn { /* one TCP connection; list under http.lock */
    int fd;
    bool in_request;
    bool reads;       /* more of a request has to come */
    bool saw_end;     /* the last sweep found that the client has closed its side */
    int64_t since_ns; /* opened, or last reply ended */
    struct http_conn *next, *prev;
};

struct http {
    struct api *api;
    struct MHD_Daemon *daemon;
    int port;
    int quiesced_fd; /* OWNED once quiesced; -1 before */
    atomic_int n_active;
    pthread_mutex_t lock; /* the list below; only shutdown() and recv() are called in it */
    struct http_conn *conns;
    size_t n_conns;
    char *tls_cert, *tls_key; /* OWNED */
};

enum http_phase { PH_NEW, PH_AUTH, PH_BEGIN, PH_BODY, PH_MAIN, PH_REPLY, PH_DONE };
enum { WAKE_NONE, WAKE_ASLEEP, WAKE_DONE };

struct http_req {
    struct api_req q; /* first: http_wake() gets a pointer to it */
    struct http *http;
    struct MHD_Connection *conn;
    struct http_conn *tcp;
    char *raw_uri; /* OWNED */
    enum http_phase phase;
    atomic_int wake; /* WAKE_*: meeting point of the one who suspends and the one who wakes */
    struct pool_task task;
    api_fn *pool_fn;
    bool has_result; /* a stage ran on the pool; stage_rc is what it returned */
    int stage_rc;
    int rc; /* what the request came to */
    struct sh_err err;
    struct framing framing;
    struct sh_buf body;
    uint64_t received, discarded;
    bool expects; /* it waits for "100 Continue" before it sends the body */
    int64_t body_ns, asleep_ns, waited_ns; /* body began; fell asleep at; slept in all */
    bool counted;                          /* in n_active */
    int status;                            /* of the reply; 0 = none was sent */
};

/* http_req.c */
enum MHD_Result http_on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                const char *method, const char *version, const char *upload_data,
                                size_t *upload_data_size, void **con_cls);
void *http_on_uri(void *cls, const char *uri, struct MHD_Connection *conn);
void http_on_done(void *cls, struct MHD_Connection *conn, void **con_cls,
                  enum MHD_RequestTerminationCode code);
/* Suspends the connection until http_wake(), which may have come already. */
void http_fall_asleep(struct http_req *r);
/* http_file.c: r->q.reply.file, read on pool threads. */
int http_file_response(struct http_req *r, struct MHD_Response **out);
/* http_reply.c: queues the response for r->rc, r->err and r->q.reply. */
enum MHD_Result http_reply_send(struct http_req *r);

#endif
