/* test_shape.c - what moves elements, and reductions.
 *
 * Without it a wrong stride, padding value or order of axes shows only in the model that happens to
 * use it. What only moves must arrive bit by bit, at every precision.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>

/* ------------------------------------------------------------------ moving elements */

static void slice_takes_steps_of_any_sign(void **state)
{
    struct t_graph t;
    uint32_t x, xb, y, z;
    double *want = t_doubles(2 * 9 * 3 * 4);
    struct dev_op *op;

    (void)state;
    t_init(&t);
    x = t_in(&t, DIMS(2, 20, 6, 5));
    xb = t_blocked(&t, x);
    y = t_act(&t, DIMS(2, 9, 3, 4));
    z = t_add(&t, DEV_ROLE_OUTPUT, SH_F32, DIMS(2, 9, 3, 4));
    op = t_op(&t, DEV_OP_SLICE, IN(xb), OUT(y));
    for (int i = 0; i < 4; i++) {
        op->u.slice.start[i] = (const int64_t[]){0, 18, 5, 1}[i];
        op->u.slice.step[i] = (const int64_t[]){1, -2, -2, 1}[i];
    }
    t_op(&t, DEV_OP_COPY, IN(y), OUT(z));
    for (int i = 0; i < 216; i++)
        want[i] = t_f(
            &t, x)[((i / 108 * 20 + 18 - i / 12 % 9 * 2) * 6 + 5 - i / 4 % 3 * 2) * 5 + 1 + i % 4];
    t_run(&t);
    t_close(&t, z, want, T_EXACT);
    t_fini(&t);
    free(want);
}

static void pad_fills_and_cuts(void **state)
{
    struct t_graph t;
    uint32_t x, y;
    double *want = t_doubles(3 * 5 * 4);
    struct dev_op *op;

    (void)state;
    t_init(&t);
    x = t_in(&t, DIMS(2, 3, 6));
    y = t_out(&t, DIMS(3, 5, 4));
    op = t_op(&t, DEV_OP_PAD, IN(x), OUT(y));
    op->u.pad.before[0] = 1;
    op->u.pad.before[1] = 1;
    op->u.pad.before[2] = -1; /* cuts one in front and one behind */
    op->u.pad.value = 2.5f;
    for (int i = 0; i < 60; i++) {
        int a = i / 20 - 1, b = i / 4 % 5 - 1, c = i % 4 + 1;

        want[i] = a >= 0 && a < 2 && b >= 0 && b < 3 ? t_f(&t, x)[(a * 3 + b) * 6 + c] : 2.5;
    }
    t_run(&t);
    t_close(&t, y, want, T_EXACT);
    t_fini(&t);
    free(want);
}

static void transpose_permutes_every_type(void **state)
{
    const enum sh_dtype types[] = {SH_F32, SH_I64, SH_U8, SH_I32};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(types); k++) {
        size_t size = sh_dtype_bytes(types[k]);
        struct t_graph t;
        uint32_t x, y;
        struct dev_op *op;

        t_init(&t);
        x = t_add(&t, DEV_ROLE_INPUT, types[k], DIMS(3, 5, 17, 2));
        y = t_add(&t, DEV_ROLE_OUTPUT, types[k], DIMS(17, 3, 2, 5));
        for (size_t i = 0; i < 510 * size; i++)
            ((unsigned char *)t.plain[x])[i] = (unsigned char)(i % size == size - 1 ? 0 : i * 7);
        op = t_op(&t, DEV_OP_TRANSPOSE, IN(x), OUT(y));
        memcpy(op->u.perm.perm, (const uint32_t[]){2, 0, 3, 1}, 4 * sizeof(uint32_t));
        t_run(&t);
        for (size_t i = 0; i < 510; i++) {
            size_t c = i / 30, a = i / 10 % 3, d = i / 5 % 2, b = i % 5;
            size_t from = ((a * 5 + b) * 17 + c) * 2 + d;

            assert_memory_equal((char *)t.plain[y] + i * size, (char *)t.plain[x] + from * size,
                                size);
        }
        t_fini(&t);
    }
}

