/* onnx_unfold.c - see onnx_unfold.h. */
#include "runtime/model/onnx_unfold.h"

#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_reader.h"
#include "runtime/model/onnx_tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MIN_DRAWN 64u /* numbers of which the largest is near the end of their range */
#define MAX_CHANNELS (1 << 20)

enum part { WEIGHT, BIAS, MEAN, VARIANCE, N_PARTS };

static const char *const PARTS[N_PARTS] = {"weight", "bias", "running_mean", "running_var"};

/* One norm: what the metadata say of it. */
struct norm {
    float epsilon, momentum; /* of ONNX: what stays of the old */
    char module[256];
};

struct unfold {
    Onnx__GraphProto *g;
    struct onnx_source *source;
    struct names names; /* of initializers, to their number */
    uint32_t *uses;     /* of each of the n_before that the file has */
    size_t n_before;
    size_t cap;
    Onnx__NodeProto **nodes; /* the new list, long enough */
    size_t n_nodes;
    uint32_t back, lost;
    struct sh_err *err;
};

/* ---------------------------------------------------------------- what the file says */

static bool was_folded(const Onnx__NodeProto *n)
{
    char *rules = onnx_meta(n, "pkg.onnxscript.rewriter.rule_name");
    bool was = rules && strstr(rules, "FuseBatchNorm");

    free(rules);
    return was;
}

/* "...batch_norm...(args = (%x, %weight, %bias, %mean, %var, 0.1, 1e-05), kwargs = {})"; with None
 * for its weight or bias it does not learn them, which BatchNormalization could not say. */
static bool read_norm_numbers(const char *call, struct norm *out)
{
    const char *end = strstr(call, "), kwargs"), *at = end;
    const char *none = strstr(call, ", None,");
    double epsilon, momentum;

    if (end && none && none < end)
        return false;
    for (int commas = 0; at && at > call && commas < 2; commas += *at == ',')
        at--;
    if (!end || sscanf(at, ", %lf, %lf)", &momentum, &epsilon) != 2)
        return false;
    out->epsilon = (float)epsilon;
    out->momentum = (float)(1 - momentum);
    return epsilon > 0 && epsilon < 1 && momentum >= 0 && momentum <= 1;
}

/* "['', 'layer1', 'layer1.0.bn1', 'batch_norm_3']": the one before the last is the module. */
static bool read_module(const char *scopes, struct norm *out)
{
    const char *end = strrchr(scopes, ','), *from;

    if (!end || end - scopes < 3 || end[-1] != '\'')
        return false;
    for (from = --end; from > scopes && from[-1] != '\'';)
        from--;
    if (end == from || (size_t)(end - from) >= sizeof(out->module))
        return false;
    memcpy(out->module, from, (size_t)(end - from));
    out->module[end - from] = '\0';
    return true;
}

static bool read_norm(const Onnx__NodeProto *n, struct norm *out)
{
    char *call = onnx_meta(n, "pkg.torch.onnx.fx_node");
    char *scopes = onnx_meta(n, "pkg.torch.onnx.name_scopes");
    bool ok = call && scopes && strstr(call, "batch_norm") && read_norm_numbers(call, out) &&
              read_module(scopes, out);

    free(call);
    free(scopes);
    return ok;
}

/* Input k of a node: an initializer of F32, of the file and not of a new norm, that nothing else
 * reads. */
static Onnx__TensorProto *own_input(struct unfold *u, const Onnx__NodeProto *n, size_t k)
{
    const char *name = n->n_input > k && n->input[k] ? n->input[k] : "";
    uint32_t i = name[0] ? names_get(&u->names, name) : NAMES_NONE;
    Onnx__TensorProto *t = i == NAMES_NONE ? NULL : u->g->initializer[i];

    return t && i < u->n_before && u->uses[i] == 1 && t->data_type == sh_dtype_onnx(SH_F32) ? t
                                                                                            : NULL;
}

static bool has_bias(const Onnx__NodeProto *n)
{
    return n->n_input > 2 && n->input[2] && n->input[2][0];
}

