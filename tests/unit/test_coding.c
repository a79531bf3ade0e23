/* test_coding.c - compressed bodies.
 *
 * Without it a few bytes could unpack to gigabytes, a body that was cut could be taken for a whole
 * one, or a client that takes no gzip could get it. */
/* uses: libapi.a */
/* link: -lz */
#include "api/http/coding.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct sink {
    char *text;
    size_t n, size;
};

static int fresh(struct sh_err *err)
{
    *err = (struct sh_err){0};
    return 0;
}

static int take(void *arg, const char *data, size_t n, struct sh_err *err)
{
    struct sink *s = arg;

    (void)err;
    assert_true(n <= s->size - s->n);
    memcpy(s->text + s->n, data, n);
    s->n += n;
    return SH_OK;
}

static void what_was_packed_comes_out(void **state)
{
    static const size_t SIZES[] = {0, 1, 65535, 65536, 65537, 300000};
    char *text = malloc(300000), *got = malloc(300000);
    struct sh_err err = {0};

    (void)state;
    assert_true(text && got);
    for (size_t i = 0; i < 300000; i++)
        text[i] = (char)(i * i % 251 + i / 999);
    for (size_t i = 0; i < SH_ARRAY_LEN(SIZES); i++) {
        struct sink s = {got, 0, 300000};
        uLongf n_z = compressBound(300000);
        unsigned char *z = malloc(n_z);
        char *gz = NULL;
        size_t n = 0;
        uint64_t bytes = 1;

        assert_non_null(z);
        assert_ok(coding_gzip(text, SIZES[i], 6, &gz, &n, &err));
        assert_ok(coding_unpack("GZIP", gz, n, SIZES[i], take, &s, &bytes, &err));
        assert_int_equal(bytes, SIZES[i]);
        assert_memory_equal(got, text, SIZES[i]);
        for (size_t cut = 1; cut < n; cut = cut * 3 + 1) /* not one byte may be missing */
            assert_fails(fresh(&err) +
                             coding_unpack("gzip", gz, n - cut, 300000, NULL, NULL, &bytes, &err),
                         SH_E_INVALID, &err, "ends before");
        assert_int_equal(compress(z, &n_z, (unsigned char *)text, SIZES[i]), Z_OK);
        s.n = 0;
        assert_ok(coding_unpack("deflate", z, n_z, SIZES[i], take, &s, &bytes, &err));
        assert_int_equal(s.n, SIZES[i]);
        assert_fails(fresh(&err) + coding_unpack("gzip", z, n_z, 300000, NULL, NULL, &bytes, &err),
                     SH_E_INVALID, &err, "not what its Content-Encoding says");
        if (SIZES[i] > 0)
            assert_fails(fresh(&err) +
                             coding_unpack("gzip", gz, n, SIZES[i] - 1, NULL, NULL, &bytes, &err),
                         SH_E_TOOBIG, &err, "when it is unpacked");
        free(gz);
        free(z);
    }
    free(text);
    free(got);
}

static void several_members_are_one_body_and_nothing_else_follows(void **state)
{
    char *gz = NULL, two[200], got[8];
    struct sink s = {got, 0, sizeof(got)};
    struct sh_err err = {0};
    uint64_t bytes;
    size_t n = 0;

    (void)state;
    assert_ok(coding_gzip("abc", 3, 1, &gz, &n, &err));
    assert_true(2 * n + 1 < sizeof(two));
    memcpy(two, gz, n);
    memcpy(two + n, gz, n);
    two[2 * n] = 'x';
    assert_ok(coding_unpack("gzip", two, 2 * n, 6, take, &s, &bytes, &err));
    assert_memory_equal(got, "abcabc", 6);
    assert_int_equal(coding_unpack("gzip", two, 2 * n + 1, 6, NULL, NULL, &bytes, &err),
                     SH_E_INVALID);
    assert_int_equal(coding_unpack("gzip", "", 0, 6, NULL, NULL, &bytes, NULL), SH_E_INVALID);
    assert_int_equal(coding_unpack("gzip", "\x1f\x8b\x08", 3, 6, NULL, NULL, &bytes, NULL),
                     SH_E_INVALID);
    free(gz);
}

static void a_few_bytes_do_not_become_gigabytes(void **state)
{
    size_t n_zeros = CODING_FREE_BYTES + (64 << 20), n = 0;
    char *zeros = calloc(1, n_zeros), *gz = NULL;
    struct sh_err err = {0};
    uint64_t bytes;

    (void)state;
    assert_non_null(zeros);
    assert_ok(coding_gzip(zeros, CODING_FREE_BYTES, 9, &gz, &n, &err));
    assert_ok(coding_unpack("gzip", gz, n, UINT64_MAX, NULL, NULL, &bytes, &err));
    assert_int_equal(bytes, CODING_FREE_BYTES);
    free(gz);
    assert_ok(coding_gzip(zeros, n_zeros, 9, &gz, &n, &err));
    assert_fails(fresh(&err) + coding_unpack("gzip", gz, n, UINT64_MAX, NULL, NULL, &bytes, &err),
                 SH_E_TOOBIG, &err, "times its size");
    assert_true(bytes <
                CODING_FREE_BYTES + CODING_MAX_RATIO * n + (1 << 20)); /* it stopped there */
    free(gz);
    free(zeros);
}

static void codings_have_names(void **state)
{
    static const char *const YES[] = {"gzip", "GZIP", "deflate, gzip", "br;q=1,gzip;q=0.5",
                                      " gzip ;q=1"};
    static const char *const NO[] = {NULL,      "",      "deflate", "gzip;q=0", "gzip; q=0.000",
                                     "gzipped", "xgzip", "identity"};
    struct sh_err err = {0};
    bool packed = true;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(YES); i++)
        assert_true(coding_accepts_gzip(YES[i]));
    for (size_t i = 0; i < SH_ARRAY_LEN(NO); i++)
        assert_false(coding_accepts_gzip(NO[i]));
    assert_ok(coding_check(NULL, &packed, &err));
    assert_false(packed);
    assert_ok(coding_check("Identity", &packed, &err));
    assert_false(packed);
    assert_ok(coding_check("deflate", &packed, &err));
    assert_true(packed);
    assert_fails(fresh(&err) + coding_check("br", &packed, &err), SH_E_UNSUPPORTED, &err, "br");
    assert_fails(fresh(&err) + coding_check("gzip, gzip", &packed, &err), SH_E_UNSUPPORTED, &err,
                 "not supported");
    assert_fails(fresh(&err) + coding_check("", &packed, &err), SH_E_UNSUPPORTED, &err,
                 "not supported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_packed_comes_out),
        cmocka_unit_test(several_members_are_one_body_and_nothing_else_follows),
        cmocka_unit_test(a_few_bytes_do_not_become_gigabytes),
        cmocka_unit_test(codings_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
