/* pass_attn.c - attention that an exporter spelled out becomes one operation.
 *
 *   q [B,S,H,D] - TRANSPOSE -+
 *   k [B,S,H,D] - TRANSPOSE -+- MATMUL - (+ mask) - SOFTMAX - MATMUL - TRANSPOSE - y [B,S,H,D]
 *   v [B,S,H,D] - TRANSPOSE ------------------------------------+
 *
 * runs as ATTENTION q k v mask -> y: no transposed copy and no matrix of scores is ever stored. It
 * takes the place of the last TRANSPOSE; the scores and what is made of them must have no other
 * reader. Factors on the way (of q, of k, of the scores) become its scale.
 *
 * In training a DROPOUT between SOFTMAX and MATMUL goes into it as well, and it leaves what the
 * backward operation needs instead of the scores. That operation gives the mask no gradient, so
 * where the mask depends on a parameter (a bias by relative position) all stays as it is.
 *
 * At inference, where q, k and v are products of the same rows with three constant matrices, these
 * become one matrix: one product instead of three, whose result ATTENTION reads as [B,S,3,H,D]. A
 * matrix that has other readers stays as it is, so that the image does not grow.
 */
#include "common/mem.h"
#include "executor/model/pass.h"

#include <stdlib.h>

struct attn {
    struct ir *ir;
    struct ir_uses u;
    bool *trainable; /* training: [n_tensors] by root, does it depend on a parameter? NULL: not */
};

struct match {
    uint32_t in[4]; /* q k v mask */
    double scale;
    struct dev_op *product, *drop, *back; /* of weights and v; before it, NULL if none; after it */
};

/* The only reader of t if it is of this kind. */
static struct dev_op *only_reader(const struct attn *a, uint32_t t, enum dev_op_kind k)
{
    const uint32_t root = ir_root(a->ir, t), r = a->u.reader[root];

    if (a->u.reads[root] != 1 || r == DEV_NONE || a->ir->g.ops[r].kind != k)
        return NULL;
    return &a->ir->g.ops[r];
}

/* Goes up over multiplications by a constant. */
static uint32_t peel_factor(const struct attn *a, uint32_t t, double *scale)
{
    struct dev_op *op;

    while ((op = pass__writer(a->ir, &a->u, t, DEV_OP_ACT)) && op->act == DEV_ACT_LINEAR &&
           op->act_p1 == 0.0f && ir_same_shape(a->ir, op->out[0], t)) {
        *scale *= (double)op->act_p0;
        t = op->in[0];
    }
    return t;
}

/* The [B,S,H,D] of which t is [B,H,S,D] or, turned, [B,H,D,S]; DEV_NONE if t is something else. */
static uint32_t heads_of(const struct attn *a, uint32_t t, bool turned, double *scale)
{
    const uint32_t perm[4] = {0, 2, turned ? 3 : 1, turned ? 1 : 3};
    struct dev_op *op;

    t = peel_factor(a, t, scale);
    op = pass__writer(a->ir, &a->u, t, DEV_OP_TRANSPOSE);
    if (!op || ir_t(a->ir, op->in[0])->rank != 4 || !ir_same_shape(a->ir, op->out[0], t) ||
        memcmp(op->u.perm.perm, perm, sizeof(perm)) != 0)
        return DEV_NONE;
    return peel_factor(a, op->in[0], scale);
}

static bool is_plain_product(const struct dev_op *op)
{
    return op->act == DEV_ACT_NONE && op->in[3] == DEV_NONE;
}

/* scores = alpha q k^T, with a mask that was fused into it as a bias or a residual. */
static bool match_scores(const struct attn *a, const struct dev_op *op, struct match *m)
{
    const bool has_mask = m->in[3] != DEV_NONE;

    if (op->act != DEV_ACT_NONE || (op->in[2] != DEV_NONE) + (op->in[3] != DEV_NONE) + has_mask > 1)
        return false;
    m->scale *= (double)op->u.matmul.alpha;
    m->in[0] = heads_of(a, op->in[0], op->u.matmul.trans_a, &m->scale);
    m->in[1] = heads_of(a, op->in[1], !op->u.matmul.trans_b, &m->scale);
    if (!has_mask)
        m->in[3] = op->in[2] != DEV_NONE ? op->in[2] : op->in[3];
    return m->in[0] != DEV_NONE && m->in[1] != DEV_NONE;
}

