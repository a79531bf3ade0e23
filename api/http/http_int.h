/* http_int.h - shared by http*.c, for nobody else. */
#ifndef SH_API_HTTP_HTTP_INT_H
#define SH_API_HTTP_HTTP_INT_H

#include "api/http/framing.h"
#include "api/http/http.h"
#include "api/options.h"
#include "api/request/peers.h"
#include "api/request/pool.h"
#include "api/request/route.h"
#include "api/request/slab.h"
#include "api/request/stage.h"
#include "common/buf.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

enum conn_phase { CONN_HEAD, CONN_BODY, CONN_WORK, CONN_REPLY };

struct http_conn { /* one TCP connection; under the lock of peers */
    struct peer_conn peer;
    enum conn_phase phase;
    bool saw_end;     /* the last sweep found that the client had closed its side */
    bool lingers;     /* answered before its body was complete; the rest is discarded */
    int64_t since_ns; /* start of the phase */
    int64_t body_ns;  /* a body that waits for us: the time it had taken by then */
    uint64_t bytes;   /* BODY: received; REPLY: in all */
};

#define CONN_MAX_LINGER 128u

struct http_conns { /* under the lock of peers, which no blocking call is made under */
    struct peers *peers;
    struct http_conn **by_fd;
    size_t n_slots, n;
    unsigned n_sweeps; /* for the sweeping thread */
    struct conn_linger {
        int fd; /* OWNED */
        uint64_t bytes;
        int64_t since_ns;
    } linger[CONN_MAX_LINGER]; /* n_linger of them, the oldest first */
    size_t n_linger;
};

struct http_thread { /* a thread and the library's daemon that it runs; its own, except atomics */
    struct http_door *door;
    struct MHD_Daemon *daemon; /* NULL: none */
    pthread_t id;
    bool has_thread;
    bool has_left;       /* no longer listens */
    bool polls;          /* is counted in http.n_polling */
    bool was_called;     /* the library called us in this turn */
    unsigned n_deferred; /* requests of this turn that wait for steps->turn */
    bool is_out;         /* it could not accept its first connection: there are no descriptors */
    /* For want of descriptors, until one of its connections ends or begins. */
    atomic_bool stopped_accepting;
    int wake_fd;       /* in the library's epoll set; -1: none */
    atomic_bool rests; /* asleep, or about to be: whoever resumes must wake it */
    int64_t awake_until_ns;
    unsigned n_chunked;     /* requests with a chunked body */
    unsigned n_idle;        /* turns without progress on these, asked for by the library */
    struct peer *admitted;  /* for a connection about to be opened */
    struct http_req *heads; /* requests with incomplete headers, newest first */
    struct peer_room room;  /* its connections */
};

struct http_door { /* an address that we listen on */
    struct http *http;
    int fd; /* OWNED; -1: none */
    int port;
    bool is_admin; /* --admin-listen */
    struct http_thread *threads;
    unsigned n_threads;
};

struct http {
    struct api *api;
    const struct api_steps *steps;
    struct tls *tls; /* NULL: no TLS */
    struct http_door front, admin;
    atomic_int n_active;
    atomic_bool quiesced, stopped; /* signals for the threads: no new connections; the end */
    atomic_uint n_polling;         /* threads that are polling */
    unsigned max_polling;
    int64_t busy_ns; /* how long they poll after a request; 0: never */
    struct http_conns conns;
    bool in_place; /* the library leaves a request's head where it was read (framing.h) */
};

enum http_phase { PH_NEW, PH_AUTH, PH_BEGIN, PH_BODY, PH_UNPACK, PH_MAIN, PH_REPLY, PH_DONE };
enum { WAKE_NONE, WAKE_ASLEEP, WAKE_DONE };

