/* onnx_forms.c - parameters of which an exporter wrote only a function.
 *
 * PyTorch's newer exporter computes what hangs on parameters alone: exp(log_scale),
 * -exp(A_log), sigmoid(gate), softmax(weights). Trained as what it became, the result goes other
 * ways: a scale may fall below 0. The exporter says what it computed a constant from, so where the
 * functions can be undone, the parameter comes back under its name, and nodes compute the constant.
 *
 * The older exporter says nothing, but computes little: what has exactly the numbers of a named
 * parameter below 0 is its negative.
 */
#include "common/mem.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_reader.h"
#include "runtime/model/param_forms.h"
#include "runtime/model/param_rules.h"

#include <math.h>
#include <stdlib.h>

#define MAX_ELEMENTS ((int64_t)1 << 22) /* of one that is looked at */

static bool is_plain(const struct graph_value *v)
{
    return v->data && v->dtype == SH_F32 && graph_elements(v) >= 1 &&
           graph_elements(v) <= MAX_ELEMENTS;
}

/* v = op(of) */
static int compute(struct reader *r, const char *op, uint32_t of, uint32_t v, int axis)
{
    uint32_t node;
    int rc = graph_add_node(r->g, r->g->values[v].name, op, &of, 1, &v, 1, &node, r->err);

    if (!rc && strcmp(op, "Softmax") == 0)
        rc = graph_set_int(&r->g->nodes[node], "axis", axis, r->err);
    return rc;
}

/* The value is no constant any more. */
static void empty(struct graph_value *v)
{
    if (!v->data_borrowed)
        free(v->data);
    v->data = NULL;
    v->bytes = 0;
    v->data_borrowed = v->is_param = v->is_computed = v->is_taken = false;
    v->said = GRAPH_SAID_NOTHING;
}

/* The parameter with the numbers at x (TAKEN) and the axes of v: one that is there already, or a
 * new one; where another has its name, NAME@CONSTANT. */
static int find_param(struct reader *r, const struct param_form *f, const struct graph_value *v,
                      float *x, uint32_t *out)
{
    struct onnx_array a = {.dtype = SH_F32, .rank = v->rank, .data = x, .bytes = v->bytes};
    const uint32_t of = names_get(&r->names, f->param);
    char *name = NULL;
    int rc;

    memcpy(a.dims, v->dims, (size_t)SH_MAX(v->rank, 0) * sizeof(*a.dims));
    rc = of == NAMES_NONE ? sh_strdup(f->param, &name, r->err)
                          : sh_asprintf(r->err, &name, "%s@%s", f->param, v->name);
    if (!rc)
        rc = reader_new_value(r, name, &a, out);
    free(name);
    onnx_array_fini(&a);
    if (rc)
        return rc;
    r->g->values[*out].is_param = true;
    r->g->values[*out].said = GRAPH_SAID_PARAM;
    return SH_OK;
}

static bool has_numbers(const struct graph_value *of, const struct graph_value *v, const float *x)
{
    const float *y = of->data;

    if (!is_plain(of) || of->rank != v->rank ||
        memcmp(of->dims, v->dims, (size_t)SH_MAX(v->rank, 0) * sizeof(*v->dims)) != 0)
        return false;
    for (int64_t i = 0; i < graph_elements(v); i++) {
        const float d = x[i] - y[i];

        if (!(d * d <= 1e-8f * (1 + y[i] * y[i])))
            return false;
    }
    return true;
}

/* The steps from the parameter to v. */
static int add_steps(struct reader *r, const struct param_form *f, uint32_t param, uint32_t v)
{
    uint32_t x = param;
    int rc = SH_OK;

    for (int k = 0; k < f->n_steps && rc == SH_OK; k++) {
        uint32_t to = v;

        if (k + 1 < f->n_steps)
            rc = reader_fresh(r, r->g->values[v].name, '@', param_form_op(f, k), NULL, &to);
        if (!rc)
            rc = compute(r, param_form_op(f, k), x, to, f->axis);
        x = to;
    }
    return rc;
}

static int look_at(struct reader *r, uint32_t v, const char *list)
{
    struct param_form f;
    uint32_t of;
    float *x;
    int rc = SH_OK;

    if (!is_plain(&r->g->values[v]) || !param_form_read(r->g->values[v].name, list, &f))
        return SH_OK;
    x = malloc(r->g->values[v].bytes);
    if (!x)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate %zu bytes", r->g->values[v].bytes);
    if (!param_form_undo(&f, r->g->values[v].data, r->g->values[v].rank, r->g->values[v].dims, x)) {
        free(x);
        return SH_OK;
    }
    of = names_get(&r->names, f.param);
    if (of != NAMES_NONE && has_numbers(&r->g->values[of], &r->g->values[v], x))
        free(x);
    else {
        const struct graph_value like = r->g->values[v]; /* the values may move */

        rc = find_param(r, &f, &like, x, &of);
    }
    if (!rc)
        rc = add_steps(r, &f, of, v);
    if (!rc)
        empty(&r->g->values[v]);
    return rc;
}

/* ---------------------------------------------------------------- negatives */

static bool is_negative(const struct graph_value *v, const struct graph_value *of)
{
    const float *x = v->data, *y = of->data;
    const int64_t n = graph_elements(v);
    bool round = true;

    if (graph_elements(of) != n || v->rank != of->rank ||
        memcmp(of->dims, v->dims, (size_t)SH_MAX(v->rank, 0) * sizeof(*v->dims)) != 0)
        return false;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] != -y[i])
            return false;
        round &= x[i] * 4096 == truncf(x[i] * 4096);
    }
    return !round; /* no two parameters are negatives by chance but for zeros and the like */
}

static int look_for_negatives(struct reader *r)
{
    int rc = SH_OK;

    for (uint32_t v = 0; v < r->g->n_values && rc == SH_OK; v++) {
        const bool may =
            is_plain(&r->g->values[v]) && strncmp(r->g->values[v].name, "onnx::", 6) == 0;

        for (uint32_t of = 0; of < r->g->n_values && may; of++) {
            const struct graph_value *p = &r->g->values[of];

            if (!is_plain(p) || param_is_made_up(p->name) ||
                !is_negative(&r->g->values[v], p))
                continue;
            rc = compute(r, "Neg", of, v, 0);
            if (!rc)
                empty(&r->g->values[v]);
            break;
        }
    }
    return rc;
}

int reader_forms(struct reader *r)
{
    const Onnx__GraphProto *g = r->model->graph;
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_value_info && rc == SH_OK; i++) {
        char *list = onnx_folded_from(g->value_info[i]);
        const uint32_t v =
            list ? names_get(&r->names, reader_text(g->value_info[i]->name)) : NAMES_NONE;

        if (v != NAMES_NONE)
            rc = look_at(r, v, list);
        free(list);
    }
    return rc || r->g->says_kinds ? rc : look_for_negatives(r);
}
