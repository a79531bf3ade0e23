/* test_batch.c - a job of batch inference between its thread, its runs and its scheduler. Without
 * it: a job could go on after it has ended, be done without its result, or wait for ever where
 * another try would do. */
/* uses: executor/batch/batch.o executor/batch/slot_life.o */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/batch/batch_int.h"
#include "executor/files/push.h"
#include "executor/requests/slabs.h"
#include "executor/runs/switch.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define JOB 7
#define N_SAMPLES 4

static struct {
    struct sh_loop *loop;
    struct files files;
    struct report report;
    struct batch_env env;
    struct batch *b;
    struct batch_job *j;
    struct model model;
    struct disk_task *task; /* with the thread */
    run_done_fn *run_fn;
    void *run_arg;
    push_done_fn *push_fn;
    int submit_rc, push_rc, new_rc;
    int n_runs, n_states, n_saved, n_withdrawn, n_freed, n_sweeps;
    struct msg_job_state said;
    char logged[128];
} R;

/* What the rest of the executor does. */
int batch__job_new(const struct batch_env *env, const struct msg_batch_start *m,
                   struct batch_job **out, struct sh_err *err)
{
    struct batch_job *j = calloc(1, sizeof(*j));
    static char text[] = "t";

    assert_non_null(j);
    if (R.new_rc) {
        free(j);
        return SH_FAIL(err, R.new_rc, "refused");
    }
    *j = (struct batch_job){.env = env,
                            .id = m->job,
                            .attempt = m->attempt,
                            .version_id = 1,
                            .batch = 2,
                            .interval_ns = INT64_MAX,
                            .tenant = text,
                            .dir = text,
                            .slab = {.fd = -1},
                            .resume_at = m->resume_step,
                            .phase = MSG_JOB_STARTING};
    j->misc.job = j;
    for (size_t i = 0; i < BATCH_N_SLOTS; i++)
        j->slots[i].job = j;
    *out = R.j = j;
    return SH_OK;
}

void batch__job_free(struct batch_job *j)
{
    R.n_freed += j != NULL;
    if (!j)
        return;
    sh_shm_fini(&j->slab);
    free(j->result);
    free(j);
}

int disk_submit(struct disk *d, struct disk_task *t, struct sh_err *err)
{
    (void)d;
    if (R.task)
        return SH_FAIL(err, SH_E_QUEUEFULL, "too much to do");
    R.task = t;
    return SH_OK;
}

int switch_submit(struct switcher *sw, struct model *m, const struct sh_sizes *sizes,
                  const struct run_part *part, run_done_fn *fn, void *arg, struct sh_err *err)
{
    (void)sw, (void)m, (void)sizes;
    if (R.submit_rc)
        return SH_FAIL(err, R.submit_rc, "no run");
    free(part->in);
    free(part->out);
    R.run_fn = fn;
    R.run_arg = arg;
    R.n_runs++;
    return SH_OK;
}

void switch_withdraw(struct switcher *sw, const void *arg)
{
    (void)sw, (void)arg;
    R.n_withdrawn++;
}

void uplink_send(const struct uplink *u, const struct sh_msg *m)
{
    (void)u;
    if (m->type == MSG_JOB_STATE) {
        R.said = m->u.job_state;
        R.n_states++;
    }
    R.n_saved += m->type == MSG_JOB_SAVED;
}

struct model *store_find(struct store *s, int64_t handle)
{
    (void)s, (void)handle;
    return R.model.handle ? &R.model : NULL;
}

int push_start(const struct files *f, const struct push_conf *c, push_done_fn *done, void *arg,
               struct push **out, struct sh_err *err)
{
    (void)f, (void)c, (void)arg, (void)out;
    if (R.push_rc)
        return SH_FAIL(err, R.push_rc, "not sent");
    R.push_fn = done;
    return SH_OK;
}

void push_sweep_results(const struct files *f)
{
    assert_ptr_equal(f, &R.files);
    R.n_sweeps++;
}

