/* leave.c - see leave.h. */
#include "executor/memory/leave.h"

#include "common/mem.h"

#include <stdlib.h>

static int by_use(const void *a, const void *b)
{
    const struct leave_image *x = a, *y = b;

    return (x->last_use_ns < y->last_use_ns) - (x->last_use_ns > y->last_use_ns);
}

/* Of a tenant in the first n images, without what leaves. */
static uint64_t held(const struct leave_image *v, size_t n, uint32_t tag)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += v[i].tag == tag && !v[i].leaves ? v[i].bytes : 0;
    return sum;
}

static bool is_first_of_tenant(const struct leave_image *v, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (v[k].tag == v[i].tag)
            return false;
    return true;
}

struct part { /* of the limit */
    double rest, shares;
};

static struct part part_of(const struct leave_image *v, size_t n, uint64_t limit)
{
    struct part p = {.rest = (double)limit};

    for (size_t i = 0; i < n; i++)
        if (is_first_of_tenant(v, i)) {
            p.shares += v[i].share;
            p.rest -= (double)v[i].min_bytes;
        }
    return p;
}

static bool is_over(const struct leave_image *v, size_t n, size_t i, const struct part *p)
{
    const double more = p->shares > 0 ? SH_MAX(p->rest, 0.0) * v[i].share / p->shares : 0;

    return (double)held(v, n, v[i].tag) > (double)v[i].min_bytes + more;
}

uint64_t leave_choose(struct leave_image *v, size_t n, uint64_t limit, uint32_t only_tag,
                      uint64_t bytes)
{
    struct part p;
    uint64_t freed = 0;

    if (n > 1)
        qsort(v, n, sizeof(*v), by_use);
    p = part_of(v, n, limit);
    for (size_t i = 0; i < n; i++) /* what was used last fills the min */
        v[i].may_leave = v[i].may_leave && (only_tag == LEAVE_ANY || v[i].tag == only_tag) &&
                         (v[i].min_bytes == 0 || held(v, i, v[i].tag) >= v[i].min_bytes);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = n; i-- > 0 && freed < bytes;) {
            if (!v[i].may_leave || v[i].leaves || (pass == 0 && !is_over(v, n, i, &p)))
                continue;
            v[i].leaves = true;
            freed += v[i].bytes;
        }
    return freed;
}
