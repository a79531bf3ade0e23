/* test_grpc.c - what the gRPC front end makes of bytes: frames, statuses, messages and their way to
 * a request over HTTP and back.
 *
 * Without it a tensor could be cut at the wrong place, a number could lose its high bits, a client
 * could get another reason than over HTTP, or a few bytes could take much memory. */
/* uses: libapi.a */
/* link: -lprotobuf-c */
#include "api/grpc/frames.h"
#include "api/grpc/message.h"
#include "api/grpc/status.h"
#include "api/grpc/tensors.h"
#include "common/mem.h"
#include "inference.pb-c.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>
#include <string.h>

typedef Inference__ModelInferRequest request_msg;
typedef Inference__ModelInferRequest__InferInputTensor input_msg;

static const struct grpc_method *method(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "/inference.GRPCInferenceService/%s", name);
    return method_find(path);
}

/* ---------------------------------------------------------------- frames and statuses */

static void a_message_comes_in_any_pieces(void **state)
{
    static const unsigned char BYTES[] = {0, 0, 1, 0, 2, 'x', 'y'};
    struct frames f = {.n_prefix = 0};
    size_t taken;

    (void)state;
    for (size_t i = 0; i < FRAME_PREFIX; i++) {
        assert_false(frames_has_size(&f));
        assert_ok(frames_prefix(&f, BYTES + i, 1, &taken, NULL));
        assert_int_equal(taken, 1);
        assert_true(frames_is_begun(&f));
    }
    assert_true(frames_has_size(&f));
    assert_int_equal(f.bytes, 65538);
    assert_false(frames_is_whole(&f));
    frames_next(&f);
    assert_ok(frames_prefix(&f, "\0\0\0\0\0rest", 9, &taken, NULL));
    assert_int_equal(taken, FRAME_PREFIX);
    assert_true(frames_is_whole(&f)); /* an empty message is one */
}

static void other_frames_are_refused(void **state)
{
    struct frames f = {.n_prefix = 0};
    struct sh_err err = {0};
    size_t taken;

    (void)state;
    assert_ok(frames_prefix(&f, "\1\0\0\0\1", 5, &taken, NULL));
    assert_true(frames_is_packed(&f));
    frames_next(&f);
    assert_false(frames_is_packed(&f));
    assert_fails(frames_prefix(&f, "GET /", 5, &taken, &err), SH_E_INVALID, &err, "no gRPC");
    assert_true(frames_is_begun(&f));
    assert_false(frames_has_size(&f)); /* nobody knows where the next one begins */
    assert_false(frames_is_whole(&f));
}

static void every_reason_has_a_status(void **state)
{
    static const struct {
        int rc;
        enum grpc_status want;
    } CASES[] = {
        {SH_OK, GRPC_OK},
        {SH_E_INVALID, GRPC_INVALID_ARGUMENT},
        {SH_E_UNAUTHENTICATED, GRPC_UNAUTHENTICATED},
        {SH_E_FORBIDDEN, GRPC_PERMISSION_DENIED},
        {SH_E_NOTFOUND, GRPC_NOT_FOUND},
        {SH_E_CONFLICT, GRPC_FAILED_PRECONDITION},
        {SH_E_TOOBIG, GRPC_RESOURCE_EXHAUSTED},
        {SH_E_QUOTA, GRPC_RESOURCE_EXHAUSTED},
        {SH_E_UNSUPPORTED, GRPC_UNIMPLEMENTED},
        {SH_E_CANCELLED, GRPC_CANCELLED},
        {SH_E_TIMEOUT, GRPC_DEADLINE_EXCEEDED},
        {SH_E_SLO, GRPC_UNAVAILABLE},
        {SH_E_QUEUEFULL, GRPC_UNAVAILABLE},
        {SH_E_DBDOWN, GRPC_UNAVAILABLE},
        {SH_E_DEVMEM, GRPC_UNAVAILABLE},
        {SH_E_BUG, GRPC_INTERNAL},
        {SH_E_PROTO, GRPC_INTERNAL},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++)
        assert_int_equal(grpc_status_of(CASES[i].rc, 0), CASES[i].want);
    assert_int_equal(grpc_status_of(SH_E_INVALID, 501), GRPC_UNIMPLEMENTED);
    for (int rc = -1; strcmp(sh_rc_name(rc), "?") != 0;
         rc--) /* 499 and 5xx are never the client's */
        if (sh_rc_http(rc) >= 500)
            assert_int_not_equal(grpc_status_of(rc, 0), GRPC_INVALID_ARGUMENT);
    assert_string_equal(grpc_status_name(GRPC_NOT_FOUND), "NOT_FOUND");
}

