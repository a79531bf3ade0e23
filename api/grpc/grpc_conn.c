/* grpc_conn.c - a connection: bytes between its socket, perhaps TLS, and the HTTP/2 session; and
 * how long it may do nothing.
 *
 *   without a call   idle-timeout-s, then it is told to go and closed
 *   in a handshake   SHAKE_NS
 *   before the end of its first call's headers, or of a later one's   header-timeout-s in all
 *   that reads none of what we send, or of one answer   idle-timeout-s
 *   in a message, or what we send   upload-min-rate on average, after upload-grace-s
 *   before a message: grpc_stream.c
 *
 * Beyond grpc-max-connections a new one takes the place of one without a key, else of one without a
 * call, else of one whose calls all wait for a message, in each case of that which has been so for
 * longest, on whatever thread; if there is none, it is closed at once.
 */
#include "api/api.h"
#include "api/grpc/grpc_int.h"
#include "api/http/http_tls.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHAKE_NS SH_S(10)
#define READ_BYTES ((size_t)64 << 10)
#define READS_AT_ONCE 8u /* then others have their turn */
#define FLUSHES_AT_ONCE 16u
#define OUT_MANY ((size_t)256 << 10)
#define OUT_MAX ((size_t)1 << 20)
#define CUT_AHEAD 64u /* more than can have a place may be on their way out */
#define RECORD ((size_t)16 << 10)

static void on_io(struct sh_loop *l, int fd, unsigned events, void *arg);

/* ---------------------------------------------------------------- life */

static void conn_free(struct grpc_conn *c)
{
    struct peers *peers = &c->t->g->api->peers;
    struct grpc_stream *s;

    while ((s = LIST_FIRST(&c->streams)))
        stream_del(s);
    nghttp2_session_del(c->session);
    if (c->tls)
        gnutls_deinit(c->tls);
    sh_io_del(c->io);
    pthread_mutex_lock(&peers->lock);
    peer_close(peers, &c->peer);
    sh_metric_set(M_shunt_grpc_connections, NULL, (double)c->peer.room->n);
    pthread_mutex_unlock(&peers->lock);
    close(c->peer.fd);
    sh_buf_fini(&c->out);
    TAILQ_REMOVE(&c->t->conns, c, of_thread);
    free(c);
}

/* The session ends: the client is told, and what it was promised before goes out first. */
static void conn_end(struct grpc_conn *c, uint32_t why)
{
    if (!c->ends)
        nghttp2_session_terminate_session(c->session, why);
    c->ends = true;
}

/* All of its calls wait for a message. */
static bool conn_waits(const struct grpc_conn *c)
{
    const struct grpc_stream *s;

    LIST_FOREACH(s, &c->streams, of_conn)
    {
        if (!stream_waits(s))
            return false;
    }
    return true;
}

/* Whether it may go, for others to know. */
static void note_turn(struct grpc_conn *c)
{
    struct peers *peers = &c->t->g->api->peers;
    const bool is_told = c->out_off < c->out.len; /* what the socket has not taken */
    enum peer_turn turn = is_told             ? PEER_BUSY
                          : c->n_streams == 0 ? PEER_IDLE
                          : conn_waits(c)     ? PEER_WAITS
                                              : PEER_BUSY;
    /* Who was answered at once has had a call all the same. */
    const bool is_later = c->had_call && c->peer.is_known && turn != PEER_BUSY;

    if (turn == c->peer.turn && !is_later) /* which only this thread writes */
        return;
    c->had_call = false;
    pthread_mutex_lock(&peers->lock);
    peer_turn(&c->peer, turn);
    pthread_mutex_unlock(&peers->lock);
}

/* False: there is none, and nobody may go. Those that are on their way out are not waited for, so
 * they have a limit too. */
static bool take_place(struct grpc_conn *c)
{
    struct peers *peers = &c->t->g->api->peers;
    struct peer_room *room = c->peer.room;
    bool ok;

    pthread_mutex_lock(&peers->lock);
    ok = peer_has_room(room) ||
         (room->n_cut < room->max + CUT_AHEAD && peer_make_room(room, NULL, 0));
    if (ok) {
        peer_open(&c->peer);
        sh_metric_set(M_shunt_grpc_connections, NULL, (double)room->n);
    }
    pthread_mutex_unlock(&peers->lock);
    return ok;
}

