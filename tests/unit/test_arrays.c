/* test_arrays.c - arrays of NumPy, zip files of them and tables as datasets.
 *
 * Without it a label could stand beside another sample, a column of the table be taken for its
 * neighbour, a number be rounded or cut without a word, or a stranger's file take the program past
 * its end or fill the disk.
 */
/* uses: libcli.a */
/* link: -lcurl -lpq -lturbojpeg -lpng16 -lz */
#include "cli/client/upload.h"
#include "cli/data/arrays.h"
#include "cli/files/user_file.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char dir[SH_TEST_DIR_BYTES], tmp[] = "/tmp";
static struct cli_conf conf = {.quiet = true, .tmp_dir = tmp};
static struct cli cli = {.conf = &conf};

static char *path_of(const char *name)
{
    static char paths[4][SH_TEST_DIR_BYTES + 64];
    static unsigned next;
    char *path = paths[next++ % SH_ARRAY_LEN(paths)];

    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(path_of(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int make_dir(void **state)
{
    (void)state;
    sh_test_dir_make(dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    sh_test_dir_remove(dir);
    return 0;
}

static size_t npy(char *out, const char *descr, const char *shape, const void *data, size_t n)
{
    const int len = snprintf(
        out + 10, 200, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);

    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (char)len;
    out[9] = 0;
    memcpy(out + 10 + len, data, n);
    return 10 + (size_t)len + n;
}

static void write_npy(const char *name, const char *descr, const char *shape, const void *data,
                      size_t n)
{
    char file[1024];

    write_file(name, file, npy(file, descr, shape, data, n));
}

static void assert_tensor(const struct setfile *f, const char *name, enum sh_dtype t,
                          const int64_t *dims, size_t rank, const void *data)
{
    struct sh_st *st = NULL;
    const struct sh_st_tensor *x;
    struct sh_err err = {0};

    assert_ok_err(sh_st_open(f->path, &st, &err), &err);
    x = sh_st_find(st, name);
    assert_non_null(x);
    assert_int_equal(x->dtype, t);
    assert_int_equal(x->rank, rank);
    for (size_t i = 0; i < rank; i++)
        assert_int_equal(x->dims[i], dims[i]);
    assert_memory_equal(x->data, data, x->bytes);
    sh_st_close(st);
}

static int read_arrays(size_t n, char **files, struct setfile *f, struct sh_err *err)
{
    *err = (struct sh_err){0};
    return arrays_read(&cli, files, n, f, err);
}

static const double X[] = {0.5, 1, 2, 3, 4, 5};
static const float X32[] = {0.5f, 1, 2, 3, 4, 5};
static const uint8_t Y[] = {7, 200};
static const int64_t Y64[] = {7, 200};
static const double WIDE[] = {1e38, 1e39};
static const char EMPTY_ZIP[22] = "PK\5\6";

static void arrays_become_tensors_of_their_names(void **state)
{
    char named[128];
    struct setfile f;
    struct sh_err err;

    (void)state;
    write_npy("input.npy", "<f8", "(2, 3)", X, sizeof(X));
    write_npy("labels.npy", "|u1", "(2,)", Y, sizeof(Y));
    snprintf(named, sizeof(named), "label=%s", path_of("labels.npy"));
    assert_ok_err(read_arrays(2, (char *[]){path_of("input.npy"), named}, &f, &err), &err);
    assert_tensor(&f, "input", SH_F32, (int64_t[]){2, 3}, 2, X32);
    assert_tensor(&f, "label", SH_I64, (int64_t[]){2}, 1, Y64);
    setfile_fini(&f);
    /* Other integers stay as they are. */
    assert_ok_err(read_arrays(1, (char *[]){path_of("labels.npy")}, &f, &err), &err);
    assert_tensor(&f, "labels", SH_U8, (int64_t[]){2}, 1, Y);
    setfile_fini(&f);
}

static void arrays_that_do_not_fit_are_refused(void **state)
{
    struct setfile f;
    struct sh_err err;

    (void)state;
    write_npy("x.npy", "<f4", "(2, 3)", X32, sizeof(X32));
    write_npy("y.npy", "|u1", "(1,)", Y, 1);
    write_npy("none.npy", "<f4", "()", X32, 4);
    write_npy("cut.npy", "<f4", "(3, 3)", X32, sizeof(X32));
    assert_fails(read_arrays(2, (char *[]){path_of("x.npy"), path_of("y.npy")}, &f, &err),
                 SH_E_INVALID, &err, "y.npy\" has 1 samples");
    assert_fails(read_arrays(2, (char *[]){path_of("x.npy"), path_of("x.npy")}, &f, &err),
                 SH_E_INVALID, &err, "TENSOR=FILE");
    assert_fails(read_arrays(1, (char *[]){path_of("none.npy")}, &f, &err), SH_E_INVALID, &err,
                 "no samples");
    assert_fails(read_arrays(1, (char *[]){path_of("cut.npy")}, &f, &err), SH_E_INVALID, &err,
                 "its shape wants 36");
    assert_fails(read_arrays(1, (char *[]){path_of("gone.npy")}, &f, &err), SH_E_INVALID, &err,
                 "gone.npy");
    assert_fails(read_arrays(1, (char *[]){(char[]){"=x.npy"}}, &f, &err), SH_E_INVALID, &err,
                 "want TENSOR=FILE");
    write_npy("large.npy", "<f4", "(1099511627776, 1099511627776)", X32, sizeof(X32));
    assert_fails(read_arrays(1, (char *[]){path_of("large.npy")}, &f, &err), SH_E_TOOBIG, &err,
                 "large.npy\" has a shape");
    write_npy("axes.npy", "<f4", "(2, 3, 1, 1, 1, 1, 1, 1, 1, 1)", X32, sizeof(X32));
    assert_fails(read_arrays(1, (char *[]){path_of("axes.npy")}, &f, &err), SH_E_UNSUPPORTED, &err,
                 "axes.npy\" has 10 axes");
    write_file("empty.npz", EMPTY_ZIP, sizeof(EMPTY_ZIP));
    assert_fails(read_arrays(1, (char *[]){path_of("empty.npz")}, &f, &err), SH_E_INVALID, &err,
                 "empty.npz\" holds no array");
    write_npy("wide.npy", "<f8", "(2,)", WIDE, sizeof(WIDE));
    assert_fails(read_arrays(1, (char *[]){path_of("wide.npy")}, &f, &err), SH_E_INVALID, &err,
                 "as its element 1, more than FP32 holds");
    setfile_fini(&f);
    write_npy("objects.npy", "|O", "(2,)", WIDE, sizeof(WIDE));
    assert_fails(read_arrays(1, (char *[]){path_of("objects.npy")}, &f, &err), SH_E_UNSUPPORTED,
                 &err, "no type of a tensor");
}

static void arrays_in_the_order_of_fortran_are_refused(void **state)
{
    char file[1024], *order;
    size_t n = npy(file, "<f4", "(2, 3)", X32, sizeof(X32));
    struct setfile f;
    struct sh_err err;

    (void)state;
    order = memmem(file, n, "False", 5);
    memcpy(order, "True ", 5);
    write_file("f.npy", file, n);
    assert_fails(read_arrays(1, (char *[]){path_of("f.npy")}, &f, &err), SH_E_UNSUPPORTED, &err,
                 "ascontiguousarray");
}

/* ------------------------------------------------------------------ zip files */

static size_t put(char *out, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(v >> (8 * i));
    return n;
}

/* A zip file of x.npy, packed if asked, and y.npy, stored. Returns its length. */
static size_t make_zip(char *out, bool is_packed)
{
    static const char *const NAMES[] = {"x.npy", "label.npy"};
    size_t at = 0, heads[2], packed[2], raw[2], list, n = 0;
    uLong sums[2];
    char file[512];

    for (int i = 0; i < 2; i++) {
        const size_t len = strlen(NAMES[i]);
        uLongf room = 1024;

        raw[i] = i ? npy(file, "|u1", "(2,)", Y, sizeof(Y))
                   : npy(file, "<f4", "(2, 3)", X32, sizeof(X32));
        sums[i] = crc32(0, (const Bytef *)file, (uInt)raw[i]);
        heads[i] = at;
        memcpy(out + at, "PK\3\4", 4);
        memset(out + at + 4, 0, 26);
        put(out + at + 26, len, 2);
        memcpy(out + at + 30, NAMES[i], len);
        at += 30 + len;
        packed[i] = raw[i];
        if (is_packed && i == 0) { /* what stands between the two bytes at its head and its sum */
            uint8_t z[1024];

            assert_int_equal(compress(z, &room, (const Bytef *)file, raw[i]), Z_OK);
            packed[i] = room - 6;
            memcpy(out + at, z + 2, packed[i]);
        } else {
            memcpy(out + at, file, raw[i]);
        }
        at += packed[i];
    }
    list = at;
    for (int i = 0; i < 2; i++) {
        const size_t len = strlen(NAMES[i]);

        memcpy(out + at, "PK\1\2", 4);
        memset(out + at + 4, 0, 42);
        put(out + at + 10, is_packed && i == 0 ? 8 : 0, 2);
        put(out + at + 16, sums[i], 4);
        put(out + at + 20, packed[i], 4);
        put(out + at + 24, raw[i], 4);
        put(out + at + 28, len, 2);
        put(out + at + 42, heads[i], 4);
        memcpy(out + at + 46, NAMES[i], len);
        at += 46 + len;
    }
    n = at - list;
    memcpy(out + at, "PK\5\6", 4);
    memset(out + at + 4, 0, 18);
    put(out + at + 10, 2, 2);
    put(out + at + 12, n, 4);
    put(out + at + 16, list, 4);
    return at + 22;
}

static void arrays_of_a_zip_file_are_read(void **state)
{
    char zip[4096];

    (void)state;
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        struct setfile f;
        struct sh_err err;

        write_file("d.npz", zip, make_zip(zip, is_packed));
        assert_ok_err(read_arrays(1, (char *[]){path_of("d.npz")}, &f, &err), &err);
        assert_tensor(&f, "x", SH_F32, (int64_t[]){2, 3}, 2, X32);
        assert_tensor(&f, "label", SH_I64, (int64_t[]){2}, 1, Y64);
        setfile_fini(&f);
    }
}

/* One bit of it is another one; all sizes are as they were. */
static void a_member_that_is_damaged_is_named(void **state)
{
    char zip[4096], *at;

    (void)state;
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        const size_t n = make_zip(zip, is_packed);
        struct setfile f;
        struct sh_err err;

        at = is_packed ? (char *)memmem(zip, n, "PK\1\2", 4) + 16
                       : (char *)memmem(zip, n, "label.npy", 9) - 31;
        *at ^= 1; /* of what the list says, or of the last element of x */
        write_file("d.npz", zip, n);
        assert_fails(read_arrays(1, (char *[]){path_of("d.npz")}, &f, &err), SH_E_INVALID, &err,
                     "\"x.npy\" of");
        assert_has(err.msg, "checksum");
        setfile_fini(&f);
    }
}

/* What it says of its sizes is not true, or more than there is room for. */
static void a_bomb_is_refused(void **state)
{
    static const struct {
        uint64_t bytes;
        int rc;
        const char *why;
    } CASES[] = {{100, SH_E_INVALID, "damaged, or cut off"},
                 {1000, SH_E_INVALID, "damaged, or cut off"},
                 {0xfffffffe, SH_E_INVALID, "damaged, or cut off"},
                 {UINT64_C(1) << 56, SH_E_DISKFULL, "--tmp-dir"}};
    char zip[4096], *list;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        size_t n = make_zip(zip, true);
        struct setfile f;
        struct sh_err err;

        list = memmem(zip, n, "PK\1\2", 4);
        if (CASES[i].bytes >> 32) { /* as zip64 has it, in place of the name's tail */
            memmove(list + 46 + 5 + 12, list + 46 + 5, n - (size_t)(list + 46 + 5 - zip));
            n += 12;
            put(list + 24, UINT32_MAX, 4);
            put(list + 30, 12, 2);
            put(list + 51, 1, 2);
            put(list + 53, 8, 2);
            put(list + 55, CASES[i].bytes, 8);
        } else {
            put(list + 24, CASES[i].bytes, 4);
        }
        write_file("bomb.npz", zip, n);
        assert_fails(read_arrays(1, (char *[]){path_of("bomb.npz")}, &f, &err), CASES[i].rc, &err,
                     CASES[i].why);
        setfile_fini(&f);
    }
}

/* Read or refused, and nothing else; sanitizers look on. */
static void changed_files_do_no_harm(void **state)
{
    static const char TABLE[] = "a,\"b \"\"x\",label\n1,2.5,cat\n\n-3,4e3,\"d,og\"\r\n";
    const struct table_plan plan = {.tensor = "input", .column = "label"};
    uint64_t seed = 1;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        char file[4096] = "";
        const int kind = i % 4;
        struct setfile f;
        size_t n;

        if (kind == 2)
            memcpy(file, TABLE, n = sizeof(TABLE) - 1);
        else
            n = kind == 3 ? npy(file, "<f8", "(2, 3)", X, sizeof(X)) : make_zip(file, kind);
        for (int c = 0; c <= i % 5; c++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            file[(seed >> 33) % n] = (char)(seed >> 25);
        }
        write_file("changed", file, n - (size_t)(i % 7 == 0) * ((seed >> 40) % n));
        if (kind == 2)
            table_read(&cli, path_of("changed"), &plan, &f, NULL);
        else
            arrays_read(&cli, (char *[]){path_of("changed")}, 1, &f, NULL);
        setfile_fini(&f);
    }
}

