/* exec_msgs.c - handles the messages of executors: hello, reports, end. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/models/homes.h"
#include "scheduler/peers/recent.h"
#include "scheduler/sched.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORGET_NS SH_S(3600) /* a slot may be taken over from one away for that long */

static void on_put(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    (void)arg;
    sched_op_ok(ctx, "executor.put", rc, err);
}

static void tell_db(struct sched *s, const struct exec *e, bool up)
{
    static const struct sched_op OP = {"executor.put", store_executor_put, on_put, free, 0};
    struct store_executor *row = malloc(sizeof(*row));
    struct sh_err err = {0};

    if (!row)
        return; /* for people to read only */
    *row = e->info;
    row->fence = sched_fence(s);
    row->up = up;
    sched_submit(s, &OP, row, &err);
}

/* Of an executor that nobody has seen for long and no job waits for; NULL: there is none. */
static struct exec *forgotten_slot(const struct execs *x)
{
    for (size_t i = 0; i < x->n; i++) {
        struct exec *e = x->items[i];

        if (!e->session && e->n_runs == 0 && e->job == 0 && sh_clock_ns() - e->lost_ns > FORGET_NS)
            return e;
    }
    return NULL;
}

/* Tables by executor grow as the list does. */
static int grow_by_exec(struct sched *s, struct sh_err *err)
{
    struct execs *x = &s->execs;
    const size_t cap = SH_MIN(SH_MAX(2 * x->cap, 16u), (size_t)s->conf->max_executors);
    int rc = models_grow(s, cap, err);

    return rc ? rc : sh_grow(&x->items, &x->cap, cap, sizeof(*x->items), cap, "executors", err);
}

static int take_slot(struct sched *s, struct exec **out, struct sh_err *err)
{
    struct execs *x = &s->execs;
    const bool is_full = x->n >= (size_t)s->conf->max_executors;
    int rc;

    *out = is_full ? forgotten_slot(x) : NULL;
    if (*out)
        return SH_OK;
    if (is_full)
        return SH_FAIL(err, SH_E_TOOBIG,
                       "the scheduler has %zu executors, as many as --max-executors allows", x->n);
    rc = x->n == x->cap ? grow_by_exec(s, err) : SH_OK;
    if (rc)
        return rc;
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an executor");
    (*out)->index = (uint32_t)x->n;
    x->items[x->n++] = *out;
    return SH_OK;
}

int execs_on_hello(struct sched *s, struct session *x, const struct msg_exec_hello *m,
                   struct sh_err *err)
{
    struct exec *e = execs_find(&s->execs, m->executor);
    int rc = SH_OK;

    if (!m->executor[0] || strlen(m->executor) >= sizeof(e->info.name))
        return SH_FAIL(err, SH_E_INVALID, "an executor's name has 1 to %zu characters",
                       sizeof(e->info.name) - 1);
    if (e && e->session && e->incarnation != m->incarnation)
        SH_WARN("executor.replaced", "executor=%s msg=\"another process has the same name\"",
                m->executor);
    if (e && e->session)
        session_end(e->session, "the executor connected again");
    if (!e)
        rc = take_slot(s, &e, err);
    if (rc)
        return rc;
    if (strcmp(e->info.name, m->executor) != 0) {
        rc = execs_rename(&s->execs, e, m->executor, err);
        if (rc)
            return rc;
        homes_exec_forget(s, e);
        *e = (struct exec){.index = e->index,
                           .info = e->info,
                           .slot = e->slot,
                           .next_changed = e->next_changed,
                           .is_changed = e->is_changed,
                           .snap = SNAP_NONE,
                           .ns_per_byte = FIRST_NS_PER_BYTE,
                           .stop_ns = FIRST_STOP_NS};
    }
    if (e->speed <= 0)
        e->speed = 1;
    e->lane_ns = 0;
    e->ahead = (struct exec_ahead){0};
    e->link = 0;
    e->synced = false;
    models_forget_exec(s, e->index); /* it reports what it holds before EXEC_SYNCED */
    sh_strlcpy(e->info.host_id, m->host_id, sizeof(e->info.host_id));
    sh_strlcpy(e->info.device, m->device, sizeof(e->info.device));
    sh_strlcpy(e->info.data_addr, m->data_addr, sizeof(e->info.data_addr));
    e->info.pool_bytes = m->pool_bytes;
    e->n_workers = m->n_workers;
    e->state = (struct exec_state){0};
    e->shown_ns = 0;
    e->incarnation = m->incarnation;
    e->session = x;
    e->serial = x->serial;
    e->memory_told = 0;
    e->leaving = 0;
    x->exec = e;
    exec_changed(&s->execs, e);
    SH_INFO("executor.up", "executor=%s device=%s pool_bytes=%llu workers=%u", e->info.name,
            e->info.device, (unsigned long long)e->info.pool_bytes, e->n_workers);
    tell_db(s, e, true);
    execs_tell_apis(s, e, true);
    jobs_on_exec_hello(s, e);
    return SH_OK;
}

