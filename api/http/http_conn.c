/* http_conn.c - open connections: which are too slow, which clients have left, and which to close
 * when there are too many.
 *
 * The library's timeout only asks whether any byte has moved. A client that sends a byte now and
 * then could keep a connection, and what it holds, for as long as it likes. So every phase has its
 * own limit here.
 *
 *   HEAD   waits for a request       header-timeout-s in all
 *   BODY   sends one                 upload-min-rate on average, after upload-grace-s
 *   WORK   waits for us              none: infer-timeout-ms, or the database's limit
 *   REPLY  reads the reply           as BODY
 *
 * A thread with its maximum of connections accepts no more; others of its door do. If all are full,
 * each keeps one place free as long as a connection can be spared: the oldest one on which no key
 * was seen, else the one with a key that has been idle longest. So clients with a key get in,
 * however many have none. Without descriptors the library's thread accepts no more until one of its
 * own connections has ended: if somebody waits and no thread of a door accepts, one of them loses
 * one.
 */
#include "api/api.h"
#include "api/http/http_int.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SWEEP_AT_ONCE 64u /* connections, with the lock held */
#define IDLE_EVERY 5u     /* sweeps: most connections are idle, and each costs a system call */
#define SPARE_NS SH_S(1)  /* idle for so long: the next request is not on its way already */
#define LINGER_NS SH_S(30)
#define LINGER_BYTES (UINT64_C(64) << 20)
#define LINGER_PIECE ((size_t)8 << 20)

/* Of its door: what a full thread leaves another one takes. */
static bool are_all_full(const struct http_thread *t)
{
    const struct http_door *d = t->door;

    for (unsigned i = 0; d && i < d->n_threads; i++)
        if (peer_has_room(&d->threads[i].room))
            return false;
    return !peer_has_room(&t->room);
}

static bool does_accept(const struct http_thread *t)
{
    return !atomic_load(&t->stopped_accepting) && peer_has_room(&t->room);
}

/* Of its door. */
static bool does_any_accept(const struct http_thread *t)
{
    const struct http_door *d = t->door;
    bool any = does_accept(t);

    for (unsigned i = 0; !any && d && i < d->n_threads; i++)
        any = does_accept(&d->threads[i]);
    return any;
}

/* The library tries to accept one more than there are, and for want of descriptors stops also when
 * nobody is there. */
static bool does_any_wait(const struct http_thread *t)
{
    struct pollfd p = {.fd = t->door ? t->door->fd : -1, .events = POLLIN};

    return !t->door || poll(&p, 1, 0) > 0;
}

/* Not `newest`, which has just come. */
static void thread_make_room(struct http_thread *t, const struct http_conn *newest)
{
    if (are_all_full(t))
        peer_make_room(&t->room, newest ? &newest->peer : NULL, SPARE_NS);
}

void conns_make_room(struct http_conns *s, struct http_thread *t)
{
    pthread_mutex_lock(&s->peers->lock);
    thread_make_room(t, NULL);
    /* Descriptors may be there again long before one of its connections ends by itself. */
    if (atomic_load(&t->stopped_accepting) && !does_any_accept(t) && does_any_wait(t) &&
        peer_make_room(&t->room, NULL, SPARE_NS))
        atomic_store(&t->stopped_accepting, false);
    pthread_mutex_unlock(&s->peers->lock);
}

/* ---------------------------------------------------------------- life */

void conns_init(struct http_conns *s, struct peers *peers)
{
    s->peers = peers;
}

void conns_fini(struct http_conns *s)
{
    while (s->n_linger > 0)
        close(s->linger[--s->n_linger].fd);
    free(s->by_fd);
}

static bool has_slot(struct http_conns *s, size_t fd)
{
    return sh_grow(&s->by_fd, &s->n_slots, fd + 1, sizeof(struct http_conn *), INT_MAX,
                   "connections", NULL) == SH_OK;
}

struct http_conn *conns_open(struct http_conns *s, struct http_thread *t, int fd, struct peer *ip)
{
    struct http_conn *c = calloc(1, sizeof(*c));
    bool ok = c;

    pthread_mutex_lock(&s->peers->lock);
    ok = ok && has_slot(s, (size_t)fd);
    if (ok) {
        *c = (struct http_conn){.peer = {.fd = fd, .ip = ip, .room = &t->room},
                                .since_ns = sh_clock_ns()};
        s->by_fd[fd] = c;
        s->n++;
        peer_open(&c->peer);
        thread_make_room(t, c);
    } else {
        peers_drop(s->peers, &ip);
    }
    pthread_mutex_unlock(&s->peers->lock);
    if (!ok) {
        free(c);
        return NULL;
    }
    return c;
}

/* A socket that is closed while data comes in is reset, and the client may lose what it was told.
 * So it stays, without its end of sending, until the client has read that and closes. lock is held.
 */
