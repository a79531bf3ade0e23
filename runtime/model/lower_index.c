/* lower_index.c - operators that scan along an axis, choose by order, or write by index. */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/lower_int.h"

static bool node_flag(struct lower *lo, const struct graph_node *n, const char *name)
{
    return lower__int(lo, n, name, 0) != 0;
}

void lower__cumsum(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_CUMSUM, 1);

    op.u.scan.axis = lower__int(lo, n, "axis", 0);
    op.u.scan.exclusive = node_flag(lo, n, "exclusive");
    op.u.scan.reverse = node_flag(lo, n, "reverse");
    lower__emit(lo, n, &op);
}

/* Output 1: an operation's second result, as integers. */
static void emit_two(struct lower *lo, const struct graph_node *n, struct dev_op *op)
{
    const struct graph_value *v = &lo->g->values[n->out[1]];

    op->out[1] = lo->tensor_of[n->out[1]] =
        ir_tensor(lo->ir, v->name, SH_I64, DEV_ROLE_ACT, (uint32_t)v->rank, v->dims);
    op->n_out = 2;
    lower__emit(lo, n, op);
}

void lower__pixels(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_PIXELS, 2);
    int64_t perm[SH_MAX_RANK] = {0};
    const int64_t axis = lower__int(lo, n, "axis", 1);

    lower__ints(lo, n, "perm", perm, SH_MAX_RANK);
    op.u.pixels.y_last = axis == 3;
    op.u.pixels.x_last = perm[axis == 3 ? 3 : 1] == 3;
    lower__emit(lo, n, &op);
}

void lower__topk(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_TOPK, 1);

    op.u.topk.axis = lower__int(lo, n, "axis", 0);
    op.u.topk.largest = node_flag(lo, n, "largest");
    op.u.topk.last = node_flag(lo, n, "select_last_index");
    emit_two(lo, n, &op);
}

void lower__locate(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_LOCATE, 1);

    lower__ints(lo, n, "base", op.u.locate.base, SH_MAX_RANK);
    op.u.locate.depth = (uint32_t)lower__ints(lo, n, "sizes", op.u.locate.size, SH_MAX_RANK);
    lower__ints(lo, n, "strides", op.u.locate.stride, SH_MAX_RANK);
    lower__emit(lo, n, &op);
}

void lower__scatter(struct lower *lo, const struct graph_node *n)
{
    static const char *const KINDS[DEV_N_SCATTERS] = {[DEV_SCATTER_SET] = "none",
                                                      [DEV_SCATTER_ADD] = "add",
                                                      [DEV_SCATTER_MUL] = "mul",
                                                      [DEV_SCATTER_MAX] = "max",
                                                      [DEV_SCATTER_MIN] = "min"};
    const char *kind = lower__str(lo, n, "reduction", "none");
    struct dev_op op = lower__op(lo, n, DEV_OP_SCATTER, 3);

    for (int k = 0; k < DEV_N_SCATTERS; k++)
        if (strcmp(kind, KINDS[k]) == 0)
            op.u.scatter.kind = (enum dev_scatter)k;
    lower__emit(lo, n, &op);
    ir_info(lo->ir, op.out[0])->skips = node_flag(lo, n, "skips");
}

/* ---- what the data choose: the second output says how many there are */

void lower__places(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_NONZERO, 1);

    emit_two(lo, n, &op);
}

void lower__first(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_MASK, 1);

    lower__emit(lo, n, &op);
}

void lower__nms(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_NMS, 2);

    op.u.nms.any_score = graph__attr(n, "score") == NULL;
    op.u.nms.is_centred = node_flag(lo, n, "center_point_box");
    op.u.nms.most = lower__int(lo, n, "most", 1);
    op.u.nms.overlap = lower__float(lo, n, "overlap");
    op.u.nms.score = lower__float(lo, n, "score");
    emit_two(lo, n, &op);
}
