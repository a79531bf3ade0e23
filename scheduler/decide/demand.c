/* demand.c - see demand.h. */
#include "scheduler/decide/demand.h"

#include "common/mem.h"

#include <math.h>

#define SEEN 0.001 /* of the time: who asks for less is not regarded */
#define ROOM 0.9   /* of the time: runs that are not full and gaps between them take the rest */

static double fade(const struct demand *d, int64_t now_ns)
{
    return exp2(-(double)SH_MAX(now_ns - d->at_ns, 0) / (double)DEMAND_HALF_NS);
}

/* Another one of its tenant; NULL: there is none. */
static struct demand_of *beside_of_tenant(struct demand *d, const struct demand_of *x)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->of[i].tenant == x->tenant && &d->of[i] != x)
            return &d->of[i];
    return NULL;
}

/* The least of this tenant, or of any if it is NULL; alone: also of one that has no other. */
static struct demand_of *least_of(struct demand *d, const int64_t *tenant, bool alone)
{
    struct demand_of *least = NULL;

    for (uint32_t i = 0; i < d->n; i++) {
        struct demand_of *x = &d->of[i];

        if ((!tenant || x->tenant == *tenant) && (!least || x->ns < least->ns) &&
            (alone || beside_of_tenant(d, x)))
            least = x;
    }
    return least;
}

/* One that is free: what it stood for goes to another one of its tenant, if there is one. */
static struct demand_of *make_demand_room(struct demand *d, int64_t tenant)
{
    struct demand_of *x;

    if (d->n < DEMAND_MAX)
        return &d->of[d->n++];
    x = least_of(d, &tenant, false);
    if (!x)
        x = least_of(d, NULL, false);
    if (x) {
        beside_of_tenant(d, x)->ns += x->ns;
        return x;
    }
    x = least_of(d, NULL, true);
    d->sum_ns -= x->ns;
    return x;
}

static struct demand_of *find_demand(struct demand *d, int64_t tenant, int64_t model)
{
    struct demand_of *x;

    for (uint32_t i = 0; i < d->n; i++)
        if (d->of[i].tenant == tenant && d->of[i].model == model)
            return &d->of[i];
    x = make_demand_room(d, tenant);
    *x = (struct demand_of){.tenant = tenant, .model = model};
    return x;
}

void demand_add(struct demand *d, int64_t tenant, int64_t model, double ns, int64_t now_ns)
{
    const double by = fade(d, now_ns);

    for (uint32_t i = 0; i < d->n; i++)
        d->of[i].ns *= by;
    d->at_ns = now_ns;
    d->sum_ns *= by;
    find_demand(d, tenant, model)->ns += ns;
    d->sum_ns += ns;
}

/* As much for each, up to what he asks for, as fills the room; INFINITY: there is enough. */
static double level(const double *asks, uint32_t n, double room)
{
    bool is_full[DEMAND_MAX] = {false};
    uint32_t left = n;
    double each = 0;

    for (bool more = true; more && left > 0;) {
        more = false;
        each = room / left;
        for (uint32_t i = 0; i < n; i++) {
            if (is_full[i] || asks[i] > each)
                continue;
            is_full[i] = more = true;
            room -= asks[i];
            left--;
        }
    }
    return left > 0 ? each : INFINITY;
}

struct tenants { /* what each asks for, as a part of the time */
    int64_t ids[DEMAND_MAX];
    double asks[DEMAND_MAX], each; /* each: level() */
    uint32_t n;
};

static double per_ns(const struct demand *d, int64_t now_ns)
{
    return fade(d, now_ns) * log(2) / (double)DEMAND_HALF_NS;
}

/* As nearly always. */
static bool is_enough(const struct demand *d, int64_t now_ns)
{
    return d->n < 2 || d->sum_ns * per_ns(d, now_ns) <= ROOM;
}

static void take_tenant_demand(const struct demand *d, int64_t now_ns, struct tenants *out)
{
    const double by = per_ns(d, now_ns);

    out->n = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t k = 0;

        while (k < out->n && out->ids[k] != d->of[i].tenant)
            k++;
        if (k == out->n) {
            out->ids[out->n] = d->of[i].tenant;
            out->asks[out->n++] = 0;
        }
        out->asks[k] += d->of[i].ns * by;
    }
    out->each = level(out->asks, out->n, ROOM);
}

struct demand_part demand_part(const struct demand *d, int64_t tenant, int64_t now_ns)
{
    const double by = per_ns(d, now_ns);
    struct tenants all;
    double asks[DEMAND_MAX], mine = 0;
    uint32_t n = 0;

    if (is_enough(d, now_ns))
        return (struct demand_part){1, false};
    take_tenant_demand(d, now_ns, &all);
    for (uint32_t k = 0; k < all.n; k++)
        mine += all.ids[k] == tenant ? all.asks[k] : 0;
    if (all.each > 1 || mine <= all.each)
        return (struct demand_part){SH_MIN(all.each, 1), all.each <= 1};
    for (uint32_t i = 0; i < d->n; i++)
        if (d->of[i].tenant == tenant)
            asks[n++] = d->of[i].ns * by;
    return (struct demand_part){SH_MIN(level(asks, n, all.each), 1), false};
}

bool demand_has_modest(const struct demand *d, int64_t now_ns)
{
    struct tenants all;

    if (is_enough(d, now_ns))
        return false;
    take_tenant_demand(d, now_ns, &all);
    for (uint32_t k = 0; k < all.n && all.each <= 1; k++)
        if (all.asks[k] <= all.each && all.asks[k] >= SEEN)
            return true;
    return false;
}
