/* rewrite_const.c - operators that give constants, and those whose results have a size that only
 * the data know. */
#include "common/mem.h"
#include "executor/model/rewrite.h"

#include <math.h>

/* a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n) */
int shape__rewrite_window(struct shape_ctx *c)
{
    static const struct {
        const char *op;
        double a[3];
    } WINDOWS[] = {{"HannWindow", {0.5, 0.5, 0}},
                   {"HammingWindow", {25.0 / 46.0, 21.0 / 46.0, 0}},
                   {"BlackmanWindow", {0.42, 0.5, 0.08}}};
    struct rewrite w = {.c = c};
    int64_t periodic, to, n;
    double size, *data;
    size_t k = 0;
    int rc = shape__number(c, 0, 0, &size);

    if (!rc)
        rc = graph_int(&c->n, "periodic", 1, &periodic, c->err);
    if (!rc)
        rc = graph_int(&c->n, "output_datatype", 1, &to, c->err);
    if (!rc && !(size >= 0 && size < 1e9))
        rc = shape__fail(c, SH_E_INVALID, "the size is %g", size);
    if (rc)
        return rc;
    while (strcmp(WINDOWS[k].op, c->n.op) != 0)
        k++; /* the table of operators sends only these here */
    n = (int64_t)size;
    data = rw_alloc(&w, SH_F64, n);
    for (int64_t i = 0; data && i < n; i++) {
        const double t = 2 * M_PI * (double)i / (double)SH_MAX(periodic ? n : n - 1, 1);

        data[i] = WINDOWS[k].a[0] - WINDOWS[k].a[1] * cos(t) + WINDOWS[k].a[2] * cos(2 * t);
    }
    return rw_is(&w, 0, rw1_with(&w, "Cast", rw_const(&w, SH_F64, 1, &n, data), RW_INT("to", to)));
}

/* Mean of several: their sum, divided. */
int shape__rewrite_mean(struct shape_ctx *c)
{
    struct rewrite w = {.c = c, .rc = shape__want_float(c, 0)};
    const uint32_t sum = rw_node(&w, "Sum", c->n.in, c->n.n_in, NULL, 0);

    return rw_is(&w, 0,
                 rw2(&w, "Mul", sum, rw_number(&w, rw_v(&w, sum)->dtype, 1.0 / (double)c->n.n_in)));
}

/* Of a constant the places that are not 0, by axis; else nobody knows how many there are. */
int shape__rewrite_non_zero(struct shape_ctx *c)
{
    struct rewrite w = {.c = c};
    const struct graph_value x = *shape__in(c, 0);
    const int64_t n = graph_elements(&x);
    int64_t *at, dims[2] = {x.rank, 0}, k = 0;

    if (!x.data)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_SIZE);
    for (int64_t i = 0; i < n; i++)
        dims[1] += shape__get_f64(x.dtype, x.data, (size_t)i) != 0;
    at = rw_alloc(&w, SH_I64, dims[0] * dims[1]);
    for (int64_t i = 0; at && i < n; i++) {
        int64_t rest = i;

        if (shape__get_f64(x.dtype, x.data, (size_t)i) == 0)
            continue;
        for (int a = x.rank; a-- > 0; rest /= x.dims[a])
            at[a * dims[1] + k] = rest % x.dims[a];
        k++;
    }
    return rw_is(&w, 0, rw_const(&w, SH_I64, 2, dims, at));
}

/* Rows (or, without an axis, elements) where a constant condition is true. */
int shape__rewrite_compress(struct shape_ctx *c)
{
    struct rewrite w = {.c = c};
    const struct graph_value x = *shape__in(c, 0), q = *shape__in(c, 1);
    uint32_t data = rw_in(&w, 0);
    int64_t axis = 0, *at, n, k = 0;

    if (!q.data)
        return shape__computed(c, 1);
    if (graph__attr(&c->n, "axis")) {
        w.rc = graph_int(&c->n, "axis", 0, &axis, c->err);
        if (w.rc == SH_OK)
            w.rc = shape__axis(c, axis, x.rank, &axis);
        if (w.rc)
            return w.rc;
    } else {
        const int64_t all = graph_elements(&x);

        data = rw_reshape(&w, data, 1, &all);
    }
    n = SH_MIN(graph_elements(&q), rw_v(&w, data)->dims[axis]);
    at = rw_alloc(&w, SH_I64, n);
    for (int64_t i = 0; at && i < n; i++)
        if (shape__get_i64(q.dtype, q.data, (size_t)i))
            at[k++] = i;
    return rw_is(
        &w, 0, rw2_with(&w, "Gather", data, rw_const(&w, SH_I64, 1, &k, at), RW_INT("axis", axis)));
}

int shape__rewrite_unique(struct shape_ctx *c)
{
    return shape__fail(c, SH_E_UNSUPPORTED, WHY_SIZE);
}
