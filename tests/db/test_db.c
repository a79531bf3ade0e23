/* test_db.c - without it, a transaction that the database undid could be reported as done, a body
 * could go on outside its transaction after a lost connection, a dead database could hold a caller
 * for minutes, and a changed migration could be taken for the one that ran.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* link: -lpq */
#include "common/metrics.h"
#include "tests/db/db_test.h"

#include <poll.h>
#include <pthread.h>

struct world {
    struct db *db, *other; /* two sessions */
    char dir[SH_TEST_DIR_BYTES];
    int n_calls, n_tries;
};

static struct world *the_world; /* bodies of transactions get a const argument */

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->db = open_db("test_db");
    w->other = open_db("test_db_other");
    make_empty(w->db);
    run(w->db, "CREATE TABLE t (id integer PRIMARY KEY, n integer CHECK (n < 100), s text NOT NULL "
               "DEFAULT '')");
    run(w->db, "CREATE TABLE child (t integer REFERENCES t (id))");
    run(w->db, "INSERT INTO t (id, n) VALUES (1, 10), (2, 20)");
    sh_test_dir_make(w->dir);
    the_world = w;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    db_free(w->db);
    db_free(w->other);
    sh_test_dir_remove(w->dir);
    sh_metrics_reset();
    free(w);
    return 0;
}

static int64_t number_of(struct db *db, const struct db_stmt *s)
{
    struct db_res *r = NULL;
    int64_t v;

    assert_ok(db_exec(db, s, NULL, &r, NULL));
    assert_int_equal(db_rows(r), 1);
    v = db_i64(r, 0, 0, -1);
    db_res_free(r);
    return v;
}

static const struct db_stmt N_OF_1 = {"n_of_1", "SELECT n FROM t WHERE id = 1", 0};
static const struct db_stmt N_OF_2 = {"n_of_2", "SELECT n FROM t WHERE id = 2", 0};
static const struct db_stmt BACKEND = {"backend", "SELECT pg_backend_pid()", 0};
static const struct db_stmt INSERT = {"insert", "INSERT INTO t (id, n) VALUES ($1, $2)", 2};
static const struct db_stmt ADD = {"add", "UPDATE t SET n = n + 1 WHERE id = $1", 1};
#define P(...) ((const char *const[]){__VA_ARGS__})

/* ---------------------------------------------------------------- statements */

static void values_come_back_by_type_and_null_is_told_apart(void **state)
{
    static const struct db_stmt S = {
        "types", "SELECT 42::bigint, 2.5::float8, true, NULL::int, $1::text, 'NaN'::float8, ''", 1};
    struct world *w = *state;
    struct db_res *r = NULL;

    assert_ok(db_exec(w->db, &S, P("gr\xC3\xBC\xC3\x9F'; DROP TABLE t; --"), &r, NULL));
    assert_int_equal(db_rows(r), 1);
    assert_int_equal(db_i64(r, 0, 0, -1), 42);
    assert_true(db_f64(r, 0, 1, 0) == 2.5);
    assert_true(db_bool(r, 0, 2));
    assert_null(db_text(r, 0, 3));
    assert_int_equal(db_i64(r, 0, 3, -7), -7);
    assert_string_equal(db_text(r, 0, 4), "gr\xC3\xBC\xC3\x9F'; DROP TABLE t; --");
    assert_true(db_f64(r, 0, 5, 1) != db_f64(r, 0, 5, 1));
    assert_string_equal(db_text(r, 0, 6), "");
    assert_null(db_text(r, 1, 0)); /* outside */
    assert_null(db_text(r, 0, 7));
    db_res_free(r);
    assert_int_equal(number_of(w->db, &N_OF_1), 10);
}

static void the_number_of_changed_rows_is_told(void **state)
{
    static const struct db_stmt S = {"all", "UPDATE t SET n = n + 1", 0};
    struct world *w = *state;
    struct db_res *r = NULL;

    assert_ok(db_exec(w->db, &S, NULL, &r, NULL));
    assert_int_equal(db_affected(r), 2);
    assert_int_equal(db_rows(r), 0);
    db_res_free(r);
}

