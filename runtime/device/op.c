/* op.c - names and sizes; linked into every program that uses a device and into every back end. */
#include "runtime/device/op_attn.h"

#include <math.h>

static const char *const OP_NAMES[DEV_N_OPS] = {
#define DEV_OP(kind, ...) [DEV_OP_##kind] = #kind,
#include "runtime/device/op.def"
#undef DEV_OP
};

static const char *const ACT_NAMES[DEV_N_ACTS] = {
    [DEV_ACT_NONE] = "NONE",
    [DEV_ACT_RELU] = "RELU",
    [DEV_ACT_LEAKY_RELU] = "LEAKY_RELU",
    [DEV_ACT_CLIP] = "CLIP",
    [DEV_ACT_SIGMOID] = "SIGMOID",
    [DEV_ACT_TANH] = "TANH",
    [DEV_ACT_GELU_ERF] = "GELU_ERF",
    [DEV_ACT_GELU_TANH] = "GELU_TANH",
    [DEV_ACT_HARDSIGMOID] = "HARDSIGMOID",
    [DEV_ACT_HARDSWISH] = "HARDSWISH",
    [DEV_ACT_SILU] = "SILU",
    [DEV_ACT_EXP] = "EXP",
    [DEV_ACT_LOG] = "LOG",
    [DEV_ACT_SQRT] = "SQRT",
    [DEV_ACT_ERF] = "ERF",
    [DEV_ACT_ABS] = "ABS",
    [DEV_ACT_NEG] = "NEG",
    [DEV_ACT_RECIP] = "RECIP",
    [DEV_ACT_POW] = "POW",
    [DEV_ACT_LINEAR] = "LINEAR",
    [DEV_ACT_ELU] = "ELU",
    [DEV_ACT_SOFTPLUS] = "SOFTPLUS",
    [DEV_ACT_SIN] = "SIN",
    [DEV_ACT_COS] = "COS",
    [DEV_ACT_TAN] = "TAN",
    [DEV_ACT_ASIN] = "ASIN",
    [DEV_ACT_ACOS] = "ACOS",
    [DEV_ACT_ATAN] = "ATAN",
    [DEV_ACT_SINH] = "SINH",
    [DEV_ACT_COSH] = "COSH",
    [DEV_ACT_ASINH] = "ASINH",
    [DEV_ACT_ACOSH] = "ACOSH",
    [DEV_ACT_ATANH] = "ATANH",
    [DEV_ACT_FLOOR] = "FLOOR",
    [DEV_ACT_CEIL] = "CEIL",
    [DEV_ACT_ROUND] = "ROUND",
    [DEV_ACT_SIGN] = "SIGN",
};

const char *dev_op_name(enum dev_op_kind k)
{
    return (unsigned)k < DEV_N_OPS ? OP_NAMES[k] : "?";
}

const char *dev_act_name(enum dev_act a)
{
    return (unsigned)a < DEV_N_ACTS ? ACT_NAMES[a] : "?";
}

bool dev_act_bounds(const struct dev_op *op, float *lo, float *hi)
{
    *lo = op->act == DEV_ACT_NONE ? -INFINITY : 0;
    *hi = INFINITY;
    if (op->act == DEV_ACT_CLIP) {
        *lo = op->act_p0;
        *hi = op->act_p1;
    }
    return (op->act == DEV_ACT_NONE || op->act == DEV_ACT_RELU || op->act == DEV_ACT_CLIP) &&
           *lo <= 0 && *hi >= 0;
}

uint32_t dev_op_scaler(const struct dev_op *op)
{
    const uint32_t at = op->kind == DEV_OP_LOSS_XENT || op->kind == DEV_OP_LOSS_EACH ? 3
                        : op->kind == DEV_OP_SGD                                     ? 4
                        : op->kind == DEV_OP_ADAM                                    ? 5
                        : op->kind == DEV_OP_LOSS_SCALE                              ? 0
                                                                                     : DEV_MAX_IN;

    return at < op->n_in ? op->in[at] : DEV_NONE;
}

/* Is its operand in[k] changed in place? */
static bool writes_operand(const struct dev_op *op, uint32_t k)
{
    switch (op->kind) {
    case DEV_OP_ACCUM:
    case DEV_OP_EMA:
    case DEV_OP_LOSS_SCALE:
        return k == 0;
    case DEV_OP_SGD:
        return k == 0 || k == 2;
    case DEV_OP_ADAM:
        return k == 0 || k == 2 || k == 3;
    default:
        return false;
    }
}

