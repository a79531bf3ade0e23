/* pads.c - follows a padded axis through a graph.
 *
 * DESIGN. The graph is built twice: at a requested size n, and at the bucket N. Values correspond
 * by the order of the nodes. A value of the second graph has up to PADS_PLACES places (places.h)
 * that hold the N steps of the axis; attention scores have two. Every rule maintains this claim:
 *
 *   where all its steps are below n, a value of the second graph equals that of the first.
 *
 * Constants are compared number by number. This distinguishes a mask or a list of positions, which
 * is cut, from a length by which a mean is divided, which is not.
 *
 * Elements behind n can do harm where steps meet: in sums over them. So there are ranges (ranges.h)
 * of the elements of a value that lie
 *
 *   real      nowhere behind n: as in the first graph
 *   edge[i]   behind n in place i, and in no other
 *   all       behind n in any place
 *
 * Inputs are padded with zeros, so their edge is [0, 0]. A mask turns that into numbers so far
 * below the others that their exp() is 0, or into false; a causal mask does so on one edge only.
 * Softmax turns such an edge into zeros, and a product adds them up if the other factors are
 * finite; this is why NaN is tracked too. Operators without a rule mix.
 *
 * Assumed: without padding the answer consists of ordinary numbers (ranges.h), and no mask hides
 * all of a sample. To find out which inputs are masks they are padded with ones: a proof that then
 * fails needs their zeros. If one of them is all zeros along the axis, the API runs the request as
 * it is (api/infer/infer_plan.c).
 *
 * For each bucket the smallest, the largest and one size in between are tried, so that changes at a
 * bound between two buckets are found.
 */
#include "common/mem.h"
#include "runtime/model/pads_int.h"

#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- constants */

const struct graph_value *pads__in_a(const struct follow *f, uint32_t v)
{
    return &f->a->values[f->pair[v] - 1];
}

static bool of_type(const struct graph_value *v, size_t at, double *out)
{
    const char *p = (const char *)v->data + at * sh_dtype_bytes(v->dtype);

    switch (v->dtype) {
    case SH_F32:
        *out = (double)*(const float *)(const void *)p;
        return true;
    case SH_F64:
        *out = *(const double *)(const void *)p;
        return true;
    case SH_I64:
        *out = (double)*(const int64_t *)(const void *)p;
        return true;
    case SH_I32:
        *out = *(const int32_t *)(const void *)p;
        return true;
    case SH_BOOL:
    case SH_U8:
        *out = *(const uint8_t *)p;
        return true;
    case SH_I8:
        *out = *(const int8_t *)p;
        return true;
    default:
        *out = 0;
        return false;
    }
}

static struct range one(const struct graph_value *v, size_t at)
{
    double x = 0;

    if (!of_type(v, at, &x))
        return range_wild();
    return x != x ? (struct range){x, x, true} : range_of(x, x);
}

static bool same_element(const struct graph_value *a, size_t i, const struct graph_value *b,
                         size_t j)
{
    const size_t unit = sh_dtype_bytes(b->dtype);

    return memcmp((const char *)a->data + i * unit, (const char *)b->data + j * unit, unit) == 0;
}

/* Which of its places element `at` of b lies behind the end in: bits; where it does not, *cut is
 * its number in a, of which an axis that only repeats has size 1. */
static unsigned cut_behind(const struct follow *f, const struct graph_value *a,
                           const struct graph_value *b, const struct track *t, size_t at,
                           size_t *cut)
{
    int64_t index[SH_MAX_RANK];
    unsigned bits = 0;

    for (int i = b->rank - 1; i >= 0; i--) {
        index[i] = (int64_t)at % b->dims[i];
        at /= (size_t)b->dims[i];
    }
    for (uint32_t k = 0; k < t->n; k++)
        bits |= index[t->p[k].axis] >= f->n ? 1u << k : 0;
    *cut = 0;
    for (int i = 0; i < b->rank && bits == 0; i++)
        *cut = *cut * (size_t)a->dims[i] + (a->dims[i] == 1 ? 0 : (size_t)index[i]);
    return bits;
}

/* Both graphs have a constant; false: that of the first is no part of that of the second. is_part:
 * it is known to be one. */
