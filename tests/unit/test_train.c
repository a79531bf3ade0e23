/* test_train.c - where a job stands, and its next step, when the device, a worker or memory refuse.
 *
 * Without it: a job whose ticket was refused could keep a workspace that a run needs, one that does
 * not fit beside its own state could stand still for ever, or go on with a state that is torn. */
/* uses: executor/training/train.o executor/training/train_events.o executor/training/job.o executor/training/job_state.o executor/training/trials.o executor/training/crashes.o executor/training/job_life.o executor/pool/worker_life.o */
#include "tests/unit/train_rig.h"

static void turns(int n)
{
    for (int i = 0; i < n; i++)
        train_turn(&R.t);
}

static void runs(void)
{
    turns(3);
    assert_int_equal(R.j.stand, JOB_RUNNING);
    R.j.n_flights = 0;
}

static void stopped(enum msg_train_at at)
{
    train_on_stopped(
        &R.t, &R.w[0],
        &(struct msg_wk_train_stopped){.job = JOB, .step = R.j.step, .at = at, .op = 3, .msg = ""});
    assert_int_equal(R.j.stand, JOB_PAUSED);
}

static void pauses(enum msg_train_at at)
{
    runs();
    R.is_idle = false;
    train_yield(&R.t, STOP_PAUSE);
    stopped(at);
}

/* ------------------------------------------------------------------ what is refused */

/* It has its workspace, and nobody was told to go on. */
static void is_ready(void)
{
    R.ticket_rc = SH_E_DEVLOST;
    turns(3);
    assert_int_equal(R.j.stand, JOB_READY);
    assert_int_equal(R.ws_in_use, R.j.ws_bytes);
    assert_int_equal(R.n_sent, 0);
}

static void a_workspace_is_given_up_before_a_step_was_taken_in_it(void **state)
{
    (void)state;
    is_ready();
    R.is_idle = false;
    train_yield(&R.t, STOP_DROP);
    turns(1);
    assert_int_equal(R.j.stand, JOB_LOADED);
    assert_int_equal(R.ws_in_use, 0);
    assert_int_equal(R.j.redone, 0);
    assert_true(train_has_yielded(&R.t, STOP_DROP));
    R.is_idle = true;
    R.ticket_rc = 0;
    runs();
}

static void another_worker_may_need_more_than_the_workspace_that_waits(void **state)
{
    const struct msg_wk_train_ready less = {.job = JOB,
                                            .state_bytes = 1 << 10,
                                            .written_bytes = 1 << 10,
                                            .ws_bytes = 1 << 12,
                                            .steps = 100,
                                            .batch = 1};
    struct msg_wk_train_ready more = less;

    more.ws_bytes = 1 << 13;
    for (int i = 0; i < 4; i++) {
        begin(state);
        is_ready();
        R.w[0].state = WORKER_ACTIVE; /* a run took it, so another one compiles the job */
        turns(2);
        assert_ptr_equal(R.j.compiling, &R.w[1]);
        more.batch = i == 2 ? 2 : 1;
        more.written_bytes = i == 3 ? 1 << 9 : 1 << 10;
        train_on_ready(&R.t, &R.w[1], i ? &more : &less, NULL, 0);
        assert_int_equal(R.j.stand, i == 1 ? JOB_LOADED : JOB_READY);
        assert_int_equal(R.j.end, i >= 2 ? END_FAIL : END_NONE);
        assert_int_equal(R.ws_in_use, i == 1 ? 0 : 1 << 12);
        if (i >= 2)
            continue;
        R.ticket_rc = 0;
        turns(2);
        assert_int_equal(R.j.stand, JOB_RUNNING);
        assert_ptr_equal(R.j.w, &R.w[1]);
        assert_int_equal(R.ws_in_use, R.j.ws_bytes);
    }
}

