/* database_view.c - scheduler/database/store_view.h: what a look sees, and which changes are new to
 * it. */
#include "common/mem.h"
#include "tests/sim/database_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct db_res { /* texts that live as long as the look */
    char **texts;
    size_t n, cap;
};

struct ids { /* of jobs */
    int64_t *v;
    size_t n, cap;
};

static const char *keep(struct store_view *v, const char *text)
{
    struct db_res *r = v->res[0];

    if (!r)
        r = v->res[0] = calloc(1, sizeof(*r));
    sim_grow(&r->texts, &r->cap, r->n + 1, sizeof(*r->texts));
    return r->texts[r->n++] = strdup(text);
}

static void put(struct ids *l, int64_t id)
{
    sim_grow(&l->v, &l->cap, l->n + 1, sizeof(*l->v));
    l->v[l->n++] = id;
}

static int by_id(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static size_t distinct(struct ids *l)
{
    size_t n = 0;

    if (l->n)
        qsort(l->v, l->n, sizeof(l->v[0]), by_id);
    for (size_t i = 0; i < l->n; i++)
        if (i == 0 || l->v[i] != l->v[i - 1])
            l->v[n++] = l->v[i];
    return l->n = n;
}

/* ------------------------------------------------------------------ the snapshot */

static void see(struct db *db, struct store_view *v)
{
    char text[4096] = "{";
    size_t len = 1;

    v->now.xmax = database.last_done_xid + 1;
    v->now.xmin = v->now.xmax;
    for (size_t i = 0; i < database.n_open; i++) {
        v->now.xmin = SH_MIN(v->now.xmin, database.open[i]);
        if (database.open[i] < v->now.xmax && len < sizeof(text) - 32)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%" PRIu64,
                                    len > 1 ? "," : "", database.open[i]);
    }
    sh_strlcpy(text + len, "}", sizeof(text) - len);
    v->now.open = strdup(text);
    v->now.connection = db_generation(db);
    v->is_anew = v->before.open && v->before.connection != v->now.connection;
    v->full = v->full || v->is_anew;
}

static bool was_open(const struct store_seen *before, uint64_t xid)
{
    char *end = before->open + 1;

    while (*end && *end != '}') {
        if (strtoull(end, &end, 10) == xid)
            return true;
        end += *end == ',';
    }
    return false;
}

static bool is_new(const struct store_seen *before, const struct database_change *c)
{
    return c->xid >= before->xmax || was_open(before, c->xid);
}

static void take_change(struct store_view *v, const struct database_change *c, struct ids *told)
{
    if (strcmp(c->kind, "tenant") == 0) {
        v->with_tenants = v->with_models = true;
    } else if (strcmp(c->kind, "model") == 0) {
        v->with_models = true;
    } else if (strcmp(c->kind, "queue") == 0) {
        v->queues[v->n_queues++] = c->id;
    } else if (strcmp(c->kind, "version") == 0) {
        v->versions[v->n_versions++] = c->id;
    } else if (strcmp(c->kind, "array") == 0) {
        v->arrays[v->n_arrays++] = c->id;
    } else {
        if (c->was)
            v->counts[v->n_counts++] = (struct store_count){c->tenant_id, -1, c->was};
        if (c->now)
            v->counts[v->n_counts++] = (struct store_count){c->tenant_id, 1, c->now};
        put(told, c->id);
    }
}

static void load_changes(struct store_view *v, struct ids *told)
{
    size_t n = 0;

    for (size_t i = 0; i < database.n_changes; i++)
        n += is_new(&v->before, &database.changes[i]);
    v->is_anew = n > STORE_MAX_CHANGES;
    v->full = v->full || v->is_anew;
    if (v->is_anew)
        return;
    v->counts = calloc(2 * n + 1, sizeof(*v->counts));
    v->queues = calloc(n + 1, sizeof(*v->queues));
    v->versions = calloc(n + 1, sizeof(*v->versions));
    v->arrays = calloc(n + 1, sizeof(*v->arrays));
    for (size_t i = 0; i < database.n_changes; i++)
        if (is_new(&v->before, &database.changes[i]))
            take_change(v, &database.changes[i], told);
}

/* ------------------------------------------------------------------ lines */

