/* onnx_read.c - turns an ONNX file into a graph in the one form that later stages know.
 *
 * What cannot be represented (control flow, custom domains, ...) is collected node by node, so that
 * the user sees the whole list at once; any fault in the file ends reading.
 */
#include "common/external.h"
#include "common/mem.h"
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_dims.h"
#include "runtime/model/onnx_mentions.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_reader.h"
#include "runtime/model/onnx_restore.h"
#include "runtime/model/param_joins.h"
#include "runtime/model/param_rules.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

const char *reader_text(const char *s)
{
    return s ? s : "";
}

/* ---------------------------------------------------------------- values */

static int reader_new_value(struct reader *r, const char *name, struct onnx_array *a, uint32_t *out)
{
    char clean[128];
    int rc;

    if (!graph__name_ok(name))
        return SH_FAIL(r->err, SH_E_INVALID, GRAPH_BAD_NAME, GRAPH_MAX_NAME,
                       graph__clean(name, clean, sizeof(clean)));
    if (names_get(&r->names, name) != NAMES_NONE)
        return SH_FAIL(r->err, SH_E_INVALID, "tensor %s is defined twice",
                       graph__clean(name, clean, sizeof(clean)));
    if (a && a->data)
        rc = graph_add_const(r->g, name, a->dtype, a->rank, a->dims, a->data, out, r->err);
    else
        rc = graph_add_value(r->g, name, a ? a->dtype : SH_F32, a ? a->rank : -1,
                             a ? a->dims : NULL, out, r->err);
    if (rc)
        return rc;
    if (a && a->data)
        r->g->values[*out].data_borrowed = a->is_borrowed;
    if (a)
        a->data = NULL; /* the graph's now */
    return names_put(&r->names, r->g->values[*out].name, *out, r->err);
}

bool reader_in_branch(const struct reader *r)
{
    for (const struct scope *s = r->scope; s; s = s->up)
        if (s->is_branch)
            return true;
    return false;
}

/* A branch and a body see what is around them. */
static uint32_t look_up_value(const struct reader *r, const char *name)
{
    const struct scope *s = r->scope;

    for (; s->is_branch || s->is_body; s = s->up) {
        const uint32_t v = names_get(&s->names, name);

        if (v != NAMES_NONE)
            return v;
    }
    return names_get(s->func ? &s->names : &r->names, name);
}

uint32_t reader_find(const struct reader *r, const char *name)
{
    uint32_t v = look_up_value(r, name);

    return v == NAMES_NONE || v == READER_ABSENT ? GRAPH_NONE : v;
}

int reader_mention(struct reader *r, const char *name, uint32_t *out)
{
    struct scope *s = r->scope;
    int rc;

    *out = GRAPH_NONE;
    if (!name || !name[0])
        return SH_OK;
    *out = look_up_value(r, name);
    if (*out == READER_ABSENT)
        *out = GRAPH_NONE;
    else if (*out == NAMES_NONE && !s->up)
        return reader_new_value(r, name, NULL, out);
    else if (*out == NAMES_NONE) {
        rc = reader_fresh(r, s->label, '/', name, NULL, out);
        return rc ? rc : names_put(&s->names, name, *out, r->err);
    }
    return SH_OK;
}

int reader_fresh(struct reader *r, const char *base, char mark, const char *suffix,
                 struct onnx_array *a, uint32_t *out)
{
    char clean[128], *name = NULL;
    int rc = sh_asprintf(r->err, &name, "%s%c%s", base, mark,
                         graph__clean(suffix, clean, sizeof(clean)));

    while (rc == SH_OK && names_get(&r->names, name) != NAMES_NONE) {
        free(name);
        rc = sh_asprintf(r->err, &name, "%s%c%s.%u", base, mark, clean, ++r->n_fresh);
    }
    if (!rc)
        rc = reader_new_value(r, name, a, out);
    free(name);
    return rc;
}

/* ---------------------------------------------------------------- inputs and weights */

static bool is_float_dtype(enum sh_dtype t)
{
    return t == SH_F32 || t == SH_F64 || t == SH_F16 || t == SH_BF16;
}

