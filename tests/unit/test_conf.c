/* test_conf.c - Without it: a typing error in an option could start a daemon with a default nobody
 * wanted, a secret could be printed, and the order of the sources could turn around. */
#include "common/conf.h"
#include "common/log.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

struct conf {
    int64_t tick_ms, cache;
    double share;
    bool fast;
    char *addr, *key;
};

static const struct sh_conf_opt OPTS[] = {
    SH_OPT_INT(struct conf, tick_ms, "tick-ms", 200, 10, 60000, 0, "wait, ms"),
    SH_OPT_BYTES(struct conf, cache, "cache", "256M", 0, 1e12, 0, "cache, bytes"),
    SH_OPT_F64(struct conf, share, "share", 0.5, 0, 1, 0, "share of the device"),
    SH_OPT_BOOL(struct conf, fast, "fast", true, 0, "be fast"),
    SH_OPT_STR(struct conf, addr, "addr", "127.0.0.1:80", 0, "where to listen"),
    SH_OPT_STR(struct conf, key, "key", NULL, SH_CONF_SECRET, "the key"),
};
static const struct sh_conf_table TABLE = {.program = "test-prog",
                                           .purpose = "A program for tests.",
                                           .opts = OPTS,
                                           .n_opts = SH_ARRAY_LEN(OPTS),
                                           .struct_bytes = sizeof(struct conf),
                                           .absent = "lab-",
                                           .absent_why = "only the laboratory has it"};

#define MAX_ARGS 12

/* load(..., "--a", "b", NULL): no positional arguments allowed */
static int load(struct conf *c, struct sh_err *err, ...)
{
    char *argv[MAX_ARGS + 1] = {(char *)"test-prog"};
    enum sh_conf_action action;
    int argc = 1, rc;
    va_list ap;

    va_start(ap, err);
    while (argc < MAX_ARGS && (argv[argc] = va_arg(ap, char *)) != NULL)
        argc++;
    va_end(ap);
    rc = sh_conf_load(&TABLE, c, argc, argv, NULL, NULL, &action, err);
    if (!rc)
        assert_int_equal(action, SH_CONF_RUN);
    return rc;
}

static void defaults_come_from_the_table(void **state)
{
    struct sh_err err = {0};
    struct conf c;
    (void)state;

    memset(&c, 0xff, sizeof(c));
    assert_ok_err(load(&c, &err, NULL), &err);
    assert_int_equal(c.tick_ms, 200);
    assert_int_equal(c.cache, 256 << 20);
    assert_true(c.share == 0.5 && c.fast);
    assert_string_equal(c.addr, "127.0.0.1:80");
    assert_null(c.key);
    sh_conf_free(&TABLE, &c);
    assert_null(c.addr);
}

static void later_sources_win(void **state)
{
    char dir[SH_TEST_DIR_BYTES], path[128];
    static const char TEXT[] = "# a comment\n\n tick-ms = 11 \ncache=1K\r\nshare = 0.25\n"
                               "addr = a = b # not a comment";
    struct sh_err err = {0};
    struct conf c;
    (void)state;

    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/x.conf", dir);
    sh_test_write_file(path, TEXT, sizeof(TEXT) - 1);
    setenv("SHUNT_TICK_MS", "12", 1);
    setenv("SHUNT_CACHE", "2K", 1);
    setenv("SHUNT_ADDR", "", 1); /* empty: not set */
    assert_ok_err(load(&c, &err, "--tick-ms=13", "--config", path, NULL), &err);
    assert_int_equal(c.tick_ms, 13); /* command line */
    assert_int_equal(c.cache, 2048); /* environment */
    assert_true(c.share == 0.25);    /* file */
    assert_string_equal(c.addr, "a = b # not a comment");
    assert_true(c.fast); /* default */
    sh_conf_free(&TABLE, &c);
    setenv("SHUNT_CONFIG", path, 1);
    assert_ok_err(load(&c, &err, NULL), &err);
    assert_int_equal(c.tick_ms, 12);
    assert_true(c.share == 0.25);
    sh_conf_free(&TABLE, &c);
    unsetenv("SHUNT_TICK_MS");
    unsetenv("SHUNT_CACHE");
    unsetenv("SHUNT_ADDR");
    unsetenv("SHUNT_CONFIG");
    sh_test_dir_remove(dir);
}

