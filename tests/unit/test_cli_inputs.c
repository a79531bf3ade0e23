/* test_cli_inputs.c - the files of which `shunt infer` makes requests.
 *
 * Without it a file could be read in another order or as another type than it was written, a
 * picture be prepared otherwise than the model was trained, or a stranger's file take the program
 * past its end.
 */
/* uses: libcli.a */
/* link: -lcurl -lpq -lturbojpeg -lpng16 -lz */
#include "cli/data/inputs.h"
#include "cli/data/number.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <png.h>
#include <stdio.h>
#include <string.h>
#include <turbojpeg.h>

static char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 16];

static int make_dir(void **state)
{
    (void)state;
    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/in", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    sh_test_dir_remove(dir);
    return 0;
}

static void write_file(const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static json_t *model(const char *type, const char *shape)
{
    json_t *w = json_pack("[{s:s, s:s}]", "name", "x", "datatype", type);

    json_object_set_new(json_array_get(w, 0), "shape", json_loads(shape, 0, NULL));
    return w;
}

/* ------------------------------------------------------------------ NumPy */

static size_t npy(char *out, int version, const char *header, const void *data, size_t n)
{
    size_t len = strlen(header), at = version > 1 ? 12 : 10;

    memcpy(out, "\x93NUMPY", 6);
    out[6] = (char)version;
    out[7] = 0;
    out[8] = (char)(len & 0xff);
    out[9] = (char)(len >> 8);
    out[10] = out[11] = 0;
    memcpy(out + at, header, len);
    memcpy(out + at + len, data, n);
    return at + len + n;
}

static int read_npy(const char *header, size_t n, const char *type, const char *shape,
                    struct tensors *t, struct sh_err *err)
{
    float data[6] = {0, 1, 2, 3, 4, 5};
    char file[1024];
    json_t *w = model(type, shape);
    int rc;

    *err = (struct sh_err){0};
    write_file(file, npy(file, 1, header, data, n));
    rc = inputs_from_files(path, w, t, err);
    json_decref(w);
    return rc;
}

static void arrays_of_numpy_are_read_as_they_were_written(void **state)
{
    static const char HEADER[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";
    static const float DATA[6] = {0, 1, 2, 3, 4, 5};
    char file[256];
    json_t *w = model("FP32", "[-1,3]");
    struct sh_err err = {0};
    struct tensors t;

    (void)state;
    for (int version = 1; version <= 3; version++) {
        write_file(file, npy(file, version, HEADER, DATA, sizeof(DATA)));
        assert_ok_err(inputs_from_files(path, w, &t, &err), &err);
        assert_int_equal(t.rows, 2);
        assert_string_equal(t.list[0].name, "x");
        assert_int_equal(t.list[0].row_bytes, 12);
        assert_memory_equal(t.list[0].data, DATA, sizeof(DATA));
        tensors_fini(&t);
    }
    json_decref(w);
    /* One row may come without its axis, and "|", "=" and other orders of the members count. */
    assert_ok_err(read_npy("{\"shape\":(3,),'fortran_order':False,'descr':'=f4'}", 12, "FP32",
                           "[-1,3]", &t, &err),
                  &err);
    assert_int_equal(t.rows, 1);
    tensors_fini(&t);
}

static void an_array_that_is_not_as_the_model_wants_it_is_refused(void **state)
{
#define H(descr, order, shape) \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
    static const struct {
        const char *header;
        size_t n;
        const char *error;
    } CASES[] = {
        {H("'<f4'", "True", "(2, 3)"), 24, "ascontiguousarray"},
        {H("'>f4'", "False", "(2, 3)"), 24, "big-endian"},
        {H("'<f8'", "False", "(1, 3)"), 24,
         "\"x\" is FP64, the model takes FP32; NumPy makes FP64 unless it is told otherwise: save "
         "array.astype(\"float32\")"},
        {H("'<c8'", "False", "(1, 3)"), 24, "no type of a tensor"},
        {H("'<U8'", "False", "(1, 3)"), 24, "no type of a tensor"},
        {H("'|O'", "False", "(3,)"), 24, "no type of a tensor"},
        {H("[('a', '<f4')]", "False", "(6,)"), 24, "a table"},
        {H("'<f4'", "False", "(3, 2)"), 24, "the shape [3, 2], the model takes [-1, 3]"},
        {H("'<f4'", "False", "(2, 3, 1)"), 24, "the shape [2, 3, 1]"},
        {H("'<f4'", "False", "()"), 4, "the shape []"},
        {H("'<f4'", "False", "(0, 3)"), 0, "has no rows"},
        {H("'<f4'", "False", "(2, 3)"), 23, "its shape wants 24"},
        {H("'<f4'", "False", "(2, 2)"), 24, "its shape wants 16"},
        {H("'<f4'", "False", "(1099511627776, 1099511627776, 3)"), 24, ""},
        {H("'<f4'", "False", "(9999999999, 3)"), 24, "its shape wants 119999999988"},
        {H("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), 4, "has 9 axes"},
        {H("'<f4'", "False", "(-1, 3)"), 24, "not NumPy's"},
        {H("'<f4'", "0", "(2, 3)"), 24, "not NumPy's"},
        {"{'descr': '<f4', 'shape': (2, 3)}", 24, "not NumPy's"},
        {"__import__('os').system('x')", 24, "not NumPy's"},
        {"", 24, "not NumPy's"},
    };
    struct sh_err err;
    struct tensors t;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        int rc = read_npy(CASES[i].header, CASES[i].n, "FP32", "[-1,3]", &t, &err);

        if (!rc || !strstr(err.msg, CASES[i].error))
            fail_msg("%s -> %s \"%s\"", CASES[i].header, sh_rc_name(rc), err.msg);
    }
}

static void several_arrays_are_named(void **state)
{
    float data[6] = {0};
    char file[256], pair[2 * sizeof(path) + 16];
    json_t *w = json_loads("[{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[-1,3]},"
                           "{\"name\":\"b\",\"datatype\":\"FP32\",\"shape\":[-1,3]}]",
                           0, NULL);
    struct sh_err err = {0};
    struct tensors t;

    (void)state;
    write_file(file, npy(file, 1, H("'<f4'", "False", "(2, 3)"), data, sizeof(data)));
    snprintf(pair, sizeof(pair), "b=%s,a=%s", path, path);
    assert_ok_err(inputs_from_files(pair, w, &t, &err), &err);
    assert_int_equal(t.n, 2);
    tensors_fini(&t);
    assert_fails(inputs_from_files(path, w, &t, &err), SH_E_INVALID, &err, "NAME=FILE,NAME=FILE");
    err = (struct sh_err){0};
    snprintf(pair, sizeof(pair), "a=%s", path);
    assert_fails(inputs_from_files(pair, w, &t, &err), SH_E_INVALID, &err, "no file for \"b\"");
    err = (struct sh_err){0};
    snprintf(pair, sizeof(pair), "a=%s,a=%s", path, path);
    assert_fails(inputs_from_files(pair, w, &t, &err), SH_E_INVALID, &err, "twice");
    err = (struct sh_err){0};
    snprintf(pair, sizeof(pair), "z=%s", path);
    assert_fails(inputs_from_files(pair, w, &t, &err), SH_E_INVALID, &err, "no input \"z\"");
    json_decref(w);
}

/* ------------------------------------------------------------------ JSON */

static int read_json(const char *text, const char *type, struct tensors *t, struct sh_err *err)
{
    json_t *w = model(type, "[-1,2]");
    int rc;

    *err = (struct sh_err){0};
    write_file(text, strlen(text));
    rc = inputs_from_files(path, w, t, err);
    json_decref(w);
    return rc;
}

static void numbers_of_json_become_what_the_model_takes(void **state)
{
    static const char *const SAME[] = {
        "{\"x\": [[1, 2], [3, 4]]}",
        "[[1, 2], [3.0, 4]]",
        "{\"inputs\": [{\"name\": \"y\"}, {\"name\": \"x\", \"shape\": [2, 2], \"data\": [1, 2, 3, "
        "4]}]}",
        "{\"inputs\": [{\"name\": \"x\", \"shape\": [2, 2], \"data\": [[1, 2], [3, 4]]}]}",
    };
    static const char *const TYPES[] = {"FP32",  "FP64",  "FP16",  "BF16",   "INT8",   "INT16",
                                        "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"};
    struct sh_err err;
    struct tensors t;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(SAME); i++)
        for (size_t k = 0; k < SH_ARRAY_LEN(TYPES); k++) {
            assert_ok_err(read_json(SAME[i], TYPES[k], &t, &err), &err);
            assert_int_equal(t.rows, 2);
            for (size_t e = 0; e < 4; e++)
                assert_true(number_get(t.list[0].dtype, t.list[0].data, e) == (double)e + 1);
            tensors_fini(&t);
        }
    assert_ok_err(read_json("[true, false]", "BOOL", &t, &err), &err);
    assert_int_equal(t.list[0].data[0], 1);
    tensors_fini(&t);
}

static void json_that_is_no_tensor_is_refused(void **state)
{
    static const struct {
        const char *text, *type, *error;
    } CASES[] = {
        {"{\"y\": [1, 2]}", "FP32", "no \"x\", an input of the model"},
        {"{\"x\": 1}", "FP32", "a list of numbers"},
        {"{\"x\": [[1, 2], [3]]}", "FP32", "differ in length"},
        {"{\"x\": [[1, 2], 3]}", "FP32", "side by side"},
        {"{\"x\": [[1, [2]]]}", "FP32", "side by side"},
        {"{\"x\": [[1, \"2\"]]}", "FP32", "element 1 of \"x\""},
        {"{\"x\": [[1, null]]}", "FP32", "element 1 of \"x\""},
        {"{\"x\": [[1, true]]}", "FP32", "element 1 of \"x\""},
        {"{\"x\": [[1, 128]]}", "INT8", "element 1 of \"x\" is no number that INT8 holds"},
        {"{\"x\": [[1, 1.5]]}", "INT64", "element 1"},
        {"{\"x\": [[1, 70000]]}", "FP16", "element 1"},
        {"{\"x\": [[], []]}", "FP32", "empty axis"},
        {"{\"x\": []}", "FP32", "empty axis"},
        {"{\"x\": [1, 2, 3]}", "FP32", "the shape [1, 3]"},
        {"{\"x\": [[[1, 2]]]}", "FP32", "the shape [1, 1, 2]"},
        {"{\"x\": [[[[[[[[[1]]]]]]]]]}", "FP32", "more than 8 axes"},
        {"{\"inputs\": [{\"name\": \"x\", \"shape\": [9], \"data\": [1]}]}", "FP32", "wants 9"},
        {"{\"inputs\": [{\"name\": \"x\", \"shape\": [-1, 2], \"data\": [1, 2]}]}", "FP32",
         "empty"},
        {"{\"inputs\": [{\"name\": \"x\", \"shape\": [2], \"parameters\": {}}]}", "FP32",
         "no \"data\""},
        {"{\"inputs\": [{\"name\": \"x\", \"datatype\": \"FP16\", \"shape\": [1, 2], \"data\": [1, "
         "2]}]}",
         "FP32", "is FP16, the model takes FP32"},
        {"{\"x\": [[1, 2]]", "FP32", ""},
        {"x", "FP32", ""},
    };
    struct sh_err err;
    struct tensors t;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        int rc = read_json(CASES[i].text, CASES[i].type, &t, &err);

        if (!rc || !strstr(err.msg, CASES[i].error))
            fail_msg("%s -> %s \"%s\"", CASES[i].text, sh_rc_name(rc), err.msg);
    }
}

/* ------------------------------------------------------------------ pictures */

/* Red grows to the right, green downwards, blue is 40. */
static void paint(uint8_t *rgb, int width, int height)
{
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            uint8_t *p = rgb + 3 * (y * width + x);

            p[0] = (uint8_t)(255 * x / SH_MAX(width - 1, 1));
            p[1] = (uint8_t)(255 * y / SH_MAX(height - 1, 1));
            p[2] = 40;
        }
}

