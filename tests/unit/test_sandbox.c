/* test_sandbox.c - Without it: a hole in the sandbox would show only when a hostile model uses it.
 */
/* uses: libmodel.a */
/* link: -lseccomp */
#include "executor/model/sandbox.h"
#include "tests/unit/sh_test.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static char dir[SH_TEST_DIR_BYTES];

enum { FINE = 0, REFUSED = 7, NO_SANDBOX = 9 };

/* Runs fn in a child inside the sandbox; returns the wait status. */
static int inside(int (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        const char *const files[] = {"/etc/hostname", NULL};
        struct sandbox box = {.read_paths = files,
                              .write_dir = dir,
                              .memory_bytes = 256 << 20,
                              .cpu_seconds = 20,
                              .file_bytes = 1 << 20};

        _exit(sandbox_enter(&box, NULL) == SH_OK ? fn() : NO_SANDBOX);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int open_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0) < 0 ? REFUSED : FINE;
}

static int start_process(void)
{
    return fork() < 0 ? REFUSED : FINE;
}

static int run_program(void)
{
    execl("/bin/true", "true", (char *)NULL);
    return REFUSED;
}

static int trace_parent(void)
{
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) < 0 ? REFUSED : FINE;
}

static int signal_parent(void)
{
    return kill(getppid(), 0) < 0 ? REFUSED : FINE;
}

static void network_programs_processes_and_signals_end_the_process(void **state)
{
    int (*const fns[])(void) = {open_socket, start_process, run_program, trace_parent,
                                signal_parent};
    (void)state;

    if (SANITIZED)
        skip();
    for (size_t i = 0; i < sizeof(fns) / sizeof(fns[0]); i++) {
        int status = inside(fns[i]);

        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
            fail_msg("call %zu ended with status %d, want SIGSYS", i, status);
    }
}

static int write_and_rename(void)
{
    char a[128], b[128];
    int fd;

    snprintf(a, sizeof(a), "%s/a", dir);
    snprintf(b, sizeof(b), "%s/b", dir);
    fd = open(a, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1 || fsync(fd) != 0 || close(fd) != 0)
        return REFUSED;
    return rename(a, b) == 0 ? FINE : REFUSED;
}

static int take_memory(void)
{
    char *volatile p = malloc((size_t)1 << 30); /* volatile: a compiler may leave out the call */

    return p ? FINE : REFUSED;
}

static int write_much(void)
{
    char block[65536] = {0}, a[128];
    int fd;

    signal(SIGXFSZ, SIG_IGN);
    snprintf(a, sizeof(a), "%s/much", dir);
    fd = open(a, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < 64; i++)
        if (write(fd, block, sizeof(block)) < 0)
            return errno == EFBIG ? REFUSED : FINE;
    return FINE;
}

static void the_work_itself_is_possible_within_the_limits(void **state)
{
    (void)state;

    assert_int_equal(inside(write_and_rename), FINE);
    assert_int_equal(WEXITSTATUS(inside(write_much)), REFUSED);
    if (!SANITIZED)
        assert_int_equal(WEXITSTATUS(inside(take_memory)), REFUSED);
}

static int read_elsewhere(void)
{
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0 ? REFUSED : FINE;
}

static int read_allowed(void)
{
    return open("/etc/hostname", O_RDONLY | O_CLOEXEC) < 0 ? REFUSED : FINE;
}

/* Landlock is a kernel option; without it this says so instead of passing. */
static void other_files_are_out_of_reach(void **state)
{
    (void)state;

    assert_int_equal(inside(read_allowed), FINE);
    if (!sandbox_hides_files())
        skip();
    assert_int_equal(WEXITSTATUS(inside(read_elsewhere)), REFUSED);
}

static int setup(void **state)
{
    (void)state;
    sh_test_dir_make(dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_test_dir_remove(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(network_programs_processes_and_signals_end_the_process,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_work_itself_is_possible_within_the_limits, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(other_files_are_out_of_reach, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