static void of_either_the_nearer_source_counts(void **state)
{
    struct sh_conf_table t = TABLE;
    enum sh_conf_action action;
    struct sh_err err = {0};
    struct conf c;
    (void)state;

    t.instead[0][0] = t.instead[1][1] = "addr";
    t.instead[0][1] = t.instead[1][0] = "key";
    setenv("SHUNT_KEY", "far", 1);
    for (int nearer = 0; nearer < 2; nearer++) {
        char *argv[] = {(char *)"test-prog", (char *)"--addr=near", NULL};

        assert_ok_err(sh_conf_load(&t, &c, 1 + nearer, argv, NULL, NULL, &action, &err), &err);
        if (nearer) {
            assert_string_equal(c.addr, "near");
            assert_null(c.key);
        } else {
            assert_null(c.addr); /* not the default either */
            assert_string_equal(c.key, "far");
        }
        sh_conf_free(&t, &c);
    }
    setenv("SHUNT_ADDR", "as far", 1);
    assert_ok_err(
        sh_conf_load(&t, &c, 1, (char *[]){(char *)"test-prog", NULL}, NULL, NULL, &action, &err),
        &err);
    assert_string_equal(c.addr, "as far"); /* the program says which of the two counts */
    assert_string_equal(c.key, "far");
    sh_conf_free(&t, &c);
    unsetenv("SHUNT_ADDR");
    unsetenv("SHUNT_KEY");
}

static void the_command_line_takes_every_form(void **state)
{
    struct conf c;
    (void)state;

    assert_ok(load(&c, NULL, "--tick-ms", "99", "--no-fast", "--cache=3G", "--addr=", "--key=s",
                   "--share", "1e-1", NULL));
    assert_int_equal(c.tick_ms, 99);
    assert_false(c.fast);
    assert_true(c.cache == INT64_C(3) << 30);
    assert_string_equal(c.addr, "");
    assert_string_equal(c.key, "s");
    assert_true(c.share == 0.1);
    sh_conf_free(&TABLE, &c);
    assert_ok(load(&c, NULL, "--no-fast", "--fast", "--tick-ms=20", "--tick-ms=30", NULL));
    assert_true(c.fast);
    assert_int_equal(c.tick_ms, 30);
    sh_conf_free(&TABLE, &c);
    assert_ok(load(&c, NULL, "--fast=off", NULL));
    assert_false(c.fast);
    sh_conf_free(&TABLE, &c);
}

static void a_refusal_names_option_value_source_and_range(void **state)
{
    static const struct {
        const char *arg, *says;
    } CASES[] = {
        {"--tick-ms=5", "option \"tick-ms\" (from command line) must be a whole number from 10 to "
                        "60000, not \"5\""},
        {"--tick-ms=1s", "not \"1s\""},
        {"--tick-ms=", "not \"\""},
        {"--cache=1X", "such as 1048576, 512M"},
        {"--cache=K", "not \"K\""},
        {"--cache=-1", "not \"-1\""},
        {"--cache=99999999999T", "not \"99999999999T\""},
        {"--share=1.5", "a number from 0 to 1"},
        {"--fast=maybe", "true or false, not \"maybe\""},
        {"--no-tick-ms", "there is no option \"--no-tick-ms\""},
        {"--tik-ms=5", "there is no option \"--tik-ms=5\""},
        {"-x", "there is no option \"-x\""},
        {"--tick-ms", "option \"--tick-ms\" needs a value"},
        {"--config=/nonexistent/x.conf", "config file \"x.conf\""},
        {"word", "\"word\" is not an option"},
        {"--", "there is no option \"--\""},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err err = {0};
        struct conf c;

        assert_fails(load(&c, &err, CASES[i].arg, NULL), SH_E_INVALID, &err, CASES[i].says);
        assert_null(c.addr); /* nothing to free after a failure */
    }
    {
        struct sh_err err = {0};
        struct conf c;

        assert_fails(load(&c, &err, "--addr", "--fast", NULL), SH_E_INVALID, &err, "needs a value");
        err = (struct sh_err){0};
        setenv("SHUNT_SHARE", "x", 1);
        assert_fails(load(&c, &err, NULL), SH_E_INVALID, &err, "environment SHUNT_SHARE");
        unsetenv("SHUNT_SHARE");
    }
}

