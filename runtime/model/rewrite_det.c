/* rewrite_det.c - determinants by elimination, column by column.
 *
 * In each step the row with the largest first number moves to the top; the determinant is the
 * product of these numbers, with its sign changed for each exchange.
 */
#include "runtime/model/rewrite.h"

#define MAX_SIZE 64 /* of a matrix; each column is a dozen operations */

/* One column: *a, [.., m, m], becomes [.., m - 1, m - 1]. Returns what *det is multiplied by. */
static uint32_t eliminate(struct shape_ctx *c, uint32_t *a, int64_t m)
{
    const struct graph_value v = *rw_v(c, *a);
    const int row = v.rank - 2, col = v.rank - 1;
    const int64_t rows = row;
    const uint32_t zero = rw_number(c, v.dtype, 0), one = rw_number(c, v.dtype, 1);
    const uint32_t first = rw_slice(c, *a, col, 0, 1, 1), top = rw_slice(c, *a, row, 0, 1, 1);
    const uint32_t size = rw1(c, "Abs", first);
    const uint32_t at =
        rw_node(c, "ArgMax", &size, 1,
                (const struct graph_attr[]){RW_INT("axis", row), RW_INT("keepdims", 1)},
                2); /* [.., 1, 1] */
    const uint32_t numbers = rw_reshape(c, rw_iota(c, m), 2, (const int64_t[]){m, 1});
    const uint32_t is_it = rw2(c, "Equal", numbers, at); /* [.., m, 1] */
    const uint32_t best =
        rw_reduce(c, "ReduceSum", rw3(c, "Where", is_it, *a, zero), &rows, 1, true);
    const uint32_t pivot = rw_slice(c, best, col, 0, 1, 1);
    const uint32_t safe =
        rw3(c, "Where", rw2(c, "Equal", pivot, zero), one, pivot); /* of 0 all rows are 0 */
    const uint32_t sign = rw3(c, "Where", rw2(c, "Equal", at, rw_number(c, SH_I64, 0)), one,
                              rw_number(c, v.dtype, -1));
    uint32_t rest = rw_slice(c, rw3(c, "Where", is_it, top, *a), row, 1, m, 1);
    const uint32_t factor = rw2(c, "Div", rw_slice(c, rest, col, 0, 1, 1), safe);

    rest = rw2(c, "Sub", rest, rw2(c, "Mul", factor, best));
    *a = rw_slice(c, rest, col, 1, m, 1);
    return rw2(c, "Mul", sign, pivot);
}

int shape__rewrite_det(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0);
    const int64_t n = x.rank >= 2 ? x.dims[x.rank - 1] : 0;
    uint32_t a = rw_in(c, 0), det = GRAPH_NONE;

    shape__want_float(c, 0);
    if (n < 1 || x.dims[x.rank - 2] != n)
        shape__fail(c, SH_E_INVALID, "needs square matrices");
    if (n > MAX_SIZE)
        shape__fail(c, SH_E_UNSUPPORTED, WHY_DET, MAX_SIZE);
    for (int64_t m = n; m > 1 && c->err->rc == SH_OK; m--) {
        const uint32_t f = eliminate(c, &a, m);

        det = det == GRAPH_NONE ? f : rw2(c, "Mul", det, f);
    }
    det = det == GRAPH_NONE ? a : rw2(c, "Mul", det, a);
    return rw_is(c, 0, rw_reshape(c, det, x.rank - 2, x.dims));
}
