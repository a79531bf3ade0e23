/* test_wire.c - without it, a frame could be cut, swapped or given another frame's descriptors when
 * the kernel takes or brings only part of it; a stranger or a peer that does not read could hold
 * memory or descriptors. */
/* link: -Wl,--wrap=recvmsg,--wrap=poll */
#include "tests/unit/wire_test.h"

#include <pthread.h>

static int n_reads, n_polls;       /* calls of recvmsg() and poll() */
static bool is_late;               /* whoever polls has waited for all the time that he said */
static struct sh_wire_ahead ahead; /* of blocking reads; empty at the end of each test */

ssize_t __real_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags);

ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
    n_reads++;
    return __real_recvmsg(fd, m, flags);
}

int __real_poll(struct pollfd *p, nfds_t n, int ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int ms);

int __wrap_poll(struct pollfd *p, nfds_t n, int ms)
{
    n_polls++;
    if (is_late && ms >= 0)
        sh_clock_advance(ms * MS);
    return __real_poll(p, n, is_late ? 0 : ms);
}

/* ---------------------------------------------------------------- frames */

static void messages_arrive_in_order_both_ways(void **state)
{
    struct world *w = *state;

    open_both(w);
    w->b.on_msg = DO_ECHO;
    for (uint64_t i = 1; i <= 500; i++) {
        struct sh_msg m = ping(i);

        assert_ok(sh_wire_send(w->a.w, &m, NULL));
    }
    UNTIL(w, w->a.n_msgs == 500);
    assert_int_equal(w->b.n_msgs, 500);
    assert_false(w->a.out_of_order || w->b.out_of_order);
}

/* A request is some ten messages, each of which somebody waits for. */
static void a_message_that_comes_alone_costs_one_read(void **state)
{
    struct world *w = *state;

    open_end(w, &w->b, &w->fd[1], 0);
    n_reads = 0;
    for (uint64_t i = 1; i <= 10; i++) {
        struct sh_msg m = ping(i);

        assert_ok(sh_wire_write_blocking(w->fd[0], &m, NULL, 0, NULL));
        UNTIL(w, w->b.n_msgs == (int)i);
    }
    assert_int_equal(n_reads, 10);
    assert_false(w->b.out_of_order);
}

/* Chunks larger than the socket's buffer: each leaves and arrives in many pieces. */
static void large_messages_survive_partial_writes_and_reads(void **state)
{
    static unsigned char buf[3000000];
    struct world *w = *state;

    small_buffers(w->fd[0]);
    open_both(w);
    for (uint64_t i = 1; i <= 6; i++) {
        struct sh_msg m = chunk(i, buf, i % 2 ? sizeof(buf) : i);

        assert_ok(sh_wire_send(w->a.w, &m, NULL));
    }
    UNTIL(w, w->b.n_msgs == 6);
    assert_false(w->b.out_of_order);
    assert_int_equal(w->b.bytes, 3 * sizeof(buf) + 2 + 4 + 6);
}

static void a_frame_may_arrive_byte_by_byte(void **state)
{
    struct world *w = *state;
    unsigned char frame[24] = {16,  0,   0,   0, SH_WIRE_VERSION, 0, MSG_HINT, 0, 5, 0, 0, 0, 'j',
                               'o', 'b', 's', 0};

    open_end(w, &w->b, &w->fd[1], 0);
    for (size_t i = 0; i < sizeof(frame); i++) {
        assert_int_equal(w->b.n_msgs, 0);
        assert_int_equal(write(w->fd[0], frame + i, 1), 1);
        assert_ok(sh_loop_once(w->loop, TURN_NS, NULL));
    }
    assert_int_equal(w->b.n_msgs, 1);
    assert_int_equal(w->b.n_closed, 0);
}

static void refuse_frame(struct world *w, const unsigned char *frame, size_t n, const char *text)
{
    open_end(w, &w->b, &w->fd[1], 0);
    assert_int_equal(write(w->fd[0], frame, n), (ssize_t)n);
    UNTIL(w, w->b.n_closed == 1);
    assert_int_equal(w->b.n_msgs, 0);
    assert_int_equal(w->b.why.rc, SH_E_PROTO);
    assert_has(w->b.why.msg, text);
}

