/* onnx_pixels.c - inputs for which whoever pushed the file declared bytes (common/preprocess.h).
 *
 * An input "image", FP32 [N, C, H, W], becomes UINT8 in the layout of the declaration, and a node
 * Pixels makes of it what the model read before. All that follows sees a graph that takes bytes:
 * batches, sizes that are open, programs, and what a user is told. Pixels is an operator of ours
 * (graph.h): a sequence of ONNX's would be rounded once by each, in the precision of the device.
 */
#include "common/augment.h"
#include "common/external.h"
#include "common/mem.h"
#include "common/preprocess.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_reader.h"

#include <stdlib.h>

static uint32_t input_named(const struct graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (strcmp(g->values[g->inputs[i]].name, name) == 0)
            return g->inputs[i];
    return GRAPH_NONE;
}

static int no_such_input(const struct reader *r, const char *name)
{
    char list[200] = "", clean[64], wanted[96];
    size_t len = 0;

    for (uint32_t i = 0; i < r->g->n_inputs && len + sizeof(clean) + 2 < sizeof(list); i++)
        len += (size_t)snprintf(
            list + len, sizeof(list) - len, "%s%s", i ? ", " : "",
            graph__clean(r->g->values[r->g->inputs[i]].name, clean, sizeof(clean)));
    return SH_FAIL(r->err, SH_E_INVALID, "\"preprocess\": the model has no input \"%s\"; it has %s",
                   graph__clean(name, wanted, sizeof(wanted)), list);
}

static int check_pixel_input(const struct reader *r, const struct sh_preprocess *p, uint32_t v,
                             int *axis)
{
    const struct graph_value *x = &r->g->values[v];

    if (x->dtype != SH_F32 && x->dtype != SH_F16 && x->dtype != SH_BF16)
        return SH_FAIL(r->err, SH_E_INVALID,
                       "\"preprocess\": input \"%.64s\" is %s; only FP32, FP16 and BF16 can be "
                       "made of bytes",
                       p->input, sh_dtype_v2(x->dtype));
    if (x->rank != 4)
        return SH_FAIL(r->err, SH_E_INVALID,
                       "\"preprocess\": input \"%.64s\" has %d axes, and pictures have 4: batch, "
                       "channels, height and width",
                       p->input, x->rank);
    *axis = (int)augment_channels(x->dims);
    if (x->dims[*axis] < 1 || x->dims[*axis] > SH_PREPROCESS_CHANNELS)
        return SH_FAIL(r->err, SH_E_INVALID,
                       "\"preprocess\": axis 1 of input \"%.64s\" has to be 1 to %u channels, and "
                       "the file %s",
                       p->input, SH_PREPROCESS_CHANNELS,
                       x->dims[1] < 1 ? "leaves its size open" : "has more");
    for (uint32_t i = 0; i < r->g->n_outputs; i++)
        if (r->g->outputs[i] == v)
            return SH_FAIL(r->err, SH_E_INVALID,
                           "\"preprocess\": input \"%.64s\" is an output of the model as well",
                           p->input);
    return sh_preprocess_fits(p, x->dims[*axis], r->err);
}

/* One row of 256 numbers for each channel. */
static int add_pixel_table(struct reader *r, const struct sh_preprocess *p, int64_t channels,
                           uint32_t *out)
{
    struct onnx_array a = {.dtype = SH_F32, .rank = 1, .dims = {channels * SH_PREPROCESS_BYTES}};
    int rc;

    a.bytes = (size_t)channels * SH_PREPROCESS_BYTES * sizeof(float);
    a.data = malloc(a.bytes);
    if (!a.data)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a table of pixels");
    for (int64_t c = 0; c < channels; c++)
        sh_preprocess_table(p, (size_t)c, (float *)a.data + c * SH_PREPROCESS_BYTES);
    rc = reader_fresh(r, p->input, '/', "table", &a, out);
    if (!rc)
        r->g->values[*out].said = GRAPH_SAID_BUFFER; /* nothing that learns */
    onnx_array_fini(&a);
    return rc;
}

