/* test_dbqueue.c - in which order operations go to the database, and what becomes of those that
 * fail.
 *
 * Without it: a write could be lost or overtaken while the database is away, a lease wait behind a
 * long queue, or one row that somebody has locked stop all writes. */
/* uses: scheduler/database/dbqueue.o */
#include "scheduler/database/dbqueue.h"
#include "tests/unit/sh_test.h"

#define MS INT64_C(1000000)

struct db;
static int ready_rc; /* what connecting says */

/* In the place of common/db.c's. */
int db_ready(struct db *db, int schema_want, struct sh_err *err)
{
    (void)db;
    assert_int_equal(schema_want, DB_SCHEMA_VERSION);
    return ready_rc ? SH_FAIL(err, ready_rc, "not ready") : SH_OK;
}

static int run_rc, n_runs;

static int on_run(struct db *db, void *arg, struct sh_err *err)
{
    (void)db, (void)arg;
    n_runs++;
    return run_rc ? SH_FAIL(err, run_rc, "failed") : SH_OK;
}

static int n_done;

static void on_done(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    (void)ctx, (void)arg, (void)rc, (void)err;
    n_done++;
}

static int submit(struct dbqueue *q, const char *name, unsigned flags, uint64_t generation)
{
    const struct dbop op = {
        .name = name, .run = on_run, .done = on_done, .flags = flags, .generation = generation};
    struct dbitem *i = NULL;
    int rc;

    assert_ok(dbitem_new(&op, &i, NULL));
    rc = dbqueue_submit(q, i, NULL);
    if (rc)
        dbitem_free(i);
    return rc;
}

static const char *name_of(struct dbitem *i)
{
    return i ? i->op.name : "";
}

/* Takes the next, which must be this one, and says how it went. */
static enum dbqueue_next settle(struct dbqueue *q, const char *name, int rc, int64_t now_ns)
{
    struct dbitem *i = dbqueue_take(q, now_ns);

    assert_string_equal(name_of(i), name);
    if (i)
        i->rc = rc;
    return i ? dbqueue_settle(q, i, now_ns) : DBQUEUE_FINISHED;
}

static void operations_go_in_order_and_a_lease_goes_first(void **state)
{
    struct dbqueue q;

    (void)state;
    dbqueue_init(&q, 2);
    assert_ok(submit(&q, "a", 0, 0));
    assert_ok(submit(&q, "b", 0, 0));
    assert_int_equal(submit(&q, "c", 0, 0), SH_E_QUEUEFULL);
    assert_ok(submit(&q, "lease", DBOP_FRONT, 0)); /* also when the queue is full */
    assert_int_equal(settle(&q, "lease", SH_OK, 0), DBQUEUE_FINISHED);
    assert_int_equal(settle(&q, "a", SH_OK, 0), DBQUEUE_FINISHED);
    assert_int_equal(settle(&q, "b", SH_E_BUG, 0), DBQUEUE_FINISHED);
    assert_null(dbqueue_take(&q, 0));
    assert_int_equal(q.finished.n, 3);
    dbqueue_fini(&q);
}

static void what_cannot_be_written_now_stays_first(void **state)
{
    static const int PASSING[] = {SH_E_DBDOWN, SH_E_TIMEOUT, SH_E_DISKFULL, SH_E_UNAVAILABLE};
    struct dbqueue q;

    (void)state;
    dbqueue_init(&q, 8);
    assert_ok(submit(&q, "a", 0, 0));
    assert_ok(submit(&q, "b", DBOP_FAIL_FAST, 0));
    for (size_t i = 0; i < sizeof(PASSING) / sizeof(PASSING[0]); i++)
        assert_int_equal(settle(&q, "a", PASSING[i], 0), DBQUEUE_RETRY);
    assert_int_equal(settle(&q, "a", SH_OK, 0), DBQUEUE_FINISHED);
    assert_int_equal(settle(&q, "b", SH_E_DBDOWN, 0), DBQUEUE_FINISHED); /* comes back with it */
    dbqueue_fini(&q);
}

