/* test_copiers.c - threads that help to copy.
 *
 * Without it a request could wait for a helper that sleeps or works for another one, go on while a
 * helper still writes into its input, or take memory that a client cut short for a whole input.
 *
 * Reads go through a gate, by which a test holds who reads a piece until something else has
 * happened, or lets that piece fail. Another holds helpers that have been woken.
 */
/* uses: api/request/copiers.o */
/* link: -Wl,--wrap=pread,--wrap=pwrite,--wrap=pthread_cond_wait */
/* link: -Wl,--wrap=sh_thread_start,--wrap=pthread_join */
#include "api/request/copiers.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/thread.h"
#include "tests/unit/sh_test.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#define N_HELPERS 3
#define N_PIECES 12u
#define BYTES ((N_PIECES - 1) * COPIERS_PIECE + 777) /* the last piece is no whole one */
#define OFF 4096u                                    /* of the copy in the file */
#define LIMIT_S 30
#define NOWHERE SIZE_MAX
#define N_CALLERS 4u
#define N_ROUNDS 30

static _Thread_local bool is_caller;

static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int fd;                            /* of which pieces are looked at */
    size_t n_by_callers, n_by_helpers; /* pieces that were read */
    size_t n_asleep;                   /* helpers */
    size_t n_held;                     /* helpers that stand here with a piece */
    bool holds_woken;                  /* helpers whose sleep has ended */
    bool holds_helpers;                /* whatever they read */
    bool holds_until_sleep;            /* of a caller */
    bool caller_sleeps;
    size_t first_until_read, first_until_held; /* a caller's first piece takes until helpers ... */
    size_t fails_at, ends_at;                  /* pieces; NOWHERE: none */
    size_t later;                              /* of these, who fails behind the other */
    bool later_is_here, other_was_here;
} G;

ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __real_pwrite(int fd, const void *from, size_t n, off_t at);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __real_pthread_join(pthread_t id, void **out);
int __real_sh_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t n, off_t at);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_join(pthread_t id, void **out);
int __wrap_sh_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

static int starts_left = -1; /* threads; < 0: as many as are wanted */
static atomic_int n_joined;

int __wrap_pthread_join(pthread_t id, void **out)
{
    atomic_fetch_add(&n_joined, 1);
    return __real_pthread_join(id, out);
}

int __wrap_sh_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    if (starts_left == 0)
        return EAGAIN;
    starts_left -= starts_left > 0;
    return __real_sh_thread_start(out, run, arg);
}

/* Until it is true; under the gate's lock. */
#define AWAIT(what)                                                            \
    do {                                                                       \
        const struct timespec end_ = sh_cond_deadline(LIMIT_S * 1000000000LL); \
        while (!(what))                                                        \
            if (pthread_cond_timedwait(&G.moved, &G.lock, &end_)) {            \
                fprintf(stderr, "nobody came: %s\n", #what);                   \
                abort();                                                       \
            }                                                                  \
    } while (0)

static void move_on(void)
{
    pthread_cond_broadcast(&G.moved);
}

#define SET(field, value)              \
    do {                               \
        pthread_mutex_lock(&G.lock);   \
        G.field = (value);             \
        move_on();                     \
        pthread_mutex_unlock(&G.lock); \
    } while (0)
#define UNTIL(what)                    \
    do {                               \
        pthread_mutex_lock(&G.lock);   \
        AWAIT(what);                   \
        pthread_mutex_unlock(&G.lock); \
    } while (0)

/* Who has been counted as asleep sleeps when the team's lock is free again. */
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    int rc;

    if (is_caller) {
        SET(caller_sleeps, true);
        return __real_pthread_cond_wait(cond, lock);
    }
    SET(n_asleep, G.n_asleep + 1);
    rc = __real_pthread_cond_wait(cond, lock);
    SET(n_asleep, G.n_asleep - 1);
    pthread_mutex_unlock(lock);
    UNTIL(!G.holds_woken);
    pthread_mutex_lock(lock);
    return rc;
}

/* Before a piece is read. Returns whether it shall be: 1; 0 and -1 are what pread() returns. */
static int pass_gate(size_t piece)
{
    int out = 1;

    pthread_mutex_lock(&G.lock);
    if (is_caller && G.n_by_callers == 0)
        AWAIT(G.n_by_helpers >= G.first_until_read && G.n_held >= G.first_until_held);
    if (!is_caller) {
        G.n_held++;
        move_on();
        AWAIT(!G.holds_helpers && (!G.holds_until_sleep || G.caller_sleeps));
        G.n_held--;
    }
    if (piece == G.later) { /* all others are through, and have gone to sleep */
        G.later_is_here = true;
        move_on();
        AWAIT(G.other_was_here && G.n_asleep + G.caller_sleeps == N_HELPERS);
    } else if ((piece == G.fails_at || piece == G.ends_at) && G.later != NOWHERE) {
        AWAIT(G.later_is_here);
        G.other_was_here = true;
    }
    if (piece == G.fails_at || piece == G.ends_at)
        out = piece == G.fails_at ? -1 : 0;
    pthread_mutex_unlock(&G.lock);
    return out;
}

