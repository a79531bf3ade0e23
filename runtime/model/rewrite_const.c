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
    int64_t periodic, to, n;
    double size, *data;
    size_t k = 0;

    shape__number(c, 0, 0, &size);
    periodic = shape__int(c, "periodic", 1);
    to = shape__int(c, "output_datatype", 1);
    if (!(size >= 0 && size < 1e9))
        return shape__fail(c, SH_E_INVALID, "the size is %g", size);
    while (strcmp(WINDOWS[k].op, c->n.op) != 0)
        k++; /* the table of operators sends only these here */
    n = (int64_t)size;
    data = rw_alloc(c, SH_F64, n);
    for (int64_t i = 0; data && i < n; i++) {
        const double t = 2 * M_PI * (double)i / (double)SH_MAX(periodic ? n : n - 1, 1);

        data[i] = WINDOWS[k].a[0] - WINDOWS[k].a[1] * cos(t) + WINDOWS[k].a[2] * cos(2 * t);
    }
    return rw_is(c, 0, rw1_with(c, "Cast", rw_const(c, SH_F64, 1, &n, data), RW_INT("to", to)));
}

/* Mean of several: their sum, divided. */
int shape__rewrite_mean(struct shape_ctx *c)
{
    uint32_t sum;

    shape__want_float(c, 0);
    sum = rw_node(c, "Sum", c->n.in, c->n.n_in, NULL, 0);
    return rw_is(c, 0,
                 rw2(c, "Mul", sum, rw_number(c, rw_v(c, sum)->dtype, 1.0 / (double)c->n.n_in)));
}