static struct store_place place_of(const struct database_job *j)
{
    return (struct store_place){
        .line = {.tenant_id = j->tenant_id,
                 .queue_id = j->queue_id,
                 .version_id = j->version_id,
                 .array_id = j->array_id,
                 .gpus = 1,
                 .is_batch = j->is_batch,
                 .preemptible = j->preemptible},
        .place = {.priority = j->priority, .line_us = j->queued_us + j->handicap_us, .id = j->id}};
}

static int by_place(const void *a, const void *b)
{
    const struct store_place *x = a, *y = b;
    int c = line_key_cmp(&x->line, &y->line);

    return c ? c : line_place_cmp(&x->place, &y->place);
}

/* All that wait in lines, sorted. *n_out of them, OWNED. */
static struct store_place *in_lines(size_t *n_out)
{
    struct store_place *all = calloc(database.n_jobs + 1, sizeof(*all));
    size_t n = 0;

    for (size_t i = 0; i < database.n_jobs; i++) {
        const struct database_job *j = &database.jobs[i];

        if (j->state == JOB_QUEUED && !j->not_before_ns)
            all[n++] = place_of(j);
    }
    qsort(all, n, sizeof(all[0]), by_place);
    *n_out = n;
    return all;
}

static const struct store_place *asked_of(const struct store_view *v, const struct line_key *line)
{
    for (size_t i = 0; i < v->n_asked; i++)
        if (line_key_cmp(&v->asked[i].line, line) == 0)
            return &v->asked[i];
    return NULL;
}

static size_t window_of(const struct store_place *all, size_t n, size_t most)
{
    size_t n_lines = 0;

    for (size_t i = 0; i < n; i++)
        n_lines += i == 0 || line_key_cmp(&all[i].line, &all[i - 1].line) != 0;
    return SH_MAX((size_t)LINES_MIN_WINDOW,
                  SH_MIN((size_t)LINES_MAX_WINDOW, most / SH_MAX(n_lines, (size_t)1)));
}

static void load_places(struct store_view *v, struct ids *read)
{
    size_t n, held = 0;
    struct store_place *all = in_lines(&n);

    v->places = calloc(n + 1, sizeof(*v->places));
    if (v->full && n)
        v->window = window_of(all, n, v->most.lines);
    for (size_t i = 0; i < n; i++) {
        const struct store_place *asked = v->full ? NULL : asked_of(v, &all[i].line);

        if (i == 0 || line_key_cmp(&all[i].line, &all[i - 1].line) != 0)
            held = 0;
        if (!v->full && (!asked || line_place_cmp(&all[i].place, &asked->place) <= 0))
            continue;
        if (held++ >= v->window)
            continue;
        v->places[v->n_places++] = all[i];
        put(read, all[i].place.id);
    }
    free(all);
}

/* ------------------------------------------------------------------ jobs */

static bool is_due(const struct database_job *j)
{
    const struct job_progress *p = &j->progress;
    double left_s = 0;

    if (!j->deadline_ns ||
        (j->state != JOB_QUEUED && j->state != JOB_HELD && j->state != JOB_SUSPENDED))
        return false;
    if (j->started_ns && p->step + p->redone > 0 && p->steps > p->step)
        left_s =
            (double)p->busy_ns / 1e9 / (double)(p->step + p->redone) * (double)(p->steps - p->step);
    return (double)j->deadline_ns < (double)sim_now() + left_s * 1e9;
}

static double from_now(int64_t at_ns)
{
    return at_ns ? (double)(at_ns - sim_now()) / 1e9 : NAN;
}

static const char *wish_text(enum job_wish w)
{
    return w == JOB_WISH_SUSPEND ? "SUSPEND" : w == JOB_WISH_REQUEUE ? "REQUEUE" : "";
}

static struct store_job row_of(struct store_view *v, int64_t id)
{
    const struct database_job *j = database__job(id);
    const struct database_version *x = j ? database__version(j->version_id) : NULL;
    const struct database_queue *q = j ? database__queue(j->queue_id) : NULL;
    const struct database_array *a = j ? database__array(j->array_id) : NULL;
    struct store_place p;

