/* test_preprocess.c - Without it: pictures sent as bytes could come to a model with other numbers
 * than a client computes itself, transposed, or with the mean of another channel; and a declaration
 * that does not fit the model could be taken, so that every answer is wrong without a word. */
/* uses: libmodel.a libdevice.a libcli.a */
/* link: -lprotobuf-c -ldl -lcurl -lpq -lturbojpeg -lpng16 -lz */
#include "cli/data/cargo.h"
#include "common/external.h"
#include "common/preprocess.h"
#include "common/safetensors.h"
#include "common/ustar.h"
#include "runtime/model/package.h"
#include "runtime/model/pads.h"
#include "runtime/model/samples.h"
#include "tests/unit/graph_nodes.h"
#include "tests/unit/onnx_bytes.h"

/* ---------------------------------------------------------------- what is declared */

static int read_text(const char *text, struct sh_preprocess *p, size_t *n, json_t **j,
                     struct sh_err *err)
{
    memset(err, 0, sizeof(*err));
    assert_ok_err(sh_json_parse(text, strlen(text), SH_PREPROCESS_TEXT, j, err), err);
    return sh_preprocess_read(*j, p, n, err);
}

static void a_preset_is_as_torchvision_has_it(void **state)
{
    static const char *const SAME[] = {
        "{\"image\": \"imagenet\"}", "{\"image\": {\"preset\": \"imagenet\"}}",
        "{\"image\": {\"layout\": \"NHWC\", \"mean\": [0.485, 0.456, 0.406], "
        "\"std\": [0.229, 0.224, 0.225]}}"};
    static const float MEAN[] = {0.485f, 0.456f, 0.406f}, STD[] = {0.229f, 0.224f, 0.225f};
    struct sh_preprocess p[SH_PREPROCESS_INPUTS];
    struct sh_err err;
    json_t *j;
    size_t n;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(SAME); i++) {
        assert_ok_err(read_text(SAME[i], p, &n, &j, &err), &err);
        assert_int_equal(n, 1);
        assert_string_equal(p[0].input, "image");
        assert_true(p[0].channels_last);
        for (size_t c = 0; c < 3; c++) {
            float table[SH_PREPROCESS_BYTES];

            sh_preprocess_table(&p[0], c, table);
            for (size_t x = 0; x < SH_PREPROCESS_BYTES; x++) {
                volatile float v = (float)x / 255.0f; /* rounded after each step */

                v = v - MEAN[c];
                v = v / STD[c];
                assert_memory_equal(&table[x], (const void *)&v, sizeof(v));
            }
        }
        json_decref(j);
    }
}

static void other_ranges_are_a_scale(void **state)
{
    struct sh_preprocess p[SH_PREPROCESS_INPUTS];
    float table[SH_PREPROCESS_BYTES];
    struct sh_err err;
    json_t *j, *again;
    size_t n;
    (void)state;

    assert_ok_err(read_text("{\"a\": {\"scale\": 1, \"mean\": 127, \"layout\": \"NCHW\"},"
                            " \"b\": \"signed\"}",
                            p, &n, &j, &err),
                  &err);
    assert_int_equal(n, 2);
    assert_false(p[0].channels_last);
    sh_preprocess_table(&p[0], 2, table); /* one number is for all channels */
    assert_true(table[0] == -127 && table[255] == 128);
    sh_preprocess_table(&p[1], 0, table);
    assert_true(table[0] == -1 && table[255] == 1);
    again = sh_preprocess_json(p, n); /* says the same */
    assert_ok_err(sh_preprocess_read(again, p, &n, &err), &err);
    sh_preprocess_table(&p[0], 0, table);
    assert_true(table[0] == -127 && !p[0].channels_last);
    json_decref(again);
    json_decref(j);
}