int batch_io_open(struct disk_task *t, struct sh_err *e)
{
    (void)t, (void)e;
    return SH_OK;
}
int batch_io_turn(struct disk_task *t, struct sh_err *e)
{
    (void)t, (void)e;
    return SH_OK;
}
int batch_io_sync(struct disk_task *t, struct sh_err *e)
{
    (void)t, (void)e;
    return SH_OK;
}
int batch_io_finish(struct disk_task *t, struct sh_err *e)
{
    (void)t, (void)e;
    return SH_OK;
}
int batch_io_discard(struct disk_task *t, struct sh_err *e)
{
    (void)t, (void)e;
    return SH_OK;
}
enum blob_state blob_set_state(const struct blob_set *s, const struct sh_err **why)
{
    (void)s, (void)why;
    return BLOB_HERE;
}
const char *result_file_part(const struct result_file *f)
{
    (void)f;
    return "part";
}
uint64_t slabs_own_id(struct slabs *s)
{
    (void)s;
    return 1;
}
int slabs_add(struct slabs *s, uint64_t id, int fd, uint64_t n, struct sh_err *e)
{
    (void)s, (void)id, (void)fd, (void)n, (void)e;
    return SH_OK;
}
bool switch_has_started(const struct switcher *sw, const void *arg)
{
    (void)sw, (void)arg;
    return true;
}
void usage_job(struct usage *u, const struct usage_job *j, int64_t ns, int64_t step, int64_t n)
{
    (void)u, (void)j, (void)ns, (void)step, (void)n;
}
void job_log_attempt(struct job_log *l, uint32_t attempt)
{
    (void)l, (void)attempt;
}
void job_log_end(struct job_log *l, const struct msg_job_state *said)
{
    (void)l, (void)said;
}
void job_log_progress(struct job_log *l, const struct msg_job_state *now, int64_t done, uint32_t n,
                      bool last)
{
    (void)l, (void)now, (void)done, (void)n, (void)last;
}
void job_log_say(struct job_log *l, const char *fmt, ...)
{
    va_list args;

    (void)l;
    va_start(args, fmt);
    vsnprintf(R.logged, sizeof(R.logged), fmt, args);
    va_end(args);
}
void job_log_tick(struct job_log *l)
{
    (void)l;
}
void outcomes_keep(struct outcomes *w, const struct msg_job_state *s)
{
    (void)w, (void)s;
}
void outcomes_forget(struct outcomes *w, int64_t job)
{
    (void)w, (void)job;
}

static void rig_open(bool is_remote)
{
    memset(&R, 0, sizeof(R));
    assert_ok(sh_loop_new(&R.loop, NULL));
    R.files.transfers = is_remote ? (void *)&R : NULL;
    R.model = (struct model){.handle = 1, .phase = MODEL_READY, .max_batch = 8, .need_bytes = 99};
    R.env = (struct batch_env){.loop = R.loop, .files = &R.files, .report = &R.report};
    assert_ok(batch_new(&R.env, &R.b, NULL));
}

static void rig_close(void)
{
    batch_free(R.b);
    sh_loop_free(R.loop);
}

static void start(int64_t resume)
{
    batch_on_start(
        R.b,
        &(struct msg_batch_start){.job = JOB, .attempt = 2, .model = "m", .resume_step = resume},
        NULL);
}

static void turns(void)
{
    for (int i = 0; i < 100 && batch_turn(R.b); i++)
        ;
}

static void end_task(int rc)
{
    struct disk_task *t = R.task;

    assert_non_null(t);
    R.task = NULL;
    if (rc)
        SH_FAIL(&t->err, rc, "the disk fails");
    t->done(t);
}

/* sample_bytes: of its only input. */
static void open_it(size_t sample_bytes, int64_t written_at)
{
    turns();
    R.j->n_samples = N_SAMPLES;
    R.j->n_in = R.j->n_out = R.j->n_kept = 1;
    R.j->in[0].sample_bytes = sample_bytes;
    R.j->out[0].sample_bytes = 8;
    R.j->written_at = written_at;
    end_task(SH_OK);
}

static void end_run(int rc, int64_t sample)
{
    run_done_fn *fn = R.run_fn;

    R.run_fn = NULL;
    fn(R.run_arg, &(struct run_result){.rc = rc, .msg = "why", .sample = sample});
}

/* Until it runs its first batch. */
static void run_first(void)
{
    start(0);
    open_it(8, 0);
    for (int i = 0; i < 20 && !R.run_fn; i++) {
        turns();
        if (R.task && !R.run_fn)
            end_task(SH_OK);
    }
    assert_non_null(R.run_fn);
}

/* All that it waits for comes, until it has ended or waits for the API. */
static void go_on(void)
{
    for (int i = 0; i < 50; i++) {
        turns();
        if (R.task)
            end_task(SH_OK);
        else if (R.run_fn)
            end_run(SH_OK, -1);
        else
            return;
    }
    fail_msg("it goes on for ever");
}

/* ------------------------------------------------------------------ tests */

