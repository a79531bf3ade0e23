/* test_sandbox.c - Without it: a hole in the sandbox would show only when a hostile model uses it.
 */
/* uses: libmodel.a */
/* link: -lseccomp */
#include "common/mem.h"
#include "runtime/model/sandbox.h"
#include "tests/unit/sh_test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
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

static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* The tensors of a file, for one; the C library asks how much memory there is. */
static int sort_much(void)
{
    int list[4096];

    for (int i = 0; i < 4096; i++)
        list[i] = i * 2731 % 4096;
    qsort(list, 4096, sizeof(list[0]), by_value);
    return list[0] == 0 && list[4095] == 4095 ? FINE : REFUSED;
}

static void the_work_itself_is_possible_within_the_limits(void **state)
{
    (void)state;

    assert_int_equal(inside(sort_much), FINE);
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

/* ---------------------------------------------------------------- what a worker has */

#define SOMEBODY 65520

/* Runs fn in a child that has given up what a worker of this kind gives up. */
static int in_worker(enum sandbox_calls list, int (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        const struct sandbox_path paths[] = {{"/usr", SANDBOX_READ},
                                             {"/nowhere", SANDBOX_READ | SANDBOX_IF_ANY},
                                             {dir, SANDBOX_READ | SANDBOX_MAKE}};
        bool ok = sandbox_files(paths, SH_ARRAY_LEN(paths), NULL) == SH_OK;

        if (ok && geteuid() == 0)
            ok = sandbox_user(SOMEBODY, SOMEBODY, NULL) == SH_OK;
        _exit(ok && sandbox_calls(list, NULL) == SH_OK ? fn() : NO_SANDBOX);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static int refused(long rc)
{
    return rc < 0 && errno == EPERM ? REFUSED : FINE;
}

static int open_unix_socket(void)
{
    return refused(socket(AF_UNIX, SOCK_STREAM, 0));
}

static int take_another_program(void)
{
    execl("/bin/true", "true", (char *)NULL);
    return refused(-1);
}

static int make_process(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0)
        _exit(0);
    return refused(pid);
}

static int fork_by_clone3(void)
{
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } args = {.exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0)
        _exit(0);
    return pid < 0 && errno == ENOSYS ? REFUSED : FINE;
}

static int make_namespace(void)
{
    return refused(unshare(CLONE_NEWUSER));
}

static int attach(void)
{
    return refused(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
}

static int read_parent(void)
{
    static char here, there;
    struct iovec a = {&here, 1}, b = {&there, 1};

    return refused(process_vm_readv(getppid(), &a, 1, &b, 1, 0));
}

static int kill_parent(void)
{
    return refused(kill(getppid(), 0));
}

static int tgkill_parent(void)
{
    return refused(syscall(SYS_tgkill, getppid(), getppid(), 0));
}

static int mount_here(void)
{
    return refused(mount("none", dir, "tmpfs", 0, NULL));
}

static int call_bpf(void)
{
    return refused(syscall(SYS_bpf, 0, NULL, 0));
}

static int call_perf(void)
{
    return refused(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
}

static int call_userfaultfd(void)
{
    return refused(syscall(SYS_userfaultfd, 0));
}

static int call_keyctl(void)
{
    return refused(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
}

static int call_io_uring(void)
{
    return refused(syscall(SYS_io_uring_setup, 1, NULL));
}

static int become_root(void)
{
    return refused(setuid(0));
}

static int point_signals_at_parent(void)
{
    return refused(fcntl(STDERR_FILENO, F_SETOWN, getppid()));
}

static int choose_signal(void)
{
    return refused(fcntl(STDERR_FILENO, F_SETSIG, SIGKILL));
}

static int limit_parent(void)
{
    const struct rlimit none = {0, 0};

    return refused(prlimit(getppid(), RLIMIT_CPU, &none, NULL));
}

static int cut_a_file_off(void)
{
    char a[128];

    snprintf(a, sizeof(a), "%s/../nothing", dir);
    return refused(truncate(a, 0));
}

static int open_to_write(void)
{
    char a[128];

    snprintf(a, sizeof(a), "%s/../escaped", dir);
    return open(a, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0 ? REFUSED : FINE;
}

static int read_secret(void)
{
    return open("/etc/shadow", O_RDONLY | O_CLOEXEC) < 0 ? REFUSED : FINE;
}

static int read_environ_of_parent(void)
{
    char a[64];

    snprintf(a, sizeof(a), "/proc/%d/environ", (int)getppid());
    return open(a, O_RDONLY | O_CLOEXEC) < 0 ? REFUSED : FINE;
}

static void a_worker_can_reach_nobody_else(void **state)
{
    static const struct {
        const char *what;
        int (*fn)(void);
        bool by_files; /* Landlock refuses it, where a GPU's driver opens files */
    } tries[] = {
        {"a socket", open_unix_socket, false},
        {"another program", take_another_program, false},
        {"a process", make_process, false},
        {"a process by clone3", fork_by_clone3, false},
        {"a namespace", make_namespace, false},
        {"ptrace", attach, false},
        {"another process's memory", read_parent, false},
        {"kill", kill_parent, false},
        {"tgkill", tgkill_parent, false},
        {"signals of a descriptor's to another", point_signals_at_parent, false},
        {"a descriptor's signal", choose_signal, false},
        {"another's limits", limit_parent, false},
        {"truncate", cut_a_file_off, false},
        {"mount", mount_here, false},
        {"bpf", call_bpf, false},
        {"perf_event_open", call_perf, false},
        {"userfaultfd", call_userfaultfd, false},
        {"keyctl", call_keyctl, false},
        {"io_uring", call_io_uring, false},
        {"root", become_root, false},
        {"a file to write", open_to_write, true},
        {"a file to read", read_secret, true},
        {"another process's environment", read_environ_of_parent, true},
    };
    const enum sandbox_calls lists[] = {SANDBOX_COMPUTE, SANDBOX_DRIVER};
    (void)state;

    if (SANITIZED)
        skip();
    for (size_t k = 0; k < SH_ARRAY_LEN(lists); k++)
        for (size_t i = 0; i < SH_ARRAY_LEN(tries); i++) {
            int got;

            if (tries[i].by_files && lists[k] == SANDBOX_DRIVER && !sandbox_hides_files())
                continue;
            got = in_worker(lists[k], tries[i].fn);
            if (got != REFUSED)
                fail_msg("%s, list %d: %d, want %d", tries[i].what, (int)lists[k], got, REFUSED);
        }
}

static void *add_one(void *arg)
{
    ++*(int *)arg;
    return NULL;
}

/* As a compiler of kernels at run time does, and a pool of threads; and a file that was sent. */
static int compute(void)
{
    static const unsigned char RET[] = {0xc3};
    void (*fn)(void);
    pthread_t thread;
    int n = 0, fd = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct stat st;
    void *p;

    if (pthread_create(&thread, NULL, add_one, &n) || pthread_join(thread, NULL) || n != 1)
        return 10;
    p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(p, RET, sizeof(RET));
    if (mprotect(p, 4096, PROT_READ | PROT_EXEC) != 0)
        return 11;
    memcpy(&fn, &p, sizeof(fn));
    fn();
    if (fd < 0 || ftruncate(fd, 8192) || fstat(fd, &st) || st.st_size != 8192 ||
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED)
        return 12;
    return FINE;
}

static int write_kernels(void)
{
    char a[128];

    snprintf(a, sizeof(a), "%s/tune", dir);
    return open(a, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0 ? REFUSED : FINE;
}

static void a_worker_can_do_its_work(void **state)
{
    (void)state;

    assert_int_equal(in_worker(SANDBOX_COMPUTE, compute), FINE);
    assert_int_equal(in_worker(SANDBOX_DRIVER, compute), FINE);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(in_worker(SANDBOX_DRIVER, write_kernels), FINE);
}

static void *try_socket(void *arg)
{
    while (!atomic_load((atomic_bool *)arg))
        sched_yield();
    return socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM && geteuid() != 0 ? arg : NULL;
}

/* Libraries of a device start threads before the calls can be restricted. */
static int thread_before(void)
{
    atomic_bool is_in = false;
    void *was_refused = NULL;
    pthread_t thread;

    if (pthread_create(&thread, NULL, try_socket, &is_in) ||
        (geteuid() == 0 && sandbox_user(SOMEBODY, SOMEBODY, NULL)) ||
        sandbox_calls(SANDBOX_COMPUTE, NULL))
        return NO_SANDBOX;
    atomic_store(&is_in, true);
    pthread_join(thread, &was_refused);
    return was_refused ? REFUSED : FINE;
}

static void threads_that_exist_are_restricted_too(void **state)
{
    int status;
    pid_t pid;
    (void)state;

    if (SANITIZED)
        skip();
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(thread_before());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), REFUSED);
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
        cmocka_unit_test_setup_teardown(a_worker_can_reach_nobody_else, setup, teardown),
        cmocka_unit_test_setup_teardown(a_worker_can_do_its_work, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_that_exist_are_restricted_too, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
