/* test_io.c - a read or write that the kernel cuts into pieces would lose bytes of a checkpoint. */
#include "common/io.h"
#include "sh_test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#define BYTES (1u << 20) /* more than a pipe holds */

struct pipe_writer {
    int fd;
    const char *data;
    bool ok;
};

static void on_signal(int n)
{
    (void)n;
}

static void *write_main(void *arg)
{
    struct pipe_writer *w = arg;

    w->ok = sh_write_all(w->fd, w->data, BYTES);
    close(w->fd);
    return NULL;
}

static void a_pipe_that_is_full_and_interrupted_gets_every_byte(void **state)
{
    static char sent[BYTES], got[BYTES + 1];
    struct sigaction sa = {.sa_handler = on_signal}; /* without SA_RESTART: EINTR */
    struct pipe_writer w = {.data = sent};
    pthread_t thread;
    int fd[2];

    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (char)(i * 7 + i / 251);
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
    w.fd = fd[1];
    assert_int_equal(pthread_create(&thread, NULL, write_main, &w), 0);
    for (int i = 0; i < 20; i++) {
        usleep(1000);
        pthread_kill(thread, SIGUSR1);
        assert_int_equal(sh_read_all(fd[0], got + (size_t)i * 1000, 1000), 1000);
    }
    assert_int_equal(sh_read_all(fd[0], got + 20000, BYTES + 1 - 20000), BYTES - 20000);
    pthread_join(thread, NULL);
    assert_true(w.ok);
    assert_memory_equal(sent, got, BYTES);
    close(fd[0]);
}

static void places_in_a_file_are_written_and_its_end_is_no_failure(void **state)
{
    char got[16] = "", path[] = "/tmp/test_io-XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    unlink(path);
    assert_true(sh_pwrite_all(fd, "world", 5, 6));
    assert_true(sh_pwrite_all(fd, "hello ", 6, 0));
    assert_int_equal(sh_pread_all(fd, got, sizeof(got), 6), 5);
    assert_string_equal(got, "world");
    assert_int_equal(sh_read_all(fd, got, sizeof(got)), 11); /* the position has not moved */
    assert_memory_equal(got, "hello world", 11);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(sh_pread_all(fd, got, 1, UINT64_MAX), -1); /* not where it stands instead */
    assert_int_equal(errno, EINVAL);
    assert_false(sh_pwrite_all(fd, "x", 1, UINT64_MAX));
    close(fd);
}

static void a_file_is_copied_whole_or_the_copy_ends_when_it_shall(void **state)
{
    enum { N = 200000 };
    static char in[N], out[N + 1];
    char a[] = "/tmp/test_io-XXXXXX", b[] = "/tmp/test_io-XXXXXX";
    int from = mkstemp(a), to = mkstemp(b), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    atomic_bool stop = true;

    (void)state;
    unlink(a);
    unlink(b);
    for (int i = 0; i < N; i++)
        in[i] = (char)(i % 251);
    assert_true(sh_pwrite_all(from, in, N, 0));
    assert_false(sh_copy_all(from, to, &stop));
    assert_int_equal(errno, ECANCELED);
    stop = false;
    assert_int_equal(lseek(from, 0, SEEK_SET), 0);
    assert_true(sh_copy_all(from, to, &stop));
    assert_int_equal(sh_pread_all(to, out, sizeof(out), 0), N);
    assert_memory_equal(in, out, N);
    assert_int_equal(lseek(from, 0, SEEK_SET), 0);
    assert_false(sh_copy_all(from, full, NULL));
    assert_int_equal(errno, ENOSPC);
    assert_false(sh_copy_all(-1, to, NULL));
    close(from);
    close(to);
    close(full);
}

static void a_failure_is_told_with_errno(void **state)
{
    char byte = 0;
    int fd = open("/dev/full", O_RDWR | O_CLOEXEC);

    (void)state;
    assert_true(fd >= 0);
    assert_false(sh_write_all(fd, &byte, 1));
    assert_int_equal(errno, ENOSPC);
    close(fd);
    assert_int_equal(sh_read_all(-1, &byte, 1), -1);
    assert_int_equal(errno, EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_that_is_full_and_interrupted_gets_every_byte),
        cmocka_unit_test(places_in_a_file_are_written_and_its_end_is_no_failure),
        cmocka_unit_test(a_file_is_copied_whole_or_the_copy_ends_when_it_shall),
        cmocka_unit_test(a_failure_is_told_with_errno),
    };

    return cmocka_run_group_tests_name("io", tests, NULL, NULL);
}
