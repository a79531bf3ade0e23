/* test_kept.c - what loading a model has made, in a file. Without it: an image that a crash cut
 * off, a disk damaged, or another model, device or build wrote would be served as this model's. */
/* uses: runtime/model/kept.o */
#include "runtime/model/kept.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGE_BYTES 10000u
#define PACKED_BYTES 4992u
#define FILE_BYTES (KEPT_ALIGN + IMAGE_BYTES)

struct world {
    char dir[64], path[128];
    uint64_t ends[3];
    uint32_t batches[2];
    double ns[6];
    unsigned char image[IMAGE_BYTES];
    struct kept_about about;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w)
        return -1;
    snprintf(w->dir, sizeof(w->dir), "/tmp/shunt-kept-XXXXXX");
    if (!mkdtemp(w->dir))
        return -1;
    snprintf(w->path, sizeof(w->path), "%s/a.kept", w->dir);
    for (size_t i = 0; i < 3; i++)
        w->ends[i] = (i + 1) * IMAGE_BYTES / 3;
    w->ends[2] = IMAGE_BYTES;
    w->batches[0] = 1;
    w->batches[1] = 8;
    for (size_t i = 0; i < 6; i++)
        w->ns[i] = 100.5 * (double)(i + 1);
    for (size_t i = 0; i < IMAGE_BYTES; i++)
        w->image[i] = (unsigned char)(i * 7 + i / 251);
    w->about = (struct kept_about){.key = {1, 2, 3},
                                   .image_bytes = IMAGE_BYTES,
                                   .layer_ends = w->ends,
                                   .n_layers = 3,
                                   .batches = w->batches,
                                   .n_batches = 2};
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    unlink(w->path);
    if (rmdir(w->dir)) /* something was left behind */
        return -1;
    free(w);
    return 0;
}

/* What is wrong is found by who only looks at it, too. */
static int read_it(struct world *w, struct sh_err *err)
{
    unsigned char image[IMAGE_BYTES] = {0};
    double ns[6] = {0};
    int fd = open(w->path, O_RDONLY | O_CLOEXEC), rc;

    assert_true(fd >= 0);
    rc = kept_read(fd, &w->about, image, ns, err);
    assert_int_equal(kept_read(fd, &w->about, NULL, ns, NULL), rc);
    close(fd);
    if (rc == SH_OK) {
        assert_memory_equal(image, w->image, sizeof(image));
        assert_memory_equal(ns, w->ns, sizeof(ns));
    }
    return rc;
}

