/* test_wire.c - without it, a frame could be cut, swapped or given another frame's descriptors when
 * the kernel takes or brings only part of it; a stranger or a peer that does not read could hold
 * memory or descriptors; and a link could stay down for ever after a restart of its peer. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/wire.h"
#include "tests/unit/sh_test.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MS INT64_C(1000000)
#define TURN_NS (20 * MS)
#define MAX_TURNS 3000 /* a test that needs more has failed */

struct end {
    struct sh_wire *w;
    int n_msgs, n_closed, n_up;
    uint64_t last;     /* cookie or rid of the last message */
    bool out_of_order; /* cookies are expected to count from 1 */
    size_t bytes;
    int fds[64];
    size_t n_fds;
    struct sh_err why;
    struct sh_link *link;
    enum { DO_NOTHING, DO_CLOSE, DO_FINISH, DO_FREE_LINK, DO_ECHO } on_msg, on_up;
};

struct world {
    struct sh_loop *loop;
    struct end a, b;
    int fd[2]; /* a pair; -1 once given to a wire */
    char dir[SH_TEST_DIR_BYTES];
    char addr[128];
    int fds_before;
};

/* ---------------------------------------------------------------- fixture */

static void act(struct end *e, int what, struct sh_wire *w)
{
    struct sh_msg pong = {.type = MSG_PONG, .u.pong.cookie = e->last};

    if (what == DO_CLOSE) {
        sh_wire_close(w);
        e->w = NULL;
    } else if (what == DO_FINISH) {
        sh_wire_finish(w);
    } else if (what == DO_FREE_LINK) {
        sh_link_free(e->link);
        e->link = NULL;
    } else if (what == DO_ECHO) {
        assert_ok(sh_wire_send(w, &pong, NULL));
    }
}

static void on_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct end *e = arg;
    uint64_t id = 0;

    assert_ptr_equal(sh_wire_arg(w), e);
    e->n_msgs++;
    if (m->type == MSG_PING)
        id = m->u.ping.cookie;
    if (m->type == MSG_PONG)
        id = m->u.pong.cookie;
    if (m->type == MSG_DATA_CHUNK) {
        const unsigned char *p = m->u.data_chunk.bytes.data;

        id = m->u.data_chunk.rid;
        for (size_t i = 0; i < m->u.data_chunk.bytes.len; i++)
            if (p[i] != (unsigned char)(id + i))
                fail_msg("byte %zu of chunk %llu differs", i, (unsigned long long)id);
        e->bytes += m->u.data_chunk.bytes.len;
    }
    if (id != e->last + 1)
        e->out_of_order = true;
    e->last = id;
    for (size_t i = 0; i < n_fds; i++) {
        assert_true(e->n_fds < SH_ARRAY_LEN(e->fds));
        e->fds[e->n_fds++] = fds[i];
    }
    act(e, e->on_msg, w);
}

static void on_close(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct end *e = arg;

    assert_non_null(why);
    e->n_closed++;
    e->why = *why;
    e->w = NULL;
    sh_wire_close(w); /* allowed, does nothing */
}

static void on_up(struct sh_wire *w, void *arg)
{
    struct end *e = arg;

    e->n_up++;
    act(e, e->on_up, w);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->fds_before = sh_test_open_fds();
    sh_test_dir_make(w->dir);
    snprintf(w->addr, sizeof(w->addr), "unix:%s/s", w->dir);
    assert_ok(sh_loop_new(&w->loop, NULL));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w->fd), 0);
    *state = w;
    return 0;
}

static void drop_fds(struct end *e)
{
    for (size_t i = 0; i < e->n_fds; i++)
        close(e->fds[i]);
    e->n_fds = 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    sh_link_free(w->a.link);
    sh_wire_close(w->a.w);
    sh_wire_close(w->b.w);
    drop_fds(&w->a);
    drop_fds(&w->b);
    for (int i = 0; i < 2; i++)
        if (w->fd[i] >= 0)
            close(w->fd[i]);
    sh_loop_free(w->loop);
    sh_test_dir_remove(w->dir);
    assert_int_equal(sh_test_open_fds(), w->fds_before); /* closed on every path */
    free(w);
    return 0;
}

static void open_end(struct world *w, struct end *e, int *fd, size_t max_queued)
{
    struct sh_wire_handler h = {
        .on_msg = on_msg, .on_close = on_close, .arg = e, .max_queued_bytes = max_queued};

    assert_ok(sh_wire_new(w->loop, *fd, &h, &e->w, NULL));
    *fd = -1;
}

static void open_both(struct world *w)
{
    open_end(w, &w->a, &w->fd[0], 0);
    open_end(w, &w->b, &w->fd[1], 0);
}