static void an_oversized_frame_is_refused_at_its_header(void **state)
{
    refuse_frame(*state, (const unsigned char[]){1, 0, 0x80, 0, SH_WIRE_VERSION, 0, MSG_PING, 0}, 8,
                 "8388609");
}

static void an_unknown_type_is_refused_at_its_header(void **state)
{
    refuse_frame(*state, (const unsigned char[]){8, 0, 0, 0, SH_WIRE_VERSION, 0, 0xFF, 0x7F}, 8,
                 "unknown type 32767");
}

static void another_version_is_refused(void **state)
{
    refuse_frame(*state, (const unsigned char[]){8, 0, 0, 0, 'G', 'E', 'T', ' '}, 8, "version 71");
}

static void a_frame_that_does_not_decode_is_refused(void **state)
{
    refuse_frame(*state,
                 (const unsigned char[]){4, 0, 0, 0, SH_WIRE_VERSION, 0, MSG_PING, 0, 1, 2, 3, 4},
                 12, "PING ends inside field cookie");
}

static void announced_descriptors_must_come(void **state)
{
    refuse_frame(*state,
                 (const unsigned char[]){8, 0, 0, 0, SH_WIRE_VERSION, 1, MSG_PING, 0, 1, 0, 0, 0, 0,
                                         0, 0, 0},
                 16, "without its descriptors");
}

static void send_raw(int fd, unsigned char *p, size_t n, size_t n_fds)
{
    union {
        struct cmsghdr h;
        char b[CMSG_SPACE(SH_WIRE_MAX_FDS * sizeof(int))];
    } c = {.h = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec iov = {p, n};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = &c,
                        .msg_controllen = CMSG_SPACE(n_fds * sizeof(int))};
    int fds[SH_WIRE_MAX_FDS] = {0};

    c.h.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
    memcpy(CMSG_DATA(&c.h), fds, n_fds * sizeof(int));
    assert_int_equal(sendmsg(fd, &mh, 0), (ssize_t)n);
}

static void descriptors_that_were_not_announced_are_refused_and_closed(void **state)
{
    struct world *w = *state;
    unsigned char frame[16] = {8, 0, 0, 0, SH_WIRE_VERSION, 0, MSG_PING, 0, 1};

    open_end(w, &w->b, &w->fd[1], 0);
    send_raw(w->fd[0], frame, sizeof(frame), 3);
    UNTIL(w, w->b.n_closed == 1);
    assert_int_equal(w->b.why.rc, SH_E_PROTO);
    assert_has(w->b.why.msg, "more descriptors"); /* tear_down counts what is open */
}

static void a_blocking_read_closes_descriptors_beyond_the_most_allowed(void **state)
{
    struct world *w = *state;
    unsigned char frame[16] = {8, 0, 0, 0, SH_WIRE_VERSION, 8, MSG_PING, 0, 1};
    int fds[SH_WIRE_MAX_FDS];
    struct sh_err err = {0};
    struct sh_msg m;
    struct sh_buf b;
    size_t n = 99;

    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    send_raw(w->fd[0], frame, 4, 6);
    send_raw(w->fd[0], frame + 4, 4, 6);
    send_raw(w->fd[0], frame + 8, 8, 6); /* more than two frames may have */
    assert_fails(sh_wire_read_ahead(w->fd[1], &ahead, &b, &m, fds, &n, &err), SH_E_PROTO, &err,
                 "more descriptors");
    assert_int_equal(n, 0);
    sh_buf_fini(&b);
}

/* ---------------------------------------------------------------- corked */

