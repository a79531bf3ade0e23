/* test_lease_watch.c - when a leader that cannot renew its lease has to stop.
 *
 * Without it: a leader cut off from the database alone could go on beside the one that takes over,
 * or a database that is away for all could end requests that need none. */
/* uses: scheduler/decide/lease_watch.o */
#include "scheduler/decide/lease_watch.h"
#include "tests/unit/sh_test.h"

#define MS INT64_C(1000000)
#define TTL (5000 * MS)
#define START (1000 * MS) /* of the last good renewal */

static struct lease_watch good(void)
{
    struct lease_watch w = {0};

    lease_watch_on_try(&w, START);
    lease_watch_on_success(&w, START);
    return w;
}

static void a_leader_cut_off_alone_stops_before_its_lease_ends(void **state)
{
    struct lease_watch w = good();

    (void)state;
    lease_watch_on_try(&w, START + 1667 * MS);
    assert_false(lease_watch_on_word(&w, TTL, START + 1700 * MS)); /* on its way since before */
    assert_true(lease_watch_on_word(&w, TTL, START + 2200 * MS));
    assert_false(lease_watch_on_word(&w, TTL, START + 3000 * MS)); /* one reason to try is enough */
    assert_false(lease_watch_is_lost(&w, TTL, START + 4100 * MS)); /* there is still time */
    assert_true(lease_watch_is_lost(&w, TTL, START + 4200 * MS));
}

static void a_database_that_is_away_for_all_stops_nobody(void **state)
{
    struct lease_watch w = good();

    (void)state;
    assert_false(lease_watch_on_word(&w, TTL, START + 900 * MS)); /* before it went away */
    for (int i = 1; i < 100; i++) {
        lease_watch_on_try(&w, START + i * 1667 * MS);
        assert_false(lease_watch_is_lost(&w, TTL, START + i * 1667 * MS));
    }
}

static void when_the_database_is_back_the_leader_has_a_moment_to_renew(void **state)
{
    struct lease_watch w = good();
    int64_t back = START + 60000 * MS;

    (void)state;
    lease_watch_on_try(&w, START + 1667 * MS);
    assert_true(lease_watch_on_word(&w, TTL, back)); /* an API was faster */
    assert_false(lease_watch_is_lost(&w, TTL, back + 400 * MS));
    lease_watch_on_success(&w, back + 1 * MS);
    assert_false(lease_watch_is_lost(&w, TTL, back + 4900 * MS));
}

static void the_lease_counts_from_the_begin_of_the_renewal(void **state)
{
    struct lease_watch w = good();

    (void)state;
    lease_watch_on_try(&w, START + 1000 * MS);
    lease_watch_on_success(&w, START + 1000 * MS); /* whenever the answer came */
    lease_watch_on_try(&w, START + 2667 * MS);
    lease_watch_on_word(&w, TTL, START + 3200 * MS);
    assert_false(lease_watch_is_lost(&w, TTL, START + 5100 * MS));
    assert_true(lease_watch_is_lost(&w, TTL, START + 5200 * MS));
}

static void who_does_not_lead_has_nothing_to_lose(void **state)
{
    struct lease_watch w = {0};

    (void)state;
    lease_watch_on_try(&w, START);
    lease_watch_on_word(&w, TTL, START + 1);
    assert_false(lease_watch_is_lost(&w, TTL, START + 100 * TTL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leader_cut_off_alone_stops_before_its_lease_ends),
        cmocka_unit_test(a_database_that_is_away_for_all_stops_nobody),
        cmocka_unit_test(when_the_database_is_back_the_leader_has_a_moment_to_renew),
        cmocka_unit_test(the_lease_counts_from_the_begin_of_the_renewal),
        cmocka_unit_test(who_does_not_lead_has_nothing_to_lose),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
