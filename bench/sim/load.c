/* load.c - see load.h. */
#include "bench/sim/load.h"

#include "common/mem.h"

#include <stdlib.h>

static int by_arrival(const void *a, const void *b)
{
    const struct trace_request *x = a, *y = b;

    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
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