static void a_state_that_lies_in_its_own_way_moves(void **state)
{
    (void)state;
    R.ws_rc = SH_E_DEVMEM;
    turns(2);
    assert_int_equal(R.j.stand, JOB_LOADED);
    R.has_ahead = true;
    assert_false(train_turn(&R.t)); /* what comes ahead of need goes first */
    R.has_ahead = false;
    R.has_pins = true;
    assert_true(train_turn(&R.t)); /* then what is pinned */
    R.has_pins = false;
    assert_false(train_turn(&R.t));
    assert_false(R.j.must_move);
    sh_clock_fake(102 * SECOND, 0);
    assert_false(train_turn(&R.t));
    assert_true(R.j.must_move);
    assert_false(train_turn(&R.t)); /* its copy to the device is under way */
    R.j.n_flights = 0;
    assert_true(train_turn(&R.t));
    assert_int_equal(R.j.stand, JOB_OFF);
    assert_int_equal(R.n_copies, 0); /* the slot has it */
    R.ws_rc = 0;
    runs();
    assert_false(R.j.must_move);
    assert_int_equal(R.state_in_use, R.j.state_bytes);
}

/* The part that steps write is there, and the rest is refused: nobody goes on with a half, and it
 * is not copied twice. */
static void a_state_comes_in_two_parts(void **state)
{
    static const uint64_t WRITTEN = 1 << 8;

    (void)state;
    R.j.written_bytes = WRITTEN;
    R.copy_rc = SH_E_DEVMEM;
    R.spared = 1;
    turns(3);
    assert_int_equal(R.j.stand, JOB_LOADED);
    assert_int_equal(R.n_sent, 0);
    assert_int_equal(R.j.n_flights, 1);
    assert_int_equal(R.in_bytes, WRITTEN);
    R.copy_rc = 0;
    runs();
    assert_int_equal(R.in_bytes, R.j.state_bytes);
    R.is_idle = false; /* it leaves with what it has, and comes again whole */
    train_yield(&R.t, STOP_SWAP);
    stopped(MSG_TRAIN_AT_BOUNDARY);
    turns(2);
    assert_int_equal(R.j.stand, JOB_OFF);
    R.is_idle = true;
    R.w[0].state = WORKER_STANDBY;
    runs();
    assert_int_equal(R.in_bytes, 2 * R.j.state_bytes);
}

static int takes(uint64_t written, uint64_t state)
{
    const struct msg_wk_train_ready m = {.job = JOB,
                                         .state_bytes = state,
                                         .written_bytes = written,
                                         .ws_bytes = 1 << 12,
                                         .steps = 100,
                                         .batch = 1,
                                         .table = "[]"};
    char precision[] = "fp32";
    struct sh_shm shm;
    int fd, rc;

    R.j.precision = precision;
    assert_ok(sh_shm_create("state", state + 1, &shm, NULL));
    fd = dup(shm.fd);
    sh_shm_fini(&shm);
    rc = job_take_built(&R.j, &m, &fd, 1, NULL);
    if (fd >= 0)
        close(fd);
    json_decref(R.j.table);
    free(R.j.tensors);
    free(R.j.losses);
    R.j.table = NULL;
    R.j.tensors = NULL;
    R.j.losses = NULL;
    R.j.precision = NULL;
    return rc;
}

static void a_worker_cannot_say_that_steps_write_what_is_not_there(void **state)
{
    (void)state;
    assert_int_equal(takes(1 << 10, 1 << 10), SH_OK);
    assert_int_equal(takes(1, 1 << 10), SH_OK);
    assert_int_equal(R.j.written_bytes, 1);
    assert_int_equal(takes((1 << 10) + 1, 1 << 10), SH_E_PROTO);
    assert_int_equal(takes(0, 1 << 10), SH_E_PROTO); /* who writes nothing does not train */
    assert_int_equal(takes(UINT64_MAX, 0), SH_E_PROTO);
}

static void what_can_never_fit_fails(void **state)
{
    static const struct {
        int state_rc, fits_rc;
        enum job_end end;
    } CASES[] = {{SH_E_DEVMEM, 0, END_NONE},
                 {SH_E_DEVMEM, SH_E_QUOTA, END_FAIL},
                 {SH_E_DEVLOST, SH_E_QUOTA, END_NONE}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        begin(state);
        R.state_rc = CASES[i].state_rc;
        R.fits_rc = CASES[i].fits_rc;
        turns(3);
        assert_int_equal(R.j.stand, JOB_OFF);
        assert_int_equal(R.j.end, CASES[i].end);
    }
    begin(state);
    R.has_slot = false; /* or the copy of the state is refused */
    turns(3);
    assert_int_equal(R.j.stand, JOB_OFF);
    R.has_slot = true;
    R.copy_rc = SH_E_DEVLOST;
    turns(3);
    assert_int_equal(R.j.stand, JOB_OFF);
    assert_int_equal(R.state_in_use, 0);
}

