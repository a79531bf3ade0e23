/* test_result_file.c - the file that batch inference writes, under a disk that fails.
 *
 * Without it: a failed write or sync could be taken for a good one, a part that was damaged or is
 * of another job could be gone on with, a file that the disk has changed could be published, and a
 * writer that was thought dead could publish beside the one that took over. */
/* uses: executor/files/result_file.o executor/files/claim.o */
/* link: -Wl,--wrap=pwrite -Wl,--wrap=fsync -Wl,--wrap=fallocate */
/* link: -Wl,--wrap=rename -Wl,--wrap=renameat -Wl,--wrap=readdir */
#include "common/mem.h"
#include "executor/files/claim.h"
#include "executor/files/result_file.h"
#include "tests/unit/sh_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define N 10

/* The call of this number, counted from 1 over all of them, fails with this error. */
static int fail_at, n_calls, fail_errno;
static bool parts_vanish; /* whoever takes one over finds it gone */

ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t off);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t off);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fallocate(int fd, int mode, off_t off, off_t n);
int __wrap_fallocate(int fd, int mode, off_t off, off_t n);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to);
struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);

static bool fails(void)
{
    if (++n_calls != fail_at)
        return false;
    errno = fail_errno;
    return true;
}

ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t off)
{
    /* Half of it at a time: a short write is no failure. */
    return fails() ? -1 : __real_pwrite(fd, p, (n + 1) / 2, off);
}

int __wrap_fsync(int fd)
{
    return fails() ? -1 : __real_fsync(fd);
}

int __wrap_fallocate(int fd, int mode, off_t off, off_t n)
{
    return fails() ? -1 : __real_fallocate(fd, mode, off, n);
}

int __wrap_rename(const char *from, const char *to)
{
    return fails() ? -1 : __real_rename(from, to);
}

int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    if (parts_vanish)
        unlinkat(from_fd, from, 0);
    return fails() ? -1 : __real_renameat(from_fd, from, to_fd, to);
}

struct dirent *__wrap_readdir(DIR *d)
{
    return fails() ? NULL : __real_readdir(d);
}

struct rig {
    char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 32];
    float y[N][2];
    uint8_t z[N];
    struct sh_st_tensor tensors[2];
    atomic_bool stop;
    struct result_file_conf conf;
};

static void setup(struct rig *r)
{
    static const char *const META[] = {"job", "7", NULL};

    *r = (struct rig){
        .tensors = {
            {.name = "y", .dtype = SH_F32, .rank = 2, .dims = {N, 2}, .bytes = sizeof(r->y)},
            {.name = "z", .dtype = SH_U8, .rank = 1, .dims = {N}, .bytes = sizeof(r->z)}}};
    for (int i = 0; i < N; i++) {
        r->y[i][0] = (float)i;
        r->y[i][1] = (float)-i;
        r->z[i] = (uint8_t)(i + 1);
    }
    sh_test_dir_make(r->dir);
    snprintf(r->path, sizeof(r->path), "%s/" RESULT_FILE_NAME, r->dir);
    r->conf = (struct result_file_conf){.dir = r->dir,
                                        .tensors = r->tensors,
                                        .n_tensors = 2,
                                        .meta = META,
                                        .resume_digest = "",
                                        .stop = &r->stop};
    fail_at = n_calls = 0;
    parts_vanish = false;
}

static int write_some(struct rig *r, struct result_file *f, int64_t at, int64_t n,
                      struct sh_err *err)
{
    const void *const data[] = {r->y[at], &r->z[at]};

    return result_file_write(f, data, n, err);
}

