/* fake_jobs.c - the simple executor's job: steps that take their time, checkpoints, its end. */
#include "common/mem.h"
#include "common/units.h"
#include "tests/sim/fake_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_NS SH_MS(100)
#define REPORT_NS SH_S(1)
#define BIG_BYTES (UINT64_C(4) << 30) /* more than a small device has */

struct file { /* a checkpoint on the disk that all hosts share */
    int64_t job, step;
    char path[96];
};
static struct file *files;
static size_t n_files, cap_files;

/* ------------------------------------------------------------------ what is said */

static bool lives(const struct fake_job *j)
{
    return j->id && (j->phase == MSG_JOB_STARTING || j->phase == MSG_JOB_RUNNING ||
                     j->phase == MSG_JOB_PREEMPTED || j->phase == MSG_JOB_COMPLETING);
}

static void say(struct fake *f, const struct fake_word *w, int64_t preemptions)
{
    fake__send(f, &(struct sh_msg){.type = MSG_JOB_STATE,
                                   .u.job_state = {.job = w->job,
                                                   .attempt = w->attempt,
                                                   .state = w->phase,
                                                   .step = w->step,
                                                   .steps = w->steps,
                                                   .loss = 0.5,
                                                   .samples_per_s = 100,
                                                   .preemptions = preemptions,
                                                   .busy_ns = w->busy_ns,
                                                   .rc = w->rc,
                                                   .msg = w->rc ? sh_rc_name(w->rc) : "",
                                                   .result = w->result,
                                                   .need_bytes = w->need_bytes}});
}

static struct fake_word word_of(const struct fake_job *j)
{
    return (struct fake_word){.job = j->id,
                              .attempt = j->attempt,
                              .phase = j->phase,
                              .step = j->step,
                              .steps = j->steps,
                              .busy_ns = j->busy_ns};
}

static void report(struct fake *f)
{
    struct fake_job *j = &f->now.job;
    const struct fake_word w = word_of(j);

    j->reported_ns = sim_now();
    say(f, &w, j->preemptions);
}

static void report_checkpoint(struct fake *f)
{
    const struct fake_job *j = &f->now.job;
    char path[96], digest[65];

    if (j->saved_step <= j->first_step)
        return; /* none of this start */
    snprintf(path, sizeof(path), "%" PRId64 "/%u-%" PRId64 ".safetensors", j->id, j->attempt,
             j->saved_step);
    snprintf(digest, sizeof(digest), "%064" PRIx64, (uint64_t)j->saved_step);
    fake__send(f, &(struct sh_msg){.type = MSG_JOB_CHECKPOINT,
                                   .u.job_checkpoint = {.job = j->id,
                                                        .attempt = j->attempt,
                                                        .step = j->saved_step,
                                                        .path = path,
                                                        .digest = digest,
                                                        .bytes = 4096}});
}

/* ------------------------------------------------------------------ the disk */

static void write_checkpoint(struct fake *f)
{
    struct fake_job *j = &f->now.job;

    if (j->step > j->saved_step) {
        sim_grow(&files, &cap_files, n_files + 1, sizeof(*files));
        files[n_files] = (struct file){.job = j->id, .step = j->step};
        snprintf(files[n_files].path, sizeof(files[0].path),
                 "%" PRId64 "/%u-%" PRId64 ".safetensors", j->id, j->attempt, j->step);
        n_files++;
        j->saved_step = j->step;
    }
    j->saved_ns = sim_now();
    report_checkpoint(f);
}

static void check_resume(const struct fake_order *o)
{
    for (size_t i = 0; i < n_files; i++)
        if (files[i].job == o->job && files[i].step == o->resume_step &&
            (o->is_batch || strcmp(files[i].path, o->resume) == 0))
            return;
    SIM_CHECK("resume", o->resume_step == 0 && !o->resume[0],
              "job %" PRId64 " is to go on from \"%s\" of step %" PRId64
              ", which was never written",
              o->job, o->resume, o->resume_step);
}

/* ------------------------------------------------------------------ its life */

static void set_phase(struct fake *f, enum msg_job_phase phase)
{
    f->now.job.phase = phase;
    report(f);
}

/* What the device did since the last time, to the file and to the totals. */
static void count(struct fake *f)
{
    struct fake_job *j = &f->now.job;
    const struct msg_usage_row r = {.kind = MSG_USAGE_JOB,
                                    .id = j->id,
                                    .gpu_ns = j->busy_ns - j->counted_ns,
                                    .samples = j->step_samples,
                                    .step = j->step};

    if (j->busy_ns > j->counted_ns)
        fake__count(f, &r);
    j->counted_ns = j->busy_ns;
}

