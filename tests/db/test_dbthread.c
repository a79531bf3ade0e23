/* test_dbthread.c - without it, a lock held a little too long or a full disk could lose the result
 * of a finished job, a lease could wait behind an operation that is tried again and again, or a
 * plan that was made while there were no jobs could read all of them for each one.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: scheduler/database/dbthread.o scheduler/database/dbqueue.o */
/* link: -lpq */
#include "common/clock.h"
#include "scheduler/database/dbthread.h"
#include "tests/db/db_test.h"

#include <unistd.h>

#define MOST_MS 20000

struct work {
    int rc;      /* what the first tries end with */
    int n_fails; /* how many of them */
    int n_tries, n_done, done_rc;
    int64_t n_scans; /* of all jobs; -1: work_scan() did not run */
};

struct world {
    struct sh_loop *loop;
    struct dbthread *t;
    struct work work;
};

static void on_wake(struct sh_loop *l, void *arg)
{
    struct world *w = arg;
    uint64_t generation = 1;

    dbthread_collect(w->t, &generation);
    if (w->work.n_done)
        sh_loop_stop(l);
}

static void on_late(struct sh_loop *l, void *arg)
{
    (void)arg;
    sh_loop_stop(l);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    const char *url = getenv("DATABASE_URL");
    struct sh_err err = {0};
    struct db *db = open_db("test_dbthread");

    assert_non_null(w);
    migrate(db);
    db_free(db);
    assert_ok_err(sh_loop_new(&w->loop, &err), &err);
    assert_ok_err(dbthread_new(w->loop, url, "test_dbthread", 8, &w->t, &err), &err);
    sh_loop_on_wake(w->loop, on_wake, w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    dbthread_free(w->t, 0);
    sh_loop_free(w->loop);
    free(w);
    return 0;
}

static int work_run(struct db *db, void *arg, struct sh_err *err)
{
    struct work *k = arg;

    (void)db;
    k->n_scans = -1;
    if (k->n_tries++ < k->n_fails)
        return SH_FAIL(err, k->rc, "the database does not want to");
    return SH_OK;
}

/* As the scheduler reads the jobs that it was told of. */
static int work_scan(struct db *db, void *arg, struct sh_err *err)
{
    struct work *k = arg;
    int rc;

    run(db, "VACUUM job"); /* since then PostgreSQL believes its size */
    rc = db_rehearse(db, err);
    if (rc)
        return rc;
    run(db, "SELECT c.id, j.* FROM (SELECT unnest('{1,2}'::bigint[]) AS id) c LEFT JOIN LATERAL"
            " (SELECT state FROM job WHERE job.id = c.id OFFSET 0) j ON true");
    k->n_scans = number(db, "SELECT pg_stat_get_xact_numscans('job'::regclass)");
    db_undo(db);
    return SH_OK;
}

static void work_done(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct work *k = arg;

    (void)ctx;
    (void)err;
    k->n_done++;
    k->done_rc = rc;
}

static void finish_as(struct world *w, int (*doing)(struct db *, void *, struct sh_err *),
                      unsigned flags)
{
    struct dbop op = {.name = "work",
                      .run = doing,
                      .done = work_done,
                      .arg = &w->work,
                      .flags = flags,
                      .generation = 1};
    struct sh_timer *late = NULL;
    struct sh_err err = {0};

    assert_ok_err(sh_timer_add(w->loop, MOST_MS * INT64_C(1000000), 0, on_late, NULL, &late, &err),
                  &err);
    assert_ok_err(dbthread_submit(w->t, &op, &err), &err);
    assert_ok_err(sh_loop_run(w->loop, &err), &err);
    sh_timer_del(late);
    assert_int_equal(w->work.n_done, 1);
}

static void finish(struct world *w, unsigned flags)
{
    finish_as(w, work_run, flags);
}

static void assert_repeats(struct world *w, int rc)
{
    w->work = (struct work){.rc = rc, .n_fails = 2};
    finish(w, 0);
    assert_int_equal(w->work.done_rc, SH_OK);
    assert_int_equal(w->work.n_tries, 3);
}

static void a_database_that_is_away_is_waited_for(void **state)
{
    assert_repeats(*state, SH_E_DBDOWN);
}

static void a_time_out_is_tried_again(void **state)
{
    assert_repeats(*state, SH_E_TIMEOUT);
}

static void a_full_disk_is_waited_for(void **state)
{
    assert_repeats(*state, SH_E_DISKFULL);
}

static void a_database_without_memory_is_waited_for(void **state)
{
    assert_repeats(*state, SH_E_UNAVAILABLE);
}

static void what_must_not_wait_comes_back_with_its_failure(void **state)
{
    struct world *w = *state;

    w->work = (struct work){.rc = SH_E_TIMEOUT, .n_fails = 2};
    finish(w, DBOP_FAIL_FAST);
    assert_int_equal(w->work.done_rc, SH_E_TIMEOUT);
    assert_int_equal(w->work.n_tries, 1);
}

/* Somebody has the row of one job locked: that must not keep the others from starting. */
static void what_may_come_in_any_order_lets_others_go_first(void **state)
{
    struct world *w = *state;
    struct work other = {.n_fails = 0};
    struct dbop op = {
        .name = "other", .run = work_run, .done = work_done, .arg = &other, .generation = 1};
    struct work locked = {.rc = SH_E_TIMEOUT, .n_fails = 1};
    struct dbop first = {.name = "locked",
                         .run = work_run,
                         .done = work_done,
                         .arg = &locked,
                         .flags = DBOP_ANY_ORDER,
                         .generation = 1};
    struct sh_err err = {0};

    assert_ok_err(dbthread_submit(w->t, &first, &err), &err);
    assert_ok_err(dbthread_submit(w->t, &op, &err), &err);
    w->work = (struct work){.n_fails = 0};
    finish(w, 0); /* the third in the queue */
    assert_int_equal(other.n_done, 1);
    assert_int_equal(locked.n_tries, 1);
    assert_int_equal(locked.n_done, 0);
    for (int64_t until = sh_clock_ns() + MOST_MS * INT64_C(1000000);
         !locked.n_done && sh_clock_ns() < until;) {
        uint64_t generation = 1;

        dbthread_collect(w->t, &generation);
    }
    assert_int_equal(locked.n_tries, 2);
    assert_int_equal(locked.done_rc, SH_OK);
}

static void a_refusal_is_not_repeated(void **state)
{
    struct world *w = *state;

    w->work = (struct work){.rc = SH_E_CONFLICT, .n_fails = 2};
    finish(w, 0);
    assert_int_equal(w->work.done_rc, SH_E_CONFLICT);
    assert_int_equal(w->work.n_tries, 1);
}

static void a_plan_made_of_an_empty_table_is_right_for_a_full_one(void **state)
{
    struct world *w = *state;

    w->work = (struct work){.n_scans = -1};
    finish_as(w, work_scan, 0);
    assert_int_equal(w->work.done_rc, SH_OK);
    assert_int_equal(w->work.n_scans, 0);
}

static int work_reach(struct db *db, void *arg, struct sh_err *err)
{
    (void)arg;
    return db_ready(db, 0, err);
}

static int reach(struct world *w)
{
    w->work = (struct work){.n_done = 0};
    finish_as(w, work_reach, DBOP_FAIL_FAST);
    return w->work.done_rc;
}

/* The longer it was away, the longer is the pause between two attempts. */
static void word_of_a_database_that_is_back_ends_the_pause(void **state)
{
    struct world *w = *state;
    char dir[64], url[160], link[96];

    sh_test_dir_make(dir);
    snprintf(link, sizeof(link), "%s/pg", dir);
    snprintf(url, sizeof(url), "postgresql://shunt@/postgres?host=%s", link);
    dbthread_free(w->t, 0);
    assert_ok(dbthread_new(w->loop, url, "test_dbthread", 8, &w->t, NULL));
    sh_clock_fake(sh_clock_ns(), 0);
    assert_int_equal(reach(w), SH_E_DBDOWN);
    sh_clock_advance(INT64_C(1000000));
    assert_int_equal(symlink(strchr(getenv("DATABASE_URL"), '=') + 1, link), 0);
    assert_int_equal(reach(w), SH_E_DBDOWN); /* it does not try */
    dbthread_hear(w->t);
    assert_int_equal(reach(w), SH_OK);
    sh_clock_real();
    sh_test_dir_remove(dir);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_database_that_is_away_is_waited_for),
        T(a_time_out_is_tried_again),
        T(a_full_disk_is_waited_for),
        T(a_database_without_memory_is_waited_for),
        T(what_must_not_wait_comes_back_with_its_failure),
        T(what_may_come_in_any_order_lets_others_go_first),
        T(a_refusal_is_not_repeated),
        T(word_of_a_database_that_is_back_ends_the_pause),
        T(a_plan_made_of_an_empty_table_is_right_for_a_full_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