/* What is published is whole, and its digest is that of the file. */
static void check_published(const struct rig *r, const char *digest, uint64_t bytes)
{
    uint8_t sum[SH_SHA256_BYTES];
    char hex[SH_SHA256_HEX];
    struct sh_st *s = NULL;
    struct sh_err err = {0};
    char *all = malloc((size_t)bytes);
    FILE *f = fopen(r->path, "re");

    assert_non_null(f);
    assert_non_null(all);
    assert_int_equal(fread(all, 1, (size_t)bytes, f), bytes);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    assert_ok(sh_sha256(all, (size_t)bytes, sum, NULL));
    free(all);
    sh_hex(sum, sizeof(sum), hex);
    assert_string_equal(hex, digest);
    assert_ok_err(sh_st_open(r->path, &s, &err), &err);
    assert_memory_equal(sh_st_find(s, "y")->data, r->y, sizeof(r->y));
    assert_memory_equal(sh_st_find(s, "z")->data, r->z, sizeof(r->z));
    assert_string_equal(sh_st_meta(s, "job"), "7");
    sh_st_close(s);
    assert_int_equal(sh_test_dir_walk(r->dir, false), 1);
}

static int run_all(struct rig *r, int64_t batch, char digest[static SH_SHA256_HEX], uint64_t *bytes,
                   struct sh_err *err)
{
    struct result_file *f = NULL;
    int64_t at = -1;
    int rc = result_file_open(&r->conf, &f, &at, err);

    while (!rc && at < N) {
        int64_t n = SH_MIN(batch, N - at);

        rc = write_some(r, f, at, n, err);
        at += n;
        if (!rc)
            rc = result_file_sync(f, digest, bytes, err);
    }
    if (!rc)
        rc = result_file_finish(f, digest, bytes, err);
    result_file_free(f);
    return rc;
}

static void what_is_written_is_published(void **state)
{
    struct rig r;
    struct sh_err err = {0};
    char digest[SH_SHA256_HEX], other[SH_SHA256_HEX];
    uint64_t bytes = 0;
    (void)state;

    setup(&r);
    assert_ok_err(run_all(&r, 3, digest, &bytes, &err), &err);
    check_published(&r, digest, bytes);
    /* The batches do not show in it. */
    assert_ok_err(run_all(&r, 7, other, &bytes, &err), &err);
    assert_string_equal(other, digest);
    sh_test_dir_remove(r.dir);
}

static void every_call_may_fail_and_the_next_attempt_is_whole(void **state)
{
    static const int ERRORS[] = {EIO, ENOSPC};
    char digest[SH_SHA256_HEX];
    uint64_t bytes = 0;
    int n_failed = 0;
    struct rig r;
    (void)state;

    for (size_t e = 0; e < SH_ARRAY_LEN(ERRORS); e++)
        for (int k = 1;; k++) {
            struct sh_err err = {0}, none = {0};
            int rc;

            setup(&r);
            fail_at = k;
            fail_errno = ERRORS[e];
            rc = run_all(&r, 4, digest, &bytes, &err);
            if (n_calls < k) { /* there is no k-th call */
                fail_at = 0;
                assert_ok_err(rc, &err);
                sh_test_dir_remove(r.dir);
                break;
            }
            n_failed++;
            assert_int_equal(rc, ERRORS[e] == EIO ? SH_E_IO : SH_E_DISKFULL);
            assert_int_equal(err.rc, rc);
            fail_at = 0;
            assert_ok_err(run_all(&r, 4, digest, &bytes, &none), &none);
            check_published(&r, digest, bytes);
            sh_test_dir_remove(r.dir);
        }
    assert_true(n_failed > 20);
}

/* Writes `at` samples and leaves; digest: of them. */
static void leave_part(struct rig *r, int64_t at, char digest[static SH_SHA256_HEX])
{
    struct result_file *f = NULL;
    struct sh_err err = {0};
    int64_t from = -1;
    uint64_t bytes = 0;

    assert_ok_err(result_file_open(&r->conf, &f, &from, &err), &err);
    assert_int_equal(from, 0);
    assert_ok_err(write_some(r, f, 0, at, &err), &err);
    assert_ok_err(result_file_sync(f, digest, &bytes, &err), &err);
    assert_int_equal(bytes, (uint64_t)at * 9);
    result_file_free(f);
    assert_int_equal(sh_test_dir_walk(r->dir, false), 1);
}

