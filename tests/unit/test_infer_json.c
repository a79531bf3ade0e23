/* test_infer_json.c - bodies of inference requests: numbers to bytes and back, every refusal.
 *
 * Without it a tensor of the wrong length could reach a worker, a number could change on its way
 * through JSON, or a client would be told nothing of use.
 */
/* uses: api/infer/infer_plan.o api/infer/infer_json.o */
#include "api/infer/infer_plan.h"
#include "common/buf.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <float.h>
#include <math.h>

static struct cat_tensor ins[2] = {
    {.name = "x", .dtype = SH_F32, .rank = 2, .dims = {-1, 2}},
    {.name = "k", .dtype = SH_I64, .rank = 1, .dims = {-1}},
};
static struct cat_tensor outs[1] = {{.name = "y", .dtype = SH_F32, .rank = 2, .dims = {-1, 2}}};
static const struct cat_version MODEL = {.version = 3,
                                         .max_batch = 4,
                                         .model = "m",
                                         .inputs = ins,
                                         .n_inputs = 2,
                                         .outputs = outs,
                                         .n_outputs = 1,
                                         .batched = true,
                                         .ready = true,
                                         .usable = true};

static int read_all(const char *json, const char *binary, size_t n, struct infer_plan *p,
                    struct sh_err *err)
{
    static char body[4096];
    size_t len = strlen(json);

    memcpy(body, json, len);
    if (n)
        memcpy(body + len, binary, n);
    *p = (struct infer_plan){0};
    return plan_read(&MODEL, body, len + n, len, &(struct plan_limits){sizeof(body), 8}, p, err);
}

#define X "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],"
#define XJ X "\"data\":[1,2]}"
#define XB X "\"parameters\":{\"binary_data_size\":8}}"
#define K "{\"name\":\"k\",\"datatype\":\"INT64\",\"shape\":[1],"
#define KJ K "\"data\":[5]}"
#define KB K "\"parameters\":{\"binary_data_size\":8}}"

static void json_and_binary_inputs_may_be_mixed(void **state)
{
    struct sh_err err = {0};
    struct infer_plan p;

    (void)state;
    assert_ok_err(read_all("{\"id\":\"a\",\"inputs\":[" KB "," XJ "]}", "12345678", 8, &p, &err),
                  &err);
    assert_int_equal(p.batch, 1);
    assert_string_equal(p.id, "a");
    assert_non_null(p.in[0].data);
    assert_null(p.in[0].binary);
    assert_memory_equal(p.in[1].binary, "12345678", 8);
    assert_int_equal(p.n_out, 1);
    assert_false(p.out[0].binary);
    plan_fini(&p);
}

static void binary_bytes_belong_to_the_inputs_in_their_order(void **state)
{
    struct sh_err err = {0};
    struct infer_plan p;

    (void)state;
    assert_ok_err(read_all("{\"inputs\":[" KB "," XB "]}", "kkkkkkkkxxxxxxxx", 16, &p, &err), &err);
    assert_memory_equal(p.in[0].binary, "xxxxxxxx", 8);
    assert_memory_equal(p.in[1].binary, "kkkkkkkk", 8);
    plan_fini(&p);
}