static void a_wrong_declaration_is_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } BAD[] = {
        {"[]", "must be an object with the names"},
        {"{\"x\": 3}", "must be an object, or the name of a preset: unit, signed, imagenet, clip"},
        {"{\"x\": \"imagnet\"}", "names no preset \"imagnet\""},
        {"{\"x\": {\"preset\": \"coco\"}}", "names no preset \"coco\""},
        {"{\"x\": {\"layout\": \"HWC\"}}", "must be NHWC or NCHW"},
        {"{\"x\": {\"std\": 0}}", "\"std\" of \"x\" must be numbers from 1e-06"},
        {"{\"x\": {\"std\": [1, 1, 0]}}", "\"std\" of \"x\" must be numbers from 1e-06"},
        {"{\"x\": {\"std\": [1, -1, 1]}}", "\"std\" of \"x\" must be numbers from 1e-06"},
        {"{\"x\": {\"std\": \"1\"}}", "\"std\" of \"x\" must be numbers"},
        {"{\"x\": {\"mean\": [1e300]}}", "\"mean\" of \"x\" must be numbers from -1e+06"},
        {"{\"x\": {\"mean\": []}}", "one for each channel"},
        {"{\"x\": {\"mean\": [1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8]}}", "at most 16; it has 17"},
        {"{\"x\": {\"scale\": 0}}", "scale"},
        {"{\"x\": {\"deviation\": 1}}", "deviation"},
        {"{\"\": {}}", "a name of no"},
    };
    struct sh_preprocess p[SH_PREPROCESS_INPUTS];
    struct sh_err err;
    json_t *j;
    size_t n;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        int rc = read_text(BAD[i].text, p, &n, &j, &err);

        if (rc != SH_E_INVALID || !strstr(err.msg, BAD[i].says))
            fail_msg("%s: \"%s\"", BAD[i].text, err.msg);
        json_decref(j);
    }
}

static void people_type_less(void **state)
{
    static const struct {
        const char *text, *json;
    } TYPED[] = {
        {"image=imagenet", "{\"image\":{\"preset\":\"imagenet\"}}"},
        {" a=unit  b=nchw,signed", "{\"a\":{\"preset\":\"unit\"},"
                                   "\"b\":{\"layout\":\"NCHW\",\"preset\":\"signed\"}}"},
        {"a=b=NHWC", "{\"a=b\":{\"layout\":\"NHWC\"}}"},
        {"a=unit\n\tb=unit\n", "{\"a\":{\"preset\":\"unit\"},\"b\":{\"preset\":\"unit\"}}"},
        {" {\"x\": {\"std\": 2}}", "{\"x\":{\"std\":2}}"},
        {"imagenet", NULL},
        {"image=", NULL},
        {"image=unit,signed", NULL},
        {"image=unit image=unit", NULL},
        {"{\"x\"", NULL},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(TYPED); i++) {
        struct sh_err err = {0};
        char *text = NULL;
        json_t *j = NULL;
        int rc = sh_preprocess_typed(TYPED[i].text, &j, &err);

        assert_int_equal(rc, TYPED[i].json ? SH_OK : SH_E_INVALID);
        if (TYPED[i].json) {
            assert_ok(sh_json_dump(j, &text, &err));
            assert_string_equal(text, TYPED[i].json);
        }
        free(text);
        json_decref(j);
    }
}

/* All of it, or it would be of the form that is asked for. */
static void what_is_typed_wrong_is_quoted(void **state)
{
    static const char *const WRONG[] = {"image=unit,signed", "b=unit,NHWC,NCHW", "image=unit,"};
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(WRONG); i++) {
        struct sh_err err = {0};
        char text[64], says[64];
        json_t *j;

        snprintf(text, sizeof(text), "a=unit %s", WRONG[i]);
        snprintf(says, sizeof(says), "\"%s\" is not INPUT=PRESET", WRONG[i]);
        assert_int_equal(sh_preprocess_typed(text, &j, &err), SH_E_INVALID);
        if (!strstr(err.msg, says))
            fail_msg("%s: \"%s\"", WRONG[i], err.msg);
    }
}

/* ---------------------------------------------------------------- what becomes of a model */

enum { BFLOAT16 = 16 };

/* Behind the file, as metadata. */
static void declare(struct file *f, const char *text)
{
    put_text(&f->sub, 1, SH_EXTERNAL_PREPROCESS);
    put_text(&f->sub, 2, text);
    put_msg(&f->msg, 14, &f->sub);
}

/* y = -x; what is declared, NULL: nothing. The whole file is in f->msg then. */
static void negated(struct file *f, int type, int rank, const int64_t *dims, const char *declared)
{
    file_init(f);
    file_value(f, INPUT, "x", type, rank, dims);
    file_value(f, OUTPUT, "y", type, rank, dims);
    file_node(f, "", "Neg", "x", "y");
    file_end(f);
    if (declared)
        declare(f, declared);
}

static int read_negated(int type, int rank, const int64_t *dims, const char *declared,
                        struct graph **g, struct sh_err *err)
{
    char path[PATH_BYTES];
    struct file f;
    int rc;

