/* sizes.c - sizes of symbols: ones that work, and how the shapes of outputs follow from them.
 *
 * Shapes are inferred for numbers, not for symbols. So the rule of an axis is found by trying: the
 * batch and each symbol in turn are given other sizes, and of the rules
 *
 *   size(x) = add + mul * ((x + plus) / div)          div up to MAX_DIV, rounded down
 *
 * those stay that agree with all that was seen. Where two of them differ for some x, that x is
 * tried next, until they agree or the model takes no size at which they do not. Chains of
 * convolutions, pooling and upsampling are of this form, since quotients of quotients are; of the
 * batch a multiple is all that is looked for. An axis
 * that follows from several is taken for a product of theirs, and this is tried too. What is of
 * another form is refused; should sizes that nobody tried break a rule, the run is refused, as what
 * a program writes has to fit what the API has made room for.
 */
#include "common/mem.h"
#include "runtime/model/graph_int.h"

#include <stdlib.h>

#define MAX_DIV 64
#define MAX_TRIES 48   /* sizes of one symbol */
#define NEAR 130       /* rules that agree so far from each other are the same */
#define MAX_RULES 2080 /* of all div and plus */

/* ---------------------------------------------------------------- sizes that work */

static const uint32_t CANDIDATES[] = {64, 32, 128, 224, 256, 299, 512, 16, 8, 3, 1, 2, 4, 1024};

/* How many nodes are right with these sizes. */
static uint32_t try_sizes(const struct graph *g, const struct sh_sizes *own, bool training)
{
    const struct graph_sizes at = {.batch = graph_some_batch(g), .of = *own};
    struct graph *out = NULL;
    struct sh_err err = {0};
    struct sh_buf list;
    uint32_t n_done;
    int rc;

    sh_buf_init(&list, GRAPH_LIST_MAX);
    rc = graph__at(g, &at, training, &list, &n_done, &out, &err);
    graph_free(out);
    sh_buf_fini(&list);
    return rc ? n_done : UINT32_MAX;
}

/* Symbols [from, to) all alike: takes what gets further than what there is. */
static void improve(const struct graph *g, bool training, uint32_t from, uint32_t to,
                    struct sh_sizes *best, uint32_t *most)
{
    for (size_t c = 0; c < SH_ARRAY_LEN(CANDIDATES) && *most != UINT32_MAX; c++) {
        struct sh_sizes z = *best;
        uint32_t n;

        for (uint32_t k = from; k < to; k++)
            z.v[k] = CANDIDATES[c];
        n = try_sizes(g, &z, training);
        if (n > *most) {
            *most = n;
            *best = z;
        }
    }
}

void graph_settle(struct graph *g, bool training)
{
    struct sh_sizes best = {.n = (uint32_t)g->symbols.n};
    uint32_t most = 0;

    for (uint32_t k = 0; k < best.n; k++)
        best.v[k] = CANDIDATES[0];
    if (best.n) /* exporters give one size several names */
        improve(g, training, 0, best.n, &best, &most);
    for (uint32_t k = 0; best.n > 1 && k < best.n; k++)
        improve(g, training, k, k + 1, &best, &most);
    g->own = best;
}

/* ---------------------------------------------------------------- what was seen */

struct point {
    int64_t x;
    bool ok;       /* the model takes it */
    int64_t *dims; /* OWNED: [n_outputs][SH_MAX_RANK] */
};

struct finder {
    struct graph *g;
    bool training;
    struct graph_sizes own;
    int of; /* what changes now: SH_DIM_BATCH or a symbol */
    struct point seen[MAX_TRIES];
    size_t n_seen;
    struct sh_err *err;
};

static int64_t size_of_symbol(const struct graph_sizes *at, int of)
{
    return of == SH_DIM_BATCH ? at->batch : (int64_t)at->of.v[of];
}

static void set_size_of(struct graph_sizes *at, int of, int64_t x)
{
    if (of == SH_DIM_BATCH)
        at->batch = x;
    else
        at->of.v[of] = (uint32_t)x;
}