/* ------------------------------------------------------------------ parts */

/* A model may name one for its data, and nobody writes to it. */
static void a_pipe_is_refused_and_not_waited_for(void **state)
{
    struct sh_err err = {0};
    int64_t bytes;
    int fd = -1;
    (void)state;

    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    alarm(20);
    assert_int_equal(user_file_open(path_of("pipe"), &fd, &bytes, &err), SH_E_INVALID);
    alarm(0);
    assert_non_null(strstr(err.msg, "no file on a disk"));
    close(fd);
}

static void write_part(const char *name, int64_t n, int64_t wide, const float *x, const int64_t *y,
                       const char *const *meta)
{
    const size_t rows = (size_t)n;
    const struct sh_st_tensor t[] = {
        {.name = "x", .rank = 2, .dims = {n, wide}, .data = x, .bytes = rows * (size_t)wide * 4},
        {.name = "label", .dtype = SH_I64, .rank = 1, .dims = {n}, .data = y, .bytes = rows * 8},
    };
    struct sh_err err = {0};

    assert_ok_err(sh_st_write(path_of(name), t, 2, meta, &err), &err);
}

static void parts_become_one_dataset(void **state)
{
    const float x[] = {1, 2, 3, 4, 5, 6};
    const int64_t y[] = {4, 9, 2};
    struct setfile f;
    struct sh_err err = {0};

    (void)state;
    write_part("1.safetensors", 1, 2, x, y, NULL);
    write_part("2.safetensors", 2, 2, x + 2, y + 1, NULL);
    write_part("wide.safetensors", 2, 3, x, y, NULL);
    write_part("cats.safetensors", 2, 2, x, y, (const char *[]){"classes", "[\"cat\"]", NULL});
    assert_ok_err(shards_read(&cli, (char *[]){path_of("1.safetensors"), path_of("2.safetensors")},
                              2, &f, &err),
                  &err);
    assert_tensor(&f, "x", SH_F32, (int64_t[]){3, 2}, 2, x);
    assert_tensor(&f, "label", SH_I64, (int64_t[]){3}, 1, y);
    setfile_fini(&f);
    assert_fails(shards_read(&cli,
                             (char *[]){path_of("1.safetensors"), path_of("wide.safetensors")}, 2,
                             &f, &err),
                 SH_E_INVALID, &err, "tensor \"x\" is not in both");
    err = (struct sh_err){0};
    assert_fails(shards_read(&cli,
                             (char *[]){path_of("1.safetensors"), path_of("cats.safetensors")}, 2,
                             &f, &err),
                 SH_E_INVALID, &err, "different classes");
    err = (struct sh_err){0};
    write_file("not.safetensors", "nothing", 7);
    assert_fails(shards_read(&cli, (char *[]){path_of("1.safetensors"), path_of("not.safetensors")},
                             2, &f, &err),
                 SH_E_INVALID, &err, "not.safetensors");
}

