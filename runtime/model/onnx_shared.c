/* onnx_shared.c - see onnx_shared.h. */
#include "runtime/model/onnx_shared.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/onnx_union.h"
#include "runtime/model/param_rules.h"

#include <math.h>
#include <stdlib.h>

#define MAX_ELEMENTS ((size_t)1 << 26) /* of one that is looked at, */
#define MAX_SORTED ((size_t)1 << 20)   /* and number by number: of more, some are equal by chance */
#define MAX_TAKEN 256                  /* of all parameters */
#define MAX_COMPARED ((size_t)256 << 20) /* bytes, of the whole file */
#define MIN_SHARED 2                     /* numbers, and */
#define SHARED_PART 8                    /* one in so many of the smaller one */

struct sharing {
    struct onnx_build b;
    struct onnx_source *source;
    const struct param_kinds *kinds;
    struct names said;      /* value_info, by name */
    struct onnx_taken *all; /* OWNED */
    size_t n, compared;
};

/* ---------------------------------------------------------------- rows of another */

/* Two tensors, the axes of which are the same but for one. */
struct along {
    size_t axis, outer, inner; /* inner: bytes of what lies behind the axis */
    size_t rows, of;           /* along it, of the one and of the other */
};

static bool read_along(const struct onnx_taken *a, const struct onnx_taken *b, size_t axis,
                       struct along *out)
{
    *out = (struct along){.axis = axis, .outer = 1, .inner = sizeof(float)};
    if (a->t->n_dims != b->t->n_dims)
        return false;
    for (size_t k = 0; k < a->t->n_dims; k++) {
        if (k != axis && a->t->dims[k] != b->t->dims[k])
            return false;
        if (k != axis)
            *(k < axis ? &out->outer : &out->inner) *= (size_t)a->t->dims[k];
    }
    out->rows = (size_t)a->t->dims[axis];
    out->of = (size_t)b->t->dims[axis];
    return true;
}

static bool is_same_row(struct sharing *s, const struct along *l, const uint8_t *a, size_t row,
                        const uint8_t *b, size_t at)
{
    bool same = true;

    for (size_t o = 0; o < l->outer && same; o++) {
        same = memcmp(a + (o * l->rows + row) * l->inner, b + (o * l->of + at) * l->inner,
                      l->inner) == 0;
        s->compared += same ? l->inner : sizeof(float);
    }
    return same;
}

/* index[i]: where in b row i of a is. false: not all are there. */
static bool find_rows(struct sharing *s, const struct along *l, const uint8_t *a, const uint8_t *b,
                      int64_t *index)
{
    size_t next = 0; /* rows often follow each other */

    for (size_t row = 0; row < l->rows; row++) {
        size_t tried = 0;

        while (tried < l->of && s->compared < MAX_COMPARED &&
               !is_same_row(s, l, a, row, b, (next + tried) % l->of))
            tried++;
        if (tried == l->of || s->compared >= MAX_COMPARED)
            return false;
        index[row] = (int64_t)((next + tried) % l->of);
        next = (size_t)index[row] + 1;
    }
    return true;
}

/* a becomes rows of b, if it is such. */
static int take_rows(struct sharing *s, const struct onnx_taken *a, const struct onnx_taken *b,
                     bool *done)
{
    int rc = SH_OK;

    *done = false;
    for (size_t k = 0; k < a->t->n_dims && !*done && !rc; k++) {
        struct along l;
        int64_t *index;

        if (!read_along(a, b, k, &l))
            continue;
        index = calloc(l.rows, sizeof(*index));
        if (!index)
            return SH_FAIL(s->b.err, SH_E_NOMEM, "could not allocate %zu places", l.rows);
        if (find_rows(s, &l, a->data, b->data, index)) {
            *done = true;
            rc = onnx_build_places(&s->b, a->of, NULL, b->t->name, (int64_t)k, index, l.rows);
        } else {
            free(index);
        }
    }
    return rc;
}

/* ---------------------------------------------------------------- numbers of another */

static int by_bits(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(float));
}

/* The numbers that differ, sorted; NULL: no memory. OWNED */
static uint8_t *sort_numbers(const struct onnx_taken *a, size_t *n)
{
    const size_t size = sizeof(float);
    uint8_t *sorted = malloc(a->n * size);

    *n = 0;
    if (!sorted)
        return NULL;
    memcpy(sorted, a->data, a->n * size);
    qsort(sorted, a->n, size, by_bits);
    for (size_t i = 0; i < a->n; i++)
        if (*n == 0 || by_bits(sorted + (*n - 1) * size, sorted + i * size) != 0)
            memmove(sorted + (*n)++ * size, sorted + i * size, size);
    return sorted;
}