    if (!j)
        return (struct store_job){.id = id, .gone = true};
    p = place_of(j);
    return (struct store_job){.id = id,
                              .line = p.line,
                              .place = p.place,
                              .model_id = x->model_id,
                              .tenant = database__tenant(j->tenant_id)->name,
                              .model = database__model(x->model_id)->name,
                              .state = job_state_name(j->state),
                              .queue_state = q->is_held ? "HELD" : "OPEN",
                              .version_state = x->state,
                              .executor = keep(v, j->executor),
                              .reason = keep(v, j->reason),
                              .wish = wish_text(j->wish),
                              .priority = j->priority + q->priority,
                              .queued_us = j->queued_us,
                              .min_runtime_ms = j->min_runtime_ms,
                              .save_asked = j->save_asked,
                              .save_done = j->save_done,
                              .deadline_s = from_now(j->deadline_ns),
                              .not_before_s = from_now(j->not_before_ns),
                              .attempt = j->attempt,
                              .max_attempts = j->max_attempts,
                              .progress = j->progress,
                              .base = j->base,
                              .publishes = j->publishes,
                              .array_max = a ? a->max_parallel : 0,
                              .step_samples = j->step_samples,
                              .all_steps = j->all_steps};
}

/* What executors have, and what waits for its next attempt; of all, those whose deadline is due. */
static void find_jobs(const struct store_view *v, struct ids *told, struct ids *read)
{
    for (size_t i = 0; i < database.n_jobs; i++) {
        const struct database_job *j = &database.jobs[i];

        if (v->full &&
            (job_state_has_executor(j->state) || (j->state == JOB_QUEUED && j->not_before_ns)))
            put(read, j->id);
        if (is_due(j))
            put(told, j->id);
    }
}

static void load_jobs(struct store_view *v)
{
    struct ids told = {0}, read = {0};

    for (size_t i = 0; i < v->n_doubtful; i++)
        put(&told, v->doubtful[i]);
    if (v->before.open && !v->is_anew)
        load_changes(v, &told);
    load_places(v, &read);
    find_jobs(v, &told, &read);
    v->jobs = calloc(distinct(&told) + distinct(&read) + 1, sizeof(*v->jobs));
    for (size_t i = 0; i < told.n; i++)
        v->jobs[v->n_jobs++] = row_of(v, told.v[i]);
    v->n_told = v->n_jobs;
    for (size_t i = 0; i < read.n; i++)
        v->jobs[v->n_jobs++] = row_of(v, read.v[i]);
    if (v->is_anew)
        v->n_told = v->n_jobs;
    free(told.v);
    free(read.v);
}

static void load_totals(struct store_view *v)
{
    v->totals = calloc(database.n_tenants * JOB_N_STATES + 1, sizeof(*v->totals));
    for (size_t t = 0; t < database.n_tenants; t++) {
        int64_t n[JOB_N_STATES] = {0};

        for (size_t i = 0; i < database.n_jobs; i++)
            if (database.jobs[i].tenant_id == database.tenants[t].id)
                n[database.jobs[i].state]++;
        for (int s = 0; s < JOB_N_STATES; s++)
            if (n[s] && !job_state_is_final((enum job_state)s))
                v->totals[v->n_totals++] = (struct store_count){database.tenants[t].id, n[s],
                                                                job_state_name((enum job_state)s)};
    }
}

/* ------------------------------------------------------------------ tenants, models, usage */

static double most_gpus(const struct database_quota *q)
{
    double borrowed = q->guaranteed_gpus + q->borrowing_limit;

    if (q->borrowing_limit < 0)
        return q->max_gpus;
    return q->max_gpus < 0 ? borrowed : SH_MIN(q->max_gpus, borrowed);
}

static void load_tenants(struct store_view *v)
{
    v->tenants = calloc(database.n_tenants + 1, sizeof(*v->tenants));
    for (size_t i = 0; i < database.n_tenants; i++) {
        const struct database_tenant *t = &database.tenants[i];
        const struct database_quota *q = &t->quota;

        v->tenants[v->n_tenants++] =
            (struct store_tenant){.id = t->id,
                                  .name = keep(v, t->name),
                                  .active = t->is_active,
                                  .guaranteed_gpus = q->guaranteed_gpus,
                                  .max_gpus = most_gpus(q),
                                  .weight = q->weight,
                                  .lending_limit = q->lending_limit,
                                  .max_running_jobs = q->max_running_jobs,
                                  .max_concurrent_requests = q->max_concurrent_requests,
                                  .memory = q->memory};
    }
}

