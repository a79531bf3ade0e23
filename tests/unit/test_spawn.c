/* test_spawn.c - Without it: a worker could inherit sockets of other tenants, start with signals
 * blocked, outlive its executor, or hang an importer for ever. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "tests/unit/sh_test.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const char *const *shell(const char **argv, const char *script)
{
    argv[0] = "sh";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = NULL;
    return argv;
}

/* Runs a shell script to its end. *out: OWNED, free(). */
static int run(const char *script, struct sh_spawn s, int64_t timeout_ms, size_t max, char **out,
               int *status, struct sh_err *err)
{
    const char *argv[4];
    size_t len = 0;
    int rc;

    s.path = "sh";
    s.argv = shell(argv, script);
    s.stdout_fd = -1;
    s.stderr_fd = -1;
    rc = sh_spawn_run(&s, timeout_ms, max, out, &len, status, err);
    if (!rc)
        assert_int_equal(strlen(*out), len);
    return rc;
}

static void output_and_exit_status_are_collected(void **state)
{
    struct sh_err err = {0};
    char *out = NULL;
    int status = 0, fds = sh_test_open_fds();
    (void)state;

    assert_ok_err(run("echo hello; exit 3", (struct sh_spawn){0}, 20000, 100, &out, &status, &err),
                  &err);
    assert_string_equal(out, "hello\n");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    free(out);
    assert_ok(run(":", (struct sh_spawn){0}, 20000, 100, &out, &status, NULL));
    assert_string_equal(out, "");
    free(out);
    assert_ok(run("kill -9 $$", (struct sh_spawn){0}, 20000, 100, &out, &status, NULL));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    free(out);
    assert_int_equal(sh_test_open_fds(), fds);
}

static void long_output_is_cut_and_the_child_still_ends(void **state)
{
    struct sh_err err = {0};
    char *out = NULL;
    int status = -1;
    (void)state;

    assert_ok_err(run("head -c 3000000 /dev/zero | tr '\\0' x; exit 0", (struct sh_spawn){0}, 30000,
                      1000, &out, &status, &err),
                  &err);
    assert_int_equal(strlen(out), 1000);
    assert_int_equal(status, 0);
    free(out);
}

static void a_child_that_does_not_end_is_killed(void **state)
{
    int64_t start = sh_clock_ns();
    struct sh_err err = {0};
    char *out = NULL;
    int status = 0;
    (void)state;

    assert_fails(run("trap '' TERM; echo $$; while :; do read x; done", (struct sh_spawn){0}, 200,
                     100, &out, &status, &err),
                 SH_E_TIMEOUT, &err, "did not end in time");
    assert_null(out);
    assert_true(sh_clock_ns() - start < INT64_C(20000000000));
    assert_int_equal(waitpid(-1, &status, WNOHANG), -1); /* nothing is left to collect */
}

static void a_grandchild_that_keeps_the_pipe_is_not_waited_for(void **state)
{
    int64_t start = sh_clock_ns();
    struct sh_err err = {0};
    char *out = NULL;
    int status = -1;
    (void)state;

    assert_ok_err(run("sleep 60 & echo $!", (struct sh_spawn){0}, 50000, 100, &out, &status, &err),
                  &err);
    assert_true(sh_clock_ns() - start < INT64_C(40000000000));
    assert_int_equal(kill((pid_t)strtol(out, NULL, 10), SIGKILL), 0); /* it still is */
    free(out);
}

