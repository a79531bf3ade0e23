/* slots.c - the state of a job in host memory, and from there on disk.
 *
 * A slot has what steps write of the state (job.h). It is WHOLE only when the copy from the device
 * is complete, so there is always a whole state of one step. Never overwritten are the newest whole
 * slot, one that the disk thread reads, and the best one. The job starts with two slots; others are
 * made only when all present ones are taken. Their pages are locked between runs (locking.h), and a
 * slot that is not locked yet is none.
 *
 * A state is as old as the beginning of its copy. A copy is due when the newest slot is an interval
 * old, a write when what the disk was given is. A swap copies between, so what is written may be
 * the older of two copies: then the other one is due soon. The disk is never further behind than an
 * interval, a step, a copy and a write (two, if a write takes more than half an interval), and gets
 * two states in an interval at most.
 *
 * A full disk does not end the job: training goes on, the old file stays, and the next checkpoint
 * tries again.
 */
#include "common/clock.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/trace.h"
#include "executor/files/push.h"
#include "executor/training/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N_META 10
#define AGAIN_NS SH_MS(100) /* until memory that was refused is asked for again */

struct ckpt_write {        /* a task with what it points to */
    struct disk_task task; /* first member */
    struct job *job;
    struct slot *slot, *best; /* best: NULL: none, or it is that slot */
    int64_t step, taken_ns, attempt;
    struct sh_st_tensor *tensors;
    const char *meta[N_META];
    char step_text[24], job_text[24], steps_text[24], evaluation[SH_JOB_EVALUATION_BYTES];
    char *path, *losses_path, *remove_path;
    double *losses;
    struct push *push; /* NULL: it is not on its way */
};

static void state_slot_go(const struct job *j, struct slot *s, enum copy_state to)
{
    s->state = (enum copy_state)sh_life_step(&COPY_LIFE, s->state, to, j->id);
}

static bool is_filling(const struct slot *s)
{
    return s->state == COPY_FILLING || s->state == COPY_TORN;
}

struct slot *slots_newest(struct job *j)
{
    struct slot *best = NULL;

    for (int i = 0; i < JOB_N_SLOTS; i++)
        if (j->slots[i].state == COPY_WHOLE && (!best || j->slots[i].step > best->step))
            best = &j->slots[i];
    return best;
}

/* ------------------------------------------------------------------ host memory */

static bool is_here(const struct slot *s)
{
    return s->mem.fd >= 0 && s->lock.locked == s->mem.bytes;
}

static int make_memory(struct job *j, uint64_t bytes, struct sh_shm *mem, struct lock_task *lock,
                       lock_done_fn *done, struct sh_err *err)
{
    int rc;

    if (mem->fd >= 0)
        return SH_OK;
    rc = sh_shm_create("shunt-slot", (size_t)bytes, mem, err);
    if (!rc)
        *lock = (struct lock_task){.base = mem->base, .bytes = mem->bytes, .done = done, .arg = j};
    return rc;
}

static void drop_memory(struct job *j, struct sh_shm *mem, struct lock_task *lock)
{
    locking_stop(j->env->locking, lock);
    locking_let_go(j->env->locking, mem, lock->locked);
    lock->locked = 0;
}

/* They are locked in turns: who is through last ends it, or who is refused first. */
static void on_first_locked(struct lock_task *t, const struct sh_err *why)
{
    struct job *j = t->arg;
    job_locked_fn *done = j->on_locked;
    const bool has_fixed = j->fixed.fd >= 0;

    if (!why && !(is_here(&j->slots[0]) && is_here(&j->slots[1]) &&
                  (!has_fixed || j->fixed_lock.locked == j->fixed.bytes)))
        return;
    locking_stop(j->env->locking, &j->slots[0].lock);
    locking_stop(j->env->locking, &j->slots[1].lock);
    locking_stop(j->env->locking, &j->fixed_lock);
    j->on_locked = NULL;
    done(j, why);
}

static void on_more_locked(struct lock_task *t, const struct sh_err *why)
{
    struct job *j = t->arg;

    if (!why)
        return;
    sh_err_copy(&j->slot_refused, why);
    j->slot_again_ns = sh_clock_ns() + AGAIN_NS;
    for (int i = 0; i < JOB_N_SLOTS; i++)
        if (&j->slots[i].lock == t)
            drop_memory(j, &j->slots[i].mem, t);
}

