/* answer_requests.c - see answer.h: what became of requests. */
#include "common/mem.h"
#include "scheduler/models/homes.h"
#include "simulate/answer.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RULES 32u

struct sums { /* of requests of one kind */
    size_t n, n_answered, n_met, n_with_slo;
    double *ms, *wait_ms; /* of those that were answered */
    double mean_wait_ms, device_ns, slo_ms;
    struct {
        const char *rule; /* BORROWED */
        size_t n;
    } rules[MAX_RULES];
    size_t n_rules;
};

static double percentile(const double *v, size_t n, size_t p)
{
    return n ? v[SH_MIN(n * p / 100, n - 1)] : 0;
}

static void count_refused(struct sums *s, const char *rule)
{
    size_t i = 0;

    while (i < s->n_rules && strcmp(s->rules[i].rule, rule) != 0)
        i++;
    if (i == MAX_RULES)
        return;
    s->rules[i].rule = rule;
    s->rules[i].n++;
    s->n_rules = SH_MAX(s->n_rules, i + 1);
}

static void count_request(const struct world_requests *q, const struct serve_end *ends, size_t i,
                          struct sums *s)
{
    const struct trace_request *r = &q->trace.items[i];
    const double slo_ms = q->rows[r->model].slo_ms;
    const struct serve_end *e = &ends[i];

    s->n++;
    s->n_with_slo += slo_ms > 0;
    s->slo_ms = slo_ms;
    if (e->end_ns < 0) {
        count_refused(s, e->rule ? e->rule : "TIMEOUT");
        return;
    }
    s->device_ns += e->device_ns;
    s->ms[s->n_answered] = (double)(e->end_ns - r->at_ns) / 1e6;
    s->wait_ms[s->n_answered] = (double)(e->begun_ns - r->at_ns) / 1e6;
    s->mean_wait_ms += s->wait_ms[s->n_answered];
    s->n_met += slo_ms > 0 && s->ms[s->n_answered] <= slo_ms;
    s->n_answered++;
}

/* time_ns: of all GPUs. */
static json_t *say_request_sums(struct sums *s, double time_ns)
{
    json_t *rules = json_object(), *o;

    for (size_t i = 0; rules && i < s->n_rules; i++)
        json_object_set_new(rules, s->rules[i].rule, json_integer((json_int_t)s->rules[i].n));
    sh_sort_f64(s->ms, s->n_answered);
    sh_sort_f64(s->wait_ms, s->n_answered);
    o = json_pack("{s:I, s:I, s:I, s:o, s:f, s:f, s:f, s:f, s:f}", "requests", (json_int_t)s->n,
                  "answered", (json_int_t)s->n_answered, "refused",
                  (json_int_t)(s->n - s->n_answered), "refused_by", rules, "p50_ms",
                  percentile(s->ms, s->n_answered, 50), "p99_ms",
                  percentile(s->ms, s->n_answered, 99), "mean_wait_ms",
                  s->mean_wait_ms / (double)SH_MAX(s->n_answered, (size_t)1), "p99_wait_ms",
                  percentile(s->wait_ms, s->n_answered, 99), "share", s->device_ns / time_ns);
    if (o)
        json_object_set_new(o, "attained",
                            s->n_with_slo ? json_real((double)s->n_met / (double)s->n_with_slo)
                                          : json_null());
    return o;
}

/* ------------------------------------------------------------------ who asked for what */

/* Requests of one tenant for one model, whatever its version, are together. */
static int by_kind(const void *a, const void *b, void *arg)
{
    const struct world_requests *q = arg;
    const struct trace_request *x = &q->trace.items[*(const uint32_t *)a];
    const struct trace_request *y = &q->trace.items[*(const uint32_t *)b];
    const int64_t mx = q->rows[x->model].model_id, my = q->rows[y->model].model_id;

    if (x->tenant != y->tenant)
        return x->tenant > y->tenant ? 1 : -1;
    return (mx > my) - (mx < my);
}

struct telling {
    const struct world *w;
    struct serve_end *ends; /* OWNED; by request */
    uint32_t *order;        /* OWNED: requests by kind */
    double *ms, *wait_ms;   /* OWNED: scratch */
    double time_ns;
};