/* So many numbers of n and of m are equal by chance, or fewer. 0: one is, in a file of 2^10. */
static double equal_by_chance(const struct onnx_taken *a, const struct onnx_taken *b, size_t n,
                              size_t m)
{
    const int bits = SH_MIN(onnx_union_bits(a->data, a->n), onnx_union_bits(b->data, b->n));
    const double mean = ldexp((double)n * (double)m, -bits);

    return mean < ldexp(1, -10) ? 0 : mean + 4 * sqrt(mean) + 1;
}

static int share_numbers(struct sharing *s, const struct onnx_taken *a, const struct onnx_taken *b,
                         bool *out)
{
    size_t n = 0, m = 0, shared = 0, telling = 0;
    uint8_t *x, *y;

    *out = false;
    if (a->n > MAX_SORTED || b->n > MAX_SORTED || s->compared >= MAX_COMPARED)
        return SH_OK;
    s->compared += (a->n + b->n) * sizeof(float);
    x = sort_numbers(a, &n);
    y = sort_numbers(b, &m);
    for (size_t i = 0, k = 0; x && y && i < n && k < m;) {
        const int order = by_bits(x + i * sizeof(float), y + k * sizeof(float));
        const double one = 4096 * (double)param_number(x, (int64_t)i);

        shared += order == 0;
        telling += order == 0 && one != trunc(one);
        i += order <= 0;
        k += order >= 0;
    }
    *out = (shared >= MIN_SHARED && shared >= SH_MIN(n, m) / SHARED_PART) ||
           (double)telling > equal_by_chance(a, b, n, m);
    free(x);
    free(y);
    return x && y ? SH_OK : SH_FAIL(s->b.err, SH_E_NOMEM, "could not allocate numbers to compare");
}

/* ---------------------------------------------------------------- two of one parameter */

static bool are_of_one(const struct onnx_taken *a, const struct onnx_taken *b)
{
    return strcmp(a->param, b->param) == 0 && b->is_drawn;
}

/* Of which one has numbers of the other, and no union says which. */
static int refuse_sharing(struct sharing *s, const struct onnx_taken *a, const struct onnx_taken *b)
{
    const struct onnx_taken *it = s->b.gone[a->of] ? b : a;
    bool shared = false;
    int rc = SH_OK;

    if (!s->b.gone[it->of] && !it->is_whole)
        rc = share_numbers(s, a, b, &shared);
    return !rc && shared ? onnx_build_refused(&s->b, it->of, it->data, it->n) : rc;
}

/* Rows of what the file has whole. */
static int look_at_whole(struct sharing *s, const struct onnx_taken *a, const struct onnx_taken *b)
{
    bool done;

    return b->is_whole && !a->is_whole && !s->b.gone[a->of] && are_of_one(a, b)
               ? take_rows(s, a, b, &done)
               : SH_OK;
}

/* Before unions are made: two that share numbers, but no rows. */
static int look_at_unions(struct sharing *s, const struct onnx_taken *a, const struct onnx_taken *b)
{
    return a->places && b->places && a->cluster != b->cluster && are_of_one(a, b)
               ? refuse_sharing(s, a, b)
               : SH_OK;
}

/* b comes before a in the list, and stays, or is taken from a union. */
static int look_at_two(struct sharing *s, const struct onnx_taken *a, const struct onnx_taken *b)
{
    bool done = false;
    int rc = SH_OK;

    if (a->is_whole || !are_of_one(a, b) || (s->b.gone[b->of] && !b->places) ||
        (s->b.gone[a->of] && !a->places) || (a->places && b->places))
        return SH_OK;
    if (!a->places)
        rc = take_rows(s, a, b, &done);
    return rc || done ? rc : refuse_sharing(s, a, b);
}

/* ---------------------------------------------------------------- which there are */

/* The only parameter of the list; false: there is none, or another. */
static bool read_one_param(const char *list, const struct param_kinds *kinds,
                           char param[static PARAM_FORM_NAME])
{
    size_t n = 0;
    int found = 0;

    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];

        if (n == 0 || n >= sizeof(one))
            return false;
        memcpy(one, p, n);
        one[n] = '\0';
        if (param_kind(kinds, one) == GRAPH_SAID_PARAM && found++ == 0)
            sh_strlcpy(param, one, PARAM_FORM_NAME);
    }
    return found == 1;
}

/* What parameter an initializer is of; false: of none, of several, or nothing says so. A table of
 * rows is of what its rows were taken for. */
