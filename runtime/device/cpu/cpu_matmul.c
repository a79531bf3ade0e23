/* cpu_matmul.c - matrix product over the last two axes, leading axes broadcast.
 *
 * A constant right operand is laid out as oneDNN likes it, once, when the image is built; all batch
 * sizes read that one form. Leading axes of the left operand fold into its rows where the right
 * operand has none, so that a fully connected layer is one product and not a batch of them; unless
 * a summand is broadcast along some of them.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/cpu_act.h"

#include <stdlib.h>

struct mm {
    int nd;                     /* dimensions of all descriptors */
    dnnl_memory_desc_t a, b, y; /* as the tensors lie, in the operation's dimensions */
    dnnl_memory_desc_t any_b;
    uint32_t bias, residual;
    bool bias_is_row; /* one value per column and no scaling before it */
    dnnl_memory_desc_t bias_md, res_md;
    bool act_fused;
};

/* Row-major strides of `t` seen with nd dimensions, its last two axes swapped if trans; leading
 * axes that t lacks have size 1. */
static int matrix_view(struct cpu_build *b, const struct dev_tensor *t, int nd, bool trans,
                       dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims, strides;
    int64_t s = 1;

    for (int i = nd - 1, k = (int)t->rank - 1; i >= 0; i--, k--) {
        dims[i] = k >= 0 ? t->dims[k] : 1;
        strides[i] = s;
        s *= dims[i];
    }
    if (trans) {
        int64_t d = dims[nd - 1], e = strides[nd - 1];

        dims[nd - 1] = dims[nd - 2];
        strides[nd - 1] = strides[nd - 2];
        dims[nd - 2] = d;
        strides[nd - 2] = e;
    }
    return cpu__status(b, dnnl_memory_desc_init_by_strides(out, nd, dims, dnnl_f32, strides),
                       "matrix product");
}

/* Is every axis of t before the last two of size 1? */
static bool is_matrix(const struct dev_tensor *t)
{
    for (uint32_t i = 0; i + 2 < t->rank; i++)
        if (t->dims[i] != 1)
            return false;
    return true;
}

/* One value per column, [1, .., 1, N], or one for all. */
static bool is_row_matrix(const struct dev_tensor *t)
{
    return dev_tensor_elements(t) == (t->rank ? t->dims[t->rank - 1] : 1);
}

static bool folds_with(const struct cpu_build *b, uint32_t summand, const struct dev_tensor *y)
{
    return summand == DEV_NONE || is_row_matrix(cpu__t(b, summand)) ||
           dev_same_dims(cpu__t(b, summand), y);
}

/* [.., M, K] as [.. * M, K]. */
static void fold_leading(struct dev_tensor *t)
{
    int64_t rows = 1;

    for (uint32_t i = 0; i + 1 < t->rank; i++)
        rows *= t->dims[i];
    t->dims[1] = t->dims[t->rank - 1];
    t->dims[0] = rows;
    t->rank = 2;
}

static int check_dims(struct cpu_build *b, const struct mm *m)
{
    bool fits = m->a.dims[m->nd - 1] == m->b.dims[m->nd - 2] &&
                m->a.dims[m->nd - 2] == m->y.dims[m->nd - 2] &&
                m->b.dims[m->nd - 1] == m->y.dims[m->nd - 1];

    for (int i = 0; i < m->nd - 2 && fits; i++)
        fits = (m->a.dims[i] == 1 || m->a.dims[i] == m->y.dims[i]) &&
               (m->b.dims[i] == 1 || m->b.dims[i] == m->y.dims[i]);
    return fits ? b->err->rc : cpu__refuse(b, SH_E_BUG, "the shapes of the matrices do not fit");
}

/* A further summand, broadcast to y: its descriptor in y's dimensions. */
static int summand(struct cpu_build *b, uint32_t tensor, const struct mm *m, bool folded,
                   dnnl_memory_desc_t *out)
{
    struct dev_tensor t = *cpu__t(b, tensor);

    if (folded && t.rank > 1)
        fold_leading(&t);
    if (t.rank > (uint32_t)m->nd)
        return cpu__refuse(b, SH_E_BUG, "\"%s\" does not broadcast to the result", t.name);
    if (matrix_view(b, &t, m->nd, false, out))
        return b->err->rc;
    for (int i = 0; i < m->nd; i++)
        if (out->dims[i] != 1 && out->dims[i] != m->y.dims[i])
            cpu__refuse(b, SH_E_BUG, "\"%s\" does not broadcast to the result", t.name);
    return b->err->rc;
}

static int read_mm_shapes(struct cpu_build *b, struct mm *m)
{
    const struct dev_op *op = b->op;
    struct dev_tensor a = *cpu__t(b, op->in[0]), w = *cpu__t(b, op->in[1]);
    struct dev_tensor y = *cpu__t(b, op->out[0]);
    bool folds = is_matrix(&w) && !op->u.matmul.trans_a && a.rank == y.rank &&
                 folds_with(b, m->bias, &y) && folds_with(b, m->residual, &y);

    if (a.rank < 2 || w.rank < 2 || y.rank < 2)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "both operands need at least two axes");
    if (folds) {
        fold_leading(&a);
        fold_leading(&y);
        w.dims[0] = w.dims[w.rank - 2];
        w.dims[1] = w.dims[w.rank - 1];
        w.rank = 2;
    }
    m->nd = (int)SH_MAX(SH_MAX(a.rank, w.rank), y.rank);
    matrix_view(b, &a, m->nd, op->u.matmul.trans_a, &m->a);
    matrix_view(b, &w, m->nd, op->u.matmul.trans_b, &m->b);
    if (matrix_view(b, &y, m->nd, false, &m->y) || check_dims(b, m))
        return b->err->rc;
    if (m->bias != DEV_NONE)
        summand(b, m->bias, m, folds, &m->bias_md);
    if (m->residual != DEV_NONE)
        summand(b, m->residual, m, folds, &m->res_md);
    m->bias_is_row = m->bias != DEV_NONE && op->u.matmul.alpha == 1 &&
                     dev_tensor_elements(cpu__t(b, m->bias)) == m->y.dims[m->nd - 1] &&
                     m->bias_md.dims[m->nd - 1] == m->y.dims[m->nd - 1];
    return cpu__status(
        b, dnnl_memory_desc_init_by_tag(&m->any_b, m->nd, m->b.dims, dnnl_f32, dnnl_format_tag_any),
        "matrix product");
}

