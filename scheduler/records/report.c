/* report.c - see report.h. */
#include "scheduler/records/report.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/peers/recent.h"
#include "scheduler/sched.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const PHASES[] = {
#define X(name) [MODEL_ON_##name] = #name,
    SH_PLACEMENT_STATES(X, )
#undef X
};
static const char *const PINS[] = {
    [MSG_PIN_NONE] = "none",
    [MSG_PIN_HELD] = "held",
    [MSG_PIN_WAITING] = "waiting",
};
static const char *const SOURCES[] = {
    [PREDICT_FROM_RUNS] = "runs",
    [PREDICT_FROM_PROFILE] = "profile",
    [PREDICT_FROM_GUESS] = "guess",
};

/* ------------------------------------------------------------------ rows */

static bool is_same_shown(const struct model_shown *a, const struct model_shown *b)
{
    return a->phase == b->phase &&
           (a->phase == MODEL_ON_ABSENT ||
            (a->place.device_bytes == b->place.device_bytes &&
             a->place.host_bytes == b->place.host_bytes &&
             a->place.disk_bytes == b->place.disk_bytes && a->place.pin == b->place.pin &&
             a->place.last_use_ms == b->place.last_use_ms && a->is_shut == b->is_shut));
}

/* A row without a state is taken out of the table. */
static json_t *place_row(const struct model *m, const struct exec *e, const struct model_shown *now)
{
    json_t *row =
        json_pack("{s:I, s:s}", "version", (json_int_t)m->version_id, "executor", e->info.name);

    if (!row || now->phase == MODEL_ON_ABSENT)
        return row;
    if (now->is_shut)
        json_object_set_new(row, "shut", json_true());
    if (json_object_update_new(row, json_pack("{s:s, s:s, s:I, s:I, s:I}", "state",
                                              PHASES[now->phase], "pin", PINS[now->place.pin],
                                              "device", (json_int_t)now->place.device_bytes, "host",
                                              (json_int_t)now->place.host_bytes, "disk",
                                              (json_int_t)now->place.disk_bytes)) ||
        (now->place.last_use_ms &&
         json_object_set_new(row, "used", json_integer(now->place.last_use_ms)))) {
        json_decref(row);
        return NULL;
    }
    return row;
}

static void add_model_places(struct sched *s, struct model *m, json_t *rows)
{
    for (size_t i = 0; i < s->execs.n && json_array_size(rows) < REPORT_MAX_ROWS; i++) {
        struct model_on *on = &m->on[i];
        const struct model_shown now = {
            .phase = on->phase,
            .place = on->place,
            .is_shut = on->phase != MODEL_ON_ABSENT &&
                       thrash_is_shut(&s->execs.items[i]->thrash, m->version_id)};

        if (!is_same_shown(&now, &on->shown) &&
            !json_array_append_new(rows, place_row(m, s->execs.items[i], &now)))
            on->shown = now;
    }
}

static json_t *ring_times(const struct predict_ring *r, int64_t now_ns)
{
    int64_t ns[PREDICT_RING];
    const size_t n = predict_recent(r, now_ns, ns);
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ns[i]));
    return list;
}

static json_t *numbers_of(const double *v, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(v[i]));
    return list;
}

static json_t *medians_of(const struct predict_few *f, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list,
                              f[i].n >= PREDICT_FEW_LEAST ? json_real(f[i].median) : json_null());
    return list;
}

/* What a what-if question draws from. Of all batches together: with that of 1. */
static json_t *learnt_of(const struct predict *p, unsigned bucket, int64_t now_ns)
{
    json_t *o = json_pack("{s:o, s:o}", "times", ring_times(&p->ring[bucket], now_ns), "after",
                          medians_of(p->after_ns[bucket], PREDICT_N_BEFORE));

    if (o && bucket == 0)
        json_object_update_new(
            o, json_pack("{s:o, s:o, s:o}", "cold", ring_times(&p->cold, now_ns), "over",
                         medians_of(p->over_ns, SH_ARRAY_LEN(p->over_ns)), "stretch",
                         numbers_of(p->stretch, SH_ARRAY_LEN(p->stretch))));
    return o;
}