static int read_initializer(struct reader *r, Onnx__TensorProto *t)
{
    struct onnx_array a = {0};
    char what[160], name[128];
    uint32_t v;
    int rc;

    snprintf(what, sizeof(what), "initializer %s",
             graph__clean(reader_text(t->name), name, sizeof(name)));
    rc = onnx_tensor_take(t, what, r->source, &a, r->err);
    if (!rc)
        rc = reader_new_value(r, reader_text(t->name), &a, &v);
    if (!rc)
        r->g->values[v].is_param = is_float_dtype(r->g->values[v].dtype);
    onnx_array_fini(&a);
    return rc;
}

/* An input without elements says nothing: it is a constant, and no request brings it. */
static int make_empty(struct reader *r, const char *name, struct onnx_array *a)
{
    bool is_empty = false;

    for (int i = 0; i < a->rank; i++)
        is_empty |= a->dims[i] == 0;
    if (!is_empty)
        return SH_OK;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] < 0)
            return SH_FAIL(r->err, SH_E_INVALID, "input %s has no elements, and axis %d is dynamic",
                           name, i);
    a->data = calloc(1, 1);
    return a->data ? SH_OK : SH_FAIL(r->err, SH_E_NOMEM, "could not allocate an input");
}

static int read_graph_input(struct reader *r, const Onnx__ValueInfoProto *in)
{
    const Onnx__TypeProto *type = in->type;
    const Onnx__TypeProto__Tensor *t;
    struct onnx_array a = {0};
    char name[128];
    uint32_t v;
    int rc;

    graph__clean(reader_text(in->name), name, sizeof(name));
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !type->tensor_type)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, WHY_INPUT_KIND, name);
    t = type->tensor_type;
    a.dtype = sh_dtype_from_onnx(t->elem_type);
    if (a.dtype >= SH_N_DTYPES)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, WHY_INPUT_TYPE, name, t->elem_type);
    if (!t->shape)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, WHY_INPUT_SHAPE, name);
    if (t->shape->n_dim > SH_MAX_RANK)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, WHY_INPUT_AXES, name, SH_MAX_RANK);
    a.rank = (int)t->shape->n_dim;
    rc = onnx_dims_read(r->model->graph, in, r->g, a.dims, r->err);
    if (!rc)
        rc = make_empty(r, name, &a);
    if (!rc)
        rc = reader_new_value(r, reader_text(in->name), &a, &v);
    onnx_array_fini(&a);
    if (rc || r->g->values[v].data)
        return rc;
    return graph_add_input(r->g, v, r->err);
}

static int read_values(struct reader *r)
{
    Onnx__GraphProto *g = r->model->graph;
    int rc = SH_OK;

    if (g->n_sparse_initializer > 0)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, WHY_SPARSE);
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = read_initializer(r, g->initializer[i]);
    for (size_t i = 0; i < g->n_input && rc == SH_OK; i++) {
        uint32_t v = names_get(&r->names, reader_text(g->input[i]->name));

        /* Old files list weights as inputs too; they are no inputs then. */
        if (v == NAMES_NONE || !r->g->values[v].data)
            rc = read_graph_input(r, g->input[i]);
    }
    return rc;
}

struct original { /* a name as it was before an exporter's merging was undone: onnx_untie.h */
    char name[256];
};

/* False: it is too long. */
static bool original_of(const char *name, struct original *out)
{
    const size_t n = strcspn(name, "@");

    snprintf(out->name, sizeof(out->name), "%.*s", (int)n, name);
    return n < sizeof(out->name);
}

/* "inv_freq@mul_2:1" is a buffer as "inv_freq" is. */
static uint8_t said_of_original(const struct reader *r, const char *name)
{
    const char *end = strchr(name, '@');
    struct original original;
    uint32_t v;

    if (!end || !strchr(end, ':') || !original_of(name, &original))
        return GRAPH_SAID_NOTHING;
    v = names_get(&r->names, original.name);
    return v != NAMES_NONE && r->g->values[v].data && r->g->values[v].said == GRAPH_SAID_BUFFER
               ? GRAPH_SAID_BUFFER
               : GRAPH_SAID_NOTHING;
}

static bool is_zero_constant(const struct graph_value *v)
{
    bool is = v->dtype == SH_F32;

    for (int64_t i = 0; i < graph_elements(v) && is; i++)
        is = param_number(v->data, i) == 0;
    return is;
}

#define MOST_COMPARED 512

/* A parameter that was repeated, maybe once. What has its numbers several times, and no table by
 * now (onnx_rows.h), would learn each by itself. */
