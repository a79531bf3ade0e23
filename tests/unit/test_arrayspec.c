/* test_arrayspec.c - without it, a range of indices could be read wrongly, run out of its list or
 * name an index twice, and the jobs of an array could all be the same one. */
/* uses: api/arrayspec.o */
#include "api/arrayspec.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#define MAX 16

static void indices_are_read_as_slurm_writes_them(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        int64_t first, last;
    } CASES[] = {{"0", 1, 0, 0},       {"0-9", 10, 0, 9},
                 {"0-9:3", 4, 0, 9},   {"5-6", 2, 5, 6},
                 {"9,1,5-6", 4, 1, 9}, {"0-8:5", 2, 0, 5},
                 {"7-7", 1, 7, 7},     {"1000000", 1, 1000000, 1000000}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        int64_t out[MAX];
        size_t n = 0;

        assert_ok(arrayspec_indices(CASES[i].text, out, MAX, &n, NULL));
        assert_int_equal(n, CASES[i].n);
        assert_int_equal(out[0], CASES[i].first);
        assert_int_equal(out[n - 1], CASES[i].last);
    }
}

static void what_is_no_list_of_indices_is_refused(void **state)
{
    static const char *const BAD[] = {"",
                                      "a",
                                      "-1",
                                      "3-1",
                                      "1-",
                                      "1-2-3",
                                      "1:2",
                                      "1,",
                                      ",1",
                                      "1,,2",
                                      "0-4:0",
                                      "1 2",
                                      "0-4:",
                                      "1000001",
                                      "0x1",
                                      "1%2",
                                      "99999999999999999999"};
    int64_t out[MAX];
    size_t n;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_err err = {0};

        assert_fails(arrayspec_indices(BAD[i], out, MAX, &n, &err), SH_E_INVALID, &err, "0-99");
    }
    {
        struct sh_err err = {0};

        assert_fails(arrayspec_indices("1,0-4", out, MAX, &n, &err), SH_E_INVALID, &err,
                     "1 is there");
    }
    {
        struct sh_err err = {0};

        assert_fails(arrayspec_indices("0-1000000", out, MAX, &n, &err), SH_E_TOOBIG, &err,
                     "16 jobs");
    }
}

static void the_index_is_put_into_name_labels_and_seed(void **state)
{
    json_t *template = json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:i}}", "kind", "training", "name",
                                 "run-{index}-of-{index}{", "labels", "part", "p{index}", "same",
                                 "{x}", "spec", "seed", 100);
    json_t *want =
        json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:i}}", "kind", "training", "name", "run-7-of-7{",
                  "labels", "part", "p7", "same", "{x}", "spec", "seed", 107);
    json_t *job = NULL;

    (void)state;
    assert_ok(arrayspec_job(template, 7, &job, NULL));
    assert_true(json_equal(job, want));
    json_decref(job);
    json_object_del(json_object_get(template, "spec"), "seed");
    assert_ok(arrayspec_job(template, 7, &job, NULL));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(job, "spec"), "seed")), 7);
    json_decref(job);
    json_object_set_new(json_object_get(template, "spec"), "seed", json_integer(INT64_MAX - 6));
    assert_ok(arrayspec_job(template, 7, &job, NULL)); /* too large: jobspec_read() says so */
    assert_int_equal(json_integer_value(json_object_get(json_object_get(job, "spec"), "seed")),
                     INT64_MAX - 6);
    json_decref(job);
    json_object_del(json_object_get(template, "spec"), "seed");
    json_object_set_new(template, "kind", json_string("batch_inference")); /* it has no seed */
    assert_ok(arrayspec_job(template, 7, &job, NULL));
    assert_null(json_object_get(json_object_get(job, "spec"), "seed"));
    json_decref(job);
    json_decref(want);
    json_decref(template);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_are_read_as_slurm_writes_them),
        cmocka_unit_test(what_is_no_list_of_indices_is_refused),
        cmocka_unit_test(the_index_is_put_into_name_labels_and_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