static void files_that_cannot_be_opened_fail_the_job_unless_there_may_be_room(void **state)
{
    static char none[] = "/nowhere/data", null[] = "/dev/null";
    static const struct {
        int open_rc;
        char *dataset;
        int64_t every;
        enum job_end end;
    } CASES[] = {
        {SH_E_NOMEM, null, 0, END_NONE}, {SH_E_IO, null, 0, END_FAIL}, {0, none, 0, END_FAIL},
        {0, null, 5, END_FAIL},          {0, null, 0, END_NONE},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        begin(state);
        R.j.build = JOB_RAW;
        R.open_rc = CASES[i].open_rc;
        R.j.dataset = CASES[i].dataset;
        R.j.eval_dataset = none;
        R.j.trials.every = CASES[i].every;
        turns(1);
        assert_int_equal(R.j.end, CASES[i].end);
        assert_int_equal(R.n_sent, i == 4);
    }
    begin(state);
    R.j.build = JOB_RAW;
    R.is_here = false;
    assert_false(train_turn(&R.t));
    SH_FAIL(&R.why, SH_E_NOTFOUND, "no such package");
    assert_true(train_turn(&R.t));
    assert_int_equal(R.j.why.rc, SH_E_NOTFOUND);
}

/* ------------------------------------------------------------------ who dies */

static void a_worker_that_dies_within_an_update_leaves_a_torn_state(void **state)
{
    static const enum msg_train_at AT[] = {MSG_TRAIN_AT_BOUNDARY, MSG_TRAIN_AT_STEP,
                                           MSG_TRAIN_AT_UPDATE};

    for (size_t i = 0; i < SH_ARRAY_LEN(AT); i++) {
        begin(state);
        pauses(AT[i]);
        assert_int_equal(train_is_torn(&R.t, &R.w[0]), i == 2);
        assert_false(train_is_torn(&R.t, &R.w[1]));
        train_on_worker_dead(&R.t, &R.w[0]);
        assert_int_equal(R.j.stand, i == 2 ? JOB_LOST : JOB_LOADED);
        assert_int_equal(R.j.redone, i > 0);
        assert_null(R.j.w);
    }
    R.j.step = 12;
    R.j.n_flights = 1;
    assert_false(train_turn(&R.t)); /* what is copied there would come to another's memory */
    R.j.n_flights = 0;
    assert_true(train_turn(&R.t));
    assert_int_equal(R.j.stand, JOB_OFF);
    assert_int_equal(R.j.step, 10);
    assert_int_equal(R.j.redone, 3);
    assert_int_equal(R.ws_in_use + R.state_in_use, 0);
}

static void one_whose_workspace_waited_loses_nothing(void **state)
{
    (void)state;
    is_ready();
    train_on_worker_dead(&R.t, &R.w[1]); /* it has nothing of it */
    assert_int_equal(R.j.stand, JOB_READY);
    train_on_worker_dead(&R.t, &R.w[0]);
    assert_int_equal(R.j.stand, JOB_LOADED);
    assert_int_equal(R.j.redone, 0);
}

/* ------------------------------------------------------------------ leaving the device */