    memset(err, 0, sizeof(*err));
    negated(&f, type, rank, dims, declared);
    sh_test_write_file(path_of("made.onnx", path), f.msg.data, f.msg.len);
    rc = onnx_read_list(path, true, g, NULL, err);
    file_fini(&f);
    return rc;
}

static void assert_dims(const struct graph_value *v, enum sh_dtype t, const int64_t want[4])
{
    assert_int_equal(v->dtype, t);
    assert_int_equal(v->rank, 4);
    assert_memory_equal(v->dims, want, 4 * sizeof(*want));
}

/* The place of pixel i of channel c in sample s. */
static size_t place(bool last, size_t s, size_t c, size_t i)
{
    return last ? (s * 35 + i) * 3 + c : (s * 3 + c) * 35 + i;
}

/* Runs g with bytes: what comes out must be what the table has, with the other sign, bit by bit. */
static void answers_are_exact(struct graph *g, bool x_last, bool y_last)
{
    enum { N = 2, SIZE = N * 3 * 5 * 7 };
    struct sh_preprocess p[SH_PREPROCESS_INPUTS];
    struct sh_err err = {0};
    struct dev_lib *lib;
    struct dev *d = open_cpu(&lib);
    struct program *program;
    uint8_t x[SIZE];
    size_t n, bytes;
    float *y;

    assert_ok_err(sh_preprocess_read(g->preprocess, p, &n, &err), &err);
    for (size_t i = 0; i < SIZE; i++)
        x[i] = (uint8_t)(i * 37 + i / 3);
    assert_ok_err(
        program_infer(d, g, &(struct graph_sizes){.batch = N}, DEV_FP32, NULL, &program, &err),
        &err);
    assert_int_equal(program_input(program, 0)->bytes, SIZE);
    y = run(d, program, (const float *)(const void *)x, &bytes);
    assert_int_equal(bytes, SIZE * sizeof(float));
    for (size_t s = 0; s < N; s++)
        for (size_t c = 0; c < 3; c++) {
            float table[SH_PREPROCESS_BYTES];

            sh_preprocess_table(&p[0], c, table);
            for (size_t i = 0; i < 35; i++) {
                const float want = -table[x[place(x_last, s, c, i)]];

                assert_memory_equal(&y[place(y_last, s, c, i)], &want, sizeof(want));
            }
        }
    free(y);
    program_free(program);
    dev_close(d);
    dev_lib_close(lib);
}

static void an_input_becomes_bytes_in_either_layout(void **state)
{
    static const int64_t FIRST[] = {-1, 3, 5, 7}, LAST[] = {-1, 5, 7, 3};
    static const struct {
        const char *declared;
        bool x_last, y_last;
    } CASES[] = {
        {"{\"x\": \"imagenet\"}", true, false},
        {"{\"x\": {\"preset\": \"imagenet\", \"layout\": \"NCHW\"}}", false, false},
        {"{\"x\": {\"mean\": [0.1, 0.2, 0.3], \"std\": [2, 3, 4]}}", true, true},
        {"{\"x\": {\"preset\": \"clip\", \"layout\": \"NCHW\"}}", false, true},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const bool x_last = CASES[i].x_last, y_last = CASES[i].y_last;
        char why[SAMPLES_WHY];
        struct graph *g = NULL;
        bool independent;
        struct sh_err err;

        assert_ok_err(read_negated(FLOAT, 4, y_last ? LAST : FIRST, CASES[i].declared, &g, &err),
                      &err);
        assert_int_equal(g->n_inputs, 1);
        assert_string_equal(g->values[g->inputs[0]].name, "x");
        assert_dims(&g->values[g->inputs[0]], SH_U8, x_last ? LAST : FIRST);
        assert_ok_err(graph_infer_outputs(g, false, &err), &err);
        assert_dims(&g->values[g->outputs[0]], SH_F32, y_last ? LAST : FIRST);
        assert_ok_err(samples_check(g, &independent, why, &err), &err);
        assert_true(independent);
        answers_are_exact(g, x_last, y_last);
        graph_free(g);
    }
}

