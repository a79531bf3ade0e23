/* wire_test.h - two ends in one loop, counting what they receive; for test_wire*.c. */
#ifndef SH_TESTS_UNIT_WIRE_TEST_H
#define SH_TESTS_UNIT_WIRE_TEST_H

#include "common/clock.h"
#include "common/loop.h"
#include "common/mem.h"
#include "common/wire.h"
#include "tests/unit/sh_test.h"

#include <poll.h>
#include <sys/socket.h>

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
    bool leaves_fds; /* takes no descriptor */
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

static inline void act(struct end *e, int what, struct sh_wire *w)
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

static inline void on_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                          void *arg)
{
    struct end *e = arg;
    uint64_t id = 0;

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
    for (size_t i = 0; i < n_fds && !e->leaves_fds; i++) {
        assert_true(e->n_fds < SH_ARRAY_LEN(e->fds));
        e->fds[e->n_fds++] = fds[i];
        fds[i] = -1; /* taken */
    }
    act(e, e->on_msg, w);
}

static inline void on_close(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct end *e = arg;

    assert_non_null(why);
    e->n_closed++;
    e->why = *why;
    e->w = NULL;
    sh_wire_close(w); /* allowed, does nothing */
}

static inline void on_up(struct sh_wire *w, void *arg)
{
    struct end *e = arg;

    e->n_up++;
    act(e, e->on_up, w);
}

static inline int set_up(void **state)
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

static inline void drop_fds(struct end *e)
{
    for (size_t i = 0; i < e->n_fds; i++)
        close(e->fds[i]);
    e->n_fds = 0;
}

/* A thread that looked a name up closes its descriptor after it has told its owner. */
static inline void assert_all_closed(int fds_before)
{
    for (int i = 0; i < MAX_TURNS && sh_test_open_fds() > fds_before; i++)
        poll(NULL, 0, (int)(TURN_NS / MS));
    assert_int_equal(sh_test_open_fds(), fds_before);
}

static inline int tear_down(void **state)
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
    assert_all_closed(w->fds_before); /* on every path */
    free(w);
    return 0;
}

static inline void open_end(struct world *w, struct end *e, int *fd, size_t max_queued)
{
    struct sh_wire_handler h = {
        .on_msg = on_msg, .on_close = on_close, .arg = e, .max_queued_bytes = max_queued};

    assert_ok(sh_wire_new(w->loop, *fd, &h, &e->w, NULL));
    *fd = -1;
}

static inline void open_both(struct world *w)
{
    open_end(w, &w->a, &w->fd[0], 0);
    open_end(w, &w->b, &w->fd[1], 0);
}

#define UNTIL(w, cond)                                         \
    do {                                                       \
        int turns_ = 0;                                        \
        while (!(cond)) {                                      \
            if (++turns_ > MAX_TURNS)                          \
                fail_msg("never came true: %s", #cond);        \
            assert_ok(sh_loop_once((w)->loop, TURN_NS, NULL)); \
        }                                                      \
    } while (0)

static inline struct sh_msg ping(uint64_t cookie)
{
    return (struct sh_msg){.type = MSG_PING, .u.ping.cookie = cookie};
}

static inline struct sh_msg chunk(uint64_t rid, unsigned char *buf, size_t n)
{
    struct sh_msg m = {.type = MSG_DATA_CHUNK};

    for (size_t i = 0; i < n; i++)
        buf[i] = (unsigned char)(rid + i);
    m.u.data_chunk.rid = rid;
    m.u.data_chunk.bytes = (struct sh_blob){buf, n};
    return m;
}

static inline void small_buffers(int fd)
{
    int n = 4096;

    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof(n));
}

#endif
