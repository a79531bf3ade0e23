/* onnx_sums.c - see onnx_sums.h. */
#include "runtime/model/onnx_sums.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_forms.h"
#include "runtime/model/param_rules.h"

#include <math.h>
#include <stdlib.h>

#define MAX_ELEMENTS ((size_t)1 << 20) /* of one that is looked at */
#define MIN_PROOF 32                   /* numbers that have to be what the others say */
#define SAME 1e-6                      /* of the largest number: what rounding leaves */

struct sums {
    struct onnx_build b;
    struct onnx_source *source;
    const struct param_kinds *kinds;
    struct names taken; /* names of initializers, and of inputs of the graph */
};

/* x[outer, rows, columns, inner] = r[outer, rows, 1, inner] + c[outer, 1, columns, inner] */
struct split {
    size_t outer, rows, columns, inner;
};

/* Elements of a tensor of F32 that may be looked at; 0: it may not. */
static size_t sum_elements(const Onnx__TensorProto *t)
{
    return onnx_tensor_floats(t, MAX_ELEMENTS);
}

static double number_at_split(const uint8_t *x, const struct split *s, size_t o, size_t r, size_t c,
                              size_t k)
{
    return (double)param_number(x, (int64_t)(((o * s->rows + r) * s->columns + c) * s->inner + k));
}

static bool is_split_sum(const uint8_t *x, const struct split *s, double bound)
{
    for (size_t o = 0; o < s->outer; o++)
        for (size_t r = 1; r < s->rows; r++)
            for (size_t c = 1; c < s->columns; c++)
                for (size_t k = 0; k < s->inner; k++)
                    if (!(fabs(number_at_split(x, s, o, r, c, k) -
                               number_at_split(x, s, o, 0, c, k) -
                               number_at_split(x, s, o, r, 0, k) +
                               number_at_split(x, s, o, 0, 0, k)) <= bound))
                        return false;
    return s->rows > 1 && s->columns > 1 &&
           s->outer * (s->rows - 1) * (s->columns - 1) * s->inner >= MIN_PROOF;
}

/* Two axes that are rows and columns, or one that is both. */
static bool find_split(const Onnx__TensorProto *t, const uint8_t *x, double bound, struct split *s)
{
    *s = (struct split){.outer = 1, .inner = sum_elements(t)};
    for (size_t i = 0; i < t->n_dims; i++) {
        const size_t n = (size_t)t->dims[i];

        s->inner /= n;
        for (s->rows = 2; s->rows < n; s->rows++) {
            s->columns = n / s->rows;
            if (s->rows * s->columns == n && is_split_sum(x, s, bound))
                return true;
        }
        s->rows = n;
        s->columns = i + 1 < t->n_dims ? (size_t)t->dims[i + 1] : 1;
        s->inner /= s->columns;
        if (is_split_sum(x, s, bound))
            return true;
        s->inner *= s->columns;
        s->outer *= n;
    }
    return false;
}

/* The two as numbers of their own, neither of which a formula gives (coordinates, distances). */
static bool take_apart(const uint8_t *x, const struct split *s, float *rows, float *columns)
{
    const int64_t dims[2][3] = {{(int64_t)s->outer, (int64_t)s->rows, (int64_t)s->inner},
                                {(int64_t)s->outer, (int64_t)s->columns, (int64_t)s->inner}};

    for (size_t o = 0; o < s->outer; o++)
        for (size_t k = 0; k < s->inner; k++) {
            const double half = number_at_split(x, s, o, 0, 0, k) / 2;

            for (size_t r = 0; r < s->rows; r++)
                rows[(o * s->rows + r) * s->inner + k] =
                    (float)(number_at_split(x, s, o, r, 0, k) - half);
            for (size_t c = 0; c < s->columns; c++)
                columns[(o * s->columns + c) * s->inner + k] =
                    (float)(number_at_split(x, s, o, 0, c, k) - half);
        }
    return param_is_scattered(rows, 3, dims[0]) && param_is_scattered(columns, 3, dims[1]);
}

