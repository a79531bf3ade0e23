/* wire.c - one connection in an event loop: frames in, frames out.
 *
 * Callbacks run only from the loop, never from inside sh_wire_send(): a sender may be walking a
 * list that on_close changes. So a failure found while sending is kept in `why` and reported by a
 * timer that fires at once. Before that the wire reads what the peer sent last, since a process
 * often says why it ends and then ends.
 *
 * busy: a callback is running further up the stack; sh_wire_close() then leaves the memory to it.
 * dead: descriptor and queue are gone, only the memory is left.
 * opening: the TLS handshake is not done; only the owner knows the wire, and nobody sends.
 */
#include "common/wire.h"

#include "common/mem.h"
#include "common/units.h"
#include "common/wire_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define DEFAULT_MAX_QUEUED ((size_t)64 << 20)
#define READ_MIN ((size_t)64 << 10)
#define READ_MAX ((size_t)1 << 20)
#define READS_PER_EVENT 8
#define READS_AT_END 64
#define KEEP_BYTES ((size_t)4 << 20) /* larger buffers are given back when they are empty */
#define IN_FDS (2 * SH_WIRE_MAX_FDS)
#define FRAMES_PER_WRITE 64
#define FINISH_NS SH_S(1)
#define SHAKE_NS SH_S(5)
#define IN_MAX (SH_WIRE_MAX_FRAME + SH_WIRE__HEADER + READ_MIN + 2 * SH_WIRE__RECORD)

struct frame {
    struct frame *next;
    size_t len, off;          /* off bytes are written */
    int fds[SH_WIRE_MAX_FDS]; /* OWNED duplicates */
    size_t n_fds;             /* 0 once they left */
    unsigned char data[];
};

struct sh_wire {
    struct sh_loop *loop;
    struct sh_io *io;
    struct sh_timer *timer; /* reports a failure, limits a finish */
    int fd;
    struct sh_wire_handler h;
    void *owner;
    void (*gone)(void *owner);
    unsigned char *in;
    size_t in_len, in_cap;
    int in_fds[IN_FDS];
    size_t n_in_fds;
    struct frame *head, **tail;
    size_t queued;
    struct sh_buf scratch; /* the frame being encoded */
    struct sh_err why;
    struct sh_wire__tls *tls; /* OWNED; NULL: plain */
    void (*opened)(void *owner);
    bool opening, is_local, is_corked, busy, dead, failed, finishing, shut, eof;
};

/* ---------------------------------------------------------------- end of a wire */

static void drop_queue(struct sh_wire *w)
{
    struct frame *f;

    while ((f = w->head)) {
        w->head = f->next;
        sh_wire__close_fds(f->fds, &f->n_fds);
        free(f);
    }
    w->tail = &w->head;
    w->queued = 0;
}

static void tear_down(struct sh_wire *w)
{
    w->dead = true;
    sh_io_del(w->io);
    sh_timer_del(w->timer);
    w->io = NULL;
    w->timer = NULL;
    sh_wire__tls_free(w->tls);
    w->tls = NULL;
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    drop_queue(w);
    sh_wire__close_fds(w->in_fds, &w->n_in_fds);
}

static void free_wire(struct sh_wire *w)
{
    free(w->in);
    sh_buf_fini(&w->scratch);
    free(w);
}

/* Only from the loop's callbacks, with nothing of this wire further up the stack. */
static void end_wire(struct sh_wire *w, const struct sh_err *why)
{
    tear_down(w);
    w->h.on_close(w, why, w->h.arg);
    free_wire(w);
}

void sh_wire_close(struct sh_wire *w)
{
    void (*gone)(void *owner);

    if (!w || w->dead)
        return;
    gone = w->gone;
    tear_down(w);
    if (gone)
        gone(w->owner);
    if (!w->busy)
        free_wire(w);
}

