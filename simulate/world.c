/* world.c - see world.h: options, GPUs, tenants. */
#include "simulate/world.h"

#include "common/json.h"
#include "common/mem.h"
#include "common/quota.h"
#include "scheduler/decide/conf.h"

#include <math.h>
#include <stdlib.h>

/* What the snapshot leaves open is as the scheduler has it by default. */
static int read_scheduler(const json_t *obj, struct world *w, struct sh_err *err)
{
    struct {
        const char *member, *option;
        int64_t value;
    } rules[] = {{"min_run_ms", "min-run-ms"},
                 {"max_min_run_ms", "max-min-run-ms"},
                 {"level_ms", "level-ms"},
                 {"usage_half_life_s", "usage-half-life-s"}};
    struct sh_json_field f[SH_ARRAY_LEN(rules)];
    int rc = SH_OK;

    for (size_t i = 0; i < SH_ARRAY_LEN(rules) && !rc; i++) {
        const struct sh_conf_opt *o = sh_conf_find(&SCHED_CONF, rules[i].option);

        f[i] = (struct sh_json_field){.name = rules[i].member,
                                      .type = SH_JSON_INT,
                                      .out = &rules[i].value,
                                      .min = o->min,
                                      .max = o->max};
        rc = sh_conf_read_i64(o, o->def, &rules[i].value, err);
    }
    if (!rc)
        rc = sh_json_read(obj, "scheduler", f, SH_ARRAY_LEN(f), err);
    if (rc)
        return rc;
    w->min_run_ns = rules[0].value * 1000000;
    w->max_min_run_ns = rules[1].value * 1000000;
    w->level_ns = rules[2].value * 1000000;
    w->half_life_s = (double)rules[3].value;
    return SH_OK;
}

static int read_gpu(const json_t *obj, struct world *w, size_t i, struct sh_err *err)
{
    struct world_gpu *g = &w->gpus[i];
    int64_t pool = 0;
    const struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &g->name, .required = true},
        {"pool_bytes", SH_JSON_INT, &pool, .required = true, .max = 9e15},
    };
    int rc = sh_json_read(obj, "gpu", f, SH_ARRAY_LEN(f), err);

    g->pool_bytes = w->pools[i] = (uint64_t)pool;
    return rc;
}

static int read_gpus(const json_t *rows, struct world *w, struct sh_err *err)
{
    const size_t n = json_array_size(rows);
    int rc = SH_OK;

    if (n > WORLD_MAX_GPUS)
        return SH_FAIL(err, SH_E_TOOBIG, "%zu GPUs, at most %u", n, WORLD_MAX_GPUS);
    w->gpus = calloc(n + 1, sizeof(*w->gpus));
    w->pools = calloc(n + 1, sizeof(*w->pools));
    if (!w->gpus || !w->pools)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu GPUs", n);
    w->n_gpus = n;
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_gpu(json_array_get(rows, i), w, i, err);
    return rc;
}

static int read_tenant(const json_t *obj, struct world *w, struct sh_err *err)
{
    struct snap_tenant t = {
        .active = true, .weight = SH_QUOTA_over_quota_weight, .max_gpus = -1, .lending_limit = -1};
    int64_t most_jobs = SH_QUOTA_max_running_jobs, memory = 0;
    double borrows = -1, usage_s = 0;
    const char *name;
    uint32_t i;
    const struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true},
        {"active", SH_JSON_BOOL, &t.active},
        {"guaranteed_gpus", SH_JSON_F64, &t.guaranteed_gpus, .max = 1e6},
        {"max_gpus", SH_JSON_F64, &t.max_gpus, .max = 1e6},
        {"over_quota_weight", SH_JSON_F64, &t.weight, .max = 1e6},
        {"borrowing_limit", SH_JSON_F64, &borrows, .max = 1e6},
        {"lending_limit", SH_JSON_F64, &t.lending_limit, .max = 1e6},
        {"gpu_memory_max_bytes", SH_JSON_INT, &memory, .max = 9e15},
        {"max_running_jobs", SH_JSON_INT, &most_jobs, .max = 1e9},
        {"usage_gpu_s", SH_JSON_F64, &usage_s, .max = 1e15},
    };
    int rc = sh_json_read(obj, "tenant", f, SH_ARRAY_LEN(f), err);

    if (rc)
        return rc;
    rc = trace__name(&w->tenants, name, &i, err);
    if (rc)
        return rc;
    if (i + 1 != w->tenants.n)
        return SH_FAIL(err, SH_E_INVALID, "tenant \"%s\" is there twice", name);
    if (borrows >= 0 && (t.max_gpus < 0 || t.max_gpus > t.guaranteed_gpus + borrows))
        t.max_gpus = t.guaranteed_gpus + borrows;
    t.max_running_jobs = (uint32_t)most_jobs;
    t.max_memory_bytes = (uint64_t)memory;
    t.usage_ns = usage_s * 1e9;
    w->rules[i] = t;
    return SH_OK;
}

static int read_tenants(const json_t *rows, struct world *w, struct sh_err *err)
{
    const size_t n = json_array_size(rows);
    int rc = SH_OK;

    if (n > WORLD_MAX_TENANTS)
        return SH_FAIL(err, SH_E_TOOBIG, "%zu tenants, at most %u", n, WORLD_MAX_TENANTS);
    w->rules = calloc(n + 1, sizeof(*w->rules));
    if (!w->rules)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu tenants", n);
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_tenant(json_array_get(rows, i), w, err);
    return rc;
}

void world_fini(struct world *w)
{
    free(w->gpus);
    free(w->pools);
    trace__names_fini(&w->tenants);
    free(w->rules);
    w->jobs.tenants = (struct trace_names){0};
    trace_jobs_fini(&w->jobs);
    free(w->more);
    *w = (struct world){0};
}

int world_read(const json_t *snapshot, double hours, struct world *w, struct sh_err *err)
{
    int64_t format = 0;
    const char *at, *program = NULL;
    json_t *scheduler = NULL, *gpus = NULL, *tenants = NULL, *jobs = NULL;
    int64_t left_out = 0;
    const struct sh_json_field f[] = {
        {"format", SH_JSON_INT, &format, .required = true, .max = 1e6},
        {"at", SH_JSON_STR, &at, .required = true},
        {"program", SH_JSON_STR, &program},
        {"scheduler", SH_JSON_OBJ, &scheduler, .required = true},
        {"gpus", SH_JSON_ARR, &gpus, .required = true, .max = WORLD_MAX_GPUS},
        {"tenants", SH_JSON_ARR, &tenants, .required = true, .max = WORLD_MAX_TENANTS},
        {"jobs", SH_JSON_ARR, &jobs, .required = true, .max = WORLD_MAX_JOBS},
        {"jobs_left_out", SH_JSON_INT, &left_out, .max = 9e15},
    };
    int rc = sh_json_read(snapshot, "snapshot", f, SH_ARRAY_LEN(f), err);

    *w = (struct world){.stop_ns = 100000000, .left_out = (size_t)left_out};
    if (!rc && format != WORLD_FORMAT)
        rc = SH_FAIL(err, SH_E_INVALID, "a snapshot of format %d is wanted, this is of %d",
                     WORLD_FORMAT, (int)format);
    if (!rc)
        rc = read_scheduler(scheduler, w, err);
    if (!rc)
        rc = read_gpus(gpus, w, err);
    if (!rc)
        rc = read_tenants(tenants, w, err);
    if (!rc)
        rc = world__jobs(jobs, hours, w, err);
    if (rc)
        world_fini(w);
    return rc;
}
