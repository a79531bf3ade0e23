/* test_confine.c - Without it: a fence that a GPU's driver does not survive would show only on a
 * host with a GPU, where workers then start without it.
 */
/* uses: executor/worker/confine.o libmodel.a */
/* link: -lseccomp */
#include "common/spawn.h"
#include "executor/worker/worker.h"
#include "runtime/model/sandbox.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOMEBODY 65520

enum { FINE = 0, NO_NAME = 7, NO_MAPS, NOT_HELD, REACHES_OUT, NOT_CONFINED, OTHER_FENCES };

static atomic_bool is_over;

static void *wait_for_end(void *arg)
{
    while (!atomic_load(&is_over))
        sched_yield();
    return arg;
}

/* As libcuda does it: from the thread that starts another one. */
static bool can_name_a_thread(void)
{
    pthread_t thread;
    int rc;

    atomic_store(&is_over, false);
    if (pthread_create(&thread, NULL, wait_for_end, NULL))
        return false;
    rc = pthread_setname_np(thread, "cuda-EvtHandlr");
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    return rc == 0;
}

static bool can_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool gets_out(const struct worker *w)
{
    return (w->fences & MSG_FENCE_CALLS && socket(AF_UNIX, SOCK_STREAM, 0) >= 0) ||
           (w->fences & MSG_FENCE_FILES &&
            (can_open("/tmp/test-confine", O_WRONLY | O_CREAT) || can_open("/", O_RDONLY)));
}

/* fences: wanted; what is up then is w->fences. */
static int confined(const char *device, uint32_t fences, struct worker *w)
{
    const struct msg_wk_init m = {
        .device = device, .kernels_dir = "", .uid = SOMEBODY, .fences = fences};
    struct sh_err err = {0};

    *w = (struct worker){.kernels_fd = -1};
    if (!confine_files(w, &m, &err) && (!w->has_driver || can_name_a_thread()) && !confine(w, &err))
        return FINE;
    if (!err.rc)
        return NO_NAME;
    fprintf(stderr, "%s: %s\n", err.msg, err.detail);
    return NOT_CONFINED;
}

static int in_child(int (*fn)(uint32_t), uint32_t arg)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn(arg));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* With the libraries of a device, which lie beside it. */
static int reaches_this_program(uint32_t uid)
{
    struct sh_err err = {0};
    char dir[PATH_MAX];

    return !sh_self_dir(dir, sizeof(dir), &err) && setgroups(0, NULL) == 0 && setgid(uid) == 0 &&
           setuid(uid) == 0 && access(dir, R_OK | X_OK) == 0;
}

static uint32_t all_of_this_host(void)
{
    uint32_t all = MSG_FENCES;

    if (!sandbox_lists_calls())
        all &= ~(uint32_t)MSG_FENCE_CALLS;
    if (!sandbox_hides_files())
        all &= ~(uint32_t)MSG_FENCE_FILES;
    return all;
}

/* In root's home, where nobody else gets, a worker on a GPU stays root. */
static uint32_t all_with_a_driver(void)
{
    const bool stays_root = geteuid() == 0 && !in_child(reaches_this_program, SOMEBODY);

    return all_of_this_host() & ~(stays_root ? (uint32_t)MSG_FENCE_USER : 0);
}

/* Or it is out of reach when memory was wanted: seen with 2 written to /proc/sys/vm/drop_caches. */
static bool is_held(const char *name)
{
    char want[64], link[64], got[64];

    snprintf(want, sizeof(want), "/proc/%d/%s", (int)getpid(), name);
    for (int fd = 3; fd < 64; fd++) {
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, got, sizeof(got) - 1);
        got[n > 0 ? n : 0] = '\0';
        if (strcmp(got, want) == 0)
            return true;
    }
    return false;
}

static int drive(uint32_t want)
{
    struct worker w;
    int rc = confined("cuda", MSG_FENCES, &w);

    if (rc)
        return rc;
    if (w.fences != want)
        return OTHER_FENCES;
    if (!can_name_a_thread())
        return NO_NAME;
    if (!can_open("/proc/self/maps", O_RDONLY))
        return NO_MAPS;
    if (w.fences & MSG_FENCE_FILES && !is_held("task"))
        return NOT_HELD;
    return gets_out(&w) ? REACHES_OUT : FINE;
}

static void a_driver_can_start_behind_all_fences(void **state)
{
    (void)state;

    assert_int_equal(in_child(drive, all_with_a_driver()), FINE);
}

/* The others stay. */
static int drive_without(uint32_t fence)
{
    struct worker w;
    uint32_t want = all_with_a_driver(); /* while it can be found out */
    int rc = confined("cuda", MSG_FENCES & ~fence, &w);

    if (rc)
        return rc;
    if (fence == MSG_FENCE_FILES || geteuid() == 0) /* only root has a user to give up */
        want &= ~fence;
    return w.fences == want ? (gets_out(&w) ? REACHES_OUT : FINE) : OTHER_FENCES;
}

static void one_fence_is_given_up_alone(void **state)
{
    (void)state;

    assert_int_equal(in_child(drive_without, MSG_FENCE_FILES), FINE);
    assert_int_equal(in_child(drive_without, MSG_FENCE_USER), FINE);
}

/* Its list of calls has none that opens a file, Landlock or not. */
static int compute(uint32_t want)
{
    struct worker w;
    int rc = confined("cpu", MSG_FENCES, &w);

    if (rc)
        return rc;
    return w.fences == want ? (gets_out(&w) ? REACHES_OUT : FINE) : OTHER_FENCES;
}

static void without_a_driver_all_are_up(void **state)
{
    (void)state;

    assert_int_equal(in_child(compute, sandbox_lists_calls() ? MSG_FENCES : all_of_this_host()),
                     FINE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_can_start_behind_all_fences),
        cmocka_unit_test(one_fence_is_given_up_alone),
        cmocka_unit_test(without_a_driver_all_are_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
