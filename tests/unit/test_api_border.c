/* test_api_border.c - the small parsers at the border of the API: framing, keys, cursors, digests,
 * names, the importer's verdict.
 *
 * Without it a request could be read in two ways (smuggling), or a stranger's text taken for a key.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/cache/auth.h"
#include "api/files/artifact.h"
#include "api/http/framing.h"
#include "api/request/base64.h"
#include "api/request/cursor.h"
#include "api/request/noun.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

static int framing(const char *const *headers, struct sh_err *err)
{
    struct framing f = {0};

    *err = (struct sh_err){0};
    for (; headers[0]; headers += 2)
        framing_add(&f, headers[0], strlen(headers[0]), headers[1], strlen(headers[1]));
    return framing_check(&f, err);
}

static void a_body_has_one_length_only(void **state)
{
    static const char *const GOOD[][7] = {
        {NULL},
        {"Content-Length", "0", NULL},
        {"content-length", "123", "Host", "x", NULL},
        {"Transfer-Encoding", "Chunked", NULL},
    };
    static const char *const BAD[][7] = {
        {"Content-Length", "5", "Transfer-Encoding", "chunked", NULL},
        {"Content-Length", "5", "content-length", "5", NULL},
        {"Content-Length", "+5", NULL},
        {"Content-Length", "", NULL},
        {"Content-Length", "5, 5", NULL},
        {"Content-Length", "99999999999999999999", NULL},
        {"Content-Length ", "5", NULL},
        {"Transfer-Encoding", "gzip, chunked", NULL},
        {"Transfer-Encoding", "identity", NULL},
        {"Transfer-Encoding", "chunked", "Transfer-Encoding", "chunked", NULL},
        {"Host", "a", "Host", "b", NULL},
        {"X\tY", "1", NULL},
    };
    struct sh_err err;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(GOOD); i++)
        assert_ok_err(framing(GOOD[i], &err), &err);
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        if (framing(BAD[i], &err) != SH_E_INVALID)
            fail_msg("\"%s: %s\" was taken", BAD[i][0], BAD[i][1]);
}

/* As the library leaves it: NULs in place of what ended a text. `^` stands for one. The target is
 * the first text, then version, then names and values. */
static int head(const char *text, size_t n_headers, struct sh_err *err)
{
    struct framing f = {0};
    char buf[128] = "";
    const char *at = buf, *value;

    *err = (struct sh_err){0};
    for (size_t i = 0; text[i]; i++)
        buf[i] = (char)(text[i] == '^' ? '\0' : text[i]);
    framing_target(&f, at);
    for (at += strlen(at); !*at;)
        at++;
    framing_version(&f, at);
    at += strlen(at) + 1;
    for (size_t i = 0; i < n_headers; i++) {
        while (!*at)
            at++;
        value = at + strlen(at) + 1;
        value += strspn(value, " ");
        framing_add(&f, at, strlen(at), value, strlen(value));
        at = value + strlen(value) + 1;
    }
    return framing_check(&f, err);
}

static void every_line_of_a_head_ends_with_crlf(void **state)
{
    struct sh_err err;

    (void)state;
    assert_ok_err(head("/v2^HTTP/1.1^^Host^ x^^X^y^^^^", 2, &err), &err);
    assert_ok_err(head("/v2^HTTP/1.1^^Host^^^^^body", 1, &err), &err);
    assert_ok_err(head("/v2^HTTP/1.0^^^^", 0, &err), &err);
    assert_fails(head("/v2^HTTP/1.1^Host^ x^^X^y^^^^", 2, &err), SH_E_INVALID, &err, "CRLF");
    assert_fails(head("/v2^HTTP/1.1^^Host^ x^X^y^^^^", 2, &err), SH_E_INVALID, &err, "CRLF");
    assert_fails(head("/v2^HTTP/1.1^^Host^ x^^X^y^^a", 2, &err), SH_E_INVALID, &err, "CRLF");
    assert_fails(head("/v2^HTTP/1.1^^Host^ x^a^^^^", 1, &err), SH_E_INVALID, &err, "CRLF");
    assert_fails(head("/v2^^HTTP/1.1^^Host^ x^^^^", 1, &err), SH_E_INVALID, &err, "CRLF");
    assert_fails(head("/v2^HTTP/1.1^^Host^ x\ry^^^^", 1, &err), SH_E_INVALID, &err, "control");
    assert_fails(head("/v2^HTTP/1.1^^X^y^^^^", 1, &err), SH_E_INVALID, &err, "no Host");
}

