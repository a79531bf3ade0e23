/* test_external.c - Without it: PyTorch's default export could not be read, or a stranger's file
 * could make the importer read what lies elsewhere, past the end of a file, or through a link. */
/* uses: libmodel.a libcli.a */
/* link: -lprotobuf-c -lcurl -lpq -lturbojpeg -lpng16 -lz */
#include "cli/data/cargo.h"
#include "common/external.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "common/ustar.h"
#include "tests/unit/onnx_bytes.h"

#include <math.h>

static const float W[6] = {1, -2, 3, 0.5f, 4, -0.25f};

static void put_entry(struct sh_buf *t, const char *key, const char *value)
{
    struct sh_buf e;

    sh_buf_init(&e, 1 << 16);
    put_text(&e, 1, key);
    put_text(&e, 2, value);
    put_msg(t, 13, &e);
    sh_buf_fini(&e);
}

/* An FP32 initializer [3] whose data are elsewhere; offset and length may be NULL. */
static void file_external(struct file *f, const char *name, const char *location,
                          const char *offset, const char *length)
{
    put_int(&f->msg, 1, 3);
    put_int(&f->msg, 2, FLOAT);
    put_text(&f->msg, 8, name);
    if (location)
        put_entry(&f->msg, "location", location);
    if (offset)
        put_entry(&f->msg, "offset", offset);
    if (length)
        put_entry(&f->msg, "length", length);
    put_entry(&f->msg, "checksum", "none of ours");
    put_int(&f->msg, 14, 1);
    put_msg(&f->graph, INITIALIZER, &f->msg);
}

static int read_one(const char *location, const char *offset, const char *length, struct graph **g,
                    struct sh_err *err)
{
    struct file f;

    memset(err, 0, sizeof(*err));
    *g = NULL;
    file_begin(&f);
    file_external(&f, "w", location, offset, length);
    file_node(&f, "", "Add", "x w", "y");
    return file_read(&f, g, NULL, err);
}

static void check_w(struct graph *g, const float *want)
{
    uint32_t w = graph_find(g, "w");

    assert_int_equal(g->values[w].bytes, 12);
    assert_memory_equal(g->values[w].data, want, 12);
    assert_true(g->values[w].is_param);
    graph_free(g);
}

static void write_data(const char *name)
{
    char path[PATH_BYTES];

    sh_test_write_file(path_of(name, path), (const char *)W, sizeof(W));
}

static void weights_lie_in_a_file_beside(void **state)
{
    struct sh_err err;
    struct graph *g;
    char path[PATH_BYTES];
    (void)state;

    write_data("m.data");
    assert_ok_err(read_one("m.data", "12", "12", &g, &err), &err);
    check_w(g, W + 3);
    assert_ok_err(read_one("./m.data", NULL, "12", &g, &err), &err);
    check_w(g, W);
    assert_ok_err(read_one("m.data", "12", NULL, &g, &err), &err);
    check_w(g, W + 3);
    assert_int_equal(mkdir(path_of("sub", path), 0700), 0);
    write_data("sub/m.data");
    assert_ok_err(read_one("sub/m.data", "0", "12", &g, &err), &err);
    check_w(g, W);
}

static void an_offset_that_is_not_aligned_is_read_all_the_same(void **state)
{
    struct sh_err err;
    struct graph *g;
    char path[PATH_BYTES], bytes[20] = {0};
    (void)state;

    memcpy(bytes + 5, W, 12);
    sh_test_write_file(path_of("odd", path), bytes, sizeof(bytes));
    assert_ok_err(read_one("odd", "5", "12", &g, &err), &err);
    check_w(g, W);
}

static void a_safetensors_file_will_do(void **state)
{
    struct sh_st_tensor t = {
        .name = "w", .dtype = SH_F32, .rank = 1, .dims = {3}, .data = W, .bytes = 12};
    char path[PATH_BYTES], offset[24];
    struct sh_st *st = NULL;
    struct sh_err err;
    struct graph *g;
    (void)state;

    assert_ok(sh_st_write(path_of("model.safetensors", path), &t, 1, NULL, NULL));
    assert_ok(sh_st_open(path, &st, NULL));
    snprintf(offset, sizeof(offset), "%zu", sh_st_offset(st, sh_st_at(st, 0)));
    sh_st_close(st);
    assert_ok_err(read_one("model.safetensors", offset, "12", &g, &err), &err);
    check_w(g, W);
}