static void a_model_of_half_precision_is_as_good(void **state)
{
    static const int64_t DIMS[] = {-1, 3, 5, 7}, SENT[] = {-1, 5, 7, 3};
    (void)state;

    for (int i = 0; i < 2; i++) {
        struct graph *g = NULL, *at = NULL;
        struct sh_err err;

        assert_ok_err(read_negated(i ? BFLOAT16 : FLOAT16, 4, DIMS, "{\"x\": \"unit\"}", &g, &err),
                      &err);
        assert_dims(&g->values[g->inputs[0]], SH_U8, SENT);
        assert_ok_err(graph_at_batch(g, 2, false, &at, &err), &err);
        assert_int_equal(at->values[at->outputs[0]].dtype, i ? SH_BF16 : SH_F16);
        graph_free(at);
        graph_free(g);
    }
}

static void sizes_may_stay_open(void **state)
{
    static const int64_t DIMS[] = {-1, 3, -1, -1};
    struct graph *g = NULL;
    struct sh_err err;
    char why[PADS_WHY];
    bool harmless;
    (void)state;

    assert_ok_err(read_negated(FLOAT, 4, DIMS, "{\"x\": \"imagenet\"}", &g, &err), &err);
    assert_int_equal(g->symbols.n, 2);
    assert_dims(&g->values[g->inputs[0]], SH_U8,
                (int64_t[]){-1, GRAPH_SYMBOL(0), GRAPH_SYMBOL(1), 3});
    assert_ok_err(graph_infer_outputs(g, false, &err), &err);
    assert_ok_err(pads_check(g, 0, (uint32_t[]){8, 16}, 2, &harmless, NULL, why, &err), &err);
    assert_true(harmless); /* each pixel is by itself */
    graph_free(g);
}

static void what_does_not_fit_the_model_is_refused(void **state)
{
    static const struct {
        const char *declared, *says;
        int type, rank;
        int64_t dims[5];
    } BAD[] = {
        {"{\"z\": \"unit\"}", "has no input \"z\"; it has x", FLOAT, 4, {-1, 3, 5, 7}},
        {"{\"x\": \"unit\"}", "\"x\" is INT64; only FP32, FP16 and BF16", INT64, 4, {-1, 3, 5, 7}},
        {"{\"x\": \"unit\"}", "\"x\" has 2 axes, and pictures have 4", FLOAT, 2, {-1, 3}},
        {"{\"x\": \"unit\"}", "\"x\" has 5 axes", FLOAT, 5, {-1, 3, 5, 7, 9}},
        {"{\"x\": \"unit\"}", "leaves its size open", FLOAT, 4, {-1, -1, 5, 7}},
        {"{\"x\": \"unit\"}", "and the file has more", FLOAT, 4, {-1, 17, 5, 7}},
        {"{\"x\": \"imagenet\"}",
         "\"mean\" of \"x\" has 3 numbers, and its pictures have 1 channels",
         FLOAT,
         4,
         {-1, 1, 5, 7}},
        {"{\"x\": {\"std\": [1, 2]}}", "\"std\" of \"x\" has 2 numbers", FLOAT, 4, {-1, 3, 5, 7}},
        {"{\"x\": {\"std\": 0}}", "\"std\" of \"x\" must be numbers", FLOAT, 4, {-1, 3, 5, 7}},
        {"no JSON", "\"preprocess\": the JSON text is wrong", FLOAT, 4, {-1, 3, 5, 7}},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct graph *g = NULL;
        struct sh_err err;
        int rc = read_negated(BAD[i].type, BAD[i].rank, BAD[i].dims, BAD[i].declared, &g, &err);

        if (rc != SH_E_INVALID || !strstr(err.msg, BAD[i].says))
            fail_msg("%s: \"%s\"", BAD[i].declared, err.msg);
        assert_null(g);
    }
}

/* (x - m) / s: of the data, and not to be learned, whoever makes x. */
static void what_the_model_standardises_by_stays_fixed(void **state)
{
    static const int64_t DIMS[] = {-1, 3, 5, 4};
    static const float M[] = {1, 2, 3, 4}, S[] = {0.5f, 2, 4, 8};
    (void)state;

    for (int declares = 0; declares < 2; declares++) {
        char path[PATH_BYTES];
        struct graph *g = NULL;
        struct sh_err err = {0};
        struct file f;

        file_init(&f);
        file_value(&f, INPUT, "x", FLOAT, 4, DIMS);
        file_value(&f, OUTPUT, "y", FLOAT, 4, DIMS);
        file_tensor(&f, "m", FLOAT, 4, M, sizeof(M));
        file_tensor(&f, "s", FLOAT, 4, S, sizeof(S));
        file_node(&f, "", "Sub", "x m", "d");
        file_node(&f, "", "Div", "d s", "y");
        file_end(&f);
        if (declares)
            declare(&f, "{\"x\": \"unit\"}");
        sh_test_write_file(path_of("made.onnx", path), f.msg.data, f.msg.len);
        assert_ok_err(onnx_read_list(path, true, &g, NULL, &err), &err);
        assert_int_equal(g->values[g->inputs[0]].dtype, declares ? SH_U8 : SH_F32);
        assert_false(g->values[graph_find(g, "m")].is_param);
        assert_false(g->values[graph_find(g, "s")].is_param);
        file_fini(&f);
        graph_free(g);
    }
}