static void count_piece(void)
{
    pthread_mutex_lock(&G.lock);
    *(is_caller ? &G.n_by_callers : &G.n_by_helpers) += 1;
    move_on();
    pthread_mutex_unlock(&G.lock);
}

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    ssize_t got;
    int way = fd == G.fd ? pass_gate(((size_t)at - OFF) / COPIERS_PIECE) : 1;

    if (way < 1) {
        count_piece();
        errno = EIO;
        return way;
    }
    got = __real_pread(fd, to, n, at);
    if (fd == G.fd)
        count_piece();
    return got;
}

ssize_t __wrap_pwrite(int fd, const void *from, size_t n, off_t at)
{
    if (fd == G.fd && pass_gate(((size_t)at - OFF) / COPIERS_PIECE) < 1) {
        errno = EIO;
        return -1;
    }
    return __real_pwrite(fd, from, n, at);
}

/* ---------------------------------------------------------------- the world */

struct world {
    struct copiers *c;
    int fd;           /* G.fd */
    char *want, *got; /* BYTES each */
};

static void fill(char *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)((seed = seed * 1664525u + 1013904223u) >> 24);
}

static int memory_of(const char *bytes, size_t n)
{
    int fd = memfd_create("copiers", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(__real_pwrite(fd, bytes, n, OFF), n);
    return fd;
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->want = malloc(BYTES);
    w->got = calloc(1, BYTES);
    assert_true(w->want && w->got);
    fill(w->want, BYTES, 1);
    w->fd = memory_of(w->want, BYTES);
    G = (struct gate){.lock = PTHREAD_MUTEX_INITIALIZER,
                      .fd = w->fd,
                      .fails_at = NOWHERE,
                      .ends_at = NOWHERE,
                      .later = NOWHERE};
    sh_cond_init(&G.moved);
    is_caller = true;
    assert_ok(copiers_new(N_HELPERS, &w->c, NULL));
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    copiers_free(w->c);
    close(w->fd);
    free(w->want);
    free(w->got);
    free(w);
    return 0;
}

static ssize_t read_all(struct world *w)
{
    return copiers_pread(w->c, w->fd, w->got, BYTES, OFF);
}

/* ---------------------------------------------------------------- tests */

static void bytes_go_both_ways_whatever_their_number(void **state)
{
    struct world *w = *state;
    static const size_t SIZES[] = {0,    1, COPIERS_LARGE - 1, COPIERS_LARGE, COPIERS_LARGE + 1,
                                   BYTES};

    for (size_t i = 0; i < SH_ARRAY_LEN(SIZES); i++) {
        const size_t n = SIZES[i];

        memset(w->got, 0, BYTES);
        assert_int_equal(copiers_pread(w->c, w->fd, w->got, n, OFF), n);
        assert_memory_equal(w->got, w->want, n);
        for (size_t k = n; k < BYTES; k++)
            assert_int_equal(w->got[k], 0);
        fill(w->want, n, (uint32_t)i + 2);
        assert_true(copiers_pwrite(w->c, w->fd, w->want, n, OFF));
        assert_int_equal(__real_pread(w->fd, w->got, BYTES, OFF), BYTES);
        assert_memory_equal(w->got, w->want, BYTES);
    }
}

static void without_helpers_a_caller_copies_alone(void **state)
{
    struct world *w = *state;
    struct copiers *none = NULL;

    assert_ok(copiers_new(0, &none, NULL));
    assert_int_equal(copiers_pread(none, w->fd, w->got, BYTES, OFF), BYTES);
    assert_memory_equal(w->got, w->want, BYTES);
    copiers_free(none);
    memset(w->got, 0, BYTES);
    assert_int_equal(copiers_pread(NULL, w->fd, w->got, BYTES, OFF), BYTES);
    assert_memory_equal(w->got, w->want, BYTES);
    assert_true(copiers_pwrite(NULL, w->fd, w->want, BYTES, OFF));
    assert_int_equal(G.n_by_helpers, 0);
}

static void helpers_help(void **state)
{
    struct world *w = *state;

    SET(first_until_read, N_PIECES - 1);
    assert_int_equal(read_all(w), BYTES);
    assert_memory_equal(w->got, w->want, BYTES);
    assert_int_equal(G.n_by_callers, 1);
    assert_int_equal(G.n_by_helpers, N_PIECES - 1);
}

static void a_small_copy_wakes_nobody(void **state)
{
    struct world *w = *state;

    UNTIL(G.n_asleep == N_HELPERS);
    assert_int_equal(copiers_pread(w->c, w->fd, w->got, COPIERS_LARGE - 1, OFF), COPIERS_LARGE - 1);
    assert_int_equal(G.n_by_callers, 1);
    assert_int_equal(G.n_asleep, N_HELPERS);
}

/* The caller sleeps meanwhile; what it has got is whole. */
static void what_helpers_have_taken_is_waited_for(void **state)
{
    struct world *w = *state;

    SET(holds_until_sleep, true);
    SET(first_until_held, 1);
    for (int i = 0; i < 20; i++) {
        SET(caller_sleeps, false);
        SET(n_by_callers, 0);
        memset(w->got, 0, BYTES);
        assert_int_equal(read_all(w), BYTES);
        assert_memory_equal(w->got, w->want, BYTES);
        assert_true(G.caller_sleeps);
    }
}

static void a_helper_that_wakes_late_is_not_waited_for(void **state)
{
    struct world *w = *state;

    UNTIL(G.n_asleep == N_HELPERS);
    SET(holds_woken, true);
    for (int i = 0; i < 3; i++) {
        memset(w->got, 0, BYTES);
        assert_int_equal(read_all(w), BYTES);
        assert_memory_equal(w->got, w->want, BYTES);
    }
    UNTIL(G.n_asleep == 0); /* they had been woken */
    assert_int_equal(G.n_by_helpers, 0);
    SET(holds_woken, false);
    SET(n_by_callers, 0);
    SET(first_until_read, N_PIECES - 1);
    assert_int_equal(read_all(w), BYTES); /* they are there for the next one */
}

struct other {
    struct world *w;
    char *got;
    ssize_t n;
};

static void *read_as_other(void *arg)
{
    struct other *o = arg;

    is_caller = true;
    o->n = copiers_pread(o->w->c, o->w->fd, o->got, BYTES, OFF);
    return NULL;
}

static void a_helper_that_works_for_another_is_not_waited_for(void **state)
{
    struct world *w = *state;
    struct other o = {w, calloc(1, BYTES), 0};
    int fd = memory_of(w->want, BYTES);
    pthread_t other;

    SET(holds_helpers, true);
    SET(first_until_read, N_PIECES); /* the other one stays until it is let go */
    assert_int_equal(pthread_create(&other, NULL, read_as_other, &o), 0);
    UNTIL(G.n_held == N_HELPERS);
    assert_int_equal(copiers_pread(w->c, fd, w->got, BYTES, OFF), BYTES);
    assert_memory_equal(w->got, w->want, BYTES);
    assert_int_equal(G.n_by_helpers, 0);
    SET(first_until_read, 0);
    SET(holds_helpers, false);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(o.n, BYTES);
    assert_memory_equal(o.got, w->want, BYTES);
    free(o.got);
    close(fd);
}

/* Whichever was found first. */
static void the_first_fault_by_position_counts(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 4; i++) {
        const bool fails_first = i % 2;

        SET(fails_at, fails_first ? 1 : 3);
        SET(ends_at, fails_first ? 3 : 1);
        SET(later, i / 2 ? 1 : 3);
        SET(later_is_here, false);
        SET(other_was_here, false);
        SET(caller_sleeps, false);
        errno = 0;
        assert_int_equal(read_all(w), fails_first ? -1 : (int)COPIERS_PIECE);
        assert_int_equal(errno, fails_first ? EIO : 0);
    }
}