void sh_wire__fail(struct sh_wire *w, const struct sh_err *why)
{
    if (w->failed)
        return;
    w->failed = true;
    w->why = *why;
    drop_queue(w);
    sh_timer_set(w->timer, 0);
}

/* ---------------------------------------------------------------- writing */

static bool has_more_to_write(const struct sh_wire *w)
{
    return w->head || (w->tls && sh_wire__tls_pending(w->tls));
}

static void update_interest(struct sh_wire *w)
{
    struct sh_err err = {0};
    unsigned events = (w->eof ? 0 : SH_IO_READ) | (has_more_to_write(w) ? SH_IO_WRITE : 0);

    if (sh_io_set(w->io, events, &err))
        sh_wire__fail(w, &err);
}

static ssize_t write_tls(struct sh_wire *w, const struct iovec *iov, size_t n_iov)
{
    struct sh_err err = {0};
    size_t taken = 0;

    if (!sh_wire__tls_write(w->tls, iov, n_iov, &taken, &err))
        return (ssize_t)taken;
    sh_wire__fail(w, &err);
    return -1;
}

/* Returns bytes written, 0 if the socket takes nothing now, -1 on failure. */
static ssize_t write_some(struct sh_wire *w, struct iovec *iov, size_t n_iov, const int *fds,
                          size_t n_fds)
{
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = n_iov};
    union sh_wire__control control;
    struct sh_err err = {0};
    ssize_t n;

    if (w->tls)
        return write_tls(w, iov, n_iov);
    sh_wire__attach(&mh, &control, fds, n_fds);
    do
        n = sendmsg(w->fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return 0;
    SH_FAIL_ERRNO(&err, SH_E_UNAVAILABLE, "the connection to the peer is lost");
    sh_wire__fail(w, &err);
    return -1;
}

static void advance_queue(struct sh_wire *w, size_t n)
{
    w->queued -= n;
    while (n > 0) {
        struct frame *f = w->head;
        size_t part = SH_MIN(n, f->len - f->off);

        sh_wire__close_fds(f->fds, &f->n_fds); /* they left with the first byte */
        f->off += part;
        n -= part;
        if (f->off < f->len)
            return;
        w->head = f->next;
        if (!w->head)
            w->tail = &w->head;
        free(f);
    }
}

static void flush(struct sh_wire *w)
{
    if (w->tls && !w->head) /* ciphertext of what has left the queue */
        write_tls(w, NULL, 0);
    while (w->head) {
        struct iovec iov[FRAMES_PER_WRITE];
        size_t n_iov = 0;
        ssize_t n;

        for (struct frame *f = w->head; f && n_iov < FRAMES_PER_WRITE; f = f->next) {
            if (f->n_fds > 0 && f != w->head)
                break; /* descriptors leave with the first byte of a write */
            iov[n_iov++] = (struct iovec){.iov_base = f->data + f->off, .iov_len = f->len - f->off};
        }
        n = write_some(w, iov, n_iov, w->head->fds, w->head->n_fds);
        if (n <= 0)
            break;
        advance_queue(w, (size_t)n);
    }
}

static int enqueue_frame(struct sh_wire *w, const struct sh_buf *b, size_t off, const int *fds,
                         size_t n_fds, struct sh_err *err)
{
    struct frame *f = malloc(sizeof(*f) + (b->len - off));

    if (!f)
        return SH_FAIL(err, SH_E_NOMEM, "could not queue a message of %zu bytes", b->len);
    *f = (struct frame){.len = b->len - off};
    memcpy(f->data, b->data + off, f->len);
    for (; f->n_fds < n_fds; f->n_fds++) {
        f->fds[f->n_fds] = fcntl(fds[f->n_fds], F_DUPFD_CLOEXEC, 0);
        if (f->fds[f->n_fds] < 0) {
            int rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not duplicate a descriptor to send");

            sh_wire__close_fds(f->fds, &f->n_fds);
            free(f);
            return rc;
        }
    }
    *w->tail = f;
    w->tail = &f->next;
    w->queued += f->len;
    return SH_OK;
}

