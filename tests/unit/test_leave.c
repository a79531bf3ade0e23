/* test_leave.c - which images leave host memory. Without it: what is used most could be read from
 * disk again and again, one tenant could push out the images of another or what is kept for it, and
 * more could leave than anybody needs. */
/* uses: executor/memory/leave.o */
#include "executor/memory/leave.h"
#include "tests/unit/sh_test.h"

static struct leave_image image(uint32_t tag, uint64_t bytes, int64_t used)
{
    return (struct leave_image){.tag = tag,
                                .share = 1,
                                .bytes = bytes,
                                .frees = bytes,
                                .last_use_ns = used,
                                .may_leave = true};
}

/* One that shares all but a little with others. */
static struct leave_image sibling(uint32_t tag, uint64_t bytes, int64_t used)
{
    struct leave_image v = image(tag, bytes, used);

    v.frees = 1;
    return v;
}

/* Do those used at these times leave, and no others? */
static void left(const struct leave_image *v, size_t n, const int64_t *used, size_t n_used)
{
    for (size_t i = 0; i < n; i++) {
        bool expected = false;

        for (size_t k = 0; k < n_used; k++)
            expected |= v[i].last_use_ns == used[k];
        assert_int_equal(v[i].leaves, expected);
    }
}
#define LEFT(v, ...)                                                    \
    left(v, sizeof(v) / sizeof((v)[0]), (const int64_t[]){__VA_ARGS__}, \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void the_least_recently_used_leave_and_no_more_than_needed(void **state)
{
    struct leave_image v[] = {image(1, 10, 3), image(1, 10, 1), image(1, 10, 4), image(1, 10, 2)};

    (void)state;
    assert_int_equal(leave_choose(v, 4, 100, LEAVE_ANY, 15), 20);
    LEFT(v, 1, 2);
}

static void what_is_in_use_stays(void **state)
{
    struct leave_image v[] = {image(1, 10, 1), image(1, 10, 2), image(1, 10, 3)};

    (void)state;
    v[0].may_leave = false;
    assert_int_equal(leave_choose(v, 3, 100, LEAVE_ANY, 10), 10);
    LEFT(v, 2);
}

static void who_holds_more_than_its_share_gives_first(void **state)
{
    struct leave_image v[] = {image(1, 10, 1), image(2, 30, 7), image(2, 30, 8), image(2, 30, 9)};

    (void)state;
    assert_int_equal(leave_choose(v, 4, 100, LEAVE_ANY, 40), 60);
    LEFT(v, 7, 8);
}

/* Once it holds no more than that, the oldest of all goes. */
static void shares_are_weighted(void **state)
{
    struct leave_image v[] = {image(1, 40, 1), image(2, 30, 7), image(2, 30, 8)};

    (void)state;
    v[1].share = v[2].share = 3;
    assert_int_equal(leave_choose(v, 3, 100, LEAVE_ANY, 10), 40);
    LEFT(v, 1);
}

static void what_a_tenant_used_last_is_kept_up_to_its_min(void **state)
{
    struct leave_image v[] = {image(1, 10, 1), image(1, 10, 2), image(1, 10, 3), image(2, 5, 9)};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        v[i].min_bytes = 15;
    assert_int_equal(leave_choose(v, 4, 100, LEAVE_ANY, 1000), 15);
    LEFT(v, 1, 9);
}

static void the_quota_of_a_tenant_is_its_own_matter(void **state)
{
    struct leave_image v[] = {image(1, 10, 1), image(2, 10, 2), image(2, 10, 3)};

    (void)state;
    assert_int_equal(leave_choose(v, 3, 100, 2, 10), 10);
    LEFT(v, 2);
}

/* What they have in common is free when the last of them goes, so another one goes instead. */
static void siblings_leave_last(void **state)
{
    struct leave_image v[] = {sibling(1, 10, 1), sibling(1, 10, 2), image(1, 10, 3),
                              image(1, 10, 4)};

    (void)state;
    assert_int_equal(leave_choose(v, 4, 100, LEAVE_ANY, 15), 20);
    LEFT(v, 3, 4);
}

static void after_each_sibling_is_looked_anew(void **state)
{
    struct leave_image v[] = {sibling(1, 10, 1), sibling(1, 10, 2), image(1, 10, 3)};

    (void)state;
    assert_int_equal(leave_choose(v, 3, 100, LEAVE_ANY, 15), 11);
    LEFT(v, 1, 3);
    for (size_t i = 0; i < 3; i++)
        v[i].leaves = false;
    assert_int_equal(leave_choose(v, 3, 100, LEAVE_ANY, LEAVE_ALL), 12);
    LEFT(v, 1, 2, 3);
}

/* Its siblings go before what others have a right to. */
static void siblings_of_who_holds_more_go_before_others(void **state)
{
    struct leave_image v[] = {image(1, 10, 1), sibling(2, 60, 7), sibling(2, 60, 8)};

    (void)state;
    assert_int_equal(leave_choose(v, 3, 100, LEAVE_ANY, 15), 1);
    LEFT(v, 7);
}

/* In random worlds: enough leaves if it can, the last of it was needed, and who may stay stays. */
static void enough_leaves_in_any_world(void **state)
{
    struct leave_image v[24];
    uint32_t x = 1;

    (void)state;
    for (int world = 0; world < 2000; world++) {
        const size_t n = 1 + sh_test_random(&x) % 24;
        uint64_t can = 0, want = sh_test_random(&x) % 300, freed;

        for (size_t i = 0; i < n; i++) {
            const uint32_t tag = 1 + sh_test_random(&x) % 3, bytes = 1 + sh_test_random(&x) % 40;

            v[i] = image(tag, bytes, sh_test_random(&x));
            v[i].may_leave = sh_test_random(&x) % 4 > 0;
            can += v[i].may_leave ? v[i].bytes : 0;
        }
        freed = leave_choose(v, n, 100, LEAVE_ANY, want);
        if (can < want)
            assert_int_equal(freed, can);
        else
            assert_true(freed >= want);
        assert_true(freed < want + 40);
        for (size_t i = 1; i < n; i++)
            assert_true(v[i - 1].last_use_ns >= v[i].last_use_ns);
        for (size_t i = 0; i < n; i++)
            assert_true(v[i].may_leave || !v[i].leaves);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_leave_and_no_more_than_needed),
        cmocka_unit_test(what_is_in_use_stays),
        cmocka_unit_test(who_holds_more_than_its_share_gives_first),
        cmocka_unit_test(shares_are_weighted),
        cmocka_unit_test(what_a_tenant_used_last_is_kept_up_to_its_min),
        cmocka_unit_test(siblings_leave_last),
        cmocka_unit_test(after_each_sibling_is_looked_anew),
        cmocka_unit_test(siblings_of_who_holds_more_go_before_others),
        cmocka_unit_test(the_quota_of_a_tenant_is_its_own_matter),
        cmocka_unit_test(enough_leaves_in_any_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
