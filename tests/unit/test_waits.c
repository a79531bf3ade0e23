/* test_waits.c - how long a run may wait for a worker that has its version, by what workers do.
 *
 * Without it: a request could be promised an answer in its time by an executor whose workers all
 * compile, or be refused although one of them is free. */
/* uses: executor/pool/waits.o */
#include "common/mem.h"
#include "executor/pool/waits.h"
#include "tests/unit/sh_test.h"

#define MS INT64_C(1000000)
#define N 2

static struct worker workers[N];
static struct worker_ctl pages[N];
static int64_t now_ns;

size_t pool_size(const struct pool *p)
{
    (void)p;
    return N;
}

struct worker *pool_at(struct pool *p, size_t i)
{
    (void)p;
    return &workers[i];
}

bool worker_may_run(const struct worker *w)
{
    return w->state == WORKER_STANDBY && !w->job_compiling;
}

/* They have version 1, but for those that are told otherwise. */
static bool lacks[N], due[N];

bool worker_has_model(const struct worker *w, int64_t handle)
{
    return handle == 1 && !lacks[w->index];
}

static bool is_due(void *arg, const struct worker *w)
{
    (void)arg;
    return due[w->index];
}

static struct waits waits;
static bool is_new;

static int64_t look_ms(const struct worker *trainer)
{
    const struct waits_ask ask = {.trainer = trainer, .is_due = is_due};

    is_new = waits_look(&waits, NULL, &ask, now_ns);
    return waits_for(&waits, NULL, 1) / MS;
}

static int begin(void **state)
{
    (void)state;
    now_ns = 1000 * MS;
    waits = (struct waits){0};
    for (uint32_t i = 0; i < N; i++) {
        workers[i] =
            (struct worker){.index = i, .state = WORKER_STANDBY, .ctl_shm = {.base = &pages[i]}};
        pages[i] = (struct worker_ctl){.piece_since_ns = 0};
        lacks[i] = due[i] = false;
    }
    return 0;
}

static void one_that_is_free_is_enough(void **state)
{
    (void)state;
    assert_int_equal(look_ms(NULL), 0);
    workers[0].preparing = 7;
    assert_int_equal(look_ms(NULL), 0);
    workers[1].state = WORKER_ACTIVE; /* a run, after which it is free */
    assert_int_equal(look_ms(NULL), 0);
    workers[0].preparing = 0;
    workers[0].job_compiling = true;
    assert_int_equal(look_ms(NULL), 0);
}

static void where_none_takes_runs_nobody_knows_how_long(void **state)
{
    static const enum worker_state OTHERS[] = {WORKER_STARTING, WORKER_PARKED, WORKER_CLEANING,
                                               WORKER_DEAD};

    (void)state;
    workers[0].job_compiling = true;
    for (size_t i = 0; i < SH_ARRAY_LEN(OTHERS); i++) {
        workers[1].state = OTHERS[i];
        assert_int_equal(look_ms(&workers[1]), WAITS_NOBODY_NS / MS);
    }
    workers[1].state = WORKER_ACTIVE; /* it trains */
    assert_int_equal(look_ms(&workers[1]), WAITS_NOBODY_NS / MS);
}

/* Worker 1 loads, and is the only one that takes runs. */
static void begin_load(void)
{
    workers[0].state = WORKER_PARKED;
    workers[1].preparing = 7;
}

static void piece(uint32_t i, int64_t ms)
{
    worker_ctl_begin_piece(&pages[i], now_ns);
    now_ns += ms * MS;
    worker_ctl_end_piece(&pages[i], now_ns);
}

static void a_piece_is_waited_for_as_long_as_pieces_take(void **state)
{
    (void)state;
    begin_load();
    assert_int_equal(look_ms(&workers[0]), 0); /* nothing is known yet */
    worker_ctl_begin_piece(&pages[1], now_ns);
    now_ns += 43 * MS;
    assert_int_equal(look_ms(&workers[0]), 50);
    worker_ctl_end_piece(&pages[1], now_ns);
    assert_int_equal(look_ms(&workers[0]), 50);
    piece(1, 5);
    assert_int_equal(look_ms(&workers[0]), 50);
    worker_ctl_begin_piece(&pages[1], now_ns);
    now_ns += 110 * MS;
    assert_int_equal(look_ms(&workers[0]), 110);
    workers[1].preparing = 0;
    assert_int_equal(look_ms(&workers[0]), 0);
}

/* Pieces that nobody looked at count, runs between them do not. */
static void the_runs_between_two_pieces_are_no_wait(void **state)
{
    (void)state;
    begin_load();
    piece(1, 20);
    now_ns += 90 * MS; /* runs */
    assert_int_equal(look_ms(&workers[0]), 20);
    piece(1, 10);
    now_ns += 30 * MS;
    piece(1, 10);
    assert_int_equal(look_ms(&workers[0]), 20);
}

static void a_long_piece_counts_for_a_while(void **state)
{
    (void)state;
    begin_load();
    piece(1, 100);
    for (int i = 0; i < 70; i++)
        piece(1, 10);
    assert_int_equal(look_ms(&workers[0]), 100);
    for (int i = 0; i < 11; i++)
        piece(1, 10);
    assert_int_equal(look_ms(&workers[0]), 10);
    piece(1, 20000);
    assert_int_equal(look_ms(&workers[0]), 10000); /* the most that is told */
    now_ns += 10001 * MS;
    piece(1, 30);
    assert_int_equal(look_ms(&workers[0]), 30);
}