static void names_do_not_leave_the_folder(void **state)
{
    static const char *const NAMES[] = {"/etc/passwd", "../m.data",   "sub/../../m.data", "..",
                                        ".",           "sub//m.data", "m.data/"};
    static const char *const NONE[] = {"", "a\nb", "a\xff"};
    struct sh_err err;
    struct graph *g;
    (void)state;

    write_data("m.data");
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        assert_fails(read_one(NAMES[i], "0", "12", &g, &err), SH_E_INVALID, &err,
                     "must not leave the folder");
    for (size_t i = 0; i < SH_ARRAY_LEN(NONE); i++)
        assert_fails(read_one(NONE[i], "0", "12", &g, &err), SH_E_INVALID, &err,
                     "UTF-8 without control characters");
}

static void links_and_folders_are_not_followed(void **state)
{
    struct sh_err err;
    struct graph *g;
    char path[PATH_BYTES], to[PATH_BYTES];
    (void)state;

    write_data("m.data");
    assert_int_equal(symlink(path_of("m.data", to), path_of("link", path)), 0);
    assert_fails(read_one("link", "0", "12", &g, &err), SH_E_INVALID, &err, "is a link");
    assert_int_equal(mkdir(path_of("sub", path), 0700), 0);
    assert_fails(read_one("sub", "0", "12", &g, &err), SH_E_INVALID, &err, "no regular file");
    assert_int_equal(symlink(path, path_of("sublink", to)), 0);
    write_data("sub/m.data");
    assert_fails(read_one("sublink/m.data", "0", "12", &g, &err), SH_E_INVALID, &err, "not there");
    assert_int_equal(mkfifo(path_of("pipe", path), 0600), 0);
    assert_fails(read_one("pipe", "0", "12", &g, &err), SH_E_INVALID, &err, "no regular file");
}

static void offsets_and_lengths_are_those_of_the_file(void **state)
{
    static const struct {
        const char *offset, *length, *text;
    } ROWS[] = {
        {"13", "12", "the file has 24"},
        {"24", "12", "the file has 24"},
        {"9223372036854775807", "12", "the file has 24"},
        {"0", "9223372036854775807", "the file has 24"},
        {"0", "8", "its shape needs 12"},
        {"0", "13", "its shape needs 12"},
        {"20", NULL, "its shape needs 12"},
        {"-1", "12", "its offset is no number"},
        {"0", "99999999999999999999", "its length is no number"},
        {"0x4", "12", "its offset is no number"},
    };
    struct sh_err err;
    struct graph *g;
    (void)state;

    write_data("m.data");
    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++)
        assert_fails(read_one("m.data", ROWS[i].offset, ROWS[i].length, &g, &err), SH_E_INVALID,
                     &err, ROWS[i].text);
    assert_fails(read_one(NULL, "0", "12", &g, &err), SH_E_INVALID, &err, "none is named");
    assert_fails(read_one("absent", "0", "12", &g, &err), SH_E_INVALID, &err, "not there");
}

/* A file of 24 bytes would otherwise be a model of any size. */
static void tensors_do_not_overlap(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct file f;
    (void)state;

    write_data("m.data");
    file_begin(&f);
    file_external(&f, "a", "m.data", "0", "12");
    file_external(&f, "b", "m.data", "0", "12");
    file_external(&f, "c", "m.data", "8", "12");
    file_node(&f, "", "Add", "x a", "y");
    assert_fails(file_read(&f, &g, NULL, &err), SH_E_INVALID, &err, "overlap");
}

/* The API's folder of uploads is full of other people's files. */
static void files_beside_are_read_only_if_that_is_wanted(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct file f;
    char path[PATH_BYTES];
    (void)state;

    write_data("m.data");
    file_begin(&f);
    file_external(&f, "w", "m.data", "0", "12");
    file_node(&f, "", "Add", "x w", "y");
    file_end(&f);
    sh_test_write_file(path_of("made.onnx", path), f.msg.data, f.msg.len);
    assert_fails(onnx_read_list(path, false, &g, NULL, &err), SH_E_INVALID, &err, "one tar file");
    file_fini(&f);
}

