/* autodiff_elem.c - gradients of element-wise operations, reductions, and moves of elements. */
#include "common/mem.h"
#include "runtime/model/autodiff_int.h"

#include <stdlib.h>

int ad__act(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    uint32_t dx;
    int rc;

    if (op->act == DEV_ACT_LINEAR) {
        rc = ir_act(a->ir, DEV_ACT_LINEAR, op->act_p0, 0.0f, op->name, dy, &dx, err);
    } else {
        struct dev_op b =
            ir_op(DEV_OP_ACT_BWD, op->name, 3, (uint32_t[]){op->in[0], op->out[0], dy});

        b.act = op->act;
        b.act_p0 = op->act_p0;
        b.act_p1 = op->act_p1;
        rc = ir_emit_like(a->ir, &b, op->in[0], &dx, err);
    }
    return rc ? rc : ad__add(a, op->in[0], dx, err);
}

/* ------------------------------------------------------------------ two inputs */

static int mul_side(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t k,
                    struct sh_err *err)
{
    uint32_t g;
    int rc = ir_binary(a->ir, DEV_BIN_MUL, op->name, dy, op->in[1 - k], dy, &g, err);

    return rc ? rc : ad__add_reduced(a, op->in[k], g, err);
}

/* y = p / q: dp = dy / q, dq = -dy y / q */
static int div_side(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t k,
                    struct sh_err *err)
{
    struct ir *ir = a->ir;
    uint32_t g = dy;
    int rc = SH_OK;

    if (k == 1)
        rc = ir_binary(ir, DEV_BIN_MUL, op->name, dy, op->out[0], dy, &g, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_DIV, op->name, g, op->in[1], dy, &g, err);
    if (!rc && k == 1)
        rc = ir_act(ir, DEV_ACT_LINEAR, -1.0f, 0.0f, op->name, g, &g, err);
    return rc ? rc : ad__add_reduced(a, op->in[k], g, err);
}

/* Where t is true dy, elsewhere 0; or the other way round. */
static int masked(struct ad *a, const struct dev_op *op, uint32_t cond, bool where_true,
                  uint32_t dy, uint32_t *out, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_WHERE, op->name, 3, (uint32_t[]){cond, dy, dy});
    int rc = ad__zero(a, &b.in[where_true ? 2 : 1], err);

    return rc ? rc : ir_emit_like(a->ir, &b, dy, out, err);
}

/* The operand that was chosen gets it all; the first one where they are equal. */
static int min_max_side(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t k,
                        struct sh_err *err)
{
    struct dev_op eq = ir_op(DEV_OP_BINARY, op->name, 2, (uint32_t[]){op->in[0], op->out[0]});
    struct dev_tensor d = *ir_t(a->ir, dy);
    uint32_t cond, g;
    int rc;

    eq.u.binary.kind = DEV_BIN_EQUAL;
    rc = ir_emit(a->ir, &eq, SH_BOOL, d.rank, d.dims, &cond, err);
    if (!rc)
        rc = masked(a, op, cond, k == 0, dy, &g, err);
    return rc ? rc : ad__add_reduced(a, op->in[k], g, err);
}

/* y = x^e: de = dy y log x, and 0 where x is 0. */
static int exponent_side(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    const struct dev_tensor x = *ir_t(a->ir, op->in[0]);
    struct dev_op eq = ir_op(DEV_OP_BINARY, op->name, 2, op->in);
    uint32_t g, cond;
    int rc = ad__zero(a, &eq.in[1], err);

    eq.u.binary.kind = DEV_BIN_EQUAL;
    if (!rc)
        rc = ir_emit(a->ir, &eq, SH_BOOL, x.rank, x.dims, &cond, err);
    if (!rc)
        rc = ir_act(a->ir, DEV_ACT_LOG, 0.0f, 0.0f, op->name, op->in[0], &g, err);
    if (!rc)
        rc = ir_binary(a->ir, DEV_BIN_MUL, op->name, op->out[0], g, dy, &g, err);
    if (!rc)
        rc = ir_binary(a->ir, DEV_BIN_MUL, op->name, dy, g, dy, &g, err);
    if (!rc)
        rc = masked(a, op, cond, false, g, &g, err);
    return rc ? rc : ad__add_reduced(a, op->in[1], g, err);
}

