/* onnx_rows.c - see onnx_rows.h. */
#include "runtime/model/onnx_rows.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_rules.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_BYTES ((size_t)64 << 20)  /* of one that is looked at */
#define MIN_COLUMNS 4                 /* fewer may be equal by chance */
#define MAX_TURNED ((size_t)16 << 20) /* bytes of one whose rows lie along another axis */

struct rows {
    Onnx__GraphProto *g;
    struct onnx_source *source;
    struct names inputs; /* of the graph: what the caller may give stays */
    struct names said;   /* value_info, by name */
    struct onnx_build b;
    const struct param_kinds *kinds;
    struct sh_err *err;
};

/* What is compared: a row of a tensor, or all of it. */
struct part {
    const uint8_t *data; /* aligned to 1; BORROWED */
    size_t bytes;
    uint32_t number; /* of the row, or the initializer */
    bool follows;    /* among equal ones it comes after those that do not */
};

static int by_numbers(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    order = memcmp(x->data, y->data, x->bytes);
    if (order)
        return order;
    if (x->follows != y->follows)
        return x->follows ? 1 : -1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static bool are_parts_equal(const struct part *x, const struct part *y)
{
    return x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
}

/* Elements of a tensor of F32 that may be looked at; 0: it may not. */
static size_t row_elements(const struct rows *r, const Onnx__TensorProto *t)
{
    const size_t n = t->n_dims > 0 ? onnx_tensor_floats(t, MAX_BYTES / sizeof(float)) : 0;

    return n && names_get(&r->inputs, t->name) == NAMES_NONE ? n : 0;
}

/* ---------------------------------------------------------------- what is made */

/* What NAME@suffix is, a tensor of int64 that is made. */
struct with {
    const char *suffix;
    const int64_t *dims;
    size_t n_dims;
    int64_t *data; /* OWNED */
    size_t n;
};

/* NAME = op(of, NAME@suffix). TAKES w->data. */
static int replace_by_rows(struct rows *r, const char *op, const char *name, const char *of,
                           int64_t axis, struct with *w)
{
    char *made = NULL, *input = NULL;
    int rc = sh_asprintf(r->err, &made, "%s@%s", name, w->suffix);

    if (!rc)
        rc = sh_strdup(made, &input, r->err);
    if (!rc)
        rc = onnx_build_node(&r->b, op, of, made, name, axis);
    free(made);
    if (rc) {
        free(w->data);
        free(input);
        return rc;
    }
    return onnx_build_tensor(&r->b, input, SH_I64, w->dims, w->n_dims, w->data,
                             w->n * sizeof(*w->data));
}

/* ---------------------------------------------------------------- equal rows */

/* number[i]: which of the rows that differ row i is, in the order in which they are first met;
 * first[k]: one that is number k. Returns how many they are. sorted: n parts, of the rows. */
static size_t number_rows(struct part *sorted, size_t n, int64_t *number, uint32_t *first)
{
    size_t found = 0;

    qsort(sorted, n, sizeof(*sorted), by_numbers);
    for (size_t i = 0, head = 0; i < n; i++) { /* the head has the lowest number of its like */
        if (!are_parts_equal(&sorted[head], &sorted[i]))
            head = i;
        number[sorted[i].number] = sorted[head].number;
    }
    for (size_t i = 0; i < n; i++) { /* heads come before their like */
        const size_t head = (size_t)number[i];

        if (head == i)
            first[found] = (uint32_t)i;
        number[i] = head == i ? (int64_t)found++ : number[head];
    }
    return found;
}

/* A tensor as rows of numbers along its last axis, or along the axis behind which `lead` ends, all
 * axes before which are 1. */
struct lines {
    const uint8_t *data; /* of rows * columns */
    size_t rows, columns, lead;
    bool last;
};

/* The table of n rows, as it lies: turned where rows are along an axis that is not the last. */
static uint8_t *copy_lines(const struct lines *l, const uint32_t *first, size_t n)
{
    const size_t row = l->columns * sizeof(float);
    uint8_t *table = malloc(n * row);

    for (size_t k = 0; k < n && table; k++)
        for (size_t c = 0; c < l->columns; c++)
            memcpy(table + (l->last ? k * l->columns + c : c * n + k) * sizeof(float),
                   l->data + first[k] * row + c * sizeof(float), sizeof(float));
    return table;
}

static int by_value(const void *a, const void *b)
{
    float x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? -1 : x > y;
}

/* Single numbers that lie on a line are distances themselves. */
static bool are_distances(const uint8_t *table, const struct lines *l, size_t n)
{
    uint8_t *sorted = l->columns == 1 ? malloc(n * sizeof(float)) : NULL;
    bool are = false;

    if (sorted) {
        memcpy(sorted, table, n * sizeof(float));
        qsort(sorted, n, sizeof(float), by_value);
        are = param_is_line(sorted, (int64_t)n);
    }
    free(sorted);
    return are;
}

/* The table of the rows that differ, in place of t. TAKES number. *made: it has formed. */
static int make_row_table(struct rows *r, uint32_t i, const struct lines *l, const uint32_t *first,
                          size_t n, int64_t *number, bool *made)
{
    const Onnx__TensorProto *t = r->g->initializer[i];
    const size_t n_index = t->n_dims - l->lead - l->last;
    int64_t dims[SH_MAX_RANK + 1], index[SH_MAX_RANK];
    struct with w = {"index", index, n_index, number, l->rows};
    uint8_t *table = copy_lines(l, first, n);
    const size_t n_dims = l->lead + 1 + l->last;
    char *name = NULL;
    int rc = table ? sh_asprintf(r->err, &name, "%s@rows", t->name)
                   : SH_FAIL(r->err, SH_E_NOMEM, "could not allocate %zu rows", n);

    /* rows of [n, columns] are taken, or along the last axis of [1, columns, n] */
    memcpy(dims, t->dims, l->lead * sizeof(*dims));
    dims[l->lead] = (int64_t)n;
    dims[n_dims - 1] = l->last ? t->dims[t->n_dims - 1] : (int64_t)n;
    memcpy(index, t->dims + l->lead, n_index * sizeof(*index));
    *made = !rc && param_is_scattered(table, (int)n_dims, dims) && !are_distances(table, l, n);
    if (*made)
        rc = replace_by_rows(r, "Gather", t->name, name, (int64_t)l->lead, &w);
    else
        free(number);
    if (rc || !*made) {
        free(table);
        free(name);
        return rc;
    }
    r->b.gone[i] = true;
    return onnx_build_tensor(&r->b, name, SH_F32, dims, n_dims, table,
                             n * l->columns * sizeof(float));
}

static bool is_tensor_of_code(const struct rows *r, const Onnx__TensorProto *t)
{
    const uint32_t i = names_get(&r->said, t->name);
    const Onnx__ValueInfoProto *v = i != NAMES_NONE ? r->g->value_info[i] : NULL;

    return v && (onnx_said(v, r->kinds) == GRAPH_SAID_BUFFER || onnx_is_computed(v, r->kinds));
}

static bool are_zeros(const uint8_t *row, size_t columns)
{
    bool are = true;

    for (size_t c = 0; c < columns && are; c++)
        are = param_number(row, (int64_t)c) == 0;
    return are;
}

/* Rows that were looked up, one of which is zeros: it stands for padding (onnx_padding.c), which
 * only a table can say. What was joined may have a token that begins as zeros. */
static bool has_padding(const Onnx__TensorProto *t, const struct lines *l)
{
    bool has = false;

    for (size_t k = 0; k < l->rows && param_is_called(t->name, "embedding") && !has; k++)
        has = are_zeros(l->data + k * l->columns * sizeof(float), l->columns);
    return has;
}

/* most: of rows that may differ. */
static int look_at_lines(struct rows *r, uint32_t i, const struct lines *l, size_t most, bool *made)
{
    struct part *sorted = malloc(l->rows * sizeof(*sorted));
    int64_t *number = malloc(l->rows * sizeof(*number));
    uint32_t *first = malloc(l->rows * sizeof(*first));
    size_t found;
    int rc = SH_OK;

    *made = false;
    if (!sorted || !number || !first) {
        free(sorted);
        free(number);
        free(first);
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a list of %zu rows", l->rows);
    }
    for (size_t k = 0; k < l->rows; k++)
        sorted[k] = (struct part){.data = l->data + k * l->columns * sizeof(float),
                                  .bytes = l->columns * sizeof(float),
                                  .number = (uint32_t)k};
    found = number_rows(sorted, l->rows, number, first);
    free(sorted);
    if (found <= most && !is_tensor_of_code(r, r->g->initializer[i]))
        rc = make_row_table(r, i, l, first, found, number, made);
    else
        free(number);
    free(first);
    return rc;
}

/* [1, heads, from, to], or [from, to] of one head: what a table says of pairs of places, the same
 * for all of one distance. */
static int look_at_pairs(struct rows *r, uint32_t i, const uint8_t *data)
{
    const Onnx__TensorProto *t = r->g->initializer[i];
    const size_t n = row_elements(r, t);
    struct lines l = {.columns = 1};
    uint8_t *turned;
    bool made;
    int rc;

    while (l.lead + 2 < t->n_dims && t->dims[l.lead] == 1)
        l.lead++;
    if (l.lead + 2 < t->n_dims)
        l.columns = (size_t)t->dims[l.lead++];
    if (n * sizeof(float) > MAX_TURNED)
        return SH_OK;
    l.rows = n / l.columns;
    turned = malloc(n * sizeof(float));
    if (!turned)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate %zu rows", l.rows);
    for (size_t k = 0; k < n; k++)
        memcpy(turned + (k % l.rows * l.columns + k / l.rows) * sizeof(float),
               data + k * sizeof(float), sizeof(float));
    l.data = turned;
    rc = look_at_lines(r, i, &l, l.rows / 2, &made);
    free(turned);
    return rc;
}

static int look_at_rows(struct rows *r, uint32_t i)
{
    const Onnx__TensorProto *t = r->g->initializer[i];
    const size_t n = row_elements(r, t);
    const size_t columns = n ? (size_t)t->dims[t->n_dims - 1] : 1, rows = n / columns;
    const bool may = n && t->n_dims >= 2 && rows >= 2;
    const bool moved = may && param_is_moved(t->name);
    const bool pairs = may && (moved || strncmp(t->name, "onnx::Add", 9) == 0);
    const uint8_t *data = moved || pairs ? onnx_tensor_look(t, r->source) : NULL;
    const struct lines l = {data, rows, columns, 0, true};
    bool made = false;
    int rc = SH_OK;

    if (data && moved && columns >= MIN_COLUMNS)
        rc = look_at_lines(r, i, &l, has_padding(t, &l) ? rows : rows - 1, &made);
    if (data && pairs && !made && !rc)
        rc = look_at_pairs(r, i, data);
    return rc;
}

/* ---------------------------------------------------------------- the numbers of another */

static bool is_init_vector(const Onnx__TensorProto *t)
{
    int wide = 0;

    for (size_t i = 0; i < t->n_dims; i++)
        wide += t->dims[i] > 1;
    return wide == 1;
}

/* The same axes, but for those of 1: onnx_tie.h says which of those are one. */
static bool are_tensors_alike(const Onnx__TensorProto *a, const Onnx__TensorProto *b)
{
    size_t i = 0, k = 0;

    for (;;) {
        while (i < a->n_dims && a->dims[i] == 1)
            i++;
        while (k < b->n_dims && b->dims[k] == 1)
            k++;
        if (i == a->n_dims || k == b->n_dims || a->dims[i] != b->dims[k])
            return i == a->n_dims && k == b->n_dims;
        i++;
        k++;
    }
}

/* Has t the numbers of `of` since it is that one in another shape? Where the exporter made both,
 * the numbers of their axes say so: layers that began as copies have the same. */
static bool is_shaped(const Onnx__TensorProto *t, const Onnx__TensorProto *of)
{
    if (param_is_made_up(of->name))
        return param_is_turned(of->name) && of->n_dims != t->n_dims && !is_init_vector(of);
    return !param_is_buffer(of->name) && (is_init_vector(of) || !are_tensors_alike(of, t));
}

static int make_shape(struct rows *r, uint32_t i, const char *of)
{
    const Onnx__TensorProto *t = r->g->initializer[i];
    const int64_t n = (int64_t)t->n_dims;
    int64_t *shape = malloc(t->n_dims * sizeof(*shape));

    if (!shape)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a shape");
    memcpy(shape, t->dims, t->n_dims * sizeof(*shape));
    r->b.gone[i] = true;
    return replace_by_rows(r, "Reshape", t->name, of, 0,
                           &(struct with){"shape", &n, 1, shape, t->n_dims});
}

static int look_at_shapes(struct rows *r)
{
    const size_t n = r->g->n_initializer;
    struct part *list = calloc(n + 1, sizeof(*list));
    size_t found = 0;
    int rc = SH_OK;

    if (!list)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a list of %zu initializers", n);
    for (size_t i = 0; i < n; i++) {
        const Onnx__TensorProto *t = r->g->initializer[i];
        const size_t size = row_elements(r, t);
        const uint8_t *data = size > 1 ? onnx_tensor_look(t, r->source) : NULL;

        if (data)
            list[found++] = (struct part){.data = data,
                                          .bytes = size * sizeof(float),
                                          .number = (uint32_t)i,
                                          .follows = param_is_turned(t->name)};
    }
    qsort(list, found, sizeof(*list), by_numbers);
    for (size_t i = 1, head = 0; i < found && rc == SH_OK; i++) {
        const Onnx__TensorProto *of;
        const int64_t size = (int64_t)(list[i].bytes / sizeof(float));

        if (!are_parts_equal(&list[head], &list[i]))
            head = i;
        of = r->g->initializer[list[head].number];
        if (i > head && list[i].follows && is_shaped(r->g->initializer[list[i].number], of) &&
            param_is_scattered(list[i].data, 1, &size))
            rc = make_shape(r, list[i].number, of->name);
    }
    free(list);
    return rc;
}

/* ---------------------------------------------------------------- all */

int onnx_rows(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
              struct sh_err *err)
{
    struct rows r = {.g = m->graph, .source = source, .kinds = kinds, .err = err};
    const size_t n = m->graph->n_initializer;
    int rc = names_init(&r.inputs, err);

    if (!rc)
        rc = onnx_build_init(&r.b, m->graph, err);
    for (size_t i = 0; i < m->graph->n_input && rc == SH_OK; i++)
        rc = names_put_first(&r.inputs, m->graph->input[i]->name, (uint32_t)i, err);
    if (!rc)
        rc = names_init(&r.said, err);
    for (size_t i = 0; i < m->graph->n_value_info && rc == SH_OK; i++)
        rc = names_put_first(&r.said, m->graph->value_info[i]->name, (uint32_t)i, err);
    onnx_source_walk(source);
    if (!rc)
        rc = look_at_shapes(&r);
    onnx_source_walk(source);
    for (size_t i = 0; i < n && rc == SH_OK; i++)
        if (!r.b.gone[i])
            rc = look_at_rows(&r, (uint32_t)i);
    if (!rc)
        rc = onnx_build_finish(&r.b);
    onnx_build_fini(&r.b);
    names_fini(&r.inputs);
    names_fini(&r.said);
    return rc;
}