/* ---------------------------------------------------------------- tar files */

static void tar_add(struct sh_buf *t, char type, const char *name, const void *data, size_t n)
{
    static const char ZERO[USTAR_BLOCK];
    unsigned char head[USTAR_BLOCK];
    unsigned sum = 0;

    assert_ok(ustar_write(name, n, 0, head, NULL));
    head[156] = (unsigned char)type;
    memset(head + 148, ' ', 8);
    for (size_t i = 0; i < sizeof(head); i++)
        sum += head[i];
    snprintf((char *)head + 148, 7, "%06o", sum);
    assert_ok(sh_buf_append(t, head, sizeof(head), NULL));
    assert_ok(sh_buf_append(t, data, n, NULL));
    assert_ok(sh_buf_append(t, ZERO, (size_t)ustar_padded(n) - n, NULL));
}

static void tar_begin(struct sh_buf *t)
{
    sh_buf_init(t, 1 << 20);
}

/* Adds as `name` a model whose w begins at byte 12 of `location`. */
static void tar_model(struct sh_buf *t, const char *name, const char *location)
{
    struct file f;

    file_begin(&f);
    file_external(&f, "w", location, "12", "12");
    file_node(&f, "", "Add", "x w", "y");
    file_end(&f);
    tar_add(t, '0', name, f.msg.data, f.msg.len);
    file_fini(&f);
}

static int tar_read(struct sh_buf *t, struct graph **g, struct sh_err *err)
{
    static const char END[2 * USTAR_BLOCK];
    char path[PATH_BYTES];
    int rc;

    *g = NULL;
    memset(err, 0, sizeof(*err));
    assert_ok(sh_buf_append(t, END, sizeof(END), NULL));
    sh_test_write_file(path_of("m.tar", path), t->data, t->len);
    sh_buf_fini(t);
    rc = onnx_read_list(path, false, g, NULL, err);
    return rc;
}

static void a_tar_file_has_a_model_and_its_data(void **state)
{
    static const char PAX[] = "30 mtime=1700000000.123456789\n18 path=d/m.bin.b\n";
    char name[300] = "";
    struct sh_buf t;
    struct sh_err err;
    struct graph *g;
    (void)state;

    tar_begin(&t);
    tar_model(&t, "m.onnx", "m.data");
    tar_add(&t, '0', "./m.data", W, sizeof(W));
    assert_ok_err(tar_read(&t, &g, &err), &err);
    check_w(g, W + 3);

    tar_begin(&t); /* names of 100 bytes and more, as GNU tar writes them */
    memset(name, 'd', 120);
    tar_model(&t, "m.onnx", name);
    tar_add(&t, 'L', "././@LongLink", name, 121);
    tar_add(&t, '0', "ddd", W, sizeof(W));
    assert_ok_err(tar_read(&t, &g, &err), &err);
    check_w(g, W + 3);
    for (size_t n = 0; n < 600; n += 300) {
        tar_begin(&t);
        tar_add(&t, 'L', "././@LongLink", name, n);
        assert_fails(tar_read(&t, &g, &err), SH_E_INVALID, &err, "too long a name");
    }

    tar_begin(&t); /* weights under a name that nobody looks for */
    tar_model(&t, "d/m.onnx", "./tuned.safetensors");
    tar_add(&t, '0', "d/tuned.safetensors", W, sizeof(W));
    assert_ok_err(tar_read(&t, &g, &err), &err);
    check_w(g, W + 3);
    for (int i = 0; i < 2; i++) {
        tar_begin(&t);
        tar_model(&t, "d/m.onnx", "m.data");
        tar_add(&t, '0', "d/m.data", W, sizeof(W));
        tar_add(&t, '0', i ? "initializers.safetensors" : "d/tuned.safetensors", W, sizeof(W));
        assert_fails(tar_read(&t, &g, &err), SH_E_INVALID, &err, "nothing is taken");
    }

    tar_begin(&t); /* in a folder, data first, as others than GNU tar write it */
    tar_add(&t, '5', "d/", "", 0);
    tar_add(&t, 'g', "pax_global_header", "15 comment=abc\n", 15);
    tar_add(&t, 'x', "PaxHeader", PAX, sizeof(PAX) - 1);
    tar_add(&t, '0', "d/another", W, sizeof(W));
    tar_add(&t, '0', "d/._m.onnx", "x", 1);
    tar_model(&t, "d/m.onnx", "m.bin.b");
    assert_ok_err(tar_read(&t, &g, &err), &err);
    check_w(g, W + 3);
}