/* y = x^e: dx = dy e x^(e-1) */
static int pow_side(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t k,
                    struct sh_err *err)
{
    struct ir *ir = a->ir;
    uint32_t g;
    int rc;

    if (k == 1)
        return exponent_side(a, op, dy, err);
    rc = ir_act(ir, DEV_ACT_LINEAR, 1.0f, -1.0f, op->name, op->in[1], &g, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_POW, op->name, op->in[0], g, dy, &g, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_MUL, op->name, g, op->in[1], dy, &g, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_MUL, op->name, g, dy, dy, &g, err);
    return rc ? rc : ad__add_reduced(a, op->in[0], g, err);
}

static int binary_side(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t k,
                       struct sh_err *err)
{
    uint32_t g = dy;
    int rc = SH_OK;

    switch (op->u.binary.kind) {
    case DEV_BIN_ADD:
        return ad__add_reduced(a, op->in[k], dy, err);
    case DEV_BIN_SUB:
        if (k == 1)
            rc = ir_act(a->ir, DEV_ACT_LINEAR, -1.0f, 0.0f, op->name, dy, &g, err);
        return rc ? rc : ad__add_reduced(a, op->in[k], g, err);
    case DEV_BIN_MUL:
        return mul_side(a, op, dy, k, err);
    case DEV_BIN_DIV:
        return div_side(a, op, dy, k, err);
    case DEV_BIN_MIN:
    case DEV_BIN_MAX:
        return min_max_side(a, op, dy, k, err);
    case DEV_BIN_POW:
        return pow_side(a, op, dy, k, err);
    case DEV_BIN_MOD:
    case DEV_BIN_FMOD: /* between its jumps it goes with the dividend */
        return k == 0 ? ad__add_reduced(a, op->in[0], dy, err)
                      : ad__unsupported(op, err, "a divisor cannot be trained");
    default:
        return ad__unsupported(op, err, "a comparison has no gradient");
    }
}

int ad__binary(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    int rc = SH_OK;

    if (op->act != DEV_ACT_NONE)
        return ad__unsupported(op, err, "it has a fused activation");
    for (uint32_t k = 0; k < 2 && rc == SH_OK; k++)
        if (ad__wants(a, op->in[k]) && !(k == 1 && ad__takes_back(a, op)))
            rc = binary_side(a, op, dy, k, err);
    return rc;
}

int ad__where(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t k = 1; k < 3 && rc == SH_OK; k++) {
        uint32_t g;

        if (!ad__wants(a, op->in[k]))
            continue;
        rc = masked(a, op, op->in[0], k == 1, dy, &g, err);
        if (!rc)
            rc = ad__add_reduced(a, op->in[k], g, err);
    }
    return rc;
}

int ad__softmax(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_SOFTMAX_BWD, op->name, 2, (uint32_t[]){op->out[0], dy});
    uint32_t dx;
    int rc;

    b.u.axis = op->u.axis;
    rc = ir_emit_like(a->ir, &b, op->in[0], &dx, err);
    return rc ? rc : ad__add(a, op->in[0], dx, err);
}

/* ------------------------------------------------------------------ reductions */

/* t in the shape that it would have with keep_dims. */
static int with_kept_axes(struct ad *a, const struct dev_op *op, uint32_t t, uint32_t *out,
                          struct sh_err *err)
{
    struct dev_tensor x = *ir_t(a->ir, op->in[0]);

    for (uint32_t i = 0; i < x.rank; i++)
        if (op->u.reduce.axes >> i & 1)
            x.dims[i] = 1;
    return ir_alias(a->ir, t, x.rank, x.dims, out, err);
}

static int expand_like(struct ad *a, const char *name, uint32_t g, uint32_t like, uint32_t *out,
                       struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_EXPAND, name, 1, &g);

    *out = g;
    return ir_same_shape(a->ir, g, like) ? SH_OK : ir_emit_like(a->ir, &b, like, out, err);
}

/* 1 where p and q are equal, else 0; of the shape of op's input. */
static int where_equal(struct ad *a, const struct dev_op *op, uint32_t p, uint32_t q, uint32_t *out,
                       struct sh_err *err)
{
    const struct dev_tensor x = *ir_t(a->ir, op->in[0]);
    struct dev_op eq = ir_op(DEV_OP_BINARY, op->name, 2, (uint32_t[]){p, q}), cast;
    int rc;