static void a_state_leaves_by_a_slot(void **state)
{
    static const struct {
        int64_t slot_step;
        int copy_rc;
        enum job_stand stand;
        int n_copies;
    } CASES[] = {
        {10, 0, JOB_OFF, 0},
        {9, 0, JOB_LOADED, 1},
        {9, SH_E_CONFLICT, JOB_LOADED, 1},
        {9, SH_E_DEVLOST, JOB_LOADED, 1},
        {-1, 0, JOB_LOADED, 1},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        begin(state);
        pauses(MSG_TRAIN_AT_BOUNDARY);
        train_yield(&R.t, STOP_SWAP);
        R.slot.step = CASES[i].slot_step;
        R.has_slot = CASES[i].slot_step >= 0;
        R.copy_rc = CASES[i].copy_rc;
        turns(2);
        assert_int_equal(R.j.stand, CASES[i].stand);
        assert_int_equal(R.n_copies, CASES[i].n_copies);
        assert_int_equal(R.w[0].state,
                         CASES[i].stand == JOB_OFF ? WORKER_STANDBY : WORKER_CLEANING);
        assert_int_equal(train_has_yielded(&R.t, STOP_SWAP), CASES[i].stand == JOB_OFF);
    }
    R.is_idle = true; /* nobody wants it any more */
    turns(1);
    assert_int_equal(R.w[0].state, WORKER_STANDBY);
    assert_null(R.j.w);
}

static void ranges_are_those_that_it_has(void **state)
{
    static const enum stop_way WAYS[] = {STOP_PAUSE, STOP_DROP, STOP_SWAP};
    static const size_t N[3][3] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 2}}; /* off, loaded, with all */
    struct space_range out[2];

    (void)state;
    for (int k = 0; k < 3; k++) {
        if (k == 1) {
            R.ws_rc = SH_E_DEVMEM;
            turns(2);
        } else if (k == 2) {
            R.ws_rc = 0;
            turns(1);
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(train_ranges(&R.t, WAYS[i], out), N[k][i]);
    }
    R.t.job = NULL;
    assert_int_equal(train_ranges(&R.t, STOP_SWAP, out), 0);
    assert_true(train_has_yielded(&R.t, STOP_SWAP));
}

static void a_job_that_is_cancelled_waits_for_its_copies(void **state)
{
    struct slot filling = {.step = 10};

    (void)state;
    pauses(MSG_TRAIN_AT_STEP);
    train_on_stop(&R.t, &(struct msg_job_stop){.job = JOB, .how = MSG_JOB_HOW_CANCEL, .why = ""});
    R.j.filling = &filling;
    assert_false(train_turn(&R.t));
    R.j.filling = NULL;
    R.j.n_flights = 1;
    assert_false(train_turn(&R.t));
    R.j.n_flights = 0;
    assert_true(train_turn(&R.t));
    assert_int_equal(R.j.phase, MSG_JOB_CANCELLED);
    assert_int_equal(R.j.stand, JOB_OFF);
    assert_int_equal(R.w[0].state, WORKER_STANDBY);
    R.j.filling = &filling; /* and its memory for what still goes there */
    assert_false(train_turn(&R.t));
    R.j.filling = NULL;
    R.j.n_flights = 1;
    assert_false(train_turn(&R.t));
    assert_ptr_equal(R.t.job, &R.j);
}

static void one_that_is_suspended_is_on_disk_first(void **state)
{
    (void)state;
    pauses(MSG_TRAIN_AT_BOUNDARY);
    train_suspend(&R.t);
    turns(2);
    assert_int_equal(R.j.stand, JOB_OFF);
    assert_false(train_turn(&R.t));
    assert_int_equal(R.n_written, 1);
    assert_true(train_turn(&R.t));
    assert_int_equal(R.j.phase, MSG_JOB_SUSPENDED);
}

/* ------------------------------------------------------------------ within an update */

static void an_update_is_brought_to_its_end_before_anything_leaves(void **state)
{
    (void)state;
    pauses(MSG_TRAIN_AT_UPDATE);
    train_yield(&R.t, STOP_DROP);
    assert_true(train_turn(&R.t));
    assert_int_equal(R.j.stand, JOB_STOPPING);
    assert_int_equal(R.ws_in_use, R.j.ws_bytes);
    stopped(MSG_TRAIN_AT_BOUNDARY);
    turns(1);
    assert_int_equal(R.j.stand, JOB_LOADED);
    assert_int_equal(R.w[0].state, WORKER_STANDBY);
}

