/* cudnn_graph.c - descriptors in, plans out. */
#include "runtime/device/cuda/cudnn_graph.h"

#include "common/mem.h"
#include "runtime/device/cuda/cuda.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ALIGNMENT 16 /* of every tensor, bytes */
#define MAX_DESCS 24 /* 8 tensors, 4 operations and what describes them */
#define UID(role) ((int64_t)(role) + 1)
#define FIRST_VIRTUAL 100
#define MAX_KNOBS CUDNN_KNOB_TYPE_COUNTS

struct dnn_graph {
    cudnnBackendDescriptor_t desc; /* one of all[] */
    cudnnBackendDescriptor_t all[MAX_DESCS];
    int n;
};

/* Descriptors being made: after the first failure nothing more happens. */
struct make {
    struct dnn_graph *g;
    cudnnStatus_t st;
    cudnnBackendDescriptor_t ops[4];
    int n_ops;
    int64_t next_virtual;
};

static void put_attribute(struct make *m, cudnnBackendDescriptor_t d,
                          cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t n, const void *p)
{
    if (m->st == CUDNN_STATUS_SUCCESS)
        m->st = cudnnBackendSetAttribute(d, name, type, n, p);
}

static void finish_desc(struct make *m, cudnnBackendDescriptor_t d)
{
    if (m->st == CUDNN_STATUS_SUCCESS)
        m->st = cudnnBackendFinalize(d);
}

/* The graph owns it. */
static cudnnBackendDescriptor_t add_desc(struct make *m, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    if (m->st == CUDNN_STATUS_SUCCESS && m->g->n == MAX_DESCS)
        m->st = CUDNN_STATUS_INTERNAL_ERROR;
    if (m->st == CUDNN_STATUS_SUCCESS)
        m->st = cudnnBackendCreateDescriptor(type, &d);
    if (m->st == CUDNN_STATUS_SUCCESS)
        m->g->all[m->g->n++] = d;
    return d;
}

