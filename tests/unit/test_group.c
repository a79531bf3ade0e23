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
static int64_t brute_force(const struct group_way *ways, uint32_t n_ways, const int64_t *compute,
                           uint32_t n)
{
    int64_t best = INT64_MAX;

    for (uint32_t mask = 0; mask < 1u << (n - 1); mask++) {
        uint32_t ends[32], k = 0;
        int64_t t;

        for (uint32_t i = 0; i + 1 < n; i++)
            if (mask >> i & 1)
                ends[k++] = i + 1;
        ends[k++] = n;
        t = group_evaluate(ways, n_ways, compute, n, ends, k);
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
        const struct group_way way = {alpha, copy};
        struct group_plan p;

        for (uint32_t i = 0; i < n; i++) {
            copy[i] = i < resident / 2 || draw(6) == 0 ? 0 : (int64_t)draw(100);
            compute[i] = draw(6) == 0 ? 0 : (int64_t)draw(100);
        }
        assert_ok(group_solve(&way, 1, compute, n, &p, NULL));
        assert_int_equal(p.ends[p.n - 1], n);
        assert_int_equal(p.finish_ns, brute_force(&way, 1, compute, n));
        assert_int_equal(p.finish_ns, group_evaluate(&way, 1, compute, n, p.ends, p.n));
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
        const struct group_way way = {alpha, copy};
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
        assert_ok(group_solve(&way, 1, both, n, &p, NULL));
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
    const struct group_way ways[2] = {{1000, copy}, {2000, copy}};
    struct group_plan p;

    (void)state;
    for (uint32_t n_ways = 1; n_ways <= 2; n_ways++) {
        assert_ok(group_solve(ways, n_ways, compute, 3, &p, NULL));
        assert_int_equal(p.n, 1);
        assert_int_equal(p.ends[0], 3);
        assert_int_equal(p.finish_ns, 18);
        group_plan_fini(&p);
    }
}

/* ------------------------------------------------------------------ several links */

struct link { /* a part of b bytes takes alpha + beta b */
    int64_t alpha, beta;
};

/* When a group that several links share out is there, in steps of one: by then each has carried
 * what it could since it began. */
static int64_t shared_out(const struct link *links, uint32_t n, int64_t bytes)
{
    int64_t t = 0;

    for (;; t++) {
        double carried = 0;

        for (uint32_t k = 0; k < n; k++)
            if (t > links[k].alpha)
                carried += (double)(t - links[k].alpha) / (double)links[k].beta;
        if (carried >= (double)bytes)
            return t;
    }
}

/* The ways that n links give: by the first of them, the first two, ... */
static uint32_t ways_of(const struct link *links, uint32_t n, const int64_t *bytes,
                        uint32_t n_layers, int64_t copy[][12], struct group_way *ways)
{
    double rate = 0, begun = 0;

    for (uint32_t k = 0; k < n; k++) {
        rate += 1 / (double)links[k].beta;
        begun += (double)links[k].alpha / (double)links[k].beta;
        for (uint32_t i = 0; i < n_layers; i++)
            copy[k][i] = bytes[i] ? 1 + (int64_t)((double)bytes[i] / rate) : 0;
        ways[k] = (struct group_way){(int64_t)(begun / rate), copy[k]};
    }
    return n;
}

static void over_several_links_it_is_the_optimum_too(void **state)
{
    uint32_t several = 0, mixed = 0, differs = 0;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        const uint32_t n = 1 + (uint32_t)draw(11), resident = (uint32_t)draw(n + 1) / 2;
        const uint32_t n_links = 1 + (uint32_t)draw(4);
        struct link links[4];
        struct group_way ways[4];
        int64_t bytes[12], compute[12], copy[4][12], alone;
        struct group_plan p, q;

        for (uint32_t k = 0; k < n_links; k++) {
            links[k].alpha = (k ? links[k - 1].alpha : 0) + (int64_t)draw(60);
            links[k].beta = 1 + (int64_t)draw(9);
        }
        for (uint32_t i = 0; i < n; i++) {
            bytes[i] = i < resident || draw(6) == 0 ? 0 : (int64_t)draw(60);
            compute[i] = draw(6) == 0 ? 0 : (int64_t)draw(200);
        }
        ways_of(links, n_links, bytes, n, copy, ways);
        assert_ok(group_solve(ways, n_links, compute, n, &p, NULL));
        assert_int_equal(p.ends[p.n - 1], n);
        assert_int_equal(p.finish_ns, brute_force(ways, n_links, compute, n));
        assert_int_equal(p.finish_ns, group_evaluate(ways, n_links, compute, n, p.ends, p.n));
        assert_ok(group_solve(&ways[n_links - 1], 1, compute, n, &q, NULL));
        alone = group_evaluate(ways, n_links, compute, n, q.ends, q.n);
        differs += alone > p.finish_ns; /* as if all were always divided over all links */
        for (uint32_t g = 0, small = 0, large = 0; g < p.n; g++) {
            int64_t first = 0, last = 0;

            for (uint32_t i = g ? p.ends[g - 1] : 0; i < p.ends[g]; i++) {
                first += ways[0].copy_ns[i];
                last += ways[n_links - 1].copy_ns[i];
            }
            small += first && ways[0].alpha_ns + first < ways[n_links - 1].alpha_ns + last;
            large += first && ways[0].alpha_ns + first > ways[n_links - 1].alpha_ns + last;
            if (small && large) {
                mixed++;
                break;
            }
        }
        several += p.n > 1;
        group_plan_fini(&p);
        group_plan_fini(&q);
    }
    assert_true(several > 1000); /* otherwise the instances prove nothing */
    assert_true(mixed > 100);
    assert_true(differs > 30);
}

