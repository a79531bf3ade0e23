/* shape_elem.c - shapes of element-wise operators. */
#include "common/mem.h"
#include "runtime/model/counted.h"

#include <math.h>
#include <stdlib.h>

int shape__infer_unary(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);

    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}

int shape__infer_unary_float(struct shape_ctx *c)
{
    shape__want_float(c, 0);
    return shape__infer_unary(c);
}

int shape__infer_logical_not(struct shape_ctx *c)
{
    if (shape__in(c, 0)->dtype != SH_BOOL)
        return shape__fail(c, SH_E_INVALID, "needs a BOOL input");
    return shape__infer_unary(c);
}

/* Activations with parameters: the defaults of ONNX become attributes. */
int shape__infer_act(struct shape_ctx *c)
{
    static const struct {
        const char *op, *attr;
        double def;
    } PARAMS[] = {{"LeakyRelu", "alpha", 0.01},
                  {"HardSigmoid", "alpha", 0.2},
                  {"HardSigmoid", "beta", 0.5},
                  {"Elu", "alpha", 1.0}};

    shape__infer_unary_float(c);
    for (size_t i = 0; i < SH_ARRAY_LEN(PARAMS); i++)
        if (strcmp(c->n.op, PARAMS[i].op) == 0)
            shape__own_float(c, PARAMS[i].attr, PARAMS[i].def);
    if (strcmp(c->n.op, "Gelu") == 0) {
        const char *how = shape__own_str(c, "approximate", "none");

        if (strcmp(how, "none") != 0 && strcmp(how, "tanh") != 0)
            shape__fail(c, SH_E_INVALID, "approximate must be none or tanh");
    }
    return c->err->rc;
}

int shape__align(struct shape_ctx *c)
{
    const struct graph_value *a = shape__in(c, 0), *b = shape__in(c, 1);
    int64_t axis, dims[SH_MAX_RANK];
    uint32_t reshaped;

    if (!graph__attr(&c->n, GRAPH_FIRST_AXIS))
        return c->err->rc;
    axis = shape__int(c, GRAPH_FIRST_AXIS, 0);
    graph__drop_attr(&c->n, GRAPH_FIRST_AXIS);
    if (graph_elements(b) == 1)
        return c->err->rc;
    shape__axis(c, axis, a->rank, &axis);
    if (b->rank > a->rank - (int)axis)
        shape__fail(c, SH_E_INVALID, "%d axes do not fit to %d from axis %lld on", b->rank, a->rank,
                    (long long)axis);
    for (int i = 0; i < a->rank - (int)axis; i++)
        dims[i] = i < b->rank ? b->dims[i] : 1;
    reshaped = rw_reshape(c, c->n.in[1], a->rank - (int)axis, dims);
    if (c->err->rc == SH_OK)
        c->n.in[1] = reshaped;
    return c->err->rc;
}

static int broadcast_out(struct shape_ctx *c, enum sh_dtype t)
{
    int64_t dims[SH_MAX_RANK];
    int rank = 0;

    shape__broadcast(c, shape__in(c, 0), shape__in(c, 1), &rank, dims);
    return shape__out(c, 0, t, rank, dims);
}

int shape__infer_binary(struct shape_ctx *c)
{
    if (strcmp(c->n.op, "Pow") != 0) /* which may mix types; the result has that of the base */
        shape__want_same_type(c, 0, 1);
    shape__align(c);
    return broadcast_out(c, shape__in(c, 0)->dtype);
}

int shape__infer_compare(struct shape_ctx *c)
{
    shape__want_same_type(c, 0, 1);
    shape__align(c);
    return broadcast_out(c, SH_BOOL);
}

int shape__infer_logic(struct shape_ctx *c)
{
    if (shape__in(c, 0)->dtype != SH_BOOL || shape__in(c, 1)->dtype != SH_BOOL)
        return shape__fail(c, SH_E_INVALID, "needs BOOL inputs");
    shape__align(c);
    return broadcast_out(c, SH_BOOL);
}