static void only_our_own_keys_are_looked_up(void **state)
{
    static const char *const BAD[] = {
        "",
        "Basic abc",
        "Bearer",
        "Bearer shunt_",
        "Bearer shunt_abcdefghijkl",
        "Bearer shunt_abcdefghijk_secret",
        "Bearer shunt_abcdefghijklm_secret",
        "Bearer shunt_ABCDEFGHIJKL_secret",
        "Bearer shunt_abc,efghijkl_secret",
        "Bearer other_abcdefghijkl_secret",
        "Bearer shunt_abcdefghijkl_sec ret",
        "Bearer                                                                           "
        "shunt_abcdefghijkl_secret",
        "Bearer "
        "shunt_abcdefghijkl_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    };
    char id[AUTH_ID_CHARS + 1];
    const char *secret = NULL;
    struct sh_err err = {0};

    (void)state;
    assert_ok_err(auth_parse("bearer  shunt_abc012345678_se_cr-et", id, &secret, &err), &err);
    assert_string_equal(id, "abc012345678");
    assert_string_equal(secret, "se_cr-et");
    assert_fails(auth_parse(NULL, id, &secret, &err), SH_E_UNAUTHENTICATED, &err, "API key");
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        if (auth_parse(BAD[i], id, &secret, NULL) != SH_E_UNAUTHENTICATED)
            fail_msg("\"%s\" was taken", BAD[i]);
}

static void a_new_key_is_one_of_ours(void **state)
{
    struct auth_new_key a, b;
    char header[128], id[AUTH_ID_CHARS + 1];
    const char *secret;

    (void)state;
    assert_ok(auth_make_key(NULL, &a, NULL));
    assert_ok(auth_make_key(NULL, &b, NULL));
    assert_string_not_equal(a.text, b.text);
    assert_int_equal(strlen(a.hash_hex), 64);
    snprintf(header, sizeof(header), "Bearer %s", a.text);
    assert_ok(auth_parse(header, id, &secret, NULL));
    assert_string_equal(id, a.id);
    assert_int_equal(strlen(secret), 43);
}

static void times_are_read_to_the_letter(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } GOOD[] = {{"1970-01-01T00:00:00Z", 0},
                {"1969-12-31T23:59:59Z", 0},
                {"0119-03-26T07:38:56+18:23", 0},
                {"2026-10-01T12:00:00Z", 1790856000000},
                {"2026-10-01T12:00:00.5Z", 1790856000500},
                {"2026-10-01T12:00:00.123456789Z", 1790856000123},
                {"2026-10-01T14:30:00+02:30", 1790856000000},
                {"2026-10-01T11:00:00-01:00", 1790856000000},
                {"2024-02-29T00:00:00Z", 1709164800000}};
    static const char *const BAD[] = {"",
                                      "tomorrow",
                                      "2026-10-01",
                                      "2026-10-01 12:00:00Z",
                                      "2026-10-01T12:00:00",
                                      "2026-10-01T12:00:00.Z",
                                      "2026-10-01T24:00:00Z",
                                      "2026-10-01T12:60:00Z",
                                      "2026-13-01T12:00:00Z",
                                      "2026-02-29T12:00:00Z",
                                      "2026-10-00T12:00:00Z",
                                      "2026-10-01T12:00:00+25:00",
                                      "2026-10-01T12:00:00+0100",
                                      "2026-10-01T12:00:00ZZ",
                                      "+026-10-01T12:00:00Z"};
    int64_t ms = -1;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(GOOD); i++) {
        struct sh_err err = {0};

        assert_ok_err(noun_read_time("t", GOOD[i].text, &ms, &err), &err);
        assert_int_equal(ms, GOOD[i].ms);
    }
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        if (noun_read_time("t", BAD[i], &ms, NULL) != SH_E_INVALID)
            fail_msg("\"%s\" was taken", BAD[i]);
}

