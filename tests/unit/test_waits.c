/* test_waits.c - how long a run may wait for a worker, by what the workers do.
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
static struct waits waits;
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

static int64_t look_ms(const struct worker *trainer)
{
    return waits_look(&waits, NULL, trainer, now_ns) / MS;
}

static int begin(void **state)
{
    (void)state;
    waits = (struct waits){.longest_ns = 0};
    now_ns = 1000 * MS;
    for (uint32_t i = 0; i < N; i++) {
        workers[i] = (struct worker){.index = i, .state = WORKER_STANDBY, .ctl = &pages[i]};
        atomic_store(&pages[i].load_done, 0);
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

/* By the longest piece of late, or the present one. */
static void a_piece_is_waited_for_as_long_as_pieces_take(void **state)
{
    (void)state;
    workers[0].state = WORKER_PARKED;
    workers[1].preparing = 7;
    assert_int_equal(look_ms(&workers[0]), 0); /* nothing is known yet */
    now_ns += 43 * MS;
    assert_int_equal(look_ms(&workers[0]), 50);
    atomic_fetch_add(&pages[1].load_done, 1);
    assert_int_equal(look_ms(&workers[0]), 50);
    now_ns += 5 * MS;
    atomic_fetch_add(&pages[1].load_done, 1);
    assert_int_equal(look_ms(&workers[0]), 50);
    now_ns += 110 * MS;
    assert_int_equal(look_ms(&workers[0]), 110);
    workers[1].preparing = 8; /* the end of a model is that of a piece, and not of this one */
    assert_int_equal(look_ms(&workers[0]), 50);
    now_ns += 61000 * MS;
    atomic_fetch_add(&pages[1].load_done, 1);
    workers[1].preparing = 0;
    assert_int_equal(look_ms(&workers[0]), 0);
    workers[1].preparing = 9;
    now_ns += MS;
    look_ms(&workers[0]);
    now_ns += MS;
    atomic_fetch_add(&pages[1].load_done, 1);
    assert_int_equal(look_ms(&workers[0]), 10); /* what was long ago says nothing of now */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(one_that_is_free_is_enough),
        TEST(where_none_takes_runs_nobody_knows_how_long),
        TEST(a_piece_is_waited_for_as_long_as_pieces_take),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
