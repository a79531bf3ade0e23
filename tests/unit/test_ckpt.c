/* test_ckpt.c - the names of checkpoints.
 *
 * Without it two executors could write one file, or a job could go on from an old step.
 */
#include "common/ckpt.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <stdio.h>

static void a_name_says_a_step(void **state)
{
    static const struct {
        const char *name;
        int64_t step, part;
    } CASES[] = {
        {"ckpt-0.safetensors", 0, 0},
        {"ckpt-120.safetensors", 120, 120},
        {"ckpt-120-gpu0.safetensors", 120, 120},
        {"ckpt-999999999999999999-a.b_c-d.safetensors", 999999999999999999, 999999999999999999},
        {"ckpt-5-x.safetensors.safetensors", 5, 5},
        {"ckpt-5-.safetensors", -1, 5},
        {"ckpt-5--x.safetensors", -1, 5},
        {"ckpt-5-a b.safetensors", -1, 5},
        {"ckpt-5-a/b.safetensors", -1, 5},
        {"ckpt-5x.safetensors", -1, 5},
        {"ckpt-5-gpu0.safetensors.tmp-Ab12Xy", -1, 5},
        {"ckpt-5.safetensors.part", -1, 5},
        {"ckpt-5-gpu0.json", -1, -1},
        {"ckpt-0120.safetensors", -1, -1},
        {"ckpt--1.safetensors", -1, -1},
        {"ckpt- 1.safetensors", -1, -1},
        {"ckpt-+1.safetensors", -1, -1},
        {"ckpt-.safetensors", -1, -1},
        {"ckpt-1000000000000000000.safetensors", -1, -1},
        {"final.safetensors", -1, -1},
        {"ckpt-5", -1, -1},
        {"ckpt", -1, -1},
        {"", -1, -1},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        if (sh_ckpt_step(CASES[i].name) != CASES[i].step)
            fail_msg("%s is of step %lld", CASES[i].name, (long long)sh_ckpt_step(CASES[i].name));
        if (sh_ckpt_part_step(CASES[i].name) != CASES[i].part)
            fail_msg("%s is a part of step %lld", CASES[i].name,
                     (long long)sh_ckpt_part_step(CASES[i].name));
    }
}

static void what_one_executor_writes_no_other_one_does(void **state)
{
    const char *const NAMES[] = {
        "a",  "b",   "a-1",
        "a.", "a.b", "a123456789b123456789c123456789d123456789e123456789f123456789g12"};
    char names[SH_ARRAY_LEN(NAMES)][SH_CKPT_BYTES];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        assert_true(sh_ckpt_is_executor(NAMES[i]));
        sh_ckpt_name(names[i], 12, NAMES[i]);
        assert_int_equal(sh_ckpt_step(names[i]), 12);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(names[i], names[k]);
    }
}

static void what_would_be_no_name_is_no_executor(void **state)
{
    const char *const BAD[] = {"",
                               ".a",
                               "-a",
                               "_a",
                               "a/b",
                               "a b",
                               "a\n",
                               "\xc3\xa4",
                               "a123456789b123456789c123456789d123456789"
                               "e123456789f123456789g123"};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        if (sh_ckpt_is_executor(BAD[i]))
            fail_msg("\"%s\" is a name", BAD[i]);
}

static void the_newest_is_that_of_the_greatest_step(void **state)
{
    static const char *const NAMES[] = {"ckpt-9.safetensors",    "ckpt-100-gpu1.safetensors",
                                        "ckpt-100.safetensors",  "ckpt-20-b.safetensors",
                                        "ckpt-20-a.safetensors", "ckpt-700-a.safetensors.tmp",
                                        "losses.json",           "ckpt-0800-gpu0.safetensors"};
    char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 64], name[SH_CKPT_BYTES];

    (void)state;
    sh_test_dir_make(dir);
    assert_int_equal(sh_ckpt_newest(dir, INT64_MAX, name), -1);
    assert_string_equal(name, "");
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, NAMES[i]);
        sh_test_write_file(path, "", 0);
    }
    assert_int_equal(sh_ckpt_newest(dir, INT64_MAX, name), 100);
    assert_string_equal(name, "ckpt-100.safetensors");
    assert_int_equal(sh_ckpt_newest(dir, 100, name), 20);
    assert_string_equal(name, "ckpt-20-b.safetensors");
    assert_int_equal(sh_ckpt_newest(dir, 9, name), -1);
    sh_test_dir_remove(dir);
    assert_int_equal(sh_ckpt_newest(dir, INT64_MAX, name), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_says_a_step),
        cmocka_unit_test(what_one_executor_writes_no_other_one_does),
        cmocka_unit_test(what_would_be_no_name_is_no_executor),
        cmocka_unit_test(the_newest_is_that_of_the_greatest_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
