/* cpu_pool.c - maximum and average pooling, forward and backward, in the layout of their input.
 *
 * The `indices` of POOL_MAX are oneDNN's workspace: opaque, sized here. The backward operation
 * finds the forward one through that tensor, because oneDNN wants its descriptor as a hint.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <stdlib.h>

struct window {
    dnnl_dims_t src, dst, kernel, stride, dilate, pad_l, pad_r;
    bool overhangs; /* the last window reaches behind the given padding (ceil mode) */
};

static int read_pool_window(struct cpu_build *b, uint32_t x, uint32_t y, struct window *w)
{
    const struct dev_conv *c = &b->op->u.pool;
    const struct dev_tensor *tx = cpu__t(b, x), *ty = cpu__t(b, y);

    *w = (struct window){.overhangs = false};
    if (tx->rank != 4 || ty->rank != 4)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "only pooling over two dimensions is supported");
    if (tx->dims[0] != ty->dims[0] || tx->dims[1] != ty->dims[1])
        return cpu__refuse(b, SH_E_BUG, "batch or channels of input and output differ");
    for (int i = 0; i < 4; i++) {
        w->src[i] = tx->dims[i];
        w->dst[i] = ty->dims[i];
    }
    for (int i = 0; i < 2; i++) {
        int64_t reach = (c->kernel[i] - 1) * c->dilation[i] + 1;

        w->kernel[i] = c->kernel[i];
        w->stride[i] = c->stride[i];
        w->dilate[i] = c->dilation[i] - 1;
        w->pad_l[i] = c->pad_begin[i];
        w->pad_r[i] =
            (ty->dims[2 + i] - 1) * c->stride[i] + reach - tx->dims[2 + i] - c->pad_begin[i];
        w->overhangs = w->overhangs || w->pad_r[i] > c->pad_end[i];
    }
    return b->err->rc;
}

static dnnl_alg_kind_t pool_alg(const struct dev_op *op)
{
    if (op->kind == DEV_OP_POOL_MAX || op->kind == DEV_OP_POOL_MAX_BWD)
        return dnnl_pooling_max;
    return op->u.pool.count_include_pad ? dnnl_pooling_avg_include_padding
                                        : dnnl_pooling_avg_exclude_padding;
}

static dnnl_status_t pool_fwd_pd(struct cpu_build *b, const struct window *w,
                                 const dnnl_memory_desc_t *src, bool training,
                                 dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t dst;
    dnnl_pooling_v2_desc_t desc;
    dnnl_status_t s;

    *out = NULL;
    s = dnnl_memory_desc_init_by_tag(&dst, 4, w->dst, src->data_type, dnnl_format_tag_any);
    if (s == dnnl_success)
        s = dnnl_pooling_v2_forward_desc_init(
            &desc, training ? dnnl_forward_training : dnnl_forward_inference, pool_alg(b->op), src,
            &dst, w->stride, w->kernel, w->dilate, w->pad_l, w->pad_r);
    return s == dnnl_success ? cpu__pd(b, &desc, NULL, NULL, out) : s;
}

/* ------------------------------------------------------------------ averages that overhang */

struct avg_ctx {
    const struct dev_conv *c;
    const struct dev_tensor *x, *y;
    const float *from;
    float *to;
    bool backward; /* from = d_y, to = d_x */
};

/* The window of output coordinate o along axis i, cut to the input: from lo to below hi in steps of
 * the dilation. *n: elements that count, of the padding too. */
static void cut_window(const struct avg_ctx *a, int i, int64_t o, int64_t *lo, int64_t *hi,
                       int64_t *n)
{
    const int64_t step = a->c->dilation[i], size = a->x->dims[2 + i];
    int64_t begin = o * a->c->stride[i] - a->c->pad_begin[i];
    int64_t end = SH_MIN(begin + (a->c->kernel[i] - 1) * step + 1, size + a->c->pad_end[i]);

    *n = (end - begin + step - 1) / step;
    *lo = begin < 0 ? begin + (-begin + step - 1) / step * step : begin;
    *hi = SH_MIN(end, size);
}