/* Tiles with ragged edges, and [B,S,H,D] to [B,H,S,D] and back. */
static void transpose_permutes_large_tensors(void **state)
{
    static const struct {
        struct t_dims dims;
        uint32_t perm[4];
    } CASES[] = {
        {{.rank = 2, .d = {70, 90}}, {1, 0}},
        {{.rank = 4, .d = {2, 70, 3, 90}}, {2, 3, 0, 1}},
        {{.rank = 3, .d = {3, 40, 33}}, {0, 2, 1}},
        {{.rank = 4, .d = {2, 9, 4, 32}}, {0, 2, 1, 3}},
        {{.rank = 4, .d = {2, 4, 9, 12}}, {0, 2, 1, 3}},
        {{.rank = 4, .d = {2, 4, 64, 32}}, {0, 1, 3, 2}},
    };

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(CASES); k++) {
        const struct t_dims in = CASES[k].dims;
        struct t_dims out = {.rank = in.rank};
        int64_t own[4] = {0}, step = 1;
        uint32_t x, xb, y, z;
        struct t_graph t;
        double *want;

        for (uint32_t i = in.rank; i-- > 0; step *= in.d[i])
            own[i] = step;
        for (uint32_t i = 0; i < in.rank; i++)
            out.d[i] = in.d[CASES[k].perm[i]];
        want = t_doubles((size_t)step);
        t_init(&t);
        x = t_in(&t, in);
        xb = t_act(&t, in);
        y = t_act(&t, out);
        z = t_out(&t, out);
        t_op(&t, DEV_OP_COPY, IN(x), OUT(xb));
        memcpy(t_op(&t, DEV_OP_TRANSPOSE, IN(xb), OUT(y))->u.perm.perm, CASES[k].perm,
               sizeof(CASES[k].perm));
        t_op(&t, DEV_OP_COPY, IN(y), OUT(z));
        for (int64_t i = 0; i < step; i++) {
            int64_t e = i, at = 0;

            for (uint32_t a = out.rank; a-- > 0; e /= out.d[a])
                at += e % out.d[a] * own[CASES[k].perm[a]];
            want[i] = (double)t_f(&t, x)[at];
        }
        t_run(&t);
        t_close(&t, z, want, T_EXACT);
        t_fini(&t);
        free(want);
    }
}

/* Rows of the result keep the row-major order of the logical shapes, whatever lies below. */
static void copy_reshapes_images(void **state)
{
    double *want = t_doubles(2 * 20 * 30);
    uint32_t x, a, b, flat, z;
    struct t_graph t;

    (void)state;
    t_init(&t);
    x = t_in(&t, DIMS(2, 20, 6, 5));
    a = t_act(&t, DIMS(2, 10, 4, 15)); /* image to image */
    flat = t_act(&t, DIMS(2, 600));    /* to plain */
    b = t_act(&t, DIMS(4, 30, 2, 5));  /* from plain */
    z = t_out(&t, DIMS(1200));
    t_op(&t, DEV_OP_COPY, IN(t_blocked(&t, x)), OUT(a));
    t_op(&t, DEV_OP_COPY, IN(a), OUT(flat));
    t_op(&t, DEV_OP_COPY, IN(flat), OUT(b));
    t_op(&t, DEV_OP_COPY, IN(b), OUT(z));
    for (int i = 0; i < 1200; i++)
        want[i] = (double)t_f(&t, x)[i];
    t_run(&t);
    t_close(&t, z, want, T_EXACT);
    t_fini(&t);
    free(want);
}

/* Channels turned to the end and back, as between a convolution and a matrix product. A device that
 * takes both for other names of the same bytes must keep them until the last is read. */
static void channels_turn_to_the_end_and_back(void **state)
{
    static const uint32_t LAST[] = {0, 2, 3, 1}, FIRST[] = {0, 3, 1, 2};
    double *want = t_doubles(2 * 20 * 30);
    uint32_t x, before, last, positive, first, after, y;
    struct t_graph t;

    (void)state;
    t_init(&t);
    x = t_in(&t, DIMS(2, 20, 6, 5));
    before = t_blocked(&t, x);
    last = t_act(&t, DIMS(2, 6, 5, 20));
    positive = t_act(&t, DIMS(2, 6, 5, 20));
    first = t_act(&t, DIMS(2, 20, 6, 5));
    memcpy(t_op(&t, DEV_OP_TRANSPOSE, IN(before), OUT(last))->u.perm.perm, LAST, sizeof(LAST));
    t_op(&t, DEV_OP_ACT, IN(last), OUT(positive))->act = DEV_ACT_RELU;
    memcpy(t_op(&t, DEV_OP_TRANSPOSE, IN(positive), OUT(first))->u.perm.perm, FIRST, sizeof(FIRST));
    after = t_blocked(&t, first);
    y = t_out(&t, DIMS(2, 20, 6, 5));
    t_op(&t, DEV_OP_BINARY, IN(after, before), OUT(y))->u.binary.kind = DEV_BIN_MAX;
    for (int i = 0; i < 1200; i++)
        want[i] = SH_MAX((double)t_f(&t, x)[i], 0);
    t_run(&t);
    t_close(&t, y, want, T_EXACT);
    t_fini(&t);
    free(want);
}

