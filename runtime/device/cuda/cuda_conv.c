/* cuda_conv.c - convolution, forward and backward: channels-last, one kernel where there is one.
 *
 * A builder describes its problem, gets the method for it, and asks for its operands in the compute
 * type, channels-last. The gradient of the bias is ours: column sums of d_y.
 *
 * Without measuring (no file to keep the result in, or deterministic) the method is the first that
 * works: cuDNN's best guess for all in one kernel, then with our epilogue behind it.
 *
 * SHUNT_CUDA_DEPTHWISE in the environment, for tests and for measuring: the variant (K_DW_*) of our
 * kernel that depthwise convolutions have forward, where it is one for them.
 */
#include "runtime/device/cuda/cuda_conv.h"

#include "common/conf.h"
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"
#include "runtime/device/cuda/cuda_tune.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_CONVS 4096u /* distinct problems of one dev; beyond them an operation keeps its own */
#define FEW 8           /* channels: x is converted by the method */

/* ------------------------------------------------------------------ methods by problem */

struct cuda_convs {
    struct {
        char key[CONV_KEY];
        struct conv_method *method; /* OWNED, one reference */
    } * at;                         /* OWNED */
    size_t n, cap;
};

void cuda__convs_free(struct cuda_dev *d)
{
    struct cuda_convs *c = d->convs;

    d->convs = NULL;
    for (size_t i = 0; c && i < c->n; i++)
        cuda__conv_drop(c->at[i].method);
    if (c)
        free(c->at);
    free(c);
}

static struct conv_method *known_method(const struct cuda_dev *d, const char *key)
{
    const struct cuda_convs *c = d->convs;

    for (size_t i = 0; c && i < c->n; i++)
        if (strcmp(c->at[i].key, key) == 0)
            return c->at[i].method;
    return NULL;
}

/* No memory, no room: then it is looked for again. */
static void remember_method(struct cuda_dev *d, const char *key, struct conv_method *m)
{
    struct cuda_convs *c = d->convs;

    if (!c)
        c = d->convs = calloc(1, sizeof(*c));
    if (!c || sh_grow(&c->at, &c->cap, c->n + 1, sizeof(*c->at), MAX_CONVS, "convolutions", NULL))
        return;
    sh_strlcpy(c->at[c->n].key, key, sizeof(c->at[c->n].key));
    c->at[c->n++].method = m;
    m->refs++;
}

static bool take_first_method(void *ctx, struct conv_method *m)
{
    struct conv_method **out = ctx;

    *out = m;
    return true;
}

static struct conv_method *by_heuristics(struct cuda_dev *d, const struct conv_problem *p)
{
    static const struct conv_search SEARCHES[] = {
        {.how = CONV_FULL, .max_workspace = CONV_GOOD_WORKSPACE},
        {.how = CONV_GEMM, .max_workspace = CONV_GOOD_WORKSPACE},
        {.how = CONV_LINEAR, .max_workspace = CONV_GOOD_WORKSPACE},
        {.how = CONV_BARE, .max_workspace = CONV_GOOD_WORKSPACE},
        {.how = CONV_FULL, .max_workspace = CONV_MAX_WORKSPACE},
        {.how = CONV_BARE, .max_workspace = CONV_MAX_WORKSPACE},
        {.how = CONV_FULL, .max_workspace = CONV_MAX_WORKSPACE, .may_be_slow = true},
        {.how = CONV_BARE, .max_workspace = CONV_MAX_WORKSPACE, .may_be_slow = true},
    };
    static const struct conv_search PRODUCT = {
        .how = CONV_GEMM, .limit = 1, .max_workspace = CONV_GOOD_WORKSPACE};
    const struct k_conv k = cuda__conv_direct(p, 0);
    struct conv_method *m = NULL;
    int64_t widths[4];
    int n = cuda__conv_widths(p, widths);

