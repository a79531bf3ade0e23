/* world_models.c - see world.h: versions, where they live, what is known of their runs. */
#include "common/field.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/states.h"
#include "scheduler/peers/executors.h"
#include "simulate/world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NS 1e15

struct reading { /* of a version */
    struct store_model *row;
    struct predict *learnt;
    struct serve_model *model;
    json_t *profile, *learnt_rows, *homes; /* BORROWED */
};

/* ------------------------------------------------------------------ what was measured */

static void read_times(const json_t *list, uint32_t batch, bool is_cold, struct predict *p)
{
    const json_t *v;
    size_t i;

    json_array_foreach(list, i, v)
    {
        const double ns = json_number_value(v);

        if (i >= PREDICT_RING || !(ns >= 0 && ns < MOST_NS))
            continue;
        if (is_cold)
            predict_add_cold(p, batch, (int64_t)ns, SERVE_BASE_NS);
        else if (ns >= 1)
            predict_add(p, batch, (int64_t)ns, SERVE_BASE_NS);
    }
}

/* All of them, or none: another release may know of others. */
static void read_number_list(const json_t *list, double most, double *out, size_t n)
{
    for (size_t i = 0; i < n && json_array_size(list) == n; i++) {
        const double v = json_number_value(json_array_get(list, i));

        out[i] = SH_MIN(SH_MAX(v, -most), most);
    }
}

static void read_few_list(const json_t *list, double least, double most, struct predict_few *out,
                          size_t n)
{
    for (size_t i = 0; i < n && json_array_size(list) == n; i++) {
        const json_t *v = json_array_get(list, i);

        for (unsigned k = 0; json_is_number(v) && k < PREDICT_FEW_LEAST; k++)
            predict_few_add(&out[i], SH_MIN(SH_MAX(json_number_value(v), least), most));
    }
}

static int read_learnt(const json_t *rows, struct predict *p, struct sh_err *err)
{
    const json_t *obj;
    size_t i;
    int rc = SH_OK;

    json_array_foreach(rows, i, obj)
    {
        int64_t batch = 0;
        json_t *times = NULL, *cold = NULL, *over = NULL, *stretch = NULL, *after = NULL;
        const struct sh_json_field f[] = {
            {"batch", SH_JSON_INT, &batch, .required = true, .min = 1, .max = 1024},
            {"times", SH_JSON_ARR, &times},
            {"cold", SH_JSON_ARR, &cold},
            {"over", SH_JSON_ARR, &over},
            {"stretch", SH_JSON_ARR, &stretch},
            {"after", SH_JSON_ARR, &after},
        };

        rc = sh_json_read(obj, "learnt", f, SH_ARRAY_LEN(f), err);
        if (rc)
            break;
        read_times(times, (uint32_t)batch, false, p);
        read_times(cold, (uint32_t)batch, true, p);
        read_few_list(over, -MOST_NS, MOST_NS, p->over_ns, SH_ARRAY_LEN(p->over_ns));
        read_number_list(stretch, 4, p->stretch, SH_ARRAY_LEN(p->stretch));
        read_few_list(after, 1, MOST_NS, p->after_ns[predict_bucket((uint32_t)batch)],
                      PREDICT_N_BEFORE);
    }
    return rc;
}

static void read_profile(const json_t *rows, struct predict *p)
{
    struct msg_profile x[PREDICT_N_BUCKETS];
    const json_t *obj, *tail;
    size_t i, n = 0;

    json_array_foreach(rows, i, obj)
    {
        tail = json_object_get(obj, "tail_ns");
        if (n < PREDICT_N_BUCKETS)
            x[n++] = (struct msg_profile){
                .batch = (uint32_t)json_integer_value(json_object_get(obj, "batch")),
                .compute_ns = json_number_value(json_object_get(obj, "compute_ns")),
                .tail_ns = json_is_number(tail) ? json_number_value(tail) : NAN};
    }
    predict_profile(p, x, n);
}

/* ------------------------------------------------------------------ how it runs */