static bool is_served(const struct database_version *v)
{
    return !database__model(v->model_id)->is_deleted &&
           (strcmp(v->state, "REGISTERED") == 0 || strcmp(v->state, "LOADING") == 0 ||
            strcmp(v->state, "READY") == 0 || strcmp(v->state, "UNLOADING") == 0);
}

static void load_models(struct store_view *v)
{
    v->models = calloc(database.n_versions + 1, sizeof(*v->models));
    for (size_t i = 0; i < database.n_versions; i++) {
        const struct database_version *x = &database.versions[i];
        const struct database_model *m = database__model(x->model_id);

        if (!is_served(x))
            continue;
        v->models[v->n_models++] =
            (struct store_model){.version_id = x->id,
                                 .model_id = m->id,
                                 .tenant_id = m->tenant_id,
                                 .tenant = keep(v, database__tenant(m->tenant_id)->name),
                                 .model = keep(v, m->name),
                                 .state = x->state,
                                 .package = keep(v, x->package),
                                 .precision = "fp32",
                                 .profile = x->profile ? keep(v, x->profile) : NULL,
                                 .version = x->version,
                                 .max_batch = x->max_batch,
                                 .image_bytes = x->image_bytes,
                                 .n_runs = x->n_runs,
                                 .slo_ms = m->slo_ms,
                                 .slo_percentile = 99,
                                 .on_miss = m->on_miss,
                                 .pinned = x->pinned};
    }
}

/* A simulation is short beside the half-life: all that was used counts. */
static void load_usage(struct store_view *v)
{
    v->usage_tenant = calloc(database.n_tenants + 1, sizeof(*v->usage_tenant));
    v->usage_ns = calloc(database.n_tenants + 1, sizeof(*v->usage_ns));
    for (size_t t = 0; t < database.n_tenants; t++) {
        double sum = 0;

        for (size_t i = 0; i < database.n_usage; i++)
            if (database.usage[i].tenant_id == database.tenants[t].id)
                sum += (double)database.usage[i].gpu_ns;
        if (sum > 0) {
            v->usage_tenant[v->n_usage] = database.tenants[t].id;
            v->usage_ns[v->n_usage++] = sum;
        }
    }
}

/* ------------------------------------------------------------------ the look */

static void clear_out(struct store_view *v)
{
    struct db_res *r = v->res[0];

    for (size_t i = 0; r && i < r->n; i++)
        free(r->texts[i]);
    if (r)
        free(r->texts);
    free(r);
    store_seen_free(&v->now);
    free(v->tenants);
    free(v->models);
    free(v->queues);
    free(v->versions);
    free(v->arrays);
    free(v->jobs);
    free(v->places);
    free(v->counts);
    free(v->totals);
    free(v->usage_tenant);
    free(v->usage_ns);
}

struct look {
    struct db *db;
    struct store_view *v;
};

static int look(void *arg, struct sh_err *err)
{
    struct look *l = arg;
    struct store_view *v = l->v;

    (void)err;
    v->full = v->full || !v->before.open;
    see(l->db, v);
    load_jobs(v);
    if (v->full)
        load_totals(v);
    v->with_tenants = v->with_tenants || v->full;
    v->with_models = v->with_models || v->full;
    if (v->with_tenants)
        load_tenants(v);
    if (v->with_models)
        load_models(v);
    if (v->with_usage)
        load_usage(v);
    return SH_OK;
}

int store_view_load(struct db *db, void *arg, struct sh_err *err)
{
    struct look l = {db, arg};

    return database__transact(db, &l.v->fence, look, &l, err);
}

void store_seen_free(struct store_seen *s)
{
    free(s->open);
    *s = (struct store_seen){0};
}

void store_view_free(void *arg)
{
    struct store_view *v = arg;

    if (!v)
        return;
    clear_out(v);
    store_seen_free(&v->before);
    free(v->doubtful);
    free(v->asked);
    free(v);
}
