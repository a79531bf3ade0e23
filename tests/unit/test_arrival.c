/* test_arrival.c - a large image that a worker has made is page-locked piece by piece before its
 * model is ready. Without it: all runs would wait while the pages of a large model are locked; or a
 * load whose worker dies meanwhile could leave locked memory behind. */
/* uses: executor/models/arrival.o executor/memory/locking.o runtime/device/lock.o */
#include "common/clock.h"
#include "common/loop.h"
#include "executor/memory/locking.h"
#include "executor/models/arrival.h"
#include "executor/models/host.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/pool/pool.h"
#include "runtime/device/lock.h"
#include "tests/unit/sh_test.h"

#include <time.h>
#include <unistd.h>

#define LARGE (2 * DEV_LOCK_PIECE + 4096)
#define SLOW_NS SH_MS(10)

static struct {
    struct sh_loop *loop;
    struct model m, other;
    struct arrival *first;
    struct worker w;
    size_t locked;
    unsigned n_locks, n_done, n_strays;
    bool is_queued, refuses, fails, is_slow;
    int64_t slow_until_ns;
    uint64_t left;      /* of host memory */
    uint64_t done_ends; /* of the message that was taken */
} T;

static struct store_env env;

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    env.loop = T.loop;
    return &env;
}

struct arrival **store__arrivals(struct store *s)
{
    (void)s;
    return &T.first;
}

struct model *store_find(struct store *s, int64_t handle)
{
    (void)s;
    return handle == T.m.handle ? &T.m : handle == T.other.handle ? &T.other : NULL;
}

uint64_t packed__stored(const struct model *m, const struct msg_wk_model_done *d)
{
    (void)m;
    return d->image_bytes;
}

uint64_t host_left(const struct model *m)
{
    assert_true(m->handle > 0);
    return T.left;
}

bool dev_mem_is_queued(const struct dev_mem *m)
{
    (void)m;
    return T.is_queued;
}

int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    (void)m, (void)base;
    if (T.refuses)
        return SH_FAIL(err, SH_E_NOMEM, "as the test wants it");
    T.n_locks++;
    T.locked += bytes;
    if (T.is_slow) {
        assert_true(sh_clock_ns() >= T.slow_until_ns + SLOW_NS);
        nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
        T.slow_until_ns = sh_clock_ns();
    }
    return SH_OK;
}

/* By what is left: who unlocks goes back piece by piece. */
void dev_mem_host_unlock(struct dev_mem *m, void *base)
{
    (void)m, (void)base;
    T.n_locks--;
    if (T.n_locks == 0)
        T.locked = 0;
}

void worker_kill_stray(struct worker *w, enum sh_msg_type type)
{
    assert_ptr_equal(w, &T.w);
    assert_int_equal(type, MSG_WK_MODEL_DONE);
    T.n_strays++;
}

void model__drop_tables(struct model *m)
{
    dev_mem_host_unlock_all(NULL, m->image.base, &m->locked);
    sh_shm_fini(&m->image);
    m->image = (struct sh_shm){.fd = -1};
}

void store__take_done(struct store *s, struct worker *w, const struct msg_wk_model_done *d,
                      int *fds, size_t n_fds)
{
    struct model *m = store_find(s, d->handle);

    assert_ptr_equal(w, &T.w);
    T.n_done++;
    T.done_ends = d->layer_ends.len ? *(const uint64_t *)d->layer_ends.data : 0;
    if (m && m->image.base)
        assert_true(n_fds == 1 && fds[0] == m->image.fd);
    if (m && !T.fails && m->phase == MODEL_BUILDING && n_fds == 1)
        m->has_image = true;
}

