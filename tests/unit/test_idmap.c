/* test_idmap.c - without it, a removal could hide another entry, and a request would never find its
 * answer. */
#include "common/idmap.h"
#include "tests/unit/sh_test.h"

#define N 2000

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void an_empty_map_finds_and_removes_nothing(void **state)
{
    struct idmap m = {0};

    (void)state;
    assert_null(idmap_get(&m, 5));
    assert_null(idmap_del(&m, 5));
    idmap_fini(&m);
}

static void it_agrees_with_a_plain_array_whatever_is_added_and_removed(void **state)
{
    static char here[N];
    struct idmap m = {0};
    uint64_t seed = 42;
    size_t n = 0;

    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t key = next(&seed) % N;

        if (next(&seed) % 2) {
            n += !here[key];
            here[key] = 1;
            assert_ok(idmap_put(&m, key, &here[key], NULL));
        } else {
            assert_ptr_equal(idmap_del(&m, key), here[key] ? &here[key] : NULL);
            n -= here[key] != 0;
            here[key] = 0;
        }
        assert_int_equal(m.n, n);
        key = next(&seed) % N;
        assert_ptr_equal(idmap_get(&m, key), here[key] ? &here[key] : NULL);
    }
    for (uint64_t key = 0; key < N; key++)
        assert_ptr_equal(idmap_get(&m, key), here[key] ? &here[key] : NULL);
    idmap_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_finds_and_removes_nothing),
        cmocka_unit_test(it_agrees_with_a_plain_array_whatever_is_added_and_removed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
