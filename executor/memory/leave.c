/* leave.c - see leave.h. */
#include "executor/memory/leave.h"

#include "common/mem.h"

#include <stdlib.h>

static int by_image_use(const void *a, const void *b)
{
    const struct leave_image *x = a, *y = b;

    return (x->last_use_ns < y->last_use_ns) - (x->last_use_ns > y->last_use_ns);
}

static int by_image_tag(const void *a, const void *b)
{
    const struct leave_image *x = a, *y = b;

    return (x->tag > y->tag) - (x->tag < y->tag);
}

struct part { /* of the limit */
    double rest, shares;
};

/* Numbers the tenants. */
static struct part part_of_tenants(struct leave_image *v, size_t n, uint64_t limit)
{
    struct part p = {.rest = (double)limit};

    if (n > 1)
        qsort(v, n, sizeof(*v), by_image_tag);
    for (size_t i = 0; i < n; i++) {
        const bool is_first = i == 0 || v[i].tag != v[i - 1].tag;

        v[i].tenant = i == 0 ? 0 : v[i - 1].tenant + is_first;
        v[i].held = 0;
        p.shares += is_first ? v[i].share : 0;
        p.rest -= is_first ? (double)v[i].min_bytes : 0;
    }
    return p;
}

/* What the tenant of v[i] holds. */
static uint64_t *held_bytes(struct leave_image *v, size_t i)
{
    return &v[v[i].tenant].held;
}

static bool is_over_part(struct leave_image *v, size_t i, const struct part *p)
{
    const double more = p->shares > 0 ? SH_MAX(p->rest, 0.0) * v[i].share / p->shares : 0;

    return (double)*held_bytes(v, i) > (double)v[i].min_bytes + more;
}

uint64_t leave_choose(struct leave_image *v, size_t n, uint64_t limit, uint32_t only_tag,
                      uint64_t bytes)
{
    const struct part p = part_of_tenants(v, n, limit);
    uint64_t freed = 0;

    if (n > 1)
        qsort(v, n, sizeof(*v), by_image_use);
    for (size_t i = 0; i < n; i++) { /* what was used last fills the min */
        v[i].may_leave = v[i].may_leave && (only_tag == LEAVE_ANY || v[i].tag == only_tag) &&
                         *held_bytes(v, i) >= v[i].min_bytes;
        *held_bytes(v, i) += v[i].bytes;
    }
    for (int pass = 0; pass < 4; pass++)
        for (size_t i = n; i-- > 0 && freed < bytes;) {
            const bool shares = v[i].frees < v[i].bytes;

            if (!v[i].may_leave || v[i].leaves || shares != (pass % 2 == 1) ||
                (pass < 2 && !is_over_part(v, i, &p)))
                continue;
            v[i].leaves = true;
            *held_bytes(v, i) -= v[i].bytes;
            freed += v[i].frees;
            if (shares && bytes != LEAVE_ALL)
                return freed;
        }
    return freed;
}
