/* cpu_conv.c - convolution, forward and backward, grouped and dilated, with fused epilogue.
 *
 * Every operand is offered to oneDNN as "any": it picks its blocked formats. The residual is fused
 * as a binary post-op where the fast kernel takes one; otherwise it is copied to the result first
 * and the kernel adds to it.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/cpu_act.h"
#include "runtime/device/cpu/cpu_wino.h"

struct shape {
    int n_src, n_wei; /* dimensions */
    dnnl_dims_t src, wei, dst, bias;
    dnnl_dims_t stride, dilate, pad_l, pad_r;
};

/* x, w, y: which tensors of the graph play these roles. */
static int read_conv_shape(struct cpu_build *b, uint32_t x, uint32_t w, uint32_t y, struct shape *s)
{
    const struct dev_conv *c = &b->op->u.conv;
    const struct dev_tensor *tx = cpu__t(b, x), *tw = cpu__t(b, w), *ty = cpu__t(b, y);
    int64_t g = c->groups;

    *s = (struct shape){.n_src = 4, .n_wei = g > 1 ? 5 : 4};
    if (tx->rank != 4 || tw->rank != 4 || ty->rank != 4 || g < 1)
        return cpu__refuse(b, SH_E_UNSUPPORTED,
                           "only convolutions of two dimensions are supported");
    if (tx->dims[1] != tw->dims[1] * g || ty->dims[1] != tw->dims[0] || tw->dims[0] % g != 0)
        return cpu__refuse(b, SH_E_BUG, "channels of input, weight and output do not fit");
    for (int i = 0; i < 4; i++) {
        s->src[i] = tx->dims[i];
        s->dst[i] = ty->dims[i];
    }
    s->bias[0] = tw->dims[0];
    if (g > 1) {
        s->wei[0] = g;
        s->wei[1] = tw->dims[0] / g;
        s->wei[2] = tw->dims[1];
    } else {
        s->wei[0] = tw->dims[0];
        s->wei[1] = tw->dims[1];
    }
    for (int i = 0; i < 2; i++) {
        int64_t k = tw->dims[2 + i], reach = (k - 1) * c->dilation[i] + 1;

        s->wei[s->n_wei - 2 + i] = k;
        s->stride[i] = c->stride[i];
        s->dilate[i] = c->dilation[i] - 1;
        s->pad_l[i] = c->pad_begin[i];
        /* What the window really reaches: with a stride the given padding may be partly unused. */
        s->pad_r[i] = (ty->dims[2 + i] - 1) * c->stride[i] + reach - tx->dims[2 + i] - s->pad_l[i];
    }
    return b->err->rc;
}

struct descs {
    dnnl_memory_desc_t src, wei, bias, dst;
};

static int any_descs(struct cpu_build *b, const struct shape *s, struct descs *d)
{
    dnnl_status_t rc;

    rc = dnnl_memory_desc_init_by_tag(&d->src, s->n_src, s->src, dnnl_f32, dnnl_format_tag_any);
    if (rc == dnnl_success)
        rc = dnnl_memory_desc_init_by_tag(&d->wei, s->n_wei, s->wei, dnnl_f32, dnnl_format_tag_any);
    if (rc == dnnl_success)
        rc = dnnl_memory_desc_init_by_tag(&d->dst, s->n_src, s->dst, dnnl_f32, dnnl_format_tag_any);
    if (rc == dnnl_success)
        rc = dnnl_memory_desc_init_by_tag(&d->bias, 1, s->bias, dnnl_f32, dnnl_a);
    return cpu__status(b, rc, "convolution");
}

/* po may be NULL. */
static dnnl_status_t conv_fwd_pd(struct cpu_build *b, const struct shape *s, const struct descs *d,
                                 bool has_bias, const_dnnl_post_ops_t po,
                                 dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t rc = dnnl_dilated_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, &d->src, &d->wei,
        has_bias ? &d->bias : NULL, &d->dst, s->stride, s->dilate, s->pad_l, s->pad_r);

    *out = NULL;
    return rc == dnnl_success ? cpu__pd(b, &desc, po, NULL, out) : rc;
}

/* ------------------------------------------------------------------ forward */

