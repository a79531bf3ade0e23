/* jobs_pool.c - see jobs.h: what decisions about jobs rest on, kept in a jobpool.
 *
 * Whoever changes a job, a tenant or an executor touches it; all that was touched is set in the
 * pool in each turn of the loop, so that a decision costs what has changed. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/jobs/jobs.h"
#include "scheduler/sched.h"

#include <math.h>

#define REBASE 256 /* half-lives after which the scale of usage begins anew */

/* ------------------------------------------------------------------ usage */

static double half_lives(const struct sched *s, int64_t ns)
{
    return (double)ns / 1e9 / s->tenants.half_life_s;
}

/* Numbers grow with time on a scale that stands still. By a power of two nothing is lost. */
static void rebase_usage(struct sched *s, int64_t now_ns)
{
    const int64_t by_ns = (int64_t)(REBASE * s->tenants.half_life_s * 1e9);

    while (now_ns - s->jobs.pool_from_ns > by_ns) {
        for (size_t i = 0; i < s->tenants.n; i++)
            jobpool_scale_tenant(&s->tenants.items[i]->pooled, REBASE);
        s->jobs.pool_from_ns += by_ns;
    }
}

struct jobpool_now jobs_now(struct sched *s)
{
    const int64_t now = sh_clock_ns();

    rebase_usage(s, now);
    return (struct jobpool_now){.now_ns = now,
                                .db_up = dbthread_is_up(s->db),
                                .scale = exp2(-half_lives(s, now - s->jobs.pool_from_ns))};
}

/* ------------------------------------------------------------------ facts */

static enum snap_job_state state_of(const struct job *j)
{
    if (j->state == JOB_QUEUED)
        return SNAP_QUEUED;
    if (!job_state_has_executor(j->state))
        return SNAP_LEFT;
    if (j->stopping || j->state == JOB_CANCELLING)
        return SNAP_STOPPING;
    return j->state == JOB_STARTING ? SNAP_STARTING : SNAP_RUNNING;
}

static int64_t job_takes_ns(const struct job *j)
{
    return SH_MAX(j->takes_ns, j->progress.busy_ns);
}

void jobs__judge(struct job *j)
{
    j->takes_ns = j->progress.busy_ns + job_least_left_ns(j);
}

void jobs__judge_loss(const struct sched *s, struct job *j)
{
    const struct exec *e = execs_find(&s->execs, j->executor);

    j->loss = loss_of(&(struct loss_facts){
        .gpus = j->gpus,
        .state_bytes = j->state_bytes,
        .copy_ns_per_byte = e ? e->ns_per_byte : 0,
        .disk_bytes_per_s = e ? e->state.disk_bytes_per_s : 0,
        .start_ns = j->start_ns,
        .steps_per_s =
            j->step_samples > 0 ? j->progress.samples_per_s / (double)j->step_samples : 0});
}

uint32_t jobs__level(const struct sched *s, const struct job *j)
{
    return lines_level(job_takes_ns(j), SH_MS(s->conf->level_ms));
}

int64_t jobs__handicap_us(const struct sched *s, const struct job *j)
{
    return lines_handicap_us(job_takes_ns(j), SH_MS(s->conf->level_ms));
}

bool jobs__fits(const void *arg, uint64_t version, const struct jobpool_slot *x)
{
    const struct sched *s = arg;
    const struct model *m = models_find(&s->models, (int64_t)version);

    return !m || !models_has_failed_on(m, x->f.index);
}

/* Of a job that some executors cannot run, because they have failed for good to load its version,
 * and others can. If none can, it may go to any: that one refuses it, and says why. */
static uint64_t fit_version(const struct sched *s, const struct job *j)
{
    const struct model *m = j->is_batch ? models_find(&s->models, j->version_id) : NULL;
    bool some_cannot = false, some_can = false;

    if (!m || !m->n_failed_on)
        return 0;
    for (uint32_t i = 0; i < s->execs.n; i++) {
        const struct exec *e = s->execs.items[i];

        if (!exec_is_up(e))
            continue;
        some_cannot = some_cannot || models_has_failed_on(m, i);
        some_can = some_can || (!models_has_failed_on(m, i) && e->info.pool_bytes >= j->need_bytes);
    }
    return some_cannot && some_can ? (uint64_t)j->version_id : 0;
}

