/* pass_attn.c - attention that an exporter spelled out becomes one operation.
 *
 *   q [B,S,H,D] - TRANSPOSE -+
 *   k [B,S,H,D] - TRANSPOSE -+- MATMUL - (+ mask) - SOFTMAX - MATMUL - TRANSPOSE - y [B,S,H,D]
 *   v [B,S,H,D] - TRANSPOSE ------------------------------------+
 *
 * runs as ATTENTION q k v mask -> y, which stores neither transposed copies nor a matrix of scores.
 * It replaces the last TRANSPOSE; the scores and what is computed from them must have no other
 * reader. Factors on the way (of q, of k, of the scores) become its scale.
 *
 * PyTorch's exporter puts WHERE(IsNaN(w), 0, w) behind the SOFTMAX, with IsNaN as NOT(w == w): a
 * row whose keys are all hidden gives zeros. ATTENTION does that itself (zero_hidden).
 *
 * q, k and v may come through any transpositions and slices that leave heads whole: parts of one
 * product, with samples or rows first (strided.h). If the last TRANSPOSE does not go to [B,S,H,D]
 * it stays, behind ATTENTION.
 *
 * Several masks (a bias by relative position, and which windows are shifted) are added up first.
 * They are smaller than the scores: if B is samples times windows, there may be one mask for each
 * window.
 *
 * In training a DROPOUT between SOFTMAX and MATMUL is fused too, and ATTENTION keeps what its
 * backward operation needs instead of the scores. That writes one gradient for a tensor of which
 * several operands are parts; parts that do not cover all of it are copied out first.
 *
 * At inference, if q, k and v are products of the same rows with three constant matrices, these
 * become one matrix: one product instead of three, and ATTENTION reads views of its result. A
 * matrix with other readers stays as it is, so that the image does not grow.
 */
#include "common/mem.h"
#include "runtime/device/op_attn.h"
#include "runtime/model/pass.h"
#include "runtime/model/strided.h"

#include <stdlib.h>

struct attn {
    struct ir *ir;
    struct ir_uses u;
    bool *trainable; /* training: [n_tensors] by root, does it depend on a parameter? NULL: not */
};

#define MAX_MASKS 4

struct mask {
    struct dev_op *add; /* NULL: it is part of the product of queries and keys */
    uint32_t t;         /* as [B or a divisor of it, H, Sq, Sk], or 1 for any of them */
    int64_t dims[4];
};

struct match {
    uint32_t in[4];               /* q k v mask */
    struct mask masks[MAX_MASKS]; /* the innermost first */
    uint32_t n_masks, scores;
    bool no_views;
    struct dev_heads view[3];
    double scale;
    struct dev_op *product, *drop, *back; /* of weights and v; before it, NULL if none; after it */
    bool zero_hidden;
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

struct peel {
    const struct attn *a;
    double *scale;
};

static bool peel_act(void *ctx, uint32_t *t)
{
    const struct peel *p = ctx;
    const uint32_t up = peel_factor(p->a, *t, p->scale);

    if (up == *t)
        return false;
    *t = up;
    return true;
}

/* The tensor that t, [B,H,S,D] or, turned, [B,H,D,S], is cut out of, and where heads lie in it. */
static uint32_t heads_view(const struct attn *a, uint32_t t, bool turned, double *scale,
                           struct dev_heads *out)
{
    const uint32_t row = turned ? 3 : 2, column = turned ? 2 : 3;
    const int64_t *d = ir_t(a->ir, t)->dims;
    const struct dev_tensor *source;
    double factor = 1.0;
    struct peel p = {a, &factor};
    struct strided s;