static void one_concat(int64_t c1, int64_t c2, bool blocked, int64_t axis)
{
    struct t_graph t;
    uint32_t x1, x2, y;
    int64_t n = 2 * (c1 + c2) * 12;
    double *want = t_doubles((size_t)n);

    t_init(&t);
    x1 = t_in(&t, axis == 1 ? DIMS(2, c1, 3, 4) : DIMS(2, c1, 4, 3));
    x2 = t_in(&t, axis == 1 ? DIMS(2, c2, 3, 4) : DIMS(2, c1, 4, 3));
    y = t_out(&t, axis == 1 ? DIMS(2, c1 + c2, 3, 4) : DIMS(2, c1, 4, 6));
    if (blocked)
        t_op(&t, DEV_OP_CONCAT, IN(t_blocked(&t, x1), t_blocked(&t, x2)), OUT(y))->u.axis.axis =
            axis;
    else
        t_op(&t, DEV_OP_CONCAT, IN(x1, x2), OUT(y))->u.axis.axis = axis;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = axis == 1 ? (c1 + c2) * 12 : 6, part = axis == 1 ? c1 * 12 : 3;
        int64_t at = i % row, r = i / row;

        want[i] =
            at < part ? t_f(&t, x1)[r * part + at] : t_f(&t, x2)[r * (row - part) + at - part];
    }
    t_run(&t);
    t_close(&t, y, want, T_EXACT);
    t_fini(&t);
    free(want);
}

static void concat_joins_plain_and_blocked(void **state)
{
    (void)state;
    one_concat(16, 32, true, 1);
    one_concat(20, 12, true, 1);
    one_concat(24, 8, true, 1);
    one_concat(5, 3, false, 1);
    one_concat(16, 16, true, 3);
}

static void expand_repeats(void **state)
{
    struct t_graph t;
    uint32_t x, y;
    double *want = t_doubles(2 * 3 * 4 * 5);

    (void)state;
    t_init(&t);
    x = t_in(&t, DIMS(3, 1, 5));
    y = t_out(&t, DIMS(2, 3, 4, 5));
    t_op(&t, DEV_OP_EXPAND, IN(x), OUT(y));
    for (int i = 0; i < 120; i++)
        want[i] = t_f(&t, x)[i / 20 % 3 * 5 + i % 5];
    t_run(&t);
    t_close(&t, y, want, T_EXACT);
    t_fini(&t);
    free(want);
}

static void copy_converts_between_types(void **state)
{
    const float in[] = {1.75f, -2.5f, 3e20f, 0, NAN};
    const int64_t as_int[] = {1, -2, 9223372036854774784, 0, 0};
    const uint8_t as_bool[] = {1, 1, 1, 0, 1};
    struct t_graph t;
    uint32_t f, i, b, back;

    (void)state;
    t_init(&t);
    f = t_in(&t, DIMS(5));
    memcpy(t.plain[f], in, sizeof(in));
    i = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(5, 1));
    b = t_add(&t, DEV_ROLE_OUTPUT, SH_BOOL, DIMS(5));
    back = t_out(&t, DIMS(1, 5));
    t_op(&t, DEV_OP_COPY, IN(f), OUT(i));
    t_op(&t, DEV_OP_COPY, IN(f), OUT(b));
    t_op(&t, DEV_OP_COPY, IN(b), OUT(back));
    t_run(&t);
    assert_memory_equal(t.plain[i], as_int, sizeof(as_int));
    assert_memory_equal(t.plain[b], as_bool, sizeof(as_bool));
    for (int k = 0; k < 5; k++)
        assert_true(t_f(&t, back)[k] == (float)as_bool[k]);
    t_fini(&t);
}

