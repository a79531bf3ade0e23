/* database_api.c - what APIs do to the database: submissions, wishes, versions, quotas. As the
 * statements of api/store/store_*.c; which wish is allowed when is api/spec/jobctl.c itself. */
#include "api/spec/jobctl.h"
#include "common/life.h"
#include "common/mem.h"
#include "tests/sim/database_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct flight { /* a call on its way; it is not freed: its process may be gone */
    struct sim_proc *proc;
    uint64_t generation;
    struct database_call *call;
    database_done_fn *done;
    void *arg;
    struct db *db;
    int64_t back_ns;
    int rc;
};

/* ------------------------------------------------------------------ jobs */

static bool waits(enum job_state s)
{
    return s == JOB_QUEUED || s == JOB_HELD || s == JOB_SUSPENDED;
}

static bool has_token(int64_t tenant_id, const char *token, int64_t *id_out)
{
    for (size_t i = 0; token[0] && i < database.n_jobs; i++) {
        if (database.jobs[i].tenant_id != tenant_id || strcmp(database.jobs[i].token, token) != 0)
            continue;
        *id_out = database.jobs[i].id;
        return true;
    }
    return false;
}

static int check_submit(const struct database_call *c, struct sh_err *err)
{
    const struct database_version *v = database__version(c->job.version_id);
    const struct database_tenant *t = database__tenant(c->job.tenant_id);
    size_t n = 0;

    for (size_t i = 0; i < database.n_jobs; i++)
        n += database.jobs[i].tenant_id == t->id && waits(database.jobs[i].state);
    if (n + c->n > t->quota.max_queued_jobs)
        return SH_FAIL(err, SH_E_QUOTA, "%zu jobs are queued", n);
    if (!t->is_active)
        return SH_FAIL(err, SH_E_FORBIDDEN, "the tenant is suspended");
    if (strcmp(v->state, "DELETED") == 0 || strcmp(v->state, "FAILED") == 0)
        return SH_FAIL(err, SH_E_CONFLICT, "the version is %s", v->state);
    return SH_OK;
}

static int submit(struct database_call *c, struct sh_err *err)
{
    int64_t array_id = 0;
    int rc;

    if (has_token(c->job.tenant_id, c->job.token, &c->first_id))
        return SH_OK; /* it was there already */
    rc = check_submit(c, err);
    if (rc)
        return rc;
    if (c->n > 1) {
        struct database_array *a = DATABASE_ADD(arrays);

        *a = (struct database_array){.id = (int64_t)database.n_arrays,
                                     .max_parallel = (uint32_t)c->number};
        array_id = a->id;
    }
    c->first_id = (int64_t)database.n_jobs + 1;
    for (size_t i = 0; i < c->n; i++) {
        struct database_job *j = DATABASE_ADD(jobs);

        *j = c->job;
        j->id = (int64_t)database.n_jobs;
        j->array_id = array_id;
        j->state = c->what && strcmp(c->what, "hold") == 0 ? JOB_HELD : JOB_QUEUED;
        j->created_ns = c->begun_ns; /* now() is when a transaction began */
        j->queued_us = c->begun_ns / 1000;
        if (i > 0)
            j->token[0] = '\0';
        database__job_new(j);
        database__event(j, j->state, "Submitted", 0);
        database.events[database.n_events - 1].is_new = true;
    }
    c->n_changed = c->n;
    return SH_OK;
}

static const struct jobctl_arrow *arrow_of(const struct jobctl *c, const struct database_job *j)
{
    char place[48];

    snprintf(place, sizeof(place), "%s%s", job_state_name(j->state),
             j->wish == JOB_WISH_SUSPEND   ? "+SUSPEND"
             : j->wish == JOB_WISH_REQUEUE ? "+REQUEUE"
                                           : "");
    for (size_t i = 0; i < c->n_arrows; i++)
        if (strcmp(c->arrows[i].from, place) == 0)
            return &c->arrows[i];
    return NULL;
}

static int control(struct database_call *call, struct sh_err *err)
{
    const struct jobctl *c = jobctl_find(call->what);
    struct database_job *j = database__job(call->id);
    const struct jobctl_arrow *a = j ? arrow_of(c, j) : NULL;
    struct database_job old;

    if (!a)
        return SH_OK; /* nothing that it can be done to */
    if (sim_now() < j->locked_ns)
        return SH_FAIL(err, SH_E_TIMEOUT, "the row of job %" PRId64 " is locked", j->id);
    old = *j;
    if (job_state_parse(a->to, &j->state, err))
        return SH_E_BUG;
    j->wish = strcmp(c->wish, "SUSPEND") == 0   ? JOB_WISH_SUSPEND
              : strcmp(c->wish, "REQUEUE") == 0 ? JOB_WISH_REQUEUE
                                                : JOB_WISH_NONE;
    j->save_asked += c->save;
    if (j->state != old.state) {
        sh_life_step(&JOB_LIFE, old.state, j->state, j->id);
        sh_strlcpy(j->reason, c->reason, sizeof(j->reason));
    }
    if (job_state_is_final(j->state))
        j->finished_ns = sim_now();
    call->n_changed = 1;
    database__job_changed(&old, j);
    database__event(j, old.state, c->reason, j->progress.step);
    return SH_OK;
}

static int patch(struct database_call *c, struct sh_err *err)
{
    struct database_job *j = database__job(c->id), old;

    if (!j || job_state_is_final(j->state))
        return SH_OK;
    if (sim_now() < j->locked_ns)
        return SH_FAIL(err, SH_E_TIMEOUT, "the row of job %" PRId64 " is locked", j->id);
    old = *j;
    if (c->is_deadline)
        j->deadline_ns = c->number ? sim_now() + c->number : 0;
    else
        j->priority = (int32_t)c->number;
    c->n_changed = 1;
    database__job_changed(&old, j);
    return SH_OK;
}