static void failures_are_told_apart_by_kind(void **state)
{
    static const struct {
        struct db_stmt s;
        int rc;
        const char *constraint;
    } CASES[] = {
        {{"dup", "INSERT INTO t (id) VALUES (1)", 0}, SH_E_CONFLICT, "t_pkey"},
        {{"fk", "INSERT INTO child VALUES (99)", 0}, SH_E_CONFLICT, "child_t_fkey"},
        {{"check", "INSERT INTO t (id, n) VALUES (3, 100)", 0}, SH_E_INVALID, "t_n_check"},
        {{"null", "INSERT INTO t (id, s) VALUES (3, NULL)", 0}, SH_E_INVALID, ""},
        {{"range", "SELECT 99999999999::text::int", 0}, SH_E_INVALID, ""},
        {{"syntax", "SELEKT 1", 0}, SH_E_BUG, ""},
        {{"table", "SELECT 1 FROM nowhere", 0}, SH_E_BUG, ""},
    };
    struct world *w = *state;
    int64_t pid = number_of(w->db, &BACKEND);

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err err = {0};

        assert_fails(db_exec(w->db, &CASES[i].s, NULL, NULL, &err), CASES[i].rc, &err, "database");
        assert_has(err.detail, CASES[i].s.name);
        assert_has(err.detail, CASES[i].constraint);
        assert_has(err.detail, "SQLSTATE");
        assert_has_not(err.msg, "t_pkey"); /* a tenant may read msg */
    }
    assert_int_equal(number_of(w->db, &BACKEND), pid); /* none of them cost the connection */
}

static void a_value_that_is_not_utf8_is_refused(void **state)
{
    static const struct db_stmt S = {"utf8", "SELECT $1::text", 1};
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_exec(w->db, &S, P("\xFF\xFE"), NULL, &err), SH_E_INVALID, &err, "value");
}

static void statements_are_counted_by_name(void **state)
{
    struct world *w = *state;
    struct sh_buf b;

    number_of(w->db, &N_OF_1);
    sh_buf_init(&b, 1u << 20);
    assert_ok(sh_metrics_render('a', &b, NULL));
    assert_has(b.data, "shunt_db_query_seconds_count{statement=\"n_of_1\"} 1\n");
    sh_buf_fini(&b);
}

/* ---------------------------------------------------------------- transactions */

static int insert_two(struct db *db, const void *arg, struct sh_err *err)
{
    const char *second = arg;
    int rc = db_exec(db, &INSERT, P("7", "7"), NULL, err);

    return rc ? rc : db_exec(db, &INSERT, P(second, "8"), NULL, err);
}

static void a_transaction_is_all_or_nothing(void **state)
{
    static const struct db_stmt COUNT = {"count", "SELECT count(*) FROM t", 0};
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_tx(w->db, "two", insert_two, "1", &err), SH_E_CONFLICT, &err, "conflicts");
    assert_int_equal(number_of(w->db, &COUNT), 2);
    assert_ok(db_tx(w->db, "two", insert_two, "8", NULL));
    assert_int_equal(number_of(w->other, &COUNT), 4);
}

static int swallow(struct db *db, const void *arg, struct sh_err *err)
{
    (void)arg;
    (void)err;
    db_exec(db, &ADD, P("2"), NULL, NULL);
    db_exec(db, &INSERT, P("1", "1"), NULL, NULL); /* fails; the body does not look */
    return SH_OK;
}

static void a_commit_that_undoes_is_no_success(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_tx(w->db, "swallow", swallow, NULL, &err), SH_E_CONFLICT, &err, "undone");
    assert_int_equal(number_of(w->db, &N_OF_2), 20);
}