static void set_socket(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static int open_conn(struct grpc_thread *t, int fd, struct grpc_conn *c, struct sh_err *err)
{
    int rc = h2_new(c, err);

    if (!rc && t->g->tls)
        rc = tls_session(t->g->tls, fd, &c->tls, err);
    return rc ? rc : sh_io_add(t->loop, fd, SH_IO_READ, on_io, c, &c->io, err);
}

/* NULL: no memory, or no place. */
static struct grpc_conn *conn_new(struct grpc_thread *t, int fd, const struct sockaddr *from)
{
    struct api *a = t->g->api;
    struct grpc_conn *c = calloc(1, sizeof(*c));
    struct peer *ip = NULL;

    if (!c || !peers_admit(&a->peers, false, from, a->conf->max_connections_per_ip, &ip)) {
        free(c);
        return NULL;
    }
    *c = (struct grpc_conn){.t = t,
                            .peer = {.fd = fd, .ip = ip, .room = &t->g->room},
                            .events = SH_IO_READ,
                            .begin_ns = sh_clock_ns()};
    if (!take_place(c)) {
        peers_leave(&a->peers, ip);
        free(c);
        return NULL;
    }
    c->moved_ns = c->begin_ns;
    LIST_INIT(&c->streams);
    sh_buf_init(&c->out, OUT_MAX);
    TAILQ_INSERT_TAIL(&t->conns, c, of_thread);
    return c;
}

void conn_accept(struct grpc_thread *t, int fd, const struct sockaddr *from)
{
    struct grpc_conn *c = conn_new(t, fd, from);

    if (!c) {
        sh_metric_add(M_shunt_grpc_refused_connections_total, NULL, 1);
        close(fd);
        return;
    }
    set_socket(fd);
    conn_enter(c);
    if (open_conn(t, fd, c, NULL))
        c->dead = true;
    conn_leave(c);
}

/* Whoever has a key may do more. */
static void set_limits(struct grpc_conn *c)
{
    const int32_t window =
        c->peer.is_known ? GRPC_CONN_WINDOW : NGHTTP2_INITIAL_CONNECTION_WINDOW_SIZE;

    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, window);
    if (h2_limits(c))
        c->dead = true;
}

int conn_claim(struct grpc_conn *c, const struct api_who *who, struct sh_err *err)
{
    struct api *a = c->t->g->api;
    bool was_known = c->peer.is_known;
    int rc =
        peers_claim(&a->peers, &c->peer, who, SH_CONF_NOW(a->conf->max_connections_per_key), err);

    if (rc || was_known)
        return rc;
    set_limits(c);
    return SH_OK;
}

void conn_refuse(struct grpc_conn *c, const char *header)
{
    if (peers_refuse(&c->t->g->api->peers, &c->peer, header))
        set_limits(c);
}

/* ---------------------------------------------------------------- the socket */

