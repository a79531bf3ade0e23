/* test_lease.c - the lease where the database's clock is stepped or its disk is slow.
 *
 * Without it: nobody could lead for as long as the clock was stepped back, and a leader could lose
 * its lease again and again, and refuse requests meanwhile, because commits take long.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: scheduler/database/store.o */
/* link: -lpq */
#include "tests/db/lease_world.h"

static int set_up(void **state)
{
    return set_up_world(state, fill_job);
}

/* The clock was stepped back, or a server whose clock is behind took over; the holder is gone. */
static void a_lease_that_ends_later_than_it_could_is_free(void **state)
{
    struct world *w = *state;
    struct store_lease other = {.fence.holder = "b/2", .ttl_ms = 500};

    assert_ok(store_lease_acquire(w->b, &other, NULL));
    assert_false(other.held); /* its holder may have a longer one than we */
    run(w->a, "UPDATE lease SET expires_at = expires_at + interval '5 minutes'");
    assert_ok(store_lease_acquire(w->b, &other, NULL));
    assert_true(other.held);
    assert_int_equal(other.fence.epoch, w->fence.epoch + 1);
}

/* A slow disk would let it end: of what is lost with the server only time depends on it. */
static void renewing_does_not_wait_for_the_disk(void **state)
{
    struct world *w = *state;
    int64_t n = 0;

    run(w->a, "SET synchronous_commit = on");
    for (int i = 0; i < 50 && n == 0; i++) {
        assert_ok(store_lease_renew(w->a, &w->lease, NULL));
        n = number(w->b, "SELECT (pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn())::int");
    }
    assert_int_equal(n, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lease_that_ends_later_than_it_could_is_free),
        TEST(renewing_does_not_wait_for_the_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
