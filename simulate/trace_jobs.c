/* trace_jobs.c - see trace.h: training jobs. */
#include "common/mem.h"
#include "common/units.h"
#include "simulate/trace.h"

#include <stdlib.h>
#include <string.h>

#define MAX_JOBS 100000000u
#define MAX_GPUS 4096
#define MAX_S 1e9

static int add_trace_job(struct trace_jobs *t, double at_s, double run_s, double gpus,
                         const char *tenant, struct sh_err *err)
{
    struct trace_job j = {.at_ns = (int64_t)(at_s * 1e9), .gpus = (uint32_t)gpus};
    int rc;

    if (!(run_s > 0) || run_s > MAX_S || !(gpus >= 1) || gpus > MAX_GPUS || at_s < -MAX_S * 10 ||
        at_s > MAX_S * 10) {
        t->n_left_out++;
        return SH_OK;
    }
    j.run_ns = (int64_t)(run_s * 1e9);
    rc = trace__name(&t->tenants, tenant, &j.tenant, err);
    if (!rc)
        rc = sh_grow(&t->items, &t->cap, t->n + 1, sizeof(t->items[0]), MAX_JOBS, "jobs of a trace",
                     err);
    if (!rc)
        t->items[t->n++] = j;
    return rc;
}

static int read_philly(struct trace__file *f, struct trace_jobs *t, struct sh_err *err)
{
    const int at = trace__column(f, "timestamp"), run = trace__column(f, "duration");
    const int gpus = trace__column(f, "num_gpus"), tenant = trace__column(f, "cluster");
    int rc;

    while (trace__next(f, &rc, err)) {
        int64_t ns;
        double run_s, n;

        if (!trace__time(trace__cell(f, at), &ns))
            return trace__bad(f, "timestamp", err);
        if (!trace__number(trace__cell(f, run), &run_s))
            return trace__bad(f, "duration", err);
        if (!trace__number(trace__cell(f, gpus), &n))
            return trace__bad(f, "num_gpus", err);
        rc = add_trace_job(t, (double)(ns / SH_S(1)), run_s, n, trace__cell(f, tenant), err);
        if (rc)
            return rc;
    }
    return rc;
}

/* Pods that are still there when the trace ends have no length: they are left out. */
static int read_alibaba(struct trace__file *f, struct trace_jobs *t, struct sh_err *err)
{
    const int from = trace__column(f, "creation_time"), to = trace__column(f, "deletion_time");
    const int began = trace__column(f, "scheduled_time"), gpus = trace__column(f, "num_gpu");
    const int tenant = trace__column(f, "qos"), phase = trace__column(f, "pod_phase");
    int rc;

    while (trace__next(f, &rc, err)) {
        double from_s, to_s, began_s, n;

        if (!trace__number(trace__cell(f, from), &from_s))
            return trace__bad(f, "creation_time", err);
        if (!trace__number(trace__cell(f, gpus), &n))
            return trace__bad(f, "num_gpu", err);
        if (!trace__number(trace__cell(f, began), &began_s))
            began_s = from_s;
        if (!trace__number(trace__cell(f, to), &to_s) ||
            strcmp(trace__cell(f, phase), "Running") == 0)
            to_s = 0;
        rc = add_trace_job(t, from_s, to_s - began_s, n, trace__cell(f, tenant), err);
        if (rc)
            return rc;
    }
    return rc;
}

static int by_job_arrival(const void *a, const void *b)
{
    const struct trace_job *x = a, *y = b;

    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    if (x->tenant != y->tenant)
        return x->tenant < y->tenant ? -1 : 1;
    if (x->gpus != y->gpus)
        return x->gpus < y->gpus ? -1 : 1;
    return (x->run_ns > y->run_ns) - (x->run_ns < y->run_ns);
}

void trace_jobs_fini(struct trace_jobs *t)
{
    free(t->items);
    trace__names_fini(&t->tenants);
    *t = (struct trace_jobs){0};
}

static int read_job_rows(struct trace__file *f, struct trace_jobs *t, struct sh_err *err)
{
    int rc;

    if (!trace__next(f, &rc, err))
        return rc ? rc : SH_FAIL(err, SH_E_INVALID, "%s is empty", f->path);
    if (trace__column(f, "duration") >= 0 && trace__column(f, "cluster") >= 0) {
        sh_strlcpy(t->format, "philly", sizeof(t->format));
        return read_philly(f, t, err);
    }
    if (trace__column(f, "num_gpu") >= 0 && trace__column(f, "creation_time") >= 0) {
        sh_strlcpy(t->format, "alibaba", sizeof(t->format));
        return read_alibaba(f, t, err);
    }
    return SH_FAIL(err, SH_E_INVALID, "%s: no format of jobs has these columns", f->path);
}

int trace_jobs_read(const char *path, struct trace_jobs *out, struct sh_err *err)
{
    struct trace__file f;
    int rc = trace__open(&f, path, ',', err);

    *out = (struct trace_jobs){0};
    if (!rc)
        rc = read_job_rows(&f, out, err);
    trace__close(&f);
    if (rc) {
        trace_jobs_fini(out);
        return rc;
    }
    if (out->n)
        qsort(out->items, out->n, sizeof(out->items[0]), by_job_arrival);
    for (size_t i = out->n; i-- > 0;)
        out->items[i].at_ns -= out->items[0].at_ns;
    return SH_OK;
}
