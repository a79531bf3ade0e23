/* explain.c - see explain.h. */
#include "scheduler/explain.h"

#include "common/mem.h"
#include "common/units.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN INT64_MAX
#define SECOND_NS 1e9
#define FAR_NS (INT64_MAX / 4) /* two of them can be added */
#define MIB (UINT64_C(1) << 20)

struct query {
    struct sched *s;
    const struct job *j;
    const struct tenant *t;
    struct snapshot in;
    uint32_t *order;        /* OWNED: indices of the jobs that may start, the next one first */
    size_t n_order, place;  /* place: of ours, from 1; 0: it may not start now */
    enum decide_reason why; /* it waits; NONE: it does not */
    double held;            /* executors that its tenant holds, by that decision */
    int64_t *free_at;       /* OWNED: by executor, ns from now */
    int64_t typical_ns;     /* how long jobs take that run now, or have ended; UNKNOWN */
    bool by_rates, by_past; /* what the estimate goes by */
    int64_t wait_ns;        /* estimate; UNKNOWN */
    char basis[320];
};

/* ------------------------------------------------------------------ what rates say */

static double steps_per_s(const struct job *j, int64_t now_ns)
{
    int64_t steps = j->progress.step - j->since_step, ns = now_ns - j->since_ns;

    return steps > 0 && ns > 0 ? (double)steps / ((double)ns / SECOND_NS) : 0;
}

/* By what its like took that has ended; UNKNOWN. */
static int64_t past_ns(const struct query *q, const struct job *j, int64_t steps)
{
    const struct past_like like = job_like(j);
    int64_t ns = past_expect_ns(&q->s->past, &like, steps);

    return ns > 0 ? SH_MIN(ns, FAR_NS) : UNKNOWN;
}

/* Until its executor is free of it. In its first moment, before it has measured anything, by what
 * its like took. */
static int64_t job_left_ns(struct query *q, const struct job *j)
{
    double rate = steps_per_s(j, q->in.now_ns);
    int64_t steps = SH_MAX(j->progress.steps, j->all_steps), whole;

    if (j->stopping || j->state == JOB_CANCELLING || j->state == JOB_COMPLETING)
        return 0;
    if (rate > 0 && j->progress.steps > 0) {
        q->by_rates = true;
        return (int64_t)SH_MIN((double)SH_MAX(j->progress.steps - j->progress.step, 0) / rate *
                                   SECOND_NS,
                               (double)FAR_NS);
    }
    whole = steps > 0 ? past_ns(q, j, steps - j->progress.step) : UNKNOWN;
    if (whole == UNKNOWN)
        return UNKNOWN;
    q->by_past = true;
    return SH_MAX(whole - (q->in.now_ns - (j->placed_ns ? j->placed_ns : j->since_ns)), 0);
}

static void measure_rates(struct query *q)
{
    const struct sched *s = q->s;
    double sum = 0;
    int n = 0;

    for (size_t e = 0; e < s->execs.n; e++) {
        const struct job *j = idmap_get(&s->jobs.by_id, (uint64_t)s->execs.items[e]->job);
        double rate = j ? steps_per_s(j, q->in.now_ns) : 0;

        q->free_at[e] = !exec_is_up(s->execs.items[e]) ? UNKNOWN : j ? job_left_ns(q, j) : 0;
        if (rate > 0 && j->progress.steps > 0) {
            sum += (double)j->progress.steps / rate * SECOND_NS;
            n++;
        }
    }
    if (n > 0)
        q->typical_ns = (int64_t)SH_MIN(sum / n, (double)FAR_NS);
    else
        q->typical_ns = s->past.whole_ns > 0 ? (int64_t)s->past.whole_ns : UNKNOWN;
}

/* Of its model, kind and batch, as one measures it that runs now; 0: none does. */
static double rate_of_its_like(const struct query *q, const struct job *j)
{
    for (size_t e = 0; e < q->s->execs.n; e++) {
        const struct job *o = idmap_get(&q->s->jobs.by_id, (uint64_t)q->s->execs.items[e]->job);
        double rate = o && o->model_id == j->model_id && o->is_batch == j->is_batch &&
                              o->step_samples == j->step_samples
                          ? steps_per_s(o, q->in.now_ns)
                          : 0;

        if (rate > 0)
            return rate;
    }
    return 0;
}