static struct slot *free_slot(struct job *j, bool here)
{
    struct slot *newest = slots_newest(j);

    for (int i = 0; i < JOB_N_SLOTS; i++)
        if (&j->slots[i] != newest && !is_filling(&j->slots[i]) && !j->slots[i].is_writing &&
            !j->slots[i].is_best && is_here(&j->slots[i]) == here)
            return &j->slots[i];
    return NULL;
}

struct slot *slots_best(struct job *j)
{
    for (int i = 0; i < JOB_N_SLOTS; i++)
        if (j->slots[i].is_best)
            return &j->slots[i];
    return NULL;
}

void slots_keep_best(struct job *j, struct slot *s)
{
    for (int i = 0; i < JOB_N_SLOTS; i++)
        j->slots[i].is_best = &j->slots[i] == s;
}

/* Begins to make a slot, if there is one to be made. Fails once if the last one was refused. */
static int make_slot(struct job *j, struct sh_err *err)
{
    struct slot *s = free_slot(j, false);
    int rc;

    if (j->slot_refused.rc) {
        sh_err_copy(err, &j->slot_refused);
        rc = j->slot_refused.rc;
        j->slot_refused.rc = SH_OK;
        return rc;
    }
    if (!s || s->mem.fd >= 0) /* it is being locked */
        return SH_OK;
    if (sh_clock_ns() < j->slot_again_ns)
        return SH_OK;
    rc = make_memory(j, j->written_bytes, &s->mem, &s->lock, on_more_locked, err);
    if (!rc)
        locking_begin(j->env->locking, &s->lock);
    return rc;
}

/* What was refused is for the copy to fail with. */
bool slots_have_room(struct job *j)
{
    return free_slot(j, true) || j->slot_refused.rc || make_slot(j, NULL) != SH_OK;
}

void slots_fini(struct job *j)
{
    for (int i = 0; i < JOB_N_SLOTS; i++)
        drop_memory(j, &j->slots[i].mem, &j->slots[i].lock);
    drop_memory(j, &j->fixed, &j->fixed_lock);
}

/* ------------------------------------------------------------------ the first state */

struct sweep_task {        /* a task with what it points to */
    struct disk_task task; /* first member */
    char *dir;
};

static void on_swept(struct disk_task *t)
{
    struct sweep_task *s = (struct sweep_task *)t;

    free(s->dir);
    free(s);
}

/* Earlier attempts knew which of their files to remove; this one knows only its own. Those of later
 * steps stay: an executor that has not heard yet that the job went on elsewhere must not take from
 * the newer attempt what that one has recorded. A later start removes them. */
static void remove_old_files(const struct job *j)
{
    struct sweep_task *s = calloc(1, sizeof(*s));
    struct sh_err err = {0};
    int rc = s ? SH_OK : SH_FAIL(&err, SH_E_NOMEM, "could not remove old checkpoints");

    if (!rc)
        rc = sh_strdup(j->dir, &s->dir, &err);
    if (!rc) {
        s->task = (struct disk_task){
            .sweep_dir = s->dir, .sweep_below = j->resume_step, .done = on_swept};
        rc = disk_submit(j->env->files->disk, &s->task, &err);
    }
    if (!rc)
        return;
    sh_log_err(SH_LOG_WARN, "job.checkpoint.sweep", &err);
    if (s)
        on_swept(&s->task);
}

int slots_init(struct job *j, struct sh_err *err)
{
    const uint64_t fixed = j->state_bytes - j->written_bytes;
    int rc = SH_OK;

    for (int i = 0; !rc && i < 2; i++)
        rc = make_memory(j, j->written_bytes, &j->slots[i].mem, &j->slots[i].lock, on_first_locked,
                         err);
    if (!rc && fixed)
        rc = make_memory(j, fixed, &j->fixed, &j->fixed_lock, on_first_locked, err);
    return rc;
}

void slots_lock(struct job *j, job_locked_fn *done)
{
    j->on_locked = done;
    locking_begin(j->env->locking, &j->slots[0].lock);
    locking_begin(j->env->locking, &j->slots[1].lock);
    if (j->fixed.fd >= 0)
        locking_begin(j->env->locking, &j->fixed_lock);
}

void slots_begin(struct job *j)
{
    struct slot *s = &j->slots[0];

    if (j->resume) {
        s->step = j->disk_step = j->resume_step; /* as good as written */
        remove_old_files(j);
    }
    state_slot_go(j, s, COPY_WHOLE);
    j->step = j->max_step = j->crashes.furthest = j->crashes.kept = s->step;
}

