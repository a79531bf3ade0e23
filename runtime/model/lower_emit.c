/* lower_emit.c - building blocks of compositions: cuts, pads, transpositions, sums, tables of
 * numbers. */
#include "common/mem.h"
#include "runtime/model/lower_int.h"

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

struct rows { /* of a constant */
    const char *from;
    size_t bytes;
};

static void copy_rows(const void *ctx, void *to)
{
    const struct rows *r = ctx;

    memcpy(to, r->from, r->bytes);
}

int lower__rows(struct lower *lo, const char *name, uint32_t x, int64_t first, int64_t n,
                uint32_t *y, struct sh_err *err)
{
    struct dev_tensor d = *ir_t(lo->ir, x);
    const char *root = ir_t(lo->ir, ir_root(lo->ir, x))->name, *own;
    size_t row = sh_dtype_bytes(d.dtype) * (size_t)dev_axes_elements(&d, 1, d.rank);
    struct rows *r;
    int rc;

    if (lo->training || !ir_is_given(lo->ir, x) || n == d.dims[0])
        return lower__cut(lo, name, x, (struct lower_cut){0, first, 1, n}, y, err);
    rc = ir_name(lo->ir, &own, err, "%s#%lld+%lld", root, (long long)first, (long long)n);
    r = malloc(sizeof(*r));
    if (!rc && !r)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant");
    if (rc)
        goto out;
    *r = (struct rows){(const char *)ir_data(lo->ir, x) + (size_t)first * row, (size_t)n * row};
    d.dims[0] = n;
    rc = ir_later(lo->ir, &d, own, copy_rows, r, y, err);
    if (!rc)
        r = NULL;
out:
    free(r);
    return rc;
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

/* More inputs than an operation takes: in rounds. */
static int join_some(struct lower *lo, const char *name, uint32_t *in, uint32_t *count,
                     int64_t axis, struct sh_err *err)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < *count; i += DEV_MAX_IN) {
        uint32_t k = SH_MIN(*count - i, (uint32_t)DEV_MAX_IN);
        struct dev_op op = ir_op(DEV_OP_CONCAT, name, k, &in[i]);
        struct dev_tensor d = *ir_t(lo->ir, in[i]);
        uint32_t t = in[i];
        int rc = SH_OK;

        for (uint32_t j = 1; j < k; j++)
            d.dims[axis] += ir_t(lo->ir, in[i + j])->dims[axis];
        op.u.axis.axis = axis;
        if (k > 1)
            rc = ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims, &t, err);
        if (rc)
            return rc;
        in[left++] = t;
    }
    *count = left;
    return SH_OK;
}

int lower__joined(struct lower *lo, const char *name, const uint32_t *in, uint32_t n, int64_t axis,
                  uint32_t *y, struct sh_err *err)
{
    uint32_t *list = malloc(n * sizeof(*list));
    int rc = SH_OK;

    if (!list)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of %u tensors", n);
    memcpy(list, in, n * sizeof(*list));
    while (!rc && n > 1)
        rc = join_some(lo, name, list, &n, axis, err);
    *y = list[0];
    free(list);
    return rc;
}

int lower__table(struct lower *lo, const struct lower_table *t, void *data, uint32_t *out,
                 struct sh_err *err)
{
    const bool is_sent = t->by_size && !lo->training;
    const enum dev_role role = lo->training ? DEV_ROLE_STATE
                               : is_sent    ? DEV_ROLE_INPUT
                                            : DEV_ROLE_WEIGHT;
    int rc = ir_const(lo->ir, t->name, role, t->dtype, 1, &t->n, data, out, err);

    if (rc) {
        free(data);
    } else if (is_sent) {
        lo->ir->info[*out].sent = data;
        lo->ir->info[*out].data = NULL;
    }
    return rc;
}

int lower__number(struct lower *lo, const struct graph_node *n, float v, uint32_t *out,
                  struct sh_err *err)
{
    const struct graph_value *owner = lower__out(lo, n);
    float *data = malloc(sizeof(*data));
    const char *name;
    int rc;

    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant");
    *data = v;
    rc = ir_name(lo->ir, &name, err, "%s#%g", owner->name, (double)v);
    if (rc) {
        free(data);
        return rc;
    }
    return lower__table(lo, &(struct lower_table){.name = name, .n = 1, .by_size = owner->by_size},
                        data, out, err);
}

int lower__not_zero(struct lower *lo, const struct graph_node *n, uint32_t x, uint32_t *y,
                    struct sh_err *err)
{
    const struct dev_tensor d = *ir_t(lo->ir, x);
    uint32_t zero, one, is_zero;
    struct dev_op op;
    int rc = lower__number(lo, n, 0.0f, &zero, err);

    if (!rc)
        rc = lower__number(lo, n, 1.0f, &one, err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_BINARY, n->name, 2, (uint32_t[]){x, zero});
    op.u.binary.kind = DEV_BIN_EQUAL;
    rc = ir_emit(lo->ir, &op, SH_BOOL, d.rank, d.dims, &is_zero, err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_WHERE, n->name, 3, (uint32_t[]){is_zero, one, x});
    return ir_emit(lo->ir, &op, SH_F32, d.rank, d.dims, y, err);
}

int lower__as(struct lower *lo, const char *name, uint32_t x, enum sh_dtype t, uint32_t *y,
              struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_COPY, name, 1, &x);
    const struct dev_tensor d = *ir_t(lo->ir, x);

    *y = x;
    return d.dtype == t ? SH_OK : ir_emit(lo->ir, &op, t, d.rank, d.dims, y, err);
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
