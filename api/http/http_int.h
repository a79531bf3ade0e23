/* http_int.h - what http*.c share. Nobody else includes it. */
#ifndef SH_API_HTTP_HTTP_INT_H
#define SH_API_HTTP_HTTP_INT_H

#include "api/http/framing.h"
#include "api/http/http.h"
#include "api/options.h"
#include "api/request/pool.h"
#include "api/request/route.h"
#include "api/request/slab.h"
#include "common/buf.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

enum conn_phase { CONN_HEAD, CONN_BODY, CONN_WORK, CONN_REPLY };

TAILQ_HEAD(conn_list, http_conn);

struct http_conn { /* one TCP connection; under the lock of http_conns */
    int fd;
    enum conn_phase phase;
    bool saw_end;         /* the last sweep found that the client has closed its side */
    bool is_known;        /* a request on it had a key that counts; only its own thread sets it */
    bool is_cut;          /* shut down by us: on no list */
    bool lingers;         /* answered before its body was there: what still comes is thrown away */
    int64_t since_ns;     /* the phase began */
    int64_t body_ns;      /* of a body that waits for us: how long it had taken by then */
    uint64_t bytes;       /* BODY: that have come; REPLY: in all */
    struct conn_key *key; /* of its last request; NULL: none, or no limit */
    struct conn_key *ip;  /* its client's address; NULL: no limit */
    struct http_thread *thread;
    struct conn_list *list;               /* that by_age links it into; NULL: none */
    TAILQ_ENTRY(http_conn) by_age, by_ip; /* by_ip: while it is not known, and has an ip */
};

#define CONN_KEY_BUCKETS 1024u
#define CONN_MAX_LINGER 128u

struct http_conns {
    pthread_mutex_t lock; /* all of this; no system call in it waits */
    struct http_conn **by_fd;
    size_t n_slots, n;
    struct conn_key *keys[CONN_KEY_BUCKETS];
    unsigned n_sweeps; /* of the sweeping thread */
    struct conn_linger {
        int fd; /* OWNED */
        uint64_t bytes;
        int64_t since_ns;
    } linger[CONN_MAX_LINGER]; /* n_linger of them, the oldest first */
    size_t n_linger;
};

struct http_thread { /* and the library's daemon that it runs; its own but for what is atomic */
    struct http_door *door;
    struct MHD_Daemon *daemon; /* NULL: there is none */
    pthread_t id;
    bool has_thread;
    bool has_left;     /* listens no more */
    bool polls;        /* has one of http.n_polling */
    bool was_called;   /* in this turn, by the library */
    int wake_fd;       /* among what the library waits for; -1: none */
    atomic_bool rests; /* sleeps, or is about to: whoever resumes must wake it */
    int64_t awake_until_ns;
    unsigned n_chunked; /* requests with a chunked body */
    unsigned n_idle; /* turns in which they got on with nothing, and that the library asked for */
    struct conn_key *admitted; /* of a connection that is about to be opened */
    struct http_req *heads;    /* requests whose headers have not all come, the newest first */
    /* Under the lock of http_conns: its connections, and those that are closed first when it has
     * as many as it may, each list from who has been there longest. */
    unsigned n_conns, n_cut, max_conns; /* n_cut: of n_conns, about to be closed */
    struct conn_list strangers, idle;   /* without a key; with one, and no request */
};

struct http_door { /* an address that is listened on */
    struct http *http;
    int fd; /* OWNED; -1: there is none */
    int port;
    bool is_admin; /* --admin-listen */
    struct http_thread *threads;
    unsigned n_threads;
};

struct http {
    struct api *api;
    const struct http_steps *steps;
    struct tls *tls; /* NULL: without */
    struct http_door front, admin;
    atomic_int n_active;
    atomic_bool quiesced, stopped; /* look, threads: no new connections; no more at all */
    atomic_uint n_polling;         /* threads that poll now */
    unsigned max_polling;
    int64_t busy_ns; /* for so long behind a request; 0: they do not poll */
    struct http_conns conns;
    bool in_place; /* the library leaves a request's head where it was read: see framing.h */
};

enum http_phase { PH_NEW, PH_AUTH, PH_BEGIN, PH_BODY, PH_UNPACK, PH_MAIN, PH_REPLY, PH_DONE };
enum { WAKE_NONE, WAKE_ASLEEP, WAKE_DONE };

