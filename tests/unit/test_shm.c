/* test_shm.c - Without it: a peer could shrink shared memory under us (SIGBUS in the executor), or
 * a wake-up between two processes could get lost and a run would wait for its time-out; a load
 * could wait for a kernel that looks for huge pages. */
/* link: -Wl,--wrap=madvise */
#include "common/clock.h"
#include "common/shm.h"
#include "tests/unit/sh_test.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SECOND INT64_C(1000000000)

static void memory_is_zeroed_rounded_up_and_seen_through_a_second_mapping(void **state)
{
    struct sh_shm a = {.fd = -1}, b = {.fd = -1};
    struct sh_err err = {0};
    int fds = sh_test_open_fds(), fd;
    (void)state;

    assert_ok_err(sh_shm_create("test", 5000, &a, &err), &err);
    assert_int_equal(a.bytes, 8192);
    for (size_t i = 0; i < a.bytes; i++)
        assert_int_equal(((char *)a.base)[i], 0);
    fd = dup(a.fd);
    assert_ok_err(sh_shm_map(fd, 0, true, &b, &err), &err);
    assert_int_equal(b.bytes, 8192);
    assert_true(fcntl(b.fd, F_GETFD) & FD_CLOEXEC);
    ((char *)b.base)[8191] = 'x';
    assert_int_equal(((char *)a.base)[8191], 'x');
    sh_shm_fini(&b);
    sh_shm_fini(&a);
    assert_int_equal(a.fd, -1);
    assert_null(a.base);
    sh_shm_fini(&a); /* a second time is harmless */
    assert_int_equal(sh_test_open_fds(), fds);
}

static void nobody_can_change_the_size(void **state)
{
    struct sh_shm a = {.fd = -1};
    (void)state;

    assert_ok(sh_shm_create("test", 8192, &a, NULL));
    assert_int_equal(ftruncate(a.fd, 4096), -1);
    assert_int_equal(ftruncate(a.fd, 0), -1);
    assert_int_equal(ftruncate(a.fd, 16384), -1);
    sh_shm_fini(&a);
}

static void a_part_of_a_file_is_mapped_and_nothing_behind_its_end(void **state)
{
    struct sh_shm a = {.fd = -1};
    struct sh_err err = {0};
    FILE *f = tmpfile();
    int fds;
    (void)state;

    assert_non_null(f);
    assert_int_equal(pwrite(fileno(f), "behind", 6, 4096), 6);
    fds = sh_test_open_fds();
    assert_ok_err(sh_shm_map_file(fileno(f), 4096, 6, &a, &err), &err);
    assert_memory_equal(a.base, "behind", 6);
    assert_int_equal(a.fd, -1);
    sh_shm_fini(&a);
    assert_fails(sh_shm_map_file(fileno(f), 4096, 7, &a, &err), SH_E_PROTO, &err, "has not the 7");
    err = (struct sh_err){0};
    assert_fails(sh_shm_map_file(fileno(f), 8192, 1, &a, &err), SH_E_PROTO, &err, "behind 8192");
    assert_null(a.base);
    assert_int_equal(sh_test_open_fds(), fds);
    fclose(f);
}

static void memory_that_could_fault_is_refused_and_the_descriptor_stays_ours(void **state)
{
    struct sh_shm a = {.fd = -1}, b = {.fd = -1};
    struct sh_err err = {0};
    int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    (void)state;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_fails(sh_shm_map(fd, 8192, true, &b, &err), SH_E_PROTO, &err, "sealed");
    assert_true(fcntl(fd, F_GETFD) >= 0);
    close(fd);

    fd = open("/tmp", O_RDONLY | O_CLOEXEC);
    err = (struct sh_err){0};
    assert_fails(sh_shm_map(fd, 0, true, &b, &err), SH_E_PROTO, &err, "sealed");
    close(fd);

    assert_ok(sh_shm_create("small", 4096, &a, NULL));
    err = (struct sh_err){0};
    assert_fails(sh_shm_map(a.fd, 4097, true, &b, &err), SH_E_PROTO, &err, "4097 are needed");
    err = (struct sh_err){0};
    assert_fails(sh_shm_map(-1, 0, true, &b, &err), SH_E_IO, &err, "descriptor");
    assert_int_equal(b.fd, -1);
    assert_null(b.base);
    sh_shm_fini(&a);
}