static void what_another_one_loaded_of_late_counts(void **state)
{
    (void)state;
    begin_load();
    piece(0, 200);
    piece(1, 10);
    assert_int_equal(look_ms(&workers[0]), 200);
    now_ns += 1600 * MS;
    piece(1, 10);
    assert_int_equal(look_ms(&workers[0]), 10);
}

static void a_worker_that_lacks_the_version_is_no_help(void **state)
{
    (void)state;
    piece(1, 40);
    lacks[0] = true;
    assert_int_equal(look_ms(NULL), 0); /* the other one is free */
    workers[1].preparing = 7;
    assert_int_equal(look_ms(NULL), 40);
    lacks[0] = false;
    workers[0].n_model_changes++;
    assert_int_equal(look_ms(NULL), 0);
    assert_true(is_new);
    lacks[0] = lacks[1] = true;
    assert_int_equal(look_ms(NULL), WAITS_NOBODY_NS / MS);
}

static void one_about_to_load_is_free_if_another_one_would_be(void **state)
{
    (void)state;
    piece(1, 40);
    now_ns += 3600000 * MS; /* its last load */
    due[0] = due[1] = true;
    assert_int_equal(look_ms(NULL), 0);
    lacks[0] = true;
    assert_int_equal(look_ms(NULL), 40);
    due[1] = false;
    assert_int_equal(look_ms(NULL), 0);
    workers[1].preparing = 7; /* no piece of this load has ended */
    assert_int_equal(look_ms(NULL), 40);
}

static void what_is_as_it_was_is_nothing_new(void **state)
{
    (void)state;
    look_ms(NULL);
    assert_true(is_new);
    now_ns += MS;
    look_ms(NULL);
    assert_false(is_new);
    begin_load();
    worker_ctl_begin_piece(&pages[1], now_ns);
    look_ms(NULL);
    assert_true(is_new);
    now_ns += 11 * MS;
    look_ms(NULL);
    assert_true(is_new);
    now_ns += 8 * MS;
    look_ms(NULL);
    assert_false(is_new); /* within the step that was told */
}

/* However long pieces were before, which is what is told of it. */
static void a_piece_that_takes_too_long_is_news(void **state)
{
    (void)state;
    begin_load();
    piece(1, WAITS_NOBODY_NS / MS);
    worker_ctl_begin_piece(&pages[1], now_ns);
    assert_int_equal(look_ms(&workers[0]), WAITS_NOBODY_NS / MS);
    workers[1].progress_ns = now_ns;
    look_ms(&workers[0]);
    now_ns += WAITS_NOBODY_NS - 1;
    look_ms(&workers[0]);
    assert_false(is_new);
    assert_false(waits_is_stuck(&workers[1], now_ns));
    now_ns++;
    look_ms(&workers[0]);
    assert_true(is_new);
    assert_true(waits_is_stuck(&workers[1], now_ns));
}

/* Between two pieces, where it should look for runs. */
static void one_that_shows_no_progress_for_long_hangs(void **state)
{
    (void)state;
    workers[1].progress_ns = now_ns;
    now_ns += WAITS_NOBODY_NS;
    assert_false(waits_is_stuck(&workers[1], now_ns)); /* it has nothing to do */
    workers[1].preparing = 7;
    assert_true(waits_is_stuck(&workers[1], now_ns));
    workers[1].progress_ns++;
    assert_false(waits_is_stuck(&workers[1], now_ns));
}

/* Whoever was told of it has forgotten its wait, which may be the same as before. */
static void a_version_that_begins_to_be_served_is_news(void **state)
{
    struct waits_ask ask = {.is_due = is_due};

    (void)state;
    assert_true(waits_look(&waits, NULL, &ask, now_ns));
    assert_false(waits_look(&waits, NULL, &ask, now_ns));
    ask.n_served_changes++;
    assert_true(waits_look(&waits, NULL, &ask, now_ns));
    assert_false(waits_look(&waits, NULL, &ask, now_ns));
}

/* Its page is no more than what it says. */
static void a_worker_may_write_what_it_likes(void **state)
{
    static const int64_t BAD[] = {INT64_MIN, -1, INT64_MAX};

    (void)state;
    begin_load();
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        for (size_t k = 0; k < SH_ARRAY_LEN(BAD); k++)
            for (size_t n = 0; n < SH_ARRAY_LEN(BAD); n++) {
                atomic_store(&pages[1].piece_since_ns, BAD[i]);
                atomic_store(&pages[1].long_piece_ns, BAD[k]);
                atomic_store(&pages[1].long_piece_end_ns, BAD[n]);
                assert_in_range(look_ms(&workers[0]), 0, WAITS_NOBODY_NS / MS);
            }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(one_that_is_free_is_enough),
        TEST(where_none_takes_runs_nobody_knows_how_long),
        TEST(a_piece_is_waited_for_as_long_as_pieces_take),
        TEST(the_runs_between_two_pieces_are_no_wait),
        TEST(a_long_piece_counts_for_a_while),
        TEST(what_another_one_loaded_of_late_counts),
        TEST(a_worker_that_lacks_the_version_is_no_help),
        TEST(one_about_to_load_is_free_if_another_one_would_be),
        TEST(what_is_as_it_was_is_nothing_new),
        TEST(a_piece_that_takes_too_long_is_news),
        TEST(one_that_shows_no_progress_for_long_hangs),
        TEST(a_version_that_begins_to_be_served_is_news),
        TEST(a_worker_may_write_what_it_likes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
