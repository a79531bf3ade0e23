/* autodiff_elem.c - gradients of element-wise operations, reductions, and moves of elements. */
#include "common/mem.h"
#include "runtime/model/autodiff_int.h"

#include <stdlib.h>

void ad__act(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_ACT_BWD, op->name, 3, (uint32_t[]){op->in[0], op->out[0], dy});

    if (op->act == DEV_ACT_LINEAR) {
        ad__add(a, op->in[0], ir_act(a->ir, DEV_ACT_LINEAR, op->act_p0, 0.0f, op->name, dy));
        return;
    }
    b.act = op->act;
    b.act_p0 = op->act_p0;
    b.act_p1 = op->act_p1;
    ad__add_op(a, op->in[0], &b);
}

/* ------------------------------------------------------------------ two inputs */

/* p (k) q, in the shape of p. */
static uint32_t bin(struct ad *a, const struct dev_op *op, enum dev_bin k, uint32_t p, uint32_t q)
{
    return ir_binary(a->ir, k, op->name, p, q, p);
}

static uint32_t negative_of_grad(struct ad *a, const struct dev_op *op, uint32_t x)
{
    return ir_act(a->ir, DEV_ACT_LINEAR, -1.0f, 0.0f, op->name, x);
}

/* Are p and q equal? In the shape of `like`. */
static uint32_t equal_to(struct ad *a, const struct dev_op *op, uint32_t p, uint32_t q,
                         uint32_t like)
{
    const struct dev_tensor d = *ir_t(a->ir, like);
    struct dev_op eq = ir_op(DEV_OP_BINARY, op->name, 2, (uint32_t[]){p, q});

    eq.u.binary.kind = DEV_BIN_EQUAL;
    return ir_emit(a->ir, &eq, SH_BOOL, d.rank, d.dims);
}

/* Where t is true dy, elsewhere 0; or the other way round. */
static uint32_t masked(struct ad *a, const struct dev_op *op, uint32_t cond, bool where_true,
                       uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_WHERE, op->name, 3, (uint32_t[]){cond, dy, dy});

    b.in[where_true ? 2 : 1] = ad__zero(a);
    return ir_emit_like(a->ir, &b, dy);
}

/* y = p / q: dp = dy / q, dq = -dy y / q */
static uint32_t div_side(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t k)
{
    if (k == 0)
        return bin(a, op, DEV_BIN_DIV, dy, op->in[1]);
    dy = bin(a, op, DEV_BIN_MUL, dy, op->out[0]);
    return negative_of_grad(a, op, bin(a, op, DEV_BIN_DIV, dy, op->in[1]));
}

/* y = x^e: dx = dy e x^(e-1), de = dy y log x, and 0 where x is 0. */
static uint32_t pow_side(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t k)
{
    struct ir *ir = a->ir;
    uint32_t g, is_zero;

    if (k == 0) {
        g = ir_act(ir, DEV_ACT_LINEAR, 1.0f, -1.0f, op->name, op->in[1]);
        g = ir_binary(ir, DEV_BIN_POW, op->name, op->in[0], g, dy);
        g = bin(a, op, DEV_BIN_MUL, g, op->in[1]);
        return bin(a, op, DEV_BIN_MUL, g, dy);
    }
    is_zero = equal_to(a, op, op->in[0], ad__zero(a), op->in[0]);
    g = ir_act(ir, DEV_ACT_LOG, 0.0f, 0.0f, op->name, op->in[0]);
    g = ir_binary(ir, DEV_BIN_MUL, op->name, op->out[0], g, dy);
    g = bin(a, op, DEV_BIN_MUL, dy, g);
    return masked(a, op, is_zero, false, g);
}

/* The gradient of operand k, in the shape of the result. */
static uint32_t binary_side(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t k)
{
    switch (op->u.binary.kind) {
    case DEV_BIN_ADD:
        return dy;
    case DEV_BIN_SUB:
        return k == 0 ? dy : negative_of_grad(a, op, dy);
    case DEV_BIN_MUL:
        return bin(a, op, DEV_BIN_MUL, dy, op->in[1 - k]);
    case DEV_BIN_DIV:
        return div_side(a, op, dy, k);
    case DEV_BIN_MIN:
    case DEV_BIN_MAX: /* the operand that was chosen gets it all; the first where they are equal */
        return masked(a, op, equal_to(a, op, op->in[0], op->out[0], dy), k == 0, dy);
    case DEV_BIN_POW:
        return pow_side(a, op, dy, k);
    case DEV_BIN_MOD:
    case DEV_BIN_FMOD: /* between its jumps it goes with the dividend */
        if (k == 1)
            ad__unsupported(a, op, "a divisor cannot be trained");
        return dy;
    default:
        ad__unsupported(a, op, "a comparison has no gradient");
        return dy;
    }
}

