/* test_sched_look.c - what the leader makes of a look at the database.
 *
 * Without it: a job that was changed while our own write was on its way could be run twice or
 * forgotten, a difference between what is held and what is there could go unseen, and a crowd of
 * lines could hide jobs for ever. */
/* uses: scheduler/jobs/jobs_view.o scheduler/decide/lines.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

static struct peer x, y;

/* Job 5 runs on executor x. */
static struct job *running(struct store_job **row)
{
    *row = add_job(5);
    world_lead();
    exec_up(&x, "x");
    assert_int_equal(hear(&x, MSG_JOB_START)->u.job_start.job, 5);
    say(&x, &(struct sh_msg){.type = MSG_JOB_STATE,
                             .u.job_state = {.job = 5, .attempt = 1, .state = MSG_JOB_RUNNING}});
    assert_int_equal(job_of(5)->state, JOB_RUNNING);
    assert_string_equal((*row)->state, "RUNNING");
    return job_of(5);
}

static int end(void **state)
{
    if (x.fd > 0)
        peer_close(&x);
    x = (struct peer){0};
    return world_end(state);
}

/* ------------------------------------------------------------------ differences */

static void as_it_was(struct store_job *row)
{
    (void)row;
}
static void of_another_executor(struct store_job *row)
{
    row->executor = "y";
}
static void another_priority(struct store_job *row)
{
    row->priority = 3;
}
static void another_time(struct store_job *row)
{
    row->place.line_us++;
}
static void a_retry(struct store_job *row)
{
    row->not_before_s = 1;
}
static void a_wish(struct store_job *row)
{
    row->wish = "REQUEUE";
}
static void a_save(struct store_job *row)
{
    row->save_asked = 1;
}
static void a_held_queue(struct store_job *row)
{
    row->queue_state = "HELD";
}
static void more_attempts(struct store_job *row)
{
    row->max_attempts++;
}
static void a_longer_run(struct store_job *row)
{
    row->min_runtime_ms++;
}
static void a_limit(struct store_job *row)
{
    row->array_max++;
}
static void not_there(struct store_job *row)
{
    (void)row;
    w.n_jobs--;
}

static void doubtful_and_not_there(struct store_job *row)
{
    (void)row;
    job_of(5)->doubtful = true;
    w.n_jobs--;
}

static void a_full_look_names_what_no_look_before_had_told(void **state)
{
    static const struct {
        void (*change)(struct store_job *row);
        double n, stays; /* once more in each later look: who is right is not known */
    } CASES[] = {{as_it_was, 0},
                 {of_another_executor, 1, 1},
                 {another_priority, 1},
                 {another_time, 1},
                 {a_retry, 1},
                 {a_wish, 1},
                 {a_save, 1},
                 {a_held_queue, 1},
                 {more_attempts, 1},
                 {a_longer_run, 1},
                 {a_limit, 1},
                 {not_there, 1},
                 {doubtful_and_not_there, 0}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        double before = metric("shunt_view_differences_total");
        struct store_job *row;

        world_begin(state);
        running(&row);
        CASES[i].change(row);
        look_at_all();
        assert_true(metric("shunt_view_differences_total") == before + CASES[i].n);
        assert_int_equal(!!job_of(5), w.n_jobs == 1);
        look_at_all(); /* the others were mended */
        assert_true(metric("shunt_view_differences_total") == before + CASES[i].n + CASES[i].stays);
        end(state);
    }
}

static void jobs_and_counts_that_nobody_told_of_are_differences(void **state)
{
    struct store_count counts[] = {{.tenant_id = 1, .n = 2, .state = "QUEUED"},
                                   {.tenant_id = 1, .n = 1, .state = "FAILED"},
                                   {.tenant_id = 1, .n = 1, .state = "NONSENSE"},
                                   {.tenant_id = 9, .n = 1, .state = "QUEUED"}};
    double before = metric("shunt_view_differences_total");
    struct store_job *row;
    struct tenant *t;

    (void)state;
    running(&row);
    t = tenants_by_id(&w.s->tenants, 1);
    add_job(6)->line.queue_id = 2; /* waits in a line that nobody has heard of */
    look_at_all();
    assert_non_null(job_of(6));
    assert_true(metric("shunt_view_differences_total") == before + 1);
    row = add_job(7); /* on an executor that is here */
    row->state = "RUNNING";
    row->executor = "y";
    exec_up(&y, "y");
    look_at_all();
    assert_true(metric("shunt_view_differences_total") == before + 2);
    assert_int_equal(execs_find(&w.s->execs, "y")->job, 7);
    add_job(8)->line.queue_id = 2; /* in one that is known */
    look_at_all();
    assert_true(metric("shunt_view_differences_total") == before + 3);
    add_job(9)->not_before_s = 5; /* in none */
    look_at_all();
    assert_true(metric("shunt_view_differences_total") == before + 4);
    w.n_jobs--;
    look_at_all();
    assert_null(job_of(9));
    assert_true(metric("shunt_view_differences_total") == before + 5);
    add_job(9)->gone = true; /* between two looks */
    look_again();
    assert_null(job_of(9));
    w.n_jobs--;
    w.look.counts = counts;
    w.look.n_counts = SH_ARRAY_LEN(counts);
    look_again();
    assert_int_equal(t->n_jobs[JOB_QUEUED], 2);
    before = metric("shunt_view_differences_total");
    w.look.totals = counts;
    w.look.n_totals = 1;
    look_at_all();
    assert_true(metric("shunt_view_differences_total") == before);
    look_at_all(); /* there are none any more, and nobody had said so */
    assert_true(metric("shunt_view_differences_total") == before + 1);
    assert_int_equal(t->n_jobs[JOB_QUEUED], 0);
}