static int new_file(struct world *w)
{
    int fd = open(w->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    return fd;
}

static void write_it(struct world *w)
{
    struct sh_err err = {0};
    int fd = new_file(w);

    assert_ok(kept_write(fd, &w->about, w->image, w->ns, &err));
    close(fd);
}

static void refused(struct world *w, const char *why)
{
    struct sh_err err = {0};
    int rc = read_it(w, &err);

    assert_fails(rc, SH_E_INVALID, &err, why);
}

/* Who reads it learns from the file how it is stored. */
static void a_packed_image_says_where_its_layers_end(void **state)
{
    struct world *w = *state;
    const uint64_t link_ends[3] = {1024, 1024, PACKED_BYTES};
    unsigned char image[IMAGE_BYTES] = {0};
    struct kept_about about = w->about;
    uint64_t ends[3] = {0};
    struct sh_err err = {0};
    double ns[6] = {0};
    int fd;

    w->about.link_ends = link_ends;
    assert_int_equal(kept_stored_bytes(&w->about), PACKED_BYTES);
    write_it(w);
    fd = open(w->path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_ok_err(kept_look(fd, &about, ends, &err), &err);
    assert_memory_equal(ends, link_ends, sizeof(ends));
    assert_ptr_equal(about.link_ends, ends);
    assert_ok_err(kept_read(fd, &about, image, ns, &err), &err);
    assert_memory_equal(image, w->image, PACKED_BYTES);
    assert_int_equal(image[PACKED_BYTES], 0);
    about.link_ends = NULL; /* as if it were not packed */
    assert_fails(kept_read(fd, &about, image, ns, &err), SH_E_INVALID, &err, "size");
    /* Each byte of the table counts. */
    for (int k = 0; k < 24; k++) {
        const off_t at = 88 + 24 + k; /* behind the header and the ends of layers */
        unsigned char was, bad;

        about.link_ends = NULL;
        err = (struct sh_err){0};
        assert_int_equal(pread(fd, &was, 1, at), 1);
        bad = was ^ 0x20;
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        if (kept_look(fd, &about, ends, &err) == SH_OK)
            kept_read(fd, &about, image, ns, &err);
        assert_int_equal(err.rc, SH_E_INVALID);
        assert_int_equal(pwrite(fd, &was, 1, at), 1);
    }
    close(fd);
    w->about.link_ends = NULL;
    write_it(w);
    fd = open(w->path, O_RDONLY | O_CLOEXEC);
    assert_ok(kept_look(fd, &about, ends, NULL));
    assert_null(about.link_ends);
    close(fd);
}

/* Of another maker, with right sums: a device could not read them. */
static void packed_layers_lie_where_a_device_can_read_them(void **state)
{
    struct world *w = *state;
    const uint64_t link_ends[3] = {1024, 1088, PACKED_BYTES};
    struct kept_about about = w->about;
    uint64_t ends[3];
    struct sh_err err = {0};
    int fd;

    w->about.link_ends = link_ends;
    write_it(w);
    fd = open(w->path, O_RDONLY | O_CLOEXEC);
    assert_fails(kept_look(fd, &about, ends, &err), SH_E_INVALID, &err, "tables");
    assert_null(about.link_ends);
    close(fd);
}

static void what_was_written_is_read(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct stat st;

    write_it(w);
    assert_ok(read_it(w, &err));
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(st.st_size, FILE_BYTES);
}

static void a_file_of_any_other_length_is_refused(void **state)
{
    struct world *w = *state;
    const off_t sizes[] = {0, 1, 71, 72, 200, KEPT_ALIGN, FILE_BYTES - 1, FILE_BYTES + 1, 1 << 20};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        write_it(w);
        assert_int_equal(truncate(w->path, sizes[i]), 0);
        refused(w, "size");
    }
}

/* Every byte of header and tables, and some of the image. */
static void every_damage_is_noticed(void **state)
{
    struct world *w = *state;
    const size_t meant = 72 + sizeof(w->ends) + sizeof(w->batches) + sizeof(w->ns) + 4;

    for (size_t at = 0; at < FILE_BYTES; at += at < meant ? 1 : 97) {
        unsigned char byte;
        int fd;

        if (at >= meant && at < KEPT_ALIGN)
            continue; /* of no meaning */
        write_it(w);
        fd = open(w->path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
        close(fd);
        refused(w, "what is kept");
    }
}

static void what_was_made_of_something_else_is_refused(void **state)
{
    struct world *w = *state;

    write_it(w);
    w->about.key[31] = 1;
    refused(w, "something else");
    w->about.key[31] = 0;
    w->ends[0]++;
    refused(w, "something else");
    w->ends[0]--;
    w->batches[1] = 4;
    refused(w, "something else");
    w->batches[1] = 8;
    w->about.n_batches = 1;
    refused(w, "something else");
    w->about.n_batches = 2;
    w->about.n_layers = 2;
    refused(w, "something else");
    w->about.n_layers = 3;
    w->about.image_bytes--;
    refused(w, "size");
}

/* Who cannot wait for all of it reads pieces, in any order: damage is one piece's. */
static void pieces_are_checked_one_by_one(void **state)
{
    struct world *w = *state;
    const uint64_t bytes = 2 * KEPT_PIECE + 1000;
    char *image = malloc((size_t)bytes), *got = calloc(1, (size_t)bytes), byte = 0;
    struct kept_pieces p = {0};
    struct sh_err err = {0};
    int fd = new_file(w);

    assert_true(image && got);
    for (uint64_t i = 0; i < bytes; i++)
        image[i] = (char)(i * 7 + i / 251);
    w->about.image_bytes = bytes;
    assert_ok(kept_write(fd, &w->about, image, w->ns, &err));
    assert_ok(kept_open_pieces(fd, &w->about, &p, &err));
    assert_int_equal(p.n, 3);
    assert_int_equal(p.at + bytes, lseek(fd, 0, SEEK_END));
    for (uint32_t i = 3; i-- > 0;)
        assert_ok(kept_read_piece(&p, i, got, &err));
    assert_memory_equal(image, got, bytes);
    byte = (char)(image[KEPT_PIECE + 5] ^ 1);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(p.at + KEPT_PIECE + 5)), 1);
    assert_ok(kept_read_piece(&p, 0, NULL, &err));
    assert_ok(kept_read_piece(&p, 2, got, &err));
    assert_fails(kept_read_piece(&p, 1, NULL, &err), SH_E_INVALID, &err, "damaged image");
    free(p.crc);
    w->about.key[0]++;
    assert_true(kept_open_pieces(fd, &w->about, &p, NULL) != SH_OK);
    close(fd);
    free(image);
    free(got);
}

static void an_impossible_time_is_refused(void **state)
{
    struct world *w = *state;
    const double bad[] = {-1, 1e300, NAN};

    for (size_t i = 0; i < 3; i++) {
        w->ns[5] = bad[i];
        write_it(w);
        refused(w, "impossible");
    }
}

static void a_model_without_weights_is_kept_too(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    double ns = 0;
    char none = 0;
    int fd = new_file(w);

    w->about.image_bytes = 0;
    w->about.n_layers = 0;
    assert_ok(kept_write(fd, &w->about, &none, &ns, &err));
    assert_ok(kept_read(fd, &w->about, &none, &ns, &err));
    close(fd);
}

static void what_cannot_be_written_is_said(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    int fd = open("/dev/full", O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_fails(kept_write(fd, &w->about, w->image, w->ns, &err), SH_E_DISKFULL, &err, "keep");
    err = (struct sh_err){0};
    assert_fails(kept_read(fd, &w->about, w->image, w->ns, &err), SH_E_INVALID, &err, "size");
    close(fd);
    write_it(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(what_was_written_is_read),
        T(a_packed_image_says_where_its_layers_end),
        T(packed_layers_lie_where_a_device_can_read_them),
        T(a_file_of_any_other_length_is_refused),
        T(every_damage_is_noticed),
        T(what_was_made_of_something_else_is_refused),
        T(pieces_are_checked_one_by_one),
        T(an_impossible_time_is_refused),
        T(a_model_without_weights_is_kept_too),
        T(what_cannot_be_written_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
