/* oracles_starts.c - see oracles_sched.h: what a leader starts and stops, by what it knows itself,
 * and what the database recorded of it. */
#include "common/clock.h"
#include "common/mem.h"
#include "tests/sim/cluster.h"
#include "tests/sim/oracles_sched_int.h"

#include <inttypes.h>
#include <string.h>

struct seen_slot {
    uint64_t epoch, serial;
    int64_t at_ns, leaving, job;
    bool stopping;
};

/* It was given to e in this turn. A job that was told to leave has its executor until that says
 * that it has left: who was started before would be refused there. */
static void check_start(const struct sched *s, const struct exec *e, const struct job *j,
                        const struct seen_slot *was)
{
    const struct tenant *t = oracles__tenant(s, j->tenant_id);
    const int64_t now = sh_clock_ns();
    int64_t n = 0;

    SIM_CHECK("slot",
              !e->leaving || was->leaving != e->leaving || was->epoch != s->epoch ||
                  was->serial != e->serial,
              "job %" PRId64 " is started on %s, which job %" PRId64 " has not left", j->id,
              e->info.name, e->leaving);
    SIM_CHECK("start", j->not_before_ns <= now,
              "job %" PRId64 " is started %.3f s before it is to be tried again", j->id,
              (double)(j->not_before_ns - now) / 1e9);
    SIM_CHECK("start", j->queue_open, "job %" PRId64 " is started, and its queue is held", j->id);
    SIM_CHECK("start", j->model_ready || j->model_gone,
              "job %" PRId64 " is started, and its version is not ready", j->id);
    SIM_CHECK("start", exec_is_up(e), "job %" PRId64 " is started on %s, which takes no work",
              j->id, e->info.name);
    SIM_CHECK("start", j->need_bytes <= e->info.pool_bytes,
              "job %" PRId64 " is started on %s, which is too small", j->id, e->info.name);
    for (size_t i = 0; i < s->jobs.n; i++)
        n += s->jobs.items[i]->tenant_id == j->tenant_id && s->jobs.items[i]->executor[0];
    SIM_CHECK("max-gpus", !t || t->max_gpus < 0 || (double)n <= t->max_gpus,
              "job %" PRId64 " is started, and tenant %s has %" PRId64 " devices", j->id, j->tenant,
              n);
}

/* It was told in this turn to give way to another job. */
static void check_stop(const struct sched *s, const struct job *j)
{
    const int64_t own_ns = SH_MIN(j->min_run_ns, s->conf->max_min_run_ms * 1000000);
    const int64_t least_ns = own_ns > 0 ? own_ns : s->conf->min_run_ms * 1000000;

    SIM_CHECK("stop", j->preemptible, "job %" PRId64 " must not be preempted, and is", j->id);
    SIM_CHECK("stop", sh_clock_ns() - j->since_ns >= least_ns,
              "job %" PRId64 " is preempted after %.3f s of the %.3f s that it has at least", j->id,
              (double)(sh_clock_ns() - j->since_ns) / 1e9, (double)least_ns / 1e9);
}

void oracles__look_at_slots(const struct sched *s, size_t which)
{
    static struct seen_slot seen[CLUSTER_N_SCHEDULERS][CLUSTER_MAX_EXECUTORS];

    for (size_t i = 0; i < s->execs.n && i < CLUSTER_MAX_EXECUTORS; i++) {
        const struct exec *e = s->execs.items[i];
        const struct job *j = e->job ? idmap_get(&s->jobs.by_id, (uint64_t)e->job) : NULL;
        struct seen_slot *was = &seen[which][i];

        if (j && j->starting_write && j->placed_ns > was->at_ns)
            check_start(s, e, j, was);
        if (j && j->stopping && was->epoch == s->epoch && was->job == j->id && !was->stopping &&
            j->wish == JOB_WISH_NONE && !e->state.is_stopping)
            check_stop(s, j);
        *was = (struct seen_slot){s->epoch,   e->serial, sh_clock_ns(),
                                  e->leaving, e->job,    j && j->stopping};
    }
}

/* An executor knows a run by its number, whoever sent it. */
void oracles__look_at_runs(const struct sched *s)
{
    enum { SEEN = 1 << 16 };
    static struct {
        uint64_t run, epoch;
    } seen[SEEN];

    for (size_t i = 0; i < s->execs.n; i++)
        for (const struct run *r = s->execs.items[i]->runs; r; r = r->next) {
            size_t at = r->id * 0x9e3779b97f4a7c15u >> 48;

            SIM_CHECK("run-number", seen[at].run != r->id || seen[at].epoch == s->epoch,
                      "run %" PRIu64 " is sent in epoch %" PRIu64 ", and was in %" PRIu64, r->id,
                      s->epoch, seen[at].epoch);
            seen[at].run = r->id;
            seen[at].epoch = s->epoch;
        }
}

/* ------------------------------------------------------------------ what was recorded */

static const struct database_event *event_before(size_t at)
{
    for (size_t i = at; i-- > 0;)
        if (database.events[i].job == database.events[at].job)
            return &database.events[i];
    return NULL;
}

/* The step of the newest checkpoint that was recorded by then; 0: none was. */
static int64_t recorded_step(int64_t job, int64_t until_ns)
{
    const struct database_job *j = &database.jobs[job - 1];
    int64_t step = 0;

    for (size_t i = 0; i < j->n_checkpoints; i++)
        if (j->checkpoints[i].at_ns <= until_ns)
            step = SH_MAX(step, j->checkpoints[i].step);
    return step;
}

/* One whose executor was lost loses the steps behind the last checkpoint that was recorded, and no
 * others, whatever goes wrong. */
static void look_at_lost(const struct database_event *e, const struct database_event *lost)
{
    const int64_t recorded = recorded_step(e->job, lost->at_ns);

    SIM_CHECK("no-step-lost", database.jobs[e->job - 1].is_batch || e->step >= recorded,
              "job %" PRId64 " lost its executor, and goes on from %" PRId64
              " instead of the checkpoint of step %" PRId64,
              e->job, e->step, recorded);
}

/* One that failed is tried again with the next number, so that each has files of its own. */
static void look_at_attempt(size_t at, const struct database_event *last)
{
    const struct database_event *e = &database.events[at];

    if (e->to != JOB_STARTING || !last || strcmp(last->reason, "BackoffUntil") != 0)
        return;
    for (size_t i = at; i-- > 0;)
        if (database.events[i].job == e->job && database.events[i].to == JOB_STARTING) {
            SIM_CHECK("attempt", e->attempt == database.events[i].attempt + 1,
                      "job %" PRId64 " failed in attempt %u, and is tried again as attempt %u",
                      e->job, database.events[i].attempt, e->attempt);
            return;
        }
}

/* When all is well a job that gave way in good order goes on where it stopped. */
void oracles__look_at_starts(int64_t healed_ns)
{
    static size_t seen;

    for (; seen < database.n_events; seen++) {
        const struct database_event *e = &database.events[seen], *last = event_before(seen);

        look_at_attempt(seen, last);
        if (e->to != JOB_STARTING || !last || last->to != JOB_QUEUED)
            continue;
        if (strcmp(last->reason, "ExecutorLost") == 0) {
            look_at_lost(e, last);
            continue;
        }
        if (!healed_ns || last->at_ns - healed_ns < SETTLE_NS ||
            (last->from != JOB_RUNNING && last->from != JOB_PREEMPTED))
            continue;
        SIM_CHECK("no-step-lost", e->step == last->step,
                  "job %" PRId64 " stopped at step %" PRId64 " (%s), and goes on from %" PRId64,
                  e->job, last->step, last->reason, e->step);
    }
}