static void the_child_has_only_the_environment_it_is_meant_to_have(void **state)
{
    static const struct {
        const char *const *keep;
        const char *want;
    } cases[] = {
        {NULL, "CUDA_HOME LC_TIME SECRET SHUNT_DB_URL SHUNT_DB_URLS SHUNT_KEY SHUNT_THREADS "},
        {SH_ENV_DAEMON, "CUDA_HOME LC_TIME SHUNT_DB_URLS SHUNT_THREADS "},
        {SH_ENV_SYSTEM, "CUDA_HOME LC_TIME "},
    };
    static const char *const NAMES[] = {"CUDA_HOME",    "LC_TIME",       "SECRET",
                                        "SHUNT_DB_URL", "SHUNT_DB_URLS", "SHUNT_KEY",
                                        "SHUNT_THREADS"};
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        assert_int_equal(setenv(NAMES[i], "C", 1), 0);
    for (size_t i = 0; i < SH_ARRAY_LEN(cases); i++) {
        struct sh_err err = {0};
        char *out = NULL;
        int status = 0;

        assert_ok_err(run("env | grep -E '^(CUDA_HOME|LC_TIME|SECRET|SHUNT_(DB|KEY|THREADS))' | "
                          "sort | sed 's/=.*//' | tr '\\n' ' '",
                          (struct sh_spawn){.keep = cases[i].keep}, 20000, 1000, &out, &status,
                          &err),
                      &err);
        assert_string_equal(out, cases[i].want);
        free(out);
    }
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        unsetenv(NAMES[i]);
}

static void the_child_has_only_the_descriptors_it_was_given(void **state)
{
    const char *argv[] = {"test_spawn", "fds", NULL};
    struct sh_spawn s = {
        .path = "test_spawn", .argv = argv, .n_fds = 2, .stdout_fd = -1, .stderr_fd = -1};
    /* numbers in the child's own range, crossed over, and one that was left open by mistake */
    int a = memfd_create("a", 0), b = memfd_create("b", 0), stray, fds[2], status = -1;
    struct sh_err err = {0};
    char *out = NULL, want[64];
    size_t len = 0;
    (void)state;

    assert_true(a >= 0 && b >= 0);
    assert_int_equal(write(a, "A", 1), 1);
    assert_int_equal(write(b, "B", 1), 1);
    stray = dup2(a, 50);
    fds[0] = SH_MAX(a, b);
    fds[1] = SH_MIN(a, b);
    s.fds = fds;
    assert_ok_err(sh_spawn_run(&s, 20000, 500, &out, &len, &status, &err), &err);
    snprintf(want, sizeof(want), "%s 0 1 2 3 4 /dev/null\n", a > b ? "AB" : "BA");
    assert_string_equal(out, want);
    free(out);
    close(a);
    close(b);
    close(stray);
}

static void the_environment_is_ours_plus_what_is_added(void **state)
{
    static const char *const ENV[] = {"ADDED=one two", "PATH=/usr/bin:/bin:/added", NULL};
    struct sh_err err = {0};
    char *out = NULL;
    int status = -1;
    (void)state;

    setenv("KEPT", "kept", 1);
    assert_ok_err(
        run("echo \"$ADDED|$KEPT|$PATH\"; tr '\\0' '\\n' </proc/$$/environ | grep -c ^PATH=",
            (struct sh_spawn){.env = ENV}, 20000, 500, &out, &status, &err),
        &err);
    assert_string_equal(out, "one two|kept|/usr/bin:/bin:/added\n1\n");
    free(out);
}

static void signals_of_the_parent_do_not_reach_into_the_child(void **state)
{
    sigset_t all, old;
    char *out = NULL, *ignored;
    int status = -1, rc;
    (void)state;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    signal(SIGPIPE, SIG_IGN);
    rc = run("grep -E '^Sig(Blk|Ign)' /proc/self/status", (struct sh_spawn){0}, 20000, 500, &out,
             &status, NULL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGPIPE, SIG_DFL);
    assert_ok(rc);
    assert_has(out, "SigBlk:\t0000000000000000\n");
    ignored = strstr(out, "SigIgn:\t");
    assert_non_null(ignored);
    /* 32 and 33 belong to the C library and stay as they were */
    assert_int_equal(strtoull(ignored + 8, NULL, 16) & 0x7fffffff, 0);
    free(out);
}

static void a_program_that_does_not_exist_is_named(void **state)
{
    const char *argv[] = {"no-such-program-here", NULL};
    struct sh_spawn s = {
        .path = "/tmp/no-such-program-here", .argv = argv, .stdout_fd = -1, .stderr_fd = -1};
    struct sh_err err = {0};
    int fds = sh_test_open_fds();
    pid_t pid = 0;
    (void)state;

    assert_fails(sh_spawn(&s, &pid, &err), SH_E_IO, &err, "\"no-such-program-here\"");
    assert_has_not(err.msg, "/tmp");
    assert_int_equal(pid, -1);
    assert_int_equal(sh_test_open_fds(), fds);
}