    eq.u.binary.kind = DEV_BIN_EQUAL;
    rc = ir_emit(a->ir, &eq, SH_BOOL, x.rank, x.dims, out, err);
    cast = ir_op(DEV_OP_COPY, op->name, 1, out);
    return rc ? rc : ir_emit(a->ir, &cast, SH_F32, x.rank, x.dims, out, err);
}

/* x over the axes of op, which are kept. */
static int reduced_alike(struct ad *a, const struct dev_op *op, enum dev_red kind, uint32_t x,
                         uint32_t *out, struct sh_err *err)
{
    struct dev_tensor d = *ir_t(a->ir, x);
    struct dev_op b = ir_op(DEV_OP_REDUCE, op->name, 1, &x);

    b.u.reduce.kind = kind;
    b.u.reduce.axes = op->u.reduce.axes;
    b.u.reduce.keep_dims = true;
    for (uint32_t i = 0; i < d.rank; i++)
        if (op->u.reduce.axes >> i & 1)
            d.dims[i] = 1;
    return ir_emit(a->ir, &b, d.dtype, d.rank, d.dims, out, err);
}

/* Elements that hold the extreme share its gradient equally. */
static int share_extreme(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t *dx,
                         struct sh_err *err)
{
    struct ir *ir = a->ir;
    uint32_t y, mask, count;
    int rc = with_kept_axes(a, op, op->out[0], &y, err);

    if (!rc)
        rc = where_equal(a, op, op->in[0], y, &mask, err);
    if (!rc)
        rc = reduced_alike(a, op, DEV_RED_SUM, mask, &count, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_DIV, op->name, dy, count, dy, &dy, err);
    return rc ? rc : ir_binary(ir, DEV_BIN_MUL, op->name, mask, dy, op->in[0], dx, err);
}

/* dx = dy times the product of the others: with z = 1 for each 0 and x' = x + z, that is the
 * product of all x', over x', where z is the number of zeros; elsewhere another one is 0. */
static int product_of_others(struct ad *a, const struct dev_op *op, uint32_t dy, uint32_t *dx,
                             struct sh_err *err)
{
    struct ir *ir = a->ir;
    const uint32_t x = op->in[0];
    uint32_t z, n, p, with;
    int rc = ad__zero(a, &n, err);

    if (!rc)
        rc = where_equal(a, op, x, n, &z, err);
    if (!rc)
        rc = reduced_alike(a, op, DEV_RED_SUM, z, &n, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_ADD, op->name, x, z, x, &with, err);
    if (!rc)
        rc = reduced_alike(a, op, DEV_RED_PROD, with, &p, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_MUL, op->name, dy, p, dy, &dy, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_DIV, op->name, dy, with, x, dx, err);
    if (!rc)
        rc = where_equal(a, op, z, n, &z, err);
    return rc ? rc : ir_binary(ir, DEV_BIN_MUL, op->name, *dx, z, x, dx, err);
}

int ad__reduce(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    float share = (float)ir_elements(a->ir, dy) / (float)ir_elements(a->ir, op->in[0]);
    uint32_t dx;
    int rc = with_kept_axes(a, op, dy, &dy, err);

    if (rc)
        return rc;
    if (op->u.reduce.kind == DEV_RED_PROD) {
        rc = product_of_others(a, op, dy, &dx, err);
    } else if (op->u.reduce.kind == DEV_RED_MAX || op->u.reduce.kind == DEV_RED_MIN) {
        rc = share_extreme(a, op, dy, &dx, err);
    } else {
        if (op->u.reduce.kind == DEV_RED_MEAN)
            rc = ir_act(a->ir, DEV_ACT_LINEAR, share, 0.0f, op->name, dy, &dy, err);
        if (!rc)
            rc = expand_like(a, op->name, dy, op->in[0], &dx, err);
    }
    return rc ? rc : ad__add(a, op->in[0], dx, err);
}

int ad__expand(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    return ad__add_reduced(a, op->in[0], dy, err);
}

/* ------------------------------------------------------------------ moves */

