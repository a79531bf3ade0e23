/* test_events.c - events of jobs as the API reads and writes them: pages, and what streams ask for.
 *
 * Without it a stream could fall silent when the clock was set, miss an event at the border of two
 * partitions or tell one twice, and a job's events could have times that go back.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/request/cursor.h"
#include "api/store/store_event.h"
#include "api/store/store_job.h"
#include "tests/db/db_test.h"

#include <inttypes.h>

struct world {
    struct db *db;
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->db = open_db("test_events");
    make_empty(w->db);
    migrate(w->db);
    run(w->db, "INSERT INTO tenant (name) VALUES ('research')");
    run(w->db, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits')");
    run(w->db, "INSERT INTO model_version (model_id, version) VALUES (1, 1)");
    run(w->db, "INSERT INTO dataset (tenant_id, name) VALUES (1, 'd')");
    run(w->db, "INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec) VALUES "
               "(1, 1, 'training', 1, 1, '{}')");
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    db_free(w->db);
    free(w);
    return 0;
}

static struct api_req request(const struct world *w)
{
    return (struct api_req){.db = w->db, .tenant_id = 1, .request_id = "r", .who.key_id = "k"};
}

static void one_statement_tells_all_streams_what_is_new_to_each(void **state)
{
    static const struct store_watch ASKS[] = {{1, 0}, {2, 0}, {1, 2}, {99, 0}};
    static const int64_t WANT[][2] = {{1, 1}, {1, 2}, {1, 3}, {3, 3}, {2, 4}}; /* place, event */
    struct world *w = *state;
    struct sh_err err = {0};
    struct db_res *res = NULL;

    run(w->db,
        "INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec) VALUES (1, "
        "1, 'training', 1, 1, '{}')");
    run(w->db, "INSERT INTO job_event (job_id, to_state) VALUES (1, 'QUEUED'), (1, 'RUNNING'), (1, "
               "'SUCCEEDED'), (2, 'QUEUED')");
    assert_ok_err(store_job_watch(w->db, ASKS, SH_ARRAY_LEN(ASKS), &res, &err), &err);
    assert_int_equal(db_rows(res), SH_ARRAY_LEN(WANT));
    for (size_t i = 0; i < SH_ARRAY_LEN(WANT); i++) {
        bool last = db_i64(res, i, 1, 0) == 3;
        bool found = false;

        for (size_t k = 0; k < SH_ARRAY_LEN(WANT); k++)
            found |= db_i64(res, i, 0, 0) == WANT[k][0] && db_i64(res, i, 1, 0) == WANT[k][1];
        assert_true(found);
        assert_int_equal(db_bool(res, i, 3), last);
        assert_null(strchr(db_text(res, i, 2), '\n'));
        assert_true(i == 0 || db_i64(res, i, 1, 0) >= db_i64(res, i - 1, 1, 0));
    }
    db_res_free(res);
}

/* Events 1 to 9 of job 1 in three partitions and the default. Those at the borders are not in the
 * order of their times: a transaction that began before another may write after it. */
static void spread_events(struct db *db)
{
    static const char *const HOURS_AGO[] = {"90", "70", "50", "71", "30", "51", "2", "21", "0"};

    run(db, "DO $$ BEGIN DROP TABLE job_event_first; EXECUTE (SELECT string_agg(format('CREATE "
            "TABLE job_event_%s PARTITION OF job_event FOR VALUES FROM (%L) TO (%L)', k, now() - k "
            "* interval '20 hours', now() - (k - 1) * interval '20 hours'), ';') FROM "
            "generate_series(2, 4) k); END $$");
    for (size_t i = 0; i < SH_ARRAY_LEN(HOURS_AGO); i++) {
        char sql[256];

        snprintf(sql, sizeof(sql),
                 "INSERT INTO job_event (job_id, to_state, at) VALUES (1, 'RUNNING', now() - "
                 "interval '%s hours')",
                 HOURS_AGO[i]);
        run(db, sql);
    }
    assert_int_equal(number(db, "SELECT count(DISTINCT tableoid) FROM job_event"), 4);
}

/* OWNED: what a stream gets after a place. */
static struct db_res *next_of_all(struct world *w, const struct store_events *f,
                                  const struct store_place *at, int64_t live)
{
    json_t *asks = json_array(), *ask;
    struct sh_err err = {0};
    struct db_res *res = NULL;
    char xid[24];

    snprintf(xid, sizeof(xid), "%" PRId64, at->xid);
    ask = store_event_ask(f, live);
    assert_non_null(ask);
    json_object_set_new(ask, "place", json_integer(0));
    json_object_set_new(ask, "xid", json_string(xid));
    json_object_set_new(ask, "id", json_integer(at->id));
    json_array_append_new(asks, ask);
    assert_ok_err(store_event_watch(w->db, asks, &res, &err), &err);
    json_decref(asks);
    return res;
}

