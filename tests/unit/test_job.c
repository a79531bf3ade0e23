/* test_job.c - without it, a job could leave a final state, skip one that the database insists on,
 * or lose a change that waits for the database. */
/* uses: scheduler/decide/job.o */
#include "common/mem.h"
#include "scheduler/decide/job.h"
#include "tests/unit/sh_test.h"

/* Written by hand from the diagram in job.h, not from its table. */
static const struct {
    enum job_state from, to;
} ARROWS[] = {
    {JOB_QUEUED, JOB_STARTING},       {JOB_QUEUED, JOB_FAILED},
    {JOB_QUEUED, JOB_HELD},           {JOB_QUEUED, JOB_CANCELLED},
    {JOB_HELD, JOB_QUEUED},           {JOB_HELD, JOB_CANCELLED},
    {JOB_QUEUED, JOB_EXPIRED},        {JOB_HELD, JOB_EXPIRED},
    {JOB_SUSPENDED, JOB_QUEUED},      {JOB_SUSPENDED, JOB_CANCELLED},
    {JOB_SUSPENDED, JOB_EXPIRED},     {JOB_STARTING, JOB_RUNNING},
    {JOB_STARTING, JOB_PREEMPTED},    {JOB_STARTING, JOB_COMPLETING},
    {JOB_STARTING, JOB_FAILED},       {JOB_STARTING, JOB_QUEUED},
    {JOB_STARTING, JOB_CANCELLING},   {JOB_RUNNING, JOB_PREEMPTED},
    {JOB_RUNNING, JOB_COMPLETING},    {JOB_RUNNING, JOB_FAILED},
    {JOB_RUNNING, JOB_QUEUED},        {JOB_RUNNING, JOB_CANCELLING},
    {JOB_PREEMPTED, JOB_RUNNING},     {JOB_PREEMPTED, JOB_COMPLETING},
    {JOB_PREEMPTED, JOB_FAILED},      {JOB_PREEMPTED, JOB_QUEUED},
    {JOB_PREEMPTED, JOB_CANCELLING},  {JOB_COMPLETING, JOB_SUCCEEDED},
    {JOB_COMPLETING, JOB_FAILED},     {JOB_COMPLETING, JOB_QUEUED},
    {JOB_COMPLETING, JOB_CANCELLING}, {JOB_CANCELLING, JOB_CANCELLED},
};

static bool listed(enum job_state from, enum job_state to)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(ARROWS); i++) {
        if (ARROWS[i].from == from && ARROWS[i].to == to)
            return true;
    }
    return false;
}

static void only_listed_transitions_are_legal(void **state)
{
    (void)state;
    for (unsigned from = 0; from < JOB_N_STATES; from++) {
        for (unsigned to = 0; to < JOB_N_STATES; to++) {
            struct job j = {.id = 7};
            struct sh_err err = {0};
            int rc;

            job_adopt_state(&j, from);
            rc = job_set_state(&j, to, "why", &err);
            if (listed(from, to) != (rc == SH_OK))
                fail_msg("%s -> %s gives %s", job_state_name(from), job_state_name(to),
                         sh_rc_name(rc));
            if (rc) {
                assert_fails(rc, SH_E_CONFLICT, &err, "cannot go from");
                assert_int_equal(j.state, from);
                assert_int_equal(j.n_pending, 0);
            } else {
                assert_int_equal(j.state, to);
                assert_int_equal(j.n_pending, 1);
                assert_int_equal(j.pending[0].from, from);
                assert_int_equal(j.pending[0].to, to);
                assert_string_equal(j.pending[0].reason, "why");
            }
        }
    }
}

static void final_states_have_no_way_out(void **state)
{
    (void)state;
    for (unsigned from = 0; from < JOB_N_STATES; from++) {
        for (unsigned to = 0; to < JOB_N_STATES; to++)
            assert_false(job_state_is_final(from) && job_can(from, to));
    }
}

static void a_job_on_an_executor_can_always_be_taken_from_it(void **state)
{
    (void)state;
    for (unsigned s = 0; s < JOB_N_STATES; s++) {
        if (job_state_has_executor(s))
            assert_true(job_can(s, JOB_QUEUED) || job_can(s, JOB_CANCELLED));
    }
}

static void a_state_outside_the_table_is_refused(void **state)
{
    (void)state;
    assert_false(job_can(JOB_N_STATES, JOB_QUEUED));
    assert_false(job_can(JOB_QUEUED, (enum job_state) - 1));
    assert_string_equal(job_state_name(JOB_N_STATES), "?");
}

static void names_are_those_of_the_schema_and_back(void **state)
{
    struct sh_err err = {0};
    enum job_state s;

    (void)state;
    for (unsigned i = 0; i < JOB_N_STATES; i++) {
        assert_ok(job_state_parse(job_state_name(i), &s, &err));
        assert_int_equal(s, i);
    }
    assert_fails(job_state_parse("SLEEPING", &s, &err), SH_E_INVALID, &err, "SLEEPING");
    assert_int_equal(job_state_parse(NULL, &s, NULL), SH_E_INVALID);
}

