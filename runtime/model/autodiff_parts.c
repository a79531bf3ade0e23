/* autodiff_parts.c - gradients of tensors that are cut into parts along an axis: assembled once.
 *
 * Each part's gradient alone would be a tensor as large as the whole, mostly zeros, to be added up;
 * a sequence of n steps would cost n times its size. So parts wait until the gradient of the whole
 * is needed. Those that do not overlap are then joined, with zeros in the gaps.
 */
#include "common/mem.h"
#include "runtime/model/autodiff_int.h"

#include <stdlib.h>

#define MAX_PARTS IR_MAX_OPS

void ad__part(struct ad *a, struct ad_part p)
{
    if (sh_grow(&a->parts, &a->cap_parts, a->n_parts + 1, sizeof(*a->parts), MAX_PARTS,
                "parts of tensors", &a->ir->err) == SH_OK)
        a->parts[a->n_parts++] = p;
}

/* By tensor and axis, then by place. */
static int by_part_place(const void *x, const void *y)
{
    const struct ad_part *a = x, *b = y;

    if (a->whole != b->whole)
        return a->whole < b->whole ? -1 : 1;
    if (a->axis != b->axis)
        return a->axis < b->axis ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->g < b->g ? -1 : a->g > b->g;
}

/* Zeros for elements [from, to) of the axis. */
static uint32_t zeros_between(struct ad *a, const struct ad_part *p, int64_t from, int64_t to)
{
    struct dev_op fill = ir_op(DEV_OP_FILL, ir_t(a->ir, p->whole)->name, 0, NULL);
    struct dev_tensor d = *ir_t(a->ir, p->whole);

    d.dims[p->axis] = to - from;
    return ir_emit(a->ir, &fill, SH_F32, d.rank, d.dims);
}

static void add_padded(struct ad *a, const struct ad_part *p)
{
    struct dev_op pad = ir_op(DEV_OP_PAD, ir_t(a->ir, p->whole)->name, 1, &p->g);

    pad.u.pad.before[p->axis] = p->start;
    ad__add_op(a, p->whole, &pad);
}

/* n parts in order that do not overlap. */
static void add_joined(struct ad *a, const struct ad_part *p, size_t n)
{
    const int64_t size = ir_t(a->ir, p->whole)->dims[p->axis];
    uint32_t *in, k = 0;
    int64_t at = 0;

    if (n == 1) {
        add_padded(a, p);
        return;
    }
    in = ir_alloc(a->ir, 2 * (int64_t)n + 1, sizeof(*in));
    if (!in)
        return;
    for (size_t i = 0; i <= n; i++) {
        const int64_t next = i < n ? p[i].start : size;

        if (next > at)
            in[k++] = zeros_between(a, p, at, next);
        if (i == n)
            break;
        in[k++] = p[i].g;
        at = p[i].start + ir_t(a->ir, p[i].g)->dims[p->axis];
    }
    ad__add(a, p->whole, ir_joined(a->ir, ir_t(a->ir, p->whole)->name, in, k, p->axis));
    free(in);
}

/* How many parts from p on can be joined. */
static size_t run_of_parts(const struct ad *a, const struct ad_part *p, size_t n)
{
    size_t k = 1;

    while (k < n && p[k].whole == p->whole && p[k].axis == p->axis &&
           p[k - 1].start + ir_t(a->ir, p[k - 1].g)->dims[p->axis] <= p[k].start)
        k++;
    return k;
}

void ad__settle(struct ad *a, uint32_t root)
{
    size_t n = 0, kept = 0;
    struct ad_part *mine;

    for (size_t i = 0; i < a->n_parts; i++)
        n += ir_root(a->ir, a->parts[i].whole) == root;
    mine = n ? ir_alloc(a->ir, (int64_t)n, sizeof(*mine)) : NULL;
    if (!mine)
        return;
    n = 0;
    for (size_t i = 0; i < a->n_parts; i++)
        if (ir_root(a->ir, a->parts[i].whole) == root)
            mine[n++] = a->parts[i];
        else
            a->parts[kept++] = a->parts[i];
    a->n_parts = kept;
    qsort(mine, n, sizeof(*mine), by_part_place);
    for (size_t i = 0, k; i < n; i += k) {
        k = run_of_parts(a, &mine[i], n - i);
        add_joined(a, &mine[i], k);
    }
    free(mine);
}