/* Without it: a measurement's option in the environment would be left out in silence. */
static void an_option_of_another_build_is_refused_wherever_it_stands(void **state)
{
    char dir[SH_TEST_DIR_BYTES], path[128];
    struct sh_err err = {0};
    struct conf c;
    (void)state;

    assert_fails(load(&c, &err, "--lab-cold", NULL), SH_E_INVALID, &err,
                 "no option \"--lab-cold\"; only the laboratory has it");
    err = (struct sh_err){0};
    assert_fails(load(&c, &err, "--no-lab-cold", NULL), SH_E_INVALID, &err, "only the laboratory");
    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/x.conf", dir);
    sh_test_write_file(path, "lab-cold = true\n", 16);
    err = (struct sh_err){0};
    assert_fails(load(&c, &err, "--config", path, NULL), SH_E_INVALID, &err, "only the laboratory");
    setenv("SHUNT_LAB_COLD", "true", 1);
    err = (struct sh_err){0};
    assert_fails(load(&c, &err, NULL), SH_E_INVALID, &err,
                 "environment SHUNT_LAB_COLD: there is no such option; only the laboratory has it");
    setenv("SHUNT_LAB_COLD", "", 1); /* not set */
    assert_ok(load(&c, NULL, NULL));
    sh_conf_free(&TABLE, &c);
    unsetenv("SHUNT_LAB_COLD");
    sh_test_dir_remove(dir);
}

static void a_wrong_file_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *text, *says;
    } CASES[] = {
        {"tick-ms = 11\nnonsense\n", "\"x.conf\", line 2: expected"},
        {"tik-ms = 11\n", "line 1: there is no option \"tik-ms\""},
        {"\n\ntick-ms = 5\n", "file \"x.conf\", line 3"},
        {"tick-ms = 11\ntick-ms = 12\n", "line 2: option \"tick-ms\" is set twice"},
    };
    char dir[SH_TEST_DIR_BYTES], path[128];
    struct sh_err err = {0};
    struct conf c;
    (void)state;

    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/x.conf", dir);
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        err = (struct sh_err){0};
        sh_test_write_file(path, CASES[i].text, strlen(CASES[i].text));
        assert_fails(load(&c, &err, "--config", path, NULL), SH_E_INVALID, &err, CASES[i].says);
    }
    err = (struct sh_err){0};
    sh_test_write_file(path, "tick-ms = 11\0addr = x", 20);
    assert_fails(load(&c, &err, "--config", path, NULL), SH_E_INVALID, &err, "not a text file");
    err = (struct sh_err){0};
    assert_fails(load(&c, &err, "--config", dir, NULL), SH_E_INVALID, &err, "regular file");
    sh_test_dir_remove(dir);
}

/* One that is only a place where the other is looked for leaves it out, and not the other way. */
static void a_pair_has_a_direction(void **state)
{
    struct sh_conf_table t = TABLE;
    char *argv[] = {(char *)"test-prog", (char *)"--key=near", NULL};
    enum sh_conf_action action;
    struct sh_err err = {0};
    struct conf c;
    (void)state;

    t.instead[0][0] = "addr";
    t.instead[0][1] = "key";
    assert_ok_err(sh_conf_load(&t, &c, 2, argv, NULL, NULL, &action, &err), &err);
    assert_string_equal(c.key, "near");
    assert_string_equal(c.addr, "127.0.0.1:80");
    sh_conf_free(&t, &c);
    setenv("SHUNT_KEY", "far", 1);
    argv[1] = (char *)"--addr=near";
    assert_ok_err(sh_conf_load(&t, &c, 2, argv, NULL, NULL, &action, &err), &err);
    assert_string_equal(c.addr, "near");
    assert_null(c.key);
    sh_conf_free(&t, &c);
    argv[1] = (char *)"--addr="; /* says nothing */
    assert_ok_err(sh_conf_load(&t, &c, 2, argv, NULL, NULL, &action, &err), &err);
    assert_string_equal(c.key, "far");
    sh_conf_free(&t, &c);
    unsetenv("SHUNT_KEY");
}

/* Of a file with sections those lines count that stand before the first one, and those of the one
 * that is named; by the command line before the environment before the file itself. */
