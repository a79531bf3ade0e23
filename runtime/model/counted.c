/* counted.c - see counted.h. */
#include "common/mem.h"
#include "runtime/model/counted_int.h"

#include <stdlib.h>

#define LOOK_BACK 1024 /* nodes among which a mask is looked for */

int counted__axis(const struct graph_value *v)
{
    return (int)v->counted - 1;
}

bool counted__concerns(const struct shape_ctx *c)
{
    for (uint32_t i = 0; !c->plain && i < c->n.n_in; i++)
        if (c->n.in[i] != GRAPH_NONE && (shape__in(c, i)->counted || shape__in(c, i)->numbers))
            return true;
    return false;
}

int counted__refuse(struct counted *k, const char *why)
{
    return shape__fail(k->c, SH_E_UNSUPPORTED, "%s", why);
}

int counted__axis_in(const struct counted *k, uint32_t i)
{
    return shape__has(k->c, i) ? counted__axis(shape__in(k->c, i)) : -1;
}

struct graph_number counted__of(const struct shape_ctx *c, uint32_t v)
{
    const struct graph_value *x = &c->g->values[v];

    return number__any(c, x->count);
}

struct graph_number counted__new(struct shape_ctx *c, uint32_t count, int64_t most)
{
    struct graph_number n = {.hi = most, .of = count},
                        *own = c->err->rc ? NULL : malloc(sizeof(*own));

    if (!own) {
        SH_FAIL(c->err, SH_E_NOMEM, "could not allocate a number");
        return n;
    }
    *own = n;
    free(c->g->values[count].numbers);
    c->g->values[count].numbers = own;
    return n;
}

uint32_t counted__first(struct shape_ctx *c, uint32_t count, int64_t n)
{
    const struct graph *g = c->g;
    const uint32_t from = g->n_nodes > LOOK_BACK ? g->n_nodes - LOOK_BACK : 0;
    uint32_t mask = GRAPH_NONE;

    for (uint32_t i = g->n_nodes; i-- > from && c->err->rc == SH_OK;) {
        const struct graph_node *node = &g->nodes[i];

        if (strcmp(node->op, "First") == 0 && node->in[0] == count &&
            g->values[node->out[0]].dims[0] == n)
            return node->out[0];
    }
    shape__temp(c, "mask", SH_BOOL, 1, &n, &mask);
    shape__emit(c, "First", &count, 1, mask, NULL, 0);
    return mask;
}

uint32_t counted__places(struct shape_ctx *c, uint32_t x, struct graph_number *n)
{
    uint32_t out[2] = {GRAPH_NONE, GRAPH_NONE};
    int64_t most = 0;

    if (c->err->rc == SH_OK) {
        most = graph_elements(rw_v(c, x));
        shape__temp(c, "places", SH_I64, 1, &most, &out[0]);
    }
    shape__temp(c, "count", SH_I64, 0, NULL, &out[1]);
    if (c->err->rc == SH_OK)
        graph_add_node(c->g, c->n.name, "Places", &x, 1, out, 2, NULL, c->err);
    *n = counted__new(c, out[1], most);
    return out[0];
}

uint32_t counted__along(struct shape_ctx *c, uint32_t mask, int axis, int rank)
{
    int64_t dims[SH_MAX_RANK];

    for (int i = 0; i < rank; i++)
        dims[i] = 1;
    if (c->err->rc == SH_OK)
        dims[axis] = rw_v(c, mask)->dims[0];
    return rw_reshape(c, mask, rank, dims);
}

int counted__cover(struct counted *k, uint32_t i, double fill)
{
    struct shape_ctx *c = k->c;
    const struct graph_value x = *shape__in(c, i);
    const int axis = counted__axis(&x);
    uint32_t mask;

    if (axis < 0)
        return SH_OK;
    mask = counted__along(c, counted__first(c, x.count, x.dims[axis]), axis, x.rank);
    mask = rw3(c, "Where", mask, c->n.in[i], rw_number(c, x.dtype, fill));
    if (c->err->rc == SH_OK)
        c->n.in[i] = mask;
    return c->err->rc;
}

