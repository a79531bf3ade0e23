/* test_submit.c - what is submitted, and how many jobs of a tenant wait.
 *
 * Without it: the number that a quota is checked by could drift away from the jobs that are there,
 * two submissions at once could both take the last place, one wrong job of a batch could keep the
 * others out, a token could make its job twice, an action could miss a part of an array, a
 * connection that first saw the table empty could read all of it for each new job, or a database
 * that answers no more could be asked of each of a thousand jobs why it was not made.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/jobs/submit.h"
#include "api/request/route.h"
#include "common/importer.h"
#include "common/job_state.h"
#include "common/metrics.h"
#include "tests/db/db_test.h"

#include <pthread.h>

#define N_THREADS 4
#define N_ROUNDS 60
/* Tenants whose number is wrong, in one snapshot. */
#define WRONG                                                                                     \
    "SELECT count(*) FROM job_waiting w WHERE n + (SELECT coalesce(sum(c.n), 0) FROM"             \
    " job_waiting_change c WHERE c.tenant_id = w.tenant_id) <> (SELECT count(*) FROM job j WHERE" \
    " j.tenant_id = w.tenant_id AND j.state IN " SH_JOB_IS_WAITING ")"

static void fill(struct db *db)
{
    run(db, "INSERT INTO tenant (name) VALUES ('research'), ('vision')");
    run(db, "INSERT INTO quota (tenant_id, max_queued_jobs) VALUES (1, 1000000), (2, 1000000)");
    run(db, "INSERT INTO model (tenant_id, name) VALUES (1, 'lin'), (2, 'lin')");
    run(db,
        "INSERT INTO model_version (model_id, version, state, digest, package, inputs, outputs, "
        "meta) SELECT m, 1, 'READY', repeat('a', 64), 'packages/a', '[{\"name\":\"x\",\"datatype\":"
        "\"FP32\",\"shape\":[-1,4]}]', "
        "'[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,2]}]', "
        "'{\"trainable\":true,\"importer\":" DB_NUMBER(
            SH_IMPORTER) "}' FROM generate_series(1, 2) m");
    run(db,
        "INSERT INTO dataset (tenant_id, name, state, digest, path, n_samples, tensors) SELECT t, "
        "'small', 'READY', repeat('b', 64), 'datasets/b', 64, '[{\"name\":\"x\",\"datatype\":"
        "\"FP32\",\"shape\":[64,4]},{\"name\":\"label\",\"datatype\":\"INT64\",\"shape\":[64]}]' "
        "FROM "
        "generate_series(1, 2) t");
}

static int set_up(void **state)
{
    struct db *db = open_db("test_submit");

    make_empty(db);
    migrate(db);
    fill(db);
    *state = db;
    return 0;
}

static int tear_down(void **state)
{
    db_free(*state);
    return 0;
}

/* ------------------------------------------------------------------ the count */

static const struct db_stmt ADD = {
    "add",
    "INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec, state, finished_at) "
    "SELECT $1::bigint, 1, 'training', 1, 1, '{}', $2, CASE WHEN $2 IN " SH_JOB_FINAL
    " THEN now() END FROM "
    "generate_series(1, $3::int)",
    3,
};

/* Some jobs of a state, into another. */
static const struct db_stmt MOVE = {
    "move",
    "UPDATE job SET state = $3, finished_at = CASE WHEN $3 IN " SH_JOB_FINAL
    " THEN now() END WHERE id IN "
    "(SELECT id FROM job WHERE tenant_id = $1::bigint AND state = $2 ORDER BY random() LIMIT "
    "$4::int "
    "FOR UPDATE SKIP LOCKED)",
    4,
};

static const struct db_stmt REMOVE = {
    "remove",
    "DELETE FROM job WHERE id IN (SELECT id FROM job WHERE tenant_id = $1::bigint AND state = $2 "
    "LIMIT "
    "$3::int FOR UPDATE SKIP LOCKED)",
    3,
};

static const char *const STATES[] = {"QUEUED",    "HELD",      "STARTING",   "RUNNING",
                                     "PREEMPTED", "SUSPENDED", "COMPLETING", "CANCELLING",
                                     "SUCCEEDED", "FAILED",    "CANCELLED",  "EXPIRED"};