static void one_whose_row_is_locked_lets_others_go_before(void **state)
{
    struct dbqueue q;

    (void)state;
    dbqueue_init(&q, 8);
    assert_ok(submit(&q, "row", DBOP_ANY_ORDER, 0));
    assert_ok(submit(&q, "b", 0, 0));
    assert_int_equal(settle(&q, "row", SH_E_TIMEOUT, 0), DBQUEUE_BEHIND);
    assert_ok(submit(&q, "c", 0, 0));
    assert_int_equal(settle(&q, "b", SH_OK, 0), DBQUEUE_FINISHED);
    assert_int_equal(settle(&q, "c", SH_OK, 0), DBQUEUE_FINISHED);
    assert_null(dbqueue_take(&q, DBTHREAD_BEHIND_MS * MS - 1));
    assert_int_equal(settle(&q, "row", SH_E_DBDOWN, DBTHREAD_BEHIND_MS * MS), DBQUEUE_RETRY);
    assert_ok(submit(&q, "d", 0, 0)); /* the list has its end where it is */
    assert_int_equal(settle(&q, "row", SH_OK, DBTHREAD_BEHIND_MS * MS), DBQUEUE_FINISHED);
    assert_int_equal(settle(&q, "d", SH_OK, DBTHREAD_BEHIND_MS * MS), DBQUEUE_FINISHED);
    dbqueue_fini(&q);
}

static void conflicts_are_tried_again_but_not_for_ever(void **state)
{
    struct dbqueue q;
    int n = 1;

    (void)state;
    dbqueue_init(&q, 8);
    assert_ok(submit(&q, "a", DBOP_FAIL_FAST, 0));
    while (n < 100 && settle(&q, "a", SH_E_DBSOFT, 0) == DBQUEUE_RETRY)
        n++;
    assert_int_equal(n, 20);
    dbqueue_fini(&q);
}

static void nothing_is_tried_again_at_the_end(void **state)
{
    struct dbqueue q;

    (void)state;
    dbqueue_init(&q, 8);
    assert_ok(submit(&q, "a", 0, 0));
    q.stop = true;
    assert_int_equal(settle(&q, "a", SH_E_DBDOWN, 0), DBQUEUE_FINISHED);
    dbqueue_fini(&q);
}

static void what_belongs_to_a_lost_lease_is_dropped_and_not_told(void **state)
{
    uint64_t generation = 8;
    struct dbqueue q;
    struct dblist dropped;
    struct dbitem *i;

    (void)state;
    n_done = 0;
    dbqueue_init(&q, 8);
    dblist_init(&dropped);
    assert_ok(submit(&q, "old", 0, 7));
    assert_ok(submit(&q, "new", 0, 8));
    assert_ok(submit(&q, "old too", 0, 7));
    assert_ok(submit(&q, "always", 0, 0));
    i = dbqueue_take(&q, 0); /* it runs already */
    dbqueue_drop(&q, 7, &dropped);
    assert_int_equal(dropped.n, 1);
    dblist_free(&dropped);
    assert_int_equal(dbqueue_settle(&q, i, 0), DBQUEUE_FINISHED);
    assert_int_equal(settle(&q, "new", SH_OK, 0), DBQUEUE_FINISHED);
    assert_int_equal(settle(&q, "always", SH_OK, 0), DBQUEUE_FINISHED);
    while ((i = dblist_pop(&q.finished))) {
        dbitem_tell(i, &generation);
        dbitem_free(i);
    }
    assert_int_equal(n_done, 2);
    dbqueue_fini(&q);
}

static void one_connects_first_after_the_database_was_away(void **state)
{
    struct dbitem i = {.op = {.name = "a", .run = on_run}};
    bool up = false;

    (void)state;
    n_runs = 0;
    ready_rc = SH_E_DBDOWN;
    dbitem_run(&i, NULL, &up);
    assert_true(i.rc == SH_E_DBDOWN && !up && n_runs == 0);
    ready_rc = SH_E_CONFLICT; /* another schema than ours */
    dbitem_run(&i, NULL, &up);
    assert_true(i.rc == SH_E_DBDOWN && !up && n_runs == 0);
    ready_rc = SH_OK;
    run_rc = SH_E_TIMEOUT;
    dbitem_run(&i, NULL, &up);
    assert_true(i.rc == SH_E_TIMEOUT && up && n_runs == 1);
    ready_rc = SH_E_BUG; /* it is up: nobody asks */
    run_rc = SH_OK;
    dbitem_run(&i, NULL, &up);
    assert_true(i.rc == SH_OK && i.err.rc == SH_OK && up && n_runs == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_go_in_order_and_a_lease_goes_first),
        cmocka_unit_test(what_cannot_be_written_now_stays_first),
        cmocka_unit_test(one_whose_row_is_locked_lets_others_go_before),
        cmocka_unit_test(conflicts_are_tried_again_but_not_for_ever),
        cmocka_unit_test(nothing_is_tried_again_at_the_end),
        cmocka_unit_test(what_belongs_to_a_lost_lease_is_dropped_and_not_told),
        cmocka_unit_test(one_connects_first_after_the_database_was_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
