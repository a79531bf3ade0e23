/* lower_index.c - operators that scan along an axis, choose by order, or write by index. */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/lower_int.h"

static int flag(const struct graph_node *n, const char *name, bool *out, struct sh_err *err)
{
    int64_t v;
    int rc = graph_int(n, name, 0, &v, err);

    *out = v != 0;
    return rc;
}

int lower__cumsum(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_CUMSUM, n->name, 1, &x);
    rc = graph_int(n, "axis", 0, &op.u.scan.axis, err);
    if (!rc)
        rc = flag(n, "exclusive", &op.u.scan.exclusive, err);
    if (!rc)
        rc = flag(n, "reverse", &op.u.scan.reverse, err);
    return rc ? rc : lower__emit(lo, n, &op, err);
}

int lower__topk(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *at = &lo->g->values[n->out[1]];
    struct dev_op op;
    uint32_t x, y;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_TOPK, n->name, 1, &x);
    rc = graph_int(n, "axis", 0, &op.u.topk.axis, err);
    if (!rc)
        rc = flag(n, "largest", &op.u.topk.largest, err);
    if (!rc)
        rc = flag(n, "select_last_index", &op.u.topk.last, err);
    if (!rc)
        rc = ir_tensor(lo->ir, at->name, SH_I64, DEV_ROLE_ACT, (uint32_t)at->rank, at->dims, &y,
                       err);
    if (rc)
        return rc;
    op.out[1] = y;
    op.n_out = 2;
    lo->tensor_of[n->out[1]] = y;
    return lower__emit(lo, n, &op, err);
}

int lower__locate(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    size_t k = 0, depth = 0;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_LOCATE, n->name, 1, &x);
    rc = graph_ints(n, "base", op.u.locate.base, SH_MAX_RANK, &k, err);
    if (!rc)
        rc = graph_ints(n, "sizes", op.u.locate.size, SH_MAX_RANK, &depth, err);
    if (!rc)
        rc = graph_ints(n, "strides", op.u.locate.stride, SH_MAX_RANK, &k, err);
    op.u.locate.depth = (uint32_t)depth;
    return rc ? rc : lower__emit(lo, n, &op, err);
}

int lower__scatter(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    static const char *const KINDS[DEV_N_SCATTERS] = {[DEV_SCATTER_SET] = "none",
                                                      [DEV_SCATTER_ADD] = "add",
                                                      [DEV_SCATTER_MUL] = "mul",
                                                      [DEV_SCATTER_MAX] = "max",
                                                      [DEV_SCATTER_MIN] = "min"};
    const char *kind;
    struct dev_op op;
    uint32_t in[3];
    int rc = lower__use_all(lo, n, 3, in, err);

    if (!rc)
        rc = graph_str(n, "reduction", "none", &kind, err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_SCATTER, n->name, 3, in);
    for (int k = 0; k < DEV_N_SCATTERS; k++)
        if (strcmp(kind, KINDS[k]) == 0)
            op.u.scatter.kind = (enum dev_scatter)k;
    return lower__emit(lo, n, &op, err);
}

/* ---- what the data choose: the second output says how many there are */

static int emit_with_count(struct lower *lo, const struct graph_node *n, struct dev_op *op,
                           struct sh_err *err)
{
    const struct graph_value *count = &lo->g->values[n->out[1]];
    int rc = ir_tensor(lo->ir, count->name, SH_I64, DEV_ROLE_ACT, (uint32_t)count->rank,
                       count->dims, &op->out[1], err);

    if (rc)
        return rc;
    op->n_out = 2;
    lo->tensor_of[n->out[1]] = op->out[1];
    return lower__emit(lo, n, op, err);
}

int lower__places(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_NONZERO, n->name, 1, &x);
    return emit_with_count(lo, n, &op, err);
}

int lower__first(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_MASK, n->name, 1, &x);
    return lower__emit(lo, n, &op, err);
}

int lower__nms(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint32_t in[2];
    int rc = lower__use_all(lo, n, 2, in, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_NMS, n->name, 2, in);
    op.u.nms.any_score = graph__attr(n, "score") == NULL;
    rc = flag(n, "center_point_box", &op.u.nms.is_centred, err);
    if (!rc)
        rc = graph_int(n, "most", 1, &op.u.nms.most, err);
    if (!rc)
        rc = lower__float(n, "overlap", &op.u.nms.overlap, err);
    if (!rc)
        rc = lower__float(n, "score", &op.u.nms.score, err);
    return rc ? rc : emit_with_count(lo, n, &op, err);
}
