/* zoo.c - see zoo.h. */
#include "zoo/zoo.h"

#include "common/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 160

int zoo_init(struct zoo *z, enum zoo_form form, uint64_t seed, struct sh_err *err)
{
    *z = (struct zoo){.form = form, .rng = seed * 2 + 1, .err = err};
    z->rc = graph_new(&z->g, err);
    if (!z->rc)
        z->g->opset = 17;
    return z->rc;
}

void zoo_fini(struct zoo *z)
{
    graph_free(z->g);
    z->g = NULL;
}

int zoo_finish(struct zoo *z, uint32_t output, int64_t classes, struct graph **out)
{
    char *list = NULL, *name = NULL;

    *out = NULL;
    if (!z->rc)
        z->rc = sh_strdup("logits", &name, z->err);
    if (z->rc)
        return z->rc;
    free(z->g->values[output].name);
    z->g->values[output].name = name;
    z->g->outputs = malloc(sizeof(*z->g->outputs));
    if (!z->g->outputs)
        return SH_FAIL(z->err, SH_E_NOMEM, "could not allocate the outputs");
    z->g->outputs[0] = output;
    z->g->n_outputs = 1;
    z->g->values[output].rank = 2;
    z->g->values[output].dims[0] = -1;
    z->g->values[output].dims[1] = classes;
    z->rc = graph_check(z->g, z->form == ZOO_TRAINING, &list, z->err);
    free(list);
    if (z->rc)
        return z->rc;
    *out = z->g;
    z->g = NULL;
    return SH_OK;
}

static uint64_t next_zoo_random(struct zoo *z)
{
    uint64_t v = (z->rng += 0x9e3779b97f4a7c15u);

    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
    return v ^ (v >> 31);
}

/* Box-Muller makes two at a time. */
static void normal_pair(struct zoo *z, float out[static 2])
{
    double u = ((double)(next_zoo_random(z) >> 11) + 1) / 9007199254740993.0;
    double v = 6.283185307179586 * (double)(next_zoo_random(z) >> 11) / 9007199254740992.0;
    float r = (float)sqrt(-2 * log(u));

    out[0] = r * cosf((float)v);
    out[1] = r * sinf((float)v);
}

static uint32_t add_zoo_value(struct zoo *z, const char *name, enum sh_dtype t, int rank,
                              const int64_t *dims)
{
    uint32_t v = GRAPH_NONE;
    char made[32];

    if (z->rc)
        return GRAPH_NONE;
    if (!name) {
        snprintf(made, sizeof(made), "v%u", z->g->n_values);
        name = made;
    }
    z->rc = graph_add_value(z->g, name, t, rank, dims, &v, z->err);
    return v;
}

uint32_t zoo_input(struct zoo *z, const char *name, enum sh_dtype t, int rank, const int64_t *dims)
{
    uint32_t v = add_zoo_value(z, name, t, rank, dims), *grown;

    if (z->rc)
        return GRAPH_NONE;
    grown = realloc(z->g->inputs, (z->g->n_inputs + 1) * sizeof(*grown));
    if (!grown) {
        z->rc = SH_FAIL(z->err, SH_E_NOMEM, "could not allocate the inputs");
        return GRAPH_NONE;
    }
    z->g->inputs = grown;
    z->g->inputs[z->g->n_inputs++] = v;
    return v;
}

/* TAKES data. */
static uint32_t add_zoo_const(struct zoo *z, const char *name, enum sh_dtype t, int rank,
                              const int64_t *dims, void *data)
{
    uint32_t v = GRAPH_NONE;
    char made[32];

    if (!name) {
        snprintf(made, sizeof(made), "const%u", z->g->n_values);
        name = made;
    }
    z->rc = graph_add_const(z->g, name, t, rank, dims, data, &v, z->err);
    if (z->rc) {
        free(data);
        return GRAPH_NONE;
    }
    return v;
}