static int64_t duration_ns(const struct query *q, const struct job *j)
{
    int64_t own = job_least_left_ns(j), left = j->all_steps - j->progress.step, past;
    double rate;

    if (own > 0)
        return SH_MIN(own, FAR_NS);
    rate = left > 0 ? rate_of_its_like(q, j) : 0;
    if (rate > 0)
        return (int64_t)SH_MIN((double)left / rate * SECOND_NS, (double)FAR_NS);
    past = left > 0 ? past_ns(q, j, left) : UNKNOWN;
    return past != UNKNOWN ? past : q->typical_ns;
}

/* Jobs in their order, each to the executor that is free first. */
static void estimate_wait(struct query *q)
{
    size_t n_ahead = q->place - 1;

    q->wait_ns = UNKNOWN;
    for (size_t i = 0; q->place && i < q->place; i++) {
        const struct job *j = q->s->pass.job_of[q->order[i]];
        size_t best = 0;
        int64_t ns;

        for (size_t e = 1; e < q->in.n_execs; e++)
            if (q->free_at[e] < q->free_at[best])
                best = e;
        if (q->in.n_execs == 0 || q->free_at[best] == UNKNOWN)
            break;
        if (i + 1 == q->place)
            q->wait_ns = q->free_at[best];
        ns = duration_ns(q, j);
        q->free_at[best] = ns == UNKNOWN ? UNKNOWN : SH_MIN(q->free_at[best] + ns, FAR_NS);
    }
    if (!q->place)
        return;
    if (q->wait_ns == UNKNOWN)
        snprintf(q->basis, sizeof(q->basis),
                 "no estimate: a running job or a job ahead has no measured rate yet, and no "
                 "similar job has ended");
    else
        snprintf(q->basis, sizeof(q->basis),
                 "%s%s%s%s; assumes that no job is submitted, cancelled or preempted",
                 q->by_rates  ? "the measured steps per second of running jobs"
                 : q->by_past ? "the time that similar jobs took"
                              : "free executors",
                 q->by_rates && q->by_past ? ", or of similar jobs that have ended" : "",
                 n_ahead ? ", and for jobs ahead the time that they took before" : "",
                 n_ahead && q->typical_ns != UNKNOWN
                     ? ", the rate of similar jobs, or the time of other jobs"
                     : "");
}

/* ------------------------------------------------------------------ words */

/* Names those limits that stand in its way, as jobpool_decide.c looks at them. */
static void say_quota(const struct query *q, char *out, size_t size)
{
    const struct tenant *t = q->t;
    const struct {
        const char *name;
        bool counts;
        double most;
    } limits[] = {
        {"max_running_jobs", true, t->max_running_jobs},
        {"max_gpus", t->max_gpus >= 0, t->max_gpus},
        {"guaranteed_gpus (with over_quota_weight 0)", t->weight <= 0, t->guaranteed_gpus},
    };
    char hit[256] = "";
    size_t n = 0;

    for (size_t i = 0; i < SH_ARRAY_LEN(limits); i++)
        if (limits[i].counts && q->held >= limits[i].most)
            n += (size_t)snprintf(hit + n, sizeof(hit) - n, "%s%s: %.4g of %.4g in use",
                                  n ? ", " : "", limits[i].name, q->held, limits[i].most);
    snprintf(out, size,
             "Its tenant's quota is used up: %s. It starts when a job of the tenant ends or the "
             "quota is raised.",
             hit);
}

static void say_backoff(const struct query *q, char *out, size_t size)
{
    double left_s = (double)(q->j->not_before_ns - q->in.now_ns) / SECOND_NS;
    char why[201];

    sh_strlcpy(why, q->j->error, sizeof(why));
    snprintf(out, size,
             "Attempt %u failed a moment ago%s%s; the next of at most %u starts in %.0f s at the "
             "earliest.",
             q->j->attempt - 1, why[0] ? ": " : "", why, q->j->max_attempts, SH_MAX(left_s, 0.0));
}

