/* train.c - see train.h: what is wanted, and the steps towards it. */
#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "executor/files/folder.h"
#include "executor/runs/switch.h"
#include "executor/training/train_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SAY_HOLD_NS SH_S(30)  /* it is said in the job's log so rarely */
#define MOVE_AFTER_NS SH_S(1) /* so long no workspace fitted beside the state */

/* BOUNDARY: paused, but not within an update. */
enum target { TARGET_RUN, TARGET_PAUSE, TARGET_BOUNDARY, TARGET_DROP, TARGET_SWAP, TARGET_DISCARD };

/* ------------------------------------------------------------------ what is wanted */

/* Images have its memory: its workspace goes, but while a run has the device only if that takes
 * none of it. */
static bool gives_way(const struct train *t, const struct job *j, bool is_idle)
{
    return switch_holds_off(t->env.sw) && job_has_ws(j) &&
           (is_idle || (!job_runs(j) && j->at != MSG_TRAIN_AT_UPDATE));
}

static enum target target_of(struct train *t, struct job *j)
{
    const bool is_idle = switch_is_idle(t->env.sw);

    if (is_idle)
        j->has_yield = false;
    if (j->has_compile_pause &&
        (!j->w || (!j->w->preparing && !store_worker_lacks(t->env.store, j->w))))
        j->has_compile_pause = false;
    if (j->end == END_CANCEL)
        return TARGET_DISCARD;
    if (j->has_yield && j->yield == STOP_SWAP)
        return TARGET_SWAP;
    if (j->end != END_NONE)
        return TARGET_SWAP;
    if ((j->has_yield && j->yield == STOP_DROP) || gives_way(t, j, is_idle))
        return TARGET_DROP;
    if (j->has_yield)
        return TARGET_PAUSE;
    if (j->has_compile_pause)
        return TARGET_BOUNDARY;
    /* A run that is about to become current asks by itself; do not start just before it. */
    if (switch_holds_off(t->env.sw))
        return TARGET_PAUSE;
    return job_runs(j) || is_idle ? TARGET_RUN : TARGET_PAUSE;
}

/* Its worker stops as soon as it runs, or finishes the step first. */
static void raise_flag(struct job *j, bool finish)
{
    struct worker_ctl *c = worker_page(j->w);

    atomic_store(&c->stop_finish, finish);
    atomic_fetch_add(&c->stop, 1);
    j->stop_ns = sh_clock_ns();
    SH_DEBUG("train.stop", "job=%" PRId64 " ns=%" PRId64, j->id, j->stop_ns);
}

static void raise_stop(struct job *j, bool finish)
{
    raise_flag(j, finish);
    job_go(j, j->has_yield ? JOB_YIELDING : JOB_STOPPING);
}

void train_yield(struct train *t, enum stop_way way)
{
    struct job *j = t->job;

    if (!j || job_has_ended(j))
        return;
    if (!j->has_yield || way > j->yield)
        j->yield = way;
    j->has_yield = true;
    if (j->stand == JOB_RUNNING)
        raise_stop(j, way != STOP_PAUSE); /* now: each microsecond of it is one of the request's */
}

bool train_has_yielded(const struct train *t, enum stop_way way)
{
    const struct job *j = t->job;

    if (!j)
        return true;
    if (way == STOP_PAUSE)
        return !job_runs(j);
    return !job_has_ws(j) && (way == STOP_DROP || !job_has_state(j));
}

size_t train_ranges(const struct train *t, enum stop_way way, struct space_range out[static 2])
{
    const struct job *j = t->job;
    size_t n = 0;

    if (j && job_has_ws(j) && way >= STOP_DROP)
        out[n++] = j->ws;
    if (j && job_has_state(j) && way >= STOP_SWAP)
        out[n++] = j->state;
    return n;
}

void train_pause_for_compile(struct train *t, struct worker *w)
{
    if (t->job && t->job->w == w)
        t->job->has_compile_pause = true;
}

/* ------------------------------------------------------------------ stop and go */

/* Due or wished for, and there is a slot for it: at the next commit. Also asked at each start,
 * because a job that is preempted all the time may be standing whenever the tick comes. */
