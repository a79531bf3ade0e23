/* test_arrayspec.c - without it, a range of indices could be read wrongly, run out of its list or
 * name an index twice, and the jobs of an array could all be the same one. */
/* uses: api/spec/arrayspec.o api/spec/gridspec.o api/spec/jobtext.o */
#include "api/spec/arrayspec.h"
#include "api/spec/gridspec.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <stdio.h>

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

static int64_t at_seven[] = {7};
static const struct arrayspec seven = {.indices = at_seven, .n_indices = 1, .n_combinations = 1};

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
    assert_ok(arrayspec_job_at(&seven, template, 0, &job, NULL));
    assert_true(json_equal(job, want));
    json_decref(job);
    json_object_del(json_object_get(template, "spec"), "seed");
    assert_ok(arrayspec_job_at(&seven, template, 0, &job, NULL));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(job, "spec"), "seed")), 7);
    json_decref(job);
    json_object_set_new(json_object_get(template, "spec"), "seed", json_integer(INT64_MAX - 6));
    assert_ok(
        arrayspec_job_at(&seven, template, 0, &job, NULL)); /* too large: jobspec_read() says so */
    assert_int_equal(json_integer_value(json_object_get(json_object_get(job, "spec"), "seed")),
                     INT64_MAX - 6);
    json_decref(job);
    json_object_del(json_object_get(template, "spec"), "seed");
    json_object_set_new(template, "kind", json_string("batch_inference")); /* it has no seed */
    assert_ok(arrayspec_job_at(&seven, template, 0, &job, NULL));
    assert_null(json_object_get(json_object_get(job, "spec"), "seed"));
    json_decref(job);
    json_decref(want);
    json_decref(template);
}

static json_t *load(const char *text)
{
    json_t *j = json_loads(text, 0, NULL);

    assert_non_null(j);
    return j;
}

static void a_grid_is_every_combination_with_every_index(void **state)
{
    static const char *const NAMES[] = {"n lr=0.1 batch=16", "n lr=0.1 batch=32",
                                        "n lr=0.01 batch=16", "n lr=0.01 batch=32"};
    json_t *grid = load("{\"optimizer.lr\": [0.1, 0.01], \"batch\": [16, 32]}");
    json_t *template =
        load("{\"kind\": \"training\", \"name\": \"n\", \"labels\": {\"l\": \"{lr}-{index}\"},"
             " \"spec\": {\"seed\": 5, \"optimizer\": {\"name\": \"sgd\", \"lr\": 9}}}");
    int64_t indices[] = {1, 3};
    struct arrayspec a = {.grid = grid, .indices = indices, .n_indices = 2};

    (void)state;
    assert_ok(gridspec_count(grid, 1000, &a.n_combinations, NULL));
    assert_int_equal(a.n_combinations, 4);
    for (size_t i = 0; i < 8; i++) {
        json_t *job = NULL, *spec, *labels;
        char label[32];

        assert_ok(arrayspec_job_at(&a, template, i, &job, NULL));
        assert_int_equal(arrayspec_number(&a, i), (int64_t)(i / 2 * 4) + indices[i % 2]);
        spec = json_object_get(job, "spec");
        labels = json_object_get(job, "labels");
        assert_true(json_number_value(json_object_get(json_object_get(spec, "optimizer"), "lr")) ==
                    (i < 4 ? 0.1 : 0.01));
        assert_int_equal(json_integer_value(json_object_get(spec, "batch")), i / 2 % 2 ? 32 : 16);
        assert_int_equal(json_integer_value(json_object_get(spec, "seed")), 5 + indices[i % 2]);
        assert_string_equal(sh_json_text(job, "name"), NAMES[i / 2]);
        assert_string_equal(sh_json_text(labels, "lr"), i < 4 ? "0.1" : "0.01");
        assert_string_equal(sh_json_text(labels, "batch"), i / 2 % 2 ? "32" : "16");
        snprintf(label, sizeof(label), "%s-%d", i < 4 ? "0.1" : "0.01",
                 (int)arrayspec_number(&a, i));
        assert_string_equal(sh_json_text(labels, "l"), label);
        json_decref(job);
    }
    json_decref(grid);
    json_decref(template);
}

static void a_grid_fills_what_its_template_leaves_out(void **state)
{
    json_t *grid =
        load("{\"lr\": [0.5], \"steps\": [7], \"shuffle\": [false], \"loss\": [\"mse\"]}");
    json_t *template = load("{\"name\": \"{lr} {loss}\", \"labels\": null, \"spec\": {}}");
    json_t *want = load("{\"name\": \"0.5 mse\", \"labels\": {\"lr\": \"0.5\", \"steps\": \"7\","
                        " \"shuffle\": \"false\", \"loss\": \"mse\"}, \"spec\": {\"optimizer\":"
                        " {\"lr\": 0.5}, \"steps\": 7, \"shuffle\": false, \"loss\": \"mse\"}}");
    json_t *job = json_deep_copy(template);

    (void)state;
    assert_ok(gridspec_apply(grid, 0, job, NULL));
    assert_true(json_equal(job, want));
    json_decref(job);
    job = load("{\"labels\": {\"lr\": \"mine\"}, \"spec\": {}}");
    assert_int_equal(gridspec_apply(grid, 0, job, NULL), SH_E_INVALID);
    json_decref(job);
    job = load("{\"name\": 3, \"labels\": [], \"spec\": [], \"kind\": {}}"); /* refused later */
    assert_ok(gridspec_apply(grid, 0, job, NULL));
    json_decref(job);
    json_decref(template);
    json_decref(want);
    json_decref(grid);
}