/* They have no bytes, and more samples than there are numbers. */
static void parts_of_too_many_samples_are_refused(void **state)
{
    const struct sh_st_tensor none = {
        .name = "x", .dtype = SH_U8, .rank = 2, .dims = {INT64_MAX, 0}, .data = ""};
    struct setfile f;
    struct sh_err err = {0};
    char *file = path_of("none.safetensors");

    (void)state;
    assert_ok_err(sh_st_write(file, &none, 1, NULL, &err), &err);
    assert_fails(shards_read(&cli, (char *[]){file, file}, 2, &f, &err), SH_E_TOOBIG, &err,
                 "none.safetensors");
    setfile_fini(&f);
}

/* ------------------------------------------------------------------ tables */

static int read_table(const char *text, const char *column, struct setfile *f, struct sh_err *err)
{
    const struct table_plan plan = {.tensor = "input", .column = column};

    *err = (struct sh_err){0};
    write_file("t.csv", text, strlen(text));
    return table_read(&cli, path_of("t.csv"), &plan, f, err);
}

static void the_columns_of_a_table_keep_their_places(void **state)
{
    const float x[] = {1, 2.5f, -3, 4000}, prices[] = {0.5f, 2}, y[] = {7, 1, 2.5f, 8, -3, 4000};
    struct setfile f;
    struct sh_err err;

    (void)state;
    assert_ok_err(read_table("\xef\xbb\xbf"
                             "a,kind,\"b, c\"\r\n1,\"b\"\"ee\",2.5\r\n\r\n-3,ant,4e3",
                             "kind", &f, &err),
                  &err);
    assert_tensor(&f, "input", SH_F32, (int64_t[]){2, 2}, 2, x);
    assert_tensor(&f, "label", SH_I64, (int64_t[]){2}, 1, (int64_t[]){1, 0});
    setfile_fini(&f);
    assert_ok_err(read_table("n,a,b\n7,1,2.5\n8,-3,4e3\n", "n", &f, &err), &err);
    assert_tensor(&f, "input", SH_F32, (int64_t[]){2, 2}, 2, x);
    assert_tensor(&f, "label", SH_I64, (int64_t[]){2}, 1, (int64_t[]){7, 8});
    setfile_fini(&f);
    assert_ok_err(read_table("n,a,b,price\n7,1,2.5,0.5\n8,-3,4e3,2\n", "price", &f, &err), &err);
    assert_tensor(&f, "input", SH_F32, (int64_t[]){2, 3}, 2, y);
    assert_tensor(&f, "label", SH_F32, (int64_t[]){2, 1}, 2, prices);
    setfile_fini(&f);
}