void train__ask_checkpoint(struct job *j)
{
    bool is_wished = j->save_asked && j->save_step < 0;

    if (j->stand != JOB_RUNNING || j->ckpt_asked || j->filling ||
        (!is_wished && !slots_copy_is_due(j)) || !slots_have_room(j))
        return;
    j->ckpt_asked = true;
    atomic_fetch_add(&worker_page(j->w)->ckpt_wanted, 1);
}

static bool has_trial_to_come(const struct job *j)
{
    return j->at != MSG_TRAIN_AT_UPDATE && trials_are_due(&j->trials, j->step, j->steps);
}

static int64_t stop_at(const struct job *j)
{
    return trials_have_stopped(&j->trials, j->step) ? j->step
                                                    : trials_next(&j->trials, j->step, j->steps);
}

void train__end_if_done(struct job *j)
{
    if (j->end == END_NONE && !j->trial_step && !has_trial_to_come(j) &&
        (j->step == j->steps || trials_have_stopped(&j->trials, j->step)))
        j->end = END_DONE;
}

static void send_go(struct job *j, bool resume, uint32_t slot, uint32_t value)
{
    struct sh_msg m = {.type = MSG_WK_TRAIN_GO};
    uint64_t loss;

    m.u.wk_train_go = (struct msg_wk_train_go){.job = j->id,
                                               .state_off = space_offset(&j->state),
                                               .ws_off = space_offset(&j->ws),
                                               .step = j->step,
                                               .resume = resume,
                                               .ticket_slot = slot,
                                               .ticket_value = value,
                                               .until = stop_at(j),
                                               .evaluate = has_trial_to_come(j),
                                               .turn = worker_begin_steps(j->w)};
    pool_set_state(j->w, WORKER_ACTIVE);
    job_go(j, JOB_RUNNING);
    j->evaluates = m.u.wk_train_go.evaluate;
    j->is_held = false;
    j->go_ns = sh_clock_ns();
    usage_trains(j->env->report->usage, true, j->go_ns);
    /* Until its first commit here the page would tell of the worker's last job. */
    memcpy(&loss, &j->last_loss, sizeof(loss));
    atomic_store(&worker_page(j->w)->loss_bits, loss);
    atomic_store(&worker_page(j->w)->scale_bits, 0);
    atomic_store(&worker_page(j->w)->step, j->step);
    SH_DEBUG("train.go", "job=%" PRId64 " worker=%u step=%" PRId64 " resume=%d ns=%" PRId64, j->id,
             j->w->index, j->step, resume, j->go_ns);
    train__ask_checkpoint(j);
    worker_grant(j->w, 2 * (int64_t)((double)j->state_bytes * tx_lane_beta_ns(j->env->tx)));
    worker_send(j->w, &m, NULL, 0);
    job_set_phase(j, MSG_JOB_RUNNING);
}

/* A ticket that has long arrived, for a GO that need not wait. */
static void go_now(struct job *j, bool resume)
{
    send_go(j, resume, TX_SLOT_STATE, dev_ticket_value(j->env->mem, TX_SLOT_STATE));
}

static bool steer_running(struct job *j, enum target want)
{
    bool finish = want == TARGET_BOUNDARY || want == TARGET_DROP || want == TARGET_SWAP;

    if (want == TARGET_RUN)
        return false;
    if (j->stand == JOB_RUNNING)
        raise_stop(j, finish);
    else if (finish)
        atomic_store(&worker_page(j->w)->stop_finish, 1); /* escalated before it stopped */
    return false;
}

static void detach_worker(struct job *j, enum worker_state to)
{
    if (j->w && (j->w->state == WORKER_PARKED || j->w->state == WORKER_CLEANING))
        pool_set_state(j->w, to);
    if (to == WORKER_STANDBY)
        j->w = NULL;
}

void train__count_redone(struct job *j, int64_t n)
{
    if (n <= 0)
        return;
    j->redone += n;
    sh_metric_add(M_shunt_train_steps_redone_total, SH_LABELS(j->tenant, j->model), (double)n);
}

bool train_is_torn(const struct train *t, const struct worker *w)
{
    return t->job && t->job->w == w && t->job->stand == JOB_PAUSED &&
           t->job->at == MSG_TRAIN_AT_UPDATE;
}

