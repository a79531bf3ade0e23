/* grpc_int.h - shared by grpc*.c, for nobody else.
 *
 *   grpc.c          threads, the listening socket, wake-ups
 *   grpc_conn.c     a connection: socket, TLS, limits of time
 *   grpc_session.c  its HTTP/2 session: the library's callbacks, headers in and out
 *   grpc_stream.c   a stream: messages in, answers out
 *   grpc_call.c     one message: the steps of its request
 *
 * All of it belongs to one thread, except what is atomic or under grpc_thread.lock, and a call
 * while it is on a pool thread.
 */
#ifndef SH_API_GRPC_GRPC_INT_H
#define SH_API_GRPC_GRPC_INT_H

#include "api/grpc/frames.h"
#include "api/grpc/grpc.h"
#include "api/grpc/methods.h"
#include "api/grpc/status.h"
#include "api/grpc/tensors.h"
#include "api/options.h"
#include "api/request/peers.h"
#include "api/request/slab.h"
#include "api/request/stage.h"
#include "common/loop.h"

#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#define GRPC_HEADER_BYTES ((size_t)16 << 10)  /* of a call's headers */
#define GRPC_STREAM_WINDOW ((int32_t)1 << 20) /* of a message that has room */
#define GRPC_CONN_WINDOW ((int32_t)4 << 20)   /* of a connection with a key */

struct gnutls_session_int;

TAILQ_HEAD(grpc_conns, grpc_conn);
LIST_HEAD(grpc_streams, grpc_stream);

struct grpc {
    struct api *api;
    const struct api_steps *steps;
    struct tls *tls; /* NULL: no TLS */
    int fd, port;
    struct grpc_thread *threads;
    size_t n_threads;
    atomic_int n_active;
    struct peer_room room; /* of all threads */
    int64_t spared_ns;     /* when one went for want of descriptors; under the lock of peers */
    atomic_bool quiesced;
};

struct grpc_thread {
    struct grpc *g;
    struct sh_loop *loop;
    struct sh_io *listener; /* NULL: it accepts no more */
    struct sh_timer *tick;
    pthread_t id;
    bool has_thread, leaves;
    bool rests;              /* there are no descriptors: it accepts again at the next tick */
    struct grpc_conns conns; /* the oldest first */
    pthread_mutex_t lock;    /* woken */
    struct grpc_call *woken;
};

struct grpc_conn {
    struct grpc_thread *t;
    TAILQ_ENTRY(grpc_conn) of_thread;
    struct peer_conn peer; /* its socket, whose it is, and when it goes */
    struct sh_io *io;
    nghttp2_session *session;
    struct gnutls_session_int *tls; /* NULL: none */
    bool shaken;                    /* the handshake is done */
    bool is_used;                   /* the headers of a call on it were complete */
    bool had_call;                  /* began or answered one since its turn was noted */
    bool ends;                      /* it closes when what is queued has gone */
    bool dead;                      /* it is freed when nobody works on it any more */
    bool unread;                    /* TLS has more, which the socket does not tell */
    unsigned busy;                  /* calls of ours that work on it */
    unsigned events;                /* SH_IO_* that are asked for; 0: as at the beginning */
    struct sh_buf out;              /* bytes for the socket */
    size_t out_off, tls_pending;
    int64_t begin_ns, moved_ns; /* accepted; when bytes came or went */
    int64_t stuck_ns;           /* since when the socket does not take all; 0: it does */
    int64_t took_ns;            /* when it took some, since then */
    uint64_t took;              /* bytes since then */
    uint64_t sent;              /* bytes of answers that the client's windows have let through */
    int64_t shut_ns;            /* since when its window for all calls is shut; 0: it is not */
    uint64_t shut_sent;         /* sent by then */
    struct grpc_streams streams;
    size_t n_streams, n_done; /* n_done: of them, whose answer is to be cleared away */
};

enum {
    HEAD_PATH,
    HEAD_METHOD,
    HEAD_TYPE,
    HEAD_AUTH,
    HEAD_ID,
    HEAD_TRACE,
    HEAD_TIMEOUT,
    HEAD_TENANT,
    HEAD_SESSION,
    HEAD_ENCODING,
    GRPC_N_HEADS
};

struct grpc_out {       /* an answer on its way */
    struct sh_buf text; /* what stands before, between and behind the parts */
    struct iovec *iov;  /* OWNED: all of it in order */
    size_t n, at, off;
    void (*release)(void *owner); /* of the parts; NULL: none */
    void *owner;
};

struct grpc_stream {
    struct grpc_conn *c;
    LIST_ENTRY(grpc_stream) of_conn;
    int32_t id;
    char *head[GRPC_N_HEADS]; /* OWNED; NULL: absent */
    size_t head_bytes;
    bool twice; /* a header came more than once */
    const struct grpc_method *method;
    int64_t begin_ns, deadline_ns; /* 0: none */
    struct sh_buf held;            /* data that the call does not take yet, within the window */
    struct slab_count held_count;  /* as much, in the share of: */
    char tenant[64];               /* "": not known yet */
    bool is_begun;                 /* its headers are complete */
    bool got_end;                  /* the client sends no more */
    bool answered;                 /* headers were sent */
    bool ending;                   /* trailers are sent behind what is still to go */
    bool is_wide;                  /* has the large window */
    struct grpc_call *call;        /* that takes messages now; NULL: none */
    struct grpc_out out;
    bool has_out, out_done;       /* an answer is on its way; the library has all of it */
    int64_t out_ns, out_begin_ns; /* when some of it went; when it was made */
    uint64_t out_bytes;           /* that went */
    enum grpc_status status;
    struct sh_buf message; /* of the trailers, percent-encoded */
    int rc;                /* SH_OK, or the reason */
    int64_t retry_after_ms;
    char request_id[72], timing[224], rate[48], rate_policy[48];
    char *problem; /* OWNED: JSON; NULL: none */
};