static void read_repeated(struct graph_value *v)
{
    const int64_t n = SH_MIN(graph_elements(v), (int64_t)MOST_COMPARED);
    bool differ = false, twice = false;

    for (int64_t i = 1; i < n && v->dtype == SH_F32; i++)
        differ |= param_number(v->data, i) != param_number(v->data, 0);
    for (int64_t i = 1; i < n && differ && !twice; i++)
        for (int64_t k = 0; k < i && !twice; k++)
            twice = param_number(v->data, i) == param_number(v->data, k) &&
                    param_number(v->data, i) != 0;
    if (differ && !twice)
        v->said = GRAPH_SAID_PARAM;
    v->is_computed |= twice;
}

static int add_mentioned(struct reader *r, const Onnx__ValueInfoProto *v, struct onnx_mentions *m)
{
    char *list = onnx_folded_from(v);
    const int rc = list ? onnx_mentions_add(m, list, &r->kinds, r->err) : SH_OK;

    free(list);
    return rc;
}

static int read_mentions(struct reader *r, struct onnx_mentions *m)
{
    const Onnx__GraphProto *g = r->model->graph;
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_value_info && !rc && param_kinds_known(&r->kinds); i++)
        rc = add_mentioned(r, g->value_info[i], m);
    return rc;
}

/* Is the parameter in the file itself, or is another constant of it? */
static bool has_other_place(const struct reader *r, const struct onnx_mentions *m,
                            const char *param)
{
    const uint32_t v = names_get(&r->names, param);

    return onnx_mentioned_again(m, param) || (v != NAMES_NONE && r->g->values[v].data);
}

/* [1, 1, n], as a class token is for one sample. */
static bool is_row(const struct graph_value *v)
{
    bool is = v->rank > 1 && v->dims[v->rank - 1] > 1;

    for (int i = 0; i + 1 < v->rank; i++)
        is &= v->dims[i] == 1;
    return is;
}

/* A parameter of the user's own that the file has nothing of. */
static bool is_any_lost(const struct reader *r, const struct onnx_mentions *m)
{
    bool is = false;

    for (size_t i = 0; i < r->kinds.names.cap && !is; i++) {
        const struct names_slot *s = &r->kinds.names.slots[i];

        is = s->key && s->number == GRAPH_SAID_PARAM && !param_is_of_torch(s->key) &&
             !has_other_place(r, m, s->key);
    }
    return is;
}

/* Of Max after Max of x, or Min after Min, the newer exporter makes one, with a constant that it
 * computed of both, "x_max", and says nothing of it. Where a parameter is lost, it may be there. */
static bool is_of_two(const Onnx__NodeProto *n)
{
    const bool is_max = strcmp(reader_text(n->op_type), "Max") == 0;
    const char *x, *c;

    if ((!is_max && strcmp(reader_text(n->op_type), "Min") != 0) || n->n_input != 2)
        return false;
    x = reader_text(n->input[0]);
    c = reader_text(n->input[1]);
    return strncmp(c, x, strlen(x)) == 0 &&
           strncmp(c + strlen(x), is_max ? "_max" : "_min", strlen("_max")) == 0;
}

static void read_extremes(struct reader *r, const struct onnx_mentions *m)
{
    const Onnx__GraphProto *g = r->model->graph;
    int lost = -1; /* not known */

    for (size_t i = 0; i < g->n_node && param_kinds_known(&r->kinds) && lost != 0; i++) {
        const uint32_t v =
            is_of_two(g->node[i]) ? names_get(&r->names, g->node[i]->input[1]) : NAMES_NONE;

        if (v == NAMES_NONE || !r->g->values[v].data || r->g->values[v].said)
            continue;
        if (lost < 0)
            lost = is_any_lost(r, m);
        r->g->values[v].is_computed |= lost > 0;
    }
}

/* The constant of that note, or the table of its rows (onnx_rows.h), of floats; nothing is said of
 * it. NULL: it is gone, or another one. */
