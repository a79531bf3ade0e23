/* load.c - see load.h. */
#include "bench/sim/load.h"

#include "common/mem.h"

#include <stdbool.h>
#include <stdlib.h>

static int by_arrival(const void *a, const void *b)
{
    const struct trace_request *x = a, *y = b;

    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

struct popular {
    uint32_t model;
    size_t n;
};

static int by_popularity(const void *a, const void *b)
{
    const struct popular *x = a, *y = b;

    return x->n != y->n ? (x->n < y->n ? 1 : -1) : (x->model > y->model) - (x->model < y->model);
}

int load_most_asked(struct trace_requests *t, size_t n, struct sh_err *err)
{
    struct popular *all = calloc(t->models.n, sizeof(*all));
    bool *keeps = calloc(t->models.n, sizeof(*keeps));
    struct trace_names names = {0};
    size_t n_kept = 0;
    int rc = all && keeps ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate models");

    for (size_t m = 0; !rc && m < t->models.n; m++)
        all[m].model = (uint32_t)m;
    for (size_t i = 0; !rc && i < t->n; i++)
        all[t->items[i].model].n++;
    if (!rc)
        qsort(all, t->models.n, sizeof(*all), by_popularity);
    for (size_t k = 0; !rc && k < SH_MIN(n, t->models.n); k++)
        keeps[all[k].model] = true;
    for (size_t i = 0; i < t->n && !rc; i++) {
        struct trace_request r = t->items[i];

        if (!keeps[r.model])
            continue;
        rc = trace__name(&names, t->models.items[r.model], &r.model, err);
        t->items[n_kept++] = r;
    }
    if (!rc) {
        t->n = n_kept;
        trace__names_fini(&t->models);
        t->models = names;
        names = (struct trace_names){0};
    }
    trace__names_fini(&names);
    free(keeps);
    free(all);
    return rc;
}

int load_one_tenant(struct trace_requests *t, struct sh_err *err)
{
    struct trace_names names = {0};
    uint32_t tenant;
    int rc = trace__name(&names, "all", &tenant, err);

    if (rc) {
        trace__names_fini(&names);
        return rc;
    }
    for (size_t i = 0; i < t->n; i++)
        t->items[i].tenant = tenant;
    trace__names_fini(&t->tenants);
    t->tenants = names;
    return SH_OK;
}

static int copy_names(const struct trace_names *from, struct trace_names *to, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < from->n && !rc; i++) {
        uint32_t same;

        rc = trace__name(to, from->items[i], &same, err);
    }
    return rc;
}

/* Copy k of so many, all of the trace, begun at another place. */
static void one_copy(const struct trace_requests *t, size_t k, size_t copies,
                     struct trace_request *out)
{
    const int64_t span = t->items[t->n - 1].at_ns + 1;
    const int64_t shift = (int64_t)((double)span * (double)k / (double)copies);

    for (size_t i = 0; i < t->n; i++) {
        out[i] = t->items[i];
        out[i].at_ns = (t->items[i].at_ns + shift) % span;
    }
}

static void spread(struct trace_requests *t, double rate)
{
    const int64_t first = t->items[0].at_ns;
    const double span = (double)SH_MAX(t->items[t->n - 1].at_ns - first, INT64_C(1));
    const double by = (double)t->n * 1e9 / rate / span;

    for (size_t i = 0; i < t->n; i++)
        t->items[i].at_ns = (int64_t)((double)(t->items[i].at_ns - first) * by);
}

int load_make(const struct trace_requests *trace, const struct trace_requests *order, double rate,
              size_t n, struct trace_requests *out, struct sh_err *err)
{
    const size_t copies = (n + trace->n - 1) / trace->n, all = copies * trace->n;
    struct trace_request *rows = malloc(all * sizeof(*rows));
    int rc = rows ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu requests", all);

    *out = (struct trace_requests){0};
    if (!rc)
        rc = copy_names(&(order ? order : trace)->tenants, &out->tenants, err);
    if (!rc)
        rc = copy_names(&(order ? order : trace)->models, &out->models, err);
    if (rc) {
        free(rows);
        trace_requests_fini(out);
        return rc;
    }
    for (size_t k = 0; k < copies; k++)
        one_copy(trace, k, copies, rows + k * trace->n);
    qsort(rows, all, sizeof(*rows), by_arrival);
    sh_strlcpy(out->format, trace->format, sizeof(out->format));
    out->items = rows;
    out->n = n;
    for (size_t i = 0; i < n; i++) {
        rows[i] = rows[i + (all - n) / 2];
        if (order) {
            rows[i].model = order->items[i % order->n].model;
            rows[i].tenant = order->items[i % order->n].tenant;
        }
    }
    spread(out, rate);
    return SH_OK;
}