/* x = scores, or scores + mask. */
static bool match_masked(const struct attn *a, uint32_t x, struct match *m)
{
    struct dev_op *add = pass__writer(a->ir, &a->u, x, DEV_OP_BINARY), *scores;

    m->in[3] = DEV_NONE;
    for (uint32_t k = 0; k < (add ? 2u : 1u); k++) {
        double scale = 1.0;
        uint32_t t = add ? add->in[k] : x, from;

        if (add && (add->u.binary.kind != DEV_BIN_ADD || add->act != DEV_ACT_NONE ||
                    !ir_same_shape(a->ir, t, x) || a->u.reads[ir_root(a->ir, t)] != 1))
            continue;
        from = peel_factor(a, t, &scale);
        scores = pass__writer(a->ir, &a->u, from, DEV_OP_MATMUL);
        if (!scores || a->u.reads[ir_root(a->ir, from)] != 1 ||
            (scale != 1.0 && (scores->in[2] != DEV_NONE || scores->in[3] != DEV_NONE)))
            continue;
        m->scale = scale;
        m->in[3] = add ? add->in[1 - k] : DEV_NONE;
        return match_scores(a, scores, m);
    }
    return false;
}

static bool fits_training(const struct attn *a, const struct dev_op *op)
{
    const uint32_t mask = op->n_in > 3 ? op->in[3] : DEV_NONE;
    const struct dev_tensor *q = ir_t(a->ir, op->in[0]);

    return (mask == DEV_NONE || !a->trainable[ir_root(a->ir, mask)]) && q->dims[3] % 16 == 0 &&
           q->dims[3] <= DEV_MAX_TRAIN_WIDTH;
}

/* The shapes as the device will see them. */
static bool fits(const struct attn *a, const struct dev_op *op)
{
    const struct dev_tensor *in[4] = {NULL};
    struct dev_attn shape;

    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = ir_t(a->ir, op->in[i]);
        if (in[i]->dtype != SH_F32)
            return false;
    }
    return dev_attn_of(op, in, ir_t(a->ir, op->out[0]), &shape) && shape.k_rows <= DEV_MAX_KEYS &&
           (op->u.attn.ratio == 0.0f || dev_attn_can_drop(&shape)) &&
           (!a->trainable || fits_training(a, op));
}

/* From the weights, softmax or what DROPOUT left of it, to the last TRANSPOSE. */
static bool match_values(const struct attn *a, const struct dev_op *soft, struct match *m)
{
    static const uint32_t BACK[4] = {0, 2, 1, 3};
    const struct ir *ir = a->ir;
    uint32_t weights = soft->out[0];
    double ignored = 1.0;

    m->drop = only_reader(a, weights, DEV_OP_DROPOUT);
    if (m->drop) {
        weights = m->drop->out[0];
        if (m->drop->n_in > 1 || a->u.reads[ir_root(ir, m->drop->out[1])] != 0 ||
            !ir_same_shape(ir, weights, soft->out[0]))
            return false;
    }
    m->product = only_reader(a, weights, DEV_OP_MATMUL);
    if (!m->product || !is_plain_product(m->product) || m->product->in[2] != DEV_NONE ||
        m->product->u.matmul.alpha != 1.0f || m->product->u.matmul.trans_a ||
        !ir_same_shape(ir, m->product->in[0], soft->out[0]) ||
        ir_root(ir, m->product->in[0]) != ir_root(ir, weights))
        return false;
    m->back = only_reader(a, m->product->out[0], DEV_OP_TRANSPOSE);
    if (!m->back || memcmp(m->back->u.perm.perm, BACK, sizeof(BACK)) != 0 ||
        !ir_same_shape(ir, m->back->in[0], m->product->out[0]))
        return false;
    m->in[2] = heads_of(a, m->product->in[1], m->product->u.matmul.trans_b, &ignored);
    return m->in[2] != DEV_NONE && ignored == 1.0;
}

static int add_lse(const struct attn *a, struct dev_op *op, struct sh_err *err)
{
    const struct dev_tensor q = *ir_t(a->ir, op->in[0]);
    const int64_t dims[3] = {q.dims[0], q.dims[2], q.dims[1]};
    const char *name;
    int rc = ir_name(a->ir, &name, err, "%s#lse", op->name);

    op->n_out = 2;
    return rc ? rc : ir_tensor(a->ir, name, SH_F32, DEV_ROLE_ACT, 3, dims, &op->out[1], err);
}

