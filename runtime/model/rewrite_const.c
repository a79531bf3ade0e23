/* rewrite_const.c - operators that give constants. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

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
