/* rewrite_pad.c - borders that come from the data, and cutting or padding around the middle. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

enum border { EDGE, REFLECT, WRAP };

/* Where element i of an axis of n comes from. */
static int64_t source(enum border b, int64_t i, int64_t n)
{
    const int64_t period = b == REFLECT ? 2 * (n - 1) : n;
    int64_t at;

    if (b == EDGE || n == 1)
        return SH_MAX(0, SH_MIN(i, n - 1));
    at = i % period;
    at += at < 0 ? period : 0;
    return at < n ? at : period - at;
}

/* Pad in these modes: a gather by constant indices along each axis that changes. */
int shape__pad_from_data(struct shape_ctx *c, const char *mode, const int64_t *pads)
{
    const struct graph_value v = *shape__in(c, 0);
    uint32_t x = rw_in(c, 0);
    enum border b;

    if (strcmp(mode, "edge") == 0)
        b = EDGE;
    else if (strcmp(mode, "reflect") == 0)
        b = REFLECT;
    else if (strcmp(mode, "wrap") == 0)
        b = WRAP;
    else
        return shape__fail(c, SH_E_INVALID, "mode %.32s is not known", mode);
    for (int a = 0; a < v.rank && c->err->rc == SH_OK; a++) {
        const int64_t n = v.dims[a] + pads[a] + pads[v.rank + a];
        int64_t *at;

        if (pads[a] == 0 && pads[v.rank + a] == 0)
            continue;
        if (n < 0 || v.dims[a] == 0)
            return shape__fail(c, SH_E_INVALID, "the pads do not fit axis %d", a);
        at = rw_alloc(c, SH_I64, n);
        for (int64_t i = 0; at && i < n; i++)
            at[i] = source(b, i - pads[a], v.dims[a]);
        x = rw2_with(c, "Gather", x, rw_const(c, SH_I64, 1, &n, at), RW_INT("axis", a));
    }
    return rw_is(c, 0, x);
}

int shape__rewrite_center_crop_pad(struct shape_ctx *c)
{
    const struct graph_value v = *shape__in(c, 0);
    int64_t axes[SH_MAX_RANK], want[SH_MAX_RANK], pads[2 * SH_MAX_RANK] = {0};
    uint32_t x = rw_in(c, 0);
    size_t k, n;

    shape__ints(c, 1, want, SH_MAX_RANK, &n);
    k = shape__list(c, "axes", axes, SH_MAX_RANK);
    if (!graph__attr(&c->n, "axes"))
        for (; k < (size_t)v.rank; k++)
            axes[k] = (int64_t)k;
    if (k != n)
        shape__fail(c, SH_E_INVALID, "has %zu sizes for %zu axes", n, k);
    for (size_t i = 0; i < k && c->err->rc == SH_OK; i++) {
        int64_t a, cut;

        shape__axis(c, axes[i], v.rank, &a);
        if (want[i] < 0)
            shape__fail(c, SH_E_INVALID, "a size is %lld", (long long)want[i]);
        if (c->err->rc)
            return c->err->rc;
        cut = v.dims[a] - want[i];
        if (cut > 0) {
            x = rw_slice(c, x, (int)a, cut / 2, cut / 2 + want[i], 1);
        } else {
            pads[a] = -cut / 2;
            pads[v.rank + a] = -cut - pads[a];
        }
    }
    return rw_is(c, 0, rw2(c, "Pad", x, rw_list(c, pads, 2 * v.rank)));
}