/* Pictures come to the device as bytes, and are multiplied for each channel there. */
static void bytes_of_pictures_become_what_a_model_takes(void **state)
{
    struct t_graph t;
    uint32_t x, f, scale, y;

    (void)state;
    t_init(&t);
    x = t_add(&t, DEV_ROLE_INPUT, SH_U8, DIMS(3, 3, 5, 7));
    f = t_add(&t, DEV_ROLE_ACT, SH_F32, DIMS(3, 3, 5, 7));
    scale = t_in(&t, DIMS(3, 1, 1));
    y = t_out(&t, DIMS(3, 3, 5, 7));
    for (size_t i = 0; i < 315; i++)
        ((uint8_t *)t.plain[x])[i] = (uint8_t)(i * 37);
    memcpy(t.plain[scale], (const float[]){0.5f, 1, 2}, 3 * sizeof(float));
    t_op(&t, DEV_OP_COPY, IN(x), OUT(f));
    t_op(&t, DEV_OP_BINARY, IN(f, scale), OUT(y))->u.binary.kind = DEV_BIN_MUL;
    t_run(&t);
    for (size_t i = 0; i < 315; i++)
        assert_true(t_f(&t, y)[i] == (float)(uint8_t)(i * 37) * t_f(&t, scale)[i / 35 % 3]);
    t_fini(&t);
}

static void fill_writes_the_value_of_the_type(void **state)
{
    struct t_graph t;
    uint32_t f, i;

    (void)state;
    t_init(&t);
    f = t_out(&t, DIMS(3, 7));
    i = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(4));
    t_op(&t, DEV_OP_FILL, NO_IN, OUT(f))->u.pad.value = 1.5f;
    t_op(&t, DEV_OP_FILL, NO_IN, OUT(i))->u.pad.value = -3;
    t_run(&t);
    for (int k = 0; k < 21; k++)
        assert_true(t_f(&t, f)[k] == 1.5f);
    for (int k = 0; k < 4; k++)
        assert_int_equal(((int64_t *)t.plain[i])[k], -3);
    t_fini(&t);
}

static void an_alias_is_the_same_bytes(void **state)
{
    struct t_graph t;
    uint32_t x, y, flat, z;
    double *want = t_doubles(40);

    (void)state;
    t_init(&t);
    x = t_in(&t, DIMS(2, 20, 1, 1));
    y = t_act(&t, DIMS(2, 20, 1, 1));
    flat = t_act(&t, DIMS(2, 20));
    z = t_out(&t, DIMS(2, 20));
    t.tensors[flat].alias_of = y;
    t_op(&t, DEV_OP_ACT, IN(t_blocked(&t, x)), OUT(y))->act = DEV_ACT_EXP;
    t_op(&t, DEV_OP_ACT, IN(flat), OUT(z))->act = DEV_ACT_NEG;
    for (int i = 0; i < 40; i++)
        want[i] = -exp(t_f(&t, x)[i]);
    t_run(&t);
    t_close(&t, z, want, 1e-11);
    t_fini(&t);
    free(want);
}

/* ------------------------------------------------------------------ reductions */

enum kept { PLAIN, STORED, BLOCKED }; /* x: an input; an activation; one of a convolution */

