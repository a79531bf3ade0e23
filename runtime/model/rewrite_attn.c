/* rewrite_attn.c - attention, rotary positions and normalisations of opset 23, composed of other
 * operators. pass_attn.c makes one operation of what attention becomes. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <math.h>

static bool has_out(const struct shape_ctx *c, uint32_t k)
{
    return k < c->n.n_out && c->out_names[k];
}

/* ---------------------------------------------------------------- attention */

struct attn {
    struct shape_ctx *c;
    enum sh_dtype t;
    bool is_flat;                  /* [B, S, H * D] instead of [B, H, S, D] */
    int64_t heads, kv_heads, past; /* past: keys that came before */
    int64_t q_rows, k_rows, is_causal;
    double scale, softcap;
};

/* x as [B, H, S, D]. */
static uint32_t split_into_heads(struct attn *a, uint32_t x, int64_t heads)
{
    const struct graph_value *v = rw_v(a->c, x);
    const int64_t dims[4] = {v->dims[0], v->dims[1], heads, heads > 0 ? v->dims[2] / heads : 0};

    if (!a->is_flat)
        return x;
    if (heads < 1 || v->dims[2] % heads != 0) {
        shape__fail(a->c, SH_E_INVALID, "%lld columns are not %lld equal heads",
                    (long long)v->dims[2], (long long)heads);
        return GRAPH_NONE;
    }
    return rw_transpose(a->c, rw_reshape(a->c, x, 4, dims), (const int64_t[]){0, 2, 1, 3}, 4);
}

static void read_attn(struct attn *a)
{
    struct shape_ctx *c = a->c;
    const int rank = shape__in(c, 0)->rank;

    a->t = shape__in(c, 0)->dtype;
    a->is_flat = rank == 3;
    a->is_causal = shape__int(c, "is_causal", 0);
    a->heads = shape__int(c, "q_num_heads", 0);
    a->kv_heads = shape__int(c, "kv_num_heads", 0);
    a->scale = shape__float(c, "scale", 0);
    a->softcap = shape__float(c, "softcap", 0);
    for (uint32_t i = 0; i < 3; i++) {
        shape__want_float(c, i);
        if (rank < 3 || rank > 4 || shape__in(c, i)->rank != rank)
            shape__fail(c, SH_E_INVALID, "queries, keys and values must all have 3 axes, or all 4");
    }
    if (shape__has(c, 4) != shape__has(c, 5))
        shape__fail(c, SH_E_INVALID, "earlier keys and values belong together");
    if (graph__attr(&c->n, "left_window_size") || graph__attr(&c->n, "right_window_size"))
        shape__fail(c, SH_E_UNSUPPORTED, WHY_WINDOWS);
    if (c->n.n_in > 6 && shape__has(c, 6))
        shape__fail(c, SH_E_UNSUPPORTED, WHY_KEY_LENGTHS);
}

/* Behind those of an earlier call. */
static uint32_t with_past(struct attn *a, uint32_t x, uint32_t slot)
{
    const uint32_t past = rw_in(a->c, slot);

    if (past == GRAPH_NONE)
        return x;
    a->past = rw_v(a->c, past)->rank == 4 ? rw_v(a->c, past)->dims[2] : 0;
    return rw_concat(a->c, (const uint32_t[]){past, x}, 2, 2);
}

/* A head of keys or values for each head of queries. */
static uint32_t repeat(struct attn *a, uint32_t x)
{
    const struct graph_value *v = rw_v(a->c, x);
    const int64_t b = v->dims[0], h = v->dims[1], s = v->dims[2], d = v->dims[3];
    const int64_t times = h > 0 ? a->heads / h : 0;

    if (a->c->err->rc || h == a->heads)
        return x;
    if (times < 1 || h * times != a->heads) {
        shape__fail(a->c, SH_E_INVALID, "%lld heads of queries share %lld of keys",
                    (long long)a->heads, (long long)h);
        return GRAPH_NONE;
    }
    x = rw_reshape(a->c, x, 5, (const int64_t[]){b, h, 1, s, d});
    x = rw_expand(a->c, x, 5, (const int64_t[]){b, h, times, s, d});
    return rw_reshape(a->c, x, 4, (const int64_t[]){b, a->heads, s, d});
}

static uint32_t attn_number(struct attn *a, double v)
{
    return rw_cast(a->c, rw_number(a->c, SH_F32, v), a->t);
}