static void other_tar_files_are_refused(void **state)
{
    struct sh_buf t;
    struct sh_err err;
    struct graph *g;
    (void)state;

    tar_begin(&t);
    tar_add(&t, '0', "m.data", W, sizeof(W));
    assert_fails(tar_read(&t, &g, &err), SH_E_INVALID, &err, "has no .onnx file");
    tar_begin(&t);
    tar_model(&t, "a.onnx", "m.data");
    tar_model(&t, "b.onnx", "m.data");
    assert_fails(tar_read(&t, &g, &err), SH_E_INVALID, &err, "more than one .onnx file");
    tar_begin(&t);
    tar_model(&t, "a.onnx", "m.data");
    tar_add(&t, '2', "m.data", "", 0);
    assert_fails(tar_read(&t, &g, &err), SH_E_INVALID, &err, "neither a file nor a folder");
    tar_begin(&t);
    tar_model(&t, "a.onnx", "../m.data");
    tar_add(&t, '0', "m.data", W, sizeof(W));
    assert_fails(tar_read(&t, &g, &err), SH_E_INVALID, &err, "must not leave the folder");
    tar_begin(&t);
    tar_model(&t, "a.onnx", "m.data");
    tar_add(&t, '0', "../m.data", W, sizeof(W));
    assert_fails(tar_read(&t, &g, &err), SH_E_INVALID, &err, "a file outside of it");
    tar_begin(&t);
    tar_model(&t, "a.onnx", "m.data");
    assert_fails(tar_read(&t, &g, &err), SH_E_INVALID, &err, "not there");
    tar_begin(&t);
    tar_model(&t, "d/a.onnx", "m.data"); /* its data are not beside it */
    tar_add(&t, '0', "m.data", W, sizeof(W));
    assert_fails(tar_read(&t, &g, &err), SH_E_INVALID, &err, "not there");
}

