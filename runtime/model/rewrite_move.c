/* rewrite_move.c - operators that move or choose elements as compositions. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

/* One axis at a time: the array seen as [outer, rest], each row repeated. */
int shape__rewrite_tile(struct shape_ctx *c)
{
    uint32_t y = rw_in(c, 0);
    struct graph_value v = *rw_v(c, y);
    int64_t repeats[SH_MAX_RANK], inner = 1;
    size_t k;

    shape__ints(c, 1, repeats, SH_MAX_RANK, &k);
    if (k != (size_t)v.rank)
        shape__fail(c, SH_E_INVALID, "has %zu repeats for an input of rank %d", k, v.rank);
    for (int i = v.rank - 1; i >= 0 && c->err->rc == SH_OK; i--) {
        const int64_t row = v.dims[i] * inner;
        int64_t outer = 1;

        if (repeats[i] < 0 || __builtin_mul_overflow(v.dims[i], repeats[i], &v.dims[i]) ||
            __builtin_mul_overflow(v.dims[i], inner, &inner))
            return shape__fail(c, SH_E_INVALID, "cannot repeat an axis %lld times",
                               (long long)repeats[i]);
        for (int j = 0; j < i; j++)
            outer *= v.dims[j];
        if (repeats[i] != 1) {
            y = rw_reshape(c, y, 3, (const int64_t[]){outer, 1, row});
            y = rw_expand(c, y, 3, (const int64_t[]){outer, repeats[i], row});
        }
    }
    return rw_is(c, 0, rw_reshape(c, y, v.rank, v.dims));
}

/* The triangle as a constant mask. */
int shape__rewrite_trilu(struct shape_ctx *c)
{
    const uint32_t x = rw_in(c, 0);
    const struct graph_value v = *rw_v(c, x);
    int64_t upper, k = 0, rows, columns;
    uint8_t *keep;
    size_t n;

    upper = shape__int(c, "upper", 1);
    shape__ints(c, 1, &k, 1, &n);
    if (v.rank < 2)
        shape__fail(c, SH_E_INVALID, "needs an input of rank 2 or more");
    if (c->err->rc)
        return c->err->rc;
    rows = v.dims[v.rank - 2];
    columns = v.dims[v.rank - 1];
    k = n == 0 ? 0 : SH_MAX(-rows, SH_MIN(k, columns));
    keep = rw_alloc(c, SH_BOOL, rows * columns);
    for (int64_t i = 0; keep && i < rows * columns; i++) {
        const int64_t right = i % columns - i / columns; /* of the diagonal */

        keep[i] = upper ? right >= k : right <= k;
    }
    return rw_is(c, 0,
                 rw3(c, "Where", rw_const(c, SH_BOOL, 2, &v.dims[v.rank - 2], keep), x,
                     rw_number(c, v.dtype, 0)));
}

/* Where the index equals 0, 1, ... along a new axis: a negative one counts from the end, one that
 * is outside is nowhere. */
int shape__rewrite_one_hot(struct shape_ctx *c)
{
    struct graph_value ix = *shape__in(c, 0), values = *shape__in(c, 2);
    int64_t axis, dims[SH_MAX_RANK] = {0}, row[SH_MAX_RANK];
    uint32_t at, below, off, on;
    double depth;
    const int rank = ix.rank + 1;

    axis = shape__int(c, "axis", -1);
    if (rank > SH_MAX_RANK)
        shape__fail(c, SH_E_UNSUPPORTED, WHY_AXES, SH_MAX_RANK);
    shape__axis(c, axis, rank, &axis);
    shape__number(c, 1, 0, &depth);
    if (!(depth >= 1 && depth < 1e9))
        shape__fail(c, SH_E_INVALID, "the depth is %g", depth);
    if (graph_elements(&values) != 2)
        shape__fail(c, SH_E_INVALID, "the values must be two numbers");
    if (c->err->rc)
        return c->err->rc;
    for (int i = 0, from = 0; i < rank; i++) {
        dims[i] = i == axis ? 1 : ix.dims[from++];
        row[i] = i == axis ? (int64_t)depth : 1;
    }
    at = rw_reshape(c, rw_cast(c, rw_in(c, 0), SH_I64), rank, dims);
    below = rw2(c, "Less", at, rw_number(c, SH_I64, 0));
    at =
        rw3(c, "Where", below, rw2(c, "Add", at, rw_number(c, SH_I64, (double)(int64_t)depth)), at);
    off = rw_reshape(c, rw_slice(c, rw_in(c, 2), 0, 0, 1, 1), 0, NULL);
    on = rw_reshape(c, rw_slice(c, rw_in(c, 2), 0, 1, 2, 1), 0, NULL);
    at = rw2(c, "Equal", at, rw_reshape(c, rw_iota(c, (int64_t)depth), rank, row));
    return rw_is(c, 0, rw3(c, "Where", at, on, off));
}