struct http_req {
    struct api_req q; /* first: http_wake() gets a pointer to it */
    struct http *http;
    struct http_thread *thread;   /* the only one that the library calls us on */
    struct http_req *next, *prev; /* on thread->heads, while is_head */
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
    const char *twice; /* static: a header that came more than once; NULL: none */
    struct sh_buf body;
    struct slab_slot *packed; /* OWNED: of a compressed body, what has come */
    uint64_t received, discarded, reply_bytes;
    bool is_head;
    bool expects; /* it waits for "100 Continue" before it sends the body */
    bool asleep;  /* suspended, or about to be */
    bool trusted; /* where its body ends is beyond doubt */
    bool closes;  /* the connection ends with the reply */
    bool counted; /* in n_active */
    int status;   /* of the reply; 0 = none was sent */
};

/* http_thread.c: a server on door->fd for at most so many connections, and the thread that runs it.
 * t is all zero. stop() also after a start() that failed; door->http->stopped must be set first. */
int http_thread_start(struct http_thread *t, struct http_door *door, unsigned max_connections,
                      struct sh_err *err);
void http_thread_stop(struct http_thread *t);
void http_thread_wake(struct http_thread *t);    /* any thread: it looks at everything again */
void http_thread_resumed(struct http_thread *t); /* any thread: a connection of its */
void http_thread_called(struct http_thread *t, bool more_is_near); /* by each of its callbacks */
/* http_req.c */
enum MHD_Result http_on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                const char *method, const char *version, const char *upload_data,
                                size_t *upload_data_size, void **con_cls);
void *http_on_uri(void *cls, const char *uri, struct MHD_Connection *conn);
void http_on_done(void *cls, struct MHD_Connection *conn, void **con_cls,
                  enum MHD_RequestTerminationCode code);
/* Suspends the connection until http_wake(), which may have come already. */
void http_fall_asleep(struct http_req *r);
/* http_coded.c: the body of r is compressed; it is unpacked when all of it is there. */
int coded_begin(struct http_req *r, struct sh_err *err); /* is there room for it? */
int coded_piece(struct http_req *r, const char *data, size_t n, struct sh_err *err);
int coded_unpack(struct api_req *q, struct sh_err *err); /* an api_fn; on a pool thread */
void coded_close(struct http_req *r);
/* http_file.c: r->q.reply.file, read on pool threads. */
int http_file_response(struct http_req *r, struct MHD_Response **out);
/* http_req.c: the library refuses the Content-Length of a request of t, which it never shows us. */
void http_on_bad_length(struct http_thread *t);
/* http_conn.c. c may be NULL: it escapes the sweep then, and only the library's time-out holds. */
void conns_init(struct http_conns *s);
void conns_fini(struct http_conns *s); /* every connection is closed */
/* Counts a connection for its client's address, for which at most max without a key are kept at one
 * door, 0 = no limit: beyond that the oldest of them is closed. False: there is no memory. *out:
 * OWNED, conns_open() or conns_leave(); may be NULL. */
bool conns_admit(struct http_conns *s, bool is_admin, const struct sockaddr *from, int64_t max,
                 struct conn_key **out);
void conns_leave(struct http_conns *s, struct conn_key *ip); /* NULL is allowed */
/* TAKES ip, also where it returns NULL: no memory. */
struct http_conn *conns_open(struct http_conns *s, struct http_thread *t, int fd,
                             struct conn_key *ip);
void conns_close(struct http_conns *s, struct http_conn *c);
void conns_phase(struct http_conns *s, struct http_conn *c, enum conn_phase phase, uint64_t bytes);
/* c's requests have this key, which counts, from now on. Fails: SH_E_QUOTA, the key has max
 * connections (0: no limit). */
int conns_claim(struct http_conns *s, struct http_conn *c, const char *key_id, int64_t max,
                struct sh_err *err);
/* c ends with its reply, and its client may still be sending: it shall read that reply first. */
void conns_linger(struct http_conns *s, struct http_conn *c);
/* A thread that has all connections that it may closes one, if there is one to spare. */
void conns_make_room(struct http_conns *s, struct http_thread *t);
void conns_sweep(struct http_conns *s, const struct api_conf *conf);
/* http_reply.c: queues the response for r->rc, r->err and r->q.reply. */
enum MHD_Result http_reply_send(struct http_req *r);
/* Past the library, which is about to refuse r by itself and can then send nothing more. */
void http_reply_past(struct http_req *r);

#endif