static void say_memory(const struct query *q, char *out, size_t size)
{
    const uint64_t need = (q->j->need_bytes + MIB - 1) / MIB, may = q->t->memory.max_bytes;
    uint64_t most = 0;

    for (size_t e = 0; e < q->in.n_execs; e++)
        if (q->in.execs[e].up)
            most = SH_MAX(most, q->in.execs[e].pool_bytes);
    if (may && q->j->need_bytes > may)
        snprintf(out, size,
                 "It needs %" PRIu64 " MiB of device memory, and its tenant may have %" PRIu64
                 " MiB: have gpu_memory_max_bytes of the quota raised, or submit it with a smaller "
                 "batch. Waiting uses up no attempt.",
                 need, may / MIB);
    else
        snprintf(out, size,
                 "It needs %" PRIu64 " MiB of device memory, and the largest device that is "
                 "connected has %" PRIu64
                 " MiB: it waits for a larger one to come back; or submit it with a smaller batch.",
                 need, most / MIB);
}

/* Its model version is on no executor yet. */
static void say_loading(const struct query *q, char *out, size_t size)
{
    const struct model *m = models_find(&q->s->models, q->j->version_id);

    sh_strlcpy(out, "No executor has compiled the model version yet.", size);
    for (size_t e = 0; m && e < q->s->execs.n; e++)
        if (m->on[e].waits_for_room)
            snprintf(out, size,
                     "Its model version waits for host memory on %s, which idle versions of others "
                     "leave now.",
                     q->s->execs.items[e]->info.name);
}

static void say_waiting(const struct query *q, char *out, size_t size)
{
    static const char *const WORDS[DECIDE_N_REASONS] = {
        [DECIDE_NONE] = "An executor is free: it is about to start.",
        [DECIDE_TENANT_SUSPENDED] = "An admin has suspended the tenant; its jobs do not start.",
        [DECIDE_QUEUE_HELD] =
            "Its queue is held; its jobs do not start until the queue is reopened.",
        [DECIDE_NO_EXECUTOR] = "No executor is connected; it starts when one is.",
        [DECIDE_MIN_RUN] = "It may preempt a running job, and waits until the minimum run time of "
                           "that job is over.",
        [DECIDE_DATABASE_DOWN] =
            "The scheduler cannot reach its database; it starts no jobs until it can.",
        [DECIDE_GANG] = "A job of several GPUs goes first, and the free executors are kept for it: "
                        "this one would not be off them in time.",
        [DECIDE_TOO_FEW_GPUS] =
            "It asks for more GPUs than there are connected executors; it starts when more are "
            "connected.",
        [DECIDE_RESOURCES] = "It is next; every executor has a job, or is being freed.",
    };
    char late[128] = "";

    if (q->j->place.line_us > q->j->queued_us)
        snprintf(late, sizeof(late),
                 ", where it stands as if it had been queued %.0f s later, for "
                 "the device time that it takes",
                 (double)(q->j->place.line_us - q->j->queued_us) / 1e6);
    if (q->why == DECIDE_ARRAY_LIMIT)
        snprintf(out, size,
                 "Its array %" PRId64
                 " has as many jobs on executors as its max_parallel of %" PRIu32
                 " allows. One of them has to end.",
                 q->j->array_id, q->j->array_max);
    else if (q->why == DECIDE_NONE && !q->place)
        snprintf(out, size,
                 "Its last change is being stored; then it takes its place in the queue.");
    else if ((q->why == DECIDE_PRIORITY || q->why == DECIDE_ATTAINED) && q->place < 2)
        sh_strlcpy(out, WORDS[DECIDE_RESOURCES], size);
    else if (q->why == DECIDE_BACKOFF)
        say_backoff(q, out, size);
    else if (q->why == DECIDE_QUOTA_LIMIT)
        say_quota(q, out, size);
    else if (q->why == DECIDE_MODEL_LOADING)
        say_loading(q, out, size);
    else if (q->why == DECIDE_GPU_MEMORY)
        say_memory(q, out, size);
    else if (q->why == DECIDE_QUOTA_GUARANTEED)
        snprintf(out, size,
                 "It is not preemptible, and such jobs run only within the tenant's guarantee of "
                 "%.4g GPUs.",
                 q->t->guaranteed_gpus);
    else if (WORDS[q->why])
        sh_strlcpy(out, WORDS[q->why], size);
    else
        snprintf(
            out, size,
            "%zu job%s go%s first: of a tenant below its guarantee or with a smaller share, of "
            "higher priority, or before it in line%s.",
            q->place - 1, q->place == 2 ? "" : "s", q->place == 2 ? "es" : "", late);
}

/* As jobs_pool.c and jobpool.c count it. */
static int64_t min_run_ns(const struct query *q)
{
    int64_t own = SH_MIN(q->j->min_run_ns, SH_MS(q->s->conf->max_min_run_ms));

    return own > 0 ? own : q->in.min_run_ns;
}