/* What may have had a new norm: its weights and bias can be changed, the names are free. */
static bool can_have_norm(struct unfold *u, const Onnx__NodeProto *n, const struct norm *norm)
{
    const Onnx__TensorProto *w = own_input(u, n, 1);
    char full[320];

    if (!n->op_type || strcmp(n->op_type, "Conv") != 0 || !reader_is_standard(n->domain) ||
        n->n_output != 1 || !w || w->n_dims < 3 || w->dims[0] < 1 ||
        (has_bias(n) && !own_input(u, n, 2)))
        return false;
    for (int k = 0; k < N_PARTS; k++) {
        snprintf(full, sizeof(full), "%s.%s", norm->module, PARTS[k]);
        if (names_get(&u->names, full) != NAMES_NONE)
            return false;
    }
    return true;
}

static size_t count_elements(const Onnx__TensorProto *t)
{
    return t->raw_data.len / sizeof(float);
}

static float *tensor_floats(const Onnx__TensorProto *t)
{
    return (float *)(void *)t->raw_data.data;
}

static double largest_float(const Onnx__TensorProto *t)
{
    double most = 0;

    for (size_t i = 0; i < count_elements(t); i++)
        most = fabs((double)tensor_floats(t)[i]) >= most ? fabs((double)tensor_floats(t)[i]) : most;
    return most;
}

/* b: NULL without one. Weights of zeros are those of a norm that began with zeros. */
static bool is_new(const Onnx__TensorProto *w, const Onnx__TensorProto *b)
{
    const double most = largest_float(w);
    const double range =
        1 / sqrt((double)SH_MAX(count_elements(w), (size_t)1) / (double)w->dims[0]);

    if (!b)
        return most > 0;
    return count_elements(w) >= MIN_DRAWN && most > 0.95 * range && most < 1.0001 * range &&
           largest_float(b) < 1.0001 * range;
}

/* ---------------------------------------------------------------- the norm again */

static void scale_tensor(Onnx__TensorProto *t, double by)
{
    for (size_t i = 0; i < count_elements(t); i++)
        tensor_floats(t)[i] = (float)(tensor_floats(t)[i] * by);
}

/* An initializer of equal numbers, <module>.<part>. */
static int add_vector(struct unfold *u, const char *module, const char *part, int64_t channels,
                      float fill)
{
    Onnx__TensorProto *t = calloc(1, sizeof(*t));
    float *x = malloc((size_t)channels * sizeof(*x));
    int rc = SH_OK;

    if (t)
        onnx__tensor_proto__init(t);
    if (t && x && (t->dims = malloc(sizeof(*t->dims)))) {
        for (int64_t i = 0; i < channels; i++)
            x[i] = fill;
        t->n_dims = 1;
        t->dims[0] = channels;
        t->has_data_type = t->has_raw_data = 1;
        t->data_type = sh_dtype_onnx(SH_F32);
        t->raw_data = (ProtobufCBinaryData){(size_t)channels * sizeof(*x), (uint8_t *)x};
        x = NULL;
        rc = sh_asprintf(u->err, &t->name, "%s.%s", module, part);
    } else {
        rc = SH_FAIL(u->err, SH_E_NOMEM, "could not allocate an initializer");
    }
    if (!rc)
        rc = sh_grow(&u->g->initializer, &u->cap, u->g->n_initializer + 1,
                     sizeof(*u->g->initializer), GRAPH_MAX_VALUES, "values of a model", u->err);
    free(x);
    if (!rc)
        rc = names_put(&u->names, t->name, (uint32_t)u->g->n_initializer, u->err);
    if (rc && t)
        onnx__tensor_proto__free_unpacked(t, NULL);
    else if (!rc)
        u->g->initializer[u->g->n_initializer++] = t;
    return rc;
}

static Onnx__AttributeProto *float_attribute(const char *name, float f)
{
    Onnx__AttributeProto *a = malloc(sizeof(*a));

    if (!a)
        return NULL;
    onnx__attribute_proto__init(a);
    a->name = strdup(name);
    a->has_type = a->has_f = 1;
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    a->f = f;
    if (a->name)
        return a;
    free(a);
    return NULL;
}