int shape__infer_variadic(struct shape_ctx *c)
{
    struct graph_value acc = *shape__in(c, 0);

    if (c->n.n_in == 1)
        return shape__alias(c, c->n.in[0]);
    for (uint32_t i = 1; i < c->n.n_in; i++) {
        int64_t dims[SH_MAX_RANK];
        int rank;

        shape__want_same_type(c, 0, i);
        shape__broadcast(c, &acc, shape__in(c, i), &rank, dims);
        acc.rank = rank;
        memcpy(acc.dims, dims, sizeof(acc.dims[0]) * (size_t)rank);
    }
    return shape__out(c, 0, acc.dtype, acc.rank, acc.dims);
}

/* Max(a, b, c) becomes Max(Max(a, b), c). */
int shape__finish_variadic(struct shape_ctx *c)
{
    const struct graph_value *y = shape__outv(c, 0);
    uint32_t acc = c->n.in[0];

    for (uint32_t i = 1; i < c->n.n_in && c->err->rc == SH_OK; i++) {
        uint32_t pair[2] = {acc, c->n.in[i]}, out = c->outv[0];

        if (i + 1 < c->n.n_in) {
            int64_t dims[SH_MAX_RANK];
            int rank = 0;

            shape__broadcast(c, &c->g->values[acc], shape__in(c, i), &rank, dims);
            shape__temp(c, "part", y->dtype, rank, dims, &out);
            y = shape__outv(c, 0); /* the table of values may have moved */
        }
        shape__emit(c, strcmp(c->n.op, "Sum") == 0 ? "Add" : c->n.op, pair, 2, out, NULL, 0);
        acc = out;
    }
    return c->err->rc;
}

/* 1: all true, 0: all false, -1: neither, or not a constant. */
static int uniform(const struct graph_value *v)
{
    const uint8_t *p = v->data;
    int64_t n = graph_elements(v);

    if (!p || n <= 0)
        return -1;
    for (int64_t i = 1; i < n; i++)
        if (!p[i] != !p[0])
            return -1;
    return p[0] ? 1 : 0;
}

/* Exporters combine masks with constants that are true everywhere: x and true is x. */
int shape__finish_logic(struct shape_ctx *c)
{
    int neutral = strcmp(c->n.op, "And") == 0 ? 1 : strcmp(c->n.op, "Or") == 0 ? 0 : -2;

    for (uint32_t i = 0; i < 2; i++) {
        if (uniform(shape__in(c, i)) != neutral)
            continue;
        return shape__expand_to(c, c->n.in[1 - i]);
    }
    return shape__emit_self(c);
}

int shape__infer_where(struct shape_ctx *c)
{
    int64_t dims[SH_MAX_RANK];
    struct graph_value ab = {.dtype = shape__in(c, 1)->dtype};
    int rank = 0;

    if (shape__in(c, 0)->dtype != SH_BOOL)
        shape__fail(c, SH_E_INVALID, "needs a BOOL condition");
    shape__want_same_type(c, 1, 2);
    shape__broadcast(c, shape__in(c, 1), shape__in(c, 2), &ab.rank, ab.dims);
    shape__broadcast(c, shape__in(c, 0), &ab, &rank, dims);
    return shape__out(c, 0, ab.dtype, rank, dims);
}

static int cast_to(struct shape_ctx *c, enum sh_dtype t)
{
    const struct graph_value *x = shape__in(c, 0);

    shape__set_int(c, "to", (int64_t)t);
    return t == x->dtype ? shape__alias(c, c->n.in[0]) : shape__out(c, 0, t, x->rank, x->dims);
}

int shape__infer_cast(struct shape_ctx *c)
{
    const int64_t to = shape__int(c, "to", 0);
    const enum sh_dtype t = to > 0 && to < 64 ? sh_dtype_from_onnx((int)to) : SH_N_DTYPES;

    if (t == SH_N_DTYPES)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_CAST, (long long)to);
    graph__drop_attr(&c->n, "saturate");
    return cast_to(c, t);
}

int shape__infer_cast_like(struct shape_ctx *c)
{
    enum sh_dtype t = shape__in(c, 1)->dtype;

    shape__set_op(c, "Cast");
    shape__drop_inputs(c, 1);
    return cast_to(c, t);
}

