/* test_train_events.c - messages about a job that come when it has ended, stands elsewhere or is
 * another one: a loop takes several before its turn. Without it: what a worker says of a job that
 * is over could change how it ended, or a scheduler be answered for the wrong attempt. */
/* uses: executor/training/train_events.o executor/training/crashes.o executor/training/job_life.o */
#include "common/life.h"
#include "common/mem.h"
#include "executor/training/train_int.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define JOB 7

static struct {
    struct worker w, other;
    struct worker_ctl ctl;
    struct train t;
    struct job j;
    struct slot slot;
    bool has_slot;
    struct msg_job_state said; /* the last JOB_STATE that was not of the job's own report */
    char logged[64];
    int n_said, n_reports, n_asked, n_forced, n_copies, n_dropped, n_killed, n_notes, n_ends,
        copy_rc;
} R;

/* What the rest of the executor does. */
bool job_has_ended(const struct job *j)
{
    return j->phase == MSG_JOB_DONE || j->phase == MSG_JOB_FAILED;
}

bool job_runs(const struct job *j)
{
    return j->stand == JOB_RUNNING || j->stand == JOB_STOPPING || j->stand == JOB_YIELDING;
}

bool job_has_ws(const struct job *j)
{
    return job_runs(j) || j->stand == JOB_READY || j->stand == JOB_PAUSED;
}

void job_go(struct job *j, enum job_stand to)
{
    j->stand = (enum job_stand)sh_life_step(&TRAINING_LIFE, j->stand, to, j->id);
}

void job_set_phase(struct job *j, enum msg_job_phase p)
{
    j->phase = p;
}

void job_fill_state(const struct job *j, struct msg_job_state *out)
{
    *out = (struct msg_job_state){.job = j->id, .rc = j->why.rc};
}

int job_new(struct train *t, const struct msg_job_start *m, struct job **out, struct sh_err *err)
{
    (void)t, (void)out;
    return m->job > 0 ? SH_FAIL(err, SH_E_NOMEM, "no memory")
                      : SH_FAIL(err, SH_E_INVALID, "no number");
}

void job_free(struct job *j)
{
    (void)j;
}

int job_agree(struct job *j, const struct msg_wk_train_ready *m, struct sh_err *err)
{
    (void)j, (void)m, (void)err;
    return SH_OK;
}

int job_take_built(struct job *j, const struct msg_wk_train_ready *m, int *fds, size_t n_fds,
                   struct sh_err *err)
{
    (void)j, (void)m, (void)fds, (void)n_fds;
    return SH_FAIL(err, SH_E_PROTO, "no state");
}

void job_note_losses(struct job *j, const struct msg_wk_train_losses *m)
{
    (void)j, (void)m;
    R.n_notes++;
}

void job_note_steps(struct job *j, int64_t step)
{
    j->max_step = SH_MAX(j->max_step, step);
}

void job_report(struct job *j)
{
    (void)j;
    R.n_reports++;
}

void train__ask_checkpoint(struct job *j)
{
    (void)j;
    R.n_asked++;
}

void train__end_if_done(struct job *j)
{
    (void)j;
    R.n_ends++;
}

bool train__drop_workspace(struct job *j, enum worker_state to)
{
    (void)to;
    job_go(j, JOB_LOADED);
    return true;
}

void train__count_redone(struct job *j, int64_t n)
{
    j->redone += n;
}

struct slot *slots_newest(struct job *j)
{
    (void)j;
    return R.has_slot ? &R.slot : NULL;
}

int slots_copy_out(struct job *j, int64_t step, uint32_t ticket_slot, uint32_t ticket_value,
                   struct sh_err *err)
{
    (void)j, (void)step, (void)ticket_slot, (void)ticket_value;
    R.n_copies++;
    return R.copy_rc ? SH_FAIL(err, R.copy_rc, "no slot") : SH_OK;
}

void dev_ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value)
{
    (void)m, (void)slot, (void)value;
    R.n_forced++;
}

void uplink_send(const struct uplink *u, const struct sh_msg *m)
{
    (void)u;
    R.said = m->u.job_state;
    R.n_said++;
}

void worker_drop_job(struct worker *w, int64_t job)
{
    (void)w, (void)job;
    R.n_dropped++;
}

void worker_kill(struct worker *w, enum worker_kill why)
{
    (void)w, (void)why;
    R.n_killed++;
}