static struct graph_value *constant_of(struct reader *r, const Onnx__ValueInfoProto *note,
                                       bool *is_table)
{
    char rows[PARAM_FORM_NAME];
    uint32_t v = names_get(&r->names, reader_text(note->name));

    *is_table = v == NAMES_NONE || !r->g->values[v].data;
    snprintf(rows, sizeof(rows), "%s@rows", reader_text(note->name));
    if (*is_table)
        v = names_get(&r->names, rows);
    return v != NAMES_NONE && r->g->values[v].data && r->g->values[v].dtype == SH_F32 &&
                   !r->g->values[v].said
               ? &r->g->values[v]
               : NULL;
}

static bool has_numbers(const struct graph_value *v)
{
    bool differ = false;

    for (int64_t i = 1; i < graph_elements(v) && !differ; i++)
        differ = param_number(v->data, i) != param_number(v->data, 0);
    return differ;
}

/* Of the parameters in a list: has one no other place, and has one another? */
static void look_up_listed(const struct reader *r, const struct onnx_mentions *m, const char *list,
                           bool *alone, bool *again)
{
    size_t n = 0;

    *alone = *again = false;
    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];

        snprintf(one, sizeof(one), "%.*s", (int)SH_MIN(n, sizeof(one)), p);
        if (param_kind(&r->kinds, one) != GRAPH_SAID_PARAM)
            continue;
        *(has_other_place(r, m, one) ? again : alone) = true;
    }
}

/* What detach() held has no gradient. If it learns elsewhere, it would have to follow. */
static void read_detached(struct graph_value *v, bool again)
{
    if (again)
        v->is_computed = true;
    else
        v->said = GRAPH_SAID_BUFFER;
}

/* Parameters that were put together learn whoever reads them, and where the file has one of their
 * numbers several times, or one of them elsewhere as well, as what they are not. */
static void read_joined(struct reader *r, const struct onnx_mentions *live,
                        const Onnx__ValueInfoProto *note)
{
    bool is_table = false, alone, again;
    struct graph_value *v = constant_of(r, note, &is_table);
    char *list = v ? onnx_folded_from(note) : NULL;

    if (!list)
        return;
    look_up_listed(r, live, list, &alone, &again);
    if ((alone || again) && param_is_detached(list))
        read_detached(v, again);
    else if (has_numbers(v) && (alone || again)) {
        const bool is_joined = param_is_joined(note->name, list, &r->kinds);

        v->is_of_lost = alone;
        v->is_computed |= is_joined && again;
        if (is_joined && !again && is_table)
            v->said = GRAPH_SAID_PARAM;
        else if (is_joined && !again && strncmp(note->name, "val_", 4) != 0)
            read_repeated(v);
    }
    free(list);
}

static int read_all_joined(struct reader *r)
{
    const Onnx__GraphProto *g = r->model->graph;
    struct onnx_mentions live = {.n = 0};
    bool is_table;
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_value_info && !rc && param_kinds_known(&r->kinds); i++) {
        const struct graph_value *v = constant_of(r, g->value_info[i], &is_table);

        if (v && has_numbers(v))
            rc = add_mentioned(r, g->value_info[i], &live);
    }
    for (size_t i = 0; i < g->n_value_info && !rc && param_kinds_known(&r->kinds); i++)
        read_joined(r, &live, g->value_info[i]);
    onnx_mentions_fini(&live);
    return rc;
}