static void add_profile(struct model *m, json_t *rows, int64_t now_ns)
{
    if (m->n_runs_shown == m->predict.n_runs + 1 || m->state != MODEL_READY)
        return;
    for (unsigned b = 0; b <= predict_bucket(m->max_batch); b++) {
        struct predict_line l;
        json_t *row;

        predict_line(&m->predict, b, m->slo_percentile, now_ns, &l);
        row = json_pack("{s:I, s:i, s:I, s:s, s:I, s:i, s:o}", "version", (json_int_t)m->version_id,
                        "batch", 1 << b, "predicted", (json_int_t)l.predicted_ns, "source",
                        SOURCES[l.source], "runs", (json_int_t)l.runs, "recent", (int)l.recent,
                        "learnt", learnt_of(&m->predict, b, now_ns));
        if (row && l.recent)
            json_object_update_new(row, json_pack("{s:I, s:I}", "p50", (json_int_t)l.p50_ns, "p99",
                                                  (json_int_t)l.p99_ns));
        if (json_array_append_new(rows, row))
            return;
    }
    m->n_runs_shown = m->predict.n_runs + 1;
}

/* What it runs at this moment: most requests are over before the next look. */
static json_t *runs_of(const struct exec *e)
{
    json_t *runs = json_array();

    for (const struct run *r = e->runs; r; r = r->next)
        json_array_append_new(
            runs, json_pack("{s:I, s:I, s:I}", "version", (json_int_t)r->model->version_id,
                            "tenant", (json_int_t)r->tenant->id, "batch", (json_int_t)r->batch));
    return runs;
}

static double busy_since_shown(struct exec *e, int kind, int64_t now_ns)
{
    int64_t took = now_ns - e->shown_ns, busy = e->busy_ns[kind] - e->shown_busy_ns[kind];

    e->shown_busy_ns[kind] = e->busy_ns[kind];
    return e->shown_ns && took > 0 ? SH_MIN(1, (double)busy / (double)took) : 0;
}

/* null: not known yet. */
static json_t *fences_of(const struct exec_state *t)
{
    json_t *o = t->fences ? json_object() : json_null();

    for (int i = 0; t->fences && i < MSG_N_FENCES; i++)
        json_object_set_new(o, SH_MSG_FENCE_NAME[i], json_boolean(t->fences & (1u << i)));
    if (t->fences)
        json_object_set_new(o, "reason",
                            t->fences_why[0] ? json_string(t->fences_why) : json_null());
    return o;
}

static json_t *exec_row(struct exec *e, int64_t now_ns)
{
    const struct exec_state *t = &e->state;
    double requests = busy_since_shown(e, 0, now_ns), jobs = busy_since_shown(e, 1, now_ns);
    int64_t heard_ms = sh_clock_wall_ms() - (now_ns - e->session->heard_ns) / SH_MS(1);
    json_t *status = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:o, s:f, s:I, s:I}",
        "device_name", t->device_name, "device_bytes", (json_int_t)t->device_bytes, "weights",
        (json_int_t)t->weights, "training", (json_int_t)t->training, "workspace",
        (json_int_t)t->workspace, "host_images", (json_int_t)t->host_images, "host_programs",
        (json_int_t)t->host_programs, "host_limit", (json_int_t)t->host_limit, "link_bytes_per_s",
        t->link_bytes_per_s, "requests_ratio", requests, "jobs_ratio", jobs, "runs", runs_of(e),
        "fences", fences_of(t), "ns_per_byte", e->ns_per_byte, "stop_ns", (json_int_t)e->stop_ns,
        "most_workspace", (json_int_t)e->most_workspace);

    json_object_set_new(status, "recent", recent_show(e->recent, sh_clock_wall_ms()));
    e->shown_ns = now_ns;
    return json_pack("{s:s, s:I, s:i, s:o}", "name", e->info.name, "heard", (json_int_t)heard_ms,
                     "workers", (int)e->n_workers, "status", status);
}

