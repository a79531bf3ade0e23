/* database_rest.c - scheduler/database/store.h: versions, executors, changes that were seen, usage,
 * and what people read. */
#include "common/mem.h"
#include "tests/sim/database_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ versions, executors */

static const char *const STATES[] = {"LOADING", "READY", "FAILED", "UNLOADED"};

static int set_state(void *arg, struct sh_err *err)
{
    struct store_model_state *m = arg;
    struct database_version *v = database__version(m->version_id);
    bool fresh = v && (strcmp(v->state, "REGISTERED") == 0 || strcmp(v->state, "LOADING") == 0);
    bool unloads = strcmp(m->state, "UNLOADED") == 0;

    (void)err;
    if (!v || (unloads ? strcmp(v->state, "UNLOADING") != 0 : !fresh))
        return SH_OK;
    for (size_t i = 0; i < SH_ARRAY_LEN(STATES); i++)
        if (strcmp(STATES[i], m->state) == 0)
            database__set_version(v, STATES[i]);
    if (m->image_bytes)
        v->image_bytes = m->image_bytes;
    if (m->profile)
        v->profile = strdup(m->profile);
    return SH_OK;
}

int store_model_set_state(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, &((struct store_model_state *)arg)->fence, set_state, arg, err);
}

void store_model_state_free(void *arg)
{
    struct store_model_state *m = arg;

    if (m)
        free(m->profile);
    free(m);
}

static int put_executor(void *arg, struct sh_err *err)
{
    const struct store_executor *e = arg;
    struct database_executor *x = NULL;

    (void)err;
    for (size_t i = 0; i < database.n_executors && !x; i++)
        if (strcmp(database.executors[i].name, e->name) == 0)
            x = &database.executors[i];
    if (!x)
        x = DATABASE_ADD(executors);
    *x = (struct database_executor){.up = e->up, .epoch = e->fence.epoch};
    sh_strlcpy(x->name, e->name, sizeof(x->name));
    return SH_OK;
}

int store_executor_put(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, &((struct store_executor *)arg)->fence, put_executor, arg, err);
}

/* ------------------------------------------------------------------ changes that were seen */

static int by_xid(const void *a, const void *b)
{
    const struct database_change *x = a, *y = b;

    return x->xid < y->xid ? -1 : x->xid > y->xid;
}

static int forget(void *arg, struct sh_err *err)
{
    struct store_forget *f = arg;
    size_t kept = 0;

    (void)err;
    f->n_rows = 0;
    f->last = 0;
    qsort(database.changes, database.n_changes, sizeof(database.changes[0]), by_xid);
    for (size_t i = 0; i < database.n_changes; i++) {
        const struct database_change *c = &database.changes[i];
        bool goes = c->xid >= f->from && c->xid < f->before && f->n_rows < f->batch;

        if (goes) {
            f->n_rows++;
            f->last = SH_MAX(f->last, c->xid);
        } else {
            database.changes[kept++] = *c;
        }
    }
    database.n_changes = kept;
    return SH_OK;
}

int store_changes_forget(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, &((struct store_forget *)arg)->fence, forget, arg, err);
}

/* ------------------------------------------------------------------ usage */

static struct database_usage *usage_of(int64_t tenant_id, int64_t model_id, bool is_training)
{
    struct database_usage *u;

    for (size_t i = 0; i < database.n_usage; i++) {
        u = &database.usage[i];
        if (u->tenant_id == tenant_id && u->model_id == model_id && u->is_training == is_training)
            return u;
    }
    u = DATABASE_ADD(usage);
    *u = (struct database_usage){
        .tenant_id = tenant_id, .model_id = model_id, .is_training = is_training};
    return u;
}

static void count_run(const struct msg_usage_row *r)
{
    const struct database_tenant *t = database__tenant_named(r->tenant);
    const struct database_version *v = database__version(r->id);
    struct database_usage *u;

    if (!t || !v)
        return;
    u = usage_of(t->id, v->model_id, false);
    u->gpu_ns += r->gpu_ns;
    u->requests += r->requests;
    u->samples += r->samples;
}

/* Of a job each step is counted once. */
static void count_job(const struct msg_usage_row *r)
{
    struct database_job *j = database__job(r->id);
    struct database_usage *u;

    if (!j)
        return;
    u = usage_of(j->tenant_id, database__version(j->version_id)->model_id, !j->is_batch);
    u->gpu_ns += r->gpu_ns;
    u->samples += SH_MAX(r->step - j->usage_step, 0) * r->samples;
    j->usage_step = SH_MAX(j->usage_step, r->step);
}

