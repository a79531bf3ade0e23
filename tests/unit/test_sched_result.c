/* test_sched_result.c - what an executor says of a job that is done.
 *
 * Without it: a job could succeed and leave nothing, or what only a version needs could stand in
 * the result that people read. */
/* uses: scheduler/jobs/result.o */
#include "scheduler/jobs/result.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

#define REST "123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIGEST "0" REST
#define FILE_OF "\"digest\":\"" DIGEST "\",\"bytes\":9"
#define VERSION_OF                                                                   \
    "\"package_digest\":\"" DIGEST "\",\"package\":\"packages/x\",\"onnx_bytes\":9," \
    "\"meta\":{\"ok\":true,\"inputs\":[1],\"outputs\":[2],\"opset\":18}"

static void a_result_names_what_the_job_leaves(void **state)
{
    static const struct {
        const char *text;
        bool is_version, is_good;
    } CASES[] = {
        {"{" FILE_OF "}", false, true},
        {"{" FILE_OF "}", true, false},
        {"{" FILE_OF "," VERSION_OF "}", true, true},
        {"{" VERSION_OF "}", false, false},
        {"{\"package_digest\":\"" DIGEST "\"}", true, false},
        {"{\"digest\":\"" DIGEST "0\"}", false, false},
        {"{\"digest\":\"../../etc\"}", false, false},
        {"{\"digest\":\"x" REST "\"}", false, false},
        {"{\"digest\":7}", false, false},
        {"[]", false, false},
        {"", false, false},
        {"{", true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct sh_err err = {0};
        int rc = result_check(CASES[i].text, CASES[i].is_version, &err);

        if ((rc == SH_OK) != CASES[i].is_good)
            fail_msg("%s as a version: %d -> %d \"%s\"", CASES[i].text, CASES[i].is_version, rc,
                     err.msg);
    }
}

static void clear(struct store_write *w)
{
    free(w->result);
    free(w->version.digest);
    free(w->version.package);
    free(w->version.inputs);
    free(w->version.outputs);
    free(w->version.meta);
    *w = (struct store_write){0};
}

static void a_version_takes_what_it_needs_and_the_rest_is_the_result(void **state)
{
    struct store_write w = {0};
    struct sh_err err = {0};
    (void)state;

    assert_ok_err(result_split(&w, "{\"accuracy\":null," FILE_OF "," VERSION_OF "}", &err), &err);
    assert_string_equal(w.version.digest, DIGEST);
    assert_string_equal(w.version.package, "packages/" DIGEST);
    assert_string_equal(w.version.inputs, "[1]");
    assert_string_equal(w.version.outputs, "[2]");
    assert_string_equal(w.version.meta, "{\"opset\":18}");
    assert_int_equal(w.version.bytes, 9);
    assert_string_equal(w.result, "{\"accuracy\":null,\"bytes\":9,\"digest\":\"" DIGEST "\"}");
    clear(&w);
    assert_ok_err(result_split(&w, "{\"samples\":3," FILE_OF "}", &err), &err);
    assert_null(w.version.digest);
    assert_string_equal(w.result, "{\"bytes\":9,\"digest\":\"" DIGEST "\",\"samples\":3}");
    clear(&w);
    assert_int_equal(result_split(&w, "{", &err), SH_E_INVALID);
    clear(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_names_what_the_job_leaves),
        cmocka_unit_test(a_version_takes_what_it_needs_and_the_rest_is_the_result),
    };

    return cmocka_run_group_tests_name("result of a job", tests, NULL, NULL);
}
