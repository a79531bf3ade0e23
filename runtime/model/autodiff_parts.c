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

int ad__part(struct ad *a, struct ad_part p, struct sh_err *err)
{
    int rc = sh_grow(&a->parts, &a->cap_parts, a->n_parts + 1, sizeof(*a->parts), MAX_PARTS,
                     "parts of tensors", err);

    if (!rc)
        a->parts[a->n_parts++] = p;
    return rc;
}

/* By tensor and axis, then by place. */
static int by_place(const void *x, const void *y)
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
static int gap(struct ad *a, const struct ad_part *p, int64_t from, int64_t to, uint32_t *out,
               struct sh_err *err)
{
    struct dev_op fill = ir_op(DEV_OP_FILL, ir_t(a->ir, p->whole)->name, 0, NULL);
    struct dev_tensor d = *ir_t(a->ir, p->whole);

    d.dims[p->axis] = to - from;
    return ir_emit(a->ir, &fill, SH_F32, d.rank, d.dims, out, err);
}

static int join(struct ad *a, const struct ad_part *p, uint32_t *in, uint32_t n, uint32_t *out,
                struct sh_err *err)
{
    const char *name = ir_t(a->ir, p->whole)->name;
    int rc = SH_OK;

    while (n > 1 && rc == SH_OK) {
        uint32_t left = 0;

        for (uint32_t i = 0; i < n && rc == SH_OK; i += DEV_MAX_IN) {
            const uint32_t k = SH_MIN(n - i, (uint32_t)DEV_MAX_IN);
            struct dev_op op = ir_op(DEV_OP_CONCAT, name, k, &in[i]);
            struct dev_tensor d = *ir_t(a->ir, in[i]);
            uint32_t t = in[i];

            for (uint32_t j = 1; j < k; j++)
                d.dims[p->axis] += ir_t(a->ir, in[i + j])->dims[p->axis];
            op.u.axis.axis = p->axis;
            if (k > 1)
                rc = ir_emit(a->ir, &op, SH_F32, d.rank, d.dims, &t, err);
            in[left++] = t;
        }
        n = left;
    }
    *out = in[0];
    return rc;
}

static int add_padded(struct ad *a, const struct ad_part *p, struct sh_err *err)
{
    struct dev_op pad = ir_op(DEV_OP_PAD, ir_t(a->ir, p->whole)->name, 1, &p->g);
    uint32_t g;
    int rc;

    pad.u.pad.before[p->axis] = p->start;
    rc = ir_emit_like(a->ir, &pad, p->whole, &g, err);
    return rc ? rc : ad__add(a, p->whole, g, err);
}

/* n parts in order that do not overlap. */
static int add_joined(struct ad *a, const struct ad_part *p, size_t n, struct sh_err *err)
{
    const int64_t size = ir_t(a->ir, p->whole)->dims[p->axis];
    uint32_t *in = malloc((2 * n + 1) * sizeof(*in)), k = 0, g;
    int64_t at = 0;
    int rc = SH_OK;

    if (n == 1) {
        free(in);
        return add_padded(a, p, err);
    }
    if (!in)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu parts", n);
    for (size_t i = 0; i <= n && rc == SH_OK; i++) {
        const int64_t next = i < n ? p[i].start : size;

        if (next > at)
            rc = gap(a, p, at, next, &in[k++], err);
        if (i == n)
            break;
        in[k++] = p[i].g;
        at = p[i].start + ir_t(a->ir, p[i].g)->dims[p->axis];
    }
    if (!rc)
        rc = join(a, p, in, k, &g, err);
    free(in);
    return rc ? rc : ad__add(a, p->whole, g, err);
}

/* How many parts from p on can be joined. */
static size_t run_of(const struct ad *a, const struct ad_part *p, size_t n)
{
    size_t k = 1;

    while (k < n && p[k].whole == p->whole && p[k].axis == p->axis &&
           p[k - 1].start + ir_t(a->ir, p[k - 1].g)->dims[p->axis] <= p[k].start)
        k++;
    return k;
}

int ad__settle(struct ad *a, uint32_t root, struct sh_err *err)
{
    size_t n = 0, kept = 0;
    struct ad_part *mine;
    int rc = SH_OK;

    for (size_t i = 0; i < a->n_parts; i++)
        n += ir_root(a->ir, a->parts[i].whole) == root;
    if (n == 0)
        return SH_OK;
    mine = malloc(n * sizeof(*mine));
    if (!mine)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu parts", n);
    n = 0;
    for (size_t i = 0; i < a->n_parts; i++)
        if (ir_root(a->ir, a->parts[i].whole) == root)
            mine[n++] = a->parts[i];
        else
            a->parts[kept++] = a->parts[i];
    a->n_parts = kept;
    qsort(mine, n, sizeof(*mine), by_place);
    for (size_t i = 0; i < n && rc == SH_OK;) {
        const size_t k = run_of(a, &mine[i], n - i);

        rc = add_joined(a, &mine[i], k, err);
        i += k;
    }
    free(mine);
    return rc;
}
