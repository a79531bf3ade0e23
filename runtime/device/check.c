/* check.c - is a graph well formed? Asked once for every back end, before any of them sees it.
 *
 * A back end may then rely on: indices in range, the number of operands of each kind, shapes whose
 * byte size fits, aliases that point backwards, samples that exist. What a kind needs of its shapes
 * stays with the back end, which knows what it can run.
 */
#include "common/mem.h"
#include "common/preprocess.h"
#include "runtime/device/backend.h"

#include <inttypes.h>

/* The operands of each kind: n of the required inputs and outputs, then how many in all. */
struct arity {
    uint8_t in, max_in, out, max_out;
};

static const struct arity ARITY[DEV_N_OPS] = {
#define DEV_OP(kind, in, max_in, out, max_out, builder) \
    [DEV_OP_##kind] = {in, max_in, out, max_out},
#include "runtime/device/op.def"
#undef DEV_OP
};

int dev__check_tensor(const struct dev_graph *g, uint32_t i, struct sh_err *err)
{
    const struct dev_tensor *t = &g->tensors[i];
    const char *name = t->name ? t->name : "?";
    size_t n;
    int rc = SH_OK;

    if ((unsigned)t->dtype >= SH_N_DTYPES || t->rank > SH_MAX_RANK)
        return SH_FAIL(err, SH_E_BUG, "tensor \"%s\" has no valid type or rank", name);
    n = sh_dtype_bytes(t->dtype);
    for (uint32_t d = 0; d < t->rank && !rc; d++) {
        if (t->dims[d] < 1)
            return SH_FAIL(err, SH_E_UNSUPPORTED, "tensor \"%s\" has no elements", name);
        rc = sh_mul_size(n, (size_t)t->dims[d], &n, err);
    }
    if (rc || n > INT64_MAX / 4)
        return SH_FAIL(err, SH_E_TOOBIG, "tensor \"%s\" is too large", name);
    if (t->alias_of == DEV_NONE)
        return SH_OK;
    if (t->alias_of >= i ||
        dev_tensor_elements(&g->tensors[t->alias_of]) != dev_tensor_elements(t) ||
        g->tensors[t->alias_of].dtype != t->dtype)
        return SH_FAIL(err, SH_E_BUG, "tensor \"%s\" is not another name of its bytes", name);
    return SH_OK;
}

/* Optional but in the middle are LAYERNORM_BWD's scale and ATTENTION_BWD's mask, and what SQUARES
 * begins with; every other gap lies behind `need`. */
static bool may_be_absent(const struct dev_op *op, uint32_t i, uint32_t need)
{
    return i >= need || (op->kind == DEV_OP_LAYERNORM_BWD && i == 2) ||
           (op->kind == DEV_OP_ATTENTION_BWD && i == 3) || (op->kind == DEV_OP_SQUARES && i == 0);
}

static int check_attn(const struct dev_op *op, struct sh_err *err)
{
    const bool is_bwd = op->kind == DEV_OP_ATTENTION_BWD;
    const bool trains = is_bwd || (op->n_out > 1 && op->out[1] != DEV_NONE);
    const char *name = op->name ? op->name : "?";
    const float ratio = op->u.attn.ratio;

    if (!is_bwd && op->kind != DEV_OP_ATTENTION)
        return SH_OK;
    if (!(ratio >= 0 && ratio <= 1))
        return SH_FAIL(err, SH_E_INVALID, "%s (node \"%s\"): ratio %g is not between 0 and 1",
                       dev_op_name(op->kind), name, (double)ratio);
    if (ratio > 0 && !trains)
        return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") drops weights but is not of training",
                       dev_op_name(op->kind), name);
    return SH_OK;
}