static void no_damage_to_a_tar_file_crashes_the_reader(void **state)
{
    static const uint8_t VALUES[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
    struct sh_buf t;
    char path[PATH_BYTES];
    (void)state;

    tar_begin(&t);
    tar_add(&t, 'x', "p", "18 path=d/m.bin.b\n", 18);
    tar_add(&t, '0', "m.data", W, sizeof(W));
    tar_model(&t, "m.onnx", "m.data");
    path_of("bad.tar", path);
    for (size_t i = 0; i < t.len; i += 3) {
        struct sh_err err = {0};
        struct graph *g = NULL;
        char keep = t.data[i];

        t.data[i] = (char)VALUES[i % SH_ARRAY_LEN(VALUES)];
        sh_test_write_file(path, t.data, t.len);
        onnx_read_list(path, false, &g, NULL, &err);
        graph_free(g);
        t.data[i] = keep;
        g = NULL;
        sh_test_write_file(path, t.data, i);
        onnx_read_list(path, false, &g, NULL, &err);
        graph_free(g);
    }
    sh_buf_fini(&t);
}

/* ---------------------------------------------------------------- weights by name */

static struct sh_st_tensor st_tensor(const char *name, enum sh_dtype dtype, int64_t n,
                                     const void *data)
{
    return (struct sh_st_tensor){.name = name,
                                 .dtype = dtype,
                                 .rank = n >= 0,
                                 .dims = {n},
                                 .data = data,
                                 .bytes = (size_t)(n >= 0 ? n : 1) * sh_dtype_bytes(dtype)};
}

/* w has values, v has none unless v_too, k is INT64 in the typed encoding. y = x + w + v. */
static void tar_named(struct sh_buf *t, bool v_too, const char *twice)
{
    static const float OLD[3] = {9, 9, 9};
    struct file f;

    file_begin(&f);
    file_tensor(&f, "w", FLOAT, 3, OLD, sizeof(OLD));
    file_tensor(&f, "v", FLOAT, 3, OLD, v_too ? sizeof(OLD) : 0);
    if (twice)
        file_tensor(&f, twice, FLOAT, 3, OLD, sizeof(OLD));
    put_int(&f.msg, 1, 1);
    put_int(&f.msg, 2, INT64);
    put_int(&f.msg, 7, 1); /* int64_data */
    put_text(&f.msg, 8, "k");
    put_msg(&f.graph, INITIALIZER, &f.msg);
    file_node(&f, "", "Add", "x w", "a");
    file_node(&f, "", "Add", "a v", "b");
    file_node(&f, "", "Gather", "b k", "y");
    file_end(&f);
    tar_add(t, '0', "d/m.onnx", f.msg.data, f.msg.len);
    file_fini(&f);
}

static void tar_weights(struct sh_buf *t, const char *name, const struct sh_st_tensor *list,
                        size_t n)
{
    char path[PATH_BYTES], *bytes;
    size_t len;

    assert_ok(sh_st_write(path_of("weights", path), list, n, NULL, NULL));
    bytes = sh_test_read_file(path, &len);
    tar_add(t, '0', name, bytes, len);
    free(bytes);
}

/* The model with these weights beside it. */
static int named_read(const struct sh_st_tensor *list, size_t n, bool v_too, struct graph **g,
                      struct sh_err *err)
{
    struct sh_buf t;

    tar_begin(&t);
    tar_named(&t, v_too, NULL);
    tar_weights(&t, "d/" SH_EXTERNAL_WEIGHTS, list, n);
    return tar_read(&t, g, err);
}

static void assert_floats(const struct graph *g, const char *name, const float *want)
{
    uint32_t v = graph_find(g, name);

    assert_int_not_equal(v, GRAPH_NONE);
    assert_int_equal(g->values[v].bytes, 12);
    assert_memory_equal(g->values[v].data, want, 12);
    assert_true(g->values[v].is_param);
}

static void weights_by_name_replace_those_of_the_graph(void **state)
{
    static const float OLD[3] = {9, 9, 9};
    const int64_t k = 2, count = 77;
    struct sh_st_tensor list[] = {st_tensor("v", SH_F32, 3, W + 3),
                                  st_tensor("bn.num_batches_tracked", SH_I64, -1, &count),
                                  st_tensor("k", SH_I64, 1, &k), st_tensor("w", SH_F32, 3, W)};
    struct sh_err err;
    struct graph *g;
    (void)state;

    assert_ok_err(named_read(list, 4, false, &g, &err), &err);
    assert_floats(g, "w", W);
    assert_floats(g, "v", W + 3);
    assert_int_equal(*(const int64_t *)g->values[graph_find(g, "k")].data, 2);
    graph_free(g);
    assert_ok_err(named_read(list, 2, true, &g, &err), &err); /* the rest keeps its own */
    assert_floats(g, "w", OLD);
    assert_floats(g, "v", W + 3);
    assert_int_equal(*(const int64_t *)g->values[graph_find(g, "k")].data, 1);
    graph_free(g);
}

static void weights_in_half_precision_are_widened(void **state)
{
    static const uint16_t F16[3] = {0x3C00, 0xC000, 0x0001}; /* 1, -2, the least of all */
    static const uint16_t BF16[3] = {0x3F80, 0xC000, 0x7F80};
    const float want16[3] = {1, -2, 0x1p-24f}, wantb[3] = {1, -2, (float)INFINITY};
    struct sh_st_tensor list[] = {st_tensor("w", SH_F16, 3, F16), st_tensor("v", SH_BF16, 3, BF16)};
    struct sh_err err;
    struct graph *g;
    (void)state;

    assert_ok_err(named_read(list, 2, false, &g, &err), &err);
    assert_floats(g, "w", want16);
    assert_floats(g, "v", wantb);
    graph_free(g);
}

static void weights_that_do_not_fit_are_refused(void **state)
{
    static const char ZERO[128];
    const struct {
        struct sh_st_tensor t;
        const char *text;
    } ROWS[] = {
        {st_tensor("w", SH_F32, 4, ZERO),
         "\"w\" is F32 [4] in " SH_EXTERNAL_WEIGHTS ", but the graph needs F32 [3]"},
        {st_tensor("w", SH_F32, -1, ZERO), "is F32 []"},
        {st_tensor("w", SH_F64, 3, ZERO), "is F64 [3]"},
        {st_tensor("w", SH_I32, 3, ZERO), "is I32 [3]"},
        {st_tensor("w", SH_F16, 4, ZERO), "is F16 [4]"},
        {st_tensor("k", SH_F16, 1, ZERO), "needs I64 [1]"},
        {st_tensor("head.weight", SH_F32, 3, ZERO), "1 of the 1 tensors"},
        {st_tensor("head.weight", SH_F32, 3, ZERO), "head.weight"},
        {st_tensor("x", SH_F32, 3, ZERO), "no initializers for"}, /* an input is none */
        {st_tensor("bn.num_batches_tracked", SH_F32, -1, ZERO), "num_batches_tracked"},
        {st_tensor("my_num_batches_tracked", SH_I64, -1, ZERO), "my_num_batches_tracked"},
    };
    struct sh_st_tensor none = st_tensor("w", SH_F32, 3, ZERO);
    struct sh_err err;
    struct graph *g;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++)
        assert_fails(named_read(&ROWS[i].t, 1, true, &g, &err), SH_E_INVALID, &err, ROWS[i].text);
    assert_fails(named_read(&none, 1, false, &g, &err), SH_E_INVALID, &err,
                 "initializer v has no values");
}

