/* test_tenants.c - without it, a scheduler that leads for long would keep every tenant that there
 * ever was, and one day take up no new one, nor anything else that a look at the database tells;
 * or a new tenant would have the limits of a deleted one of its name. */
/* uses: scheduler/peers/tenants.o scheduler/decide/job.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o */
/* uses: scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
#include "common/metrics.h"
#include "scheduler/peers/tenants.h"
#include "tests/unit/sh_test.h"

#define MOST 1000

/* A look at the database that finds these tenants and no other. */
static void look(struct tenants *t, uint64_t poll, struct store_tenant *rows, size_t n)
{
    const struct store_view v = {.tenants = rows, .n_tenants = n, .with_tenants = true};
    struct sh_err err = {0};

    assert_ok_err(tenants_merge(t, &v, poll, 0, &err), &err);
}

static void tenants_that_are_deleted_make_room(void **state)
{
    struct tenants t = {.half_life_s = 3600, .most = MOST};
    char name[24];

    (void)state;
    for (int64_t i = 1; i <= 3 * MOST; i++) {
        struct store_tenant row = {.id = i, .name = name, .active = true, .memory.share = 1};

        snprintf(name, sizeof(name), "t%lld", (long long)i);
        look(&t, (uint64_t)i, &row, 1);
        assert_int_equal(t.n, 1);
        assert_non_null(tenants_by_id(&t, i));
        assert_null(tenants_by_id(&t, i - 1));
    }
    tenants_fini(&t);
}

static void one_that_is_deleted_stays_without_rights_until_its_last_request(void **state)
{
    struct store_tenant rows[] = {{.id = 1, .name = "a", .active = true, .memory.share = 1},
                                  {.id = 2, .name = "b", .active = false, .memory.share = 1}};
    struct tenants t = {.half_life_s = 3600, .most = MOST};
    struct tenant *a, *b, *young = NULL;

    (void)state;
    look(&t, 1, rows, 2);
    a = tenants_by_id(&t, 1);
    b = tenants_by_id(&t, 2);
    assert_true(a && a->active && b && !b->active); /* b is suspended */
    assert_ok(tenants_get(&t, "young", &young, NULL));
    a->n_requests = young->n_requests = 1;
    look(&t, 2, rows + 1, 1);
    assert_int_equal(t.n, 3);
    assert_true(!a->active && young->active && !b->active); /* young: the look may be older */
    a->n_requests = young->n_requests = 0;
    look(&t, 3, rows + 1, 1);
    assert_int_equal(t.n, 1);
    assert_ptr_equal(tenants_by_id(&t, 2), b);
    tenants_fini(&t);
}

/* Executors keep by name what they were told: the next tenant of that name would have it. */
static void limits_of_memory_are_taken_back_before_a_tenant_goes(void **state)
{
    (void)state;
    for (int is_suspended = 0; is_suspended < 2; is_suspended++) {
        struct store_tenant row = {
            .id = 1, .name = "a", .active = true, .memory = {.max_bytes = 1 << 20, .share = 1}};
        struct tenants t = {.half_life_s = 3600, .most = MOST};
        struct tenant *a;

        look(&t, 1, &row, 1);
        row.active = !is_suspended;
        look(&t, 2, &row, 1);
        a = tenants_by_id(&t, 1);
        assert_true(a && a->memory_change == 1);
        tenants_untouch(a);
        look(&t, 3, NULL, 0);
        assert_int_equal(t.n, 1);
        assert_true(!a->active && a->memory.max_bytes == 0 && a->memory_change == 2);
        assert_non_null(a->touched_at); /* what is decided about its jobs rests on that */
        look(&t, 4, NULL, 0);
        assert_int_equal(t.n, 0);
        tenants_fini(&t);
    }
}

static void names_have_1_to_63_characters(void **state)
{
    char name[65];
    struct tenants t = {.half_life_s = 3600, .most = MOST};
    struct store_tenant rows[] = {{.id = 1, .name = name, .active = true, .memory.share = 1},
                                  {.id = 2, .name = "b", .active = true, .memory.share = 1}};
    const struct store_view v = {.tenants = rows, .n_tenants = 2, .with_tenants = true};

    (void)state;
    for (size_t n = 0; n < sizeof(name); n++) {
        const bool is_good = n >= 1 && n <= 63;
        struct sh_err err = {0};
        struct tenant *x;

        memset(name, 'a', n);
        name[n] = '\0';
        assert_int_equal(tenants_get(&t, name, &x, &err), is_good ? SH_OK : SH_E_INVALID);
        err = (struct sh_err){0};
        assert_int_equal(tenants_merge(&t, &v, n, 0, &err), is_good ? SH_OK : SH_E_INVALID);
        assert_int_equal(!!tenants_by_id(&t, 2), n > 0); /* what is behind a wrong row waits */
    }
    tenants_fini(&t);
}

/* One of the same name that was made anew, within one look. */
static void a_name_that_another_one_has_now_is_his(void **state)
{
    struct store_tenant row = {.id = 1, .name = "a", .active = true, .memory.share = 1};
    struct tenants t = {.half_life_s = 3600, .most = MOST};

    (void)state;
    look(&t, 1, &row, 1);
    row.id = 2;
    look(&t, 2, &row, 1);
    assert_int_equal(t.n, 1);
    assert_null(tenants_by_id(&t, 1));
    assert_ptr_equal(tenants_by_id(&t, 2), t.items[0]);
    tenants_fini(&t);
}