/* What the ways say of a group is what it takes to divide it best. */
static void the_quickest_way_is_the_time_of_the_best_division(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        const uint32_t n = 1 + (uint32_t)draw(4);
        struct link links[4];
        struct group_way ways[4];
        int64_t bytes = 1 + (int64_t)draw(500), copy[4][12], best = INT64_MAX, took;

        for (uint32_t k = 0; k < n; k++) {
            links[k].alpha = (k ? links[k - 1].alpha : 0) + (int64_t)draw(60);
            links[k].beta = 1 + (int64_t)draw(9);
        }
        ways_of(links, n, &bytes, 1, copy, ways);
        for (uint32_t k = 0; k < n; k++) {
            took = ways[k].alpha_ns + copy[k][0];
            best = took < best ? took : best;
        }
        took = shared_out(links, n, bytes);
        assert_true(best >= took - 2 && best <= took + 2); /* whole ns, each rounded */
    }
}

static void bad_input_is_refused(void **state)
{
    const int64_t bad[1] = {-1}, good[1] = {1};
    const struct group_way way = {0, good}, never = {-1, good}, odd = {0, bad};
    struct group_plan p;
    struct sh_err err = {0};

    (void)state;
    assert_fails(group_solve(&way, 1, good, 0, &p, &err), SH_E_INVALID, &err, "cannot group");
    err = (struct sh_err){0};
    assert_fails(group_solve(&odd, 1, good, 1, &p, &err), SH_E_INVALID, &err, "impossible time");
    assert_null(p.ends);
    err = (struct sh_err){0};
    assert_fails(group_solve(&never, 1, good, 1, &p, &err), SH_E_INVALID, &err, "to begin");
    err = (struct sh_err){0};
    assert_fails(group_solve(&way, 0, good, 1, &p, &err), SH_E_INVALID, &err, "cannot group");
    assert_null(p.ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_instances_equal_brute_force),
        cmocka_unit_test(with_unpacking_it_is_the_optimum_of_three_stages),
        cmocka_unit_test(over_several_links_it_is_the_optimum_too),
        cmocka_unit_test(the_quickest_way_is_the_time_of_the_best_division),
        cmocka_unit_test(a_resident_model_has_one_group_and_no_copy),
        cmocka_unit_test(bad_input_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