static void end_job(struct fake *f, enum msg_job_phase phase, int rc)
{
    struct fake_job *j = &f->now.job;
    struct fake_word w = word_of(j), *last = &f->now.words[f->now.n_words++ % FAKE_WORDS];

    count(f);
    w.phase = phase;
    w.rc = rc;
    w.need_bytes = rc == SH_E_TOOBIG ? j->need_bytes : 0;
    if (phase == MSG_JOB_DONE)
        snprintf(w.result, sizeof(w.result),
                 "{\"%s\":\"%064" PRIx64 "\",\"meta\":{},\"onnx_bytes\":4096}",
                 j->publishes ? "package_digest" : "digest", (uint64_t)j->id);
    sim_trace("job %" PRId64 " ends phase=%d rc=%d step=%" PRId64, j->id, phase, rc, j->step);
    *last = w;
    say(f, last, j->preemptions);
    *j = (struct fake_job){0};
}

static void on_stopped(void *arg, uint64_t job)
{
    struct fake *f = arg;
    struct fake_job *j = &f->now.job;

    if ((uint64_t)j->id != job || !j->is_ending)
        return;
    if (!j->is_cancelled)
        write_checkpoint(f);
    end_job(f, j->is_cancelled ? MSG_JOB_CANCELLED : MSG_JOB_SUSPENDED, 0);
}

static void on_exported(void *arg, uint64_t job)
{
    struct fake *f = arg;
    struct fake_job *j = &f->now.job;

    if ((uint64_t)j->id == job && j->phase == MSG_JOB_COMPLETING && !j->is_ending)
        end_job(f, MSG_JOB_DONE, 0);
}

static void advance(struct fake *f)
{
    struct fake_job *j = &f->now.job;
    double steps = (double)TICK_NS / (double)fake__slowed(f, j->step_ns) + j->rest;

    j->busy_ns += TICK_NS;
    j->rest = steps - (double)(int64_t)steps;
    j->step = SH_MIN(j->step + (int64_t)steps, j->steps);
    count(f);
    if (j->step == j->steps) {
        write_checkpoint(f);
        set_phase(f, MSG_JOB_COMPLETING);
        sim_after(f->proc, sim_between(SH_MS(20), SH_MS(300)), on_exported, f, (uint64_t)j->id);
        return;
    }
    if (j->save_asked || sim_now() - j->saved_ns > SH_S(1))
        write_checkpoint(f);
    if (j->save_asked)
        fake__send(f, &(struct sh_msg){.type = MSG_JOB_SAVED,
                                       .u.job_saved = {.job = j->id,
                                                       .attempt = j->attempt,
                                                       .asked = j->save_asked,
                                                       .step = j->saved_step,
                                                       .msg = ""}});
    j->save_asked = 0;
    if (sim_now() - j->reported_ns >= REPORT_NS)
        report(f);
    if (sim_chance(0.02))
        fake__send(f, &(struct sh_msg){.type = MSG_JOB_EVALUATED,
                                       .u.job_evaluated = {.job = j->id,
                                                           .attempt = j->attempt,
                                                           .text = "{\"loss\":0.25}"}});
}

static void on_tick(void *arg, uint64_t n)
{
    struct fake *f = arg;
    struct fake_job *j = &f->now.job;

    (void)n;
    sim_after(f->proc, TICK_NS, on_tick, f, 0);
    if (!j->id || j->is_ending)
        return;
    if (j->stops) {
        j->is_ending = true;
        sim_after(f->proc, sim_between(SH_MS(1), SH_MS(120)), on_stopped, f, (uint64_t)j->id);
        return;
    }
    if (j->phase == MSG_JOB_STARTING && j->need_bytes > f->pool_bytes)
        end_job(f, MSG_JOB_FAILED, SH_E_TOOBIG);
    else if (j->phase == MSG_JOB_STARTING && sim_chance(0.3))
        set_phase(f, MSG_JOB_RUNNING);
    else if (j->phase == MSG_JOB_RUNNING && !f->now.current)
        advance(f);
}

void fake__jobs_begin(struct fake *f)
{
    sim_after(f->proc, sim_between(0, TICK_NS), on_tick, f, 0);
}

