/* onnx_forms.c - see onnx_forms.h. */
#include "runtime/model/onnx_forms.h"

#include "common/mem.h"
#include "runtime/model/onnx_alike.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_forms.h"
#include "runtime/model/param_rules.h"

#include <math.h>
#include <stdlib.h>

#define MAX_ELEMENTS ((size_t)1 << 24) /* of one that is looked at */
#define MIN_ZEROS 8                    /* one of so many at least, where nothing says of a mask */
#define MAX_MISSES 64                  /* of those that were made of the same, for one */

struct forms {
    struct onnx_build b;
    struct onnx_source *source;
    const struct param_kinds *kinds;
    struct names names;  /* of initializers, and of those that are made; to their numbers */
    struct names inputs; /* of the graph: what the caller may give stays */
    struct onnx_alike alike;
    uint32_t n_unbounded;
};

/* Elements of a tensor of F32 that may be looked at; 0: it may not. */
static size_t form_elements(const Onnx__TensorProto *t)
{
    return onnx_tensor_floats(t, MAX_ELEMENTS);
}

static bool stays(const struct forms *f, size_t i)
{
    const char *name = f->b.g->initializer[i]->name;

    return f->b.gone[i] || !name || names_get(&f->inputs, name) != NAMES_NONE;
}

static bool have_same_axes(const Onnx__TensorProto *a, const Onnx__TensorProto *b)
{
    return a->n_dims == b->n_dims &&
           (a->n_dims == 0 || memcmp(a->dims, b->dims, a->n_dims * sizeof(*a->dims)) == 0);
}

/* A new initializer with the axes of t. TAKES data. */
static int add_initializer(struct forms *f, const char *name, const Onnx__TensorProto *t,
                           float *data, size_t n)
{
    char *copy = NULL;
    int rc = sh_strdup(name, &copy, f->b.err);

    if (rc) {
        free(data);
        return rc;
    }
    rc = onnx_build_tensor(&f->b, copy, SH_F32, t->dims, t->n_dims, data, n * sizeof(float));
    return rc ? rc : names_put(&f->names, copy, (uint32_t)f->b.g->n_initializer - 1, f->b.err);
}

/* What the parameter of t is called in the graph, or what is it with the axes of t; *there: it has
 * these numbers already. OWNED. */
static int name_param(struct forms *f, const char *param, const Onnx__TensorProto *t,
                      const float *x, bool but_signs, char **out, bool *there)
{
    const uint32_t of = names_get(&f->names, param);
    const Onnx__TensorProto *other = of == NAMES_NONE ? NULL : f->b.g->initializer[of];
    const uint8_t *data = other && form_elements(other) == form_elements(t)
                              ? onnx_tensor_look(other, f->source)
                              : NULL;
    int rc;

    *there = data;
    for (size_t i = 0; i < form_elements(t) && *there; i++) {
        const float is = param_number(data, i);

        *there = fabsf((but_signs ? fabsf(is) : is) - x[i]) <= 1e-4f * (1 + fabsf(x[i]));
    }
    if (!other || (*there && have_same_axes(other, t)))
        return sh_strdup(param, out, f->b.err);
    rc = sh_asprintf(f->b.err, out, "%s@%s", param, t->name);
    if (!rc && *there) {
        Onnx__TensorProto like = *t;

        like.name = *out;
        rc = onnx_build_shaped(&f->b, "Reshape", param, &like);
    }
    return rc;
}

/* Nodes from the parameter to the constant, which is called `to`. */
static int add_steps(struct forms *f, const struct param_form *form, const char *param,
                     const char *to, int rank)
{
    char *from = NULL;
    int rc = sh_strdup(param, &from, f->b.err);

    for (int k = 0; k < form->n_steps && rc == SH_OK; k++) {
        const char *op = param_form_op(form, k);
        char *out = NULL;

        rc = k + 1 < form->n_steps ? sh_asprintf(f->b.err, &out, "%s@%s", to, op)
                                   : sh_strdup(to, &out, f->b.err);
        if (!rc)
            rc = onnx_build_node(&f->b, op, from, NULL, out,
                                 strstr(op, "Softmax") ? form->axis - rank : 0);
        free(from);
        from = out;
    }
    free(from);
    return rc;
}

