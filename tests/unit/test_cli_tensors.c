/* test_cli_tensors.c - Without it: `shunt infer` could send rows of the wrong offset, or report the
 * accuracy of another row's answer; a broken answer could make it read past its end. */
/* uses: cli/data/tensors.o cli/data/number.o */
#include "cli/data/number.h"
#include "cli/data/tensors.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

static json_t *wanted(void)
{
    return json_pack("[{s:s, s:s, s:[i,i]}]", "name", "x", "datatype", "FP32", "shape", -1, 2);
}

/* A file with x[4][2] = 0 1 2 ... 7. */
static char *make_file(char dir[static SH_TEST_DIR_BYTES])
{
    float v[8];
    char *path = NULL;
    struct sh_st_tensor t = {
        .name = "x", .dtype = SH_F32, .rank = 2, .dims = {4, 2}, .data = v, .bytes = sizeof(v)};

    for (int i = 0; i < 8; i++)
        v[i] = (float)i;
    sh_test_dir_make(dir);
    assert_ok(sh_asprintf(NULL, &path, "%s/in.safetensors", dir));
    assert_ok(sh_st_write(path, &t, 1, NULL, NULL));
    return path;
}

static void a_request_holds_the_rows_that_were_asked_for(void **state)
{
    char dir[SH_TEST_DIR_BYTES], *path = make_file(dir);
    json_t *w = wanted(), *head = NULL;
    struct tensors t;
    struct sh_buf b;
    size_t json_len = 0;
    float v[4];
    (void)state;

    sh_buf_init(&b, 4096);
    assert_ok(tensors_from_file(path, w, &t, NULL));
    assert_int_equal(t.rows, 4);
    assert_ok(tensors_encode(&t, 1, 2, &b, &json_len, NULL));
    assert_int_equal(b.len, json_len + sizeof(v));
    memcpy(v, b.data + json_len, sizeof(v));
    for (int i = 0; i < 4; i++)
        assert_true(v[i] == (float)(2 + i));
    assert_ok(sh_json_parse(b.data, json_len, 4096, &head, NULL));
    assert_int_equal(
        json_integer_value(json_array_get(
            json_object_get(json_array_get(json_object_get(head, "inputs"), 0), "shape"), 0)),
        2);
    json_decref(head);
    json_decref(w);
    sh_buf_fini(&b);
    tensors_fini(&t);
    free(path);
    sh_test_dir_remove(dir);
}

static void a_missing_input_is_named(void **state)
{
    char dir[SH_TEST_DIR_BYTES], *path = make_file(dir);
    json_t *w = json_pack("[{s:s}]", "name", "pixels");
    struct sh_err err = {0};
    struct tensors t;
    (void)state;

    assert_fails(tensors_from_file(path, w, &t, &err), SH_E_INVALID, &err, "\"pixels\"");
    json_decref(w);
    free(path);
    sh_test_dir_remove(dir);
}

static int answer(struct tensors *t, int rows, const float *v, size_t n, struct sh_err *err)
{
    char body[512];
    int len = snprintf(body, sizeof(body),
                       "{\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[%d,3],"
                       "\"parameters\":{\"binary_data_size\":%d}}]}",
                       rows, rows * 12);

    memcpy(body + len, v, n * sizeof(*v));
    return tensors_append(t, body, (size_t)len + n * sizeof(*v), len, 1000, err);
}

static void answers_are_put_together_in_order(void **state)
{
    const float a[] = {0, 5, 1, 9, -1, 2}, b[] = {-3, -2, -1};
    struct tensors t = {0};
    (void)state;

    assert_ok(answer(&t, 2, a, 6, NULL));
    assert_ok(answer(&t, 1, b, 3, NULL));
    assert_int_equal(t.rows, 3);
    assert_int_equal(tensor_argmax(&t.list[0], 0), 1);
    assert_int_equal(tensor_argmax(&t.list[0], 1), 0);
    assert_int_equal(tensor_argmax(&t.list[0], 2), 2);
    tensors_fini(&t);
}