static void a_worker_compiles_what_it_lacks_before_it_goes_on(void **state)
{
    (void)state;
    pauses(MSG_TRAIN_AT_UPDATE);
    R.is_idle = true;
    R.w[0].preparing = 3;
    assert_false(train_turn(&R.t));
    R.w[0].preparing = 0;
    R.lacks = true;
    assert_true(train_turn(&R.t)); /* to the end of the update: it may be long */
    stopped(MSG_TRAIN_AT_BOUNDARY);
    assert_false(train_turn(&R.t));
    R.lacks = false;
    assert_true(train_turn(&R.t));
    assert_int_equal(R.j.stand, JOB_RUNNING);
}

/* ------------------------------------------------------------------ evaluations */

static void evaluated(double loss)
{
    R.j.evaluates = true;
    train_on_eval(&R.t, &R.w[0], &(struct msg_wk_train_eval){.job = JOB, .step = 10, .loss = loss});
    stopped(MSG_TRAIN_AT_BOUNDARY);
    assert_int_equal(R.j.trial_step, 10);
}

static void what_is_best_is_kept_before_it_counts(void **state)
{
    static const struct {
        int64_t slot_step;
        int copy_rc;
        bool is_filling, counts, fails;
    } CASES[] = {
        {10, 0, false, true, false},
        {9, 0, false, false, false},
        {9, SH_E_CONFLICT, false, false, false},
        {9, SH_E_DEVLOST, false, false, true},
        {9, SH_E_DEVLOST, true, false, false},
        {-1, 0, false, false, false},
    };
    const struct train_spec spec = {.evaluation = {.every = 5, .best = TRAIN_BY_LOSS}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        begin(state);
        trials_init(&R.j.trials, &spec);
        runs();
        evaluated(2);
        R.slot.step = CASES[i].slot_step;
        R.has_slot = CASES[i].slot_step >= 0;
        R.copy_rc = CASES[i].copy_rc;
        R.j.filling = CASES[i].is_filling ? &R.slot : NULL;
        assert_int_equal(train_turn(&R.t), CASES[i].counts);
        assert_int_equal(R.n_best, CASES[i].counts);
        assert_int_equal(R.j.trials.best_step, CASES[i].counts ? 10 : 0);
        assert_int_equal(R.j.end == END_FAIL, CASES[i].fails);
    }
}

static void an_evaluation_of_a_state_that_was_lost_is_forgotten(void **state)
{
    const struct train_spec spec = {.evaluation = {.every = 5, .best = TRAIN_BY_LOSS}};

    (void)state;
    trials_init(&R.j.trials, &spec);
    runs();
    evaluated(2);
    R.j.step = 8;
    assert_true(train_turn(&R.t));
    assert_int_equal(R.j.trial_step, 0);
    assert_int_equal(R.j.trials.last_step, 0);
}

static void an_evaluation_that_is_no_number_fails_the_job(void **state)
{
    const struct train_spec spec = {.evaluation = {.every = 5}};

    (void)state;
    for (int is_nan = 0; is_nan < 2; is_nan++) {
        begin(state);
        trials_init(&R.j.trials, &spec); /* nothing is kept: it names no best */
        runs();
        evaluated(is_nan ? NAN : 2);
        assert_true(train_turn(&R.t));
        assert_int_equal(R.j.end == END_FAIL, is_nan);
        assert_int_equal(R.j.trials.last_step, is_nan ? 0 : 10);
        assert_int_equal(R.n_copies, 0);
    }
}

static void one_that_is_held_off_gives_its_workspace_and_no_more(void **state)
{
    (void)state;
    pauses(MSG_TRAIN_AT_STEP);
    R.holds_off = true;
    assert_true(train_turn(&R.t)); /* while the run has the device: it takes none of it */
    assert_int_equal(R.j.stand, JOB_LOADED);
    assert_int_equal(R.ws_in_use, 0);
    assert_int_equal(R.j.redone, 1);
    assert_int_equal(R.j.phase, MSG_JOB_PREEMPTED);
    R.is_idle = true;
    turns(3);
    assert_int_equal(R.j.stand, JOB_LOADED); /* it does not come back by itself */
}