static void impossible_sizes_are_errors(void **state)
{
    struct sh_err err = {0};
    struct sh_shm a;
    int fds = sh_test_open_fds();
    (void)state;

    assert_fails(sh_shm_create("x", 0, &a, &err), SH_E_INVALID, &err, "0 bytes");
    assert_int_equal(a.fd, -1);
    assert_int_equal(sh_shm_create("x", SIZE_MAX, &a, NULL), SH_E_INVALID);
    assert_int_not_equal(sh_shm_create("x", (size_t)1 << 62, &a, NULL), SH_OK);
    assert_int_equal(sh_test_open_fds(), fds);
}

static void a_changed_word_or_the_time_ends_the_wait(void **state)
{
    struct sh_shm a = {.fd = -1};
    uint32_t *word;
    int64_t start;
    (void)state;

    assert_ok(sh_shm_create("word", 4096, &a, NULL));
    word = a.base;
    assert_int_equal(sh_futex_wait(word, 1, 10 * SECOND), SH_OK); /* it is 0, not 1 */
    start = sh_clock_ns();
    assert_int_equal(sh_futex_wait(word, 0, SECOND / 50), SH_E_TIMEOUT);
    assert_true(sh_clock_ns() - start >= SECOND / 50);
    assert_int_equal(sh_futex_wait(word, 0, 0), SH_E_TIMEOUT);
    assert_int_equal(sh_futex_wait(word, 0, -5), SH_E_TIMEOUT);
    sh_shm_fini(&a);
}

static void a_part_of_one_is_shown_in_another_and_only_read_there(void **state)
{
    struct sh_shm a = {.fd = -1}, b = {.fd = -1};
    struct sh_err err = {0};
    struct stat st;
    (void)state;

    assert_ok(sh_shm_create("test", 16384, &a, NULL));
    assert_ok(sh_shm_create("test", 12288, &b, NULL));
    memset(a.base, 'a', a.bytes);
    memset(b.base, 'b', b.bytes);
    assert_ok(sh_shm_close_to_writes(&a, NULL));
    assert_fails(sh_shm_show(&a, &b, 8192, 8192, &err), SH_E_BUG, &err, "are not in both");
    assert_ok_err(sh_shm_show(&a, &b, 4096, 8192, &err), &err);
    assert_int_equal(((char *)a.base)[4095], 'a');
    assert_int_equal(((char *)a.base)[4096], 'b');
    assert_int_equal(((char *)a.base)[12287], 'b');
    assert_int_equal(((char *)a.base)[12288], 'a');
    for (size_t at = 0; at < a.bytes; at += 4096) { /* a write would end the process */
        int end[2];

        assert_int_equal(pipe(end), 0);
        assert_int_equal(write(end[1], "x", 1), 1);
        assert_int_equal(read(end[0], (char *)a.base + at, 1), -1);
        assert_int_equal(errno, EFAULT);
        close(end[0]);
        close(end[1]);
    }
    ((char *)b.base)[5000] = 'c';
    sh_shm_clear(&b, 8192, 4096);
    assert_int_equal(fstat(b.fd, &st), 0);
    assert_int_equal(st.st_blocks * 512, 8192);
    sh_shm_fini(&b);
    assert_int_equal(((char *)a.base)[5000], 'c');
    assert_int_equal(((char *)a.base)[8192], 0);
    sh_shm_fini(&a);
}

