/* test_index.c - sums along an axis, the best elements, rows of indices, writes to rows, reductions
 * of integers.
 *
 * Without it a wrong stride or order shows only in the model that happens to use it, and an index
 * from a request could reach memory that is not its own. References are direct loops.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>

static void one_cumsum(struct t_dims dims, uint32_t axis, bool exclusive, bool reverse)
{
    int64_t n = dims.d[axis], inner = 1, total = 1;
    struct t_graph t;
    uint32_t x, y, ix, iy;
    struct dev_op *op;
    double *want;

    for (uint32_t i = 0; i < dims.rank; i++) {
        total *= dims.d[i];
        inner *= i > axis ? dims.d[i] : 1;
    }
    want = t_doubles((size_t)total);
    t_init(&t);
    x = t_in(&t, dims);
    y = t_out(&t, dims);
    ix = t_index(&t, dims, 1000);
    iy = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, dims);
    for (int k = 0; k < 2; k++) {
        op = k ? t_op(&t, DEV_OP_CUMSUM, IN(ix), OUT(iy)) : t_op(&t, DEV_OP_CUMSUM, IN(x), OUT(y));
        op->u.scan.axis = axis;
        op->u.scan.exclusive = exclusive;
        op->u.scan.reverse = reverse;
    }
    for (int64_t line = 0; line < total / n; line++) {
        double sum = 0;

        for (int64_t i = 0; i < n; i++) {
            int64_t e = (line / inner * n + (reverse ? n - 1 - i : i)) * inner + line % inner;

            want[e] = exclusive ? sum : sum + (double)t_f(&t, x)[e];
            sum += (double)t_f(&t, x)[e];
        }
    }
    t_run(&t);
    t_close(&t, y, want, 1e-11);
    for (int64_t line = 0; line < total / n; line++) {
        int64_t sum = 0;

        for (int64_t i = 0; i < n; i++) {
            int64_t e = (line / inner * n + (reverse ? n - 1 - i : i)) * inner + line % inner;

            assert_int_equal(((int64_t *)t.plain[iy])[e],
                             exclusive ? sum : sum + ((int64_t *)t.plain[ix])[e]);
            sum += ((int64_t *)t.plain[ix])[e];
        }
    }
    t_fini(&t);
    free(want);
}

static void sums_so_far_go_along_an_axis_in_both_directions(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        one_cumsum(DIMS(5, 37), 1, k & 1, k & 2);
        one_cumsum(DIMS(3, 100, 7), 1, k & 1, k & 2);
        one_cumsum(DIMS(64, 3), 0, k & 1, k & 2);
    }
}

/* ------------------------------------------------------------------ the best */

static bool comes_first(const float *x, int64_t i, int64_t j, bool largest, bool last)
{
    if (isnan(x[i]) != isnan(x[j]))
        return (isnan(x[i]) != 0) == largest;
    if (x[i] != x[j] && !isnan(x[i]))
        return (x[i] > x[j]) == largest;
    return last ? i > j : i < j;
}

static void one_topk(int64_t rows, int64_t n, int64_t k, bool largest, bool last)
{
    struct t_graph t;
    struct dev_op *op;
    uint32_t x, y, at;

    t_init(&t);
    x = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(rows, n));
    y = t_add(&t, DEV_ROLE_OUTPUT, SH_F32, DIMS(rows, k));
    at = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(rows, k));
    for (int64_t i = 0; i < rows * n; i++)
        t_f(&t, x)[i] = (float)((i * 7919) % 13 - 6); /* many are equal */
    t_f(&t, x)[n / 2] = NAN;
    op = t_op(&t, DEV_OP_TOPK, IN(x), OUT(y, at));
    op->u.topk.axis = 1;
    op->u.topk.largest = largest;
    op->u.topk.last = last;
    t_run(&t);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            int64_t place = 0;

            for (int64_t j = 0; j < n; j++)
                place += comes_first(t_f(&t, x) + r * n, j, i, largest, last);
            if (place >= k)
                continue;
            assert_int_equal(((int64_t *)t.plain[at])[r * k + place], i);
            assert_memory_equal(&t_f(&t, y)[r * k + place], &t_f(&t, x)[r * n + i], sizeof(float));
        }
    t_fini(&t);
}