static void a_timeout_has_digits_and_a_unit(void **state)
{
    static const struct {
        const char *text;
        int64_t ns;
    } CASES[] = {{"1n", 1},
                 {"20u", 20000},
                 {"100m", 100000000},
                 {"2S", INT64_C(2000000000)},
                 {"1M", INT64_C(60000000000)},
                 {"99999999H", INT64_MAX}};
    static const char *const WRONG[] = {"", "1", "m", "-1m", "123456789m", "1mm", "1x", " 1m"};
    int64_t ns;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        assert_ok(grpc_parse_timeout(CASES[i].text, &ns, NULL));
        assert_int_equal(ns, CASES[i].ns);
    }
    for (size_t i = 0; i < SH_ARRAY_LEN(WRONG); i++)
        assert_int_equal(grpc_parse_timeout(WRONG[i], &ns, NULL), SH_E_INVALID);
}

static void a_message_of_a_failure_is_one_line_of_ascii(void **state)
{
    struct sh_buf b;

    (void)state;
    sh_buf_init(&b, 100);
    assert_ok(grpc_put_message(&b, "50% \xc3\xa4\n\"x\"", NULL));
    assert_string_equal(b.data, "50%25 %C3%A4%0A\"x\"");
    sh_buf_fini(&b);
}

/* ---------------------------------------------------------------- URLs and other messages */

static void uri_is(const char *name, const char *json, const char *want)
{
    json_t *j = json_loads(json, 0, NULL);
    struct sh_err err = {0};
    struct sh_buf uri;

    sh_buf_init(&uri, 1000);
    assert_non_null(method(name));
    assert_ok_err(method_uri(method(name), j, &uri, &err), &err);
    assert_string_equal(uri.data, want);
    sh_buf_fini(&uri);
    json_decref(j);
}

static void a_call_is_a_request(void **state)
{
    struct sh_err err = {0};
    struct sh_buf uri;
    json_t *none = json_object();

    (void)state;
    uri_is("ModelConfig", "{\"name\": \"m\"}", "/v2/models/m/config");
    uri_is("ModelConfig", "{\"name\": \"m\", \"version\": \"3\"}",
           "/v2/models/m/versions/3/config");
    uri_is("ModelMetadata", "{\"name\": \"a/b c\"}", "/v2/models/a%2Fb%20c");
    uri_is("ModelStatistics", "{}", "/v2/models/stats");
    uri_is("ModelInfer", "{\"model_name\": \"m\"}", "/v2/models/m/infer");
    uri_is("SystemSharedMemoryUnregister", "{}", "/v2/systemsharedmemory/unregister");
    uri_is("SystemSharedMemoryStatus", "{\"name\": \"r\"}",
           "/v2/systemsharedmemory/region/r/status");
    sh_buf_init(&uri, 1000);
    assert_fails(method_uri(method("ModelConfig"), none, &uri, &err), SH_E_INVALID, &err,
                 "\"name\"");
    sh_buf_fini(&uri);
    json_decref(none);
    assert_null(method_find("/inference.GRPCInferenceService/Nothing"));
    assert_null(method_find("/other.Service/ModelInfer"));
}

static ProtobufCMessage *answer(const char *name, const char *json)
{
    const struct grpc_method *m = method(name);
    json_t *j = json_loads(json, JSON_DECODE_ANY, NULL);
    ProtobufCMessage *got = NULL;
    struct sh_err err = {0};
    struct sh_buf out;

    sh_buf_init(&out, 10000);
    assert_non_null(j);
    assert_ok_err(method_write(m, j, &out, &err), &err);
    assert_ok_err(message_unpack(m->out, out.data ? out.data : "", out.len, &got, &err), &err);
    sh_buf_fini(&out);
    json_decref(j);
    return got;
}