uint32_t dev_op_written(const struct dev_graph *g, const struct dev_op *op, uint32_t *out)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < op->n_in; k++)
        if (writes_operand(op, k) && op->in[k] != DEV_NONE)
            out[n++] = op->in[k];
    for (uint32_t k = 0; k < op->n_out; k++)
        if (op->out[k] != DEV_NONE && g->tensors[op->out[k]].role == DEV_ROLE_STATE)
            out[n++] = op->out[k];
    return n;
}

bool dev_act_is_gated(enum dev_act a)
{
    return a == DEV_ACT_SILU || a == DEV_ACT_HARDSWISH;
}

int64_t dev_tensor_elements(const struct dev_tensor *t)
{
    return dev_axes_elements(t, 0, t->rank);
}

int64_t dev_axes_elements(const struct dev_tensor *t, uint32_t from, uint32_t to)
{
    int64_t n = 1;

    for (uint32_t i = from; i < to; i++)
        n *= t->dims[i];
    return n;
}

bool dev_axis_of(const struct dev_tensor *t, int64_t axis, uint32_t *out)
{
    axis += axis < 0 ? (int64_t)t->rank : 0;
    if (axis < 0 || axis >= (int64_t)t->rank)
        return false;
    *out = (uint32_t)axis;
    return true;
}

bool dev_same_dims(const struct dev_tensor *a, const struct dev_tensor *b)
{
    bool same = a->rank == b->rank;

    for (uint32_t i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i];
    return same;
}

int64_t dev_conv_samples(const struct dev_conv *c, const struct dev_tensor *x)
{
    return c->count ? c->count : x->dims[0];
}

/* q, k or v: [B, S, H, D], or a view of anything. */
static bool attn_operand(const struct dev_tensor *t, const struct dev_heads *view, int i,
                         struct dev_attn *out)
{
    const int64_t rows = i == 0 ? out->q_rows : out->k_rows, line = out->heads * out->width;

    out->at[i] = view->at;
    out->row_stride[i] = view->row ? view->row : line;
    out->batch_stride[i] = view->row ? view->batch : rows * line;
    if (view->row)
        return view->at >= 0 && view->batch >= 0 && view->row > 0 &&
               view->at + (out->batch - 1) * view->batch + (rows - 1) * view->row + line <=
                   dev_tensor_elements(t);
    return t->rank == 4 && t->dims[0] == out->batch && t->dims[1] == rows &&
           t->dims[2] == out->heads && t->dims[3] == out->width;
}

static bool attn_mask(const struct dev_tensor *t, struct dev_attn *out)
{
    const int64_t full[4] = {out->batch, out->heads, out->q_rows, out->k_rows};
    int64_t stride = 1;

    if (t->rank > 4)
        return false;
    for (uint32_t i = t->rank; i-- > 0;) {
        const uint32_t axis = i + 4 - t->rank;

        if (t->dims[i] != 1 && t->dims[i] != full[axis] && (axis > 0 || full[0] % t->dims[i] != 0))
            return false;
        if (axis == 0)
            out->mask_batches = t->dims[i];
        out->mask_stride[axis] = t->dims[i] == 1 ? 0 : stride;
        stride *= t->dims[i];
    }
    return true;
}

bool dev_attn_of(const struct dev_op *op, const struct dev_tensor *const in[4],
                 const struct dev_tensor *y, struct dev_attn *out)
{
    const bool viewed = op->u.attn.view[1].row > 0;
    bool fits = y->rank == 4 && (viewed || in[1]->rank == 4);

    *out = (struct dev_attn){.mask_batches = 1};
    if (!fits)
        return false;
    out->batch = y->dims[0];
    out->q_rows = y->dims[1];
    out->heads = y->dims[2];
    out->width = y->dims[3];
    out->k_rows = viewed ? op->u.attn.k_rows : in[1]->dims[1];
    for (int i = 0; i < 3 && fits; i++)
        fits = attn_operand(in[i], &op->u.attn.view[i], i, out);
    return fits && out->k_rows > 0 && (!in[3] || attn_mask(in[3], out));
}

static bool is_lse(const struct dev_tensor *t, const struct dev_attn *a)
{
    return t->dtype == SH_F32 && t->rank == 3 && t->dims[0] == a->batch && t->dims[1] == a->heads &&
           t->dims[2] == a->q_rows;
}

