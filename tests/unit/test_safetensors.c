/* test_safetensors.c - Without it: a tenant's file could make us read outside of a mapping, and a
 * full disk in the middle of a checkpoint could destroy the checkpoint before it. */
#include "common/mem.h"
#include "common/safetensors.h"
#include "tests/unit/sh_test.h"

#include <signal.h>
#include <sys/resource.h>

/* A file in memory: length, header text, n bytes of data. OWNED, free(). */
static unsigned char *make(const char *header, size_t n_data, size_t *bytes)
{
    size_t n = strlen(header);
    unsigned char *p = calloc(1, 8 + n + n_data + 1);

    assert_non_null(p);
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)((uint64_t)n >> (8 * i));
    memcpy(p + 8, header, n);
    for (size_t i = 0; i < n_data; i++)
        p[8 + n + i] = (unsigned char)i;
    *bytes = 8 + n + n_data;
    return p;
}

#define T(name, dtype, shape, from, to)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to \
    "]}"

static void tensors_are_found_in_the_order_of_their_data(void **state)
{
    size_t bytes = 0;
    unsigned char *p =
        make("{" T("b", "U8", "[2,2]", 8, 12) "," T("a", "F32", "[2]", 0, 8) "," T(
                 "e", "F32", "[0]", 8, 8) "," T("s", "U8", "[]", 12,
                                                13) ",\"__metadata__\":{\"format\":\"pt\"}}   ",
             13, &bytes);
    const struct sh_st_tensor *t;
    struct sh_err err = {0};
    struct sh_st *s = NULL;
    (void)state;

    assert_ok_err(sh_st_open_mem(p, bytes, &s, &err), &err);
    assert_int_equal(sh_st_count(s), 4);
    assert_string_equal(sh_st_at(s, 0)->name, "a");
    assert_string_equal(sh_st_at(s, 1)->name, "e");
    assert_string_equal(sh_st_at(s, 2)->name, "b");
    assert_null(sh_st_at(s, 4));
    t = sh_st_find(s, "b");
    assert_non_null(t);
    assert_int_equal(t->dtype, SH_U8);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->dims[1], 2);
    assert_int_equal(t->bytes, 4);
    assert_int_equal(*(const unsigned char *)t->data, 8);
    assert_int_equal(sh_st_find(s, "s")->rank, 0);
    assert_null(sh_st_find(s, "zz"));
    assert_null(sh_st_find(s, "__metadata__"));
    assert_string_equal(sh_st_meta(s, "format"), "pt");
    assert_null(sh_st_meta(s, "other"));
    sh_st_close(s);
    free(p);
}