static int go_on(struct db *db, const void *arg, struct sh_err *err)
{
    (void)arg;
    db_exec(db, &INSERT, P("1", "1"), NULL, NULL);
    return db_exec(db, &ADD, P("2"), NULL, err);
}

static void behind_a_failure_the_cause_is_reported_not_the_follow_up(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_tx(w->db, "go on", go_on, NULL, &err), SH_E_CONFLICT, &err, "already failed");
}

static int fail_quietly(struct db *db, const void *arg, struct sh_err *err)
{
    (void)err;
    (void)arg;
    db_exec(db, &ADD, P("2"), NULL, NULL);
    return SH_E_QUOTA;
}

static void a_body_that_refuses_undoes_its_work(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_tx(w->db, "quiet", fail_quietly, NULL, &err), SH_E_QUOTA, &err, "quiet");
    assert_int_equal(number_of(w->db, &N_OF_2), 20);
}

static int nest(struct db *db, const void *arg, struct sh_err *err)
{
    return db_tx(db, "inner", fail_quietly, arg, err);
}

static void transactions_do_not_nest(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_tx(w->db, "outer", nest, NULL, &err), SH_E_BUG, &err, "inner");
    assert_ok(db_tx(w->db, "after", insert_two, "8", NULL));
}

static int insert_202(struct db *db, const void *arg, struct sh_err *err)
{
    (void)arg;
    return db_exec(db, &INSERT, P("202", "2"), NULL, err);
}

static const struct db_stmt N_INNER = {"n_inner", "SELECT count(*) FROM t WHERE id IN (201, 202)",
                                       0};

static int insert_around(struct db *db, const void *arg, struct sh_err *err)
{
    const bool *fails = arg;
    int rc = db_exec(db, &INSERT, P("201", "1"), NULL, err);

    if (!rc)
        rc = db_tx(db, "inner", insert_202, NULL, err);
    return rc || !*fails ? rc : SH_FAIL(err, SH_E_QUOTA, "after the inner one");
}

static void one_around_another_is_one(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    bool fails = true;

    assert_int_equal(db_tx_around(w->db, "around", insert_around, &fails, &err), SH_E_QUOTA);
    assert_int_equal(number_of(w->db, &N_INNER), 0); /* the inner one was no commit */
    fails = false;
    err = (struct sh_err){0};
    assert_ok_err(db_tx_around(w->db, "around", insert_around, &fails, &err), &err);
    assert_int_equal(number_of(w->db, &N_INNER), 2);
    assert_fails(db_tx(w->db, "outer", nest, NULL, &err), SH_E_BUG, &err, "inner");
}

static const struct db_stmt SERIAL = {"serial", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
                                      0};

/* The first try reads, then another connection changes the row: they cannot be ordered. */
static int lose_once(struct db *db, const void *arg, struct sh_err *err)
{
    struct world *w = the_world;
    int rc = db_exec(db, &SERIAL, NULL, NULL, err);

    (void)arg;
    if (!rc)
        rc = db_exec(db, &N_OF_1, NULL, NULL, err);
    if (!rc && w->n_calls++ == 0)
        assert_ok(db_exec(w->other, &ADD, P("1"), NULL, NULL));
    return rc ? rc : db_exec(db, &ADD, P("1"), NULL, err);
}

static const struct db_stmt N_CHANGED = {"n_changed",
                                         "SELECT count(*) FROM t WHERE n = 99 OR id = 77", 0};

static int insert_77(struct db *db, const void *arg, struct sh_err *err)
{
    (void)arg;
    return db_exec(db, &INSERT, P("77", "7"), NULL, err);
}

static void a_rehearsal_is_seen_from_within_and_leaves_nothing(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_ok_err(db_rehearse(w->db, &err), &err);
    run(w->db, "UPDATE t SET n = 99 WHERE id = 1");
    assert_ok_err(db_tx(w->db, "inner", insert_77, NULL, &err), &err);
    assert_int_equal(number_of(w->db, &N_CHANGED), 2);
    db_undo(w->db);
    assert_int_equal(number_of(w->db, &N_CHANGED), 0);
    assert_ok_err(db_tx(w->db, "outer", insert_77, NULL, &err), &err);
    assert_int_equal(number_of(w->db, &N_CHANGED), 1);
    db_undo(w->db); /* nothing is rehearsed: nothing happens */
    assert_int_equal(number_of(w->db, &N_CHANGED), 1);
}