int dev_attn_shares(const struct dev_op *op, int i)
{
    int first = 0;

    while (first < i &&
           (op->in[first] != op->in[i] || !op->u.attn.view[first].row || !op->u.attn.view[i].row))
        first++;
    return first;
}

/* Do the views of the tensor that operand `first` is cut out of cover it, each element once? By
 * their strides, the smallest first: each must step over all that the smaller ones reach. */
static bool attn_covers(const struct dev_graph *g, const struct dev_op *op,
                        const struct dev_attn *a, int first)
{
    struct {
        int64_t count, stride;
    } axes[3] = {{first == 0 ? a->q_rows : a->k_rows, a->row_stride[first]},
                 {a->batch, a->batch_stride[first]},
                 {0, 0}};
    int64_t at[3], reach = a->heads * a->width;
    int n = 0;

    for (int i = first; i < 3; i++) {
        int64_t here = a->at[i];
        int k = n;

        if (dev_attn_shares(op, i) != first)
            continue;
        if (a->row_stride[i] != a->row_stride[first] ||
            a->batch_stride[i] != a->batch_stride[first] ||
            (i == 0 ? a->q_rows : a->k_rows) != axes[0].count)
            return false;
        for (; k > 0 && at[k - 1] > here; k--)
            at[k] = at[k - 1];
        at[k] = here;
        n++;
    }
    axes[2].count = n;
    axes[2].stride = n > 1 ? at[1] - at[0] : 0;
    if (at[0] != 0 || (n == 3 && at[2] - at[1] != axes[2].stride))
        return false;
    for (int found = 0; found < 3; found++) {
        int k = 0;

        while (k < 3 && axes[k].count != 1 && axes[k].stride != reach)
            k++;
        if (k == 3 || axes[k].count == 0)
            return false;
        reach *= axes[k].count;
        axes[k].count = 0;
    }
    return reach == dev_tensor_elements(&g->tensors[op->in[first]]);
}

bool dev_attn_trains(const struct dev_graph *g, const struct dev_op *op, const struct dev_attn *a)
{
    const bool is_bwd = op->kind == DEV_OP_ATTENTION_BWD;
    bool fits = true;

    for (int i = 0; i < 3 && fits; i++) {
        const bool has = !is_bwd || (i < (int)op->n_out && op->out[i] != DEV_NONE);

        if (dev_attn_shares(op, i) != i) {
            fits = !is_bwd || !has;
            continue;
        }
        fits = has && (!op->u.attn.view[i].row || attn_covers(g, op, a, i)) &&
               (!is_bwd || dev_same_dims(&g->tensors[op->out[i]], &g->tensors[op->in[i]]));
    }
    if (fits && is_bwd && op->n_out > 3 && op->out[3] != DEV_NONE) {
        const struct dev_tensor *t = &g->tensors[op->out[3]];

        fits = t->rank == 4 && t->dims[0] == a->batch && t->dims[1] == a->heads &&
               t->dims[2] == a->q_rows && t->dims[3] == a->k_rows;
    }
    return fits;
}

bool dev_attn_of_op(const struct dev_graph *g, const struct dev_op *op, struct dev_attn *out)
{
    const bool is_bwd = op->kind == DEV_OP_ATTENTION_BWD;
    const uint32_t y = is_bwd ? op->in[4] : op->out[0];
    const uint32_t lse = is_bwd ? op->in[6] : op->n_out > 1 ? op->out[1] : DEV_NONE;
    const struct dev_tensor *in[4] = {NULL};
    bool fits;

    for (uint32_t i = 0; i < 4 && i < op->n_in; i++)
        in[i] = op->in[i] == DEV_NONE ? NULL : &g->tensors[op->in[i]];
    fits = dev_attn_of(op, in, &g->tensors[y], out) &&
           (lse == DEV_NONE || (is_lse(&g->tensors[lse], out) && dev_attn_trains(g, op, out)));
    return fits && (!is_bwd || dev_same_dims(&g->tensors[op->in[5]], &g->tensors[y]));
}

bool dev_attn_can_drop(const struct dev_attn *a)
{
    const int64_t rows = a->batch * a->heads * a->q_rows;

    return rows <= ((int64_t)1 << 32) / ((a->k_rows + 7) / 8);
}