static int read_kinds(struct reader *r)
{
    const Onnx__GraphProto *g = r->model->graph;
    struct onnx_mentions mentions = {.n = 0};
    char param[PARAM_FORM_NAME];
    int rc = read_mentions(r, &mentions);

    for (size_t i = 0; i < g->n_value_info && !rc; i++) {
        const uint32_t v = names_get(&r->names, reader_text(g->value_info[i]->name));

        if (v == NAMES_NONE || !r->g->values[v].data)
            continue;
        r->g->values[v].said = (uint8_t)onnx_said(g->value_info[i], &r->kinds);
        r->g->values[v].is_computed =
            is_float_dtype(r->g->values[v].dtype) && /* integers are of sizes */
            onnx_is_computed(g->value_info[i], &r->kinds);
        if (onnx_is_repeated(g->value_info[i], &r->kinds))
            read_repeated(&r->g->values[v]);
        if (onnx_is_shifted(g->value_info[i], &r->kinds, param)) {
            if (has_other_place(r, &mentions, param))
                r->g->values[v].is_computed = true;
            else
                r->g->values[v].said = GRAPH_SAID_PARAM;
        }
        if (!r->g->values[v].said &&
            (onnx_is_part(g->value_info[i], &r->kinds, param) ||
             (is_row(&r->g->values[v]) && onnx_is_expanded(g->value_info[i], &r->kinds, param))) &&
            !has_other_place(r, &mentions, param)) /* whatever its numbers: zeros, a formula's */
            r->g->values[v].said = GRAPH_SAID_PARAM;
        if (is_zero_constant(&r->g->values[v]) && onnx_is_of_zeros(g->value_info[i], &r->kinds)) {
            r->g->values[v].said = GRAPH_SAID_BUFFER;
            r->g->values[v].is_computed = false;
        }
        if (!r->g->values[v].of)
            r->g->values[v].of = onnx_only_param(g->value_info[i], &r->kinds);
        r->g->values[v].is_letter = onnx_is_letter(g->value_info[i], &r->kinds);
        r->g->values[v].is_taken = onnx_is_taken(g->value_info[i], &r->kinds);
        r->g->says_kinds |= onnx_says_kind(g->value_info[i]);
    }
    for (uint32_t v = 0; v < r->g->n_values && param_kinds_known(&r->kinds); v++)
        if (r->g->values[v].data && !r->g->values[v].said)
            r->g->values[v].said = (uint8_t)param_kind(&r->kinds, r->g->values[v].name);
    for (uint32_t v = 0; v < r->g->n_values; v++)
        if (r->g->values[v].data && !r->g->values[v].said)
            r->g->values[v].said = said_of_original(r, r->g->values[v].name);
    r->g->says_kinds |= param_kinds_known(&r->kinds);
    read_extremes(r, &mentions);
    onnx_mentions_fini(&mentions);
    return rc ? rc : read_all_joined(r);
}

/* The next of a list of names with commas between. False: it is at its end. */
static bool next_listed(const char **list, char *out, size_t size)
{
    size_t n;

    *list += strspn(*list, " ,");
    n = strcspn(*list, ",");
    snprintf(out, size, "%.*s", (int)n, *list);
    *list += n;
    return n > 0;
}

/* Does a name of a list stand for it, as it is or as it was? */
static bool is_named_so(const char *one, const char *name)
{
    struct original original;

    return fnmatch(one, name, 0) == 0 ||
           (original_of(name, &original) && fnmatch(one, original.name, 0) == 0);
}

static bool is_name_listed(const char *list, const char *name)
{
    char one[256];

    while (next_listed(&list, one, sizeof(one)))
        if (is_named_so(one, name))
            return true;
    return false;
}

static bool names_any(const struct graph *g, const char *one)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].data && is_named_so(one, g->values[i].name))
            return true;
    return false;
}

/* A buffer whose name is mistyped would be trained without a word. */
static void note_unmatched(struct graph *g, const char *list)
{
    const size_t size = sizeof(g->unmatched);
    char one[256], clean[48];

    while (next_listed(&list, one, sizeof(one))) {
        const size_t len = strlen(g->unmatched);
        const bool is_full = len && g->unmatched[len - 1] == '.';
        size_t n;

        if (is_full || names_any(g, one))
            continue;
        n = strlen(graph__clean(one, clean, sizeof(clean)));
        snprintf(g->unmatched + len, size - len, "%s%s", len ? ", " : "",
                 len + n + sizeof(", , ...") > size ? "..." : clean);
    }
}

/* Who pushes a file may say what is what: onnx_told() has the last word. */
static void read_told(struct reader *r)
{
    const char *buffers = onnx_told(r->model, SH_EXTERNAL_BUFFERS),
               *params = onnx_told(r->model, SH_EXTERNAL_PARAMETERS);

    for (uint32_t i = 0; i < r->g->n_values && (buffers[0] || params[0]); i++) {
        struct graph_value *v = &r->g->values[i];
        const bool is_buffer = v->is_param && is_name_listed(buffers, v->name);

        if (!is_buffer && !(v->is_param && is_name_listed(params, v->name)))
            continue;
        v->said = is_buffer ? GRAPH_SAID_BUFFER : GRAPH_SAID_LEARNS;
        v->is_assumed = v->is_computed = false;
    }
    note_unmatched(r->g, buffers);
    note_unmatched(r->g, params);
}

static bool is_output(const struct graph *g, uint32_t v)
{
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == v)
            return true;
    return false;
}

