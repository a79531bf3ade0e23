/* strided.c - from the axes of a tensor to steps in what it was cut out of.
 *
 * An axis takes `count` steps of `stride` elements. Going up over an operation, it has to step
 * along one axis of the operation's result and stay inside it; above, it steps by that axis' own
 * stride. One that spans several axes has no single stride there: the way up ends.
 */
#include "runtime/model/strided.h"

#include "runtime/model/pass.h"

struct axes {
    struct {
        int64_t count, stride;
    } d[SH_MAX_RANK]; /* the caller's */
    uint32_t n;
    int64_t at;
};

static void row_major(uint32_t rank, const int64_t *dims, int64_t *out)
{
    int64_t n = 1;

    for (uint32_t i = rank; i-- > 0;) {
        out[i] = n;
        n *= dims[i];
    }
}

/* The axis of t into whose steps `stride` falls; rank: none. */
static uint32_t axis_of_stride(const struct dev_tensor *t, const int64_t *steps, int64_t stride)
{
    uint32_t i = 0;

    while (i < t->rank && (t->dims[i] == 1 || stride < steps[i] || stride >= steps[i] * t->dims[i]))
        i++;
    return i;
}

/* Several may share an axis of t. With a start inside of a slice, the last element of all counts:
 * it may carry over into the next axis, and then strides do not add up. */
static bool stays_inside(const struct axes *a, const struct dev_tensor *t, const int64_t *steps)
{
    int64_t last[SH_MAX_RANK];

    for (uint32_t i = 0; i < t->rank; i++)
        last[i] = a->at / steps[i] % t->dims[i];
    for (uint32_t k = 0; k < a->n; k++) {
        const uint32_t axis = axis_of_stride(t, steps, a->d[k].stride);

        if (a->d[k].count == 1)
            continue;
        if (axis == t->rank || a->d[k].stride % steps[axis] != 0)
            return false;
        last[axis] += (a->d[k].count - 1) * (a->d[k].stride / steps[axis]);
    }
    for (uint32_t i = 0; i < t->rank; i++)
        if (last[i] >= t->dims[i])
            return false;
    return true;
}

/* From element numbers of t to those of a tensor in which axis i of t steps by up[i]. */
static void step_up_axes(struct axes *a, const struct dev_tensor *t, const int64_t *steps,
                         const int64_t *up)
{
    int64_t at = 0;

    for (uint32_t k = 0; k < a->n; k++) {
        const uint32_t axis =
            a->d[k].count > 1 ? axis_of_stride(t, steps, a->d[k].stride) : t->rank;

        if (axis < t->rank)
            a->d[k].stride = a->d[k].stride / steps[axis] * up[axis];
    }
    for (uint32_t i = 0; i < t->rank; i++)
        at += a->at / steps[i] % t->dims[i] * up[i];
    a->at = at;
}

/* Over the TRANSPOSE or SLICE that writes the root *t. false: there is none, or it cannot. */
static bool go_up(const struct ir *ir, const struct ir_uses *u, uint32_t *t, struct axes *a)
{
    const uint32_t w = u->writer[*t];
    const struct dev_op *op = w == DEV_NONE ? NULL : &ir->g.ops[w];
    const struct dev_tensor *x, *y;
    int64_t in[SH_MAX_RANK], out[SH_MAX_RANK], up[SH_MAX_RANK], at = 0;

    if (!op || (op->kind != DEV_OP_TRANSPOSE && op->kind != DEV_OP_SLICE))
        return false;
    x = ir_t(ir, op->in[0]);
    y = ir_t(ir, op->out[0]);
    row_major(x->rank, x->dims, in);
    row_major(y->rank, y->dims, out);
    for (uint32_t i = 0; i < y->rank; i++)
        if (op->kind == DEV_OP_TRANSPOSE) {
            up[i] = in[op->u.perm.perm[i]];
        } else {
            up[i] = in[i] * op->u.slice.step[i];
            at += in[i] * op->u.slice.start[i];
            if (op->u.slice.step[i] <= 0)
                return false;
        }
    if (!stays_inside(a, y, out))
        return false;
    step_up_axes(a, y, out, up);
    a->at += at;
    *t = ir_root(ir, op->in[0]);
    return true;
}

void strided_of(const struct ir *ir, const struct ir_uses *u, uint32_t t, uint32_t rank,
                const int64_t *dims, strided_peel *peel, void *ctx, struct strided *out)
{
    struct axes a = {.n = rank};
    int64_t steps[SH_MAX_RANK];

    row_major(rank, dims, steps);
    for (uint32_t i = 0; i < rank; i++) {
        a.d[i].count = dims[i];
        a.d[i].stride = steps[i];
    }
    t = ir_root(ir, t);
    while (go_up(ir, u, &t, &a) || (peel && peel(ctx, &t)))
        t = ir_root(ir, t);
    *out = (struct strided){.source = t, .at = a.at};
    for (uint32_t i = 0; i < rank; i++)
        out->stride[i] = a.d[i].count > 1 ? a.d[i].stride : 0;
}