int ad__concat(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    int64_t at = 0;
    int rc = SH_OK;

    for (uint32_t i = 0; i < op->n_in && rc == SH_OK; i++) {
        struct dev_op b = ir_op(DEV_OP_SLICE, op->name, 1, &dy);
        struct dev_tensor x = *ir_t(a->ir, op->in[i]);
        uint32_t g;

        for (uint32_t k = 0; k < x.rank; k++)
            b.u.slice.step[k] = 1;
        b.u.slice.start[op->u.axis.axis] = at;
        at += x.dims[op->u.axis.axis];
        if (!ad__wants(a, op->in[i]))
            continue;
        rc = ir_emit_like(a->ir, &b, op->in[i], &g, err);
        if (!rc)
            rc = ad__add(a, op->in[i], g, err);
    }
    return rc;
}

/* g with its elements along an axis in the opposite order. */
static int reversed(struct ad *a, const char *name, uint32_t axis, uint32_t *g, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_SLICE, name, 1, g);
    const struct dev_tensor d = *ir_t(a->ir, *g);

    for (uint32_t i = 0; i < d.rank; i++)
        b.u.slice.step[i] = i == axis ? -1 : 1;
    b.u.slice.start[axis] = d.dims[axis] - 1;
    return ir_emit_like(a->ir, &b, *g, g, err);
}

/* g with step - 1 zeros behind each element along an axis, cut off at `most` elements. */
static int spread(struct ad *a, const char *name, uint32_t axis, int64_t step, int64_t most,
                  uint32_t *g, struct sh_err *err)
{
    struct dev_tensor d = *ir_t(a->ir, *g);
    const int64_t n = d.dims[axis], outer = dev_axes_elements(&d, 0, axis);
    int64_t dims[4] = {outer, n, 1, dev_axes_elements(&d, axis + 1, d.rank)};
    struct dev_op pad, cut;
    int rc = ir_alias(a->ir, *g, 4, dims, g, err);

    if (rc)
        return rc;
    pad = ir_op(DEV_OP_PAD, name, 1, g);
    dims[2] = step;
    rc = ir_emit(a->ir, &pad, SH_F32, 4, dims, g, err);
    d.dims[axis] = n * step;
    if (!rc)
        rc = ir_alias(a->ir, *g, d.rank, d.dims, g, err);
    if (rc || n * step <= most)
        return rc;
    cut = ir_op(DEV_OP_SLICE, name, 1, g);
    for (uint32_t i = 0; i < d.rank; i++)
        cut.u.slice.step[i] = 1;
    d.dims[axis] = most;
    return ir_emit(a->ir, &cut, SH_F32, d.rank, d.dims, g, err);
}

/* The only axis of which op gives a part, in order and without holes; DEV_NONE if it is otherwise.
 */
static uint32_t cut_axis(const struct dev_op *op, const struct dev_tensor *x,
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

int ad__slice(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    const struct dev_tensor x = *ir_t(a->ir, op->in[0]), y = *ir_t(a->ir, dy);
    struct dev_op b = ir_op(DEV_OP_PAD, op->name, 1, &dy);
    const uint32_t part = cut_axis(op, &x, &y);
    uint32_t g = dy;
    int rc = SH_OK;

    if (part != DEV_NONE)
        return ad__part(a, (struct ad_part){op->in[0], part, op->u.slice.start[part], dy}, err);

    for (uint32_t i = 0; i < y.rank && rc == SH_OK; i++) {
        int64_t start = op->u.slice.start[i], step = op->u.slice.step[i];

        if (y.dims[i] > 1 && step < 0) {
            start += (y.dims[i] - 1) * step;
            step = -step;
            rc = reversed(a, op->name, i, &g, err);
        }
        if (y.dims[i] > 1 && step > 1 && rc == SH_OK)
            rc = spread(a, op->name, i, step, x.dims[i] - start, &g, err);
        b.u.pad.before[i] = start;
    }
    b.in[0] = g;
    if (!rc && !ir_same_shape(a->ir, g, op->in[0]))
        rc = ir_emit_like(a->ir, &b, op->in[0], &g, err);
    return rc ? rc : ad__add(a, op->in[0], g, err);
}

/* What the pad added falls away; what it cut gets 0. */
int ad__pad(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_PAD, op->name, 1, &dy);
    uint32_t g;
    int rc;

    for (uint32_t i = 0; i < ir_t(a->ir, dy)->rank; i++)
        b.u.pad.before[i] = -op->u.pad.before[i];
    rc = ir_emit_like(a->ir, &b, op->in[0], &g, err);
    return rc ? rc : ad__add(a, op->in[0], g, err);
}

