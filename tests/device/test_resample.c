/* test_resample.c - sums of a few elements along one axis or two.
 *
 * Without it a resized image would be shifted by a pixel, or mirrored, or wrong in one of the
 * layouts only. The reference is the definition, in double precision.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

struct table {
    int64_t m, taps, n; /* m results of taps elements of n */
    int32_t *from;
    float *weight;
    uint32_t tensors[2];
};

/* Any elements, in any order, some twice. */
static void make_table(struct t_graph *t, struct table *a)
{
    const int64_t n = a->m * a->taps;

    a->tensors[0] = t_add(t, DEV_ROLE_WEIGHT, SH_I32, DIMS(n));
    a->tensors[1] = t_weight(t, DIMS(n));
    a->from = t->plain[a->tensors[0]];
    a->weight = t_f(t, a->tensors[1]);
    for (int64_t i = 0; i < n; i++)
        a->from[i] = (int32_t)((i * 7 + i / 3) % a->n);
}

/* x as [outer, n0, n1, inner]; b NULL: one axis. */
static void reference(const float *x, int64_t outer, int64_t inner, const struct table *a,
                      const struct table *b, double *want)
{
    const int64_t n1 = b ? b->n : 1, m1 = b ? b->m : 1, taps = b ? b->taps : 1;

    for (int64_t at = 0; at < outer * a->m * m1 * inner; at++) {
        const int64_t q = at / inner % m1, p = at / inner / m1 % a->m, o = at / inner / m1 / a->m;

        want[at] = 0;
        for (int64_t s = p * a->taps; s < (p + 1) * a->taps; s++)
            for (int64_t k = 0; k < taps; k++) {
                const int64_t column = b ? b->from[q * taps + k] : 0;
                const double w = b ? (double)b->weight[q * taps + k] : 1;

                want[at] += (double)a->weight[s] * w *
                            (double)x[((o * a->n + a->from[s]) * n1 + column) * inner + at % inner];
            }
    }
}

static void one(struct t_dims in, int64_t axis, struct table a, struct table b, bool blocked)
{
    const bool two = b.m > 0;
    struct t_dims out = in;
    int64_t outer = 1, inner = 1, n;
    uint32_t x, y, z;
    struct t_graph t;
    double *want;

    t_init(&t);
    x = t_in(&t, in);
    for (uint32_t i = 0; i < in.rank; i++) {
        outer *= i < axis ? in.d[i] : 1;
        inner *= i > axis + two ? in.d[i] : 1;
    }
    a.n = in.d[axis];
    out.d[axis] = a.m;
    make_table(&t, &a);
    if (two) {
        b.n = in.d[axis + 1];
        out.d[axis + 1] = b.m;
        make_table(&t, &b);
    }
    n = outer * a.m * (two ? b.m : 1) * inner;
    want = t_doubles((size_t)n);
    z = t_act(&t, out);
    y = t_out(&t, out);
    if (two)
        t_op(&t, DEV_OP_RESAMPLE,
             IN(blocked ? t_blocked(&t, x) : x, a.tensors[0], a.tensors[1], b.tensors[0],
                b.tensors[1]),
             OUT(z))
            ->u.axis.axis = axis;
    else
        t_op(&t, DEV_OP_RESAMPLE, IN(blocked ? t_blocked(&t, x) : x, a.tensors[0], a.tensors[1]),
             OUT(z))
            ->u.axis.axis = axis;
    t_op(&t, DEV_OP_COPY, IN(z), OUT(y));
    reference(t_f(&t, x), outer, inner, &a, two ? &b : NULL, want);
    t_run(&t);
    t_close(&t, y, want, 1e-12);
    t_fini(&t);
    free(want);
}

static void each_result_is_the_sum_that_its_tables_say(void **state)
{
    const struct table none = {0};

    (void)state;
    for (int blocked = 0; blocked < 2; blocked++) {
        one(DIMS(2, 20, 5, 7), 2, (struct table){10, 2}, (struct table){13, 3}, blocked);
        one(DIMS(2, 3, 6, 5), 2, (struct table){4, 1}, (struct table){9, 1}, blocked);
        one(DIMS(2, 20, 5, 7), 2, (struct table){3, 4}, none, blocked);
        one(DIMS(2, 20, 5, 7), 3, (struct table){17, 2}, none, blocked);
        one(DIMS(2, 20, 5, 7), 1, (struct table){9, 2}, (struct table){6, 2}, blocked);
    }
    one(DIMS(3, 33), 1, (struct table){70, 5}, none, false);
    one(DIMS(2, 3, 4, 5, 6), 3, (struct table){8, 2}, (struct table){3, 4}, false);
    one(DIMS(2, 3, 4, 5, 6), 2, (struct table){8, 2}, none, false);
}

static void a_table_that_points_outside_is_refused(void **state)
{
    struct sh_err err = {0};
    struct t_graph t;
    struct table a = {.m = 4, .taps = 2, .n = 3};
    uint32_t x, y;

    (void)state;
    if (strcmp(t_kind(), "cpu") != 0)
        skip(); /* a device trusts the compiler's tables */
    t_init(&t);
    x = t_in(&t, DIMS(2, 3));
    make_table(&t, &a);
    a.from[5] = 3;
    y = t_out(&t, DIMS(2, 4));
    t_op(&t, DEV_OP_RESAMPLE, IN(x, a.tensors[0], a.tensors[1]), OUT(y))->u.axis.axis = 1;
    assert_fails(t_run_fails(&t, &err), SH_E_INVALID, &err, "outside");
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_result_is_the_sum_that_its_tables_say),
        cmocka_unit_test(a_table_that_points_outside_is_refused),
    };
    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
