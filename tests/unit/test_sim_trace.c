/* test_sim_trace.c - without it, a replay could be of jobs and requests that nobody submitted: a
 * column read as another one, local times, rows lost without a word. */
/* uses: simulate/trace.o simulate/trace_jobs.o simulate/trace_requests.o bench/sim/load.o */
/* link: -lm */
#include "bench/sim/load.h"
#include "tests/unit/sh_test.h"

#include <string.h>

#define FOLDER "bench/sim/traces/"
#define SECOND INT64_C(1000000000)

static const double EXPECTED[2] = {753, 233}; /* rates of the windows, times 600 s */

static void jobs_of_philly_have_their_times_gpus_and_virtual_clusters(void **state)
{
    struct trace_jobs t;
    bool found = false;

    (void)state;
    assert_ok(trace_jobs_read(FOLDER "philly_extract.csv", &t, NULL));
    assert_string_equal(t.format, "philly");
    assert_int_equal(t.n, 40);
    assert_int_equal(t.n_left_out, 0);
    /* The first to arrive is of 2017-09-29 07:58:32: another is of 2017-10-09 07:01:55. */
    assert_int_equal(t.items[0].at_ns, 0);
    assert_int_equal(t.items[0].run_ns, 860662 * SECOND);
    assert_string_equal(t.tenants.items[t.items[0].tenant], "6c71a0");
    for (size_t i = 0; i < t.n; i++) {
        assert_true(i == 0 || t.items[i - 1].at_ns <= t.items[i].at_ns);
        found |= t.items[i].at_ns == ((9 * 24 + 23) * 3600 + 3 * 60 + 23) * SECOND &&
                 t.items[i].run_ns == 66 * SECOND && t.items[i].gpus == 1;
    }
    assert_true(found);
    trace_jobs_fini(&t);
}

static void pods_without_a_gpu_or_an_end_are_left_out(void **state)
{
    struct trace_jobs t;

    (void)state;
    assert_ok(trace_jobs_read(FOLDER "alibaba_made.csv", &t, NULL));
    assert_string_equal(t.format, "alibaba");
    assert_int_equal(t.n, 2);
    assert_int_equal(t.n_left_out, 2);
    assert_int_equal(t.items[0].gpus, 8);
    assert_int_equal(t.items[0].run_ns, 1000 * SECOND);
    assert_int_equal(t.items[1].at_ns, 50 * SECOND);
    assert_int_equal(t.items[1].run_ns, 550 * SECOND); /* from when it was scheduled */
    trace_jobs_fini(&t);
}

static void invocations_fall_into_their_minutes(void **state)
{
    const struct trace_part part = {0, 86400, 1, 1};
    struct trace_requests t;

    (void)state;
    assert_ok(trace_requests_read(FOLDER "azure_fn_made.csv", &part, &t, NULL));
    assert_string_equal(t.format, "azure-fn");
    assert_int_equal(t.n, 10);
    assert_int_equal(t.models.n, 3);
    assert_int_equal(t.tenants.n, 2);
    for (size_t i = 0; i < 10; i++) {
        const int64_t minute = i < 3 ? 0 : i < 6 ? 1 : 5;

        /* They count from the first one, which is somewhere in the first minute. */
        assert_in_range(t.items[i].at_ns, minute ? (minute - 1) * 60 * SECOND : 0,
                        (minute + 1) * 60 * SECOND);
    }
    trace_requests_fini(&t);
}

static void clients_of_servegen_come_at_their_rates(void **state)
{
    const struct trace_part part = {0, 86400, 1, 7};
    struct trace_requests t, again;
    double n[2] = {0, 0};

    (void)state;
    assert_ok(trace_requests_read(FOLDER "servegen_extract", &part, &t, NULL));
    assert_ok(trace_requests_read(FOLDER "servegen_extract", &part, &again, NULL));
    assert_string_equal(t.format, "servegen");
    assert_int_equal(t.tenants.n, 2);
    assert_int_equal(t.n, again.n); /* nothing is left to chance */
    assert_memory_equal(t.items, again.items, t.n * sizeof(t.items[0]));
    for (size_t i = 0; i < t.n; i++)
        n[t.items[i].tenant]++;
    for (int c = 0; c < 2; c++)
        if (n[c] < 0.5 * EXPECTED[c] || n[c] > 1.5 * EXPECTED[c])
            fail_msg("client %d came %.0f times, not %.0f", c, n[c], EXPECTED[c]);
    trace_requests_fini(&t);
    trace_requests_fini(&again);
}