static bool read_const(const struct follow *f, const struct graph_value *a,
                       const struct graph_value *b, bool is_part, struct track *t)
{
    const size_t n = (size_t)graph_elements(b);

    for (size_t i = 0; i < n; i++) {
        size_t cut;
        unsigned bits = cut_behind(f, a, b, t, i, &cut);

        if (bits == 0 && !is_part && !same_element(a, cut, b, i))
            return false;
        if (bits == 0)
            t->real = range_join(t->real, one(b, i));
        else
            t->all = range_join(t->all, one(b, i));
        for (uint32_t k = 0; k < t->n; k++)
            if (bits == 1u << k)
                t->edge[k] = range_join(t->edge[k], one(b, i));
    }
    return true;
}

static bool is_odd(const struct odd *o, const struct graph_value *v)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->data[i] == v->data)
            return true;
    return o->too_many;
}

/* Of weights of g, once: they are the same at each size. */
static void find_odd(const struct graph *g, struct odd *o)
{
    for (uint32_t i = 0; i < g->n_values && !o->too_many; i++) {
        const struct graph_value *v = &g->values[i];
        const int64_t n = v->data ? graph_elements(v) : 0;
        bool ok = true;

        for (int64_t k = 0; n > PADS_SMALL && ok && k < n; k++) {
            const struct range r = one(v, (size_t)k);

            ok = !r.nan && r.lo >= -RANGE_ORDINARY && r.hi <= RANGE_ORDINARY;
        }
        if (ok)
            continue;
        o->too_many = o->n == PADS_MAX_ODD;
        if (!o->too_many)
            o->data[o->n++] = v->data;
    }
}

static struct range weight_range(const struct follow *f, const struct graph_value *v)
{
    const int64_t n = graph_elements(v);
    struct range r = range_none();

    for (int64_t i = 0; n <= PADS_SMALL && i < n; i++)
        r = range_join(r, one(v, (size_t)i));
    if (n <= PADS_SMALL)
        return r;
    return is_odd(f->odd, v) ? range_wild() : range_ordinary();
}

/* Places where the axes differ; false: they are not as many steps. */
static bool place_axes(const struct follow *f, const struct graph_value *a,
                       const struct graph_value *b, struct track *t)
{
    if (a->rank != b->rank || a->dtype != b->dtype)
        return false;
    for (int i = 0; i < b->rank; i++) {
        if (a->dims[i] == b->dims[i])
            continue;
        if (t->n == PADS_PLACES || b->dims[i] != f->bucket ||
            (a->dims[i] != f->n && a->dims[i] != 1))
            return false;
        t->p[t->n] = (struct place){.axis = i, .before = 1, .after = 1};
        t->edge[t->n++] = t->real;
        t->all = t->real;
    }
    return true;
}

/* Large weights are one and the same in both graphs, and no need to look at them again. */
static struct track const_track(const struct follow *f, uint32_t v)
{
    const struct graph_value *a = pads__in_a(f, v), *b = &f->b->values[v];
    const uint32_t whole = f->whole[f->pair[v] - 1];
    const bool is_part = whole && f->a->values[whole - 1].data == b->data;
    struct track t = pads__free(range_none());

    if (!a->data && !is_part)
        return pads__mixed();
    if (a->data == b->data && graph_elements(b) > PADS_SMALL)
        return pads__free(weight_range(f, b));
    return place_axes(f, a, b, &t) && read_const(f, a, b, is_part, &t) ? t : pads__mixed();
}

/* ---------------------------------------------------------------- the walk */

static bool same_kind(const struct graph_node *a, const struct graph_node *b)
{
    return strcmp(a->op, b->op) == 0 && a->n_in == b->n_in && a->n_out == b->n_out;
}

/* Is vb in b what va is in a? Constants are met here for the first time. */
static bool is_pair(struct follow *f, uint32_t va, uint32_t vb)
{
    if (va == GRAPH_NONE || vb == GRAPH_NONE)
        return va == vb;
    if (!f->pair[vb] && f->b->values[vb].data) {
        f->pair[vb] = va + 1;
        f->of[vb] = const_track(f, vb);
    }
    return f->pair[vb] == va + 1;
}