static void a_cursor_comes_back_as_it_was(void **state)
{
    static const int64_t IDS[] = {1, 42, 1000000, INT64_MAX};
    const uint8_t key[CURSOR_KEY_BYTES] = {1, 2, 3};
    char text[CURSOR_TEXT];
    int64_t id;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(IDS); i++) {
        assert_ok(cursor_seal(key, "/jobs 1", IDS[i], text, NULL));
        assert_int_equal(strlen(text), CURSOR_TEXT - 1);
        assert_ok(cursor_open(key, "/jobs 1", text, &id, NULL));
        assert_int_equal(id, IDS[i]);
        assert_null(strpbrk(text, "+/=&?%"));
    }
}

static void a_cursor_that_was_changed_is_refused(void **state)
{
    static const char *const BAD[] = {"", "abc", "YzAwMDAwMDAwMDAwMDAwMDAwMDE",
                                      "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                                      "????????????????????????????????"};
    const uint8_t key[CURSOR_KEY_BYTES] = {1, 2, 3}, other[CURSOR_KEY_BYTES] = {1, 2, 4};
    char text[CURSOR_TEXT];
    int64_t id;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        assert_int_equal(cursor_open(key, "/jobs 1", BAD[i], &id, NULL), SH_E_INVALID);
    assert_ok(cursor_seal(key, "/jobs 1", 7, text, NULL));
    assert_int_equal(cursor_open(other, "/jobs 1", text, &id, NULL), SH_E_INVALID);
    assert_int_equal(cursor_open(key, "/jobs 2", text, &id, NULL), SH_E_INVALID);
    for (size_t i = 0; i < CURSOR_TEXT - 1; i++) {
        char was = text[i];

        text[i] = was == 'A' ? 'B' : 'A';
        assert_int_equal(cursor_open(key, "/jobs 1", text, &id, NULL), SH_E_INVALID);
        assert_int_equal(id, 0);
        text[i] = was;
    }
    assert_ok(cursor_open(key, "/jobs 1", text, &id, NULL));
}

static void the_next_cursor_tells_nothing_of_the_one_before(void **state)
{
    const uint8_t key[CURSOR_KEY_BYTES] = {1, 2, 3};
    char a[CURSOR_TEXT], b[CURSOR_TEXT];
    size_t same = 0;

    (void)state;
    assert_ok(cursor_seal(key, "/jobs 1", 1000, a, NULL));
    assert_ok(cursor_seal(key, "/jobs 1", 1001, b, NULL));
    for (size_t i = 0; i < CURSOR_TEXT - 1; i++)
        same += a[i] == b[i];
    assert_in_range(same, 0, 5); /* of 32: by chance one in 64 is the same */
}

static void every_process_of_a_folder_has_the_same_secret(void **state)
{
    uint8_t first[CURSOR_KEY_BYTES], again[CURSOR_KEY_BYTES], none[CURSOR_KEY_BYTES] = {0};
    char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 16];
    struct sh_err err = {0};
    struct stat st;
    FILE *f;

    (void)state;
    sh_test_dir_make(dir);
    assert_ok_err(cursor_key_load(dir, first, &err), &err);
    assert_ok_err(cursor_key_load(dir, again, &err), &err);
    assert_memory_equal(first, again, sizeof(first));
    assert_memory_not_equal(first, none, sizeof(first));
    snprintf(path, sizeof(path), "%s/cursor.key", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_fails(cursor_key_load(dir, again, &err), SH_E_IO, &err, "does not hold 32 bytes");
    sh_test_dir_remove(dir);
}

static void base64_of_the_wrong_length_is_refused(void **state)
{
    uint8_t out[4];

    (void)state;
    assert_ok(base64_decode("AQID", 4, out, 3, NULL));
    assert_memory_equal(out, "\1\2\3", 3);
    assert_ok(base64_decode("-_8=", 4, out, 2, NULL));
    assert_memory_equal(out, "\xfb\xff", 2);
    assert_int_equal(base64_decode("AQID", 4, out, 4, NULL), SH_E_INVALID);
    assert_int_equal(base64_decode("AQIDBA", 6, out, 3, NULL), SH_E_INVALID);
    assert_int_equal(base64_decode("A Q", 3, out, 1, NULL), SH_E_INVALID);
}

static void names_are_plain(void **state)
{
    (void)state;
    assert_true(noun_is_name("ResNet-50_v1.5"));
    assert_false(noun_is_name(""));
    assert_false(noun_is_name(".."));
    assert_false(noun_is_name("a/b"));
    assert_false(noun_is_name("a b"));
    assert_true(noun_is_tenant_name("team-1"));
    assert_false(noun_is_tenant_name("Team"));
    assert_false(noun_is_tenant_name("-a"));
    assert_true(noun_is_number("7", 10));
    assert_false(noun_is_number("07", 10));
    assert_false(noun_is_number("11", 10));
    assert_false(noun_is_number("+7", 10));
}

static int verdict(const char *text, struct artifact *a, struct sh_err *err)
{
    *err = (struct sh_err){0};
    *a = (struct artifact){0};
    return artifact_read_verdict(text, strlen(text), a, err);
}

static void a_refused_model_says_which_nodes(void **state)
{
    struct artifact a;
    struct sh_err err;

    (void)state;
    assert_fails(
        verdict("{\"ok\":false,\"code\":\"UNSUPPORTED\",\"error\":\"1 operator is not "
                "supported\",\"nodes\":[{\"op\":\"Foo\",\"node\":\"n\",\"reason\":\"r\"}]}",
                &a, &err),
        SH_E_UNSUPPORTED, &err, "1 operator");
    assert_int_equal(json_array_size(a.nodes), 1);
    artifact_fini(&a);
    assert_fails(verdict("{\"ok\":false,\"code\":\"BUG\",\"error\":\"odd\"}", &a, &err),
                 SH_E_INVALID, &err, "odd");
    artifact_fini(&a);
    assert_fails(verdict("Segmentation fault", &a, &err), SH_E_BUG, &err, "cannot be read");
    artifact_fini(&a);
    assert_ok_err(
        verdict("{\"ok\":true,\"inputs\":[],\"outputs\":[],\"opset\":17,\"trainable\":true}", &a,
                &err),
        &err);
    assert_string_equal(a.meta, "{\"opset\":17,\"trainable\":true}");
    artifact_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_has_one_length_only),
        cmocka_unit_test(every_line_of_a_head_ends_with_crlf),
        cmocka_unit_test(only_our_own_keys_are_looked_up),
        cmocka_unit_test(a_new_key_is_one_of_ours),
        cmocka_unit_test(times_are_read_to_the_letter),
        cmocka_unit_test(a_cursor_comes_back_as_it_was),
        cmocka_unit_test(a_cursor_that_was_changed_is_refused),
        cmocka_unit_test(the_next_cursor_tells_nothing_of_the_one_before),
        cmocka_unit_test(every_process_of_a_folder_has_the_same_secret),
        cmocka_unit_test(base64_of_the_wrong_length_is_refused),
        cmocka_unit_test(names_are_plain),
        cmocka_unit_test(a_refused_model_says_which_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