    if (ir_t(a->ir, t)->rank != 4)
        return DEV_NONE;
    strided_of(a->ir, &a->u, t, 4, d, peel_act, &p, &s);
    if ((d[column] > 1 && s.stride[column] != 1) || (d[1] > 1 && s.stride[1] != d[column]))
        return DEV_NONE;
    source = ir_t(a->ir, s.source);
    if (source->dtype != SH_F32)
        return DEV_NONE;
    *scale *= factor;
    *out = (struct dev_heads){
        .at = s.at, .batch = s.stride[0], .row = d[row] > 1 ? s.stride[row] : d[1] * d[column]};
    return s.source;
}

/* The [B,S,H,D] of which t is [B,H,S,D] or, turned, [B,H,D,S]; DEV_NONE if t is something else. */
static uint32_t plain_heads_of(const struct attn *a, uint32_t t, bool turned, double *scale)
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

/* Operand i from t: the plain tensor, or what it was cut out of. false: neither. */
static bool heads_of_tensor(const struct attn *a, uint32_t t, bool turned, int i, struct match *m,
                            double *scale)
{
    double of_plain = 1.0, of_view = 1.0;
    struct dev_heads view;
    const uint32_t plain = plain_heads_of(a, t, turned, &of_plain);
    const uint32_t source = m->no_views ? DEV_NONE : heads_view(a, t, turned, &of_view, &view);
    const bool is_view =
        source != DEV_NONE && (plain == DEV_NONE || source != ir_root(a->ir, plain));

    m->in[i] = is_view ? source : plain;
    m->view[i] = is_view ? view : (struct dev_heads){0};
    *scale *= is_view ? of_view : of_plain;
    return m->in[i] != DEV_NONE;
}

static bool is_plain_product(const struct dev_op *op)
{
    return op->act == DEV_ACT_NONE && op->in[3] == DEV_NONE;
}

/* Adds a mask t that is broadcast to `full`, another shape of the scores. false: its parts do not
 * go with samples, heads, rows and keys. */
static bool add_attn_mask(const struct attn *a, struct match *m, uint32_t t,
                          const struct dev_tensor *full, struct dev_op *add)
{
    const struct dev_tensor *x = ir_t(a->ir, t), *scores = ir_t(a->ir, m->scores);
    struct mask *mask = &m->masks[m->n_masks];
    int64_t dims[SH_MAX_RANK];
    bool varies = false;

    if (m->n_masks == MAX_MASKS || x->dtype != SH_F32 || full->rank < 3 || x->rank > full->rank)
        return false;
    for (uint32_t i = 0; i < full->rank; i++)
        dims[i] = i + x->rank < full->rank ? 1 : x->dims[i + x->rank - full->rank];
    *mask = (struct mask){.add = add, .t = t, .dims = {1, 1, 1, 1}};
    for (uint32_t i = 0; i < 3; i++) {
        mask->dims[3 - i] = dims[full->rank - 1 - i];
        if (full->dims[full->rank - 1 - i] != scores->dims[3 - i])
            return false;
    }
    for (uint32_t i = 0; i + 3 < full->rank; i++) {
        if (dims[i] != full->dims[i] && varies)
            return false;
        varies |= dims[i] > 1;
        mask->dims[0] *= dims[i];
    }
    m->n_masks++;
    return true;
}

/* scores = alpha q k^T, with a mask that was fused into it as a bias or a residual. */
static bool match_scores(const struct attn *a, const struct dev_op *op, struct match *m)
{
    const uint32_t mask = op->in[2] != DEV_NONE ? op->in[2] : op->in[3];

    if (op->act != DEV_ACT_NONE || (op->in[2] != DEV_NONE && op->in[3] != DEV_NONE) ||
        (mask != DEV_NONE &&
         (m->scale != 1.0 || !add_attn_mask(a, m, mask, ir_t(a->ir, op->out[0]), NULL))))
        return false;
    m->scale *= (double)op->u.matmul.alpha;
    return heads_of_tensor(a, op->in[0], op->u.matmul.trans_a, 0, m, &m->scale) &&
           heads_of_tensor(a, op->in[1], !op->u.matmul.trans_b, 1, m, &m->scale);
}

/* x = scores, or what was added to them; `depth` additions may be between. */
static bool match_masked(const struct attn *a, uint32_t x, struct match *m, uint32_t depth)
{
    struct dev_op *add = pass__writer(a->ir, &a->u, x, DEV_OP_BINARY), *scores;
    double scale = 1.0;
    uint32_t from;

    if (a->u.reads[ir_root(a->ir, x)] != 1)
        return false;
    for (uint32_t k = 0; k < 2 && add && depth > 0; k++) {
        struct match sub = *m;

        if (add->u.binary.kind == DEV_BIN_ADD && add->act == DEV_ACT_NONE &&
            ir_elements(a->ir, add->in[k]) == ir_elements(a->ir, x) &&
            match_masked(a, add->in[k], &sub, depth - 1) &&
            add_attn_mask(a, &sub, add->in[1 - k], ir_t(a->ir, add->out[0]), add)) {
            *m = sub;
            return true;
        }
    }
    from = peel_factor(a, x, &scale);
    scores = pass__writer(a->ir, &a->u, from, DEV_OP_MATMUL);
    if (!scores || a->u.reads[ir_root(a->ir, from)] != 1)
        return false;
    m->scale = scale;
    return match_scores(a, scores, m);
}

/* The sum of two masks, in the place of the addition that the second one was part of. */
static void sum_masks(const struct attn *a, struct mask *sum, const struct mask *next)
{
    struct dev_op op = ir_op(DEV_OP_BINARY, next->add->name, 2, (uint32_t[]){sum->t, next->t});

    for (uint32_t i = 0; i < 4; i++)
        sum->dims[i] = SH_MAX(sum->dims[i], next->dims[i]);
    op.u.binary.kind = DEV_BIN_ADD;
    op.out[op.n_out++] = sum->t = ir_tensor(a->ir, op.name, SH_F32, DEV_ROLE_ACT, 4, sum->dims);
    *next->add = op;
}

static bool masks_add_up(const struct match *m)
{
    for (uint32_t k = 1; k < m->n_masks; k++)
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t n = 0; n < k; n++)
                if (m->masks[k].dims[i] != m->masks[n].dims[i] && m->masks[k].dims[i] != 1 &&
                    m->masks[n].dims[i] != 1)
                    return false;
    return true;
}