static void a_failure_in_a_rehearsal_is_told_and_the_connection_goes_on(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    run(w->db, "INSERT INTO t (id, n) VALUES (77, 7)");
    assert_ok_err(db_rehearse(w->db, &err), &err);
    assert_int_equal(db_tx(w->db, "inner", insert_77, NULL, &err), SH_E_CONFLICT);
    db_undo(w->db);
    assert_int_equal(number_of(w->db, &N_CHANGED), 1);
}

static void a_serialization_failure_is_tried_again(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_ok_err(db_tx(w->db, "lose", lose_once, NULL, &err), &err);
    assert_int_equal(w->n_calls, 2);
    assert_int_equal(number_of(w->db, &N_OF_1), 12);
}

static int always_lose(struct db *db, const void *arg, struct sh_err *err)
{
    the_world->n_calls = 0; /* loses each time */
    the_world->n_tries++;
    return lose_once(db, arg, err);
}

static void a_conflict_that_stays_is_given_up_after_five_tries(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_tx(w->db, "always", always_lose, NULL, &err), SH_E_DBSOFT, &err, "try again");
    assert_int_equal(w->n_tries, 5);
}

static const struct db_stmt LOSE = {
    "lose", "DO $$ BEGIN UPDATE t SET n = 50; RAISE EXCEPTION SQLSTATE '40001'; END $$", 0};

static const struct db_stmt N_OF_7 = {"n_of_7", "SELECT n FROM t WHERE id = 7", 0};

static int lose_alone(struct db *db, const void *arg, struct sh_err *err)
{
    (void)arg;
    return the_world->n_calls++ ? db_exec(db, &ADD, P("1"), NULL, err)
                                : db_exec(db, &LOSE, NULL, NULL, err);
}

static void without_a_transaction_each_statement_stays_and_losers_try_again(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_tx_alone(w->db, "alone", insert_two, "1", &err), SH_E_CONFLICT, &err,
                 "conflicts");
    assert_int_equal(number_of(w->db, &N_OF_7), 7);
    err = (struct sh_err){0};
    assert_ok_err(db_tx_alone(w->db, "alone", lose_alone, NULL, &err), &err);
    assert_int_equal(w->n_calls, 2);
    assert_int_equal(number_of(w->db, &N_OF_1), 11);
}

/* Two sessions lock two rows in opposite order; the server picks one to fail. */
struct crossing {
    struct db *db;
    const char *first, *second;
    pthread_barrier_t *meet;
    int tries, rc;
};

static int cross(struct db *db, const void *arg, struct sh_err *err)
{
    struct crossing *const *const *box = arg;
    struct crossing *c = **box;
    int rc = db_exec(db, &ADD, &c->first, NULL, err);

    if (!rc && c->tries++ == 0)
        pthread_barrier_wait(c->meet);
    return rc ? rc : db_exec(db, &ADD, &c->second, NULL, err);
}

static void *cross_main(void *arg)
{
    struct crossing *c = arg;
    struct crossing **box = &c;

    c->rc = db_tx(c->db, "cross", cross, &box, NULL);
    return NULL;
}

static void a_deadlock_is_resolved_by_trying_again(void **state)
{
    struct world *w = *state;
    pthread_barrier_t meet;
    struct crossing a = {w->db, "1", "2", &meet, 0, 0}, b = {w->other, "2", "1", &meet, 0, 0};
    pthread_t id;

    pthread_barrier_init(&meet, NULL, 2);
    assert_int_equal(pthread_create(&id, NULL, cross_main, &a), 0);
    cross_main(&b);
    pthread_join(id, NULL);
    assert_int_equal(a.rc, SH_OK);
    assert_int_equal(b.rc, SH_OK);
    assert_true(a.tries + b.tries >= 3); /* one of them ran again, and may have lost again */
    assert_int_equal(number_of(w->db, &N_OF_1), 12);
    pthread_barrier_destroy(&meet);
}