/* The same for every back end: what it may rely on beyond types. */
static int check_loss_op(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    const bool is_each = op->kind == DEV_OP_LOSS_EACH;
    const struct dev_tensor *x = op->n_in ? &g->tensors[op->in[0]] : NULL, *y, *w;
    const char *name = op->name ? op->name : "?";
    int64_t labels, weights;

    if (op->kind != DEV_OP_LOSS_XENT && !is_each)
        return SH_OK;
    y = &g->tensors[op->in[1]];
    w = op->n_in > 2 && op->in[2] != DEV_NONE ? &g->tensors[op->in[2]] : NULL;
    if (!is_each && (x->rank < 2 || x->rank > 3 || y->dtype != SH_I64))
        return SH_FAIL(err, SH_E_BUG,
                       "%s (node \"%s\") needs logits [N, C] or [N, C, S] and I64 labels",
                       dev_op_name(op->kind), name);
    labels = is_each ? dev_tensor_elements(x) : dev_tensor_elements(x) / x->dims[1];
    weights = w ? dev_tensor_elements(w) : 1;
    if (dev_tensor_elements(y) != labels || dev_tensor_elements(&g->tensors[op->out[0]]) != 1 ||
        !dev_same_dims(x, &g->tensors[op->out[1]]) || (w && w->dtype != SH_F32) ||
        (w && (is_each ? labels % weights != 0 : weights != x->dims[1])))
        return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\"): labels, weights and results do not fit",
                       dev_op_name(op->kind), name);
    if (!(op->u.loss.weight > 0))
        return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") has no weight above 0",
                       dev_op_name(op->kind), name);
    if (is_each && (unsigned)op->u.loss.kind >= DEV_N_LOSSES)
        return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") is of no known kind", dev_op_name(op->kind),
                       name);
    return SH_OK;
}

/* Likewise; who skips an update has to know why. */
static int check_scaler_op(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    const uint32_t at = dev_op_scaler(op);
    const bool updates = op->kind == DEV_OP_SGD || op->kind == DEV_OP_ADAM;
    const struct dev_tensor *t;

    if (at == DEV_NONE)
        return SH_OK;
    t = &g->tensors[at];
    if (t->dtype != SH_F32 || t->role != DEV_ROLE_STATE || dev_tensor_elements(t) != DEV_SCALER ||
        (updates && op->in[op->kind == DEV_OP_SGD ? 3 : 4] == DEV_NONE))
        return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") has no scaler, or no squares to go with it",
                       dev_op_name(op->kind), op->name ? op->name : "?");
    return SH_OK;
}

static bool are_pixels(const struct dev_op *op, const struct dev_tensor *x,
                       const struct dev_tensor *y, const struct dev_tensor *table)
{
    const int a = op->u.pixels.x_last ? 3 : 1, b = op->u.pixels.y_last ? 3 : 1;
    const int h = a == 3 ? 1 : 2, to = b == 3 ? 1 : 2; /* of the height */

    return x->rank == 4 && y->rank == 4 && x->dtype == SH_U8 && y->dtype == SH_F32 &&
           table->dtype == SH_F32 && table->rank == 1 &&
           dev_tensor_elements(table) == SH_PREPROCESS_BYTES * y->dims[b] &&
           x->dims[0] == y->dims[0] && x->dims[a] == y->dims[b] && x->dims[h] == y->dims[to] &&
           x->dims[h + 1] == y->dims[to + 1];
}

/* Likewise. */
static int check_augment(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    const struct dev_jitter *j = &op->u.jitter;
    const struct dev_tokens *k = &op->u.tokens;
    const struct dev_tensor *y = op->n_out ? &g->tensors[op->out[0]] : NULL;
    const struct dev_tensor *x = op->n_in ? &g->tensors[op->in[0]] : y;
    bool fits = true;

    if (op->kind == DEV_OP_JITTER)
        fits = x->rank == 4 && dev_same_dims(x, y) && x->dtype == y->dtype &&
               (x->dtype == SH_F32 || x->dtype == SH_U8) && j->pad >= 0 &&
               j->pad <= INT32_MAX / 4 && j->flip >= 0 && j->flip <= 1;
    else if (op->kind == DEV_OP_PIXELS)
        fits = are_pixels(op, x, y, &g->tensors[op->in[1]]);
    else if (op->kind == DEV_OP_TOKENS)
        fits = dev_same_dims(x, y) && dev_same_dims(x, &g->tensors[op->out[1]]) &&
               x->dtype == SH_I64 && y->dtype == SH_I64 && g->tensors[op->out[1]].dtype == SH_I64 &&
               k->n_keep <= DEV_MAX_KEPT && k->size >= 1 && k->share >= 0 && k->share <= 1;
    else if (op->kind == DEV_OP_MIX)
        fits = y->dtype == SH_F32 && dev_tensor_elements(y) == 1;
    return fits ? SH_OK
                : SH_FAIL(err, SH_E_BUG, "%s (node \"%s\"): operands and options do not fit",
                          dev_op_name(op->kind), op->name ? op->name : "?");
}

static bool is_f32_matrix(const struct dev_graph *g, uint32_t t, int64_t rows, int64_t columns)
{
    const struct dev_tensor *d = &g->tensors[t];

    return d->dtype == SH_F32 && d->rank == 2 && d->dims[0] == rows && d->dims[1] == columns;
}