static void put_desc(struct make *m, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t value)
{
    put_attribute(m, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static cudnnBackendDescriptor_t add_tensor_desc(struct make *m, int64_t uid, const int64_t dims[4],
                                                cudnnDataType_t type, bool is_virtual)
{
    const int64_t c = dims[1], w = dims[3], h = dims[2], align = ALIGNMENT;
    const int64_t strides[4] = {h * w * c, 1, w * c, c};
    cudnnBackendDescriptor_t t = add_desc(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    put_attribute(m, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    put_attribute(m, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    put_attribute(m, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    put_attribute(m, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    put_attribute(m, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (is_virtual)
        put_attribute(m, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    finish_desc(m, t);
    return t;
}

static cudnnBackendDescriptor_t window(struct make *m, const struct dnn_conv *c)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t n = 2;
    cudnnBackendDescriptor_t d = add_desc(m, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

    put_attribute(m, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    put_attribute(m, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    put_attribute(m, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n);
    put_attribute(m, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad_begin);
    put_attribute(m, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad_end);
    put_attribute(m, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c->dilation);
    put_attribute(m, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->stride);
    finish_desc(m, d);
    return d;
}

struct conv_names { /* attributes of the operation of one pass */
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
};

static const struct conv_names NAMES[] = {
    [DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    [DNN_BWD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    [DNN_BWD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

/* y_is_last: the result is the graph's; else a virtual tensor in F32. Returns its descriptor. */
static cudnnBackendDescriptor_t add_conv(struct make *m, const struct dnn_conv *c, bool y_is_last)
{
    const struct conv_names *n = &NAMES[c->pass];
    const float one = 1.0f, zero = 0.0f;
    cudnnBackendDescriptor_t x = add_tensor_desc(m, UID(DNN_X), c->x, c->type, false);
    cudnnBackendDescriptor_t w = add_tensor_desc(m, UID(DNN_W), c->w, c->type, false);
    cudnnBackendDescriptor_t y =
        y_is_last ? add_tensor_desc(m, UID(DNN_Y), c->y, c->type, false)
                  : add_tensor_desc(m, m->next_virtual++, c->y, CUDNN_DATA_FLOAT, true);
    cudnnBackendDescriptor_t conv = window(m, c), op = add_desc(m, n->op);

    put_desc(m, op, n->conv, conv);
    put_desc(m, op, n->x, x);
    put_desc(m, op, n->w, w);
    put_desc(m, op, n->y, y);
    put_attribute(m, op, n->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    put_attribute(m, op, n->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finish_desc(m, op);
    m->ops[m->n_ops++] = op;
    return y;
}

static cudnnBackendDescriptor_t pointwise(struct make *m, const struct dnn_conv *c,
                                          cudnnPointwiseMode_t mode)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    const double upper = c->upper < (double)FLT_MAX ? c->upper : (double)FLT_MAX;
    cudnnBackendDescriptor_t d = add_desc(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);

    put_attribute(m, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    put_attribute(m, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
        put_attribute(m, d, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1,
                      &nan);
        put_attribute(m, d, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 1, &c->lower);
        put_attribute(m, d, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, 1, &upper);
        put_attribute(m, d, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1,
                      &c->slope);
    }
    finish_desc(m, d);
    return d;
}

/* y = mode(x [, factor * b]); b: NULL for one operand. Returns y. */
static cudnnBackendDescriptor_t add_pointwise(struct make *m, const struct dnn_conv *c,
                                              cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
                                              cudnnBackendDescriptor_t b, float factor,
                                              bool is_last)
{
    const float one = 1.0f;
    cudnnBackendDescriptor_t y =
        is_last ? add_tensor_desc(m, UID(DNN_Y), c->y, c->type, false)
                : add_tensor_desc(m, m->next_virtual++, c->y, CUDNN_DATA_FLOAT, true);
    cudnnBackendDescriptor_t d = pointwise(m, c, mode);
    cudnnBackendDescriptor_t op = add_desc(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

    put_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    put_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        put_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    put_desc(m, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    put_attribute(m, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    if (b)
        put_attribute(m, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &factor);
    finish_desc(m, op);
    m->ops[m->n_ops++] = op;
    return y;
}

uint32_t dnn_roles(const struct dnn_conv *c)
{
    return 1u << DNN_X | 1u << DNN_W | 1u << DNN_Y | (c->has_z ? 1u << DNN_Z : 0) |
           (c->has_bias ? 1u << DNN_BIAS : 0);
}

bool dnn_graph_new(cudnnHandle_t h, const struct dnn_conv *c, struct dnn_graph **out)
{
    const int64_t bias_dims[4] = {1, c->y[1], 1, 1};
    struct make m = {
        .g = calloc(1, sizeof(*m.g)), .st = CUDNN_STATUS_SUCCESS, .next_virtual = FIRST_VIRTUAL};
    cudnnBackendDescriptor_t at, d;

    *out = NULL;
    if (!m.g)
        return false;
    /* Addend before bias: the order in which the precompiled fused engines know them. */
    at = add_conv(&m, c, !c->has_z && !c->has_bias && !c->has_act);
    if (c->has_z) {
        d = add_tensor_desc(&m, UID(DNN_Z), c->y, c->type, false);
        at = add_pointwise(&m, c, CUDNN_POINTWISE_ADD, at, d, c->z_factor,
                           !c->has_bias && !c->has_act);
    }
    if (c->has_bias) {
        d = add_tensor_desc(&m, UID(DNN_BIAS), bias_dims, c->type, false);
        at = add_pointwise(&m, c, CUDNN_POINTWISE_ADD, at, d, 1.0f, !c->has_act);
    }
    if (c->has_act)
        add_pointwise(&m, c, c->act, at, NULL, 0, true);
    m.g->desc = add_desc(&m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    put_attribute(&m, m.g->desc, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  m.n_ops, m.ops);
    put_attribute(&m, m.g->desc, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
    finish_desc(&m, m.g->desc);
    if (m.st != CUDNN_STATUS_SUCCESS) {
        dnn_graph_free(m.g);
        return false;
    }
    *out = m.g;
    return true;
}

void dnn_graph_free(struct dnn_graph *g)
{
    if (!g)
        return;
    while (g->n > 0)
        cudnnBackendDestroyDescriptor(g->all[--g->n]);
    free(g);
}

/* ------------------------------------------------------------------ configs */

static cudnnBackendDescriptor_t make_desc(cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    return cudnnBackendCreateDescriptor(type, &d) == CUDNN_STATUS_SUCCESS ? d : NULL;
}

static void drop_desc(cudnnBackendDescriptor_t d)
{
    if (d)
        cudnnBackendDestroyDescriptor(d);
}

void dnn_config_free(cudnnBackendDescriptor_t config)
{
    drop_desc(config);
}

/* The engine of a config: OWNED; NULL on failure. */
static cudnnBackendDescriptor_t engine_of(cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t e = make_desc(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t n = 0;

    if (e &&
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &e) == CUDNN_STATUS_SUCCESS)
        return e;
    drop_desc(e);
    return NULL;
}

static bool is_compiled(cudnnBackendDescriptor_t engine)
{
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0;
    bool is =
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                 CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n, notes) != CUDNN_STATUS_SUCCESS;

    for (int64_t i = 0; i < n && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT && !is; i++)
        is = notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    return is;
}

static bool is_banned(cudnnBackendDescriptor_t config, uint32_t banned, bool may_compile)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t e = engine_of(config);
    int64_t n = 0;
    bool is = !e || cudnnBackendGetAttribute(
                        e, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes) != CUDNN_STATUS_SUCCESS;

    for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT && !is; i++)
        is = (banned & DNN_NOTE(notes[i])) != 0;
    is = is || (!may_compile && is_compiled(e));
    drop_desc(e);
    return is;
}

static cudnnBackendDescriptor_t ask_heuristics(const struct dnn_graph *g,
                                               cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t h = make_desc(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);

    if (h &&
        cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &g->desc) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) ==
            CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(h) == CUDNN_STATUS_SUCCESS)
        return h;
    drop_desc(h);
    return NULL;
}

int dnn_configs(const struct dnn_graph *g, cudnnBackendHeurMode_t mode, uint32_t banned,
                bool may_compile, cudnnBackendDescriptor_t out[static DNN_MAX_CONFIGS])
{
    cudnnBackendDescriptor_t h = ask_heuristics(g, mode), all[DNN_MAX_CONFIGS];
    int64_t n = 0, got = 0;
    int made = 0, kept = 0;

    if (!h ||
        cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                 &n, NULL) != CUDNN_STATUS_SUCCESS)
        n = 0;
    n = SH_MIN(n, DNN_MAX_CONFIGS);
    while (made < n && (all[made] = make_desc(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)))
        made++;
    if (made == 0 ||
        cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 made, &got, all) != CUDNN_STATUS_SUCCESS)
        got = 0;
    for (int i = 0; i < made; i++) {
        if (i < got && !is_banned(all[i], banned, may_compile))
            out[kept++] = all[i];
        else
            drop_desc(all[i]);
    }
    drop_desc(h);
    return kept;
}

/* ------------------------------------------------------------------ plans */

/* After whatever a plan is made from has been set: finalizes it. On failure *p is empty. */
static bool complete_plan(struct dnn_plan *p, bool is_set, size_t max_workspace)
{
    int64_t bytes = 0, n = 0;

    if (is_set && cudnnBackendFinalize(p->desc) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(p->desc, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &n, &bytes) == CUDNN_STATUS_SUCCESS &&
        bytes >= 0 && (uint64_t)bytes <= max_workspace) {
        p->workspace_bytes = (size_t)bytes;
        return true;
    }
    dnn_plan_fini(p);
    return false;
}

bool dnn_plan_new(cudnnBackendDescriptor_t config, size_t max_workspace, struct dnn_plan *out)
{
    int64_t bytes = 0, n = 0;
    bool is_set = true;

    *out = (struct dnn_plan){.config = config};
    /* The config knows its workspace already, and compiling takes long. */
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                 &n, &bytes) == CUDNN_STATUS_SUCCESS)
        is_set = bytes < 0 || (uint64_t)bytes <= max_workspace;
    if (is_set)
        out->desc = make_desc(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    is_set =
        out->desc && cudnnBackendSetAttribute(out->desc, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                              &out->config) == CUDNN_STATUS_SUCCESS;
    return complete_plan(out, is_set, max_workspace);
}

void dnn_plan_fini(struct dnn_plan *p)
{
    drop_desc(p->desc);
    drop_desc(p->config);
    *p = (struct dnn_plan){.desc = NULL};
}

bool dnn_plan_text(const struct dnn_plan *p, char out[static DNN_TEXT])
{
    cudnnBackendDescriptor_t e = engine_of(p->config), knobs[MAX_KNOBS];
    int64_t index = -1, n = 0, got = 0;
    int made = 0, len;
    bool ok = e && cudnnBackendGetAttribute(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                            &n, &index) == CUDNN_STATUS_SUCCESS;

    while (made < MAX_KNOBS && (knobs[made] = make_desc(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)))
        made++;
    ok = ok && cudnnBackendGetAttribute(p->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &got,
                                        knobs) == CUDNN_STATUS_SUCCESS;
    len = snprintf(out, DNN_TEXT, "%" PRId64, index);
    for (int i = 0; ok && i < got && i < made; i++) {
        cudnnBackendKnobType_t type;
        int64_t value;

        ok = cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                      CUDNN_TYPE_KNOB_TYPE, 1, &n, &type) == CUDNN_STATUS_SUCCESS &&
             cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64,
                                      1, &n, &value) == CUDNN_STATUS_SUCCESS;
        if (ok)
            len += snprintf(out + len, DNN_TEXT - (size_t)len, "%c%d=%" PRId64, i ? ',' : ':',
                            (int)type, value);
        ok = ok && len < DNN_TEXT;
    }
    while (made > 0)
        drop_desc(knobs[--made]);
    drop_desc(e);
    return ok;
}

bool dnn_plan_save(const struct dnn_plan *p, void **out, size_t *bytes)
{
    int64_t n = 0, got = 0;

    *out = NULL;
    *bytes = 0;
    if (cudnnBackendGetAttribute(p->desc, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, 0, &n, NULL) != CUDNN_STATUS_SUCCESS ||
        n < 1)
        return false;
    *out = malloc((size_t)n);
    if (*out &&
        cudnnBackendGetAttribute(p->desc, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, n, &got, *out) == CUDNN_STATUS_SUCCESS &&
        got >= 1 && got <= n) {
        *bytes = (size_t)got;
        return true;
    }
    free(*out);
    *out = NULL;
    return false;
}

bool dnn_plan_load(cudnnHandle_t h, const void *saved, size_t bytes, size_t max_workspace,
                   struct dnn_plan *out)
{
    bool is_set;

    *out = (struct dnn_plan){.desc = make_desc(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
    is_set =
        out->desc &&
        cudnnBackendSetAttribute(out->desc, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, (int64_t)bytes, saved) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(out->desc, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                 &h) == CUDNN_STATUS_SUCCESS;
    return complete_plan(out, is_set, max_workspace);
}

/* ------------------------------------------------------------------ running */

static cudnnStatus_t repack(struct dnn_pack *pack, uint32_t roles,
                            void *const at[static DNN_N_ROLES], void *workspace)
{
    int64_t uids[DNN_N_ROLES];
    void *ptrs[DNN_N_ROLES];
    int64_t n = 0;
    cudnnStatus_t st;

    dnn_pack_fini(pack);
    for (int r = 0; r < DNN_N_ROLES; r++)
        if (roles & 1u << r) {
            uids[n] = UID(r);
            ptrs[n++] = at[r];
        }
    st = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack->desc);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendSetAttribute(pack->desc, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                      CUDNN_TYPE_VOID_PTR, n, ptrs);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendSetAttribute(pack->desc, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                      CUDNN_TYPE_INT64, n, uids);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendSetAttribute(pack->desc, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                      CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendFinalize(pack->desc);
    if (st != CUDNN_STATUS_SUCCESS) {
        dnn_pack_fini(pack);
        return st;
    }
    memcpy(pack->at, at, sizeof(pack->at));
    pack->workspace = workspace;
    return st;
}

int dnn_run(cudnnHandle_t h, const struct dnn_plan *p, struct dnn_pack *pack, uint32_t roles,
            void *const at[static DNN_N_ROLES], void *workspace, struct sh_err *err)
{
    cudnnStatus_t st = CUDNN_STATUS_SUCCESS;

    if (!pack->desc || pack->workspace != workspace || memcmp(pack->at, at, sizeof(pack->at)) != 0)
        st = repack(pack, roles, at, workspace);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnBackendExecute(h, p->desc, pack->desc);
    return st == CUDNN_STATUS_SUCCESS ? SH_OK : cuda__check_dnn(st, "run a convolution", err);
}

void dnn_pack_fini(struct dnn_pack *pack)
{
    drop_desc(pack->desc);
    pack->desc = NULL;
}
