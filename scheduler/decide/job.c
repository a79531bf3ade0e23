/* job.c - see job.h: the legal steps, and changes that wait for the database. */
#include "scheduler/decide/job.h"

#include "common/life.h"
#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEFT_NS 0x1p62 /* so that what it has had can be added */

#define NO_EXECUTOR_ENDS (SH_LIFE(JOB_CANCELLED) | SH_LIFE(JOB_EXPIRED))
#define ON_EXECUTOR_ENDS (SH_LIFE(JOB_FAILED) | SH_LIFE(JOB_QUEUED) | SH_LIFE(JOB_CANCELLING))

static const char *const STATE_NAMES[JOB_N_STATES] = {
#define X(name) [JOB_##name] = #name,
    SH_JOB_STATES(X, )
#undef X
};

static const unsigned NEXT[JOB_N_STATES] = {
    [JOB_QUEUED] =
        SH_LIFE(JOB_STARTING) | SH_LIFE(JOB_FAILED) | SH_LIFE(JOB_HELD) | NO_EXECUTOR_ENDS,
    [JOB_HELD] = SH_LIFE(JOB_QUEUED) | NO_EXECUTOR_ENDS,
    [JOB_SUSPENDED] = SH_LIFE(JOB_QUEUED) | NO_EXECUTOR_ENDS,
    [JOB_STARTING] =
        SH_LIFE(JOB_RUNNING) | SH_LIFE(JOB_PREEMPTED) | SH_LIFE(JOB_COMPLETING) | ON_EXECUTOR_ENDS,
    [JOB_RUNNING] = SH_LIFE(JOB_PREEMPTED) | SH_LIFE(JOB_COMPLETING) | ON_EXECUTOR_ENDS,
    [JOB_PREEMPTED] = SH_LIFE(JOB_RUNNING) | SH_LIFE(JOB_COMPLETING) | ON_EXECUTOR_ENDS,
    [JOB_COMPLETING] = SH_LIFE(JOB_SUCCEEDED) | ON_EXECUTOR_ENDS,
    [JOB_CANCELLING] = SH_LIFE(JOB_CANCELLED),
};
const struct sh_life JOB_LIFE = {"job", JOB_N_STATES, STATE_NAMES, NEXT};

const char *job_state_name(enum job_state s)
{
    return (unsigned)s < JOB_N_STATES ? STATE_NAMES[s] : "?";
}

int job_state_parse(const char *name, enum job_state *out, struct sh_err *err)
{
    for (unsigned s = 0; name && s < JOB_N_STATES; s++) {
        if (strcmp(name, STATE_NAMES[s]) == 0) {
            *out = (enum job_state)s;
            return SH_OK;
        }
    }
    return SH_FAIL(err, SH_E_INVALID, "\"%s\" is not a job state", name ? name : "");
}

bool job_state_is_final(enum job_state s)
{
#define X(name) SH_LIFE(JOB_##name)
    return (SH_LIFE(s) & (SH_JOB_ENDED(X, |))) != 0;
#undef X
}

bool job_state_has_executor(enum job_state s)
{
#define X(name) SH_LIFE(JOB_##name)
    return (SH_LIFE(s) & (SH_JOB_ON_EXECUTOR(X, |))) != 0;
#undef X
}

bool job_can(enum job_state from, enum job_state to)
{
    return sh_life_may(&JOB_LIFE, from, to);
}

/* To a state that may follow. */
static void job_go(struct job *j, enum job_state to)
{
    j->state = (enum job_state)sh_life_step(&JOB_LIFE, j->state, to, j->id);
}

static bool flips(const struct job_change *last, enum job_state to)
{
    return (last->from == JOB_RUNNING && last->to == JOB_PREEMPTED && to == JOB_RUNNING) ||
           (last->from == JOB_PREEMPTED && last->to == JOB_RUNNING && to == JOB_PREEMPTED);
}

int job_set_state(struct job *j, enum job_state to, const char *reason, struct sh_err *err)
{
    struct job_change *c;

    if (!job_can(j->state, to))
        return SH_FAIL(err, SH_E_CONFLICT, "a job cannot go from %s to %s",
                       job_state_name(j->state), job_state_name(to));
    /* Only under pressure: the normal case keeps every event. */
    if (j->n_pending >= JOB_MAX_PENDING / 2 && flips(&j->pending[j->n_pending - 1], to)) {
        j->n_pending--;
        job_go(j, to);
        return SH_OK;
    }
    if (j->n_pending >= JOB_MAX_PENDING)
        return SH_FAIL(err, SH_E_TOOBIG, "%d changes of job %lld wait for the database",
                       JOB_MAX_PENDING, (long long)j->id);
    c = &j->pending[j->n_pending++];
    *c = (struct job_change){.from = j->state, .to = to, .step = j->progress.step};
    sh_strlcpy(c->reason, reason, sizeof(c->reason));
    job_go(j, to);
    return SH_OK;
}

void job_adopt_state(struct job *j, enum job_state s)
{
    j->state = s;
    j->n_pending = 0;
}

int job_add_checkpoint(struct job *j, const struct job_checkpoint *c, struct sh_err *err)
{
    if (!j->checkpoints)
        j->checkpoints = calloc(JOB_MAX_CHECKPOINTS, sizeof(*j->checkpoints));
    if (!j->checkpoints)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the checkpoints of a job");
    if (j->n_checkpoints == JOB_MAX_CHECKPOINTS) {
        memmove(&j->checkpoints[0], &j->checkpoints[1],
                (JOB_MAX_CHECKPOINTS - 1) * sizeof(j->checkpoints[0]));
        j->n_checkpoints--;
    }
    j->checkpoints[j->n_checkpoints++] = *c;
    return SH_OK;
}

int64_t job_least_left_ns(const struct job *j)
{
    const struct job_progress *p = &j->progress;
    int64_t done = p->step + p->redone;

    if (done <= 0 || p->busy_ns <= 0 || p->steps <= p->step)
        return 0;
    return (int64_t)fmin((double)p->busy_ns / (double)done * (double)(p->steps - p->step),
                         MAX_LEFT_NS);
}

struct past_like job_like(const struct job *j)
{
    return (struct past_like){j->model_id, j->step_samples, j->is_batch};
}

void job_free(struct job *j)
{
    if (!j)
        return;
    free(j->checkpoints);
    free(j->result);
    free(j);
}