static int look_at_form(struct forms *f, size_t i, const char *list)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    const size_t n = form_elements(t);
    const void *data = n ? onnx_tensor_look(t, f->source) : NULL;
    struct param_form form;
    char *name = NULL;
    bool there;
    float *x;
    int rc;

    if (!data || !param_form_read(t->name, list, f->kinds, &form))
        return SH_OK;
    x = malloc(n * sizeof(*x));
    if (!x)
        return SH_FAIL(f->b.err, SH_E_NOMEM, "could not allocate %zu numbers", n);
    if (!param_form_undo(&form, data, (int)t->n_dims, t->dims, x)) {
        free(x);
        return SH_OK;
    }
    rc = name_param(f, form.param, t, x, param_form_loses_signs(&form), &name, &there);
    if (!rc && !there) {
        rc = add_initializer(f, name, t, x, n);
        x = NULL;
    }
    if (!rc)
        rc = add_steps(f, &form, name, t->name, (int)t->n_dims);
    f->b.gone[i] = !rc;
    f->n_unbounded += !rc && form.is_bounded;
    free(x);
    free(name);
    return rc;
}

/* ---------------------------------------------------------------- masks */

/* t = param * (t != 0), of a mask whose name says that it is one. */
static int add_form_mask(struct forms *f, size_t i, const char *param, const uint8_t *data)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    const size_t n = form_elements(t);
    float *x = malloc(n * sizeof(*x)), *mask = malloc(n * sizeof(*mask));
    char *name = NULL, *with = NULL;
    bool there;
    int rc = x && mask ? SH_OK : SH_FAIL(f->b.err, SH_E_NOMEM, "could not allocate %zu numbers", n);

    for (size_t k = 0; k < n && rc == SH_OK; k++) {
        x[k] = param_number(data, k);
        mask[k] = x[k] != 0;
    }
    if (!rc)
        rc = name_param(f, param, t, x, false, &name, &there);
    if (!rc)
        rc = sh_asprintf(f->b.err, &with, "%s.mask", t->name);
    if (!rc && !there) {
        rc = add_initializer(f, name, t, x, n);
        x = NULL;
    }
    if (!rc) {
        rc = add_initializer(f, with, t, mask, n);
        mask = NULL;
    }
    if (!rc)
        rc = onnx_build_node(&f->b, "Mul", name, with, t->name, 0);
    f->b.gone[i] = !rc;
    free(x);
    free(mask);
    free(name);
    free(with);
    return rc;
}

static size_t count_zeros(const uint8_t *data, size_t n)
{
    size_t zeros = 0;

    for (size_t i = 0; i < n; i++)
        zeros += param_number(data, i) == 0;
    return zeros;
}

/* Are its matrices 0 on one side of a diagonal, and nowhere else? */
static bool is_triangle(const Onnx__TensorProto *t, const uint8_t *data)
{
    const int64_t n = (int64_t)form_elements(t), rows = t->n_dims > 1 ? t->dims[t->n_dims - 2] : 1,
                  columns = t->n_dims > 1 ? t->dims[t->n_dims - 1] : n;
    int64_t first = columns, last = -rows; /* diagonals with other numbers */
    bool above = t->n_dims > 1, below = above;

    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i % columns - i / columns % rows;

        if (param_number(data, i) != 0) {
            first = SH_MIN(first, at);
            last = SH_MAX(last, at);
        }
    }
    for (int64_t i = 0; i < n && (above || below); i++) {
        const int64_t at = i % columns - i / columns % rows;
        const bool is_zero = param_number(data, i) == 0;

        above &= is_zero == (at > last);
        below &= is_zero == (at < first);
    }
    return above || below;
}

