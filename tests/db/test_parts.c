/* test_parts.c - events, usage and audit in partitions by time. Without it an update could lose
 * histories or give a number twice, a write could find no place, a transaction that somebody left
 * open could stop the control plane, or what is dropped could take events of live jobs with it.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: scheduler/database/store.o scheduler/database/store_sweep.o scheduler/database/store_usage.o */
/* link: -lpq */
#include "common/clock.h"
#include "tests/db/lease_world.h"

#include <dirent.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

/* Jobs 1 to 20 have ended, 21 to 25 live on. */
static void fill(struct db *db)
{
    run(db, "INSERT INTO tenant (name) VALUES ('research'), ('vision')");
    run(db, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits'), (2, 'digits')");
    run(db, "INSERT INTO model_version (model_id, version, state, digest, package) VALUES (1, 1, "
            "'READY', repeat('a', 64), 'packages/a')");
    run(db, "INSERT INTO dataset (tenant_id, name, state, digest, path, n_samples)"
            " VALUES (1, 'train', 'READY', repeat('b', 64), 'datasets/b', 10)");
    run(db, "INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec, state,"
            " created_at, finished_at) SELECT 1, 1, 'training', 1, 1, '{}', CASE WHEN i <= 20 THEN"
            " 'SUCCEEDED' ELSE 'RUNNING' END, now() - interval '400 days', CASE WHEN i <= 20 THEN"
            " now() - interval '100 days' END FROM generate_series(1, 25) i");
}

/* The histories as they are after some months: 40 days each from 200 days ago on, without the first
 * partition; then the default. Each job has an event in each, and one that is young. */
static void grow_old(struct db *db)
{
    run(db, "DO $$ BEGIN"
            " DROP TABLE job_event_first; DROP TABLE usage_first; DROP TABLE audit_first;"
            " FOR k IN 1 .. 4 LOOP"
            "  EXECUTE (SELECT string_agg(format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM "
            "(%L) TO (%L)', t || '_' || k, t, now() - (240 - 40 * k) * interval '1 day', now() - "
            "(200 - 40 * k) * interval '1 day'), ';') FROM unnest(ARRAY['job_event', 'usage', "
            "'audit']) t);"
            " END LOOP; END $$");
    run(db, "INSERT INTO job_event (job_id, to_state, at) SELECT j.id, 'RUNNING', now() - (220 - 40"
            " * k) * interval '1 day' FROM job j, generate_series(1, 5) k");
    run(db, "INSERT INTO audit (at, request_id, action, resource) SELECT now() - i * interval '1 "
            "day', 'r', 'a.b', 'c' FROM generate_series(1, 199) i");
    run(db, "INSERT INTO usage SELECT m.tenant_id, m.id, 'training', date_trunc('hour', now()) - i"
            " * interval '1 day' + interval '12 hours', 1, 1, 1 FROM model m, generate_series(1, "
            "199) i");
}

static int set_up(void **state)
{
    return set_up_world(state, fill);
}

static struct store_sweep step(struct world *w, enum store_sweep_kind kind, int64_t days)
{
    struct store_sweep x = {.fence = w->fence, .kind = kind, .days = days, .batch = 1000};
    struct sh_err err = {0};

    assert_ok_err(store_sweep(w->a, &x, &err), &err);
    return x;
}

/* Step after step, as long as there may be more. Returns how many partitions were dropped, or rows
 * deleted. */
static int64_t sweep(struct world *w, enum store_sweep_kind kind, int64_t days)
{
    int64_t n = 0;

    for (int i = 0;; i++) {
        struct store_sweep x = step(w, kind, days);

        assert_true(i < 200); /* it ends */
        n += store_sweep_parts(kind) ? strcmp(x.part.did, "dropped") == 0 : x.n_rows;
        if (!x.more)
            return n;
    }
}

/* ---------------------------------------------------------------- from the schema before */

/* A folder with the migrations up to 8. */
static void old_migrations(char dir[static SH_TEST_DIR_BYTES])
{
    DIR *d = opendir("migrations");
    char cwd[256];
    int n = 0;

    sh_test_dir_make(dir);
    assert_non_null(d);
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    for (struct dirent *e; (e = readdir(d));) {
        char from[600], to[600];

        if (strncmp(e->d_name, "000", 3) != 0 || e->d_name[3] > '8')
            continue;
        snprintf(from, sizeof(from), "%s/migrations/%s", cwd, e->d_name);
        snprintf(to, sizeof(to), "%s/%s", dir, e->d_name);
        assert_int_equal(symlink(from, to), 0);
        n++;
    }
    closedir(d);
    assert_int_equal(n, 8);
}

static void an_old_database_keeps_its_rows_and_its_numbers(void **state)
{
    static const char *const SUMS[] = {
        "SELECT hashtext(string_agg(e::text, ' ' ORDER BY id)) FROM job_event e",
        "SELECT hashtext(string_agg(a::text, ' ' ORDER BY id)) FROM audit a",
        "SELECT hashtext(string_agg(u::text, ' ' ORDER BY u::text)) FROM usage u"};
    struct world *w = *state;
    char dir[SH_TEST_DIR_BYTES];
    int64_t sums[SH_ARRAY_LEN(SUMS)];
    struct sh_err err = {0};
    int applied = 0;

    make_empty(w->a);
    old_migrations(dir);
    assert_ok_err(db_migrate(w->a, dir, &applied, &err), &err);
    assert_int_equal(applied, 8);
    sh_test_dir_remove(dir);
    fill(w->a);
    run(w->a, "INSERT INTO job_event (job_id, to_state, at) SELECT j.id, 'RUNNING', now() - i * "
              "interval '9 days' FROM job j, generate_series(0, 40) i");
    /* One that a clock wrote which was ahead. */
    run(w->a, "INSERT INTO job_event (job_id, to_state, at) VALUES (1, 'FAILED', now() + interval "
              "'300 days'), (1, 'FAILED', now())");
    run(w->a, "DELETE FROM job_event WHERE id = (SELECT max(id) FROM job_event)");
    run(w->a, "INSERT INTO audit (at, request_id, action, resource) SELECT now() - i * interval '1 "
              "day', 'r', 'a.b', 'c' FROM generate_series(1, 500) i");
    run(w->a, "INSERT INTO usage SELECT m.tenant_id, m.id, 'training', date_trunc('hour', now()) - "
              "i * interval '1 day', i, 1, 1 FROM model m, generate_series(0, 300) i");
    for (size_t i = 0; i < SH_ARRAY_LEN(SUMS); i++)
        sums[i] = number(w->a, SUMS[i]);

    migrate(w->a);
    for (size_t i = 0; i < SH_ARRAY_LEN(SUMS); i++)
        assert_int_equal(number(w->a, SUMS[i]), sums[i]);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event_default"), 1);
    /* The number of the event that is gone is not given again. */
    assert_true(number(w->a, "INSERT INTO job_event (job_id, to_state) VALUES (1, 'QUEUED') "
                             "RETURNING id") > 25 * 41 + 2);
    assert_true(number(w->a, "INSERT INTO audit (request_id, action, resource) VALUES ('r', 'a', "
                             "'b') RETURNING id") > 500);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event_first WHERE to_state = 'QUEUED'"),
                     1);
}