    if (k_conv_is_best(&k, (int)p->type) || p->variant > 0)
        return cuda__conv_own(p, widths[n - 1], p->variant);
    /* Without matrix units cuDNN transposes both ways first, into a large workspace. */
    if (p->is_strict && cuda__conv_each(d, p, &PRODUCT, take_first_method, &m))
        return m;
    for (size_t i = 0; i < SH_ARRAY_LEN(SEARCHES); i++)
        for (int w = 0; w < n; w++) {
            struct conv_search s = SEARCHES[i];

            s.padded = widths[w];
            s.limit = 1;
            if (cuda__conv_each(d, p, &s, take_first_method, &m))
                return m;
        }
    return cuda__conv_own(p, widths[n - 1], 0);
}

static struct conv_method *by_measuring(struct cuda_dev *d, const struct conv_problem *p,
                                        const char *key)
{
    char text[CUDA_TUNE_CHOICE];
    struct conv_method *m = NULL;
    struct cuda_tuned found;
    void *blob = NULL;
    size_t bytes = 0;
    int tried = 0;

    if (cuda_tune_find(d->tune, key, &found)) {
        m = cuda__conv_load(d, p, found.choice, found.blob, found.blob_bytes);
        free(found.blob);
    }
    if (m)
        return m;
    if (!cuda__conv_fastest(d, p, &tried, &m))
        return m;
    cuda__conv_save(m, tried, text, sizeof(text), &blob, &bytes);
    cuda_tune_record(d->tune, key, text, blob, bytes);
    free(blob);
    return m;
}

/* *out: OWNED, cuda__conv_drop(). Finds, measures or takes by heuristics. There always is one. */
static int method_for(struct cuda_dev *d, const struct conv_problem *p, struct conv_method **out,
                      struct sh_err *err)
{
    struct conv_method *m;
    char key[CONV_KEY];

    cuda__conv_key(d, p, key);
    *out = m = known_method(d, key);
    if (m) {
        m->refs++;
        return SH_OK;
    }
    if (d->tune && !d->deterministic && p->variant == 0)
        m = by_measuring(d, p, key);
    if (!m)
        m = by_heuristics(d, p);
    if (!m)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a convolution");
    remember_method(d, key, m);
    *out = m;
    return SH_OK;
}

/* ------------------------------------------------------------------ running */

/* x, and w if it has to match, with zeros behind their channels. */
static void pad(struct cuda_dev *d, const struct conv_problem *p, const struct conv_method *m,
                struct conv_args *a, unsigned char *scratch)
{
    const void *x = a->x, *w = a->w;
    const enum cuda_type from = p->is_raw ? p->raw_type : p->type;

    a->x = scratch;
    k_conv_pad(d->stream, (int)from, x, p->is_raw && p->raw_is_plain, p->x[0], p->x[2] * p->x[3],
               (int)p->x[1], (int)p->type, a->x, (int)m->padded);
    if (m->w_bytes == 0)
        return;
    a->w = scratch + m->x_bytes;
    k_conv_pad(d->stream, (int)p->type, w, false, p->w[0], p->w[2] * p->w[3], (int)p->w[1],
               (int)p->type, a->w, (int)m->padded);
}

static void run_own(struct cuda_dev *d, const struct conv_problem *p, const struct conv_method *m,
                    const struct conv_args *a)
{
    struct k_conv k = cuda__conv_direct(p, m->padded);
    const int type = (int)p->type;

    k.variant = m->variant;
    if (p->pass == DNN_FORWARD)
        k_conv_fwd(d->stream, &k, type, a->x, a->w, a->bias, a->z, (int)p->act, p->p0, p->p1, a->y);
    else if (p->pass == DNN_BWD_DATA)
        k_conv_bwd_data(d->stream, &k, type, a->y, a->w, a->x);
    else
        k_conv_bwd_weight(d->stream, &k, type, a->x, a->y, a->scratch, a->w);
}

/* What the kernel has left to do. */
static void set_conv_epilogue(struct cuda_dev *d, const struct conv_problem *p, uint32_t fused,
                              const struct conv_args *a)
{
    const void *bias = fused & CONV_FUSED_BIAS ? NULL : a->bias;
    const void *z = fused & CONV_FUSED_Z ? NULL : a->z;
    const enum dev_act act = fused & CONV_FUSED_ACT ? DEV_ACT_NONE : p->act;

    if (p->pass == DNN_FORWARD && (bias || z || act != DEV_ACT_NONE))
        k_epilogue(d->stream, p->y[0] * p->y[2] * p->y[3], p->y[1], (int)p->type, a->y,
                   (int)p->type, bias, z, (int)act, p->p0, p->p1);
}