static void flipping_while_the_database_is_slow_keeps_the_list_short(void **state)
{
    struct job j = {.id = 7};

    (void)state;
    job_adopt_state(&j, JOB_STARTING);
    assert_ok(job_set_state(&j, JOB_RUNNING, "", NULL));
    for (int i = 0; i < 1000; i++) {
        assert_ok(job_set_state(&j, JOB_PREEMPTED, "", NULL));
        assert_ok(job_set_state(&j, JOB_RUNNING, "", NULL));
    }
    assert_true(j.n_pending <= JOB_MAX_PENDING / 2 + 1);
    assert_ok(job_set_state(&j, JOB_COMPLETING, "", NULL));
    assert_ok(job_set_state(&j, JOB_SUCCEEDED, "", NULL));
    /* What is left is one unbroken chain. */
    assert_int_equal(j.pending[0].from, JOB_STARTING);
    for (size_t i = 1; i < j.n_pending; i++)
        assert_int_equal(j.pending[i].from, j.pending[i - 1].to);
    assert_int_equal(j.pending[j.n_pending - 1].to, JOB_SUCCEEDED);
}

static void the_list_of_changes_has_a_limit(void **state)
{
    struct job j = {.id = 7};
    struct sh_err err = {0};
    int rc = SH_OK, n = 0;

    (void)state;
    while (!rc && n++ < 100) {
        rc = job_set_state(&j, j.state == JOB_QUEUED ? JOB_HELD : JOB_QUEUED, "", &err);
    }
    assert_fails(rc, SH_E_TOOBIG, &err, "wait for the database");
    assert_int_equal(j.n_pending, JOB_MAX_PENDING);
}

static void taking_over_the_databases_state_forgets_what_was_pending(void **state)
{
    struct job j = {.id = 7};

    (void)state;
    assert_ok(job_set_state(&j, JOB_STARTING, "", NULL));
    job_adopt_state(&j, JOB_CANCELLED);
    assert_int_equal(j.state, JOB_CANCELLED);
    assert_int_equal(j.n_pending, 0);
}

static void too_many_checkpoints_drop_the_oldest(void **state)
{
    struct job *j = calloc(1, sizeof(*j));

    (void)state;
    assert_non_null(j);
    for (int i = 0; i < JOB_MAX_CHECKPOINTS + 3; i++) {
        struct job_checkpoint c = {.step = i};

        assert_ok(job_add_checkpoint(j, &c, NULL));
    }
    assert_int_equal(j->n_checkpoints, JOB_MAX_CHECKPOINTS);
    assert_int_equal(j->checkpoints[0].step, 3);
    assert_int_equal(j->checkpoints[JOB_MAX_CHECKPOINTS - 1].step, JOB_MAX_CHECKPOINTS + 2);
    job_free(j);
    job_free(NULL);
}

/* Only what inference takes and gives back all the time folds; nothing else is forgotten. */
static void only_turns_to_and_fro_fold_when_many_changes_wait(void **state)
{
    static const struct {
        enum job_state first, second, third;
        size_t n; /* pending, of 4 before them */
    } CASES[] = {{JOB_RUNNING, JOB_PREEMPTED, JOB_RUNNING, 1},
                 {JOB_PREEMPTED, JOB_RUNNING, JOB_PREEMPTED, 1},
                 {JOB_RUNNING, JOB_PREEMPTED, JOB_COMPLETING, 3},
                 {JOB_PREEMPTED, JOB_RUNNING, JOB_COMPLETING, 3},
                 {JOB_RUNNING, JOB_COMPLETING, JOB_QUEUED, 3},
                 {JOB_PREEMPTED, JOB_COMPLETING, JOB_QUEUED, 3}};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct job j = {.state = JOB_STARTING, .n_pending = JOB_MAX_PENDING / 2};

        assert_ok(job_set_state(&j, CASES[i].first, "", NULL));
        assert_ok(job_set_state(&j, CASES[i].second, "", NULL));
        assert_ok(job_set_state(&j, CASES[i].third, "", NULL));
        assert_int_equal(j.state, CASES[i].third);
        assert_int_equal(j.n_pending, JOB_MAX_PENDING / 2 + CASES[i].n);
    }
}

static void what_is_left_is_known_once_steps_were_measured(void **state)
{
    static const struct {
        struct job_progress p;
        int64_t left_ns;
    } CASES[] = {{{.step = 2, .steps = 10, .busy_ns = 100}, 400},
                 {{.step = 2, .redone = 2, .steps = 10, .busy_ns = 100}, 200},
                 {{.step = 0, .steps = 10, .busy_ns = 100}, 0},
                 {{.step = 2, .steps = 10, .busy_ns = 0}, 0},
                 {{.step = 10, .steps = 10, .busy_ns = 100}, 0},
                 {{.step = 2, .steps = 0, .busy_ns = 100}, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        assert_int_equal(job_least_left_ns(&(struct job){.progress = CASES[i].p}),
                         CASES[i].left_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_listed_transitions_are_legal),
        cmocka_unit_test(final_states_have_no_way_out),
        cmocka_unit_test(a_job_on_an_executor_can_always_be_taken_from_it),
        cmocka_unit_test(a_state_outside_the_table_is_refused),
        cmocka_unit_test(names_are_those_of_the_schema_and_back),
        cmocka_unit_test(flipping_while_the_database_is_slow_keeps_the_list_short),
        cmocka_unit_test(the_list_of_changes_has_a_limit),
        cmocka_unit_test(taking_over_the_databases_state_forgets_what_was_pending),
        cmocka_unit_test(too_many_checkpoints_drop_the_oldest),
        cmocka_unit_test(only_turns_to_and_fro_fold_when_many_changes_wait),
        cmocka_unit_test(what_is_left_is_known_once_steps_were_measured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