/* Its numbers that are not 0 look like those of a weight, and those that are 0 are not all. */
static bool is_masked(const uint8_t *data, size_t n, size_t zeros)
{
    float *x = zeros > 0 && zeros < n ? malloc((n - zeros) * sizeof(*x)) : NULL;
    const int64_t rest = (int64_t)(n - zeros);
    bool is;

    for (size_t i = 0, k = 0; i < n && x; i++)
        if (param_number(data, i) != 0)
            x[k++] = param_number(data, i);
    is = x && param_is_scattered(x, 1, &rest);
    free(x);
    return is;
}

/* Where element i of t lies in a tensor that is broadcast to it. */
static size_t broadcast_index(const Onnx__TensorProto *t, const Onnx__TensorProto *of, size_t i)
{
    size_t at = 0, step = 1;

    for (size_t k = 0; k < t->n_dims; k++) {
        const size_t size = (size_t)t->dims[t->n_dims - 1 - k];

        if (k < of->n_dims && of->dims[of->n_dims - 1 - k] > 1) {
            at += i % size * step;
            step *= size;
        }
        i /= size;
    }
    return at;
}

static bool may_broadcast(const Onnx__TensorProto *t, const Onnx__TensorProto *of)
{
    bool may = of->n_dims <= t->n_dims;

    for (size_t k = 0; k < of->n_dims && may; k++)
        may = of->dims[of->n_dims - 1 - k] == 1 ||
              of->dims[of->n_dims - 1 - k] == t->dims[t->n_dims - 1 - k];
    return may;
}

/* Of a parameter and a buffer that are both in the file, as their numbers show. */
static int look_at_pair(struct forms *f, size_t i, const char *list, const uint8_t *product)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i], *of[2] = {NULL, NULL};
    const uint8_t *data[3] = {NULL, NULL, product}; /* a second look would count again */
    char name[2][PARAM_FORM_NAME];
    bool is = data[2] && param_form_pair(t->name, list, f->kinds, name[0], name[1]);
    int rc;

    for (int k = 0; k < 2 && is; k++) {
        const uint32_t at = names_get(&f->names, name[k]);

        of[k] = at < f->b.n_file && !f->b.gone[at] ? f->b.g->initializer[at] : NULL;
        data[k] = of[k] && form_elements(of[k]) ? onnx_tensor_look(of[k], f->source) : NULL;
        is = data[k] && may_broadcast(t, of[k]);
    }
    for (size_t e = 0; e < form_elements(t) && is; e++) {
        const float a = param_number(data[0], (int64_t)broadcast_index(t, of[0], e)) *
                        param_number(data[1], (int64_t)broadcast_index(t, of[1], e));

        is = fabsf(a - param_number(data[2], (int64_t)e)) <= 1e-6f * fabsf(a);
    }
    if (!is)
        return SH_OK;
    rc = onnx_build_node(&f->b, "Mul", name[0], name[1], t->name, 0);
    f->b.gone[i] = !rc;
    return rc;
}

/* "['a.mask', 'a.weight']" of a product, which may be turned then. */
static int look_at_product(struct forms *f, size_t i, const char *list)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    const size_t n = form_elements(t);
    const uint8_t *data = n ? onnx_tensor_look(t, f->source) : NULL;
    char param[PARAM_FORM_NAME];
    bool cuts;
    int rc = data ? look_at_pair(f, i, list, data) : SH_OK;

    if (rc || f->b.gone[i])
        return rc;
    return data && param_form_product(t->name, list, f->kinds, param, &cuts) &&
                   (!cuts || is_triangle(t, data)) && is_masked(data, n, count_zeros(data, n))
               ? add_form_mask(f, i, param, data)
               : SH_OK;
}

