/* test_files.c - which files an executor on another host may write, and which checkpoint stands in
 * for one that was replaced.
 *
 * Without it a name could lead out of the job's folder, or a job could go on from an old step.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/files/job_folder.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void only_what_a_job_leaves_is_a_name(void **state)
{
    static const struct {
        const char *name;
        bool is_good;
        int64_t step;
    } CASES[] = {
        {"losses.json", true, -1},
        {"log.txt", true, -1},
        {"log.txt.tmp", false, 0},
        {"final.safetensors", true, -1},
        {"trained.onnx", true, -1},
        {"result.safetensors", true, -1},
        {"ckpt-0.safetensors", true, 0},
        {"ckpt-120.safetensors", true, 120},
        {"ckpt-0120.safetensors", false, 0},
        {"ckpt--1.safetensors", false, 0},
        {"ckpt- 1.safetensors", false, 0},
        {"ckpt-.safetensors", false, 0},
        {"ckpt-1.safetensors.tmp", false, 0},
        {"ckpt-99999999999999999999.safetensors", false, 0},
        {"result-0123.part", false, 0},
        {"../losses.json", false, 0},
        {"", false, 0},
        {".", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        int64_t step;

        if (job_folder_is_name(CASES[i].name, &step) != CASES[i].is_good)
            fail_msg("\"%s\" is taken for %s name", CASES[i].name, CASES[i].is_good ? "no" : "a");
        if (CASES[i].is_good)
            assert_int_equal(step, CASES[i].step);
    }
}

static void put(const char *dir, const char *name)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void the_newest_checkpoint_is_that_of_the_greatest_step(void **state)
{
    static const char *const NAMES[] = {"ckpt-9.safetensors", "ckpt-100.safetensors",
                                        "ckpt-20.safetensors", "ckpt-700.safetensors.tmp",
                                        "losses.json"};
    char dir[] = "/tmp/shunt-files-XXXXXX", path[128];

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(job_folder_newest(dir, INT64_MAX), -1);
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        put(dir, NAMES[i]);
    assert_int_equal(job_folder_newest(dir, INT64_MAX), 100);
    assert_int_equal(job_folder_newest(dir, 100), 20);
    assert_int_equal(job_folder_newest(dir, 9), -1);
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, NAMES[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(job_folder_newest(dir, INT64_MAX), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_a_job_leaves_is_a_name),
        cmocka_unit_test(the_newest_checkpoint_is_that_of_the_greatest_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
