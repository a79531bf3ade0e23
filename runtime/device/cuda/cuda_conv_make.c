/* cuda_conv_make.c - which methods there are for a problem. */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_conv.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WIDE 8 /* channels that matrix units load at once in 16 bits */
#define WIDE_F32 4

static const char *const HOW_NAMES[CONV_N_HOWS] = {"full", "linear", "bare", "gemm", "own"};
static const char *const PASS_NAMES[] = {"fwd", "dx", "dw"};
static const char *const TYPE_NAMES[] = {
    [CUDA_T_F32] = "f32", [CUDA_T_F16] = "f16", [CUDA_T_BF16] = "bf16"};

void cuda__conv_key(const struct cuda_dev *d, const struct conv_problem *p,
                    char out[static CONV_KEY])
{
    const int64_t *x = p->x, *w = p->w, *y = p->y;

    snprintf(out, CONV_KEY,
             "conv-%s:%s%s%s:x%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 ":w%" PRId64 "x%" PRId64
             "x%" PRId64 "x%" PRId64 ":y%" PRId64 "x%" PRId64 ":s%" PRId64 "x%" PRId64 ":d%" PRId64
             "x%" PRId64 ":p%" PRId64 "x%" PRId64 "+%" PRId64 "x%" PRId64
             ":b%dz%d:%s,%.9g,%.9g:raw%d%d%d:v%d",
             PASS_NAMES[p->pass], TYPE_NAMES[p->type],
             p->type == CUDA_T_F32 && !p->is_strict ? "t" : "", d->deterministic ? "d" : "", x[0],
             x[1], x[2], x[3], w[0], w[1], w[2], w[3], y[2], y[3], p->stride[0], p->stride[1],
             p->dilation[0], p->dilation[1], p->pad_begin[0], p->pad_begin[1], p->pad_end[0],
             p->pad_end[1], p->has_bias, p->has_z, dev_act_name(p->act), (double)p->p0,
             (double)p->p1, p->is_raw, p->is_raw ? (int)p->raw_type : 0, p->raw_is_plain,
             p->variant);
}

/* ------------------------------------------------------------------ what fits */

/* The activation as cuDNN has it; false: it has not. */
static bool map_act(const struct conv_problem *p, struct dnn_conv *c)
{
    c->has_act = true;
    c->lower = 0;
    c->upper = DBL_MAX;
    c->slope = 0;
    c->act = CUDNN_POINTWISE_RELU_FWD;
    switch (p->act) {
    case DEV_ACT_RELU:
        return true;
    case DEV_ACT_LEAKY_RELU:
        c->slope = (double)p->p0;
        return isfinite(p->p0);
    case DEV_ACT_CLIP:
        c->lower = (double)p->p0;
        c->upper = (double)p->p1;
        return isfinite(p->p0) && !isnan(p->p1);
    case DEV_ACT_SIGMOID:
        c->act = CUDNN_POINTWISE_SIGMOID_FWD;
        return true;
    case DEV_ACT_TANH:
        c->act = CUDNN_POINTWISE_TANH_FWD;
        return true;
    case DEV_ACT_GELU_ERF:
        c->act = CUDNN_POINTWISE_GELU_FWD;
        return true;
    case DEV_ACT_GELU_TANH:
        c->act = CUDNN_POINTWISE_GELU_APPROX_TANH_FWD;
        return true;
    case DEV_ACT_SILU:
        c->act = CUDNN_POINTWISE_SWISH_FWD; /* its beta is 1 unless it is set */
        return true;
    default:
        return false;
    }
}

/* cuDNN 9.19 reads behind x when the weight's gradient is asked for and the paddings differ: its
 * result then holds what lies there. */
static bool is_read_behind(const struct conv_problem *p)
{
    return p->pass == DNN_BWD_WEIGHT &&
           (p->pad_begin[0] != p->pad_end[0] || p->pad_begin[1] != p->pad_end[1]);
}

