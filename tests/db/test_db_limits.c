/* test_db_limits.c - how long a call to the database may take. Without it a dead database, one that
 * hangs, or a lock that somebody holds could keep a caller for minutes.
 *
 * The limits are the product's; no test says how fast this machine has to be.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* link: -lpq */
#include "common/clock.h"
#include "tests/db/db_test.h"

#include <poll.h>
#include <signal.h>

#define MS INT64_C(1000000)

struct world {
    struct db *db, *other; /* two sessions */
    char dir[SH_TEST_DIR_BYTES];
};

static const struct db_stmt NUMBER = {"number", "SELECT n FROM t", 0};
static const struct db_stmt ADD = {"add", "UPDATE t SET n = n + 1", 0};
static const struct db_stmt BACKEND = {"backend", "SELECT pg_backend_pid()", 0};

/* Waits for the pause between two attempts, and for a busy machine. */
static void reach(struct db *db)
{
    int rc = SH_E_DBDOWN;

    for (int i = 0; i < 1000 && rc; i++) {
        rc = db_ready(db, 0, NULL);
        if (rc)
            poll(NULL, 0, 50);
    }
    assert_ok(rc);
}

static int64_t number_of(struct db *db, const struct db_stmt *s)
{
    struct db_res *r = NULL;
    int64_t v;

    assert_ok(db_exec(db, s, NULL, &r, NULL));
    v = db_i64(r, 0, 0, -1);
    db_res_free(r);
    return v;
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    struct db *db = open_db("test_db_limits");

    assert_non_null(w);
    make_empty(db);
    run(db, "CREATE TABLE t AS SELECT 10 AS n");
    db_free(db);
    sh_test_dir_make(w->dir);
    w->db = open_db("test_db_limits");
    w->other = open_db("test_db_limits_other");
    db__be_patient(w->db, 1);
    db__be_patient(w->other, 1);
    reach(w->db);
    reach(w->other);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    sh_clock_real();
    db_free(w->db);
    db_free(w->other);
    sh_test_dir_remove(w->dir);
    free(w);
    return 0;
}

/* The statement ends by the server's limit, which is below that of the call, and so costs no
 * connection. On a busy machine the server's word may come too late: tried again. */
static void assert_time_limit(struct db *db, const struct db_stmt *s, const char *sqlstate)
{
    struct sh_err err = {0};
    int64_t pid = 0;
    int rc = SH_E_DBDOWN;

    for (int i = 0; i < 20 && rc == SH_E_DBDOWN; i++) {
        err = (struct sh_err){0};
        reach(db);
        pid = number_of(db, &BACKEND);
        rc = db_exec(db, s, NULL, NULL, &err);
    }
    assert_fails(rc, SH_E_TIMEOUT, &err, "in time");
    assert_has(err.detail, s->name);
    assert_has(err.detail, sqlstate);
    assert_int_equal(number_of(db, &BACKEND), pid);
}

static void a_slow_statement_ends_by_the_limit(void **state)
{
    static const struct db_stmt SLOW = {"slow", "SELECT pg_sleep(60)", 0};
    struct world *w = *state;

    assert_time_limit(w->db, &SLOW, "57014");
}

static int wait_for_lock(struct db *db, const void *arg, struct sh_err *err)
{
    const struct world *w = *(const struct world *const *)arg;
    int rc = db_exec(db, &ADD, NULL, NULL, err);

    assert_time_limit(w->other, &ADD, "55P03");
    return rc;
}

static void a_lock_that_is_held_too_long_is_a_time_limit(void **state)
{
    struct world *w = *state;

    assert_ok(db_tx(w->db, "hold", wait_for_lock, &w, NULL));
}

/* Of a server whose folder leads nowhere until come_back(). */
static struct db *away(const struct world *w, const char *app)
{
    char url[160];
    struct db *db;

    snprintf(url, sizeof(url), "postgresql://shunt@/postgres?host=%s/pg", w->dir);
    assert_ok(db_new(url, app, &db, NULL));
    return db;
}

static void come_back(const struct world *w)
{
    char link[96];

    snprintf(link, sizeof(link), "%s/pg", w->dir);
    assert_int_equal(symlink(strchr(getenv("DATABASE_URL"), '=') + 1, link), 0);
}

