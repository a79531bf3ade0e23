/* tenants.c - see tenants.h. */
#include "scheduler/peers/tenants.h"

#include "common/mem.h"
#include "common/metrics.h"
#include "common/quota.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct store_memory NO_LIMITS = {.share = 1}; /* as executors take it, untold */

const char *const TENANT_WAIT_NAME[TENANT_N_WAITS] = {"request", "job"};

/* Who does not lead, or a tenant that is gone, has nothing to show. */
static void tenant_free(struct tenants *t, struct tenant *x)
{
    for (int k = 0; k < JOB_N_STATES; k++)
        if (x->n_jobs_shown[k])
            sh_metric_drop(M_shunt_jobs, SH_LABELS(x->name, job_state_name((enum job_state)k)));
    for (int k = 0; k < TENANT_N_WAITS; k++)
        sh_metric_drop(M_shunt_oldest_waiting_seconds, SH_LABELS(x->name, TENANT_WAIT_NAME[k]));
    tenants_untouch(x);
    if (t->pool)
        jobpool_del_tenant(t->pool, &x->pooled);
    free(x);
}

void tenants_fini(struct tenants *t)
{
    for (size_t i = 0; i < t->n; i++)
        tenant_free(t, t->items[i]);
    free(t->items);
    idmap_fini(&t->by_id);
    *t = (struct tenants){.half_life_s = t->half_life_s, .most = t->most};
}