static void answers_have_the_fields_of_the_json(void **state)
{
    Inference__ModelConfigResponse *c;
    Inference__ModelStatisticsResponse *s;
    Inference__RepositoryIndexResponse *i;
    Inference__SystemSharedMemoryStatusResponse *r;

    (void)state;
    c = (void *)answer("ModelConfig",
                       "{\"name\": \"m\", \"max_batch_size\": 8, \"dynamic_batching\": {}, "
                       "\"backend\": \"shunt\", \"other\": [1], \"input\": [{\"name\": \"x\", "
                       "\"data_type\": \"TYPE_BF16\", \"dims\": [-1, 300]}]}");
    assert_string_equal(c->config->name, "m");
    assert_int_equal(c->config->max_batch_size, 8);
    assert_non_null(c->config->dynamic_batching);
    assert_int_equal(c->config->n_input, 1);
    assert_int_equal(c->config->input[0]->data_type, INFERENCE__DATA_TYPE__TYPE_BF16);
    assert_int_equal(c->config->input[0]->dims[0], -1);
    assert_int_equal(c->config->input[0]->dims[1], 300);
    message_free(&c->base);
    s = (void *)answer("ModelStatistics",
                       "{\"model_stats\": [{\"name\": \"m\", \"last_inference\": 1234567890123, "
                       "\"inference_stats\": {\"queue\": {\"count\": 3, \"ns\": 700}}}]}");
    assert_int_equal(s->model_stats[0]->last_inference, INT64_C(1234567890123));
    assert_int_equal(s->model_stats[0]->inference_stats->queue->ns, 700);
    message_free(&s->base);
    i = (void *)answer("RepositoryIndex",
                       "[{\"name\": \"a\", \"state\": \"READY\"}, {\"name\": \"b\"}]");
    assert_int_equal(i->n_models, 2);
    assert_string_equal(i->models[0]->state, "READY");
    message_free(&i->base);
    r = (void *)answer("SystemSharedMemoryStatus",
                       "[{\"name\": \"r\", \"key\": \"/k\", \"offset\": 0, \"byte_size\": 64}]");
    assert_string_equal(r->regions[0]->key, "r");
    assert_int_equal(r->regions[0]->value->byte_size, 64);
    message_free(&r->base);
}

/* ---------------------------------------------------------------- inference */

struct body {
    struct sh_buf packed, uri;
    struct tensors t;
    json_t *json;
    struct sh_err err;
};

static int read_request(struct body *b, const request_msg *msg, size_t max_head, int64_t timeout_us)
{
    char *to;
    int rc;

    *b = (struct body){.json = NULL};
    sh_buf_init(&b->packed, 1 << 20);
    sh_buf_init(&b->uri, 1000);
    assert_ok(
        sh_buf_reserve(&b->packed, protobuf_c_message_get_packed_size(&msg->base), &to, NULL));
    b->packed.len = protobuf_c_message_pack(&msg->base, (uint8_t *)to);
    rc = tensors_read(method("ModelInfer"), b->packed.data, b->packed.len, max_head, timeout_us,
                      &b->t, &b->uri, &b->err);
    if (!rc)
        b->json = json_loads(b->t.json, 0, NULL);
    return rc;
}

static void body_free(struct body *b)
{
    sh_buf_fini(&b->packed);
    sh_buf_fini(&b->uri);
    tensors_drop(&b->t);
    json_decref(b->json);
}

static int64_t input_size(const struct body *b, size_t i)
{
    const json_t *in = json_array_get(json_object_get(b->json, "inputs"), i);

    return json_integer_value(
        json_object_get(json_object_get(in, "parameters"), "binary_data_size"));
}

static int64_t parameter(const struct body *b, const char *name)
{
    const json_t *p = json_object_get(b->json, "parameters");

    return json_integer_value(json_object_get(p, name));
}

#define REQUEST(var, ...)                                                             \
    input_msg x = INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;           \
    input_msg k = INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;           \
    input_msg *inputs[] = {&x, &k};                                                   \
    int64_t shape[] = {1, 2};                                                         \
    request_msg var = INFERENCE__MODEL_INFER_REQUEST__INIT;                           \
    x.name = (char *)(uintptr_t) "x", k.name = (char *)(uintptr_t) "k";               \
    x.datatype = (char *)(uintptr_t) "FP32", k.datatype = (char *)(uintptr_t) "INT8"; \
    x.shape = k.shape = shape, x.n_shape = k.n_shape = 2;                             \
    var.model_name = (char *)(uintptr_t) "m", var.inputs = inputs, var.n_inputs = 2