static void hostile_headers_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *header;
        size_t n_data;
        int rc;
        const char *says;
    } CASES[] = {
        {"[]", 0, SH_E_INVALID, "must be an object"},
        {"{", 0, SH_E_INVALID, "line 1"},
        {"{\"a\":1}", 0, SH_E_INVALID, "\"a\" must be an object"},
        {"{\"a\":{}}", 0, SH_E_INVALID, "missing"},
        {"{" T("a", "U8", "[4]", 0, 4) "," T("a", "U8", "[4]", 4, 8) "}", 8, SH_E_INVALID,
         "duplicate"},
        {"{" T("a", "Q9", "[4]", 0, 4) "}", 4, SH_E_UNSUPPORTED, "\"Q9\" is not supported"},
        {"{" T("a", "U8", "[4]", 0, 5) "}", 5, SH_E_INVALID, "span 5 bytes"},
        {"{" T("a", "F32", "[4]", 0, 4) "}", 4, SH_E_INVALID, "need 16"},
        {"{" T("a", "U8", "[4]", 0, 4) "}", 3, SH_E_INVALID, "outside of the data"},
        {"{" T("a", "U8", "[4]", 4, 0) "}", 4, SH_E_INVALID, "outside of the data"},
        {"{" T("a", "U8", "[4]", -4, 0) "}", 4, SH_E_INVALID, "outside of the data"},
        {"{" T("a", "U8", "[4]", 9223372036854775803, 9223372036854775807) "}", 4, SH_E_INVALID,
         "outside of the data"},
        {"{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 2, 6) "}", 6, SH_E_INVALID,
         "overlaps"},
        {"{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 0, 4) "}", 4, SH_E_INVALID,
         "overlaps"},
        {"{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[1]", 5, 6) "}", 6, SH_E_INVALID, "hole"},
        {"{" T("a", "U8", "[4]", 0, 4) "}", 9, SH_E_INVALID, "belong to no tensor"},
        {"{}", 1, SH_E_INVALID, "belong to no tensor"},
        {"{" T("a", "F32", "[4611686018427387904,4,4]", 0, 0) "}", 0, SH_E_TOOBIG, "too large"},
        {"{" T("a", "F64", "[2305843009213693952]", 0, 0) "}", 0, SH_E_TOOBIG, "too large"},
        {"{" T("a", "U8", "[-1]", 0, 0) "}", 0, SH_E_INVALID, "dimension 0"},
        {"{" T("a", "U8", "[1.5]", 0, 0) "}", 0, SH_E_INVALID, "dimension 0"},
        {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, SH_E_UNSUPPORTED, "rank 9"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, SH_E_INVALID,
         "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, SH_E_INVALID,
         "not a known field"},
        {"{\"__metadata__\":{\"k\":1}}", 0, SH_E_INVALID, "metadata \"k\" must be a string"},
        {"{\"__metadata__\":[]}", 0, SH_E_INVALID, "metadata must be an object"},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err err = {0};
        struct sh_st *s = NULL;
        size_t bytes = 0;
        unsigned char *p = make(CASES[i].header, CASES[i].n_data, &bytes);

        assert_fails(sh_st_open_mem(p, bytes, &s, &err), CASES[i].rc, &err, CASES[i].says);
        assert_null(s);
        free(p);
    }
}

static void a_wrong_length_field_is_refused(void **state)
{
    struct sh_err err = {0};
    struct sh_st *s = NULL;
    size_t bytes = 0;
    unsigned char *p = make("{" T("a", "U8", "[4]", 0, 4) "}", 4, &bytes);
    (void)state;

    /* every truncation, in memory of exactly that size: a sanitizer sees one byte more */
    for (size_t n = 0; n < bytes; n++) {
        unsigned char *cut = malloc(n ? n : 1);

        memcpy(cut, p, n);
        assert_int_not_equal(sh_st_open_mem(cut, n, &s, NULL), SH_OK);
        assert_null(s);
        free(cut);
    }
    p[0]++; /* the header reaches into the data */
    assert_int_not_equal(sh_st_open_mem(p, bytes, &s, NULL), SH_OK);
    memset(p, 0xff, 8);
    assert_fails(sh_st_open_mem(p, bytes, &s, &err), SH_E_TOOBIG, &err, "header claims");
    err = (struct sh_err){0};
    memset(p, 0, 8);
    p[3] = 4; /* 64 MiB: allowed, but not there */
    assert_fails(sh_st_open_mem(p, bytes, &s, &err), SH_E_INVALID, &err, "is cut");
    free(p);
}

static void random_damage_never_reads_outside(void **state)
{
    uint64_t seed = 88172645463325252u;
    size_t bytes = 0;
    unsigned char *good = make("{" T("a", "F32", "[2,3]", 0, 24) "," T(
                                   "b", "U8", "[8]", 24, 32) ",\"__metadata__\":{\"k\":\"v\"}}",
                               32, &bytes);
    unsigned char *p = malloc(bytes);
    (void)state;

    for (int round = 0; round < 20000; round++) {
        struct sh_st *s = NULL;

        memcpy(p, good, bytes);
        for (int k = 0; k < 3; k++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            p[seed % bytes] = (unsigned char)(seed >> 40);
        }
        if (sh_st_open_mem(p, bytes, &s, NULL) != SH_OK)
            continue;
        for (size_t i = 0; i < sh_st_count(s); i++)
            for (size_t b = 0; b < sh_st_at(s, i)->bytes; b++)
                (void)((const volatile unsigned char *)sh_st_at(s, i)->data)[b];
        sh_st_close(s);
    }
    free(p);
    free(good);
}