/* A value that is not yet counted otherwise. */
static int own_value(struct shape_ctx *c, uint32_t k)
{
    const struct graph_value x = *shape__outv(c, k);
    uint32_t from = c->outv[k];
    int rc = shape__temp(c, "counted", x.dtype, x.rank, x.dims, &c->outv[k]);

    return rc ? rc : shape__emit(c, "Identity", &from, 1, c->outv[k], NULL, 0);
}

int counted__is(struct shape_ctx *c, uint32_t k, int axis, struct graph_number n)
{
    const bool plain = c->plain;
    struct graph_value *v;
    uint32_t count;

    if (c->err->rc)
        return c->err->rc;
    c->plain = true;
    if (n.hi < shape__outv(c, k)->dims[axis])
        c->outv[k] = rw_slice(c, c->outv[k], axis, 0, SH_MAX(n.hi, 0), 1);
    c->plain = plain;
    if (c->err->rc || number__is_const(&n))
        return c->err->rc;
    count = number__value(c, n);
    v = shape__outv(c, k);
    if (c->err->rc == SH_OK && v->counted == (uint32_t)axis + 1 && v->count == count)
        return SH_OK;
    if (c->err->rc == SH_OK && (v->counted || v->data || c->outv[k] < c->fresh))
        own_value(c, k);
    if (c->err->rc == SH_OK) {
        v = shape__outv(c, k);
        v->counted = (uint32_t)axis + 1;
        v->count = count;
    }
    return c->err->rc;
}

/* Along which axis may two values differ? -1: they do not; -2: they cannot be chosen from. */
static int differing_axis(const struct graph_value *a, const struct graph_value *b)
{
    int axis = -1;

    if (a->dtype != b->dtype || a->rank != b->rank)
        return -2;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] == b->dims[i] && counted__axis(a) != i && counted__axis(b) != i)
            continue;
        if (axis >= 0)
            return -2;
        axis = i;
    }
    return axis;
}

/* v with room for n along an axis. */
static uint32_t with_room(struct shape_ctx *c, uint32_t v, int axis, int64_t n)
{
    int64_t dims[SH_MAX_RANK];
    const struct graph_value x = *rw_v(c, v);

    if (x.dims[axis] == n)
        return v;
    memcpy(dims, x.dims, sizeof(dims));
    dims[axis] = n - x.dims[axis];
    return rw_concat(c, (const uint32_t[]){v, rw_expand(c, rw_number(c, x.dtype, 0), x.rank, dims)},
                     2, axis);
}

int counted__choose(struct shape_ctx *c, uint32_t k, uint32_t a, uint32_t b)
{
    const struct graph_value x = c->g->values[a], y = c->g->values[b];
    const int axis = differing_axis(&x, &y);
    const bool plain = c->plain;
    const uint32_t cond = rw_reshape(c, c->n.in[0], 0, NULL);
    struct graph_number n[2], both = {0};
    int64_t most;
    uint32_t v;

    if (axis < 0 || c->training)
        return shape__computed(c, 0);
    c->plain = true;
    n[0] = x.counted ? counted__of(c, a) : number__const(x.dims[axis]);
    n[1] = y.counted ? counted__of(c, b) : number__const(y.dims[axis]);
    most = SH_MAX(x.dims[axis], y.dims[axis]);
    v = rw3(c, "Where", cond, number__value(c, n[0]), number__value(c, n[1]));
    if (c->err->rc == SH_OK)
        both = counted__new(c, v, most);
    if (c->err->rc == SH_OK && (x.dims[axis] == 0 || y.dims[axis] == 0))
        v = x.dims[axis] ? a : b;
    else if (c->err->rc == SH_OK)
        v = rw3(c, "Where", cond, with_room(c, a, axis, most), with_room(c, b, axis, most));
    rw_is(c, k, v);
    c->plain = plain;
    c->fresh = c->g->n_values; /* what comes out has another count than what went in */
    return counted__is(c, k, axis, both);
}