/* ------------------------------------------------------------------ a checkpoint on demand */

static bool is_busy(const struct job *j)
{
    return j->writing || j->pushing;
}

/* After every change of what is on disk: is the client's checkpoint there, or can it not be? */
static void settle_save(struct job *j, const struct sh_err *why)
{
    if (!j->save_asked || j->save_step < 0)
        return;
    if (j->disk_step >= j->save_step)
        job_report_saved(j, NULL);
    else if (why && !is_busy(j) && j->disk_failed_step >= j->save_step)
        job_report_saved(j, why);
    else if (j->end == END_NONE)
        slots_write_newest(j); /* the disk was busy with an older one */
}

/* ------------------------------------------------------------------ how often */

int64_t slots_interval_ns(const struct job *j)
{
    struct interval_facts f = j->measured;

    if (j->interval_ns)
        return j->interval_ns;
    f.here_ns = sh_clock_ns() - j->since_ns;
    if (!f.copy_ns) /* none was made yet */
        f.copy_ns = (int64_t)((double)j->written_bytes * tx_lane_beta_ns(j->env->tx));
    return interval_ns(&f);
}

bool slots_copy_is_due(const struct job *j)
{
    return sh_clock_ns() - j->taken_ns >= slots_interval_ns(j);
}

static int64_t blend(int64_t old, int64_t sample)
{
    return old ? old + (sample - old) / 4 : SH_MAX(sample, (int64_t)1);
}

static void note_copy(struct job *j, int64_t copy_ns, int64_t now)
{
    const struct interval_facts *f = &j->measured;
    int64_t ns;

    j->measured.copy_ns = blend(f->copy_ns, copy_ns);
    j->measured.n_swaps += j->is_swap;
    ns = slots_interval_ns(j);
    if (j->interval_ns || (ns < j->said_ns * 3 / 2 && ns > j->said_ns * 2 / 3))
        return;
    j->said_ns = ns;
    job_log_say(j->log,
                "a checkpoint is due %.1f s after the last one: a copy of the state takes %.1f ms, "
                "a write %.0f ms; %u failures and %u swaps in %.0f s",
                (double)ns / 1e9, (double)f->copy_ns / 1e6, (double)f->write_ns / 1e6,
                f->n_failures, f->n_swaps, (double)(now - j->since_ns) / 1e9);
}

/* ------------------------------------------------------------------ from the device */

static void on_copied(void *arg)
{
    struct job *j = arg;
    struct slot *s = j->filling;
    const int64_t now = sh_clock_ns();

    j->filling = NULL;
    if (!s)
        return;
    if (s->state == COPY_TORN) {
        state_slot_go(j, s, COPY_EMPTY);
        j->save_step = -1;
        return;
    }
    state_slot_go(j, s, COPY_WHOLE);
    j->taken_ns = s->taken_ns;
    SH_TRACE(.name = "checkpoint", .track = "copies out", .begin_ns = s->taken_ns, .end_ns = now,
             .job = j->id, .bytes = j->written_bytes);
    sh_metric_add(M_shunt_checkpoints_total, SH_LABELS(j->env->executor, "host", "ok"), 1);
    sh_metric_observe(M_shunt_checkpoint_duration_seconds, SH_LABELS(j->env->executor, "host"),
                      (double)(now - s->taken_ns) / 1e9);
    note_copy(j, now - s->taken_ns, now);
    slots_write_due(j);
    settle_save(j, NULL);
}

static void on_landed(void *arg)
{
    struct job *j = arg;

    j->n_flights--;
}

void slots_ask_marks(struct job *j)
{
    if (j->filling && !j->has_fill_mark)
        j->has_fill_mark = !tx_mark(j->env->tx, TX_LANE_OUT, on_copied, j, NULL);
    while (j->n_unmarked && !tx_mark(j->env->tx, TX_LANE_IN, on_landed, j, NULL))
        j->n_unmarked--;
}

void slots_note_flight(struct job *j)
{
    j->n_flights++;
    j->n_unmarked++;
    slots_ask_marks(j);
}

int slots_copy_out(struct job *j, int64_t step, uint32_t ticket_slot, uint32_t ticket_value,
                   struct sh_err *err)
{
    struct slot *s = j->filling ? NULL : free_slot(j, true);
    int rc = s || j->filling || !job_has_state(j) ? SH_OK : make_slot(j, err);

