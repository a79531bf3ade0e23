/* strided.c - a tensor's axes as digits of the element numbers of what it was cut out of.
 *
 * A digit is (count, stride): the axis takes `count` steps of `stride` elements. At first each axis
 * is one digit. Going up over an operation, every digit has to fall into one axis of the
 * operation's result; one that spans several is split where their borders are. Above, it steps by
 * that axis' own stride. At the end the digits of an axis must be steps of one stride again.
 */
#include "executor/model/strided.h"

#include "executor/model/pass.h"

#include <string.h>

#define MAX_DIGITS 24

struct digit {
    int64_t count, stride;
    uint32_t axis; /* the caller's */
};

struct digits {
    struct digit d[MAX_DIGITS]; /* of one axis: the outer ones first */
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
static uint32_t axis_of(const struct dev_tensor *t, const int64_t *steps, int64_t stride)
{
    uint32_t i = 0;

    while (i < t->rank && (t->dims[i] == 1 || stride < steps[i] || stride >= steps[i] * t->dims[i]))
        i++;
    return i;
}

/* Cuts digit k where it leaves its axis of t. false: it does not fit the borders. */
static bool cut(struct digits *s, uint32_t k, const struct dev_tensor *t, const int64_t *steps)
{
    const uint32_t axis = axis_of(t, steps, s->d[k].stride);
    int64_t room;

    if (axis == t->rank || s->d[k].stride % steps[axis] != 0)
        return false;
    room = steps[axis] * t->dims[axis] / s->d[k].stride; /* steps that stay in the axis */
    if (s->d[k].count <= room)
        return true;
    if (s->d[k].count % room != 0 || steps[axis] * t->dims[axis] % s->d[k].stride != 0 ||
        s->n == MAX_DIGITS)
        return false;
    memmove(&s->d[k + 1], &s->d[k], (s->n - k) * sizeof(s->d[0]));
    s->n++;
    s->d[k].count /= room;
    s->d[k].stride *= room;
    s->d[k + 1].count = room;
    return cut(s, k, t, steps); /* the outer part may span further axes */
}

/* From element numbers of t to those of a tensor in which axis i of t steps by up[i]. */
static bool step_up(struct digits *s, const struct dev_tensor *t, const int64_t *up)
{
    int64_t steps[SH_MAX_RANK], at = 0;

    row_major(t->rank, t->dims, steps);
    for (uint32_t k = 0; k < s->n; k++)
        if (s->d[k].count > 1 && !cut(s, k, t, steps))
            return false;
    for (uint32_t k = 0; k < s->n; k++) {
        const uint32_t axis = s->d[k].count > 1 ? axis_of(t, steps, s->d[k].stride) : 0;

        if (s->d[k].count > 1)
            s->d[k].stride = s->d[k].stride / steps[axis] * up[axis];
    }
    for (uint32_t i = 0; i < t->rank; i++)
        at += s->at / steps[i] % t->dims[i] * up[i];
    s->at = at;
    return true;
}

/* Do all steps stay inside an axis once the start is added? A start inside of a slice may carry
 * over into the next axis, and then strides do not add up. */
static bool carries(const struct digits *s, const struct dev_tensor *t)
{
    int64_t steps[SH_MAX_RANK], last[SH_MAX_RANK];

    row_major(t->rank, t->dims, steps);
    for (uint32_t i = 0; i < t->rank; i++)
        last[i] = s->at / steps[i] % t->dims[i];
    for (uint32_t k = 0; k < s->n; k++) {
        const uint32_t axis = s->d[k].count > 1 ? axis_of(t, steps, s->d[k].stride) : t->rank;

        if (axis < t->rank)
            last[axis] += (s->d[k].count - 1) * (s->d[k].stride / steps[axis]);
    }
    for (uint32_t i = 0; i < t->rank; i++)
        if (last[i] >= t->dims[i])
            return true;
    return false;
}

/* Over the TRANSPOSE or SLICE that writes the root *t. false: there is none, or it cannot. */
static bool go_up(const struct ir *ir, const struct ir_uses *u, uint32_t *t, struct digits *s)
{
    const uint32_t w = u->writer[*t];
    const struct dev_op *op = w == DEV_NONE ? NULL : &ir->g.ops[w];
    const struct dev_tensor *x, *y;
    int64_t in[SH_MAX_RANK], up[SH_MAX_RANK], at = 0;
    struct digits next = *s;

    if (!op || (op->kind != DEV_OP_TRANSPOSE && op->kind != DEV_OP_SLICE))
        return false;
    x = ir_t(ir, op->in[0]);
    y = ir_t(ir, op->out[0]);
    row_major(x->rank, x->dims, in);
    for (uint32_t i = 0; i < y->rank; i++)
        if (op->kind == DEV_OP_TRANSPOSE) {
            up[i] = in[op->u.perm.perm[i]];
        } else {
            up[i] = in[i] * op->u.slice.step[i];
            at += in[i] * op->u.slice.start[i];
            if (op->u.slice.step[i] <= 0)
                return false;
        }
    if (carries(&next, y) || !step_up(&next, y, up))
        return false;
    next.at += at;
    *s = next;
    *t = ir_root(ir, op->in[0]);
    return true;
}

bool strided_of(const struct ir *ir, const struct ir_uses *u, uint32_t t, uint32_t rank,
                const int64_t *dims, strided_peel *peel, void *ctx, struct strided *out)
{
    struct digits s = {.n = rank};
    int64_t steps[SH_MAX_RANK];
    bool has[SH_MAX_RANK] = {false};

    row_major(rank, dims, steps);
    for (uint32_t i = 0; i < rank; i++)
        s.d[i] = (struct digit){.count = dims[i], .stride = steps[i], .axis = i};
    t = ir_root(ir, t);
    while (go_up(ir, u, &t, &s) || (peel && peel(ctx, &t)))
        t = ir_root(ir, t);
    *out = (struct strided){.source = t, .at = s.at};
    for (uint32_t k = s.n; k-- > 0;) { /* the innermost digit first */
        const struct digit *d = &s.d[k], *inner = k + 1 < s.n ? &s.d[k + 1] : NULL;

        if (d->count > 1 && has[d->axis] && inner && inner->axis == d->axis &&
            d->stride != inner->stride * inner->count)
            return false;
        if (d->count > 1 && !has[d->axis]) {
            out->stride[d->axis] = d->stride;
            has[d->axis] = true;
        }
    }
    return true;
}