static int check_send(const struct sh_wire *w, const int *fds, size_t n_fds, struct sh_err *err)
{
    if (w->dead || w->failed || w->finishing)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the connection to the peer is closed");
    if (n_fds > 0 && (!fds || !w->is_local))
        return SH_FAIL(err, SH_E_BUG, "descriptors can only be sent over a Unix socket");
    if (n_fds > SH_WIRE_MAX_FDS)
        return SH_FAIL(err, SH_E_BUG, "cannot send %zu descriptors, at most %d", n_fds,
                       SH_WIRE_MAX_FDS);
    return SH_OK;
}

/* Writes or queues what was encoded. */
static int send_frame(struct sh_wire *w, const int *fds, size_t n_fds, struct sh_err *err)
{
    struct iovec iov = {.iov_base = w->scratch.data, .iov_len = w->scratch.len};
    ssize_t n = 0;
    int rc;

    if (!w->head && !w->is_corked) {
        n = write_some(w, &iov, 1, fds, n_fds);
        if (n < 0)
            return sh_err_copy(err, &w->why);
        if ((size_t)n == w->scratch.len) {
            if (w->tls)
                update_interest(w);
            return SH_OK;
        }
    }
    if (w->scratch.len - (size_t)n > w->h.max_queued_bytes - w->queued)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the peer does not read: %zu bytes wait for it",
                       w->queued);
    rc = enqueue_frame(w, &w->scratch, (size_t)n, fds, n > 0 ? 0 : n_fds, err);
    if (!rc && !w->is_corked)
        update_interest(w);
    return rc;
}

int sh_wire_send_fds(struct sh_wire *w, const struct sh_msg *m, const int *fds, size_t n_fds,
                     struct sh_err *err)
{
    struct sh_err why = {0};
    int rc = check_send(w, fds, n_fds, err);

    if (rc)
        return rc;
    rc = sh_wire__encode(&w->scratch, m, n_fds, &why);
    if (!rc)
        rc = send_frame(w, fds, n_fds, &why);
    if (w->scratch.cap > KEEP_BYTES)
        sh_buf_fini(&w->scratch);
    if (!rc)
        return SH_OK;
    sh_wire__fail(w, &why); /* nothing follows what did not go, or went by half */
    return sh_err_copy(err, &why);
}

int sh_wire_send(struct sh_wire *w, const struct sh_msg *m, struct sh_err *err)
{
    return sh_wire_send_fds(w, m, NULL, 0, err);
}

static void half_close(struct sh_wire *w)
{
    if (!w->finishing || has_more_to_write(w) || w->shut || w->failed)
        return;
    w->shut = true;
    shutdown(w->fd, SHUT_WR); /* fails only if the peer is gone, which the read side tells */
}

void sh_wire_cork(struct sh_wire *w)
{
    w->is_corked = true;
}

void sh_wire_uncork(struct sh_wire *w)
{
    w->is_corked = false;
    if (!w->head || w->dead || w->failed)
        return;
    flush(w);
    half_close(w);
    if (has_more_to_write(w))
        update_interest(w);
}

/* ---------------------------------------------------------------- reading */