bool jobs__can_elsewhere(const struct sched *s, const struct job *j, const struct exec *e)
{
    return fit_version(s, j) &&
           models_has_failed_on(models_find(&s->models, j->version_id), e->index);
}

bool jobs_facts(const struct sched *s, const struct job *j, struct jobpool_job_facts *out)
{
    const enum snap_job_state state = state_of(j);
    const bool is_recorded = !j->writing && !j->n_pending;
    struct tenant *t = tenants_by_id(&s->tenants, j->tenant_id);
    const struct exec *e =
        state != SNAP_LEFT && j->executor[0] ? execs_find(&s->execs, j->executor) : NULL;

    if (j->gpus > SH_JOB_MAX_GPUS) /* none is admitted (api/spec/jobspec.c) */
        return false;
    /* A job whose last change is not recorded yet waits for that. */
    if (!t || (state == SNAP_QUEUED && !is_recorded) ||
        (state == SNAP_LEFT && (is_recorded || !j->array_max)) || !jobs_in_window(j))
        return false;
    *out = (struct jobpool_job_facts){
        .is = {.line_us =
                   state == SNAP_QUEUED ? j->place.line_us : j->queued_us + jobs__handicap_us(s, j),
               .id = j->id,
               .level = jobs__level(s, j),
               .state = state,
               .exec = SNAP_NONE,
               .priority = j->priority,
               .queue_open = j->queue_open,
               .model_ready = j->model_ready || j->model_gone,
               .not_before_ns = j->not_before_ns,
               .since_ns = j->since_ns,
               .min_run_ns = SH_MIN(j->min_run_ns, SH_MS(s->conf->max_min_run_ms)),
               .is_fixed = !j->preemptible,
               .gpus = j->gpus,
               .array_max = j->array_max,
               .version = fit_version(s, j),
               .need_bytes = j->need_bytes,
               .loss_ns = state == SNAP_RUNNING ? loss_rank_ns(&j->loss) : 0,
               .may_suspend = j->state == JOB_RUNNING || j->state == JOB_PREEMPTED},
        .tenant = &t->pooled,
        .array = j->array_max ? (uint64_t)j->array_id : 0,
        .is_on_exec = e && e->session && !e->state.is_stopping};
    if (out->is_on_exec) {
        out->exec_bytes = e->info.pool_bytes;
        out->on = &e->slot;
    }
    return true;
}

/* ------------------------------------------------------------------ what has changed */

void jobs__touch(struct sched *s, struct job *j)
{
    if (j->touched_at)
        return;
    j->next_touched = s->jobs.touched;
    j->touched_at = &s->jobs.touched;
    if (j->next_touched)
        j->next_touched->touched_at = &j->next_touched;
    s->jobs.touched = j;
}

void jobs__untouch(struct job *j)
{
    if (!j->touched_at)
        return;
    *j->touched_at = j->next_touched;
    if (j->next_touched)
        j->next_touched->touched_at = j->touched_at;
    j->touched_at = NULL;
}

static struct jobpool_slot_facts slot_facts(const struct exec *e)
{
    return (struct jobpool_slot_facts){.index = e->index,
                                       .n_runs = e->n_runs,
                                       .pool_bytes = e->info.pool_bytes,
                                       .is_up = exec_is_up(e),
                                       .is_taken = e->job || e->leaving};
}

static void sync_execs(struct sched *s)
{
    struct exec *e;

    while ((e = s->execs.changed)) {
        const struct jobpool_slot_facts f = slot_facts(e);

        s->execs.changed = e->next_changed;
        e->is_changed = false;
        s->models.fits_changed |=
            f.is_up != e->slot.f.is_up || f.pool_bytes != e->slot.f.pool_bytes;
        jobpool_set_slot(&s->jobs.pool, &e->slot, &f);
    }
}

