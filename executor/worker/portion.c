/* portion.c - see portion.h. */
#include "executor/worker/portion.h"

#include "common/mem.h"

uint32_t portion_end(const double *op_ns, uint32_t op, uint32_t limit, double *ns)
{
    uint32_t end = op + 1;

    *ns = op_ns ? op_ns[op] : 0;
    while (op_ns && end < limit && (op_ns[end] <= 0 || *ns + op_ns[end] <= PORTION_NS))
        *ns += op_ns[end++];
    return end;
}

uint32_t portions_add(struct portions *p, double ns, double bound_ns)
{
    double sum = 0;
    uint32_t n = 0;

    p->ns[p->n++ % PORTIONS_MAX] = ns;
    for (; n < p->n && n < PORTIONS_MAX; n++) {
        sum += p->ns[(p->n - 1 - n) % PORTIONS_MAX];
        if (sum > bound_ns)
            break;
    }
    return SH_MAX(n, 1u);
}

bool portions_apart(const struct portions *p, double ns, double bound_ns)
{
    double last = p->n ? p->ns[(p->n - 1) % PORTIONS_MAX] : 0;

    return last + ns > PORTIONS_ALONE * bound_ns;
}