#define N_STATES SH_ARRAY_LEN(STATES)
#define N_LIVE 8u

static void every_change_of_a_state_is_counted(void **state)
{
    struct db *db = *state;

    for (size_t from = 0; from < N_STATES; from++)
        for (size_t to = 0; to < N_STATES && from < N_LIVE; to++) {
            assert_ok(db_exec(db, &ADD, (const char *[]){"1", STATES[from], "2"}, NULL, NULL));
            assert_int_equal(number(db, WRONG), 0);
            assert_ok(db_exec(db, &MOVE, (const char *[]){"1", STATES[from], STATES[to], "1"}, NULL,
                              NULL));
            assert_int_equal(number(db, WRONG), 0);
        }
    for (size_t s = 0; s < N_STATES; s++) {
        assert_ok(db_exec(db, &REMOVE, (const char *[]){"1", STATES[s], "3"}, NULL, NULL));
        assert_int_equal(number(db, WRONG), 0);
    }
    run(db, "UPDATE job SET priority = 5"); /* changes nothing of it */
    assert_int_equal(number(db, WRONG), 0);
    assert_true(number(db, "SELECT n FROM job_waiting WHERE tenant_id = 1") > 0);
    run(db, "TRUNCATE job, job_event, checkpoint");
    assert_int_equal(number(db, WRONG), 0);
}

struct stormer {
    pthread_t thread;
    struct db *db;
    unsigned seed;
    int n_failed;
};

/* Three changes of both tenants in one transaction; every fifth is undone. */
static int storm_tx(struct db *db, const void *arg, struct sh_err *err)
{
    unsigned *seed = (unsigned *)arg;
    int rc = SH_OK;

    for (int i = 0; i < 3 && !rc; i++) {
        const char *tenant = i < 2 ? "1" : "2"; /* in one order: nobody waits in a circle */
        const char *from = STATES[rand_r(seed) % N_LIVE], *to = STATES[rand_r(seed) % N_STATES];
        char n[8];

        snprintf(n, sizeof(n), "%d", 1 + rand_r(seed) % 7);
        if (rand_r(seed) % 3 == 0)
            rc = db_exec(db, &ADD, (const char *[]){tenant, to, n}, NULL, err);
        else if (rand_r(seed) % 8 == 0)
            rc = db_exec(db, &REMOVE, (const char *[]){tenant, to, n}, NULL, err);
        else
            rc = db_exec(db, &MOVE, (const char *[]){tenant, from, to, n}, NULL, err);
    }
    if (!rc && rand_r(seed) % 5 == 0)
        rc = SH_FAIL(err, SH_E_CANCELLED, "undone");
    return rc;
}

static void *storm_main(void *arg)
{
    struct stormer *s = arg;

    for (int i = 0; i < N_ROUNDS; i++) {
        int rc = db_tx(s->db, "storm", storm_tx, &s->seed, NULL);

        s->n_failed += rc && rc != SH_E_CANCELLED;
    }
    return NULL;
}

static void the_count_is_exact_after_and_in_a_storm_of_changes(void **state)
{
    struct db *db = *state;
    struct stormer s[N_THREADS];
    static const struct db_stmt LOOK = {"look", WRONG, 0};

    for (size_t i = 0; i < N_THREADS; i++) {
        s[i] = (struct stormer){.db = open_db("storm"), .seed = (unsigned)i + 1};
        assert_int_equal(pthread_create(&s[i].thread, NULL, storm_main, &s[i]), 0);
    }
    for (int i = 0; i < 50; i++) { /* any snapshot agrees with itself */
        struct db_res *r = NULL;

        assert_ok(db_exec(db, &LOOK, NULL, &r, NULL));
        assert_int_equal(db_i64(r, 0, 0, -1), 0);
        db_res_free(r);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        pthread_join(s[i].thread, NULL);
        assert_int_equal(s[i].n_failed, 0);
        db_free(s[i].db);
    }
    assert_int_equal(number(db, WRONG), 0);
    assert_true(number(db, "SELECT count(*) FROM job_waiting WHERE n > 0") == 2);
}

/* ------------------------------------------------------------------ submissions */

static struct api_req request(struct db *db)
{
    return (struct api_req){.db = db, .tenant_id = 1, .request_id = "r", .who.key_id = "k"};
}