static void a_broken_answer_is_refused(void **state)
{
    const float v[6] = {0};
    struct tensors t = {0};
    struct sh_err err = {0};
    (void)state;

    assert_fails(answer(&t, 2, v, 5, &err), SH_E_PROTO, &err, "without its bytes");
    tensors_fini(&t);
    err = (struct sh_err){0};
    assert_fails(tensors_append(&t, "{}", 2, 3, 100, &err), SH_E_PROTO, &err, "shorter");
    err = (struct sh_err){0};
    assert_int_equal(tensors_append(&t, "{", 1, 1, 100, &err), SH_E_INVALID);
    tensors_fini(&t);
}

static void more_outputs_than_allowed_are_refused(void **state)
{
    const float v[300] = {0};
    struct tensors t = {0};
    struct sh_err err = {0};
    (void)state;

    assert_ok(answer(&t, 20, v, 60, NULL));
    for (int i = 0; i < 3; i++)
        assert_ok(answer(&t, 20, v, 60, NULL));
    assert_fails(answer(&t, 20, v, 60, &err), SH_E_TOOBIG, &err, "1000 bytes");
    tensors_fini(&t);
}

static void random_inputs_are_the_same_for_the_same_seed(void **state)
{
    json_t *w = wanted();
    struct tensors a, b, c;
    (void)state;

    assert_ok(tensors_random(w, 3, NULL, 0, 7, &a, NULL));
    assert_ok(tensors_random(w, 3, NULL, 0, 7, &b, NULL));
    assert_ok(tensors_random(w, 3, NULL, 0, 8, &c, NULL));
    assert_memory_equal(a.list[0].data, b.list[0].data, 24);
    assert_memory_not_equal(a.list[0].data, c.list[0].data, 24);
    tensors_fini(&a);
    tensors_fini(&b);
    tensors_fini(&c);
    json_decref(w);
}

static void sizes_are_refused_where_none_is_open(void **state)
{
    const int64_t size = 5;
    json_t *w = wanted(), *open = json_pack("[{s:s, s:s, s:[i,i]}]", "name", "x", "datatype",
                                            "FP32", "shape", -1, -1);
    struct sh_err err = {0};
    struct tensors t;
    (void)state;

    assert_fails(tensors_random(w, 3, &size, 1, 7, &t, &err), SH_E_INVALID, &err, "no size open");
    assert_ok(tensors_random(open, 3, &size, 1, 7, &t, NULL));
    assert_int_equal(t.list[0].dims[1], 5);
    tensors_fini(&t);
    json_decref(w);
    json_decref(open);
}

static void random_inputs_are_of_every_type(void **state)
{
    (void)state;
    for (int type = 0; type < SH_N_DTYPES; type++) {
        json_t *w = json_pack("[{s:s, s:s, s:[i,i]}]", "name", "x", "datatype",
                              sh_dtype_v2((enum sh_dtype)type), "shape", -1, 50);
        struct sh_err err = {0};
        struct tensors t;
        double sum = 0;

        assert_ok_err(tensors_random(w, 2, NULL, 0, 7, &t, &err), &err);
        for (size_t i = 0; i < 100; i++) {
            double v = number_get((enum sh_dtype)type, t.list[0].data, i);

            assert_true(number_is_float((enum sh_dtype)type) ? v >= -1 && v <= 1
                                                             : v >= 0 && v < 100);
            assert_true(type != SH_BOOL || v <= 1);
            sum += v * v;
        }
        assert_true(sum > 10); /* they are not all 0 */
        tensors_fini(&t);
        json_decref(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_holds_the_rows_that_were_asked_for),
        cmocka_unit_test(a_missing_input_is_named),
        cmocka_unit_test(answers_are_put_together_in_order),
        cmocka_unit_test(a_broken_answer_is_refused),
        cmocka_unit_test(more_outputs_than_allowed_are_refused),
        cmocka_unit_test(random_inputs_are_the_same_for_the_same_seed),
        cmocka_unit_test(random_inputs_are_of_every_type),
        cmocka_unit_test(sizes_are_refused_where_none_is_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