static void nothing_is_taken_behind_a_fault(void **state)
{
    struct world *w = *state;

    UNTIL(G.n_asleep == N_HELPERS);
    SET(holds_woken, true);
    SET(fails_at, 2);
    assert_int_equal(read_all(w), -1);
    assert_int_equal(G.n_by_callers, 3);
    SET(holds_woken, false);
}

static void a_write_that_fails_in_any_piece_fails(void **state)
{
    struct world *w = *state;

    for (size_t k = 0; k < N_PIECES; k++) {
        SET(fails_at, k);
        errno = 0;
        assert_false(copiers_pwrite(w->c, w->fd, w->want, BYTES, OFF));
        assert_int_equal(errno, EIO);
    }
    SET(fails_at, NOWHERE);
    assert_true(copiers_pwrite(w->c, w->fd, w->want, BYTES, OFF));
}

static void memory_that_ends_in_the_last_piece_is_short(void **state)
{
    struct world *w = *state;

    assert_int_equal(ftruncate(w->fd, OFF + BYTES - 1), 0);
    assert_int_equal(read_all(w), BYTES - 1);
    assert_int_equal(ftruncate(w->fd, OFF + 3 * COPIERS_PIECE + 5), 0);
    assert_int_equal(read_all(w), 3 * COPIERS_PIECE + 5);
    assert_int_equal(ftruncate(w->fd, OFF), 0);
    assert_int_equal(read_all(w), 0);
}

