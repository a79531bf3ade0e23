/* world_requests.c - see world.h: requests that come again, or those of a trace. */
#include "common/idmap.h"
#include "common/json.h"
#include "common/mem.h"
#include "simulate/draw.h"
#include "simulate/world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_SIZES 16u

struct reading {
    struct world *w;
    struct idmap versions; /* index plus one, by id */
    uint64_t seed;
};

static double unit_of_reading(struct reading *r) /* below 1 */
{
    return (double)draw_bits(&r->seed) / 9007199254740992.0;
}

static int add_world_request(struct reading *r, int64_t at_ns, uint32_t tenant, uint32_t version,
                             uint32_t batch, struct sh_err *err)
{
    struct trace_requests *t = &r->w->requests.trace;
    int rc = sh_grow(&t->items, &t->cap, t->n + 1, sizeof(t->items[0]), WORLD_MAX_REQUESTS,
                     "requests", err);

    if (!rc)
        t->items[t->n++] = (struct trace_request){
            .at_ns = at_ns, .model = version, .tenant = tenant, .batch = batch};
    return rc;
}

/* ------------------------------------------------------------------ recorded ones */

struct sizes { /* of the requests of a row, in samples */
    struct {
        double n, samples;
    } of[N_SIZES];
    uint32_t n_of;
    double n;
};

static void read_sample_sizes(const json_t *list, struct sizes *out)
{
    const json_t *pair;
    size_t i;

    *out = (struct sizes){.n = 0};
    json_array_foreach(list, i, pair)
    {
        const double n = json_number_value(json_array_get(pair, 0));
        const double samples = json_number_value(json_array_get(pair, 1));

        if (out->n_of == N_SIZES || !(n > 0 && samples >= n && samples < 1e15))
            continue;
        out->of[out->n_of].n = n;
        out->of[out->n_of++].samples = samples / n;
        out->n += n;
    }
}

static uint32_t draw_size(struct reading *r, const struct sizes *s, uint32_t most)
{
    double at = unit_of_reading(r) * s->n;
    uint32_t i = 0;

    if (!s->n_of)
        return 1;
    while (i + 1 < s->n_of && at >= s->of[i].n)
        at -= s->of[i++].n;
    return (uint32_t)SH_MIN(s->of[i].samples + .5, (double)most);
}

struct row {
    const char *tenant, *at;
    int64_t version, unit_ms, requests;
    json_t *sizes;
};

static int read_request_row(const json_t *obj, struct row *out, struct sh_err *err)
{
    const struct sh_json_field f[] = {
        {"tenant", SH_JSON_STR, &out->tenant, .required = true},
        {"version", SH_JSON_INT, &out->version, .required = true, .max = 9e15},
        {"unit_ms", SH_JSON_INT, &out->unit_ms, .required = true, .min = 1, .max = 1e6},
        {"requests", SH_JSON_INT, &out->requests, .required = true, .max = 1e9},
        {"at", SH_JSON_STR, &out->at, .required = true, .max = 65536},
        {"sizes", SH_JSON_ARR, &out->sizes},
    };

    *out = (struct row){.requests = 0};
    return sh_json_read(obj, "arrivals", f, SH_ARRAY_LEN(f), err);
}

/* "12 3*2 5": distances from one moment to the next, in units, and how many came in each. Where in
 * its moment a request came is not known: anywhere. */
static int add_request_row(struct reading *r, const struct row *row, int64_t from_ns,
                           struct sh_err *err)
{
    struct world_requests *q = &r->w->requests;
    const uint32_t version = (uint32_t)(uintptr_t)idmap_get(&r->versions, (uint64_t)row->version);
    struct sizes sizes;
    uint32_t tenant;
    int64_t at = 0;
    char *p = (char *)row->at;
    int rc = SH_OK;

    if (!version || !trace__find(&r->w->tenants, row->tenant, &tenant)) {
        q->left_out += (size_t)row->requests;
        return SH_OK;
    }
    read_sample_sizes(row->sizes, &sizes);
    while (*p && !rc) {
        unsigned long n = 1, gap = strtoul(p, &p, 10);

        if (*p == '*')
            n = strtoul(p + 1, &p, 10);
        if ((*p && *p != ' ') || gap > 1000000 || n > WORLD_MAX_REQUESTS)
            return SH_FAIL(err, SH_E_INVALID, "arrivals: \"%.20s\" is no moment", p);
        p += *p == ' ';
        at += (int64_t)gap;
        if ((double)at * (double)row->unit_ms > WORLD_MAX_S * 1e3)
            return SH_FAIL(err, SH_E_INVALID, "arrivals: a moment is more than %g s away",
                           WORLD_MAX_S);
        for (unsigned long i = 0; i < n && !rc; i++) {
            const double ms = ((double)at + unit_of_reading(r)) * (double)row->unit_ms;

            rc = add_world_request(r, from_ns + (int64_t)(ms * 1e6), tenant, version - 1,
                                   draw_size(r, &sizes, q->rows[version - 1].max_batch), err);
        }
    }
    return rc;
}

