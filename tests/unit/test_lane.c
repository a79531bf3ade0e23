/* test_lane.c - marks that lanes reach and the executor's loop fetches; raising a ticket.
 *
 * Without it a mark could be lost, overwritten or given twice, so that a switch waits for a copy
 * that is done or a tenant's bytes move before theirs are; the loop could sleep beside a mark or
 * spin without one; and a raise could put a ticket back and leave a worker waiting.
 */
/* uses: runtime/device/lane.o */
#include "runtime/device/lane.h"
#include "tests/unit/sh_test.h"

#include <poll.h>

#define PER_LANE 40000 /* more than the ring holds */
#define LANES 3

static int set_up(void **state)
{
    struct dev_marks *m = calloc(1, sizeof(*m));

    assert_non_null(m);
    assert_ok(dev_marks_init(m, NULL));
    *state = m;
    return 0;
}

static int tear_down(void **state)
{
    dev_marks_fini(*state);
    free(*state);
    return 0;
}

static bool is_readable(const struct dev_marks *m)
{
    struct pollfd p = {.fd = m->event_fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void marks_come_in_their_order_and_the_descriptor_says_when(void **state)
{
    struct dev_marks *m = *state;
    uint64_t got = 0;

    for (uint64_t i = 0; i < 3; i++)
        assert_ok(dev_marks_promise(m, NULL));
    assert_false(dev_marks_next(m, &got));
    assert_false(is_readable(m)); /* what is only promised wakes nobody */
    for (uint64_t i = 10; i < 13; i++)
        dev_marks_reach(m, i);
    for (uint64_t i = 10; i < 13; i++) {
        assert_true(is_readable(m));
        assert_true(dev_marks_next(m, &got));
        assert_int_equal(got, i);
    }
    assert_false(is_readable(m));
    assert_false(dev_marks_next(m, &got));
}

static void room_is_promised_once_and_comes_back(void **state)
{
    struct dev_marks *m = *state;
    struct sh_err err = {0};
    uint64_t got = 0;

    for (uint32_t i = 0; i < DEV_MAX_MARKS; i++)
        assert_ok(dev_marks_promise(m, &err));
    assert_fails(dev_marks_promise(m, &err), SH_E_QUEUEFULL, &err, "marks are out");
    dev_marks_withdraw(m);
    assert_ok(dev_marks_promise(m, NULL));
    for (uint32_t i = 0; i < DEV_MAX_MARKS; i++)
        dev_marks_reach(m, i);
    assert_int_equal(dev_marks_promise(m, NULL), SH_E_QUEUEFULL); /* reached is not fetched */
    for (uint32_t i = 0; i < DEV_MAX_MARKS; i++) {
        assert_true(dev_marks_next(m, &got));
        assert_int_equal(got, i);
    }
    assert_ok(dev_marks_promise(m, NULL));
}

/* ------------------------------------------------------------------ lanes beside the loop */

struct lane {
    struct dev_marks *marks;
    uint32_t *ticket, index;
    pthread_t thread;
};

static void *lane_main(void *arg)
{
    struct lane *l = arg;

    for (uint32_t i = 1; i <= PER_LANE; i++) {
        while (dev_marks_promise(l->marks, NULL))
            sched_yield();
        dev_ticket_raise(l->ticket, i);
        dev_marks_reach(l->marks, (uint64_t)l->index << 32 | i);
    }
    return NULL;
}

static void lanes_lose_no_mark_and_keep_their_order(void **state)
{
    struct dev_marks *m = *state;
    uint32_t ticket = 0, last[LANES] = {0};
    struct lane lanes[LANES];

    for (uint32_t i = 0; i < LANES; i++) {
        lanes[i] = (struct lane){.marks = m, .ticket = &ticket, .index = i};
        assert_int_equal(pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]), 0);
    }
    for (uint32_t left = LANES * PER_LANE; left > 0; left--) {
        struct pollfd p = {.fd = m->event_fd, .events = POLLIN};
        uint64_t got = 0;

        assert_int_equal(poll(&p, 1, 60000), 1);
        assert_true(dev_marks_next(m, &got)); /* the descriptor never lies */
        assert_in_range(got >> 32, 0, LANES - 1);
        assert_int_equal((uint32_t)got, ++last[got >> 32]);
        assert_true(__atomic_load_n(&ticket, __ATOMIC_ACQUIRE) >= (uint32_t)got);
    }
    for (uint32_t i = 0; i < LANES; i++)
        pthread_join(lanes[i].thread, NULL);
    assert_false(is_readable(m));
    assert_int_equal(ticket, PER_LANE);
}

static void a_ticket_only_rises_and_goes_around(void **state)
{
    uint32_t word = 5;

    (void)state;
    assert_false(dev_ticket_raise(&word, 5));
    assert_false(dev_ticket_raise(&word, 4));
    assert_int_equal(word, 5);
    assert_true(dev_ticket_raise(&word, 9));
    assert_int_equal(word, 9);
    word = UINT32_MAX;
    assert_true(dev_ticket_raise(&word, 3)); /* four further on */
    assert_false(dev_ticket_raise(&word, UINT32_MAX));
    assert_int_equal(word, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(marks_come_in_their_order_and_the_descriptor_says_when,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(room_is_promised_once_and_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lanes_lose_no_mark_and_keep_their_order, set_up, tear_down),
        cmocka_unit_test(a_ticket_only_rises_and_goes_around),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