static void a_database_that_nobody_answers_for_is_left_alone_for_a_moment(void **state)
{
    struct sh_err err = {0};
    struct world *w = *state;
    struct db *db = away(w, "t");

    sh_clock_fake(sh_clock_ns(), 0);
    assert_int_equal(db_fd(db), -1);
    assert_fails(db_ready(db, 0, &err), SH_E_DBDOWN, &err, "not reachable");
    assert_has(err.detail, w->dir);
    come_back(w);                                         /* an attempt would succeed */
    assert_int_equal(db_ready(db, 0, NULL), SH_E_DBDOWN); /* the pause between two attempts */
    sh_clock_advance(99 * MS);
    assert_int_equal(db_ready(db, 0, NULL), SH_E_DBDOWN);
    sh_clock_advance(1 * MS);
    assert_ok_err(db_ready(db, 0, &err), &err);
    db_free(db);
}

/* A thread that has asked more often while it was away would be the last to see it come back. */
static void what_one_has_reached_none_that_shares_its_news_waits_for(void **state)
{
    struct sh_err err = {0};
    struct world *w = *state;
    struct db *often = away(w, "often"), *once = away(w, "once"), *apart = away(w, "apart");
    struct db_news news = {0};

    db_share(often, &news);
    db_share(once, &news);
    sh_clock_fake(sh_clock_ns(), 0);
    assert_int_equal(db_ready(often, 0, NULL), SH_E_DBDOWN);
    assert_int_equal(db_ready(once, 0, NULL), SH_E_DBDOWN);
    sh_clock_advance(100 * MS);
    assert_int_equal(db_ready(often, 0, NULL), SH_E_DBDOWN); /* 200 ms now */
    assert_int_equal(db_ready(apart, 0, NULL), SH_E_DBDOWN);
    sh_clock_advance(1 * MS);
    come_back(w);
    assert_int_equal(db_ready(often, 0, NULL), SH_E_DBDOWN);
    assert_ok_err(db_ready(once, 0, &err), &err);
    assert_ok_err(db_ready(often, 0, &err), &err);
    assert_int_equal(db_ready(apart, 0, NULL), SH_E_DBDOWN);
    db_free(apart);
    db_free(often);
    db_free(once);
}

static pid_t postmaster(void)
{
    char path[256], *text;
    int64_t pid = 0;

    assert_non_null(getenv("SHUNT_PG_DATA"));
    snprintf(path, sizeof(path), "%s/postmaster.pid", getenv("SHUNT_PG_DATA"));
    text = sh_test_read_file(path, NULL);
    text[strcspn(text, "\n")] = '\0';
    assert_ok(sh_parse_i64(text, 2, INT32_MAX, "pid", &pid, NULL));
    free(text);
    return (pid_t)pid;
}

/* A stopped process accepts the connection (its kernel does) and answers nothing. */
static void a_database_that_hangs_holds_a_caller_for_two_seconds(void **state)
{
    struct world *w = *state;
    pid_t session, master = postmaster();
    struct sh_err err = {0}, connect_err = {0};
    int64_t t0, t1, t2;
    int rc, connect_rc;

    session = (pid_t)number_of(w->db, &BACKEND);
    kill(session, SIGSTOP);
    t0 = sh_clock_ns();
    rc = db_exec(w->db, &NUMBER, NULL, NULL, &err);
    t1 = sh_clock_ns();
    kill(session, SIGCONT);
    kill(master, SIGSTOP);
    connect_rc = db_exec(w->db, &NUMBER, NULL, NULL, &connect_err);
    t2 = sh_clock_ns();
    kill(master, SIGCONT);
    assert_fails(rc, SH_E_DBDOWN, &err, "lost");
    assert_has(err.detail, "2000 ms");
    assert_fails(connect_rc, SH_E_DBDOWN, &connect_err, "not reachable");
    /* What says two seconds is the message; that this process had the processor is not said. */
    assert_in_range(t1 - t0, 1900 * MS, 60000 * MS);
    assert_in_range(t2 - t1, 1900 * MS, 60000 * MS);
    reach(w->db);
    assert_int_equal(number_of(w->db, &NUMBER), 10);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_slow_statement_ends_by_the_limit),
        TEST(a_lock_that_is_held_too_long_is_a_time_limit),
        TEST(a_database_that_nobody_answers_for_is_left_alone_for_a_moment),
        TEST(what_one_has_reached_none_that_shares_its_news_waits_for),
        TEST(a_database_that_hangs_holds_a_caller_for_two_seconds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