/* ---------------------------------------------------------------- made ahead */

static void partitions_are_made_ahead_without_gaps_and_only_once(void **state)
{
    static const struct {
        enum store_sweep_kind kind;
        const char *table;
        int64_t days, ahead_days;
    } CASES[] = {{SWEEP_EVENT_PARTS, "job_event", 90, 13},
                 {SWEEP_USAGE_PARTS, "usage", 800, 55},
                 {SWEEP_AUDIT_PARTS, "audit", 0, 55}};
    struct world *w = *state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        char sql[512];
        struct store_sweep x;

        assert_int_equal(sweep(w, CASES[i].kind, CASES[i].days), 0);
        x = step(w, CASES[i].kind, CASES[i].days);
        assert_string_equal(x.part.did, "done");
        assert_true(x.part.ahead_s > CASES[i].ahead_days * 86400);
        /* Each begins where another ends, but for the first. */
        snprintf(sql, sizeof(sql),
                 "SELECT count(*) FROM history_partition p WHERE parent = '%s' AND NOT is_default "
                 "AND NOT EXISTS (SELECT FROM history_partition q WHERE q.parent = p.parent AND "
                 "q.hi = p.lo AND NOT q.is_default)",
                 CASES[i].table);
        assert_int_equal(number(w->a, sql), 1);
    }
    /* With a shorter time to keep, shorter ones follow those that are there. */
    run(w->a, "DO $$ BEGIN EXECUTE (SELECT string_agg('DROP TABLE ' || name, ';') FROM "
              "history_partition WHERE parent = 'job_event' AND lo > now()); END $$");
    assert_int_equal(number(w->a, "SELECT count(*) FROM history_step('a/1', 1, 'job_event', 'day', "
                                  "30, 90, 1000) WHERE did = 'made'"),
                     1);
    assert_int_equal(
        number(w->a, "SELECT extract(epoch FROM hi - lo)::bigint FROM history_partition WHERE "
                     "parent = 'job_event' AND lo > '-infinity' AND NOT is_default"),
        86400);
}