    if (rc)
        return rc;
    if (!s || !job_has_state(j))
        return SH_FAIL(err, SH_E_CONFLICT, "no host slot is free for a checkpoint just now");
    if (s->state == COPY_WHOLE)
        state_slot_go(j, s, COPY_EMPTY);
    rc = tx_out(j->env->tx, ticket_slot == TX_NO_TICKET ? TX_STATE : TX_CHECKPOINT,
                space_offset(&j->state), s->mem.base, (size_t)j->written_bytes, err);
    if (rc)
        return rc;
    if (ticket_slot != TX_NO_TICKET)
        rc = tx_ticket(j->env->tx, TX_LANE_OUT, ticket_slot, ticket_value, err);
    if (j->save_asked && j->save_step < 0)
        j->save_step = step;
    s->step = step;
    s->taken_ns = sh_clock_ns();
    /* TORN: the caller lets the worker go on without the ticket. */
    state_slot_go(j, s, rc ? COPY_TORN : COPY_FILLING);
    j->filling = s;
    j->is_swap = ticket_slot == TX_NO_TICKET;
    j->has_fill_mark = false;
    slots_ask_marks(j);
    return rc;
}

/* ------------------------------------------------------------------ to disk */

static void free_task(struct ckpt_write *d)
{
    if (!d)
        return;
    free(d->tensors);
    free(d->path);
    free(d->losses_path);
    free(d->remove_path);
    free(d->losses);
    free(d);
}

/* It is where the scheduler looks for it, or cannot be. */
static void on_stored(struct ckpt_write *d)
{
    struct disk_task *t = &d->task;
    struct job *j = d->job;
    const char *name = j->env->executor;

    sh_metric_add(M_shunt_checkpoints_total,
                  SH_LABELS(name, "disk", t->err.rc ? sh_rc_name(t->err.rc) : "ok"), 1);
    j->disk_failed_step = t->err.rc ? d->step : -1;
    if (t->err.rc) {
        j->given_ns = sh_clock_ns(); /* not again at once: the disk may be full */
        sh_log_err(SH_LOG_ERROR, "job.checkpoint.disk", &t->err);
        job_log_say(j->log, "the checkpoint of step %" PRId64 " could not be written: %s", d->step,
                    t->err.msg);
    } else {
        sh_metric_observe(M_shunt_checkpoint_duration_seconds, SH_LABELS(name, "disk"),
                          (double)t->took_ns / 1e9);
        j->disk_prev_step = j->disk_step;
        j->disk_step = d->step;
        j->disk_taken_ns = d->taken_ns;
        j->measured.write_ns = blend(j->measured.write_ns, t->took_ns);
        sh_ckpt_name(j->disk_name, d->step, name);
        sh_strlcpy(j->disk_digest, t->digest, sizeof(j->disk_digest));
        j->disk_bytes = t->bytes;
        SH_INFO("job.checkpoint", "job=%" PRId64 " step=%" PRId64 " bytes=%" PRIu64, j->id, d->step,
                t->bytes);
        job_log_say(j->log, "checkpoint of step %" PRId64 " written: %" PRIu64 " bytes in %.1f ms",
                    d->step, t->bytes, (double)t->took_ns / 1e6);
        job_report_checkpoint(j);
    }
    settle_save(j, &t->err);
    free_task(d);
}

static void on_pushed(void *arg, const struct sh_err *why)
{
    struct ckpt_write *d = arg;

    d->job->pushing = NULL;
    sh_err_copy(&d->task.err, why);
    on_stored(d);
}

void slots_stop_push(struct job *j)
{
    struct sh_err why = {0};

    if (!j->pushing)
        return;
    SH_FAIL(&why, SH_E_CANCELLED, "the job ended before its checkpoint reached the API");
    push_cancel(j->pushing->push);
    on_pushed(j->pushing, &why);
}

static void on_written(struct disk_task *t)
{
    struct ckpt_write *d = (struct ckpt_write *)t;
    struct job *j = d->job;
    const char *slash = strrchr(d->path, '/');
    const struct push_conf c = {
        .job = j->id, .attempt = j->attempt, .dir = j->dir, .files = {slash + 1, "losses.json"}};

    d->slot->is_writing = false;
    if (d->best)
        d->best->is_writing = false;
    j->writing = NULL;
    if (t->err.rc == SH_OK && j->env->files->transfers &&
        push_start(j->env->files, &c, on_pushed, d, &d->push, &t->err) == SH_OK)
        j->pushing = d;
    else
        on_stored(d);
}