/* ---------------------------------------------------------------- lost connections */

static void kill_session(struct world *w, struct db *victim)
{
    static const struct db_stmt KILL = {"kill", "SELECT pg_terminate_backend($1::int, 5000)", 1};
    struct db *killer = victim == w->db ? w->other : w->db;
    char pid[32];

    snprintf(pid, sizeof(pid), "%lld", (long long)number_of(victim, &BACKEND));
    assert_ok(db_exec(killer, &KILL, P(pid), NULL, NULL));
}

static void a_session_that_was_ended_between_two_calls_costs_no_failure(void **state)
{
    struct world *w = *state;
    uint64_t before = db_generation(w->db);

    kill_session(w, w->db);
    assert_int_equal(number_of(w->db, &N_OF_1), 10); /* prepared again too */
    assert_int_equal(db_generation(w->db), before + 1);
}

static int lose_connection(struct db *db, const void *arg, struct sh_err *err)
{
    int rc = db_exec(db, &ADD, P("1"), NULL, err);

    (void)arg;
    if (!rc)
        kill_session(the_world, db);
    db_exec(db, &ADD, P("2"), NULL, NULL);                 /* fails */
    return rc ? rc : db_exec(db, &ADD, P("2"), NULL, err); /* must not run outside */
}

static void inside_a_transaction_a_lost_connection_is_not_made_again(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_tx(w->db, "lost", lose_connection, NULL, &err), SH_E_DBDOWN, &err, "lost");
    assert_int_equal(number_of(w->other, &N_OF_1), 10);
    assert_int_equal(number_of(w->other, &N_OF_2), 20);
    assert_int_equal(number_of(w->db, &N_OF_1), 10); /* and then it is */
}

static void a_bad_address_is_refused_without_showing_it(void **state)
{
    struct sh_err err = {0};
    struct db *db;

    (void)state;
    assert_fails(db_new("postgresql://me:s3cret@[bad", "t", &db, &err), SH_E_INVALID, &err,
                 "keyword");
    assert_has_not(err.msg, "s3cret");
    assert_has_not(err.detail, "s3cret");
    assert_null(db);
}

/* ---------------------------------------------------------------- notifications */

static void a_notification_arrives_and_a_lost_session_shows(void **state)
{
    static const struct db_stmt LISTEN = {"listen", "LISTEN jobs", 0},
                                NOTIFY = {"notify", "SELECT pg_notify('jobs', $1)", 1};
    struct world *w = *state;
    char channel[64], payload[64];
    struct pollfd p;
    bool got = false;

    assert_ok(db_exec(w->db, &LISTEN, NULL, NULL, NULL));
    assert_false(db_notification(w->db, channel, payload));
    assert_ok(db_exec(w->other, &NOTIFY, P("42"), NULL, NULL));
    p = (struct pollfd){.fd = db_fd(w->db), .events = POLLIN};
    while (!got && poll(&p, 1, 60000) > 0)
        got = db_notification(w->db, channel, payload);
    assert_true(got);
    assert_string_equal(channel, "jobs");
    assert_string_equal(payload, "42");
    assert_false(db_notification(w->db, channel, payload));

    kill_session(w, w->db);
    while (db_fd(w->db) >= 0 && poll(&p, 1, 60000) > 0)
        assert_false(db_notification(w->db, channel, payload));
    assert_int_equal(db_fd(w->db), -1); /* or a loop that watches it would spin */
}

/* ---------------------------------------------------------------- migrations */

static void put(struct world *w, const char *name, const char *sql)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", w->dir, name);
    sh_test_write_file(path, sql, strlen(sql));
}