static void what_nobody_made_a_partition_for_is_written_read_and_removed(void **state)
{
    struct world *w = *state;

    /* Nobody has led for a year: everything is in the default, also what comes this week. */
    run(w->a, "DROP TABLE job_event_first");
    run(w->a, "INSERT INTO job_event (job_id, to_state, at) SELECT 1, 'RUNNING', now() - i * "
              "interval '1 day' FROM generate_series(0, 364) i");
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event_default"), 365);
    sweep(w, SWEEP_EVENT_PARTS, 90);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 365);
    assert_true(number(w->a, "SELECT count(*) FROM history_partition WHERE parent = 'job_event' "
                             "AND lo > now() AND NOT is_default") >= 2);
    run(w->a, "INSERT INTO job_event (job_id, to_state, at) SELECT 1, 'QUEUED', now() + i * "
              "interval '7 days' FROM generate_series(0, 9) i");
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event WHERE to_state = 'QUEUED'"), 10);
    assert_int_equal(sweep(w, SWEEP_EVENTS, 90), 365 - 90);
}

static void the_border_between_two_partitions_is_none_for_usage(void **state)
{
    struct world *w = *state;
    struct msg_usage_row row = {.kind = MSG_USAGE_JOB, .id = 1, .gpu_ns = 5};
    struct store_usage u = {.fence = w->fence, .source = "a", .rows = &row, .n = 1};
    struct sh_err err = {0};

    sweep(w, SWEEP_USAGE_PARTS, 800);
    run(w->a, "INSERT INTO usage SELECT 1, 1, 'training', lo + k * interval '1 minute', 1, 1, 1 "
              "FROM history_partition, generate_series(-61, 60) k WHERE parent = 'usage' AND lo > "
              "now() LIMIT 122");
    u.heard_ns = sh_clock_ns();
    for (u.number = 1; u.number <= 3; u.number++)
        assert_ok_err(store_usage_add(w->a, &u, &err), &err);
    assert_int_equal(number(w->a, "SELECT sum(gpu_ns) FROM usage"), 122 + 15);
    assert_true(number(w->a, "SELECT count(DISTINCT tableoid) FROM usage") >= 2);
}

/* ---------------------------------------------------------------- dropped */