static void a_section_counts_if_it_is_named(void **state)
{
    static const char TEXT[] = "addr = top\ntick-ms = 11\n[a]\ntick-ms = 12\n[b]\n tick-ms = 13\n"
                               "key = k\nno such option = 1\n[ c ]\n";
    struct sh_conf_opt opts[] = {OPTS[0], OPTS[4], OPTS[5]};
    struct sh_conf_table t = TABLE;
    char dir[SH_TEST_DIR_BYTES], path[128], named[128];
    enum sh_conf_action action;
    struct sh_err err = {0};
    struct conf c;
    (void)state;

    t.opts = opts;
    t.n_opts = 3;
    t.section_opt = "addr"; /* any option may name it */
    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "--config=%s/x.conf", dir);
    sh_test_write_file(path + 9, TEXT, sizeof(TEXT) - 1);
    for (int i = 0; i < 3; i++) {
        static const char *const SECTION[] = {"a", "top", "b"}, *const SAYS[] = {"", "a, b",
                                                                                 "no such"};
        char *argv[] = {(char *)"p", path, named, NULL};
        int rc;

        snprintf(named, sizeof(named), "--addr=%s", SECTION[i]);
        err = (struct sh_err){0};
        rc = sh_conf_load(&t, &c, 3, argv, NULL, NULL, &action, &err);
        if (SAYS[i][0]) {
            assert_fails(rc, SH_E_INVALID, &err, SAYS[i]);
            continue;
        }
        assert_ok_err(rc, &err);
        assert_int_equal(c.tick_ms, 12);
        assert_null(c.key);
        sh_conf_free(&t, &c);
    }
    for (int i = 0; i < 2; i++) { /* the file's own word, then the environment's */
        char *argv[] = {(char *)"p", path, NULL};

        err = (struct sh_err){0};
        if (i == 1)
            setenv("SHUNT_ADDR", "a", 1);
        assert_int_equal(sh_conf_load(&t, &c, 2, argv, NULL, NULL, &action, &err),
                         i == 1 ? SH_OK : SH_E_INVALID);
        if (i == 0)
            assert_has(err.msg, "there is no addr \"top\"");
        else
            assert_int_equal(c.tick_ms, 12);
        sh_conf_free(&t, &c);
    }
    unsetenv("SHUNT_ADDR");
    err = (struct sh_err){0};
    assert_fails(load(&c, &err, path, NULL), SH_E_INVALID, &err, "line 3"); /* without sections */
    sh_test_dir_remove(dir);
}

/* Who types the name of a section means what is in it; one that is only in use may be overridden by
 * the environment. */
static void a_section_of_the_command_line_wins_over_the_environment(void **state)
{
    static const char TEXT[] = "tick-ms = 11\naddr = a\n[a]\ntick-ms = 12\nkey = k\n";
    static const struct {
        const char *word;
        int64_t tick_ms;
        const char *key;
    } TRIES[] = {{"--fast", 14, "far"},        /* the file's own word */
                 {"--addr=a", 12, "k"},        /* named here */
                 {"--addr=", 14, "far"},       /* none */
                 {"--tick-ms=15", 15, "far"}}; /* an option of the command line */
    struct sh_conf_table t = TABLE;
    char dir[SH_TEST_DIR_BYTES], path[128];
    enum sh_conf_action action;
    struct sh_err err = {0};
    struct conf c;
    (void)state;

    t.section_opt = "addr";
    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "--config=%s/x.conf", dir);
    sh_test_write_file(path + 9, TEXT, sizeof(TEXT) - 1);
    setenv("SHUNT_TICK_MS", "14", 1);
    setenv("SHUNT_KEY", "far", 1);
    for (size_t i = 0; i < SH_ARRAY_LEN(TRIES); i++) {
        char word[32], *argv[] = {(char *)"p", path, word, (char *)"--cache=1", NULL};

        sh_strlcpy(word, TRIES[i].word, sizeof(word));
        assert_ok_err(sh_conf_load(&t, &c, 4, argv, NULL, NULL, &action, &err), &err);
        assert_int_equal(c.tick_ms, TRIES[i].tick_ms);
        assert_string_equal(c.key, TRIES[i].key);
        sh_conf_free(&t, &c);
    }
    unsetenv("SHUNT_TICK_MS");
    unsetenv("SHUNT_KEY");
    sh_test_dir_remove(dir);
}