static void refuse(struct world *w, int rc, const char *text)
{
    struct sh_err err = {0};
    int applied = -1;

    assert_fails(db_migrate(w->db, w->dir, &applied, &err), rc, &err, text);
    assert_int_equal(applied, 0);
}

static void migrations_run_once_each_in_order(void **state)
{
    static const struct db_stmt M = {"m", "SELECT x FROM m", 0};
    struct world *w = *state;
    struct sh_err err = {0};
    int applied = -1;

    put(w, "0001_first.sql", "CREATE TABLE m (x int); INSERT INTO m VALUES (1);\n");
    put(w, "0002_second.sql", "UPDATE m SET x = x * 10;");
    put(w, "README.md", "no migration");
    assert_ok_err(db_migrate(w->db, w->dir, &applied, &err), &err);
    assert_int_equal(applied, 2);
    assert_ok_err(db_migrate(w->db, w->dir, &applied, &err), &err);
    assert_int_equal(applied, 0);
    put(w, "0003_third.sql", "UPDATE m SET x = x + 5;");
    assert_ok_err(db_migrate(w->other, w->dir, &applied, &err), &err);
    assert_int_equal(applied, 1);
    assert_int_equal(number_of(w->db, &M), 15);

    assert_ok_err(db_ready(w->db, 3, &err), &err);
    assert_fails(db_ready(w->db, 4, &err), SH_E_CONFLICT, &err, "--migrate-only");
    err = (struct sh_err){0};
    assert_fails(db_ready(w->db, 2, &err), SH_E_CONFLICT, &err, "newer release");
}

static void a_database_without_schema_is_not_ready(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_fails(db_ready(w->db, 1, &err), SH_E_CONFLICT, &err, "version 0");
}

static void a_migration_that_fails_leaves_nothing_and_names_the_line(void **state)
{
    static const struct db_stmt M = {"m_left", "SELECT count(*) FROM pg_class WHERE relname = 'm'",
                                     0};
    struct world *w = *state;
    struct sh_err err = {0};
    int applied = -1;

    put(w, "0001_bad.sql", "CREATE TABLE m (x int);\n\nSELECT nonsense;\n");
    assert_fails(db_migrate(w->db, w->dir, &applied, &err), SH_E_BUG, &err, "0001_bad.sql");
    assert_has(err.detail, "line 3");
    assert_has(err.detail, "nonsense");
    assert_int_equal(applied, 0);
    assert_int_equal(number_of(w->db, &M), 0);
    put(w, "0001_bad.sql", "CREATE TABLE m (x int);");
    assert_ok(db_migrate(w->db, w->dir, &applied, NULL));
}

static void a_changed_or_missing_migration_is_refused(void **state)
{
    struct world *w = *state;
    char path[256];
    int applied;

    put(w, "0001_a.sql", "SELECT 1;");
    put(w, "0002_b.sql", "SELECT 2;");
    assert_ok(db_migrate(w->db, w->dir, &applied, NULL));
    put(w, "0001_a.sql", "SELECT 1; ");
    refuse(w, SH_E_CONFLICT, "changed after it was applied");
    put(w, "0001_a.sql", "SELECT 1;");
    snprintf(path, sizeof(path), "%s/0002_b.sql", w->dir);
    unlink(path);
    refuse(w, SH_E_CONFLICT, "\"0002_b.sql\" was applied");
}

static void files_that_cannot_be_a_history_are_refused(void **state)
{
    struct world *w = *state;

    refuse(w, SH_E_INVALID, "no migration");
    put(w, "0002_gap.sql", "SELECT 1;");
    refuse(w, SH_E_INVALID, "should have number 0001");
    put(w, "0001_one.sql", "SELECT 1;\n  commit;\n");
    refuse(w, SH_E_INVALID, "contains COMMIT;");
    put(w, "0001_one.sql", "SELECT 1;");
    put(w, "0002_also.sql", "SELECT 1;");
    refuse(w, SH_E_INVALID, "should have number 0003");
    put(w, "extra.sql", "SELECT 1;");
    refuse(w, SH_E_INVALID, "number 0003");
    assert_int_equal(db_migrate(w->db, "/nonexistent", &(int){0}, NULL), SH_E_IO);
}

