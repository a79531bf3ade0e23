/* cpu_product.c - convolutions and products of integers of 8 bits, with their scaling.
 *
 * oneDNN does all of it in one kernel where it can: sums in I32, then factor, offset, residual,
 * activation and rounding as post-ops. Where it cannot, the sums go to scratch, and loops of ours
 * do the rest. Without VNNI its kernels add up pairs of products in 16 bits, which overflow; there
 * the sums are loops of ours too, slow and exact.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu_act.h"
#include "runtime/device/cpu/cpu_quant.h"

#include <math.h>

struct prod {
    bool is_conv;
    int nd, n_wei;
    dnnl_dims_t dims_x, dims_w, dims_y, stride, dilate, pad_l, pad_r;
    dnnl_memory_desc_t x, w, y, vec;   /* vec: one number for each channel */
    dnnl_memory_desc_t flat_x, flat_w; /* QMATMUL: as they lie, in these dimensions */
};

static dnnl_data_type_t dnnl_type_of(const struct cpu_build *b, uint32_t tensor)
{
    dnnl_data_type_t t = dnnl_f32;

    (void)cpu__type(cpu__t(b, tensor)->dtype, &t);
    return t;
}

static uint32_t operand_or_none(const struct cpu_build *b, uint32_t k)
{
    return cpu__opt_in(b->op, k);
}

/* ------------------------------------------------------------------ shapes */

static void read_prod_window(const struct cpu_build *b, struct prod *p)
{
    const struct dev_conv *c = &b->op->u.qconv.conv;
    const struct dev_tensor *x = cpu__t(b, b->op->in[DEV_Q_X]), *y = cpu__t(b, b->op->out[0]);
    const struct dev_tensor *w = cpu__t(b, b->op->in[DEV_Q_W]);
    const int g = c->groups > 1;

    p->n_wei = 4 + g;
    for (int i = 0; i < 4; i++) {
        p->dims_x[i] = x->dims[i];
        p->dims_y[i] = y->dims[i];
        p->dims_w[i + g] = w->dims[i];
    }
    if (g) {
        p->dims_w[0] = c->groups;
        p->dims_w[1] = w->dims[0] / c->groups;
    }
    for (int i = 0; i < 2; i++) {
        const int64_t reach = (w->dims[2 + i] - 1) * c->dilation[i] + 1;

        p->stride[i] = c->stride[i];
        p->dilate[i] = c->dilation[i] - 1;
        p->pad_l[i] = c->pad_begin[i];
        p->pad_r[i] = (y->dims[2 + i] - 1) * c->stride[i] + reach - x->dims[2 + i] - p->pad_l[i];
    }
}

static dnnl_status_t describe_prod(struct cpu_build *b, struct prod *p)
{
    const dnnl_data_type_t tx = dnnl_type_of(b, b->op->in[DEV_Q_X]),
                           ty = dnnl_type_of(b, b->op->out[0]);
    const int64_t n = cpu__t(b, b->op->in[DEV_Q_W])->dims[0];
    dnnl_dims_t one = {1, 1, 1, 1}, turned = {1, 1};
    dnnl_status_t s;

    one[1] = n;
    turned[1] = p->is_conv ? 1 : p->dims_w[0];
    s = dnnl_memory_desc_init_by_tag(&p->vec, p->nd, one, dnnl_f32,
                                     p->is_conv ? dnnl_nchw : dnnl_ab);
    if (s == dnnl_success)
        s = dnnl_memory_desc_init_by_tag(&p->w, p->n_wei, p->dims_w, dnnl_s8, dnnl_format_tag_any);
    if (s == dnnl_success && p->is_conv)
        s = dnnl_memory_desc_init_by_tag(&p->x, p->nd, p->dims_x, tx, dnnl_format_tag_any);
    if (s == dnnl_success && p->is_conv)
        s = dnnl_memory_desc_init_by_tag(&p->y, p->nd, p->dims_y, ty, dnnl_format_tag_any);
    if (s != dnnl_success || p->is_conv)
        return s;
    s = dnnl_memory_desc_init_by_tag(&p->x, 2, p->dims_x, tx, dnnl_ab);
    if (s == dnnl_success)
        s = dnnl_memory_desc_init_by_tag(&p->y, 2, p->dims_y, ty, dnnl_ab);
    if (s == dnnl_success) /* [N, K] in memory, seen as [K, N] */
        s = dnnl_memory_desc_init_by_strides(&p->flat_w, 2, p->dims_w, dnnl_s8, turned);
    p->flat_x = p->x;
    return s;
}