static int say_kind(struct telling *t, size_t from, size_t n, json_t *list, struct sh_err *err)
{
    const struct world_requests *q = &t->w->requests;
    const struct trace_request *first = &q->trace.items[t->order[from]];
    struct sums s = {.ms = t->ms, .wait_ms = t->wait_ms};
    json_t *row;

    for (size_t i = from; i < from + n; i++)
        count_request(q, t->ends, t->order[i], &s);
    row = say_request_sums(&s, t->time_ns);
    if (!row ||
        json_object_set_new(row, "tenant", json_string(t->w->tenants.items[first->tenant])) ||
        json_object_set_new(row, "model", json_string(q->rows[first->model].model)) ||
        json_object_set_new(row, "slo_ms", s.slo_ms > 0 ? json_real(s.slo_ms) : json_null()) ||
        json_array_append(list, row)) {
        json_decref(row);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the answer");
    }
    json_decref(row);
    return SH_OK;
}

static int say_request_tables(struct telling *t, double trained, json_t *out, struct sh_err *err)
{
    const struct world_requests *q = &t->w->requests;
    const size_t n = q->trace.n;
    struct sums s = {.ms = t->ms, .wait_ms = t->wait_ms};
    json_t *all, *list = json_array();
    int rc = SH_OK;

    for (size_t i = 0; i < n; i++) {
        count_request(q, t->ends, i, &s);
        t->order[i] = (uint32_t)i;
    }
    all = say_request_sums(&s, t->time_ns);
    if (n)
        qsort_r(t->order, n, sizeof(*t->order), by_kind, (void *)q);
    for (size_t from = 0, to = 0; from < n && list && !rc; from = to) {
        while (to < n && by_kind(&t->order[from], &t->order[to], (void *)q) == 0)
            to++;
        rc = say_kind(t, from, to - from, list, err);
    }
    if (rc || !all || !list || json_object_set_new(all, "training_kept", json_real(trained)) ||
        json_object_set(out, "requests", all) || json_object_set(out, "models", list))
        rc = rc ? rc : SH_FAIL(err, SH_E_NOMEM, "could not allocate the answer");
    json_decref(all);
    json_decref(list);
    return rc;
}

/* ------------------------------------------------------------------ running it */

/* As many GPUs train as there are jobs that run or wait now, those that have one at first. */
static void take_world_jobs(const struct world *w)
{
    size_t n_jobs = 0;

    for (size_t g = 0; g < w->n_gpus; g++)
        w->requests.places[g].has_no_job = true;
    for (size_t i = 0; i < w->jobs.n; i++) {
        if (w->more[i].gpu != SIM_NONE)
            w->requests.places[w->more[i].gpu].has_no_job = false;
        else if (w->jobs.items[i].at_ns <= 0)
            n_jobs++;
    }
    for (size_t g = 0; g < w->n_gpus && n_jobs; g++)
        if (w->requests.places[g].has_no_job) {
            w->requests.places[g].has_no_job = false;
            n_jobs--;
        }
}

static int run_requests(const struct telling *t, struct serve_result *r, struct sh_err *err)
{
    const struct world_requests *q = &t->w->requests;
    const struct serve_system system = {.options = &t->w->options,
                                        .tenants = t->w->rows,
                                        .rows = q->rows,
                                        .learnt = q->learnt,
                                        .homes = q->homes,
                                        .resident = q->resident,
                                        .load_ns = HOMES_FIRST_LOAD_NS};
    const struct serve_conf conf = {.n_gpus = (uint32_t)t->w->n_gpus,
                                    .places = q->places,
                                    .latency_ns = 0,
                                    .system = &system,
                                    .ends = t->ends};

    take_world_jobs(t->w);
    return serve_replay(&q->trace, q->models, &SERVE_OURS, &conf, r, err);
}

int answer__requests(const struct world *w, json_t *out, struct sh_err *err)
{
    const size_t n = w->requests.trace.n;
    struct telling t = {.w = w,
                        .ends = calloc(n + 1, sizeof(*t.ends)),
                        .order = calloc(n + 1, sizeof(*t.order)),
                        .ms = calloc(n + 1, sizeof(*t.ms)),
                        .wait_ms = calloc(n + 1, sizeof(*t.wait_ms))};
    struct serve_result r = {.trained = 0};
    int rc = SH_OK;

    if (!t.ends || !t.order || !t.ms || !t.wait_ms)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu requests", n);
    if (!rc && n)
        rc = run_requests(&t, &r, err);
    t.time_ns =
        n ? (double)SH_MAX(w->requests.trace.items[n - 1].at_ns, INT64_C(1)) * (double)w->n_gpus
          : 1;
    if (!rc)
        rc = say_request_tables(&t, r.trained, out, err);
    free(t.ends);
    free(t.order);
    free(t.ms);
    free(t.wait_ms);
    return rc;
}