static json_t *job_body(const char *queue, const char *token)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s?, s:{s:{s:s, s:f}, s:i, s:i}}", "kind", "training",
                     "model", "lin", "dataset", "small", "queue", queue, "client_token", token,
                     "spec", "optimizer", "name", "sgd", "lr", 0.1, "batch", 8, "steps", 3);
}

static int nothing(struct submit *s, json_t **out, struct sh_err *err)
{
    int rc = submit_store(s, err);

    *out = rc ? NULL : json_object();
    return rc;
}

/* bodies: TAKES. */
static int submit_all(struct db *db, json_t *bodies, struct submit *s, json_t **keep,
                      struct sh_err *err)
{
    struct api_req q = request(db);
    json_t *out = NULL;
    int rc;

    *keep = bodies;
    assert_ok(submit_init(s, &q, STORE_SUBMIT_BATCH, json_array_size(bodies), NULL));
    for (size_t i = 0; i < s->n; i++)
        submit_read(&s->items[i], json_array_get(bodies, i), NULL);
    rc = submit_once(s, nothing, &out, err);
    json_decref(out);
    assert_false(q.reply.replayed);
    s->q = NULL;
    return rc;
}

static void each_job_of_a_batch_has_a_result_of_its_own(void **state)
{
    struct db *db = *state;
    struct submit s;
    struct sh_err err = {0};
    json_t *keep, *other = job_body("default", "once"), *missing = job_body("default", NULL);

    run(db, "INSERT INTO queue (tenant_id, name, state) VALUES (1, 'full', 'DRAINING')");
    json_object_set_new(json_object_get(other, "spec"), "steps", json_integer(99));
    json_object_set_new(missing, "model", json_string("none"));
    assert_ok_err(
        submit_all(db,
                   json_pack("[o, o, o, o, o, o, o, i]", job_body("default", NULL),
                             job_body("full", NULL), job_body("default", "once"), missing,
                             job_body("default", "once"), other, job_body("nowhere", NULL), 5),
                   &s, &keep, &err),
        &err);
    assert_int_equal(s.items[0].made, SUBMIT_MADE);
    assert_int_equal(s.items[1].err.rc, SH_E_CONFLICT);
    assert_non_null(strstr(s.items[1].err.msg, "DRAINING"));
    assert_int_equal(s.items[2].made, SUBMIT_MADE);
    assert_int_equal(s.items[3].err.rc, SH_E_NOTFOUND);
    assert_int_equal(s.items[4].made, SUBMIT_EARLIER);
    assert_int_equal(s.items[4].id, s.items[2].id);
    assert_int_equal(s.items[4].err.rc, SH_OK);
    assert_int_equal(s.items[5].status, 422);
    assert_int_equal(s.items[5].err.rc, SH_E_CONFLICT);
    assert_int_equal(s.items[6].err.rc, SH_E_NOTFOUND);
    assert_int_equal(s.items[7].err.rc, SH_E_INVALID);
    submit_fini(&s);
    json_decref(keep);
    assert_int_equal(number(db, "SELECT count(*) FROM job"), 2);
    assert_int_equal(number(db, "SELECT count(*) FROM job_event WHERE to_state = 'QUEUED'"), 2);
    assert_int_equal(number(db, "SELECT count(*) FROM audit WHERE action = 'batch.create' AND "
                                "after -> 'jobs' = (SELECT jsonb_agg(id ORDER BY id) FROM job)"),
                     1);
    assert_int_equal(number(db, WRONG), 0);
}

#define N_TOKENS 40

struct crosser {
    pthread_t thread;
    struct db *db;
    pthread_barrier_t *meet; /* at the start of each round */
    bool is_reverse;
    int rc;
};

/* All tokens of each round, in one order or the other. */
static void *cross_main(void *arg)
{
    struct crosser *c = arg;

    for (int round = 0; round < 20; round++) {
        json_t *keep, *bodies = json_array();
        struct submit s;
        int rc;

        for (int i = 0; i < N_TOKENS; i++) {
            char token[32];

            snprintf(token, sizeof(token), "%d.%d", round, c->is_reverse ? N_TOKENS - i : i + 1);
            json_array_append_new(bodies, job_body("default", token));
        }
        pthread_barrier_wait(c->meet);
        rc = submit_all(c->db, bodies, &s, &keep, NULL);
        for (int i = 0; !rc && i < N_TOKENS; i++)
            rc = s.items[i].err.rc;
        c->rc = c->rc ? c->rc : rc;
        submit_fini(&s);
        json_decref(keep);
    }
    return NULL;
}