/* It was paused within the update: goes on to the end of that, and stops. False: it was not. */
static bool leave_update(struct job *j)
{
    if (j->stand != JOB_PAUSED || j->at != MSG_TRAIN_AT_UPDATE || !j->w)
        return false;
    raise_flag(j, true);
    go_now(j, true);
    job_go(j, JOB_STOPPING); /* not YIELDING: the pause was counted when it stopped */
    return true;
}

/* Gives the workspace up; the state of the last commit stays. False: nothing to do. */
bool train__drop_workspace(struct job *j, enum worker_state to)
{
    if (!job_has_ws(j))
        return false;
    if (leave_update(j))
        return true;
    if (j->at == MSG_TRAIN_AT_STEP && j->op > 0)
        train__count_redone(j, 1);
    j->at = MSG_TRAIN_AT_BOUNDARY;
    space_give(j->env->space, &j->ws, j->tag);
    job_go(j, JOB_LOADED);
    detach_worker(j, to);
    return true;
}

static void note_hold(struct job *j)
{
    const int64_t now = sh_clock_ns();

    j->is_held = true;
    job_set_phase(j, MSG_JOB_PREEMPTED);
    sh_metric_add(M_shunt_training_holds_total, SH_LABELS(j->env->executor), 1);
    SH_DEBUG("train.hold", "job=%" PRId64 " step=%" PRId64 " rule=ImagesFirst", j->id, j->step);
    if (j->hold_ns && now - j->hold_ns < SAY_HOLD_NS)
        return;
    j->hold_ns = now;
    job_log_say(j->log,
                "is held off after step %" PRId64 " (ImagesFirst): the images that requests need "
                "are worth more than its step",
                j->step);
}

/* For a run that needs the room, or because it is held off. */
static bool give_workspace(struct train *t, struct job *j)
{
    if (!train__drop_workspace(j, WORKER_STANDBY))
        return false;
    if (!job_has_ws(j) && switch_holds_off(t->env.sw))
        note_hold(j);
    return true;
}

static void give_state(struct job *j)
{
    space_give(j->env->space, &j->state, j->tag);
    job_go(j, JOB_OFF);
    detach_worker(j, WORKER_STANDBY);
}

/* What is tried again in the next turn must not fill the log. */
static void warn(struct job *j, const char *event, const struct sh_err *why)
{
    if (!sh_log_ratelimit(&j->warned_ns, &j->n_warned, 1000))
        return;
    j->n_warned = 0;
    sh_log_err(SH_LOG_ERROR, event, why);
}

/* The state goes to a host slot, unless it is there already, and leaves the device. */
static bool leave_device(struct job *j)
{
    struct slot *newest = slots_newest(j);
    struct sh_err err = {0};

    if (train__drop_workspace(j, WORKER_CLEANING))
        return true;
    if (!job_has_state(j) || j->filling || j->n_flights)
        return false;
    if (newest && newest->step == j->step) {
        give_state(j);
        return true;
    }
    if (slots_copy_out(j, j->step, TX_NO_TICKET, 0, &err)) {
        if (err.rc != SH_E_CONFLICT) /* no slot is free just now: again when one is */
            warn(j, "job.swap", &err);
        return false;
    }
    return true;
}

static bool discard(struct train *t, struct job *j)
{
    if (j->filling || j->n_flights)
        return false;
    finish_free(j->finish);
    j->at = MSG_TRAIN_AT_BOUNDARY;
    train__drop_workspace(j, WORKER_STANDBY);
    if (job_has_state(j))
        give_state(j);
    detach_worker(j, WORKER_STANDBY);
    train__end_job(t, j, MSG_JOB_CANCELLED);
    return true;
}

/* ------------------------------------------------------------------ evaluations between steps */