/* One plane (image and channel) after the other. */
static void avg_planes(void *ctx, int64_t from, int64_t to)
{
    const struct avg_ctx *a = ctx;
    const int64_t h = a->x->dims[2], w = a->x->dims[3], oh = a->y->dims[2], ow = a->y->dims[3];

    for (int64_t p = from; p < to; p++)
        for (int64_t o = 0; o < oh * ow; o++) {
            int64_t y0, y1, ny, x0, x1, nx;
            float sum = 0, share;

            cut_window(a, 0, o / ow, &y0, &y1, &ny);
            cut_window(a, 1, o % ow, &x0, &x1, &nx);
            share = a->backward ? a->from[p * oh * ow + o] / (float)(ny * nx) : 0;
            for (int64_t i = y0; i < y1; i += a->c->dilation[0])
                for (int64_t k = x0; k < x1; k += a->c->dilation[1])
                    if (a->backward)
                        a->to[(p * h + i) * w + k] += share;
                    else
                        sum += a->from[(p * h + i) * w + k];
            if (!a->backward)
                a->to[p * oh * ow + o] = sum / (float)(ny * nx);
        }
}

/* p: from to */
static void avg_fn(const struct cpu_call *c)
{
    const struct dev_tensor *t = c->plan->base.g->tensors;
    const bool backward = c->op->kind == DEV_OP_POOL_AVG_BWD;
    struct avg_ctx a = {.c = &c->op->u.pool,
                        .x = &t[backward ? c->op->out[0] : c->op->in[0]],
                        .y = &t[backward ? c->op->in[0] : c->op->out[0]],
                        .from = c->p[0],
                        .to = c->p[1],
                        .backward = backward};

    if (backward)
        memset(a.to, 0, (size_t)dev_tensor_elements(a.x) * sizeof(float));
    cpu__parallel(c->threads, a.x->dims[0] * a.x->dims[1], 1, avg_planes, &a);
}

static int own_avg(struct cpu_build *b)
{
    return cpu__step_plain(b, avg_fn, NULL, 0);
}

/* ------------------------------------------------------------------ forward */

/* The workspace takes the place of the tensor `indices`, whatever shape that was given. */
static void store_workspace(struct cpu_build *b, uint32_t indices, const dnnl_memory_desc_t *md)
{
    struct cpu_tensor *t = &b->plan->tensors[indices];

    t->lay->md = t->lay->plain = *md;
    t->has_md = t->is_fixed = true;
    t->is_blocked = false;
}

int cpu__pool(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t indices = op->kind == DEV_OP_POOL_MAX ? cpu__opt_out(op, 1) : DEV_NONE;
    const uint32_t all[] = {op->in[0], op->out[0]};
    const dnnl_memory_desc_t *src = &b->plan->tensors[op->in[0]].lay->md;
    dnnl_primitive_desc_t pd = NULL;
    struct cpu_bind binds[3];
    struct cpu_ref x, y;
    struct window w;
    uint32_t n = 0;
    const bool is8 = op->kind == DEV_OP_POOL_MAX && indices == DEV_NONE &&
                     dev_is8(cpu__t(b, op->in[0])->dtype) &&
                     cpu__t(b, op->in[0])->dtype == cpu__t(b, op->out[0])->dtype;

    if (!is8)
        cpu__need_f32(b, all, 2);
    if (read_pool_window(b, op->in[0], op->out[0], &w))
        return b->err->rc;
    if (op->kind == DEV_OP_POOL_AVG && w.overhangs && op->u.pool.count_include_pad)
        return own_avg(b);
    if (cpu__status(b, pool_fwd_pd(b, &w, src, indices != DEV_NONE, &pd), "pooling"))
        return b->err->rc;
    x = cpu__in(b, op->in[0], NULL, src);
    y = cpu__out(b, op->out[0], cpu__pd_md(pd, DNNL_ARG_DST), true);
    binds[n++] = (struct cpu_bind){DNNL_ARG_SRC, x, NULL};
    binds[n++] = (struct cpu_bind){DNNL_ARG_DST, y, NULL};
    if (indices != DEV_NONE) {
        store_workspace(b, indices, cpu__pd_md(pd, DNNL_ARG_WORKSPACE));
        binds[n++] = (struct cpu_bind){DNNL_ARG_WORKSPACE, {.tensor = indices}, NULL};
    }
    if (cpu__step_prim(b, pd, binds, n) == SH_OK)
        b->co->hint = pd;
    return b->err->rc;
}