/* Can it be solved so at all? */
static bool fits_problem(const struct conv_problem *p, enum conv_how how, int64_t padded)
{
    const bool has_act = p->act != DEV_ACT_NONE;
    struct dnn_conv c = {.has_act = false};

    switch (how) {
    case CONV_FULL:
        return !is_read_behind(p) && (!has_act || map_act(p, &c));
    case CONV_LINEAR:
        return has_act && (p->has_bias || p->has_z);
    case CONV_BARE:
        return has_act || p->has_bias || p->has_z;
    case CONV_GEMM:
        return padded == 0 && cuda__conv_gemm_fits(p);
    case CONV_OWN:
        return true;
    default:
        return false;
    }
}

int cuda__conv_widths(const struct conv_problem *p, int64_t out[static 4])
{
    const int64_t c = p->x[1], wide = p->type == CUDA_T_F32 ? WIDE_F32 : WIDE;
    int n = 0;

    if (p->pass == DNN_FORWARD && p->groups == 1 && c < wide && !p->is_strict) {
        out[n++] = wide;
        if (c < WIDE_F32 && wide > WIDE_F32)
            out[n++] = WIDE_F32;
    }
    out[n++] = p->is_raw ? c : 0;
    return n;
}

static void describe_dnn_conv(const struct conv_problem *p, enum conv_how how, int64_t padded,
                              struct dnn_conv *c)
{
    *c = (struct dnn_conv){.pass = p->pass,
                           .type = p->type == CUDA_T_F16    ? CUDNN_DATA_HALF
                                   : p->type == CUDA_T_BF16 ? CUDNN_DATA_BFLOAT16
                                                            : CUDNN_DATA_FLOAT,
                           .z_factor = 1.0f};
    memcpy(c->x, p->x, sizeof(c->x));
    memcpy(c->w, p->w, sizeof(c->w));
    memcpy(c->y, p->y, sizeof(c->y));
    memcpy(c->stride, p->stride, sizeof(c->stride));
    memcpy(c->dilation, p->dilation, sizeof(c->dilation));
    memcpy(c->pad_begin, p->pad_begin, sizeof(c->pad_begin));
    memcpy(c->pad_end, p->pad_end, sizeof(c->pad_end));
    if (padded)
        c->x[1] = c->w[1] = padded;
    c->has_bias = p->has_bias && how != CONV_BARE;
    c->has_z = p->has_z && how != CONV_BARE;
    if (how == CONV_FULL && p->act != DEV_ACT_NONE)
        map_act(p, c);
}