int cuda__conv_run(struct cuda_dev *d, const struct conv_problem *p, const struct conv_method *m,
                   struct dnn_pack *pack, const struct conv_args *args, struct sh_err *err)
{
    struct conv_args a = *args;
    void *at[DNN_N_ROLES];
    int rc = SH_OK;

    if (m->padded)
        pad(d, p, m, &a, a.scratch + SH_ALIGN_UP(m->lib_bytes, (size_t)DEV_ALIGN));
    if (m->how == CONV_OWN) {
        run_own(d, p, m, &a);
    } else if (m->how == CONV_GEMM) {
        rc = cuda__conv_gemm_run(d, p, &m->gemm, &a, err);
    } else {
        at[DNN_X] = a.x;
        at[DNN_W] = a.w;
        at[DNN_Y] = a.y;
        at[DNN_Z] = a.z;
        at[DNN_BIAS] = a.bias;
        rc = dnn_run(d->cudnn, &m->plan, pack, m->roles, at, m->lib_bytes ? a.scratch : NULL, err);
    }
    if (!rc)
        set_conv_epilogue(d, p, m->fused, &a);
    return rc;
}

/* ------------------------------------------------------------------ building */

struct conv_op { /* aux of an operation */
    struct conv_problem p;
    struct conv_method *m; /* OWNED, one reference */
    struct dnn_pack pack;
    size_t x_off, y_off; /* of the samples that a weight gradient reads, in bytes */
};

static void conv_op_free(void *aux)
{
    struct conv_op *o = aux;

    dnn_pack_fini(&o->pack);
    cuda__conv_drop(o->m);
    free(o);
}

/* 0: none is asked for, or there is no choice. */
static int wanted_variant(const struct conv_problem *p)
{
    const char *text = p->pass == DNN_FORWARD ? sh_conf_env("SHUNT_CUDA_DEPTHWISE") : NULL;
    const struct k_conv k = cuda__conv_direct(p, 0);
    int64_t n;

    if (!text || !k_conv_has_variants(&k, (int)p->type) ||
        sh_parse_i64(text, 0, K_DW_N - 1, "SHUNT_CUDA_DEPTHWISE", &n, NULL))
        return 0;
    return (int)n;
}

/* Paddings that give the y that the graph has. The end is made like the begin where that makes no
 * difference, since many kernels know only that; a stride can leave part of it unused. */
static void read_padding(const struct dev_conv *c, struct conv_problem *p)
{
    for (int i = 0; i < 2; i++) {
        const int64_t reach = (p->w[2 + i] - 1) * c->dilation[i] + 1;
        const int64_t used =
            (p->y[2 + i] - 1) * c->stride[i] + reach - p->x[2 + i] - c->pad_begin[i];
        const int64_t begin = c->pad_begin[i], end = c->pad_end[i];

        p->pad_begin[i] = begin;
        p->pad_end[i] = begin >= used && begin < used + c->stride[i] ? begin
                        : end >= used && end < used + c->stride[i]   ? end
                                                                     : SH_MAX(used, 0);
    }
}