static int put_split_sum(struct sums *f, size_t i, const struct split *s,
                         const char *const names[2], float *data[2])
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    const int64_t outer = (int64_t)s->outer, inner = (int64_t)s->inner;
    const int64_t dims[2][4] = {{outer, (int64_t)s->rows, 1, inner},
                                {outer, 1, (int64_t)s->columns, inner}};
    char *sum = NULL;
    int rc = sh_asprintf(f->b.err, &sum, "%s@sum", t->name);

    for (int k = 0; k < 2 && !rc; k++) {
        char *copy = NULL;

        rc = sh_strdup(names[k], &copy, f->b.err);
        if (rc)
            break;
        rc = onnx_build_tensor(&f->b, copy, SH_F32, dims[k], 4, data[k],
                               (size_t)(dims[k][1] * dims[k][2]) * s->outer * s->inner *
                                   sizeof(float));
        data[k] = NULL;
        if (!rc)
            rc = names_put_first(&f->taken, copy, NAMES_NONE - 1, f->b.err);
    }
    if (!rc)
        rc = onnx_build_node(&f->b, "Add", names[0], names[1], sum, 0);
    if (!rc)
        rc = onnx_build_shaped(&f->b, "Reshape", sum, t);
    f->b.gone[i] = !rc;
    free(sum);
    return rc;
}

static int look_at_split(struct sums *f, size_t i, const char *const names[2])
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    const size_t n = sum_elements(t);
    const uint8_t *x = onnx_tensor_look(t, f->source);
    float *data[2] = {NULL, NULL};
    struct split s;
    double largest = 0;
    int rc = SH_OK;

    for (size_t k = 0; k < n && x; k++)
        largest = fmax(largest, fabs((double)param_number(x, (int64_t)k)));
    if (!x || !isfinite(largest) || !find_split(t, x, SAME * largest, &s))
        return SH_OK;
    data[0] = malloc(s.outer * s.rows * s.inner * sizeof(float));
    data[1] = malloc(s.outer * s.columns * s.inner * sizeof(float));
    if (!data[0] || !data[1])
        rc = SH_FAIL(f->b.err, SH_E_NOMEM, "could not allocate two parameters");
    else if (take_apart(x, &s, data[0], data[1]))
        rc = put_split_sum(f, i, &s, names, data);
    free(data[0]);
    free(data[1]);
    return rc;
}

/* Initializer i, of which `list` says what it was computed of; NULL: nothing is said. */
static int look_at_one(struct sums *f, size_t i, const char *list)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    char of[2][PARAM_FORM_NAME];
    char *names[2] = {NULL, NULL};
    int rc = SH_OK;

    if (list ? !param_form_sum(t->name, list, f->kinds, of) : strncmp(t->name, "onnx::Add", 9) != 0)
        return SH_OK;
    for (int k = 0; k < 2 && !rc; k++)
        rc = list ? sh_asprintf(f->b.err, &names[k], "%s@%s", of[k], t->name)
                  : sh_asprintf(f->b.err, &names[k], "%s.%s", param_bare_name(t->name),
                                k ? "columns" : "rows");
    if (!rc && names_get(&f->taken, names[0]) == NAMES_NONE &&
        names_get(&f->taken, names[1]) == NAMES_NONE)
        rc = look_at_split(f, i, (const char *const[]){names[0], names[1]});
    free(names[0]);
    free(names[1]);
    return rc;
}

static int look_at_sums(struct sums *f)
{
    const Onnx__GraphProto *g = f->b.g;
    const bool known = param_kinds_known(f->kinds);
    int rc = SH_OK;

    onnx_source_walk(f->source);
    for (size_t i = 0; i < f->b.n_file && !known && !rc; i++)
        if (sum_elements(g->initializer[i]) && names_get(&f->taken, g->initializer[i]->name) == i)
            rc = look_at_one(f, i, NULL);
    for (size_t k = 0; k < g->n_value_info && known && !rc; k++) {
        const char *name = g->value_info[k]->name;
        const uint32_t i = name ? names_get(&f->taken, name) : NAMES_NONE;
        const bool is = i < f->b.n_file && !f->b.gone[i] && sum_elements(g->initializer[i]) &&
                        strcmp(g->initializer[i]->name, name) == 0;
        char *list = is ? onnx_folded_from(g->value_info[k]) : NULL;

        if (list)
            rc = look_at_one(f, i, list);
        free(list);
    }
    return rc;
}

int onnx_sums(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
              struct sh_err *err)
{
    struct sums f = {.source = source, .kinds = kinds};
    const Onnx__GraphProto *g = m->graph;
    int rc = names_init(&f.taken, err);

    if (!rc)
        rc = onnx_build_init(&f.b, m->graph, err);
    for (size_t i = 0; i < g->n_input && !rc; i++) /* what the caller may give stays */
        rc = names_put_first(&f.taken, g->input[i]->name, NAMES_NONE - 1, f.b.err);
    for (size_t i = 0; i < g->n_initializer && !rc; i++)
        rc = names_put_first(&f.taken, g->initializer[i]->name, i, f.b.err);
    if (!rc)
        rc = look_at_sums(&f);
    if (!rc)
        rc = onnx_build_finish(&f.b);
    onnx_build_fini(&f.b);
    names_fini(&f.taken);
    return rc;
}