int ad__transpose(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_TRANSPOSE, op->name, 1, &dy);
    uint32_t g;
    int rc;

    for (uint32_t i = 0; i < ir_t(a->ir, dy)->rank; i++)
        b.u.perm.perm[op->u.perm.perm[i]] = i;
    rc = ir_emit_like(a->ir, &b, op->in[0], &g, err);
    return rc ? rc : ad__add(a, op->in[0], g, err);
}

int ad__copy(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    if (ir_t(a->ir, op->in[0])->dtype != SH_F32)
        return ad__unsupported(op, err, "only F32 has gradients");
    return ad__add(a, op->in[0], dy, err);
}

/* Does each row go to one place? Then *out is where the row of each place comes from, constant. */
static int turn_rows(struct ad *a, const struct dev_op *op, int64_t rows, uint32_t *out,
                     struct sh_err *err)
{
    const struct dev_tensor *t = ir_t(a->ir, op->in[1]);
    const int32_t *from = t->dtype == SH_I32 ? ir_data(a->ir, op->in[1]) : NULL;
    const int64_t n = ir_elements(a->ir, op->in[1]);
    const char *name;
    int32_t *to;
    int rc;

    *out = DEV_NONE;
    if (!from || n != rows || !ir_is_const(a->ir, op->in[1]))
        return SH_OK;
    to = malloc((size_t)n * sizeof(*to));
    if (!to)
        return SH_FAIL(err, SH_E_NOMEM, "could not list the rows of \"%s\"", op->name);
    memset(to, 0xff, (size_t)n * sizeof(*to));
    for (int64_t i = 0; i < n; i++)
        if (from[i] >= 0 && from[i] < n && to[from[i]] < 0)
            to[from[i]] = (int32_t)i;
        else {
            free(to);
            return SH_OK;
        }
    rc = ir_name(a->ir, &name, err, "%s#back", op->name);
    if (!rc)
        rc = ir_const(a->ir, name, DEV_ROLE_STATE, SH_I32, 1, &n, to, out, err);
    if (rc)
        free(to);
    return rc;
}

/* A constant of one number, of the type of tensor `like`. */
static int one_number(struct ad *a, uint32_t like, const char *of, int64_t x, uint32_t *out,
                      struct sh_err *err)
{
    const enum sh_dtype type = ir_t(a->ir, like)->dtype;
    const int32_t x32 = (int32_t)x;
    const char *name;
    void *data = calloc(1, sizeof(x));
    int rc = data ? ir_name(a->ir, &name, err, "%s#padding", of)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate a number");

    if (!rc && type == SH_I32)
        memcpy(data, &x32, sizeof(x32));
    else if (!rc)
        memcpy(data, &x, sizeof(x));
    if (!rc)
        rc = ir_const(a->ir, name, DEV_ROLE_STATE, type, 1, (int64_t[]){1}, data, out, err);
    if (rc)
        free(data);
    return rc;
}

/* The row of the table that stands for padding gets no gradient. */
static int without_padding(struct ad *a, const struct dev_op *op, uint32_t *dy, struct sh_err *err)
{
    const uint32_t padding = a->ir->info[op->out[0]].padding;
    struct dev_op eq = ir_op(DEV_OP_BINARY, op->name, 2, op->in);
    struct dev_tensor d = *ir_t(a->ir, *dy), ids = *ir_t(a->ir, op->in[1]);
    uint32_t cond;
    int rc;

    if (!padding)
        return SH_OK;
    eq.in[0] = op->in[1];
    eq.u.binary.kind = DEV_BIN_EQUAL;
    rc = one_number(a, op->in[1], op->name, (int64_t)padding - 1, &eq.in[1], err);
    if (!rc)
        rc = ir_emit(a->ir, &eq, SH_BOOL, ids.rank, ids.dims, &cond, err);
    d.dims[d.rank - 1] = 1;
    if (!rc)
        rc = ir_alias(a->ir, cond, d.rank, d.dims, &cond, err);
    return rc ? rc : masked(a, op, cond, false, *dy, dy, err);
}