/* ------------------------------------------------------------------ versions */

static bool is_one_of(const char *state, const char *const *list)
{
    while (*list && strcmp(*list, state) != 0)
        list++;
    return *list != NULL;
}

static bool is_in_use(const struct database_version *v)
{
    for (size_t i = 0; i < database.n_jobs; i++)
        if (database.jobs[i].version_id == v->id && !job_state_is_final(database.jobs[i].state))
            return true;
    return false;
}

static int set_version(struct database_call *c, const char *to, const char *const *from)
{
    struct database_version *v = database__version(c->id);

    if (!v || !is_one_of(v->state, from))
        return SH_OK;
    database__set_version(v, to);
    c->n_changed = 1;
    return SH_OK;
}

static int pin(struct database_call *c)
{
    struct database_version *v = database__version(c->id);

    if (!v || (c->number && strcmp(v->state, "READY") != 0))
        return SH_OK;
    v->pinned = c->number != 0;
    database__changed("model", 0);
    c->n_changed = 1;
    return SH_OK;
}

static int versions(struct database_call *c, struct sh_err *err)
{
    static const char *const LOADED[] = {"REGISTERED", "LOADING", "READY", NULL},
                             *const AWAY[] = {"UNLOADING", "UNLOADED", "FAILED", NULL},
                             *const ANY[] = {"REGISTERED", "LOADING", "READY", "UNLOADING",
                                             "UNLOADED",   "FAILED",  NULL};
    const struct database_version *v =
        c->kind == DATABASE_REGISTER ? NULL : database__version(c->id);

    switch (c->kind) {
    case DATABASE_REGISTER:
        c->first_id = database_add_version(c->id, (uint32_t)c->number);
        database__changed("model", 0);
        sim_trace("version %" PRId64 " REGISTERED", c->first_id);
        return SH_OK;
    case DATABASE_UNLOAD:
        return v && !v->pinned ? set_version(c, "UNLOADING", LOADED) : SH_OK;
    case DATABASE_LOAD:
        return set_version(c, "REGISTERED", AWAY);
    case DATABASE_PIN:
        return pin(c);
    default:
        if (v && (v->pinned || is_in_use(v)))
            return SH_FAIL(err, SH_E_CONFLICT, "live jobs use version %" PRId64, c->id);
        return set_version(c, "DELETED", ANY);
    }
}

/* ------------------------------------------------------------------ tenants, queues, arrays */

static int others(struct database_call *c)
{
    switch (c->kind) {
    case DATABASE_QUOTA_PUT:
        database__tenant(c->id)->quota = c->quota;
        database__changed("tenant", 0);
        break;
    case DATABASE_TENANT:
        database__tenant(c->id)->is_active = c->number != 0;
        database__changed("tenant", 0);
        break;
    case DATABASE_QUEUE:
        database__queue(c->id)->is_held = c->number != 0;
        database__changed("queue", c->id);
        break;
    case DATABASE_NOTHING:
        return SH_OK;
    default:
        if (!database__array(c->id))
            return SH_OK;
        database__array(c->id)->max_parallel = (uint32_t)c->number;
        database__changed("array", c->id);
        break;
    }
    c->n_changed = 1;
    return SH_OK;
}

/* ------------------------------------------------------------------ the way there and back */

static int body(void *arg, struct sh_err *err)
{
    struct database_call *c = arg;
    int rc;

    c->n_changed = 0;
    switch (c->kind) {
    case DATABASE_SUBMIT:
        rc = submit(c, err);
        break;
    case DATABASE_CONTROL:
        rc = control(c, err);
        break;
    case DATABASE_PATCH:
        rc = patch(c, err);
        break;
    case DATABASE_REGISTER:
    case DATABASE_UNLOAD:
    case DATABASE_PIN:
    case DATABASE_LOAD:
    case DATABASE_DELETE:
        rc = versions(c, err);
        break;
    default:
        rc = others(c);
    }
    c->is_committed = rc == SH_OK;
    return rc;
}

static void on_answer(void *arg, uint64_t n)
{
    struct flight *f = arg;

    (void)n;
    f->done(f->arg, f->call, f->rc);
}

static void on_arrival(void *arg, uint64_t n)
{
    struct flight *f = arg;
    bool lives = sim_proc_generation(f->proc) == f->generation;

    (void)n;
    if (!lives && sim_chance(0.5)) { /* it died before it said COMMIT */
        database__hang_up(f->db);
        return;
    }
    f->rc = database__transact(f->db, NULL, body, f->call, NULL);
    if (lives)
        sim_after(f->proc, f->back_ns, on_answer, f, 0);
}

void database_call(struct sim_proc *p, struct database_call *c, database_done_fn *done, void *arg)
{
    struct flight *f = calloc(1, sizeof(*f));
    struct database_trip t;

    *f = (struct flight){
        .proc = p, .generation = sim_proc_generation(p), .call = c, .done = done, .arg = arg};
    c->is_committed = false;
    c->begun_ns = sim_now();
    if (db_new("", "", &f->db, NULL))
        sim_broken("memory", "there is none");
    t = database__send(f->db, true);
    f->back_ns = t.back_ns;
    sim_world_after(t.to_ns + c->open_ns, on_arrival, f, 0);
}

int database_now(struct database_call *c)
{
    int rc;

    c->begun_ns = sim_now();
    database__enter(database__xid());
    rc = body(c, NULL);
    database__leave(rc == SH_OK);
    return rc;
}
