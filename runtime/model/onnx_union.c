/* onnx_union.c - see onnx_union.h. */
#include "runtime/model/onnx_union.h"

#include "common/mem.h"
#include "runtime/model/param_rules.h"

#include <math.h>
#include <stdlib.h>

#define MAX_UNION ((size_t)1 << 26)  /* numbers of one */
#define MAX_LOOKED ((size_t)1 << 30) /* bytes, of the whole file */
#define SURE 16                      /* bits beyond those that chance would give */

/* Rows along one axis of all constants of a cluster. */
struct cluster {
    uint8_t *rows; /* OWNED: n of `bytes` each; NULL: it has become a part of another one */
    size_t n, bytes;
    uint32_t *sorted; /* OWNED: the rows by their numbers; NULL: not yet */
    int64_t dims[SH_MAX_RANK];
    size_t n_dims, axis; /* without axes of 1 */
    int bits;            /* of a number */
    uint32_t first, n_members;
};

struct onnx_union {
    struct onnx_taken *all;     /* BORROWED, as the next */
    const struct onnx_build *b; /* until all are found */
    size_t n, looked;
    struct cluster *clusters; /* OWNED: at i, the one of which constant i is the first */
    struct sh_err *err;
};

int onnx_union_bits(const uint8_t *data, size_t n)
{
    uint32_t any = 0, one;

    for (size_t i = 0; i < n; i++) {
        memcpy(&one, data + i * sizeof(one), sizeof(one));
        any |= one;
    }
    return !(any & 0xffff) ? 8 : !(any & 0x1fff) ? 11 : 24;
}

/* ---------------------------------------------------------------- rows */

/* Copies the rows along an axis, one after the other. */
static int open_cluster(struct onnx_union *u, uint32_t i, size_t axis)
{
    const struct onnx_taken *a = &u->all[i];
    struct cluster *c = &u->clusters[i];
    size_t outer = 1, inner = sizeof(float);

    *c = (struct cluster){.axis = axis, .first = i, .n_members = 1};
    for (size_t k = 0; k < a->t->n_dims; k++)
        if (a->t->dims[k] != 1 && c->n_dims < SH_MAX_RANK)
            c->dims[c->n_dims++] = a->t->dims[k];
    if (axis >= c->n_dims || a->n > MAX_UNION || u->looked >= MAX_LOOKED)
        return SH_OK;
    for (size_t k = 0; k < c->n_dims; k++)
        if (k != axis)
            *(k < axis ? &outer : &inner) *= (size_t)c->dims[k];
    c->n = (size_t)c->dims[axis];
    c->bytes = outer * inner;
    c->bits = onnx_union_bits(a->data, a->n);
    c->rows = malloc(c->n * c->bytes);
    u->all[i].places = malloc(c->n * sizeof(*a->places));
    if (!c->rows || !a->places)
        return SH_FAIL(u->err, SH_E_NOMEM, "could not allocate %zu rows", c->n);
    for (size_t r = 0; r < c->n; r++) {
        for (size_t o = 0; o < outer; o++)
            memcpy(c->rows + r * c->bytes + o * inner, a->data + (o * c->n + r) * inner, inner);
        a->places[r] = (int64_t)r;
    }
    u->all[i].cluster = i;
    u->looked += a->n * sizeof(float);
    return SH_OK;
}

static void close_cluster(struct cluster *c)
{
    free(c->rows);
    free(c->sorted);
    c->rows = NULL;
    c->sorted = NULL;
}

static int by_row(const void *a, const void *b, void *cluster)
{
    const struct cluster *c = cluster;
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const int order = memcmp(c->rows + x * c->bytes, c->rows + y * c->bytes, c->bytes);

    return order ? order : (x > y) - (x < y);
}

static int sort_cluster(struct onnx_union *u, struct cluster *c)
{
    if (c->sorted)
        return SH_OK;
    c->sorted = malloc(c->n * sizeof(*c->sorted));
    if (!c->sorted)
        return SH_FAIL(u->err, SH_E_NOMEM, "could not allocate an order of %zu rows", c->n);
    for (size_t r = 0; r < c->n; r++)
        c->sorted[r] = (uint32_t)r;
    qsort_r(c->sorted, c->n, sizeof(*c->sorted), by_row, c);
    return SH_OK;
}