/* A query sees the keys up to its own place. */
static uint32_t causal_bias(struct attn *a)
{
    const int64_t dims[2] = {a->q_rows, a->k_rows};
    float *bias = rw_alloc(a->c, SH_F32, a->q_rows * a->k_rows);

    for (int64_t i = 0; bias && i < a->q_rows; i++)
        for (int64_t j = i + a->past + 1; j < a->k_rows; j++)
            bias[i * a->k_rows + j] = -INFINITY;
    return rw_cast(a->c, rw_const(a->c, SH_F32, 2, dims, bias), a->t);
}

/* What the node's mask adds: keys that it does not reach are hidden. */
static uint32_t attn_mask_bias(struct attn *a)
{
    uint32_t mask = rw_in(a->c, 3), rest;
    struct graph_value v = *rw_v(a->c, mask);
    int64_t dims[SH_MAX_RANK];

    if (v.dtype == SH_BOOL)
        mask = rw3(a->c, "Where", mask, attn_number(a, 0), attn_number(a, -(double)INFINITY));
    if (a->c->err->rc || v.rank < 1 || v.dims[v.rank - 1] >= a->k_rows || v.dims[v.rank - 1] == 1)
        return mask;
    memcpy(dims, v.dims, sizeof(dims));
    dims[v.rank - 1] = a->k_rows - v.dims[v.rank - 1];
    rest = rw_expand(a->c, attn_number(a, -(double)INFINITY), v.rank, dims);
    return rw_concat(a->c, (const uint32_t[]){mask, rest}, 2, v.rank - 1);
}

static uint32_t add_scores_bias(struct attn *a, uint32_t scores)
{
    uint32_t bias = rw_in(a->c, 3) != GRAPH_NONE ? attn_mask_bias(a) : GRAPH_NONE;

    if (a->is_causal)
        bias = bias == GRAPH_NONE ? causal_bias(a) : rw2(a->c, "Add", bias, causal_bias(a));
    return bias == GRAPH_NONE ? scores : rw2(a->c, "Add", scores, bias);
}

/* scale q k^T, of which both factors take the root. */
static uint32_t scores_of(struct attn *a, uint32_t q, uint32_t k)
{
    const double d = (double)rw_v(a->c, q)->dims[3];
    const double scale = graph__attr(&a->c->n, "scale") ? a->scale : 1 / sqrt(d > 0 ? d : 1);
    const uint32_t root = attn_number(a, sqrt(scale));

    k = rw_transpose(a->c, k, (const int64_t[]){0, 1, 3, 2}, 4);
    return rw2(a->c, "MatMul", rw2(a->c, "Mul", q, root), rw2(a->c, "Mul", k, root));
}

/* A row of which a mask hides all keys gives zeros. */
static uint32_t attn_weights(struct attn *a, uint32_t scores)
{
    const uint32_t soft = rw1_with(a->c, "Softmax", scores, RW_INT("axis", 3));

    if (rw_in(a->c, 3) == GRAPH_NONE)
        return soft;
    return rw3(a->c, "Where", rw1(a->c, "IsNaN", soft), attn_number(a, 0), soft);
}

static uint32_t join_heads(struct attn *a, uint32_t y)
{
    struct graph_value v;

    if (!a->is_flat)
        return y;
    v = *rw_v(a->c, y);
    y = rw_transpose(a->c, y, (const int64_t[]){0, 2, 1, 3}, 4);
    return rw_reshape(a->c, y, 3, (const int64_t[]){v.dims[0], v.dims[2], v.dims[1] * v.dims[3]});
}