/* ---------------------------------------------------------------- where it is kept */

static void a_package_and_a_trained_file_keep_it(void **state)
{
    static const int64_t DIMS[] = {-1, 3, 5, 7}, SENT[] = {-1, 5, 7, 3};
    const struct sh_st_tensor other = {
        .name = "other", .dtype = SH_F32, .rank = 1, .dims = {1}, .data = "abcd", .bytes = 4};
    char path[PATH_BYTES], out[PATH_BYTES], st[PATH_BYTES], folder[PATH_BYTES];
    struct graph *g = NULL;
    struct sh_err err;
    (void)state;

    assert_ok_err(read_negated(FLOAT, 4, DIMS, "{\"x\": \"imagenet\"}", &g, &err), &err);
    assert_int_equal(mkdir(path_of("package", folder), 0700), 0);
    assert_ok_err(package_write(g, folder, &err), &err);
    graph_free(g);
    assert_ok_err(package_read(folder, &g, &err), &err);
    assert_dims(&g->values[g->inputs[0]], SH_U8, SENT);
    graph_free(g);
    assert_ok(sh_st_write(path_of("state", st), &other, 1, NULL, NULL));
    assert_ok_err(onnx_export(path_of("made.onnx", path), st, path_of("out.onnx", out), &err),
                  &err);
    assert_ok_err(onnx_read(out, &g, &err), &err);
    assert_dims(&g->values[g->inputs[0]], SH_U8, SENT);
    graph_free(g);
}

static void read_and_check(const char *path, const int64_t *dims)
{
    struct graph *g = NULL;
    struct sh_err err = {0};

    assert_ok_err(onnx_read_list(path, false, &g, NULL, &err), &err);
    assert_dims(&g->values[g->inputs[0]], SH_U8, dims);
    graph_free(g);
}

static void a_push_says_it_behind_the_file(void **state)
{
    static const int64_t DIMS[] = {-1, 3, 5, 7};
    char path[PATH_BYTES], sent[PATH_BYTES], data[8192];
    struct sh_err err = {0};
    struct cargo c;
    struct file f;
    ssize_t n;
    (void)state;

    negated(&f, FLOAT, 4, DIMS, "{\"x\": \"imagenet\"}");
    sh_test_write_file(path_of("m.onnx", path), f.msg.data, f.msg.len);
    file_fini(&f);
    assert_ok_err(cargo_open(path,
                             &(struct cargo_with){.preprocess = "{\"x\": {\"layout\": \"NCHW\"}}"},
                             &c, &err),
                  &err);
    for (size_t at = 0; (n = cargo_read(&c, (int64_t)at, data + at, sizeof(data) - at)) > 0;)
        at += (size_t)n;
    sh_test_write_file(path_of("sent", sent), data, (size_t)c.bytes);
    cargo_fini(&c);
    read_and_check(sent, DIMS); /* what is said last counts */
}

/* A model and a file in a tar file. */
static void write_tar(const char *path, const char *name, const char *text, size_t bytes)
{
    static const int64_t DIMS[] = {-1, 3, 5, 7};
    static const char ZEROS[USTAR_BLOCK] = {0};
    char block[USTAR_BLOCK];
    struct sh_err err = {0};
    struct sh_buf tar;
    struct file f;

    negated(&f, FLOAT, 4, DIMS, NULL);
    sh_buf_init(&tar, 1 << 20);
    for (int i = 0; i < 2; i++) {
        const size_t n = i ? bytes : f.msg.len;

        assert_ok(ustar_write(i ? name : "net/model.onnx", n, 0, block, &err));
        assert_ok(sh_buf_append(&tar, block, sizeof(block), NULL));
        assert_ok(sh_buf_append(&tar, i ? text : f.msg.data, n, NULL));
        assert_ok(sh_buf_append(&tar, ZEROS, ustar_padded(n) - n, NULL));
    }
    assert_ok(sh_buf_append(&tar, ZEROS, sizeof(ZEROS), NULL));
    assert_ok(sh_buf_append(&tar, ZEROS, sizeof(ZEROS), NULL));
    sh_test_write_file(path, tar.data, tar.len);
    file_fini(&f);
    sh_buf_fini(&tar);
}