/* With its usage on the pool's scale. */
static struct snap_tenant pooled_facts(const struct sched *s, const struct tenant *t)
{
    struct snap_tenant f = tenant_facts(t);

    f.usage_ns = t->usage_ns * exp2(half_lives(s, t->usage_at_ns - s->jobs.pool_from_ns));
    return f;
}

static void sync_tenants(struct sched *s)
{
    struct tenant *t;

    while ((t = s->tenants.touched)) {
        const struct snap_tenant f = pooled_facts(s, t);

        tenants_untouch(t);
        jobpool_set_tenant(&s->jobs.pool, &t->pooled, &f);
    }
}

/* Some versions have failed on other executors than before, or other executors are up. */
static void touch_unfit(struct sched *s)
{
    if (!s->models.fits_changed)
        return;
    s->models.fits_changed = false;
    for (size_t i = 0; i < s->jobs.n; i++) {
        struct job *j = s->jobs.items[i];

        if (j->is_batch && fit_version(s, j) != j->pooled.f.is.version)
            jobs__touch(s, j);
    }
}

static void sync_jobs(struct sched *s)
{
    struct sh_err err = {0};
    struct job *j, *failed = NULL;

    while ((j = s->jobs.touched)) {
        struct jobpool_job_facts f;

        jobs__untouch(j);
        jobs__set_due(s, j);
        if (!jobs_facts(s, j, &f)) {
            jobpool_del_job(&s->jobs.pool, &j->pooled);
        } else if (jobpool_set_job(&s->jobs.pool, &j->pooled, &f, &err)) {
            j->next_touched = failed;
            failed = j;
        }
    }
    if (failed && sh_log_ratelimit(&s->jobs.warned_ns, &s->jobs.warned_left, 1000)) {
        sh_log_err(SH_LOG_ERROR, "job.pool", &err);
        s->jobs.warned_left = 0;
    }
    while ((j = failed)) {
        failed = j->next_touched;
        jobs__touch(s, j);
    }
}

void jobs_sync(struct sched *s)
{
    sync_execs(s);
    sync_tenants(s);
    touch_unfit(s);
    sync_jobs(s);
}

const char *jobs_pool_fault(const struct sched *s)
{
    int64_t reserved = 0;

    for (size_t i = 0; i < s->execs.n; i++) {
        const struct exec *e = s->execs.items[i];
        const struct jobpool_slot_facts f = slot_facts(e), *was = &e->slot.f;

        if (e->is_changed)
            continue;
        if (f.index != was->index || f.n_runs != was->n_runs || f.pool_bytes != was->pool_bytes ||
            f.is_up != was->is_up || f.is_taken != was->is_taken)
            return e->info.name;
    }
    for (size_t i = 0; i < s->tenants.n; i++) {
        const struct tenant *t = s->tenants.items[i];
        const struct snap_tenant f = pooled_facts(s, t);

        reserved += t->pooled.reserved;
        if (!t->touched_at && t->pooled.n_jobs && !jobpool_has_tenant(&t->pooled, &f))
            return t->name;
    }
    if (reserved != s->jobs.pool.reserved)
        return "what is reserved";
    for (size_t i = 0; i < s->jobs.n; i++) {
        const struct job *j = s->jobs.items[i];
        struct jobpool_job_facts f;
        const bool counts = jobs_facts(s, j, &f);

        if (s->models.fits_changed || s->execs.changed) /* jobs_sync() will see */
            f.is.version = j->pooled.f.is.version;
        if (!j->touched_at && sh_due_at(&j->due) != jobs__due_ns(s, j))
            return "when a job is due";
        if (!j->touched_at && !jobpool_has_job(&j->pooled, counts ? &f : NULL))
            return job_state_name(j->state);
    }
    return NULL;
}

void jobs__pool_fini(struct sched *s)
{
    for (size_t i = 0; i < s->tenants.n; i++)
        jobpool_forget_tenant(&s->tenants.items[i]->pooled);
    s->tenants.pool = NULL;
    jobpool_fini(&s->jobs.pool);
}