static void forget_seen(struct finder *f)
{
    for (size_t i = 0; i < f->n_seen; i++)
        free(f->seen[i].dims);
    f->n_seen = 0;
}

/* Shapes of all outputs at these sizes; p->ok is false where the model does not take them. */
static int look_at_sizes(struct finder *f, const struct graph_sizes *at, struct point *p)
{
    struct graph *out = NULL;
    struct sh_err why = {0};

    p->dims = calloc((size_t)f->g->n_outputs * SH_MAX_RANK + 1, sizeof(*p->dims));
    if (!p->dims)
        return SH_FAIL(f->err, SH_E_NOMEM, "could not allocate the shapes of a model");
    p->ok = graph_at(f->g, at, f->training, &out, &why) == SH_OK;
    for (uint32_t i = 0; p->ok && i < out->n_outputs; i++)
        memcpy(p->dims + (size_t)i * SH_MAX_RANK, out->values[out->outputs[i]].dims,
               sizeof(out->values[0].dims));
    graph_free(out);
    if (why.rc == SH_E_NOMEM)
        return sh_err_copy(f->err, &why);
    return SH_OK;
}

static bool was_tried(const struct finder *f, int64_t x)
{
    for (size_t i = 0; i < f->n_seen; i++)
        if (f->seen[i].x == x)
            return true;
    return false;
}

static int try_x(struct finder *f, int64_t x)
{
    struct graph_sizes at = f->own;
    struct point *p = &f->seen[f->n_seen];
    int rc;

    if (x < 1 || f->n_seen == MAX_TRIES || was_tried(f, x))
        return SH_OK;
    set_size_of(&at, f->of, x);
    p->x = x;
    rc = look_at_sizes(f, &at, p);
    if (rc)
        free(p->dims);
    else
        f->n_seen++;
    return rc;
}

/* ---------------------------------------------------------------- rules of one axis */

struct rule {
    int64_t add, mul, plus, div;
};

static int64_t rule_value(const struct rule *r, int64_t x)
{
    return r->add + r->mul * ((x + r->plus) / r->div);
}

/* Gives the rule its factor and its addend; false: no such rule agrees with what was seen. */
static bool fit_rule(const struct finder *f, size_t at, struct rule *r)
{
    const struct point *first = &f->seen[0];
    int64_t q0 = (first->x + r->plus) / r->div, d0 = first->dims[at];

    r->mul = 0;
    for (size_t i = 1; i < f->n_seen && !r->mul; i++) {
        const int64_t q = (f->seen[i].x + r->plus) / r->div;

        if (!f->seen[i].ok || q == q0)
            continue;
        if ((f->seen[i].dims[at] - d0) % (q - q0))
            return false;
        r->mul = (f->seen[i].dims[at] - d0) / (q - q0);
        if (!r->mul)
            break;
    }
    r->add = d0 - r->mul * q0;
    for (size_t i = 0; i < f->n_seen; i++)
        if (f->seen[i].ok && rule_value(r, f->seen[i].x) != f->seen[i].dims[at])
            return false;
    return true;
}

/* The simplest first. Returns how many agree with what was seen. */
static size_t all_rules(const struct finder *f, size_t at, struct rule *out)
{
    size_t n = 0;

    for (int64_t div = 1; div <= (f->of == SH_DIM_BATCH ? 1 : MAX_DIV); div++)
        for (int64_t plus = 0; plus < div; plus++) {
            out[n] = (struct rule){.plus = plus, .div = div};
            n += fit_rule(f, at, &out[n]);
        }
    return n;
}

/* A size not tried yet for which two of the rules differ; 0: there is none. */
static int64_t differing(const struct finder *f, const struct rule *r, size_t n)
{
    const int64_t x0 = f->seen[0].x;

    for (size_t i = 1; i < n; i++)
        for (int64_t d = 1; d <= NEAR; d++) {
            if (rule_value(&r[0], x0 + d) != rule_value(&r[i], x0 + d) && !was_tried(f, x0 + d))
                return x0 + d;
            if (x0 > d && rule_value(&r[0], x0 - d) != rule_value(&r[i], x0 - d) &&
                !was_tried(f, x0 - d))
                return x0 - d;
        }
    return 0;
}