static bool same_node(struct follow *f, const struct graph_node *a, const struct graph_node *b)
{
    bool same = a->n_attrs == b->n_attrs;

    for (uint32_t i = 0; i < a->n_in; i++)
        same &= is_pair(f, a->in[i], b->in[i]);
    for (uint32_t k = 0; k < a->n_out; k++) {
        same &= (a->out[k] == GRAPH_NONE) == (b->out[k] == GRAPH_NONE);
        if (same && b->out[k] != GRAPH_NONE)
            f->pair[b->out[k]] = a->out[k] + 1;
    }
    if (!same)
        return false;
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (!graph__same_attr(&a->attrs[i], &b->attrs[i]))
            return false;
    return true;
}

/* Is each axis that differs in the two graphs one of the places, and are they of its size? */
static bool fits_track(const struct follow *f, uint32_t v, const struct track *t)
{
    const struct graph_value *a = pads__in_a(f, v), *b = &f->b->values[v];
    int64_t size_a[SH_MAX_RANK], size_b[SH_MAX_RANK];

    if (a->rank != b->rank || a->dtype != b->dtype)
        return false;
    memcpy(size_a, a->dims, sizeof(size_a));
    memcpy(size_b, b->dims, sizeof(size_b));
    for (uint32_t k = 0; k < t->n; k++) {
        const struct place *p = &t->p[k];

        if (p->axis < 0 || p->axis >= b->rank || size_a[p->axis] != p->before * f->n * p->after ||
            size_b[p->axis] != p->before * f->bucket * p->after)
            return false;
        size_a[p->axis] = size_b[p->axis] = 1; /* a second one on the same axis fails */
    }
    for (int i = 0; i < b->rank; i++)
        if (size_a[i] != size_b[i])
            return false;
    return true;
}

/* The first node that mixes is the one to name. */
static void say_padded_node(struct follow *f)
{
    char node[96], op[48];

    snprintf(f->why, PADS_WHY, "%s node %s %s", graph__clean(f->node->op, op, sizeof(op)),
             graph__clean(f->node->name, node, sizeof(node)),
             f->reason ? f->reason : "mixes what lies along the axis, or is not known not to");
}

static bool has_mixed_input(struct follow *f)
{
    bool any = false;

    for (uint32_t i = 0; i < f->node->n_in; i++) {
        const uint32_t v = f->node->in[i];

        if (v == GRAPH_NONE || !f->of[v].mixed)
            continue;
        any = true;
        if (f->b->values[v].data)
            f->reason = "works with numbers that follow from the size itself";
    }
    return any;
}

static void follow_node(struct follow *f, const struct graph_node *a, const struct graph_node *b)
{
    const bool same = same_node(f, a, b);

    f->node = b;
    f->reason = NULL;
    for (f->out = 0; f->out < f->node->n_out; f->out++) {
        const uint32_t v = f->node->out[f->out];
        struct track t = pads__mixed();

        if (v == GRAPH_NONE)
            continue;
        if (!has_mixed_input(f)) {
            if (same)
                t = pads__rule(f);
            else
                f->reason = "is of another form at another size";
            if (!t.mixed && !fits_track(f, v, &t))
                t = pads__mixed();
        } else if (!f->reason) {
            f->of[v] = t; /* another one is to blame */
            continue;
        }
        if (t.mixed && !f->why[0])
            say_padded_node(f);
        f->of[v] = t;
    }
}

static bool slices_from_start(const struct graph_node *n)
{
    int64_t starts[SH_MAX_RANK], steps[SH_MAX_RANK];
    size_t k = 0, m = 0;

    if (strcmp(n->op, "Slice") != 0 || graph_ints(n, "starts", starts, SH_MAX_RANK, &k, NULL) ||
        graph_ints(n, "steps", steps, SH_MAX_RANK, &m, NULL) || k != m)
        return false;
    for (size_t i = 0; i < k; i++)
        if (starts[i] != 0 || steps[i] != 1)
            return false;
    return true;
}