static void each_limit_of_memory_that_changes_is_a_change(void **state)
{
    static const struct store_memory STEPS[] = {{.share = 1},
                                                {.share = 0.5},
                                                {.share = 0.5, .host_max_bytes = 1},
                                                {.share = 0.5, .host_max_bytes = 1, .min_bytes = 1},
                                                {.share = 1}};
    struct store_tenant row = {.id = 1, .name = "a", .active = true};
    struct tenants t = {.half_life_s = 3600, .most = MOST};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(STEPS) / sizeof(STEPS[0]); i++) {
        row.memory = STEPS[i / 2];
        look(&t, i + 1, &row, 1);
        assert_int_equal(t.memory_changes, i / 2);
    }
    tenants_fini(&t);
}

static void past_usage_is_of_those_that_are_there(void **state)
{
    struct store_tenant row = {.id = 1, .name = "a", .active = true, .memory.share = 1};
    int64_t ids[] = {7, 1};
    double ns[] = {1e9, 2e9};
    const struct store_view v = {.tenants = &row,
                                 .n_tenants = 1,
                                 .with_tenants = true,
                                 .usage_tenant = ids,
                                 .usage_ns = ns,
                                 .n_usage = 2};
    struct tenants t = {.half_life_s = 1, .most = MOST};
    struct sh_err err = {0};

    (void)state;
    assert_ok_err(tenants_merge(&t, &v, 1, 0, &err), &err);
    assert_true(tenants_usage_ns(&t, t.items[0], 1000000000) == 1e9);
    row.name = "";
    ns[1] = 5;
    assert_fails(tenants_merge(&t, &v, 2, 0, &err), SH_E_INVALID, &err, "1 to 63");
    assert_true(t.items[0]->usage_ns == 2e9);
    tenants_fini(&t);
}

/* As many rows as are read at most: there may be more. */
static void who_is_not_among_all_that_were_read_may_be_there(void **state)
{
    static struct store_tenant rows[MOST];
    struct store_tenant other = {.id = 2, .name = "b", .active = true, .memory.share = 1};
    struct tenants t = {.half_life_s = 3600, .most = MOST};
    const struct store_view nothing = {.n_tenants = 0};

    (void)state;
    for (size_t i = 0; i < MOST; i++)
        rows[i] = (struct store_tenant){.id = 1, .name = "a", .active = true, .memory.share = 1};
    look(&t, 1, &other, 1);
    assert_ok(tenants_merge(&t, &nothing, 2, 0, NULL));
    look(&t, 3, rows, MOST);
    assert_int_equal(t.n, 2);
    look(&t, 4, rows, MOST - 1);
    assert_int_equal(t.n, 1);
    tenants_fini(&t);
}

/* Rows are read in the order of their ids, so who is not among those up to the last one is gone. */
static void tenants_come_and_go_where_there_are_as_many_as_may_be(void **state)
{
    struct tenants t = {.half_life_s = 3600, .most = 3};
    char name[3][24];
    struct store_tenant rows[3];
    struct tenant *unknown;

    (void)state;
    for (int64_t first = 1; first <= 20; first++) {
        for (int64_t k = 0; k < 3; k++) {
            snprintf(name[k], sizeof(name[k]), "t%lld", (long long)(first + k));
            rows[k] = (struct store_tenant){
                .id = first + k, .name = name[k], .active = true, .memory.share = 1};
        }
        look(&t, (uint64_t)first, rows, 3);
        assert_int_equal(t.n, 3);
        assert_ok(tenants_get(&t, "u", &unknown, NULL)); /* an API names it */
    }
    assert_null(tenants_by_id(&t, 19));
    tenants_fini(&t);
}

static void there_are_no_more_than_so_many(void **state)
{
    struct tenants t = {.half_life_s = 3600, .most = MOST};
    struct sh_err err = {0};
    struct tenant *x;
    char name[24];

    (void)state;
    for (int i = 0; i < 2 * MOST; i++) {
        snprintf(name, sizeof(name), "t%06d", i);
        assert_ok(tenants_get(&t, name, &x, NULL));
    }
    assert_fails(tenants_get(&t, "u", &x, &err), SH_E_TOOBIG, &err, "--max-tenants");
    assert_ok(tenants_get(&t, name, &x, NULL));
    tenants_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tenants_that_are_deleted_make_room),
        cmocka_unit_test(one_that_is_deleted_stays_without_rights_until_its_last_request),
        cmocka_unit_test(limits_of_memory_are_taken_back_before_a_tenant_goes),
        cmocka_unit_test(names_have_1_to_63_characters),
        cmocka_unit_test(a_name_that_another_one_has_now_is_his),
        cmocka_unit_test(each_limit_of_memory_that_changes_is_a_change),
        cmocka_unit_test(past_usage_is_of_those_that_are_there),
        cmocka_unit_test(who_is_not_among_all_that_were_read_may_be_there),
        cmocka_unit_test(tenants_come_and_go_where_there_are_as_many_as_may_be),
        cmocka_unit_test(there_are_no_more_than_so_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