/* ------------------------------------------------------------------ both sides changed it */

static void the_databases_state_wins(void **state)
{
    static const struct {
        const char *in_database;
        enum job_state then; /* JOB_N_STATES: it is not held any more */
        bool is_stopped;
    } CASES[] = {{"RUNNING", JOB_RUNNING, false},
                 {"CANCELLING", JOB_CANCELLING, true},
                 {"HELD", JOB_N_STATES, true},
                 {"CANCELLED", JOB_N_STATES, true},
                 {"PREEMPTED", JOB_PREEMPTED, false}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct store_job *row;

        world_begin(state);
        running(&row);
        forget_heard(&x);
        row->state = CASES[i].in_database;
        look_again();
        assert_int_equal(job_of(5) ? job_of(5)->state : JOB_N_STATES, CASES[i].then);
        assert_int_equal(!!heard(&x, MSG_JOB_STOP), CASES[i].is_stopped);
        end(state);
    }
}

static void an_end_is_believed_when_our_own_write_has_arrived(void **state)
{
    double before = metric("shunt_view_differences_total");
    struct store_job *row;

    (void)state;
    running(&row);
    w.held = "job.write";
    say(&x, &(struct sh_msg){.type = MSG_JOB_STATE,
                             .u.job_state = {.job = 5, .attempt = 1, .state = MSG_JOB_PREEMPTED}});
    row->state = "CANCELLED";
    look_again();
    assert_true(job_of(5)->doubtful);
    look_at_all(); /* which reads none that has ended */
    assert_non_null(job_of(5));
    w.conflict = true;
    w.held = NULL;
    turn();
    assert_null(job_of(5));
    assert_true(metric("shunt_view_differences_total") == before);
}

/* The answer to our write is lost, and it had been written. */
static void a_start_that_nobody_heard_of_is_undone(void **state)
{
    struct store_job *row = add_job(5);

    (void)state;
    world_lead();
    w.held = "job.start";
    exec_up(&x, "x");
    assert_int_equal(job_of(5)->state, JOB_STARTING);
    w.is_down = true; /* it is not tried again at once */
    db_fail("job.start", SH_E_INVALID, 1);
    w.held = "poll";
    turn();
    assert_int_equal(job_of(5)->state, JOB_QUEUED);
    assert_true(job_of(5)->doubtful);
    world_set_job(5, JOB_STARTING, "x");
    w.held = "job.write";
    turn();
    assert_int_equal(job_of(5)->state, JOB_QUEUED);
    assert_true(job_of(5)->writing); /* and says so */
    assert_null(heard(&x, MSG_JOB_START));
    w.held = NULL;
    w.is_down = false;
    advance(SECOND);
    assert_int_equal(hear(&x, MSG_JOB_START)->u.job_start.job, 5);
    assert_string_equal(row->state, "STARTING");
}

static void one_that_waits_and_was_cancelled_with_an_executor_ends(void **state)
{
    struct store_job *row = add_job(5);

    (void)state;
    world_lead();
    row->state = "CANCELLING";
    look_again();
    assert_null(job_of(5));
    assert_string_equal(row->state, "CANCELLED");
}

static void a_row_that_is_gone_takes_its_job_along(void **state)
{
    struct store_job *row;

    (void)state;
    running(&row);
    add_job(6);
    look_again();
    w.jobs[0].gone = w.jobs[1].gone = true;
    w.jobs[0].state = w.jobs[1].state = NULL;
    forget_heard(&x);
    look_again();
    assert_true(!job_of(5) && !job_of(6));
    assert_int_equal(hear(&x, MSG_JOB_STOP)->u.job_stop.how, MSG_JOB_HOW_CANCEL);
}