struct http_req {
    struct api_req q; /* first: HTTP_FRONT gets a pointer to it */
    struct http *http;
    struct http_thread *thread;   /* the only thread on which the library calls us */
    struct http_req *next, *prev; /* on thread->heads, while is_head */
    struct MHD_Connection *conn;
    struct http_conn *tcp;
    char *raw_uri; /* OWNED */
    enum http_phase phase;
    atomic_int wake; /* WAKE_*: meeting point of the one who suspends and the one who wakes */
    struct stage stage;
    int rc; /* the result of the request */
    struct sh_err err;
    struct framing framing;
    const char *twice; /* static: a header that came more than once; NULL: none */
    struct sh_buf body;
    struct slab_slot *packed; /* OWNED: what has come of a compressed body */
    uint64_t received, discarded, reply_bytes;
    bool is_head;
    bool expects; /* the client waits for "100 Continue" before it sends the body */
    bool asleep;  /* suspended, or about to be */
    bool trusted; /* the end of its body is certain */
    bool closes;  /* the connection ends with the reply */
    bool counted; /* in n_active */
    int status;   /* of the reply; 0: none was sent */
};

extern const struct api_front HTTP_FRONT; /* http.c */
/* http_thread.c: a server on door->fd with a limit of connections, and the thread that runs it. t
 * is zeroed before init(). Call stop() whether start() was called, failed or not; set
 * door->http->stopped first. */
void http_thread_init(struct http_thread *t, struct http_door *door, unsigned max_connections);
int http_thread_start(struct http_thread *t, struct sh_err *err);
void http_thread_stop(struct http_thread *t);
void http_thread_wake(struct http_thread *t); /* any thread: makes it look at everything again */
/* Any thread, after it resumed one of its connections. True: it sleeps, so wake it. */
bool http_thread_resumed(struct http_thread *t);
/* Call it from each of its callbacks. */
void http_thread_called(struct http_thread *t, bool more_is_near);
bool http_thread_defers(struct http_thread *t); /* to the end of its turn */
/* What was deferred is done now: the turn ends, or something that takes time comes first. */
void http_thread_settle(struct http_thread *t);
/* http_req.c */
enum MHD_Result http_on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                const char *method, const char *version, const char *upload_data,
                                size_t *upload_data_size, void **con_cls);
void *http_on_uri(void *cls, const char *uri, struct MHD_Connection *conn);
void http_on_done(void *cls, struct MHD_Connection *conn, void **con_cls,
                  enum MHD_RequestTerminationCode code);
/* Suspends the connection until req_wake(), which may have come before. */
void http_fall_asleep(struct http_req *r);
/* http_coded.c: the body of r is compressed; it is unpacked when it is complete. */
int coded_begin(struct http_req *r, struct sh_err *err); /* checks that there is room for it */
int coded_piece(struct http_req *r, const char *data, size_t n, struct sh_err *err);
int coded_unpack(struct api_req *q, struct sh_err *err); /* an api_fn; on a pool thread */
void coded_close(struct http_req *r);
/* http_file.c: sends r->q.reply.file, read on pool threads. */
int http_file_response(struct http_req *r, struct MHD_Response **out);
/* http_req.c: the library refuses the Content-Length of a request of t that it never shows us. */
void http_on_bad_length(struct http_thread *t);
/* http_conn.c. c may be NULL: the sweep then ignores it, and only the library's timeout applies. */
void conns_init(struct http_conns *s, struct peers *peers);
void conns_fini(struct http_conns *s); /* all connections are closed */
/* TAKES ip, even if it returns NULL (no memory). */
struct http_conn *conns_open(struct http_conns *s, struct http_thread *t, int fd, struct peer *ip);
void conns_close(struct http_conns *s, struct http_conn *c);
void conns_phase(struct http_conns *s, struct http_conn *c, enum conn_phase phase, uint64_t bytes);
/* c ends with its reply, but its client may still be sending: lets it read the reply first. */
void conns_linger(struct http_conns *s, struct http_conn *c);
/* If the thread has its maximum of connections, closes one that can be spared. */
void conns_make_room(struct http_conns *s, struct http_thread *t);
void conns_sweep(struct http_conns *s, const struct api_conf *conf);
/* http_reply.c: queues the response for r->rc, r->err and r->q.reply. */
enum MHD_Result http_reply_send(struct http_req *r);
/* Answers r bypassing the library, which is about to refuse r and can then send nothing more. */
void http_reply_past(struct http_req *r);

#endif