static void one_that_is_held_off_does_not_run_to_be_stopped(void **state)
{
    (void)state;
    R.holds_off = true;
    turns(3);
    assert_int_equal(R.j.stand, JOB_OFF); /* its state would take room as well */
    R.holds_off = false;
    runs();
    R.holds_off = true; /* no run has the device */
    turns(1);
    assert_int_equal(R.j.stand, JOB_STOPPING);
    assert_int_equal(R.ctl[0].stop_finish, 1);
    stopped(MSG_TRAIN_AT_BOUNDARY);
    turns(1);
    assert_int_equal(R.ws_in_use, 0);
}

static void an_update_is_not_finished_beside_a_run_unless_that_asks(void **state)
{
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        begin(state);
        pauses(MSG_TRAIN_AT_UPDATE);
        R.holds_off = true;
        turns(2);
        assert_int_equal(R.j.stand, JOB_PAUSED);
        if (asks)
            train_yield(&R.t, STOP_DROP);
        else
            R.is_idle = true;
        turns(1);
        assert_int_equal(R.j.stand, JOB_STOPPING); /* to the end of its update */
        stopped(MSG_TRAIN_AT_BOUNDARY);
        turns(1);
        assert_int_equal(R.ws_in_use, 0);
    }
}

static void one_that_is_held_off_can_be_rated_and_ended(void **state)
{
    const struct train_spec spec = {.evaluation = {.every = 5}};

    (void)state;
    trials_init(&R.j.trials, &spec);
    runs();
    evaluated(2);
    R.holds_off = true;
    turns(2);
    assert_int_equal(R.j.trials.last_step, 10);
    train_suspend(&R.t);
    turns(2);
    assert_int_equal(R.j.stand, JOB_OFF);
}

/* Its state stands as long as it does: it need not run for a checkpoint that a client wishes. */
static void one_that_is_held_off_is_saved_as_it_stands(void **state)
{
    static const struct {
        int64_t slot_step, disk_step;
        int n_copies, n_written;
        bool is_answered;
    } CASES[] = {{10, 10, 0, 0, true}, {10, 5, 0, 1, false}, {9, 5, 1, 0, false}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        begin(state);
        pauses(MSG_TRAIN_AT_BOUNDARY);
        R.holds_off = true;
        turns(1);
        assert_int_equal(R.j.stand, JOB_LOADED);
        R.slot.step = CASES[i].slot_step;
        R.j.disk_step = CASES[i].disk_step;
        train_on_save(&R.t, &(struct msg_job_save){.job = JOB, .attempt = 1, .asked = 3});
        turns(1);
        assert_int_equal(R.n_copies, CASES[i].n_copies);
        assert_int_equal(R.n_written, CASES[i].n_written);
        assert_int_equal(R.j.save_asked, CASES[i].is_answered ? 0 : 3);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(a_workspace_is_given_up_before_a_step_was_taken_in_it),
        TEST(another_worker_may_need_more_than_the_workspace_that_waits),
        TEST(a_state_that_lies_in_its_own_way_moves),
        TEST(a_state_comes_in_two_parts),
        TEST(a_worker_cannot_say_that_steps_write_what_is_not_there),
        TEST(what_can_never_fit_fails),
        TEST(files_that_cannot_be_opened_fail_the_job_unless_there_may_be_room),
        TEST(a_worker_that_dies_within_an_update_leaves_a_torn_state),
        TEST(one_whose_workspace_waited_loses_nothing),
        TEST(a_state_leaves_by_a_slot),
        TEST(ranges_are_those_that_it_has),
        TEST(a_job_that_is_cancelled_waits_for_its_copies),
        TEST(one_that_is_suspended_is_on_disk_first),
        TEST(an_update_is_brought_to_its_end_before_anything_leaves),
        TEST(a_worker_compiles_what_it_lacks_before_it_goes_on),
        TEST(what_is_best_is_kept_before_it_counts),
        TEST(an_evaluation_of_a_state_that_was_lost_is_forgotten),
        TEST(an_evaluation_that_is_no_number_fails_the_job),
        TEST(one_that_is_held_off_gives_its_workspace_and_no_more),
        TEST(one_that_is_held_off_does_not_run_to_be_stopped),
        TEST(an_update_is_not_finished_beside_a_run_unless_that_asks),
        TEST(one_that_is_held_off_can_be_rated_and_ended),
        TEST(one_that_is_held_off_is_saved_as_it_stands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