static void many_names_that_the_graph_lacks_make_a_short_message(void **state)
{
    struct sh_st_tensor list[20];
    char names[20][64];
    struct sh_err err;
    struct graph *g;
    (void)state;

    for (size_t i = 0; i < 20; i++) {
        snprintf(names[i], sizeof(names[i]), "t%02zu", i);
        list[i] = st_tensor(names[i], SH_F32, 3, W);
    }
    assert_fails(named_read(list, 20, true, &g, &err), SH_E_INVALID, &err, "20 of the 20");
    assert_non_null(strstr(err.msg, "t00, t01, "));
    assert_non_null(strstr(err.msg, ", ..."));
}

static void broken_weights_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        int rc;
        const char *text;
    } ROWS[] = {
        {"", 0, SH_E_INVALID, "at least 8"},
        {"\1\2\3", 3, SH_E_INVALID, "at least 8"},
        {"\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10, SH_E_TOOBIG, "its header claims"},
        {"\x20\0\0\0\0\0\0\0{}", 10, SH_E_INVALID, "is cut"},
        {"\2\0\0\0\0\0\0\0{}more", 14, SH_E_INVALID, "belong to no tensor"},
    };
    const struct sh_st_tensor t = st_tensor("w", SH_F32, 3, W);
    struct sh_err err;
    struct graph *g;
    struct sh_buf b;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++) {
        tar_begin(&b);
        tar_named(&b, true, NULL);
        tar_add(&b, '0', "d/" SH_EXTERNAL_WEIGHTS, ROWS[i].bytes, ROWS[i].n);
        assert_fails(tar_read(&b, &g, &err), ROWS[i].rc, &err, ROWS[i].text);
        assert_non_null(strstr(err.msg, SH_EXTERNAL_WEIGHTS));
    }
    tar_begin(&b); /* widened twice, a small file would be a large model */
    tar_named(&b, true, "w");
    tar_weights(&b, "d/" SH_EXTERNAL_WEIGHTS, &t, 1);
    assert_fails(tar_read(&b, &g, &err), SH_E_INVALID, &err, "w is defined twice");
}