static char *part_path(const struct rig *r)
{
    DIR *d = opendir(r->dir);
    char *path = NULL;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            assert_ok(sh_asprintf(NULL, &path, "%s/%s", r->dir, e->d_name));
    closedir(d);
    return path;
}

static void another_attempt_goes_on_where_the_digest_says(void **state)
{
    char digest[SH_SHA256_HEX], whole[SH_SHA256_HEX];
    struct sh_err err = {0};
    struct result_file *f = NULL;
    uint64_t bytes = 0;
    int64_t at = -1;
    struct rig r;
    (void)state;

    setup(&r);
    leave_part(&r, 6, digest);
    r.conf.resume_at = 6;
    r.conf.resume_digest = digest;
    assert_ok_err(result_file_open(&r.conf, &f, &at, &err), &err);
    assert_int_equal(at, 6);
    assert_int_equal(write_some(&r, f, 6, 5, &err), SH_E_BUG); /* more than there are */
    err = (struct sh_err){0};
    assert_int_equal(result_file_finish(f, whole, &bytes, &err), SH_E_BUG); /* not complete */
    err = (struct sh_err){0};
    assert_ok_err(write_some(&r, f, 6, 4, &err), &err);
    assert_ok_err(result_file_finish(f, whole, &bytes, &err), &err);
    result_file_free(f);
    check_published(&r, whole, bytes);
    sh_test_dir_remove(r.dir);
}

/* What is durable stays so while the disk cannot be asked for it. */
static void a_part_that_cannot_be_taken_over_just_now_waits_for_the_next_attempt(void **state)
{
    char digest[SH_SHA256_HEX];
    struct sh_err err = {0}, none = {0};
    struct result_file *f = NULL;
    int64_t at = -1;
    struct rig r;
    (void)state;

    setup(&r);
    leave_part(&r, 6, digest);
    r.conf.resume_at = 6;
    r.conf.resume_digest = digest;
    r.conf.placement = 1;
    for (int k = 1; k <= 6; k++) { /* while it is looked for, taken, and looked for others */
        n_calls = 0;
        fail_at = k;
        fail_errno = EIO;
        err = (struct sh_err){0};
        assert_int_equal(result_file_open(&r.conf, &f, &at, &err), SH_E_IO);
        fail_at = 0;
        assert_int_equal(sh_test_dir_walk(r.dir, false), 1);
    }
    assert_ok_err(result_file_open(&r.conf, &f, &at, &none), &none);
    assert_int_equal(at, 6);
    result_file_free(f);
    sh_test_dir_remove(r.dir);
}

static void a_part_that_is_not_what_it_was_is_not_gone_on_with(void **state)
{
    (void)state;
    for (int what = 0; what < 6; what++) {
        char digest[SH_SHA256_HEX];
        struct result_file *f = NULL;
        struct sh_err err = {0};
        int64_t at = -1;
        struct rig r;
        char *path;
        int fd;

        setup(&r);
        leave_part(&r, 6, digest);
        path = part_path(&r);
        fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        r.conf.resume_at = 6;
        r.conf.resume_digest = digest;
        if (what == 0) /* another byte in a sample that was done */
            assert_int_equal(__real_pwrite(fd, "\x7f", 1, lseek(fd, 0, SEEK_END) - N), 1);
        else if (what == 1) /* another head: of another job */
            assert_int_equal(__real_pwrite(fd, "X", 1, 12), 1);
        else if (what == 2)
            assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1), 0);
        else if (what == 3)
            unlink(path);
        else if (what == 4)
            r.conf.resume_at = 5;
        else
            r.conf.resume_at = N + 1;
        close(fd);
        assert_ok_err(result_file_open(&r.conf, &f, &at, &err), &err);
        assert_int_equal(at, 0);
        assert_int_equal(sh_test_dir_walk(r.dir, false), 1);
        result_file_discard(f);
        assert_int_equal(sh_test_dir_walk(r.dir, false), 0);
        result_file_free(f);
        free(path);
        sh_test_dir_remove(r.dir);
    }
}

