/* test_sched_shares.c - what people are shown of the shares that passes decide by.
 *
 * Without it: a row could be written every second though nothing changes, or never again after one
 * write was lost. */
/* uses: scheduler/pass/shares.o scheduler/pass/pass.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

static struct peer x;

/* How many rows are written within the next while. */
static size_t rows(void)
{
    w.n_shares = 0;
    *world_count("share.put") = 0;
    stay(2 * SECOND);
    assert_true(*world_count("share.put") <= 1);
    return *world_count("share.put") ? w.n_shares : 0;
}

static struct tenant *tenant(void)
{
    return tenants_by_id(&w.s->tenants, 1);
}

static void nothing(void)
{
}
static void another_guarantee(void)
{
    w.tenants[0].guaranteed_gpus = 1;
}
static void another_limit(void)
{
    w.tenants[0].max_gpus = 5;
}
static void another_weight(void)
{
    w.tenants[0].weight = 2;
}
static void a_job_that_waits(void)
{
    add_job(6);
}
static void a_job_that_ends(void)
{
    w.jobs[0].gone = true;
}
static void more_usage(void)
{
    tenants_charge(&w.s->tenants, tenant(), 3600 * SECOND, sh_clock_ns());
}
static void hardly_more_usage(void)
{
    tenants_charge(&w.s->tenants, tenant(), 1000, sh_clock_ns());
}
static void a_device_less(void)
{
    peer_close(&x);
}
static void another_tenant(void)
{
    struct tenant *t;

    add_tenant(2, "u"); /* of whom there is nothing to say */
    assert_ok(tenants_get(&w.s->tenants, "young", &t, NULL));
    t->usage_ns = 1e12; /* nor is there a row for one that the database does not know */
}

static void a_row_is_written_when_its_numbers_change(void **state)
{
    static const struct {
        void (*change)(void);
        size_t n;
    } CASES[] = {{nothing, 0},        {another_guarantee, 1}, {another_limit, 1},
                 {another_weight, 1}, {a_job_that_waits, 1},  {a_job_that_ends, 1},
                 {more_usage, 1},     {hardly_more_usage, 0}, {a_device_less, 1},
                 {another_tenant, 0}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        world_begin(state);
        w.conf.grace_ms = 600000;
        add_job(5);
        world_lead();
        exec_up(&x, "x");
        assert_int_equal(rows(), 1);
        assert_true(w.shares[0].running_gpus == 1);
        assert_int_equal(rows(), 0);
        CASES[i].change();
        look_again();
        assert_int_equal(rows(), CASES[i].n);
        assert_int_equal(rows(), 0);
        world_end(state);
    }
}

static void a_row_that_was_not_written_is_written_the_next_time(void **state)
{
    (void)state;
    add_job(5);
    world_lead();
    db_fail("share.put", SH_E_INVALID, 1);
    exec_up(&x, "x");
    stay(3 * SECOND);
    assert_true(w.n_shares == 1 && w.shares[0].running_gpus == 1);
    more_usage();
    w.is_down = true;
    assert_int_equal(rows(), 0); /* it would only wait there */
    w.is_down = false;
    w.is_full = true;
    stay(2 * SECOND);
    assert_false(w.s->shares.writing);
    w.is_full = false;
    more_usage();
    w.held = "share.put";
    stay(2 * SECOND);
    assert_true(w.s->shares.writing); /* one at a time */
    add_tenant(2, "u");
    w.tenants[0] = w.tenants[1];
    w.n_tenants = 1; /* of whom the row is has gone meanwhile */
    look_again();
    db_fail("share.put", SH_E_INVALID, 1);
    w.held = NULL;
    turn();
    assert_false(w.s->shares.writing);
    w.n_tenants = 0;
    w.jobs[0].gone = true;
    look_again(); /* its last job goes, ... */
    look_again(); /* ... and then it */
    assert_int_equal(w.s->tenants.n, 0);
    assert_int_equal(rows(), 0);
}

static void a_refused_fence_ends_the_leadership(void **state)
{
    (void)state;
    add_job(5);
    world_lead();
    w.held = "lease";
    db_fail("share.put", SH_E_PRECONDITION, 1);
    exec_up(&x, "x");
    advance(SECOND);
    assert_int_equal(w.s->epoch, 0);
}

static void more_tenants_than_one_write_takes_get_their_turn(void **state)
{
    const size_t n = STORE_MAX_SHARES + 20;
    static char names[W_ROWS][8];

    (void)state;
    w.n_tenants = 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof(names[i]), "t%zu", i);
        add_tenant((int64_t)i + 1, names[i])->guaranteed_gpus = 1;
        w.tenants[i].lending_limit = 0; /* it is kept free for each of them */
    }
    world_lead();
    assert_int_equal(w.n_shares, STORE_MAX_SHARES);
    advance(1500 * MS);
    assert_int_equal(w.n_shares, 20);
    assert_int_equal(rows(), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_written_when_its_numbers_change),
        TEST(a_row_that_was_not_written_is_written_the_next_time),
        TEST(a_refused_fence_ends_the_leadership),
        TEST(more_tenants_than_one_write_takes_get_their_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
