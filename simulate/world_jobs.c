/* world_jobs.c - see world.h: jobs, those that live and those that are to come again. */
#include "common/field.h"
#include "common/job.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/units.h"
#include "simulate/world.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct row { /* a job as the snapshot has it; times are ages in seconds, NaN: there is none */
    const char *tenant, *state, *queue, *gpu;
    int64_t id, model, version, priority, array, max_parallel, min_runtime_ms, gpus;
    int64_t step, steps, step_samples, redone;
    double created_s, queued_s, since_s, started_s, finished_s, wait_s, busy_s;
    bool queue_open, is_batch, preemptible, ready, one_start;

    uint32_t tenant_i, gpu_i;
    double step_s, start_s; /* how long: a step; all before and after the steps */
    bool is_guessed;
};

struct part { /* a job that takes part: one that lives, or one that comes again */
    const struct row *row;
    double at_s; /* since when it waits, after the snapshot; < 0: before it */
    bool comes;
};

struct reading {
    struct world *w;
    struct row *rows; /* OWNED */
    size_t n;
    struct part *parts; /* OWNED */
    size_t n_parts;
    struct trace_names lines, gpus;
    double window_s;
};

/* A time without end is a long one, of which sums still fit. */
static int64_t ns_of(double s)
{
    return (int64_t)(SH_MAX(SH_MIN(s, WORLD_MAX_S), -WORLD_MAX_S) * 1e9);
}

/* Work is never nothing. */
static int64_t work_ns(double s)
{
    return ns_of(SH_MAX(s, 1e-3));
}

static bool is_in_states(const char *states, const char *state)
{
    return sh_words_have(states, state);
}

static bool is_job_live(const struct row *r)
{
    return is_in_states(SH_JOB_LIVE(SH_JOB_TEXT, ","), r->state);
}

static bool is_on_executor(const struct row *r)
{
    return is_in_states(SH_JOB_ON_EXECUTOR(SH_JOB_TEXT, ","), r->state);
}

static int read_job_row(const json_t *obj, struct row *r, struct sh_err *err)
{
    const double most_s = 1e10;
    const struct sh_json_field f[] = {
        {"id", SH_JSON_INT, &r->id, .required = true, .max = 9e15},
        {"tenant", SH_JSON_STR, &r->tenant, .required = true},
        {"state", SH_JSON_STR, &r->state, .required = true},
        {"queue", SH_JSON_STR, &r->queue, .required = true},
        {"queue_open", SH_JSON_BOOL, &r->queue_open},
        {"gpu", SH_JSON_STR, &r->gpu},
        {"model", SH_JSON_INT, &r->model, .required = true, .max = 9e15},
        {"version", SH_JSON_INT, &r->version, .required = true, .max = 9e15},
        {"ready", SH_JSON_BOOL, &r->ready},
        {"batch_inference", SH_JSON_BOOL, &r->is_batch},
        {"preemptible", SH_JSON_BOOL, &r->preemptible},
        {"gpus", SH_JSON_INT, &r->gpus, .min = 1, .max = SH_JOB_MOST_GPUS},
        {"priority", SH_JSON_INT, &r->priority, .min = -1e6, .max = 1e6},
        {"array", SH_JSON_INT, &r->array, .max = 9e15},
        {"max_parallel", SH_JSON_INT, &r->max_parallel, .max = 1e9},
        {"min_runtime_ms", SH_JSON_INT, &r->min_runtime_ms, .max = 1e9},
        {"step", SH_JSON_INT, &r->step, .max = 9e15},
        {"steps", SH_JSON_INT, &r->steps, .max = 9e15},
        {"step_samples", SH_JSON_INT, &r->step_samples, .max = 9e15},
        {"steps_redone", SH_JSON_INT, &r->redone, .max = 9e15},
        {"busy_s", SH_JSON_F64, &r->busy_s, .max = most_s},
        {"created_s", SH_JSON_F64, &r->created_s, .min = -most_s, .max = most_s},
        {"queued_s", SH_JSON_F64, &r->queued_s, .min = -most_s, .max = most_s},
        {"since_s", SH_JSON_F64, &r->since_s, .min = -most_s, .max = most_s},
        {"started_s", SH_JSON_F64, &r->started_s, .min = -most_s, .max = most_s},
        {"finished_s", SH_JSON_F64, &r->finished_s, .min = -most_s, .max = most_s},
        {"wait_s", SH_JSON_F64, &r->wait_s, .max = most_s},
        {"one_start", SH_JSON_BOOL, &r->one_start},
    };

    *r = (struct row){.queue_open = true,
                      .preemptible = true,
                      .gpus = 1,
                      .ready = true,
                      .step_samples = 1,
                      .created_s = INFINITY,
                      .since_s = NAN,
                      .started_s = NAN,
                      .finished_s = NAN};
    return sh_json_read(obj, "job", f, SH_ARRAY_LEN(f), err);
}

/* ------------------------------------------------------------------ how long jobs take */

static struct past_like like_of(const struct row *r)
{
    return (struct past_like){
        .model_id = r->model, .step_samples = r->step_samples, .is_batch = r->is_batch};
}