static size_t elements_of(int rank, const int64_t *dims)
{
    size_t n = 1;

    for (int i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    return n;
}

static uint32_t add_floats(struct zoo *z, const char *name, int rank, const int64_t *dims,
                           double std, float mean)
{
    float *data, pair[2] = {0, 0};
    size_t n = elements_of(rank, dims);
    uint32_t v;

    if (z->rc)
        return GRAPH_NONE;
    data = malloc(n * sizeof(*data));
    if (!data) {
        z->rc = SH_FAIL(z->err, SH_E_NOMEM, "could not allocate %zu weights", n);
        return GRAPH_NONE;
    }
    for (size_t i = 0; i < n; i++) {
        if (std > 0 && i % 2 == 0)
            normal_pair(z, pair);
        data[i] = mean + (float)std * pair[i % 2];
    }
    v = add_zoo_const(z, name, SH_F32, rank, dims, data);
    if (!z->rc)
        z->g->values[v].is_param = name != NULL;
    return v;
}

uint32_t zoo_param(struct zoo *z, const char *name, int rank, const int64_t *dims, double std)
{
    return add_floats(z, name, rank, dims, std, 0);
}

uint32_t zoo_fill(struct zoo *z, const char *name, int rank, const int64_t *dims, float v)
{
    return add_floats(z, name, rank, dims, 0, v);
}

uint32_t zoo_const_f32(struct zoo *z, float v)
{
    return add_floats(z, NULL, 0, NULL, 0, v);
}

uint32_t zoo_const_i64(struct zoo *z, int rank, const int64_t *dims, const int64_t *v)
{
    size_t bytes = elements_of(rank, dims) * sizeof(*v);
    int64_t *data;

    if (z->rc)
        return GRAPH_NONE;
    data = malloc(bytes);
    if (!data) {
        z->rc = SH_FAIL(z->err, SH_E_NOMEM, "could not allocate a constant");
        return GRAPH_NONE;
    }
    memcpy(data, v, bytes);
    return add_zoo_const(z, NULL, SH_I64, rank, dims, data);
}

/* n_out outputs, numbered after each other; returns the first. */
static uint32_t add_zoo_node(struct zoo *z, const char *name, const char *op, const uint32_t *in,
                             uint32_t n_in, uint32_t n_out, struct graph_node **node)
{
    uint32_t outs[5] = {0}, k = 0;

    if (node)
        *node = NULL;
    for (uint32_t i = 0; i < n_out; i++)
        outs[i] = add_zoo_value(z, NULL, SH_F32, -1, NULL);
    if (z->rc)
        return GRAPH_NONE;
    z->rc = graph_add_node(z->g, name ? name : "", op, in, n_in, outs, n_out, &k, z->err);
    if (z->rc)
        return GRAPH_NONE;
    if (node)
        *node = &z->g->nodes[k];
    return outs[0];
}

uint32_t zoo_node(struct zoo *z, const char *name, const char *op, const uint32_t *in,
                  uint32_t n_in, struct graph_node **node)
{
    return add_zoo_node(z, name, op, in, n_in, 1, node);
}

void zoo_attr_int(struct zoo *z, struct graph_node *n, const char *name, int64_t v)
{
    if (!z->rc)
        z->rc = graph_set_int(n, name, v, z->err);
}

void zoo_attr_float(struct zoo *z, struct graph_node *n, const char *name, double v)
{
    if (!z->rc)
        z->rc = graph_set_float(n, name, v, z->err);
}

void zoo_attr_ints(struct zoo *z, struct graph_node *n, const char *name, const int64_t *v,
                   size_t k)
{
    if (!z->rc)
        z->rc = graph_set_ints(n, name, v, k, z->err);
}

uint32_t zoo_conv(struct zoo *z, uint32_t x, const char *name, const struct zoo_conv *c, bool bias)
{
    const int64_t w_dims[4] = {c->out, c->in, c->kh, c->kw};
    uint32_t in[3] = {x, 0, 0}, y;
    struct graph_node *n;
    char pname[NAME_BYTES];

    snprintf(pname, sizeof(pname), "%s.weight", name);
    in[1] = zoo_param(z, pname, 4, w_dims, sqrt(2.0 / (double)(c->out * c->kh * c->kw)));
    if (bias) {
        snprintf(pname, sizeof(pname), "%s.bias", name);
        in[2] = zoo_fill(z, pname, 1, &c->out, 0);
    }
    y = zoo_node(z, name, "Conv", in, bias ? 3 : 2, &n);
    zoo_attr_ints(z, n, "kernel_shape", (const int64_t[]){c->kh, c->kw}, 2);
    zoo_attr_ints(z, n, "strides", (const int64_t[]){c->stride, c->stride}, 2);
    zoo_attr_ints(z, n, "pads", (const int64_t[]){c->ph, c->pw, c->ph, c->pw}, 4);
    return y;
}

uint32_t zoo_batchnorm(struct zoo *z, uint32_t x, const char *name, int64_t channels, double eps,
                       float gamma)
{
    static const char *const PARTS[4] = {"weight", "bias", "running_mean", "running_var"};
    const float init[4] = {gamma, 0, 0, 1};
    bool training = z->form == ZOO_TRAINING;
    uint32_t in[5] = {x}, y;
    struct graph_node *n;

    for (int i = 0; i < 4; i++) {
        char pname[NAME_BYTES];

        snprintf(pname, sizeof(pname), "%s.%s", name, PARTS[i]);
        in[i + 1] = zoo_fill(z, pname, 1, &channels, init[i]);
    }
    y = add_zoo_node(z, name, "BatchNormalization", in, 5, training ? 3 : 1, &n);
    zoo_attr_float(z, n, "epsilon", eps);
    zoo_attr_float(z, n, "momentum", 0.9);
    if (training)
        zoo_attr_int(z, n, "training_mode", 1);
    return y;
}

uint32_t zoo_unary(struct zoo *z, uint32_t x, const char *op)
{
    return zoo_node(z, NULL, op, &x, 1, NULL);
}

uint32_t zoo_binary(struct zoo *z, const char *op, uint32_t a, uint32_t b)
{
    return zoo_node(z, NULL, op, (const uint32_t[]){a, b}, 2, NULL);
}

uint32_t zoo_pool(struct zoo *z, uint32_t x, const char *op, int64_t k, int64_t stride, int64_t pad)
{
    struct graph_node *n;
    uint32_t y = zoo_node(z, NULL, op, &x, 1, &n);

    zoo_attr_ints(z, n, "kernel_shape", (const int64_t[]){k, k}, 2);
    zoo_attr_ints(z, n, "strides", (const int64_t[]){stride, stride}, 2);
    zoo_attr_ints(z, n, "pads", (const int64_t[]){pad, pad, pad, pad}, 4);
    if (!z->rc && strcmp(op, "AveragePool") == 0)
        zoo_attr_int(z, n, "count_include_pad", 1);
    return y;
}

uint32_t zoo_concat(struct zoo *z, const uint32_t *x, uint32_t n_in)
{
    struct graph_node *n;
    uint32_t y = zoo_node(z, NULL, "Concat", x, n_in, &n);

    zoo_attr_int(z, n, "axis", 1);
    return y;
}

uint32_t zoo_flatten(struct zoo *z, uint32_t x)
{
    struct graph_node *n;
    uint32_t y = zoo_node(z, NULL, "Flatten", &x, 1, &n);

    zoo_attr_int(z, n, "axis", 1);
    return y;
}

uint32_t zoo_dropout(struct zoo *z, uint32_t x, double ratio)
{
    uint32_t in[3] = {x, 0, 0};
    uint8_t *on;

    if (z->form == ZOO_INFERENCE || z->rc)
        return x;
    in[1] = zoo_const_f32(z, (float)ratio);
    on = malloc(1);
    if (!on) {
        z->rc = SH_FAIL(z->err, SH_E_NOMEM, "could not allocate a constant");
        return GRAPH_NONE;
    }
    *on = 1;
    in[2] = z->rc ? (free(on), GRAPH_NONE) : add_zoo_const(z, NULL, SH_BOOL, 0, NULL, on);
    return zoo_node(z, NULL, "Dropout", in, 3, NULL);
}

uint32_t zoo_linear(struct zoo *z, uint32_t x, const char *name, int64_t in, int64_t out,
                    double std)
{
    uint32_t args[3] = {x, 0, 0}, y;
    struct graph_node *n;
    char pname[NAME_BYTES];

    snprintf(pname, sizeof(pname), "%s.weight", name);
    args[1] = zoo_param(z, pname, 2, (const int64_t[]){out, in}, std);
    snprintf(pname, sizeof(pname), "%s.bias", name);
    args[2] = zoo_fill(z, pname, 1, &out, 0);
    y = zoo_node(z, name, "Gemm", args, 3, &n);
    zoo_attr_int(z, n, "transB", 1);
    return y;
}