/* x, w, y: which tensors of the graph play these roles. */
static int read_problem(struct cuda_build *b, enum dnn_pass pass, uint32_t x, uint32_t w,
                        uint32_t y, struct conv_problem *p)
{
    const struct dev_conv *c = &b->op->u.conv;
    const struct dev_tensor *tx = cuda__t(b, x), *tw = cuda__t(b, w), *ty = cuda__t(b, y);

    if (tx->rank != 4 || tw->rank != 4 || ty->rank != 4 || c->groups < 1)
        return cuda__refuse(b, SH_E_UNSUPPORTED,
                            "only convolutions of two dimensions are supported");
    if (tx->dims[1] != tw->dims[1] * c->groups || ty->dims[1] != tw->dims[0] ||
        tw->dims[0] % c->groups != 0 || tx->dims[0] != ty->dims[0])
        return cuda__refuse(b, SH_E_BUG, "channels of input, weight and output do not fit");
    for (int i = 0; i < 2; i++)
        if (c->stride[i] < 1 || c->dilation[i] < 1 || c->pad_begin[i] < 0)
            return cuda__refuse(b, SH_E_UNSUPPORTED,
                                "strides and dilations start at 1, paddings at 0");
    *p = (struct conv_problem){.pass = pass,
                               .type = b->plan->compute,
                               .is_strict = b->plan->precision == DEV_FP32,
                               .groups = c->groups};
    memcpy(p->x, tx->dims, sizeof(p->x));
    memcpy(p->w, tw->dims, sizeof(p->w));
    memcpy(p->y, ty->dims, sizeof(p->y));
    p->x[0] = p->y[0] = dev_conv_samples(c, tx);
    memcpy(p->stride, c->stride, sizeof(p->stride));
    memcpy(p->dilation, c->dilation, sizeof(p->dilation));
    read_padding(c, p);
    p->variant = wanted_variant(p);
    return SH_OK;
}

static bool is_float_type(enum cuda_type t)
{
    return t == CUDA_T_F32 || t == CUDA_T_F16 || t == CUDA_T_BF16;
}

/* An image as the caller gave it: one pass converts and widens it. */
static void read_raw(const struct cuda_build *b, struct conv_problem *p)
{
    const struct cuda_form f = cuda__form(b, b->op->in[0]);
    const bool is_plain = f.layout == CUDA_PLAIN && p->x[1] > 1 && p->x[2] * p->x[3] > 1;

    p->is_raw = p->groups == 1 && p->x[1] <= FEW && is_float_type(f.type) &&
                (f.type != p->type || is_plain);
    p->raw_is_plain = p->is_raw && is_plain;
    p->raw_type = f.type;
}

/* Method and aux of the operation; more: bytes of scratch behind the method's. */
static int attach_run(struct cuda_build *b, const struct conv_problem *p, size_t more,
                      cuda_run *run)
{
    struct conv_op *o = calloc(1, sizeof(*o));
    int rc;

    if (!o)
        return cuda__refuse(b, SH_E_NOMEM, "could not allocate an operation");
    o->p = *p;
    rc = method_for(cuda__dev(b->plan), p, &o->m, b->err);
    if (rc) {
        conv_op_free(o);
        return rc;
    }
    cuda__aux(b, o, conv_op_free);
    cuda__scratch(b, cuda__conv_scratch(o->m) + more);
    b->co->run = run;
    return SH_OK;
}

static int run_fwd(const struct cuda_call *c, struct sh_err *err)
{
    struct conv_op *o = c->aux;
    const struct conv_args a = {.x = c->in[0],
                                .w = c->in[1],
                                .bias = c->in[2],
                                .z = c->in[3],
                                .y = c->out[0],
                                .scratch = c->scratch};
    int rc = cuda__conv_run(c->dev, &o->p, o->m, &o->pack, &a, err);

    return rc ? rc : cuda__launched(c, err);
}

int cuda__conv(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t x = op->in[0], bias = cuda__opt_in(op, 2), z = cuda__opt_in(op, 3);
    const uint32_t all[] = {x, op->in[1], bias, z, op->out[0]};
    const struct cuda_form nhwc = {.type = b->plan->compute, .layout = CUDA_NHWC};
    struct conv_problem p;
    int rc = cuda__need_f32(b, all, SH_ARRAY_LEN(all));

    if (!rc)
        rc = read_problem(b, DNN_FORWARD, x, op->in[1], op->out[0], &p);
    if (rc)
        return rc;
    if (bias != DEV_NONE && dev_tensor_elements(cuda__t(b, bias)) != p.y[1])
        return cuda__refuse(b, SH_E_BUG, "the bias does not have one value per channel");
    if (z != DEV_NONE &&
        (cuda__t(b, z)->rank != 4 || memcmp(cuda__t(b, z)->dims, p.y, sizeof(p.y)) != 0))
        return cuda__refuse(b, SH_E_BUG, "the residual does not have the shape of the output");
    p.has_bias = bias != DEV_NONE;
    p.has_z = z != DEV_NONE;
    p.act = op->act;
    p.p0 = op->act_p0;
    p.p1 = op->act_p1;
    read_raw(b, &p);
    rc = attach_run(b, &p, 0, run_fwd);
    if (!rc && !p.is_raw)
        rc = cuda__in(b, 0, nhwc);
    if (!rc)
        rc = cuda__in(b, 1, nhwc);
    if (!rc)
        rc = cuda__in(b, 2, cuda__plain(b->plan->compute));
    if (!rc)
        rc = cuda__in(b, 3, nhwc);
    return rc ? rc : cuda__out(b, 0, nhwc);
}