static json_t *exec_rows(struct sched *s, bool due)
{
    json_t *rows = json_array();

    for (size_t i = 0; due && i < s->execs.n; i++)
        if (s->execs.items[i]->session)
            json_array_append_new(rows, exec_row(s->execs.items[i], sh_clock_ns()));
    return rows;
}

static json_t *reset_names(struct sched *s)
{
    json_t *names = json_array();

    for (size_t i = 0; i < s->execs.n; i++)
        if (s->execs.items[i]->rows_are_old &&
            !json_array_append_new(names, json_string(s->execs.items[i]->info.name)))
            s->execs.items[i]->rows_are_old = false;
    return names;
}

/* ------------------------------------------------------------------ writing */

static void forget_slice(struct report_slice *a)
{
    free(a->rows);
    *a = (struct report_slice){.rows = NULL};
}

void report_fini(struct report *r)
{
    forget_slice(&r->slice);
    *r = (struct report){.flushing = false};
}

/* What people see may be older than they take it for: all of it again. */
static void show_all_again(struct sched *s)
{
    for (size_t i = 0; i < s->execs.n; i++)
        s->execs.items[i]->rows_are_old = true;
    for (size_t i = 0; i < s->models.n; i++) {
        s->models.items[i]->n_runs_shown = 0;
        for (size_t k = 0; k < s->execs.n; k++)
            s->models.items[i]->on[k].shown = (struct model_shown){0};
    }
}

static void on_written(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_report *written = arg;

    s->report.flushing = false;
    if (!sched_op_ok(s, "report", rc, err))
        show_all_again(s);
    else if (written->arrivals)
        forget_slice(&s->report.slice);
}

/* NULL for an empty list. */
static char *rows_text(json_t *rows)
{
    char *text = json_array_size(rows) ? json_dumps(rows, JSON_COMPACT) : NULL;

    json_decref(rows);
    return text;
}

/* One that the database has not taken comes again before the next is over. */
static void add_arrivals(struct sched *s, struct store_report *r, int64_t now_ns)
{
    struct report_slice *a = &s->report.slice;

    if (!a->rows && arrivals_is_over(&s->arrivals, now_ns)) {
        a->begun_ns = s->arrivals.begun_ns;
        a->end_ns = now_ns;
        a->rows = arrivals_take(&s->arrivals, &a->n_requests);
    }
    if (!a->rows || !(r->arrivals = strdup(a->rows)))
        return; /* no memory: the next second tries again */
    r->n_arrivals = a->n_requests;
    r->arrived_s = (double)(now_ns - a->begun_ns) / 1e9;
    r->arrivals_s = (double)(a->end_ns - a->begun_ns) / 1e9;
}

void report_second(struct sched *s)
{
    static const struct sched_op OP = {"report", store_report_put, on_written, store_report_free,
                                       DBOP_FAIL_FAST};
    bool with_profiles = s->report.n_seconds % REPORT_PROFILE_S == 0;
    bool with_execs = s->report.n_seconds++ % REPORT_EXECS_S == 0;
    struct store_report *r;
    json_t *places, *profiles;
    struct sh_err err = {0};

    if (s->report.flushing)
        return;
    r = calloc(1, sizeof(*r));
    if (!r)
        return; /* the next second tries again */
    places = json_array();
    profiles = json_array();
    for (size_t i = 0; i < s->models.n; i++) {
        add_model_places(s, s->models.items[i], places);
        if (with_profiles && json_array_size(profiles) < REPORT_MAX_ROWS)
            add_profile(s->models.items[i], profiles, sh_clock_ns());
    }
    *r = (struct store_report){.fence = sched_fence(s),
                               .resets = rows_text(reset_names(s)),
                               .places = rows_text(places),
                               .measured = rows_text(profiles),
                               .execs = rows_text(exec_rows(s, with_execs)),
                               .with_sweep = with_profiles};
    add_arrivals(s, r, sh_clock_ns());
    if (!r->resets && !r->places && !r->measured && !r->execs && !r->arrivals && !with_profiles) {
        store_report_free(r);
        return;
    }
    s->report.flushing = true;
    if (sched_submit(s, &OP, r, &err)) {
        s->report.flushing = false;
        show_all_again(s);
    }
}