/* *out of the axis, with what changes now; mul 0: it does not follow from that. */
static int find_rule(struct finder *f, size_t at, struct rule *rules, struct rule *out)
{
    for (;;) {
        size_t n = all_rules(f, at, rules);
        int64_t x = n > 1 ? differing(f, rules, n) : 0;
        int rc;

        if (n == 0)
            return SH_FAIL(f->err, SH_E_UNSUPPORTED, "it is of no form that is known here");
        *out = rules[0];
        if (!x || f->n_seen == MAX_TRIES)
            return SH_OK;
        rc = try_x(f, x);
        if (rc)
            return rc;
    }
}

/* ---------------------------------------------------------------- all of them */

/* One more that an axis follows from: a product, where there was one before. */
static int add_factor(const struct finder *f, const struct rule *r, struct sh_dim *d)
{
    const int64_t x = size_of_symbol(&f->own, f->of), q = (x + r->plus) / r->div;
    int64_t mul = r->mul;

    if (r->mul == 0)
        return SH_OK;
    if (d->n == 0) {
        d->add = r->add;
    } else { /* r->mul holds the others at their own sizes, and d->mul this one */
        for (uint32_t i = 0; i < d->n && mul; i++) {
            const int64_t other =
                (size_of_symbol(&f->own, d->f[i].of) + d->f[i].plus) / d->f[i].div;

            mul = other && mul % other == 0 ? mul / other : 0;
        }
        if (!mul || d->add != r->add || d->mul != mul * q)
            return SH_FAIL(f->err, SH_E_UNSUPPORTED, "it is no product of what it follows from");
    }
    d->mul = mul;
    d->f[d->n++] = (struct sh_dim_of){.of = f->of, .plus = r->plus, .div = r->div};
    return SH_OK;
}

static int why(struct finder *f, uint32_t output, int axis)
{
    struct sh_err about = *f->err;

    if (about.rc != SH_E_UNSUPPORTED)
        return about.rc;
    *f->err = (struct sh_err){0};
    return SH_FAIL(f->err, SH_E_UNSUPPORTED,
                   "how the size of axis %d of output %s follows from the sizes of the inputs is "
                   "not known: %s; export the model with fixed sizes",
                   axis, f->g->values[f->g->outputs[output]].name, about.msg);
}

/* How every axis follows from f->of. */
static int find_of(struct finder *f, const struct graph *base, struct rule *rules)
{
    const int64_t x = size_of_symbol(&f->own, f->of),
                  first[] = {x, x + 1, 2 * x, x + 2, x / 2, 3 * x};
    int rc = SH_OK;

    for (size_t i = 0; i < (f->of == SH_DIM_BATCH ? 2 : SH_ARRAY_LEN(first)) && !rc; i++)
        rc = try_x(f, first[i]);
    if (!rc && !f->seen[0].ok)
        rc = SH_FAIL(f->err, SH_E_BUG, "the shapes of a model are not the same twice");
    for (uint32_t i = 0; i < base->n_outputs; i++)
        for (int k = 0; k < base->values[base->outputs[i]].rank && !rc; k++) {
            struct rule r = {.div = 1};

            rc = find_rule(f, (size_t)i * SH_MAX_RANK + (size_t)k, rules, &r);
            if (!rc)
                rc = add_factor(f, &r, &f->g->output_dims[i][k]);
            if (rc)
                rc = why(f, i, k);
        }
    forget_seen(f);
    return rc;
}