static void pages_and_streams_pass_the_borders_of_partitions(void **state)
{
    static const uint8_t key[CURSOR_KEY_BYTES] = {1};
    struct world *w = *state;
    struct api_req q = request(w);
    struct jobfilter jobs = {0};
    struct store_events all = {.jobs = &jobs, .from = "2000-01-01T00:00:00Z"};
    struct req_page page = {.limit = 2, .limit_text = "2", .cursor_key = key};
    struct store_watch ask = {.job = 1};
    struct store_place at = {0};
    struct sh_err err = {0};
    struct db_res *res = NULL;
    json_t *j = NULL, *e;
    int64_t n = 0;
    size_t i;

    spread_events(w->db);
    do { /* the list of the job, oldest first, by a cursor */
        snprintf(page.after, sizeof(page.after), "%" PRId64, n);
        page.cursor = page.after;
        assert_ok_err(store_job_events(&q, "1", &page, &j, &err), &err);
        json_array_foreach(json_object_get(j, "items"), i, e)
        {
            assert_int_equal(json_integer_value(json_object_get(e, "id")), ++n);
        }
        json_decref(j);
    } while (i == 2);
    assert_int_equal(n, 9);
    for (n = 10; n > 1; n -= 2) { /* the list of all, newest first */
        snprintf(page.after, sizeof(page.after), "%" PRId64, n);
        assert_ok_err(store_event_list(&q, &all, &page, &j, &err), &err);
        assert_int_equal(json_integer_value(
                             json_object_get(json_array_get(json_object_get(j, "items"), 0), "id")),
                         n - 1);
        json_decref(j);
    }
    for (n = 0; n < 9; n++) { /* streams from each Last-Event-ID */
        ask.after = n;
        assert_ok_err(store_job_watch(w->db, &ask, 1, &res, &err), &err);
        assert_int_equal(db_rows(res), 9 - n);
        assert_int_equal(db_i64(res, 0, 1, 0), n + 1);
        db_res_free(res);
        res = next_of_all(w, &all, &at, 0);
        assert_int_equal(db_rows(res), 9 - n);
        at = (struct store_place){db_i64(res, 0, 1, 0), db_i64(res, 0, 2, 0)};
        assert_int_equal(at.id, n + 1);
        assert_non_null(db_text(res, 0, 3));
        db_res_free(res);
    }
}

/* Numbers say what is new; clocks are set, by a day too, forth and back. */
static void streams_go_on_whatever_the_clock_does(void **state)
{
    static const char *const AT[] = {"0", "1 day", "0", "-40 days", "3 days", "-2 days"};
    struct world *w = *state;
    struct jobfilter jobs = {0};
    struct store_events all = {.jobs = &jobs};
    struct store_watch ask = {.job = 1};
    struct store_place at = {0};
    struct sh_err err = {0};
    int64_t live;
    char from[40];
    struct db_res *now;

    assert_ok_err(store_event_start(w->db, NULL, &at, &live, &err), &err);
    now = query(w->db, "SELECT now()");
    snprintf(from, sizeof(from), "%s", db_text(now, 0, 0));
    db_res_free(now);
    all.from = from; /* as one that was opened a moment ago */
    for (size_t i = 0; i < SH_ARRAY_LEN(AT); i++) {
        struct db_res *res = NULL;
        char sql[200];

        snprintf(sql, sizeof(sql),
                 "INSERT INTO job_event (job_id, to_state, at) VALUES (1, 'RUNNING', now() + "
                 "interval '%s')",
                 AT[i]);
        run(w->db, sql);
        assert_ok_err(store_job_watch(w->db, &ask, 1, &res, &err), &err);
        assert_int_equal(db_rows(res), 1);
        ask.after = db_i64(res, 0, 1, 0);
        db_res_free(res);
        res = next_of_all(w, &all, &at, live);
        assert_int_equal(db_rows(res), 1);
        assert_non_null(db_text(res, 0, 3));
        at = (struct store_place){db_i64(res, 0, 1, 0), db_i64(res, 0, 2, 0)};
        assert_int_equal(at.id, ask.after);
        db_res_free(res);
    }
}

static void the_events_of_a_job_have_times_in_their_order(void **state)
{
    struct world *w = *state;
    struct db *other = open_db("test_api_store_other");
    struct api_req early = request(w), late = request(w);
    struct sh_err err = {0};
    json_t *j = NULL;

    late.db = other;
    for (int i = 0; i < 3; i++) { /* who began first writes last */
        run(w->db, "BEGIN");
        run(w->db, "SELECT now()");
        run(other, "SELECT pg_sleep(0.005)");
        assert_ok_err(store_job_patch(&late, "1", NULL, "{\"priority\":1}", &j, &err), &err);
        json_decref(j);
        assert_ok_err(store_job_patch(&early, "1", NULL, "{\"priority\":2}", &j, &err), &err);
        json_decref(j);
        run(w->db, "COMMIT");
    }
    assert_int_equal(number(w->db, "SELECT count(*) FROM job_event"), 6);
    assert_int_equal(number(w->db,
                            "SELECT count(*) FROM (SELECT at < lag(at) OVER (ORDER BY id) AS "
                            "back FROM job_event) x WHERE back"),
                     0);
    db_free(other);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_statement_tells_all_streams_what_is_new_to_each),
        TEST(pages_and_streams_pass_the_borders_of_partitions),
        TEST(streams_go_on_whatever_the_clock_does),
        TEST(the_events_of_a_job_have_times_in_their_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
