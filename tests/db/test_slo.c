/* test_slo.c - counts of how latency targets were met, from a request to the report.
 *
 * Without it: a write repeated after a lost connection could count requests twice, what was counted
 * while the database was away could be lost, two API processes could overwrite each other's counts,
 * and a percentile could be far from what was measured.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz -lm */
#include "api/infer/slo_count.h"
#include "api/store/store.h"
#include "common/clock.h"
#include "common/latency.h"
#include "tests/db/db_test.h"

#include <math.h>

#define MS INT64_C(1000000)

struct world {
    struct db *db;
    struct slo_counts *a, *b; /* two API processes */
    int64_t now_ms;
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->db = open_db("test_slo");
    make_empty(w->db);
    migrate(w->db);
    run(w->db, "INSERT INTO tenant (name) VALUES ('research')");
    run(w->db, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits'), (1, 'plain')");
    run(w->db, "INSERT INTO slo (model_id, latency_ms, percentile) VALUES (1, 20, 90)");
    assert_ok(slo_counts_new(&w->a, NULL));
    assert_ok(slo_counts_new(&w->b, NULL));
    w->now_ms = sh_clock_wall_ms();
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    slo_counts_free(w->a);
    slo_counts_free(w->b);
    db_free(w->db);
    free(w);
    return 0;
}

static void flush(struct world *w, struct slo_counts *c)
{
    struct sh_err err = {0};

    assert_ok_err(slo_counts_flush(c, w->db, w->now_ms, &err), &err);
}

static void assert_sums(struct world *w, int64_t minutes, int64_t met, int64_t missed,
                        int64_t rejected)
{
    struct api_req q = {.db = w->db, .tenant_id = 1};
    struct sh_err err = {0};
    json_t *j = NULL;
    json_int_t n[3] = {-1, -1, -1};

    assert_ok_err(store_slo_attainment(&q, "digits", minutes, &j, &err), &err);
    assert_int_equal(
        json_unpack(j, "{s:I, s:I, s:I}", "met", &n[0], "missed", &n[1], "rejected", &n[2]), 0);
    json_decref(j);
    assert_int_equal(n[0], met);
    assert_int_equal(n[1], missed);
    assert_int_equal(n[2], rejected);
}

static void a_row_is_replaced_and_never_added_to(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 5; i++)
        slo_counts_add(w->a, 1, SLO_MET, 3 * MS, w->now_ms);
    slo_counts_add(w->a, 1, SLO_MISSED, 30 * MS, w->now_ms);
    flush(w, w->a);
    flush(w, w->a); /* nothing new: nothing changes */
    assert_sums(w, 5, 5, 1, 0);
    slo_counts_add(w->a, 1, SLO_REJECTED, 0, w->now_ms);
    flush(w, w->a); /* writes all of the minute again */
    assert_sums(w, 5, 5, 1, 1);
}

static void processes_count_side_by_side(void **state)
{
    struct world *w = *state;

    slo_counts_add(w->a, 1, SLO_MET, MS, w->now_ms);
    slo_counts_add(w->b, 1, SLO_MET, MS, w->now_ms);
    flush(w, w->a);
    flush(w, w->b);
    assert_sums(w, 5, 2, 0, 0);
}

static void what_could_not_be_written_is_written_later(void **state)
{
    struct world *w = *state;
    int64_t before = w->now_ms - 2 * 60000;

    slo_counts_add(w->a, 1, SLO_MET, MS, before);
    run(w->db, "ALTER TABLE slo_minute RENAME TO away");
    assert_true(slo_counts_flush(w->a, w->db, w->now_ms, NULL) != SH_OK);
    run(w->db, "ALTER TABLE away RENAME TO slo_minute");
    slo_counts_add(w->a, 1, SLO_MET, MS, before); /* a late one for the same minute */
    flush(w, w->a);
    assert_sums(w, 5, 2, 0, 0);
}

static void a_window_ends_and_old_minutes_are_removed(void **state)
{
    struct world *w = *state;
    const int64_t ages_min[] = {3, 30, 600, 24 * 60 + 30, 26 * 60};
    struct api_req q = {.db = w->db, .tenant_id = 1};
    json_t *j = NULL;

    for (size_t i = SH_ARRAY_LEN(ages_min); i-- > 0;)
        slo_counts_add(w->a, 1, SLO_MET, MS, w->now_ms - ages_min[i] * 60000);
    flush(w, w->a);
    assert_sums(w, 5, 1, 0, 0);
    assert_sums(w, 60, 2, 0, 0);
    assert_sums(w, 24 * 60, 3, 0, 0);
    assert_sums(w, 100 * 60, 4, 0, 0); /* the oldest is gone from the table */
    assert_ok(store_slo_attainment(&q, "plain", 5, &j, NULL));
    assert_null(j); /* a model without a target */
}

static void a_model_that_is_gone_harms_nobody(void **state)
{
    struct world *w = *state;

    slo_counts_add(w->a, 99, SLO_MET, MS, w->now_ms);
    slo_counts_add(w->a, 1, SLO_MET, MS, w->now_ms);
    flush(w, w->a);
    assert_sums(w, 5, 1, 0, 0);
}

static void percentiles_are_right_within_five_percent(void **state)
{
    int64_t count[SH_LATENCY_BUCKETS] = {0};

    (void)state;
    assert_true(sh_latency_percentile_ms(count, 99) == 0);
    for (int i = 1; i <= 10000; i++)
        count[sh_latency_bucket(i * MS / 100)]++; /* evenly, 0.01 to 100 ms */
    for (int p = 5; p < 100; p += 5) {
        double got = sh_latency_percentile_ms(count, p);

        assert_true(fabs(got - p) < 0.05 * p);
    }
    assert_int_equal(sh_latency_bucket(-5), 0);
    assert_int_equal(sh_latency_bucket(0), 0);
    assert_int_equal(sh_latency_bucket(INT64_MAX), SH_LATENCY_BUCKETS - 1);
    for (int64_t ns = 1; ns < INT64_C(1) << 60; ns *= 2)
        assert_true(sh_latency_bucket(ns) <= sh_latency_bucket(ns * 2));
}

static void lines_are_bounded_and_go_on_after_a_flush(void **state)
{
    struct world *w = *state;

    /* No line near the end of the window: a minute may begin at any time. */
    for (int64_t age = SLO_MAX_LINES + 10; age > 0; age--)
        slo_counts_add(w->a, 1, SLO_MET, MS, w->now_ms - (age > 1000 ? age + 1000 : age) * 60000);
    flush(w, w->a);
    assert_sums(w, 24 * 60, 1000 - 10, 0, 0); /* the youngest ten found no line */
    slo_counts_add(w->a, 1, SLO_MISSED, MS, w->now_ms);
    flush(w, w->a);
    assert_sums(w, 5, 0, 1, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_row_is_replaced_and_never_added_to),
        TEST(processes_count_side_by_side),
        TEST(what_could_not_be_written_is_written_later),
        TEST(a_window_ends_and_old_minutes_are_removed),
        TEST(a_model_that_is_gone_harms_nobody),
        TEST(percentiles_are_right_within_five_percent),
        TEST(lines_are_bounded_and_go_on_after_a_flush),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
