/* trace_requests.c - see trace.h: requests. */
#include "common/mem.h"
#include "simulate/draw.h"
#include "simulate/trace.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REQUESTS 100000000u
#define MAX_CLIENTS 4096u
#define WINDOW_S 600. /* of a row of servegen */
#define MINUTES 1440

static double unit_random(uint64_t *seed) /* above 0, below 1 */
{
    return ((double)draw_bits(seed) + 0.5) / 9007199254740992.0;
}

static int add_trace_request(struct trace_requests *t, int64_t at_ns, uint32_t tenant,
                             uint32_t model, struct sh_err *err)
{
    int rc = sh_grow(&t->items, &t->cap, t->n + 1, sizeof(t->items[0]), MAX_REQUESTS,
                     "requests of a trace", err);

    if (!rc)
        t->items[t->n++] = (struct trace_request){.at_ns = at_ns, .model = model, .tenant = tenant};
    return rc;
}

/* A row is a request. Without names of tenants or models all are of one. */
static int read_events(struct trace__file *f, struct trace_requests *t, const char *at_name,
                       const char *tenant_name, const char *model_name, struct sh_err *err)
{
    const int at = trace__column(f, at_name);
    const int tenant = tenant_name ? trace__column(f, tenant_name) : -1;
    const int model = model_name ? trace__column(f, model_name) : -1;
    int rc;

    while (trace__next(f, &rc, err)) {
        uint32_t tenant_i, model_i;
        int64_t ns;

        if (!trace__time(trace__cell(f, at), &ns))
            return trace__bad(f, at_name, err);
        if (model >= 0 && !*trace__cell(f, model)) {
            t->n_left_out++;
            continue;
        }
        rc = trace__name(&t->tenants, trace__cell(f, tenant), &tenant_i, err);
        if (!rc)
            rc = trace__name(&t->models, trace__cell(f, model), &model_i, err);
        if (!rc)
            rc = add_trace_request(t, ns, tenant_i, model_i, err);
        if (rc)
            return rc;
    }
    return rc;
}

/* ------------------------------------------------------------------ counts a minute */

static int read_minutes(struct trace__file *f, struct trace_requests *t,
                        const struct trace_part *part, struct sh_err *err)
{
    const int owner = trace__column(f, "HashOwner"), first = trace__column(f, "1");
    uint64_t seed = part->seed;
    int rc;

    while (trace__next(f, &rc, err)) {
        uint32_t tenant, model;
        char name[256];

        snprintf(name, sizeof(name), "%s/%s", trace__cell(f, owner + 1), trace__cell(f, owner + 2));
        rc = trace__name(&t->tenants, trace__cell(f, owner), &tenant, err);
        if (!rc)
            rc = trace__name(&t->models, name, &model, err);
        for (int m = 0; m < MINUTES && !rc; m++) {
            double count;

            if (60. * (m + 1) <= part->from_s || 60. * m >= part->to_s)
                continue;
            if (!trace__number(trace__cell(f, first + m), &count) || count < 0 || count > 1e9)
                return trace__bad(f, "a minute", err);
            for (double k = 0; k < count && !rc; k++)
                rc = add_trace_request(t, (int64_t)(60e9 * (m + unit_random(&seed)) / part->speed),
                                       tenant, model, err);
        }
        if (rc)
            return rc;
    }
    return rc;
}

/* ------------------------------------------------------------------ rates of clients */

/* Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); mean 1. */
static double gamma_of(uint64_t *seed, double shape)
{
    const double k = shape < 1 ? shape + 1 : shape, a = k - 1. / 3, c = 1 / sqrt(9 * a);
    double x, v, y;

    do {
        do {
            x = sqrt(-2 * log(unit_random(seed))) *
                cos(2 * 3.14159265358979323846 * unit_random(seed));
            v = pow(1 + c * x, 3);
        } while (v <= 0);
    } while (log(unit_random(seed)) >= 0.5 * x * x + a - a * v + a * log(v));
    y = a * v;
    return (shape < 1 ? y * pow(unit_random(seed), 1 / shape) : y) / shape;
}

/* Time to the next request, mean 1: the row names the family and its shape. */
static double arrival_gap(uint64_t *seed, const char *family, double shape)
{
    if (strcmp(family, "Gamma") == 0 && shape > 0.01)
        return gamma_of(seed, shape);
    if (strcmp(family, "Weibull") == 0 && shape > 0.05)
        return pow(-log(unit_random(seed)), 1 / shape) / tgamma(1 + 1 / shape);
    return -log(unit_random(seed));
}

/* Rows: start of a window in seconds, requests a second, their coefficient of variation, the family
 * of their gaps, its shape and scale. The rate holds; the scale is not read. */
