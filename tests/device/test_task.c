/* test_task.c - what a worker gets at while it has a task.
 *
 * Without it an operation that leaves its memory, by a fault or an index of a hostile model, could
 * read and change what is another tenant's; and a step could write what it is said only to read of
 * its job's state, of which no checkpoint would know.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL ((size_t)32 << 20)

/* The status of a child that writes, or reads, one byte at off. */
static int touch(struct dev *d, size_t off, bool writes)
{
    unsigned char byte = 1;
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(writes ? dev_upload(d, off, &byte, 1, NULL) : dev_download(d, &byte, off, 1, NULL));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void assert_ends(int status)
{
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

static void a_task_reaches_its_own_ranges_alone(void **state)
{
    const size_t image = DEV_BLOCK, ws = 4 * DEV_BLOCK, n = 3 * DEV_BLOCK / 2, page = 4096;
    const struct dev_reach task[] = {{image, n, false}, {ws, n, true}};
    const struct dev_reach parts[] = {{ws, page, true}, {ws + page, n, false}}; /* of a state */
    const struct dev_reach all = {ws, page + n, false};
    const struct dev_reach over = {POOL - DEV_BLOCK, DEV_BLOCK + 1, true};
    const struct dev_mem_conf mc = {.pool_bytes = POOL, .n_lanes = 2};
    struct dev_mem *m;
    struct sh_err err = {0};
    struct dev *d;
    (void)state;

    if (strcmp(t_kind(), "cpu") != 0)
        skip(); /* others say nothing of it, and their context does not survive fork() */
    assert_ok_err(dev_mem_open(t_lib(), &mc, &m, &err), &err);
    d = t_open_worker(m);
    assert_int_equal(touch(d, 0, true), 0);
    assert_ok(dev_task(d, task, SH_ARRAY_LEN(task), NULL));
    assert_int_equal(touch(d, image, false), 0);
    assert_int_equal(touch(d, image + n - 1, false), 0);
    assert_ends(touch(d, image, true));
    assert_int_equal(touch(d, ws, true), 0);
    assert_int_equal(touch(d, ws + n - 1, false), 0);
    assert_ends(touch(d, ws + n + page, false));
    assert_ends(touch(d, ws - 1, false));
    assert_ends(touch(d, 0, false));
    assert_ok(dev_task(d, task + 1, 1, NULL)); /* the next one */
    assert_ends(touch(d, image, false));
    assert_int_equal(touch(d, ws, true), 0);
    assert_ok(dev_task(d, parts, SH_ARRAY_LEN(parts), NULL));
    assert_int_equal(touch(d, ws + page - 1, true), 0);
    assert_int_equal(touch(d, ws + page, false), 0);
    assert_ends(touch(d, ws + page, true));
    assert_ends(touch(d, ws + page + n - 1, true));
    assert_ends(touch(d, ws + page + n + page, false));
    assert_ok(dev_task(d, &all, 1, NULL)); /* an evaluation of it */
    assert_ends(touch(d, ws, true));
    assert_int_equal(touch(d, ws, false), 0);
    assert_ok(dev_task(d, parts, SH_ARRAY_LEN(parts), NULL));
    assert_int_equal(touch(d, ws, true), 0);
    assert_ends(touch(d, ws + page, true));
    assert_ok(dev_task(d, task + 1, 1, NULL));
    assert_ok(dev_own_memory(d, POOL, NULL)); /* is not the arena */
    assert_int_equal(touch(d, 0, true), 0);
    assert_ok(dev_own_memory(d, 0, NULL));
    assert_ok(dev_task(d, NULL, 0, NULL));
    assert_ends(touch(d, ws, false));
    assert_fails(dev_task(d, &over, 1, &err), SH_E_BUG, &err, "a task's range");
    dev_close(d);
    dev_mem_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_task_reaches_its_own_ranges_alone)};

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
