/* test_kept_dir.c - which file is kept of a model, how it is written, and which files go. Without
 * it: what another build or tenant has made would be served, a folder that several executors share
 * would lose what one of them is writing, and the disk would fill. */
/* uses: executor/models/kept_dir.o executor/files/disk.o executor/files/disk_work.o runtime/model/kept.o */
/* link: -Wl,--wrap=readlink */
#include "common/mem.h"
#include "common/shm.h"
#include "executor/files/disk.h"
#include "executor/models/kept_dir.h"
#include "tests/unit/slow_disk.h"

#include <ftw.h>
#include <sys/file.h>

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
#define PACKAGE "/x/" DIGEST

static struct {
    char dir[SH_TEST_DIR_BYTES];
    struct sh_loop *loop;
    struct files files;
    struct kept_dir kept;
    const char *program; /* as the system says it; NULL: it does not */
    struct sh_shm image;
} W;

ssize_t __real_readlink(const char *path, char *out, size_t n);
ssize_t __wrap_readlink(const char *path, char *out, size_t n);

ssize_t __wrap_readlink(const char *path, char *out, size_t n)
{
    if (strcmp(path, "/proc/self/exe") != 0)
        return __real_readlink(path, out, n);
    return W.program ? snprintf(out, n, "%s", W.program) : -1;
}

static char *in_dir(const char *name)
{
    static char path[400];

    snprintf(path, sizeof(path), "%s/%s", W.dir, name);
    return path;
}

static void make_file(const char *name, size_t bytes)
{
    static const char zeroes[65536];

    sh_test_write_file(in_dir(name), zeroes, bytes);
}