/* Hands over one frame. The wire may be dead afterwards. */
static int deliver_frame(struct sh_wire *w, const struct sh_wire__header *h,
                         const unsigned char *payload, struct sh_err *err)
{
    int fds[SH_WIRE_MAX_FDS];
    struct sh_msg m;
    int rc;

    if (w->n_in_fds < h->n_fds)
        return SH_FAIL(err, SH_E_PROTO, "message %s came without its descriptors",
                       sh_msg_name((enum sh_msg_type)h->type));
    rc = sh_msg_decode(h->type, payload, h->len, &m, err);
    if (rc)
        return rc;
    memcpy(fds, w->in_fds, h->n_fds * sizeof(int));
    w->n_in_fds -= h->n_fds;
    memmove(w->in_fds, w->in_fds + h->n_fds, w->n_in_fds * sizeof(int));
    w->h.on_msg(w, &m, fds, h->n_fds, w->h.arg);
    for (size_t i = 0; i < h->n_fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return SH_OK;
}

static int take_frames(struct sh_wire *w, struct sh_err *err)
{
    struct sh_wire__header h;
    size_t pos = 0;
    int rc = SH_OK;

    while (!rc && !w->dead && !w->finishing && w->in_len - pos >= SH_WIRE__HEADER) {
        rc = sh_wire__header(w->in + pos, &h, err);
        if (rc || w->in_len - pos - SH_WIRE__HEADER < h.len)
            break;
        rc = deliver_frame(w, &h, w->in + pos + SH_WIRE__HEADER, err);
        pos += SH_WIRE__HEADER + h.len;
    }
    if (rc || w->dead)
        return rc;
    w->in_len -= pos;
    memmove(w->in, w->in + pos, w->in_len);
    if (w->in_len == 0 && w->n_in_fds > 0 && !w->finishing)
        return SH_FAIL(err, SH_E_PROTO, "the peer sent more descriptors than it announced");
    if (w->in_len == 0 && w->in_cap > KEEP_BYTES) {
        free(w->in);
        w->in = NULL;
        w->in_cap = 0;
    }
    return SH_OK;
}

static int fail_eof(const struct sh_wire *w, struct sh_err *err)
{
    if (w->in_len > 0)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the peer closed the connection inside a message");
    return SH_FAIL(err, SH_E_UNAVAILABLE, "the peer closed the connection");
}

static size_t chunk_size(const struct sh_wire *w)
{
    struct sh_wire__header h;

    if (w->in_len < SH_WIRE__HEADER || sh_wire__header(w->in, &h, NULL))
        return READ_MIN;
    return SH_MAX(SH_MIN(h.len + SH_WIRE__HEADER - w->in_len, READ_MAX), READ_MIN);
}

/* What came before the end of the stream, perhaps along with the handshake, is delivered first: the
 * next read is told of the end again. */
static int read_tls(struct sh_wire *w, bool to_end, bool *more, struct sh_err *err)
{
    const size_t want = chunk_size(w), had = w->in_len;
    size_t got;
    bool eof;
    int rc = sh_wire__tls_fill(w->tls, want, &got, &eof, err);

    *more = got == want || (to_end && got > 0);
    do {
        got = 0;
        if (!rc)
            rc = sh_grow(&w->in, &w->in_cap, w->in_len + SH_WIRE__RECORD, 1, IN_MAX,
                         "receive buffer", err);
        if (!rc)
            rc = sh_wire__tls_read(w->tls, w->in + w->in_len, w->in_cap - w->in_len, &got, err);
        w->in_len += got;
    } while (got > 0);
    if (rc || !eof)
        return rc;
    *more = w->in_len > had;
    return *more ? SH_OK : fail_eof(w, err);
}

/* *more: there may be more to read. One that got less than it had room for has emptied the socket,
 * or stands before a message with descriptors: of what is left the loop tells in its next turn, so
 * a message costs no second call that finds nothing. to_end: it will not. Fails: SH_E_UNAVAILABLE
 * at the end. */
static int read_chunk(struct sh_wire *w, bool to_end, bool *more, struct sh_err *err)
{
    size_t want = chunk_size(w);
    union sh_wire__control control;
    struct iovec iov;
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;
    int rc;

    *more = false;
    if (w->tls)
        return read_tls(w, to_end, more, err);
    rc = sh_grow(&w->in, &w->in_cap, w->in_len + want, 1, IN_MAX, "receive buffer", err);
    if (rc)
        return rc;
    iov = (struct iovec){.iov_base = w->in + w->in_len, .iov_len = want};
    if (w->is_local) {
        mh.msg_control = control.bytes;
        mh.msg_controllen = sizeof(control.bytes);
    }
    do
        n = recvmsg(w->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return SH_OK;
    if (n < 0)
        return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "the connection to the peer is lost");
    rc = sh_wire__detach(&mh, w->in_fds, &w->n_in_fds, IN_FDS, err);
    if (rc)
        return rc;
    if (n == 0)
        return fail_eof(w, err);
    w->in_len += (size_t)n;
    *more = to_end || (size_t)n == want;
    return SH_OK;
}

/* Reads and delivers. Returns false if the wire is gone (closed by a callback, freed here). */
static bool read_some_frames(struct sh_wire *w, int n_reads, bool to_end, struct sh_err *err)
{
    bool more = true, dead;
    size_t had;
    int rc = SH_OK;

    w->busy = true;
    for (int i = 0; i < n_reads && more && !rc && !w->dead && !w->finishing; i++) {
        had = w->in_len;
        rc = read_chunk(w, to_end, &more, err);
        if (!rc && (w->in_len > had || w->tls))
            rc = take_frames(w, err);
    }
    w->busy = false;
    dead = w->dead;
    if (dead)
        free_wire(w);
    return !dead;
}

/* While finishing, what comes in is read only so that closing does not reset the connection and
 * with it our own last bytes. No control buffer: the kernel drops descriptors. */
static void discard_some(struct sh_wire *w)
{
    char sink[16384];
    ssize_t n;

    for (int i = 0; i < READS_PER_EVENT; i++) {
        n = recv(w->fd, sink, sizeof(sink), MSG_DONTWAIT);
        if (n > 0)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        w->eof = true;
        return;
    }
}

static void end_finished(struct sh_wire *w)
{
    struct sh_err why = {0};

    if (has_more_to_write(w))
        SH_FAIL(&why, SH_E_TIMEOUT, "the peer did not read the last messages in time");
    else
        SH_FAIL(&why, SH_E_CANCELLED, "the connection was closed by this side");
    end_wire(w, &why);
}

/* Returns false if the wire is gone. Nobody but its owner has seen it so far. */
static bool shake(struct sh_wire *w)
{
    struct sh_err err = {0};
    bool done = false, dead;

    if (w->failed || sh_wire__tls_shake(w->tls, &done, &err)) {
        err = w->failed ? w->why : err;
        end_wire(w, &err);
        return false;
    }
    if (!done)
        return true;
    w->opening = false;
    sh_timer_set(w->timer, -1);
    w->busy = true;
    w->opened(w->owner);
    w->busy = false;
    dead = w->dead;
    if (dead)
        free_wire(w);
    return !dead;
}

static void on_io(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct sh_wire *w = arg;
    struct sh_err err = {0};

    (void)l;
    (void)fd;
    if (w->opening) {
        if (!shake(w))
            return;
        if (w->opening) {
            update_interest(w);
            return;
        }
        events |= SH_IO_READ | SH_IO_WRITE; /* data may have come with the end of the handshake */
    }
    if (events & (SH_IO_WRITE | SH_IO_HUP))
        flush(w);
    if (w->finishing) {
        half_close(w);
        if (!w->eof)
            discard_some(w);
        if (w->eof && !has_more_to_write(w) && !w->failed) {
            end_finished(w);
            return;
        }
    } else if (events & (SH_IO_READ | SH_IO_HUP)) {
        if (!read_some_frames(w, READS_PER_EVENT, events & SH_IO_HUP, &err))
            return;
        if (err.rc) { /* what went wrong first is the reason */
            err = w->failed ? w->why : err;
            end_wire(w, &err);
            return;
        }
    }
    update_interest(w);
}

static void on_timer(struct sh_loop *l, void *arg)
{
    struct sh_wire *w = arg;
    struct sh_err err = {0};

    (void)l;
    if (w->opening && !w->failed) {
        SH_FAIL(&w->why, SH_E_TIMEOUT, "the peer did not finish the handshake within %lld s",
                (long long)(SHAKE_NS / SH_S(1)));
        w->failed = true;
        sh_wire__tls_give_up(w->tls, "timeout", &w->why);
    }
    if (!w->failed) {
        end_finished(w);
        return;
    }
    if (!w->finishing && !w->opening && !read_some_frames(w, READS_AT_END, true, &err))
        return;
    err = w->why;
    end_wire(w, &err);
}

/* ---------------------------------------------------------------- start and finish */

static int set_options(int fd, bool *is_local, struct sh_err *err)
{
    static const int on = 1, idle_s = 10, interval_s = 5, count = 3;
    static const unsigned unacked_ms = 30000;
    struct sockaddr_storage sa = {0};
    socklen_t n = sizeof(sa);
    int flags = fcntl(fd, F_GETFL);

    if (getsockname(fd, (struct sockaddr *)&sa, &n) < 0 || flags < 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not prepare a connection");
    *is_local = sa.ss_family == AF_UNIX;
    if (*is_local)
        return SH_OK;
    /* Messages are small and answered: no waiting for more. A host that vanished is noticed. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
    return SH_OK;
}

int sh_wire_new(struct sh_loop *l, int fd, const struct sh_wire_handler *h, struct sh_wire **out,
                struct sh_err *err)
{
    struct sh_wire *w = NULL;
    int rc;

    *out = NULL;
    w = calloc(1, sizeof(*w));
    if (!w)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a connection");
    w->loop = l;
    w->fd = -1; /* still the caller's */
    sh_wire__adopt(w, h);
    w->tail = &w->head;
    sh_buf_init(&w->scratch, (size_t)SH_WIRE_MAX_FRAME + 4096);
    rc = set_options(fd, &w->is_local, err);
    if (!rc)
        rc = sh_timer_add(l, -1, 0, on_timer, w, &w->timer, err);
    if (!rc)
        rc = sh_io_add(l, fd, SH_IO_READ, on_io, w, &w->io, err);
    if (rc) {
        tear_down(w);
        free_wire(w);
        return rc;
    }
    w->fd = fd;
    *out = w;
    return SH_OK;
}

int sh_wire__secure(struct sh_wire *w, struct sh_wire_keys *keys, bool is_client,
                    void (*opened)(void *owner), struct sh_err *err)
{
    struct sh_err why = {0};
    bool done;
    int rc = sh_wire__tls_new(keys, w->fd, is_client, &w->tls, err);

    if (rc)
        return rc;
    w->opening = true;
    w->opened = opened;
    sh_timer_set(w->timer, SHAKE_NS);
    if (is_client && sh_wire__tls_shake(w->tls, &done, &why)) /* it speaks first */
        sh_wire__fail(w, &why);
    update_interest(w);
    return SH_OK;
}

void sh_wire__adopt(struct sh_wire *w, const struct sh_wire_handler *h)
{
    w->h = *h;
    if (w->h.max_queued_bytes == 0)
        w->h.max_queued_bytes = DEFAULT_MAX_QUEUED;
}

void sh_wire__give_up(struct sh_wire *w, const char *result, const struct sh_err *why)
{
    if (w->tls)
        sh_wire__tls_give_up(w->tls, result, why);
}

void sh_wire_finish(struct sh_wire *w)
{
    if (w->dead || w->finishing)
        return;
    w->finishing = true;
    if (w->failed)
        return;
    half_close(w);
    sh_timer_set(w->timer, FINISH_NS);
}

bool sh_wire_is_local(const struct sh_wire *w)
{
    return w->is_local;
}

void sh_wire__set_owner(struct sh_wire *w, void *owner, void (*gone)(void *owner))
{
    w->owner = owner;
    w->gone = gone;
}

void *sh_wire__owner(const struct sh_wire *w)
{
    return w->owner;
}