static void write_png(const uint8_t *rgb, int width, int height)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};

    assert_true(png_image_write_to_file(&image, path, 0, rgb, 0, NULL));
}

static void write_jpeg(const uint8_t *rgb, int width, int height, bool is_progressive)
{
    tjhandle j = tjInitCompress();
    unsigned char *file = NULL;
    unsigned long n = 0;

    assert_non_null(j);
    assert_int_equal(tjCompress2(j, rgb, width, 0, height, TJPF_RGB, &file, &n, TJSAMP_444, 98,
                                 is_progressive ? TJFLAG_PROGRESSIVE : 0),
                     0);
    write_file(file, n);
    tjFree(file);
    tjDestroy(j);
}

static double at(const struct tensors *t, size_t i)
{
    return number_get(t->list[0].dtype, t->list[0].data, i);
}

static int read_image(const struct image_plan *plan, const char *type, const char *shape,
                      struct tensors *t, struct sh_err *err)
{
    json_t *w = model(type, shape);
    int rc;

    *err = (struct sh_err){0};
    rc = image_read(path, plan, w, t, err);
    json_decref(w);
    return rc;
}

static void a_picture_is_prepared_as_it_is_declared(void **state)
{
    static uint8_t rgb[64 * 48 * 3];
    const struct image_plan plain = {.std = {1, 1, 1}},
                            full = {.shape = {.resize = 24, .width = 20, .height = 20},
                                    .scales = true,
                                    .mean = {0.5, 0.25, 0},
                                    .std = {0.5, 1, 2}},
                            last = {.std = {1, 1, 1}, .is_last = true};
    struct sh_err err;
    struct tensors t;

    (void)state;
    paint(rgb, 64, 48);
    write_png(rgb, 64, 48);
    assert_ok_err(read_image(&plain, "FP32", "[-1,3,48,64]", &t, &err), &err);
    assert_int_equal(t.rows, 1);
    for (size_t i = 0; i < 48 * 64; i++)
        for (size_t c = 0; c < 3; c++)
            assert_true(at(&t, c * 48 * 64 + i) == (double)((float)(rgb[3 * i + c] / 255.0)));
    tensors_fini(&t);
    assert_ok_err(read_image(&last, "UINT8", "[-1,48,64,3]", &t, &err), &err);
    assert_memory_equal(t.list[0].data, rgb, sizeof(rgb));
    tensors_fini(&t);
    /* 64 x 48 to 32 x 24, of which columns 6 to 25 and rows 2 to 21. */
    assert_ok_err(read_image(&full, "FP32", "[-1,3,20,20]", &t, &err), &err);
    for (size_t y = 1; y < 19; y++)
        for (size_t x = 1; x < 19; x++) {
            double red = (2.0 * ((double)x + 6) + 0.5) / 63,
                   green = (2.0 * ((double)y + 2) + 0.5) / 47;

            assert_true(fabs(at(&t, y * 20 + x) - (red - 0.5) / 0.5) < 0.012);
            assert_true(fabs(at(&t, 400 + y * 20 + x) - (green - 0.25)) < 0.006);
            assert_true(fabs(at(&t, 800 + y * 20 + x) - 40.0 / 255 / 2) < 1e-6);
        }
    tensors_fini(&t);
    for (int progressive = 0; progressive < 2; progressive++) {
        write_jpeg(rgb, 64, 48, progressive);
        assert_ok_err(read_image(&plain, "FP16", "[-1,3,48,64]", &t, &err), &err);
        for (size_t i = 0; i < 48 * 64; i++)
            for (size_t c = 0; c < 3; c++)
                assert_true(fabs(at(&t, c * 48 * 64 + i) - rgb[3 * i + c] / 255.0) < 0.06);
        tensors_fini(&t);
        assert_ok_err(read_image(&plain, "FP32", "[-1,1,48,64]", &t, &err), &err); /* grey */
        assert_true(fabs(at(&t, 0) - (40 * 0.114) / 255) < 0.03);
        tensors_fini(&t);
    }
}