void ad__binary(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    if (op->act != DEV_ACT_NONE)
        ad__unsupported(a, op, "it has a fused activation");
    for (uint32_t k = 0; k < 2; k++)
        if (ad__wants(a, op->in[k]) &&
            !(k == 1 && (ad__takes_back(a, op) || a->apart[ir_root(a->ir, op->out[0])])))
            ad__add_reduced(a, op->in[k], binary_side(a, op, dy, k));
}

void ad__where(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    for (uint32_t k = 1; k < 3; k++)
        if (ad__wants(a, op->in[k]))
            ad__add_reduced(a, op->in[k], masked(a, op, op->in[0], k == 1, dy));
}

void ad__softmax(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_SOFTMAX_BWD, op->name, 2, (uint32_t[]){op->out[0], dy});

    b.u.axis = op->u.axis;
    ad__add_op(a, op->in[0], &b);
}

/* ------------------------------------------------------------------ reductions */

/* t in the shape that it would have with keep_dims. */
static uint32_t with_kept_axes(struct ad *a, const struct dev_op *op, uint32_t t)
{
    struct dev_tensor x = *ir_t(a->ir, op->in[0]);

    for (uint32_t i = 0; i < x.rank; i++)
        if (op->u.reduce.axes >> i & 1)
            x.dims[i] = 1;
    return ir_alias(a->ir, t, x.rank, x.dims);
}

static uint32_t expanded(struct ad *a, const char *name, uint32_t g, uint32_t like)
{
    struct dev_op b = ir_op(DEV_OP_EXPAND, name, 1, &g);

    return ir_same_shape(a->ir, g, like) ? g : ir_emit_like(a->ir, &b, like);
}

/* 1 where p and q are equal, else 0; in the shape of `like`. */
static uint32_t where_equal(struct ad *a, const struct dev_op *op, uint32_t p, uint32_t q,
                            uint32_t like)
{
    const struct dev_tensor d = *ir_t(a->ir, like);
    struct dev_op cast = ir_op(DEV_OP_COPY, op->name, 1, (uint32_t[]){equal_to(a, op, p, q, like)});

    return ir_emit(a->ir, &cast, SH_F32, d.rank, d.dims);
}

/* x over the axes of op, which are kept. */
static uint32_t reduced_alike(struct ad *a, const struct dev_op *op, enum dev_red kind, uint32_t x)
{
    struct dev_tensor d = *ir_t(a->ir, x);
    struct dev_op b = ir_op(DEV_OP_REDUCE, op->name, 1, &x);

    b.u.reduce.kind = kind;
    b.u.reduce.axes = op->u.reduce.axes;
    b.u.reduce.keep_dims = true;
    for (uint32_t i = 0; i < d.rank; i++)
        if (op->u.reduce.axes >> i & 1)
            d.dims[i] = 1;
    return ir_emit(a->ir, &b, d.dtype, d.rank, d.dims);
}

/* Elements that hold the extreme share its gradient equally. */
static uint32_t share_extreme(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const uint32_t y = with_kept_axes(a, op, op->out[0]);
    const uint32_t mask = where_equal(a, op, op->in[0], y, op->in[0]);
    const uint32_t count = reduced_alike(a, op, DEV_RED_SUM, mask);

    dy = bin(a, op, DEV_BIN_DIV, dy, count);
    return bin(a, op, DEV_BIN_MUL, mask, dy);
}

/* dx = dy times the product of the others: with z = 1 for each 0 and x' = x + z, that is the
 * product of all x', over x', where z is the number of zeros; elsewhere another one is 0. */
static uint32_t product_of_others(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const uint32_t x = op->in[0];
    uint32_t z = where_equal(a, op, x, ad__zero(a), x), dx;
    const uint32_t n = reduced_alike(a, op, DEV_RED_SUM, z);
    const uint32_t with = bin(a, op, DEV_BIN_ADD, x, z);
    const uint32_t p = reduced_alike(a, op, DEV_RED_PROD, with);

    dy = bin(a, op, DEV_BIN_MUL, dy, p);
    dx = ir_binary(a->ir, DEV_BIN_DIV, op->name, dy, with, x);
    z = where_equal(a, op, z, n, x);
    return bin(a, op, DEV_BIN_MUL, dx, z);
}