/* Puts an ATTENTION in the place of the last TRANSPOSE, if `soft` is the SOFTMAX of one. */
static int try_attention(const struct attn *a, const struct dev_op *soft, struct sh_err *err)
{
    const struct ir *ir = a->ir;
    const int64_t rank = (int64_t)ir_t(ir, soft->in[0])->rank;
    struct dev_op op;
    struct match m;
    int rc = SH_OK;

    if (soft->u.axis.log || rank != 4 || (soft->u.axis.axis != 3 && soft->u.axis.axis != -1) ||
        a->u.reads[ir_root(ir, soft->in[0])] != 1)
        return SH_OK;
    if (!match_values(a, soft, &m) || !match_masked(a, soft->in[0], &m))
        return SH_OK;
    op = ir_op(DEV_OP_ATTENTION, soft->name, m.in[3] == DEV_NONE ? 3 : 4, m.in);
    op.u.attn.scale = (float)m.scale;
    op.u.attn.ratio = m.drop ? m.drop->u.dropout.ratio : 0.0f;
    op.out[0] = m.back->out[0];
    op.n_out = 1;
    if (!fits(a, &op))
        return SH_OK;
    if (a->trainable)
        rc = add_lse(a, &op, err);
    if (!rc)
        *m.back = op;
    return rc;
}

/* ------------------------------------------------------------------ one product for q, k and v */

/* Is operand t of the attention the whole result of x w + b, with constants that nobody else
 * needs and nobody else reading the result? */
static struct dev_op *projection(const struct attn *a, uint32_t t)
{
    const struct ir *ir = a->ir;
    struct dev_op *op = pass__writer(ir, &a->u, t, DEV_OP_MATMUL);
    const struct dev_tensor *w, *y;

    if (!op || !is_plain_product(op) || op->u.matmul.trans_a || op->u.matmul.alpha != 1.0f)
        return NULL;
    w = ir_t(ir, op->in[1]);
    y = ir_t(ir, op->out[0]);
    if (w->rank != 2 || y->rank != 2 || w->dtype != SH_F32 || !ir_data(ir, op->in[1]) ||
        ir_t(ir, ir_root(ir, op->in[1]))->role != DEV_ROLE_WEIGHT ||
        a->u.reads[ir_root(ir, op->in[1])] != 1 || a->u.reads[ir_root(ir, t)] != 1)
        return NULL;
    if (op->in[2] != DEV_NONE &&
        (!ir_data(ir, op->in[2]) || ir_elements(ir, op->in[2]) != y->dims[1] ||
         ir_t(ir, op->in[2])->dtype != SH_F32))
        return NULL;
    return op;
}

static bool are_alike(const struct ir *ir, struct dev_op *const p[3])
{
    for (int i = 1; i < 3; i++)
        if (p[i] == p[0] || ir_root(ir, p[i]->in[0]) != ir_root(ir, p[0]->in[0]) ||
            !ir_same_shape(ir, p[i]->in[0], p[0]->in[0]) ||
            !ir_same_shape(ir, p[i]->in[1], p[0]->in[1]) ||
            !ir_same_shape(ir, p[i]->out[0], p[0]->out[0]) ||
            p[i]->u.matmul.trans_b != p[0]->u.matmul.trans_b ||
            (p[i]->in[2] == DEV_NONE) != (p[0]->in[2] == DEV_NONE))
            return false;
    return p[1] != p[2];
}

/* The operands `slot` of the three side by side: each [rows, cols] becomes a part of [rows, 3 cols]
 */
static int join(struct ir *ir, struct dev_op *const p[3], uint32_t slot, int64_t rows,
                const char *what, uint32_t rank, const int64_t *dims, uint32_t *out,
                struct sh_err *err)
{
    const int64_t n = ir_elements(ir, p[0]->in[slot]), cols = n / rows;
    const char *name;
    float *data;
    int rc = ir_name(ir, &name, err, "%s.%s", p[0]->name, what);