static void what_is_old_goes_as_a_whole_and_what_is_young_stays(void **state)
{
    struct world *w = *state;

    grow_old(w->a);
    run(w->a, "UPDATE tenant SET state = 'DELETED' WHERE id = 2"); /* its rows go as others do */
    assert_int_equal(sweep(w, SWEEP_AUDIT_PARTS, 100), 2);
    assert_int_equal(sweep(w, SWEEP_USAGE_PARTS, 100), 2);
    assert_int_equal(number(w->a, "SELECT count(*) FROM audit"), 120);
    assert_int_equal(number(w->a, "SELECT count(*) FROM usage"), 2 * 120);
    /* What is not in the part that was dropped waits for its own, and is not deleted before. */
    assert_int_equal(sweep(w, SWEEP_AUDIT, 100), 0);
    assert_int_equal(sweep(w, SWEEP_USAGE, 100), 0);
    assert_int_equal(sweep(w, SWEEP_AUDIT_PARTS, 0), 0); /* kept for ever */
    assert_int_equal(number(w->a, "SELECT count(*) FROM audit"), 120);
}

static void events_of_live_jobs_outlive_their_partition(void **state)
{
    static const char LIVE[] = "SELECT hashtext(string_agg(e::text, ' ' ORDER BY id)) FROM "
                               "job_event e WHERE job_id > 20";
    struct world *w = *state;
    int64_t live;

    grow_old(w->a);
    live = number(w->a, LIVE);
    assert_int_equal(sweep(w, SWEEP_EVENT_PARTS, 100), 2);
    assert_int_equal(number(w->a, LIVE), live); /* with their numbers, times and transactions */
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 25 * 5 - 20 * 2);
    assert_int_equal(sweep(w, SWEEP_EVENTS, 100), 0);
    /* They go when their job has ended. */
    run(w->a, "UPDATE job SET state = 'FAILED', finished_at = now() WHERE id = 21");
    assert_int_equal(sweep(w, SWEEP_EVENTS, 100), 2);
    assert_int_equal(sweep(w, SWEEP_JOBS, 90), 20 + 20 * 3);
}

static void a_partition_with_many_events_of_live_jobs_goes_row_by_row_until_they_are_few(void **s)
{
    struct world *w = *s;

    grow_old(w->a);
    run(w->a, "INSERT INTO job_event (job_id, to_state, at) SELECT 25, 'RUNNING', now() - interval "
              "'180 days' FROM generate_series(1, 1000)");
    assert_int_equal(sweep(w, SWEEP_EVENT_PARTS, 100), 1); /* the second, not the first */
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event_1"), 1025);
    assert_int_equal(sweep(w, SWEEP_EVENTS, 100), 20);
    assert_int_equal(sweep(w, SWEEP_EVENT_PARTS, 100), 0);
    run(w->a, "UPDATE job SET state = 'FAILED', finished_at = now() WHERE id = 25");
    assert_int_equal(sweep(w, SWEEP_EVENT_PARTS, 100), 1);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event WHERE at < now() - interval '120 "
                                  "days'"),
                     2 * 4 + 1); /* of 25 that of the second, which was moved while it lived */
}

/* ---------------------------------------------------------------- beside others */

struct meanwhile {
    struct world *w;
    void (*fn)(struct world *w);
};

/* Somebody has written an event, and does not commit until fn has returned. */
static int open_tx(struct db *db, const void *arg, struct sh_err *err)
{
    static const struct db_stmt WRITE = {
        "open_write", "INSERT INTO job_event (job_id, to_state) VALUES (1, 'RUNNING')", 0};
    static const struct db_stmt READ = {"open_read", "SELECT count(*) FROM audit, usage", 0};
    const struct meanwhile *m = arg;
    int rc = db_exec(db, &WRITE, NULL, NULL, err);

    if (!rc)
        rc = db_exec(db, &READ, NULL, NULL, err);
    if (!rc)
        m->fn(m->w);
    return rc;
}