bool worker_end_job(struct worker *w, int64_t job, uint64_t turn)
{
    w->job = job;
    return turn == w->work_turn;
}

void worker_note_ticket(struct worker *w, uint32_t value)
{
    w->ckpt_value = value;
}

void pool_set_state(struct worker *w, enum worker_state to)
{
    w->state = to;
}

size_t pool_size(const struct pool *p)
{
    (void)p;
    return 1;
}

struct worker *pool_at(struct pool *p, size_t i)
{
    (void)p, (void)i;
    return &R.w;
}

const char *stop_way_name(enum stop_way way)
{
    (void)way;
    return "pause";
}

/* clang-format off */
void job_count_busy(struct job *j) { (void)j; }
void job_count_usage(struct job *j) { (void)j; }
void job_report_checkpoint(struct job *j) { (void)j; }
void job_report_trials(struct job *j) { (void)j; }
void job_say_progress(struct job *j, bool is_last) { (void)j, (void)is_last; }
void job_log_attempt(struct job_log *l, uint32_t attempt) { (void)l, (void)attempt; }
void job_log_end(struct job_log *l, const struct msg_job_state *said) { (void)l, (void)said; }
void job_log_tick(struct job_log *l) { (void)l; }
void outcomes_keep(struct outcomes *w, const struct msg_job_state *s) { (void)w, (void)s; }
void outcomes_forget(struct outcomes *w, int64_t job) { (void)w, (void)job; }
void slots_ask_marks(struct job *j) { (void)j; }
void slots_write_due(struct job *j) { (void)j; }
int64_t slots_interval_ns(const struct job *j) { return j->interval_ns; }
bool slots_copy_is_due(const struct job *j) { (void)j; return false; }
void finish_free(struct finish *f) { (void)f; }
/* clang-format on */

void job_log_say(struct job_log *l, const char *fmt, ...)
{
    va_list args;

    (void)l;
    va_start(args, fmt);
    vsnprintf(R.logged, sizeof(R.logged), fmt, args);
    va_end(args);
}

/* A job that runs in the worker; or none. */
static void begin(bool has_job)
{
    static struct report report;
    static char text[] = "t";

    memset(&R, 0, sizeof(R));
    R.w = (struct worker){.ctl_shm = {.base = &R.ctl}, .exit_cause = "crash"};
    R.other = (struct worker){.index = 1, .ctl_shm = {.base = &R.ctl}};
    R.t.env = (struct train_env){.executor = text, .report = &report};
    R.j = (struct job){.env = &R.t.env,
                       .train = &R.t,
                       .id = JOB,
                       .attempt = 2,
                       .tenant = text,
                       .model = text,
                       .w = &R.w,
                       .stand = JOB_RUNNING,
                       .phase = MSG_JOB_RUNNING,
                       .step = 10,
                       .steps = 100};
    R.t.job = has_job ? &R.j : NULL;
}

enum about { NO_JOB, OTHER_JOB, OTHER_WORKER, NOT_RUNNING, FINE, N_ABOUT };

static int64_t prepare(enum about about, struct worker **w)
{
    begin(about != NO_JOB);
    *w = about == OTHER_WORKER ? &R.other : &R.w;
    if (about == NOT_RUNNING)
        R.j.stand = JOB_PAUSED;
    return about == OTHER_JOB ? JOB + 1 : JOB;
}

static void a_stop_is_of_the_job_that_runs_in_this_worker(void **state)
{
    (void)state;
    for (enum about a = 0; a < N_ABOUT; a++) {
        struct worker *w;
        struct msg_wk_train_stopped m = {.job = prepare(a, &w), .step = 11, .msg = ""};
        const enum job_stand before = R.j.stand;

        train_on_stopped(&R.t, w, &m);
        assert_int_equal(R.j.step, a == FINE ? 11 : 10);
        assert_int_equal(R.j.stand, a == FINE ? JOB_PAUSED : before);
        assert_int_equal(R.n_ends, a == FINE);
    }
    begin(true); /* it has been told to go on since it said so */
    R.w.work_turn = 5;
    train_on_stopped(&R.t, &R.w,
                     &(struct msg_wk_train_stopped){.job = JOB, .turn = 4, .step = 11, .msg = ""});
    assert_int_equal(R.j.step, 10);
    assert_int_equal(R.j.stand, JOB_RUNNING);
    begin(true); /* the process ends, and its death is what is handled */
    train_on_stopped(&R.t, &R.w, &(struct msg_wk_train_stopped){.job = JOB, .rc = SH_E_DEVLOST});
    assert_int_equal(R.j.stand, JOB_RUNNING);
    train_on_stopped(&R.t, &R.w,
                     &(struct msg_wk_train_stopped){.job = JOB, .rc = SH_E_NAN, .msg = "nan"});
    assert_int_equal(R.j.end, END_FAIL);
    assert_int_equal(R.j.why.rc, SH_E_NAN);
}