static void the_best_come_in_order_and_ties_by_place(void **state)
{
    (void)state;
    for (int l = 0; l < 4; l++) {
        one_topk(5, 10, 1, l & 1, l & 2);
        one_topk(3, 1000, 1, l & 1, l & 2);
        one_topk(3, 33, 7, l & 1, l & 2);
        one_topk(2, 300, 300, l & 1, l & 2);
    }
}

static void the_best_of_integers_along_an_inner_axis(void **state)
{
    const int64_t x[] = {5, INT64_MAX - 1, 3, INT64_MAX - 2, INT64_MAX, 4};
    const int64_t want[] = {INT64_MAX, INT64_MAX - 1}, where[] = {2, 0};
    struct t_graph t;
    struct dev_op *op;
    uint32_t in, y, at;

    (void)state;
    t_init(&t);
    in = t_add(&t, DEV_ROLE_INPUT, SH_I64, DIMS(1, 3, 2));
    y = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(1, 1, 2));
    at = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(1, 1, 2));
    memcpy(t.plain[in], x, sizeof(x));
    op = t_op(&t, DEV_OP_TOPK, IN(in), OUT(y, at));
    op->u.topk.axis = 1;
    op->u.topk.largest = true;
    t_run(&t);
    assert_memory_equal(t.plain[y], want, sizeof(want));
    assert_memory_equal(t.plain[at], where, sizeof(where));
    t_fini(&t);
}

/* ------------------------------------------------------------------ rows */

/* rows = 12 batch + 4 (i0 of 3) + (i1 of 4): pairs that name an element of [2, 3, 4]. */
static uint32_t pairs(struct t_graph *t, uint32_t *ix)
{
    struct dev_op *op;
    uint32_t rows;

    *ix = t_index(t, DIMS(2, 5, 2), 3);
    rows = t_add(t, DEV_ROLE_ACT, SH_I64, DIMS(2, 5));
    op = t_op(t, DEV_OP_LOCATE, IN(*ix), OUT(rows));
    op->u.locate.depth = 2;
    op->u.locate.base[0] = 12;
    op->u.locate.size[0] = 3;
    op->u.locate.stride[0] = 4;
    op->u.locate.size[1] = 4;
    op->u.locate.stride[1] = 1;
    return rows;
}

static int64_t row_of(const int64_t *ix, int64_t i)
{
    const int64_t a = ix[2 * i], b = ix[2 * i + 1];

    return i / 5 * 12 + (a < 0 ? a + 3 : a) * 4 + (b < 0 ? b + 4 : b);
}

static void scatter_combines_in_order(void **state)
{
    (void)state;
    for (int kind = 0; kind < DEV_N_SCATTERS; kind++) {
        double *want = t_doubles(24 * 10), *got = t_doubles(10 * 10);
        struct t_graph t;
        uint32_t data, ix, rows, u, y, z;

        t_init(&t);
        data = t_in(&t, DIMS(24, 10));
        u = t_in(&t, DIMS(2, 5, 10));
        y = t_act(&t, DIMS(24, 10));
        z = t_out(&t, DIMS(2, 5, 10));
        rows = pairs(&t, &ix);
        ((int64_t *)t.plain[ix])[0] = -1;
        ((int64_t *)t.plain[ix])[3] = -4;
        memcpy((int64_t *)t.plain[ix] + 8, (int64_t *)t.plain[ix] + 4, 16); /* a row twice */
        t_op(&t, DEV_OP_SCATTER, IN(data, rows, u), OUT(y))->u.scatter.kind =
            (enum dev_scatter)kind;
        t_op(&t, DEV_OP_GATHER, IN(y, rows), OUT(z));
        for (int i = 0; i < 240; i++)
            want[i] = (double)t_f(&t, data)[i];
        for (int i = 0; i < 100; i++) {
            double *to = &want[row_of(t.plain[ix], i / 10) * 10 + i % 10];
            const double v = (double)t_f(&t, u)[i];

            *to = kind == DEV_SCATTER_ADD   ? *to + v
                  : kind == DEV_SCATTER_MUL ? *to * v
                  : kind == DEV_SCATTER_MAX ? fmax(*to, v)
                  : kind == DEV_SCATTER_MIN ? fmin(*to, v)
                                            : v;
        }
        for (int i = 0; i < 100; i++)
            got[i] = want[row_of(t.plain[ix], i / 10) * 10 + i % 10];
        t_run(&t);
        t_close(&t, z, got, 1e-13);
        t_fini(&t);
        free(want);
        free(got);
    }
}

