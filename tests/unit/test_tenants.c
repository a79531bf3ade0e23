/* test_tenants.c - without it, a scheduler that leads for long would keep every tenant that there
 * ever was, and one day take up no new one, nor anything else that a look at the database tells;
 * or a new tenant would have the limits of a deleted one of its name. */
/* uses: scheduler/peers/tenants.o scheduler/decide/job.o */
#include "common/metrics.h"
#include "scheduler/peers/tenants.h"
#include "tests/unit/sh_test.h"

/* A look at the database that finds these tenants and no other. */
static void look(struct tenants *t, uint64_t poll, struct store_tenant *rows, size_t n)
{
    const struct store_view v = {.tenants = rows, .n_tenants = n, .with_tenants = true};
    struct sh_err err = {0};

    assert_ok_err(tenants_merge(t, &v, poll, 0, &err), &err);
}

static void tenants_that_are_deleted_make_room(void **state)
{
    struct tenants t = {.half_life_s = 3600};
    char name[24];

    (void)state;
    for (int64_t i = 1; i <= 3 * STORE_MAX_TENANTS; i++) {
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
    struct tenants t = {.half_life_s = 3600};
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
    struct store_tenant row = {
        .id = 1, .name = "a", .active = true, .memory = {.max_bytes = 1 << 20, .share = 1}};
    struct tenants t = {.half_life_s = 3600};
    struct tenant *a;

    (void)state;
    look(&t, 1, &row, 1);
    a = tenants_by_id(&t, 1);
    assert_true(a && a->memory_change == 1);
    look(&t, 2, NULL, 0);
    assert_int_equal(t.n, 1);
    assert_true(!a->active && a->memory.max_bytes == 0 && a->memory_change == 2);
    look(&t, 3, NULL, 0);
    assert_int_equal(t.n, 0);
    tenants_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tenants_that_are_deleted_make_room),
        cmocka_unit_test(one_that_is_deleted_stays_without_rights_until_its_last_request),
        cmocka_unit_test(limits_of_memory_are_taken_back_before_a_tenant_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