static void a_state_that_nobody_knows_spoils_the_look_and_the_next_reads_everything(void **state)
{
    struct store_job *row;

    (void)state;
    running(&row);
    add_job(6);
    add_job(7);
    look_again();
    assert_false(w.asked.full);
    for (int k = 0; k < 3; k++) { /* told of, the same by a full look, only read by that */
        w.jobs[1].state = "NONSENSE";
        w.look.n_told = k == 1 ? 2 : 0;
        if (k)
            look_at_all();
        else
            look_again();
        w.jobs[1].state = "QUEUED";
        w.jobs[1].queue_state = w.jobs[2].queue_state = k & 1 ? "OPEN" : "HELD";
        look_again();
        assert_true(w.asked.full);
        assert_int_equal(job_of(6)->queue_open, k & 1);
        assert_int_equal(job_of(7)->queue_open, k & 1);
    }
    w.look.is_anew = true; /* nothing to compare with */
    w.n_jobs = 0;
    w.s->jobs.forgotten = 1;
    look_again();
    assert_int_equal(w.s->jobs.forgotten, 0);
    assert_true(!job_of(5) && !job_of(6));
}

static void what_holds_a_job_back_is_seen(void **state)
{
    static const struct {
        const char *version_state;
        bool is_batch, is_ready, is_gone;
    } CASES[] = {{"READY", true, true, false},      {"LOADING", true, false, false},
                 {"UNLOADED", true, false, false},  {"UNLOADED", false, true, false},
                 {"UNLOADING", false, true, false}, {"FAILED", false, false, true},
                 {"DELETED", false, false, true}};
    struct store_job *row = add_job(5);

    (void)state;
    row->deadline_s = 3e10; /* the year 2999 */
    world_lead();
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const struct job *j;

        row->version_state = CASES[i].version_state;
        row->line.is_batch = CASES[i].is_batch;
        look_again();
        j = job_of(5);
        assert_non_null(j);
        assert_int_equal(j->model_ready, CASES[i].is_ready);
        assert_int_equal(j->model_gone, CASES[i].is_gone);
        assert_true(j->deadline_ns > sh_clock_ns());
    }
}

/* ------------------------------------------------------------------ lines */

/* The places of the first n jobs, all of line 1: as a look finds them that reads so many. */
static struct store_place *places_of(size_t n)
{
    static struct store_place places[W_ROWS];

    for (size_t i = 0; i < n; i++)
        places[i] = (struct store_place){.line = w.jobs[i].line, .place = w.jobs[i].place};
    w.look.places = places;
    w.look.n_places = w.look.window = n;
    return places;
}

static void a_line_is_read_on_when_few_of_it_are_left(void **state)
{
    const size_t n = LINES_MAX_WINDOW / 2 + 1; /* just enough */
    const struct line *l;

    (void)state;
    for (size_t i = 0; i < n; i++)
        add_job((int64_t)i + 1);
    places_of(n);
    world_lead();
    assert_int_equal(w.s->jobs.lines.n, 1);
    l = w.s->jobs.lines.items[0];
    assert_true(l->cut && l->n == n);
    assert_int_equal(*world_count("poll"), 1);
    exec_up(&x, "x"); /* one starts */
    assert_int_equal(*world_count("poll"), 2);
    assert_int_equal(w.asked.n_asked, 1);
    assert_int_equal(w.asked_first.place.id, n);
    assert_false(l->cut); /* there was nothing more */
    add_job((int64_t)n + 1);
    look_again();
    assert_non_null(job_of((int64_t)n + 1));
}

static void what_arrives_behind_the_edge_of_a_line_is_left_there(void **state)
{
    double before = metric("shunt_view_differences_total");
    struct job *j;

    (void)state;
    for (int i = 0; i < W_ROWS; i++)
        add_job(i + 1);
    places_of(LINES_MAX_WINDOW);
    world_lead();
    assert_int_equal(w.s->jobs.n, LINES_MAX_WINDOW);
    assert_true(jobs_in_window(job_of(LINES_MAX_WINDOW)));
    j = job_of(1);
    j->place = w.jobs[W_ROWS - 1].place; /* it went to the end, and that is being written */
    j->writing = true;
    assert_false(jobs_in_window(j));
    look_again();
    assert_ptr_equal(job_of(1), j);
    j->writing = false;
    look_again();
    assert_ptr_equal(job_of(1), j);
    assert_true(jobs_in_window(j)); /* it is at the beginning of its line again */
    places_of(10);                  /* shorter than it was */
    w.n_jobs = 10;
    look_at_all();
    assert_int_equal(w.s->jobs.n, 10);
    assert_true(metric("shunt_view_differences_total") == before);
}