static void an_evaluation_is_of_the_step_at_which_it_was_asked(void **state)
{
    (void)state;
    for (enum about a = 0; a < N_ABOUT + 2; a++) {
        struct worker *w;
        struct msg_wk_train_eval m = {.job = prepare(a, &w), .step = 10, .loss = 3};

        R.j.evaluates = a != N_ABOUT;
        m.step += a == N_ABOUT + 1;
        train_on_eval(&R.t, w, &m);
        assert_int_equal(R.j.trial_step, a == FINE ? 10 : 0);
    }
}

static void losses_and_copies_are_of_the_job_of_this_worker(void **state)
{
    (void)state;
    for (enum about a = 0; a <= OTHER_WORKER; a++) {
        struct worker *w;
        const int64_t id = prepare(a, &w);
        const struct msg_wk_train_losses losses = {.job = id};
        struct msg_wk_train_ckpt ckpt = {
            .job = id, .ticket_slot = TX_SLOT_WORKER + w->index, .ticket_value = 5};

        train_on_losses(&R.t, w, &losses);
        assert_int_equal(R.n_notes, 0);
        train_on_ckpt(&R.t, w, &ckpt);
        assert_int_equal(R.n_copies, 0);
        assert_int_equal(R.n_forced, 1); /* who asks does not wait for nothing */
        ckpt.ticket_slot++;              /* another worker's: it is not touched */
        ckpt.ticket_value++;
        train_on_ckpt(&R.t, w, &ckpt);
        assert_int_equal(R.n_forced, 1);
        assert_int_equal(w->ckpt_value, 5);
        ckpt.ticket_slot--;
        ckpt.ticket_value = 5; /* which was raised: who asked does not wait for a copy any more */
        ckpt.job = JOB;
        train_on_ckpt(&R.t, w, &ckpt);
        assert_int_equal(R.n_copies, 0);
        assert_int_equal(R.n_forced, 1);
    }
    for (int rc = 0; rc >= SH_E_CONFLICT; rc += SH_E_CONFLICT) {
        const struct msg_wk_train_ckpt ckpt = {
            .job = JOB, .ticket_slot = TX_SLOT_WORKER, .ticket_value = 1};

        begin(true);
        R.copy_rc = rc;
        for (int i = 0; i < 2; i++) { /* said twice: its copy is under way, or not to be made */
            train_on_ckpt(&R.t, &R.w, &ckpt);
            assert_int_equal(R.n_copies, 1);
            assert_int_equal(R.n_forced, rc != 0);
        }
    }
}

static void what_was_compiled_for_nobody_is_dropped(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        begin(i != 0);
        R.j.id += i == 1;
        R.j.compiling = i == 2 ? &R.other : &R.w;
        R.j.phase = i == 3 ? MSG_JOB_FAILED : MSG_JOB_RUNNING;
        train_on_ready(&R.t, &R.w, &(struct msg_wk_train_ready){.job = JOB, .msg = ""}, NULL, 0);
        assert_int_equal(R.n_dropped, i < 4);
        assert_int_equal(R.n_killed, i == 1); /* j would wait for it for ever */
        assert_int_equal(R.j.end, i < 4 ? END_NONE : END_FAIL);
    }
    begin(true); /* said twice: of what it compiles now nothing has come */
    R.j.compiling = &R.w;
    R.w.work_turn = 5;
    train_on_ready(&R.t, &R.w, &(struct msg_wk_train_ready){.job = JOB, .turn = 4, .msg = ""}, NULL,
                   0);
    assert_ptr_equal(R.j.compiling, &R.w);
    assert_int_equal(R.n_dropped, 0);
}