/* What is shown in the part that goes is not given back: it is another one's. */
static void only_the_first_bytes_of_one_stay(void **state)
{
    struct sh_shm a = {.fd = -1}, b = {.fd = -1};
    struct stat st;
    char *end;
    (void)state;

    assert_ok(sh_shm_create("test", 16384, &a, NULL));
    assert_ok(sh_shm_create("test", 16384, &b, NULL));
    memset(a.base, 'a', a.bytes);
    memset(b.base, 'b', b.bytes);
    assert_ok(sh_shm_show(&a, &b, 8192, 4096, NULL));
    end = (char *)a.base + 4096;
    sh_shm_cut(&a, 16384);
    assert_int_equal(a.bytes, 16384);
    sh_shm_cut(&a, 4096);
    assert_int_equal(a.bytes, 4096);
    assert_int_equal(fstat(a.fd, &st), 0);
    assert_int_equal(st.st_blocks * 512, 4096);
    for (size_t at = 0; at < 12288; at += 4096)
        assert_int_equal(msync(end + at, 1, MS_ASYNC), -1); /* nothing is mapped there */
    assert_int_equal(((char *)a.base)[4095], 'a');
    assert_int_equal(((char *)b.base)[8192], 'b');
    sh_shm_cut(&a, 0);
    assert_null(a.base);
    sh_shm_fini(&a);
    sh_shm_fini(&b);
}

#define HUGE_PAGE ((size_t)2 << 20)

static struct {
    unsigned n, refuse_at; /* calls of madvise(); 0: none */
    int64_t takes_ns;      /* by the fake clock; 0: it is the real call */
} advice;

int __real_madvise(void *at, size_t bytes, int how);
int __wrap_madvise(void *at, size_t bytes, int how);

int __wrap_madvise(void *at, size_t bytes, int how)
{
    assert_int_equal((uintptr_t)at % HUGE_PAGE, 0);
    assert_int_equal(bytes, HUGE_PAGE);
    if (++advice.n == advice.refuse_at) {
        errno = EAGAIN;
        return -1;
    }
    if (!advice.takes_ns)
        return __real_madvise(at, bytes, how);
    sh_clock_fake(sh_clock_ns() + advice.takes_ns, 0);
    return 0;
}

static void large_memory_begins_at_a_huge_page_and_is_no_longer_than_it_should_be(void **state)
{
    const size_t bytes = 2 * HUGE_PAGE + 4096;
    struct sh_shm a = {.fd = -1}, b = {.fd = -1};
    (void)state;

    for (int k = 0; k < 20; k++) {
        assert_ok(sh_shm_create("test", bytes, &a, NULL));
        assert_ok(sh_shm_map(dup(a.fd), bytes - 100, false, &b, NULL));
        assert_int_equal((uintptr_t)a.base % HUGE_PAGE, 0);
        assert_int_equal((uintptr_t)b.base % HUGE_PAGE, 0);
        assert_int_equal(msync(a.base, bytes, MS_ASYNC), 0);
        assert_int_equal(msync((char *)a.base + bytes, 1, MS_ASYNC), -1); /* not mapped */
        assert_int_equal(msync((char *)b.base + bytes, 1, MS_ASYNC), -1);
        ((char *)a.base)[bytes - 101] = 'x';
        assert_int_equal(((char *)b.base)[bytes - 101], 'x');
        sh_shm_fini(&a);
        sh_shm_fini(&b);
    }
}