static void a_file_beside_the_model_says_it_too(void **state)
{
    static const int64_t SENT[] = {-1, 5, 7, 3};
    static const char DECLARED[] = "{\"x\": {\"mean\": [1, 2, 3]}}\n";
    const struct sh_st_tensor other = {
        .name = "other", .dtype = SH_F32, .rank = 1, .dims = {1}, .data = "abcd", .bytes = 4};
    char path[PATH_BYTES], st[PATH_BYTES], out[PATH_BYTES];
    struct sh_err err = {0};
    (void)state;

    write_tar(path_of("m.tar", path), "net/" SH_EXTERNAL_PREPROCESS_FILE, DECLARED,
              sizeof(DECLARED) - 1);
    read_and_check(path, SENT);
    assert_ok(sh_st_write(path_of("state", st), &other, 1, NULL, NULL));
    assert_ok_err(onnx_export(path, st, path_of("out.onnx", out), &err), &err);
    read_and_check(out, SENT); /* which is one file, without the other */
}

/* Else the version would take floats, and its first request would find that out. */
static void a_file_that_says_nothing_is_refused(void **state)
{
    static const char CUT[] = "{\"x\": \"unit\"}\0{";
    static const struct {
        const char *name, *says;
        size_t bytes;
    } WRONG[] = {
        {SH_EXTERNAL_PREPROCESS_FILE, "nothing is taken", 13},
        {"net/more/" SH_EXTERNAL_PREPROCESS_FILE, "nothing is taken", 13},
        {"net/" SH_EXTERNAL_PREPROCESS_FILE, "a byte 0", sizeof(CUT) - 1},
        {"net/" SH_EXTERNAL_PREPROCESS_FILE, "is empty", 0},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(WRONG); i++) {
        struct graph *g = NULL;
        struct sh_err err = {0};
        char path[PATH_BYTES];
        int rc;

        write_tar(path_of("m.tar", path), WRONG[i].name, CUT, WRONG[i].bytes);
        rc = onnx_read_list(path, false, &g, NULL, &err);
        if (rc != SH_E_INVALID || !strstr(err.msg, WRONG[i].says))
            fail_msg("%s: %d \"%s\"", WRONG[i].name, rc, err.msg);
        graph_free(g);
    }
}

/* ---------------------------------------------------------------- an operator of ours */

/* A file may have anything of its name. */
static void no_file_may_misuse_the_operator(void **state)
{
    static const char *const INPUTS[] = {"x", "x x", "x x x", "x t"};
    static const float T[3] = {1, 2, 3};
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(INPUTS); i++) {
        struct graph *g = NULL, *at = NULL;
        struct sh_err err = {0};
        struct file f;
        int rc;

        file_begin(&f);
        file_tensor(&f, "t", FLOAT, 3, T, sizeof(T));
        file_node(&f, "", GRAPH_PIXELS, INPUTS[i], "y");
        rc = file_read(&f, &g, NULL, &err);
        if (!rc)
            rc = graph_at_batch(g, 2, false, &at, &err);
        assert_int_equal(rc, SH_E_INVALID);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_preset_is_as_torchvision_has_it),
        cmocka_unit_test(other_ranges_are_a_scale),
        cmocka_unit_test(a_wrong_declaration_is_refused),
        cmocka_unit_test(people_type_less),
        cmocka_unit_test(what_is_typed_wrong_is_quoted),
        cmocka_unit_test_setup_teardown(an_input_becomes_bytes_in_either_layout, setup, teardown),
        cmocka_unit_test_setup_teardown(a_model_of_half_precision_is_as_good, setup, teardown),
        cmocka_unit_test_setup_teardown(sizes_may_stay_open, setup, teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_the_model_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_model_standardises_by_stays_fixed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_package_and_a_trained_file_keep_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_push_says_it_behind_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_says_nothing_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_beside_the_model_says_it_too, setup, teardown),
        cmocka_unit_test_setup_teardown(no_file_may_misuse_the_operator, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