static void what_is_corked_leaves_together(void **state)
{
    struct world *w = *state;
    unsigned char buf[256];

    open_end(w, &w->a, &w->fd[0], 0);
    sh_wire_cork(w->a.w);
    for (uint64_t i = 1; i <= 3; i++) {
        struct sh_msg m = ping(i);

        assert_ok(sh_wire_send(w->a.w, &m, NULL));
    }
    assert_int_equal(recv(w->fd[1], buf, sizeof(buf), MSG_DONTWAIT), -1);
    sh_wire_uncork(w->a.w);
    assert_int_equal(recv(w->fd[1], buf, sizeof(buf), MSG_DONTWAIT), 3 * 16);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(buf[16 * i + 8], i + 1);
    sh_wire_uncork(w->a.w); /* nothing to send: nothing happens */
    assert_ok(sh_wire_send(w->a.w, &(struct sh_msg){.type = MSG_PING}, NULL));
    assert_int_equal(recv(w->fd[1], buf, sizeof(buf), MSG_DONTWAIT), 16); /* at once again */
}

/* Mixed with what waits from before, with descriptors, and with more than the socket takes. */
static void a_cork_changes_no_order_and_no_descriptor(void **state)
{
    static unsigned char buf[400000];
    struct world *w = *state;
    struct sh_msg before = chunk(1, buf, sizeof(buf)), large, m;

    small_buffers(w->fd[0]);
    open_both(w);
    assert_ok(sh_wire_send(w->a.w, &before, NULL)); /* part of it is queued */
    sh_wire_cork(w->a.w);
    for (uint64_t i = 2; i <= 200; i++) {
        m = ping(i);
        assert_ok(sh_wire_send_fds(w->a.w, &m, (int[]){0, 1}, i % 50 == 0 ? 2 : 0, NULL));
    }
    large = chunk(201, buf, sizeof(buf));
    assert_ok(sh_wire_send(w->a.w, &large, NULL));
    sh_wire_uncork(w->a.w);
    m = ping(202);
    assert_ok(sh_wire_send(w->a.w, &m, NULL));
    UNTIL(w, w->b.n_msgs == 202);
    assert_false(w->b.out_of_order);
    assert_int_equal(w->b.n_fds, 8);
}

static void a_corked_wire_that_is_finished_says_all_and_ends_at_once(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);

    open_both(w);
    sh_clock_fake(MS, 0); /* what ends by the time-out does not end */
    sh_wire_cork(w->a.w);
    assert_ok(sh_wire_send(w->a.w, &m, NULL));
    sh_wire_finish(w->a.w);
    sh_wire_uncork(w->a.w);
    for (int i = 0; i < 20; i++)
        assert_ok(sh_loop_once(w->loop, 0, NULL));
    sh_clock_real();
    assert_int_equal(w->b.n_msgs, 1);
    assert_int_equal(w->b.n_closed, 1);
    assert_int_equal(w->a.n_closed, 1);
    assert_int_equal(w->a.why.rc, SH_E_CANCELLED);
}

static void a_corked_wire_has_the_same_ends(void **state)
{
    static unsigned char buf[60000];
    struct world *w = *state;
    struct sh_err err = {0};
    struct sh_msg m = chunk(1, buf, sizeof(buf));

    open_end(w, &w->a, &w->fd[0], 100000);
    sh_wire_cork(w->a.w);
    assert_ok(sh_wire_send(w->a.w, &m, NULL));
    assert_fails(sh_wire_send(w->a.w, &m, &err), SH_E_UNAVAILABLE, &err, "does not read");
    sh_wire_uncork(w->a.w); /* lost already */
    assert_int_equal(w->a.n_closed, 0);
    UNTIL(w, w->a.n_closed == 1);

    open_end(w, &w->b, &w->fd[1], 0); /* its peer is gone */
    sh_wire_cork(w->b.w);
    m = ping(1);
    assert_ok(sh_wire_send_fds(w->b.w, &m, (int[]){0}, 1, NULL));
    sh_wire_uncork(w->b.w);
    assert_int_equal(w->b.n_closed, 0); /* never from in here */
    UNTIL(w, w->b.n_closed == 1);
}

/* ---------------------------------------------------------------- descriptors */