static void one_reduce(enum dev_red kind, struct t_dims dims, uint32_t axes, enum kept kept_as)
{
    struct t_dims out = {.rank = 0};
    struct t_graph t;
    uint32_t x, xb, y;
    int64_t n = 1, kept = 1;
    double *want;
    struct dev_op *op;

    for (uint32_t i = 0; i < dims.rank; i++) {
        n *= dims.d[i];
        if (!(axes & 1u << i)) {
            out.d[out.rank++] = dims.d[i];
            kept *= dims.d[i];
        }
    }
    want = t_doubles((size_t)kept);
    t_init(&t);
    x = t_in(&t, dims);
    t_map(&t, x, 1, 0.25f);
    y = t_out(&t, out);
    xb = kept_as == BLOCKED ? t_blocked(&t, x) : kept_as == STORED ? t_stored(&t, x) : x;
    op = t_op(&t, DEV_OP_REDUCE, IN(xb), OUT(y));
    op->u.reduce.kind = kind;
    op->u.reduce.axes = axes;
    for (int64_t i = 0; i < kept; i++)
        want[i] = kind == DEV_RED_MAX ? -INFINITY : kind == DEV_RED_MIN ? INFINITY : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t e = i, at = 0, step = 1;
        double v = t_f(&t, x)[i];

        for (uint32_t k = dims.rank; k-- > 0; e /= dims.d[k])
            if (!(axes & 1u << k)) {
                at += e % dims.d[k] * step;
                step *= dims.d[k];
            }
        want[at] = kind == DEV_RED_MAX   ? fmax(want[at], v)
                   : kind == DEV_RED_MIN ? fmin(want[at], v)
                                         : want[at] + v / (kind == DEV_RED_MEAN ? n / kept : 1);
    }
    t_run(&t);
    t_close(&t, y, want, 1e-12);
    t_fini(&t);
    free(want);
}

static void reductions_match_over_every_set_of_axes(void **state)
{
    (void)state;
    for (int k = DEV_RED_SUM; k <= DEV_RED_MIN; k++)
        for (uint32_t axes = 1; axes < 16; axes++)
            one_reduce((enum dev_red)k, DIMS(3, 20, 5, 33), axes, axes == 12 ? BLOCKED : PLAIN);
    one_reduce(DEV_RED_SUM, DIMS(64, 1000), 1, PLAIN);
    one_reduce(DEV_RED_MEAN, DIMS(100000), 1, PLAIN);
    one_reduce(DEV_RED_SUM, DIMS(3, 700, 96), 3, PLAIN); /* a gradient of a bias */
    one_reduce(DEV_RED_MAX, DIMS(3, 40000), 2, PLAIN);
    one_reduce(DEV_RED_SUM, DIMS(2, 4, 3000), 5, PLAIN);
    one_reduce(DEV_RED_MEAN, DIMS(3, 32, 7, 7), 12, BLOCKED);
    one_reduce(DEV_RED_SUM, DIMS(2, 24, 9, 9), 13, BLOCKED);
}

/* A cluster of blocks for few columns, one block for wide rows, parts that a second launch adds for
 * many rows; columns in fours and odd ones; fewer rows than a block has. */
static void column_sums_match_for_any_number_of_rows_and_columns(void **state)
{
    static const int64_t SHAPES[][2] = {{1, 768},    {2, 20},     {31, 17},   {700, 768},
                                        {300, 1001}, {513, 36},   {1000, 16}, {2100, 256},
                                        {2000, 130}, {20000, 64}, {9001, 17}, {40, 12300}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(SHAPES); i++) {
        const struct t_dims dims = DIMS(SHAPES[i][0], SHAPES[i][1]);

        one_reduce(DEV_RED_SUM, dims, 1, PLAIN);
        one_reduce(DEV_RED_SUM, dims, 1, STORED);
        one_reduce(i % 2 ? DEV_RED_MIN : DEV_RED_MAX, dims, 1, STORED);
    }
    one_reduce(DEV_RED_MEAN, DIMS(6, 3, 100, 48), 5, STORED);
    one_reduce(DEV_RED_SUM, DIMS(6, 3, 100, 33), 5, STORED);
    one_reduce(DEV_RED_MAX, DIMS(2, 700, 24), 2, STORED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slice_takes_steps_of_any_sign),
        cmocka_unit_test(pad_fills_and_cuts),
        cmocka_unit_test(transpose_permutes_every_type),
        cmocka_unit_test(transpose_permutes_large_tensors),
        cmocka_unit_test(copy_reshapes_images),
        cmocka_unit_test(channels_turn_to_the_end_and_back),
        cmocka_unit_test(concat_joins_plain_and_blocked),
        cmocka_unit_test(expand_repeats),
        cmocka_unit_test(copy_converts_between_types),
        cmocka_unit_test(bytes_of_pictures_become_what_a_model_takes),
        cmocka_unit_test(fill_writes_the_value_of_the_type),
        cmocka_unit_test(an_alias_is_the_same_bytes),
        cmocka_unit_test(reductions_match_over_every_set_of_axes),
        cmocka_unit_test(column_sums_match_for_any_number_of_rows_and_columns),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