/* The times of one batch, over the usual one: that of which most is known. */
static void take_factors(const struct predict *p, double percentile, struct serve_model *m)
{
    const struct predict_ring *best = &p->ring[0];
    struct predict_time t;
    uint32_t bucket = 0;

    for (uint32_t b = 1; b < PREDICT_N_BUCKETS; b++)
        if (p->ring[b].n > best->n) {
            best = &p->ring[b];
            bucket = b;
        }
    predict_run(p, 1u << bucket, percentile, SERVE_BASE_NS, &t);
    for (uint32_t i = 0; i < best->n; i++)
        m->factors[i] = (double)best->ns[best->order[i]] / (double)t.usual_ns;
    m->n_factors = best->n;
    /* The larger ones waited for more weights than the scheduler knew of, which happens here, too:
     * they are not to count twice. */
    m->over_ns = (int64_t)p->over_ns[PREDICT_COLD].median;
    if (p->cold.n)
        m->over_ns += p->cold.ns[p->cold.order[p->cold.n / 2]];
}

/* Two layers: what can run before the last weights are there, and what cannot. */
static void take_times(const struct reading *r)
{
    struct serve_model *m = r->model;
    struct predict_time one, t;

    predict_run(r->learnt, 1, r->row->slo_percentile, SERVE_BASE_NS, &one);
    m->n_layers = 2;
    m->layer_ns[0] = one.usual_ns - one.tail_ns;
    m->layer_ns[1] = one.tail_ns;
    m->layer_ends[0] = 0;
    m->layer_ends[1] = r->row->image_bytes;
    m->max_batch = r->row->max_batch;
    m->slo_ns = (int64_t)(r->row->slo_ms * 1e6);
    for (uint32_t b = 1; b <= SERVE_MAX_BATCH; b++) {
        predict_run(r->learnt, b, r->row->slo_percentile, SERVE_BASE_NS, &t);
        m->times[b] = (double)t.usual_ns / (double)one.usual_ns;
    }
    take_factors(r->learnt, r->row->slo_percentile, m);
}

/* ------------------------------------------------------------------ where it lives */

static size_t gpu_of(const struct world *w, const char *name, size_t len)
{
    size_t g = 0;

    while (g < w->n_gpus && (strncmp(w->gpus[g].name, name, len) != 0 || w->gpus[g].name[len]))
        g++;
    return g;
}

static void live_on(struct world *w, size_t version, size_t gpu, double bytes)
{
    struct world_requests *q = &w->requests;
    const size_t at = gpu * q->n_versions + version;

    if (gpu == w->n_gpus)
        return; /* it is not there any more */
    q->homes[at] = true;
    q->resident[at] = (uint64_t)SH_MIN(SH_MAX(bytes, 0), (double)q->rows[version].image_bytes);
}