static void it_is_done_where_its_result_is(void **state)
{
    static const enum msg_job_phase ENDS[] = {MSG_JOB_FAILED, MSG_JOB_FAILED, MSG_JOB_CANCELLED,
                                              MSG_JOB_DONE, MSG_JOB_CANCELLED};

    (void)state;
    rig_open(false);
    start(0);
    open_it(8, 0);
    go_on();
    assert_int_equal(R.said.state, MSG_JOB_DONE);
    assert_int_equal(R.n_runs, 2);
    assert_true(batch_is_quiet(R.b));
    rig_close();
    for (int i = 0; i < 5; i++) {
        struct sh_err why = {0};

        rig_open(true);
        R.push_rc = i == 0 ? SH_E_NOMEM : SH_OK;
        start(0);
        open_it(8, 0);
        go_on();
        if (i == 0) {
            assert_int_equal(R.said.state, MSG_JOB_FAILED);
            rig_close();
            continue;
        }
        assert_int_equal(R.said.state, MSG_JOB_COMPLETING); /* not before the API has it */
        if (i == 1 || i == 4)
            SH_FAIL(&why, SH_E_UNAVAILABLE, "the API is gone");
        if (i == 2 || i == 4)
            batch_on_stop(R.b, &(struct msg_job_stop){
                                   .job = JOB, .how = MSG_JOB_HOW_CANCEL, .why = "Cancelled"});
        R.push_fn(R.j, &why);
        go_on();
        assert_int_equal(R.said.state, ENDS[i]);
        rig_close();
    }
}

/* Once, though a scheduler that does not know whether it was heard says it again. */
static void its_log_names_the_rule_by_which_it_is_stopped(void **state)
{
    (void)state;
    rig_open(false);
    run_first();
    for (int i = 0; i < 4; i++) {
        const bool cancels = i >= 2;

        R.logged[0] = '\0';
        batch_on_stop(
            R.b, &(struct msg_job_stop){.job = JOB,
                                        .how = cancels ? MSG_JOB_HOW_CANCEL : MSG_JOB_HOW_SUSPEND,
                                        .why = cancels ? "Cancelled" : "FairShare"});
        assert_string_equal(R.logged, i == 0   ? "is stopped by the scheduler: FairShare"
                                      : i == 2 ? "is stopped by the scheduler: Cancelled"
                                               : "");
    }
    end_run(SH_OK, -1);
    go_on();
    assert_int_equal(R.said.state, MSG_JOB_CANCELLED);
    rig_close();
}

static void what_fails_for_now_is_tried_again(void **state)
{
    (void)state;
    rig_open(false);
    R.submit_rc = SH_E_QUEUEFULL;
    start(0);
    open_it(8, 0);
    go_on();
    assert_int_equal(R.said.state, MSG_JOB_STARTING);
    R.submit_rc = SH_OK;
    go_on();
    assert_int_equal(R.said.state, MSG_JOB_DONE);
    rig_close();
    rig_open(false);
    R.submit_rc = SH_E_NOMEM;
    start(0);
    open_it(8, 0);
    go_on();
    assert_int_equal(R.said.state, MSG_JOB_FAILED);
    rig_close();
}

static void pass(int64_t ns)
{
    sh_clock_advance(ns);
    assert_ok(sh_loop_once(R.loop, 0, NULL));
}

/* Nobody says of a result that was kept here that its job has ended since, elsewhere. */
static void old_results_are_looked_for_each_hour_without_a_job(void **state)
{
    (void)state;
    sh_clock_fake(1, 0);
    rig_open(true);
    pass(SH_S(3599));
    assert_int_equal(R.n_sweeps, 0);
    pass(SH_S(2));
    assert_int_equal(R.n_sweeps, 1);
    pass(SH_S(3599));
    assert_int_equal(R.n_sweeps, 1);
    start(0); /* what it goes on with may be old */
    pass(SH_S(7200));
    assert_int_equal(R.n_sweeps, 1);
    rig_close();
    sh_clock_real();
}

static void a_run_that_fails_says_where(void **state)
{
    static const struct {
        int rc;
        int64_t sample;
        bool has_model;
        uint64_t need;
        const char *why;
    } CASES[] = {
        {SH_E_INVALID, 1, true, 0, "sample 1: why"},
        {SH_E_INVALID, -1, true, 0, "why (samples 0 to 1)"},
        {SH_E_QUOTA, -1, true, 99, "why"},
        {SH_E_QUOTA, -1, false, 0, "why"},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        char msg[sizeof(R.j->why.msg)];
        uint64_t need;

        rig_open(false);
        run_first();
        R.model.handle = CASES[i].has_model;
        end_run(CASES[i].rc, CASES[i].sample);
        sh_strlcpy(msg, R.j->why.msg, sizeof(msg));
        need = R.j->need_bytes;
        go_on();
        assert_int_equal(R.said.state, MSG_JOB_FAILED);
        assert_int_equal(R.said.rc, CASES[i].rc);
        assert_has(msg, CASES[i].why);
        assert_int_equal(need, CASES[i].need);
        rig_close();
    }
    rig_open(false); /* a worker died: once more, but not for ever */
    run_first();
    for (int i = 0; R.run_fn && i < 50; i++) {
        end_run(SH_E_UNAVAILABLE, -1);
        turns();
    }
    go_on();
    assert_int_equal(R.said.state, MSG_JOB_FAILED);
    assert_in_range(R.n_runs, 2, 20);
    rig_close();
}