static void raw_tensors_stay_where_they_are(void **state)
{
    ProtobufCBinaryData raw[] = {{8, (uint8_t *)(uintptr_t) "01234567"},
                                 {2, (uint8_t *)(uintptr_t) "ab"}};
    struct body b;

    (void)state;
    REQUEST(msg);
    msg.raw_input_contents = raw;
    msg.n_raw_input_contents = 2;
    assert_ok_err(read_request(&b, &msg, 1000, 5000), &b.err);
    assert_string_equal(b.uri.data, "/v2/models/m/infer");
    assert_int_equal(b.t.n_parts, 2);
    assert_memory_equal(b.t.part[0].iov_base, "01234567", 8);
    assert_true((char *)b.t.part[0].iov_base > b.packed.data &&
                (char *)b.t.part[0].iov_base < b.packed.data + b.packed.len);
    assert_int_equal(input_size(&b, 0), 8);
    assert_int_equal(input_size(&b, 1), 2);
    assert_int_equal(parameter(&b, "timeout"), 5000);
    assert_null(json_object_get(b.json, "model_name"));
    assert_int_equal(b.t.bytes, b.t.json_bytes + 10);
    body_free(&b);
}

static void numbers_become_bytes(void **state)
{
    static float floats[] = {1.5f, -2.0f};
    static int32_t small[] = {-128, 127}, large[] = {-129, 127};
    Inference__InferTensorContents cx = INFERENCE__INFER_TENSOR_CONTENTS__INIT, ck = cx;
    struct body b;

    (void)state;
    REQUEST(msg);
    cx.fp32_contents = floats, cx.n_fp32_contents = 2;
    ck.int_contents = small, ck.n_int_contents = 2;
    x.contents = &cx, k.contents = &ck;
    assert_ok_err(read_request(&b, &msg, 1000, 0), &b.err);
    assert_int_equal(b.t.n_parts, 2);
    assert_int_equal(b.t.part[0].iov_len, 8);
    assert_memory_equal(b.t.part[0].iov_base, floats, 8);
    assert_int_equal(b.t.part[1].iov_len, 2);
    assert_memory_equal(b.t.part[1].iov_base, "\x80\x7f", 2);
    assert_int_equal(parameter(&b, "timeout"), 0);
    body_free(&b);
    ck.int_contents = large;
    assert_fails(read_request(&b, &msg, 1000, 0), SH_E_INVALID, &b.err, "element 0 of contents");
    body_free(&b);
    k.datatype = (char *)(uintptr_t) "FP16"; /* has no numbers of its own */
    assert_fails(read_request(&b, &msg, 1000, 0), SH_E_INVALID, &b.err, "raw_input_contents");
    body_free(&b);
}

static void requests_that_do_not_add_up_are_refused(void **state)
{
    ProtobufCBinaryData raw[] = {{8, (uint8_t *)(uintptr_t) "01234567"},
                                 {2, (uint8_t *)(uintptr_t) "ab"},
                                 {2, (uint8_t *)(uintptr_t) "cd"}};
    static int32_t numbers[] = {1, 2};
    Inference__InferTensorContents c = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
    struct body b;

    (void)state;
    REQUEST(msg);
    msg.raw_input_contents = raw;
    msg.n_raw_input_contents = 1;
    assert_fails(read_request(&b, &msg, 1000, 0), SH_E_INVALID, &b.err, "\"k\" has no raw");
    body_free(&b);
    msg.n_raw_input_contents = 3;
    assert_fails(read_request(&b, &msg, 1000, 0), SH_E_INVALID, &b.err, "only 2 inputs");
    body_free(&b);
    c.int_contents = numbers, c.n_int_contents = 2;
    k.contents = &c;
    msg.n_raw_input_contents = 2;
    assert_fails(read_request(&b, &msg, 1000, 0), SH_E_INVALID, &b.err, "one way");
    body_free(&b);
    k.contents = NULL;
    assert_fails(read_request(&b, &msg, 10, 0), SH_E_TOOBIG, &b.err, "beside raw tensors");
    body_free(&b);
    msg.n_inputs = 0;
    msg.model_name = (char *)(uintptr_t) "\xff";
    msg.n_raw_input_contents = 0;
    assert_int_equal(read_request(&b, &msg, 1000, 0), SH_E_INVALID);
    body_free(&b);
}

static void bytes_that_are_no_message_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } WRONG[] = {{"\xff", 1},
                 {"\x0a\x05"
                  "abc",
                  5},
                 {"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10},
                 {"\x0b\x0c", 2},
                 {"\x2a\x02\x0a\x09", 4}};
    struct tensors t = {.n_parts = 0};
    struct sh_buf uri;

    (void)state;
    sh_buf_init(&uri, 1000);
    for (size_t i = 0; i < SH_ARRAY_LEN(WRONG); i++) {
        assert_int_equal(
            tensors_read(method("ModelInfer"), WRONG[i].bytes, WRONG[i].n, 1000, 0, &t, &uri, NULL),
            SH_E_INVALID);
        tensors_drop(&t);
    }
    sh_buf_fini(&uri);
}

