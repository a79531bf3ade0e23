/* test_hash.c - Without it: content addresses, key digests and checkpoint checksums could differ
 * from what every other program computes, or from one machine to the next. */
#include "common/hash.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

static void sha256_agrees_with_the_published_values(void **state)
{
    static const struct {
        const char *text, *hex;
    } CASES[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        size_t n = strlen(CASES[i].text);
        uint8_t d[SH_SHA256_BYTES];
        char hex[SH_SHA256_HEX];
        struct sh_sha256 *h = NULL;

        assert_ok(sh_sha256(CASES[i].text, n, d, NULL));
        sh_hex(d, sizeof(d), hex);
        assert_string_equal(hex, CASES[i].hex);
        /* byte by byte must give the same */
        assert_ok(sh_sha256_new(&h, NULL));
        for (size_t k = 0; k < n; k++) {
            assert_ok(sh_sha256_update(h, CASES[i].text + k, 1, NULL));
            assert_ok(sh_sha256_peek(h, d, NULL)); /* which changes nothing */
        }
        assert_ok(sh_sha256_peek(h, d, NULL));
        sh_hex(d, sizeof(d), hex);
        assert_string_equal(hex, CASES[i].hex);
        memset(d, 0, sizeof(d));
        sh_sha256_final(h, d);
        sh_sha256_free(h);
        sh_hex(d, sizeof(d), hex);
        assert_string_equal(hex, CASES[i].hex);
    }
}

static void a_digest_can_be_given_up(void **state)
{
    struct sh_sha256 *h = NULL;
    (void)state;

    assert_ok(sh_sha256_new(&h, NULL));
    assert_ok(sh_sha256_update(h, "x", 1, NULL));
    sh_sha256_free(h);
    sh_sha256_free(NULL);
}

static void unhex_is_the_inverse_of_hex_and_strict(void **state)
{
    static const char *const BAD[] = {"", "0", "000", "00000", "0g0", "zzzz", "00 0", "000\n"};
    uint8_t p[2] = {0x0f, 0xa0}, q[2] = {0};
    char hex[5];
    (void)state;

    sh_hex(p, 2, hex);
    assert_string_equal(hex, "0fa0");
    assert_ok(sh_unhex("0FA0", q, 2, NULL));
    assert_memory_equal(p, q, 2);
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_err err = {0};

        assert_fails(sh_unhex(BAD[i], q, 2, &err), SH_E_INVALID, &err, "exactly 4");
    }
}

static void base64url_has_no_padding_and_its_own_alphabet(void **state)
{
    static const struct {
        const char *in, *out;
    } CASES[] = {{"", ""},           {"f", "Zg"},        {"fo", "Zm8"},
                 {"foo", "Zm9v"},    {"foob", "Zm9vYg"}, {"foobar", "Zm9vYmFy"},
                 {"\xfb\xff", "-_8"}};
    char out[32];
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        sh_base64url((const uint8_t *)CASES[i].in, strlen(CASES[i].in), out);
        assert_string_equal(out, CASES[i].out);
    }
}

/* The definition, one bit at a time. */
static uint32_t crc_by_bits(const uint8_t *p, size_t n)
{
    uint32_t c = UINT32_MAX;

    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
    }
    return ~c;
}

static void crc32c_follows_its_definition_in_any_pieces(void **state)
{
    static uint8_t p[60000]; /* from 12 KiB on, three parts are summed side by side */
    (void)state;

    assert_int_equal(sh_crc32c(0, "123456789", 9), 0xE3069283u);
    for (size_t i = 0; i < sizeof(p); i++)
        p[i] = (uint8_t)(i * 37 + 11);
    for (size_t n = 0; n <= sizeof(p); n += n < 100 ? 1 : 997) {
        assert_int_equal(sh_crc32c(0, p, n), crc_by_bits(p, n));
        assert_int_equal(sh_crc32c(sh_crc32c(0, p, n / 3), p + n / 3, n - n / 3),
                         crc_by_bits(p, n));
    }
}

static void random_bytes_differ(void **state)
{
    uint8_t a[32] = {0}, b[32] = {0};
    (void)state;

    assert_ok(sh_random(a, sizeof(a), NULL));
    assert_ok(sh_random(b, sizeof(b), NULL));
    assert_memory_not_equal(a, b, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_agrees_with_the_published_values),
        cmocka_unit_test(a_digest_can_be_given_up),
        cmocka_unit_test(unhex_is_the_inverse_of_hex_and_strict),
        cmocka_unit_test(base64url_has_no_padding_and_its_own_alphabet),
        cmocka_unit_test(crc32c_follows_its_definition_in_any_pieces),
        cmocka_unit_test(random_bytes_differ),
    };

    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
