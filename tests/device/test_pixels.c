/* test_pixels.c - pictures of bytes that become floats by a table.
 *
 * Without it a channel could be scaled by the numbers of another, or a picture come to the model
 * transposed, where only the answers would show it. What is looked up must arrive bit by bit.
 */
#include "common/mem.h"
#include "common/preprocess.h"
#include "tests/device/dev_test.h"

/* Element [n][c][i] of a picture whose channels come last or first. */
static int64_t at(bool last, int64_t channels, int64_t plane, int64_t n, int64_t c, int64_t i)
{
    return n * channels * plane + (last ? i * channels + c : c * plane + i);
}

static void pictures(int64_t n, int64_t c, int64_t h, int64_t w, bool x_last, bool y_last,
                     bool is_inner)
{
    const struct t_dims to = y_last ? DIMS(n, h, w, c) : DIMS(n, c, h, w);
    double *want = t_doubles((size_t)(n * c * h * w));
    struct t_graph t;
    uint32_t x, table, y, z;
    struct dev_op *op;

    t_init(&t);
    x = t_add(&t, DEV_ROLE_INPUT, SH_U8, x_last ? DIMS(n, h, w, c) : DIMS(n, c, h, w));
    table = t_add(&t, DEV_ROLE_WEIGHT, SH_F32, DIMS(SH_PREPROCESS_BYTES * c));
    for (int64_t i = 0; i < n * c * h * w; i++)
        ((uint8_t *)t.plain[x])[i] = (uint8_t)(i * 131 + i / 7);
    for (int64_t i = 0; i < SH_PREPROCESS_BYTES * c; i++)
        t_f(&t, table)[i] = t_round((double)(i % 97 - 40) / 16 + (double)(i / SH_PREPROCESS_BYTES));
    z = t_add(&t, DEV_ROLE_OUTPUT, SH_F32, to);
    y = is_inner ? t_act(&t, to) : z;
    op = t_op(&t, DEV_OP_PIXELS, IN(x, table), OUT(y));
    op->u.pixels.x_last = x_last;
    op->u.pixels.y_last = y_last;
    if (is_inner) /* the layout of what reads it */
        t_op(&t, DEV_OP_COPY, IN(t_blocked(&t, y)), OUT(z));
    for (int64_t k = 0; k < n * c * h * w; k++) {
        const int64_t i = k % (h * w), ch = k / (h * w) % c, s = k / (h * w * c);
        const uint8_t byte = ((uint8_t *)t.plain[x])[at(x_last, c, h * w, s, ch, i)];

        want[at(y_last, c, h * w, s, ch, i)] =
            (double)t_f(&t, table)[ch * SH_PREPROCESS_BYTES + byte];
    }
    t_run(&t);
    t_close(&t, z, want, T_EXACT);
    t_fini(&t);
    free(want);
}

static void bytes_come_in_either_layout(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        pictures(2, 3, 5, 7, k & 1, k & 2, false);
        pictures(1, 1, 33, 9, k & 1, k & 2, false);
        pictures(3, 16, 17, 31, k & 1, k & 2, false);
        pictures(2, 4, 64, 65, k & 1, k & 2, false);
    }
}

static void a_convolution_reads_them_in_its_layout(void **state)
{
    (void)state;
    pictures(2, 3, 19, 23, true, false, true);
    pictures(2, 3, 19, 23, false, false, true);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct sh_err err = {0};
    struct t_graph t;
    struct dev_op *op;
    (void)state;

    t_init(&t);
    op = t_op(&t, DEV_OP_PIXELS,
              IN(t_add(&t, DEV_ROLE_INPUT, SH_U8, DIMS(2, 5, 7, 3)),
                 t_add(&t, DEV_ROLE_WEIGHT, SH_F32, DIMS(SH_PREPROCESS_BYTES * 2))),
              OUT(t_add(&t, DEV_ROLE_OUTPUT, SH_F32, DIMS(2, 3, 5, 7))));
    op->u.pixels.x_last = true;
    assert_int_equal(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG);
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_in_either_layout),
        cmocka_unit_test(a_convolution_reads_them_in_its_layout),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