/* A bound that is computed: the larger of x and one, then the smaller of that and the other. */
static int clip_by_values(struct shape_ctx *c)
{
    uint32_t y = rw_in(c, 0);

    if (shape__has(c, 1))
        y = rw2(c, "Max", y, rw_in(c, 1));
    if (shape__has(c, 2))
        y = rw2(c, "Min", y, rw_in(c, 2));
    return rw_is(c, 0, y);
}

int shape__infer_clip(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    double lo, hi;

    for (uint32_t i = 1; i < 3; i++)
        if (shape__has(c, i) && !shape__in(c, i)->data)
            return clip_by_values(c);
    shape__number(c, 1, -INFINITY, &lo);
    shape__number(c, 2, INFINITY, &hi);
    shape__set_float(c, "min", lo);
    shape__set_float(c, "max", hi);
    shape__drop_inputs(c, 1);
    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}

int shape__infer_identity(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);

    if (c->training && shape__int(c, GRAPH_HELD, 0) && shape__is_float(x->dtype) &&
        (!x->data || x->is_param))
        return shape__out(c, 0, x->dtype, x->rank, x->dims);
    return shape__alias(c, c->n.in[0]);
}

/* Result k of the branch that a condition of data takes: both have to be there. */
static int choose_branch(struct shape_ctx *c, uint32_t k, uint32_t n)
{
    const uint32_t a = c->n.in[1 + k], b = c->n.in[1 + n + k];
    const struct graph_value *u, *v;

    if (a == GRAPH_NONE || b == GRAPH_NONE)
        return shape__computed(c, 0);
    u = rw_v(c, a);
    v = rw_v(c, b);
    if (u->dtype != v->dtype || u->rank != v->rank ||
        memcmp(u->dims, v->dims, sizeof(u->dims[0]) * (size_t)u->rank) != 0 || u->counted ||
        v->counted)
        return counted__choose(c, k, a, b);
    return rw_is(c, k, rw3(c, "Where", rw_reshape(c, c->n.in[0], 0, NULL), a, b));
}

/* Condition, results of then, results of else. */
int shape__infer_if(struct shape_ctx *c)
{
    const struct graph_value *q = shape__in(c, 0);
    const uint32_t n = c->n.n_out;
    uint32_t first;

    if (q->dtype != SH_BOOL || graph_elements(q) != 1 || c->n.n_in != 2 * n + 1)
        return shape__fail(c, SH_E_INVALID,
                           "needs one BOOL as condition, and its results from each branch");
    first = q->data && *(const bool *)q->data ? 1 : 1 + n;
    for (uint32_t k = 0; k < n && c->err->rc == SH_OK; k++) {
        if (!q->data)
            choose_branch(c, k, n);
        else if (c->n.in[first + k] == GRAPH_NONE)
            shape__fail(c, SH_E_UNSUPPORTED, WHY_BRANCH, c->lost);
        else
            rw_is(c, k, c->n.in[first + k]);
        q = shape__in(c, 0);
    }
    return c->err->rc;
}

/* Nothing is dropped. */
static int keep_all(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0);
    bool *yes = rw_alloc(c, SH_BOOL, 1);

    if (yes)
        *yes = true;
    rw_is(c, 1, rw_expand(c, rw_const(c, SH_BOOL, 0, NULL, yes), x.rank, x.dims));
    return shape__alias(c, c->n.in[0]);
}

int shape__infer_dropout(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    double ratio;

    shape__number(c, 1, 0.5, &ratio);
    if (!(ratio >= 0.0 && ratio < 1.0))
        return shape__fail(c, SH_E_INVALID, "ratio %g is outside [0, 1)", ratio);
    if (!c->training || ratio == 0.0)
        return c->n.n_out > 1 && c->out_names[1] ? keep_all(c) : shape__alias(c, c->n.in[0]);
    shape__drop_inputs(c, 1);
    shape__set_float(c, "ratio", ratio);
    shape__want_float(c, 0);
    c->keep_node = true;
    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}
