/* test_locking.c - those that wait to have memory page-locked, unlocked or freed take turns, and
 * runs have half of the time. Without it: runs could wait for a large image from its first page to
 * its last, or behind one that comes again at once; memory could be locked twice or never be
 * unlocked, or be there for ever. */
/* uses: executor/memory/locking.o runtime/device/lock.o */
#include "common/clock.h"
#include "common/units.h"
#include "executor/memory/locking.h"
#include "runtime/device/lock.h"
#include "tests/unit/sh_test.h"

#include <sys/mman.h>

#define MOST 64u
#define TAKES SH_MS(2) /* a call of the driver */
#define N_TASKS 3u
#define LARGE (3 * DEV_LOCK_PIECE) /* three pieces, or four */

struct waiter {
    struct lock_task task; /* first member */
    struct sh_shm mem;
    unsigned n_done;
    int rc;
    size_t more; /* bytes than others */
    bool stops_others, comes_again;
};

static struct {
    struct sh_loop *loop;
    struct locking *k;
    struct waiter t[N_TASKS];
    struct {
        const char *at;
        size_t bytes;
    } locked[MOST];
    size_t n;
    bool is_over;                /* there are no runs any more */
    unsigned n_calls, refuse_at; /* the call that is refused; 0: none */
    int64_t now_ns, ended_ns;    /* the last call */
} W;

static void go_to(int64_t ns)
{
    W.now_ns = ns;
    sh_clock_fake(ns, 0);
}

/* Runs have had as much time before as the last call took. */
static void call(void)
{
    assert_true(W.n_calls == 0 || W.is_over || W.now_ns - W.ended_ns >= TAKES);
    W.n_calls++;
    go_to(W.now_ns + TAKES);
    W.ended_ns = W.now_ns;
}

int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    const char *at = base;

    (void)m;
    call();
    assert_true(bytes > 0 && bytes <= DEV_LOCK_PIECE && W.n < MOST);
    if (W.n_calls == W.refuse_at)
        return SH_FAIL(err, SH_E_NOMEM, "as the test wants it");
    for (size_t i = 0; i < W.n; i++)
        assert_true(at + bytes <= W.locked[i].at || W.locked[i].at + W.locked[i].bytes <= at);
    W.locked[W.n].at = at;
    W.locked[W.n++].bytes = bytes;
    return SH_OK;
}

/* While it is there, and once. */
void dev_mem_host_unlock(struct dev_mem *m, void *base)
{
    size_t i = 0;

    (void)m;
    call();
    while (i < W.n && W.locked[i].at != base)
        i++;
    assert_true(i < W.n);
    assert_int_equal(msync(base, 1, MS_ASYNC), 0); /* fails where nothing is mapped */
    W.locked[i] = W.locked[--W.n];
}

static void begin(struct waiter *x);

static void on_done(struct lock_task *t, const struct sh_err *why)
{
    struct waiter *x = (struct waiter *)t;

    assert_ptr_equal(t->arg, &W);
    assert_int_equal(t->locked == t->bytes, !why);
    x->n_done++;
    x->rc = why ? why->rc : SH_OK;
    for (size_t i = 0; x->stops_others && i < N_TASKS; i++)
        locking_stop(W.k, &W.t[i].task);
    if (x->comes_again) {
        x->comes_again = false;
        locking_let_go(W.k, &x->mem, t->locked);
        begin(x);
    }
}

static void begin(struct waiter *x)
{
    assert_ok(sh_shm_create("large", LARGE + x->more, &x->mem, NULL));
    x->task =
        (struct lock_task){.base = x->mem.base, .bytes = x->mem.bytes, .done = on_done, .arg = &W};
    locking_begin(W.k, &x->task);
}

static void let_go(struct waiter *x)
{
    locking_let_go(W.k, &x->mem, x->task.locked);
    assert_true(x->mem.fd == -1 && !x->mem.base);
    x->task.locked = 0;
}