/* "": it is not. */
static const char *preempted_by(const struct job *j)
{
    return j->state != JOB_PREEMPTED ? "" : j->is_held ? "ImagesFirst" : "Inference";
}

static void say_loss(const struct job *j, char *out, size_t size)
{
    const struct loss *l = &j->loss;
    const size_t n = strlen(out);

    if (j->preemptible && l->all_ns)
        snprintf(out + n, size - n,
                 " If it gave way, about %.1f s of GPU time would be lost: %.1f s to save it, %.1f "
                 "s to start it again, %.1f s of the step under way.",
                 (double)l->all_ns / SECOND_NS, (double)l->save_ns / SECOND_NS,
                 (double)l->resume_ns / SECOND_NS, (double)l->redo_ns / SECOND_NS);
}

static void say_running(const struct query *q, char *out, size_t size)
{
    const struct job *j = q->j;
    const struct tenant *t = q->t;
    double safe_s = (double)(min_run_ns(q) - (q->in.now_ns - j->since_ns)) / SECOND_NS;
    /* Who asks sees the state in its row, which may still be QUEUED. */
    int n = snprintf(out, size, "%sIt has priority %" PRId32 ", its queue's included. ",
                     j->state == JOB_STARTING     ? "It has an executor and starts now. "
                     : preempted_by(j)[0] == '\0' ? ""
                     : j->is_held ? "It is held off: the images that requests need are worth more "
                                    "than the memory of its step. It goes on when fewer are asked "
                                    "for, or for a short try within four minutes. "
                                  : "A request has the device; it goes on behind it. ",
                     j->priority);

    if (n < 0 || (size_t)n >= size)
        return;
    if (!j->preemptible)
        snprintf(out + n, size - (size_t)n,
                 "It is not preemptible: it keeps its executor until it ends, within the tenant's "
                 "guarantee of %.4g GPUs.",
                 t->guaranteed_gpus);
    else if (safe_s > 0)
        snprintf(out + n, size - (size_t)n,
                 "No other job can preempt it for the next %.0f s, its minimum run time.", safe_s);
    else
        snprintf(
            out + n, size - (size_t)n,
            "It may be preempted by a job of its tenant with a higher priority%s, by a tenant "
            "below its guarantee, or by one with a smaller share and fewer GPUs by its weight.",
            jobs__level(q->s, j) ? " or before it in line" : "");
    say_loss(j, out, size);
}

/* ------------------------------------------------------------------ the answer */

static json_t *exec_holder(struct query *q, const struct exec *e)
{
    const struct job *j = idmap_get(&q->s->jobs.by_id, (uint64_t)e->job);
    json_t *o = json_pack("{s:s}", "executor", e->info.name);
    int64_t left;

    if (!o || !j)
        return o;
    left = job_left_ns(q, j);
    if (j->tenant_id == q->j->tenant_id)
        json_object_set_new(o, "job", json_integer(j->id));
    json_object_set_new(o, "state", json_string(job_state_name(j->state)));
    json_object_set_new(o, "steps_left",
                        json_integer(SH_MAX(j->progress.steps - j->progress.step, 0)));
    json_object_set_new(o, "steps_per_s", json_real(steps_per_s(j, q->in.now_ns)));
    if (left != UNKNOWN)
        json_object_set_new(o, "left_ms", json_integer(left / SH_MS(1)));
    return o;
}

static json_t *job_factors(const struct query *q)
{
    const struct tenant *t = q->t;
    double usage_s = tenants_usage_ns(&q->s->tenants, t, q->in.now_ns) / SECOND_NS;
    int running = 0;

    for (size_t i = 0; i < q->s->jobs.n; i++)
        running += q->s->jobs.items[i]->tenant_id == t->id && q->s->jobs.items[i]->executor[0];
    return json_pack("{s:i, s:b, s:i, s:f, s:f, s:f, s:f, s:I}", "priority", (int)q->j->priority,
                     "preemptible", q->j->preemptible, "tenant_running_jobs", running,
                     "tenant_guaranteed_gpus", t->guaranteed_gpus, "tenant_weight", t->weight,
                     "tenant_usage_gpu_s", usage_s, "tenant_share_gpu_s",
                     t->weight > 0 ? usage_s / t->weight : 0, "min_run_ms",
                     (json_int_t)(min_run_ns(q) / SH_MS(1)));
}