static int by_end(const void *a, const void *b)
{
    const double x = (*(const struct row *const *)a)->finished_s;
    const double y = (*(const struct row *const *)b)->finished_s;

    return (x < y) - (x > y); /* ages: the oldest first */
}

/* As a new leader does with the jobs that ended (scheduler/database/store_past.c). */
static int learn_from_past(struct reading *x, struct sh_err *err)
{
    const struct row **ended = calloc(x->n + 1, sizeof(struct row *));
    size_t n = 0;

    if (!ended)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", x->n);
    for (size_t i = 0; i < x->n; i++)
        if (strcmp(x->rows[i].state, "SUCCEEDED") == 0 && !isnan(x->rows[i].finished_s))
            ended[n++] = &x->rows[i];
    qsort(ended, n, sizeof(struct row *), by_end);
    for (size_t i = 0; i < n; i++) {
        const struct row *r = ended[i];
        const struct past_like like = like_of(r);
        const double done = (double)(r->step + r->redone);
        const double busy_s = done > 0 ? r->busy_s / done * (double)r->step : 0;

        past_add(&x->w->past, &like, r->step, ns_of(busy_s),
                 r->one_start && !isnan(r->started_s) ? ns_of(r->started_s - r->finished_s) : 0);
    }
    free(ended);
    return SH_OK;
}

static void estimate_job(struct reading *x, struct row *r)
{
    const struct past_like like = like_of(r);
    const int64_t steps = SH_MAX(r->steps, r->step), done = r->step + r->redone;
    const double start_s = (double)past_expect_ns(&x->w->past, &like, 0) / 1e9;
    const double all_s = (double)past_expect_ns(&x->w->past, &like, steps) / 1e9;

    r->start_s = start_s;
    r->steps = SH_MAX(steps, INT64_C(1));
    if (done > 0 && r->busy_s > 0) {
        r->step_s = r->busy_s / (double)done;
        return;
    }
    if (all_s > 0) {
        r->step_s = (all_s - start_s) / (double)r->steps;
        return;
    }
    r->is_guessed = true;
    r->step_s =
        (x->w->past.whole_ns > 0 ? x->w->past.whole_ns / 1e9 : WORLD_GUESS_S) / (double)r->steps;
}

/* ------------------------------------------------------------------ what takes part */

static void add_job_part(struct reading *x, const struct row *r, bool comes)
{
    const double at_s = comes ? x->window_s - r->created_s : -r->queued_s;

    x->parts[x->n_parts++] = (struct part){.row = r, .at_s = at_s, .comes = comes};
    x->w->guessed += r->is_guessed;
}

/* Those that wait or run; those that came in the last hours and were not given up come again. */
static int choose_jobs(struct reading *x, struct sh_err *err)
{
    x->parts = calloc(2 * x->n + 1, sizeof(*x->parts));
    if (!x->parts)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", x->n);
    for (size_t i = 0; i < x->n; i++) {
        const struct row *r = &x->rows[i];

        if (is_on_executor(r) || strcmp(r->state, "QUEUED") == 0)
            add_job_part(x, r, false);
        if (r->created_s < x->window_s && (is_job_live(r) || strcmp(r->state, "SUCCEEDED") == 0))
            add_job_part(x, r, true);
    }
    return SH_OK;
}

static int by_row_place(const void *a, const void *b)
{
    const struct part *x = a, *y = b;

    if (x->row->priority != y->row->priority)
        return x->row->priority > y->row->priority ? -1 : 1;
    if (x->at_s != y->at_s)
        return x->at_s < y->at_s ? -1 : 1;
    if (x->comes != y->comes)
        return x->comes ? 1 : -1;
    return (x->row->id > y->row->id) - (x->row->id < y->row->id);
}

/* Jobs of a line are alike in all that could hold one back and not another (lines.h). */
static int row_line(struct reading *x, const struct row *r, uint32_t *out, struct sh_err *err)
{
    char key[512];

    snprintf(key, sizeof(key), "%u/%s/%" PRId64 "/%d/%d/%" PRId64 "/%" PRId64 "/%d", r->tenant_i,
             r->queue, r->version, r->is_batch, r->preemptible, r->gpus, r->array, r->queue_open);
    return trace__name(&x->lines, key, out, err);
}

/* What is left of one that runs. One whose executor is not there waits again, as one of several
 * GPUs does: a snapshot names one of them. */
static void set_run(struct reading *x, const struct row *r, bool *is_taken, struct trace_job *of,
                    struct job_more *more)
{
    const double left_s = r->step_s * (double)(r->steps - r->step);
    const double had_s = isnan(r->since_s) ? 0 : SH_MAX(r->since_s, 0.0);
    const bool ends = is_in_states("COMPLETING,CANCELLING", r->state);
    const double rest_s = ends ? (double)x->w->stop_ns / 1e9
                               : left_s + (r->step ? 0 : SH_MAX(r->start_s - had_s, 0.0));