static int read_prod_shapes(struct cpu_build *b, struct prod *p)
{
    const struct dev_tensor *w = cpu__t(b, b->op->in[DEV_Q_W]);
    const int64_t rows = dev_tensor_elements(cpu__t(b, b->op->out[0])) / w->dims[0];

    *p = (struct prod){.is_conv = b->op->kind == DEV_OP_QCONV, .nd = 4};
    if (p->is_conv) {
        read_prod_window(b, p);
    } else {
        p->nd = p->n_wei = 2;
        p->dims_x[0] = p->dims_y[0] = rows;
        p->dims_x[1] = p->dims_w[0] = w->dims[1];
        p->dims_y[1] = p->dims_w[1] = w->dims[0];
    }
    return cpu__status(b, describe_prod(b, p), "product of integers");
}

/* ------------------------------------------------------------------ post-ops */

#define MAX_BINARY 3

struct chain {
    dnnl_post_ops_t po;
    dnnl_status_t s;
    double unit; /* in which the numbers are counted at this place */
    struct {
        uint32_t tensor;
        int number; /* of the post-op */
        dnnl_memory_desc_t md;
    } at[MAX_BINARY];
    int n;
};

static void eltwise(struct chain *c, dnnl_alg_kind_t alg, double times, double a, double b)
{
    if (c->s == dnnl_success)
        c->s = cpu__post_has(c->po, alg)
                   ? dnnl_unimplemented
                   : dnnl_post_ops_append_eltwise(c->po, (float)times, alg, (float)a, (float)b);
}

static void append_binary(struct chain *c, dnnl_alg_kind_t alg, const dnnl_memory_desc_t *md,
                          uint32_t t)
{
    c->at[c->n].tensor = t;
    c->at[c->n].number = dnnl_post_ops_len(c->po);
    c->at[c->n++].md = *md;
    if (c->s == dnnl_success)
        c->s = dnnl_post_ops_append_binary(c->po, alg, md);
}

/* What the numbers have to be counted in when the residual is added, or the activation computed. */
static double unit_wanted(const struct cpu_build *b)
{
    const uint32_t residual = operand_or_none(b, DEV_Q_RESIDUAL);

    if (residual != DEV_NONE)
        return cpu__t(b, residual)->dtype == SH_F32 ? 1 : (double)b->op->u.qconv.q.residual.scale;
    if (b->op->act != DEV_ACT_NONE && b->op->act != DEV_ACT_RELU)
        return 1;
    return 0; /* anything */
}

/* Rounds to q->mid; then, or without it, the unit is the one wanted. */
static void append_mid(const struct cpu_build *b, struct chain *c)
{
    const struct dev_product *q = &b->op->u.qconv.q;
    const double mid = (double)q->mid.scale, unit = unit_wanted(b);
    int32_t lo, hi;

    if (mid != 0) {
        dev_range8(q->mid_type, &lo, &hi);
        eltwise(c, dnnl_eltwise_pow, 1, 1 / mid, 1);
        eltwise(c, dnnl_eltwise_round, 1, 0, 0);
        eltwise(c, dnnl_eltwise_clip, unit ? mid / unit : 1, lo - q->mid.zero, hi - q->mid.zero);
        c->unit = unit ? unit : mid;
    } else if (unit && unit != 1) {
        eltwise(c, dnnl_eltwise_pow, 1, 1 / unit, 1);
        c->unit = unit;
    }
}

/* p->y: with a layout. */
static void append_all(struct cpu_build *b, struct prod *p, struct chain *c)
{
    const struct dev_product *q = &b->op->u.qconv.q;
    const uint32_t offset = operand_or_none(b, DEV_Q_OFFSET),
                   residual = operand_or_none(b, DEV_Q_RESIDUAL);
    const bool late = b->op->act != DEV_ACT_NONE && b->op->act != DEV_ACT_RELU;
    const double y_unit = dev_is8(cpu__t(b, b->op->out[0])->dtype) ? (double)q->y.scale : 1;
    double unit, plus = 0;

    append_binary(c, dnnl_binary_mul, &p->vec, operand_or_none(b, DEV_Q_FACTOR));
    if (offset != DEV_NONE)
        append_binary(c, dnnl_binary_add, &p->vec, offset);
    append_mid(b, c);
    if (residual != DEV_NONE) {
        dnnl_memory_desc_t md = p->y;

        md.data_type = dnnl_type_of(b, residual);
        append_binary(c, dnnl_binary_add, &md, residual);
        plus = md.data_type == dnnl_f32 ? 0 : -(double)q->residual.zero;
    }
    unit = late ? 1 : y_unit;
    if (plus != 0 || c->unit != unit)
        eltwise(c, dnnl_eltwise_linear, 1, c->unit / unit, plus * c->unit / unit);
    if (c->s == dnnl_success && !cpu__act_post(c->po, b->op->act, b->op->act_p0, b->op->act_p1))
        c->s = dnnl_unimplemented;
    if (unit != y_unit)
        eltwise(c, dnnl_eltwise_linear, 1, unit / y_unit, 0);
}