/* Would it, by the estimate, not have ended when its deadline comes? */
static bool is_late(const struct query *q)
{
    return q->j->deadline_ns && q->wait_ns != UNKNOWN &&
           q->wait_ns + job_least_left_ns(q->j) > q->j->deadline_ns - q->in.now_ns;
}

static void say_late(const struct query *q, char *out, size_t size)
{
    double due_s = (double)(q->j->deadline_ns - q->in.now_ns) / SECOND_NS;
    size_t n = strlen(out);

    snprintf(
        out + n, size - n,
        " By the estimate it starts in %.0f s, too late to end by its deadline, which comes in "
        "%.0f s: then it expires. Give it a later deadline or a higher priority.",
        (double)q->wait_ns / SECOND_NS, SH_MAX(due_s, 0.0));
}

static int write_answer(struct query *q, json_t **out, struct sh_err *err)
{
    bool waits = q->j->state == JOB_QUEUED;
    json_t *o, *holders = json_array();
    char text[768];

    if (waits)
        say_waiting(q, text, sizeof(text));
    else
        say_running(q, text, sizeof(text));
    if (waits && is_late(q))
        say_late(q, text, sizeof(text));
    for (size_t e = 0; waits && e < q->s->execs.n; e++)
        if (q->s->execs.items[e]->session)
            json_array_append_new(holders, exec_holder(q, q->s->execs.items[e]));
    o = json_pack("{s:s, s:s, s:o, s:o}", "reason",
                  waits ? decide_reason_name(q->why) : preempted_by(q->j), "text", text,
                  "waits_for", holders, "factors", job_factors(q));
    if (!o)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an answer");
    if (waits && q->place) {
        json_object_set_new(o, "position", json_integer((json_int_t)q->place));
        json_object_set_new(o, "waiting", json_integer((json_int_t)q->n_order));
        json_object_set_new(o, "basis", json_string(q->basis));
    }
    if (!waits && q->j->preemptible && q->j->loss.all_ns)
        json_object_set_new(o, "loss_ms", json_integer(q->j->loss.all_ns / SH_MS(1)));
    if (waits && q->wait_ns != UNKNOWN)
        json_object_set_new(o, "estimated_wait_ms", json_integer(q->wait_ns / SH_MS(1)));
    *out = o;
    return SH_OK;
}

static int look_at_queue(struct query *q, struct sh_err *err)
{
    struct sched *s = q->s;
    struct decisions *out = &s->pass.out;
    int rc = pass_snapshot(s, &q->in, err);

    if (rc)
        return rc;
    q->order = calloc(q->in.n_jobs + 1, sizeof(*q->order));
    q->free_at = calloc(q->s->execs.n + 1, sizeof(*q->free_at));
    if (!q->order || !q->free_at)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an answer");
    rc = decide(&q->in, out, err); /* only looked at: the next pass acts */
    q->held = rc ? 0 : out->shares[q->t->snap].running;
    for (size_t i = 0; i < out->n && !rc; i++) {
        const struct decision *d = &out->items[i];

        if (d->kind == DECISION_WAIT && s->pass.job_of[d->job] == q->j)
            q->why = d->reason;
        q->held += d->kind == DECISION_START && q->in.jobs[d->job].tenant == q->t->snap;
    }
    if (!rc)
        rc = decide_order(&q->in, out, q->order, &q->n_order, err);
    for (size_t i = 0; i < q->n_order && !rc; i++)
        if (q->s->pass.job_of[q->order[i]] == q->j)
            q->place = i + 1;
    measure_rates(q);
    estimate_wait(q);
    return rc;
}

int explain_job(struct sched *s, int64_t job, json_t **out, struct sh_err *err)
{
    struct query q = {.s = s, .j = idmap_get(&s->jobs.by_id, (uint64_t)job), .wait_ns = UNKNOWN};
    int rc;

    *out = NULL;
    q.t = q.j ? tenants_by_id(&s->tenants, q.j->tenant_id) : NULL;
    rc = q.j ? limits_check(s, q.t != NULL, true, err) : SH_OK;
    if (!rc && !q.t)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "the scheduler does not know the job yet");
    if (!rc)
        rc = look_at_queue(&q, err);
    if (!rc)
        rc = write_answer(&q, out, err);
    free(q.order);
    free(q.free_at);
    return rc;
}