static int add_usage(void *arg, struct sh_err *err)
{
    const struct store_usage *u = arg;
    struct database_source *s = NULL;

    (void)err;
    for (size_t i = 0; i < database.n_sources && !s; i++)
        if (strcmp(database.sources[i].source, u->source) == 0)
            s = &database.sources[i];
    if (!s) {
        s = DATABASE_ADD(sources);
        sh_strlcpy(s->source, u->source, sizeof(s->source));
    } else if (s->number >= u->number) {
        return SH_OK; /* it was counted before */
    }
    s->number = u->number;
    for (size_t i = 0; i < u->n; i++) {
        if (u->rows[i].kind == MSG_USAGE_RUNS)
            count_run(&u->rows[i]);
        else
            count_job(&u->rows[i]);
    }
    sim_trace("usage %.8s number=%" PRId64 " rows=%zu", u->source, u->number, u->n);
    return SH_OK;
}

int store_usage_add(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, &((struct store_usage *)arg)->fence, add_usage, arg, err);
}

void store_usage_free(void *arg)
{
    struct store_usage *u = arg;

    if (u)
        free(u->rows);
    free(u);
}

/* ------------------------------------------------------------------ for people, and what is old */

static int nothing(void *arg, struct sh_err *err)
{
    (void)arg, (void)err;
    return SH_OK;
}

int store_report_put(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, &((struct store_report *)arg)->fence, nothing, arg, err);
}

void store_report_free(void *arg)
{
    struct store_report *r = arg;

    if (!r)
        return;
    free(r->resets);
    free(r->places);
    free(r->measured);
    free(r->execs);
    free(r);
}

int store_share_put(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, &((struct store_shares *)arg)->fence, nothing, arg, err);
}

/* A simulation is younger than what is kept. */
int store_sweep(struct db *db, void *arg, struct sh_err *err)
{
    struct store_sweep *x = arg;
    int rc = database__transact(db, &x->fence, nothing, arg, err);

    x->n_rows = 0;
    x->more = false;
    x->part = (struct store_part){.did = "done", .ahead_s = 86400};
    return rc;
}

const char *store_sweep_name(enum store_sweep_kind kind)
{
    (void)kind;
    return "sweep";
}

const char *store_sweep_parts(enum store_sweep_kind kind)
{
    return kind == SWEEP_EVENT_PARTS ? "job_event" : NULL;
}

/* ------------------------------------------------------------------ what jobs took */

static int by_end(const void *a, const void *b)
{
    const struct database_job *x = *(struct database_job *const *)a,
                              *y = *(struct database_job *const *)b;

    return x->finished_ns != y->finished_ns ? (x->finished_ns < y->finished_ns ? -1 : 1)
                                            : (x->id < y->id ? -1 : 1);
}

static struct past_job past_of(const struct database_job *j)
{
    const struct job_progress *p = &j->progress;
    int64_t done = p->step + p->redone;

    return (struct past_job){
        .like = {.model_id = database__version(j->version_id)->model_id,
                 .is_batch = j->is_batch,
                 .step_samples = j->step_samples},
        .steps = p->step,
        .busy_ns = done > 0 ? (int64_t)((double)p->busy_ns / (double)done * (double)p->step) : 0,
        .whole_ns = j->attempt <= 1 && j->base.busy_ns == 0 ? j->finished_ns - j->started_ns : 0};
}

static int read_past(void *arg, struct sh_err *err)
{
    struct store_past *p = arg;
    struct database_job **ended = calloc(database.n_jobs + 1, sizeof(*ended));
    size_t n = 0;

    (void)err;
    free(p->jobs);
    for (size_t i = 0; i < database.n_jobs; i++)
        if (database.jobs[i].finished_ns)
            ended[n++] = &database.jobs[i];
    qsort(ended, n, sizeof(ended[0]), by_end);
    p->jobs = calloc(n + 1, sizeof(*p->jobs));
    p->n = 0;
    for (size_t i = n > STORE_PAST_JOBS ? n - STORE_PAST_JOBS : 0; i < n; i++)
        if (ended[i]->state == JOB_SUCCEEDED)
            p->jobs[p->n++] = past_of(ended[i]);
    free(ended);
    return SH_OK;
}

int store_past_read(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, NULL, read_past, arg, err);
}

void store_past_free(void *arg)
{
    struct store_past *p = arg;

    if (p)
        free(p->jobs);
    free(p);
}
