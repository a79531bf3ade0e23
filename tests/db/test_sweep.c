/* test_sweep.c - the end of what is old. Without it the tables of events, usage and the audit could
 * fill the disk, or the sweep could take what is young, a live job's history or a minute of usage
 * that somebody pays for, leave rows that refer to nothing, or wait for a lock while others wait
 * for it.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: scheduler/database/store.o scheduler/database/store_sweep.o */
/* link: -lpq */
#include "tests/db/lease_world.h"

/* Jobs 1 to 20 ended 100 days ago, 21 to 30 yesterday, 31 to 35 live on; each has three events and
 * two checkpoints, as old as the job's end, or 100 days. There is usage of each 20 minutes of
 * ten days but for some hours five days ago: time goes on and makes none of it old meanwhile. */
static void fill(struct db *db)
{
    run(db, "INSERT INTO tenant (name) VALUES ('research'), ('vision')");
    run(db, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits'), (2, 'digits')");
    run(db, "INSERT INTO model_version (model_id, version, state, digest, package) VALUES (1, 1, "
            "'READY', repeat('a', 64), 'packages/a')");
    run(db, "INSERT INTO model_version (model_id, version, state, digest, package, source_job) "
            "VALUES (1, 2, 'READY', repeat('c', 64), 'packages/c', 1)");
    run(db, "INSERT INTO dataset (tenant_id, name, state, digest, path, n_samples)"
            " VALUES (1, 'train', 'READY', repeat('b', 64), 'datasets/b', 10)");
    run(db,
        "INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec, state,"
        " finished_at, result_version_id) SELECT 1, 1, 'training', 1, 1, '{}',"
        " CASE WHEN i <= 30 THEN 'SUCCEEDED' ELSE 'RUNNING' END,"
        " CASE WHEN i <= 20 THEN now() - interval '100 days'"
        "      WHEN i <= 30 THEN now() - interval '1 day' END, 2 FROM generate_series(1, 35) i");
    run(db, "INSERT INTO job_event (job_id, to_state, at) SELECT j.id, 'RUNNING',"
            " coalesce(j.finished_at, now() - interval '100 days') FROM job j,"
            " generate_series(1, 3)");
    run(db, "INSERT INTO checkpoint (job_id, attempt, step, path, digest, bytes)"
            " SELECT j.id, 1, s, 'x', 'y', 1 FROM job j, generate_series(1, 2) s");
    run(db, "INSERT INTO audit (at, request_id, action, resource) SELECT now() - i * interval '1 "
            "day', 'r', 'a.b', 'c' FROM generate_series(1, 100) i");
    run(db, "INSERT INTO usage SELECT m.tenant_id, m.id, c, m.minute, 1000, 1, 2 FROM (SELECT *,"
            " date_trunc('hour', now(), 'UTC') - i * interval '20 minutes' AS minute FROM model,"
            " generate_series(0, 719) i WHERE i NOT BETWEEN 351 AND 363) m,"
            " unnest(ARRAY['inference', 'training']) c");
}

static int set_up(void **state)
{
    return set_up_world(state, fill);
}

/* Batch after batch, as long as there may be more. Returns how many rows went. A batch that a busy
 * machine does not end in time is tried again, as the scheduler does. */
static int64_t sweep(struct world *w, enum store_sweep_kind kind, int64_t days, int64_t batch)
{
    struct store_sweep x = {.fence = w->fence, .kind = kind, .days = days, .batch = batch};
    int64_t n = 0;

    for (int i = 0;; i++) {
        struct sh_err err = {0};
        int rc;

        assert_true(i < 2000); /* it ends */
        rc = store_sweep(w->a, &x, &err);
        if (rc == SH_E_TIMEOUT)
            continue;
        assert_ok_err(rc, &err);
        assert_true(x.n_rows <= 4 * batch);
        n += x.n_rows;
        if (!x.more)
            return n;
    }
}

static void old_events_of_ended_jobs_go_and_those_of_live_ones_stay(void **state)
{
    struct world *w = *state;

    assert_int_equal(sweep(w, SWEEP_EVENTS, 30, 7), 60);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 45);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event WHERE job_id > 30"), 15);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job"), 35);
    assert_int_equal(sweep(w, SWEEP_EVENTS, 30, 7), 0);
}

