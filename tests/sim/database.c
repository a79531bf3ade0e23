/* database.c - rows, transactions, and what triggers do. See database.h. */
#include "tests/sim/database.h"

#include "common/mem.h"
#include "tests/sim/database_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_XID 700
#define SAMPLE_BYTES 32

struct database database;
void (*database_upload)(struct database_version *v);
static uint64_t entered; /* the transaction whose body runs; 0: none */

const struct database_quota DATABASE_QUOTA = {.max_gpus = -1,
                                              .weight = 1,
                                              .borrowing_limit = -1,
                                              .lending_limit = -1,
                                              .max_running_jobs = 16,
                                              .max_queued_jobs = 1000,
                                              .max_concurrent_requests = 256,
                                              .memory = {.share = 1}};

void database_begin(void)
{
    database = (struct database){
        .next_xid = FIRST_XID, .last_done_xid = FIRST_XID - 1, .last_logged_xid = FIRST_XID - 1};
    database_heal();
    database_add_queue(0);
}

/* ------------------------------------------------------------------ rows by id */

#define BY_ID(type, name, table)                                                            \
    struct database_##type *database__##type(int64_t id)                                    \
    {                                                                                       \
        return id > 0 && (size_t)id <= database.n_##table ? &database.table[id - 1] : NULL; \
    }
BY_ID(tenant, tenant, tenants)
BY_ID(queue, queue, queues)
BY_ID(model, model, models)
BY_ID(version, version, versions)
BY_ID(array, array, arrays)
BY_ID(job, job, jobs)
#undef BY_ID

struct database_tenant *database__tenant_named(const char *name)
{
    for (size_t i = 0; i < database.n_tenants; i++)
        if (strcmp(database.tenants[i].name, name) == 0)
            return &database.tenants[i];
    return NULL;
}

int64_t database_add_tenant(const char *name, const struct database_quota *q)
{
    struct database_tenant *t = DATABASE_ADD(tenants);

    *t =
        (struct database_tenant){.id = (int64_t)database.n_tenants, .is_active = true, .quota = *q};
    sh_strlcpy(t->name, name, sizeof(t->name));
    return t->id;
}

int64_t database_add_queue(int32_t priority)
{
    struct database_queue *q = DATABASE_ADD(queues);

    *q = (struct database_queue){.id = (int64_t)database.n_queues, .priority = priority};
    return q->id;
}

int64_t database_add_model(int64_t tenant_id, const char *name, double slo_ms, const char *on_miss)
{
    struct database_model *m = DATABASE_ADD(models);

    *m = (struct database_model){.id = (int64_t)database.n_models,
                                 .tenant_id = tenant_id,
                                 .slo_ms = slo_ms,
                                 .on_miss = on_miss,
                                 .in_bytes = SAMPLE_BYTES,
                                 .out_bytes = SAMPLE_BYTES,
                                 .trains = true};
    sh_strlcpy(m->name, name, sizeof(m->name));
    return m->id;
}

struct database_version *database__new_version(struct database_model *m, uint32_t max_batch)
{
    struct database_version *v;
    uint32_t last = 0;

    for (size_t i = 0; i < database.n_versions; i++)
        if (database.versions[i].model_id == m->id)
            last = SH_MAX(last, database.versions[i].version);
    v = DATABASE_ADD(versions);
    *v = (struct database_version){.id = (int64_t)database.n_versions,
                                   .model_id = m->id,
                                   .tenant_id = m->tenant_id,
                                   .version = last + 1,
                                   .max_batch = max_batch,
                                   .state = "REGISTERED"};
    v->content = (struct sim_package){.tenant = (unsigned)m->tenant_id, .id = (unsigned)v->id};
    v->content.own_size = m->own_size;
    sh_strlcpy(v->content.model, m->profile, sizeof(v->content.model));
    snprintf(v->package, sizeof(v->package), "packages/%064" PRIx64, (uint64_t)v->id);
    return v;
}

int64_t database_add_version(int64_t model_id, uint32_t max_batch)
{
    struct database_version *v = database__new_version(database__model(model_id), max_batch);

    if (database_upload)
        database_upload(v);
    return v->id;
}

