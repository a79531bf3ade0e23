/* test_files.c - which files an executor on another host may write.
 *
 * Without it a name could lead out of the job's folder, or into the files of another executor.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/files/job_folder.h"
#include "tests/unit/sh_test.h"

#include <stdio.h>

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
        {"ckpt-7-gpu0.safetensors", true, 7},
        {"ckpt-7-gpu0/../x.safetensors", false, 0},
        {"ckpt-7-gpu0.safetensors.part", false, 0},
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

static void an_executor_sends_checkpoints_of_its_own_name_alone(void **state)
{
    static const struct {
        const char *name;
        int rc;
    } CASES[] = {
        {"ckpt-7-gpu0.safetensors", SH_OK},         {"ckpt-7-gpu1.safetensors", SH_E_INVALID},
        {"ckpt-7.safetensors", SH_E_INVALID},       {"losses.json", SH_OK},
        {"ckpt-x-gpu0.safetensors", SH_E_NOTFOUND},
    };
    const struct store_owner o = {.job = "1", .executor = "gpu0", .attempt = "1"};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[64];
        struct api_req q = {.params = {NULL, name}};
        int64_t step;

        snprintf(name, sizeof(name), "%s", CASES[i].name);
        assert_int_equal(job_folder_own_name(&q, &o, &step, NULL), CASES[i].rc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_a_job_leaves_is_a_name),
        cmocka_unit_test(an_executor_sends_checkpoints_of_its_own_name_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