static void a_table_that_is_none_is_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } CASES[] = {
        {"a,b\n1,2\n", "no column \"label\""},
        {"a, label\n1,2\n", "it has: \"a\", \" label\""},
        {"label,label\n1,2\n", "2 columns \"label\""},
        {"label\n1\n", "no column but"},
        {"a,label\n", "no rows"},
        {"a,label\n1,2\n3\n", "line 3 of"},
        {"a,label\n1,2\n3,4,5\n", "has 3 values"},
        {"a,label\n1,2\n,4\n", "line 3 of"},
        {"a,label\n1,2\nx,4\n", "column \"a\": \"x\" is no number"},
        {"a,label\nnan,4\n", "no number"},
        {"a,label\n1e39,4\n", "no number"},
        {"a,label\n\"1,4\n", "within quotes"},
    };
    struct setfile f;
    struct sh_err err;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        assert_fails(read_table(CASES[i].text, "label", &f, &err), SH_E_INVALID, &err,
                     CASES[i].why);
        setfile_fini(&f);
    }
}

/* A gap among numbers, or among classes, is no class. */
static void a_label_that_is_missing_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *text, *line, *why;
    } CASES[] = {
        {"a,label\n1,5\n2,\n3,6\n", "line 3 of", "the label is empty"},
        {"a,label\n1,cat\n2,dog\n3, \n", "line 4 of", "the label is empty"},
        {"a,label\n1,5\n2,NA\n3,6\n4,NB\n", "line 3 of", "\"NA\" is no number"},
        {"a,label\n1,0.5\n2,n/a\n", "line 3 of", "\"n/a\" is no number"},
        {"a,label\n1,cat\n2,7\n", "line 2 of", "\"cat\" is no number"},
    };
    struct setfile f;
    struct sh_err err;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        assert_fails(read_table(CASES[i].text, "label", &f, &err), SH_E_INVALID, &err,
                     CASES[i].why);
        assert_has(err.msg, CASES[i].line);
        setfile_fini(&f);
    }
}