static dnnl_status_t make_pd(struct cpu_build *b, const struct prod *p, const dnnl_memory_desc_t *w,
                             const dnnl_memory_desc_t *y, dnnl_post_ops_t po, int32_t y_zero,
                             dnnl_primitive_desc_t *out)
{
    const struct cpu_dev *d = (const struct cpu_dev *)b->plan->base.dev;
    const int32_t x_zero = b->op->u.qconv.q.x_zero;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_convolution_desc_t conv;
    dnnl_matmul_desc_t mm;
    dnnl_status_t s = dnnl_primitive_attr_create(&attr);

    *out = NULL;
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success && po)
        s = dnnl_primitive_attr_set_post_ops(attr, po);
    if (s == dnnl_success && x_zero != 0)
        s = dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_SRC, 1, 0, &x_zero);
    if (s == dnnl_success && y_zero != 0)
        s = dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_DST, 1, 0, &y_zero);
    if (s == dnnl_success && p->is_conv)
        s = dnnl_dilated_convolution_forward_desc_init(&conv, dnnl_forward_inference,
                                                       dnnl_convolution_direct, &p->x, w, NULL, y,
                                                       p->stride, p->dilate, p->pad_l, p->pad_r);
    else if (s == dnnl_success)
        s = dnnl_matmul_desc_init(&mm, &p->x, w, NULL, y);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_create(out, p->is_conv ? (void *)&conv : (void *)&mm, attr,
                                       d->engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    if (s == dnnl_success && cpu__pd_is_slow(*out)) {
        dnnl_primitive_desc_destroy(*out);
        *out = NULL;
        s = dnnl_unimplemented;
    }
    return s;
}

/* The weights as another batch size has laid them out, if some have. */
static const dnnl_memory_desc_t *laid_out(const struct cpu_build *b, const struct prod *p)
{
    const struct cpu_tensor *t = &b->plan->tensors[b->op->in[DEV_Q_W]];

    return t->is_fixed && t->is_blocked && t->lay->md.ndims == p->n_wei &&
                   memcmp(t->lay->md.dims, p->dims_w, (size_t)p->n_wei * sizeof(p->dims_w[0])) == 0
               ? &t->lay->md
               : NULL;
}

/* For weights as they lie, else as oneDNN likes them. */
static dnnl_status_t find_pd(struct cpu_build *b, const struct prod *p, const dnnl_memory_desc_t *y,
                             dnnl_post_ops_t po, int32_t y_zero, dnnl_primitive_desc_t *out)
{
    const dnnl_memory_desc_t *w = laid_out(b, p);

    if (w && make_pd(b, p, w, y, po, y_zero, out) == dnnl_success)
        return dnnl_success;
    return make_pd(b, p, &p->w, y, po, y_zero, out);
}

/* Below 0x67 and 0x407 there is no VNNI; later processors have the bits of earlier ones. */
static bool sums_are_exact(void)
{
    const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();

    return (isa & dnnl_cpu_isa_avx512_core_vnni) == dnnl_cpu_isa_avx512_core_vnni ||
           (isa & dnnl_cpu_isa_avx2_vnni) == dnnl_cpu_isa_avx2_vnni;
}

/* ------------------------------------------------------------------ all in one kernel */

static void take_prod_operands(struct cpu_build *b, const struct prod *p, dnnl_primitive_desc_t pd,
                               struct cpu_ref *x, struct cpu_ref *w)
{
    *x = cpu__in(b, b->op->in[DEV_Q_X], p->is_conv ? NULL : &p->flat_x,
                 cpu__pd_md(pd, DNNL_ARG_SRC));
    *w = cpu__in(b, b->op->in[DEV_Q_W], p->is_conv ? NULL : &p->flat_w,
                 cpu__pd_md(pd, DNNL_ARG_WEIGHTS));
}

