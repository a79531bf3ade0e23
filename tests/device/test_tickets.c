/* test_tickets.c - tickets of one lane: their order, and those that the watchdog forces.
 *
 * Without it a worker could compute with weights that are not there: a ticket raised before its
 * copy, or one that falls behind the value that a later one gave it.
 */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "tests/device/dev_test.h"

#include <stdlib.h>

#define POOL ((size_t)32 << 20)
#define WAIT_MS 60000
#define BURSTS 400
#define MOST_IN_A_BURST 12u
#define PIECE ((size_t)64 << 10)
#define LONG_PIECE ((size_t)16 << 20)

static struct dev_mem *open_lane(void)
{
    struct dev_mem_conf c = {.pool_bytes = POOL, .n_lanes = 1};
    struct dev_mem *m = NULL;
    struct sh_err err = {0};

    assert_ok_err(dev_mem_open(t_lib(), &c, &m, &err), &err);
    return m;
}

static void a_wait_times_out_and_force_frees_it(void **state)
{
    struct dev_mem *m = open_lane();
    struct dev *d = t_open_worker(m);
    struct sh_err err = {0};

    (void)state;
    if (dev_is_queued(d))
        assert_ok_err(dev_wait(d, 9, 5, 20, &err), &err);
    else
        assert_fails(dev_wait(d, 9, 5, 20, &err), SH_E_TIMEOUT, &err, "ticket 9 did not reach 5");
    assert_false(dev_has_ticket(d, 9, 5));
    dev_ticket_force(m, 9, 7);
    assert_true(dev_has_ticket(d, 9, 5) && dev_has_ticket(d, 9, 7) && !dev_has_ticket(d, 9, 8));
    assert_false(dev_has_ticket(d, DEV_N_TICKETS, 0));
    err = (struct sh_err){0};
    assert_ok_err(dev_wait(d, 9, 5, 0, &err), &err);
    assert_ok_err(dev_sync(d, &err), &err);
    dev_ticket_force(m, 9, 6); /* never back */
    assert_int_equal(dev_ticket_value(m, 9), 7);
    dev_close(d);
    dev_mem_close(m);
}

/* Writes of earlier tickets may be on their way when the watchdog forces a later one. */
static void a_forced_ticket_stays_when_the_lane_catches_up(void **state)
{
    struct dev_mem *m = open_lane();
    struct dev *d = t_open_worker(m);
    unsigned char *host = t_pattern(LONG_PIECE);
    struct sh_err err = {0};

    (void)state;
    assert_ok_err(dev_mem_host_lock(m, host, LONG_PIECE, &err), &err);
    for (uint32_t v = 1; v <= 20; v++) {
        assert_ok(dev_mem_copy(m, 0, DEV_H2D, 0, host, LONG_PIECE, &err));
        assert_ok(dev_mem_ticket(m, 0, 9, v, &err));
    }
    dev_ticket_force(m, 9, 30);
    assert_ok(dev_mem_mark(m, 0, 1, &err));
    t_wait_mark(m);
    assert_int_equal(dev_ticket_value(m, 9), 30);
    assert_ok_err(dev_wait(d, 9, 30, WAIT_MS, &err), &err);
    assert_ok_err(dev_sync(d, &err), &err);
    dev_mem_host_unlock(m, host);
    dev_close(d);
    dev_mem_close(m);
    free(host);
}

static void tickets_wrap_around(void **state)
{
    struct dev_mem *m = open_lane();
    struct dev *d = t_open_worker(m);
    struct sh_err err = {0};

    (void)state;
    dev_ticket_force(m, 0, INT32_MAX);
    dev_ticket_force(m, 0, UINT32_MAX - 1); /* at most 2^31 - 1 further */
    assert_int_equal(dev_ticket_value(m, 0), UINT32_MAX - 1);
    assert_ok(dev_mem_ticket(m, 0, 0, 2, &err)); /* 4 further */
    assert_ok_err(dev_wait(d, 0, 1, WAIT_MS, &err), &err);
    assert_ok_err(dev_sync(d, &err), &err);
    assert_int_equal(dev_ticket_value(m, 0), 2);
    dev_close(d);
    dev_mem_close(m);
}

/* Each ticket of a burst, and each burst, may be put elsewhere by the back end. */
static void tickets_are_raised_in_the_order_of_their_lane(void **state)
{
    static const uint32_t SLOTS[] = {3, 200};
    struct dev_mem *m = open_lane();
    unsigned char *host = t_pattern(LONG_PIECE);
    uint32_t given[SH_ARRAY_LEN(SLOTS)] = {0}, seen[SH_ARRAY_LEN(SLOTS)] = {0}, random = 1;
    struct sh_err err = {0};

    (void)state;
    assert_ok_err(dev_mem_host_lock(m, host, LONG_PIECE, &err), &err);
    for (uint32_t i = 0; i < BURSTS; i++) {
        const int64_t until = sh_clock_ns() + SH_US(i % 5 * 20);

        for (uint32_t n = 1 + i % MOST_IN_A_BURST; n > 0; n--) {
            const uint32_t k = (random = random * 1664525 + 1013904223) >> 31;

            assert_ok_err(dev_mem_copy(m, 0, DEV_H2D, 0, host, PIECE, &err), &err);
            assert_ok_err(dev_mem_ticket(m, 0, SLOTS[k], ++given[k], &err), &err);
        }
        do { /* the next burst finds all, some or none of them raised */
            for (size_t k = 0; k < SH_ARRAY_LEN(SLOTS); k++) {
                const uint32_t now = dev_ticket_value(m, SLOTS[k]);

                assert_true(now >= seen[k] && now <= given[k]);
                seen[k] = now;
            }
        } while (sh_clock_ns() < until);
    }
    assert_ok_err(dev_mem_mark(m, 0, 1, &err), &err);
    t_wait_mark(m);
    for (size_t k = 0; k < SH_ARRAY_LEN(SLOTS); k++)
        assert_int_equal(dev_ticket_value(m, SLOTS[k]), given[k]);
    dev_mem_host_unlock(m, host);
    dev_mem_close(m);
    free(host);
}

/* A mark says that the lane's tickets are raised, too: who comes after it may use them again. */
static void a_mark_stands_behind_the_tickets(void **state)
{
    struct dev_mem *m = open_lane();
    unsigned char *host = t_pattern(LONG_PIECE);
    struct sh_err err = {0};

    (void)state;
    assert_ok_err(dev_mem_host_lock(m, host, LONG_PIECE, &err), &err);
    for (uint32_t v = 1; v <= BURSTS; v += 2) {
        assert_ok_err(dev_mem_copy(m, 0, DEV_H2D, 0, host, PIECE, &err), &err);
        assert_ok_err(dev_mem_ticket(m, 0, 7, v, &err), &err);
        assert_ok_err(dev_mem_ticket(m, 0, 7, v + 1, &err),
                      &err); /* behind one that is not raised */
        assert_ok_err(dev_mem_mark(m, 0, v, &err), &err);
        t_wait_mark(m);
        assert_int_equal(dev_ticket_value(m, 7), v + 1);
    }
    dev_mem_host_unlock(m, host);
    dev_mem_close(m);
    free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tickets_are_raised_in_the_order_of_their_lane),
        cmocka_unit_test(a_mark_stands_behind_the_tickets),
        cmocka_unit_test(a_wait_times_out_and_force_frees_it),
        cmocka_unit_test(a_forced_ticket_stays_when_the_lane_catches_up),
        cmocka_unit_test(tickets_wrap_around),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
