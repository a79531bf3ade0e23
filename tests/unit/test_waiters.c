/* test_waiters.c - requests that sleep until the database changes.
 *
 * Without it: more could wait than --max-waits allows, one could sleep for ever, or be woken again
 * and again by one change. */
/* uses: api/cache/waiters.o */
#include "api/cache/waiters.h"
#include "api/request/front.h"
#include "tests/unit/sh_test.h"

#define MOST 200u

static struct waiters *waiters;
static struct api_req reqs[MOST];
static size_t n_woken[MOST];
static bool adds_again;

static void on_wake(struct api_req *q)
{
    n_woken[q - reqs]++;
    if (adds_again)
        assert_ok(waiters_add(waiters, q, NULL));
}

static struct api_req *req(size_t i)
{
    static const struct api_front FRONT = {.wake = on_wake};

    reqs[i].front = &FRONT;
    return &reqs[i];
}

static void all_are_woken_once_though_they_wait_again(void **state)
{
    (void)state;
    assert_ok(waiters_new(MOST, &waiters, NULL));
    for (size_t i = 0; i < MOST; i++)
        assert_ok(waiters_add(waiters, req(i), NULL));
    adds_again = true;
    waiters_wake(waiters);
    adds_again = false;
    for (size_t i = 0; i < MOST; i++)
        assert_int_equal(n_woken[i], 1);
    waiters_close(waiters);
    for (size_t i = 0; i < MOST; i++)
        assert_int_equal(n_woken[i], 2);
    waiters_free(waiters);
}

static void few_that_wait_again_are_not_woken_by_the_same_change(void **state)
{
    (void)state;
    memset(n_woken, 0, sizeof(n_woken));
    assert_ok(waiters_new(MOST, &waiters, NULL));
    for (size_t i = 0; i < 3; i++)
        assert_ok(waiters_add(waiters, req(i), NULL));
    adds_again = true;
    waiters_wake(waiters);
    adds_again = false;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(n_woken[i], 1);
    waiters_close(waiters);
    waiters_free(waiters);
}

static void one_too_many_is_refused_with_the_option(void **state)
{
    struct sh_err err = {0};

    (void)state;
    assert_ok(waiters_new(2, &waiters, NULL));
    assert_ok(waiters_add(waiters, req(0), NULL));
    assert_ok(waiters_add(waiters, req(1), NULL));
    assert_fails(waiters_add(waiters, req(2), &err), SH_E_QUEUEFULL, &err, "max-waits");
    waiters_wake(waiters);
    assert_ok(waiters_add(waiters, req(2), NULL));
    waiters_close(waiters);
    err = (struct sh_err){0};
    assert_fails(waiters_add(waiters, req(2), &err), SH_E_UNAVAILABLE, &err, "shutting down");
    waiters_free(waiters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_woken_once_though_they_wait_again),
        cmocka_unit_test(few_that_wait_again_are_not_woken_by_the_same_change),
        cmocka_unit_test(one_too_many_is_refused_with_the_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