/* ------------------------------------------------------------------ backward */

/* The forward descriptor: of the operation that wrote the indices, or (averages keep nothing) one
 * made here, in `made`. */
static int find_hint(struct cpu_build *b, const struct window *w, dnnl_primitive_desc_t *made,
                     const_dnnl_primitive_desc_t *out)
{
    const struct dev_op *op = b->op;
    dnnl_memory_desc_t src;

    if (op->kind == DEV_OP_POOL_MAX_BWD) {
        uint32_t from = b->plan->tensors[op->in[1]].producer;

        *out = from == DEV_NONE ? NULL : b->plan->ops[from].hint;
        return *out ? b->err->rc
                    : cpu__refuse(b, SH_E_BUG, "no POOL_MAX before it wrote the indices");
    }
    if (cpu__md_like(b, &b->plan->tensors[op->in[0]].lay->md, w->src, &src) == SH_OK)
        cpu__status(b, pool_fwd_pd(b, w, &src, true, made), "pooling");
    *out = *made;
    return b->err->rc;
}

static int emit_bwd(struct cpu_build *b, dnnl_primitive_desc_t pd)
{
    const struct dev_op *op = b->op;
    const struct cpu_ref dy = cpu__in(b, op->in[0], NULL, cpu__pd_md(pd, DNNL_ARG_DIFF_DST));
    const struct cpu_ref dx = cpu__out(b, op->out[0], cpu__pd_md(pd, DNNL_ARG_DIFF_SRC), true);
    const struct cpu_bind binds[] = {{DNNL_ARG_DIFF_DST, dy, NULL},
                                     {DNNL_ARG_DIFF_SRC, dx, NULL},
                                     {DNNL_ARG_WORKSPACE, {.tensor = op->in[1]}, NULL}};

    return cpu__step_prim(b, pd, binds, op->kind == DEV_OP_POOL_MAX_BWD ? 3 : 2);
}

int cpu__pool_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    dnnl_primitive_desc_t made = NULL, pd = NULL;
    const_dnnl_primitive_desc_t hint = NULL;
    dnnl_pooling_v2_desc_t desc;
    struct window w;
    dnnl_status_t s;

    cpu__need_f32(b, (const uint32_t[]){op->in[0], op->out[0]}, 2);
    if (read_pool_window(b, op->out[0], op->in[0], &w))
        return b->err->rc;
    if (op->kind == DEV_OP_POOL_AVG_BWD && w.overhangs && op->u.pool.count_include_pad)
        return own_avg(b);
    if (find_hint(b, &w, &made, &hint) == SH_OK) {
        s = dnnl_pooling_v2_backward_desc_init(&desc, pool_alg(op), cpu__pd_md(hint, DNNL_ARG_SRC),
                                               cpu__pd_md(hint, DNNL_ARG_DST), w.stride, w.kernel,
                                               w.dilate, w.pad_l, w.pad_r);
        if (s == dnnl_success)
            s = cpu__pd(b, &desc, NULL, hint, &pd);
        if (cpu__status(b, s, "pooling's gradient") == SH_OK)
            emit_bwd(b, pd);
    }
    if (made)
        dnnl_primitive_desc_destroy(made);
    return b->err->rc;
}