int ad__gather(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op b;
    uint32_t g, axis = 0, turned;
    int rc = without_padding(a, op, &dy, err);

    if (rc)
        return rc;
    b = ir_op(DEV_OP_GATHER_BWD, op->name, 2, (uint32_t[]){op->in[1], dy});
    dev_axis_of(ir_t(a->ir, op->in[0]), op->u.axis.axis, &axis);
    rc = turn_rows(a, op, ir_t(a->ir, op->in[0])->dims[axis], &turned, err);
    if (turned != DEV_NONE)
        b = ir_op(DEV_OP_GATHER, op->name, 2, (uint32_t[]){dy, turned});
    b.u.axis = op->u.axis;
    if (!rc && turned != DEV_NONE) {
        const struct dev_tensor t = *ir_t(a->ir, op->in[0]);

        rc = ir_alias(a->ir, dy, t.rank, t.dims, &b.in[0], err);
    }
    if (!rc)
        rc = ir_emit_like(a->ir, &b, op->in[0], &g, err);
    return rc ? rc : ad__add(a, op->in[0], g, err);
}

int ad__cumsum(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_CUMSUM, op->name, 1, &dy);
    uint32_t g;
    int rc;

    b.u.scan = op->u.scan;
    b.u.scan.reverse = !op->u.scan.reverse;
    rc = ir_emit_like(a->ir, &b, op->in[0], &g, err);
    return rc ? rc : ad__add(a, op->in[0], g, err);
}

/* What was chosen gets the gradient: rows of the elements, then the gradient of a gather. */
int ad__topk(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct ir *ir = a->ir;
    const struct dev_tensor x = *ir_t(ir, op->in[0]), y = *ir_t(ir, op->out[0]);
    struct dev_op at = ir_op(DEV_OP_LOCATE, op->name, 1, &op->out[1]), b;
    int64_t n = ir_elements(ir, op->in[0]), step = 1;
    uint32_t rows, g;
    int rc;

    for (uint32_t i = x.rank; i-- > 0; step *= x.dims[i]) {
        at.u.locate.base[i] = step;
        if ((int64_t)i != op->u.topk.axis)
            continue;
        at.u.locate.base[i] = 0;
        at.u.locate.size[0] = x.dims[i];
        at.u.locate.stride[0] = step;
    }
    at.u.locate.depth = 1;
    rc = ir_emit(ir, &at, SH_I64, y.rank, y.dims, &rows, err);
    if (rc)
        return rc;
    b = ir_op(DEV_OP_GATHER_BWD, op->name, 2, (uint32_t[]){rows, dy});
    rc = ir_emit(ir, &b, SH_F32, 1, &n, &g, err);
    return rc ? rc : ad__add(a, op->in[0], g, err);
}

/* Of rows that were set, the data lose their gradient; the updates get it. */
int ad__scatter(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    const enum dev_scatter kind = op->u.scatter.kind;
    const struct dev_tensor u = *ir_t(a->ir, op->in[2]);
    uint32_t g = dy, zeros;
    int rc = SH_OK;

    if (kind != DEV_SCATTER_SET && kind != DEV_SCATTER_ADD)
        return ad__unsupported(op, err, "only rows that are set or added to have a gradient");
    if (ad__wants(a, op->in[0])) {
        struct dev_op fill = ir_op(DEV_OP_FILL, op->name, 0, NULL), b;

        if (kind == DEV_SCATTER_SET) {
            rc = ir_emit(a->ir, &fill, SH_F32, u.rank, u.dims, &zeros, err);
            b = ir_op(DEV_OP_SCATTER, op->name, 3, (uint32_t[]){dy, op->in[1], zeros});
            if (!rc)
                rc = ir_emit_like(a->ir, &b, dy, &g, err);
        }
        if (!rc)
            rc = ad__add(a, op->in[0], g, err);
    }
    if (!rc && ad__wants(a, op->in[2])) {
        struct dev_op b = ir_op(DEV_OP_GATHER, op->name, 2, (uint32_t[]){dy, op->in[1]});

        rc = ir_emit(a->ir, &b, SH_F32, u.rank, u.dims, &g, err);
        if (!rc)
            rc = ad__add(a, op->in[2], g, err);
    }
    return rc;
}