static void old_jobs_go_with_all_that_refers_to_them_and_no_others(void **state)
{
    struct world *w = *state;

    assert_int_equal(sweep(w, SWEEP_JOBS, 30, 8), 20 + 60 + 40);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job"), 15);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job WHERE id <= 20"), 0);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 45);
    assert_int_equal(number(w->a, "SELECT count(*) FROM checkpoint"), 30);
    assert_int_equal(number(w->a, "SELECT count(*) FROM model_version"), 2); /* what they trained */
    assert_int_equal(sweep(w, SWEEP_JOBS, 0, 100), 10 + 30 + 20); /* live ones stay however old */
    assert_int_equal(number(w->a, "SELECT count(*) FROM job WHERE finished_at IS NULL"), 5);
}

static void an_array_goes_with_the_last_of_its_jobs(void **state)
{
    struct world *w = *state;

    run(w->a, "INSERT INTO job_array (tenant_id, indices, n_jobs, template, created_at) SELECT 1, "
              "'0-1', 2, '{}', now() - i * interval '40 days' FROM (VALUES (3), (2), (0)) x (i)");
    run(w->a, "UPDATE job SET array_id = 1, array_index = id WHERE id IN (1, 2)"); /* all old */
    run(w->a,
        "UPDATE job SET array_id = 2, array_index = id WHERE id IN (3, 21)"); /* one is young */
    assert_int_equal(sweep(w, SWEEP_JOBS, 30, 8), 20 + 60 + 40 + 1);
    assert_int_equal(number(w->a, "SELECT sum(id) FROM job_array"), 2 + 3); /* 3 has none yet */
    assert_int_equal(sweep(w, SWEEP_JOBS, 0, 100), 10 + 30 + 20 + 2);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_array"), 0);
}

static void a_job_with_more_events_than_a_batch_goes_too(void **state)
{
    struct world *w = *state;

    run(w->a, "INSERT INTO job_event (job_id, to_state) SELECT 5, 'RUNNING' FROM generate_series(1,"
              " 500)");
    assert_int_equal(sweep(w, SWEEP_JOBS, 30, 20), 20 + 60 + 40 + 500);
}

static void minutes_become_hours_and_their_sums_stay(void **state)
{
    struct world *w = *state;
    const char *sums = "SELECT sum(gpu_ns + 1000000 * requests + 1000000000 * samples) FROM usage";
    const char *old = "SELECT count(*) FROM usage WHERE minute < now() - interval '5 days'";
    const char *young = "SELECT count(*) FROM usage WHERE minute >= now() - interval '5 days'"
                        " AND extract(minute FROM minute AT TIME ZONE 'UTC') <> 0";
    int64_t before = number(w->a, sums), n_old = number(w->a, old), n_young = number(w->a, young);
    int64_t hours = number(w->a, "SELECT count(*) FROM (SELECT DISTINCT tenant_id, class,"
                                 " date_trunc('hour', minute, 'UTC') FROM usage"
                                 " WHERE minute < now() - interval '5 days') x");

    assert_true(n_old > 500 && hours < n_old / 2 && n_young > 700);
    sweep(w, SWEEP_USAGE_HOURS, 5, 50);
    assert_int_equal(number(w->a, sums), before);
    assert_int_equal(number(w->a, old), hours);
    assert_int_equal(number(w->a, young), n_young);
    assert_int_equal(sweep(w, SWEEP_USAGE_HOURS, 5, 50), 0);
    /* One that was late is added to the hour that is there. */
    run(w->a, "INSERT INTO usage SELECT tenant_id, model_id, class, minute + interval '7 minutes',"
              " 5, 0, 0 FROM usage WHERE minute < now() - interval '6 days' LIMIT 1");
    assert_int_equal(sweep(w, SWEEP_USAGE_HOURS, 5, 50), 1);
    assert_int_equal(number(w->a, sums), before + 5);
    assert_int_equal(number(w->a, old), hours);
}