static void what_cannot_begin_says_why(void **state)
{
    (void)state;
    rig_open(false);
    start(0);
    open_it((size_t)4 << 30, 0);
    assert_has(R.j->why.msg, "lower \"batch\"");
    go_on();
    assert_int_equal(R.said.rc, SH_E_TOOBIG);
    rig_close();
    rig_open(false); /* its part is gone: it is done anew */
    start(2);
    open_it(8, 0);
    go_on();
    assert_int_equal(R.said.state, MSG_JOB_DONE);
    assert_int_equal(R.n_runs, 2);
    rig_close();
    rig_open(false);
    R.new_rc = SH_E_INVALID;
    start(0);
    assert_int_equal(R.said.rc, SH_E_INVALID);
    assert_true(batch_is_quiet(R.b));
    rig_close();
}

/* A loop takes several messages before its turn. */
static void one_that_has_ended_hears_nothing_more(void **state)
{
    int n;

    (void)state;
    rig_open(false);
    batch_suspend(R.b);
    batch_report_all(R.b);
    assert_false(batch_has(R.b, JOB));
    run_first();
    assert_true(batch_has(R.b, JOB));
    assert_false(batch_has(R.b, JOB + 1));
    n = R.n_states;
    batch_report_all(R.b);
    assert_int_equal(R.n_states, n + 1);
    R.j->has_ended = true;
    assert_false(batch_has(R.b, JOB));
    batch_suspend(R.b);
    assert_int_equal(R.j->end, BATCH_GOES_ON);
    batch_report_all(R.b);
    assert_int_equal(R.n_states, n + 1);
    start(0); /* its end is still being written */
    assert_int_equal(R.said.rc, SH_E_CONFLICT);
    rig_close();
    assert_int_equal(R.n_withdrawn, 1); /* it ran when the executor ended */
    assert_int_equal(R.n_freed, 1);
}

static void a_wish_to_save_is_of_the_attempt_that_goes_on(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        rig_open(false);
        run_first();
        R.j->end = i == 1 ? BATCH_SUSPEND : BATCH_GOES_ON;
        if (i == 3) { /* all is durable already */
            R.j->handed_at = R.j->durable_at = N_SAMPLES;
        }
        batch_on_save(R.b, &(struct msg_job_save){.job = JOB, .attempt = i ? 2 : 1, .asked = 5});
        assert_int_equal(R.j->save_asked, i == 2 ? 5 : 0);
        assert_int_equal(R.n_saved, i == 3);
        if (i == 2) {
            go_on();
            assert_int_equal(R.n_saved, 1);
            assert_int_equal(R.said.state, MSG_JOB_DONE);
        }
        rig_close();
    }
}

static void an_early_end_keeps_what_was_done(void **state)
{
    (void)state;
    for (int rc = 0; rc >= SH_E_IO; rc += SH_E_IO) {
        rig_open(false);
        run_first();
        end_run(SH_OK, -1);
        turns();
        if (R.task)
            end_task(SH_OK);
        R.logged[0] = '\0';
        batch_suspend(R.b);
        assert_string_equal(R.logged, "is stopped by its executor: ExecutorStopping");
        for (int i = 0; i < 20; i++) {
            turns();
            if (R.task)
                end_task(R.task->work == batch_io_sync ? rc : SH_OK);
        }
        assert_int_equal(R.said.state, MSG_JOB_SUSPENDED);
        assert_true(batch_is_quiet(R.b));
        rig_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_done_where_its_result_is),
        cmocka_unit_test(its_log_names_the_rule_by_which_it_is_stopped),
        cmocka_unit_test(what_fails_for_now_is_tried_again),
        cmocka_unit_test(old_results_are_looked_for_each_hour_without_a_job),
        cmocka_unit_test(a_run_that_fails_says_where),
        cmocka_unit_test(what_cannot_begin_says_why),
        cmocka_unit_test(one_that_has_ended_hears_nothing_more),
        cmocka_unit_test(a_wish_to_save_is_of_the_attempt_that_goes_on),
        cmocka_unit_test(an_early_end_keeps_what_was_done),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