/* What no step writes is not in the file: it comes with the compiled job. */
static size_t fill_tensors(const struct job *j, const struct ckpt_write *d)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n_tensors; i++) {
        if (!job_is_written(j, i))
            continue;
        d->tensors[n] = j->tensors[i];
        d->tensors[n++].data = job_tensor(j, d->slot, i);
    }
    for (size_t i = 0; d->best && i < j->n_tensors; i++) {
        if (!j->best_names[i])
            continue;
        d->tensors[n] = j->tensors[i];
        d->tensors[n].name = j->best_names[i];
        d->tensors[n++].data = job_tensor(j, d->best, i);
    }
    return n;
}

static int fill_task(struct job *j, struct slot *s, struct ckpt_write *d, struct sh_err *err)
{
    const bool has_trials = j->trials.last_step > 0;
    const char *const meta[N_META] = {"step",
                                      d->step_text,
                                      "job",
                                      d->job_text,
                                      "steps",
                                      d->steps_text,
                                      has_trials ? "evaluation" : NULL,
                                      d->evaluation,
                                      NULL};
    int rc = has_trials ? trials_text(&j->trials, d->evaluation, err) : SH_OK;

    if (rc)
        return rc;
    d->best = slots_best(j) == s ? NULL : slots_best(j);

    snprintf(d->step_text, sizeof(d->step_text), "%" PRId64, s->step);
    snprintf(d->job_text, sizeof(d->job_text), "%" PRId64, j->id);
    snprintf(d->steps_text, sizeof(d->steps_text), "%" PRId64, j->steps);
    memcpy(d->meta, meta, sizeof(meta));
    d->tensors = malloc((2 * j->n_tensors + 1) * sizeof(*d->tensors));
    d->losses = malloc((j->n_losses + 1) * sizeof(*d->losses));
    d->path = job_ckpt_path(j, s->step);
    d->losses_path = job_file(j, "losses.json");
    /* Only one of this executor's own: what an attempt elsewhere has written is not there under
     * this name, and goes when the next one begins. */
    if (j->disk_prev_step >= 0)
        d->remove_path = job_ckpt_path(j, j->disk_prev_step);
    if (!d->tensors || !d->losses || !d->path || !d->losses_path)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a checkpoint");
    if (j->n_losses)
        memcpy(d->losses, j->losses, j->n_losses * sizeof(*d->losses));
    d->task = (struct disk_task){.write_path = d->path,
                                 .tensors = d->tensors,
                                 .n_tensors = fill_tensors(j, d),
                                 .meta = d->meta,
                                 .losses_path = d->losses_path,
                                 .losses = d->losses,
                                 .n_losses = j->n_losses,
                                 .digest_path = d->path,
                                 .remove_path = d->remove_path,
                                 .discard_on_failure = true, /* nobody would hear of it */
                                 .done = on_written};
    return SH_OK;
}

void slots_write_newest(struct job *j)
{
    struct slot *s = slots_newest(j);
    struct sh_err err = {0};
    struct ckpt_write *d;
    int rc;

    if (!s || is_busy(j) || s->step <= j->disk_step || s->step == 0)
        return;
    d = calloc(1, sizeof(*d));
    if (!d)
        return; /* the next checkpoint tries again */
    d->job = j;
    d->slot = s;
    d->step = s->step;
    d->taken_ns = s->taken_ns;
    rc = fill_task(j, s, d, &err);
    if (!rc)
        rc = disk_submit(j->env->files->disk, &d->task, &err);
    if (rc) {
        sh_log_err(SH_LOG_WARN, "job.checkpoint.disk", &err);
        free_task(d);
        return;
    }
    s->is_writing = true;
    if (d->best)
        d->best->is_writing = true;
    j->writing = &d->task;
    j->given_ns = s->taken_ns;
}

void slots_write_due(struct job *j)
{
    if (j->end == END_NONE && sh_clock_ns() - j->given_ns >= slots_interval_ns(j))
        slots_write_newest(j);
}

bool slots_are_on_disk(struct job *j)
{
    struct slot *s = slots_newest(j);

    return !s || s->step <= j->disk_step || s->step == 0 ||
           (!is_busy(j) && j->disk_failed_step == s->step);
}