static void note_trial(struct job *j)
{
    char best[64] = "", accuracy[40] = "";
    struct sh_err err = {0};

    j->trial_step = 0;
    if (trials_note(&j->trials, j->step, &j->trial, &err)) {
        train__fail(j, &err);
        return;
    }
    sh_metric_set(M_shunt_train_eval_loss, SH_LABELS(j->tenant, j->model), j->trial.loss);
    if (isfinite(j->trial.accuracy))
        snprintf(accuracy, sizeof(accuracy), "accuracy %.6g, ", j->trial.accuracy);
    if (j->trials.best_step)
        snprintf(best, sizeof(best), "; the best is of step %" PRId64, j->trials.best_step);
    job_log_say(j->log, "step %" PRId64 " evaluated on %" PRId64 " samples: %sloss %.6g%s", j->step,
                j->trial.n_samples, accuracy, j->trial.loss, best);
    if (j->trials.has_stopped)
        job_log_say(j->log, "training stops: %" PRId64 " evaluations in a row brought no better %s",
                    j->trials.without_gain, train_metric_name(j->trials.best_by));
    job_report_trials(j);
    train__end_if_done(j);
}

/* Counts once what it rates is in a slot, if that is to be kept: before it could be lost. */
static bool take_trial(struct job *j)
{
    struct slot *newest = slots_newest(j);
    struct sh_err err = {0};

    if (j->trial_step != j->step) { /* that state was lost, and training comes to it again */
        j->trial_step = 0;
        return true;
    }
    if (trials_is_best(&j->trials, &j->trial)) {
        if (!newest || newest->step != j->step) {
            if (!j->filling && slots_copy_out(j, j->step, TX_NO_TICKET, 0, &err) &&
                err.rc != SH_E_CONFLICT)
                train__fail(j, &err); /* else it would stand still, and nobody knew why */
            return false;
        }
        slots_keep_best(j, newest);
    }
    note_trial(j);
    return true;
}

/* ------------------------------------------------------------------ on a worker, on the device */

static struct worker *find_worker(struct train *t, int64_t with_job)
{
    for (size_t i = 0; i < pool_size(t->env.pool); i++) {
        struct worker *w = pool_at(t->env.pool, i);

        if (worker_is_idle(w) && (!with_job || w->job == with_job))
            return w;
    }
    return NULL;
}

/* The worker cannot open a file by itself. */
static int open_files(const struct job *j, int fds[static 4], struct sh_err *err)
{
    const char *const paths[] = {j->dataset, j->eval_dataset};
    int rc = folder_open_package(j->package, fds, err);
    size_t n = 2;

    if (rc)
        return rc;
    for (; n < (j->trials.every ? 4u : 3u) && !rc; n += !rc) {
        fds[n] = open(paths[n - 2], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fds[n] >= 0)
            continue;
        rc = SH_FAIL_ERRNO(err, sh_open_rc(errno),
                           "the file of the dataset cannot be used: could not open it");
        sh_err_detail(err, "file %s", paths[n - 2]);
    }
    while (rc && n-- > 0)
        close(fds[n]);
    return rc;
}

/* A worker that has the job compiled, else one that compiles it. */
static bool attach_worker(struct train *t, struct job *j)
{
    struct sh_msg m = {.type = MSG_WK_TRAIN};
    struct worker *w = j->build == JOB_BUILT ? find_worker(t, j->id) : NULL;
    struct sh_err err = {0};
    int fds[4];
    size_t n_fds = j->trials.every ? 4 : 3;

    if (w) {
        j->w = w;
        return true;
    }
    if (j->compiling || !(w = find_worker(t, 0)))
        return false;
    if (open_files(j, fds, &err)) {
        if (err.rc ==
            SH_E_NOMEM) { /* of descriptors, perhaps: at the next turn there may be some */
            warn(j, "job.open", &err);
            return false;
        }
        train__fail(j, &err);
        return true;
    }
    m.u.wk_train =
        (struct msg_wk_train){.job = j->id, .spec = j->spec_text, .build = j->build != JOB_BUILT};
    if (j->build != JOB_BUILT)
        j->compile_ns = sh_clock_ns();
    m.u.wk_train.turn = worker_begin_job(w);
    worker_meet(w, j->tag);
    worker_send(w, &m, fds, n_fds);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
    j->compiling = w;
    return true;
}

/* What it reads must be here first. */
static bool begin_job(struct train *t, struct job *j)
{
    const struct sh_err *why = NULL;
    enum blob_state state = blob_set_state(&j->blobs, &why);

    if (state == BLOB_FAILED)
        train__fail(j, why);
    return state == BLOB_HERE ? attach_worker(t, j) : state == BLOB_FAILED;
}

