/* test_wire_keys.c - without it, a key that everybody can read, or that is none, could be taken;
 * and a port that other hosts reach could be open to all of them. */
#include "common/mem.h"
#include "common/wire.h"
#include "common/wire_keys.h"
#include "tests/unit/sh_test.h"

#define KEY_A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define KEY_B "Lc0cgcLfQ9aYuvmDsyAMeVEFd0jyuV4oKXqPZbg2bUc=" /* base64 */

static const char *const NO_ADDRESS[] = {NULL};
static char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 8];

static int set_up(void **state)
{
    (void)state;
    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/key", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sh_test_dir_remove(dir);
    return 0;
}

static int open_keys(const char *key_file, bool plaintext, const char *addr,
                     struct sh_wire_keys **out, struct sh_err *err)
{
    struct sh_wire_key_conf c = {.key_file = (char *)(uintptr_t)key_file, .plaintext = plaintext};

    return sh_wire_keys_open(&c, addr ? (const char *const[]){"unix:/a", addr, NULL} : NO_ADDRESS,
                             out, err);
}

static void write_file(const char *text, mode_t mode)
{
    sh_test_write_file(path, text, strlen(text));
    assert_int_equal(chmod(path, mode), 0);
}

static void refuse_file(const char *text, mode_t mode, const char *why)
{
    struct sh_wire_keys *k;
    struct sh_err err = {0};

    write_file(text, mode);
    assert_fails(open_keys(path, false, NULL, &k, &err), SH_E_INVALID, &err, why);
    assert_has(err.msg, path);
    assert_has_not(err.msg, "001122");
    assert_null(k);
}

static void a_file_that_is_no_key_is_refused(void **state)
{
    struct sh_wire_keys *k;
    struct sh_err err = {0};

    (void)state;
    assert_fails(open_keys(path, false, NULL, &k, &err), SH_E_INVALID, &err, "could not be opened");
    refuse_file("", 0600, "no key in it");
    refuse_file("# nothing\n\n", 0600, "openssl rand -hex 32");
    refuse_file("00112233445566778899aabbccddeeff00112233445566778899aabbccddee\n", 0600, "32 to");
    refuse_file("00112233445566778899aabbccddeeff00112233445566778899aabbccddeef\n", 0600, "32 to");
    refuse_file("hello\n", 0600, "32 to");
    refuse_file(KEY_A "\nhello\n", 0600, "32 to");
    refuse_file(KEY_A "\n" KEY_B "\n" KEY_A "\n", 0600, "more than 2 keys");
}

static void a_file_that_others_can_read_is_refused(void **state)
{
    static const mode_t MODES[] = {0604, 0644, 0660, 0666, 0602, 0601};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(MODES); i++)
        refuse_file(KEY_A, MODES[i], "chmod 600");
}

static void a_good_file_is_read(void **state)
{
    static const char *const TEXTS[] = {KEY_A, KEY_B "\n",
                                        "# mine\n\n" KEY_A "\r\n" KEY_B " # old\n"};
    struct sh_wire_keys *k;
    struct sh_err err = {0};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(TEXTS); i++) {
        write_file(TEXTS[i], i % 2 ? 0640 : 0600);
        assert_ok_err(open_keys(path, false, NULL, &k, &err), &err);
        sh_wire_keys_free(k);
    }
}

static void addresses_of_this_host_need_no_key(void **state)
{
    static const char *const FREE[] = {"unix:/run/a",
                                       "tcp:127.0.0.1:1",
                                       "tcp:127.9.9.9:1",
                                       "tcp:[::1]:1",
                                       "tcp:localhost:1",
                                       "tcp:a.localhost:1",
                                       "tcp:[::ffff:127.0.0.1]:1",
                                       "unix:/a,tcp:127.0.0.1:2",
                                       ""};
    struct sh_wire_keys *k;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(FREE); i++) {
        assert_ok(open_keys(NULL, false, FREE[i], &k, NULL));
        sh_wire_keys_free(k);
    }
}

static void other_hosts_need_a_key(void **state)
{
    static const char *const OTHERS[] = {
        "tcp:10.0.0.1:1",        "tcp:*:1",           "tcp::1",
        "tcp:0.0.0.0:1",         "tcp:[::]:1",        "tcp:host.example:1",
        "tcp:mylocalhost:1",     "tcp:localhost.a:1", "tcp:[::ffff:10.0.0.1]:1",
        "unix:/a,tcp:10.0.0.1:2"};
    struct sh_wire_keys *k;
    struct sh_err err;

    (void)state;
    write_file(KEY_A, 0600);
    for (size_t i = 0; i < SH_ARRAY_LEN(OTHERS); i++) {
        err = (struct sh_err){0};
        assert_fails(open_keys(NULL, false, OTHERS[i], &k, &err), SH_E_INVALID, &err,
                     "--link-key-file");
        assert_ok(open_keys(NULL, true, OTHERS[i], &k, NULL));
        sh_wire_keys_free(k);
        assert_ok(open_keys(path, false, OTHERS[i], &k, NULL));
        sh_wire_keys_free(k);
    }
}

/* An address that is heard of while the program runs, and a port, are held to the same. */
static void links_and_ports_ask_too(void **state)
{
    struct sh_link_handler h = {0};
    struct sh_listen_handler lh = {0};
    struct sh_link *link;
    struct sh_listen *port;
    struct sh_err err = {0};

    (void)state;
    assert_fails(sh_link_new(NULL, "tcp:10.0.0.1:7", &h, &link, &err), SH_E_INVALID, &err,
                 "--link-key-file");
    err = (struct sh_err){0};
    assert_fails(sh_listen_new(NULL, "tcp:0.0.0.0:0", &lh, &port, &err), SH_E_INVALID, &err,
                 "tcp:0.0.0.0:0");
}

static void a_key_and_plaintext_contradict_each_other(void **state)
{
    struct sh_wire_keys *k;
    struct sh_err err = {0};

    (void)state;
    write_file(KEY_A, 0600);
    assert_fails(open_keys(path, true, NULL, &k, &err), SH_E_INVALID, &err, "contradict");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_that_is_no_key_is_refused),
        TEST(a_file_that_others_can_read_is_refused),
        TEST(a_good_file_is_read),
        TEST(addresses_of_this_host_need_no_key),
        TEST(other_hosts_need_a_key),
        TEST(links_and_ports_ask_too),
        TEST(a_key_and_plaintext_contradict_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