/* q k v [mask] [past k] [past v] -> y [k] [v] [scores, as they are at one of four places] */
int shape__rewrite_attention(struct shape_ctx *c)
{
    struct attn a = {.c = c};
    uint32_t q, k, v, at[4], y;
    int64_t mode;

    read_attn(&a);
    mode = shape__int(c, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
        shape__fail(c, SH_E_INVALID, "qk_matmul_output_mode is %lld", (long long)mode);
    q = split_into_heads(&a, rw_in(c, 0), a.heads);
    k = with_past(&a, split_into_heads(&a, rw_in(c, 1), a.kv_heads), 4);
    v = with_past(&a, split_into_heads(&a, rw_in(c, 2), a.kv_heads), 5);
    if (c->err->rc)
        return c->err->rc;
    a.heads = rw_v(c, q)->dims[1];
    a.q_rows = rw_v(c, q)->dims[2];
    a.k_rows = rw_v(c, k)->dims[2];
    at[0] = scores_of(&a, q, repeat(&a, k));
    at[1] = a.softcap > 0
                ? rw2(c, "Mul", rw1(c, "Tanh", rw2(c, "Div", at[0], attn_number(&a, a.softcap))),
                      attn_number(&a, a.softcap))
                : at[0];
    at[2] = add_scores_bias(&a, at[1]);
    at[3] = attn_weights(&a, at[2]);
    y = join_heads(&a, rw2(c, "MatMul", at[3], repeat(&a, v)));
    rw_is(c, 0, y);
    if (has_out(c, 1))
        rw_is(c, 1, k);
    if (has_out(c, 2))
        rw_is(c, 2, v);
    return has_out(c, 3) ? rw_is(c, 3, at[mode]) : c->err->rc;
}

/* ---------------------------------------------------------------- rotary embedding */

/* [B, S, n] or, by position, rows of a table, as what multiplies [B, H, S, n] or [B, S, H, n]. */
static uint32_t angles(struct shape_ctx *c, uint32_t slot, bool is_flat)
{
    const uint32_t table = rw_in(c, slot), places = rw_in(c, 3);
    const uint32_t x = places == GRAPH_NONE ? table : rw2(c, "Gather", table, places);
    const struct graph_value *v = rw_v(c, x);
    const int64_t b = v->dims[0], s = v->dims[1], n = v->dims[2];

    if (v->rank != 3)
        shape__fail(c, SH_E_INVALID, "input %u does not fit to the positions", slot);
    return is_flat ? rw_reshape(c, x, 4, (const int64_t[]){b, s, 1, n})
                   : rw_reshape(c, x, 4, (const int64_t[]){b, 1, s, n});
}

struct halves {
    uint32_t a, b;
};

/* The two numbers of each pair of x [., ., ., n]. */
static struct halves split_halves(struct shape_ctx *c, uint32_t x, int64_t n, bool interleaved)
{
    return interleaved
               ? (struct halves){rw_slice(c, x, 3, 0, n, 2), rw_slice(c, x, 3, 1, n, 2)}
               : (struct halves){rw_slice(c, x, 3, 0, n / 2, 1), rw_slice(c, x, 3, n / 2, n, 1)};
}

static uint32_t join_halves(struct shape_ctx *c, struct halves h, bool interleaved)
{
    const struct graph_value v = *rw_v(c, h.a);
    const int64_t apart[5] = {v.dims[0], v.dims[1], v.dims[2], v.dims[3], 1};
    const int64_t whole[4] = {v.dims[0], v.dims[1], v.dims[2], 2 * v.dims[3]};

    if (!interleaved)
        return rw_concat(c, (const uint32_t[]){h.a, h.b}, 2, 3);
    h.a = rw_reshape(c, h.a, 5, apart);
    h.b = rw_reshape(c, h.b, 5, apart);
    return rw_reshape(c, rw_concat(c, (const uint32_t[]){h.a, h.b}, 2, 4), 4, whole);
}

int shape__rewrite_rotary(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0);
    int64_t interleaved, heads, n, dims[4] = {x.dims[0], x.dims[1], 0, 0};
    uint32_t y = rw_in(c, 0), cos, sin, turned;
    struct halves h;

    interleaved = shape__int(c, "interleaved", 0);
    heads = shape__int(c, "num_heads", 0);
    n = shape__int(c, "rotary_embedding_dim", 0);
    shape__want_float(c, 0);
    if (x.rank != 4 && (x.rank != 3 || heads < 1 || x.dims[2] % heads != 0))
        shape__fail(c, SH_E_INVALID, "the input must have 4 axes, or 3 and num_heads equal heads");
    if (c->err->rc)
        return c->err->rc;
    if (x.rank == 3) {
        dims[2] = heads;
        dims[3] = x.dims[2] / heads;
        y = rw_reshape(c, y, 4, dims);
    }
    dims[3] = rw_v(c, y)->dims[3];
    n = n ? n : dims[3];
    if (n < 2 || n % 2 != 0 || n > dims[3])
        shape__fail(c, SH_E_INVALID, "%lld of %lld columns cannot be turned in pairs", (long long)n,
                    (long long)dims[3]);
    cos = angles(c, 1, x.rank == 3);
    sin = angles(c, 2, x.rank == 3);
    h = split_halves(c, y, n, interleaved != 0);
    turned = join_halves(
        c,
        (struct halves){rw2(c, "Sub", rw2(c, "Mul", cos, h.a), rw2(c, "Mul", sin, h.b)),
                        rw2(c, "Add", rw2(c, "Mul", sin, h.a), rw2(c, "Mul", cos, h.b))},
        interleaved != 0);
    if (n < dims[3])
        turned = rw_concat(c, (const uint32_t[]){turned, rw_slice(c, y, 3, n, dims[3], 1)}, 2, 3);
    if (x.rank == 3)
        turned = rw_reshape(c, turned, 3, x.dims);
    return rw_is(c, 0, turned);
}

