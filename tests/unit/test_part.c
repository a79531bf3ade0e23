/* test_part.c - beginnings of uploads.
 *
 * Without it a header could name more bytes than there are, or a client that comes at the wrong
 * moment could empty a file that is in its place already and belongs to a version.
 */
/* uses: libapi.a */
#include "api/files/part.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct world {
    char dir[SH_TEST_DIR_BYTES], part[400], placed[400];
    struct part_key key;
    bool place_before_lock;
} W;

/* Between its open() and its flock() a part may be put in its place by the one who has the lock. */
int flock(int fd, int operation)
{
    if (W.place_before_lock)
        assert_int_equal(rename(W.part, W.placed), 0);
    W.place_before_lock = false;
    return (int)syscall(SYS_flock, fd, operation);
}

static int set_up(void **state)
{
    char path[256];

    (void)state;
    W = (struct world){.key = {.tenant_id = 3, .row_id = 5, .kind = 'd'}};
    memset(W.key.digest, 'a', SH_SHA256_HEX - 1);
    sh_test_dir_make(W.dir);
    snprintf(path, sizeof(path), "%s/blobs", W.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/blobs/tmp", W.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(W.part, sizeof(W.part), "%s/part-3-d5-%s", path, W.key.digest);
    snprintf(W.placed, sizeof(W.placed), "%s/blobs/placed", W.dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sh_test_dir_remove(W.dir);
    return 0;
}

static int open_part(uint64_t from, int *fd, struct sh_err *err)
{
    uint64_t have;
    char *path = NULL;
    int rc = part_open(W.dir, &W.key, from, fd, &path, &have, err);

    free(path);
    return rc;
}

static int64_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* ---------------------------------------------------------------- headers */

static void a_range_is_the_rest_of_a_file(void **state)
{
    static const char *const BAD[] = {
        "bytes 0-9223372036854775807/9223372036854775807",
        "bytes 0-9223372036854775807/1",
        "bytes 5-9/11",
        "bytes 6-5/6",
        "bytes -5/6",
        "bytes 1-5/*",
        "bytes */6",
        "bytes 1-5",
        "1-5/6",
        "bytes 1-5/6 ",
        "bytes 99999999999999999999-5/6",
        "",
    };
    uint64_t from = 0, total = 0;
    struct sh_err err;

    (void)state;
    assert_ok(part_range("bytes 1-5/6", 5, &from, &total, NULL));
    assert_int_equal(from, 1);
    assert_int_equal(total, 6);
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        err = (struct sh_err){0};
        assert_fails(part_range(BAD[i], 5, &from, &total, &err), SH_E_INVALID, &err, "FROM-LAST");
    }
    err = (struct sh_err){0};
    assert_fails(part_range("bytes 1-5/6", 4, &from, &total, &err), SH_E_INVALID, &err, "TOTAL");
}

/* ---------------------------------------------------------------- files */

static void one_writes_a_part_at_a_time(void **state)
{
    struct sh_err err = {0};
    int fd, other;

    (void)state;
    assert_ok(open_part(0, &fd, NULL));
    assert_int_equal(write(fd, "12345", 5), 5);
    assert_fails(open_part(3, &other, &err), SH_E_UNAVAILABLE, &err, "another connection");
    close(fd);
    err = (struct sh_err){0};
    assert_fails(open_part(6, &other, &err), SH_E_CONFLICT, &err, "5 bytes");
    assert_ok(open_part(3, &fd, NULL));
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    assert_int_equal(size_of(W.part), 4);
}

static void what_is_in_its_place_is_no_part_any_more(void **state)
{
    struct sh_err err = {0};
    int fd = -1;

    (void)state;
    assert_ok(open_part(0, &fd, NULL));
    assert_int_equal(write(fd, "12345", 5), 5);
    close(fd);
    W.place_before_lock = true;
    assert_fails(open_part(0, &fd, &err), SH_E_UNAVAILABLE, &err, "try again");
    assert_int_equal(size_of(W.placed), 5);
}

static void what_is_in_its_place_too_is_not_written_to(void **state)
{
    int fd = -1;

    (void)state;
    assert_ok(open_part(0, &fd, NULL));
    assert_int_equal(write(fd, "12345", 5), 5);
    close(fd);
    assert_int_equal(link(W.part, W.placed), 0);
    assert_ok(open_part(4, &fd, NULL));
    assert_int_equal(size_of(W.placed), 5);
    assert_int_equal(size_of(W.part), 4);
    assert_true(part_is_at(fd, W.part));
    assert_int_equal(write(fd, "6", 1), 1);
    close(fd);
    assert_int_equal(size_of(W.part), 5);
    assert_ok(open_part(5, &fd, NULL)); /* it is its own now */
    close(fd);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_range_is_the_rest_of_a_file),
        TEST(one_writes_a_part_at_a_time),
        TEST(what_is_in_its_place_is_no_part_any_more),
        TEST(what_is_in_its_place_too_is_not_written_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