/* m.onnx.data may stay at home, and what is trained from such a model has its weights. */
static void weights_by_name_stand_in_for_files_that_are_missing(void **state)
{
    const struct sh_st_tensor t = st_tensor("w", SH_F32, 3, W),
                              other = st_tensor("o", SH_F32, 3, W);
    char in[PATH_BYTES], st[PATH_BYTES], out[PATH_BYTES];
    struct graph *g = NULL;
    struct sh_err err;
    struct sh_buf b;
    (void)state;

    tar_begin(&b);
    tar_model(&b, "m.onnx", "m.data");
    tar_weights(&b, SH_EXTERNAL_WEIGHTS, &t, 1);
    assert_ok_err(tar_read(&b, &g, &err), &err);
    check_w(g, W);
    assert_ok(sh_st_write(path_of("state", st), &other, 1, NULL, NULL));
    path_of("m.tar", in);
    assert_ok_err(onnx_export(in, st, path_of("out.onnx", out), &err), &err);
    assert_ok_err(onnx_read_list(out, false, &g, NULL, &err), &err);
    check_w(g, W);
    tar_begin(&b); /* not beside the model */
    tar_model(&b, "m.onnx", "m.data");
    tar_weights(&b, "d/" SH_EXTERNAL_WEIGHTS, &t, 1);
    assert_fails(tar_read(&b, &g, &err), SH_E_INVALID, &err, "nothing is taken");
}

static void no_damage_to_weights_crashes_the_reader(void **state)
{
    static const uint8_t VALUES[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
    const struct sh_st_tensor list[] = {st_tensor("w", SH_F32, 3, W), st_tensor("v", SH_F16, 3, W)};
    struct sh_err err;
    struct graph *g;
    char path[PATH_BYTES], *bytes;
    size_t n;
    (void)state;

    assert_ok_err(named_read(list, 2, false, &g, &err), &err);
    graph_free(g);
    bytes = sh_test_read_file(path_of("m.tar", path), &n);
    for (size_t i = 0; i < n; i++) {
        char keep = bytes[i];

        if (i % 2 && !keep)
            continue;
        bytes[i] = (char)VALUES[i % SH_ARRAY_LEN(VALUES)];
        sh_test_write_file(path, bytes, n);
        g = NULL;
        memset(&err, 0, sizeof(err));
        onnx_read_list(path, false, &g, NULL, &err);
        graph_free(g);
        bytes[i] = keep;
    }
    free(bytes);
}

/* ---------------------------------------------------------------- what is sent */

static void read_cargo(struct cargo *c, struct sh_buf *out, size_t step)
{
    char chunk[4096];
    ssize_t n;

    while ((n = cargo_read(c, (int64_t)out->len, chunk, step)) > 0)
        assert_ok(sh_buf_append(out, chunk, (size_t)n, NULL));
    assert_int_equal(n, 0);
    assert_int_equal(out->len, c->bytes);
}

static void a_push_takes_the_files_that_the_model_names(void **state)
{
    struct cargo c;
    struct sh_buf all, again;
    struct sh_err err = {0};
    struct graph *g = NULL;
    char path[PATH_BYTES];
    struct file f;
    (void)state;

    write_data("m.onnx.data");
    file_begin(&f);
    file_external(&f, "w", "m.onnx.data", "12", "12");
    file_node(&f, "", "Add", "x w", "y");
    file_end(&f);
    sh_test_write_file(path_of("m.onnx", path), f.msg.data, f.msg.len);
    file_fini(&f);
    sh_buf_init(&all, 1 << 20);
    sh_buf_init(&again, 1 << 20);
    assert_ok_err(cargo_open(path, NULL, &c, &err), &err);
    read_cargo(&c, &all, 4096);
    read_cargo(&c, &again, 7); /* a connection that went on in the middle */
    assert_memory_equal(all.data, again.data, all.len);
    cargo_fini(&c);
    sh_test_write_file(path_of("sent", path), all.data, all.len);
    assert_ok_err(onnx_read_list(path, false, &g, NULL, &err), &err);
    check_w(g, W + 3);
    sh_buf_fini(&all);
    sh_buf_fini(&again);
}

static void a_push_with_weights_packs_them(void **state)
{
    const struct sh_st_tensor t = st_tensor("w", SH_F32, 3, W);
    char path[PATH_BYTES], weights[PATH_BYTES];
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct sh_buf all;
    struct cargo c;
    struct file f;
    (void)state;

    file_begin(&f);
    file_external(&f, "w", "absent.data", "12", "12");
    file_node(&f, "", "Add", "x w", "y");
    file_end(&f);
    sh_test_write_file(path_of("m.onnx", path), f.msg.data, f.msg.len);
    file_fini(&f);
    assert_ok(sh_st_write(path_of("tuned.safetensors", weights), &t, 1, NULL, NULL));
    sh_buf_init(&all, 1 << 20);
    assert_ok_err(cargo_open(path, &(struct cargo_with){.weights = weights}, &c, &err), &err);
    read_cargo(&c, &all, 4096);
    cargo_fini(&c);
    sh_test_write_file(path_of("sent", path), all.data, all.len);
    assert_ok_err(onnx_read_list(path, false, &g, NULL, &err), &err);
    check_w(g, W);
    sh_buf_fini(&all);
}

static void a_push_takes_nothing_from_elsewhere(void **state)
{
    static const char *const NAMES[] = {"/etc/passwd", "../m.data", "absent"};
    static const char *const TEXTS[] = {"outside of its folder", "outside of its folder",
                                        "which is not there"};
    struct sh_err err;
    struct cargo c;
    struct file f;
    char path[PATH_BYTES];
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        file_begin(&f);
        file_external(&f, "w", NAMES[i], NULL, NULL);
        file_end(&f);
        sh_test_write_file(path_of("m.onnx", path), f.msg.data, f.msg.len);
        file_fini(&f);
        memset(&err, 0, sizeof(err));
        assert_fails(cargo_open(path, NULL, &c, &err), SH_E_INVALID, &err, TEXTS[i]);
        cargo_fini(&c);
    }
}