enum grpc_phase { CALL_AUTH, CALL_MESSAGE, CALL_AGAIN, CALL_ENTER, CALL_MAIN, CALL_DONE };

struct grpc_call {
    struct api_req q; /* first: GRPC_FRONT gets a pointer to it */
    struct grpc_thread *t;
    struct grpc_stream *s; /* NULL: the client has left */
    const struct grpc_method *method;
    const char *tenant; /* BORROWED from the headers: that an admin names; NULL: none */
    enum grpc_phase phase;
    struct stage stage;
    struct sh_err err;
    bool asleep, counted, settled;
    char *head[GRPC_N_HEADS]; /* OWNED: of its stream, which is gone */
    int64_t deadline_ns;      /* 0: none */
    struct frames frames;
    const char *coding;     /* BORROWED from the headers: of packed messages; NULL: none */
    struct slab_slot *slot; /* OWNED: the message of an inference */
    char *text;             /* OWNED: another message, or its JSON */
    size_t text_n;
    struct tensors tensors;
    bool is_unpacked, is_read; /* is_read: tensors are */
    char header_len[24];
    struct sh_buf uri;
    int64_t slow_ns; /* when its message began; 0: it has not */
    int skip_rc;     /* there was no room for its message, which is thrown away */
    struct grpc_call *next_woken;
};

/* grpc.c */
void grpc_leave(struct grpc_thread *t); /* accepts no more */
/* grpc_conn.c */
void conn_accept(struct grpc_thread *t, int fd, const struct sockaddr *from);
void conn_enter(struct grpc_conn *c); /* brackets work on its streams: it lives meanwhile */
void conn_leave(struct grpc_conn *c); /* sends what there is to send; it may be freed */
/* A call on it has this key, which was found valid. Fails: SH_E_QUOTA, SH_E_NOMEM. */
int conn_claim(struct grpc_conn *c, const struct api_who *who, struct sh_err *err);
/* A call's key was refused (header: may be NULL). */
void conn_refuse(struct grpc_conn *c, const char *header);
/* Less than upload-min-rate, after upload-grace-s. */
bool conn_is_slow(const struct grpc_conn *c, int64_t begin_ns, uint64_t bytes, int64_t now);
void conn_sweep(struct grpc_thread *t);
void conn_end_all(struct grpc_thread *t);   /* frees them */
void conn_drain_all(struct grpc_thread *t); /* tells clients to go elsewhere */
/* grpc_session.c */
int h2_new(struct grpc_conn *c, struct sh_err *err); /* sets c->session */
/* Tells the client, to whom more is allowed once the connection is known. Not 0: no memory. */
int h2_limits(struct grpc_conn *c);
void h2_answer(struct grpc_stream *s);                     /* sends s->out, which it just got */
void h2_end(struct grpc_stream *s);                        /* sends its trailers */
void h2_refuse(struct grpc_stream *s, const char *status); /* by a status of HTTP */
/* grpc_stream.c */
struct grpc_stream *stream_new(struct grpc_conn *c, int32_t id);
void stream_del(struct grpc_stream *s);
void stream_begin(struct grpc_stream *s); /* its headers are complete */
void stream_data(struct grpc_stream *s, const void *data, size_t n);
void stream_pump(struct grpc_stream *s);                      /* goes on as far as it can */
void stream_known(struct grpc_stream *s, const char *tenant); /* whose it is */
/* Ends it; the call, if it is there, gives the rest of the trailers. */
void stream_fail(struct grpc_stream *s, int rc, int http, const char *msg);
void stream_sent(struct grpc_stream *s); /* its answer has gone to the library */
void stream_sweep(struct grpc_stream *s, int64_t now);
bool stream_waits(const struct grpc_stream *s); /* for a message of which nothing has come */
void out_fini(struct grpc_out *o);
/* grpc_call.c */
int call_new(struct grpc_stream *s, struct grpc_call **out, struct sh_err *err);
void call_free(struct grpc_call *c); /* NULL is allowed */
/* Goes on as far as it can. API_WAIT: it sleeps, or waits for more of its message. Else it is done:
 * its answer is in q.reply. */
int call_advance(struct grpc_call *c);
/* Takes bytes of its message, in phase CALL_MESSAGE. *taken: how many. */
int call_take(struct grpc_call *c, const char *data, size_t n, size_t *taken);
void call_abandon(struct grpc_call *c); /* its client has left: it frees itself, now or later */
void call_woken(struct grpc_call *c);
/* Counts it: once, before its answer is sent. */
void call_settle(struct grpc_call *c, int rc);
extern const struct api_front GRPC_FRONT; /* grpc.c */

#endif