static void keep_socket(struct http_conns *s, const struct http_conn *c)
{
    int fd = fcntl(c->peer.fd, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return;
    shutdown(fd, SHUT_WR);
    if (s->n_linger == CONN_MAX_LINGER) {
        close(s->linger[0].fd);
        memmove(s->linger, s->linger + 1, --s->n_linger * sizeof(s->linger[0]));
    }
    s->linger[s->n_linger++] = (struct conn_linger){.fd = fd, .since_ns = sh_clock_ns()};
}

/* Throws away what has come. False: there is no more to wait for. */
static bool drain_socket(struct conn_linger *g, int64_t now)
{
    ssize_t n;

    do {
        n = recv(g->fd, NULL, LINGER_PIECE, MSG_TRUNC | MSG_DONTWAIT);
        g->bytes += n > 0 ? (uint64_t)n : 0;
    } while (n > 0 && g->bytes < LINGER_BYTES);
    return n < 0 && (errno == EAGAIN || errno == EINTR) && g->bytes < LINGER_BYTES &&
           now - g->since_ns < LINGER_NS;
}

/* Without the lock: who sends fast keeps a thread busy with it, but not all others from theirs. */
static void drain_sockets(struct http_conns *s, int64_t now)
{
    struct conn_linger old[CONN_MAX_LINGER];
    size_t n_old, n = 0, first;

    pthread_mutex_lock(&s->peers->lock);
    n_old = s->n_linger;
    memcpy(old, s->linger, n_old * sizeof(old[0]));
    s->n_linger = 0;
    pthread_mutex_unlock(&s->peers->lock);
    for (size_t i = 0; i < n_old; i++)
        if (drain_socket(&old[i], now))
            old[n++] = old[i];
        else
            close(old[i].fd);
    pthread_mutex_lock(&s->peers->lock);
    first = n - SH_MIN(n, CONN_MAX_LINGER - s->n_linger); /* for those that have come meanwhile */
    memmove(s->linger + n - first, s->linger, s->n_linger * sizeof(old[0]));
    memcpy(s->linger, old + first, (n - first) * sizeof(old[0]));
    s->n_linger += n - first;
    pthread_mutex_unlock(&s->peers->lock);
    while (first > 0)
        close(old[--first].fd);
}

void conns_linger(struct http_conns *s, struct http_conn *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&s->peers->lock);
    c->lingers = true;
    pthread_mutex_unlock(&s->peers->lock);
}

void conns_close(struct http_conns *s, struct http_conn *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&s->peers->lock);
    if (c->lingers && !c->peer.is_cut)
        keep_socket(s, c);
    s->by_fd[c->peer.fd] = NULL;
    s->n--;
    peer_close(s->peers, &c->peer);
    pthread_mutex_unlock(&s->peers->lock);
    free(c);
}

void conns_phase(struct http_conns *s, struct http_conn *c, enum conn_phase phase, uint64_t bytes)
{
    if (!c)
        return;
    pthread_mutex_lock(&s->peers->lock);
    if (c->phase != phase) {
        int64_t now = sh_clock_ns();

        /* A body that we let wait goes on where it was. */
        if (phase == CONN_WORK)
            c->body_ns = c->phase == CONN_BODY ? now - c->since_ns : 0;
        c->since_ns = phase == CONN_BODY ? now - c->body_ns : now;
        if (phase == CONN_HEAD)
            c->body_ns = 0;
        c->phase = phase;
        peer_turn(&c->peer, phase == CONN_HEAD ? PEER_IDLE : PEER_BUSY);
    }
    c->bytes = bytes;
    c->saw_end = false;
    pthread_mutex_unlock(&s->peers->lock);
}

/* The library is told once of data and of the end behind it. When it takes the data and leaves the
 * end for later, no later comes: a client that left in the middle of its body would keep its memory
 * and its place until the idle time-out. */
static bool has_conn_ended(const struct http_conn *c)
{
    char byte;

    return recv(c->peer.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static bool is_slow(const struct http_conn *c, const struct api_conf *conf, int64_t now)
{
    int64_t ns = now - c->since_ns - SH_S(SH_CONF_NOW(conf->upload_grace_s));
    double owed = (double)SH_CONF_NOW(conf->upload_min_rate) * ((double)ns / 1e9);

    /* Of a reply we only know that some of it is still to go. */
    return ns > 0 && (c->phase == CONN_BODY ? (double)c->bytes < owed : owed > (double)c->bytes);
}

/* lock is held. */
static void sweep_one(struct http_conn *c, const struct api_conf *conf, int64_t now, bool idle_too)
{
    bool slow = false, end = false;

    if (c->peer.is_cut)
        return;
    if (c->phase == CONN_HEAD)
        slow = now - c->since_ns > SH_S(SH_CONF_NOW(conf->header_timeout_s));
    else if (c->phase != CONN_WORK)
        slow = is_slow(c, conf, now);
    if (c->phase == CONN_BODY || (c->phase == CONN_HEAD && idle_too)) {
        end = has_conn_ended(c);
        slow |= end && c->saw_end;
        c->saw_end = end;
    }
    if (!slow)
        return;
    if (c->phase != CONN_HEAD && !end)
        SH_WARN("http.slow", "phase=%s bytes=%" PRIu64 " key=%s",
                c->phase == CONN_BODY ? "body" : "reply", c->bytes, peer_name(c->peer.key));
    peer_cut(&c->peer);
}

void conns_sweep(struct http_conns *s, const struct api_conf *conf)
{
    int64_t now = sh_clock_ns();
    bool idle_too = s->n_sweeps++ % IDLE_EVERY == 0;
    size_t n_slots, n, at = 0;

    do {
        pthread_mutex_lock(&s->peers->lock);
        n_slots = s->n_slots;
        n = s->n;
        for (size_t end = SH_MIN(at + SWEEP_AT_ONCE, n_slots); at < end; at++)
            if (s->by_fd[at])
                sweep_one(s->by_fd[at], conf, now, idle_too);
        pthread_mutex_unlock(&s->peers->lock);
    } while (at < n_slots);
    drain_sockets(s, now);
    sh_metric_set(M_shunt_http_connections, NULL, (double)n);
}