/* How it ends is decided once. */
static void an_end_is_not_changed(void **state)
{
    struct sh_err why = {0}, none = {0};

    (void)state;
    SH_FAIL(&why, SH_E_IO, "late");
    for (int i = 0; i < 3; i++) {
        begin(true);
        R.j.end = i == 0 ? END_CANCEL : i == 1 ? END_FAIL : END_NONE;
        train__fail(&R.j, &why);
        assert_int_equal(R.j.why.rc, i == 2 ? SH_E_IO : SH_OK);
        begin(true);
        R.j.end = i == 0 ? END_CANCEL : END_DONE;
        R.j.phase = i == 1 ? MSG_JOB_DONE : MSG_JOB_COMPLETING;
        train__finished(&R.j, &why);
        assert_int_equal(R.j.phase, i == 0   ? MSG_JOB_COMPLETING
                                    : i == 1 ? MSG_JOB_DONE
                                             : MSG_JOB_FAILED);
    }
    begin(true);
    train__finished(&R.j, &none);
    assert_int_equal(R.j.phase, MSG_JOB_DONE);
}

static void a_scheduler_asks_for_the_job_that_is_here(void **state)
{
    static const struct {
        bool has_job, is_other, has_ended;
        enum job_end end;
        uint32_t attempt;
        bool is_heard; /* a wish to save */
    } CASES[] = {
        {false, false, false, END_NONE, 2, false}, {true, true, false, END_NONE, 2, false},
        {true, false, true, END_NONE, 2, false},   {true, false, false, END_SUSPEND, 2, false},
        {true, false, false, END_NONE, 1, false},  {true, false, false, END_NONE, 2, true},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const int64_t id = CASES[i].is_other ? JOB + 1 : JOB;
        const bool is_here = CASES[i].has_job && !CASES[i].is_other && !CASES[i].has_ended;

        begin(CASES[i].has_job);
        R.j.end = CASES[i].end;
        if (CASES[i].has_ended)
            R.j.phase = MSG_JOB_FAILED;
        train_on_save(&R.t,
                      &(struct msg_job_save){.job = id, .attempt = CASES[i].attempt, .asked = 3});
        assert_int_equal(R.j.save_asked, CASES[i].is_heard ? 3 : 0);
        assert_int_equal(R.n_asked, CASES[i].is_heard);
        train_on_stop(&R.t, &(struct msg_job_stop){
                                .job = id, .how = MSG_JOB_HOW_SUSPEND, .why = "FairShare"});
        assert_int_equal(R.j.end, is_here ? END_SUSPEND : CASES[i].end);
        assert_string_equal(R.logged, is_here && CASES[i].end == END_NONE
                                          ? "is stopped by the scheduler: FairShare"
                                          : "");
        R.logged[0] = '\0';
        for (int k = 0; k < 2; k++) { /* a scheduler that does not know whether it was heard */
            train_on_stop(&R.t, &(struct msg_job_stop){
                                    .job = id, .how = MSG_JOB_HOW_CANCEL, .why = "Cancelled"});
            assert_int_equal(R.j.end, is_here ? END_CANCEL : CASES[i].end);
            assert_string_equal(R.logged,
                                is_here && k == 0 ? "is stopped by the scheduler: Cancelled" : "");
            R.logged[0] = '\0';
        }
        train_report_all(&R.t);
        assert_int_equal(R.n_reports, CASES[i].has_job && !CASES[i].has_ended);
        assert_int_equal(R.n_said, 0);
    }
}

static void one_job_at_a_time(void **state)
{
    static const struct {
        bool has_job, has_ended;
        int64_t id;
        int why_not, rc; /* rc 0: it is heard once more */
    } CASES[] = {
        {true, false, JOB, 0, 0},
        {true, true, JOB, 0, SH_E_CONFLICT}, /* its end is being written */
        {true, false, JOB + 1, 0, SH_E_CONFLICT},
        {false, false, JOB, SH_E_UNAVAILABLE, SH_E_UNAVAILABLE},
        {false, false, -1, 0, SH_E_INVALID},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err why = {.rc = CASES[i].why_not};

        begin(CASES[i].has_job);
        if (CASES[i].has_ended)
            R.j.phase = MSG_JOB_DONE;
        train_on_start(&R.t, &(struct msg_job_start){.job = CASES[i].id, .attempt = 3},
                       CASES[i].why_not ? &why : NULL);
        assert_int_equal(R.n_reports, CASES[i].rc == 0);
        assert_int_equal(R.n_said, CASES[i].rc != 0);
        assert_int_equal(R.said.rc, CASES[i].rc);
        assert_int_equal(R.j.attempt, CASES[i].rc == 0 ? 3 : 2);
    }
}