/* The node, which reads what the convolution gives from now on. */
static Onnx__NodeProto *make_norm(const struct norm *norm, Onnx__NodeProto *conv)
{
    Onnx__NodeProto *n = malloc(sizeof(*n));
    bool ok = n != NULL;
    char text[512];

    if (!n)
        return NULL;
    onnx__node_proto__init(n);
    n->op_type = strdup("BatchNormalization");
    n->name = strdup(norm->module);
    n->input = calloc(1 + N_PARTS, sizeof(*n->input));
    n->output = calloc(1, sizeof(*n->output));
    n->attribute = calloc(2, sizeof(*n->attribute));
    ok = n->op_type && n->name && n->input && n->output && n->attribute;
    snprintf(text, sizeof(text), "%s.input", norm->module);
    for (size_t i = 0; ok && i <= N_PARTS; i++) {
        if (i > 0)
            snprintf(text, sizeof(text), "%s.%s", norm->module, PARTS[i - 1]);
        ok = (n->input[n->n_input++] = strdup(text)) != NULL;
    }
    for (int i = 0; ok && i < 2; i++) {
        Onnx__AttributeProto *a = i ? float_attribute("momentum", norm->momentum)
                                    : float_attribute("epsilon", norm->epsilon);

        ok = a != NULL;
        if (a)
            n->attribute[n->n_attribute++] = a;
    }
    if (!ok) {
        onnx__node_proto__free_unpacked(n, NULL);
        return NULL;
    }
    n->output[n->n_output++] = conv->output[0];
    conv->output[0] = strdup(n->input[0]);
    return n;
}

/* An exported file has the norm, so its convolution says no more that it lost it. */
static void forget_unknown(Onnx__NodeProto *n)
{
    for (size_t i = 0; i < n->base.n_unknown_fields; i++)
        free(n->base.unknown_fields[i].data);
    free(n->base.unknown_fields);
    n->base.unknown_fields = NULL;
    n->base.n_unknown_fields = 0;
}

static int add_norm(struct unfold *u, Onnx__NodeProto *n, const struct norm *norm, int64_t channels)
{
    Onnx__NodeProto *made;
    int rc = SH_OK;

    for (int part = 0; part < N_PARTS && rc == SH_OK; part++)
        rc = add_vector(u, norm->module, PARTS[part], channels,
                        part == WEIGHT || part == VARIANCE ? 1.0f : 0.0f);
    if (rc)
        return rc;
    made = make_norm(norm, n);
    if (!made || !n->output[0]) {
        if (made)
            onnx__node_proto__free_unpacked(made, NULL);
        return SH_FAIL(u->err, SH_E_NOMEM, "could not allocate a node");
    }
    forget_unknown(n);
    u->back++;
    u->nodes[u->n_nodes++] = made;
    return SH_OK;
}

static int unfold_node(struct unfold *u, Onnx__NodeProto *n)
{
    struct norm norm;
    Onnx__TensorProto *w, *b;
    int rc;

    if (!read_norm(n, &norm) || !can_have_norm(u, n, &norm)) {
        u->lost++;
        return SH_OK;
    }
    w = own_input(u, n, 1);
    b = has_bias(n) ? own_input(u, n, 2) : NULL;
    rc = onnx_tensor_settle(w, u->source, u->err);
    if (!rc && b)
        rc = onnx_tensor_settle(b, u->source, u->err);
    if (rc || !is_new(w, b)) {
        u->lost += !rc;
        return rc;
    }
    scale_tensor(w, sqrt(1.0 + norm.epsilon));
    if (b)
        scale_tensor(b, sqrt(1.0 + norm.epsilon));
    return add_norm(u, n, &norm, w->dims[0]);
}

/* ---------------------------------------------------------------- biases */

/* "...conv2d...(args = (%x, %p_weight, None, [1, 1]), kwargs = {})": the module has no bias, the
 * exporter made one of zeros and took it away again. What other functions are called with does not
 * say so. */
static bool is_called_without_bias(const char *call)
{
    const char *at = strstr(call, "(args = (");
    int depth = 0, commas = 0;

    if (!at || !(strstr(call, "aten.conv") || strstr(call, "aten.linear")))
        return false;
    for (at += strlen("(args = ("); *at && depth >= 0 && commas < 2; at++) {
        depth += *at == '(' || *at == '[';
        depth -= *at == ')' || *at == ']';
        commas += depth == 0 && *at == ',';
    }
    return commas < 2 || strncmp(at, " None", strlen(" None")) == 0;
}

static bool lost_bias(const Onnx__NodeProto *n)
{
    char *rules, *call;
    bool lost;

    if (!n->op_type || n->n_input != 2 || !reader_is_standard(n->domain))
        return false;
    rules = onnx_meta(n, "pkg.onnxscript.rewriter.rule_name");
    call = onnx_meta(n, "pkg.torch.onnx.fx_node");
    lost = rules && strstr(rules, "RemoveOptionalBias") && !strstr(rules, "Norm") &&
           !(call && is_called_without_bias(call));
    free(rules);
    free(call);
    return lost;
}