static void what_the_disk_changed_is_not_published(void **state)
{
    char digest[SH_SHA256_HEX];
    struct result_file *f = NULL;
    struct sh_err err = {0};
    uint64_t bytes = 0;
    int64_t at = -1;
    struct rig r;
    char *path;
    int fd;
    (void)state;

    setup(&r);
    assert_ok_err(result_file_open(&r.conf, &f, &at, &err), &err);
    assert_ok_err(write_some(&r, f, 0, N, &err), &err);
    path = part_path(&r);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(__real_pwrite(fd, "\x7f", 1, lseek(fd, 0, SEEK_END) - 1), 1);
    close(fd);
    assert_int_equal(result_file_finish(f, digest, &bytes, &err), SH_E_IO);
    result_file_free(f);
    assert_int_equal(sh_test_dir_walk(r.dir, false), 0);
    free(path);
    sh_test_dir_remove(r.dir);
}

static void a_writer_that_was_taken_over_cannot_publish(void **state)
{
    char digest[SH_SHA256_HEX], half[SH_SHA256_HEX];
    struct result_file *old = NULL, *new = NULL;
    struct sh_err err = {0};
    uint64_t bytes = 0;
    int64_t at = -1;
    struct rig r;
    (void)state;

    setup(&r);
    assert_ok_err(result_file_open(&r.conf, &old, &at, &err), &err);
    assert_ok_err(write_some(&r, old, 0, 5, &err), &err);
    assert_ok_err(result_file_sync(old, half, &bytes, &err), &err);
    r.conf.resume_at = 5;
    r.conf.resume_digest = half;
    r.conf.placement++;
    assert_ok_err(result_file_open(&r.conf, &new, &at, &err), &err);
    assert_int_equal(at, 5);
    assert_ok_err(write_some(&r, old, 5, 5, &err), &err);
    assert_int_equal(result_file_finish(old, digest, &bytes, &err), SH_E_CONFLICT);
    result_file_discard(old);
    result_file_free(old);
    err = (struct sh_err){0};
    assert_ok_err(write_some(&r, new, 5, 5, &err), &err);
    assert_ok_err(result_file_finish(new, digest, &bytes, &err), &err);
    result_file_free(new);
    check_published(&r, digest, bytes);
    sh_test_dir_remove(r.dir);
}

/* An executor that was stopped wakes and opens the job's result, which another has published since:
 * whatever it does before it hears so, the result is there. */
static void a_published_result_outlives_whoever_opens_it_late(void **state)
{
    static const int64_t RESUME_AT[] = {0, 6, N};
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(RESUME_AT); i++) {
        char durable[SH_SHA256_HEX] = "", whole[SH_SHA256_HEX], again[SH_SHA256_HEX];
        struct result_file *late = NULL;
        struct sh_err err = {0};
        uint64_t bytes = 0;
        int64_t at = -1;
        struct rig r;

        setup(&r);
        if (RESUME_AT[i] > 0)
            leave_part(&r, RESUME_AT[i], durable);
        r.conf.resume_at = RESUME_AT[i];
        r.conf.resume_digest = durable;
        assert_ok_err(run_all(&r, 4, whole, &bytes, &err), &err);
        assert_ok_err(result_file_open(&r.conf, &late, &at, &err), &err);
        assert_int_equal(at,
                         RESUME_AT[i]); /* which is what a job gone on with after a crash needs */
        result_file_discard(late);
        result_file_free(late);
        check_published(&r, whole, bytes);
        /* It ends again, and that file takes the place of the first. */
        assert_ok_err(run_all(&r, 4, again, &bytes, &err), &err);
        assert_string_equal(again, whole);
        check_published(&r, whole, bytes);
        sh_test_dir_remove(r.dir);
    }
}