static int read_client(struct trace__file *f, struct trace_requests *t, uint32_t client,
                       const struct trace_part *part, struct sh_err *err)
{
    uint64_t seed = part->seed ^ ((uint64_t)client + 1) * UINT64_C(0x9e3779b97f4a7c15);
    int rc;

    while (trace__next(f, &rc, err)) {
        const double end_s = part->to_s;
        double from_s, rate, shape;

        if (!trace__number(trace__cell(f, 0), &from_s))
            return trace__bad(f, "start of the window", err);
        if (!trace__number(trace__cell(f, 1), &rate) || rate < 0)
            return trace__bad(f, "rate", err);
        if (from_s + WINDOW_S <= part->from_s || from_s >= end_s || rate <= 0)
            continue;
        if (!trace__number(trace__cell(f, 4), &shape))
            shape = 1;
        for (double s = arrival_gap(&seed, trace__cell(f, 3), shape) / rate * unit_random(&seed);
             s < WINDOW_S && !rc; s += arrival_gap(&seed, trace__cell(f, 3), shape) / rate)
            if (from_s + s >= part->from_s && from_s + s < end_s)
                rc = add_trace_request(t, (int64_t)((from_s + s) * 1e9 / part->speed), client,
                                       client, err);
        if (rc)
            return rc;
    }
    return rc;
}

static int is_client(const struct dirent *e)
{
    return strstr(e->d_name, "-trace.csv") != NULL;
}

static int read_clients(const char *path, struct trace_requests *t, const struct trace_part *part,
                        struct sh_err *err)
{
    struct dirent **found;
    int n = scandir(path, &found, is_client, alphasort), rc = SH_OK;

    if (n < 0)
        return SH_FAIL(err, SH_E_IO, "could not read the folder %s: %m", path);
    for (int i = 0; i < n; i++) {
        struct trace__file f = {0};
        char file[4096];
        uint32_t client;

        snprintf(file, sizeof(file), "%s/%s", path, found[i]->d_name);
        if (!rc)
            rc = trace__name(&t->tenants, file, &client, err);
        if (!rc)
            rc = trace__name(&t->models, file, &client, err);
        if (!rc)
            rc = trace__open(&f, file, ',', err);
        if (!rc)
            rc = read_client(&f, t, client, part, err);
        trace__close(&f);
        free(found[i]);
    }
    free(found);
    return rc;
}

/* ------------------------------------------------------------------ all */

static int by_request_arrival(const void *a, const void *b)
{
    const struct trace_request *x = a, *y = b;

    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

void trace_requests_fini(struct trace_requests *t)
{
    free(t->items);
    trace__names_fini(&t->tenants);
    trace__names_fini(&t->models);
    *t = (struct trace_requests){0};
}

static int read_request_rows(struct trace__file *f, struct trace_requests *t,
                             const struct trace_part *part, struct sh_err *err)
{
    int rc;

    if (!trace__next(f, &rc, err))
        return rc ? rc : SH_FAIL(err, SH_E_INVALID, "%s is empty", f->path);
    if (trace__column(f, "gmt_create") >= 0) {
        sh_strlcpy(t->format, "gentd26", sizeof(t->format));
        return read_events(f, t, "gmt_create", "groupId", "checkpoint_model_version_id", err);
    }
    if (trace__column(f, "TIMESTAMP") >= 0) {
        sh_strlcpy(t->format, "azure-llm", sizeof(t->format));
        return read_events(f, t, "TIMESTAMP", NULL, NULL, err);
    }
    if (trace__column(f, "HashFunction") >= 0) {
        sh_strlcpy(t->format, "azure-fn", sizeof(t->format));
        return read_minutes(f, t, part, err);
    }
    return SH_FAIL(err, SH_E_INVALID, "%s: no format of requests has these columns", f->path);
}

/* Equal times in the order of the file: qsort() need not keep it. */
static void is_in_order(struct trace_requests *t)
{
    for (size_t i = 1; i < t->n; i++) {
        if (t->items[i].at_ns >= t->items[i - 1].at_ns)
            continue;
        qsort(t->items, t->n, sizeof(t->items[0]),
              by_request_arrival); /* glibc's is a merge sort */
        return;
    }
}

int trace_requests_read(const char *path, const struct trace_part *part, struct trace_requests *out,
                        struct sh_err *err)
{
    struct trace__file f = {0};
    DIR *folder = opendir(path);
    int rc;

    *out = (struct trace_requests){0};
    if (folder) {
        closedir(folder);
        sh_strlcpy(out->format, "servegen", sizeof(out->format));
        rc = read_clients(path, out, part, err);
    } else {
        rc = trace__open(&f, path, ',', err);
        if (!rc)
            rc = read_request_rows(&f, out, part, err);
        trace__close(&f);
    }
    if (!rc && !out->n)
        rc = SH_FAIL(err, SH_E_INVALID, "%s has no requests in that part", path);
    if (rc) {
        trace_requests_fini(out);
        return rc;
    }
    is_in_order(out);
    for (size_t i = out->n; i-- > 0;)
        out->items[i].at_ns -= out->items[0].at_ns;
    return SH_OK;
}
