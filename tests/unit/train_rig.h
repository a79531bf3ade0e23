/* train_rig.h - a job on two workers that are not there, and an executor that answers as it is told
 * (R), for test_train.c. */
#ifndef SH_TESTS_UNIT_TRAIN_RIG_H
#define SH_TESTS_UNIT_TRAIN_RIG_H

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
    int spared; /* copies to the device that succeed before copy_rc counts */
    size_t ws_in_use, state_in_use, in_bytes;
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
    (void)t, (void)why, (void)off, (void)host;
    R.in_bytes += R.spared > 0 || !R.copy_rc ? bytes : 0;
    return R.spared-- > 0 ? SH_OK : answer(R.copy_rc, err);
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

int64_t slots_interval_ns(const struct job *j)
{
    return j->interval_ns;
}

bool slots_copy_is_due(const struct job *j)
{
    return sh_clock_ns() - j->taken_ns >= j->interval_ns;
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
void slots_write_due(struct job *j) { (void)j; }
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
double tx_lane_beta_ns(const struct tx *t) { (void)t; return 0.1; }
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
uint64_t worker_begin_job(struct worker *w) { w->job = 0; w->job_compiling = true; return 0; }
uint64_t worker_begin_steps(struct worker *w) { (void)w; return 0; }
bool worker_end_job(struct worker *w, int64_t job, uint64_t turn)
{ w->job_compiling = false; w->job = job; return turn == 0; }
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
                       .written_bytes = 1 << 10,
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

#endif