/* The same, but its job was started again elsewhere, and that start is known by its claim. */
static void an_earlier_start_neither_takes_the_part_nor_the_place_of_a_later_one(void **state)
{
    char digest[SH_SHA256_HEX], durable[SH_SHA256_HEX];
    struct result_file *new = NULL, *late = NULL;
    struct sh_err err = {0};
    uint64_t bytes = 0;
    int64_t at = -1;
    struct rig r;
    (void)state;

    setup(&r);
    r.conf.placement = 2;
    assert_ok(claim_take(r.dir, 2, NULL));
    assert_ok_err(result_file_open(&r.conf, &new, &at, &err), &err);
    assert_ok_err(write_some(&r, new, 0, 5, &err), &err);
    r.conf.placement = 1;
    assert_int_equal(result_file_open(&r.conf, &late, &at, &err), SH_E_CONFLICT);
    assert_null(late);
    err = (struct sh_err){0};
    assert_ok_err(result_file_sync(new, durable, &bytes, &err), &err);
    assert_ok_err(write_some(&r, new, 5, 5, &err), &err);
    assert_ok_err(result_file_finish(new, digest, &bytes, &err), &err);
    result_file_free(new);
    assert_int_equal(result_file_open(&r.conf, &late, &at, &err), SH_E_CONFLICT);
    r.conf.resume_at = 5;
    r.conf.resume_digest = durable;
    assert_int_equal(result_file_open(&r.conf, &late, &at, &err), SH_E_CONFLICT);
    assert_int_equal(sh_test_dir_walk(r.dir, false), 2); /* the result and the claim */
    sh_test_dir_remove(r.dir);
}

/* A start between the two has taken the part over when it sees that it is not the last one. */
static void what_an_earlier_start_has_written_stays_for_the_last_one(void **state)
{
    char durable[SH_SHA256_HEX];
    struct result_file *f = NULL;
    struct sh_err err = {0};
    uint64_t bytes = 0;
    int64_t at = -1;
    struct rig r;
    (void)state;

    setup(&r);
    r.conf.placement = 1;
    assert_ok_err(result_file_open(&r.conf, &f, &at, &err), &err);
    assert_ok_err(write_some(&r, f, 0, 5, &err), &err);
    assert_ok_err(result_file_sync(f, durable, &bytes, &err), &err);
    result_file_free(f);
    assert_ok(claim_take(r.dir, 3, NULL));
    r.conf.resume_at = 5;
    r.conf.resume_digest = durable;
    r.conf.placement = 2;
    assert_int_equal(result_file_open(&r.conf, &f, &at, &err), SH_E_CONFLICT);
    r.conf.placement = 3;
    err = (struct sh_err){0};
    assert_ok_err(result_file_open(&r.conf, &f, &at, &err), &err);
    assert_int_equal(at, 5);
    result_file_free(f);
    sh_test_dir_remove(r.dir);
}

static void make_empty(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);

    assert_true(fd >= 0);
    close(fd);
}

/* One that slept made its part anew and found that its time was over; it is about to remove it. */
static void of_several_parts_the_newest_is_gone_on_with(void **state)
{
    char durable[SH_SHA256_HEX], path[SH_TEST_DIR_BYTES + 32];
    struct result_file *f = NULL;
    struct sh_err err = {0};
    int64_t at = -1;
    struct rig r;
    (void)state;

    setup(&r);
    r.conf.placement = 60;
    leave_part(&r, 5, durable);
    for (int i = 0; i < 90; i++) { /* a folder has no order; one has no number, some are later */
        snprintf(path, sizeof(path), i ? "%s/result-%d.part" : "%s/result-.part", r.dir, i);
        make_empty(path);
    }
    r.conf.placement = 70;
    r.conf.resume_at = 5;
    r.conf.resume_digest = durable;
    for (int i = 61; i <= 70; i++) {
        snprintf(path, sizeof(path), "%s/result-%d.part", r.dir, i);
        assert_int_equal(unlink(path), 0);
    }
    assert_ok_err(result_file_open(&r.conf, &f, &at, &err), &err);
    assert_int_equal(at, 5);
    result_file_free(f);
    assert_int_equal(sh_test_dir_walk(r.dir, false), 1 + 19); /* ours, and those of later starts */
    sh_test_dir_remove(r.dir);
}