/* Rows 0, 1, 2 ... of a table. */
static bool takes_first_rows(const struct graph *g, const struct graph_node *n)
{
    const struct graph_value *rows;
    int64_t axis = 0;

    if (strcmp(n->op, "Gather") != 0 || graph_int(n, "axis", 0, &axis, NULL) || axis != 0)
        return false;
    rows = &g->values[n->in[1]];
    for (int64_t i = 0; rows->data && i < graph_elements(rows); i++)
        if (!range_is(one(rows, (size_t)i), (double)i))
            return false;
    return rows->data;
}

/* The beginning of a constant, of which a bucket takes all: a node that is not in b. */
static bool skip_part(struct follow *f, const struct graph_node *n)
{
    if (!slices_from_start(n) && !takes_first_rows(f->a, n))
        return false;
    if (!f->a->values[n->in[0]].data)
        return false;
    f->whole[n->out[0]] = n->in[0] + 1;
    return true;
}

/* The same, but b has the table in another shape. */
static bool is_reshaped(const struct follow *f, const struct graph_node *a,
                        const struct graph_node *b)
{
    const void *table = f->b->values[b->in[0]].data;

    return strcmp(b->op, "Reshape") == 0 && table && takes_first_rows(f->a, a) &&
           f->a->values[a->in[0]].data == table;
}

static void follow_rows(struct follow *f, const struct graph_node *a, const struct graph_node *b)
{
    const uint32_t v = b->out[0];
    struct track t = pads__free(weight_range(f, &f->b->values[b->in[0]]));

    f->pair[v] = a->out[0] + 1;
    f->of[v] = place_axes(f, pads__in_a(f, v), &f->b->values[v], &t) ? t : pads__mixed();
}

/* false: the graphs are not of one form. */
static bool follow_padded_nodes(struct follow *f)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < f->b->n_nodes; i++) {
        if (at < f->a->n_nodes && is_reshaped(f, &f->a->nodes[at], &f->b->nodes[i])) {
            follow_rows(f, &f->a->nodes[at++], &f->b->nodes[i]);
            continue;
        }
        while (at < f->a->n_nodes && !same_kind(&f->a->nodes[at], &f->b->nodes[i]))
            if (!skip_part(f, &f->a->nodes[at++]))
                return false;
        if (at == f->a->n_nodes)
            return false;
        follow_node(f, &f->a->nodes[at++], &f->b->nodes[i]);
    }
    return at == f->a->n_nodes;
}

static void start_at_inputs(struct follow *f)
{
    for (uint32_t i = 0; i < f->b->n_inputs; i++) {
        const uint32_t v = f->b->inputs[i];
        const double fill = f->ones == i + 1 ? 1 : 0;
        const struct graph_value *a = &f->a->values[f->a->inputs[i]], *b = &f->b->values[v];
        struct track t = pads__free(range_ordinary());

        f->pair[v] = f->a->inputs[i] + 1;
        for (int k = 0; k < b->rank && t.n < PADS_PLACES; k++) {
            if (a->dims[k] == b->dims[k])
                continue;
            t.p[t.n] = (struct place){.axis = k, .before = 1, .after = 1};
            t.edge[t.n++] = range_of(fill, fill);
            t.all = range_of(fill, fill);
        }
        f->of[v] = fits_track(f, v, &t) ? t : pads__mixed();
    }
}

/* An output is cut along whole axes. */
static bool check_padded_outputs(struct follow *f)
{
    for (uint32_t i = 0; i < f->b->n_outputs; i++) {
        const uint32_t v = f->b->outputs[i];
        bool ok = !f->of[v].mixed && is_pair(f, f->a->outputs[i], v);

        for (uint32_t k = 0; ok && k < f->of[v].n; k++)
            ok = f->of[v].p[k].before == 1 && f->of[v].p[k].after == 1;
        if (ok)
            continue;
        if (!f->why[0] || !f->of[v].mixed)
            snprintf(f->why, PADS_WHY, "output %.64s has no axis of that size to cut",
                     f->b->values[v].name);
        return false;
    }
    f->why[0] = '\0'; /* what mixes does not reach an output */
    return true;
}