static bool are_bytes_equal(const uint8_t *data, size_t n)
{
    return memcmp(data, data + sizeof(float), (n - 1) * sizeof(float)) == 0;
}

/* ---------------------------------------------------------------- signs */

struct number {
    float size;
    uint32_t at;
};

static int by_row_size(const void *a, const void *b)
{
    const struct number *x = a, *y = b;

    return x->size != y->size ? (x->size < y->size ? -1 : 1) : (x->at > y->at) - (x->at < y->at);
}

/* t = sign * numbers[index], of numbers that differ. TAKES what it is given. */
static int add_signs(struct forms *f, size_t i, float *numbers, size_t n_numbers, int64_t *index,
                     float *sign)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    const int64_t of = (int64_t)n_numbers;
    const size_t n = form_elements(t);
    const struct {
        const char *what;
        enum sh_dtype dtype;
        const int64_t *dims;
        size_t n_dims, bytes;
        void *data;
    } MADE[] = {{"numbers", SH_F32, &of, 1, n_numbers * sizeof(float), numbers},
                {"index", SH_I64, t->dims, t->n_dims, n * sizeof(int64_t), index},
                {"signs", SH_F32, t->dims, t->n_dims, n * sizeof(float), sign}};
    char *names[4] = {NULL};
    int rc = sh_asprintf(f->b.err, &names[3], "%s@taken", t->name);

    for (size_t k = 0; k < SH_ARRAY_LEN(MADE); k++) {
        char *copy = NULL;

        if (!rc)
            rc = sh_asprintf(f->b.err, &names[k], "%s%s@%s", k ? "val_" : "", t->name,
                             MADE[k].what); /* as what does not learn, but for the first */
        if (!rc)
            rc = sh_strdup(names[k], &copy, f->b.err);
        if (!rc)
            rc = onnx_build_tensor(&f->b, copy, MADE[k].dtype, MADE[k].dims, MADE[k].n_dims,
                                   MADE[k].data, MADE[k].bytes);
        else
            free(MADE[k].data);
    }
    if (!rc)
        rc = onnx_build_node(&f->b, "Gather", names[0], names[1], names[3], 0);
    if (!rc)
        rc = onnx_build_node(&f->b, "Mul", names[3], names[2], t->name, 0);
    f->b.gone[i] = !rc;
    for (size_t k = 0; k < SH_ARRAY_LEN(names); k++)
        free(names[k]);
    return rc;
}

/* Numbers of parameters, each several times and some negated: they are trained once each. */
static int look_at_signs(struct forms *f, size_t i, const char *list)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    const size_t n = form_elements(t);
    const uint8_t *data = n >= MIN_ZEROS && param_form_signs(t->name, list, f->kinds)
                              ? onnx_tensor_look(t, f->source)
                              : NULL;
    struct number *all = data ? malloc(n * sizeof(*all)) : NULL;
    float *numbers = data ? malloc(n * sizeof(*numbers)) : NULL;
    float *sign = data ? malloc(n * sizeof(*sign)) : NULL;
    int64_t *index = data ? malloc(n * sizeof(*index)) : NULL, found = 0;
    int rc = SH_OK;

    for (size_t k = 0; k < n && all; k++)
        all[k] = (struct number){fabsf(param_number(data, (int64_t)k)), (uint32_t)k};
    if (all)
        qsort(all, n, sizeof(*all), by_row_size);
    for (size_t k = 0; k < n && all && numbers && sign && index; k++) {
        const float x = param_number(data, all[k].at);

        if (k == 0 || all[k].size != all[k - 1].size)
            numbers[found++] = all[k].size;
        index[all[k].at] = found - 1;
        sign[all[k].at] = x < 0 ? -1 : 1;
    }
    if (data && !(all && numbers && sign && index))
        rc = SH_FAIL(f->b.err, SH_E_NOMEM, "could not allocate the signs of a constant");
    free(all);
    if (found > 0 && found <= (int64_t)n / 2 && numbers[0] > 0)
        return add_signs(f, i, numbers, (size_t)found, index, sign);
    free(numbers);
    free(sign);
    free(index);
    return rc;
}