/* ------------------------------------------------------------------ transactions */

uint64_t database__xid(void)
{
    uint64_t xid = database.next_xid++;

    *(uint64_t *)DATABASE_ADD(open) = xid;
    return xid;
}

static void close_xid(uint64_t xid)
{
    for (size_t i = 0; i < database.n_open; i++) {
        if (database.open[i] != xid)
            continue;
        memmove(&database.open[i], &database.open[i + 1],
                (database.n_open - i - 1) * sizeof(database.open[0]));
        database.n_open--;
        database.last_done_xid = SH_MAX(database.last_done_xid, xid);
        return;
    }
}

void database__enter(uint64_t xid)
{
    SIM_CHECK("simulator", !entered, "transactions do not nest");
    entered = xid;
}

void database__leave(bool is_committed)
{
    close_xid(entered);
    if (is_committed)
        database.last_logged_xid = SH_MAX(database.last_logged_xid, entered);
    entered = 0;
}

void database__abort(uint64_t xid)
{
    close_xid(xid);
}

/* ------------------------------------------------------------------ triggers */

static struct database_change *add_change(const char *kind, int64_t id)
{
    struct database_change *c;

    SIM_CHECK("simulator", entered, "%s %" PRId64 " is changed outside of a transaction", kind, id);
    c = DATABASE_ADD(changes);
    *c = (struct database_change){.xid = entered, .kind = kind, .id = id};
    return c;
}

void database__changed(const char *kind, int64_t id)
{
    add_change(kind, id);
}

void database__job_new(struct database_job *j)
{
    struct database_change *c = add_change("job", j->id);

    c->tenant_id = j->tenant_id;
    c->now = job_state_name(j->state);
}

/* Progress, losses and reasons are not what the scheduler reads. */
static bool is_hot(const struct database_job *a, const struct database_job *b)
{
    return a->state != b->state || a->queue_id != b->queue_id || a->priority != b->priority ||
           a->attempt != b->attempt || a->max_attempts != b->max_attempts ||
           strcmp(a->executor, b->executor) != 0 || a->wish != b->wish ||
           a->save_asked != b->save_asked || a->save_done != b->save_done ||
           a->deadline_ns != b->deadline_ns || a->min_runtime_ms != b->min_runtime_ms ||
           a->preemptible != b->preemptible || a->not_before_ns != b->not_before_ns ||
           a->queued_us != b->queued_us || a->handicap_us != b->handicap_us;
}

void database__job_changed(const struct database_job *old, const struct database_job *now)
{
    struct database_change *c;

    SIM_CHECK("final-stays", !job_state_is_final(old->state) || now->state == old->state,
              "job %" PRId64 " is %s and becomes %s", now->id, job_state_name(old->state),
              job_state_name(now->state));
    SIM_CHECK("finished", (now->finished_ns != 0) == job_state_is_final(now->state),
              "job %" PRId64 " is %s, and finished_at says otherwise", now->id,
              job_state_name(now->state));
    if (!is_hot(old, now))
        return;
    c = add_change("job", now->id);
    c->tenant_id = now->tenant_id;
    c->was = job_state_name(old->state);
    c->now = job_state_name(now->state);
}

void database__set_version(struct database_version *v, const char *state)
{
    if (strcmp(v->state, state) != 0)
        database__changed("version", v->id);
    database__changed("model", 0);
    v->state = state;
    sim_trace("version %" PRId64 " %s", v->id, state);
}

void database__event(const struct database_job *j, enum job_state from, const char *reason,
                     int64_t step)
{
    struct database_event *e = DATABASE_ADD(events);

    *e = (struct database_event){.job = j->id,
                                 .at_ns = sim_now(),
                                 .step = step,
                                 .from = from,
                                 .to = j->state,
                                 .attempt = j->attempt,
                                 .epoch = j->epoch};
    sh_strlcpy(e->reason, reason, sizeof(e->reason));
    sh_strlcpy(e->executor, j->executor, sizeof(e->executor));
    sim_trace("job %" PRId64 " %s -> %s %s step=%" PRId64 " on=%s", j->id, job_state_name(from),
              job_state_name(j->state), reason, step, j->executor);
}