static const float WEIGHTS[6] = {1, 2, 3, 4, 5, -6.5f};
static const uint8_t ODD[3] = {7, 8, 9};
static const char *const META[] = {"step", "12", "who", "caf\xc3\xa9", NULL};
static const struct sh_st_tensor OUT[] = {
    {.name = "w", .dtype = SH_F32, .rank = 2, .dims = {2, 3}, .data = WEIGHTS, .bytes = 24},
    {.name = "odd", .dtype = SH_U8, .rank = 1, .dims = {3}, .data = ODD, .bytes = 3},
    {.name = "empty", .dtype = SH_I64, .rank = 1, .dims = {0}},
    {.name = "scalar", .dtype = SH_U8, .rank = 0, .data = ODD, .bytes = 1},
};

static void check_round_trip(const struct sh_st *s)
{
    assert_int_equal(sh_st_count(s), SH_ARRAY_LEN(OUT));
    for (size_t i = 0; i < SH_ARRAY_LEN(OUT); i++) {
        const struct sh_st_tensor *t = sh_st_find(s, OUT[i].name);

        assert_non_null(t);
        assert_int_equal(t->dtype, OUT[i].dtype);
        assert_int_equal(t->rank, OUT[i].rank);
        assert_memory_equal(t->dims, OUT[i].dims, sizeof(t->dims));
        assert_int_equal(t->bytes, OUT[i].bytes);
        if (t->bytes > 0)
            assert_memory_equal(t->data, OUT[i].data, t->bytes);
    }
    assert_string_equal(sh_st_meta(s, "step"), "12");
    assert_string_equal(sh_st_meta(s, "who"), "caf\xc3\xa9");
}

static void what_is_written_is_read_back(void **state)
{
    char dir[SH_TEST_DIR_BYTES], path[128];
    struct sh_err err = {0};
    struct sh_st *s = NULL;
    size_t bytes = 0;
    char *file;
    (void)state;

    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/w.safetensors", dir);
    assert_ok_err(sh_st_write(path, OUT, SH_ARRAY_LEN(OUT), META, &err), &err);
    assert_ok_err(sh_st_open(path, &s, &err), &err);
    check_round_trip(s);
    assert_int_equal((uintptr_t)sh_st_find(s, "w")->data % 64, 0);
    sh_st_close(s);
    file = sh_test_read_file(path, &bytes);
    assert_ok_err(sh_st_open_mem(file, bytes, &s, &err), &err);
    check_round_trip(s);
    sh_st_close(s);
    free(file);
    assert_ok(sh_st_write(path, NULL, 0, NULL, NULL)); /* no tensors at all */
    assert_ok(sh_st_open(path, &s, NULL));
    assert_int_equal(sh_st_count(s), 0);
    sh_st_close(s);
    assert_int_equal(sh_test_dir_walk(dir, false), 1);
    sh_test_dir_remove(dir);
}

static void wrong_tensors_are_not_written(void **state)
{
    struct sh_st_tensor t[2] = {OUT[0], OUT[0]};
    struct sh_err err = {0};
    size_t head = 0, bytes = 0;
    void *p = NULL;
    (void)state;

    assert_fails(sh_st_head(t, 2, NULL, &p, &head, &bytes, &err), SH_E_INVALID, &err, "is taken");
    err = (struct sh_err){0};
    t[0].bytes = 23;
    assert_fails(sh_st_head(t, 1, NULL, &p, &head, &bytes, &err), SH_E_INVALID, &err, "need 24");
    err = (struct sh_err){0};
    t[0] = OUT[0];
    t[0].name = "__metadata__";
    assert_fails(sh_st_head(t, 1, NULL, &p, &head, &bytes, &err), SH_E_INVALID, &err, "is taken");
    err = (struct sh_err){0};
    t[0].dtype = SH_N_DTYPES;
    assert_fails(sh_st_head(t, 1, NULL, &p, &head, &bytes, &err), SH_E_INVALID, &err,
                 "element type");
    assert_null(p);
}