/* Others remove one after the other: some are left when this one has tried for long enough. */
static void who_finds_only_parts_that_vanish_does_not_take_it_for_none(void **state)
{
    char path[SH_TEST_DIR_BYTES + 32];
    struct result_file *f = NULL;
    struct sh_err err = {0};
    int64_t at = -1;
    struct rig r;
    (void)state;

    setup(&r);
    for (int i = 0; i < 30; i++) {
        snprintf(path, sizeof(path), "%s/result-%d.part", r.dir, i);
        make_empty(path);
    }
    r.conf.placement = 30;
    parts_vanish = true;
    assert_int_equal(result_file_open(&r.conf, &f, &at, &err), SH_E_IO);
    assert_null(f);
    assert_in_range(sh_test_dir_walk(r.dir, false), 1, 29);
    parts_vanish = false;
    assert_ok_err(result_file_open(&r.conf, &f, &at, &err), &err);
    assert_int_equal(sh_test_dir_walk(r.dir, false), 1);
    result_file_free(f);
    sh_test_dir_remove(r.dir);
}

static void a_stop_ends_the_reading_back_and_keeps_the_part(void **state)
{
    char digest[SH_SHA256_HEX], whole[SH_SHA256_HEX];
    struct result_file *f = NULL;
    struct sh_err err = {0};
    uint64_t bytes = 0;
    int64_t at = -1;
    struct rig r;
    (void)state;

    setup(&r);
    leave_part(&r, N, digest);
    r.conf.resume_at = N;
    r.conf.resume_digest = digest;
    atomic_store(&r.stop, true);
    assert_int_equal(result_file_open(&r.conf, &f, &at, &err), SH_E_CANCELLED);
    assert_null(f);
    assert_int_equal(sh_test_dir_walk(r.dir, false), 1);
    atomic_store(&r.stop, false);
    err = (struct sh_err){0};
    assert_ok_err(result_file_open(&r.conf, &f, &at, &err), &err);
    assert_int_equal(at, N);
    atomic_store(&r.stop, true);
    assert_int_equal(result_file_finish(f, whole, &bytes, &err), SH_E_CANCELLED);
    assert_int_equal(access(r.path, F_OK), -1);
    atomic_store(&r.stop, false);
    err = (struct sh_err){0};
    assert_ok_err(result_file_finish(f, whole, &bytes, &err), &err);
    result_file_free(f);
    check_published(&r, whole, bytes);
    sh_test_dir_remove(r.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_published),
        cmocka_unit_test(every_call_may_fail_and_the_next_attempt_is_whole),
        cmocka_unit_test(another_attempt_goes_on_where_the_digest_says),
        cmocka_unit_test(a_part_that_cannot_be_taken_over_just_now_waits_for_the_next_attempt),
        cmocka_unit_test(a_part_that_is_not_what_it_was_is_not_gone_on_with),
        cmocka_unit_test(what_the_disk_changed_is_not_published),
        cmocka_unit_test(a_writer_that_was_taken_over_cannot_publish),
        cmocka_unit_test(a_published_result_outlives_whoever_opens_it_late),
        cmocka_unit_test(an_earlier_start_neither_takes_the_part_nor_the_place_of_a_later_one),
        cmocka_unit_test(what_an_earlier_start_has_written_stays_for_the_last_one),
        cmocka_unit_test(of_several_parts_the_newest_is_gone_on_with),
        cmocka_unit_test(who_finds_only_parts_that_vanish_does_not_take_it_for_none),
        cmocka_unit_test(a_stop_ends_the_reading_back_and_keeps_the_part),
    };

    return cmocka_run_group_tests_name("result_file", tests, NULL, NULL);
}