static int set_up(void **state)
{
    (void)state;
    memset(&T, 0, sizeof(T));
    T.is_queued = true;
    T.left = 2 * LARGE;
    T.m = (struct model){.handle = 7, .phase = MODEL_BUILDING, .image.fd = -1};
    T.other = (struct model){.handle = 8, .phase = MODEL_BUILDING, .image.fd = -1};
    T.m.base = &T.m;
    T.other.base = &T.other;
    T.w.preparing = 7;
    assert_ok(sh_loop_new(&T.loop, NULL));
    return locking_new(T.loop, NULL, &env.locking, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    arrival__stop(NULL);
    T.is_slow = false;
    locking_free(env.locking);
    model__drop_tables(&T.m);
    model__drop_tables(&T.other);
    assert_int_equal(T.n_locks, 0);
    sh_loop_free(T.loop);
    return 0;
}

/* What a worker says of an image of so many bytes. */
static int comes(int64_t handle, uint64_t bytes, int64_t rc)
{
    const struct msg_wk_model_done d = {
        .handle = handle, .rc = rc, .image_bytes = bytes, .layer_ends = {&bytes, sizeof(bytes)}};
    struct sh_shm im;
    int fd;

    assert_ok(sh_shm_create("image", bytes, &im, NULL));
    fd = dup(im.fd);
    sh_shm_fini(&im);
    store_on_model_done(NULL, &T.w, &d, &fd, 1);
    if (fd >= 0)
        close(fd);
    return fd;
}

static void turns(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        assert_ok(sh_loop_once(T.loop, 5000000, NULL));
}

static void until_done(unsigned n)
{
    for (unsigned i = 0; i < 1000 && T.n_done < n; i++)
        turns(1);
    assert_int_equal(T.n_done, n);
}

static void it_is_ready_when_all_of_it_is_locked(void **state)
{
    unsigned n = 0;

    (void)state;
    assert_int_equal(comes(7, LARGE, 0), -1);
    assert_int_equal(T.n_done, 0);
    assert_int_equal(T.n_locks, 0); /* the turn that brings the message is over soon */
    while (T.n_done == 0) {
        const unsigned was = T.n_locks;

        turns(1);
        assert_in_range(T.n_locks, was, was + 1);
        assert_true(++n < 1000);
    }
    assert_int_equal(T.locked, LARGE);
    assert_int_equal(T.m.locked, LARGE);
    assert_int_equal(T.done_ends, LARGE); /* the message is as it was */
    assert_null(T.first);
}

static void runs_have_as_much_time_after_a_piece_as_it_took(void **state)
{
    (void)state;
    T.is_slow = true;
    comes(7, LARGE, 0);
    until_done(1);
    assert_true(T.n_locks >= 3);
}

static void what_is_small_or_comes_without_an_image_is_taken_at_once(void **state)
{
    (void)state;
    comes(7, DEV_LOCK_PIECE, 0);
    assert_int_equal(T.n_done, 1);
    comes(7, LARGE, SH_E_QUOTA);
    comes(9, LARGE, 0); /* nobody knows it */
    T.is_queued = false;
    comes(7, LARGE, 0);
    T.is_queued = true;
    T.m.phase = MODEL_READY; /* made again to be kept */
    comes(7, LARGE, 0);
    T.m.phase = MODEL_BUILDING;
    T.w.preparing = 8; /* it lies */
    comes(7, LARGE, 0);
    assert_int_equal(T.n_done, 6);
    assert_null(T.first);
}

/* A worker that lies could have all memory of the host locked. */
static void what_has_no_room_is_refused_before_it_is_locked(void **state)
{
    (void)state;
    T.left = LARGE - 1;
    comes(7, LARGE, 0);
    assert_int_equal(T.n_done, 1);
    assert_null(T.first);
    T.m.handle = T.w.preparing = -3; /* of an evaluation: it has no limit */
    T.m.has_image = false;
    comes(-3, LARGE, 0);
    assert_non_null(T.first);
}

static void two_take_turns(void **state)
{
    (void)state;
    comes(7, LARGE, 0);
    T.w.preparing = 8;
    comes(8, LARGE, 0);
    until_done(1);
    assert_true(T.m.has_image && !T.other.has_image);
    until_done(2);
    assert_true(T.other.has_image);
    assert_int_equal(T.locked, 2 * LARGE);
}

/* Whatever it says it has: the first image is the model's, and there is no other. */
static void what_is_said_twice_meanwhile_is_not_taken(void **state)
{
    (void)state;
    comes(7, LARGE, 0);
    comes(7, LARGE, 0);
    assert_int_equal(T.n_strays, 1);
    turns(2);
    comes(7, 4096, 0);
    comes(7, LARGE, SH_E_QUOTA);
    assert_int_equal(T.n_strays, 3);
    assert_int_equal(T.n_done, 0);
    until_done(1);
    assert_null(T.first);
    assert_int_equal(T.locked, LARGE);
    assert_int_equal(T.m.locked, LARGE);
}

static void a_lock_that_is_refused_is_for_the_load_to_fail_with(void **state)
{
    (void)state;
    T.fails = true;
    comes(7, LARGE, 0);
    for (unsigned i = 0; i < 1000 && T.n_locks == 0; i++)
        turns(1);
    T.refuses = true;
    until_done(1);
    assert_null(T.m.image.base);
    assert_int_equal(T.n_locks, 0);
}

static void what_goes_meanwhile_leaves_nothing(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        T.n_done = 0;
        comes(7, LARGE, 0);
        turns(i / 2);
        if (i % 2 == 0) {
            arrival__lose(NULL, 8); /* another one */
            assert_non_null(T.first);
            arrival__lose(NULL, 7); /* the worker */
            assert_null(T.first);
            turns(3);
            assert_int_equal(T.n_done, 0);
            for (unsigned n = 0; n < 1000 && T.n_locks; n++)
                turns(1);
        } else { /* the model; its worker is through with it when the lock is */
            T.m.phase = MODEL_GOING;
            until_done(1);
            T.m.phase = MODEL_BUILDING;
        }
        assert_null(T.m.image.base);
        assert_int_equal(T.n_locks, 0);
    }
    comes(7, LARGE, 0); /* the executor */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_is_ready_when_all_of_it_is_locked),
        TEST(runs_have_as_much_time_after_a_piece_as_it_took),
        TEST(what_is_small_or_comes_without_an_image_is_taken_at_once),
        TEST(what_has_no_room_is_refused_before_it_is_locked),
        TEST(two_take_turns),
        TEST(what_is_said_twice_meanwhile_is_not_taken),
        TEST(a_lock_that_is_refused_is_for_the_load_to_fail_with),
        TEST(what_goes_meanwhile_leaves_nothing),
    };

    return cmocka_run_group_tests_name("arrival", tests, NULL, NULL);
}