static void every_mistake_is_named(void **state)
{
    static const struct {
        const char *json;
        int rc;
        const char *text;
        size_t n_binary;
    } BAD[] = {
        {"", SH_E_INVALID, "line 1", 0},
        {"[]", SH_E_INVALID, "must be an object", 0},
        {"{}", SH_E_INVALID, "\"inputs\" is missing", 0},
        {"{\"inputs\":[]}", SH_E_INVALID, "inputs", 0},
        {"{\"inputs\":[1]}", SH_E_INVALID, "must be an object", 0},
        {"{\"inputs\":[" XJ "]}", SH_E_INVALID, "\"k\" is missing", 0},
        {"{\"inputs\":[" XJ "," XJ "]}", SH_E_INVALID, "twice", 0},
        {"{\"inputs\":[" XB "," KB "]}", SH_E_INVALID, "0 of its 8 bytes", 8},
        {"{\"inputs\":[" XB "," KB "]}", SH_E_INVALID, "1 bytes more", 17},
        {"{\"inputs\":[" X "\"data\":[1,2],\"parameters\":{\"binary_data_size\":8}}]}",
         SH_E_INVALID, "either \"data\"", 0},
        {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2]}]}", SH_E_INVALID,
         "either \"data\"", 0},
        {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP33\",\"shape\":[1,2]}]}", SH_E_INVALID,
         "FP33, the model wants FP32", 0},
        {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,3]}]}", SH_E_INVALID,
         "[1,3], the model wants [-1,2]", 0},
        {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,2]}]}", SH_E_INVALID,
         "whole numbers", 0},
        {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[5,2]}]}", SH_E_INVALID,
         "1 to 4", 0},
        {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[9223372036854775807,2]}]}",
         SH_E_INVALID, "1 to 4", 0},
        {"{\"inputs\":[" XJ "," KJ "],\"outputs\":[{\"name\":\"z\"}]}", SH_E_INVALID,
         "no output \"z\"", 0},
        {"{\"inputs\":[" XJ "," KJ "],\"parameters\":{\"sequence_id\":3}}", SH_E_UNSUPPORTED,
         "sequences", 0},
        {"{\"inputs\":[" XJ "," KJ "],\"parameters\":{\"a\":[1]}}", SH_E_INVALID, "\"a\"", 0},
        {"{\"inputs\":[" XJ "," KJ "],\"x\":1}", SH_E_INVALID, "\"x\" is not a known", 0},
    };
    static const char BYTES[32];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_err err = {0};
        struct infer_plan p;
        int rc = read_all(BAD[i].json, BYTES, BAD[i].n_binary, &p, &err);

        if (rc != BAD[i].rc || !strstr(err.msg, BAD[i].text))
            fail_msg("%s -> %s \"%s\"", BAD[i].json, sh_rc_name(rc), err.msg);
        plan_fini(&p);
    }
}

static void to_bytes(enum sh_dtype t, const char *json, void *dst, size_t n, int want)
{
    struct cat_tensor c = {.name = "x", .dtype = t};
    json_t *j = json_loads(json, 0, NULL);
    struct sh_err err = {0};
    int rc = tensor_from_json(&c, j, dst, n, &err);

    if (rc != want)
        fail_msg("%s as %s -> %s %s", json, sh_dtype_v2(t), sh_rc_name(rc), err.msg);
    json_decref(j);
}

static void numbers_must_fit_their_datatype(void **state)
{
    char to[64];

    (void)state;
    to_bytes(SH_I8, "[127,-128]", to, 2, SH_OK);
    assert_memory_equal(to, "\x7f\x80", 2);
    to_bytes(SH_I8, "[128]", to, 1, SH_E_INVALID);
    to_bytes(SH_U8, "[-1]", to, 1, SH_E_INVALID);
    to_bytes(SH_U16, "[65535]", to, 1, SH_OK);
    assert_memory_equal(to, "\xff\xff", 2);
    to_bytes(SH_I32, "[1.5]", to, 1, SH_E_INVALID);
    to_bytes(SH_BOOL, "[true,0,1,false]", to, 4, SH_OK);
    assert_memory_equal(to, "\1\0\1\0", 4);
    to_bytes(SH_BOOL, "[2]", to, 1, SH_E_INVALID);
    to_bytes(SH_F32, "[1e39]", to, 1, SH_E_INVALID);
    to_bytes(SH_F32, "[null]", to, 1, SH_E_INVALID);
    to_bytes(SH_F32, "[[1],[2,3]]", to, 3, SH_OK);
    to_bytes(SH_F32, "[[1],[2,3]]", to, 4, SH_E_INVALID);
    to_bytes(SH_F32, "[[1],[2,3]]", to, 2, SH_E_INVALID);
    to_bytes(SH_F16, "[1]", to, 1, SH_E_UNSUPPORTED);
}

static void floats_survive_json(void **state)
{
    static const float VALUES[] = {0.1f, -1.5f, FLT_MAX, FLT_MIN, 1.1754942e-38f, 16777217.0f, 0.f};
    struct cat_tensor t = {.name = "y", .dtype = SH_F32};
    float back[SH_ARRAY_LEN(VALUES)];
    struct sh_err err = {0};
    struct sh_buf b;

    (void)state;
    sh_buf_init(&b, 4096);
    assert_ok_err(tensor_to_json(&t, VALUES, SH_ARRAY_LEN(VALUES), &b, &err), &err);
    to_bytes(SH_F32, b.data, back, SH_ARRAY_LEN(VALUES), SH_OK);
    assert_memory_equal(back, VALUES, sizeof(back));
    sh_buf_fini(&b);
}