static void old_usage_and_audit_go(void **state)
{
    struct world *w = *state;

    assert_true(sweep(w, SWEEP_USAGE, 5, 100) > 0);
    assert_int_equal(
        number(w->a, "SELECT count(*) FROM usage WHERE minute < now() - interval '5 days'"), 0);
    assert_true(number(w->a, "SELECT count(*) FROM usage") > 1000);
    assert_int_equal(sweep(w, SWEEP_AUDIT, 40, 9), 61); /* day 40 is over by now */
    assert_int_equal(number(w->a, "SELECT count(*) FROM audit"), 39);
}

static void keys_go_that_ended_long_ago(void **state)
{
    struct world *w = *state;

    run(w->a,
        "INSERT INTO api_key (id, tenant_id, name, role, hash, revoked_at, expires_at) SELECT "
        "'aaaaaaaaaaa' || i, 1, 'k', 'read', decode(repeat('00', 32), 'hex'), r, e FROM "
        "(VALUES (1, now() - interval '50 days', NULL), (2, NULL, now() - interval '50 days'), "
        "(3, now() - interval '1 day', NULL), (4, NULL, now() + interval '1 day'), "
        "(5, NULL, NULL)) v (i, r, e)");
    assert_int_equal(sweep(w, SWEEP_KEYS, 30, 1), 2);
    assert_int_equal(number(w->a, "SELECT count(*) FROM api_key WHERE id >= 'aaaaaaaaaaa3'"), 3);
}

/* Model 1 has versions 1 (live), 2 (made by job 1, deleted), 3 and 4 (deleted). Model 2 is deleted
 * with its one version, and so are both datasets. All long ago. */
static void delete_some(struct world *w)
{
    run(w->a, "INSERT INTO model_version (model_id, version, state) VALUES (1, 3, 'FAILED'),"
              " (1, 4, 'FAILED'), (2, 1, 'FAILED')");
    run(w->a, "INSERT INTO dataset (tenant_id, name) VALUES (1, 'gone')");
    run(w->a, "UPDATE model_version SET state = 'DELETED', package = NULL WHERE version > 1"
              " OR model_id = 2");
    run(w->a, "UPDATE model SET deleted_at = now() WHERE id = 2");
    run(w->a, "UPDATE dataset SET state = 'DELETED', path = NULL");
    assert_int_equal(
        number(w->a, "SELECT count(*) FROM model_version WHERE deleted_at IS NOT NULL"),
        4); /* the trigger */
    assert_int_equal(number(w->a, "SELECT count(*) FROM dataset WHERE deleted_at IS NOT NULL"), 2);
    run(w->a, "UPDATE model_version SET deleted_at = now() - interval '100 days'"
              " WHERE deleted_at IS NOT NULL");
    run(w->a, "UPDATE dataset SET deleted_at = now() - interval '100 days'");
    run(w->a, "UPDATE model SET deleted_at = now() - interval '100 days'"
              " WHERE deleted_at IS NOT NULL");
}

static void what_was_deleted_long_ago_goes_once_nothing_refers_to_it(void **state)
{
    struct world *w = *state;
    const char *versions = "SELECT coalesce(sum(10 * model_id + version), 0) FROM model_version";

    delete_some(w);
    run(w->a, "INSERT INTO placement (version_id, executor, state) SELECT id, 'e', 'READY'"
              " FROM model_version");
    assert_int_equal(sweep(w, SWEEP_DELETED, 101, 2), 0);
    /* 2 is what a job has left, 4 the newest of a model that is there; jobs have the dataset. */
    assert_int_equal(sweep(w, SWEEP_DELETED, 30, 2), 2 + 1);
    assert_int_equal(number(w->a, versions), 11 + 12 + 14);
    assert_int_equal(number(w->a, "SELECT count(*) FROM placement"), 3);
    assert_int_equal(number(w->a, "SELECT count(*) FROM model"), 2); /* it has usage */
    assert_int_equal(number(w->a, "SELECT count(*) FROM dataset"), 1);
    run(w->a, "DELETE FROM usage WHERE model_id = 2");
    run(w->a, "UPDATE job SET result_version_id = NULL");
    run(w->a, "INSERT INTO dataset (tenant_id, name, state, digest, path, n_samples)"
              " VALUES (1, 'other', 'READY', repeat('d', 64), 'datasets/d', 10)");
    run(w->a, "UPDATE job SET eval_dataset_id = dataset_id, dataset_id = 3");
    assert_int_equal(sweep(w, SWEEP_DELETED, 30, 100), 2);
    assert_int_equal(number(w->a, versions), 11 + 14);
    assert_int_equal(number(w->a, "SELECT count(*) FROM model"), 1);
    assert_int_equal(number(w->a, "SELECT count(*) FROM dataset"), 2);
    run(w->a, "UPDATE job SET eval_dataset_id = NULL");
    assert_int_equal(sweep(w, SWEEP_DELETED, 30, 100), 1);
}

