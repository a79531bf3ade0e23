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
    struct sh_wire_ahead *ahead;
    int64_t end_ns;          /* of waiting for the rest of a frame */
    bool has_begun, is_late; /* late: it had to be waited for after it had begun */
};

static int wait_more(struct incoming *in, struct sh_err *err)
{
    int rc;

    if (in->has_begun && !in->is_late) {
        in->is_late = true;
        in->end_ns = sh_clock_ns() + FRAME_NS;
    }
    rc = wait_ready(in->fd, POLLIN, in->end_ns, err);
    if (rc == 0)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the peer stopped inside a message");
    return rc < 0 ? rc : SH_OK;
}

/* One call that brings up to n bytes. Waits only where nothing is there: who calls has mostly seen
 * that something is. */
static int receive_some(struct incoming *in, void *p, size_t n, size_t *got, struct sh_err *err)
{
    struct sh_wire_ahead *a = in->ahead;
    union sh_wire__control control;
    struct iovec iov = {.iov_base = p, .iov_len = n};
    ssize_t came;
    int rc;

    for (;;) {
        struct msghdr mh = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};

        came = recvmsg(in->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (came < 0 && errno == EINTR)
            continue;
        if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            rc = wait_more(in, err);
            if (rc)
                return rc;
            continue;
        }
        if (came < 0)
            return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "the connection to the peer is lost");
        rc = sh_wire__detach(&mh, a->fds, &a->n_fds, SH_ARRAY_LEN(a->fds), err);
        if (rc)
            return rc;
        if (came == 0)
            return SH_FAIL(err, SH_E_UNAVAILABLE, "the peer closed the connection");
        *got = (size_t)came;
        return SH_OK;
    }
}

static size_t take_ahead(struct sh_wire_ahead *a, void *p, size_t n)
{
    size_t part = SH_MIN(n, a->to - a->from);

    memcpy(p, a->bytes + a->from, part);
    a->from += part;
    return part;
}

static int read_exact(struct incoming *in, void *p, size_t n, struct sh_err *err)
{
    struct sh_wire_ahead *a = in->ahead;
    size_t done = take_ahead(a, p, n), got;
    int rc = SH_OK;

    in->has_begun |= done > 0;
    while (!rc && done < n) {
        char *to = (char *)p + done;

        if (n - done <= sizeof(a->bytes)) {
            rc = receive_some(in, a->bytes, sizeof(a->bytes), &a->to, err);
            a->from = rc ? a->to : 0;
            done += rc ? 0 : take_ahead(a, to, n - done);
        } else {
            rc = receive_some(in, to, n - done, &got, err);
            done += rc ? 0 : got;
        }
        in->has_begun |= done > 0;
    }
    return rc;
}

bool sh_wire_has_ahead(const struct sh_wire_ahead *a)
{
    return a->from < a->to;
}

/* Descriptors come with the first byte of their frame: with what was read ahead those of a later
 * one may be here. */
static bool has_its_fds(const struct sh_wire_ahead *a, const struct sh_wire__header *h)
{
    return a->n_fds == h->n_fds || (a->n_fds > h->n_fds && sh_wire_has_ahead(a));
}

static int read_frame(struct incoming *in, struct sh_buf *buf, struct sh_wire__header *h,
                      struct sh_msg *out, struct sh_err *err)
{
    unsigned char raw[SH_WIRE__HEADER];
    char *payload;
    int rc;

    rc = read_exact(in, raw, sizeof(raw), err);
    if (!rc)
        rc = sh_wire__header(raw, h, err);
    if (rc)
        return rc;
    sh_buf_reset(buf);
    rc = sh_buf_reserve(buf, h->len, &payload, err);
    if (!rc)
        rc = read_exact(in, payload, h->len, err);
    if (rc)
        return rc;
    buf->len = h->len;
    if (!has_its_fds(in->ahead, h))
        return SH_FAIL(err, SH_E_PROTO, "message %s announces %u descriptors but %zu came",
                       sh_msg_name((enum sh_msg_type)h->type), h->n_fds, in->ahead->n_fds);
    return sh_msg_decode(h->type, payload, h->len, out, err);
}

/* Hands over the frame's descriptors, the first of those that are there. */
int sh_wire_read_ahead(int fd, struct sh_wire_ahead *a, struct sh_buf *buf, struct sh_msg *out,
                       int *fds, size_t *n_fds, struct sh_err *err)
{
    struct incoming in = {.fd = fd, .ahead = a, .end_ns = NO_LIMIT};
    struct sh_wire__header h = {0};
    int rc;

    if (n_fds)
        *n_fds = 0;
    rc = read_frame(&in, buf, &h, out, err);
    if (!rc && h.n_fds > 0 && (!fds || !n_fds))
        rc = SH_FAIL(err, SH_E_PROTO, "message %s must not carry descriptors",
                     sh_msg_name(out->type));
    if (rc) {
        sh_wire__close_fds(a->fds, &a->n_fds);
        return rc;
    }
    if (fds && n_fds) {
        memcpy(fds, a->fds, h.n_fds * sizeof(int));
        *n_fds = h.n_fds;
    }
    a->n_fds -= h.n_fds;
    memmove(a->fds, a->fds + h.n_fds, a->n_fds * sizeof(int));
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