/* One turn of the loop at this moment. */
static void turn(void)
{
    const unsigned was = W.n_calls;

    assert_ok(sh_loop_once(W.loop, 0, NULL));
    assert_in_range(W.n_calls, was, was + 1);
}

/* The clock is where the next piece may be. */
static void next(void)
{
    go_to(SH_MAX(W.now_ns, W.ended_ns + TAKES));
    turn();
}

static uint64_t held_bytes(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void they_take_turns_and_runs_have_half_of_the_time(void **state)
{
    const int64_t from_ns = W.now_ns;
    (void)state;

    for (size_t i = 0; i < N_TASKS; i++)
        begin(&W.t[i]);
    assert_int_equal(W.n_calls, 0); /* not in the calls that line them up */
    for (unsigned n = 0; n < 9; n++) {
        const size_t was = W.t[n % N_TASKS].task.locked;

        next();
        assert_int_equal(W.n_calls, n + 1);
        assert_true(W.t[n % N_TASKS].task.locked > was);
        turn();
        go_to(W.now_ns + TAKES - 1);
        turn(); /* the time of runs is not over */
        assert_int_equal(W.n_calls, n + 1);
        go_to(W.now_ns + 1);
    }
    for (unsigned i = 0; i < 9; i++)
        next();
    for (size_t i = 0; i < N_TASKS; i++) {
        assert_int_equal(W.t[i].n_done, 1);
        assert_int_equal(W.t[i].rc, SH_OK);
        assert_int_equal(W.t[i].task.locked, LARGE);
        let_go(&W.t[i]);
    }
    for (unsigned i = 0; i < 20; i++)
        next();
    assert_int_equal(W.n, 0);
    assert_true(W.now_ns - from_ns >= 2 * TAKES * (int64_t)W.n_calls - TAKES);
}

/* Its memory is freed by pieces, the last one first, and nothing that is locked is. */
static void what_was_let_go_is_unlocked_and_freed_in_turns(void **state)
{
    struct waiter *x = &W.t[0];
    int fd;
    (void)state;

    for (unsigned n_locked = 0; n_locked <= 4; n_locked++) {
        uint64_t held = LARGE;
        unsigned pieces = 0;

        *x = (struct waiter){.mem.fd = -1};
        begin(x);
        memset(x->mem.base, 1, LARGE);
        for (unsigned i = 0; i < n_locked; i++)
            next();
        assert_int_equal(W.n, SH_MIN(n_locked, x->n_done ? (unsigned)W.n : n_locked));
        fd = dup(x->mem.fd);
        locking_stop(W.k, &x->task);
        let_go(x);
        assert_int_equal(held_bytes(fd), LARGE); /* not in this call */
        while (held > 0) {
            const uint64_t was = held;

            next();
            held = held_bytes(fd);
            assert_in_range(was - held, 1, DEV_LOCK_PIECE);
            assert_true(++pieces <= 4);
        }
        assert_true(pieces >= 3);
        assert_int_equal(W.n, 0);
        close(fd);
    }
}

static void a_file_that_was_forgotten_keeps_what_it_has(void **state)
{
    struct waiter *x = &W.t[0];
    struct sh_shm other;
    (void)state;

    begin(x);
    memset(x->mem.base, 1, LARGE);
    next();
    assert_ok(sh_shm_map(dup(x->mem.fd), LARGE, false, &other, NULL));
    locking_stop(W.k, &x->task);
    sh_shm_forget_file(&x->mem);
    let_go(x);
    for (unsigned i = 0; i < 5; i++)
        next();
    assert_int_equal(W.n, 0);
    for (size_t i = 0; i < LARGE; i += 4096)
        assert_int_equal(((char *)other.base)[i], 1);
    sh_shm_fini(&other);
}

static void one_that_stops_keeps_what_is_locked_and_is_told_nothing(void **state)
{
    struct waiter *a = &W.t[0], *b = &W.t[1];
    size_t is;
    (void)state;

    begin(a);
    begin(b);
    next();
    next();
    next();
    is = a->task.locked;
    assert_true(is > b->task.locked);
    locking_stop(W.k, &a->task);
    locking_stop(W.k, &a->task); /* it does not wait any more */
    for (unsigned i = 0; i < 9; i++)
        next();
    assert_int_equal(a->task.locked, is);
    assert_int_equal(a->n_done, 0);
    assert_int_equal(b->n_done, 1);
    locking_begin(W.k, &a->task); /* it goes on where it was */
    for (unsigned i = 0; i < 9; i++)
        next();
    assert_int_equal(a->n_done, 1);
}

static void one_that_is_refused_is_told_so_and_others_go_on(void **state)
{
    (void)state;
    W.refuse_at = 4; /* the second piece of the first one */
    for (size_t i = 0; i < N_TASKS; i++)
        begin(&W.t[i]);
    for (unsigned i = 0; i < 16; i++)
        next();
    for (size_t i = 0; i < N_TASKS; i++) {
        assert_int_equal(W.t[i].n_done, 1);
        assert_int_equal(W.t[i].rc, i == 0 ? SH_E_NOMEM : SH_OK);
    }
    assert_in_range(W.t[0].task.locked, 1, LARGE - 1);
}

static void who_is_told_may_stop_others_or_come_again(void **state)
{
    (void)state;
    W.t[1].more = DEV_LOCK_PIECE; /* wherever they lie, they are done in this order */
    W.t[2].more = LARGE;
    for (size_t i = 0; i < N_TASKS; i++)
        begin(&W.t[i]);
    W.t[0].comes_again = true;
    W.t[1].stops_others = true;
    for (unsigned i = 0; i < 30; i++)
        next();
    assert_int_equal(W.t[0].n_done, 1); /* it stood in the line again then */
    assert_int_equal(W.t[1].n_done, 1);
    assert_int_equal(W.t[2].n_done, 0);
}

static void nothing_is_left_when_it_ends(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 12; n++) {
        for (size_t i = 0; i < 2; i++)
            begin(&W.t[i]);
        for (unsigned i = 0; i < n; i++)
            next();
        for (size_t i = 0; i < 2; i++) {
            locking_stop(W.k, &W.t[i].task);
            let_go(&W.t[i]);
        }
        let_go(&W.t[2]); /* it has none */
        next();
        W.is_over = true;
        locking_free(W.k);
        W.is_over = false;
        assert_int_equal(W.n, 0);
        assert_ok(locking_new(W.loop, NULL, &W.k, NULL));
    }
}

static int set_up(void **state)
{
    (void)state;
    memset(&W, 0, sizeof(W));
    for (size_t i = 0; i < N_TASKS; i++)
        W.t[i].mem.fd = -1;
    go_to(SH_S(1000));
    assert_ok(sh_loop_new(&W.loop, NULL));
    return locking_new(W.loop, NULL, &W.k, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TASKS; i++) {
        locking_stop(W.k, &W.t[i].task);
        let_go(&W.t[i]);
    }
    for (unsigned i = 0; i < 40; i++)
        next();
    locking_free(W.k);
    sh_loop_free(W.loop);
    sh_clock_real();
    assert_int_equal(W.n, 0);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(they_take_turns_and_runs_have_half_of_the_time),
        TEST(what_was_let_go_is_unlocked_and_freed_in_turns),
        TEST(a_file_that_was_forgotten_keeps_what_it_has),
        TEST(one_that_stops_keeps_what_is_locked_and_is_told_nothing),
        TEST(one_that_is_refused_is_told_so_and_others_go_on),
        TEST(who_is_told_may_stop_others_or_come_again),
        TEST(nothing_is_left_when_it_ends),
    };

    return cmocka_run_group_tests_name("locking", tests, NULL, NULL);
}