/* Where y lies in layout `have`; the product's rows are those of any tensor of its size. */
static struct cpu_ref take_out(struct cpu_build *b, const struct prod *p,
                               const dnnl_memory_desc_t *have)
{
    return p->is_conv ? cpu__out(b, b->op->out[0], have, true) : cpu__out_plain(b, b->op->out[0]);
}

static int emit_fused(struct cpu_build *b, struct prod *p, const struct chain *c,
                      dnnl_primitive_desc_t pd)
{
    struct cpu_bind binds[3 + MAX_BINARY];
    struct cpu_ref x, w, more;
    uint32_t n = 0;

    take_prod_operands(b, p, pd, &x, &w);
    for (int i = 0; i < c->n; i++) {
        const bool is_vector = c->at[i].tensor != operand_or_none(b, DEV_Q_RESIDUAL);

        more = is_vector || !p->is_conv ? cpu__in_plain(b, c->at[i].tensor)
                                        : cpu__in(b, c->at[i].tensor, NULL, &c->at[i].md);
        binds[n++] = (struct cpu_bind){
            DNNL_ARG_ATTR_MULTIPLE_POST_OP(c->at[i].number) | DNNL_ARG_SRC_1, more, &c->at[i].md};
    }
    binds[n++] = (struct cpu_bind){DNNL_ARG_SRC, x, NULL};
    binds[n++] = (struct cpu_bind){DNNL_ARG_WEIGHTS, w, NULL};
    binds[n++] = (struct cpu_bind){DNNL_ARG_DST, take_out(b, p, &p->y), &p->y};
    return cpu__step_prim(b, pd, binds, n);
}

/* false: oneDNN has no such kernel. */
static bool try_fused(struct cpu_build *b, struct prod *p, int *rc)
{
    const enum sh_dtype t = cpu__t(b, b->op->out[0])->dtype;
    const int32_t y_zero = dev_is8(t) ? b->op->u.qconv.q.y.zero : 0;
    struct chain c = {.unit = 1};
    dnnl_primitive_desc_t pd = NULL;

    /* The residual's layout is that of y, which oneDNN chooses without it. */
    c.s = find_pd(b, p, &p->y, NULL, 0, &pd);
    if (c.s != dnnl_success)
        return false;
    p->y = *cpu__pd_md(pd, DNNL_ARG_DST);
    if (t == SH_I32) {
        *rc = emit_fused(b, p, &c, pd);
        return true;
    }
    dnnl_primitive_desc_destroy(pd);
    c.s = dnnl_post_ops_create(&c.po);
    if (c.s == dnnl_success)
        append_all(b, p, &c);
    if (c.s == dnnl_success)
        c.s = find_pd(b, p, &p->y, c.po, y_zero, &pd);
    dnnl_post_ops_destroy(c.po);
    if (c.s == dnnl_success)
        *rc = emit_fused(b, p, &c, pd);
    return c.s == dnnl_success;
}

/* ------------------------------------------------------------------ by loops of ours */

/* Channels-last: x [n][h][w][c], weights [m][r][s][c / groups], sums [n][p][q][m]. */
struct sums {
    const struct prod *p;
    const int8_t *w;
    const void *x;
    int32_t *y;
    int64_t groups;
    int32_t zero;
    bool is_signed;
};

SH_VECTORISE static int32_t dot_u(const uint8_t *x, const int8_t *w, int64_t n, int32_t zero)
{
    int32_t sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += ((int32_t)x[i] - zero) * (int32_t)w[i];
    return sum;
}

SH_VECTORISE static int32_t dot_s(const int8_t *x, const int8_t *w, int64_t n, int32_t zero)
{
    int32_t sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += ((int32_t)x[i] - zero) * (int32_t)w[i];
    return sum;
}