/* ------------------------------------------------------------------ gradients */

static int run_bwd_data(const struct cuda_call *c, struct sh_err *err)
{
    struct conv_op *o = c->aux;
    const struct conv_args a = {
        .y = c->in[0], .w = c->in[1], .x = c->out[0], .scratch = c->scratch};
    int rc = cuda__conv_run(c->dev, &o->p, o->m, &o->pack, &a, err);

    return rc ? rc : cuda__launched(c, err);
}

int cuda__conv_bwd_data(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->in[1], op->out[0]};
    const struct cuda_form nhwc = {.type = b->plan->compute, .layout = CUDA_NHWC};
    struct conv_problem p;
    int rc = cuda__need_f32(b, all, SH_ARRAY_LEN(all));

    if (!rc)
        rc = read_problem(b, DNN_BWD_DATA, op->out[0], op->in[1], op->in[0], &p);
    if (!rc)
        rc = attach_run(b, &p, 0, run_bwd_data);
    if (!rc)
        rc = cuda__in(b, 0, nhwc);
    if (!rc)
        rc = cuda__in(b, 1, nhwc);
    return rc ? rc : cuda__out(b, 0, nhwc);
}

static int run_bwd_weight(const struct cuda_call *c, struct sh_err *err)
{
    struct conv_op *o = c->aux;
    const struct conv_problem *p = &o->p;
    const struct conv_args a = {.x = (unsigned char *)c->in[0] + o->x_off,
                                .y = (unsigned char *)c->in[1] + o->y_off,
                                .w = c->out[0],
                                .scratch = c->scratch};
    int rc = cuda__conv_run(c->dev, p, o->m, &o->pack, &a, err);

    if (rc)
        return rc;
    if (c->out[1])
        k_column_sums(c->stream, (int)p->type, a.y, p->y[0] * p->y[2] * p->y[3], p->y[1],
                      a.scratch + cuda__conv_scratch(o->m), c->out[1]);
    return cuda__launched(c, err);
}

int cuda__conv_bwd_weight(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t d_bias = cuda__opt_out(op, 1);
    const uint32_t all[] = {op->in[0], op->in[1], op->out[0], d_bias};
    const struct cuda_form nhwc = {.type = b->plan->compute, .layout = CUDA_NHWC};
    struct conv_problem p;
    struct conv_op *o;
    int rc = cuda__need_f32(b, all, SH_ARRAY_LEN(all));

    if (!rc)
        rc = read_problem(b, DNN_BWD_WEIGHT, op->in[0], op->out[0], op->in[1], &p);
    if (rc)
        return rc;
    if (d_bias != DEV_NONE && dev_tensor_elements(cuda__t(b, d_bias)) != p.y[1])
        return cuda__refuse(b, SH_E_BUG, "the bias gradient does not have one value per channel");
    rc = attach_run(b, &p, d_bias == DEV_NONE ? 0 : k_column_sums_scratch(p.y[1]), run_bwd_weight);
    if (rc)
        return rc;
    o = b->co->aux;
    rc = cuda__in_samples(b, 0, nhwc, op->u.conv.first, p.x[0], &o->x_off);
    if (!rc)
        rc = cuda__in_samples(b, 1, nhwc, op->u.conv.first, p.y[0], &o->y_off);
    if (!rc)
        rc = cuda__out(b, 0, nhwc);
    return rc ? rc : cuda__out(b, 1, cuda__plain(CUDA_T_F32));
}
