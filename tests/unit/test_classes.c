/* test_classes.c - a folder of classes as a dataset.
 *
 * Without it a picture could stand with another one's label, the same folder make other bytes each
 * time (an upload that broke would begin anew), or one damaged file among a million end the push
 * without its name, or leave a hole of zeros that is trained on.
 */
/* uses: libcli.a */
/* link: -lcurl -lpq -lturbojpeg -lpng16 -lz */
#include "cli/data/classes.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <png.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <turbojpeg.h>

static char dir[SH_TEST_DIR_BYTES];
static char tmp[] = "/tmp";
static struct cli_conf conf = {.quiet = true, .tmp_dir = tmp};
static struct cli cli = {.conf = &conf};
static const char *const FOLDERS[] = {"", "/ant", "/bee", "/empty"};

static char *path_of(const char *name)
{
    static char path[SH_TEST_DIR_BYTES + 64];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(path_of(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* All of one colour. */
static void write_png(const char *name, uint8_t grey, unsigned width, unsigned height)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = PNG_FORMAT_GRAY};
    uint8_t data[64 * 64];

    memset(data, grey, sizeof(data));
    assert_true(png_image_write_to_file(&image, path_of(name), 0, data, 0, NULL));
}

static void write_jpeg(const char *name, uint8_t grey, size_t cut)
{
    tjhandle j = tjInitCompress();
    unsigned char data[8 * 8], *file = NULL;
    unsigned long n = 0;

    memset(data, grey, sizeof(data));
    assert_int_equal(
        tjCompress2(j, data, 8, 0, 8, TJPF_GRAY, &file, &n, TJSAMP_GRAY, 95, TJFLAG_ACCURATEDCT),
        0);
    write_file(name, file, n - cut);
    tjFree(file);
    tjDestroy(j);
}

static int make_folder(void **state)
{
    (void)state;
    sh_test_dir_make(dir);
    for (size_t i = 1; i < 3; i++)
        assert_int_equal(mkdir(path_of(FOLDERS[i] + 1), 0700), 0);
    write_png("bee/2.png", 20, 8, 8);
    write_jpeg("bee/10.JPG", 10, 0);
    write_png("ant/b.png", 40, 8, 8);
    write_png("ant/a.png", 30, 8, 8);
    write_file("ant/notes.txt", "x", 1);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    for (size_t i = SH_ARRAY_LEN(FOLDERS); i-- > 1;)
        if (access(path_of(FOLDERS[i] + 1), F_OK) == 0)
            sh_test_dir_remove(path_of(FOLDERS[i] + 1));
    sh_test_dir_remove(dir);
    return 0;
}

static struct classes_plan plan(void)
{
    return (struct classes_plan){.tensor = "input", .labels = "label", .channels = 3};
}

/* The first byte of each sample, and its label. */
static void assert_holds(const struct setfile *f, size_t n, const int *bytes, const int *labels)
{
    struct sh_st *st = NULL;
    const struct sh_st_tensor *x, *y;
    struct sh_err err = {0};

    assert_ok_err(sh_st_open(f->path, &st, &err), &err);
    x = sh_st_find(st, "input");
    y = sh_st_find(st, "label");
    assert_true(x && y && x->dtype == SH_U8 && y->dtype == SH_I64);
    assert_int_equal(x->dims[0], n);
    assert_int_equal(y->dims[0], n);
    for (size_t i = 0; i < n; i++) {
        int64_t label;

        memcpy(&label, (const char *)y->data + i * sizeof(label), sizeof(label));
        assert_int_equal(label, labels[i]);
        assert_int_equal(((const uint8_t *)x->data)[i * (x->bytes / n)], bytes[i]);
    }
    assert_string_equal(sh_st_meta(st, "classes"), "[\"ant\",\"bee\"]");
    sh_st_close(st);
}

static void pictures_stand_by_class_and_name(void **state)
{
    struct classes_plan p = plan();
    struct classes_told told;
    struct setfile f;
    struct sh_err err = {0};

    (void)state;
    for (int last = 0; last < 2; last++) {
        p.is_last = last;
        assert_ok_err(classes_read(&cli, dir, &p, &f, &told, &err), &err);
        assert_holds(&f, 4, (int[]){30, 40, 10, 20}, (int[]){0, 0, 1, 1});
        assert_int_equal(told.n_samples, 4);
        assert_int_equal(told.n_other, 1);
        assert_int_equal(told.n_skipped, 0);
        setfile_fini(&f);
    }
}

static void the_damaged_one_is_named_or_left_out(void **state)
{
    struct classes_plan p = plan();
    struct classes_told told;
    struct setfile f;
    struct sh_err err = {0};

    (void)state;
    write_jpeg("bee/1.jpg", 50, 40); /* the middle one of five */
    assert_fails(classes_read(&cli, dir, &p, &f, &told, &err), SH_E_INVALID, &err, "/bee/1.jpg\"");
    setfile_fini(&f);
    p.skips = true;
    err = (struct sh_err){0};
    assert_ok_err(classes_read(&cli, dir, &p, &f, &told, &err), &err);
    assert_holds(&f, 4, (int[]){30, 40, 10, 20}, (int[]){0, 0, 1, 1});
    assert_int_equal(told.n_skipped, 1);
    assert_non_null(strstr(told.skipped, "/bee/1.jpg"));
    setfile_fini(&f);
}

/* The disk has no room, and a file before that is damaged, which is no reason to stop. */
static void what_ends_the_push_is_named_not_what_is_left_out(void **state)
{
    struct classes_plan p = plan();
    struct classes_told told;
    struct setfile f;
    struct sh_err err = {0};
    struct rlimit was, small;

    (void)state;
    p.skips = true;
    write_jpeg("ant/0.jpg", 50, 40);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = (struct rlimit){.rlim_cur = 1, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    classes_read(&cli, dir, &p, &f, &told, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    setfile_fini(&f);
    assert_fails(err.rc, SH_E_IO, &err, "could not write the dataset");
}

static void a_link_to_nowhere_is_named_or_left_out(void **state)
{
    struct classes_plan p = plan();
    struct classes_told told;
    struct setfile f;
    struct sh_err err = {0};

    (void)state;
    assert_int_equal(symlink("nowhere", path_of("ant/gone.png")), 0);
    assert_fails(classes_read(&cli, dir, &p, &f, &told, &err), SH_E_INVALID, &err, "gone.png");
    setfile_fini(&f);
    assert_int_equal(symlink("nowhere", path_of("gone")), 0);
    err = (struct sh_err){0};
    assert_fails(classes_read(&cli, dir, &p, &f, &told, &err), SH_E_IO, &err, "/gone\"");
    setfile_fini(&f);
    p.skips = true;
    err = (struct sh_err){0};
    assert_ok_err(classes_read(&cli, dir, &p, &f, &told, &err), &err);
    assert_holds(&f, 4, (int[]){30, 40, 10, 20}, (int[]){0, 0, 1, 1});
    assert_int_equal(told.n_skipped, 1);
    assert_int_equal(told.n_other, 2);
    assert_has(told.skipped, "gone.png");
    setfile_fini(&f);
}

static void other_sizes_need_a_size(void **state)
{
    struct classes_plan p = plan();
    struct classes_told told;
    struct setfile f;
    struct sh_err err = {0};

    (void)state;
    write_png("bee/3.png", 60, 12, 24);
    assert_fails(classes_read(&cli, dir, &p, &f, &told, &err), SH_E_INVALID, &err,
                 "/bee/3.png\" is 12 x 24");
    setfile_fini(&f);
    p.skips = true;
    err = (struct sh_err){0};
    assert_ok_err(classes_read(&cli, dir, &p, &f, &told, &err), &err);
    assert_holds(&f, 4, (int[]){30, 40, 10, 20}, (int[]){0, 0, 1, 1});
    assert_int_equal(told.n_skipped, 1);
    assert_int_equal(told.n_other_size, 1);
    setfile_fini(&f);
    for (int k = 0; k < 3; k++) {
        p.shape = (struct picture_plan){.width = 6,
                                        .height = 4,
                                        .covers = k == 0,
                                        .stretches = k == 1,
                                        .resize = k == 2 ? 7 : 0};
        err = (struct sh_err){0};
        assert_ok_err(classes_read(&cli, dir, &p, &f, &told, &err), &err);
        assert_holds(&f, 5, (int[]){30, 40, 10, 20, 60}, (int[]){0, 0, 1, 1, 1});
        setfile_fini(&f);
    }
}

static void what_is_no_folder_of_classes_is_refused(void **state)
{
    struct classes_plan p = plan();
    struct classes_told told;
    struct setfile f;
    struct sh_err err = {0};

    (void)state;
    assert_fails(classes_read(&cli, path_of("ant"), &p, &f, &told, &err), SH_E_INVALID, &err,
                 "no folders");
    err = (struct sh_err){0};
    assert_int_equal(mkdir(path_of("empty"), 0700), 0);
    assert_fails(classes_read(&cli, dir, &p, &f, &told, &err), SH_E_INVALID, &err, "/empty\"");
    err = (struct sh_err){0};
    assert_int_equal(mkdir(path_of("empty/cat"), 0700), 0);
    assert_fails(classes_read(&cli, dir, &p, &f, &told, &err), SH_E_INVALID, &err,
                 "but folders: if those are the classes");
    err = (struct sh_err){0};
    assert_int_equal(rmdir(path_of("empty/cat")), 0);
    assert_fails(classes_read(&cli, path_of("none"), &p, &f, &told, &err), SH_E_INVALID, &err,
                 "could not open");
}

/* 16 bits each, as deep pictures are mostly stored: without a word of their gamma. */
static void write_deep_png(const char *name, uint8_t grey)
{
    FILE *f = fopen(path_of(name), "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    uint8_t row[8 * 3 * 2];

    assert_true(f && info);
    memset(row, grey, sizeof(row));
    png_init_io(png, f);
    png_set_IHDR(png, info, 8, 8, 16, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int y = 0; y < 8; y++)
        png_write_row(png, row);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    assert_int_equal(fclose(f), 0);
}

/* As Pillow has it, and as a JPEG is read: of the values as they are stored. */
static void colours_become_the_greys_that_others_make_of_them(void **state)
{
    static const uint8_t RGB[4][3] = {{0, 0, 255}, {0, 255, 0}, {255, 0, 0}, {200, 200, 200}};
    static const uint8_t GREY[4] = {29, 150, 76, 200};
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = 4, .height = 1, .format = PNG_FORMAT_RGB};
    struct picture p = {.channels = 1};
    struct sh_err err = {0};

    (void)state;
    assert_true(png_image_write_to_file(&image, path_of("ant/rgb.png"), 0, RGB, 0, NULL));
    assert_ok_err(picture_read(path_of("ant/rgb.png"), &p, &err), &err);
    assert_memory_equal(p.data, GREY, sizeof(GREY));
    picture_fini(&p);
    write_deep_png("ant/deep.png", 128);
    for (size_t ch = 1; ch <= 3; ch += 2) {
        p = (struct picture){.channels = ch};
        assert_ok_err(picture_read(path_of("ant/deep.png"), &p, &err), &err);
        assert_int_equal(p.data[0], 128);
        picture_fini(&p);
    }
}

/* Of changed files one is read or refused, and nothing else; sanitizers look on. */
static void changed_files_are_read_or_refused(void **state)
{
    static const char *const NAMES[] = {"bee/10.JPG", "ant/a.png"};
    uint64_t seed = 1;

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(NAMES); k++) {
        uint8_t file[4096];
        FILE *f = fopen(path_of(NAMES[k]), "rb");
        size_t n = f ? fread(file, 1, sizeof(file), f) : 0;

        assert_in_range(n, 50, sizeof(file) - 1);
        fclose(f);
        for (int i = 0; i < 400; i++) {
            uint8_t changed[sizeof(file)];
            struct picture p = {.channels = 1 + 2 * (size_t)(i % 2)};

            memcpy(changed, file, n);
            for (int c = 0; c <= i % 4; c++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                changed[(seed >> 33) % n] = (uint8_t)(seed >> 25);
            }
            write_file("bee/changed", changed, n - (size_t)(i % 3 == 0) * ((seed >> 40) % n));
            picture_read(path_of("bee/changed"), &p, NULL);
            picture_fini(&p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pictures_stand_by_class_and_name, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(the_damaged_one_is_named_or_left_out, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_ends_the_push_is_named_not_what_is_left_out,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_link_to_nowhere_is_named_or_left_out, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(colours_become_the_greys_that_others_make_of_them,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(other_sizes_need_a_size, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_no_folder_of_classes_is_refused, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(changed_files_are_read_or_refused, make_folder,
                                        remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