/* What may be a name or an object with it is made of both, whichever comes first. */
static void a_name_and_its_options_become_one_object(void **state)
{
    static const char *const GRIDS[] = {
        "{\"schedule\": [\"cosine\"], \"schedule.warmup_steps\": [5]}",
        "{\"schedule.warmup_steps\": [5], \"schedule\": [\"cosine\"]}"};
    json_t *want = load("{\"schedule\": {\"name\": \"cosine\", \"warmup_steps\": 5}}");

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(GRIDS); i++) {
        json_t *grid = load(GRIDS[i]), *job = load("{\"spec\": {}}");

        assert_ok(gridspec_apply(grid, 0, job, NULL));
        assert_true(json_equal(json_object_get(job, "spec"), want));
        json_decref(grid);
        json_decref(job);
    }
    json_decref(want);
}

static void the_values_of_a_grid_are_in_the_name_as_far_as_there_is_room(void **state)
{
    json_t *grid = load("{\"optimizer.lr\": [0.000123456789], \"momentum\": [0.912345678901],"
                        " \"weight_decay\": [0.000123456789], \"batch\": [16], \"epochs\": [3],"
                        " \"labels\": [\"\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
                        "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\"],"
                        " \"loss\": [\"cross-entropy\"]}");
    json_t *job = load("{\"name\": \"a sweep\", \"spec\": {}}");

    (void)state;
    assert_ok(gridspec_apply(grid, 0, job, NULL));
    assert_int_equal(sh_utf8_count(sh_json_text(job, "name")), 128);
    assert_non_null(strstr(sh_json_text(job, "name"), "a sweep lr=0.000123456789 momentum=0.9"));
    assert_string_equal(strrchr(sh_json_text(job, "name"), '.'), ".");
    assert_string_equal(sh_json_text(json_object_get(job, "labels"), "loss"), "cross-entropy");
    json_decref(job);
    json_decref(grid);
}

static void a_value_of_a_grid_can_be_a_label(void **state)
{
    struct sh_err err = {0};
    char text[3 * 129 + 1] = "";
    json_t *grid, *job = load("{\"spec\": {}}");
    size_t n;

    (void)state;
    for (size_t i = 0; i < 128; i++)
        memcpy(text + 3 * i, "\xe4\xb8\xad", 4);
    grid = json_pack("{s:[s]}", "labels", text);
    assert_ok(gridspec_count(grid, 1000, &n, NULL));
    assert_ok(gridspec_apply(grid, 0, job, NULL));
    assert_string_equal(sh_json_text(json_object_get(job, "labels"), "labels"), text);
    json_decref(grid);
    text[3 * 128] = 'x';
    grid = json_pack("{s:[s]}", "labels", text);
    assert_fails(gridspec_count(grid, 1000, &n, &err), SH_E_INVALID, &err, "128 characters");
    json_decref(grid);
    json_decref(job);
}

static void what_is_no_grid_is_refused(void **state)
{
    static const char *const BAD[] = {
        "{}",
        "{\"lr\": []}",
        "{\"lr\": 0.1}",
        "{\"lr\": [0.1, [0.2]]}",
        "{\"lr\": [null]}",
        "{\"lr\": [0.1, 0.1]}",
        "{\"lr\": [0.1], \"optimizer.lr\": [0.2]}",
        "{\"\": [1]}",
        "{\"a.b.c\": [1]}",
        "{\"a.\": [1]}",
        "{\".a\": [1]}",
        "{\"LR\": [1]}",
        "{\"a b\": [1]}",
        "{\"a\": [1,2,3,4,5,6,7,8], \"b\": [1,2,3,4,5,6,7,8], \"c\": [1,2,3,4,5,6,7,8]}",
    };
    size_t n;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        json_t *grid = load(BAD[i]);
        struct sh_err err = {0};
        int rc = gridspec_count(grid, 100, &n, &err);

        if (rc != (i + 1 == SH_ARRAY_LEN(BAD) ? SH_E_TOOBIG : SH_E_INVALID))
            fail_msg("%s -> %s", BAD[i], sh_rc_name(rc));
        json_decref(grid);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_are_read_as_slurm_writes_them),
        cmocka_unit_test(what_is_no_list_of_indices_is_refused),
        cmocka_unit_test(the_index_is_put_into_name_labels_and_seed),
        cmocka_unit_test(a_grid_is_every_combination_with_every_index),
        cmocka_unit_test(a_grid_fills_what_its_template_leaves_out),
        cmocka_unit_test(a_name_and_its_options_become_one_object),
        cmocka_unit_test(the_values_of_a_grid_are_in_the_name_as_far_as_there_is_room),
        cmocka_unit_test(a_value_of_a_grid_can_be_a_label),
        cmocka_unit_test(what_is_no_grid_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