static void what_json_cannot_say_is_an_error(void **state)
{
    static const float VALUES[] = {1.0f, NAN};
    struct cat_tensor t = {.name = "y", .dtype = SH_F32};
    struct sh_err err = {0};
    struct sh_buf b;

    (void)state;
    sh_buf_init(&b, 4096);
    assert_fails(tensor_to_json(&t, VALUES, 2, &b, &err), SH_E_NAN, &err, "element 1");
    sh_buf_fini(&b);
}

static void a_reply_holds_what_was_asked_for(void **state)
{
    static const float Y[] = {1.0f, 2.5f};
    struct sh_err err = {0};
    struct infer_plan p;
    struct sh_buf b;
    bool binary;

    (void)state;
    sh_buf_init(&b, 4096);
    assert_ok_err(read_all("{\"id\":\"\\\"q\",\"inputs\":[" XJ "," KJ "]}", NULL, 0, &p, &err),
                  &err);
    assert_ok_err(plan_reply(&MODEL, &p, (const char *)Y, &b, &binary, &err), &err);
    assert_string_equal(b.data,
                        "{\"model_name\":\"m\",\"model_version\":\"3\",\"id\":\"\\\"q\","
                        "\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,2],"
                        "\"data\":[1,2.5]}]}");
    assert_false(binary);
    plan_fini(&p);
    sh_buf_reset(&b);
    assert_ok_err(read_all("{\"inputs\":[" XJ "," KJ
                           "],\"parameters\":{\"binary_data_output\":true}}",
                           NULL, 0, &p, &err),
                  &err);
    assert_ok_err(plan_reply(&MODEL, &p, (const char *)Y, &b, &binary, &err), &err);
    assert_true(binary);
    assert_has(b.data, "\"parameters\":{\"binary_data_size\":8}");
    assert_has_not(b.data, "\"data\"");
    plan_fini(&p);
    sh_buf_fini(&b);
}

/* x [2, C, h, w] in, y [2, w, h] out, at 3 x 5 filled up to 4 x 8. */
static void what_is_filled_up_is_cut_back(void **state)
{
    static const struct sh_dim N = {.mul = 1, .n = 1, .f = {{.of = SH_DIM_BATCH, .div = 1}}};
    struct cat_tensor x = {.name = "x",
                           .dtype = SH_I32,
                           .rank = 4,
                           .dims = {-1, 2, CAT_OPEN, CAT_OPEN},
                           .axes = {N, sh_dim_fixed(2), sh_dim_is(0), sh_dim_is(1)}};
    struct cat_tensor y = {.name = "y",
                           .dtype = SH_I32,
                           .rank = 3,
                           .dims = {-1, CAT_OPEN, CAT_OPEN},
                           .axes = {N, sh_dim_is(1), sh_dim_is(0)}};
    const struct cat_version v = {.inputs = &x,
                                  .n_inputs = 1,
                                  .outputs = &y,
                                  .n_outputs = 1,
                                  .max_batch = 4,
                                  .symbols = {.name = {"h", "w"}, .n = 2},
                                  .buckets = {.v = {{4, 6}, {8}}, .n = {2, 1}}};
    char body[512] = "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT32\",\"shape\":[2,2,3,5],"
                     "\"parameters\":{\"binary_data_size\":240}}]}";
    const size_t head = strlen(body);
    struct infer_plan p = {0};
    struct sh_err err = {0};
    int32_t from[60], to[128], out[64];

    (void)state;
    for (int32_t i = 0; i < 60; i++)
        from[i] = 100 + i;
    memcpy(body + head, from, sizeof(from));
    assert_ok_err(plan_read(&v, body, head + sizeof(from), head,
                            &(struct plan_limits){sizeof(body), 8}, &p, &err),
                  &err);
    assert_true(p.is_padded && p.run.v[0] == 4 && p.run.v[1] == 8);
    assert_int_equal(p.in[0].bytes, sizeof(from));
    assert_int_equal(p.in[0].run_bytes, sizeof(to));
    assert_int_equal(p.brought_bytes, sizeof(to));
    assert_int_equal(p.out_bytes[0], 30 * sizeof(int32_t));
    assert_int_equal(p.run_out_bytes[0], sizeof(out));
    memset(to, 0x77, sizeof(to));
    memcpy(to, from, sizeof(from)); /* where they lie */
    assert_ok(plan_pad(&x, &p, (const char *)to, (char *)to, NULL));
    for (int i = 0; i < 128; i++) {
        const int c = i / 32, h = i / 8 % 4, w = i % 8;

        assert_int_equal(to[i], h < 3 && w < 5 ? 100 + c * 15 + h * 5 + w : 0);
    }
    for (int32_t i = 0; i < 64; i++)
        out[i] = i;
    assert_ok(plan_cut(&v, &p, (char *)out, NULL));
    for (int i = 0; i < 30; i++)
        assert_int_equal(out[i], i / 15 * 32 + i / 3 % 5 * 4 + i % 3);
    plan_fini(&p);
    memcpy(strstr(body, "[2,2,3,5]"), "[2,2,3]  ", 9);
    p = (struct infer_plan){0};
    assert_fails(plan_read(&v, body, head + sizeof(from), head,
                           &(struct plan_limits){sizeof(body), 8}, &p, &err),
                 SH_E_INVALID, &err, "has shape [2,2,3], the model wants [-1,2,h,w]");
    plan_fini(&p);
}