static void huge_pages_hold_the_same(void **state)
{
    const size_t bytes = 4 * HUGE_PAGE + 8192, from = HUGE_PAGE / 2, n = 2 * HUGE_PAGE;
    struct sh_shm a = {.fd = -1};
    struct stat before, after;
    char *p;
    (void)state;

    advice.n = 0;
    assert_ok(sh_shm_create("test", bytes, &a, NULL));
    sh_shm_prefer_huge(&a);
    assert_true(advice.n >= 1 && advice.n <= 4);
    p = a.base;
    for (size_t i = 0; i < bytes; i += 64)
        assert_int_equal(p[i], 0);
    memset(p, 'a', bytes);
    assert_int_equal(fstat(a.fd, &before), 0);
    assert_int_equal(before.st_blocks * 512, bytes);
    sh_shm_clear(&a, from, n);
    assert_int_equal(fstat(a.fd, &after), 0);
    assert_int_equal(after.st_blocks * 512, bytes - n);
    for (size_t i = 0; i < bytes; i += 64)
        assert_int_equal(p[i], i >= from && i < from + n ? 0 : 'a');
    sh_shm_fini(&a);
}

static void a_kernel_that_has_no_huge_pages_is_not_waited_for(void **state)
{
    struct sh_shm a = {.fd = -1};
    (void)state;

    assert_ok(sh_shm_create("test", 40 * HUGE_PAGE, &a, NULL));
    advice.n = 0;
    advice.refuse_at = 3;
    sh_shm_prefer_huge(&a);
    assert_int_equal(advice.n, 3);
    advice.n = advice.refuse_at = 0;
    sh_clock_fake(SECOND, 0);
    advice.takes_ns = SECOND / 1000;
    sh_shm_prefer_huge(&a);
    assert_int_equal(advice.n, 40);
    advice.n = 0;
    advice.takes_ns = SECOND / 20; /* it looks for each */
    sh_shm_prefer_huge(&a);
    assert_true(advice.n <= 10);
    advice.takes_ns = 0;
    sh_clock_real();
    sh_shm_fini(&a);
}

/* Ping-pong: each side waits for the other's word. A private futex or a lost wake-up would end in a
 * time-out. */
static void wake_ups_cross_processes(void **state)
{
    struct sh_shm a = {.fd = -1};
    uint32_t *ping, *pong;
    int status = -1;
    pid_t pid;
    (void)state;

    assert_ok(sh_shm_create("words", 4096, &a, NULL));
    ping = a.base;
    pong = ping + 64;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sh_shm mine;
        const uint32_t *seen;

        /* a reader's mapping may wait, though it cannot write */
        if (sh_shm_map(a.fd, 4096, false, &mine, NULL) != SH_OK)
            _exit(2);
        seen = mine.base;
        for (uint32_t i = 0; i < 1000; i++) {
            if (sh_futex_wait(seen, i, 20 * SECOND) != SH_OK)
                _exit(3);
            __atomic_store_n(pong, i + 1, __ATOMIC_RELEASE);
            sh_futex_wake(pong);
        }
        _exit(0);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        __atomic_store_n(ping, i + 1, __ATOMIC_RELEASE);
        sh_futex_wake(ping);
        if (sh_futex_wait(pong, i, 20 * SECOND) != SH_OK)
            break;
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    sh_shm_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_rounded_up_and_seen_through_a_second_mapping),
        cmocka_unit_test(nobody_can_change_the_size),
        cmocka_unit_test(a_part_of_a_file_is_mapped_and_nothing_behind_its_end),
        cmocka_unit_test(memory_that_could_fault_is_refused_and_the_descriptor_stays_ours),
        cmocka_unit_test(impossible_sizes_are_errors),
        cmocka_unit_test(a_changed_word_or_the_time_ends_the_wait),
        cmocka_unit_test(a_part_of_one_is_shown_in_another_and_only_read_there),
        cmocka_unit_test(only_the_first_bytes_of_one_stay),
        cmocka_unit_test(large_memory_begins_at_a_huge_page_and_is_no_longer_than_it_should_be),
        cmocka_unit_test(huge_pages_hold_the_same),
        cmocka_unit_test(a_kernel_that_has_no_huge_pages_is_not_waited_for),
        cmocka_unit_test(wake_ups_cross_processes),
    };

    return cmocka_run_group_tests_name("shm", tests, NULL, NULL);
}