enum residual { RES_NONE, RES_BINARY, RES_SUM };

struct fwd {
    struct shape s;
    struct descs d;
    uint32_t bias, residual; /* tensors or DEV_NONE */
    enum residual how;
    bool act_fused;
    dnnl_primitive_desc_t pd; /* OWNED until the step is made */
};

static dnnl_status_t try_fwd(struct cpu_build *b, struct fwd *f, enum residual how,
                             dnnl_primitive_desc_t *out)
{
    dnnl_post_ops_t po = NULL;
    dnnl_status_t rc = dnnl_post_ops_create(&po);

    *out = NULL;
    if (rc == dnnl_success && how == RES_BINARY)
        rc = dnnl_post_ops_append_binary(po, dnnl_binary_add, &f->d.dst);
    if (rc == dnnl_success && how == RES_SUM)
        rc = dnnl_post_ops_append_sum(po, 1.0f);
    if (rc == dnnl_success)
        f->act_fused = cpu__act_post(po, b->op->act, b->op->act_p0, b->op->act_p1);
    if (rc == dnnl_success)
        rc = conv_fwd_pd(b, &f->s, &f->d, f->bias != DEV_NONE, po, out);
    dnnl_post_ops_destroy(po);
    return rc;
}

static void fix_descs(struct fwd *f, const_dnnl_primitive_desc_t pd)
{
    f->d.src = *cpu__pd_md(pd, DNNL_ARG_SRC);
    f->d.wei = *cpu__pd_md(pd, DNNL_ARG_WEIGHTS);
    f->d.dst = *cpu__pd_md(pd, DNNL_ARG_DST);
}

/* Weights that another batch size has laid out already: prefer a kernel that reads them so. */
static void adopt_weights(struct cpu_build *b, struct fwd *f, uint32_t w)
{
    const struct cpu_tensor *t = cpu__stored(b, w);
    struct descs before = f->d;
    dnnl_primitive_desc_t pd = NULL;

    if (!t->is_fixed || !t->is_blocked || t->lay->md.ndims != f->s.n_wei ||
        memcmp(t->lay->md.dims, f->s.wei, (size_t)f->s.n_wei * sizeof(f->s.wei[0])) != 0)
        return;
    f->d.wei = t->lay->md;
    if (try_fwd(b, f, RES_NONE, &pd) != dnnl_success || cpu__pd_is_slow(pd))
        f->d = before;
    if (pd)
        dnnl_primitive_desc_destroy(pd);
}

static int choose_fwd(struct cpu_build *b, struct fwd *f)
{
    dnnl_status_t rc = try_fwd(b, f, RES_NONE, &f->pd);

    f->how = RES_NONE;
    if (rc != dnnl_success || f->residual == DEV_NONE)
        return cpu__status(b, rc, "convolution");
    fix_descs(f, f->pd);
    dnnl_primitive_desc_destroy(f->pd);
    f->how = RES_BINARY;
    rc = try_fwd(b, f, RES_BINARY, &f->pd);
    if (rc == dnnl_success && !cpu__pd_is_slow(f->pd))
        return b->err->rc;
    if (f->pd)
        dnnl_primitive_desc_destroy(f->pd);
    f->how = RES_SUM;
    return cpu__status(b, try_fwd(b, f, RES_SUM, &f->pd), "convolution with residual");
}

static void conv_copy_fn(const struct cpu_call *c)
{
    const size_t *bytes = c->aux;

    memcpy(c->p[1], c->p[0], *bytes);
}

static int copy_step(struct cpu_build *b, struct cpu_ref from, struct cpu_ref to, size_t bytes)
{
    const struct cpu_ref refs[] = {from, to};

    return cpu__step_fn(b, conv_copy_fn, refs, 2, &bytes, sizeof(bytes));
}

