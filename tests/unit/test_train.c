/* test_train.c - where a job stands, and its next step, when the device, a worker or memory refuse.
 *
 * Without it: a job whose ticket was refused could keep a workspace that a run needs, one that does
 * not fit beside its own state could stand still for ever, or go on with a state that is torn. */
/* uses: executor/training/train.o executor/training/train_events.o executor/training/job.o executor/training/trials.o executor/training/crashes.o executor/training/job_life.o executor/pool/worker_life.o */
#include "common/clock.h"
#include "common/life.h"
#include "common/mem.h"
#include "executor/files/folder.h"
#include "executor/files/push.h"
#include "executor/training/train_int.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#define JOB 7
#define SECOND INT64_C(1000000000)
#define N_WORKERS 2

static struct {
    struct worker w[N_WORKERS];
    struct worker_ctl ctl[N_WORKERS];
    struct train t;
    struct job j;
    struct slot slot;
    bool has_slot, is_idle, holds_off, lacks, has_ahead, has_pins, is_here;
    int state_rc, ws_rc, ticket_rc, copy_rc, fits_rc, open_rc;
    size_t ws_in_use, state_in_use;
    int n_sent, n_copies, n_written, n_best;
    enum sh_msg_type sent;
    struct sh_err why;
} R;

/* ------------------------------------------------------------------ the rest of the executor */

static int answer(int rc, struct sh_err *err)
{
    return rc ? SH_FAIL(err, rc, "refused") : SH_OK;
}

int space_alloc(struct space *s, size_t bytes, const struct residency_need *need,
                struct space_range *out, struct sh_err *err)
{
    const bool is_state = out == &R.j.state;
    const int rc = answer(is_state ? R.state_rc : R.ws_rc, err);

    (void)s, (void)need;
    if (!rc)
        *(is_state ? &R.state_in_use : &R.ws_in_use) = bytes;
    return rc;
}

void space_cut(struct space *s, struct space_range *r, size_t bytes, uint32_t tag)
{
    (void)s, (void)r, (void)tag;
    R.state_in_use = bytes;
}

void space_give(struct space *s, struct space_range *r, uint32_t tag)
{
    (void)s, (void)tag;
    *(r == &R.j.state ? &R.state_in_use : &R.ws_in_use) = 0;
}

int tx_ticket(struct tx *t, uint32_t lane, uint32_t slot, uint32_t value, struct sh_err *err)
{
    (void)t, (void)lane, (void)slot, (void)value;
    return answer(R.ticket_rc, err);
}

int tx_in(struct tx *t, enum tx_purpose why, size_t off, const void *host, size_t bytes,
          struct sh_err *err)
{
    (void)t, (void)why, (void)off, (void)host, (void)bytes;
    return answer(R.copy_rc, err);
}

int slots_copy_out(struct job *j, int64_t step, uint32_t ticket_slot, uint32_t ticket_value,
                   struct sh_err *err)
{
    (void)j, (void)step, (void)ticket_slot, (void)ticket_value;
    R.n_copies++;
    return answer(R.copy_rc, err);
}

struct slot *slots_newest(struct job *j)
{
    (void)j;
    return R.has_slot ? &R.slot : NULL;
}

void slots_keep_best(struct job *j, struct slot *s)
{
    (void)j, (void)s;
    R.n_best++;
}

void slots_write_newest(struct job *j)
{
    (void)j;
    R.n_written++;
}

bool slots_are_on_disk(struct job *j)
{
    (void)j;
    return R.n_written > 0;
}

int folder_open_package(const char *package, int fds[static 2], struct sh_err *err)
{
    const int rc = answer(R.open_rc, err);

    (void)package;
    for (int i = 0; i < 2 && !rc; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return rc;
}

enum blob_state blob_set_state(const struct blob_set *s, const struct sh_err **why)
{
    (void)s;
    *why = &R.why;
    return R.why.rc ? BLOB_FAILED : R.is_here ? BLOB_HERE : BLOB_COMING;
}

void worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds)
{
    (void)w, (void)fds, (void)n_fds;
    R.sent = m->type;
    R.n_sent++;
}

void pool_set_state(struct worker *w, enum worker_state to)
{
    if (w->state != to)
        w->state = (enum worker_state)sh_life_step(&WORKER_LIFE, w->state, to, w->index);
}