static void a_picture_that_does_not_fit_is_refused(void **state)
{
    static uint8_t rgb[8 * 6 * 3];
    const struct image_plan plain = {.std = {1, 1, 1}},
                            crop = {.shape = {.width = 7, .height = 7}, .std = {1, 1, 1}},
                            mean = {.scales = true, .std = {1, 1, 1}},
                            tiny = {.scales = true, .std = {1e-6, 1e-6, 1e-6}};
    json_t *two = json_loads("[{\"name\":\"a\"},{\"name\":\"b\"}]", 0, NULL);
    struct sh_err err;
    struct tensors t;

    (void)state;
    paint(rgb, 8, 6);
    write_png(rgb, 8, 6);
    assert_fails(read_image(&plain, "FP32", "[-1,3,4,4]", &t, &err), SH_E_INVALID, &err,
                 "8 x 6 (width x height), the model takes 4 x 4: give --resize 4 --crop 4");
    assert_fails(read_image(&crop, "FP32", "[-1,3,7,7]", &t, &err), SH_E_INVALID, &err, "8 x 6");
    assert_fails(read_image(&plain, "FP32", "[-1,10]", &t, &err), SH_E_UNSUPPORTED, &err,
                 "channels");
    assert_fails(read_image(&plain, "INT64", "[-1,3,6,8]", &t, &err), SH_E_UNSUPPORTED, &err,
                 "INT64");
    assert_fails(read_image(&mean, "UINT8", "[-1,3,6,8]", &t, &err), SH_E_INVALID, &err,
                 "leave out");
    assert_fails(read_image(&tiny, "FP16", "[-1,3,6,8]", &t, &err), SH_E_INVALID, &err, "outside");
    err = (struct sh_err){0};
    assert_fails(image_read(path, &plain, two, &t, &err), SH_E_UNSUPPORTED, &err, "one input");
    json_decref(two);
    err = (struct sh_err){0};
    assert_fails(inputs_from_files(path, NULL, &t, &err), SH_E_INVALID, &err, "give it as --image");
    write_file("PK\x03\x04....", 8);
    err = (struct sh_err){0};
    assert_fails(inputs_from_files(path, NULL, &t, &err), SH_E_INVALID, &err, "NAME=FILE");
    assert_fails(read_image(&plain, "FP32", "[-1,3,6,8]", &t, &err), SH_E_INVALID, &err,
                 "no picture");
    /* 60000 x 60000 pixels in its header, in a file of a few bytes. */
    write_png(rgb, 8, 6);
    {
        FILE *f = fopen(path, "r+b");

        fseek(f, 16, SEEK_SET);
        fwrite("\0\0\xea\x60\0\0\xea\x60", 1, 8, f);
        fclose(f);
    }
    assert_true(read_image(&plain, "FP32", "[-1,3,6,8]", &t, &err) != SH_OK);
}