/* Most runs are too short to be told of. */
void fake__on_run_began(struct fake *f)
{
    if (f->now.job.phase != MSG_JOB_RUNNING || !f->now.job.id || f->now.job.is_ending ||
        !sim_chance(0.1))
        return;
    f->now.job.preemptions++;
    set_phase(f, MSG_JOB_PREEMPTED);
}

void fake__on_run_ended(struct fake *f)
{
    if (f->now.job.id && f->now.job.phase == MSG_JOB_PREEMPTED && !f->now.job.is_ending)
        set_phase(f, MSG_JOB_RUNNING);
}

/* ------------------------------------------------------------------ orders */

static int64_t number_in(const char *spec, const char *name, int64_t none)
{
    char key[32];
    const char *at;

    snprintf(key, sizeof(key), "\"%s\":", name);
    at = strstr(spec, key);
    return at ? strtoll(at + strlen(key), NULL, 10) : none;
}

static void forget_word(struct fake *f, int64_t job)
{
    for (size_t i = 0; i < FAKE_WORDS; i++)
        if (f->now.words[i].job == job)
            f->now.words[i] = (struct fake_word){0};
}

static void answer(struct fake *f, int64_t job, uint32_t attempt, enum msg_job_phase phase, int rc)
{
    const struct fake_word w = {.job = job, .attempt = attempt, .phase = phase, .rc = rc};

    say(f, &w, 0);
}

void fake__on_start(struct fake *f, const struct fake_order *o)
{
    struct fake_job *j = &f->now.job;

    if (j->id == o->job) { /* said again: the scheduler did not know */
        j->attempt = o->attempt;
        j->epoch = o->epoch;
        report(f);
        return;
    }
    forget_word(f, o->job);
    if (j->id) {
        answer(f, o->job, o->attempt, MSG_JOB_FAILED, SH_E_CONFLICT);
        return;
    }
    check_resume(o);
    *j = (struct fake_job){.id = o->job,
                           .attempt = o->attempt,
                           .epoch = o->epoch,
                           .is_batch = o->is_batch,
                           .publishes = strstr(o->spec, "\"publish\":true") != NULL,
                           .step = o->resume_step,
                           .first_step = o->resume_step,
                           .saved_step = o->resume_step,
                           .steps = number_in(o->spec, "steps", 100),
                           .step_ns = SH_MS(4) + o->job % 7 * SH_MS(3),
                           .step_samples = o->is_batch ? 1 : number_in(o->spec, "batch", 32),
                           .need_bytes = o->job % 9 == 0 ? BIG_BYTES : 0,
                           .saved_ns = sim_now()};
    sim_trace("job %" PRId64 " begins attempt=%u step=%" PRId64, j->id, j->attempt, j->step);
    set_phase(f, MSG_JOB_STARTING);
}

void fake__on_stop(struct fake *f, const struct msg_job_stop *m)
{
    struct fake_job *j = &f->now.job;

    if (j->id != m->job)
        return;
    j->is_cancelled |= m->how == MSG_JOB_HOW_CANCEL;
    j->stops = j->is_cancelled || j->phase != MSG_JOB_COMPLETING; /* nothing is left to be done */
}

void fake__on_save(struct fake *f, const struct msg_job_save *m)
{
    struct fake_job *j = &f->now.job;

    if (j->id == m->job && j->attempt == m->attempt && !j->stops)
        j->save_asked = m->asked;
}

void fake__report_jobs(struct fake *f)
{
    for (size_t i = 0; i < FAKE_WORDS; i++)
        if (f->now.words[i].job)
            say(f, &f->now.words[i], 0);
    if (!f->now.job.id)
        return;
    report(f);
    report_checkpoint(f);
}

/* ------------------------------------------------------------------ for oracles and faults */

void fake_fail_job(struct fake *f, int rc)
{
    struct fake_job *j = &f->now.job;

    if (sim_proc_is_alive(f->proc) && !sim_proc_is_paused(f->proc) && lives(j) && !j->is_ending)
        end_job(f, MSG_JOB_FAILED, rc);
}

bool fake_has_to_save(const struct fake *f, int64_t job)
{
    return f->now.job.id == job && f->now.job.save_asked;
}

int64_t fake_live_job(const struct fake *f, uint32_t *attempt, uint64_t *epoch)
{
    const struct fake_job *j = &f->now.job;

    if (!sim_proc_is_alive(f->proc) || !lives(j) || j->is_ending)
        return 0;
    *attempt = j->attempt;
    *epoch = j->epoch;
    return j->id;
}