static void a_line_that_has_grown_too_long_is_cut(void **state)
{
    (void)state;
    world_lead();
    for (int i = 0; i < W_ROWS; i++)
        add_job(W_ROWS - i); /* the last one first */
    w.jobs[0].line.queue_id = w.jobs[W_ROWS - 1].line.queue_id = 2;
    look_again();
    assert_int_equal(w.s->jobs.n, LINES_MAX_WINDOW + 2);
    assert_non_null(job_of(2));
    assert_non_null(job_of(LINES_MAX_WINDOW + 1));
    assert_null(job_of(LINES_MAX_WINDOW + 2));
    assert_true(job_of(1) && job_of(W_ROWS)); /* of the other line */
}

static void more_lines_than_are_taken_up_hide_what_nobody_has_heard_of(void **state)
{
    enum { MOST = 4 * 1024 }; /* of which a look asks for 1024 */
    static struct store_place places[MOST];
    double before = metric("shunt_view_differences_total");

    (void)state;
    w.conf.max_lines = MOST;
    for (size_t i = 0; i < MOST; i++) {
        places[i] = (struct store_place){.line = add_job(1)->line, .place = w.jobs[0].place};
        places[i].line.array_id = (int64_t)i + 2;
        places[i].place.id = (int64_t)i + 1000;
        w.n_jobs = 0;
    }
    w.look.places = places;
    w.look.n_places = MOST;
    w.look.window = 1;
    world_lead();
    assert_true(w.s->jobs.lines.crowded);
    assert_int_equal(w.asked.n_asked, 1024); /* in turns: all of them may have more */
    add_job(1);
    add_job(2)->line.array_id = 2; /* known, and behind its edge */
    w.jobs[1].place.line_us = INT64_MAX;
    w.look.places = places;
    w.look.n_places = MOST;
    w.look.window = 1;
    w.look.n_told = 0;
    w.one_look = true;
    look_at_all();
    assert_true(!job_of(1) && !job_of(2));
    assert_true(metric("shunt_view_differences_total") == before);
    w.held = NULL;
    w.one_look = true;
    turn(); /* the first lines were read on: nothing is left but what the look tells of */
    assert_true(!job_of(1) && job_of(2));
}

static void changes_that_were_seen_are_forgotten_in_batches(void **state)
{
    (void)state;
    world_lead();
    advance(5 * SECOND);
    assert_in_range(*world_count("changes.forget"), 2, 10); /* a whole batch: there is more */
    w.forgets_all = true;
    advance(5 * SECOND);
    assert_int_equal(w.s->jobs.forgotten, w.s->jobs.seen.xmin);
    *world_count("changes.forget") = 0;
    advance(10 * SECOND);
    assert_int_equal(*world_count("changes.forget"), 0); /* nothing new was seen */
    look_again();
    advance(SECOND);
    assert_int_equal(*world_count("changes.forget"), 1);
    look_again();
    db_fail("changes.forget", SH_E_DBDOWN, 1);
    advance(5 * SECOND);
    assert_true(w.s->jobs.forgotten < w.s->jobs.seen.xmin);
    assert_false(w.s->jobs.forgetting);
    w.is_full = true;
    advance(5 * SECOND);
    assert_false(w.s->jobs.forgetting);
    store_seen_free(&w.s->jobs.seen);
    w.is_full = false;
    *world_count("changes.forget") = 0;
    advance(5 * SECOND);
    assert_int_equal(*world_count("changes.forget"), 0); /* nobody knows what was seen */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_look_names_what_no_look_before_had_told),
        TEST(jobs_and_counts_that_nobody_told_of_are_differences),
        cmocka_unit_test(the_databases_state_wins),
        TEST(an_end_is_believed_when_our_own_write_has_arrived),
        TEST(a_start_that_nobody_heard_of_is_undone),
        TEST(one_that_waits_and_was_cancelled_with_an_executor_ends),
        TEST(a_row_that_is_gone_takes_its_job_along),
        TEST(a_state_that_nobody_knows_spoils_the_look_and_the_next_reads_everything),
        TEST(what_holds_a_job_back_is_seen),
        TEST(a_line_is_read_on_when_few_of_it_are_left),
        TEST(what_arrives_behind_the_edge_of_a_line_is_left_there),
        TEST(a_line_that_has_grown_too_long_is_cut),
        TEST(more_lines_than_are_taken_up_hide_what_nobody_has_heard_of),
        TEST(changes_that_were_seen_are_forgotten_in_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