/* After f->pd is chosen: operands, then the step. Consumes f->pd. */
static int emit_fwd(struct cpu_build *b, struct fwd *f)
{
    const struct dev_op *op = b->op;
    struct cpu_ref x, w, bias = {0}, res = {0}, y;
    struct cpu_bind binds[5];
    uint32_t n = 0;

    fix_descs(f, f->pd);
    x = cpu__in(b, op->in[0], NULL, &f->d.src);
    w = cpu__in(b, op->in[1], NULL, &f->d.wei);
    if (f->bias != DEV_NONE)
        bias = cpu__in_plain(b, f->bias);
    if (f->residual != DEV_NONE)
        res = cpu__in(b, f->residual, NULL, &f->d.dst);
    y = cpu__out(b, op->out[0], &f->d.dst, true);
    if (f->how == RES_SUM)
        copy_step(b, res, y, dnnl_memory_desc_get_size(&f->d.dst));
    binds[n++] = (struct cpu_bind){DNNL_ARG_SRC, x, NULL};
    binds[n++] = (struct cpu_bind){DNNL_ARG_WEIGHTS, w, NULL};
    binds[n++] = (struct cpu_bind){DNNL_ARG_DST, y, NULL};
    if (f->bias != DEV_NONE)
        binds[n++] = (struct cpu_bind){DNNL_ARG_BIAS, bias, NULL};
    if (f->how == RES_BINARY)
        binds[n++] =
            (struct cpu_bind){DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, res, &f->d.dst};
    cpu__step_prim(b, f->pd, binds, n);
    return f->act_fused ? b->err->rc : cpu__act_in_place(b, y, &f->d.dst);
}

int cpu__conv(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct fwd f = {.bias = cpu__opt_in(op, 2), .residual = cpu__opt_in(op, 3)};
    const uint32_t all[] = {op->in[0], op->in[1], f.bias, f.residual, op->out[0]};

    cpu__need_f32(b, all, SH_ARRAY_LEN(all));
    if (f.residual != DEV_NONE)
        cpu__same_shape(b, f.residual, op->out[0]);
    if (f.bias != DEV_NONE &&
        dev_tensor_elements(cpu__t(b, f.bias)) != cpu__t(b, op->out[0])->dims[1])
        cpu__refuse(b, SH_E_BUG, "the bias does not have one value per channel");
    if (read_conv_shape(b, op->in[0], op->in[1], op->out[0], &f.s))
        return b->err->rc;
    if (cpu__wino_has(b))
        return cpu__wino(b);
    if (any_descs(b, &f.s, &f.d))
        return b->err->rc;
    adopt_weights(b, &f, op->in[1]);
    return choose_fwd(b, &f) ? b->err->rc : emit_fwd(b, &f);
}

/* ------------------------------------------------------------------ backward */

int cpu__conv_bwd_data(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t d_y = op->in[0], w = op->in[1], d_x = op->out[0], all[] = {d_y, w, d_x};
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    dnnl_convolution_desc_t desc;
    struct shape s;
    struct descs d;
    dnnl_status_t st;

    cpu__need_f32(b, all, SH_ARRAY_LEN(all));
    if (read_conv_shape(b, d_x, w, d_y, &s) || any_descs(b, &s, &d))
        return b->err->rc;
    st = conv_fwd_pd(b, &s, &d, false, NULL, &hint);
    if (st == dnnl_success)
        st = dnnl_dilated_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct,
                                                              &d.src, &d.wei, &d.dst, s.stride,
                                                              s.dilate, s.pad_l, s.pad_r);
    if (st == dnnl_success)
        st = cpu__pd(b, &desc, NULL, hint, &pd);
    if (cpu__status(b, st, "convolution's data gradient") == SH_OK) {
        const struct cpu_ref rdy = cpu__in(b, d_y, NULL, cpu__pd_md(pd, DNNL_ARG_DIFF_DST));
        const struct cpu_ref rw = cpu__in(b, w, NULL, cpu__pd_md(pd, DNNL_ARG_WEIGHTS));
        const struct cpu_ref rdx = cpu__out(b, d_x, cpu__pd_md(pd, DNNL_ARG_DIFF_SRC), true);
        const struct cpu_bind binds[] = {{DNNL_ARG_DIFF_DST, rdy, NULL},
                                         {DNNL_ARG_WEIGHTS, rw, NULL},
                                         {DNNL_ARG_DIFF_SRC, rdx, NULL}};

        cpu__step_prim(b, pd, binds, SH_ARRAY_LEN(binds));
    }
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return b->err->rc;
}