void execs_on_close(struct sched *s, struct exec *e, const char *why)
{
    SH_WARN("executor.lost", "executor=%s why=\"%s\"", e->info.name, why);
    e->session = NULL;
    e->synced = false;
    e->lost_ns = sh_clock_ns();
    exec_changed(&s->execs, e);
    s->models.changed = true;
    tell_db(s, e, false);
    execs_tell_apis(s, e, false);
    models_on_exec_lost(s, e);
    requests_on_exec_lost(s, e);
    jobs_on_exec_lost(s, e);
    sched_wake(s);
    sched_wake_jobs(s);
}

/* Its runs and jobs come to their end there; what has not begun goes elsewhere. */
static void on_stopping(struct sched *s, struct exec *e)
{
    SH_INFO("executor.stopping", "executor=%s", e->info.name);
    s->models.changed = true;
    models_on_exec_lost(s, e);
    requests_on_exec_stopping(s, e);
    sched_wake_jobs(s);
}

static void on_state(struct sched *s, struct exec *e, const struct msg_exec_state *m)
{
    const bool was_stopping = e->state.is_stopping;
    const double link = m->link_bytes_per_s;

    e->most_workspace = SH_MAX(e->most_workspace, m->workspace); /* one run has memory at a time */
    e->state = (struct exec_state){.device_bytes = m->device_bytes,
                                   .weights = m->weights,
                                   .training = m->training,
                                   .workspace = m->workspace,
                                   .host_images = m->host_images,
                                   .host_programs = m->host_programs,
                                   .host_limit = m->host_limit,
                                   .link_bytes_per_s = m->link_bytes_per_s,
                                   .disk_bytes_per_s = m->disk_bytes_per_s,
                                   .fences = m->fences,
                                   .is_stopping = m->stopping != 0};
    if (link != e->link && isfinite(link) && link >= 1) { /* else runs have told more since */
        e->ns_per_byte = 1e9 / link;
        e->link = link;
    }
    homes_exec_changed(s, e);
    sh_strlcpy(e->state.device_name, m->device_name, sizeof(e->state.device_name));
    sh_strlcpy(e->state.fences_why, m->fences_why, sizeof(e->state.fences_why));
    if (e->state.is_stopping != was_stopping) {
        exec_changed(&s->execs, e);
        jobs_on_exec_stopping(s, e);
    }
    if (e->state.is_stopping && !was_stopping)
        on_stopping(s, e);
}

static void on_use(struct exec *e, const struct msg_exec_use *m)
{
    if (e->recent || recent_new(&e->recent, NULL) == SH_OK)
        recent_add(e->recent, m, sh_clock_wall_ms());
}

void execs_on_msg(struct sched *s, struct exec *e, const struct sh_msg *m)
{
    switch (m->type) {
    case MSG_EXEC_STATE:
        on_state(s, e, &m->u.exec_state);
        break;
    case MSG_EXEC_USE:
        on_use(e, &m->u.exec_use);
        break;
    case MSG_EXEC_WAIT:
        shapes_on_wait(s, e, &m->u.exec_wait);
        break;
    case MSG_EXEC_SYNCED:
        e->synced = s->models.changed = true;
        homes_exec_synced(s, e);
        exec_changed(&s->execs, e);
        SH_INFO("executor.synced", "executor=%s", e->info.name);
        exec_tell_memory(s, e); /* before the models that it bounds */
        jobs_on_exec_synced(s, e);
        models_load_missing(s);
        sched_wake(s);
        sched_wake_jobs(s);
        break;
    case MSG_MODEL_STATE:
        models_on_state(s, e, &m->u.model_state);
        break;
    case MSG_SHAPE_STATE:
        shapes_on_state(s, e, &m->u.shape_state);
        break;
    case MSG_MODEL_PLACE:
        models_on_place(s, e, &m->u.model_place);
        break;
    case MSG_RUN_DONE:
        requests_on_run_done(s, e, &m->u.run_done);
        break;
    case MSG_JOB_STATE:
        jobs_on_state(s, e, &m->u.job_state);
        break;
    case MSG_JOB_CHECKPOINT:
        jobs_on_checkpoint(s, e, &m->u.job_checkpoint);
        break;
    case MSG_JOB_EVALUATED:
        jobs_on_evaluated(s, e, &m->u.job_evaluated);
        break;
    case MSG_USAGE:
        usage_on_batch(s, e, &m->u.usage);
        break;
    case MSG_JOB_SAVED:
        jobs_on_saved(s, e, &m->u.job_saved);
        break;
    default:
        SH_ERROR("executor.message", "executor=%s type=%s msg=\"not for a scheduler\"",
                 e->info.name, sh_msg_name(m->type));
        session_end(e->session, "it sent a message that is not for a scheduler");
    }
}
