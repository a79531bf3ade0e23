/* lower_shape.c - operators that move or rename elements. */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/lower_int.h"

/* Reshape too: the same elements. */
void lower__identity(struct lower *lo, const struct graph_node *n)
{
    const uint32_t x = lower__use(lo, n, 0);
    struct dev_op copy = ir_op(DEV_OP_COPY, n->name, 1, &x);

    if (!lower__int(lo, n, GRAPH_HELD, 0)) {
        lower__is(lo, n, x);
        return;
    }
    lower__emit(lo, n, &copy);
    ir_info(lo->ir, copy.out[0])->is_held = true;
}

void lower__transpose(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_TRANSPOSE, 1);
    const struct dev_tensor *x = ir_t(lo->ir, op.in[0]);
    int64_t perm[SH_MAX_RANK], last = -1;
    const size_t k = lower__ints(lo, n, "perm", perm, SH_MAX_RANK);
    bool moves = false;

    for (size_t i = 0; i < k; i++) {
        op.u.perm.perm[i] = (uint32_t)perm[i];
        if (x->dims[perm[i]] == 1)
            continue; /* an axis of one element may go anywhere */
        moves |= perm[i] < last;
        last = perm[i];
    }
    if (moves)
        lower__emit(lo, n, &op);
    else
        lower__is(lo, n, op.in[0]);
}

void lower__concat(struct lower *lo, const struct graph_node *n)
{
    const int64_t axis = lower__int(lo, n, "axis", 0);
    uint32_t *in = ir_alloc(lo->ir, n->n_in, sizeof(*in));

    if (!in)
        return;
    lower__use_all(lo, n, n->n_in, in);
    lower__is(lo, n, ir_joined(lo->ir, n->name, in, n->n_in, (uint32_t)axis));
    free(in);
}

void lower__slice(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_SLICE, 1);

    lower__ints(lo, n, "starts", op.u.slice.start, SH_MAX_RANK);
    lower__ints(lo, n, "steps", op.u.slice.step, SH_MAX_RANK);
    lower__emit(lo, n, &op);
}

void lower__pad(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_PAD, 1);
    int64_t pads[2 * SH_MAX_RANK];
    const size_t k = lower__ints(lo, n, "pads", pads, 2 * SH_MAX_RANK);

    op.u.pad.value = lower__float(lo, n, "value");
    for (size_t i = 0; i < k / 2; i++)
        op.u.pad.before[i] = pads[i];
    lower__emit(lo, n, &op);
}

void lower__expand(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_EXPAND, 1);

    if (ir_elements(lo->ir, op.in[0]) == graph_elements(lower__out(lo, n)))
        lower__is(lo, n, op.in[0]);
    else
        lower__emit(lo, n, &op);
}

/* One constant index is a slice. */
static void gather_one(struct lower *lo, const struct graph_node *n, uint32_t x, int64_t axis,
                       int64_t index)
{
    struct dev_op op = ir_op(DEV_OP_SLICE, n->name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);

    for (uint32_t i = 0; i < d.rank; i++)
        op.u.slice.step[i] = 1;
    op.u.slice.start[axis] = index;
    d.dims[axis] = 1;
    lower__is(lo, n, ir_emit(lo->ir, &op, d.dtype, d.rank, d.dims));
}

void lower__gather(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *x = lower__in(lo, n, 0), *index = lower__in(lo, n, 1);
    const int64_t axis = lower__int(lo, n, "axis", 0);
    const int64_t padding = lower__int(lo, n, GRAPH_PADDING, -1);
    struct dev_op op = lower__op(lo, n, DEV_OP_GATHER, 1);
    int64_t one;

    if (index->data && index->dtype == SH_I64 && graph_elements(index) == 1) {
        memcpy(&one, index->data, sizeof(one));
        if (one != padding) {
            gather_one(lo, n, op.in[0], axis, one);
            return;
        }
    }
    op.in[op.n_in++] = lower__use(lo, n, 1);
    op.u.axis.axis = axis;
    lower__emit(lo, n, &op);
    if (axis == 0 && x->rank == 2 && padding >= 0 && padding < x->dims[0])
        ir_info(lo->ir, op.out[0])->padding = (uint32_t)padding + 1;
}