static void batches_that_wait_for_each_others_tokens_are_both_done(void **state)
{
    struct db *db = *state;
    pthread_barrier_t meet;
    struct crosser c[2] = {{.meet = &meet}, {.meet = &meet, .is_reverse = true}};

    pthread_barrier_init(&meet, NULL, 2);
    for (size_t i = 0; i < 2; i++) {
        c[i].db = open_db("crosser");
        assert_int_equal(pthread_create(&c[i].thread, NULL, cross_main, &c[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        pthread_join(c[i].thread, NULL);
        assert_int_equal(c[i].rc, SH_OK);
        db_free(c[i].db);
    }
    pthread_barrier_destroy(&meet);
    assert_int_equal(number(db, "SELECT count(*) FROM job"), 20 * N_TOKENS);
    assert_int_equal(number(db, WRONG), 0);
}

struct taker {
    pthread_t thread;
    struct db *db;
    int n_made, rc;
    char msg[256];
};

static void *take_main(void *arg)
{
    struct taker *t = arg;
    json_t *rows = json_array();

    for (int i = 0; i < 3; i++)
        json_array_append_new(
            rows,
            json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:i, s:{}, s:i, s:b, s:{}, s:i, s:b, s:i}",
                      "place", i, "kind", "training", "name", "", "queue", "default", "priority", 0,
                      "version_id", 1, "dataset_id", 1, "spec", "max_attempts", 5, "hold", 0,
                      "labels", "min_runtime_ms", 0, "preemptible", 1, "gpus", 1));
    while (!t->rc) {
        struct api_req q = request(t->db);
        struct db_res *r = NULL;
        struct sh_err err = {0};

        t->rc = store_submit(&q, STORE_SUBMIT_BATCH, rows, NULL, &r, &err);
        t->n_made += t->rc ? 0 : (int)db_rows(r);
        sh_strlcpy(t->msg, err.msg, sizeof(t->msg));
        db_res_free(r);
    }
    json_decref(rows);
    return NULL;
}

static void a_quota_is_kept_to_the_last_job_by_many_at_once(void **state)
{
    struct db *db = *state;
    struct taker t[N_THREADS] = {0};
    int n = 0;

    run(db, "UPDATE quota SET max_queued_jobs = 100 WHERE tenant_id = 1");
    for (size_t i = 0; i < N_THREADS; i++) {
        t[i].db = open_db("taker");
        assert_int_equal(pthread_create(&t[i].thread, NULL, take_main, &t[i]), 0);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        pthread_join(t[i].thread, NULL);
        assert_int_equal(t[i].rc, SH_E_QUOTA);
        assert_string_equal(t[i].msg,
                            "99 jobs are queued, the tenant's max_queued_jobs is 100, and 3 "
                            "more would be; wait for one to start or ask for a higher quota");
        n += t[i].n_made;
        db_free(t[i].db);
    }
    assert_int_equal(n, 99);
    assert_int_equal(number(db, "SELECT count(*) FROM job"), 99);
    assert_int_equal(number(db, WRONG), 0);
    /* It does not keep a job from coming back to the queue. */
    run(db, "UPDATE quota SET max_queued_jobs = 5 WHERE tenant_id = 1");
    run(db,
        "UPDATE job SET state = 'RUNNING', executor = 'e' WHERE id = (SELECT min(id) FROM job)");
    run(db, "UPDATE job SET state = 'QUEUED', executor = NULL WHERE state = 'RUNNING'");
    assert_int_equal(number(db, WRONG), 0);
}

/* ------------------------------------------------------------------ why a job was not made */

/* From when everything that the jobs name has been looked up, who reads the names of models takes
 * too long. A job that was made is told without them, but not one that is found by its token. */
static int store_blindly(struct submit *s, json_t **out, struct sh_err *err)
{
    struct db *db = s->q->db;

    run(db, "ALTER TABLE model RENAME TO model_real");
    run(db, "CREATE FUNCTION takes_long() RETURNS boolean LANGUAGE plpgsql AS "
            "$$BEGIN RAISE EXCEPTION 'too long' USING ERRCODE = 'query_canceled'; END$$");
    run(db, "CREATE VIEW model AS SELECT * FROM model_real WHERE takes_long()");
    return nothing(s, out, err);
}

/* The tokens "a" and "b" are known, the queue "nowhere" is not. s: submit_fini(). */
static int submit_blindly(struct db *db, struct api_req *q, struct submit *s, struct sh_err *err)
{
    json_t *known = json_pack("[o, o]", job_body("default", "a"), job_body("default", "b"));
    json_t *keep, *out = NULL;
    int rc;

    assert_ok(submit_all(db, known, s, &keep, NULL));
    submit_fini(s);
    json_decref(keep);
    q->json =
        json_pack("[o, o, o, o, o]", job_body("default", NULL), job_body("default", "a"),
                  job_body("default", "b"), job_body("nowhere", NULL), job_body("default", "c"));
    assert_ok(submit_init(s, q, STORE_SUBMIT_BATCH, json_array_size(q->json), NULL));
    for (size_t i = 0; i < s->n; i++)
        submit_read(&s->items[i], json_array_get(q->json, i), NULL);
    sh_metrics_reset();
    rc = submit_once(s, store_blindly, &out, err);
    json_decref(out);
    return rc;
}

static void assert_asked_once(void)
{
    struct sh_buf b;

    sh_buf_init(&b, 1u << 20);
    assert_ok(sh_metrics_render('a', &b, NULL));
    assert_has(b.data, "shunt_db_query_seconds_count{statement=\"job_by_token\"} 1\n");
    assert_null(strstr(b.data, "statement=\"queue_get\""));
    sh_buf_fini(&b);
}

static void a_database_that_does_not_say_why_is_asked_once(void **state)
{
    struct db *db = *state;
    struct api_req q = request(db);
    struct sh_err err = {0};
    struct submit s;

    assert_ok_err(submit_blindly(db, &q, &s, &err), &err);
    assert_int_equal(s.items[0].made, SUBMIT_MADE);
    for (size_t i = 1; i < 4; i++) {
        assert_int_equal(s.items[i].made, SUBMIT_UNMADE);
        assert_int_equal(s.items[i].err.rc, SH_E_TIMEOUT);
        assert_has(s.items[i].err.detail, "job_by_token");
    }
    assert_int_equal(s.items[4].made, SUBMIT_MADE);
    assert_asked_once();
    submit_fini(&s);
    json_decref(q.json);
    assert_int_equal(number(db, "SELECT count(*) FROM job"), 4);
}

/* It is part of the answer that is kept, so the answer has to be known. */
static void with_a_key_a_batch_fails_whole_if_the_database_does_not_say_why(void **state)
{
    struct db *db = *state;
    const struct api_route route = {.path = "/api/v1/jobs:batch"};
    struct api_req q = request(db);
    struct sh_err err = {0};
    struct submit s;

    q.route = &route;
    q.h.idempotency_key = "once";
    assert_fails(submit_blindly(db, &q, &s, &err), SH_E_TIMEOUT, &err, "did not finish in time");
    assert_has(err.detail, "job_by_token");
    assert_asked_once();
    submit_fini(&s);
    json_decref(q.json);
    assert_int_equal(number(db, "SELECT count(*) FROM job"), 2);
    assert_int_equal(number(db, WRONG), 0);
}

/* ------------------------------------------------------------------ arrays */

/* The check that an event has its job is planned once in a connection. */
static void a_plan_made_of_an_empty_table_is_right_for_a_full_one(void **state)
{
    struct db *db = *state;
    struct sh_err err = {0};
    struct submit s;
    json_t *bodies;

    run(db, "VACUUM job"); /* since then PostgreSQL believes its size */
    assert_ok_err(db_rehearse(db, &err), &err);
    assert_ok_err(submit_all(db, json_pack("[o]", job_body("default", NULL)), &s, &bodies, &err),
                  &err);
    assert_int_equal(s.items[0].made, SUBMIT_MADE);
    assert_int_equal(number(db, "SELECT pg_stat_get_xact_numscans('job'::regclass)"), 0);
    db_undo(db);
    submit_fini(&s);
    json_decref(bodies);
}

/* Else statements that follow in its transaction are planned as nobody has tried. */
static void what_plans_that_check_is_over_with_its_statement(void **state)
{
    struct db *db = *state;
    struct sh_err err = {0};
    struct submit s;
    json_t *bodies;

    assert_ok_err(db_rehearse(db, &err), &err);
    assert_ok_err(submit_all(db, json_pack("[o]", job_body("default", NULL)), &s, &bodies, &err),
                  &err);
    assert_int_equal(s.items[0].made, SUBMIT_MADE);
    assert_int_equal(number(db, "SELECT (current_setting('enable_seqscan') = 'on')::int"), 1);
    run(db, "SELECT set_config('enable_seqscan', 'off', true)"); /* what is set already stays */
    run(db, "INSERT INTO job_event (job_id, to_state) SELECT id, 'QUEUED' FROM job");
    assert_int_equal(number(db, "SELECT (current_setting('enable_seqscan') = 'off')::int"), 1);
    db_undo(db);
    submit_fini(&s);
    json_decref(bodies);
}

static void an_array_is_acted_on_where_its_jobs_allow_it(void **state)
{
    struct db *db = *state;
    struct api_req q = request(db);
    struct sh_err err = {0};
    json_t *j = NULL, *states;
    int64_t n = 0;

    run(db, "INSERT INTO job_array (tenant_id, indices, n_jobs, template) VALUES (1, '0-3', 4, "
            "'{\"name\":\"sweep\",\"model\":\"lin\"}')");
    run(db, "INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec, array_id, "
            "array_index, state, executor, finished_at) SELECT 1, 1, 'training', 1, 1, '{}', 1, i, "
            "s, CASE "
            "s WHEN 'RUNNING' THEN 'e' END, CASE s WHEN 'FAILED' THEN now() END FROM (VALUES (0, "
            "'QUEUED'), (1, 'RUNNING'), (2, 'FAILED'), (3, 'QUEUED')) x (i, s)");
    assert_ok_err(store_job_control(&q, NULL, "1", jobctl_find("hold"), &n, &err), &err);
    assert_int_equal(n, 2);
    assert_ok_err(store_job_control(&q, NULL, "1", jobctl_find("cancel"), &n, &err), &err);
    assert_int_equal(n, 3);
    assert_ok_err(store_array_get(&q, "1", &j, &err), &err);
    states = json_pack("{s:i, s:i, s:i}", "CANCELLED", 2, "CANCELLING", 1, "FAILED", 1);
    assert_true(json_equal(json_object_get(j, "states"), states));
    json_decref(states);
    json_decref(j);
    assert_int_equal(number(db, "SELECT count(*) FROM job_event WHERE reason = 'CancelledByUser'"),
                     3);
    assert_int_equal(number(db, "SELECT count(*) FROM audit WHERE resource = 'array/1'"), 2);
    assert_int_equal(number(db, WRONG), 0);
    q.tenant_id = 2;
    assert_ok_err(store_job_control(&q, NULL, "1", jobctl_find("cancel"), &n, &err), &err);
    assert_int_equal(n, 0);
    assert_ok_err(store_array_get(&q, "1", &j, &err), &err);
    assert_null(j);
    assert_ok_err(store_array_patch(&q, "1", NULL, "2", &j, &err), &err);
    assert_null(j);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_change_of_a_state_is_counted),
        TEST(the_count_is_exact_after_and_in_a_storm_of_changes),
        TEST(each_job_of_a_batch_has_a_result_of_its_own),
        TEST(batches_that_wait_for_each_others_tokens_are_both_done),
        TEST(a_quota_is_kept_to_the_last_job_by_many_at_once),
        TEST(a_database_that_does_not_say_why_is_asked_once),
        TEST(with_a_key_a_batch_fails_whole_if_the_database_does_not_say_why),
        TEST(a_plan_made_of_an_empty_table_is_right_for_a_full_one),
        TEST(what_plans_that_check_is_over_with_its_statement),
        TEST(an_array_is_acted_on_where_its_jobs_allow_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
