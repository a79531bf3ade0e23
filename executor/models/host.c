/* host.c - see host.h. */
#include "executor/models/host.h"

#include "common/mem.h"
#include "common/metrics.h"
#include "executor/memory/leave.h"
#include "executor/models/apart.h"
#include "executor/models/model_int.h"
#include "executor/models/share.h"
#include "executor/models/tier.h"

#include <inttypes.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

#define MAX_TENANTS ((size_t)1 << 20)

struct room {
    uint64_t all, tenant;           /* limits */
    uint64_t all_left, tenant_left; /* beside all models but one */
    bool has_quota;                 /* the tenant has one */
};

uint64_t host_limit(const struct store *s)
{
    const struct store_env *env = store__env(s);
    const uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    return env->host_bytes ? (uint64_t)env->host_bytes : host / 2;
}

/* What does not fit is the most there is: workers say how much they have. */
static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t times_saturated(uint64_t a, uint64_t n)
{
    return n && a > UINT64_MAX / n ? UINT64_MAX : a * n;
}

/* An image, and a program in each worker: when all of them have it, which is soon. */
static uint64_t in_all(const struct model *m, uint64_t image, uint64_t program)
{
    return plus(image, times_saturated(program, pool_size(store__env(m->store)->pool)));
}

static uint64_t counted_bytes(const struct model *m)
{
    return in_all(m, share__bytes(m), m->program_bytes);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void add_counted(const struct model *o, const struct model *m, uint64_t *all,
                        uint64_t *tenant)
{
    if (o == m || o->handle < 0)
        return;
    *all = plus(*all, counted_bytes(o));
    *tenant = o->tag == m->tag ? plus(*tenant, counted_bytes(o)) : *tenant;
}

static struct room room_for(const struct model *m)
{
    struct store *s = m->store;
    const struct host_quotas *q = store__host_quotas(s);
    const uint64_t quota = m->tag < q->n ? q->max[m->tag] : 0;
    uint64_t all = 0, tenant = 0, max = host_limit(s), most = quota ? quota : max / 2;

    for (const struct model *o = store_next(s, NULL); o; o = store_next(s, o))
        add_counted(o, m, &all, &tenant);
    for (const struct model *o = store_next_shape(s, NULL); o; o = store_next_shape(s, o))
        add_counted(o, m, &all, &tenant);
    return (struct room){max, most, minus(max, all), minus(most, tenant), quota > 0};
}

uint64_t host_held(const struct model *m)
{
    struct pool *p = store__env(m->store)->pool;
    uint64_t n = 0;

    for (size_t i = 0; i < pool_size(p); i++)
        n += worker_has_model(pool_at(p, i), m->handle);
    return plus(share__bytes(m), times_saturated(m->program_bytes, n));
}

uint64_t host_left(const struct model *m)
{
    const struct room r = room_for(m);
    const uint64_t all = plus(r.all_left, tier_room(m->store, LEAVE_ANY, m));
    const uint64_t tenant = plus(r.tenant_left, tier_room(m->store, m->tag, m));

    return m->handle < 0 ? 0 : SH_MAX(SH_MIN(all, tenant), (uint64_t)1);
}

/* An image that is there counts for its part of what it shares: for more when a sibling leaves. */
static uint64_t image_bytes(const struct model *m, uint64_t image)
{
    return m->image.base ? share__bytes(m) : image;
}

uint64_t host_left_for(const struct model *m, bool builds)
{
    const uint64_t left = host_left(m);
    const uint64_t has = !builds && m->base == m ? image_bytes(m, m->link_bytes) : 0;

    return left > has ? left - has : SH_MIN(left, (uint64_t)1);
}

/* So many bytes are missing; tenant: by its limit. */
static uint64_t missing(const struct model *m, uint64_t image, uint64_t program, bool tenant)
{
    const struct room r = room_for(m);

    return minus(in_all(m, image_bytes(m, image), program), tenant ? r.tenant_left : r.all_left);
}

bool host_make_room(const struct model *m, uint64_t image, uint64_t program)
{
    const uint64_t tenant = missing(m, image, program, true);
    uint64_t all;

    if (tenant)
        tier_make_room(m->store, tenant, m->tag, m);
    all = missing(m, image, program, false);
    if (all)
        tier_make_room(m->store, all, LEAVE_ANY, m);
    return !missing(m, image, program, true) && !missing(m, image, program, false);
}

int host_check(struct model *m, uint64_t image, uint64_t program, struct sh_err *err)
{
    uint64_t need = in_all(m, image_bytes(m, image), program);
    struct room r = room_for(m);
    uint64_t left = SH_MIN(r.all_left, r.tenant_left);
    bool is_tenant;

    m->short_bytes = 0;
    if (m->handle < 0 || need <= left)
        return SH_OK;
    if (need <= host_left(m) && host_make_room(m, image, program))
        return SH_OK;
    r = room_for(m);
    need = in_all(m, image_bytes(m, image), program);
    is_tenant = r.tenant_left < r.all_left;
    left = is_tenant ? r.tenant_left : r.all_left;
    m->short_bytes = need - left;
    m->is_short_of_tenant = is_tenant;
    return SH_FAIL(err, SH_E_QUOTA,
                   "needs %" PRIu64 " MiB of host memory or more; %s may take %" PRIu64
                   " MiB (%s), %" PRIu64 " are left; unload versions or lower max_batch",
                   need / MIB + (need % MIB > 0), is_tenant ? "models of a tenant" : "all models",
                   (is_tenant ? r.tenant : r.all) / MIB,
                   is_tenant && r.has_quota ? "host_memory_max_bytes of its quota"
                                            : "model-host-bytes",
                   left / MIB);
}

int host_set_quota(struct store *s, const char *tenant, uint64_t bytes, struct sh_err *err)
{
    struct host_quotas *q = store__host_quotas(s);
    uint32_t tag;
    int rc = space_tag(store__env(s)->space, tenant, &tag, err);

    if (!rc)
        rc =
            sh_grow(&q->max, &q->cap, (size_t)tag + 1, sizeof(*q->max), MAX_TENANTS, "quotas", err);
    if (rc)
        return rc;
    for (; q->n <= tag; q->n++)
        q->max[q->n] = 0;
    q->max[tag] = bytes;
    return SH_OK;
}

void host_clear_quotas(struct store *s)
{
    store__host_quotas(s)->n = 0;
}

struct host_totals host_totals(struct store *s)
{
    struct host_totals t = {.limit = host_limit(s)};

    for (const struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        t.images = plus(t.images, share__bytes(m));
        t.on_disk += tier_disk_bytes(m);
        t.programs = plus(t.programs, host_held(m) - share__bytes(m));
    }
    for (const struct model *m = store_next_shape(s, NULL); m; m = store_next_shape(s, m))
        t.programs += host_held(m);
    return t;
}

void host_update_metrics(struct store *s)
{
    const char *executor = store__env(s)->executor;
    const struct host_totals t = host_totals(s);

    sh_metric_set(M_shunt_image_bytes, SH_LABELS(executor, "device"),
                  (double)space_bytes(store__env(s)->space, ARENA_IMAGE));
    sh_metric_set(M_shunt_image_bytes, SH_LABELS(executor, "packed"), (double)store_apart_bytes(s));
    sh_metric_set(M_shunt_image_bytes, SH_LABELS(executor, "host"), (double)t.images);
    sh_metric_set(M_shunt_image_bytes, SH_LABELS(executor, "disk"), (double)t.on_disk);
    sh_metric_set(M_shunt_shared_image_bytes, SH_LABELS(executor), (double)share_saved_bytes(s));
    sh_metric_set(M_shunt_shapes, SH_LABELS(executor), (double)store__shapes(s)->n);
    sh_metric_set(M_shunt_model_host_bytes, SH_LABELS(executor, "images"), (double)t.images);
    sh_metric_set(M_shunt_model_host_bytes, SH_LABELS(executor, "programs"), (double)t.programs);
    sh_metric_set(M_shunt_model_host_bytes, SH_LABELS(executor, "limit"), (double)t.limit);
}