static void a_migration_that_ends_the_transaction_by_stealth_is_refused(void **state)
{
    struct world *w = *state;

    put(w, "0001_sly.sql", "SELECT 1; COMMIT; SELECT 2;");
    refuse(w, SH_E_INVALID, "ended the runner's transaction");
}

struct migrating {
    struct db *db;
    const char *dir;
    int applied, rc;
};

static void *migrate_main(void *arg)
{
    struct migrating *m = arg;

    m->rc = db_migrate(m->db, m->dir, &m->applied, NULL);
    return NULL;
}

static void two_migrations_at_the_same_time_apply_each_file_once(void **state)
{
    static const struct db_stmt M = {"m2", "SELECT x FROM m", 0};
    struct world *w = *state;
    struct migrating a = {w->db, w->dir, -1, -1}, b = {w->other, w->dir, -1, -1};
    pthread_t id;

    put(w, "0001_a.sql", "CREATE TABLE m (x int); INSERT INTO m VALUES (0);");
    for (int i = 2; i < 10; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%04d_more.sql", i);
        put(w, name, "UPDATE m SET x = x + 1; SELECT pg_sleep(0.01);");
    }
    assert_int_equal(pthread_create(&id, NULL, migrate_main, &a), 0);
    migrate_main(&b);
    pthread_join(id, NULL);
    assert_int_equal(a.rc, SH_OK);
    assert_int_equal(b.rc, SH_OK);
    assert_int_equal(a.applied + b.applied, 9);
    assert_int_equal(number_of(w->db, &M), 8);
}

static void the_projects_own_migrations_apply(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    int applied;

    assert_ok_err(db_migrate(w->db, "migrations", &applied, &err), &err);
    assert_ok_err(db_ready(w->db, DB_SCHEMA_VERSION, &err), &err);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(values_come_back_by_type_and_null_is_told_apart),
        TEST(the_number_of_changed_rows_is_told),
        TEST(failures_are_told_apart_by_kind),
        TEST(a_value_that_is_not_utf8_is_refused),
        TEST(statements_are_counted_by_name),
        TEST(a_transaction_is_all_or_nothing),
        TEST(a_commit_that_undoes_is_no_success),
        TEST(behind_a_failure_the_cause_is_reported_not_the_follow_up),
        TEST(a_body_that_refuses_undoes_its_work),
        TEST(transactions_do_not_nest),
        TEST(one_around_another_is_one),
        TEST(a_rehearsal_is_seen_from_within_and_leaves_nothing),
        TEST(a_failure_in_a_rehearsal_is_told_and_the_connection_goes_on),
        TEST(a_serialization_failure_is_tried_again),
        TEST(a_conflict_that_stays_is_given_up_after_five_tries),
        TEST(a_deadlock_is_resolved_by_trying_again),
        TEST(without_a_transaction_each_statement_stays_and_losers_try_again),
        TEST(a_session_that_was_ended_between_two_calls_costs_no_failure),
        TEST(inside_a_transaction_a_lost_connection_is_not_made_again),
        TEST(a_bad_address_is_refused_without_showing_it),
        TEST(a_notification_arrives_and_a_lost_session_shows),
        TEST(migrations_run_once_each_in_order),
        TEST(a_database_without_schema_is_not_ready),
        TEST(a_migration_that_fails_leaves_nothing_and_names_the_line),
        TEST(a_changed_or_missing_migration_is_refused),
        TEST(files_that_cannot_be_a_history_are_refused),
        TEST(a_migration_that_ends_the_transaction_by_stealth_is_refused),
        TEST(two_migrations_at_the_same_time_apply_each_file_once),
        TEST(the_projects_own_migrations_apply),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