/* ---------------------------------------------------------------- export */

static void an_export_has_the_weights_of_other_files_in_it(void **state)
{
    float trained[3] = {7, 8, 9};
    struct sh_st_tensor t = {
        .name = "w", .dtype = SH_F32, .rank = 1, .dims = {3}, .data = trained, .bytes = 12};
    struct sh_buf b;
    struct graph *g = NULL;
    struct sh_err err = {0};
    char in[PATH_BYTES], st[PATH_BYTES], out[PATH_BYTES];
    (void)state;

    tar_begin(&b);
    tar_model(&b, "m.onnx", "m.data");
    tar_add(&b, '0', "m.data", W, sizeof(W));
    sh_test_write_file(path_of("in", in), b.data, b.len);
    sh_buf_fini(&b);
    assert_ok(sh_st_write(path_of("state", st), &t, 1, NULL, NULL));
    assert_ok_err(onnx_export(in, st, path_of("out.onnx", out), &err), &err);
    assert_ok_err(onnx_read_list(out, false, &g, NULL, &err), &err);
    check_w(g, trained);
    t.name = "another";
    assert_ok(sh_st_write(st, &t, 1, NULL, NULL));
    assert_ok_err(onnx_export(in, st, out, &err), &err);
    assert_ok_err(onnx_read_list(out, false, &g, NULL, &err), &err);
    check_w(g, W + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(weights_lie_in_a_file_beside),
        T(an_offset_that_is_not_aligned_is_read_all_the_same),
        T(a_safetensors_file_will_do),
        T(names_do_not_leave_the_folder),
        T(links_and_folders_are_not_followed),
        T(offsets_and_lengths_are_those_of_the_file),
        T(tensors_do_not_overlap),
        T(files_beside_are_read_only_if_that_is_wanted),
        T(a_tar_file_has_a_model_and_its_data),
        T(other_tar_files_are_refused),
        T(no_damage_to_a_tar_file_crashes_the_reader),
        T(weights_by_name_replace_those_of_the_graph),
        T(weights_in_half_precision_are_widened),
        T(weights_that_do_not_fit_are_refused),
        T(many_names_that_the_graph_lacks_make_a_short_message),
        T(broken_weights_are_refused),
        T(weights_by_name_stand_in_for_files_that_are_missing),
        T(no_damage_to_weights_crashes_the_reader),
        T(a_push_with_weights_packs_them),
        T(a_push_takes_the_files_that_the_model_names),
        T(a_push_takes_nothing_from_elsewhere),
        T(an_export_has_the_weights_of_other_files_in_it),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
