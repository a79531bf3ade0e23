/* lower_emit.c - building blocks of compositions: cuts, pads, transpositions, sums, tables of
 * numbers. */
#include "common/mem.h"
#include "runtime/model/lower_int.h"

#include <stdlib.h>

uint32_t lower__cut(struct lower *lo, const char *name, uint32_t x, struct lower_cut c)
{
    struct dev_op op = ir_op(DEV_OP_SLICE, name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);

    if (c.start == 0 && c.step == 1 && c.n == d.dims[c.axis])
        return x;
    for (uint32_t i = 0; i < d.rank; i++)
        op.u.slice.step[i] = 1;
    op.u.slice.start[c.axis] = c.start;
    op.u.slice.step[c.axis] = c.step;
    d.dims[c.axis] = c.n;
    return ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims);
}

struct rows { /* of a constant */
    const char *from;
    size_t bytes;
};

static void copy_table_rows(const void *ctx, void *to)
{
    const struct rows *r = ctx;

    memcpy(to, r->from, r->bytes);
}

uint32_t lower__rows(struct lower *lo, const char *name, uint32_t x, int64_t first, int64_t n)
{
    struct dev_tensor d = *ir_t(lo->ir, x);
    const char *root = ir_t(lo->ir, ir_root(lo->ir, x))->name;
    size_t row = sh_dtype_bytes(d.dtype) * (size_t)dev_axes_elements(&d, 1, d.rank);
    struct rows *r;

    if (lo->training || !ir_is_given(lo->ir, x) || n == d.dims[0])
        return lower__cut(lo, name, x, (struct lower_cut){0, first, 1, n});
    r = ir_alloc(lo->ir, 1, sizeof(*r));
    if (r)
        *r = (struct rows){(const char *)ir_data(lo->ir, x) + (size_t)first * row, (size_t)n * row};
    d.dims[0] = n;
    return ir_later(lo->ir, &d,
                    ir_name(lo->ir, "%s#%lld+%lld", root, (long long)first, (long long)n),
                    copy_table_rows, r);
}

uint32_t lower__pad_axis(struct lower *lo, const char *name, uint32_t x, struct lower_pad p)
{
    struct dev_op op = ir_op(DEV_OP_PAD, name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);

    if (p.before == 0 && p.after == 0)
        return x;
    op.u.pad.before[p.axis] = p.before;
    d.dims[p.axis] += p.before + p.after;
    return ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims);
}

uint32_t lower__turn(struct lower *lo, const char *name, uint32_t x, const uint32_t *perm)
{
    struct dev_op op = ir_op(DEV_OP_TRANSPOSE, name, 1, &x);
    struct dev_tensor from = *ir_t(lo->ir, x), to = from;
    bool moves = false;
    int64_t last = -1;

    if (lo->ir->err.rc)
        return DEV_NONE;
    for (uint32_t i = 0; i < from.rank; i++) {
        op.u.perm.perm[i] = perm[i];
        to.dims[i] = from.dims[perm[i]];
        if (to.dims[i] == 1)
            continue; /* an axis of one element may go anywhere */
        moves |= (int64_t)perm[i] < last;
        last = perm[i];
    }
    return moves ? ir_emit(lo->ir, &op, to.dtype, to.rank, to.dims)
                 : ir_alias(lo->ir, x, to.rank, to.dims);
}

uint32_t lower__reduced(struct lower *lo, const char *name, uint32_t x, enum dev_red kind,
                        uint32_t axes)
{
    struct dev_op op = ir_op(DEV_OP_REDUCE, name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);

    for (uint32_t i = 0; i < d.rank; i++)
        if (axes >> i & 1)
            d.dims[i] = 1;
    op.u.reduce.kind = kind;
    op.u.reduce.axes = axes;
    op.u.reduce.keep_dims = true;
    return ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims);
}

uint32_t lower__table(struct lower *lo, const struct lower_table *t, void *data)
{
    const bool is_sent = t->by_size && !lo->training;
    const enum dev_role role = lo->training ? DEV_ROLE_STATE
                               : is_sent    ? DEV_ROLE_INPUT
                                            : DEV_ROLE_WEIGHT;
    const uint32_t out = ir_const(lo->ir, t->name, role, t->dtype, 1, &t->n, data);

    if (is_sent && out != DEV_NONE) {
        lo->ir->info[out].sent = data;
        lo->ir->info[out].data = NULL;
    }
    return out;
}

uint32_t lower__number(struct lower *lo, const struct graph_node *n, float v)
{
    const struct graph_value *owner = lower__out(lo, n);
    struct lower_table one = {.name = ir_name(lo->ir, "%s#%g", owner->name, (double)v),
                              .n = 1,
                              .by_size = owner->by_size};
    float *data = ir_alloc(lo->ir, 1, sizeof(*data));

    if (data)
        *data = v;
    return lower__table(lo, &one, data);
}

uint32_t lower__not_zero(struct lower *lo, const struct graph_node *n, uint32_t x)
{
    const struct dev_tensor d = *ir_t(lo->ir, x);
    const uint32_t zero = lower__number(lo, n, 0.0f), one = lower__number(lo, n, 1.0f);
    struct dev_op is_zero = ir_op(DEV_OP_BINARY, n->name, 2, (uint32_t[]){x, zero}), where;

    is_zero.u.binary.kind = DEV_BIN_EQUAL;
    where = ir_op(DEV_OP_WHERE, n->name, 3,
                  (uint32_t[]){ir_emit(lo->ir, &is_zero, SH_BOOL, d.rank, d.dims), one, x});
    return ir_emit(lo->ir, &where, SH_F32, d.rank, d.dims);
}

uint32_t lower__as(struct lower *lo, const char *name, uint32_t x, enum sh_dtype t)
{
    struct dev_op op = ir_op(DEV_OP_COPY, name, 1, &x);
    const struct dev_tensor d = *ir_t(lo->ir, x);

    return d.dtype == t ? x : ir_emit(lo->ir, &op, t, d.rank, d.dims);
}

uint32_t lower__per_channel(struct lower *lo, const char *name, uint32_t x, enum dev_bin k,
                            uint32_t c)
{
    const struct dev_tensor *d = ir_t(lo->ir, x);
    int64_t dims[SH_MAX_RANK] = {d->dims[1], 1, 1, 1, 1, 1, 1};

    c = ir_alias(lo->ir, c, d->rank - 1, dims);
    return ir_binary(lo->ir, k, name, x, c, x);
}

uint32_t lower__power(struct lower *lo, const char *name, uint32_t x, int64_t p)
{
    if (p == 2)
        return ir_binary(lo->ir, DEV_BIN_MUL, name, x, x, x);
    x = ir_act(lo->ir, DEV_ACT_ABS, 0.0f, 0.0f, name, x);
    return p == 1 ? x : ir_act(lo->ir, DEV_ACT_POW, (float)p, 0.0f, name, x);
}

uint32_t lower__root(struct lower *lo, const char *name, uint32_t x, int64_t p)
{
    if (p == 1)
        return x;
    return p == 2 ? ir_act(lo->ir, DEV_ACT_SQRT, 0.0f, 0.0f, name, x)
                  : ir_act(lo->ir, DEV_ACT_POW, 1.0f / (float)p, 0.0f, name, x);
}