/* Names each mask by its four axes. */
static void shape_masks(const struct attn *a, struct match *m)
{
    for (uint32_t i = 0; i < m->n_masks; i++)
        m->masks[i].t = ir_alias(a->ir, m->masks[i].t, 4, m->masks[i].dims);
}

/* The shapes as the device will see them. */
static bool fits_attention(const struct attn *a, const struct dev_op *op)
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
           (!a->trainable || (shape.width % 16 == 0 && shape.width <= DEV_MAX_TRAIN_WIDTH &&
                              dev_attn_trains(&a->ir->g, op, &shape)));
}

static const uint32_t BACK[4] = {0, 2, 1, 3}; /* from [B,H,S,D] to [B,S,H,D] */

static bool is_straight(const struct match *m)
{
    return memcmp(m->back->u.perm.perm, BACK, sizeof(BACK)) == 0;
}

/* Does every element of a constant have no bit set? */
static bool is_zero_tensor(const struct ir *ir, uint32_t t)
{
    const uint8_t *data = ir_data(ir, t);

    if (!data || ir_elements(ir, t) != 1)
        return false;
    for (size_t i = 0; i < sh_dtype_bytes(ir_t(ir, t)->dtype); i++)
        if (data[i])
            return false;
    return true;
}

/* The EQUAL that computes t for its only reader. */
static const struct dev_op *only_equal(const struct attn *a, uint32_t t)
{
    const struct dev_op *op = pass__writer(a->ir, &a->u, t, DEV_OP_BINARY);

    return op && op->u.binary.kind == DEV_BIN_EQUAL && op->act == DEV_ACT_NONE &&
                   a->u.reads[ir_root(a->ir, t)] == 1
               ? op
               : NULL;
}

/* What stands for the weights: t itself, or t with zeros in place of what is not a number. */
static uint32_t skip_nan(const struct attn *a, uint32_t t, bool *zero_hidden)
{
    const struct ir *ir = a->ir;
    const uint32_t root = ir_root(ir, t), r = a->u.reader[root];
    const struct dev_op *where = r != DEV_NONE ? &ir->g.ops[r] : NULL, *not, *same;

    *zero_hidden = false;
    if (!where || a->u.reads[root] != 3 || where->kind != DEV_OP_WHERE ||
        ir_root(ir, where->in[2]) != root || !ir_same_shape(ir, where->in[2], t) ||
        !ir_same_shape(ir, where->out[0], t) || !is_zero_tensor(ir, where->in[1]))
        return t;
    not = only_equal(a, where->in[0]);
    if (!not || !is_zero_tensor(ir, not ->in[1]) || !ir_same_shape(ir, where->in[0], t))
        return t;
    same = only_equal(a, not ->in[0]);
    if (!same || ir_root(ir, same->in[0]) != root || ir_root(ir, same->in[1]) != root)
        return t;
    *zero_hidden = true;
    return where->out[0];
}

