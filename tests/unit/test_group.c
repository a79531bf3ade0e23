/* uses: runtime/group.o */
/* test_group.c - the grouping is the exact optimum. Without it a wrong cut goes unseen: results
 * stay right, switches only get slower. */
#include "runtime/group.h"
#include "tests/unit/sh_test.h"

static uint64_t seed = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return below ? seed % below : 0;
}

/* All 2^(n-1) ways to cut. */
static int64_t brute_force(const int64_t *copy, const int64_t *compute, uint32_t n, int64_t alpha)
{
    int64_t best = INT64_MAX;

    for (uint32_t mask = 0; mask < 1u << (n - 1); mask++) {
        uint32_t ends[32], k = 0;
        int64_t t;

        for (uint32_t i = 0; i + 1 < n; i++)
            if (mask >> i & 1)
                ends[k++] = i + 1;
        ends[k++] = n;
        t = group_evaluate(copy, compute, n, alpha, ends, k);
        if (t < best)
            best = t;
    }
    return best;
}

static void random_instances_equal_brute_force(void **state)
{
    uint32_t several = 0;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        int64_t copy[12], compute[12];
        uint32_t n = 1 + (uint32_t)draw(11), resident = (uint32_t)draw(n + 1);
        int64_t alpha = (int64_t)draw(40);
        struct group_plan p;

        for (uint32_t i = 0; i < n; i++) {
            copy[i] = i < resident / 2 || draw(6) == 0 ? 0 : (int64_t)draw(100);
            compute[i] = draw(6) == 0 ? 0 : (int64_t)draw(100);
        }
        assert_ok(group_solve(copy, compute, n, alpha, &p, NULL));
        assert_int_equal(p.ends[p.n - 1], n);
        assert_int_equal(p.finish_ns, brute_force(copy, compute, n, alpha));
        assert_int_equal(p.finish_ns, group_evaluate(copy, compute, n, alpha, p.ends, p.n));
        several += p.n > 1;
        group_plan_fini(&p);
    }
    assert_true(several > 1000); /* otherwise the instances prove nothing */
}

/* Three stages, step by step: a link that copies, and a stream that waits for a group, unpacks all
 * of it, and computes its layers. */
static int64_t simulate(const int64_t *copy, const int64_t *unpack, const int64_t *compute,
                        int64_t alpha, const uint32_t *ends, uint32_t k)
{
    int64_t link = 0, stream = 0;

    for (uint32_t g = 0, i = 0; g < k; g++) {
        const uint32_t first = i;
        int64_t bytes = 0;

        for (; i < ends[g]; i++)
            bytes += copy[i];
        link += bytes > 0 ? alpha + bytes : 0;
        if (bytes > 0 && link > stream)
            stream = link;
        for (uint32_t l = first; l < ends[g]; l++)
            stream += unpack[l];
        for (uint32_t l = first; l < ends[g]; l++)
            stream += compute[l];
    }
    return stream;
}

static void with_unpacking_it_is_the_optimum_of_three_stages(void **state)
{
    uint32_t several = 0;

    (void)state;
    for (int round = 0; round < 1000; round++) {
        int64_t copy[10], unpack[10], compute[10], both[10], best = INT64_MAX;
        const uint32_t n = 1 + (uint32_t)draw(9), resident = (uint32_t)draw(n + 1) / 2;
        const int64_t alpha = (int64_t)draw(40);
        struct group_plan p;

        for (uint32_t i = 0; i < n; i++) {
            copy[i] = i < resident ? 0 : 1 + (int64_t)draw(100);
            unpack[i] = i < resident ? 0 : (int64_t)draw(60);
            compute[i] = (int64_t)draw(100);
            both[i] = unpack[i] + compute[i];
        }
        for (uint32_t mask = 0; mask < 1u << (n - 1); mask++) {
            uint32_t ends[10], k = 0;
            int64_t t;

            for (uint32_t i = 0; i + 1 < n; i++)
                if (mask >> i & 1)
                    ends[k++] = i + 1;
            ends[k++] = n;
            t = simulate(copy, unpack, compute, alpha, ends, k);
            best = t < best ? t : best;
        }
        assert_ok(group_solve(copy, both, n, alpha, &p, NULL));
        assert_int_equal(p.finish_ns, best);
        assert_int_equal(p.finish_ns, simulate(copy, unpack, compute, alpha, p.ends, p.n));
        several += p.n > 1;
        group_plan_fini(&p);
    }
    assert_true(several > 400);
}

static void a_resident_model_has_one_group_and_no_copy(void **state)
{
    const int64_t copy[3] = {0, 0, 0}, compute[3] = {5, 6, 7};
    struct group_plan p;

    (void)state;
    assert_ok(group_solve(copy, compute, 3, 1000, &p, NULL));
    assert_int_equal(p.n, 1);
    assert_int_equal(p.finish_ns, 18);
    group_plan_fini(&p);
}

static void bad_input_is_refused(void **state)
{
    const int64_t bad[1] = {-1}, good[1] = {1};
    struct group_plan p;
    struct sh_err err = {0};

    (void)state;
    assert_fails(group_solve(good, good, 0, 0, &p, &err), SH_E_INVALID, &err, "cannot group");
    err = (struct sh_err){0};
    assert_fails(group_solve(bad, good, 1, 0, &p, &err), SH_E_INVALID, &err, "impossible time");
    assert_null(p.ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_instances_equal_brute_force),
        cmocka_unit_test(with_unpacking_it_is_the_optimum_of_three_stages),
        cmocka_unit_test(a_resident_model_has_one_group_and_no_copy),
        cmocka_unit_test(bad_input_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