/* ---------------------------------------------------------------- expanded */

/* t = Expand(param) to the axes of t. */
static int put_expand(struct forms *f, size_t i, const char *param)
{
    f->b.gone[i] = true;
    return onnx_build_shaped(&f->b, "Expand", param, f->b.g->initializer[i]);
}

/* Do a and b come from what has one number: is no axis longer than 1 in both? */
static bool share_one(const Onnx__TensorProto *a, const Onnx__TensorProto *b)
{
    bool share = true;

    for (size_t k = 0; k < a->n_dims && k < b->n_dims; k++)
        share &= a->dims[a->n_dims - 1 - k] == 1 || b->dims[b->n_dims - 1 - k] == 1;
    return share;
}

/* The number of which initializer i and a later one are full, both expanded from `param`, which can
 * only be one number. */
static int look_for_number(struct forms *f, size_t i, const char *param, const uint8_t *data)
{
    const Onnx__GraphProto *g = f->b.g;
    const Onnx__TensorProto *t = g->initializer[i], one = {.n_dims = 0};
    float *x = NULL;
    int rc = SH_OK, misses = 0;

    for (uint32_t k = onnx_alike_next(&f->alike, (uint32_t)i);
         k < f->b.n_file && misses < MAX_MISSES && !rc; k = onnx_alike_next(&f->alike, k)) {
        const Onnx__TensorProto *u = g->initializer[k];
        const uint8_t *more = !stays(f, k) && form_elements(u) > 1 && share_one(t, u)
                                  ? onnx_tensor_look(u, f->source)
                                  : NULL;

        if (!more || !are_bytes_equal(more, form_elements(u)) ||
            memcmp(more, data, sizeof(float)) != 0) {
            misses++;
            continue;
        }
        if (!f->b.gone[i]) {
            x = malloc(sizeof(*x));
            rc = x ? SH_OK : SH_FAIL(f->b.err, SH_E_NOMEM, "could not allocate a number");
            if (!rc) {
                memcpy(x, data, sizeof(*x));
                rc = add_initializer(f, param, &one, x, 1);
            }
            if (!rc)
                rc = put_expand(f, i, param);
        }
        if (!rc)
            rc = put_expand(f, k, param);
    }
    return rc;
}

/* The parameter that initializer i is expanded from, along the axes where its numbers are the same:
 * a filter for each of several channels. */
static int look_for_blocks(struct forms *f, size_t i, const char *param, const uint8_t *data)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    Onnx__TensorProto small = *t;
    int64_t dims[SH_MAX_RANK];
    size_t n = 1;
    float *x;
    int rc;

    if (t->n_dims > SH_MAX_RANK)
        return SH_OK;
    for (size_t k = 0; k < t->n_dims; k++) {
        dims[k] = onnx_tensor_same_along(t, data, k) ? 1 : t->dims[k];
        n *= (size_t)dims[k];
    }
    small.dims = dims;
    x = n < form_elements(t) ? malloc(n * sizeof(*x)) : NULL;
    if (!x)
        return n < form_elements(t)
                   ? SH_FAIL(f->b.err, SH_E_NOMEM, "could not allocate %zu numbers", n)
                   : SH_OK;
    for (size_t e = 0; e < form_elements(t); e++)
        x[broadcast_index(t, &small, e)] = param_number(data, (int64_t)e);
    rc = add_initializer(f, param, &small, x, n);
    return rc ? rc : put_expand(f, i, param);
}