static int set_up(void **state)
{
    static const char *const FOLDERS[] = {
        "bin", "lib", "kept", "blobs", "blobs/packages", "blobs/packages/" DIGEST};
    static char program[200];

    (void)state;
    sh_test_dir_make(W.dir);
    for (size_t i = 0; i < SH_ARRAY_LEN(FOLDERS); i++)
        assert_int_equal(mkdir(in_dir(FOLDERS[i]), 0700), 0);
    make_file("bin/shunt-worker", 1);
    make_file("lib/shunt-dev-cpu.so", 1);
    snprintf(program, sizeof(program), "%s/bin/shunt-executor", W.dir);
    W.program = program;
    assert_ok(sh_loop_new(&W.loop, NULL));
    W.files = (struct files){.state_dir = W.dir, .executor = "e"};
    assert_ok(disk_new(W.loop, &W.files.disk, NULL));
    W.kept = (struct kept_dir){
        .files = &W.files, .device = "cpu", .max_bytes = 1 << 20, .incarnation = 7};
    assert_ok(sh_shm_create("image", 100, &W.image, NULL));
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st, (void)type, (void)f;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    disk_free(W.files.disk);
    sh_loop_free(W.loop);
    sh_shm_fini(&W.image);
    return nftw(W.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct kept_file name_of(const char *tenant, const char *what, const char *identity)
{
    struct kept_file f;

    assert_ok(kept_dir_name(&W.kept, tenant, PACKAGE, what, identity, &f, NULL));
    return f;
}

static void a_name_is_of_all_that_the_contents_depend_on(void **state)
{
    struct kept_file a = name_of("ann", "fp32 8", "gpu"), b;

    (void)state;
    assert_has(a.path, "/kept/" DIGEST "-");
    for (int i = 0; i < 5; i++) {
        if (i == 3)
            make_file("bin/shunt-worker", 2); /* another build */
        if (i == 4)
            make_file("lib/shunt-dev-cpu.so", 2);
        b = name_of(i == 0 ? "ben" : "ann", i == 1 ? "fp16 8" : "fp32 8", i == 2 ? "old" : "gpu");
        assert_string_not_equal(a.path, b.path);
        kept_dir_drop(&b);
    }
    kept_dir_drop(&a);
    assert_null(a.path);
}

static void nothing_is_kept_of_what_has_no_name(void **state)
{
    static const struct {
        const char *package, *identity;
        uint64_t max_bytes;
    } CASES[] = {
        {PACKAGE, "gpu", 0},
        {PACKAGE, "", 1},
        {"/x/trained", "gpu", 1},
        {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeX", "gpu", 1},
    };
    struct kept_file f;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        W.kept.max_bytes = CASES[i].max_bytes;
        assert_ok(
            kept_dir_name(&W.kept, "ann", CASES[i].package, "fp32", CASES[i].identity, &f, NULL));
        assert_null(f.path);
        assert_false(kept_dir_has(&f));
        assert_int_equal(kept_dir_open(&f), -1);
    }
}

static void without_its_programs_there_is_no_name(void **state)
{
    struct sh_err err = {0};
    struct kept_file f;

    (void)state;
    unlink(in_dir("lib/shunt-dev-cpu.so"));
    assert_fails(kept_dir_name(&W.kept, "ann", PACKAGE, "fp32", "gpu", &f, &err), SH_E_IO, &err,
                 "shunt-dev-cpu.so");
    assert_null(f.path);
    err = (struct sh_err){0};
    W.program = "shunt-executor"; /* of no folder: that of the process */
    assert_fails(kept_dir_name(&W.kept, "ann", PACKAGE, "fp32", "gpu", &f, &err), SH_E_IO, &err,
                 "look at shunt-worker");
    err = (struct sh_err){0};
    W.program = NULL;
    assert_fails(kept_dir_name(&W.kept, "ann", PACKAGE, "fp32", "gpu", &f, &err), SH_E_IO, &err,
                 "where this program lies");
}

/* ------------------------------------------------------------------ writing */

static int write_kept(const struct kept_file *f, uint64_t image_bytes, int image)
{
    const uint32_t batch = 1;
    struct kept_about about = {.image_bytes = image_bytes, .batches = &batch, .n_batches = 1};

    return kept_dir_write(&W.kept, f, &about, NULL, image, NULL);
}

static void until_written(void)
{
    while (W.kept.n_writing)
        assert_ok(sh_loop_once(W.loop, 1000000, NULL));
}

static void a_file_has_its_name_when_it_is_whole(void **state)
{
    struct kept_file f = name_of("ann", "fp32", "gpu");
    struct slow_disk slow;
    int fd;

    (void)state;
    slow_disk_begin(&slow, W.files.disk);
    assert_false(kept_dir_has(&f));
    assert_ok(write_kept(&f, 0, W.image.fd)); /* of a model without weights */
    assert_int_equal(W.kept.n_writing, 1);
    assert_false(kept_dir_has(&f));
    slow_disk_end(&slow);
    until_written();
    assert_true(kept_dir_has(&f));
    fd = kept_dir_open(&f);
    assert_true(fd >= 0 && kept_dir_is_still(fd));
    close(fd);
    fd = open(f.path, O_RDWR | O_CLOEXEC);
    assert_false(kept_dir_is_still(fd)); /* somebody may write to it */
    close(fd);
    assert_false(kept_dir_is_still(-1));
    kept_dir_used(&f);
    make_file("empty", 0);
    free(f.path);
    assert_ok(sh_strdup(in_dir("empty"), &f.path, NULL));
    assert_false(kept_dir_has(&f)); /* a crash has left it so */
    kept_dir_drop(&f);
}

static void what_cannot_be_written_is_no_file(void **state)
{
    struct kept_file f = name_of("ann", "fp32", "gpu");
    char part[400];
    int fd, n = 0;

    (void)state;
    assert_int_equal(write_kept(&f, 100, -1), SH_E_IO); /* no descriptor */
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(write_kept(&f, 100, fd), SH_E_PROTO); /* no such memory */
    close(fd);
    assert_int_equal(W.kept.n_writing, 0);
    /* somebody else writes it, it has no folder, or what has its name cannot be replaced */
    snprintf(part, sizeof(part), "%s.part-%016x", f.path, 7);
    fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_ok(write_kept(&f, 100, W.image.fd));
    until_written();
    close(fd);
    assert_false(kept_dir_has(&f));
    assert_int_equal(mkdir(f.path, 0700), 0);
    assert_ok(write_kept(&f, 100, W.image.fd));
    until_written();
    assert_int_equal(access(part, F_OK), -1);
    assert_int_equal(rmdir(f.path), 0);
    sh_test_dir_remove(in_dir("kept"));
    assert_ok(write_kept(&f, 100, W.image.fd));
    until_written();
    assert_false(kept_dir_has(&f));
    /* checkpoints go the same way, and should not wait for all of that */
    while (write_kept(&f, 100, W.image.fd) == SH_OK)
        n++;
    assert_int_equal(n, 16);
    until_written();
    kept_dir_drop(&f);
}

/* ------------------------------------------------------------------ sweeping */

static void touch(const char *name, size_t bytes, time_t used)
{
    const struct timespec times[2] = {{.tv_sec = used}, {.tv_sec = used}};

    make_file(name, bytes);
    assert_int_equal(utimensat(AT_FDCWD, in_dir(name), times, 0), 0);
}

static bool is_there(const char *name)
{
    return access(in_dir(name), F_OK) == 0;
}

static void note_end(void *arg)
{
    ++*(unsigned *)arg;
}

/* Of 100 bytes, as another host has made it. */
static int adopt(const struct kept_file *f, struct sh_shm *whole, unsigned *n_ended,
                 struct sh_err *err)
{
    assert_ok(sh_shm_create("whole", 100, whole, NULL));
    whole->bytes = 100;
    memset(whole->base, 'k', 100);
    return kept_dir_adopt(&W.kept, f, whole, note_end, n_ended, err);
}

static void what_another_host_has_made_is_kept_as_it_is(void **state)
{
    struct kept_file f = name_of("ann", "fp32", "gpu");
    struct sh_shm whole;
    struct slow_disk slow;
    unsigned n_ended = 0;
    char bytes[200];
    int fd;

    (void)state;
    slow_disk_begin(&slow, W.files.disk);
    assert_ok(adopt(&f, &whole, &n_ended, NULL));
    assert_int_equal(whole.fd, -1); /* it is not the caller's any more */
    assert_false(kept_dir_has(&f));
    slow_disk_end(&slow);
    until_written();
    assert_int_equal(n_ended, 1);
    fd = kept_dir_open(&f);
    assert_int_equal(read(fd, bytes, sizeof(bytes)), 100);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(bytes[i], 'k');
    close(fd);
    unlink(f.path);
    assert_int_equal(mkdir(f.path, 0700), 0); /* no name for a file */
    assert_ok(adopt(&f, &whole, &n_ended, NULL));
    until_written();
    assert_int_equal(n_ended, 2); /* whoever waits for it goes on */
    assert_int_equal(rmdir(f.path), 0);
    kept_dir_drop(&f);
}

static void what_waits_for_the_disk_is_limited(void **state)
{
    struct kept_file f = name_of("ann", "fp32", "gpu");
    struct kept_about about = {.image_bytes = 100};
    struct sh_err err = {0};
    struct sh_shm whole;
    struct slow_disk slow;
    unsigned n_ended = 0, n = 0;

    (void)state;
    slow_disk_begin(&slow, W.files.disk);
    while (adopt(&f, &whole, &n_ended, NULL) == SH_OK)
        assert_true(++n < 100);
    assert_true(whole.fd >= 0); /* it is the caller's still */
    assert_fails(kept_dir_adopt(&W.kept, &f, &whole, note_end, &n_ended, &err), SH_E_QUEUEFULL,
                 &err, "wait to be kept");
    sh_shm_fini(&whole);
    err = (struct sh_err){0};
    assert_fails(kept_dir_write(&W.kept, &f, &about, NULL, W.image.fd, &err), SH_E_QUEUEFULL, &err,
                 "wait to be kept");
    slow_disk_end(&slow);
    until_written();
    assert_int_equal(n_ended, n);
    kept_dir_drop(&f);
}

static void what_is_of_no_use_goes(void **state)
{
    static const char *const USELESS[] = {
        "kept/x",                         /* no such name */
        "kept/" OTHER "-" DIGEST ".kept", /* its package is gone */
        "kept/" DIGEST "+" DIGEST ".kept",
        "kept/" DIGEST "-" DIGEST ".kepT",
        "kept/x123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-" DIGEST ".kept",
        "kept/" DIGEST "-x123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.kept",
        "kept/" DIGEST "-" DIGEST ".kept.part-1", /* of an executor that died */
    };
    static const char WRITTEN[] = "kept/" DIGEST "-" DIGEST ".kept.part-2";
    static const char USEFUL[] = "kept/" DIGEST "-" DIGEST ".kept";
    int fd;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(USELESS); i++)
        make_file(USELESS[i], 10);
    make_file(USEFUL, 10);
    make_file(WRITTEN, 10);
    assert_int_equal(mkdir(in_dir("kept/folder"), 0700), 0); /* nobody's */
    fd = open(in_dir(WRITTEN), O_WRONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    kept_dir_sweep(&W.kept);
    close(fd);
    for (size_t i = 0; i < SH_ARRAY_LEN(USELESS); i++)
        if (is_there(USELESS[i]))
            fail_msg("%s is still there", USELESS[i]);
    assert_true(is_there(USEFUL));
    assert_true(is_there(WRITTEN));
    assert_true(is_there("kept/folder"));
}

static void the_least_recently_used_go_first(void **state)
{
    static const char A[] = "kept/" DIGEST "-" DIGEST ".kept",
                      B[] = "kept/" DIGEST "-" OTHER ".kept";

    (void)state;
    W.kept.max_bytes = 100;
    touch(A, 60, 2000);
    kept_dir_sweep(&W.kept);
    assert_true(is_there(A));
    touch(B, 60, 1000);
    kept_dir_sweep(&W.kept);
    assert_true(is_there(A));
    assert_false(is_there(B));
    touch(B, 60, 3000);
    kept_dir_sweep(&W.kept);
    assert_false(is_there(A));
    assert_true(is_there(B));
    W.kept.max_bytes = 10;
    kept_dir_sweep(&W.kept);
    assert_false(is_there(B));
    sh_test_dir_remove(in_dir("kept"));
    kept_dir_sweep(&W.kept); /* there is no folder yet */
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_name_is_of_all_that_the_contents_depend_on),
        TEST(nothing_is_kept_of_what_has_no_name),
        TEST(without_its_programs_there_is_no_name),
        TEST(a_file_has_its_name_when_it_is_whole),
        TEST(what_cannot_be_written_is_no_file),
        TEST(what_another_host_has_made_is_kept_as_it_is),
        TEST(what_waits_for_the_disk_is_limited),
        TEST(what_is_of_no_use_goes),
        TEST(the_least_recently_used_go_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