/* A value that is listed again, as PyTorch's older exporter does where a module returns it twice,
 * is one output: they are told apart by names. */
static int read_graph_outputs(struct reader *r)
{
    const Onnx__GraphProto *g = r->model->graph;
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_output && rc == SH_OK; i++) {
        uint32_t v = names_get(&r->names, reader_text(g->output[i]->name));
        char name[128];

        if (v == NAMES_NONE)
            rc = SH_FAIL(r->err, SH_E_INVALID, "nothing computes output %s of the model",
                         graph__clean(reader_text(g->output[i]->name), name, sizeof(name)));
        else if (!is_output(r->g, v))
            rc = graph_add_output(r->g, v, r->err);
    }
    return rc;
}

/* ---------------------------------------------------------------- the whole */

static int read_model(struct reader *r, const char *path, bool beside)
{
    struct onnx_restored restored = {0};
    Onnx__GraphProto *g;
    int rc = onnx_file_load(path, beside, &r->source, &r->model, r->err);

    if (rc)
        return rc;
    g = r->model->graph;
    if (!g)
        return SH_FAIL(r->err, SH_E_INVALID, "the file holds no graph: is it an ONNX model?");
    rc = onnx_file_model_opset(r->model, &r->scope->opset, r->err);
    if (!rc)
        rc = reader_functions(r);
    if (!rc)
        rc = graph_new(&r->g, r->err);
    if (!rc)
        rc = names_init(&r->names, r->err);
    if (rc)
        return rc;
    r->g->opset = r->scope->opset;
    rc = onnx_kinds(g, &r->kinds, r->err);
    if (!rc)
        rc = onnx_restore(r->model, r->source, &r->kinds, &restored, r->err);
    r->g->n_unfolded = restored.n_unfolded;
    r->g->n_folded = restored.n_folded;
    r->g->n_untied = restored.n_untied;
    r->g->n_guessed = restored.n_guessed;
    r->g->n_unbounded = restored.n_unbounded;
    sh_strlcpy(r->g->left_out, restored.left_out, sizeof(r->g->left_out));
    if (!rc)
        rc = read_values(r);
    if (!rc)
        rc = read_kinds(r);
    if (!rc && !r->g->says_kinds)
        rc = reader_state(r);
    if (!rc)
        read_told(r);
    for (size_t i = 0; i < g->n_node && rc == SH_OK; i++)
        rc = reader_node(r, g->node[i]);
    if (!rc)
        rc = read_graph_outputs(r);
    if (!rc)
        rc = graph__sort(r->g, r->err);
    if (!rc)
        rc = graph__validate(r->g, r->err);
    if (!rc)
        rc = graph__find_params(r->g, r->err);
    if (!rc)
        rc = graph__find_padding(r->g, r->err);
    if (!rc)
        rc = graph__find_masked(r->g, r->err);
    if (!rc)
        rc = graph__find_hits(r->g, r->err);
    return rc ? rc : reader_pixels(r);
}

int onnx_read_list(const char *path, bool beside, struct graph **out, char **list,
                   struct sh_err *err)
{
    struct scope top = {0};
    struct reader r = {.err = err, .scope = &top};
    int rc;

    *out = NULL;
    if (list)
        *list = NULL;
    sh_buf_init(&r.list, GRAPH_LIST_MAX);
    rc = read_model(&r, path, beside);
    if (!rc && r.n_refused > 0) {
        rc = SH_FAIL(err, SH_E_UNSUPPORTED, "%u of %zu nodes are not supported, the first is %.*s",
                     r.n_refused, r.model->graph->n_node, (int)strcspn(r.list.data, "\n"),
                     r.list.data);
        if (list)
            *list = sh_buf_take(&r.list);
    }
    if (!rc) {
        graph_settle(r.g, false);
        *out = r.g;
        r.g->backing = r.source; /* tensors may lie there */
        r.g->backing_free = onnx_source_close;
        r.g = NULL;
        r.source = NULL;
    }
    graph_free(r.g);
    names_fini(&r.names);
    param_kinds_fini(&r.kinds);
    reader_functions_fini(&r);
    sh_buf_fini(&r.list);
    onnx_file_free(r.model);
    onnx_source_close(r.source);
    return rc;
}

int onnx_read(const char *path, struct graph **out, struct sh_err *err)
{
    return onnx_read_list(path, true, out, NULL, err);
}