static void *copy_many(void *arg)
{
    struct world *w = arg;
    char *own = malloc(BYTES), *got = malloc(BYTES);
    bool ok = true;
    int fd;

    is_caller = true;
    assert_true(own && got);
    fill(own, BYTES, (uint32_t)(uintptr_t)own);
    fd = memory_of(own, BYTES);
    for (int i = 0; i < N_ROUNDS; i++) {
        const size_t n = BYTES - (size_t)i * 20001;

        memset(got, 0, n);
        ok &= copiers_pread(w->c, fd, got, n, OFF) == (ssize_t)n && memcmp(got, own, n) == 0;
        fill(own, n, (uint32_t)i);
        ok &= copiers_pwrite(w->c, fd, own, n, OFF);
    }
    close(fd);
    free(own);
    free(got);
    return ok ? w : NULL;
}

static void callers_at_the_same_time_get_their_own(void **state)
{
    struct world *w = *state;
    pthread_t others[N_CALLERS];
    void *ok;

    for (size_t i = 0; i < N_CALLERS; i++)
        assert_int_equal(pthread_create(&others[i], NULL, copy_many, w), 0);
    for (size_t i = 0; i < N_CALLERS; i++) {
        assert_int_equal(pthread_join(others[i], &ok), 0);
        assert_non_null(ok);
    }
}

static void *free_team(void *arg)
{
    copiers_free(arg);
    return NULL;
}

/* Those that were woken by a copy which has ended since. */
static void helpers_that_are_late_end_too(void **state)
{
    struct world *w = *state;
    pthread_t other;

    UNTIL(G.n_asleep == N_HELPERS);
    SET(holds_woken, true);
    assert_int_equal(read_all(w), BYTES);
    UNTIL(G.n_asleep == 0);
    assert_int_equal(pthread_create(&other, NULL, free_team, w->c), 0);
    w->c = NULL;
    SET(holds_woken, false);
    assert_int_equal(pthread_join(other, NULL), 0);
}

static void a_thread_that_cannot_start_is_an_error(void **state)
{
    struct copiers *c = NULL;
    struct sh_err err = {0};
    (void)state;

    starts_left = 2;
    n_joined = 0;
    assert_fails(copiers_new(N_HELPERS, &c, &err), SH_E_NOMEM, &err, "could not start");
    assert_null(c);
    assert_int_equal(n_joined, 2);
    starts_left = -1;
}

static void a_few_cores_have_none(void **state)
{
    (void)state;

    assert_int_equal(copiers_by_cores(1), 0);
    assert_int_equal(copiers_by_cores(2), 0);
    assert_int_equal(copiers_by_cores(4), 1);
    assert_int_equal(copiers_by_cores(16), 4);
    assert_int_equal(copiers_by_cores(256), 8);
}

#define IN_WORLD(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(bytes_go_both_ways_whatever_their_number),
        IN_WORLD(without_helpers_a_caller_copies_alone),
        IN_WORLD(helpers_help),
        IN_WORLD(a_small_copy_wakes_nobody),
        IN_WORLD(what_helpers_have_taken_is_waited_for),
        IN_WORLD(a_helper_that_wakes_late_is_not_waited_for),
        IN_WORLD(a_helper_that_works_for_another_is_not_waited_for),
        IN_WORLD(the_first_fault_by_position_counts),
        IN_WORLD(nothing_is_taken_behind_a_fault),
        IN_WORLD(a_write_that_fails_in_any_piece_fails),
        IN_WORLD(memory_that_ends_in_the_last_piece_is_short),
        IN_WORLD(callers_at_the_same_time_get_their_own),
        IN_WORLD(helpers_that_are_late_end_too),
        cmocka_unit_test(a_thread_that_cannot_start_is_an_error),
        cmocka_unit_test(a_few_cores_have_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