/* What was found one by one, tried together. */
static int verify(struct finder *f, const struct graph *base)
{
    struct graph_sizes at = f->own;
    struct point p = {0};
    int rc;

    for (uint32_t k = 0; k < at.of.n; k++)
        at.of.v[k] *= 2;
    if (graph_fixed_batch(f->g) == 0)
        at.batch++;
    rc = look_at_sizes(f, &at, &p);
    for (uint32_t i = 0; p.ok && i < base->n_outputs; i++)
        for (int k = 0; k < base->values[base->outputs[i]].rank && !rc; k++) {
            int64_t size;

            rc = sh_dim_size(&f->g->output_dims[i][k], at.batch, &at.of, &size, f->err);
            if (!rc && size != p.dims[(size_t)i * SH_MAX_RANK + (size_t)k])
                rc = SH_FAIL(f->err, SH_E_UNSUPPORTED, "it follows from several in another way");
            if (rc)
                rc = why(f, i, k);
        }
    free(p.dims);
    return rc;
}

static int64_t as_dim(const struct sh_dim *d)
{
    if (sh_dim_is_fixed(d))
        return d->add;
    if (d->is_most || !sh_dim_is_of(d, d->f[0].of))
        return GRAPH_DERIVED;
    return d->f[0].of == SH_DIM_BATCH ? GRAPH_BATCH : GRAPH_SYMBOL(d->f[0].of);
}

/* Samples have to lie one behind the other. */
static int describe_output(struct graph *g, uint32_t i, const struct graph_value *base,
                           struct sh_err *err)
{
    struct graph_value *v = &g->values[g->outputs[i]];

    if (base->counted)
        g->output_dims[i][base->counted - 1].is_most = true;
    for (int k = 1; k < base->rank && !base->counted; k++)
        for (uint32_t j = 0; j < g->output_dims[i][k].n; j++)
            if (g->output_dims[i][k].f[j].of == SH_DIM_BATCH)
                return SH_FAIL(err, SH_E_UNSUPPORTED,
                               "the shape of output %s depends on the batch beyond its first axis",
                               v->name);
    if (v->rank >= 0)
        return SH_OK;
    v->dtype = base->dtype;
    v->rank = base->rank;
    for (int k = 0; k < base->rank; k++)
        v->dims[k] = as_dim(&g->output_dims[i][k]);
    return SH_OK;
}

static int find_rules(struct finder *f, const struct graph *base)
{
    struct rule *rules = calloc(MAX_RULES, sizeof(*rules));
    int rc = rules ? SH_OK : SH_FAIL(f->err, SH_E_NOMEM, "could not allocate rules of shapes");

    if (!rc && graph_fixed_batch(f->g) == 0) {
        f->of = SH_DIM_BATCH;
        rc = find_of(f, base, rules);
    }
    for (f->of = 0; !rc && f->of < (int)f->g->symbols.n; f->of++)
        rc = find_of(f, base, rules);
    free(rules);
    if (!rc && f->g->symbols.n)
        rc = verify(f, base);
    return rc;
}

int graph_infer_outputs(struct graph *g, bool training, struct sh_err *err)
{
    struct finder f = {.g = g, .training = training, .err = err};
    struct sh_err own = {0};
    struct graph *base = NULL;
    int rc;

    f.err = err ? err : &own;
    f.own = (struct graph_sizes){.batch = graph_some_batch(g), .of = g->own};
    free(g->output_dims);
    g->output_dims = calloc((size_t)g->n_outputs + 1, sizeof(*g->output_dims));
    if (!g->output_dims)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the shapes of a model");
    rc = graph_at(g, &f.own, training, &base, f.err);
    for (uint32_t i = 0; !rc && i < base->n_outputs; i++)
        for (int k = 0; k < base->values[base->outputs[i]].rank; k++)
            g->output_dims[i][k] = sh_dim_fixed(base->values[base->outputs[i]].dims[k]);
    if (!rc)
        rc = find_rules(&f, base);
    for (uint32_t i = 0; !rc && i < base->n_outputs; i++)
        rc = describe_output(g, i, &base->values[base->outputs[i]], f.err);
    graph_free(base);
    return rc;
}
