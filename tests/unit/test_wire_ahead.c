/* test_wire_ahead.c - reading ahead. Without it a worker could lose a message, take one for two, or
 * give a model another one's descriptors.
 */
/* link: -Wl,--wrap=recvmsg */
#include "tests/unit/wire_test.h"

#include <sys/socket.h>
#include <sys/stat.h>

static int n_reads;

ssize_t __real_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags);

ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
    n_reads++;
    return __real_recvmsg(fd, m, flags);
}

static struct sh_wire_ahead ahead;

static bool is_input(int fd)
{
    struct stat x, y;

    return fstat(fd, &x) == 0 && fstat(0, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static void next_is(struct world *w, struct sh_buf *b, uint64_t cookie, bool has_fd)
{
    struct sh_err err = {0};
    int fds[SH_WIRE_MAX_FDS];
    struct sh_msg back;
    size_t n_fds;

    assert_ok_err(sh_wire_read_ahead(w->fd[1], &ahead, b, &back, fds, &n_fds, &err), &err);
    if (back.type == MSG_PING)
        assert_int_equal(back.u.ping.cookie, cookie);
    else
        assert_int_equal(back.u.data_chunk.rid, cookie);
    assert_int_equal(n_fds, has_fd);
    if (n_fds > 0) {
        assert_true(is_input(fds[0]));
        close(fds[0]);
    }
}

static void put_ping(struct world *w, uint64_t cookie, bool has_fd)
{
    struct sh_msg m = ping(cookie);

    assert_ok(sh_wire_write_blocking(w->fd[0], &m, (int[]){0}, has_fd, NULL));
}

static void reading_ahead_takes_frames_and_descriptors_in_order(void **state)
{
    static unsigned char large[3 * SH_WIRE_AHEAD];
    struct world *w = *state;
    struct sh_msg m = chunk(3, large, sizeof(large)), half = chunk(4, large, SH_WIRE_AHEAD / 2);
    struct sh_buf b;

    ahead = (struct sh_wire_ahead){0};
    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    n_reads = 0;
    for (uint64_t i = 1; i <= 6; i++)
        put_ping(w, i, i == 3 || i == 4);
    next_is(w, &b, 1, false);
    assert_true(sh_wire_has_ahead(&ahead));
    next_is(w, &b, 2, false);
    next_is(w, &b, 3, true);
    next_is(w, &b, 4, true);
    next_is(w, &b, 5, false);
    assert_true(sh_wire_has_ahead(&ahead));
    assert_false(sh_wire_has_input(w->fd[1]));
    next_is(w, &b, 6, false);
    assert_false(sh_wire_has_ahead(&ahead));
    assert_true(n_reads < 6);
    put_ping(w, 1, true);
    assert_ok(sh_wire_write_blocking(w->fd[0], &m, NULL, 0, NULL));
    for (int i = 0; i < 3; i++) /* one of them lies across the end of what is read at once */
        assert_ok(sh_wire_write_blocking(w->fd[0], &half, NULL, 0, NULL));
    put_ping(w, 2, true);
    next_is(w, &b, 1, true);
    next_is(w, &b, 3, false);
    for (int i = 0; i < 3; i++)
        next_is(w, &b, 4, false);
    next_is(w, &b, 2, true);
    assert_int_equal(ahead.n_fds, 0);
    sh_buf_fini(&b);
}

/* n bytes, and standard input. */
static void send_with_fd(int to, void *bytes, size_t n)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec iov = {bytes, n};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control.bytes,
                        .msg_controllen = sizeof(control.bytes)};

    memset(CMSG_DATA(&control.head), 0, sizeof(int));
    assert_int_equal(sendmsg(to, &mh, 0), (ssize_t)n);
}

static void reading_ahead_refuses_descriptors_that_nobody_announced(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    unsigned char frame[64];
    struct sh_msg back;
    struct sh_buf b;
    ssize_t n;

    ahead = (struct sh_wire_ahead){0};
    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    put_ping(w, 1, false);
    n = read(w->fd[1], frame, sizeof(frame));
    assert_true(n > 0);
    send_with_fd(w->fd[0], frame, (size_t)n);
    assert_fails(sh_wire_read_ahead(w->fd[1], &ahead, &b, &back, NULL, NULL, &err), SH_E_PROTO,
                 &err, "announces 0 descriptors but 1 came");
    assert_int_equal(ahead.n_fds, 0);
    sh_buf_fini(&b);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reading_ahead_takes_frames_and_descriptors_in_order),
        TEST(reading_ahead_refuses_descriptors_that_nobody_announced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