/* Pixel `at` of the result. */
static void one_pixel(const struct sums *s, int64_t at)
{
    const struct prod *p = s->p;
    const int64_t *x = p->dims_x, *y = p->dims_y, *w = p->dims_w + p->n_wei - 4;
    const int64_t m = y[1], c = w[1], q = at % y[3], row = at / y[3] % y[2], n = at / y[3] / y[2];

    for (int64_t k = 0; k < m; k++) {
        const int64_t first = k / (m / s->groups) * c; /* channel of x */
        int32_t sum = 0;

        for (int64_t i = 0; i < w[2] * w[3]; i++) {
            const int64_t h = row * p->stride[0] - p->pad_l[0] + i / w[3] * (p->dilate[0] + 1);
            const int64_t v = q * p->stride[1] - p->pad_l[1] + i % w[3] * (p->dilate[1] + 1);
            const int64_t from = ((n * x[2] + h) * x[3] + v) * x[1] + first;
            const int8_t *weights = s->w + (k * w[2] * w[3] + i) * c;

            if (h < 0 || h >= x[2] || v < 0 || v >= x[3])
                continue;
            sum += s->is_signed ? dot_s((const int8_t *)s->x + from, weights, c, s->zero)
                                : dot_u((const uint8_t *)s->x + from, weights, c, s->zero);
        }
        s->y[at * m + k] = sum;
    }
}

static void some_pixels(void *ctx, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        one_pixel(ctx, i);
}

/* p: x w y */
static void sums_fn(const struct cpu_call *c)
{
    const struct prod *p = c->aux;
    struct sums s = {.p = p,
                     .x = c->p[0],
                     .w = c->p[1],
                     .y = c->p[2],
                     .groups = SH_MAX(c->op->u.qconv.conv.groups, (int64_t)1),
                     .zero = c->op->u.qconv.q.x_zero,
                     .is_signed = c->plan->base.g->tensors[c->op->in[DEV_Q_X]].dtype == SH_I8};

    cpu__parallel(c->threads, p->dims_y[0] * p->dims_y[2] * p->dims_y[3], 1, some_pixels, &s);
}

/* A product of matrices as a convolution of one pixel for each row. */
static struct prod as_pixels(const struct cpu_build *b, const struct prod *p)
{
    struct prod own = *p;

    if (p->is_conv) {
        const struct dev_tensor *w = cpu__t(b, b->op->in[DEV_Q_W]);

        own.n_wei = 4;
        for (int i = 0; i < 4; i++)
            own.dims_w[i] = w->dims[i];
        return own;
    }
    own.n_wei = own.nd = 4;
    own.dims_w[0] = p->dims_w[1];
    own.dims_w[1] = p->dims_w[0];
    own.stride[0] = own.stride[1] = 1;
    for (int i = 2; i < 4; i++)
        own.dims_x[i] = own.dims_y[i] = own.dims_w[i] = 1;
    return own;
}

static int own_sums(struct cpu_build *b, const struct prod *p, const struct cpu_ref *to)
{
    const struct prod own = as_pixels(b, p);
    dnnl_memory_desc_t x = p->x, w;
    struct cpu_ref refs[3];

    if (!p->is_conv) {
        refs[0] = cpu__in_plain(b, b->op->in[DEV_Q_X]);
        refs[1] = cpu__in_plain(b, b->op->in[DEV_Q_W]);
    } else {
        cpu__status(b, dnnl_memory_desc_init_by_tag(&x, 4, p->dims_x, p->x.data_type, dnnl_nhwc),
                    "sums");
        cpu__status(b, dnnl_memory_desc_init_by_tag(&w, 4, own.dims_w, dnnl_s8, dnnl_ohwi), "sums");
        refs[0] = cpu__in(b, b->op->in[DEV_Q_X], NULL, &x);
        refs[1] = cpu__in(b, b->op->in[DEV_Q_W], NULL, &w);
    }
    refs[2] = *to;
    return cpu__step_fn(b, sums_fn, refs, 3, &own, sizeof(own));
}

/* y, in type t and with channels last. */
static int last_md(struct cpu_build *b, const struct prod *p, dnnl_data_type_t t,
                   dnnl_memory_desc_t *out)
{
    return cpu__status(
        b, dnnl_memory_desc_init_by_tag(out, p->nd, p->dims_y, t, p->is_conv ? dnnl_nhwc : dnnl_ab),
        "product of integers");
}

static int sums_step(struct cpu_build *b, struct prod *p, struct cpu_ref to)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_memory_desc_t md;
    struct cpu_ref x, w;

    if (last_md(b, p, dnnl_s32, &md))
        return b->err->rc;
    if (!sums_are_exact() || find_pd(b, p, &md, NULL, 0, &pd) != dnnl_success)
        return own_sums(b, p, &to);
    take_prod_operands(b, p, pd, &x, &w);
    return cpu__step_prim(b, pd,
                          (struct cpu_bind[]){{DNNL_ARG_SRC, x, NULL},
                                              {DNNL_ARG_WEIGHTS, w, NULL},
                                              {DNNL_ARG_DST, to, &md}},
                          3);
}