    if (rc)
        return rc;
    data = malloc((size_t)n * 3 * sizeof(*data));
    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the weights of \"%s\"", p[0]->name);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < 3; i++)
            memcpy(data + (r * 3 + i) * cols, (const float *)ir_data(ir, p[i]->in[slot]) + r * cols,
                   (size_t)cols * sizeof(*data));
    rc = ir_const(ir, name, DEV_ROLE_WEIGHT, SH_F32, rank, dims, data, out, err);
    if (rc)
        free(data);
    return rc;
}

static int join_projections(struct attn *a, struct dev_op *op, struct sh_err *err)
{
    struct ir *ir = a->ir;
    struct dev_op *p[3], *first;
    int64_t wide[2], dims[5];
    uint32_t w, bias = DEV_NONE, y, view;
    bool turned;
    int rc;

    for (int i = 0; i < 3; i++) {
        p[i] = projection(a, op->in[i]);
        if (!p[i])
            return SH_OK;
    }
    if (!are_alike(ir, p))
        return SH_OK;
    first = SH_MIN(p[0], SH_MIN(p[1], p[2])); /* the rows that all read are there by then */
    turned = p[0]->u.matmul.trans_b;
    memcpy(wide, ir_t(ir, p[0]->in[1])->dims, sizeof(wide));
    wide[turned ? 0 : 1] *= 3;
    rc = join(ir, p, 1, turned ? 1 : wide[0], "qkv", 2, wide, &w, err);
    if (!rc && p[0]->in[2] != DEV_NONE)
        rc = join(ir, p, 2, 1, "qkv.bias", 1, &wide[turned ? 0 : 1], &bias, err);
    if (rc)
        return rc;
    memcpy(dims, ir_t(ir, op->in[0])->dims, 2 * sizeof(*dims));
    dims[2] = 3;
    memcpy(dims + 3, ir_t(ir, op->in[0])->dims + 2, 2 * sizeof(*dims));
    rc = ir_tensor(ir, first->name, SH_F32, DEV_ROLE_ACT, 2,
                   (int64_t[]){ir_t(ir, p[0]->out[0])->dims[0], wide[turned ? 0 : 1]}, &y, err);
    if (!rc)
        rc = ir_alias(ir, y, 5, dims, &view, err);
    if (rc)
        return rc;
    first->in[1] = w;
    first->in[2] = bias;
    first->out[0] = y;
    for (uint32_t i = 0; i < 3; i++) {
        op->in[i] = view;
        op->u.attn.plane[i] = i;
        if (p[i] != first)
            ir_kill(p[i]);
    }
    return SH_OK;
}

static int mark_trainable(struct attn *a, struct sh_err *err)
{
    const struct ir *ir = a->ir;

    a->trainable = calloc(ir->g.n_tensors + 1u, sizeof(*a->trainable));
    if (!a->trainable)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u marks", ir->g.n_tensors);
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        a->trainable[i] = ir->info[i].state == IR_PARAM;
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        const struct dev_op *op = &ir->g.ops[i];
        bool any = false;

        for (uint32_t k = 0; k < op->n_in; k++)
            any |= op->in[k] != DEV_NONE && a->trainable[ir_root(ir, op->in[k])];
        for (uint32_t k = 0; k < op->n_out && any; k++)
            if (op->out[k] != DEV_NONE)
                a->trainable[ir_root(ir, op->out[k])] = true;
    }
    return SH_OK;
}

int pass_attn(struct ir *ir, bool training, struct sh_err *err)
{
    struct attn a = {.ir = ir};
    int rc = ir_uses_init(&a.u, ir, err);

    if (!rc && training)
        rc = mark_trainable(&a, err);
    for (uint32_t i = 0; i < ir->g.n_ops && rc == SH_OK; i++)
        if (ir->g.ops[i].kind == DEV_OP_SOFTMAX)
            rc = try_attention(&a, &ir->g.ops[i], err);
    if (!rc)
        rc = ir_drop_unused(ir, err);
    ir_uses_fini(&a.u);
    free(a.trainable);
    if (rc || training) /* parameters are tensors of their own */
        return rc;
    rc = ir_uses_init(&a.u, ir, err);
    for (uint32_t i = 0; i < ir->g.n_ops && rc == SH_OK; i++)
        if (ir->g.ops[i].kind == DEV_OP_ATTENTION)
            rc = join_projections(&a, &ir->g.ops[i], err);
    ir_uses_fini(&a.u);
    ir_sweep(ir);
    return rc;
}