/* From the weights, softmax or what DROPOUT left of it, to the last TRANSPOSE. */
static bool match_values(const struct attn *a, const struct dev_op *soft, struct match *m)
{
    const struct ir *ir = a->ir;
    uint32_t weights = skip_nan(a, soft->out[0], &m->zero_hidden);
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
    if (!m->back || ir_t(ir, m->back->in[0])->rank != 4 ||
        !ir_same_shape(ir, m->back->in[0], m->product->out[0]))
        return false;
    return heads_of_tensor(a, m->product->in[1], m->product->u.matmul.trans_b, 2, m, &ignored) &&
           ignored == 1.0;
}

static void add_lse(const struct attn *a, struct dev_op *op)
{
    const struct dev_tensor y = *ir_t(a->ir, op->out[0]);

    op->out[op->n_out++] = ir_tensor(a->ir, ir_name(a->ir, "%s#lse", op->name), SH_F32,
                                     DEV_ROLE_ACT, 3, (int64_t[]){y.dims[0], y.dims[2], y.dims[1]});
}

/* Gives op its result: that of the last TRANSPOSE, which it replaces, or (at inference alone) a
 * tensor of its own that the TRANSPOSE, now from [B,S,H,D], reads. */
static void place_result(const struct attn *a, const struct match *m, struct dev_op *op)
{
    const struct dev_tensor x = *ir_t(a->ir, m->back->in[0]); /* [B,H,S,D] */
    const int64_t dims[4] = {x.dims[0], x.dims[2], x.dims[1], x.dims[3]};

    op->out[op->n_out++] = is_straight(m)
                               ? m->back->out[0]
                               : ir_tensor(a->ir, op->name, SH_F32, DEV_ROLE_ACT, 4, dims);
}

static void put_attention(const struct match *m, const struct dev_op *op)
{
    if (is_straight(m)) {
        *m->back = *op;
        return;
    }
    *m->product = *op;
    m->back->in[0] = op->out[0];
    for (uint32_t i = 0; i < 4; i++)
        m->back->u.perm.perm[i] = BACK[m->back->u.perm.perm[i]];
}

/* Puts an ATTENTION in the place of the last TRANSPOSE, if it fits. */
static bool replace_by_attention(const struct attn *a, const struct dev_op *soft, struct match *m)
{
    struct mask *sum = m->masks;
    struct dev_op op;

    shape_masks(a, m);
    m->in[3] = m->n_masks ? sum->t : DEV_NONE;
    op = ir_op(DEV_OP_ATTENTION, soft->name, m->n_masks ? 4 : 3, m->in);
    op.u.attn.scale = (float)m->scale;
    op.u.attn.zero_hidden = m->zero_hidden;
    op.u.attn.ratio = m->drop ? m->drop->u.dropout.ratio : 0.0f;
    memcpy(op.u.attn.view, m->view, sizeof(m->view));
    op.u.attn.k_rows = ir_t(a->ir, soft->out[0])->dims[3];
    place_result(a, m, &op);
    if (a->ir->err.rc || !fits_attention(a, &op))
        return false;
    for (uint32_t i = 1; i < m->n_masks; i++)
        sum_masks(a, sum, &m->masks[i]);
    if (m->n_masks)
        op.in[3] = sum->t;
    if (a->trainable)
        add_lse(a, &op);
    put_attention(m, &op);
    return true;
}

/* If `soft` is the SOFTMAX of one. */
static void try_attention(const struct attn *a, const struct dev_op *soft)
{
    const struct ir *ir = a->ir;
    const int64_t rank = (int64_t)ir_t(ir, soft->in[0])->rank;
    bool done = false;

    if (soft->u.axis.log || rank != 4 || (soft->u.axis.axis != 3 && soft->u.axis.axis != -1))
        return;
    for (int turn = 0; turn < 2 && !done; turn++) {
        struct match m = {.scores = soft->in[0], .no_views = turn == 1};

        done = match_values(a, soft, &m) && match_masked(a, soft->in[0], &m, MAX_MASKS) &&
               masks_add_up(&m) && replace_by_attention(a, soft, &m);
    }
}