/* The samples that the operation reads of x or d_y, in layout `want`: where they lie if they are
 * stored so, else converted, and nothing but them. */
static struct cpu_ref in_samples(struct cpu_build *b, uint32_t tensor,
                                 const dnnl_memory_desc_t *want)
{
    const struct dev_tensor *whole = cpu__t(b, tensor);
    const struct cpu_tensor *t = &b->plan->tensors[tensor];
    const dnnl_dims_t first = {b->op->u.conv.first};
    struct cpu_ref from = {.tensor = tensor}, out;
    dnnl_memory_desc_t have, plain;

    if (!b->op->u.conv.count)
        return cpu__in(b, tensor, NULL, want);
    if (!t->is_fixed || t->lay->md.ndims != want->ndims ||
        dnnl_memory_desc_init_submemory(&have, &t->lay->md, want->dims, first) != dnnl_success) {
        /* not laid out yet, or in blocks of several samples */
        from = cpu__in_plain(b, tensor);
        if (cpu__md_plain(whole->rank, whole->dims, dnnl_f32, &plain) ||
            cpu__status(b, dnnl_memory_desc_init_submemory(&have, &plain, want->dims, first),
                        "range")) {
            cpu__refuse(b, SH_E_BUG, "no row-major form of tensor \"%s\"", whole->name);
            return from;
        }
    }
    from.off += (size_t)have.offset0 * sizeof(float);
    have.offset0 = 0;
    if (dnnl_memory_desc_equal(&have, want))
        return from;
    out = cpu__scratch(b, dnnl_memory_desc_get_size(want));
    cpu__step_reorder(b, from, &have, out, want);
    return out;
}

static int emit_bwd_weight(struct cpu_build *b, dnnl_primitive_desc_t pd)
{
    const struct dev_op *op = b->op;
    const uint32_t d_bias = cpu__opt_out(op, 1);
    const struct cpu_ref x = in_samples(b, op->in[0], cpu__pd_md(pd, DNNL_ARG_SRC));
    const struct cpu_ref dy = in_samples(b, op->in[1], cpu__pd_md(pd, DNNL_ARG_DIFF_DST));
    /* Plain: the optimizer reads it beside the parameter. */
    const struct cpu_ref dw = cpu__out(b, op->out[0], cpu__pd_md(pd, DNNL_ARG_DIFF_WEIGHTS), false);
    struct cpu_bind binds[4];
    uint32_t n = 0;

    binds[n++] = (struct cpu_bind){DNNL_ARG_SRC, x, NULL};
    binds[n++] = (struct cpu_bind){DNNL_ARG_DIFF_DST, dy, NULL};
    binds[n++] = (struct cpu_bind){DNNL_ARG_DIFF_WEIGHTS, dw, NULL};
    if (d_bias != DEV_NONE)
        binds[n++] = (struct cpu_bind){DNNL_ARG_DIFF_BIAS, cpu__out_plain(b, d_bias), NULL};
    return cpu__step_prim(b, pd, binds, n);
}

int cpu__conv_bwd_weight(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t d_bias = cpu__opt_out(op, 1);
    const uint32_t all[] = {op->in[0], op->in[1], op->out[0], d_bias};
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    dnnl_convolution_desc_t desc;
    struct shape s;
    struct descs d;
    dnnl_status_t st;

    cpu__need_f32(b, all, SH_ARRAY_LEN(all));
    read_conv_shape(b, op->in[0], op->out[0], op->in[1], &s);
    if (op->u.conv.count)
        s.src[0] = s.dst[0] = op->u.conv.count;
    if (any_descs(b, &s, &d))
        return b->err->rc;
    st = conv_fwd_pd(b, &s, &d, d_bias != DEV_NONE, NULL, &hint);
    if (st == dnnl_success)
        st = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, dnnl_convolution_direct, &d.src, &d.wei, d_bias != DEV_NONE ? &d.bias : NULL,
            &d.dst, s.stride, s.dilate, s.pad_l, s.pad_r);
    if (st == dnnl_success)
        st = cpu__pd(b, &desc, NULL, hint, &pd);
    if (cpu__status(b, st, "convolution's weight gradient") == SH_OK)
        emit_bwd_weight(b, pd);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return b->err->rc;
}