static void a_failed_write_keeps_the_old_file_and_leaves_no_rubbish(void **state)
{
    struct rlimit old = {0}, small;
    char dir[SH_TEST_DIR_BYTES], path[128];
    static const uint8_t big[1 << 20];
    const struct sh_st_tensor t = {
        .name = "big", .dtype = SH_U8, .rank = 1, .dims = {1 << 20}, .data = big, .bytes = 1 << 20};
    struct sh_err err = {0};
    struct sh_st *s = NULL;
    int fds, rc;
    (void)state;

    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/w.safetensors", dir);
    assert_ok(sh_st_write(path, OUT, SH_ARRAY_LEN(OUT), META, NULL));
    fds = sh_test_open_fds();
    /* A limit on the size of files fails the write() in the middle of the data. */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 100000, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    rc = sh_st_write(path, &t, 1, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_fails(rc, SH_E_IO, &err, "could not write");
    assert_int_equal(sh_test_open_fds(), fds);
    assert_int_equal(sh_test_dir_walk(dir, false), 1);
    assert_ok(sh_st_open(path, &s, NULL));
    check_round_trip(s);
    sh_st_close(s);
    sh_test_dir_remove(dir);
}

static void a_folder_that_takes_no_file_is_an_ordinary_failure(void **state)
{
    struct sh_err err = {0};
    (void)state;

    assert_fails(sh_st_write("/nonexistent-folder/x", OUT, 1, NULL, &err), SH_E_IO, &err,
                 "could not create");
    assert_has_not(err.msg, "nonexistent-folder");
    assert_has(err.detail, "nonexistent-folder");
}

static void only_regular_files_are_opened(void **state)
{
    struct sh_err err = {0};
    struct sh_st *s = NULL;
    (void)state;

    assert_fails(sh_st_open("/nonexistent", &s, &err), SH_E_NOTFOUND, &err, "could not open");
    err = (struct sh_err){0};
    assert_fails(sh_st_open("/dev/zero", &s, &err), SH_E_INVALID, &err, "regular file");
    err = (struct sh_err){0};
    assert_fails(sh_st_open("/tmp", &s, &err), SH_E_INVALID, &err, "regular file");
    assert_null(s);
}

static void element_types_have_inverse_names(void **state)
{
    (void)state;
    for (int i = 0; i < SH_N_DTYPES; i++) {
        enum sh_dtype t = (enum sh_dtype)i;

        assert_int_equal(sh_dtype_from_st(sh_dtype_st(t)), t);
        assert_int_equal(sh_dtype_from_v2(sh_dtype_v2(t)), t);
        assert_int_equal(sh_dtype_from_onnx(sh_dtype_onnx(t)), t);
        assert_true(sh_dtype_bytes(t) >= 1 && sh_dtype_bytes(t) <= 8);
    }
    assert_int_equal(sh_dtype_from_st("F128"), SH_N_DTYPES);
    assert_int_equal(sh_dtype_from_onnx(8), SH_N_DTYPES); /* strings */
    assert_int_equal(sh_dtype_bytes(SH_N_DTYPES), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_in_the_order_of_their_data),
        cmocka_unit_test(hostile_headers_are_refused_with_a_reason),
        cmocka_unit_test(a_wrong_length_field_is_refused),
        cmocka_unit_test(random_damage_never_reads_outside),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(wrong_tensors_are_not_written),
        cmocka_unit_test(a_failed_write_keeps_the_old_file_and_leaves_no_rubbish),
        cmocka_unit_test(a_folder_that_takes_no_file_is_an_ordinary_failure),
        cmocka_unit_test(only_regular_files_are_opened),
        cmocka_unit_test(element_types_have_inverse_names),
    };

    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