struct scaled {
    const struct dev_product *q;
    const int32_t *sums;
    const float *factor, *offset;
    struct cpu_number residual;
    int64_t channels;
    float *y;
};

static void scale_rows(void *ctx, int64_t from, int64_t to)
{
    const struct scaled *s = ctx;
    const struct dev_product *q = s->q;
    const int64_t n = s->channels;

    for (int64_t r = from; r < to; r++)
        for (int64_t c = 0; c < n; c++) {
            float v = s->factor[c] * (float)s->sums[r * n + c];

            if (s->offset)
                v += s->offset[c];
            if (q->mid.scale != 0)
                v = q->mid.scale * (float)(cpu__to8(v, &q->mid, q->mid_type) - q->mid.zero);
            if (s->residual.p)
                v += cpu__number(&s->residual, r * n + c);
            s->y[r * n + c] = v;
        }
}

/* p: sums y factor offset residual; aux: which of the last two there are */
static void prod_scale_fn(const struct cpu_call *c)
{
    const struct dev_tensor *t = c->plan->base.g->tensors;
    const struct dev_product *q = &c->op->u.qconv.q;
    const bool *has = c->aux;
    struct scaled s = {.q = q,
                       .sums = c->p[0],
                       .y = c->p[1],
                       .factor = c->p[2],
                       .offset = has[0] ? c->p[3] : NULL,
                       .channels = t[c->op->in[DEV_Q_W]].dims[0]};

    if (has[1])
        s.residual = (struct cpu_number){c->p[4], t[c->op->in[DEV_Q_RESIDUAL]].dtype, q->residual};
    cpu__parallel(c->threads, dev_tensor_elements(&t[c->op->out[0]]) / s.channels, 16, scale_rows,
                  &s);
}

/* From sums to F32 at `to`, in layout f32. */
static int scale_step(struct cpu_build *b, const struct prod *p, struct cpu_ref sums,
                      struct cpu_ref to)
{
    const uint32_t offset = operand_or_none(b, DEV_Q_OFFSET),
                   residual = operand_or_none(b, DEV_Q_RESIDUAL);
    struct cpu_ref refs[5] = {sums, to, sums, sums, sums};
    const bool has[2] = {offset != DEV_NONE, residual != DEV_NONE};
    dnnl_memory_desc_t md;

    refs[2] = cpu__in_plain(b, operand_or_none(b, DEV_Q_FACTOR));
    if (has[0])
        refs[3] = cpu__in_plain(b, offset);
    if (has[1] && last_md(b, p, dnnl_type_of(b, residual), &md) == SH_OK)
        refs[4] = p->is_conv ? cpu__in(b, residual, NULL, &md) : cpu__in_plain(b, residual);
    return cpu__step_fn(b, prod_scale_fn, refs, 5, has, sizeof(has));
}

static int prod_in_steps(struct cpu_build *b, struct prod *p)
{
    const int64_t n = dev_tensor_elements(cpu__t(b, b->op->out[0]));
    const enum sh_dtype t = cpu__t(b, b->op->out[0])->dtype;
    struct cpu_ref sums, f32, y;
    dnnl_memory_desc_t md;

    if (last_md(b, p, dnnl_type_of(b, b->op->out[0]), &md))
        return b->err->rc;
    y = take_out(b, p, &md);
    sums = t == SH_I32 ? y : cpu__scratch(b, (size_t)n * sizeof(int32_t));
    f32 = t == SH_F32 ? y : cpu__scratch(b, (size_t)n * sizeof(float));
    if (sums_step(b, p, sums) || t == SH_I32)
        return b->err->rc;
    scale_step(b, p, sums, f32);
    if (last_md(b, p, dnnl_f32, &md) == SH_OK)
        cpu__act_in_place(b, f32, &md);
    return t == SH_F32 ? b->err->rc : cpu__round_step(b, f32, y, n, t, &b->op->u.qconv.q.y);
}

int cpu__product(struct cpu_build *b)
{
    struct prod p;
    int done = SH_OK;

    if (read_prod_shapes(b, &p))
        return b->err->rc;
    if (sums_are_exact() && try_fused(b, &p, &done))
        return done;
    return read_prod_shapes(b, &p) ? b->err->rc : prod_in_steps(b, &p);
}