static void what_has_a_file_still_or_is_young_stays(void **state)
{
    struct world *w = *state;

    delete_some(w);
    run(w->a, "UPDATE job SET result_version_id = NULL");
    run(w->a, "UPDATE model_version SET package = 'packages/x' WHERE version = 3");
    run(w->a, "UPDATE model_version SET deleted_at = now() - interval '29 days'"
              " WHERE version = 2");
    assert_int_equal(sweep(w, SWEEP_DELETED, 30, 100), 1 + 1); /* of model 2; dataset 2 */
    assert_int_equal(number(w->a, "SELECT count(*) FROM model_version"), 4);
}

static void a_leader_that_was_replaced_removes_nothing(void **state)
{
    struct world *w = *state;
    struct store_sweep x = {.fence = w->fence, .kind = SWEEP_AUDIT, .days = 1, .batch = 10};
    struct sh_err err = {0};

    x.fence.epoch--;
    assert_fails(store_sweep(w->a, &x, &err), SH_E_PRECONDITION, &err, "no longer ours");
    assert_int_equal(number(w->a, "SELECT count(*) FROM audit"), 100);
}

static int lock_two(struct db *db, const void *arg, struct sh_err *err)
{
    static const struct db_stmt LOCK = {"lock_two",
                                        "SELECT 1 FROM job WHERE id IN (3, 4) FOR UPDATE", 0};
    struct world *w = (struct world *)*(void *const *)arg;
    int rc = db_exec(db, &LOCK, NULL, NULL, err);

    if (rc)
        return rc;
    sweep(w, SWEEP_JOBS, 30, 100);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job WHERE id <= 20"), 2);
    return SH_OK;
}

static void what_somebody_has_locked_is_passed_by_and_goes_the_next_time(void **state)
{
    struct world *w = *state;
    void *arg = w;
    struct sh_err err = {0};

    assert_ok_err(db_tx(w->b, "lock_two", lock_two, &arg, &err), &err);
    assert_int_equal(sweep(w, SWEEP_JOBS, 30, 100), 2);
}

static void the_limits_of_a_batch_end_with_it(void **state)
{
    struct world *w = *state;
    int64_t before = number(w->a, "SELECT setting::bigint FROM pg_settings WHERE name = "
                                  "'statement_timeout'");

    sweep(w, SWEEP_AUDIT, 40, 1000);
    assert_int_equal(
        number(w->a, "SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'"),
        before);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(old_events_of_ended_jobs_go_and_those_of_live_ones_stay),
        TEST(old_jobs_go_with_all_that_refers_to_them_and_no_others),
        TEST(an_array_goes_with_the_last_of_its_jobs),
        TEST(a_job_with_more_events_than_a_batch_goes_too),
        TEST(minutes_become_hours_and_their_sums_stay),
        TEST(old_usage_and_audit_go),
        TEST(keys_go_that_ended_long_ago),
        TEST(what_was_deleted_long_ago_goes_once_nothing_refers_to_it),
        TEST(what_has_a_file_still_or_is_young_stays),
        TEST(a_leader_that_was_replaced_removes_nothing),
        TEST(what_somebody_has_locked_is_passed_by_and_goes_the_next_time),
        TEST(the_limits_of_a_batch_end_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
