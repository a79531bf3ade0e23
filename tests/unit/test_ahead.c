/* test_ahead.c - Without it: a dataset larger than memory could be read from the disk sample by
 * sample, be asked for as a whole at once, or stay in memory when it was used. */
/* uses: executor/worker/ahead.o runtime/model/order.o libcommon.a */
/* link: -Wl,--wrap=madvise */
#include "common/mem.h"
#include "executor/worker/ahead.h"
#include "tests/unit/sh_test.h"

#include <stdint.h>
#include <sys/mman.h>

enum { N = 1003, WINDOW = 128, BATCH = 32, BYTES = 8192, EPOCHS = 3 };

static char *const BASE = (char *)(UINT64_C(1) << 40); /* nobody reads there */
static bool there[N + 1];
static size_t longest;

int __wrap_madvise(void *at, size_t bytes, int advice);

int __wrap_madvise(void *at, size_t bytes, int advice)
{
    const size_t first = (size_t)((char *)at - BASE);

    assert_true((char *)at >= BASE && first + bytes <= (size_t)N * BYTES);
    assert_int_equal(first % 4096, 0);
    if (advice == MADV_WILLNEED)
        longest = SH_MAX(longest, bytes);
    for (size_t i = first / BYTES; i < (first + bytes + BYTES - 1) / BYTES; i++)
        there[i] = advice == MADV_WILLNEED;
    return 0;
}

/* *late: samples that were not asked for before they were given. */
static void run(struct ahead *a, int64_t from, int64_t to, int64_t *late, int64_t *most)
{
    static uint32_t order[N];
    const int64_t per_epoch = N / BATCH;

    for (int64_t step = from; step < to; step++) {
        const int64_t epoch = step / per_epoch, first = step % per_epoch * BATCH;
        int64_t n = 0;

        order_draw(&a->order, epoch, ahead_runs(a, epoch), order);
        for (int64_t k = first; k < first + BATCH; k++)
            *late += !there[order[k]];
        ahead_step(a, epoch, first, BATCH);
        for (int64_t i = 0; i < N; i++)
            n += there[i];
        *most = SH_MAX(*most, n);
    }
}

static void samples_are_asked_for_before_they_are_given(void **state)
{
    const struct ahead_column column = {BASE, BYTES};
    const struct order o = order_of(5, true, WINDOW, N, BYTES);
    const int64_t steps = EPOCHS * (N / BATCH);
    int64_t late = 0, most = 0;
    struct ahead a;

    (void)state;
    memset(there, 0, sizeof(there));
    assert_ok(ahead_init(&a, &o, &column, 1, EPOCHS * N, NULL));
    run(&a, 0, 1, &late, &most);
    assert_int_equal(late, BATCH); /* nobody could know */
    run(&a, 1, steps, &late, &most);
    /* Where a run is let go of one epoch and was asked for by the next it is in memory still. */
    assert_in_range(late, BATCH, 3 * WINDOW);
    assert_in_range(most, WINDOW, 3 * WINDOW);
    assert_true(longest <= 128 << 10);
    /* It goes on at another step, as after a stop. */
    memset(there, 0, sizeof(there));
    late = most = 0;
    run(&a, 7, 8, &late, &most);
    run(&a, 8, 20, &late, &most);
    assert_in_range(late, BATCH, 2 * WINDOW);
    ahead_fini(&a);
}

static void what_fits_into_memory_is_left_alone(void **state)
{
    const struct ahead_column column = {BASE, BYTES};
    const struct order o = order_of(5, true, 0, N, BYTES);
    int64_t late = 0, most = 0;
    struct ahead a;

    (void)state;
    memset(there, 0, sizeof(there));
    assert_ok(ahead_init(&a, &o, &column, 1, EPOCHS * N, NULL));
    run(&a, 0, 9, &late, &most);
    assert_int_equal(most, 0);
    ahead_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_asked_for_before_they_are_given),
        cmocka_unit_test(what_fits_into_memory_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