void ad__reduce(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const enum dev_red kind = op->u.reduce.kind;
    float share = (float)ir_elements(a->ir, dy) / (float)ir_elements(a->ir, op->in[0]);

    dy = with_kept_axes(a, op, dy);
    if (kind == DEV_RED_PROD) {
        dy = product_of_others(a, op, dy);
    } else if (kind == DEV_RED_MAX || kind == DEV_RED_MIN) {
        dy = share_extreme(a, op, dy);
    } else {
        if (kind == DEV_RED_MEAN)
            dy = ir_act(a->ir, DEV_ACT_LINEAR, share, 0.0f, op->name, dy);
        dy = expanded(a, op->name, dy, op->in[0]);
    }
    ad__add(a, op->in[0], dy);
}

void ad__expand(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    ad__add_reduced(a, op->in[0], dy);
}

/* ------------------------------------------------------------------ moves */

void ad__concat(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    int64_t at = 0;

    for (uint32_t i = 0; i < op->n_in; i++) {
        struct dev_op b = ir_op(DEV_OP_SLICE, op->name, 1, &dy);
        struct dev_tensor x = *ir_t(a->ir, op->in[i]);

        for (uint32_t k = 0; k < x.rank; k++)
            b.u.slice.step[k] = 1;
        b.u.slice.start[op->u.axis.axis] = at;
        at += x.dims[op->u.axis.axis];
        if (ad__wants(a, op->in[i]))
            ad__add_op(a, op->in[i], &b);
    }
}

/* g with its elements along an axis in the opposite order. */
static uint32_t reversed(struct ad *a, const char *name, uint32_t axis, uint32_t g)
{
    struct dev_op b = ir_op(DEV_OP_SLICE, name, 1, &g);
    const struct dev_tensor d = *ir_t(a->ir, g);

    for (uint32_t i = 0; i < d.rank; i++)
        b.u.slice.step[i] = i == axis ? -1 : 1;
    b.u.slice.start[axis] = d.dims[axis] - 1;
    return ir_emit_like(a->ir, &b, g);
}

/* g with step - 1 zeros behind each element along an axis, cut off at `most` elements. */
static uint32_t spread_gradient(struct ad *a, const char *name, uint32_t axis, int64_t step,
                                int64_t most, uint32_t g)
{
    struct dev_tensor d = *ir_t(a->ir, g);
    const int64_t n = d.dims[axis], outer = dev_axes_elements(&d, 0, axis);
    const int64_t inner = dev_axes_elements(&d, axis + 1, d.rank);
    struct dev_op pad, cut;

    g = ir_alias(a->ir, g, 4, (int64_t[]){outer, n, 1, inner});
    pad = ir_op(DEV_OP_PAD, name, 1, &g);
    g = ir_emit(a->ir, &pad, SH_F32, 4, (int64_t[]){outer, n, step, inner});
    d.dims[axis] = n * step;
    g = ir_alias(a->ir, g, d.rank, d.dims);
    if (n * step <= most)
        return g;
    cut = ir_op(DEV_OP_SLICE, name, 1, &g);
    for (uint32_t i = 0; i < d.rank; i++)
        cut.u.slice.step[i] = 1;
    d.dims[axis] = most;
    return ir_emit(a->ir, &cut, SH_F32, d.rank, d.dims);
}

/* The only axis of which op gives a part, in order and without holes; DEV_NONE if it is otherwise.
 */
static uint32_t cut_axis_of(const struct dev_op *op, const struct dev_tensor *x,
                            const struct dev_tensor *y)
{
    uint32_t axis = DEV_NONE;

    for (uint32_t i = 0; i < x->rank; i++) {
        if (x->dims[i] == y->dims[i] && op->u.slice.step[i] == 1)
            continue;
        if (axis != DEV_NONE || (op->u.slice.step[i] != 1 && y->dims[i] > 1))
            return DEV_NONE;
        axis = i;
    }
    return axis;
}

void ad__slice(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const struct dev_tensor x = *ir_t(a->ir, op->in[0]), y = *ir_t(a->ir, dy);
    struct dev_op b = ir_op(DEV_OP_PAD, op->name, 1, &dy);
    const uint32_t part = cut_axis_of(op, &x, &y);
    uint32_t g = dy;

    if (part != DEV_NONE) {
        ad__part(a, (struct ad_part){op->in[0], part, op->u.slice.start[part], dy});
        return;
    }
    for (uint32_t i = 0; i < y.rank; i++) {
        int64_t start = op->u.slice.start[i], step = op->u.slice.step[i];

        if (y.dims[i] > 1 && step < 0) {
            start += (y.dims[i] - 1) * step;
            step = -step;
            g = reversed(a, op->name, i, g);
        }
        if (y.dims[i] > 1 && step > 1)
            g = spread_gradient(a, op->name, i, step, x.dims[i] - start, g);
        b.u.pad.before[i] = start;
    }
    b.in[0] = g;
    if (!ir_same_shape(a->ir, g, op->in[0]))
        g = ir_emit_like(a->ir, &b, op->in[0]);
    ad__add(a, op->in[0], g);
}