static int look_at_expanded(struct forms *f, size_t i, const char *list)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i], *of = NULL;
    const size_t n = form_elements(t);
    char param[PARAM_FORM_NAME];
    const uint8_t *data = n > 1 && param_form_expanded(t->name, list, f->kinds, param)
                              ? onnx_tensor_look(t, f->source)
                              : NULL,
                  *from = NULL;
    uint32_t at;

    if (!data)
        return SH_OK;
    at = names_get(&f->names, param);
    of = at < f->b.g->n_initializer ? f->b.g->initializer[at] : NULL;
    if (!of)
        return are_bytes_equal(data, n) ? look_for_number(f, i, param, data)
                                        : look_for_blocks(f, i, param, data);
    from = form_elements(of) && may_broadcast(t, of) ? onnx_tensor_look(of, f->source) : NULL;
    for (size_t e = 0; e < n && from; e++)
        if (param_number(data, (int64_t)e) !=
            param_number(from, (int64_t)broadcast_index(t, of, e)))
            from = NULL;
    return from ? put_expand(f, i, param) : SH_OK;
}

/* ---------------------------------------------------------------- numbers of a softmax */

#define MAX_ROW 64u

/* The softmax of logs, a row of n, from which the initializers in `of` are taken. */
static int add_softmax_row(struct forms *f, const char *param, const uint32_t *of, const float *x,
                           size_t n)
{
    const Onnx__TensorProto *first = f->b.g->initializer[of[0]];
    const Onnx__TensorProto row = {
        .name = first->name, .dims = (int64_t[]){(int64_t)n}, .n_dims = 1};
    float *logs = malloc(n * sizeof(*logs));
    char *name = NULL, *soft = NULL;
    int rc = logs ? sh_asprintf(f->b.err, &name, "%s@%s", param, first->name)
                  : SH_FAIL(f->b.err, SH_E_NOMEM, "could not allocate %zu numbers", n);

    for (size_t k = 0; k < n && !rc; k++)
        logs[k] = logf(x[k]);
    if (!rc)
        rc = sh_asprintf(f->b.err, &soft, "%s@Softmax", first->name);
    if (!rc) {
        rc = add_initializer(f, name, &row, logs, n);
        logs = NULL;
    }
    if (!rc)
        rc = onnx_build_node(&f->b, "Softmax", name, NULL, soft, -1);
    for (size_t k = 0; k < n && !rc; k++) {
        const Onnx__TensorProto *t = f->b.g->initializer[of[k]];
        int64_t *at = malloc(sizeof(*at));
        char *index = NULL, *copy = NULL;

        rc = at ? sh_asprintf(f->b.err, &index, "%s@index", t->name)
                : SH_FAIL(f->b.err, SH_E_NOMEM, "could not allocate a number");
        if (!rc)
            rc = sh_strdup(index, &copy, f->b.err);
        if (!rc)
            rc = onnx_build_node(&f->b, "Gather", soft, index, t->name, 0);
        if (!rc) {
            *at = (int64_t)k;
            rc = onnx_build_tensor(&f->b, copy, SH_I64, t->dims, t->n_dims, at, sizeof(*at));
            f->b.gone[of[k]] = true;
        } else {
            free(copy);
            free(at);
        }
        free(index);
    }
    free(logs);
    free(name);
    free(soft);
    return rc;
}

#define SUM_ERROR 1e-5 /* of numbers that a softmax gave */

struct row {
    uint32_t of[MAX_ROW]; /* initializers */
    float x[MAX_ROW];
    size_t n;
    double sum;
};

/* Takes the number of initializer k into the row. false: it is none of a softmax. */
static bool take_into_row(struct forms *f, struct row *r, size_t k)
{
    const uint8_t *data = onnx_tensor_look(f->b.g->initializer[k], f->source);

    if (!data || r->n == MAX_ROW || !(param_number(data, 0) > 0))
        return false;
    r->of[r->n] = (uint32_t)k;
    r->x[r->n] = param_number(data, 0);
    r->sum += (double)r->x[r->n++];
    return r->sum <= 1 + SUM_ERROR;
}