#define UNTIL(w, cond)                                                                             \
    do {                                                                                           \
        int turns_ = 0;                                                                            \
        while (!(cond)) {                                                                          \
            if (++turns_ > MAX_TURNS)                                                              \
                fail_msg("never came true: %s", #cond);                                            \
            assert_ok(sh_loop_once((w)->loop, TURN_NS, NULL));                                     \
        }                                                                                          \
    } while (0)

static struct sh_msg ping(uint64_t cookie)
{
    return (struct sh_msg){.type = MSG_PING, .u.ping.cookie = cookie};
}

static struct sh_msg chunk(uint64_t rid, unsigned char *buf, size_t n)
{
    struct sh_msg m = {.type = MSG_DATA_CHUNK};

    for (size_t i = 0; i < n; i++)
        buf[i] = (unsigned char)(rid + i);
    m.u.data_chunk.rid = rid;
    m.u.data_chunk.bytes = (struct sh_blob){buf, n};
    return m;
}

static void small_buffers(int fd)
{
    int n = 4096;

    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof(n));
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
    unsigned char frame[24] = {16, 0, 0, 0, SH_WIRE_VERSION, 0, MSG_HINT, 0, 5, 0, 0, 0, 'j',
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

static void descriptors_that_were_not_announced_are_refused_and_closed(void **state)
{
    struct world *w = *state;
    unsigned char frame[16] = {8, 0, 0, 0, SH_WIRE_VERSION, 0, MSG_PING, 0, 1};
    union {
        struct cmsghdr h;
        char b[CMSG_SPACE(3 * sizeof(int))];
    } c = {.h = {.cmsg_level = SOL_SOCKET,
                 .cmsg_type = SCM_RIGHTS,
                 .cmsg_len = CMSG_LEN(3 * sizeof(int))}};
    struct iovec iov = {frame, sizeof(frame)};
    struct msghdr mh = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
    int fds[3] = {w->fd[0], w->fd[0], w->fd[0]};

    memcpy(CMSG_DATA(&c.h), fds, sizeof(fds));
    open_end(w, &w->b, &w->fd[1], 0);
    assert_int_equal(sendmsg(w->fd[0], &mh, 0), 16);
    UNTIL(w, w->b.n_closed == 1);
    assert_int_equal(w->b.why.rc, SH_E_PROTO);
    assert_has(w->b.why.msg, "more descriptors"); /* tear_down counts what is open */
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
    assert_ok(sh_wire_read_blocking(w->fd[1], 5000, &b, &back, fds, &n_fds, NULL));
    assert_int_equal(back.u.ping.cookie, 7);
    assert_int_equal(n_fds, 1);
    assert_true(same_file(fds[0], 0));
    close(fds[0]);
    assert_ok(sh_wire_read_blocking(w->fd[1], 5000, &b, &back, fds, &n_fds, NULL));
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
    assert_ok(sh_wire_read_blocking(w->fd[1], -1, &b, &back, NULL, NULL, NULL));
    pthread_join(id, &rc);
    assert_null(rc);
    assert_int_equal(back.u.data_chunk.bytes.len, 5000000);
    assert_int_equal(((const unsigned char *)back.u.data_chunk.bytes.data)[4999999],
                     (unsigned char)(3 + 4999999));
    sh_buf_fini(&b);
}

static void a_blocking_read_reports_time_limit_end_and_unwanted_descriptors(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct sh_msg m = ping(1), back;
    struct sh_buf b;

    sh_buf_init(&b, SH_WIRE_MAX_FRAME);
    assert_fails(sh_wire_read_blocking(w->fd[1], 1, &b, &back, NULL, NULL, &err), SH_E_TIMEOUT,
                 &err, "1 ms");
    err = (struct sh_err){0};
    assert_ok(sh_wire_write_blocking(w->fd[0], &m, (int[]){0, 1}, 2, NULL));
    assert_fails(sh_wire_read_blocking(w->fd[1], 5000, &b, &back, NULL, NULL, &err), SH_E_PROTO,
                 &err, "must not carry");
    err = (struct sh_err){0};
    close(w->fd[0]);
    w->fd[0] = -1;
    assert_fails(sh_wire_read_blocking(w->fd[1], 5000, &b, &back, NULL, NULL, &err),
                 SH_E_UNAVAILABLE, &err, "closed");
    sh_buf_fini(&b);
}

/* ---------------------------------------------------------------- addresses */

static void bad_addresses_are_refused_with_the_reason(void **state)
{
    static const struct {
        const char *addr, *text;
    } CASES[] = {{"", "must be"},
                 {"http://x", "must be"},
                 {"unix:relative", "absolute path"},
                 {"tcp:host", "no port"},
                 {"tcp:host:", "port"},
                 {"tcp:host:70000", "port"},
                 {"tcp:::1:80", "[host]:port"}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err err = {0};
        int fd;

        assert_fails(sh_wire_connect(CASES[i].addr, 100, &fd, &err), SH_E_INVALID, &err,
                     CASES[i].text);
        assert_int_equal(fd, -1);
    }
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    struct sh_err err = {0};
    char addr[300] = "unix:/";
    int fd;

    (void)state;
    memset(addr + 6, 'x', 200);
    assert_fails(sh_wire_listen(addr, &fd, &err), SH_E_INVALID, &err, "longer than 107");
}

static void a_stale_socket_is_replaced_and_a_live_one_is_not(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct stat st;
    int first, second, c;

    assert_ok(sh_wire_listen(w->addr, &first, NULL));
    assert_int_equal(stat(w->addr + 5, &st), 0);
    assert_int_equal(st.st_mode & 07, 0); /* closed to strangers */
    assert_fails(sh_wire_listen(w->addr, &second, &err), SH_E_CONFLICT, &err, "already listens");
    assert_ok_err(sh_wire_connect(w->addr, 1000, &c, &err), &err); /* it still lives */
    close(c);
    close(first); /* as after kill -9: the file stays */
    assert_ok(sh_wire_listen(w->addr, &second, NULL));
    assert_ok(sh_wire_connect(w->addr, 1000, &c, NULL));
    close(c);
    close(second);
}

static void a_file_that_is_no_socket_is_never_removed(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    int fd;

    sh_test_write_file(w->addr + 5, "precious", 8);
    assert_fails(sh_wire_listen(w->addr, &fd, &err), SH_E_CONFLICT, &err, "not a socket");
    assert_int_equal(access(w->addr + 5, F_OK), 0);
}

static int tcp_port(int fd)
{
    struct sockaddr_in sa = {0};
    socklen_t n = sizeof(sa);

    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &n), 0);
    return ntohs(sa.sin_port);
}