static dnnl_status_t try_pd(struct cpu_build *b, struct mm *m, const dnnl_memory_desc_t *wei,
                            dnnl_primitive_desc_t *out)
{
    const struct dev_op *op = b->op;
    dnnl_matmul_desc_t desc;
    dnnl_post_ops_t po = NULL;
    dnnl_status_t s = dnnl_post_ops_create(&po);

    *out = NULL;
    if (s == dnnl_success && op->u.matmul.alpha != 1)
        s = dnnl_post_ops_append_eltwise(po, 1.0f, dnnl_eltwise_linear, op->u.matmul.alpha, 0);
    if (s == dnnl_success && m->bias != DEV_NONE && !m->bias_is_row)
        s = dnnl_post_ops_append_binary(po, dnnl_binary_add, &m->bias_md);
    if (s == dnnl_success && m->residual != DEV_NONE)
        s = dnnl_post_ops_append_binary(po, dnnl_binary_add, &m->res_md);
    if (s == dnnl_success)
        m->act_fused = op->act != DEV_ACT_GELU_TANH && /* with it oneDNN has only its reference */
                       cpu__act_post(po, op->act, op->act_p0, op->act_p1);
    if (s == dnnl_success)
        s = dnnl_matmul_desc_init(&desc, &m->a, wei, m->bias_is_row ? &m->bias_md : NULL, &m->y);
    if (s == dnnl_success)
        s = cpu__pd(b, &desc, po, NULL, out);
    dnnl_post_ops_destroy(po);
    return s;
}

/* A weight is offered as "any" the first time, and as it lies from then on. */
static int choose_pd(struct cpu_build *b, struct mm *m, dnnl_primitive_desc_t *out)
{
    const struct cpu_tensor *t = cpu__stored(b, b->op->in[1]);
    bool free_weight = !t->is_fixed && t->space == CPU_IMAGE;
    bool laid_out = t->is_fixed && t->is_blocked && t->lay->md.ndims == m->nd &&
                    dnnl_memory_desc_equal(&t->lay->plain, &m->b);
    dnnl_status_t s = dnnl_unimplemented;

    if (laid_out)
        s = try_pd(b, m, &t->lay->md, out);
    else if (free_weight)
        s = try_pd(b, m, &m->any_b, out);
    if (s == dnnl_success && !cpu__pd_is_slow(*out))
        return SH_OK;
    if (*out)
        dnnl_primitive_desc_destroy(*out);
    return cpu__status(b, try_pd(b, m, &m->b, out), "matrix product");
}

static int emit_matmul(struct cpu_build *b, struct mm *m, dnnl_primitive_desc_t pd)
{
    const struct dev_op *op = b->op;
    int post = op->u.matmul.alpha != 1;
    struct cpu_bind binds[5];
    struct cpu_ref a, w, bias = {0}, res = {0}, y;
    uint32_t n = 0;

    a = cpu__in_plain(b, op->in[0]);
    w = cpu__in(b, op->in[1], &m->b, cpu__pd_md(pd, DNNL_ARG_WEIGHTS));
    if (m->bias != DEV_NONE)
        bias = cpu__in_plain(b, m->bias);
    if (m->residual != DEV_NONE)
        res = cpu__in_plain(b, m->residual);
    y = cpu__out_plain(b, op->out[0]);
    binds[n++] = (struct cpu_bind){DNNL_ARG_SRC, a, &m->a};
    binds[n++] = (struct cpu_bind){DNNL_ARG_WEIGHTS, w, NULL};
    binds[n++] = (struct cpu_bind){DNNL_ARG_DST, y, &m->y};
    if (m->bias_is_row)
        binds[n++] = (struct cpu_bind){DNNL_ARG_BIAS, bias, &m->bias_md};
    else if (m->bias != DEV_NONE)
        binds[n++] = (struct cpu_bind){DNNL_ARG_ATTR_MULTIPLE_POST_OP(post++) | DNNL_ARG_SRC_1,
                                       bias, &m->bias_md};
    if (m->residual != DEV_NONE)
        binds[n++] = (struct cpu_bind){DNNL_ARG_ATTR_MULTIPLE_POST_OP(post) | DNNL_ARG_SRC_1, res,
                                       &m->res_md};
    cpu__step_prim(b, pd, binds, n);
    return m->act_fused ? b->err->rc : cpu__act_in_place(b, y, &m->y);
}

int cpu__matmul(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct mm m = {.bias = cpu__opt_in(op, 2), .residual = cpu__opt_in(op, 3)};
    const uint32_t all[] = {op->in[0], op->in[1], m.bias, m.residual, op->out[0]};
    dnnl_primitive_desc_t pd = NULL;

    cpu__need_f32(b, all, SH_ARRAY_LEN(all));
    return read_mm_shapes(b, &m) || choose_pd(b, &m, &pd) ? b->err->rc : emit_matmul(b, &m, pd);
}