static bool is_softmax_whole(const struct row *r)
{
    return r->n >= 2 && fabs(r->sum - 1) <= SUM_ERROR;
}

/* The softmax, or what else it is, from which an element was taken. */
static bool row_of(const char *name, const char *list, const struct param_kinds *kinds,
                   char row[static PARAM_FORM_NAME])
{
    char param[PARAM_FORM_NAME];

    return param_form_taken(name, list, kinds, param, row);
}

/* Weights of a mixture, each by itself, as a softmax gave them: those of one make rows, each as
 * soon as its sum is 1. The first of a row looks for the others. */
static int look_at_taken(struct forms *f, size_t i, const char *list)
{
    const Onnx__GraphProto *g = f->b.g;
    char param[PARAM_FORM_NAME], from[PARAM_FORM_NAME];
    struct row row = {.n = 0};
    int misses = 0;

    if (form_elements(g->initializer[i]) != 1 ||
        !param_form_taken(g->initializer[i]->name, list, f->kinds, param, from))
        return SH_OK;
    for (uint32_t k = (uint32_t)i;
         k < f->b.n_file && misses < MAX_MISSES && !is_softmax_whole(&row);
         k = onnx_alike_next(&f->alike, k)) {
        if (stays(f, k) || form_elements(g->initializer[k]) != 1)
            misses++;
        else if (!take_into_row(f, &row, k))
            return SH_OK;
    }
    return is_softmax_whole(&row) ? add_softmax_row(f, param, row.of, row.x, row.n) : SH_OK;
}

/* ---------------------------------------------------------------- where nothing is said */

/* Numbers above 0 whose sum is 1 along one axis, in every line of it. */
static int look_for_softmax(struct forms *f, size_t i)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    const size_t n = form_elements(t);
    const uint8_t *data =
        n >= 4 && param_is_folded(t->name) ? onnx_tensor_look(t, f->source) : NULL;
    struct param_form form;
    char *name = NULL;
    float *x;
    int rc;

    if (!data || are_bytes_equal(data, n))
        return SH_OK;
    x = malloc(n * sizeof(*x));
    if (!x)
        return SH_FAIL(f->b.err, SH_E_NOMEM, "could not allocate %zu numbers", n);
    param_form_softmax(&form);
    if (!param_form_undo(&form, data, (int)t->n_dims, t->dims, x)) {
        free(x);
        return SH_OK;
    }
    rc = sh_asprintf(f->b.err, &name, "%s.logits", param_bare_name(t->name));
    if (!rc && names_get(&f->names, name) == NAMES_NONE) {
        rc = add_initializer(f, name, t, x, n);
        x = NULL;
        if (!rc)
            rc = add_steps(f, &form, name, t->name, (int)t->n_dims);
        f->b.gone[i] = !rc;
    }
    free(x);
    free(name);
    return rc;
}

/* Numbers that nobody wrote: not all of them have two digits. */
static bool is_row_drawn(const struct row *r)
{
    bool is = false;

    for (size_t k = 0; k < r->n; k++)
        is |= fabsf(r->x[k] * 100 - roundf(r->x[k] * 100)) > 1e-4f;
    return is;
}

/* Three single numbers or more, one after the other, whose sum is 1. */
static int look_for_row(struct forms *f, size_t i)
{
    const Onnx__GraphProto *g = f->b.g;
    struct row row = {.n = 0};

    for (size_t k = i; k < f->b.n_file && !is_softmax_whole(&row); k++)
        if (stays(f, k) || form_elements(g->initializer[k]) != 1 ||
            !param_is_folded(g->initializer[k]->name) || !take_into_row(f, &row, k))
            return SH_OK;
    return row.n >= 3 && is_softmax_whole(&row) && is_row_drawn(&row)
               ? add_softmax_row(f, "logits", row.of, row.x, row.n)
               : SH_OK;
}