static void try_all(struct world *w)
{
    static const enum store_sweep_kind KINDS[] = {SWEEP_EVENT_PARTS, SWEEP_USAGE_PARTS,
                                                  SWEEP_AUDIT_PARTS};

    for (size_t i = 0; i < SH_ARRAY_LEN(KINDS); i++) {
        int64_t before = sh_clock_ns();
        struct store_sweep x = step(w, KINDS[i], 100);

        assert_string_equal(x.part.did, "busy");
        assert_false(x.more);                              /* the next round, not the next turn */
        assert_true(sh_clock_ns() - before < 30 * SECOND); /* not until the limit of a call */
    }
    /* Nobody waits for what could not be had, and what is old goes all the same. */
    run(w->a, "INSERT INTO job_event (job_id, to_state) VALUES (2, 'RUNNING')");
    run(w->a, "INSERT INTO audit (request_id, action, resource) VALUES ('r', 'a', 'b')");
    assert_int_equal(sweep(w, SWEEP_EVENTS, 100), 2 * 20);
}

static void an_open_transaction_delays_the_drop_and_nobody_else(void **state)
{
    struct world *w = *state;
    struct meanwhile m = {w, try_all};
    struct sh_err err = {0};

    sweep(w, SWEEP_EVENT_PARTS, 0);
    sweep(w, SWEEP_USAGE_PARTS, 0);
    sweep(w, SWEEP_AUDIT_PARTS, 0);
    grow_old(w->a);
    assert_ok_err(db_tx(w->b, "open", open_tx, &m, &err), &err);
    assert_int_equal(sweep(w, SWEEP_EVENT_PARTS, 100), 2);
    assert_int_equal(sweep(w, SWEEP_USAGE_PARTS, 100), 2);
    assert_int_equal(sweep(w, SWEEP_AUDIT_PARTS, 100), 2);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event WHERE at > now() - interval '1 "
                                  "hour'"),
                     2);
}

static void try_to_make(struct world *w)
{
    assert_string_equal(step(w, SWEEP_AUDIT_PARTS, 0).part.did, "busy");
    assert_int_equal(number(w->a, "SELECT count(*) FROM history_partition WHERE parent = 'audit'"),
                     2); /* no half of it is left */
    run(w->a, "INSERT INTO audit (request_id, action, resource) VALUES ('r', 'a', 'b')");
}

static void a_partition_is_made_when_those_who_read_have_ended(void **state)
{
    struct world *w = *state;
    struct meanwhile m = {w, try_to_make};
    struct sh_err err = {0};

    assert_ok_err(db_tx(w->b, "open", open_tx, &m, &err), &err);
    assert_string_equal(step(w, SWEEP_AUDIT_PARTS, 0).part.did, "made");
}

static void a_leader_that_was_replaced_makes_and_drops_nothing(void **state)
{
    static const char ALL[] = "SELECT hashtext(string_agg(h::text, ' ' ORDER BY name)) FROM "
                              "history_partition h";
    struct world *w = *state;
    struct store_sweep x = {.fence = w->fence, .kind = SWEEP_EVENT_PARTS, .days = 90};
    struct sh_err err = {0};
    int64_t all;

    grow_old(w->a);
    all = number(w->a, ALL);
    x.fence.epoch--;
    assert_fails(store_sweep(w->a, &x, &err), SH_E_PRECONDITION, &err, "no longer ours");
    run(w->b, "UPDATE lease SET holder = 'b/2', epoch = epoch + 1");
    x.fence = w->fence;
    assert_fails(store_sweep(w->a, &x, &err), SH_E_PRECONDITION, &err, "no longer ours");
    assert_int_equal(number(w->a, ALL), all);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_old_database_keeps_its_rows_and_its_numbers),
        TEST(partitions_are_made_ahead_without_gaps_and_only_once),
        TEST(what_nobody_made_a_partition_for_is_written_read_and_removed),
        TEST(the_border_between_two_partitions_is_none_for_usage),
        TEST(what_is_old_goes_as_a_whole_and_what_is_young_stays),
        TEST(events_of_live_jobs_outlive_their_partition),
        TEST(a_partition_with_many_events_of_live_jobs_goes_row_by_row_until_they_are_few),
        TEST(an_open_transaction_delays_the_drop_and_nobody_else),
        TEST(a_partition_is_made_when_those_who_read_have_ended),
        TEST(a_leader_that_was_replaced_makes_and_drops_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