static void an_index_outside_its_axis_is_an_error_of_the_run(void **state)
{
    struct sh_err err = {0};
    struct t_graph t;
    uint32_t data, ix, rows, y;

    (void)state;
    t_init(&t);
    data = t_in(&t, DIMS(24, 4));
    y = t_out(&t, DIMS(2, 5, 4));
    rows = pairs(&t, &ix);
    t_op(&t, DEV_OP_GATHER, IN(data, rows), OUT(y));
    ((int64_t *)t.plain[ix])[6] = 3; /* would be a row of the table all the same */
    assert_fails(t_run_fails(&t, &err), SH_E_INVALID, &err, "index 3");
    t_fini(&t);
}

/* ------------------------------------------------------------------ reductions */

static void integers_reduce_exactly(void **state)
{
    static const enum dev_red KINDS[] = {DEV_RED_SUM, DEV_RED_MEAN, DEV_RED_MAX, DEV_RED_MIN,
                                         DEV_RED_PROD};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(KINDS); k++) {
        struct t_graph t;
        struct dev_op *op;
        uint32_t x, y;

        t_init(&t);
        x = t_add(&t, DEV_ROLE_INPUT, SH_I64, DIMS(3, 70, 5));
        y = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(3, 5));
        for (int i = 0; i < 1050; i++)
            ((int64_t *)t.plain[x])[i] = (i * 37 % 11 - 5) * ((int64_t)1 << 40) + 1;
        op = t_op(&t, DEV_OP_REDUCE, IN(x), OUT(y));
        op->u.reduce.kind = KINDS[k];
        op->u.reduce.axes = 2;
        t_run(&t);
        for (int i = 0; i < 15; i++) {
            uint64_t sum = 0, prod = 1;
            int64_t max = INT64_MIN, min = INT64_MAX;

            for (int j = 0; j < 70; j++) {
                const int64_t v = ((int64_t *)t.plain[x])[i / 5 * 350 + j * 5 + i % 5];

                sum += (uint64_t)v;
                prod *= (uint64_t)v;
                max = SH_MAX(max, v);
                min = SH_MIN(min, v);
            }
            assert_int_equal(((int64_t *)t.plain[y])[i], KINDS[k] == DEV_RED_SUM ? (int64_t)sum
                                                         : KINDS[k] == DEV_RED_MEAN
                                                             ? (int64_t)sum / 70
                                                         : KINDS[k] == DEV_RED_MAX ? max
                                                         : KINDS[k] == DEV_RED_MIN ? min
                                                                                   : (int64_t)prod);
        }
        t_fini(&t);
    }
}

static void products_of_floats(void **state)
{
    double *want = t_doubles(6 * 4);

    (void)state;
    for (uint32_t axis = 0; axis < 2; axis++) {
        struct t_graph t;
        struct dev_op *op;
        uint32_t x, y;

        t_init(&t);
        x = t_in(&t, axis ? DIMS(24, 9) : DIMS(9, 24));
        t_map(&t, x, 0.5f, 1);
        y = t_out(&t, DIMS(24));
        op = t_op(&t, DEV_OP_REDUCE, IN(x), OUT(y));
        op->u.reduce.kind = DEV_RED_PROD;
        op->u.reduce.axes = 1u << axis;
        for (int i = 0; i < 24; i++) {
            want[i] = 1;
            for (int j = 0; j < 9; j++)
                want[i] *= (double)t_f(&t, x)[axis ? i * 9 + j : j * 24 + i];
        }
        t_run(&t);
        t_close(&t, y, want, 1e-11);
        t_fini(&t);
    }
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_so_far_go_along_an_axis_in_both_directions),
        cmocka_unit_test(the_best_come_in_order_and_ties_by_place),
        cmocka_unit_test(the_best_of_integers_along_an_inner_axis),
        cmocka_unit_test(scatter_combines_in_order),
        cmocka_unit_test(an_index_outside_its_axis_is_an_error_of_the_run),
        cmocka_unit_test(integers_reduce_exactly),
        cmocka_unit_test(products_of_floats),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