/* Bytes, 0: none now, -1: the end. */
static ssize_t conn_read(struct grpc_conn *c, void *to, size_t max)
{
    ssize_t n;

    if (c->tls) {
        n = gnutls_record_recv(c->tls, to, max);
        if (n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED)
            return 0;
        return n > 0 ? n : -1;
    }
    do
        n = recv(c->peer.fd, to, max, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    return n > 0 ? n : -1;
}

static ssize_t conn_write(struct grpc_conn *c, const char *from, size_t n)
{
    ssize_t sent;

    if (c->tls) {
        /* What the session could not send it has taken; it is only asked to go on. */
        size_t part = c->tls_pending ? c->tls_pending : SH_MIN(n, RECORD);

        sent = c->tls_pending ? gnutls_record_send(c->tls, NULL, 0)
                              : gnutls_record_send(c->tls, from, part);
        c->tls_pending = sent == GNUTLS_E_AGAIN || sent == GNUTLS_E_INTERRUPTED ? part : 0;
        if (c->tls_pending)
            return 0;
        return sent < 0 ? -1 : (ssize_t)part;
    }
    do
        sent = send(c->peer.fd, from, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    return sent < 0 ? -1 : sent;
}

static void ask_for(struct grpc_conn *c, unsigned events)
{
    if (events != c->events && sh_io_set(c->io, events, NULL))
        c->dead = true;
    c->events = events;
}

/* False: it is not done, or has failed. */
static bool conn_shake(struct grpc_conn *c)
{
    int e;

    if (!c->tls || c->shaken)
        return true;
    do
        e = gnutls_handshake(c->tls);
    while (e < 0 && e != GNUTLS_E_AGAIN && !gnutls_error_is_fatal(e));
    c->shaken = e == GNUTLS_E_SUCCESS;
    c->dead |= e < 0 && e != GNUTLS_E_AGAIN;
    if (e == GNUTLS_E_AGAIN)
        ask_for(c, gnutls_record_get_direction(c->tls) ? SH_IO_WRITE : SH_IO_READ);
    return c->shaken;
}

/* ---------------------------------------------------------------- what goes out */

/* From the library to the buffer. A slow client may never have all that is in it. */
static void conn_collect(struct grpc_conn *c)
{
    const uint8_t *data;
    ssize_t n = 1;

    if (c->out_off >= OUT_MANY) {
        c->out.len -= c->out_off;
        memmove(c->out.data, c->out.data + c->out_off, c->out.len);
        c->out_off = 0;
    }
    while (!c->dead && n > 0 && c->out.len - c->out_off < OUT_MANY) {
        n = nghttp2_session_mem_send(c->session, &data);
        if (n < 0 || (n > 0 && sh_buf_append(&c->out, data, (size_t)n, NULL)))
            c->dead = true;
    }
}

/* Streams whose answer the library has all of: the next message may come. */
static bool clear_answers(struct grpc_conn *c)
{
    struct grpc_stream *s, *next;
    bool any = c->n_done > 0;

    for (s = LIST_FIRST(&c->streams); s && c->n_done > 0; s = next) {
        next = LIST_NEXT(s, of_conn);
        if (!s->has_out || !s->out_done)
            continue;
        c->n_done--;
        stream_sent(s);
    }
    return any;
}

/* True: the socket takes more. */
static bool write_out(struct grpc_conn *c)
{
    ssize_t n = 1;

    while (!c->dead && n > 0 && c->out_off < c->out.len) {
        n = conn_write(c, c->out.data + c->out_off, c->out.len - c->out_off);
        if (n < 0) {
            c->dead = true;
            return false;
        }
        if (n > 0)
            c->moved_ns = c->took_ns = sh_clock_ns();
        c->out_off += (size_t)n;
        c->took += (uint64_t)n;
    }
    if (c->out_off < c->out.len) {
        if (!c->stuck_ns) {
            c->stuck_ns = c->took_ns = sh_clock_ns();
            c->took = 0;
        }
        return false;
    }
    c->stuck_ns = 0;
    c->out_off = 0;
    sh_buf_reset(&c->out);
    return true;
}

/* A client may have sent many messages ahead: others have their turn between them. */
static void conn_flush(struct grpc_conn *c)
{
    bool more = true;

    if (!conn_shake(c))
        return;
    for (unsigned i = 0; i < FLUSHES_AT_ONCE && more && !c->dead; i++) {
        size_t before = c->out.len - c->out_off;

        conn_collect(c);
        more = c->out.len - c->out_off > before;
        more |= clear_answers(c);
        more &= write_out(c);
    }
    if (c->out.len == 0 && !nghttp2_session_want_write(c->session) &&
        !nghttp2_session_want_read(c->session))
        c->dead = true;
    /* Who does not read our answers may not send more questions. */
    if (!c->dead)
        ask_for(c, (c->out.len - c->out_off < OUT_MANY ? SH_IO_READ : 0u) |
                       (c->stuck_ns || more ? SH_IO_WRITE : 0u));
}

void conn_enter(struct grpc_conn *c)
{
    c->busy++;
}

void conn_leave(struct grpc_conn *c)
{
    if (c->busy > 1) {
        c->busy--;
        return;
    }
    if (!c->dead && c->io)
        conn_flush(c);
    c->busy--;
    if (c->dead)
        conn_free(c);
    else
        note_turn(c);
}

/* ---------------------------------------------------------------- what comes in */

static void read_in(struct grpc_conn *c)
{
    static _Thread_local unsigned char buf[READ_BYTES];
    ssize_t n, used;

    c->unread = false;
    for (unsigned i = 0; i < READS_AT_ONCE && !c->dead; i++) {
        n = conn_read(c, buf, sizeof(buf));
        if (n == 0)
            return;
        if (n < 0) {
            c->dead = true;
            return;
        }
        c->moved_ns = sh_clock_ns();
        used = nghttp2_session_mem_recv(c->session, buf, (size_t)n);
        if (used < 0) { /* no HTTP/2, or against its rules */
            SH_DEBUG("grpc.broken", "msg=\"%s\"", nghttp2_strerror((int)used));
            conn_end(c, NGHTTP2_PROTOCOL_ERROR);
            conn_flush(c);
            c->dead = true;
        }
    }
    c->unread = c->tls && gnutls_record_check_pending(c->tls) > 0;
}

static void on_io(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct grpc_conn *c = arg;

    (void)l;
    (void)fd;
    conn_enter(c);
    if (conn_shake(c)) {
        do
            if (events & (SH_IO_READ | SH_IO_HUP))
                read_in(c);
        while (c->unread && !c->dead);
    }
    conn_leave(c);
}

/* ---------------------------------------------------------------- limits of time, and the end */

bool conn_is_slow(const struct grpc_conn *c, int64_t begin_ns, uint64_t bytes, int64_t now)
{
    const struct api_conf *conf = c->t->g->api->conf;
    int64_t ns = now - begin_ns - SH_S(SH_CONF_NOW(conf->upload_grace_s));

    return ns > 0 &&
           (double)bytes < (double)SH_CONF_NOW(conf->upload_min_rate) * ((double)ns / 1e9);
}

/* It opens the window of all its calls too slowly for answers that are there. */
static bool conn_is_shut(struct grpc_conn *c, int64_t now)
{
    const struct grpc_stream *s = LIST_FIRST(&c->streams);

    while (s && (!s->has_out || s->out_done))
        s = LIST_NEXT(s, of_conn);
    if (!s || nghttp2_session_get_remote_window_size(c->session) > 0) {
        c->shut_ns = 0;
        return false;
    }
    if (!c->shut_ns) {
        c->shut_ns = now;
        c->shut_sent = c->sent;
    }
    return conn_is_slow(c, c->shut_ns, c->sent - c->shut_sent, now);
}

static void conn_sweep_one(struct grpc_conn *c, int64_t now)
{
    const struct api_conf *conf = c->t->g->api->conf;
    const int64_t idle_ns = SH_S(conf->idle_timeout_s);
    struct grpc_stream *s, *next;

    if (!c->is_used && now - c->begin_ns > SH_S(SH_CONF_NOW(conf->header_timeout_s))) {
        conn_end(c, NGHTTP2_NO_ERROR);
        conn_flush(c);
        c->dead = true;
    }
    c->dead |= conn_is_shut(c, now);

    if (c->tls && !c->shaken && now - c->begin_ns > SHAKE_NS)
        c->dead = true;
    if (c->stuck_ns && (now - c->took_ns > idle_ns || conn_is_slow(c, c->stuck_ns, c->took, now)))
        c->dead = true;
    if (c->n_streams == 0 && now - c->moved_ns > idle_ns) {
        c->dead |= c->ends || (c->tls && !c->shaken);
        conn_end(c, NGHTTP2_NO_ERROR);
        c->moved_ns = now;
    }
    for (s = LIST_FIRST(&c->streams); s && !c->dead; s = next) {
        next = LIST_NEXT(s, of_conn);
        stream_sweep(s, now);
    }
}

void conn_sweep(struct grpc_thread *t)
{
    const int64_t now = sh_clock_ns();
    struct grpc_conn *c, *next;

    for (c = TAILQ_FIRST(&t->conns); c; c = next) {
        next = TAILQ_NEXT(c, of_thread);
        conn_enter(c);
        conn_sweep_one(c, now);
        conn_leave(c);
    }
}

/* Streams without a message end; other calls go on, and new ones go elsewhere. */
void conn_drain_all(struct grpc_thread *t)
{
    struct grpc_conn *c, *next;
    struct grpc_stream *s, *after;

    for (c = TAILQ_FIRST(&t->conns); c; c = next) {
        next = TAILQ_NEXT(c, of_thread);
        conn_enter(c);
        nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(c->session), NGHTTP2_NO_ERROR,
                              NULL, 0);
        for (s = LIST_FIRST(&c->streams); s; s = after) {
            after = LIST_NEXT(s, of_conn);
            if (stream_waits(s))
                stream_fail(s, SH_E_UNAVAILABLE, 0,
                            "this server is shutting down; try another one");
        }
        conn_leave(c);
    }
}

void conn_end_all(struct grpc_thread *t)
{
    struct grpc_conn *c;

    while ((c = TAILQ_FIRST(&t->conns))) {
        conn_enter(c);
        conn_end(c, NGHTTP2_NO_ERROR);
        conn_leave(c);
        if (TAILQ_FIRST(&t->conns) == c)
            conn_free(c);
    }
}
