/* test_kernels_dir.c - without it, a worker of a GPU that somebody has taken over could fill the
 * disk, or keep the executor busy with counting files. */
/* uses: executor/pool/kernels_dir.o */
#include "executor/pool/kernels_dir.h"
#include "tests/unit/sh_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES ((uint64_t)1 << 20)

static char dir[SH_TEST_DIR_BYTES];

static int set_up(void **state)
{
    (void)state;
    sh_test_dir_make(dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sh_test_dir_remove(dir);
    return 0;
}

static int make_file(const char *name)
{
    char path[400];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

static unsigned n_files(void)
{
    DIR *d = opendir(dir);
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void what_is_measured_stays(void **state)
{
    int fd = make_file("tune");

    (void)state;
    assert_int_equal(write(fd, "text", 4), 4);
    assert_int_equal(ftruncate(fd, (off_t)MAX_BYTES * 4), 0); /* which takes no disk */
    close(fd);
    assert_false(kernels_dir_was_full(dir, MAX_BYTES));
    assert_int_equal(n_files(), 1);
}

static void too_many_bytes_are_removed(void **state)
{
    int a = make_file("tune"), b = make_file("more");

    (void)state;
    assert_int_equal(posix_fallocate(a, 0, (off_t)MAX_BYTES / 2), 0);
    assert_false(kernels_dir_was_full(dir, MAX_BYTES));
    assert_int_equal(posix_fallocate(b, 0, (off_t)MAX_BYTES / 2 + 65536), 0);
    assert_true(kernels_dir_was_full(dir, MAX_BYTES));
    assert_int_equal(n_files(), 0);
    assert_false(kernels_dir_was_full(dir, MAX_BYTES));
    close(a);
    close(b);
}

static void too_many_files_are_removed(void **state)
{
    char name[32];

    (void)state;
    for (unsigned i = 0; i <= KERNELS_DIR_MAX_FILES; i++) {
        snprintf(name, sizeof(name), "%u", i);
        close(make_file(name));
    }
    assert_true(kernels_dir_was_full(dir, MAX_BYTES));
    assert_int_equal(n_files(), 0);
}

/* Where the kernel has no Landlock they have the rights of their user. */
static void folders_and_links_are_no_way_out(void **state)
{
    char path[400], name[32];

    (void)state;
    for (unsigned i = 0; i <= KERNELS_DIR_MAX_FILES; i++) {
        snprintf(name, sizeof(name), "%u", i);
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        assert_int_equal(i % 2 ? mkdir(path, 0700) : symlink("/etc", path), 0);
    }
    assert_true(kernels_dir_was_full(dir, MAX_BYTES));
    assert_int_equal(n_files(), 0);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    snprintf(path, sizeof(path), "%s/link", dir);
    assert_int_equal(symlink("/etc", path), 0);
    assert_false(kernels_dir_was_full(path, MAX_BYTES));
    assert_false(kernels_dir_was_full("", MAX_BYTES));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_measured_stays),
        TEST(too_many_bytes_are_removed),
        TEST(too_many_files_are_removed),
        TEST(folders_and_links_are_no_way_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