bool worker_is_idle(const struct worker *w)
{
    return w->state == WORKER_STANDBY && !w->preparing && !w->job_compiling;
}

struct worker *pool_at(struct pool *p, size_t i)
{
    (void)p;
    return &R.w[i];
}

void worker_end_job(struct worker *w, int64_t job)
{
    w->job_compiling = false;
    w->job = job;
}

int dev_check_fits(size_t pool, size_t kept, size_t ws, int64_t batch, bool trains,
                   struct sh_err *err)
{
    (void)pool, (void)kept, (void)ws, (void)batch, (void)trains;
    return answer(R.fits_rc, err);
}

int blob_want_job_file(struct blobs *b, struct blob_set *s, const char *path, bool optional,
                       struct sh_err *err)
{
    (void)b, (void)s, (void)path, (void)optional, (void)err;
    return SH_OK;
}

struct job_log *job_log_open(struct job_logs *all, const struct job_log_conf *c)
{
    (void)all, (void)c;
    return NULL;
}

int files_path(const struct files *f, const char *root, const char *path, char **out,
               struct sh_err *err)
{
    (void)f, (void)root;
    return sh_strdup(path, out, err);
}

/* clang-format off */
void slots_note_flight(struct job *j) { j->n_flights++; }
void slots_stop_push(struct job *j) { (void)j; }
bool slots_have_room(struct job *j) { (void)j; return true; }
int slots_init(struct job *j, struct sh_err *err) { (void)j, (void)err; return SH_OK; }
void slots_fini(struct job *j) { (void)j; }
void slots_ask_marks(struct job *j) { (void)j; }
size_t space_offset(const struct space_range *r) { (void)r; return 0; }
int space_check_max(struct space *s, uint32_t tag, uint64_t bytes, const char *what,
                    struct sh_err *err)
{ (void)s, (void)tag, (void)bytes, (void)what, (void)err; return SH_OK; }
int space_tag(struct space *s, const char *tenant, uint32_t *out, struct sh_err *err)
{ (void)s, (void)tenant, (void)err; *out = 1; return SH_OK; }
double tx_beta_ns(const struct tx *t) { (void)t; return 0.1; }
void tx_forget(struct tx *t, const void *arg) { (void)t, (void)arg; }
uint32_t dev_ticket_value(const struct dev_mem *m, uint32_t slot) { (void)m, (void)slot; return 1; }
void dev_ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value)
{ (void)m, (void)slot, (void)value; }
size_t dev_mem_bytes(const struct dev_mem *m) { (void)m; return 1 << 20; }
bool switch_is_idle(struct switcher *sw) { (void)sw; return R.is_idle; }
bool switch_holds_off(const struct switcher *sw) { (void)sw; return R.holds_off; }
const char *stop_way_name(enum stop_way w) { (void)w; return "pause"; }
bool store_worker_lacks(struct store *s, const struct worker *w)
{ (void)s, (void)w; return R.lacks; }
bool store_drop_ahead(struct store *s) { (void)s; return R.has_ahead; }
bool store_yield_pins(struct store *s) { (void)s; return R.has_pins; }
size_t pool_size(const struct pool *p) { (void)p; return N_WORKERS; }
void worker_begin_job(struct worker *w) { w->job = 0; w->job_compiling = true; }
void worker_drop_job(struct worker *w, int64_t job) { if (w->job == job) w->job = 0; }
void worker_grant(struct worker *w, int64_t ns) { (void)w, (void)ns; }
void worker_meet(struct worker *w, uint32_t tag) { (void)w, (void)tag; }
void worker_kill(struct worker *w, enum worker_kill why) { (void)w, (void)why; }
void worker_note_ticket(struct worker *w, uint32_t value) { w->ckpt_value = value; }
void finish_start(struct job *j) { (void)j; }
void finish_free(struct finish *f) { (void)f; }
int resume_start(struct job *j, struct sh_shm *state, struct sh_err *err)
{ (void)j, (void)state, (void)err; return SH_OK; }
void push_forget_job(const struct files *f, const char *dir) { (void)f, (void)dir; }
int blob_want(struct blobs *b, struct blob_set *s, const char *path, struct sh_err *err)
{ (void)b, (void)s, (void)path, (void)err; return SH_OK; }
void blob_set_drop(struct blob_set *s) { (void)s; }
void uplink_send(const struct uplink *u, const struct sh_msg *m) { (void)u, (void)m; }
void usage_job(struct usage *u, const struct usage_job *j, int64_t gpu_ns, int64_t step,
               int64_t step_samples)
{ (void)u, (void)j, (void)gpu_ns, (void)step, (void)step_samples; }
void usage_trains(struct usage *u, bool on, int64_t now_ns) { (void)u, (void)on, (void)now_ns; }
void outcomes_keep(struct outcomes *w, const struct msg_job_state *s) { (void)w, (void)s; }
void outcomes_forget(struct outcomes *w, int64_t job) { (void)w, (void)job; }
void job_log_say(struct job_log *l, const char *fmt, ...) { (void)l, (void)fmt; }
void job_log_close(struct job_log *l) { (void)l; }
void job_log_attempt(struct job_log *l, uint32_t attempt) { (void)l, (void)attempt; }
void job_log_end(struct job_log *l, const struct msg_job_state *said) { (void)l, (void)said; }
void job_log_tick(struct job_log *l) { (void)l; }
void job_log_progress(struct job_log *l, const struct msg_job_state *now, int64_t done,
                      uint32_t per, bool is_last)
{ (void)l, (void)now, (void)done, (void)per, (void)is_last; }
/* clang-format on */