static void a_load_has_the_rate_that_was_asked_for(void **state)
{
    const struct trace_part part = {0, 86400, 1, 1};
    struct trace_requests t, load;

    (void)state;
    assert_ok(trace_requests_read(FOLDER "azure_fn_made.csv", &part, &t, NULL));
    assert_ok(load_make(&t, NULL, 50, 1000, &load, NULL));
    assert_int_equal(load.n, 1000);
    assert_in_range(load.items[999].at_ns, 19 * SECOND, 21 * SECOND);
    for (size_t i = 1; i < load.n; i++)
        assert_true(load.items[i - 1].at_ns <= load.items[i].at_ns);
    trace_requests_fini(&load);
    trace_requests_fini(&t);
}

static void only_requests_for_the_most_asked_models_stay(void **state)
{
    const struct trace_part part = {0, 86400, 1, 1};
    struct trace_requests all, most;
    size_t n[8] = {0}, best = 0;

    (void)state;
    assert_ok(trace_requests_read(FOLDER "azure_fn_made.csv", &part, &all, NULL));
    assert_ok(trace_requests_read(FOLDER "azure_fn_made.csv", &part, &most, NULL));
    assert_in_range(all.models.n, 2, 8);
    for (size_t i = 0; i < all.n; i++)
        n[all.items[i].model]++;
    for (size_t m = 1; m < all.models.n; m++)
        best = n[m] > n[best] ? m : best;
    assert_ok(load_most_asked(&most, 1, NULL));
    assert_int_equal(most.models.n, 1);
    assert_string_equal(most.models.items[0], all.models.items[best]);
    assert_int_equal(most.n, n[best]);
    for (size_t i = 0, k = 0; i < all.n; i++)
        if (all.items[i].model == best)
            assert_int_equal(most.items[k++].at_ns, all.items[i].at_ns);
    trace_requests_fini(&most);
    trace_requests_fini(&all);
}

static void all_requests_can_be_of_one_tenant(void **state)
{
    const struct trace_part part = {0, 86400, 1, 1};
    struct trace_requests t;
    size_t n;

    (void)state;
    assert_ok(trace_requests_read(FOLDER "azure_fn_made.csv", &part, &t, NULL));
    assert_true(t.tenants.n > 1);
    n = t.n;
    assert_ok(load_one_tenant(&t, NULL));
    assert_int_equal(t.tenants.n, 1);
    assert_int_equal(t.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(t.items[i].tenant, 0);
    trace_requests_fini(&t);
}

static void what_cannot_be_read_is_said_with_its_line(void **state)
{
    struct trace_jobs t;
    struct sh_err err = {0}, other = {0};

    (void)state;
    assert_fails(trace_jobs_read(FOLDER "azure_fn_made.csv", &t, &err), SH_E_INVALID, &err,
                 "no format of jobs");
    assert_fails(trace_jobs_read(FOLDER "nowhere.csv", &t, &other), SH_E_IO, &other, "nowhere.csv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_philly_have_their_times_gpus_and_virtual_clusters),
        cmocka_unit_test(pods_without_a_gpu_or_an_end_are_left_out),
        cmocka_unit_test(invocations_fall_into_their_minutes),
        cmocka_unit_test(clients_of_servegen_come_at_their_rates),
        cmocka_unit_test(a_load_has_the_rate_that_was_asked_for),
        cmocka_unit_test(only_requests_for_the_most_asked_models_stay),
        cmocka_unit_test(all_requests_can_be_of_one_tenant),
        cmocka_unit_test(what_cannot_be_read_is_said_with_its_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