    more->gpu = SIM_NONE;
    if (r->gpu_i == SIM_NONE || is_taken[r->gpu_i] || r->gpus > 1) {
        of->run_ns = work_ns(left_s);
        return;
    }
    is_taken[r->gpu_i] = true;
    more->gpu = r->gpu_i;
    more->since_ns = -ns_of(had_s);
    more->had_ns = SH_MAX(more->had_ns + more->since_ns + more->start_ns, INT64_C(0));
    of->run_ns = SH_MAX(ns_of(had_s) + ns_of(rest_s) - more->start_ns, SH_MS(1));
}

static int add_world_job(struct reading *x, const struct part *p, bool *is_taken,
                         struct sh_err *err)
{
    const struct row *r = p->row;
    struct world *w = x->w;
    const size_t i = w->jobs.n++;
    struct trace_job *of = &w->jobs.items[i];
    struct job_more *more = &w->more[i];

    *of = (struct trace_job){.gpus = (uint32_t)r->gpus,
                             .tenant = r->tenant_i,
                             .at_ns = ns_of(SH_MAX(p->at_s, 0.0)),
                             .run_ns = work_ns(r->step_s * (double)r->steps)};
    *more = (struct job_more){
        .queued_us = (int64_t)(p->at_s * 1e6),
        .is = {.priority = (int32_t)r->priority,
               .queue_open = r->queue_open,
               .model_ready = r->ready,
               .not_before_ns = ns_of(r->wait_s),
               .min_run_ns = SH_MIN(SH_MS(r->min_runtime_ms), SH_MS(w->options.max_min_run_ms)),
               .is_fixed = !r->preemptible,
               .array_max = (uint32_t)r->max_parallel},
        .array = r->max_parallel ? (uint32_t)(r->array % UINT32_MAX) + 1 : 0,
        .had_ns = p->comes ? 0 : ns_of(r->busy_s),
        .gpu = SIM_NONE,
        .start_ns = ns_of(r->start_s)};
    if (!p->comes && is_on_executor(r))
        set_run(x, r, is_taken, of, more);
    else if (!p->comes)
        of->run_ns = work_ns(r->step_s * (double)(r->steps - r->step));
    return row_line(x, r, &more->line, err);
}

/* ------------------------------------------------------------------ all */

static int find_row_names(struct reading *x, struct sh_err *err)
{
    const size_t n_tenants = x->w->tenants.n;
    int rc = SH_OK;

    for (size_t i = 0; i < x->w->n_gpus && !rc; i++) {
        uint32_t at;

        rc = trace__name(&x->gpus, x->w->gpus[i].name, &at, err);
        if (!rc && at != i)
            rc = SH_FAIL(err, SH_E_INVALID, "GPU \"%s\" is there twice", x->w->gpus[i].name);
    }
    for (size_t i = 0; i < x->n && !rc; i++) {
        struct row *r = &x->rows[i];

        r->gpu_i = SIM_NONE;
        rc = trace__name(&x->w->tenants, r->tenant, &r->tenant_i, err);
        if (!rc && r->tenant_i >= n_tenants)
            rc = SH_FAIL(err, SH_E_INVALID, "job %" PRId64 " is of no tenant of the snapshot: %s",
                         r->id, r->tenant);
        if (!rc && r->gpu)
            rc = trace__name(&x->gpus, r->gpu, &r->gpu_i, err);
        if (!rc && r->gpu_i != SIM_NONE && r->gpu_i >= x->w->n_gpus)
            r->gpu_i = SIM_NONE;
    }
    return rc;
}

static int take_job_parts(struct reading *x, struct sh_err *err)
{
    struct world *w = x->w;
    const size_t n = x->n_parts;
    bool *is_taken = calloc(w->n_gpus + 1, sizeof(*is_taken));
    int rc = SH_OK;

    w->jobs.items = calloc(n + 1, sizeof(*w->jobs.items));
    w->more = calloc(n + 1, sizeof(*w->more));
    if (!is_taken || !w->jobs.items || !w->more)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", n);
    if (!rc && n)
        qsort(x->parts, n, sizeof(*x->parts), by_row_place);
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_world_job(x, &x->parts[i], is_taken, err);
    w->jobs.tenants.n = w->tenants.n;
    w->n_lines = x->lines.n;
    free(is_taken);
    return rc;
}

int world__jobs(const json_t *rows, double hours, struct world *w, struct sh_err *err)
{
    struct reading x = {.w = w, .n = json_array_size(rows), .window_s = hours * 3600};
    int rc = SH_OK;

    x.rows = calloc(x.n + 1, sizeof(*x.rows));
    if (!x.rows)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", x.n);
    for (size_t i = 0; i < x.n && !rc; i++)
        rc = read_job_row(json_array_get(rows, i), &x.rows[i], err);
    if (!rc)
        rc = find_row_names(&x, err);
    if (!rc)
        rc = learn_from_past(&x, err);
    for (size_t i = 0; i < x.n && !rc; i++)
        estimate_job(&x, &x.rows[i]);
    if (!rc)
        rc = choose_jobs(&x, err);
    if (!rc)
        rc = take_job_parts(&x, err);
    free(x.rows);
    free(x.parts);
    trace__names_fini(&x.lines);
    trace__names_fini(&x.gpus);
    return rc;
}