/* ------------------------------------------------------------------ the job */

/* One that was compiled in the first of two free workers, and whose state is in a slot. */
static int begin(void **state)
{
    static struct report report;
    static char text[] = "t", null[] = "/dev/null";

    (void)state;
    memset(&R, 0, sizeof(R));
    sh_clock_fake(100 * SECOND, 0);
    for (uint32_t i = 0; i < N_WORKERS; i++)
        R.w[i] = (struct worker){.index = i,
                                 .state = WORKER_STANDBY,
                                 .job = i ? 0 : JOB,
                                 .ctl_shm = {.base = &R.ctl[i]},
                                 .exit_cause = "crash"};
    R.t.env = (struct train_env){.executor = text, .report = &report};
    R.j = (struct job){.env = &R.t.env,
                       .train = &R.t,
                       .id = JOB,
                       .attempt = 1,
                       .tenant = text,
                       .model = text,
                       .dataset = null,
                       .build = JOB_BUILT,
                       .phase = MSG_JOB_STARTING,
                       .interval_ns = 1000 * SECOND,
                       .state_bytes = 1 << 10,
                       .ws_bytes = 1 << 12,
                       .step = 10,
                       .steps = 100,
                       .batch = 1,
                       .disk_failed_step = -1,
                       .save_step = -1};
    trials_init(&R.j.trials, &(struct train_spec){.steps = 100});
    R.slot.step = 10;
    R.has_slot = R.is_idle = R.is_here = true;
    R.t.job = &R.j;
    return 0;
}

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
    const struct msg_wk_train_ready less = {
        .job = JOB, .state_bytes = 1 << 10, .ws_bytes = 1 << 12, .steps = 100, .batch = 1};
    struct msg_wk_train_ready more = less;

    more.ws_bytes = 1 << 13;
    for (int i = 0; i < 3; i++) {
        begin(state);
        is_ready();
        R.w[0].state = WORKER_ACTIVE; /* a run took it, so another one compiles the job */
        turns(2);
        assert_ptr_equal(R.j.compiling, &R.w[1]);
        if (i == 2)
            more.batch = 2;
        train_on_ready(&R.t, &R.w[1], i ? &more : &less, NULL, 0);
        assert_int_equal(R.j.stand, i == 1 ? JOB_LOADED : JOB_READY);
        assert_int_equal(R.j.end, i == 2 ? END_FAIL : END_NONE);
        assert_int_equal(R.ws_in_use, i == 1 ? 0 : 1 << 12);
        if (i == 2)
            break;
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(a_workspace_is_given_up_before_a_step_was_taken_in_it),
        TEST(another_worker_may_need_more_than_the_workspace_that_waits),
        TEST(a_state_that_lies_in_its_own_way_moves),
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