static void names_in_quotes_may_follow_the_mark_of_utf8(void **state)
{
    const float x[] = {1, 2};
    struct setfile f;
    struct sh_err err;

    (void)state;
    assert_ok_err(read_table("\xef\xbb\xbf"
                             "\"a\nb\",label\n1,7\n2,8\n",
                             "label", &f, &err),
                  &err);
    assert_tensor(&f, "input", SH_F32, (int64_t[]){2, 1}, 2, x);
    assert_tensor(&f, "label", SH_I64, (int64_t[]){2}, 1, (int64_t[]){7, 8});
    setfile_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_become_tensors_of_their_names),
        cmocka_unit_test(arrays_that_do_not_fit_are_refused),
        cmocka_unit_test(arrays_in_the_order_of_fortran_are_refused),
        cmocka_unit_test(a_bomb_is_refused),
        cmocka_unit_test(a_member_that_is_damaged_is_named),
        cmocka_unit_test(parts_become_one_dataset),
        cmocka_unit_test(parts_of_too_many_samples_are_refused),
        cmocka_unit_test(arrays_of_a_zip_file_are_read),
        cmocka_unit_test(changed_files_do_no_harm),
        cmocka_unit_test(a_pipe_is_refused_and_not_waited_for),
        cmocka_unit_test(the_columns_of_a_table_keep_their_places),
        cmocka_unit_test(a_table_that_is_none_is_refused),
        cmocka_unit_test(a_label_that_is_missing_is_refused_with_its_line),
        cmocka_unit_test(names_in_quotes_may_follow_the_mark_of_utf8),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
