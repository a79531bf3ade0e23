/* wire_blocking.c - one frame at a time, for programs without a loop. Works on blocking and
 * non-blocking descriptors: every wait is a poll() with a limit. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/relax.h"
#include "common/units.h"
#include "common/wire_int.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#define FRAME_NS SH_S(10) /* for the rest of a frame that has begun */
#define WRITE_NS SH_S(30) /* for a peer that does not read */
#define NO_LIMIT INT64_MAX

/* Returns 1 when ready, 0 when the time is over, a SH_E_* code on failure. */
static int wait_ready(int fd, short events, int64_t end_ns, struct sh_err *err)
{
    struct pollfd p = {.fd = fd, .events = events};
    int64_t left_ns;
    int n, ms;

    for (;;) {
        left_ns = end_ns == NO_LIMIT ? NO_LIMIT : sh_clock_until(end_ns);
        ms = (int)SH_MIN(sh_ms_up(left_ns), INT64_C(1000000));
        n = poll(&p, 1, ms);
        if (n > 0)
            return 1;
        if (n < 0 && errno != EINTR)
            return SH_FAIL_ERRNO(err, SH_E_IO, "could not wait for the peer");
        if (end_ns != NO_LIMIT && sh_clock_ns() >= end_ns)
            return 0;
    }
}

bool sh_wire_has_input_within(int fd, int ms)
{
    return wait_ready(fd, POLLIN, sh_clock_ns() + SH_MS(ms), NULL) != 0;
}

bool sh_wire_has_input(int fd)
{
    return sh_wire_has_input_within(fd, 0);
}

void sh_wire_busy_poll(int fd, int64_t ns)
{
    int64_t end_ns = ns > 0 ? sh_clock_ns() + ns : 0;

    while (ns > 0 && !sh_wire_has_input(fd) && sh_clock_ns() < end_ns)
        sh_relax();
}

struct incoming {
    int fd;
    int64_t end_ns; /* of waiting: for a frame to begin, then for the rest of it */
    bool has_begun;
    int fds[SH_WIRE_MAX_FDS];
    size_t n_fds;
};

static int wait_more(const struct incoming *in, struct sh_err *err)
{
    int rc = wait_ready(in->fd, POLLIN, in->end_ns, err);

    if (rc == 0 && in->has_begun)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the peer stopped inside a message");
    if (rc == 0)
        return SH_FAIL(err, SH_E_TIMEOUT, "no message from the peer in time");
    return rc < 0 ? rc : SH_OK;
}

/* Reads exactly n bytes: never one of the next frame, which another process may read. Waits only
 * where nothing is there: who calls has mostly seen that something is. */
static int read_exact(struct incoming *in, void *p, size_t n, struct sh_err *err)
{
    size_t done = 0;
    int rc;

    while (done < n) {
        union sh_wire__control control;
        struct iovec iov = {.iov_base = (char *)p + done, .iov_len = n - done};
        struct msghdr mh = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
        ssize_t got = recvmsg(in->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            rc = wait_more(in, err);
            if (rc)
                return rc;
            continue;
        }
        if (got < 0)
            return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "the connection to the peer is lost");
        rc = sh_wire__detach(&mh, in->fds, &in->n_fds, SH_WIRE_MAX_FDS, err);
        if (rc)
            return rc;
        if (got == 0)
            return SH_FAIL(err, SH_E_UNAVAILABLE, "the peer closed the connection");
        done += (size_t)got;
        if (!in->has_begun)
            in->end_ns = sh_clock_ns() + FRAME_NS;
        in->has_begun = true;
    }
    return SH_OK;
}

static int read_frame(struct incoming *in, struct sh_buf *buf, struct sh_msg *out,
                      struct sh_err *err)
{
    unsigned char raw[SH_WIRE__HEADER];
    struct sh_wire__header h;
    char *payload;
    int rc;

    rc = read_exact(in, raw, sizeof(raw), err);
    if (!rc)
        rc = sh_wire__header(raw, &h, err);
    if (rc)
        return rc;
    sh_buf_reset(buf);
    rc = sh_buf_reserve(buf, h.len, &payload, err);
    if (!rc)
        rc = read_exact(in, payload, h.len, err);
    if (rc)
        return rc;
    buf->len = h.len;
    if (in->n_fds != h.n_fds)
        return SH_FAIL(err, SH_E_PROTO, "message %s announces %u descriptors but %zu came",
                       sh_msg_name((enum sh_msg_type)h.type), h.n_fds, in->n_fds);
    return sh_msg_decode(h.type, payload, h.len, out, err);
}

int sh_wire_read_blocking(int fd, int64_t timeout_ms, struct sh_buf *buf, struct sh_msg *out,
                          int *fds, size_t *n_fds, struct sh_err *err)
{
    struct incoming in = {.fd = fd,
                          .end_ns = timeout_ms < 0 ? NO_LIMIT : sh_clock_ns() + SH_MS(timeout_ms)};
    int rc;

    if (n_fds)
        *n_fds = 0;
    rc = read_frame(&in, buf, out, err);
    if (!rc && in.n_fds > 0 && (!fds || !n_fds))
        rc = SH_FAIL(err, SH_E_PROTO, "message %s must not carry descriptors",
                     sh_msg_name(out->type));
    if (rc) {
        sh_wire__close_fds(in.fds, &in.n_fds);
        return rc;
    }
    if (fds && n_fds) {
        memcpy(fds, in.fds, in.n_fds * sizeof(int));
        *n_fds = in.n_fds;
    }
    return SH_OK;
}

static int write_frame(int fd, const struct sh_buf *b, const int *fds, size_t n_fds,
                       struct sh_err *err)
{
    int64_t end_ns = sh_clock_ns() + WRITE_NS;
    size_t done = 0;
    int rc;

    while (done < b->len) {
        union sh_wire__control control;
        struct iovec iov = {.iov_base = b->data + done, .iov_len = b->len - done};
        struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n;

        sh_wire__attach(&mh, &control, fds, done == 0 ? n_fds : 0);
        n = sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            done += (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "the connection to the peer is lost");
        rc = wait_ready(fd, POLLOUT, end_ns, err);
        if (rc == 0)
            return SH_FAIL(err, SH_E_UNAVAILABLE, "the peer does not read");
        if (rc < 0)
            return rc;
    }
    return SH_OK;
}

int sh_wire_write_blocking(int fd, const struct sh_msg *m, const int *fds, size_t n_fds,
                           struct sh_err *err)
{
    struct sh_buf b;
    int rc;

    if (n_fds > SH_WIRE_MAX_FDS || (n_fds > 0 && !fds))
        return SH_FAIL(err, SH_E_BUG, "cannot send %zu descriptors, at most %d", n_fds,
                       SH_WIRE_MAX_FDS);
    sh_buf_init(&b, (size_t)SH_WIRE_MAX_FRAME + 4096);
    rc = sh_wire__encode(&b, m, n_fds, err);
    if (!rc)
        rc = write_frame(fd, &b, fds, n_fds, err);
    sh_buf_fini(&b);
    return rc;
}