static int read_slice(struct reading *r, const json_t *obj, double hours, struct sh_err *err)
{
    struct world_requests *q = &r->w->requests;
    double ago_s = 0, seconds = 0;
    json_t *rows = NULL, *one;
    const struct sh_json_field f[] = {
        {"ago_s", SH_JSON_F64, &ago_s, .required = true, .min = -1e6, .max = 1e9},
        {"seconds", SH_JSON_F64, &seconds, .max = 1e6},
        {"rows", SH_JSON_ARR, &rows, .required = true},
    };
    struct row row;
    size_t i;
    int rc = sh_json_read(obj, "arrivals", f, SH_ARRAY_LEN(f), err);

    if (rc || ago_s > hours * 3600)
        return rc;
    if (!q->trace.n && !q->left_out)
        q->from_s = ago_s;
    if (ago_s > q->from_s)
        return SH_FAIL(err, SH_E_INVALID, "arrivals: an earlier slice comes after a later one");
    q->seconds = SH_MAX(q->seconds, q->from_s - ago_s + seconds);
    json_array_foreach(rows, i, one)
    {
        rc = read_request_row(one, &row, err);
        if (!rc)
            rc = add_request_row(r, &row, (int64_t)((q->from_s - ago_s) * 1e9), err);
        if (rc)
            break;
    }
    return rc;
}

/* ------------------------------------------------------------------ those of a trace */

/* "NAME" or "NAME:VERSION", of the tenant itself or of one that shares it; the newest version. */
static bool version_of(const struct world *w, const char *tenant, const char *name, uint32_t *out)
{
    const struct world_requests *q = &w->requests;
    const char *colon = strrchr(name, ':');
    const size_t len = colon ? (size_t)(colon - name) : strlen(name);
    const struct store_model *best = NULL;
    int64_t version = 0;

    if (colon && sh_parse_i64(colon + 1, 1, UINT32_MAX, "version", &version, NULL))
        return false;
    for (size_t i = 0; i < q->n_versions; i++) {
        const struct store_model *x = &q->rows[i];
        const bool is_own = strcmp(x->tenant, tenant) == 0;

        if (strncmp(x->model, name, len) != 0 || x->model[len] || (!is_own && !q->is_shared[i]) ||
            (version && x->version != version))
            continue;
        if (best && (strcmp(best->tenant, tenant) == 0) > is_own)
            continue;
        if (best && (strcmp(best->tenant, tenant) == 0) == is_own && best->version > x->version)
            continue;
        best = x;
        *out = (uint32_t)i;
    }
    return best != NULL;
}

static int read_request_line(struct reading *r, struct trace__file *f, const int col[4],
                             struct sh_err *err)
{
    const char *tenant = trace__cell(f, col[1]), *model = trace__cell(f, col[2]);
    uint32_t tenant_i, version;
    double at_s, batch = 1;

    if (!trace__number(trace__cell(f, col[0]), &at_s) || !(at_s >= 0 && at_s <= WORLD_MAX_S))
        return trace__bad(f, "at_s", err);
    if (!trace__find(&r->w->tenants, tenant, &tenant_i))
        return trace__bad(f, "tenant", err);
    if (!version_of(r->w, tenant, model, &version))
        return trace__bad(f, "model", err);
    if (col[3] >= 0 && *trace__cell(f, col[3]) &&
        (!trace__number(trace__cell(f, col[3]), &batch) || !(batch >= 1) ||
         batch > r->w->requests.rows[version].max_batch || batch != trunc(batch)))
        return trace__bad(f, "batch", err);
    return add_world_request(r, (int64_t)(at_s * 1e9), tenant_i, version, (uint32_t)batch, err);
}

static int read_trace(struct reading *r, const char *text, struct sh_err *err)
{
    struct trace__file f;
    int rc = trace__open_text(&f, "the trace", text, ',', err), col[4];

    if (!rc && !trace__next(&f, &rc, err) && !rc)
        rc = SH_FAIL(err, SH_E_INVALID, "the trace is empty");
    if (!rc) {
        col[0] = trace__column(&f, "at_s");
        col[1] = trace__column(&f, "tenant");
        col[2] = trace__column(&f, "model");
        col[3] = trace__column(&f, "batch");
        if (col[0] < 0 || col[1] < 0 || col[2] < 0)
            rc = SH_FAIL(err, SH_E_INVALID,
                         "the first line of the trace names its columns: at_s,tenant,model,batch");
    }
    while (!rc && trace__next(&f, &rc, err))
        rc = read_request_line(r, &f, col, err);
    trace__close(&f);
    return rc;
}

/* ------------------------------------------------------------------ all */

static int by_row_time(const void *a, const void *b)
{
    const struct trace_request *x = a, *y = b;

    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

int world__requests(const json_t *slices, double hours, const char *trace, struct world *w,
                    struct sh_err *err)
{
    struct world_requests *q = &w->requests;
    struct reading r = {.w = w, .seed = 88172645463325252u};
    /* Each GPU keeps account of each: of more nothing is said. */
    const bool is_too_much = q->n_versions > WORLD_MAX_SERVED;
    const json_t *obj;
    size_t i;
    int rc = SH_OK;

    if (trace && is_too_much)
        return SH_FAIL(err, SH_E_TOOBIG, "%zu versions are served; a trace may come to %u at most",
                       q->n_versions, WORLD_MAX_SERVED);
    q->trace.tenants = w->tenants; /* BORROWED */
    q->trace.models.n = q->n_versions;
    for (size_t v = 0; v < q->n_versions && !is_too_much && !rc; v++)
        rc = idmap_put(&r.versions, (uint64_t)q->rows[v].version_id, (void *)(v + 1), err);
    if (!rc && trace) {
        rc = read_trace(&r, trace, err);
    } else {
        json_array_foreach(slices, i, obj)
        {
            if (rc || hours <= 0)
                break;
            rc = read_slice(&r, obj, hours, err);
        }
    }
    if (q->trace.n)
        qsort(q->trace.items, q->trace.n, sizeof(q->trace.items[0]), by_row_time);
    if (q->trace.n && trace)
        q->seconds = (double)q->trace.items[q->trace.n - 1].at_ns / 1e9;
    idmap_fini(&r.versions);
    return rc;
}
