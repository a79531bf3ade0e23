/* test_traffic.c - requests and latencies of the last minute. Without it a model that is idle could
 * show the rate of an hour ago, a slice could be counted for ever, or a model that was used once
 * could hold memory until the end.
 */
/* uses: scheduler/peers/traffic.o */
#include "scheduler/peers/traffic.h"
#include "tests/unit/sh_test.h"

#define S INT64_C(1000000000)
#define MS INT64_C(1000000)
#define START (1000 * TRAFFIC_SLICE_NS)

static void count(struct traffics *t, int64_t id, int n, int64_t latency_ns, int64_t now_ns)
{
    for (int i = 0; i < n; i++)
        traffics_count(t, id, "a", id == 1 ? "one" : "two", latency_ns, now_ns);
}

static size_t n_models(const struct traffics *t)
{
    size_t n = 0;

    for (struct traffic *x = traffics_next(t, NULL); x; x = traffics_next(t, x))
        n++;
    return n;
}

static struct traffic_line look(struct traffics *t, const char *model, int64_t now_ns)
{
    struct traffic_line l = {.model = ""};

    for (struct traffic *x = traffics_next(t, NULL); x && strcmp(l.model, model) != 0;
         x = traffics_next(t, x))
        traffic_look(x, now_ns, &l);
    assert_string_equal(l.model, model);
    return l;
}

static void each_model_has_numbers_of_its_own(void **state)
{
    struct traffics t = {0};
    struct traffic_line l;

    (void)state;
    traffics_begin(&t, START);
    count(&t, 1, 98, 10 * MS, START + S);
    count(&t, 1, 2, 100 * MS, START + 2 * S);
    count(&t, 2, 1, 3 * MS, START + 2 * S);
    l = look(&t, "one", START + 3 * S);
    assert_string_equal(l.tenant, "a");
    assert_int_equal(l.n_requests, 100);
    assert_true(l.p50_ms > 9.5 && l.p50_ms < 11 && l.p99_ms > 95 && l.p99_ms < 110);
    l = look(&t, "two", START + 3 * S);
    assert_int_equal(l.n_requests, 1);
    assert_true(l.p50_ms > 2.8 && l.p50_ms < 3.3);
    assert_true(traffics_window_s(&t, START + 3 * S) == 3); /* a new leader knows no more */
    traffics_fini(&t);
}

static void what_is_older_than_a_minute_does_not_count(void **state)
{
    struct traffics t = {0};

    (void)state;
    traffics_begin(&t, START);
    for (int s = 0; s < 600; s++) { /* one a second, 10 ms, then 40 ms */
        count(&t, 1, 1, s < 300 ? 10 * MS : 40 * MS, START + s * S);
        if (s > 60) {
            const struct traffic_line l = look(&t, "one", START + s * S);
            const double window = traffics_window_s(&t, START + s * S);

            assert_true(window >= 50 && window <= 60);
            assert_int_equal(l.n_requests, (uint64_t)window + 1);
        }
    }
    assert_true(look(&t, "one", START + 599 * S).p50_ms > 38);
    traffics_fini(&t);
}

static void an_idle_minute_reads_as_none_and_is_forgotten(void **state)
{
    struct traffics t = {0};

    (void)state;
    traffics_begin(&t, START);
    count(&t, 1, 5, MS, START);
    count(&t, 2, 5, MS, START + 30 * S);
    traffics_sweep(&t, START + 59 * S);
    assert_int_equal(n_models(&t), 2);
    assert_int_equal(look(&t, "one", START + 59 * S).n_requests, 5);
    assert_int_equal(look(&t, "one", START + 60 * S).n_requests, 0);
    assert_true(look(&t, "one", START + 60 * S).p99_ms == 0);
    traffics_sweep(&t, START + 60 * S);
    assert_int_equal(n_models(&t), 1);
    traffics_sweep(&t, START + 3600 * S);
    assert_int_equal(n_models(&t), 0);
    count(&t, 1, 1, MS, START + 3601 * S); /* and is there again */
    assert_int_equal(look(&t, "one", START + 3601 * S).n_requests, 1);
    traffics_fini(&t);
}

static void a_name_that_was_given_anew_begins_at_nothing(void **state)
{
    struct traffics t = {0};

    (void)state;
    traffics_begin(&t, START);
    count(&t, 1, 5, MS, START);
    traffics_count(&t, 3, "a", "one", MS, START + S);
    assert_int_equal(n_models(&t), 1);
    assert_int_equal(look(&t, "one", START + S).n_requests, 1);
    traffics_fini(&t);
}

static void a_clock_that_stands_still_or_jumps_breaks_nothing(void **state)
{
    struct traffics t = {0};

    (void)state;
    traffics_begin(&t, START);
    count(&t, 1, 3, -MS, START + 20 * S);
    count(&t, 1, 3, INT64_MAX, START); /* before the newest slice */
    assert_int_equal(look(&t, "one", START + 20 * S).n_requests, 6);
    assert_int_equal(look(&t, "one", START + 1000000 * S).n_requests, 0);
    traffics_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_model_has_numbers_of_its_own),
        cmocka_unit_test(what_is_older_than_a_minute_does_not_count),
        cmocka_unit_test(an_idle_minute_reads_as_none_and_is_forgotten),
        cmocka_unit_test(a_name_that_was_given_anew_begins_at_nothing),
        cmocka_unit_test(a_clock_that_stands_still_or_jumps_breaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