/* ---------------------------------------------------------------- this program as its own child */

static void a_bare_name_is_found_beside_our_own_program(void **state)
{
    const char *argv[] = {"test_spawn", "exit-7", NULL};
    struct sh_spawn s = {.path = "test_spawn", .argv = argv, .stdout_fd = -1, .stderr_fd = -1};
    struct sh_err err = {0};
    char *out = NULL, dir[4096], tiny[2];
    size_t len = 0;
    int status = -1;
    (void)state;

    assert_ok(sh_self_dir(dir, sizeof(dir), NULL));
    assert_true(dir[0] == '/');
    assert_int_equal(sh_self_dir(tiny, sizeof(tiny), NULL), SH_E_TOOBIG);
    assert_ok_err(sh_spawn_run(&s, 20000, 100, &out, &len, &status, &err), &err);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    free(out);
}

/* The middle process starts a child, which says "r" on the pipe, and dies; the child must die too,
 * which closes the last writing end of the pipe. */
static void a_child_dies_with_its_parent(void **state)
{
    const char *argv[] = {"test_spawn", "middle", NULL};
    int p[2] = {-1, -1}, status = -1;
    struct sh_spawn s = {.path = "test_spawn",
                         .argv = argv,
                         .fds = &p[1],
                         .n_fds = 1,
                         .stdout_fd = -1,
                         .stderr_fd = -1};
    struct pollfd ready;
    pid_t pid = -1;
    char c = 0;
    (void)state;

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_ok(sh_spawn(&s, &pid, NULL));
    close(p[1]);
    ready = (struct pollfd){.fd = p[0], .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 60000), 1);
    assert_int_equal(read(p[0], &c, 1), 1);
    assert_int_equal(c, 'r');
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(poll(&ready, 1, 60000), 1);
    assert_int_equal(read(p[0], &c, 1), 0);
    close(p[0]);
}

static void a_child_whose_parent_is_gone_refuses_to_start(void **state)
{
    static const char *const ENV[] = {NULL};
    const char *argv[] = {"test_spawn", "init", NULL};
    struct sh_spawn s = {
        .path = "test_spawn", .argv = argv, .env = ENV, .stdout_fd = -1, .stderr_fd = -1};
    char *out = NULL;
    size_t len = 0;
    int status = -1;
    (void)state;

    assert_ok(sh_spawn_run(&s, 20000, 100, &out, &len, &status, NULL));
    assert_int_equal(WEXITSTATUS(status), 0);
    free(out);
    /* through a shell that stays: the parent that started it is not the parent it has */
    assert_ok(run("me=$(readlink /proc/$PPID/exe); $me init; echo $?", (struct sh_spawn){0}, 20000,
                  100, &out, &status, NULL));
    assert_string_equal(out, "5\n");
    free(out);
}

/* The first byte of what fd 3 and 4 are, the descriptors that are open, the name of fd 0. */
static int print_fds(void)
{
    char name[64] = "", c[3] = "";

    if (pread(3, c, 1, 0) != 1 || pread(4, c + 1, 1, 0) != 1)
        return 1;
    printf("%s", c);
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf(" %d", fd);
    if (readlink("/proc/self/fd/0", name, sizeof(name) - 1) < 0)
        return 1;
    printf(" %s\n", name);
    return fflush(stdout);
}