static void secrets_are_never_shown(void **state)
{
    static const struct sh_conf_opt ONE[] = {SH_OPT_INT(struct conf, tick_ms, "pin", 77771, 0,
                                                        99999, SH_CONF_SECRET, "a secret number")};
    static const struct sh_conf_table SECRET = {.program = "p",
                                                .purpose = "P.",
                                                .opts = ONE,
                                                .n_opts = 1,
                                                .struct_bytes = sizeof(struct conf)};
    char *argv[] = {(char *)"p", (char *)"--pin=hush-hush", NULL};
    struct sh_test_capture cap;
    enum sh_conf_action action;
    struct sh_err err = {0};
    struct conf c;
    char *text;
    (void)state;

    assert_int_equal(sh_conf_load(&SECRET, &c, 2, argv, NULL, NULL, &action, &err), SH_E_INVALID);
    assert_has_not(err.msg, "hush");
    assert_has_not(err.detail, "hush");
    sh_test_capture_begin(&cap, STDOUT_FILENO);
    sh_conf_print_docs(&SECRET, stdout);
    text = sh_test_capture_end(&cap);
    assert_has_not(text, "77771");
    free(text);
    assert_ok(load(&c, NULL, "--key=hush-hush", "--addr=a b", NULL));
    sh_test_capture_begin(&cap, STDERR_FILENO);
    sh_conf_log(&TABLE, &c);
    text = sh_test_capture_end(&cap);
    assert_has(text, "ev=conf.effective tick-ms=200 cache=268435456 share=0.5 fast=true "
                     "addr=\"a b\" key=***");
    assert_has_not(text, "hush");
    free(text);
    sh_conf_free(&TABLE, &c);
}

static void help_version_and_docs_print_and_end(void **state)
{
    static const char *const ARG[] = {"--help", "-h", "--version", "--docs"};
    static const char *const SAYS[] = {"SHUNT_TICK_MS", "--no-fast", "test-prog ", "| `--cache` |"};
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(ARG); i++) {
        char *argv[] = {(char *)"test-prog", (char *)"--tick-ms=5", (char *)ARG[i], NULL};
        enum sh_conf_action action = SH_CONF_RUN;
        struct sh_test_capture cap;
        struct sh_err err = {0};
        struct conf c;
        char *text;
        int rc;

        sh_test_capture_begin(&cap, STDOUT_FILENO);
        rc = sh_conf_load(&TABLE, &c, 3, argv, NULL, NULL, &action, &err);
        text = sh_test_capture_end(&cap);
        assert_ok_err(rc, &err); /* even beside a wrong value */
        assert_int_equal(action, SH_CONF_EXIT_OK);
        assert_has(text, SAYS[i]);
        free(text);
    }
}

static void what_is_left_keeps_its_order(void **state)
{
    char *argv[] = {(char *)"p",        (char *)"--tick-ms=50",
                    (char *)"jobs",     (char *)"--no-fast",
                    (char *)"list",     (char *)"--tenant",
                    (char *)"a",        (char *)"--",
                    (char *)"--addr=x", NULL};
    enum sh_conf_action action;
    char **rest = NULL;
    int n_rest = -1;
    struct sh_err err = {0};
    struct conf c;
    (void)state;

    assert_ok_err(sh_conf_load(&TABLE, &c, 9, argv, &rest, &n_rest, &action, &err), &err);
    assert_int_equal(c.tick_ms, 50);
    assert_false(c.fast);
    assert_string_equal(c.addr, "127.0.0.1:80"); /* after "--" nothing is ours */
    assert_int_equal(n_rest, 5);
    assert_string_equal(rest[0], "jobs");
    assert_string_equal(rest[1], "list");
    assert_string_equal(rest[2], "--tenant");
    assert_string_equal(rest[3], "a");
    assert_string_equal(rest[4], "--addr=x");
    sh_conf_free(&TABLE, &c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_table),
        cmocka_unit_test(later_sources_win),
        cmocka_unit_test(of_either_the_nearer_source_counts),
        cmocka_unit_test(a_pair_has_a_direction),
        cmocka_unit_test(the_command_line_takes_every_form),
        cmocka_unit_test(a_refusal_names_option_value_source_and_range),
        cmocka_unit_test(an_option_of_another_build_is_refused_wherever_it_stands),
        cmocka_unit_test(a_wrong_file_is_refused_with_its_line),
        cmocka_unit_test(a_section_counts_if_it_is_named),
        cmocka_unit_test(a_section_of_the_command_line_wins_over_the_environment),
        cmocka_unit_test(secrets_are_never_shown),
        cmocka_unit_test(help_version_and_docs_print_and_end),
        cmocka_unit_test(what_is_left_keeps_its_order),
    };

    return cmocka_run_group_tests_name("conf", tests, NULL, NULL);
}
