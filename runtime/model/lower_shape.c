/* lower_shape.c - operators that move or rename elements. */
#include "common/mem.h"
#include "runtime/model/lower_int.h"

int lower__identity(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    return rc ? rc : lower__is(lo, n, x, err);
}

int lower__reshape(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    return lower__identity(lo, n, err);
}

int lower__transpose(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    int64_t perm[SH_MAX_RANK], last = -1;
    bool moves = false;
    struct dev_op op;
    size_t k = 0;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (!rc)
        rc = graph_ints(n, "perm", perm, SH_MAX_RANK, &k, err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_TRANSPOSE, n->name, 1, &x);
    for (size_t i = 0; i < k; i++) {
        op.u.perm.perm[i] = (uint32_t)perm[i];
        if (ir_t(lo->ir, x)->dims[perm[i]] == 1)
            continue; /* an axis of one element may go anywhere */
        moves |= perm[i] < last;
        last = perm[i];
    }
    return moves ? lower__emit(lo, n, &op, err) : lower__is(lo, n, x, err);
}

int lower__concat(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    uint32_t *in = malloc((n->n_in + 1u) * sizeof(*in)), y;
    int64_t axis;
    int rc = in ? graph_int(n, "axis", 0, &axis, err)
                : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of %u tensors", n->n_in);

    if (!rc)
        rc = lower__use_all(lo, n, n->n_in, in, err);
    if (!rc)
        rc = lower__joined(lo, n->name, in, n->n_in, axis, &y, err);
    free(in);
    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__slice(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    size_t k = 0;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_SLICE, n->name, 1, &x);
    rc = graph_ints(n, "starts", op.u.slice.start, SH_MAX_RANK, &k, err);
    if (!rc)
        rc = graph_ints(n, "steps", op.u.slice.step, SH_MAX_RANK, &k, err);
    return rc ? rc : lower__emit(lo, n, &op, err);
}

int lower__pad(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    int64_t pads[2 * SH_MAX_RANK];
    struct dev_op op;
    size_t k = 0;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_PAD, n->name, 1, &x);
    rc = graph_ints(n, "pads", pads, 2 * SH_MAX_RANK, &k, err);
    if (!rc)
        rc = lower__float(n, "value", &op.u.pad.value, err);
    for (size_t i = 0; i < k / 2; i++)
        op.u.pad.before[i] = pads[i];
    return rc ? rc : lower__emit(lo, n, &op, err);
}

int lower__expand(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    if (ir_elements(lo->ir, x) == graph_elements(lower__out(lo, n)))
        return lower__is(lo, n, x, err);
    op = ir_op(DEV_OP_EXPAND, n->name, 1, &x);
    return lower__emit(lo, n, &op, err);
}

/* One constant index is a slice. */
static int gather_one(struct lower *lo, const struct graph_node *n, uint32_t x, int64_t axis,
                      int64_t index, struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_SLICE, n->name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);
    uint32_t y;
    int rc;

    for (uint32_t i = 0; i < d.rank; i++)
        op.u.slice.step[i] = 1;
    op.u.slice.start[axis] = index;
    d.dims[axis] = 1;
    rc = ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims, &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__gather(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *index = lower__in(lo, n, 1);
    struct dev_op op;
    int64_t axis, padding, one;
    uint32_t in[2];
    int rc = lower__use(lo, n, 0, &in[0], err);

    if (!rc)
        rc = graph_int(n, "axis", 0, &axis, err);
    if (!rc)
        rc = graph_int(n, GRAPH_PADDING, -1, &padding, err);
    if (rc)
        return rc;
    if (index->data && index->dtype == SH_I64 && graph_elements(index) == 1) {
        memcpy(&one, index->data, sizeof(one));
        if (one != padding)
            return gather_one(lo, n, in[0], axis, one, err);
    }
    rc = lower__use(lo, n, 1, &in[1], err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_GATHER, n->name, 2, in);
    op.u.axis.axis = axis;
    rc = lower__emit(lo, n, &op, err);
    if (!rc && axis == 0 && lower__in(lo, n, 0)->rank == 2 && padding >= 0 &&
        padding < lower__in(lo, n, 0)->dims[0])
        lo->ir->info[op.out[0]].padding = (uint32_t)padding + 1;
    return rc;
}