/* Without it an answer would have boxes that are not there, or lack the last ones. */
static void outputs_have_as_many_as_the_run_says(void **state)
{
    struct cat_tensor in = {.name = "x", .dtype = SH_F32, .rank = 1, .dims = {1}};
    struct cat_tensor out = {.name = "y",
                             .dtype = SH_I32,
                             .rank = 2,
                             .dims = {2, CAT_OPEN},
                             .axes = {sh_dim_fixed(2), sh_dim_fixed(5)}};
    const struct cat_version v = {.model = "m",
                                  .inputs = &in,
                                  .n_inputs = 1,
                                  .outputs = &out,
                                  .n_outputs = 1,
                                  .fixed_batch = 1,
                                  .max_batch = 1};
    const char *body = "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1],"
                       "\"data\":[1]}]}";

    (void)state;
    out.axes[1].is_most = true;
    for (int64_t n = -1; n <= 6; n++) {
        struct infer_plan p = {0};
        struct sh_err err = {0};
        int32_t data[16] = {0};
        struct sh_buf head;
        bool binary;

        assert_ok_err(plan_read(&v, body, strlen(body), strlen(body), &(struct plan_limits){256, 8},
                                &p, &err),
                      &err);
        assert_int_equal(p.all_out_bytes, 64);
        for (int32_t i = 0; i < 10; i++)
            data[i] = i;
        memcpy(&data[10], &n, sizeof(n));
        if (n < 0 || n > 5) {
            assert_fails(plan_cut(&v, &p, (char *)data, &err), SH_E_BUG, &err, "are there");
            plan_fini(&p);
            continue;
        }
        assert_ok_err(plan_cut(&v, &p, (char *)data, &err), &err);
        assert_int_equal(p.out_bytes[0], 8 * n);
        for (int32_t i = 0; i < 2 * n; i++)
            assert_int_equal(data[i], i / n * 5 + i % n);
        sh_buf_init(&head, 4096);
        assert_ok_err(plan_reply(&v, &p, (char *)data, &head, &binary, &err), &err);
        assert_non_null(strstr(head.data, n == 0   ? "\"shape\":[2,0],\"data\":[]"
                                          : n == 1 ? "\"shape\":[2,1],\"data\":[0,5]"
                                                   : "\"data\":[0,1,"));
        sh_buf_fini(&head);
        plan_fini(&p);
    }
}

