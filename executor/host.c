/* host.c - see host.h. */
#include "executor/host.h"

#include "common/mem.h"
#include "common/metrics.h"
#include "executor/model_int.h"

#include <inttypes.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

struct room {
    uint64_t all, tenant;           /* limits */
    uint64_t all_left, tenant_left; /* beside all models but one */
};

static uint64_t limit(const struct exec *x)
{
    const uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    return x->conf->model_host_bytes ? (uint64_t)x->conf->model_host_bytes : host / 2;
}

/* When all workers have it, which is soon. */
static uint64_t counted(const struct model *m)
{
    return m->image.bytes + m->program_bytes * pool_size(store__exec(m->store)->pool);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static struct room room_for(const struct model *m)
{
    struct store *s = m->store;
    uint64_t all = 0, tenant = 0, max = limit(store__exec(s));

    for (const struct model *o = store_next(s, NULL); o; o = store_next(s, o)) {
        if (o == m || o->handle < 0)
            continue;
        all += counted(o);
        tenant += o->tag == m->tag ? counted(o) : 0;
    }
    return (struct room){max, max / 2, minus(max, all), minus(max / 2, tenant)};
}

uint64_t host_held(const struct model *m)
{
    struct pool *p = store__exec(m->store)->pool;
    uint64_t n = 0;

    for (size_t i = 0; i < pool_size(p); i++)
        n += worker_has_model(pool_at(p, i), m->handle);
    return m->image.bytes + n * m->program_bytes;
}

uint64_t host_left(const struct model *m)
{
    const struct room r = room_for(m);

    return m->handle < 0 ? 0 : SH_MAX(SH_MIN(r.all_left, r.tenant_left), (uint64_t)1);
}

int host_check(const struct model *m, uint64_t image, uint64_t program, struct sh_err *err)
{
    const struct room r = room_for(m);
    const uint64_t need = image + program * pool_size(store__exec(m->store)->pool);
    const bool is_tenant = r.tenant_left < r.all_left;
    const uint64_t left = is_tenant ? r.tenant_left : r.all_left;

    if (m->handle < 0 || need <= left)
        return SH_OK;
    return SH_FAIL(err, SH_E_QUOTA,
                   "needs %" PRIu64 " MiB of host memory or more; %s may take %" PRIu64
                   " MiB (model-host-bytes), %" PRIu64 " are left; unload versions or lower "
                   "max_batch",
                   (need + MIB - 1) / MIB, is_tenant ? "models of a tenant" : "all models",
                   (is_tenant ? r.tenant : r.all) / MIB, left / MIB);
}

void host_update_metrics(struct store *s)
{
    const char *executor = store__exec(s)->conf->name;
    double images = 0, programs = 0;

    for (const struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        images += (double)m->image.bytes;
        programs += (double)(host_held(m) - m->image.bytes);
    }
    sh_metric_set(M_shunt_model_host_bytes, SH_LABELS(executor, "images"), images);
    sh_metric_set(M_shunt_model_host_bytes, SH_LABELS(executor, "programs"), programs);
    sh_metric_set(M_shunt_model_host_bytes, SH_LABELS(executor, "limit"),
                  (double)limit(store__exec(s)));
}