static void an_executor_that_ends_suspends_what_has_not_ended(void **state)
{
    static const enum job_end ENDS[] = {END_NONE, END_DONE, END_FAIL, END_CANCEL};

    (void)state;
    begin(false);
    train_suspend(&R.t);
    for (size_t i = 0; i < SH_ARRAY_LEN(ENDS); i++) {
        begin(true);
        R.j.end = ENDS[i];
        train_suspend(&R.t);
        assert_int_equal(R.j.end, i < 2 ? END_SUSPEND : ENDS[i]);
        assert_string_equal(R.logged, i < 2 ? "is stopped by its executor: ExecutorStopping" : "");
    }
    begin(true);
    R.j.phase = MSG_JOB_FAILED;
    train_suspend(&R.t);
    assert_int_equal(R.j.end, END_NONE);
}

/* Only a worker that was at work on the job, or had it paused, may have died of it. */
static void a_job_is_given_up_when_its_workers_die_one_after_the_other(void **state)
{
    (void)state;
    for (int has_slot = 0; has_slot < 2; has_slot++) {
        begin(true);
        R.has_slot = has_slot;
        R.slot.step = 10;
        for (uint32_t n = 0; n <= JOB_MAX_DEATHS; n++) {
            assert_int_equal(R.j.end, END_NONE);
            R.j.w = &R.w;
            R.j.stand = JOB_RUNNING;
            train_on_worker_dead(&R.t, &R.w);
            assert_int_equal(R.j.stand, JOB_LOST);
            assert_null(R.j.w);
        }
        assert_int_equal(R.j.end, END_FAIL);
        assert_int_equal(R.j.why.rc, SH_E_UNAVAILABLE);
    }
    for (int i = 0; i < 4; i++) {
        begin(i != 0);
        R.j.w = i == 1 ? &R.other : &R.w;
        R.j.stand = i == 3 ? JOB_LOADED : JOB_PAUSED;
        R.j.at = MSG_TRAIN_AT_STEP;
        train_on_worker_dead(&R.t, &R.w);
        assert_int_equal(R.j.stand, i < 2 ? JOB_PAUSED : JOB_LOADED);
        assert_int_equal(R.j.redone, 0);
    }
    begin(true); /* in the middle of an update: that state is of no step */
    R.j.stand = JOB_PAUSED;
    R.j.at = MSG_TRAIN_AT_UPDATE;
    train_on_worker_dead(&R.t, &R.w);
    assert_int_equal(R.j.stand, JOB_LOST);
    assert_int_equal(R.j.redone, 1);
}

static void what_it_wants_is_nothing_unless_it_could_run(void **state)
{
    struct switch_wish w;

    (void)state;
    begin(true);
    R.j.build = JOB_BUILT;
    R.j.state_bytes = 100;
    R.j.ws_bytes = 200;
    R.j.busy_ns = 60;
    R.j.busy_steps = 3;
    w = train_wants(&R.t);
    assert_int_equal(w.job, JOB);
    assert_int_equal(w.ws_bytes, R.j.ws_bytes);
    assert_int_equal(w.state_bytes, R.j.state_bytes);
    assert_int_equal(w.step_ns, 20);
    R.j.build = JOB_RAW;
    assert_int_equal(train_wants(&R.t).job, 0);
    R.j.build = JOB_BUILT;
    R.j.has_compile_pause = true;
    assert_int_equal(train_wants(&R.t).job, 0);
    R.j.has_compile_pause = false;
    train_suspend(&R.t);
    assert_int_equal(train_wants(&R.t).job, 0);
    R.t.job = NULL;
    assert_int_equal(train_wants(&R.t).job, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_is_of_the_job_that_runs_in_this_worker),
        cmocka_unit_test(an_evaluation_is_of_the_step_at_which_it_was_asked),
        cmocka_unit_test(losses_and_copies_are_of_the_job_of_this_worker),
        cmocka_unit_test(what_was_compiled_for_nobody_is_dropped),
        cmocka_unit_test(an_end_is_not_changed),
        cmocka_unit_test(a_scheduler_asks_for_the_job_that_is_here),
        cmocka_unit_test(one_job_at_a_time),
        cmocka_unit_test(an_executor_that_ends_suspends_what_has_not_ended),
        cmocka_unit_test(a_job_is_given_up_when_its_workers_die_one_after_the_other),
        cmocka_unit_test(what_it_wants_is_nothing_unless_it_could_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