/* ------------------------------------------------------------------ one product for q, k and v */

/* x w + b and nothing more, of floats or of integers that give floats. */
static bool is_bare(const struct ir *ir, const struct dev_op *op)
{
    if (ir_t(ir, op->out[0])->dtype != SH_F32)
        return false;
    if (op->kind == DEV_OP_QMATMUL)
        return op->act == DEV_ACT_NONE && op->in[DEV_Q_RESIDUAL] == DEV_NONE &&
               op->u.qconv.q.mid.scale == 0;
    return is_plain_product(op) && !op->u.matmul.trans_a && op->u.matmul.alpha == 1.0f;
}

/* Is operand t of the attention the whole result of one, with constants that nobody else needs and
 * nobody else reading the result? */
static struct dev_op *projection(const struct attn *a, uint32_t t)
{
    const struct ir *ir = a->ir;
    struct dev_op *op = pass__writer(ir, &a->u, t, DEV_OP_MATMUL);
    const struct dev_tensor *w, *y;

    if (!op)
        op = pass__writer(ir, &a->u, t, DEV_OP_QMATMUL);
    if (!op || !is_bare(ir, op))
        return NULL;
    w = ir_t(ir, op->in[1]);
    y = ir_t(ir, op->out[0]);
    if (w->rank != 2 || y->rank != 2 || w->dtype != (op->kind == DEV_OP_MATMUL ? SH_F32 : SH_I8) ||
        !ir_is_const(ir, op->in[1]) || ir_t(ir, ir_root(ir, op->in[1]))->role != DEV_ROLE_WEIGHT ||
        a->u.reads[ir_root(ir, op->in[1])] != 1 || a->u.reads[ir_root(ir, t)] != 1)
        return NULL;
    for (uint32_t k = 2; k < op->n_in; k++)
        if (op->in[k] != DEV_NONE &&
            (!ir_is_const(ir, op->in[k]) || ir_elements(ir, op->in[k]) != y->dims[1]))
            return NULL;
    return op;
}

/* Is the weight [columns, terms]? */
static bool is_transposing(const struct dev_op *op)
{
    return op->kind == DEV_OP_QMATMUL || op->u.matmul.trans_b;
}

static bool are_products_alike(const struct ir *ir, struct dev_op *const p[3])
{
    for (int i = 1; i < 3; i++) {
        if (p[i] == p[0] || p[i]->kind != p[0]->kind || p[i]->n_in != p[0]->n_in ||
            ir_root(ir, p[i]->in[0]) != ir_root(ir, p[0]->in[0]) ||
            !ir_same_shape(ir, p[i]->in[0], p[0]->in[0]) ||
            !ir_same_shape(ir, p[i]->in[1], p[0]->in[1]) ||
            !ir_same_shape(ir, p[i]->out[0], p[0]->out[0]) ||
            is_transposing(p[i]) != is_transposing(p[0]) ||
            (p[i]->kind == DEV_OP_QMATMUL && p[i]->u.qconv.q.x_zero != p[0]->u.qconv.q.x_zero))
            return false;
        for (uint32_t k = 2; k < p[0]->n_in; k++)
            if ((p[i]->in[k] == DEV_NONE) != (p[0]->in[k] == DEV_NONE) ||
                (p[i]->in[k] != DEV_NONE &&
                 ir_t(ir, p[i]->in[k])->dtype != ir_t(ir, p[0]->in[k])->dtype))
                return false;
    }
    return p[1] != p[2];
}

struct joined {
    const unsigned char *from[3];
    size_t rows, row_bytes;
};

static void join_rows(const void *ctx, void *to)
{
    const struct joined *j = ctx;
    unsigned char *out = to;

    for (size_t r = 0; r < j->rows; r++)
        for (size_t i = 0; i < 3; i++)
            memcpy(out + (r * 3 + i) * j->row_bytes, j->from[i] + r * j->row_bytes, j->row_bytes);
}