/* Likewise. */
static int check_cell(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    const bool is_bwd = op->kind == DEV_OP_LSTM_CELL_BWD;
    const struct dev_tensor *cell;
    int64_t n, width;
    bool fits;

    if (op->kind != DEV_OP_LSTM_CELL && !is_bwd)
        return SH_OK;
    cell = &g->tensors[op->in[1]];
    n = cell->rank == 2 ? cell->dims[0] : 0;
    width = cell->rank == 2 ? cell->dims[1] : 0;
    fits = is_f32_matrix(g, op->in[0], n, 4 * width) && is_f32_matrix(g, op->in[1], n, width) &&
           is_f32_matrix(g, op->out[0], n, is_bwd ? 4 * width : width) &&
           is_f32_matrix(g, op->out[1], n, width);
    for (uint32_t k = 2; k < op->n_in; k++)
        fits = fits && (op->in[k] == DEV_NONE || is_f32_matrix(g, op->in[k], n, width));
    return fits ? SH_OK
                : SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") needs F32 of sizes [N, 4 H] and [N, H]",
                          dev_op_name(op->kind), op->name ? op->name : "?");
}

static int check_samples(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    const struct dev_conv *c = &op->u.conv;
    const char *name = op->name ? op->name : "?";

    switch (op->kind) {
    case DEV_OP_CONV_BWD_WEIGHT:
        break;
    case DEV_OP_CONV:
    case DEV_OP_CONV_BWD_DATA:
    case DEV_OP_POOL_MAX:
    case DEV_OP_POOL_AVG:
    case DEV_OP_POOL_MAX_BWD:
    case DEV_OP_POOL_AVG_BWD:
        if (c->first == 0 && c->count == 0)
            return SH_OK;
        return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") cannot be of a range of samples",
                       dev_op_name(op->kind), name);
    default:
        return SH_OK;
    }
    for (uint32_t k = 0; k < 2; k++) { /* x and d_y */
        const struct dev_tensor *t = &g->tensors[op->in[k]];
        const int64_t n = t->rank ? t->dims[0] : 1;

        if (c->first < 0 || c->count < 0 || (c->count == 0 && c->first != 0) || c->count > n ||
            c->first > n - c->count)
            return SH_FAIL(err, SH_E_BUG,
                           "%s (node \"%s\") cannot read %" PRId64 " samples from %" PRId64
                           " on: \"%s\" has %" PRId64,
                           dev_op_name(op->kind), name, c->count, c->first, t->name ? t->name : "?",
                           n);
    }
    return SH_OK;
}

int dev__check_op(const struct dev_graph *g, uint32_t i, struct sh_err *err)
{
    const struct dev_op *op = &g->ops[i];
    const char *name = op->name ? op->name : "?";
    const struct arity *a;
    int rc;

    if ((unsigned)op->kind >= DEV_N_OPS || (unsigned)op->act >= DEV_N_ACTS)
        return SH_FAIL(err, SH_E_BUG, "operation %u (node \"%s\") is of no known kind", i, name);
    a = &ARITY[op->kind];
    if (op->n_in < a->in || op->n_in > a->max_in || op->n_out < a->out || op->n_out > a->max_out)
        return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") cannot have %u inputs and %u outputs",
                       dev_op_name(op->kind), name, op->n_in, op->n_out);
    for (uint32_t k = 0; k < op->n_in; k++)
        if (op->in[k] >= g->n_tensors && !(op->in[k] == DEV_NONE && may_be_absent(op, k, a->in)))
            return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") lacks input %u", dev_op_name(op->kind),
                           name, k);
    for (uint32_t k = 0; k < op->n_out; k++)
        if (op->out[k] >= g->n_tensors && !(op->out[k] == DEV_NONE && k >= a->out))
            return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") lacks output %u", dev_op_name(op->kind),
                           name, k);
    rc = check_attn(op, err);
    if (!rc)
        rc = check_loss_op(g, op, err);
    if (!rc)
        rc = check_scaler_op(g, op, err);
    if (!rc)
        rc = check_augment(g, op, err);
    if (!rc)
        rc = check_cell(g, op, err);
    if (!rc)
        rc = dev__check_quant(g, op, err);
    if (!rc)
        rc = dev__check_pick(g, op, err);
    return rc ? rc : check_samples(g, op, err);
}