static int be_child(const char *what)
{
    if (strcmp(what, "fds") == 0)
        return print_fds();
    if (strcmp(what, "exit-7") == 0)
        return 7;
    if (strcmp(what, "init") == 0)
        return sh_spawn_child_init(NULL) == SH_OK ? 0 : 5;
    if (strcmp(what, "middle") == 0) {
        const char *argv[] = {"test_spawn", "leaf", NULL};
        const int fd = 3;
        struct sh_spawn s = {.path = "test_spawn",
                             .argv = argv,
                             .fds = &fd,
                             .n_fds = 1,
                             .stdout_fd = -1,
                             .stderr_fd = -1};
        int ack[2] = {-1, -1};
        pid_t pid;
        char c;

        /* ends only when the leaf is ready, so that its death is by signal and not by its check */
        if (pipe2(ack, O_CLOEXEC) != 0)
            return 9;
        s.stdout_fd = ack[1];
        if (sh_spawn(&s, &pid, NULL) != SH_OK)
            return 8;
        close(ack[1]);
        return read(ack[0], &c, 1) == 1 ? 0 : 6;
    }
    if (sh_spawn_child_init(NULL) != SH_OK || write(3, "r", 1) != 1 || write(1, "r", 1) != 1)
        return 1;
    for (;;)
        pause();
}

static void *raise_soon(void *stop)
{
    usleep(200000);
    atomic_store((atomic_bool *)stop, true);
    return NULL;
}

static void a_child_ends_when_it_is_asked_to_stop(void **state)
{
    static const char *const SLEEP[] = {"sleep", "600", NULL};
    atomic_bool stop = false;
    const struct sh_spawn s = {
        .path = "sleep", .argv = SLEEP, .stdout_fd = -1, .stderr_fd = -1, .stop = &stop};
    int64_t began = sh_clock_ns();
    struct sh_err err = {0};
    char *out = NULL;
    pthread_t t;
    size_t len;
    int status;

    (void)state;
    assert_int_equal(pthread_create(&t, NULL, raise_soon, &stop), 0);
    assert_fails(sh_spawn_run(&s, 60000, 100, &out, &len, &status, &err), SH_E_CANCELLED, &err,
                 "stopped");
    pthread_join(t, NULL);
    assert_null(out);
    assert_true(sh_clock_ns() - began < INT64_C(10000000000));
    assert_int_equal(waitpid(-1, &status, WNOHANG), -1); /* nothing is left of it */
}

static void limit_file(const char *dir, const char *below, const char *name, const char *text)
{
    char path[SH_TEST_DIR_BYTES + 64];

    snprintf(path, sizeof(path), "%s%s", dir, below);
    mkdir(path, 0755); /* the root is there */
    snprintf(path, sizeof(path), "%s%s/%s", dir, below, name);
    sh_test_write_file(path, text, strlen(text));
}

static void cpu_max(const char *dir, const char *below, const char *text)
{
    limit_file(dir, below, "cpu.max", text);
}

static void cfs_quota(const char *dir, const char *below, const char *quota, const char *period)
{
    limit_file(dir, below, "cpu.cfs_quota_us", quota);
    limit_file(dir, below, "cpu.cfs_period_us", period);
}

static void remove_below(const char *dir, const char *below)
{
    char path[SH_TEST_DIR_BYTES + 64];

    snprintf(path, sizeof(path), "%s%s", dir, below);
    sh_test_dir_remove(path);
}

/* A container with the time of two cores of 64 would otherwise poll, and start 64 threads. */
static void cores_are_at_most_what_the_cgroups_give_the_time_of(void **state)
{
    static const struct {
        const char *text;
        unsigned want;
    } TRIES[] = {{"max 100000\n", 64},   {"200000 100000\n", 2},
                 {"150000 100000\n", 2}, {"1000 100000\n", 1},
                 {"0 100000\n", 1},      {"9900000 100000\n", 64},
                 {"1000 0\n", 64},       {"", 64},
                 {"a b\n", 64}};
    char dir[SH_TEST_DIR_BYTES];
    (void)state;

    sh_test_dir_make(dir);
    assert_int_equal(sh_cores_within(64, dir, "0::/\n"), 64); /* no file */
    for (size_t i = 0; i < SH_ARRAY_LEN(TRIES); i++) {
        cpu_max(dir, "", TRIES[i].text);
        assert_int_equal(sh_cores_within(64, dir, "0::/\n"), TRIES[i].want);
    }
    /* Each level has its own, and the least counts. Lines of version 1 mean another tree. */
    cpu_max(dir, "", "600000 100000\n");
    cpu_max(dir, "/a.slice", "300000 100000\n");
    cpu_max(dir, "/a.slice/b", "max 100000\n");
    assert_int_equal(sh_cores_within(64, dir, "0::/\n"), 6);
    assert_int_equal(sh_cores_within(64, dir, "1:cpu:/x\n0::/a.slice/b\n"), 3);
    assert_int_equal(sh_cores_within(64, dir, "0::/other"), 6);
    assert_int_equal(sh_cores_within(2, dir, "0::/a.slice/b\n"), 2);
    assert_int_equal(sh_cores_within(64, dir, "1:cpu:/a.slice\n"), 64);
    assert_int_equal(sh_cores_within(64, dir, ""), 64);
    remove_below(dir, "/a.slice/b");
    remove_below(dir, "/a.slice");
    sh_test_dir_remove(dir);
    assert_in_range(sh_cores(), 1, CPU_SETSIZE);
}