/* Whatever is cut off or changed: a failure or a tensor, and nothing that a sanitizer sees. */
static void a_damaged_file_does_no_harm(void **state)
{
    static uint8_t rgb[16 * 12 * 3], file[8192];
    const struct image_plan plain = {.std = {1, 1, 1}};
    uint64_t x = 1;

    (void)state;
    paint(rgb, 16, 12);
    for (int kind = 0; kind < 4; kind++) {
        json_t *w = kind < 3 ? model("FP32", "[-1,3,12,16]") : model("FP32", "[-1,3]");
        struct tensors t;
        FILE *f;
        size_t n;

        if (kind == 0)
            write_png(rgb, 16, 12);
        else if (kind < 3)
            write_jpeg(rgb, 16, 12, kind == 2);
        else
            write_file(file, npy((char *)file, 1, H("'<f4'", "False", "(2, 3)"), rgb, 24));
        f = fopen(path, "rb");
        n = fread(file, 1, sizeof(file), f);
        fclose(f);
        for (int i = 0; i < 400; i++) {
            uint8_t bad[sizeof(file)];
            size_t len = i < 100 ? n * (size_t)i / 100 : n;

            memcpy(bad, file, n);
            for (int k = 0; i >= 100 && k < 3; k++) {
                x = x * 6364136223846793005u + 1442695040888963407u;
                bad[(x >> 33) % n] ^= (uint8_t)(x >> 17);
            }
            write_file(bad, len);
            if (kind < 3 ? image_read(path, &plain, w, &t, NULL) == SH_OK
                         : inputs_from_files(path, w, &t, NULL) == SH_OK)
                tensors_fini(&t);
        }
        json_decref(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_numpy_are_read_as_they_were_written),
        cmocka_unit_test(an_array_that_is_not_as_the_model_wants_it_is_refused),
        cmocka_unit_test(several_arrays_are_named),
        cmocka_unit_test(numbers_of_json_become_what_the_model_takes),
        cmocka_unit_test(json_that_is_no_tensor_is_refused),
        cmocka_unit_test(a_picture_is_prepared_as_it_is_declared),
        cmocka_unit_test(a_picture_that_does_not_fit_is_refused),
        cmocka_unit_test(a_damaged_file_does_no_harm),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
