/* test_attn.c - Without it a wrong stride, mask or tail of a tile in the attention shows only as a
 * model that answers a little worse. The reference is the formula in double precision.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>

/* Place of element e of `full` in a mask that broadcasts to it. */
static int64_t mask_at(const struct dev_tensor *full, const struct dev_tensor *mask, int64_t e)
{
    int64_t at = 0, step = 1;

    for (uint32_t i = full->rank, k = mask->rank; k > 0;) {
        const int64_t c = e % full->dims[--i];

        e /= full->dims[i];
        k--;
        at += mask->dims[k] == 1 ? 0 : c * step;
        step *= mask->dims[k];
    }
    return at;
}

struct attn_case {
    int64_t batch, heads, q_rows, k_rows, width;
    bool packed;
    struct t_dims mask; /* rank 0: none */
};

static const struct attn_case ATTNS[] = {
    {2, 3, 5, 7, 4, false, {.rank = 0}},
    {2, 2, 9, 6, 5, false, {.rank = 4, .d = {2, 1, 1, 6}}},
    {1, 2, 16, 16, 32, true, {.rank = 4, .d = {1, 1, 16, 16}}},
    {3, 2, 130, 130, 64, true, {.rank = 4, .d = {3, 1, 1, 130}}},
    {2, 2, 65, 70, 64, false, {.rank = 3, .d = {2, 65, 70}}},
    {2, 3, 33, 33, 16, true, {.rank = 1, .d = {33}}},
    {1, 2, 40, 100, 80, false, {.rank = 4, .d = {1, 2, 40, 1}}},
    {1, 1, 70, 200, 128, false, {.rank = 2, .d = {70, 200}}},
    {1, 2, 3, 300, 136, false, {.rank = 0}},
    {1, 1, 1, 1, 64, false, {.rank = 0}},
};

/* Element (b, s, h, d) of operand i. */
static double attn_at(struct t_graph *t, const struct attn_case *c, uint32_t x, int i, int64_t b,
                      int64_t s, int64_t h, int64_t d)
{
    const int64_t rows = i == 0 ? c->q_rows : c->k_rows;
    const int64_t at =
        c->packed ? ((b * rows + s) * 3 + 2 - i) * c->heads + h : (b * rows + s) * c->heads + h;

    return (double)t_f(t, x)[at * c->width + d];
}

static void attn_row(struct t_graph *t, const struct attn_case *c, const uint32_t in[4], int64_t b,
                     int64_t s, int64_t h, float scale, double *y)
{
    const struct dev_tensor full = {.rank = 4, .dims = {c->batch, c->heads, c->q_rows, c->k_rows}};
    double *p = t_doubles((size_t)c->k_rows), max = -INFINITY, sum = 0;

    for (int64_t j = 0; j < c->k_rows; j++) {
        const int64_t e = ((b * c->heads + h) * c->q_rows + s) * c->k_rows + j;

        for (int64_t d = 0; d < c->width; d++)
            p[j] += attn_at(t, c, in[0], 0, b, s, h, d) * attn_at(t, c, in[1], 1, b, j, h, d);
        p[j] *= (double)scale;
        if (c->mask.rank)
            p[j] += (double)t_f(t, in[3])[mask_at(&full, &t->tensors[in[3]], e)];
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < c->k_rows; j++)
        sum += p[j] = exp(p[j] - max);
    for (int64_t d = 0; d < c->width; d++)
        for (int64_t j = 0; j < c->k_rows; j++)
            y[d] += p[j] / sum * attn_at(t, c, in[2], 2, b, j, h, d);
    free(p);
}

/* The operands go through a COPY, so that they are activations, in whatever form the device likes;
 * packed: one tensor [B,S,3,H,D] with the values first. */
static void one_attention(const struct attn_case *c)
{
    const float scale = 1.0f / sqrtf((float)c->width);
    const int64_t rows = c->batch * c->q_rows * c->heads;
    double *want = t_doubles((size_t)(rows * c->width));
    uint32_t in[4], act[4] = {0}, y;
    struct dev_op *op;
    struct t_graph t;

    t_init(&t);
    for (uint32_t i = 0; i < 3; i++) {
        const struct t_dims d = c->packed
                                    ? DIMS(c->batch, c->q_rows, 3, c->heads, c->width)
                                    : DIMS(c->batch, i ? c->k_rows : c->q_rows, c->heads, c->width);

        in[i] = c->packed && i ? in[0] : t_in(&t, d);
        act[i] = c->packed && i ? act[0] : t_act(&t, d);
        if (act[i] != act[0] || i == 0) {
            t_map(&t, in[i], 2, 0);
            t_op(&t, DEV_OP_COPY, IN(in[i]), OUT(act[i]));
        }
    }
    in[3] = c->mask.rank ? t_in(&t, c->mask) : DEV_NONE;
    if (in[3] != DEV_NONE && c->mask.d[c->mask.rank - 1] > 1) /* every third key is masked out */
        for (int64_t i = 0; i < dev_tensor_elements(&t.tensors[in[3]]); i++)
            t_f(&t, in[3])[i] = i % 3 == 2 ? -10000.0f : t_f(&t, in[3])[i] * 2;
    y = t_out(&t, DIMS(c->batch, c->q_rows, c->heads, c->width));
    op = c->mask.rank ? t_op(&t, DEV_OP_ATTENTION, IN(act[0], act[1], act[2], in[3]), OUT(y))
                      : t_op(&t, DEV_OP_ATTENTION, IN(act[0], act[1], act[2]), OUT(y));
    op->u.attn.scale = scale;
    for (uint32_t i = 0; i < 3 && c->packed; i++)
        op->u.attn.plane[i] = 2 - i;
    for (int64_t r = 0; r < rows; r++)
        attn_row(&t, c, in, r / c->heads / c->q_rows, r / c->heads % c->q_rows, r % c->heads, scale,
                 want + r * c->width);
    t_run(&t);
    t_close(&t, y, want, 1e-11);
    t_fini(&t);
    free(want);
}

static void attention_matches_the_formula(void **state)
{
    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ATTNS); i++)
        one_attention(&ATTNS[i]);
}

static void attention_refuses_shapes_that_do_not_fit(void **state)
{
    struct sh_err err = {0};
    struct t_graph t;
    uint32_t q, k, v, y;

    (void)state;
    t_init(&t);
    q = t_in(&t, DIMS(2, 5, 3, 8));
    k = t_in(&t, DIMS(2, 7, 3, 8));
    v = t_in(&t, DIMS(2, 6, 3, 8));
    y = t_out(&t, DIMS(2, 5, 3, 8));
    t_op(&t, DEV_OP_ATTENTION, IN(q, k, v), OUT(y))->u.attn.scale = 1;
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, "ATTENTION");
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_the_formula),
        cmocka_unit_test(attention_refuses_shapes_that_do_not_fit),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