/* What the pad added falls away; what it cut gets 0. */
void ad__pad(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_PAD, op->name, 1, &dy);

    for (uint32_t i = 0; i < ir_t(a->ir, dy)->rank; i++)
        b.u.pad.before[i] = -op->u.pad.before[i];
    ad__add_op(a, op->in[0], &b);
}

void ad__transpose(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_TRANSPOSE, op->name, 1, &dy);

    for (uint32_t i = 0; i < ir_t(a->ir, op->out[0])->rank; i++)
        b.u.perm.perm[op->u.perm.perm[i]] = i;
    ad__add_op(a, op->in[0], &b);
}

void ad__copy(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    if (ir_t(a->ir, op->in[0])->dtype != SH_F32)
        ad__unsupported(a, op, "only F32 has gradients");
    ad__add(a, op->in[0], dy);
}

/* Does each row go to one place? Then where the row of each place comes from, constant; else
 * DEV_NONE. */
static uint32_t turn_rows(struct ad *a, const struct dev_op *op, int64_t rows)
{
    const struct dev_tensor *t = ir_t(a->ir, op->in[1]);
    const int32_t *from = t->dtype == SH_I32 ? ir_data(a->ir, op->in[1]) : NULL;
    const int64_t n = ir_elements(a->ir, op->in[1]);
    int32_t *to;

    if (!from || n != rows || !ir_is_const(a->ir, op->in[1]))
        return DEV_NONE;
    to = ir_alloc(a->ir, n, sizeof(*to));
    if (!to)
        return DEV_NONE;
    memset(to, 0xff, (size_t)n * sizeof(*to));
    for (int64_t i = 0; i < n; i++)
        if (from[i] >= 0 && from[i] < n && to[from[i]] < 0)
            to[from[i]] = (int32_t)i;
        else {
            free(to);
            return DEV_NONE;
        }
    return ir_const(a->ir, ir_name(a->ir, "%s#back", op->name), DEV_ROLE_STATE, SH_I32, 1, &n, to);
}

/* A constant of one number, of the type of tensor `like`. */
static uint32_t one_number(struct ad *a, uint32_t like, const char *of, int64_t x)
{
    const enum sh_dtype type = ir_t(a->ir, like)->dtype;
    const int32_t x32 = (int32_t)x;
    void *data = ir_alloc(a->ir, 1, sizeof(x));

    if (data && type == SH_I32)
        memcpy(data, &x32, sizeof(x32));
    else if (data)
        memcpy(data, &x, sizeof(x));
    return ir_const(a->ir, ir_name(a->ir, "%s#padding", of), DEV_ROLE_STATE, type, 1,
                    (int64_t[]){1}, data);
}

/* dy without what reaches the row of the table that stands for padding. */
static uint32_t without_padding(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const uint32_t padding = a->ir->info[op->out[0]].padding;
    struct dev_tensor d = *ir_t(a->ir, dy);
    uint32_t cond;

    if (!padding)
        return dy;
    cond = one_number(a, op->in[1], op->name, (int64_t)padding - 1);
    cond = equal_to(a, op, op->in[1], cond, op->in[1]);
    d.dims[d.rank - 1] = 1;
    return masked(a, op, ir_alias(a->ir, cond, d.rank, d.dims), false, dy);
}

void ad__gather(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const struct dev_tensor t = *ir_t(a->ir, op->in[0]);
    struct dev_op b;
    uint32_t axis = 0, turned;

    dy = without_padding(a, op, dy);
    dev_axis_of(&t, op->u.axis.axis, &axis);
    turned = turn_rows(a, op, t.dims[axis]);
    if (turned == DEV_NONE) {
        b = ir_op(DEV_OP_GATHER_BWD, op->name, 2, (uint32_t[]){op->in[1], dy});
    } else {
        dy = ir_alias(a->ir, dy, t.rank, t.dims);
        b = ir_op(DEV_OP_GATHER, op->name, 2, (uint32_t[]){dy, turned});
    }
    b.u.axis = op->u.axis;
    ad__add_op(a, op->in[0], &b);
}