static bool same_file(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static void descriptors_travel_with_their_message(void **state)
{
    static unsigned char buf[300000];
    struct world *w = *state;
    int file[6];
    int sent = 0;

    small_buffers(w->fd[0]);
    open_both(w);
    for (int i = 0; i < 6; i++) {
        char path[128];

        snprintf(path, sizeof(path), "%s/f%d", w->dir, i);
        file[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_true(file[i] >= 0);
    }
    /* Mixed with large frames without descriptors, so that some are queued and some are not. */
    for (uint64_t i = 1; i <= 12; i++) {
        struct sh_msg m = i % 3 == 0 ? chunk(i, buf, sizeof(buf)) : ping(i);
        int *fds = &file[sent % 6];
        size_t n = i % 2 ? 0 : 1;

        assert_ok(sh_wire_send_fds(w->a.w, &m, fds, n, NULL));
        sent += (int)n;
    }
    UNTIL(w, w->b.n_msgs == 12);
    assert_false(w->b.out_of_order);
    assert_int_equal(w->b.n_fds, sent);
    for (int i = 0; i < sent; i++)
        assert_true(same_file(w->b.fds[i], file[i % 6]));
    assert_int_equal(fcntl(w->b.fds[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    for (int i = 0; i < 6; i++)
        close(file[i]);
}

static void queued_descriptors_may_be_closed_by_the_sender(void **state)
{
    static unsigned char buf[500000];
    struct world *w = *state;
    struct sh_msg big = chunk(1, buf, sizeof(buf)), small = ping(2);
    int p[2];

    small_buffers(w->fd[0]);
    open_both(w);
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_ok(sh_wire_send(w->a.w, &big, NULL));
    assert_ok(sh_wire_send_fds(w->a.w, &small, p, 2, NULL));
    close(p[0]);
    close(p[1]);
    UNTIL(w, w->b.n_msgs == 2);
    assert_int_equal(w->b.n_fds, 2);
    assert_int_equal(write(w->b.fds[1], "x", 1), 1);
}

static void descriptors_that_nobody_takes_are_closed(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);
    int before;

    open_both(w);
    before = sh_test_open_fds();
    w->b.leaves_fds = true;
    assert_ok(sh_wire_send_fds(w->a.w, &m, (int[]){0, 1}, 2, NULL));
    UNTIL(w, w->b.n_msgs == 1);
    assert_int_equal(sh_test_open_fds(), before);
}

static void closing_with_queued_descriptors_leaks_none(void **state)
{
    static unsigned char buf[500000];
    struct world *w = *state;
    struct sh_msg big = chunk(1, buf, sizeof(buf)), small = ping(2);

    small_buffers(w->fd[0]);
    open_both(w);
    assert_ok(sh_wire_send(w->a.w, &big, NULL));
    assert_ok(sh_wire_send_fds(w->a.w, &small, (int[]){0, 1, 2}, 3, NULL));
    sh_wire_close(w->a.w);
    w->a.w = NULL;
    UNTIL(w, w->b.n_closed == 1);
    assert_has(w->b.why.msg, "inside a message");
}

static void too_many_descriptors_are_refused(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct sh_msg m = ping(1);
    int fds[SH_WIRE_MAX_FDS + 1] = {0};

    open_both(w);
    assert_true(sh_wire_is_local(w->a.w));
    assert_fails(sh_wire_send_fds(w->a.w, &m, fds, SH_WIRE_MAX_FDS + 1, &err), SH_E_BUG, &err, "9");
    assert_ok(sh_wire_send_fds(w->a.w, &m, fds, SH_WIRE_MAX_FDS, NULL));
    UNTIL(w, w->b.n_fds == SH_WIRE_MAX_FDS);
}

/* ---------------------------------------------------------------- ends */

static void the_end_of_the_peer_is_reported_after_its_last_message(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);

    open_both(w);
    assert_ok(sh_wire_send(w->a.w, &m, NULL));
    sh_wire_close(w->a.w);
    w->a.w = NULL;
    UNTIL(w, w->b.n_closed == 1);
    assert_int_equal(w->b.n_msgs, 1);
    assert_int_equal(w->b.why.rc, SH_E_UNAVAILABLE);
    assert_has(w->b.why.msg, "closed the connection");
    assert_int_equal(w->a.n_closed, 0);
}

static void writing_to_a_peer_that_is_gone_still_delivers_its_last_message(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);
    int rc = SH_OK;

    open_end(w, &w->b, &w->fd[1], 0);
    assert_ok(sh_wire_write_blocking(w->fd[0], &m, NULL, 0, NULL));
    close(w->fd[0]);
    w->fd[0] = -1;
    rc = sh_wire_send(w->b.w, &m, NULL); /* EPIPE; on_close must not come from in here */
    assert_int_equal(rc, SH_E_UNAVAILABLE);
    assert_int_equal(w->b.n_closed, 0);
    assert_int_equal(sh_wire_send(w->b.w, &m, NULL), SH_E_UNAVAILABLE);
    UNTIL(w, w->b.n_closed == 1);
    assert_int_equal(w->b.n_msgs, 1);
}

/* The peer speaks and goes after the loop looked, and the failure is found in the same turn. */
static void speak_and_go(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct world *w = arg;
    struct sh_msg m = ping(1);
    char c;

    (void)l;
    (void)events;
    assert_int_equal(read(fd, &c, 1), 1);
    assert_ok(sh_wire_write_blocking(w->fd[0], &m, NULL, 0, NULL));
    close(w->fd[0]);
    w->fd[0] = -1;
    assert_int_equal(sh_wire_send(w->b.w, &m, NULL), SH_E_UNAVAILABLE);
}

static void a_failure_reads_what_came_since_the_loop_looked(void **state)
{
    struct world *w = *state;
    struct sh_io *io;
    int p[2];

    open_end(w, &w->b, &w->fd[1], 0);
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_ok(sh_io_add(w->loop, p[0], SH_IO_READ, speak_and_go, w, &io, NULL));
    assert_int_equal(write(p[1], "x", 1), 1);
    assert_ok(sh_loop_once(w->loop, TURN_NS, NULL));
    assert_int_equal(w->b.n_closed, 1);
    assert_int_equal(w->b.n_msgs, 1);
    sh_io_del(io);
    close(p[0]);
    close(p[1]);
}

static void a_peer_that_does_not_read_is_closed_at_the_limit(void **state)
{
    static unsigned char buf[10000];
    struct world *w = *state;
    struct sh_err err = {0};
    int n = 0, rc = SH_OK;

    small_buffers(w->fd[0]);
    open_end(w, &w->a, &w->fd[0], 100000);
    while (rc == SH_OK && n < 1000) {
        struct sh_msg m = chunk(1, buf, sizeof(buf));

        rc = sh_wire_send(w->a.w, &m, &err);
        n++;
    }
    assert_fails(rc, SH_E_UNAVAILABLE, &err, "does not read");
    assert_in_range(n, 10, 100);
    UNTIL(w, w->a.n_closed == 1);
    assert_has(w->a.why.msg, "does not read");
}

static void a_callback_may_close_its_wire(void **state)
{
    struct world *w = *state;

    open_both(w);
    w->b.on_msg = DO_CLOSE;
    for (uint64_t i = 1; i <= 3; i++) {
        struct sh_msg m = ping(i);

        assert_ok(sh_wire_send(w->a.w, &m, NULL));
    }
    UNTIL(w, w->a.n_closed == 1);
    assert_int_equal(w->b.n_msgs, 1);
    assert_int_equal(w->b.n_closed, 0);
}

static void finish_writes_what_is_queued_first(void **state)
{
    static unsigned char buf[2000000];
    struct world *w = *state;
    struct sh_msg big = chunk(1, buf, sizeof(buf)), last = ping(2);

    small_buffers(w->fd[0]);
    open_both(w);
    assert_ok(sh_wire_send(w->a.w, &big, NULL));
    assert_ok(sh_wire_send(w->a.w, &last, NULL));
    sh_wire_finish(w->a.w);
    assert_int_equal(sh_wire_send(w->a.w, &last, NULL), SH_E_UNAVAILABLE);
    UNTIL(w, w->b.n_closed == 1 && w->a.n_closed == 1);
    assert_int_equal(w->b.n_msgs, 2);
    assert_int_equal(w->a.why.rc, SH_E_CANCELLED);
}

static void finish_gives_up_on_a_peer_that_does_not_read(void **state)
{
    static unsigned char buf[2000000];
    struct world *w = *state;
    struct sh_msg big = chunk(1, buf, sizeof(buf));

    small_buffers(w->fd[0]);
    sh_clock_fake(MS, 0);
    open_end(w, &w->a, &w->fd[0], 0);
    assert_ok(sh_wire_send(w->a.w, &big, NULL));
    sh_wire_finish(w->a.w);
    sh_clock_advance(999 * MS);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_int_equal(w->a.n_closed, 0);
    sh_clock_advance(2 * MS);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_int_equal(w->a.n_closed, 1);
    assert_int_equal(w->a.why.rc, SH_E_TIMEOUT);
    sh_clock_real();
}

static void a_callback_may_finish_its_wire(void **state)
{
    struct world *w = *state;

    open_both(w);
    w->b.on_msg = DO_FINISH;
    for (uint64_t i = 1; i <= 3; i++) {
        struct sh_msg m = ping(i);

        assert_ok(sh_wire_send(w->a.w, &m, NULL));
    }
    UNTIL(w, w->a.n_closed == 1 && w->b.n_closed == 1);
    assert_int_equal(w->b.n_msgs, 1);
}

/* ---------------------------------------------------------------- blocking */

static void blocking_calls_exchange_messages_and_descriptors(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(7), back;
    int fds[SH_WIRE_MAX_FDS];
    size_t n_fds = 0;
    struct sh_buf b;

    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    assert_ok(sh_wire_write_blocking(w->fd[0], &m, (int[]){0}, 1, NULL));
    m = ping(8);
    assert_ok(sh_wire_write_blocking(w->fd[0], &m, NULL, 0, NULL));
    assert_ok(sh_wire_read_ahead(w->fd[1], &ahead, &b, &back, fds, &n_fds, NULL));
    assert_int_equal(back.u.ping.cookie, 7);
    assert_int_equal(n_fds, 1);
    assert_true(same_file(fds[0], 0));
    close(fds[0]);
    assert_ok(sh_wire_read_ahead(w->fd[1], &ahead, &b, &back, fds, &n_fds, NULL));
    assert_int_equal(back.u.ping.cookie, 8);
    assert_int_equal(n_fds, 0);
    sh_buf_fini(&b);
}

static void *write_large(void *arg)
{
    static unsigned char buf[5000000];
    struct sh_msg m = chunk(3, buf, sizeof(buf));

    return (void *)(intptr_t)sh_wire_write_blocking(*(int *)arg, &m, NULL, 0, NULL);
}

static void a_blocking_read_takes_exactly_one_large_frame(void **state)
{
    struct world *w = *state;
    struct sh_msg back;
    struct sh_buf b;
    pthread_t id;
    void *rc = NULL;

    small_buffers(w->fd[0]);
    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    assert_int_equal(pthread_create(&id, NULL, write_large, &w->fd[0]), 0);
    assert_ok(sh_wire_read_ahead(w->fd[1], &ahead, &b, &back, NULL, NULL, NULL));
    pthread_join(id, &rc);
    assert_null(rc);
    assert_int_equal(back.u.data_chunk.bytes.len, 5000000);
    assert_int_equal(((const unsigned char *)back.u.data_chunk.bytes.data)[4999999],
                     (unsigned char)(3 + 4999999));
    sh_buf_fini(&b);
}

/* A worker has waited already: it asks only where there is nothing. */
static void a_blocking_read_of_what_is_there_does_not_wait(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1), back;
    struct sh_buf b;

    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    assert_ok(sh_wire_write_blocking(w->fd[0], &m, NULL, 0, NULL));
    n_polls = 0;
    assert_ok(sh_wire_read_ahead(w->fd[1], &ahead, &b, &back, NULL, NULL, NULL));
    assert_int_equal(n_polls, 0);
    sh_buf_fini(&b);
}

/* For its beginning it does. */
static void a_blocking_read_does_not_wait_for_ever_for_the_rest(void **state)
{
    static const unsigned char part[4] = {0};
    struct world *w = *state;
    struct sh_err err = {0};
    struct sh_msg back;
    struct sh_buf b;
    int rc;

    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    sh_clock_fake(1000 * MS, 0);
    assert_int_equal(write(w->fd[0], part, sizeof(part)), (ssize_t)sizeof(part));
    is_late = true;
    n_polls = 0;
    rc = sh_wire_read_ahead(w->fd[1], &ahead, &b, &back, NULL, NULL, &err);
    is_late = false;
    assert_true(n_polls > 0);
    ahead = (struct sh_wire_ahead){0}; /* what has come of it */
    sh_clock_real();
    assert_fails(rc, SH_E_UNAVAILABLE, &err, "stopped inside");
    sh_buf_fini(&b);
}

static void a_blocking_read_reports_the_end_and_unwanted_descriptors(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct sh_msg m = ping(1), back;
    struct sh_buf b;

    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    assert_ok(sh_wire_write_blocking(w->fd[0], &m, (int[]){0, 1}, 2, NULL));
    assert_fails(sh_wire_read_ahead(w->fd[1], &ahead, &b, &back, NULL, NULL, &err), SH_E_PROTO,
                 &err, "must not carry");
    err = (struct sh_err){0};
    close(w->fd[0]);
    w->fd[0] = -1;
    assert_fails(sh_wire_read_ahead(w->fd[1], &ahead, &b, &back, NULL, NULL, &err),
                 SH_E_UNAVAILABLE, &err, "closed");
    sh_buf_fini(&b);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_arrive_in_order_both_ways),
        TEST(a_message_that_comes_alone_costs_one_read),
        TEST(large_messages_survive_partial_writes_and_reads),
        TEST(a_frame_may_arrive_byte_by_byte),
        TEST(an_oversized_frame_is_refused_at_its_header),
        TEST(an_unknown_type_is_refused_at_its_header),
        TEST(another_version_is_refused),
        TEST(a_frame_that_does_not_decode_is_refused),
        TEST(announced_descriptors_must_come),
        TEST(descriptors_that_were_not_announced_are_refused_and_closed),
        TEST(a_blocking_read_closes_descriptors_beyond_the_most_allowed),
        TEST(what_is_corked_leaves_together),
        TEST(a_cork_changes_no_order_and_no_descriptor),
        TEST(a_corked_wire_that_is_finished_says_all_and_ends_at_once),
        TEST(a_corked_wire_has_the_same_ends),
        TEST(descriptors_travel_with_their_message),
        TEST(queued_descriptors_may_be_closed_by_the_sender),
        TEST(descriptors_that_nobody_takes_are_closed),
        TEST(closing_with_queued_descriptors_leaks_none),
        TEST(too_many_descriptors_are_refused),
        TEST(the_end_of_the_peer_is_reported_after_its_last_message),
        TEST(writing_to_a_peer_that_is_gone_still_delivers_its_last_message),
        TEST(a_failure_reads_what_came_since_the_loop_looked),
        TEST(a_peer_that_does_not_read_is_closed_at_the_limit),
        TEST(a_callback_may_close_its_wire),
        TEST(finish_writes_what_is_queued_first),
        TEST(finish_gives_up_on_a_peer_that_does_not_read),
        TEST(a_callback_may_finish_its_wire),
        TEST(blocking_calls_exchange_messages_and_descriptors),
        TEST(a_blocking_read_takes_exactly_one_large_frame),
        TEST(a_blocking_read_of_what_is_there_does_not_wait),
        TEST(a_blocking_read_does_not_wait_for_ever_for_the_rest),
        TEST(a_blocking_read_reports_the_end_and_unwanted_descriptors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
