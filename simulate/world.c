/* world.c - see world.h: options, GPUs, tenants. */
#include "simulate/world.h"

#include "common/json.h"
#include "common/mem.h"
#include "common/quota.h"
#include "common/units.h"
#include "scheduler/decide/conf.h"

#include <math.h>
#include <stdlib.h>

/* What the snapshot leaves open is as the scheduler has it by default. */
static int read_scheduler(const json_t *obj, struct world *w, struct sh_err *err)
{
    struct sh_json_field f[SH_JSON_MAX_FIELDS];
    char names[SH_JSON_MAX_FIELDS][SCHED_MEMBER_BYTES];
    size_t n = 0;
    int rc = SH_OK;

    for (const char *const *name = SCHED_DECIDES_BY; *name && !rc; name++, n++) {
        const struct sh_conf_opt *o = sh_conf_find(&SCHED_CONF, *name);
        int64_t *value = sched_conf_int(&w->options, *name);

        sched_conf_member(*name, names[n]);
        f[n] = (struct sh_json_field){
            .name = names[n], .type = SH_JSON_INT, .out = value, .min = o->min, .max = o->max};
        rc = sh_conf_read_i64(o, o->def, value, err);
    }
    return rc ? rc : sh_json_read(obj, "scheduler", f, n, err);
}

static int read_gpu(const json_t *obj, struct world *w, size_t i, struct sh_err *err)
{
    struct world_gpu *g = &w->gpus[i];
    int64_t pool = 0;
    const struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &g->name, .required = true},
        {"pool_bytes", SH_JSON_INT, &pool, .required = true, .max = 9e15},
        {"ns_per_byte", SH_JSON_F64, &g->ns_per_byte, .max = 1e9},
        {"stop_ns", SH_JSON_INT, &g->stop_ns, .max = 1e12},
        {"training", SH_JSON_INT, &g->training, .max = 9e15},
        {"most_workspace", SH_JSON_INT, &g->most_workspace, .max = 1e15},
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
    int64_t most_requests = SH_QUOTA_max_concurrent_requests;
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
        {"max_concurrent_requests", SH_JSON_INT, &most_requests, .max = 1e9},
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
    w->rows[i] = (struct store_tenant){.id = (int64_t)i + 1,
                                       .name = name,
                                       .active = t.active,
                                       .guaranteed_gpus = t.guaranteed_gpus,
                                       .max_gpus = t.max_gpus,
                                       .weight = t.weight,
                                       .lending_limit = t.lending_limit,
                                       .max_running_jobs = t.max_running_jobs,
                                       .max_concurrent_requests = (uint32_t)most_requests,
                                       .memory = {.share = 1}};
    return SH_OK;
}

static int read_tenants(const json_t *rows, struct world *w, struct sh_err *err)
{
    const size_t n = json_array_size(rows);
    int rc = SH_OK;

    if (n > WORLD_MAX_TENANTS)
        return SH_FAIL(err, SH_E_TOOBIG, "%zu tenants, at most %u", n, WORLD_MAX_TENANTS);
    w->rules = calloc(n + 1, sizeof(*w->rules));
    w->rows = calloc(n + 1, sizeof(*w->rows));
    if (!w->rules || !w->rows)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu tenants", n);
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_tenant(json_array_get(rows, i), w, err);
    return rc;
}

void world_fini(struct world *w)
{
    world__requests_fini(&w->requests);
    free(w->gpus);
    free(w->pools);
    trace__names_fini(&w->tenants);
    free(w->rules);
    free(w->rows);
    w->jobs.tenants = (struct trace_names){0};
    trace_jobs_fini(&w->jobs);
    free(w->more);
    *w = (struct world){0};
}

int world_read(const json_t *snapshot, double hours, const char *trace, struct world *w,
               struct sh_err *err)
{
    int64_t format = 0;
    const char *at, *program = NULL;
    json_t *scheduler = NULL, *gpus = NULL, *tenants = NULL, *jobs = NULL;
    json_t *models = NULL, *arrivals = NULL;
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
        {"models", SH_JSON_ARR, &models, .max = WORLD_MAX_VERSIONS},
        {"arrivals", SH_JSON_ARR, &arrivals},
    };
    int rc = sh_json_read(snapshot, "snapshot", f, SH_ARRAY_LEN(f), err);

    *w = (struct world){.stop_ns = SH_MS(100), .left_out = (size_t)left_out};
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
    if (!rc)
        rc = world__models(models, w, err);
    if (!rc)
        rc = world__requests(arrivals, hours, trace, w, err);
    if (rc)
        world_fini(w);
    return rc;
}