/* Index of the first tenant whose name is not less. */
static size_t tenant_lower_bound(const struct tenants *t, const char *name)
{
    size_t lo = 0, hi = t->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (strcmp(t->items[mid]->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct tenant *tenants_by_id(const struct tenants *t, int64_t id)
{
    return idmap_get(&t->by_id, (uint64_t)id);
}

struct tenant *tenants_find(const struct tenants *t, const char *name)
{
    size_t i = tenant_lower_bound(t, name);

    return i < t->n && strcmp(t->items[i]->name, name) == 0 ? t->items[i] : NULL;
}

int tenants_get(struct tenants *t, const char *name, struct tenant **out, struct sh_err *err)
{
    struct tenant *x = tenants_find(t, name);
    size_t i;
    int rc;

    if (x) {
        *out = x;
        return SH_OK;
    }
    if (!name[0] || strlen(name) >= sizeof(x->name))
        return SH_FAIL(err, SH_E_INVALID, "a tenant's name has 1 to %zu characters",
                       sizeof(x->name) - 1);
    rc = sh_grow(&t->items, &t->cap, t->n + 1, sizeof(t->items[0]), 2 * t->most,
                 "tenants (--max-tenants)", err);
    if (rc)
        return rc;
    x = calloc(1, sizeof(*x));
    if (!x)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a tenant");
    *x = (struct tenant){.active = true,
                         .max_gpus = -1,
                         .weight = SH_QUOTA_over_quota_weight,
                         .lending_limit = -1,
                         .max_running_jobs = SH_QUOTA_max_running_jobs,
                         .max_requests = SH_QUOTA_max_concurrent_requests,
                         .memory = NO_LIMITS};
    sh_strlcpy(x->name, name, sizeof(x->name));
    i = tenant_lower_bound(t, name);
    memmove(&t->items[i + 1], &t->items[i], (t->n - i) * sizeof(t->items[0]));
    t->items[i] = x;
    t->n++;
    *out = x;
    return SH_OK;
}

/* What decisions about its jobs rest on has changed. */
static void touch_tenant(struct tenants *t, struct tenant *x)
{
    if (x->touched_at)
        return;
    x->next_touched = t->touched;
    x->touched_at = &t->touched;
    if (t->touched)
        t->touched->touched_at = &x->next_touched;
    t->touched = x;
}

void tenants_untouch(struct tenant *x)
{
    if (!x->touched_at)
        return;
    *x->touched_at = x->next_touched;
    if (x->next_touched)
        x->next_touched->touched_at = x->touched_at;
    x->touched_at = NULL;
}

static bool has_memory(const struct tenant *x, const struct store_memory *m)
{
    return x->memory.min_bytes == m->min_bytes && x->memory.max_bytes == m->max_bytes &&
           x->memory.share == m->share && x->memory.host_max_bytes == m->host_max_bytes;
}

static void set_memory(struct tenants *t, struct tenant *x, const struct store_memory *m)
{
    if (has_memory(x, m))
        return;
    x->memory_change = ++t->memory_changes;
    x->memory = *m;
    touch_tenant(t, x);
}

static int merge_one(struct tenants *t, const struct store_tenant *row, uint64_t poll,
                     struct sh_err *err)
{
    struct tenant *x = NULL;
    int rc = tenants_get(t, row->name, &x, err);

    if (!rc && x->id != row->id)
        rc = idmap_put(&t->by_id, (uint64_t)row->id, x, err);
    if (rc)
        return rc;
    if (x->id && x->id != row->id)
        idmap_del(&t->by_id, (uint64_t)x->id);
    x->id = row->id; /* not before it is found by it */
    x->active = row->active;
    x->guaranteed_gpus = row->guaranteed_gpus;
    x->max_gpus = row->max_gpus;
    x->weight = row->weight;
    x->lending_limit = row->lending_limit;
    x->max_running_jobs = row->max_running_jobs;
    x->max_requests = row->max_concurrent_requests;
    x->seen_poll = poll;
    touch_tenant(t, x);
    set_memory(t, x, &row->memory);
    return SH_OK;
}

/* What executors were told would hold for the next tenant of that name: it stays until they know
 * better. Returns false if there is nothing to tell. */
static bool take_back_memory(struct tenants *t, struct tenant *x)
{
    if (has_memory(x, &NO_LIMITS))
        return false;
    set_memory(t, x, &NO_LIMITS);
    return true;
}

/* Deleted, or never there: an API had named it. One of a higher id than `last` may be there. */
static void drop_gone(struct tenants *t, uint64_t poll, int64_t last)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++) {
        struct tenant *x = t->items[i];
        bool is_there = x->seen_poll == poll || x->id > last;

        if (is_there || take_back_memory(t, x) || x->n_requests || x->pooled.n_jobs) {
            if (x->active && !is_there && x->id) {
                x->active = false;
                touch_tenant(t, x);
            }
            t->items[n++] = x;
            continue;
        }
        if (x->id)
            idmap_del(&t->by_id, (uint64_t)x->id);
        sh_metrics_forget(x->name, NULL);
        tenant_free(t, x);
    }
    t->n = n;
}

/* Rows come in the order of their ids, up to as many as may be. */
static int64_t last_tenant_id(const struct store_view *v)
{
    return v->n_tenants ? v->tenants[v->n_tenants - 1].id : 0;
}

int tenants_merge(struct tenants *t, const struct store_view *v, uint64_t poll, int64_t now_ns,
                  struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < v->n_tenants && !rc; i++)
        rc = merge_one(t, &v->tenants[i], poll, err);
    if (!rc && v->with_tenants)
        drop_gone(t, poll, v->n_tenants < t->most ? INT64_MAX : last_tenant_id(v));
    for (size_t i = 0; i < v->n_usage && !rc; i++) {
        struct tenant *x = tenants_by_id(t, v->usage_tenant[i]);

        if (x) {
            x->usage_ns = v->usage_ns[i];
            x->usage_at_ns = now_ns;
            touch_tenant(t, x);
        }
    }
    return rc;
}

struct snap_tenant tenant_facts(const struct tenant *t)
{
    return (struct snap_tenant){.active = t->active,
                                .weight = t->weight,
                                .guaranteed_gpus = t->guaranteed_gpus,
                                .max_gpus = t->max_gpus,
                                .lending_limit = t->lending_limit,
                                .max_running_jobs = t->max_running_jobs,
                                .max_memory_bytes = t->memory.max_bytes};
}

double tenants_decay(const struct tenants *t, double usage_ns, int64_t age_ns)
{
    return age_ns > 0 ? usage_ns * exp2((double)-age_ns / 1e9 / t->half_life_s) : usage_ns;
}

double tenants_usage_ns(const struct tenants *t, const struct tenant *x, int64_t now_ns)
{
    return tenants_decay(t, x->usage_ns, now_ns - x->usage_at_ns);
}

void tenants_charge(struct tenants *t, struct tenant *x, int64_t gpu_ns, int64_t now_ns)
{
    x->usage_ns = tenants_usage_ns(t, x, now_ns) + (double)gpu_ns;
    x->usage_at_ns = now_ns;
    touch_tenant(t, x);
}