static int check_fill_pair(struct follow *f, bool *harmless, struct sh_err *err)
{
    bool ok;

    f->why[0] = '\0';
    f->of = calloc((size_t)f->b->n_values + 1, sizeof(*f->of));
    f->pair = calloc((size_t)f->b->n_values + 1, sizeof(*f->pair));
    f->whole = calloc((size_t)f->a->n_values + 1, sizeof(*f->whole));
    *harmless = false;
    ok = f->of && f->pair && f->whole;
    if (ok) {
        start_at_inputs(f);
        if (follow_padded_nodes(f))
            *harmless = check_padded_outputs(f);
        else
            snprintf(f->why, PADS_WHY, "the model is of another form at %lld than at %lld",
                     (long long)f->n, (long long)f->bucket);
    }
    free(f->of);
    free(f->pair);
    free(f->whole);
    return ok ? SH_OK
              : SH_FAIL(err, SH_E_NOMEM, "could not allocate the places of %u values",
                        f->b->n_values);
}

/* ---------------------------------------------------------------- sizes */

static int graph_with(const struct graph *g, uint32_t k, int64_t size, struct graph **out,
                      struct sh_err *err)
{
    struct graph_sizes at = {.batch = graph_some_batch(g), .of = g->own};
    struct sh_err why = {0};
    int rc;

    at.of.v[k] = (uint32_t)size;
    rc = graph_at(g, &at, false, out, &why);
    return rc ? SH_FAIL(err, rc, "at %s=%lld: %s", g->symbols.name[k], (long long)size, why.msg)
              : SH_OK;
}

static bool is_filled(const struct follow *f, uint32_t input)
{
    const struct graph_value *a = &f->a->values[f->a->inputs[input]];
    const struct graph_value *b = &f->b->values[f->b->inputs[input]];

    for (int i = 0; i < b->rank; i++)
        if (a->dims[i] != b->dims[i])
            return true;
    return false;
}

/* f: of a pair that is harmless. */
static int find_masks(struct follow f, bool *masks, struct sh_err *err)
{
    char why[PADS_WHY];
    bool harmless;
    int rc = SH_OK;

    f.why = why;
    for (uint32_t i = 0; i < f.b->n_inputs && !rc; i++) {
        if (masks[i] || !is_filled(&f, i))
            continue;
        f.ones = i + 1;
        rc = check_fill_pair(&f, &harmless, err);
        masks[i] = !harmless;
    }
    return rc;
}

static int check_bucket(const struct graph *g, const struct odd *odd, uint32_t k, int64_t least,
                        int64_t bucket, bool *harmless, bool *masks, char why[static PADS_WHY],
                        struct sh_err *err)
{
    const int64_t tried[] = {least, (least + bucket) / 2, bucket - 1};
    struct graph *a = NULL, *b = NULL;
    int rc = graph_with(g, k, bucket, &b, err);

    for (size_t i = 0; i < SH_ARRAY_LEN(tried) && !rc && *harmless; i++) {
        struct follow f = {.b = b, .odd = odd, .n = tried[i], .bucket = bucket, .why = why};

        if (tried[i] < least || tried[i] >= bucket || (i > 0 && tried[i] == tried[i - 1]))
            continue;
        rc = graph_with(g, k, tried[i], &a, err);
        f.a = a;
        if (!rc)
            rc = check_fill_pair(&f, harmless, err);
        if (!rc && *harmless && masks)
            rc = find_masks(f, masks, err);
        graph_free(a);
        a = NULL;
    }
    graph_free(b);
    return rc;
}

int pads_check(const struct graph *g, uint32_t k, const uint32_t *buckets, size_t n_buckets,
               bool *harmless, bool *masks, char why[static PADS_WHY], struct sh_err *err)
{
    int64_t least = (int64_t)SH_BUCKET_FROM;
    struct odd odd = {0};
    int rc = SH_OK;

    if (n_buckets > 0)
        find_odd(g, &odd);
    *harmless = true;
    why[0] = '\0';
    for (size_t i = 0; i < n_buckets && !rc && *harmless; i++) {
        rc = check_bucket(g, &odd, k, least, buckets[i], harmless, masks, why, err);
        least = SH_MAX((int64_t)buckets[i] + 1, (int64_t)SH_BUCKET_FROM);
    }
    return rc;
}