static int look_for_mask(struct forms *f, size_t i)
{
    const Onnx__TensorProto *t = f->b.g->initializer[i];
    const size_t n = form_elements(t);
    const uint8_t *data =
        n && t->n_dims >= 2 && param_is_folded(t->name) ? onnx_tensor_look(t, f->source) : NULL;
    const size_t zeros = data ? count_zeros(data, n) : 0;
    char *param = NULL;
    int rc;

    if (zeros < n / MIN_ZEROS + 1 || !is_masked(data, n, zeros))
        return SH_OK;
    rc = sh_asprintf(f->b.err, &param, "%s@kept", t->name);
    if (!rc)
        rc = add_form_mask(f, i, param, data);
    free(param);
    return rc;
}

/* ---------------------------------------------------------------- all */

/* Each way of looking goes over the file once: what it reads again counts against a limit. */
static int look_at_said(struct forms *f, int (*look)(struct forms *f, size_t i, const char *list))
{
    const Onnx__GraphProto *g = f->b.g;
    int rc = SH_OK;

    onnx_source_walk(f->source);
    for (size_t k = 0; k < g->n_value_info && rc == SH_OK; k++) {
        const char *name = g->value_info[k]->name;
        const uint32_t i = name ? names_get(&f->names, name) : NAMES_NONE;
        char *list = i < f->b.n_file ? onnx_folded_from(g->value_info[k]) : NULL;

        if (list && !stays(f, i))
            rc = look(f, i, list);
        free(list);
    }
    return rc;
}

/* A way that looks at what was made of the same, too. */
static int look_at_alike(struct forms *f, onnx_alike_key *key,
                         int (*look)(struct forms *f, size_t i, const char *list))
{
    int rc = onnx_alike_read(&f->alike, f->b.g, &f->names, key, f->kinds, f->b.err);

    if (!rc)
        rc = look_at_said(f, look);
    onnx_alike_fini(&f->alike);
    return rc;
}

static int look_at_unsaid(struct forms *f, int (*look)(struct forms *f, size_t i))
{
    int rc = SH_OK;

    onnx_source_walk(f->source);
    for (size_t i = 0; i < f->b.n_file && rc == SH_OK; i++)
        if (!stays(f, i))
            rc = look(f, i);
    return rc;
}

static int look_at_forms(struct forms *f)
{
    const bool known = param_kinds_known(f->kinds);
    int rc = known ? look_at_said(f, look_at_form) : look_at_unsaid(f, look_for_softmax);

    if (!rc && known)
        rc = look_at_alike(f, param_form_expanded, look_at_expanded);
    if (!rc && known)
        rc = look_at_said(f, look_at_signs);
    if (!rc)
        rc = known ? look_at_alike(f, row_of, look_at_taken) : look_at_unsaid(f, look_for_row);
    if (rc)
        return rc;
    return known ? look_at_said(f, look_at_product) : look_at_unsaid(f, look_for_mask);
}

int onnx_forms(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               uint32_t *n_unbounded, struct sh_err *err)
{
    struct forms f = {.source = source, .kinds = kinds};
    const Onnx__GraphProto *g = m->graph;
    int rc = names_init(&f.names, err);

    if (!rc)
        rc = names_init(&f.inputs, err);
    if (!rc)
        rc = onnx_build_init(&f.b, m->graph, err);
    for (size_t i = 0; i < g->n_input && rc == SH_OK; i++)
        rc = names_put_first(&f.inputs, g->input[i]->name, (uint32_t)i, err);
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = names_put_first(&f.names, g->initializer[i]->name, (uint32_t)i, err);
    if (!rc)
        rc = look_at_forms(&f);
    if (!rc)
        rc = onnx_build_finish(&f.b);
    *n_unbounded = f.n_unbounded;
    onnx_build_fini(&f.b);
    names_fini(&f.names);
    names_fini(&f.inputs);
    return rc;
}