static uint32_t banned_notes(const struct cuda_dev *d, const struct conv_problem *p,
                             bool may_be_slow)
{
    uint32_t notes = DNN_NOTE(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) |
                     DNN_NOTE(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) |
                     DNN_NOTE(CUDNN_NUMERICAL_NOTE_FFT) | DNN_NOTE(CUDNN_NUMERICAL_NOTE_WINOGRAD);

    if (p->is_strict)
        notes |= DNN_NOTE(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    if (d->deterministic)
        notes |= DNN_NOTE(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    /* Only the engine that takes every problem promises this, and it is the slowest by far. */
    if (!may_be_slow)
        notes |= DNN_NOTE(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP);
    return notes;
}

/* ------------------------------------------------------------------ methods */

static struct conv_method *method_new(const struct conv_problem *p, enum conv_how how,
                                      int64_t padded)
{
    const size_t item = cuda__type_bytes(p->type), align = DEV_ALIGN;
    struct conv_method *m = calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->refs = 1;
    m->how = how;
    m->padded = padded;
    m->fused = CONV_FUSED_BIAS | CONV_FUSED_Z | CONV_FUSED_ACT;
    if (how == CONV_LINEAR)
        m->fused = CONV_FUSED_BIAS | CONV_FUSED_Z;
    else if (how == CONV_BARE)
        m->fused = 0;
    else if (how == CONV_GEMM)
        m->fused = cuda__conv_gemm_fused(p);
    if (padded)
        m->x_bytes = SH_ALIGN_UP((size_t)(p->x[0] * p->x[2] * p->x[3] * padded) * item, align);
    if (padded && padded != p->x[1])
        m->w_bytes = SH_ALIGN_UP((size_t)(p->w[0] * p->w[2] * p->w[3] * padded) * item, align);
    return m;
}

void cuda__conv_drop(struct conv_method *m)
{
    if (!m || --m->refs > 0)
        return;
    dnn_plan_fini(&m->plan);
    cuda__conv_gemm_fini(&m->gemm);
    free(m);
}

size_t cuda__conv_scratch(const struct conv_method *m)
{
    return SH_ALIGN_UP(m->lib_bytes, (size_t)DEV_ALIGN) + m->x_bytes + m->w_bytes;
}

struct k_conv cuda__conv_direct(const struct conv_problem *p, int64_t padded)
{
    return (struct k_conv){.n = p->x[0],
                           .h = p->x[2],
                           .w = p->x[3],
                           .c = padded ? padded : p->x[1],
                           .m = p->y[1],
                           .r = p->w[2],
                           .s = p->w[3],
                           .p = p->y[2],
                           .q = p->y[3],
                           .groups = p->groups,
                           .stride = {p->stride[0], p->stride[1]},
                           .dilation = {p->dilation[0], p->dilation[1]},
                           .pad = {p->pad_begin[0], p->pad_begin[1]},
                           .tf32 = !p->is_strict};
}

/* Variants are numbered from 1 to what this returns; 0: there is no choice. */
static int variants_of(const struct conv_problem *p, int64_t padded)
{
    const struct k_conv k = cuda__conv_direct(p, padded);

    return p->pass == DNN_FORWARD && k_conv_has_variants(&k, (int)p->type) ? K_DW_N - 1 : 0;
}

struct conv_method *cuda__conv_own(const struct conv_problem *p, int64_t padded, int variant)
{
    const struct k_conv k = cuda__conv_direct(p, padded);
    struct conv_method *m = method_new(p, CONV_OWN, padded);

    if (m)
        m->variant = variant <= variants_of(p, padded) ? variant : 0;
    if (m && p->pass == DNN_BWD_WEIGHT)
        m->lib_bytes = k_conv_bwd_weight_scratch(&k, (int)p->type);
    return m;
}

/* TAKES plan. */
static struct conv_method *of_plan(const struct conv_problem *p, enum conv_how how, int64_t padded,
                                   struct dnn_plan *plan)
{
    struct conv_method *m = method_new(p, how, padded);
    struct dnn_conv c;

    if (!m) {
        dnn_plan_fini(plan);
        return NULL;
    }
    describe_dnn_conv(p, how, padded, &c);
    m->plan = *plan;
    m->roles = dnn_roles(&c);
    m->lib_bytes = plan->workspace_bytes;
    return m;
}

/* TAKES gemm. */
static struct conv_method *of_gemm(const struct conv_problem *p, struct conv_gemm *gemm)
{
    struct conv_method *m = method_new(p, CONV_GEMM, 0);

    if (!m) {
        cuda__conv_gemm_fini(gemm);
        return NULL;
    }
    m->gemm = *gemm;
    m->lib_bytes = gemm->workspace_bytes;
    return m;
}

static bool each_gemm(struct cuda_dev *d, const struct conv_problem *p, const struct conv_search *s,
                      conv_visit *visit, void *ctx)
{
    struct conv_gemm found[16];
    int n = cuda__conv_gemm_list(d, p, s->max_workspace, found,
                                 SH_MIN(s->limit, (int)SH_ARRAY_LEN(found)));
    bool enough = false;

    for (int i = 0; i < n; i++) {
        struct conv_method *m = enough ? NULL : of_gemm(p, &found[i]);

        if (enough)
            cuda__conv_gemm_fini(&found[i]);
        else if (m)
            enough = visit(ctx, m);
    }
    return enough;
}

/* By one heuristic; *n counts the methods. */
static bool each_config(struct cuda_dev *d, const struct conv_problem *p,
                        const struct conv_search *s, const struct dnn_graph *g,
                        cudnnBackendHeurMode_t mode, conv_visit *visit, void *ctx, int *n)
{
    cudnnBackendDescriptor_t configs[DNN_MAX_CONFIGS];
    int found = dnn_configs(g, mode, banned_notes(d, p, s->may_be_slow), s->may_compile, configs);
    bool enough = false;

    for (int i = 0; i < found; i++) {
        struct conv_method *m;
        struct dnn_plan plan;

        if (enough || *n == s->limit) {
            dnn_config_free(configs[i]);
            continue;
        }
        if (!dnn_plan_new(configs[i], s->max_workspace, &plan))
            continue;
        m = of_plan(p, s->how, s->padded, &plan);
        if (m) {
            ++*n;
            enough = visit(ctx, m);
        }
    }
    return enough;
}

static bool each_plan(struct cuda_dev *d, const struct conv_problem *p, const struct conv_search *s,
                      conv_visit *visit, void *ctx)
{
    static const cudnnBackendHeurMode_t MODES[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    struct dnn_graph *g = NULL;
    struct dnn_conv c;
    bool enough = false;
    int n = 0;

    describe_dnn_conv(p, s->how, s->padded, &c);
    if (!dnn_graph_new(d->cudnn, &c, &g))
        return false;
    for (size_t i = 0; i < SH_ARRAY_LEN(MODES) && n == 0 && !enough; i++)
        enough = each_config(d, p, s, g, MODES[i], visit, ctx, &n);
    dnn_graph_free(g);
    return enough;
}

static bool each_own(const struct conv_problem *p, const struct conv_search *s, conv_visit *visit,
                     void *ctx)
{
    const int n = variants_of(p, s->padded);
    bool enough = false;

    for (int v = n > 0; v <= n && !enough; v++) {
        struct conv_method *m = cuda__conv_own(p, s->padded, v);

        enough = m && visit(ctx, m);
    }
    return enough;
}

bool cuda__conv_each(struct cuda_dev *d, const struct conv_problem *p, const struct conv_search *s,
                     conv_visit *visit, void *ctx)
{
    if (!fits_problem(p, s->how, s->padded))
        return false;
    if (s->how == CONV_GEMM)
        return each_gemm(d, p, s, visit, ctx);
    return s->how == CONV_OWN ? each_own(p, s, visit, ctx) : each_plan(d, p, s, visit, ctx);
}

/* ------------------------------------------------------------------ kept in a file */

void cuda__conv_save(const struct conv_method *m, int n_tried, char *text, size_t size, void **blob,
                     size_t *bytes)
{
    char engine[DNN_TEXT] = "";

    *blob = NULL;
    *bytes = 0;
    if (m->how == CONV_GEMM) {
        *blob = malloc(sizeof(m->gemm.algo));
        if (*blob) {
            memcpy(*blob, &m->gemm.algo, sizeof(m->gemm.algo));
            *bytes = sizeof(m->gemm.algo);
        }
    } else if (m->how != CONV_OWN) {
        if (!dnn_plan_text(&m->plan, engine))
            engine[0] = 0;
        (void)dnn_plan_save(&m->plan, blob, bytes);
    }
    snprintf(text, size, "%s pad=%" PRId64 " variant=%d ns=%.0f ws=%zu of=%d %s", HOW_NAMES[m->how],
             m->padded, m->variant, m->ns, m->lib_bytes, n_tried, engine);
}

static bool parse_method(const struct conv_problem *p, const char *text, enum conv_how *how,
                         int64_t *padded, int *variant)
{
    int64_t widths[4];
    char name[16];
    int n = cuda__conv_widths(p, widths), h = 0;

    if (sscanf(text, "%15s pad=%" SCNd64 " variant=%d", name, padded, variant) != 3)
        return false;
    while (h < CONV_N_HOWS && strcmp(name, HOW_NAMES[h]) != 0)
        h++;
    while (n > 0 && widths[n - 1] != *padded)
        n--;
    *how = (enum conv_how)h;
    return n > 0 && fits_problem(p, *how, *padded) && *variant >= 0 &&
           *variant <= variants_of(p, *padded);
}

struct conv_method *cuda__conv_load(struct cuda_dev *d, const struct conv_problem *p,
                                    const char *text, const void *blob, size_t bytes)
{
    struct conv_gemm gemm;
    struct dnn_plan plan;
    enum conv_how how;
    int64_t padded;
    int variant;

    if (!parse_method(p, text, &how, &padded, &variant))
        return NULL;
    if (how == CONV_OWN)
        return cuda__conv_own(p, padded, variant);
    if (!blob)
        return NULL;
    if (how == CONV_GEMM)
        return cuda__conv_gemm_load(d, p, blob, bytes, &gemm) ? of_gemm(p, &gemm) : NULL;
    return dnn_plan_load(d->cudnn, blob, bytes, CONV_MAX_WORKSPACE, &plan)
               ? of_plan(p, how, padded, &plan)
               : NULL;
}