/* Blocks of b x b pixels and channels change places: six axes, turned. */
static int blocks(struct shape_ctx *c, bool to_space)
{
    const struct graph_value v = *shape__in(c, 0);
    int64_t b, n, ch, y, x;
    const char *mode;

    b = shape__int(c, "blocksize", 0);
    mode = shape__str(c, "mode", "DCR");
    if (v.rank != 4 || b < 1 || b > INT16_MAX ||
        (to_space ? v.dims[1] % (b * b) : v.dims[2] % b || v.dims[3] % b))
        shape__fail(c, SH_E_INVALID, "the shape does not divide into blocks of %lld", (long long)b);
    if (c->err->rc)
        return c->err->rc;
    n = v.dims[0];
    ch = to_space ? v.dims[1] / (b * b) : v.dims[1];
    y = to_space ? v.dims[2] : v.dims[2] / b;
    x = to_space ? v.dims[3] : v.dims[3] / b;
    if (!to_space) {
        const uint32_t t = rw_reshape(c, rw_in(c, 0), 6, (int64_t[]){n, ch, y, b, x, b});

        return rw_is(c, 0,
                     rw_reshape(c, rw_transpose(c, t, (int64_t[]){0, 3, 5, 1, 2, 4}, 6), 4,
                                (int64_t[]){n, ch * b * b, y, x}));
    }
    if (strcmp(mode, "CRD") == 0) {
        const uint32_t t = rw_reshape(c, rw_in(c, 0), 6, (int64_t[]){n, ch, b, b, y, x});

        return rw_is(c, 0,
                     rw_reshape(c, rw_transpose(c, t, (int64_t[]){0, 1, 4, 2, 5, 3}, 6), 4,
                                (int64_t[]){n, ch, y * b, x * b}));
    }
    if (strcmp(mode, "DCR") != 0)
        return shape__fail(c, SH_E_INVALID, "mode must be DCR or CRD");
    return rw_is(
        c, 0,
        rw_reshape(c,
                   rw_transpose(c, rw_reshape(c, rw_in(c, 0), 6, (int64_t[]){n, b, b, ch, y, x}),
                                (int64_t[]){0, 3, 4, 1, 5, 2}, 6),
                   4, (int64_t[]){n, ch, y * b, x * b}));
}

int shape__rewrite_depth_to_space(struct shape_ctx *c)
{
    return blocks(c, true);
}

int shape__rewrite_space_to_depth(struct shape_ctx *c)
{
    return blocks(c, false);
}

/* Position t of sample b comes from len[b] - 1 - t as long as that is not negative. */
int shape__rewrite_reverse_sequence(struct shape_ctx *c)
{
    const struct graph_value v = *shape__in(c, 0), lens = *shape__in(c, 1);
    int64_t batch, time, dims[3];
    uint32_t x, at, mirror;
    bool turned;

    batch = shape__int(c, "batch_axis", 1);
    time = shape__int(c, "time_axis", 0);
    if (v.rank < 2 || batch < 0 || batch > 1 || time != 1 - batch || lens.rank != 1 ||
        lens.dims[0] != v.dims[batch])
        shape__fail(c, SH_E_INVALID, "the axes or the lengths do not fit the input");
    if (c->err->rc)
        return c->err->rc;
    turned = time == 0;
    dims[0] = v.dims[batch];
    dims[1] = v.dims[time];
    dims[2] = 1;
    x = rw_in(c, 0);
    if (turned) {
        int64_t perm[SH_MAX_RANK] = {1, 0, 2, 3, 4, 5, 6, 7};

        x = rw_transpose(c, x, perm, v.rank);
    }
    at = rw_reshape(c, rw_iota(c, dims[1]), 2, (int64_t[]){1, dims[1]});
    mirror = rw_reshape(c, rw_cast(c, rw_in(c, 1), SH_I64), 2, (int64_t[]){dims[0], 1});
    mirror = rw2(c, "Sub", rw2(c, "Sub", mirror, rw_number(c, SH_I64, 1)), at);
    at = rw3(c, "Where", rw2(c, "Less", mirror, rw_number(c, SH_I64, 0)), at, mirror);
    x = rw2_with(c, "GatherND", x, rw_reshape(c, at, 3, dims), RW_INT("batch_dims", 1));
    if (turned) {
        int64_t perm[SH_MAX_RANK] = {1, 0, 2, 3, 4, 5, 6, 7};

        x = rw_transpose(c, x, perm, v.rank);
    }
    return rw_is(c, 0, x);
}