static void tcp_connects_by_number_and_by_name(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct sh_msg m = ping(1);
    char addr[64];
    int listener, c;

    assert_ok_err(sh_wire_listen("tcp:127.0.0.1:0", &listener, &err), &err);
    snprintf(addr, sizeof(addr), "tcp:127.0.0.1:%d", tcp_port(listener));
    assert_ok_err(sh_wire_connect(addr, 2000, &c, &err), &err);
    open_end(w, &w->a, &c, 0);
    assert_false(sh_wire_is_local(w->a.w));
    assert_int_equal(sh_wire_send_fds(w->a.w, &m, (int[]){0}, 1, NULL), SH_E_BUG);
    c = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    open_end(w, &w->b, &c, 0);
    assert_ok(sh_wire_send(w->a.w, &m, NULL));
    UNTIL(w, w->b.n_msgs == 1);

    snprintf(addr, sizeof(addr), "tcp:localhost:%d", tcp_port(listener));
    assert_ok_err(sh_wire_connect(addr, 5000, &c, &err), &err);
    close(c);
    close(listener);
    assert_fails(sh_wire_connect(addr, 2000, &c, &err), SH_E_UNAVAILABLE, &err, "localhost");
}

/* ---------------------------------------------------------------- links */

static void start_link(struct world *w, const char *addr)
{
    struct sh_link_handler h = {
        .on_up = on_up, .on_msg = on_msg, .on_down = on_close, .arg = &w->a};

    assert_ok(sh_link_new(w->loop, addr, &h, &w->a.link, NULL));
    assert_int_equal(w->a.n_up, 0); /* never from inside sh_link_new */
    assert_null(sh_link_wire(w->a.link));
}