/* Where the state has to move, the cheapest place may be the one that it has left, with no room for
 * the workspace on either side again. So both are found in one piece, and the workspace takes its
 * part of it next. */
static int place_job_state(struct job *j, struct sh_err *err)
{
    const struct residency_need need = {
        .kind = ARENA_TRAIN, .tag = j->tag, .spare = RESIDENCY_NO_IMAGE};
    const size_t both = SH_ALIGN_UP(j->state_bytes, DEV_BLOCK) + j->ws_bytes;
    int rc =
        space_alloc(j->env->space, j->must_move ? both : j->state_bytes, &need, &j->state, err);

    if (!rc)
        space_cut(j->env->space, &j->state, j->state_bytes, j->tag);
    return rc;
}

static int load_state(struct job *j, struct sh_err *err)
{
    struct slot *s = slots_newest(j);
    int rc;

    if (!s)
        return SH_FAIL(err, SH_E_BUG, "the job has no state to start from");
    rc = place_job_state(j, err);
    if (rc)
        return rc;
    rc = tx_in(j->env->tx, TX_STATE, space_offset(&j->state), s->mem.base, j->written_bytes, err);
    if (rc) {
        space_give(j->env->space, &j->state, j->tag);
        return rc;
    }
    slots_note_flight(j);
    job_go(j, JOB_LOADED);
    j->lacks_fixed = j->state_bytes > j->written_bytes;
    j->step = s->step;
    SH_DEBUG("train.load", "job=%" PRId64 " step=%" PRId64 " bytes=%" PRIu64 " ns=%" PRId64, j->id,
             j->step, j->state_bytes, sh_clock_ns());
    return SH_OK;
}

/* Behind what steps write of it; a device that refuses is asked again in the next turn. */
static int load_fixed(struct job *j, struct sh_err *err)
{
    int rc = tx_in(j->env->tx, TX_STATE, space_offset(&j->state) + (size_t)j->written_bytes,
                   j->fixed.base, (size_t)(j->state_bytes - j->written_bytes), err);

    if (rc)
        return rc;
    slots_note_flight(j);
    j->lacks_fixed = false;
    return SH_OK;
}

static int take_device(struct job *j, struct sh_err *err)
{
    const struct residency_need need = {
        .kind = ARENA_TRAIN, .tag = j->tag, .spare = RESIDENCY_NO_IMAGE};
    int rc = SH_OK;

    if (j->stand == JOB_OFF)
        rc = load_state(j, err);
    if (!rc && j->lacks_fixed)
        rc = load_fixed(j, err);
    if (!rc && j->stand == JOB_LOADED) {
        rc = space_alloc(j->env->space, j->ws_bytes, &need, &j->ws, err);
        if (!rc)
            job_go(j, JOB_READY);
    }
    /* Behind the copy of the state and any scrub: the worker waits for this ticket. */
    if (!rc)
        rc = tx_ticket(j->env->tx, TX_LANE_IN, TX_SLOT_STATE, j->train->state_ticket + 1, err);
    if (!rc)
        j->train->state_ticket++;
    return rc;
}

static bool go_on_with_job(struct train *t, struct job *j)
{
    struct sh_err err = {0}, why = {0};

    if (j->stand == JOB_PAUSED) {
        if (j->w->preparing)
            return false;
        if (store_worker_lacks(t->env.store, j->w))
            return leave_update(j);
        go_now(j, true);
        return true;
    }
    /* The copy of a checkpoint, or of a swap that is not wanted any more, must end before another
     * worker may update the state. */
    if (j->filling)
        return false;
    if (!j->w || !worker_is_idle(j->w)) {
        bool is_cleaning = j->w && j->w->state == WORKER_CLEANING;

        detach_worker(j, WORKER_STANDBY);
        return is_cleaning || attach_worker(t, j);
    }
    if (take_device(j, &err)) {
        if (err.rc != SH_E_DEVMEM)
            warn(j, "job.resume", &err);
        /* What is pinned now will be free soon; if not, the state itself lies in the way. */
        if (!j->refused_ns)
            j->refused_ns = sh_clock_ns();
        if (err.rc == SH_E_DEVMEM && store_drop_ahead(t->env.store))
            return false; /* it is free soon */
        if (err.rc == SH_E_DEVMEM && switch_is_idle(t->env.sw) && store_yield_pins(t->env.store))
            return true;
        j->must_move |= job_has_state(j) && sh_clock_ns() - j->refused_ns > MOVE_AFTER_NS;
        /* The tenant's quota has shrunk below it: waiting here would hold the slot for nothing. */
        if (err.rc == SH_E_DEVMEM && job_check_fits(j, &why))
            train__fail(j, &why);
        return why.rc != SH_OK;
    }
    j->refused_ns = 0;
    j->must_move = false;
    send_go(j, false, TX_SLOT_STATE, t->state_ticket);
    return true;
}

