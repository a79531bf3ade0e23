/* test_view.c - what the scheduler is told of changes, and what it reads of many waiting jobs.
 *
 * Without it: a job whose submission committed late could wait for ever, one look could swallow
 * what the next one needs, a new leader could miss what the old one had read and not yet used, and
 * the jobs of one tenant could hide those of another.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: scheduler/database/store.o scheduler/database/store_sweep.o scheduler/database/store_view.o scheduler/database/store_rows.o scheduler/decide/lines.o scheduler/decide/job.o */
/* link: -lpq */
#include "scheduler/database/store.h"
#include "scheduler/database/store_view.h"
#include "tests/db/db_test.h"

#define COLUMNS "(tenant_id, queue_id, kind, version_id, dataset_id, spec, priority)"
#define ONE "INSERT INTO job " COLUMNS " VALUES (1, 1, 'training', 1, 1, '{}', 0)"
#define OTHERS "INSERT INTO job " COLUMNS " VALUES (2, 1, 'training', 1, 1, '{}', 0)"
#define MANY                                                                                       \
    "INSERT INTO job " COLUMNS " SELECT 1, 1, 'training', 1, 1, '{}', i % 3 FROM generate_series(" \
    "1, 600) i"

struct world {
    struct db *a, *b, *c; /* the scheduler and two others */
    struct store_lease lease;
    struct store_seen seen;
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->a = open_db("scheduler");
    w->b = open_db("other");
    w->c = open_db("third");
    make_empty(w->a);
    migrate(w->a);
    run(w->a, "INSERT INTO tenant (name) VALUES ('research'), ('vision')");
    run(w->a, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits')");
    run(w->a, "INSERT INTO model_version (model_id, version, state, digest, package) VALUES"
              " (1, 1, 'READY', repeat('a', 64), 'p'), (1, 2, 'LOADING', repeat('b', 64), 'p')");
    run(w->a, "INSERT INTO dataset (tenant_id, name, state, digest, path, n_samples)"
              " VALUES (1, 'train', 'READY', repeat('b', 64), 'd', 10)");
    w->lease = (struct store_lease){.fence.holder = "a/1", .ttl_ms = 60000};
    assert_ok(store_lease_acquire(w->a, &w->lease, NULL));
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    store_seen_free(&w->seen);
    db_free(w->a);
    db_free(w->b);
    db_free(w->c);
    free(w);
    return 0;
}

static struct store_view *ask(const struct world *w)
{
    struct store_view *v = calloc(1, sizeof(*v));

