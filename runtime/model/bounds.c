/* bounds.c - see bounds.h. */
#include "runtime/model/bounds.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

#define MAX_DEPTH 512

static const struct bounds ALL = {-INFINITY, INFINITY};

struct walk {
    const struct graph *g;
    struct bounds *of;   /* of each value */
    unsigned char *seen; /* of each value: `of` is known */
    int depth;
};

static struct bounds look_at_bounds(struct walk *w, uint32_t v);

static struct bounds together(struct bounds a, struct bounds b)
{
    return (struct bounds){fmin(a.lo, b.lo), fmax(a.hi, b.hi)};
}

static struct bounds of_constant(const struct graph_value *v)
{
    struct bounds b = {INFINITY, -INFINITY};

    for (int64_t i = 0; i < graph_elements(v); i++) {
        const double x = shape__get_f64(v->dtype, v->data, (size_t)i);

        b = isnan(x) ? ALL : together(b, (struct bounds){x, x});
    }
    return graph_elements(v) == 0 ? ALL : b;
}

/* Of inputs [from, n_in) together. */
static struct bounds of_any(struct walk *w, const struct graph_node *n, uint32_t from)
{
    struct bounds b = look_at_bounds(w, n->in[from]);

    for (uint32_t i = from + 1; i < n->n_in; i++)
        b = together(b, look_at_bounds(w, n->in[i]));
    return b;
}

static bool moves(const struct graph_node *n)
{
    static const char *const OPS[] = {"Cast",      "Expand",   "Gather", "GatherElements",
                                      "Identity",  "Reshape",  "Slice",  "Squeeze",
                                      "Transpose", "Unsqueeze"};

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++)
        if (strcmp(n->op, OPS[i]) == 0)
            return true;
    return false;
}

static struct bounds of_two(struct walk *w, const struct graph_node *n)
{
    const struct bounds a = look_at_bounds(w, n->in[0]), b = look_at_bounds(w, n->in[1]);

    if (strcmp(n->op, "Min") == 0)
        return (struct bounds){fmin(a.lo, b.lo), fmin(a.hi, b.hi)};
    if (strcmp(n->op, "Max") == 0)
        return (struct bounds){fmax(a.lo, b.lo), fmax(a.hi, b.hi)};
    if (strcmp(n->op, "Sub") == 0)
        return (struct bounds){a.lo - b.hi, a.hi - b.lo};
    return ALL;
}

static struct bounds of_node(struct walk *w, const struct graph_node *n)
{
    struct bounds x;
    double lo, hi;

    if (n->n_in > 0 && moves(n))
        return look_at_bounds(w, n->in[0]);
    if (n->n_in > 1 && (strcmp(n->op, "Concat") == 0 || strcmp(n->op, "Where") == 0))
        return of_any(w, n, n->op[0] == 'W');
    if (n->n_in == 2)
        return of_two(w, n);
    if (n->n_in != 1)
        return ALL;
    x = look_at_bounds(w, n->in[0]);
    if (strcmp(n->op, "Ceil") == 0)
        return (struct bounds){ceil(x.lo), ceil(x.hi)};
    if (strcmp(n->op, "Clip") == 0 && !graph_float(n, "min", -INFINITY, &lo, NULL) &&
        !graph_float(n, "max", INFINITY, &hi, NULL))
        return (struct bounds){fmin(fmax(x.lo, lo), hi), fmin(fmax(x.hi, lo), hi)};
    return ALL;
}

static struct bounds look_at_bounds(struct walk *w, uint32_t v)
{
    const struct graph_value *x = &w->g->values[v];

    if (w->seen[v])
        return w->of[v];
    w->of[v] = ALL; /* what is too deep */
    w->seen[v] = 1;
    if (x->data)
        w->of[v] = of_constant(x);
    else if (x->writer && w->depth < MAX_DEPTH) {
        w->depth++;
        w->of[v] = of_node(w, &w->g->nodes[x->writer - 1]);
        w->depth--;
    }
    return w->of[v];
}

int bounds_of(struct shape_ctx *c, uint32_t value, struct bounds *out)
{
    struct walk w = {.g = c->g,
                     .of = malloc(((size_t)c->g->n_values + 1) * sizeof(*w.of)),
                     .seen = calloc((size_t)c->g->n_values + 1, 1)};

    *out = ALL;
    if (!w.of || !w.seen)
        SH_FAIL(c->err, SH_E_NOMEM, "could not allocate bounds of %u values", c->g->n_values);
    else
        *out = look_at_bounds(&w, value);
    free(w.of);
    free(w.seen);
    return c->err->rc;
}