static bool read_param(const struct sharing *s, const char *name, struct onnx_taken *out)
{
    const char *end = strrchr(name, '@');
    const size_t n = end && strcmp(end, "@rows") == 0 ? (size_t)(end - name) : strlen(name);
    uint32_t at;
    char *list;
    bool is;

    if (n >= sizeof(out->param))
        return false;
    memcpy(out->param, name, n);
    out->param[n] = '\0';
    at = names_get(&s->said, out->param);
    list = at != NAMES_NONE ? onnx_folded_from(s->b.g->value_info[at]) : NULL;
    out->is_whole = !list && !name[n] && param_kind(s->kinds, name) == GRAPH_SAID_PARAM;
    is = list ? read_one_param(list, s->kinds, out->param) : out->is_whole;
    free(list);
    return is;
}

/* Whole ones first, larger ones before smaller ones. */
static int by_size(const void *a, const void *b)
{
    const struct onnx_taken *x = a, *y = b;

    if (x->is_whole != y->is_whole)
        return x->is_whole ? -1 : 1;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return x->of < y->of ? -1 : x->of > y->of;
}

/* Those of one parameter; their numbers are not looked at yet. */
static void find_taken(struct sharing *s)
{
    const Onnx__GraphProto *g = s->b.g;

    for (uint32_t i = 0; i < s->b.n_file; i++) {
        const Onnx__TensorProto *t = g->initializer[i];
        struct onnx_taken *a = &s->all[s->n];

        *a = (struct onnx_taken){.t = t, .of = i};
        a->n = t->name && t->n_dims > 0 ? onnx_tensor_floats(t, MAX_ELEMENTS) : 0;
        if (a->n >= MIN_SHARED && read_param(s, t->name, a))
            s->n++;
    }
}

/* Drops what is alone of its parameter. */
static int keep_several(struct sharing *s)
{
    struct names first; /* the first of each parameter */
    bool *several = calloc(s->n + 1, sizeof(*several));
    size_t n = 0;
    int rc = names_init(&first, s->b.err);

    if (!rc && !several)
        rc = SH_FAIL(s->b.err, SH_E_NOMEM, "could not allocate a list of parameters");
    for (size_t i = 0; i < s->n && !rc; i++) {
        const uint32_t at = names_get(&first, s->all[i].param);

        if (at != NAMES_NONE)
            several[i] = several[at] = true;
        else
            rc = names_put_first(&first, s->all[i].param, (uint32_t)i, s->b.err);
    }
    for (size_t i = 0; i < s->n && !rc && n < MAX_TAKEN; i++) {
        struct onnx_taken a = s->all[i];

        a.data = several[i] ? onnx_tensor_look(a.t, s->source) : NULL;
        a.is_drawn = a.data && param_is_scattered(a.data, (int)a.t->n_dims, a.t->dims);
        if (a.data)
            s->all[n++] = a;
    }
    s->n = n;
    names_fini(&first);
    free(several);
    return rc;
}

static int look_at_pairs_of(struct sharing *s,
                            int (*look)(struct sharing *s, const struct onnx_taken *a,
                                        const struct onnx_taken *b))
{
    int rc = SH_OK;

    for (size_t i = 1; i < s->n && !rc; i++)
        for (size_t k = 0; k < i && !rc; k++)
            rc = look(s, &s->all[i], &s->all[k]);
    return rc;
}

int onnx_shared(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
                struct sh_err *err)
{
    struct onnx_union *unions = NULL;
    struct sharing s = {.source = source, .kinds = kinds};
    const Onnx__GraphProto *g = m->graph;
    int rc;

    if (!param_kinds_known(kinds))
        return SH_OK;
    rc = names_init(&s.said, err);
    if (!rc)
        rc = onnx_build_init(&s.b, m->graph, err);
    s.all = calloc(g->n_initializer + 1, sizeof(*s.all));
    if (!rc && !s.all)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of constants");
    for (size_t i = 0; i < g->n_value_info && !rc; i++)
        rc = names_put_first(&s.said, g->value_info[i]->name, (uint32_t)i, err);
    onnx_source_walk(source);
    if (!rc) {
        find_taken(&s);
        rc = keep_several(&s);
    }
    if (!rc) {
        qsort(s.all, s.n, sizeof(*s.all), by_size);
        rc = look_at_pairs_of(&s, look_at_whole);
    }
    if (!rc)
        rc = onnx_union_find(s.all, s.n, &s.b, &unions);
    if (!rc)
        rc = look_at_pairs_of(&s, look_at_unions);
    if (!rc)
        rc = onnx_union_build(unions, &s.b);
    if (!rc)
        rc = look_at_pairs_of(&s, look_at_two);
    if (!rc)
        rc = onnx_build_finish(&s.b);
    onnx_union_free(unions);
    onnx_build_fini(&s.b);
    names_fini(&s.said);
    free(s.all);
    return rc;
}