static int64_t attribute_of(const Onnx__NodeProto *n, const char *name, int64_t otherwise)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (n->attribute[i]->name && strcmp(n->attribute[i]->name, name) == 0)
            return n->attribute[i]->i;
    return otherwise;
}

/* Of what comes out of the node; 0: it is none that has a bias. */
static int64_t conv_channels(const Onnx__NodeProto *n, const Onnx__TensorProto *w)
{
    int64_t all;

    if (strcmp(n->op_type, "Conv") == 0 && w->n_dims >= 3)
        return w->dims[0];
    if (strcmp(n->op_type, "ConvTranspose") == 0 && w->n_dims >= 3)
        return __builtin_mul_overflow(w->dims[1], attribute_of(n, "group", 1), &all) ? 0 : all;
    if (strcmp(n->op_type, "Gemm") == 0 && w->n_dims == 2)
        return w->dims[attribute_of(n, "transB", 0) ? 0 : 1];
    return 0;
}

/* "<module>.weight" has "<module>.bias" again. */
static int add_conv_bias(struct unfold *u, Onnx__NodeProto *n)
{
    const Onnx__TensorProto *w = own_input(u, n, 1);
    const size_t length = w ? strlen(w->name) : 0, end = strlen(".weight");
    const int64_t channels = w ? conv_channels(n, w) : 0;
    char module[256], full[320], **input;
    int rc;

    if (channels < 1 || channels > MAX_CHANNELS || length <= end ||
        length - end >= sizeof(module) || strcmp(w->name + length - end, ".weight") != 0)
        return SH_OK;
    memcpy(module, w->name, length - end);
    module[length - end] = '\0';
    snprintf(full, sizeof(full), "%s.bias", module);
    if (names_get(&u->names, full) != NAMES_NONE)
        return SH_OK;
    input = realloc(n->input, 3 * sizeof(*input));
    if (!input)
        return SH_FAIL(u->err, SH_E_NOMEM, "could not allocate a node");
    n->input = input;
    rc = add_vector(u, module, "bias", channels, 0);
    if (!rc)
        rc = sh_strdup(full, &n->input[2], u->err);
    if (rc)
        return rc;
    n->n_input = 3;
    forget_unknown(n);
    return SH_OK;
}

/* ---------------------------------------------------------------- all */

static int find_conv_names(struct unfold *u)
{
    int rc = names_init(&u->names, u->err);

    u->n_before = u->g->n_initializer;
    u->uses = calloc(u->n_before + 1, sizeof(*u->uses));
    u->nodes = calloc(2 * u->g->n_node + 1, sizeof(Onnx__NodeProto *));
    if (!rc && (!u->uses || !u->nodes))
        rc = SH_FAIL(u->err, SH_E_NOMEM, "could not allocate a list of %zu nodes", u->g->n_node);
    for (size_t i = 0; i < u->g->n_initializer && rc == SH_OK; i++) {
        const char *name = u->g->initializer[i]->name;

        rc = names_put_first(&u->names, name, (uint32_t)i, u->err);
    }
    for (size_t i = 0; i < u->g->n_node && rc == SH_OK; i++)
        for (size_t k = 0; k < u->g->node[i]->n_input; k++) {
            const char *name = u->g->node[i]->input[k];
            uint32_t v = name && name[0] ? names_get(&u->names, name) : NAMES_NONE;

            if (v != NAMES_NONE)
                u->uses[v]++;
        }
    return rc;
}

int onnx_unfold(Onnx__ModelProto *m, struct onnx_source *source, uint32_t *back, uint32_t *lost,
                struct sh_err *err)
{
    struct unfold u = {.g = m->graph, .source = source, .cap = m->graph->n_initializer, .err = err};
    int rc = find_conv_names(&u);

    for (size_t i = 0; i < u.g->n_node && u.nodes; i++) { /* after a failure they only move */
        u.nodes[u.n_nodes++] = u.g->node[i];
        if (!rc && was_folded(u.g->node[i]))
            rc = unfold_node(&u, u.g->node[i]);
        else if (!rc && lost_bias(u.g->node[i]))
            rc = add_conv_bias(&u, u.g->node[i]);
    }
    if (u.nodes) {
        free(u.g->node);
        u.g->node = u.nodes;
        u.g->n_node = u.n_nodes;
    }
    *back = u.back;
    *lost = u.lost;
    free(u.uses);
    names_fini(&u.names);
    return rc;
}