/* Nothing is on the device any more, and nothing is to come back. */
static bool finish_end(struct train *t, struct job *j)
{
    if (j->end == END_DONE) {
        /* One task of a job is with the thread of files at a time: freeing the job asks for it. */
        if (j->phase == MSG_JOB_COMPLETING || j->writing)
            return false;
        job_set_phase(j, MSG_JOB_COMPLETING);
        job_say_progress(j, true);
        finish_start(j);
        return true;
    }
    if (slots_newest(j) && !slots_are_on_disk(j)) {
        slots_write_newest(j);
        return false;
    }
    train__end_job(t, j, j->end == END_SUSPEND ? MSG_JOB_SUSPENDED : MSG_JOB_FAILED);
    return true;
}

static bool forget_lost_state(struct job *j)
{
    struct slot *s = slots_newest(j);

    if (j->filling || j->n_flights)
        return false;
    space_give(j->env->space, &j->ws, j->tag);
    give_state(j);
    if (s) {
        train__count_redone(j, j->step - s->step);
        j->step = s->step;
    }
    SH_WARN("job.rewind", "job=%" PRId64 " step=%" PRId64, j->id, j->step);
    job_log_say(j->log, "goes on from step %" PRId64 ", the newest in host memory", j->step);
    return true;
}

/* A client's wish for a checkpoint of a job that may not run for long, as it is held off: what is
 * in the newest slot, or on the device, is the state of its last commit. False: nothing to do. */
static bool save_standing(struct job *j)
{
    const struct slot *newest = slots_newest(j);

    if (!j->save_asked || j->save_step >= 0 || j->step == 0 || job_has_ws(j) || j->n_flights ||
        j->filling)
        return false;
    if (!newest || newest->step != j->step)
        return slots_copy_out(j, j->step, TX_NO_TICKET, 0, NULL) == SH_OK;
    j->save_step = j->step;
    if (j->disk_step >= j->step)
        job_report_saved(j, NULL);
    else
        slots_write_newest(j);
    return true;
}

bool train_turn(struct train *t)
{
    struct job *j = t->job;
    enum target want;

    if (!j || j->build == JOB_READING)
        return false;
    if (job_has_ended(j)) {
        slots_stop_push(j);
        if (j->filling || j->writing || j->n_flights)
            return false;
        t->job = NULL;
        job_free(j);
        return true;
    }
    want = target_of(t, j);
    if (job_runs(j))
        return steer_running(j, want);
    if (j->stand == JOB_LOST)
        return forget_lost_state(j);
    if (want == TARGET_DISCARD)
        return discard(t, j);
    if (j->end != END_NONE && j->stand == JOB_OFF)
        return finish_end(t, j);
    if (j->build != JOB_BUILT)
        return begin_job(t, j);
    if (j->trial_step && want != TARGET_DROP)
        return take_trial(j);
    if (j->must_move && job_has_state(j)) {
        j->refused_ns = 0;
        return leave_device(j);
    }
    switch (want) {
    case TARGET_RUN:
        return go_on_with_job(t, j);
    case TARGET_BOUNDARY:
        return leave_update(j);
    case TARGET_DROP:
        return give_workspace(t, j);
    case TARGET_SWAP:
        return leave_device(j);
    default:
        return save_standing(j);
    }
}