/* The value, of the type that the model has there, takes the place of the input. */
static void put_behind_input(struct graph *g, uint32_t input, uint32_t with)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] == input)
                g->nodes[i].in[k] = with;
}

static int add_pixel_nodes(struct reader *r, const struct sh_preprocess *p, uint32_t input,
                           const int64_t perm[4], int axis)
{
    struct graph *g = r->g;
    struct onnx_array a = {.rank = 4, .dtype = SH_F32};
    uint32_t pixels = 0, table = 0, last, node;
    int rc;

    memcpy(a.dims, g->values[input].dims, 4 * sizeof(a.dims[0]));
    rc = add_pixel_table(r, p, a.dims[axis], &table);
    if (!rc)
        rc = reader_fresh(r, p->input, '/', "pixels", &a, &pixels);
    last = pixels;
    a.dtype = g->values[input].dtype;
    if (!rc && a.dtype != SH_F32)
        rc = reader_fresh(r, p->input, '/', "cast", &a, &last);
    if (rc)
        return rc;
    put_behind_input(g, input, last);
    rc = graph_add_node(g, NULL, GRAPH_PIXELS, (const uint32_t[]){input, table}, 2, &pixels, 1,
                        &node, r->err);
    if (!rc)
        rc = graph_set_ints(&g->nodes[node], "perm", perm, 4, r->err);
    if (!rc)
        rc = graph_set_int(&g->nodes[node], "axis", axis, r->err);
    if (!rc && last != pixels)
        rc = graph_add_node(g, NULL, "Cast", &pixels, 1, &last, 1, &node, r->err);
    if (!rc && last != pixels)
        rc = graph_set_int(&g->nodes[node], "to", sh_dtype_onnx(a.dtype), r->err);
    return rc;
}

static int make_pixels(struct reader *r, const struct sh_preprocess *p)
{
    static const int64_t SAME[] = {0, 1, 2, 3}, TO_FIRST[] = {0, 3, 1, 2}, TO_LAST[] = {0, 2, 3, 1};
    const uint32_t v = input_named(r->g, p->input);
    const int64_t *perm;
    int64_t dims[4];
    int axis = 1, rc;

    if (v == GRAPH_NONE)
        return no_such_input(r, p->input);
    rc = check_pixel_input(r, p, v, &axis);
    if (rc)
        return rc;
    perm = p->channels_last == (axis == 3) ? SAME : axis == 1 ? TO_FIRST : TO_LAST;
    rc = add_pixel_nodes(r, p, v, perm, axis);
    memcpy(dims, r->g->values[v].dims, sizeof(dims));
    for (int i = 0; i < 4; i++)
        r->g->values[v].dims[perm[i]] = dims[i];
    r->g->values[v].dtype = SH_U8;
    return rc;
}

/* *out: OWNED. */
static int parse_declared(const struct reader *r, const char *text, json_t **out)
{
    struct sh_err why = {0};
    int rc = sh_json_parse(text, strlen(text), SH_PREPROCESS_TEXT, out, &why);

    return rc ? SH_FAIL(r->err, rc, "\"preprocess\": %s", why.msg) : SH_OK;
}

int reader_pixels(struct reader *r)
{
    const char *text = onnx_told(r->model, SH_EXTERNAL_PREPROCESS);
    struct sh_preprocess p[SH_PREPROCESS_INPUTS];
    json_t *j = NULL;
    size_t n = 0;
    int rc;

    if (!text[0])
        return SH_OK;
    rc = parse_declared(r, text, &j);
    if (!rc)
        rc = sh_preprocess_read(j, p, &n, r->err);
    for (size_t i = 0; i < n && !rc; i++)
        rc = make_pixels(r, &p[i]);
    if (!rc && n > 0)
        rc = graph__sort(r->g, r->err);
    if (!rc && n > 0)
        rc = graph__validate(r->g, r->err);
    if (!rc && n > 0 && !(r->g->preprocess = sh_preprocess_json(p, n)))
        rc = SH_FAIL(r->err, SH_E_NOMEM, "could not allocate what is declared");
    json_decref(j);
    return rc;
}
