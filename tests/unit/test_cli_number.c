/* test_cli_number.c - elements of tensors of every type.
 *
 * Without it --random or an image could send an FP16 model numbers that nobody meant, a number that
 * its type cannot hold could be cut silently, or the classes of an FP16 answer be wrong.
 */
/* uses: cli/data/number.o */
#include "cli/data/number.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <string.h>

static void halves_are_rounded_as_ieee_says(void **state)
{
    static const struct {
        double v;
        uint16_t f16;
    } CASES[] = {
        {0, 0},          {-0.0, 0x8000},  {1, 0x3c00},          {-2, 0xc000},
        {65504, 0x7bff}, {65519, 0x7bff}, {0x1p-14, 0x0400},    {0x1p-24, 1},
        {0x1p-25, 0},    {0x1.8p-24, 2},  {0x1.ff8p-15, 0x3ff}, {1.0 / 3, 0x3555},
        {2049, 0x6800},  {2051, 0x6802},  {1.99999, 0x4000},    {INFINITY, 0x7c00},
        {0.1, 0x2e66},
    };
    uint16_t h;

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        assert_true(number_put(SH_F16, &h, 0, CASES[i].v));
        if (h != CASES[i].f16)
            fail_msg("%g is %04x, want %04x", CASES[i].v, h, CASES[i].f16);
    }
    for (unsigned bits = 0; bits < 0x10000; bits++) { /* every one of them there and back */
        double v;
        uint16_t in = (uint16_t)bits;

        v = number_get(SH_F16, &in, 0);
        assert_true(number_put(SH_F16, &h, 0, v));
        if (isnan(v) ? (h & 0x7c00) != 0x7c00 : h != in)
            fail_msg("%04x -> %g -> %04x", bits, v, h);
        v = number_get(SH_BF16, &in, 0);
        assert_true(number_put(SH_BF16, &h, 0, v));
        if (!isnan(v) && h != in)
            fail_msg("bfloat %04x -> %g -> %04x", bits, v, h);
    }
    assert_true(number_put(SH_BF16, &h, 0, 1.00390625)); /* a tie goes to the even one */
    assert_int_equal(h, 0x3f80);
    assert_true(number_put(SH_BF16, &h, 0, 1.01171875));
    assert_int_equal(h, 0x3f82);
}

static void what_a_type_cannot_hold_is_refused(void **state)
{
    static const struct {
        enum sh_dtype t;
        double most, least;
    } RANGES[] = {
        {SH_I8, 127, -128}, {SH_I16, 32767, -32768}, {SH_I32, 2147483647, -2147483648.0},
        {SH_U8, 255, 0},    {SH_U16, 65535, 0},      {SH_U32, 4294967295, 0},
        {SH_BOOL, 1, 0},
    };
    char data[16];

    (void)state;
    for (size_t i = 0; i < sizeof(RANGES) / sizeof(RANGES[0]); i++) {
        enum sh_dtype t = RANGES[i].t;

        assert_true(number_put(t, data, 1, RANGES[i].most));
        assert_true(number_get(t, data, 1) == RANGES[i].most);
        assert_true(number_put(t, data, 1, RANGES[i].least));
        assert_true(number_get(t, data, 1) == RANGES[i].least);
        assert_false(number_put(t, data, 1, RANGES[i].most + 1));
        assert_false(number_put(t, data, 1, RANGES[i].least - 1));
        assert_false(number_put(t, data, 1, 0.5));
        assert_false(number_put(t, data, 1, NAN));
    }
    assert_false(number_put(SH_F16, data, 0, 65520));
    assert_false(number_put(SH_F32, data, 0, 1e39));
    assert_false(number_put(SH_BF16, data, 0, 3.4e38));
    assert_false(number_put(SH_I64, data, 0, 1e19));
    assert_false(number_put_int(SH_U64, data, 0, -1));
    assert_true(number_put_int(SH_I64, data, 0, INT64_MIN));
    assert_true(number_get(SH_I64, data, 0) == -0x1p63);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_are_rounded_as_ieee_says),
        cmocka_unit_test(what_a_type_cannot_hold_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