void ad__cumsum(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_CUMSUM, op->name, 1, &dy);

    b.u.scan = op->u.scan;
    b.u.scan.reverse = !op->u.scan.reverse;
    ad__add_op(a, op->in[0], &b);
}

/* What was chosen gets the gradient: rows of the elements, then the gradient of a gather. */
void ad__topk(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct ir *ir = a->ir;
    const struct dev_tensor x = *ir_t(ir, op->in[0]), y = *ir_t(ir, op->out[0]);
    struct dev_op at = ir_op(DEV_OP_LOCATE, op->name, 1, &op->out[1]), b;
    int64_t n = ir_elements(ir, op->in[0]), step = 1;
    uint32_t rows;

    for (uint32_t i = x.rank; i-- > 0; step *= x.dims[i]) {
        at.u.locate.base[i] = step;
        if ((int64_t)i != op->u.topk.axis)
            continue;
        at.u.locate.base[i] = 0;
        at.u.locate.size[0] = x.dims[i];
        at.u.locate.stride[0] = step;
    }
    at.u.locate.depth = 1;
    rows = ir_emit(ir, &at, SH_I64, y.rank, y.dims);
    b = ir_op(DEV_OP_GATHER_BWD, op->name, 2, (uint32_t[]){rows, dy});
    ad__add(a, op->in[0], ir_emit(ir, &b, SH_F32, 1, &n));
}

/* The rows of a scatter, of one of its results; in the shape of its updates. Those that are not
 * written are -1, for which a gather takes the last: they have 0. */
static uint32_t rows_of_index(struct ad *a, const struct dev_op *op, uint32_t x)
{
    const uint32_t at = op->in[1], rank = ir_t(a->ir, at)->rank;
    struct dev_op b = ir_op(DEV_OP_GATHER, op->name, 2, (uint32_t[]){x, at});
    struct dev_tensor d = *ir_t(a->ir, op->in[2]);
    uint32_t none;

    x = ir_emit_like(a->ir, &b, op->in[2]);
    if (!a->ir->info[op->out[0]].skips)
        return x;
    none = equal_to(a, op, at, one_number(a, at, op->name, -1), at);
    for (uint32_t i = rank; i < d.rank; i++)
        d.dims[i] = 1;
    return masked(a, op, ir_alias(a->ir, none, d.rank, d.dims), false, x);
}

/* The largest or least of data and updates: those that are equal to it share its gradient. */
static void scatter_extreme(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const uint32_t y = op->out[0], data = where_equal(a, op, op->in[0], y, y);
    const uint32_t best = rows_of_index(a, op, y);
    const uint32_t update = where_equal(a, op, op->in[2], best, op->in[2]);
    struct dev_op add = ir_op(DEV_OP_SCATTER, op->name, 3, (uint32_t[]){data, op->in[1], update});

    add.u.scatter.kind = DEV_SCATTER_ADD;
    dy = bin(a, op, DEV_BIN_DIV, dy, ir_emit_like(a->ir, &add, y));
    if (ad__wants(a, op->in[0]))
        ad__add(a, op->in[0], bin(a, op, DEV_BIN_MUL, data, dy));
    if (ad__wants(a, op->in[2]))
        ad__add(a, op->in[2], bin(a, op, DEV_BIN_MUL, update, rows_of_index(a, op, dy)));
}

/* Of rows that were set, the data lose their gradient; the updates get it. */
void ad__scatter(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const enum dev_scatter kind = op->u.scatter.kind;
    const struct dev_tensor u = *ir_t(a->ir, op->in[2]);
    struct dev_op fill = ir_op(DEV_OP_FILL, op->name, 0, NULL), b;
    uint32_t g = dy, zeros;

    if (kind == DEV_SCATTER_MAX || kind == DEV_SCATTER_MIN) {
        scatter_extreme(a, op, dy);
        return;
    }
    if (kind == DEV_SCATTER_MUL)
        ad__unsupported(a, op, "rows that are multiplied have no gradient; add logarithms instead");
    if (ad__wants(a, op->in[0])) {
        if (kind == DEV_SCATTER_SET) {
            zeros = ir_emit(a->ir, &fill, SH_F32, u.rank, u.dims);
            b = ir_op(DEV_OP_SCATTER, op->name, 3, (uint32_t[]){dy, op->in[1], zeros});
            g = ir_emit_like(a->ir, &b, dy);
        }
        ad__add(a, op->in[0], g);
    }
    if (ad__wants(a, op->in[2]))
        ad__add(a, op->in[2], rows_of_index(a, op, dy));
}