/* ---------------------------------------------------------------- normalisations */

/* That of one output, and beside it the mean and one over the deviation. */
int shape__rewrite_layer_norm(struct shape_ctx *c)
{
    const uint32_t x = rw_in(c, 0);
    const struct graph_value v = *shape__in(c, 0);
    int64_t axis, stash, axes[SH_MAX_RANK];
    double eps;
    uint32_t y, mean, off, inv;

    axis = shape__int(c, "axis", -1);
    stash = shape__int(c, "stash_type", 1);
    eps = shape__float(c, "epsilon", 1e-5);
    shape__axis(c, axis, v.rank, &axis);
    if (c->err->rc)
        return c->err->rc;
    for (int i = (int)axis; i < v.rank; i++)
        axes[i - axis] = i;
    y = rw_node(c, c->n.op, c->n.in, c->n.n_in,
                (const struct graph_attr[]){RW_INT("axis", axis), RW_FLOAT("epsilon", eps)}, 2);
    mean = rw_reduce(c, "ReduceMean", x, axes, v.rank - (int)axis, true);
    off = rw2(c, "Sub", x, mean);
    inv = rw_reduce(c, "ReduceMean", rw2(c, "Mul", off, off), axes, v.rank - (int)axis, true);
    inv = rw2(c, "Add", inv, rw_cast(c, rw_number(c, SH_F32, eps), v.dtype));
    inv = rw1(c, "Reciprocal", rw1(c, "Sqrt", inv));
    rw_is(c, 0, y);
    if (has_out(c, 1))
        rw_is(c, 1, rw1_with(c, "Cast", mean, RW_INT("to", stash)));
    return has_out(c, 2) ? rw_is(c, 2, rw1_with(c, "Cast", inv, RW_INT("to", stash))) : c->err->rc;
}

int shape__rewrite_rms_norm(struct shape_ctx *c)
{
    const uint32_t x = rw_in(c, 0);
    const struct graph_value v = *shape__in(c, 0);
    int64_t axis, axes[SH_MAX_RANK];
    double eps;
    uint32_t y;

    axis = shape__int(c, "axis", -1);
    eps = shape__float(c, "epsilon", 1e-5);
    shape__want_float(c, 0);
    shape__axis(c, axis, v.rank, &axis);
    if (c->err->rc)
        return c->err->rc;
    for (int i = (int)axis; i < v.rank; i++)
        axes[i - axis] = i;
    y = rw_reduce(c, "ReduceMean", rw2(c, "Mul", x, x), axes, v.rank - (int)axis, true);
    y = rw2(c, "Add", y, rw_cast(c, rw_number(c, SH_F32, eps), v.dtype));
    y = rw2(c, "Mul", x, rw1(c, "Reciprocal", rw1(c, "Sqrt", y)));
    return rw_is(c, 0, rw2(c, "Mul", y, rw_in(c, 1)));
}

int shape__rewrite_mean_variance(struct shape_ctx *c)
{
    const struct graph_value v = *shape__in(c, 0);
    int64_t axes[SH_MAX_RANK] = {0, 2, 3};
    uint32_t y, deviation;
    size_t k;

    shape__want_float(c, 0);
    k = shape__list(c, "axes", axes, SH_MAX_RANK);
    for (size_t i = 0; i < k; i++)
        shape__axis(c, axes[i], v.rank, &axes[i]);
    if (k == 0 && v.rank != 4)
        shape__fail(c, SH_E_INVALID, "without axes the input must have 4");
    k = k ? k : 3;
    y = rw_in(c, 0);
    y = rw2(c, "Sub", y, rw_reduce(c, "ReduceMean", y, axes, (int)k, true));
    deviation = rw1(c, "Sqrt", rw_reduce(c, "ReduceMean", rw2(c, "Mul", y, y), axes, (int)k, true));
    deviation = rw2(c, "Add", deviation, rw_cast(c, rw_number(c, SH_F32, 1e-9), v.dtype));
    return rw_is(c, 0, rw2(c, "Div", y, deviation));
}