    assert_non_null(v);
    v->fence = w->lease.fence;
    v->before = w->seen;
    v->before.open = w->seen.open ? strdup(w->seen.open) : NULL;
    v->window = LINES_MAX_WINDOW;
    v->most = (struct store_limits){10000, 5000, LINES_MAX, 50000};
    return v;
}

static void load(struct world *w, struct store_view *v)
{
    struct sh_err err = {0};

    assert_ok_err(store_view_load(w->a, v, &err), &err);
}

/* Its answer counts: the next look is told what comes after it. */
static void take(struct world *w, struct store_view *v)
{
    store_seen_free(&w->seen);
    w->seen = v->now;
    v->now = (struct store_seen){0};
    store_view_free(v);
}

static void look(struct world *w)
{
    struct store_view *v = ask(w);

    load(w, v);
    take(w, v);
}

/* The next look tells of these n jobs and of no other. */
static void expect_told(struct world *w, size_t n, const int64_t *ids)
{
    struct store_view *v = ask(w);

    load(w, v);
    assert_false(v->full);
    assert_int_equal(v->n_told, n);
    for (size_t i = 0; i < n; i++) {
        bool found = false;

        for (size_t k = 0; k < n; k++)
            found = found || v->jobs[k].id == ids[i];
        assert_true(found);
    }
    take(w, v);
}
#define TOLD(w, ...)                                                         \
    expect_told(w, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
                (const int64_t[]){__VA_ARGS__})

/* ------------------------------------------------------------------ changes */

static void the_first_look_reads_everything_and_the_next_one_nothing(void **state)
{
    struct world *w = *state;
    struct store_view *v = ask(w);

    run(w->a, ONE);
    load(w, v);
    assert_true(v->full && v->with_tenants && v->with_models);
    assert_int_equal(v->n_jobs, 1);
    assert_int_equal(v->n_tenants, 2);
    assert_int_equal(v->n_totals, 1);
    assert_int_equal(v->totals[0].n, 1);
    take(w, v);
    v = ask(w);
    load(w, v);
    assert_false(v->full || v->with_tenants || v->with_models);
    assert_int_equal(v->n_jobs + v->n_tenants + v->n_models + v->n_counts, 0);
    take(w, v);
}

static void the_most_steps_that_a_job_can_ask_for_are_a_number(void **state)
{
    struct world *w = *state;
    struct store_view *v = ask(w);

    run(w->a, ONE);
    run(w->a, "UPDATE dataset SET n_samples = 9000000000000000000");
    run(w->a, "UPDATE job SET spec = '{\"epochs\": 1000000000, \"batch\": 1}'");
    load(w, v);
    assert_int_equal(v->n_jobs, 1);
    assert_int_equal(v->jobs[0].all_steps, 1000000000000000);
    take(w, v);
}

static void
what_a_client_changes_is_told_and_what_the_scheduler_writes_of_progress_is_not(void **state)
{
    static const char *const CHANGES[] = {
        "UPDATE job SET priority = 5",        "UPDATE job SET deadline = now() + interval '1 h'",
        "UPDATE job SET preemptible = false", "UPDATE job SET wish = 'SUSPEND'",
        "UPDATE job SET save_asked = 1",      "UPDATE job SET state = 'HELD'",
        "UPDATE job SET queued_at = now()",   "UPDATE job SET handicap_us = 7",
    };
    struct world *w = *state;

    run(w->a, ONE);
    look(w);
    for (size_t i = 0; i < SH_ARRAY_LEN(CHANGES); i++) {
        run(w->b, CHANGES[i]);
        TOLD(w, 1);
    }
    run(w->b,
        "UPDATE job SET step = 5, loss = 1, busy_ns = 3, reason = 'Resources', labels = '{}'");
    expect_told(w, 0, NULL);
}

static void a_change_is_told_when_it_commits_however_late(void **state)
{
    struct world *w = *state;

    look(w);
    run(w->b, "BEGIN");
    run(w->b, OTHERS); /* job 1 */
    for (int i = 0; i < 20; i++) {
        run(w->c, ONE); /* jobs 2 to 21, which commit before it */
        TOLD(w, i + 2);
    }
    expect_told(w, 0, NULL);
    run(w->b, "COMMIT");
    TOLD(w, 1);
    expect_told(w, 0, NULL);
}

static void several_open_transactions_are_told_once_each_in_any_order(void **state)
{
    struct world *w = *state;

    run(w->a, ONE);
    run(w->a, ONE);
    look(w);
    run(w->b, "BEGIN");
    run(w->b, "UPDATE job SET priority = 1 WHERE id = 1");
    run(w->c, "BEGIN");
    run(w->c, "SAVEPOINT s"); /* has a number of its own inside */
    run(w->c, "UPDATE job SET priority = 1 WHERE id = 2");
    look(w);
    run(w->c, "RELEASE s");
    run(w->c, "COMMIT");
    TOLD(w, 2);
    run(w->b, "UPDATE job SET priority = 2 WHERE id = 2");
    expect_told(w, 0, NULL);
    run(w->b, "COMMIT");
    TOLD(w, 1, 2);
    run(w->b, "BEGIN");
    run(w->b, ONE);
    look(w);
    run(w->b, "ROLLBACK");
    expect_told(w, 0, NULL);
}

static void an_answer_that_was_not_taken_is_given_again(void **state)
{
    struct world *w = *state;
    struct store_view *v;

    look(w);
    run(w->b, ONE);
    for (int i = 0; i < 2; i++) { /* the scheduler died, or could not use it */
        v = ask(w);
        load(w, v);
        assert_int_equal(v->n_told, 1);
        store_view_free(v);
    }
    TOLD(w, 1);
}

static void a_new_leader_reads_what_the_old_one_was_told_and_never_used(void **state)
{
    struct world *w = *state;
    struct store_lease other = {.fence.holder = "b/2", .ttl_ms = 60000};
    struct store_forget f = {.before = INT64_MAX, .batch = 100};
    struct store_view *v;

    look(w);
    run(w->b, "BEGIN");
    run(w->b, OTHERS);
    run(w->c, ONE);
    look(w);
    run(w->a, "UPDATE lease SET expires_at = now() - interval '1 s'");
    assert_ok(store_lease_acquire(w->c, &other, NULL));
    f.fence = w->lease.fence;
    assert_int_equal(store_changes_forget(w->a, &f, NULL), SH_E_PRECONDITION);
    w->lease = other;
    store_seen_free(&w->seen);
    v = ask(w); /* the new one's first */
    load(w, v);
    assert_int_equal(v->n_jobs, 1);
    assert_int_equal(v->jobs[0].id, 2);
    take(w, v);
    run(w->b, "COMMIT");
    TOLD(w, 1);
}

static void only_what_every_later_look_has_behind_it_is_forgotten(void **state)
{
    struct world *w = *state;
    struct store_forget f = {.fence = w->lease.fence, .batch = 4};
    struct store_view *v;
    struct sh_err err = {0};
    int64_t n;

    run(w->a, "TRUNCATE hot_change");
    run(w->c, ONE);
    run(w->c, ONE);
    run(w->b, "BEGIN");
    run(w->b, OTHERS);
    for (int i = 0; i < 3; i++)
        run(w->c, ONE);
    look(w);
    f.before = w->seen.xmin;
    assert_ok_err(store_changes_forget(w->a, &f, &err), &err);
    assert_int_equal(f.n_rows, 2);
    run(w->b, "COMMIT");
    TOLD(w, 3);
    v = ask(w);
    load(w, v);
    f.from = f.last;
    f.before = v->now.xmin;
    take(w, v);
    assert_ok_err(store_changes_forget(w->a, &f, &err), &err);
    assert_int_equal(f.n_rows, 4); /* in two batches it would be three and one: all of them */
    n = number(w->a, "SELECT count(*) FROM hot_change");
    assert_int_equal(n, 0);
}

static void more_than_can_be_told_makes_a_full_look(void **state)
{
    struct world *w = *state;
    struct store_view *v;

    look(w);
    run(w->b, "INSERT INTO job " COLUMNS " SELECT 1, 1, 'training', 1, 1, '{}', 0 FROM"
              " generate_series(1, 5001)");
    v = ask(w);
    load(w, v);
    assert_true(v->full && v->is_anew);
    assert_int_equal(v->n_places, LINES_MAX_WINDOW);
    assert_int_equal(v->totals[0].n, 5001);
    take(w, v);
    expect_told(w, 0, NULL);
}

/* A server that was killed gives numbers of transactions away that a look had seen the end of. */
static void after_a_lost_connection_everything_is_read(void **state)
{
    struct world *w = *state;
    struct store_view *v;

    run(w->a, ONE);
    look(w);
    run(w->b, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
              " WHERE application_name = 'scheduler' AND datname = current_database()");
    v = ask(w);
    load(w, v); /* the goodbye lies there: db.c connects anew */
    assert_true(v->full && v->is_anew);
    assert_int_equal(v->n_jobs, 1);
    assert_int_equal(v->n_told, 1);
    assert_int_equal(v->totals[0].n, 1);
    take(w, v);
    run(w->a, ONE);
    expect_told(w, 1, (const int64_t[]){2});
}

static void counts_are_what_has_come_and_gone(void **state)
{
    struct world *w = *state;
    struct store_view *v;
    int64_t queued = 0, held = 0;

    run(w->a, MANY);
    look(w);
    run(w->b, "UPDATE job SET state = 'HELD' WHERE id <= 10");
    run(w->b, "DELETE FROM job WHERE id IN (10, 11)");
    run(w->b, ONE);
    v = ask(w);
    load(w, v);
    for (size_t i = 0; i < v->n_counts; i++) {
        queued += strcmp(v->counts[i].state, "QUEUED") == 0 ? v->counts[i].n : 0;
        held += strcmp(v->counts[i].state, "HELD") == 0 ? v->counts[i].n : 0;
    }
    assert_int_equal(queued, -10); /* 10 held, one deleted, one new */
    assert_int_equal(held, 9);
    assert_int_equal(v->n_told, 12);
    for (size_t i = 0; i < v->n_told; i++)
        assert_int_equal(v->jobs[i].gone, v->jobs[i].id == 10 || v->jobs[i].id == 11);
    take(w, v);
}

static void queues_and_versions_are_told_by_their_number_and_the_rest_by_table(void **state)
{
    struct world *w = *state;
    struct store_view *v;

    look(w);
    run(w->b, "UPDATE queue SET state = 'HELD'");
    run(w->b, "UPDATE model_version SET state = 'READY' WHERE id = 2");
    v = ask(w);
    load(w, v);
    assert_int_equal(v->n_queues, 1);
    assert_int_equal(v->queues[0], 1);
    assert_int_equal(v->n_versions, 1);
    assert_int_equal(v->versions[0], 2);
    assert_true(v->with_models && !v->with_tenants);
    take(w, v);
    run(w->b, "INSERT INTO quota (tenant_id, guaranteed_gpus, host_memory_max_bytes) VALUES (1, 2, "
              "12345678901)");
    v = ask(w);
    load(w, v);
    assert_true(v->with_tenants);
    assert_true(v->tenants[0].guaranteed_gpus == 2);
    assert_true(v->tenants[0].memory.host_max_bytes == 12345678901u);
    take(w, v);
    v = ask(w);
    v->doubtful = calloc(1, sizeof(int64_t));
    assert_non_null(v->doubtful);
    v->doubtful[v->n_doubtful++] = 77; /* read though nothing says so: it is not there */
    load(w, v);
    assert_int_equal(v->n_told, 1);
    assert_true(v->jobs[0].gone && v->jobs[0].id == 77);
    take(w, v);
}

/* ------------------------------------------------------------------ lines */

static void of_each_line_the_first_jobs_are_read_in_order(void **state)
{
    struct world *w = *state;
    struct store_view *v = ask(w);
    size_t n[3] = {0}; /* by tenant */

    run(w->a, MANY);
    run(w->a, "INSERT INTO job " COLUMNS " VALUES (2, 1, 'training', 1, 1, '{}', -1000),"
              " (1, 1, 'training', 2, 1, '{}', -1000), (1, 1, 'batch_inference', 1, 1, '{}', 0)");
    run(w->a, "UPDATE job SET not_before = now() + interval '1 min' WHERE id IN (600, 599)");
    run(w->a, "UPDATE job SET state = 'HELD' WHERE id = 598");
    load(w, v);
    assert_int_equal(v->n_places, LINES_MAX_WINDOW + 3);
    assert_int_equal(v->window, LINES_MAX_WINDOW);
    assert_int_equal(v->n_jobs, LINES_MAX_WINDOW + 5); /* and the two of the next attempt */
    for (size_t i = 0; i < v->n_places; i++) {
        const struct store_place *p = &v->places[i];

        n[p->line.tenant_id]++;
        assert_true(p->place.id != 598 && p->place.id != 599 && p->place.id != 600);
        if (i && line_key_cmp(&p[-1].line, &p->line) == 0)
            assert_true(line_place_cmp(&p[-1].place, &p->place) < 0);
        if (p->line.tenant_id == 1 && p->line.version_id == 1 && !p->line.is_batch)
            assert_int_equal(p->place.priority, 2);
    }
    assert_int_equal(n[2], 1);
    take(w, v);
}

/* Windows of 100, one behind the other, until nothing is left. */
static void reading_on_leaves_nothing_out_and_repeats_nothing(void **state)
{
    struct world *w = *state;
    struct store_place at = {
        .line = {.tenant_id = 1, .queue_id = 1, .version_id = 1, .gpus = 1, .preemptible = true},
        .place = {.priority = INT32_MAX}};
    static bool seen[601];
    size_t n = 0;

    run(w->a, MANY);
    run(w->a, "UPDATE job SET queued_at = timestamptz '2026-01-01 00:00:00.000001' +"
              " (id % 7) * interval '1 us', handicap_us = (id % 5) * 999999999999");
    look(w);
    for (size_t got = 100; got == 100;) {
        struct store_view *v = ask(w);

        v->window = 100;
        v->asked = calloc(1, sizeof(at));
        assert_non_null(v->asked);
        v->asked[0] = at;
        v->n_asked = 1;
        load(w, v);
        got = v->n_places;
        assert_int_equal(v->n_jobs - v->n_told, got);
        for (size_t i = 0; i < got; i++) {
            const struct line_place *p = &v->places[i].place;

            assert_true(n == 0 || line_place_cmp(&at.place, p) < 0);
            assert_false(seen[p->id]);
            seen[p->id] = true;
            at.place = *p;
            n++;
        }
        take(w, v);
    }
    assert_int_equal(n, 600);
}

static void a_tenant_with_very_many_lines_leaves_room_for_the_others(void **state)
{
#define PART(k)                \
    "INSERT INTO job " COLUMNS \
    " SELECT 1, id, 'training', 1, 1, '{}', 0 FROM queue WHERE id % 4 = " k
    static const char *const PARTS[] = {PART("0"), PART("1"), PART("2"), PART("3")};
    struct world *w = *state;
    struct store_view *v = ask(w);
    bool second = false;

    run(w->a, "INSERT INTO queue (name) SELECT 'q' || i FROM generate_series(1, 16500) i");
    for (size_t k = 0; k < 2 * SH_ARRAY_LEN(PARTS); k++)
        run(w->a, PARTS[k / 2]);
    run(w->a, "INSERT INTO job " COLUMNS " VALUES (2, 16501, 'training', 1, 1, '{}', -1000)");
    load(w, v);
    assert_int_equal(v->window, LINES_MAX / (LINES_MAX / 2 + 1));
    assert_int_equal(v->n_places, LINES_MAX / 2 * v->window + 1);
    for (size_t i = 0; i < v->n_places; i++)
        second = second || v->places[i].line.tenant_id == 2;
    assert_true(second);
    take(w, v);
}

static void a_job_whose_deadline_is_due_is_read_wherever_it_waits(void **state)
{
    struct world *w = *state;

    run(w->a, MANY);
    run(w->a, "UPDATE job SET priority = -1000, deadline = now() + interval '1 h' WHERE id <= 4");
    run(w->a, "UPDATE job SET state = 'HELD' WHERE id = 2");
    run(w->a, "UPDATE job SET started_at = now(), step = 10, steps = 100000, busy_ns = 10000000000"
              " WHERE id = 3"); /* a second a step: more than a day is left */
    look(w);
    TOLD(w, 3);
    run(w->a, "UPDATE job SET deadline = now() - interval '1 s' WHERE id IN (1, 2)");
    TOLD(w, 1, 2, 3);
    TOLD(w, 1, 2, 3); /* until they have ended */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_look_reads_everything_and_the_next_one_nothing),
        TEST(the_most_steps_that_a_job_can_ask_for_are_a_number),
        TEST(what_a_client_changes_is_told_and_what_the_scheduler_writes_of_progress_is_not),
        TEST(a_change_is_told_when_it_commits_however_late),
        TEST(several_open_transactions_are_told_once_each_in_any_order),
        TEST(an_answer_that_was_not_taken_is_given_again),
        TEST(a_new_leader_reads_what_the_old_one_was_told_and_never_used),
        TEST(only_what_every_later_look_has_behind_it_is_forgotten),
        TEST(more_than_can_be_told_makes_a_full_look),
        TEST(after_a_lost_connection_everything_is_read),
        TEST(counts_are_what_has_come_and_gone),
        TEST(queues_and_versions_are_told_by_their_number_and_the_rest_by_table),
        TEST(of_each_line_the_first_jobs_are_read_in_order),
        TEST(reading_on_leaves_nothing_out_and_repeats_nothing),
        TEST(a_tenant_with_very_many_lines_leaves_room_for_the_others),
        TEST(a_job_whose_deadline_is_due_is_read_wherever_it_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