/* A list of {"gpu", "device_bytes"}; or as a change has it, names: "gpu0,gpu1". */
static int read_homes(const json_t *homes, struct world *w, size_t version, struct sh_err *err)
{
    const char *names = json_string_value(homes);
    const json_t *obj;
    size_t i;

    if (homes && !json_is_array(homes) && !names)
        return SH_FAIL(err, SH_E_INVALID, "homes must be names of GPUs, as \"gpu0,gpu1\"");
    json_array_foreach(homes, i, obj)
    {
        const char *gpu = sh_json_text(obj, "gpu");

        live_on(w, version, gpu_of(w, gpu, strlen(gpu)),
                json_number_value(json_object_get(obj, "device_bytes")));
    }
    while (names && *names) {
        const size_t len = strcspn(names, ","), gpu = gpu_of(w, names, len);

        if (gpu == w->n_gpus)
            return SH_FAIL(err, SH_E_INVALID, "homes: there is no GPU \"%.*s\"", (int)len, names);
        live_on(w, version, gpu, 0);
        names += len + (names[len] == ',');
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ all */

static int read_version(const json_t *obj, struct world *w, size_t i, struct sh_err *err)
{
    struct world_requests *q = &w->requests;
    struct reading r = {.row = &q->rows[i], .learnt = &q->learnt[i], .model = &q->models[i]};
    struct store_model *x = r.row;
    int64_t image = 0, version = 0, max_batch = 1, priority = 0;
    const struct sh_json_field f[] = {
        {"id", SH_JSON_INT, &x->version_id, .required = true, .min = 1, .max = 9e15},
        {"model_id", SH_JSON_INT, &x->model_id, .required = true, .min = 1, .max = 9e15},
        {"tenant", SH_JSON_STR, &x->tenant, .required = true, .min = 1, .max = 63},
        {"model", SH_JSON_STR, &x->model, .required = true, .min = 1, .max = 128},
        {"version", SH_JSON_INT, &version, .required = true, .min = 1, .max = 1e9},
        {"shared", SH_JSON_BOOL, &q->is_shared[i]},
        {"max_batch", SH_JSON_INT, &max_batch, .min = 1, .max = 1024},
        {"solo", SH_JSON_BOOL, &x->is_solo},
        {"pinned", SH_JSON_BOOL, &x->pinned},
        {"image_bytes", SH_JSON_INT, &image, .max = 9e15},
        {"slo_ms", SH_JSON_F64, &x->slo_ms, .max = 3.6e6},
        {"percentile", SH_JSON_F64, &x->slo_percentile, .min = 0.001, .max = 99.999},
        {"priority", SH_JSON_INT, &priority, .max = 100},
        {"on_miss", SH_JSON_STR, &x->on_miss},
        {"profile", SH_JSON_ARR, &r.profile},
        {"learnt", SH_JSON_ARR, &r.learnt_rows},
        {"homes", SH_JSON_ANY, &r.homes},
    };
    int rc;

    *x = (struct store_model){.slo_percentile = 99,
                              .on_miss = "best-effort",
                              .state = "READY",
                              .package = "/nowhere",
                              .precision = "fp32"};
    rc = sh_json_read(obj, "model", f, SH_ARRAY_LEN(f), err);
    if (!rc && !sh_words_have(SH_ON_MISS, x->on_miss))
        rc = SH_FAIL(err, SH_E_INVALID, "on_miss is one of %s", SH_ON_MISS);
    if (rc)
        return rc;
    x->version = (uint32_t)version;
    x->max_batch = (uint32_t)max_batch;
    x->slo_priority = (int32_t)priority;
    x->image_bytes = (uint64_t)image;
    read_profile(r.profile, r.learnt);
    rc = read_learnt(r.learnt_rows, r.learnt, err);
    if (!rc)
        rc = read_homes(r.homes, w, i, err);
    if (!rc)
        take_times(&r);
    q->guessed += r.learnt->n_runs == 0;
    return rc;
}

static void take_version_places(struct world *w)
{
    for (size_t g = 0; g < w->n_gpus; g++) {
        const struct world_gpu *x = &w->gpus[g];
        const uint64_t taken = SH_MIN((uint64_t)x->training, x->pool_bytes);

        w->requests.places[g] = (struct serve_place){
            .pool_bytes = x->pool_bytes - taken,
            .workspace = (uint64_t)x->most_workspace,
            .ns_per_byte = x->ns_per_byte > 0 ? x->ns_per_byte : FIRST_NS_PER_BYTE,
            .stop_ns = x->stop_ns > 0 ? x->stop_ns : FIRST_STOP_NS};
    }
}

int world__models(const json_t *rows, struct world *w, struct sh_err *err)
{
    struct world_requests *q = &w->requests;
    const size_t n = json_array_size(rows), places = n * w->n_gpus;
    int rc = SH_OK;

    if (places > WORLD_MAX_PLACES)
        return SH_FAIL(err, SH_E_TOOBIG, "%zu versions on %zu GPUs are more than can be looked at",
                       n, w->n_gpus);
    q->n_versions = n;
    q->models = calloc(n + 1, sizeof(*q->models));
    q->rows = calloc(n + 1, sizeof(*q->rows));
    q->learnt = calloc(n + 1, sizeof(*q->learnt));
    q->is_shared = calloc(n + 1, sizeof(*q->is_shared));
    q->places = calloc(w->n_gpus + 1, sizeof(*q->places));
    q->homes = calloc(places + 1, sizeof(*q->homes));
    q->resident = calloc(places + 1, sizeof(*q->resident));
    if (!q->models || !q->rows || !q->learnt || !q->is_shared || !q->places || !q->homes ||
        !q->resident)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu versions", n);
    take_version_places(w);
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_version(json_array_get(rows, i), w, i, err);
    return rc;
}

void world__requests_fini(struct world_requests *q)
{
    q->trace.tenants = q->trace.models = (struct trace_names){0};
    trace_requests_fini(&q->trace);
    free(q->models);
    free(q->rows);
    free(q->learnt);
    free(q->is_shared);
    free(q->places);
    free(q->homes);
    free(q->resident);
    *q = (struct world_requests){0};
}