/* The same where version 1 has the controller: a tree of its own, two files in each folder. */
static void cores_are_at_most_what_cgroups_of_version_1_give_the_time_of(void **state)
{
    static const struct {
        const char *own;
        unsigned want;
    } LINES[] = {{"4:cpu:/a\n", 3},
                 {"4:cpuacct,cpu:/a\n", 3},
                 {"9:memory:/a\n4:cpu,cpuacct:/a/b\n0::/\n", 3},
                 {"4:cpu:/\n", 6},
                 {"4:cpu:/elsewhere\n", 6}, /* a container without a view of its own */
                 {"4:cpuset:/a\n5:cpuacct:/a\n1:name=cpu:/a\n", 64},
                 {"4:cpu\n4\n\n:", 64},
                 {"0::/\n", 5},
                 {"4:cpu:/a\n0::/\n", 3},
                 {"4:cpu:/\n0::/\n", 5}};
    char dir[SH_TEST_DIR_BYTES];
    (void)state;

    sh_test_dir_make(dir);
    cfs_quota(dir, "/cpu", "-1\n", "100000\n");
    assert_int_equal(sh_cores_within(64, dir, "4:cpu:/\n"), 64);
    cfs_quota(dir, "/cpu", "600000\n", "100000\n");
    cfs_quota(dir, "/cpu/a", "250000\n", "100000\n");
    cfs_quota(dir, "/cpu/a/b", "-1\n", "100000\n");
    cpu_max(dir, "", "500000 100000\n");
    for (size_t i = 0; i < SH_ARRAY_LEN(LINES); i++)
        assert_int_equal(sh_cores_within(64, dir, LINES[i].own), LINES[i].want);
    remove_below(dir, "/cpu/a/b");
    remove_below(dir, "/cpu/a");
    remove_below(dir, "/cpu");
    sh_test_dir_remove(dir);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_and_exit_status_are_collected),
        cmocka_unit_test(long_output_is_cut_and_the_child_still_ends),
        cmocka_unit_test(a_child_that_does_not_end_is_killed),
        cmocka_unit_test(a_child_ends_when_it_is_asked_to_stop),
        cmocka_unit_test(a_grandchild_that_keeps_the_pipe_is_not_waited_for),
        cmocka_unit_test(the_child_has_only_the_environment_it_is_meant_to_have),
        cmocka_unit_test(the_child_has_only_the_descriptors_it_was_given),
        cmocka_unit_test(the_environment_is_ours_plus_what_is_added),
        cmocka_unit_test(signals_of_the_parent_do_not_reach_into_the_child),
        cmocka_unit_test(a_program_that_does_not_exist_is_named),
        cmocka_unit_test(a_bare_name_is_found_beside_our_own_program),
        cmocka_unit_test(a_child_dies_with_its_parent),
        cmocka_unit_test(a_child_whose_parent_is_gone_refuses_to_start),
        cmocka_unit_test(cores_are_at_most_what_cgroups_of_version_1_give_the_time_of),
        cmocka_unit_test(cores_are_at_most_what_the_cgroups_give_the_time_of),
    };

    if (argc > 1)
        return be_child(argv[1]);
    return cmocka_run_group_tests_name("spawn", tests, NULL, NULL);
}