/* The operands `slot` of the three side by side, along their columns: the first axis of a weight
 * that is turned, else the last. */
static uint32_t join_products(struct ir *ir, struct dev_op *const p[3], uint32_t slot)
{
    const struct dev_tensor *one = ir_t(ir, p[0]->in[slot]);
    const bool is_weight = slot == 1, first = !is_weight || is_transposing(p[0]);
    struct dev_tensor like = {.dtype = one->dtype, .rank = is_weight ? 2 : 1};
    struct joined *j = ir_alloc(ir, 1, sizeof(*j));
    bool may_wait = true;
    uint32_t out;

    if (is_weight)
        memcpy(like.dims, one->dims, 2 * sizeof(like.dims[0]));
    else
        like.dims[0] = ir_elements(ir, p[0]->in[slot]);
    for (int i = 0; i < 3 && j; i++) {
        may_wait = may_wait && ir_is_given(ir, p[i]->in[slot]);
        j->from[i] = ir_settle(ir, p[i]->in[slot]);
        j->rows = first ? 1 : (size_t)like.dims[0];
        j->row_bytes = (size_t)ir_elements(ir, p[0]->in[slot]) / j->rows *
                       sh_dtype_bytes((enum sh_dtype)like.dtype);
    }
    like.dims[first ? 0 : 1] *= 3;
    out = ir_later(ir, &like, ir_name(ir, "%s.qkv.%u", p[0]->name, slot), join_rows, j);
    if (!may_wait)
        ir_settle(ir, out);
    return out;
}

static void join_projections(struct attn *a, struct dev_op *op)
{
    struct ir *ir = a->ir;
    struct dev_op *p[3], *first;
    const struct dev_tensor x = *ir_t(ir, op->in[0]); /* [B,S,H,D], unless it is a view */
    const int64_t rows = x.dims[1], line = x.dims[2] * x.dims[3];
    uint32_t in[DEV_MAX_IN], y;

    for (int i = 0; i < 3; i++) {
        p[i] = op->u.attn.view[i].row ? NULL : projection(a, op->in[i]);
        if (!p[i])
            return;
    }
    if (!are_products_alike(ir, p))
        return;
    first = SH_MIN(p[0], SH_MIN(p[1], p[2])); /* the rows that all read are there by then */
    for (uint32_t k = 1; k < first->n_in; k++)
        in[k] = first->in[k] == DEV_NONE ? DEV_NONE : join_products(ir, p, k);
    memcpy(first->in + 1, in + 1, (first->n_in - 1) * sizeof(in[0]));
    y = ir_tensor(ir, first->name, SH_F32, DEV_ROLE_ACT, 2,
                  (int64_t[]){ir_t(ir, p[0]->out[0])->dims[0], 3 * line});
    first->out[0] = y;
    for (uint32_t i = 0; i < 3; i++) {
        op->in[i] = y;
        op->u.attn.view[i] = (struct dev_heads){i * line, rows * 3 * line, 3 * line};
        if (p[i] != first)
            ir_kill(p[i]);
    }
}

static void mark_trainable(struct attn *a)
{
    struct ir *ir = a->ir;

    a->trainable = ir_alloc(ir, ir->g.n_tensors, sizeof(*a->trainable));
    if (!a->trainable)
        return;
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
}

void pass_attn(struct ir *ir, bool training)
{
    struct attn a = {.ir = ir};

    ir_uses_init(&a.u, ir);
    if (training)
        mark_trainable(&a);
    for (uint32_t i = 0; i < ir->g.n_ops && ir->err.rc == SH_OK; i++)
        if (ir->g.ops[i].kind == DEV_OP_SOFTMAX)
            try_attention(&a, &ir->g.ops[i]);
    ir_drop_unused(ir);
    ir_uses_fini(&a.u);
    free(a.trainable);
    if (training) /* parameters are tensors of their own */
        return;
    ir_uses_init(&a.u, ir);
    for (uint32_t i = 0; i < ir->g.n_ops && ir->err.rc == SH_OK; i++)
        if (ir->g.ops[i].kind == DEV_OP_ATTENTION)
            join_projections(&a, &ir->g.ops[i]);
    ir_uses_fini(&a.u);
    ir_sweep(ir);
}