/* Which row is that one; of several the one that the last one leads to. -1: none. */
static int64_t find_in_cluster(const struct cluster *c, const uint8_t *row, int64_t last)
{
    size_t lo = 0, hi = c->n;

    for (int64_t k = last + 1; last >= 0 && k >= last - 1; k -= 2)
        if (k >= 0 && (size_t)k < c->n &&
            memcmp(c->rows + (size_t)k * c->bytes, row, c->bytes) == 0)
            return k;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;

        if (memcmp(c->rows + c->sorted[mid] * c->bytes, row, c->bytes) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->n && memcmp(c->rows + c->sorted[lo] * c->bytes, row, c->bytes) == 0
               ? (int64_t)c->sorted[lo]
               : -1;
}

/* What a row proves where it is there twice: all numbers the same, or round, prove nothing. */
static double bits_of_row(const struct cluster *c, size_t r)
{
    const uint8_t *row = c->rows + r * c->bytes;
    const size_t n = c->bytes / sizeof(float);
    size_t telling = 0;

    for (size_t i = 0; i < n; i++) {
        const double x = 4096 * (double)param_number(row, (int64_t)i);

        telling += x != trunc(x) && (i == 0 || memcmp(row, row + i * sizeof(float), 4) != 0);
    }
    return (double)telling * c->bits;
}

/* ---------------------------------------------------------------- two of them */

static bool may_meet(const struct onnx_union *u, const struct cluster *a, const struct cluster *b)
{
    if (!a->rows || !b->rows || a->n_dims != b->n_dims || a->axis != b->axis ||
        strcmp(u->all[a->first].param, u->all[b->first].param) != 0)
        return false;
    for (size_t k = 0; k < a->n_dims; k++)
        if (k != a->axis && a->dims[k] != b->dims[k])
            return false;
    return a->n * a->bytes + b->n * b->bytes <= MAX_UNION * sizeof(float);
}

/* places[r]: which row of a is row r of b, or -1. Do enough of them follow each other, upwards or
 * downwards, and is none left that chance may have given? */
static bool are_rows_common(const struct cluster *a, const struct cluster *b, int64_t *places)
{
    const double enough = log2((double)a->n * (double)b->n) + SURE;
    bool found = false, unsure = false;

    for (size_t r = 0; r < b->n; r++)
        places[r] = find_in_cluster(a, b->rows + r * b->bytes, r > 0 ? places[r - 1] : -1);
    for (size_t r = 0, end; r < b->n; r = end) {
        const int64_t step = r + 1 < b->n ? places[r + 1] - places[r] : 0;
        double bits = 0;

        end = r + 1;
        if (places[r] < 0)
            continue;
        bits = bits_of_row(b, r);
        while (end < b->n && (step == 1 || step == -1) && places[end] >= 0 &&
               places[end] - places[end - 1] == step)
            bits += bits_of_row(b, end++);
        found |= bits >= enough;
        unsure |= bits < enough;
    }
    return found && !unsure;
}

static size_t rows_of_member(const struct cluster *c, const struct onnx_taken *t)
{
    return t->n * sizeof(float) / c->bytes;
}

/* Of b, what a has not, behind what a has. */
static int join_clusters(struct onnx_union *u, struct cluster *a, struct cluster *b,
                         int64_t *places)
{
    size_t more = 0;
    uint8_t *rows;

    for (size_t r = 0; r < b->n; r++)
        more += places[r] < 0;
    rows = realloc(a->rows, (a->n + more) * a->bytes);
    if (!rows)
        return SH_FAIL(u->err, SH_E_NOMEM, "could not allocate %zu rows", a->n + more);
    a->rows = rows;
    for (size_t r = 0; r < b->n; r++) {
        if (places[r] >= 0)
            continue;
        memcpy(rows + a->n * a->bytes, b->rows + r * b->bytes, b->bytes);
        places[r] = (int64_t)a->n++;
    }
    for (size_t i = 0; i < u->n; i++) {
        struct onnx_taken *t = &u->all[i];

        if (!t->places || t->cluster != b->first)
            continue;
        for (size_t r = 0; r < rows_of_member(a, t); r++)
            t->places[r] = places[t->places[r]];
        t->cluster = a->first;
    }
    a->dims[a->axis] = (int64_t)a->n;
    a->bits = SH_MIN(a->bits, b->bits);
    a->n_members += b->n_members;
    free(a->sorted);
    a->sorted = NULL;
    close_cluster(b);
    return SH_OK;
}

static int look_at_clusters(struct onnx_union *u, struct cluster *a, struct cluster *b,
                            bool *joined)
{
    int64_t *places;
    int rc;

    *joined = false;
    if (a == b || !may_meet(u, a, b) || u->looked >= MAX_LOOKED)
        return SH_OK;
    u->looked += a->n * a->bytes + b->n * b->bytes;
    places = malloc(b->n * sizeof(*places));
    rc = places ? sort_cluster(u, a)
                : SH_FAIL(u->err, SH_E_NOMEM, "could not allocate %zu places", b->n);
    if (!rc && are_rows_common(a, b, places)) {
        rc = join_clusters(u, a, b, places);
        *joined = true;
    }
    free(places);
    return rc;
}

/* Along one axis, of what is in no union yet. What joins may join two that had nothing in common:
 * so those are looked at again. */
static int look_along(struct onnx_union *u, size_t axis)
{
    int rc = SH_OK;
    bool joined = true;

    for (uint32_t i = 0; i < u->n && rc == SH_OK; i++)
        if (!u->all[i].is_whole && u->all[i].is_drawn && !u->all[i].places &&
            !u->b->gone[u->all[i].of])
            rc = open_cluster(u, i, axis);
    while (joined && !rc) {
        bool now = false;

        joined = false;
        for (size_t i = 0; i < u->n && !rc; i++)
            for (size_t k = i + 1; k < u->n && !rc; k++) {
                if (u->clusters[i].axis == axis && u->clusters[k].axis == axis)
                    rc = look_at_clusters(u, &u->clusters[i], &u->clusters[k], &now);
                joined |= now;
                now = false;
            }
    }
    for (size_t i = 0; i < u->n; i++) {
        if (!u->clusters[i].rows || u->clusters[i].n_members > 1)
            continue;
        close_cluster(&u->clusters[i]);
        free(u->all[i].places);
        u->all[i].places = NULL;
    }
    return rc;
}

int onnx_union_find(struct onnx_taken *all, size_t n, const struct onnx_build *b,
                    struct onnx_union **out)
{
    struct onnx_union *u = calloc(1, sizeof(*u));
    int rc = SH_OK;

    *out = u;
    if (!u)
        return SH_FAIL(b->err, SH_E_NOMEM, "could not allocate a union");
    *u = (struct onnx_union){.all = all, .n = n, .b = b, .err = b->err};
    u->clusters = calloc(n + 1, sizeof(*u->clusters));
    if (!u->clusters)
        rc = SH_FAIL(b->err, SH_E_NOMEM, "could not allocate %zu unions", n);
    for (size_t axis = 0; axis < SH_MAX_RANK && rc == SH_OK; axis++)
        rc = look_along(u, axis);
    return rc;
}

/* ---------------------------------------------------------------- what is made */

/* What the members are taken of. */
struct table {
    char *name; /* OWNED */
    int64_t dims[SH_MAX_RANK];
    size_t n_dims, axis;
};

/* The first constant has all rows: it is the table, with its axes of 1. */
static void read_first(const struct cluster *c, const struct onnx_taken *t, struct table *out)
{
    size_t wide = 0;

    out->n_dims = SH_MIN(t->t->n_dims, (size_t)SH_MAX_RANK);
    for (size_t k = 0; k < out->n_dims; k++) {
        out->dims[k] = t->t->dims[k];
        if (out->dims[k] != 1 && wide++ == c->axis)
            out->axis = k;
    }
}

static int make_union(const struct cluster *c, const struct table *table, struct onnx_build *b)
{
    size_t outer = 1, inner;
    uint8_t *data = malloc(c->n * c->bytes);
    char *copy = NULL;
    int rc = data ? sh_strdup(table->name, &copy, b->err)
                  : SH_FAIL(b->err, SH_E_NOMEM, "could not allocate %zu rows", c->n);

    if (rc) {
        free(data);
        return rc;
    }
    for (size_t k = 0; k < c->axis; k++)
        outer *= (size_t)c->dims[k];
    inner = c->bytes / outer;
    for (size_t r = 0; r < c->n; r++)
        for (size_t o = 0; o < outer; o++)
            memcpy(data + (o * c->n + r) * inner, c->rows + r * c->bytes + o * inner, inner);
    return onnx_build_tensor(b, copy, SH_F32, c->dims, c->n_dims, data, c->n * c->bytes);
}

/* Has what is taken of the table the axes of the constant? */
static bool are_axes_of(const struct table *table, const Onnx__TensorProto *t)
{
    bool are = t->n_dims == table->n_dims;

    for (size_t k = 0; k < table->n_dims && are; k++)
        are = k == table->axis || t->dims[k] == table->dims[k];
    return are;
}

static int put_member(const struct cluster *c, const struct onnx_taken *t,
                      const struct table *table, struct onnx_build *b)
{
    const size_t n = rows_of_member(c, t);
    int64_t *places = malloc(n * sizeof(*places));
    char *taken = NULL;
    int rc;

    if (!places)
        return SH_FAIL(b->err, SH_E_NOMEM, "could not allocate %zu places", n);
    memcpy(places, t->places, n * sizeof(*places));
    if (are_axes_of(table, t->t))
        return onnx_build_places(b, t->of, NULL, table->name, (int64_t)table->axis, places, n);
    rc = sh_asprintf(b->err, &taken, "%s@taken", t->t->name);
    if (!rc)
        rc = onnx_build_places(b, t->of, taken, table->name, (int64_t)table->axis, places, n);
    else
        free(places);
    if (!rc)
        rc = onnx_build_shaped(b, "Reshape", taken, t->t);
    free(taken);
    return rc;
}

static int build_cluster(const struct onnx_union *u, const struct cluster *c, struct onnx_build *b)
{
    const struct onnx_taken *first = &u->all[c->first];
    const bool is_first = rows_of_member(c, first) == c->n && !b->gone[first->of];
    struct table table = {.n_dims = c->n_dims, .axis = c->axis};
    int rc;

    memcpy(table.dims, c->dims, c->n_dims * sizeof(*c->dims));
    if (is_first)
        read_first(c, first, &table);
    rc = is_first ? sh_strdup(first->t->name, &table.name, b->err)
                  : sh_asprintf(b->err, &table.name, "%s@union", first->t->name);
    if (!rc && !is_first)
        rc = make_union(c, &table, b);
    for (size_t i = 0; i < u->n && rc == SH_OK; i++)
        if (u->all[i].places && u->all[i].cluster == c->first && !b->gone[u->all[i].of] &&
            !(is_first && i == c->first))
            rc = put_member(c, &u->all[i], &table, b);
    free(table.name);
    return rc;
}

int onnx_union_build(const struct onnx_union *u, struct onnx_build *b)
{
    int rc = SH_OK;

    for (size_t i = 0; i < u->n && rc == SH_OK; i++)
        if (u->clusters[i].rows)
            rc = build_cluster(u, &u->clusters[i], b);
    return rc;
}

void onnx_union_free(struct onnx_union *u)
{
    for (size_t i = 0; u && i < u->n; i++) {
        if (u->clusters)
            close_cluster(&u->clusters[i]);
        free(u->all[i].places);
        u->all[i].places = NULL;
    }
    if (u)
        free(u->clusters);
    free(u);
}