static int accept_when_ready(struct world *w, int listener)
{
    int fd = -1;

    UNTIL(w, (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    return fd;
}

static void a_link_comes_back_after_its_peer_was_away(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);
    int listener, fd;

    start_link(w, w->addr); /* nobody listens yet */
    for (int i = 0; i < 5; i++)
        assert_ok(sh_loop_once(w->loop, TURN_NS, NULL));
    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    fd = accept_when_ready(w, listener);
    UNTIL(w, w->a.n_up == 1);
    assert_ok(sh_wire_send(sh_link_wire(w->a.link), &m, NULL));

    close(fd);
    close(listener); /* the peer restarts */
    UNTIL(w, w->a.n_closed == 1);
    assert_null(sh_link_wire(w->a.link));
    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    fd = accept_when_ready(w, listener);
    UNTIL(w, w->a.n_up == 2);
    assert_ok(sh_wire_write_blocking(fd, &m, NULL, 0, NULL));
    UNTIL(w, w->a.n_msgs == 1);
    close(fd);
    close(listener);
}

static void a_link_backs_off_from_a_peer_that_hangs_up_at_once(void **state)
{
    struct world *w = *state;
    int listener, n = 0;

    sh_clock_fake(MS, 0);
    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    start_link(w, w->addr);
    for (int ms = 0; ms < 10000; ms += 10) {
        int fd;

        assert_ok(sh_loop_once(w->loop, 0, NULL));
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        n += fd >= 0;
        if (fd >= 0)
            close(fd);
        assert_ok(sh_loop_once(w->loop, 0, NULL));
        sh_clock_advance(10 * MS);
    }
    /* 50 100 200 400 800 1600 1600 ... ms and up to a quarter more */
    assert_in_range(n, 8, 12);
    sh_clock_real();
    close(listener);
}

static void closing_a_links_wire_makes_it_try_again(void **state)
{
    struct world *w = *state;
    int listener, first, second;

    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    w->a.on_up = DO_CLOSE;
    start_link(w, w->addr);
    first = accept_when_ready(w, listener);
    second = accept_when_ready(w, listener);
    assert_true(w->a.n_up >= 2);
    assert_int_equal(w->a.n_closed, 0);
    close(first);
    close(second);
    close(listener);
}

static void a_link_may_be_freed_in_its_callbacks(void **state)
{
    struct world *w = *state;
    struct sh_msg m = ping(1);
    int listener, fd;

    assert_ok(sh_wire_listen(w->addr, &listener, NULL));
    w->a.on_up = DO_FREE_LINK;
    start_link(w, w->addr);
    fd = accept_when_ready(w, listener);
    UNTIL(w, w->a.link == NULL);
    close(fd);

    w->a.on_up = DO_NOTHING;
    w->a.on_msg = DO_FREE_LINK;
    w->a.n_up = 0;
    start_link(w, w->addr);
    fd = accept_when_ready(w, listener);
    assert_ok(sh_wire_write_blocking(fd, &m, NULL, 0, NULL));
    assert_ok(sh_wire_write_blocking(fd, &m, NULL, 0, NULL));
    UNTIL(w, w->a.link == NULL);
    assert_int_equal(w->a.n_msgs, 1);
    close(fd);
    close(listener);
}

static void a_link_finds_its_peer_by_name(void **state)
{
    struct world *w = *state;
    char addr[64];
    int listener, fd;

    assert_ok(sh_wire_listen("tcp:127.0.0.1:0", &listener, NULL));
    snprintf(addr, sizeof(addr), "tcp:localhost:%d", tcp_port(listener));
    start_link(w, addr);
    fd = accept_when_ready(w, listener);
    UNTIL(w, w->a.n_up == 1);
    close(fd);
    close(listener);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_arrive_in_order_both_ways),
        TEST(large_messages_survive_partial_writes_and_reads),
        TEST(a_frame_may_arrive_byte_by_byte),
        TEST(an_oversized_frame_is_refused_at_its_header),
        TEST(an_unknown_type_is_refused_at_its_header),
        TEST(another_version_is_refused),
        TEST(a_frame_that_does_not_decode_is_refused),
        TEST(announced_descriptors_must_come),
        TEST(descriptors_that_were_not_announced_are_refused_and_closed),
        TEST(descriptors_travel_with_their_message),
        TEST(queued_descriptors_may_be_closed_by_the_sender),
        TEST(closing_with_queued_descriptors_leaks_none),
        TEST(too_many_descriptors_are_refused),
        TEST(the_end_of_the_peer_is_reported_after_its_last_message),
        TEST(writing_to_a_peer_that_is_gone_still_delivers_its_last_message),
        TEST(a_peer_that_does_not_read_is_closed_at_the_limit),
        TEST(a_callback_may_close_its_wire),
        TEST(finish_writes_what_is_queued_first),
        TEST(finish_gives_up_on_a_peer_that_does_not_read),
        TEST(a_callback_may_finish_its_wire),
        TEST(blocking_calls_exchange_messages_and_descriptors),
        TEST(a_blocking_read_takes_exactly_one_large_frame),
        TEST(a_blocking_read_reports_time_limit_end_and_unwanted_descriptors),
        TEST(bad_addresses_are_refused_with_the_reason),
        TEST(a_path_that_is_too_long_is_refused),
        TEST(a_stale_socket_is_replaced_and_a_live_one_is_not),
        TEST(a_file_that_is_no_socket_is_never_removed),
        TEST(tcp_connects_by_number_and_by_name),
        TEST(a_link_comes_back_after_its_peer_was_away),
        TEST(a_link_backs_off_from_a_peer_that_hangs_up_at_once),
        TEST(closing_a_links_wire_makes_it_try_again),
        TEST(a_link_may_be_freed_in_its_callbacks),
        TEST(a_link_finds_its_peer_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