/* Two bytes are an empty tensor, which takes fifty times that: only so much is unpacked. */
static void few_bytes_take_little_memory(void **state)
{
    const size_t n = 1 << 20;
    char *many = malloc(n);
    ProtobufCMessage *msg = NULL;
    struct sh_err err = {0};

    (void)state;
    for (size_t i = 0; i < n; i += 2)
        memcpy(many + i, "\x2a", 2); /* inputs, of 0 bytes */
    assert_fails(message_unpack(&inference__model_infer_request__descriptor, many, n, &msg, &err),
                 SH_E_INVALID, &err, "no ModelInferRequest");
    free(many);
}

static void an_answer_has_its_tensors_between_its_bytes(void **state)
{
    static const char HEAD[] =
        "{\"model_name\": \"m\", \"model_version\": \"2\", \"id\": \"7\", \"outputs\": ["
        "{\"name\": \"a\", \"datatype\": \"FP32\", \"shape\": [1, 2], \"parameters\": "
        "{\"binary_data_size\": 8}}, "
        "{\"name\": \"b\", \"datatype\": \"INT8\", \"shape\": [0], \"parameters\": "
        "{\"binary_data_size\": 0}}, "
        "{\"name\": \"c\", \"datatype\": \"INT8\", \"shape\": [200], \"parameters\": "
        "{\"binary_data_size\": 200}}]}";
    static const char *const NAMES[] = {"ModelInfer", "ModelStreamInfer"};
    char part[2][200] = {"01234567", "c"};
    const size_t len[] = {8, 200};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(NAMES); k++) {
        const struct grpc_method *m = method(NAMES[k]);
        struct sh_buf text, all;
        size_t ends[2], at = 0;
        struct sh_err err = {0};
        ProtobufCMessage *msg = NULL;
        Inference__ModelInferResponse *r;

        sh_buf_init(&text, 10000);
        sh_buf_init(&all, 10000);
        assert_ok_err(tensors_answer(m, HEAD, strlen(HEAD), 2, &text, ends, &err), &err);
        for (size_t i = 0; i < 2; at = ends[i++]) {
            assert_ok(sh_buf_append(&all, text.data + at, ends[i] - at, NULL));
            assert_ok(sh_buf_append(&all, part[i], len[i], NULL));
        }
        assert_ok(sh_buf_append(&all, text.data + at, text.len - at, NULL));
        assert_int_equal((uint8_t)all.data[3] << 8 | (uint8_t)all.data[4], all.len - FRAME_PREFIX);
        assert_ok(
            message_unpack(m->out, all.data + FRAME_PREFIX, all.len - FRAME_PREFIX, &msg, NULL));
        r = k ? ((Inference__ModelStreamInferResponse *)msg)->infer_response
              : (Inference__ModelInferResponse *)msg;
        assert_string_equal(r->id, "7");
        assert_int_equal(r->n_raw_output_contents, 3);
        assert_memory_equal(r->raw_output_contents[0].data, part[0], 8);
        assert_int_equal(r->raw_output_contents[1].len, 0);
        assert_memory_equal(r->raw_output_contents[2].data, part[1], 200);
        assert_int_equal(r->outputs[0]->n_parameters, 0);
        message_free(msg);
        sh_buf_fini(&text);
        sh_buf_fini(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_comes_in_any_pieces),
        cmocka_unit_test(other_frames_are_refused),
        cmocka_unit_test(every_reason_has_a_status),
        cmocka_unit_test(a_timeout_has_digits_and_a_unit),
        cmocka_unit_test(a_message_of_a_failure_is_one_line_of_ascii),
        cmocka_unit_test(a_call_is_a_request),
        cmocka_unit_test(answers_have_the_fields_of_the_json),
        cmocka_unit_test(raw_tensors_stay_where_they_are),
        cmocka_unit_test(numbers_become_bytes),
        cmocka_unit_test(requests_that_do_not_add_up_are_refused),
        cmocka_unit_test(bytes_that_are_no_message_are_refused),
        cmocka_unit_test(few_bytes_take_little_memory),
        cmocka_unit_test(an_answer_has_its_tensors_between_its_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
