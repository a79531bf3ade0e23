/* lower_emit.c - what compositions are made of: cuts, pads, turns, sums, tables of numbers. */
#include "common/mem.h"
#include "executor/model/lower_int.h"

#include <stdlib.h>

int lower__cut(struct lower *lo, const char *name, uint32_t x, struct lower_cut c, uint32_t *y,
               struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_SLICE, name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);

    *y = x;
    if (c.start == 0 && c.step == 1 && c.n == d.dims[c.axis])
        return SH_OK;
    for (uint32_t i = 0; i < d.rank; i++)
        op.u.slice.step[i] = 1;
    op.u.slice.start[c.axis] = c.start;
    op.u.slice.step[c.axis] = c.step;
    d.dims[c.axis] = c.n;
    return ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims, y, err);
}

int lower__pad_axis(struct lower *lo, const char *name, uint32_t x, struct lower_pad p, uint32_t *y,
                    struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_PAD, name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);

    *y = x;
    if (p.before == 0 && p.after == 0)
        return SH_OK;
    op.u.pad.before[p.axis] = p.before;
    d.dims[p.axis] += p.before + p.after;
    return ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims, y, err);
}

int lower__turn(struct lower *lo, const char *name, uint32_t x, const uint32_t *perm, uint32_t *y,
                struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_TRANSPOSE, name, 1, &x);
    struct dev_tensor from = *ir_t(lo->ir, x), to = from;
    bool moves = false;
    int64_t last = -1;

    for (uint32_t i = 0; i < from.rank; i++) {
        op.u.perm.perm[i] = perm[i];
        to.dims[i] = from.dims[perm[i]];
        if (to.dims[i] == 1)
            continue; /* an axis of one element may go anywhere */
        moves |= (int64_t)perm[i] < last;
        last = perm[i];
    }
    if (!moves)
        return ir_alias(lo->ir, x, to.rank, to.dims, y, err);
    return ir_emit(lo->ir, &op, to.dtype, to.rank, to.dims, y, err);
}

int lower__reduced(struct lower *lo, const char *name, uint32_t x, enum dev_red kind, uint32_t axes,
                   uint32_t *y, struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_REDUCE, name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);

    for (uint32_t i = 0; i < d.rank; i++)
        if (axes >> i & 1)
            d.dims[i] = 1;
    op.u.reduce.kind = kind;
    op.u.reduce.axes = axes;
    op.u.reduce.keep_dims = true;
    return ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims, y, err);
}

int lower__joined(struct lower *lo, const char *name, const uint32_t *in, uint32_t n, int64_t axis,
                  uint32_t *y, struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_CONCAT, name, n, in);
    struct dev_tensor d = *ir_t(lo->ir, in[0]);

    *y = in[0];
    if (n == 1)
        return SH_OK;
    for (uint32_t i = 1; i < n; i++)
        d.dims[axis] += ir_t(lo->ir, in[i])->dims[axis];
    op.u.axis.axis = axis;
    return ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims, y, err);
}

int lower__table(struct lower *lo, const char *name, enum sh_dtype t, int64_t n, void *data,
                 uint32_t *out, struct sh_err *err)
{
    const enum dev_role role = lo->training ? DEV_ROLE_STATE : DEV_ROLE_WEIGHT;
    int rc = ir_const(lo->ir, name, role, t, 1, &n, data, out, err);

    if (rc)
        free(data);
    return rc;
}

int lower__number(struct lower *lo, const char *owner, float v, uint32_t *out, struct sh_err *err)
{
    float *data = malloc(sizeof(*data));
    const char *name;
    int rc;

    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant");
    *data = v;
    rc = ir_name(lo->ir, &name, err, "%s#%g", owner, (double)v);
    if (rc) {
        free(data);
        return rc;
    }
    return lower__table(lo, name, SH_F32, 1, data, out, err);
}

int lower__per_channel(struct lower *lo, const char *name, uint32_t x, enum dev_bin k, uint32_t c,
                       uint32_t *y, struct sh_err *err)
{
    const struct dev_tensor *d = ir_t(lo->ir, x);
    int64_t dims[SH_MAX_RANK] = {d->dims[1], 1, 1, 1, 1, 1, 1};
    int rc = ir_alias(lo->ir, c, d->rank - 1, dims, &c, err);

    return rc ? rc : ir_binary(lo->ir, k, name, x, c, x, y, err);
}

int lower__power(struct lower *lo, const char *name, uint32_t x, int64_t p, uint32_t *y,
                 struct sh_err *err)
{
    int rc;

    if (p == 2)
        return ir_binary(lo->ir, DEV_BIN_MUL, name, x, x, x, y, err);
    rc = ir_act(lo->ir, DEV_ACT_ABS, 0.0f, 0.0f, name, x, y, err);
    return rc || p == 1 ? rc : ir_act(lo->ir, DEV_ACT_POW, (float)p, 0.0f, name, *y, y, err);
}

int lower__root(struct lower *lo, const char *name, uint32_t x, int64_t p, uint32_t *y,
                struct sh_err *err)
{
    *y = x;
    if (p == 1)
        return SH_OK;
    return ir_act(lo->ir, p == 2 ? DEV_ACT_SQRT : DEV_ACT_POW, p == 2 ? 0.0f : 1.0f / (float)p,
                  0.0f, name, x, y, err);
}
