/* test_usage.c - without it, a batch of usage that was said again could count twice, one of another
 * source not at all, a step that was done again could be paid for again, and what was used while
 * the database was away could be of the minute in which it came back.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: scheduler/database/store.o scheduler/database/store_usage.o */
/* link: -lpq */
#include "common/clock.h"
#include "tests/db/lease_world.h"

static int set_up(void **state)
{
    return set_up_world(state, fill_job);
}

static void usage_of_a_source_is_added_once_for_each_number(void **state)
{
    struct world *w = *state;
    struct msg_usage_row rows[] = {
        {.tenant = "research", .id = 1, .gpu_ns = 5, .requests = 1, .samples = 8},
        {.tenant = "research", .id = 2, .gpu_ns = 7}, /* another version of the same model */
        {.tenant = "vision", .id = 1, .gpu_ns = 2, .requests = 1},
        {.tenant = "gone", .id = 1, .gpu_ns = 7}, /* must not spoil the rest */
        {.tenant = "research", .id = 99, .gpu_ns = 7},
        {.kind = MSG_USAGE_JOB, .id = 99, .gpu_ns = 7},
        {.kind = MSG_USAGE_JOB, .id = 1, .gpu_ns = 30, .samples = 4, .step = 2},
    };
    struct store_usage u = {.fence = w->fence, .source = "a", .number = 2, .rows = rows, .n = 7};

    run(w->a, "INSERT INTO model_version (model_id, version, state, digest, package) VALUES (1, 2, "
              "'READY', repeat('d', 64), 'packages/d')");
    u.heard_ns = sh_clock_ns();
    assert_ok(store_usage_add(w->a, &u, NULL));
    assert_ok(store_usage_add(w->a, &u, NULL)); /* the same batch again */
    u.number = 1;
    assert_ok(store_usage_add(w->a, &u, NULL)); /* an older one */
    assert_int_equal(number(w->a, "SELECT sum(gpu_ns) FROM usage"), 5 + 7 + 2 + 30);
    assert_int_equal(number(w->a, "SELECT gpu_ns FROM usage WHERE tenant_id = 1 AND "
                                  "class = 'inference' AND requests = 1 AND samples = 8"),
                     12);
    assert_int_equal(number(w->a, "SELECT gpu_ns FROM usage WHERE tenant_id = 1 AND "
                                  "class = 'training' AND requests = 0 AND samples = 8"),
                     30);
    u.number = 3;
    assert_ok(store_usage_add(w->a, &u, NULL));
    sh_strlcpy(u.source, "b", sizeof(u.source)); /* another source with the same number */
    assert_ok(store_usage_add(w->a, &u, NULL));
    assert_int_equal(number(w->a, "SELECT sum(gpu_ns) FROM usage"), 3 * (5 + 7 + 2 + 30));
}

static void a_step_of_a_job_is_counted_once_whoever_did_it_again(void **state)
{
    struct world *w = *state;
    struct msg_usage_row rows[] = {
        {.kind = MSG_USAGE_JOB, .id = 1, .gpu_ns = 1, .samples = 4, .step = 7, .age_s = 0},
        {.kind = MSG_USAGE_JOB, .id = 1, .gpu_ns = 1, .samples = 4, .step = 5, .age_s = 120},
        {.kind = MSG_USAGE_JOB, .id = 1, .gpu_ns = 1, .samples = 4, .step = 0, .age_s = 240},
    };
    struct store_usage u = {.fence = w->fence, .source = "a", .number = 1, .rows = rows, .n = 3};

    u.heard_ns = sh_clock_ns();
    assert_ok(store_usage_add(w->a, &u, NULL));
    assert_int_equal(number(w->a, "SELECT count(*) FROM usage"), 3);
    assert_int_equal(number(w->a, "SELECT samples FROM usage ORDER BY minute LIMIT 1"), 0);
    assert_int_equal(number(w->a, "SELECT samples FROM usage ORDER BY minute LIMIT 1 OFFSET 1"),
                     20);
    assert_int_equal(number(w->a, "SELECT samples FROM usage ORDER BY minute DESC LIMIT 1"), 8);
    /* Another executor goes on from step 3; what the first one had still to say comes late. */
    sh_strlcpy(u.source, "b", sizeof(u.source));
    rows[0].step = 9;
    u.n = 1;
    assert_ok(store_usage_add(w->a, &u, NULL));
    sh_strlcpy(u.source, "a", sizeof(u.source));
    u.number = 2;
    rows[0].step = 8;
    assert_ok(store_usage_add(w->a, &u, NULL));
    assert_int_equal(number(w->a, "SELECT sum(samples) FROM usage"), 4 * 9);
    assert_int_equal(number(w->a, "SELECT sum(gpu_ns) FROM usage"), 5);
    assert_int_equal(number(w->a, "SELECT step FROM usage_job"), 9);
}

static void usage_is_of_the_minute_in_which_it_was_used(void **state)
{
    struct world *w = *state;
    struct msg_usage_row rows[] = {
        {.tenant = "research", .id = 1, .requests = 1, .age_s = 600},
        {.tenant = "research", .id = 1, .requests = 1, .age_s = 7200},
    };
    struct store_usage u = {.fence = w->fence, .source = "a", .number = 1, .rows = rows, .n = 2};

    u.heard_ns = sh_clock_ns() - 3600 * INT64_C(1000000000); /* the database was away */
    assert_ok(store_usage_add(w->a, &u, NULL));
    assert_int_equal(
        number(w->a, "SELECT count(*) FROM usage WHERE minute = date_trunc('minute', minute) AND "
                     "now() - minute - interval '4200 s' BETWEEN interval '0' AND interval '90 s'"),
        1);
    assert_int_equal(
        number(w->a, "SELECT count(*) FROM usage WHERE now() - minute - interval '10800 s' BETWEEN "
                     "interval '0' AND interval '90 s'"),
        1);
}

static void a_tenant_may_have_any_name_that_is_one(void **state)
{
    struct world *w = *state;
    struct msg_usage_row rows[] = {
        {.tenant = "null", .id = 1, .gpu_ns = 3, .requests = 1},
        {.tenant = "research", .id = 1, .gpu_ns = 5, .requests = 1},
    };
    struct store_usage u = {.fence = w->fence, .source = "a", .number = 1, .rows = rows, .n = 2};

    run(w->a, "INSERT INTO tenant (name) VALUES ('null')");
    u.heard_ns = sh_clock_ns();
    assert_ok(store_usage_add(w->a, &u, NULL));
    assert_int_equal(number(w->a, "SELECT sum(gpu_ns) FROM usage"), 3 + 5);
    assert_int_equal(number(w->a, "SELECT gpu_ns FROM usage JOIN tenant ON tenant.id = tenant_id "
                                  "WHERE name = 'null'"),
                     3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(usage_of_a_source_is_added_once_for_each_number),
        TEST(a_step_of_a_job_is_counted_once_whoever_did_it_again),
        TEST(usage_is_of_the_minute_in_which_it_was_used),
        TEST(a_tenant_may_have_any_name_that_is_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