static void a_mask_of_all_of_a_sample_is_not_filled_up(void **state)
{
    struct cat_tensor m = {.name = "mask",
                           .dtype = SH_F32,
                           .rank = 2,
                           .dims = {-1, CAT_OPEN},
                           .axes = {sh_dim_is(SH_DIM_BATCH), sh_dim_is(0)},
                           .is_mask = true};
    const struct cat_version v = {.inputs = &m,
                                  .n_inputs = 1,
                                  .outputs = &m,
                                  .n_outputs = 1,
                                  .max_batch = 4,
                                  .symbols = {.name = {"length"}, .n = 1},
                                  .buckets = {.v = {{8}}, .n = {1}}};
    char body[256] = "{\"inputs\":[{\"name\":\"mask\",\"datatype\":\"FP32\",\"shape\":[2,3],"
                     "\"parameters\":{\"binary_data_size\":24}}]}";
    const size_t head = strlen(body);
    float some[] = {1, 0, 0, 0, 0, 1}, none[] = {1, 1, 1, 0, -0.0f, 0};
    struct infer_plan p = {0};
    struct sh_err err = {0};

    (void)state;
    memcpy(body + head, none, sizeof(none));
    assert_ok_err(plan_read(&v, body, head + sizeof(none), head,
                            &(struct plan_limits){sizeof(body), 8}, &p, &err),
                  &err);
    assert_true(p.is_padded);
    assert_false(plan_masks_all(&m, &p, (const char *)some));
    assert_true(plan_masks_all(&m, &p, (const char *)none));
    m.is_mask = false;
    assert_false(plan_masks_all(&m, &p, (const char *)none));
    assert_ok(plan_as_it_is(&v, &p, NULL));
    assert_false(p.is_padded);
    assert_int_equal(p.run.v[0], 3);
    assert_int_equal(p.in[0].run_bytes, sizeof(none));
    assert_int_equal(p.run_out_bytes[0], sizeof(none));
    assert_int_equal(p.all_out_bytes, 64);
    plan_fini(&p);
}

static void a_size_that_no_bucket_holds_runs_as_it_is(void **state)
{
    const struct sh_buckets b = {.v = {{4, 6}}, .n = {2}};

    (void)state;
    assert_int_equal(sh_bucket_of(&b, 0, 1), 1);
    assert_int_equal(sh_bucket_of(&b, 0, 2), 4);
    assert_int_equal(sh_bucket_of(&b, 0, 4), 4);
    assert_int_equal(sh_bucket_of(&b, 0, 5), 6);
    assert_int_equal(sh_bucket_of(&b, 0, 7), 7);
    assert_int_equal(sh_bucket_of(&b, 1, 5), 5);
}

/* Four inputs whose bytes add up to 0 in 64 bits would get no room, and be written all the same. */
static void sizes_that_no_memory_has_are_refused(void **state)
{
    const int64_t huge = INT64_C(1) << 30;
    struct cat_tensor in[4], small = {.name = "y", .dtype = SH_F32, .rank = 1, .dims = {2}};
    const struct cat_version v = {.inputs = in,
                                  .n_inputs = 4,
                                  .outputs = &small,
                                  .n_outputs = 1,
                                  .max_batch = 4,
                                  .symbols = {.name = {"h", "w"}, .n = 2}};
    char body[1024] = "{\"inputs\":[";
    struct infer_plan p = {0};
    struct sh_err err = {0};
    size_t n = strlen(body);

    (void)state;
    for (int i = 0; i < 4; i++) {
        in[i] = (struct cat_tensor){.name = {(char)('a' + i)},
                                    .dtype = SH_F32,
                                    .rank = 2,
                                    .dims = {CAT_OPEN, CAT_OPEN},
                                    .axes = {sh_dim_is(0), sh_dim_is(1)}};
        n += (size_t)snprintf(body + n, sizeof(body) - n,
                              "%s{\"name\":\"%s\",\"datatype\":\"FP32\",\"shape\":[%lld,%lld],"
                              "\"data\":[1,2]}",
                              i ? "," : "", in[i].name, (long long)huge, (long long)huge);
    }
    n += (size_t)snprintf(body + n, sizeof(body) - n, "]}");
    assert_int_equal(plan_read(&v, body, n, n, &(struct plan_limits){sizeof(body), huge}, &p, &err),
                     SH_E_TOOBIG);
    assert_non_null(strstr(err.msg, "\"a\""));
    plan_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_no_memory_has_are_refused),
        cmocka_unit_test(json_and_binary_inputs_may_be_mixed),
        cmocka_unit_test(binary_bytes_belong_to_the_inputs_in_their_order),
        cmocka_unit_test(every_mistake_is_named),
        cmocka_unit_test(numbers_must_fit_their_datatype),
        cmocka_unit_test(floats_survive_json),
        cmocka_unit_test(what_json_cannot_say_is_an_error),
        cmocka_unit_test(a_reply_holds_what_was_asked_for),
        cmocka_unit_test(what_is_filled_up_is_cut_back),
        cmocka_unit_test(outputs_have_as_many_as_the_run_says),
        cmocka_unit_test(a_mask_of_all_of_a_sample_is_not_filled_up),
        cmocka_unit_test(a_size_that_no_bucket_holds_runs_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
