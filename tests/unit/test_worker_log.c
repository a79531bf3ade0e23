/* test_worker_log.c - without it, a worker that somebody has taken over could fill the disk through
 * the executor's log, or glue the executor's lines to its own. */
/* uses: executor/pool/worker_log.o */
#include "common/clock.h"
#include "executor/pool/worker_log.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TURN_NS INT64_C(1000000)

static struct {
    struct sh_loop *loop;
    struct worker_log *log;
    int child, out; /* what the worker prints to, and what the executor's log is */
    char dir[SH_TEST_DIR_BYTES], path[300];
} W;

static int set_up(void **state)
{
    (void)state;
    sh_test_dir_make(W.dir);
    snprintf(W.path, sizeof(W.path), "%s/log", W.dir);
    W.out = open(W.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(W.out >= 0);
    assert_ok(sh_loop_new(&W.loop, NULL));
    assert_ok(worker_log_open(W.loop, 0, W.out, &W.log, &W.child, NULL));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    worker_log_close(W.log);
    if (W.child >= 0)
        close(W.child);
    close(W.out);
    sh_loop_free(W.loop);
    sh_test_dir_remove(W.dir);
    return 0;
}

static void print(const char *text)
{
    assert_int_equal(write(W.child, text, strlen(text)), (ssize_t)strlen(text));
    for (int i = 0; i < 3; i++)
        assert_ok(sh_loop_once(W.loop, TURN_NS, NULL));
}

static void assert_log(const char *want)
{
    char *have = sh_test_read_file(W.path, NULL);

    assert_string_equal(have, want);
    free(have);
}

static void whole_lines_come_at_once_and_the_rest_at_the_end(void **state)
{
    (void)state;
    print("one\ntw");
    assert_log("one\n");
    print("o\n");
    assert_log("one\ntwo\n");
    print("last words");
    assert_log("one\ntwo\n");
    close(W.child);
    W.child = -1;
    for (int i = 0; i < 3; i++) /* and the loop does not spin on what has ended */
        assert_ok(sh_loop_once(W.loop, TURN_NS, NULL));
    worker_log_close(W.log);
    W.log = NULL;
    assert_log("one\ntwo\nlast words\n");
}

static void a_line_without_an_end_is_broken(void **state)
{
    static char text[2 * WORKER_LOG_LINE_BYTES];
    char *have;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    print(text);
    have = sh_test_read_file(W.path, NULL);
    assert_non_null(strchr(have, '\n'));
    assert_true((size_t)(strchr(have, '\n') - have) < WORKER_LOG_LINE_BYTES);
    free(have);
}

static void nobody_gets_at_the_log_itself(void **state)
{
    struct stat st;

    (void)state;
    print("one\n");
    assert_int_equal(ftruncate(W.child, 0), -1);
    assert_int_equal(pwrite(W.child, "x", 1, 0), -1);
    assert_int_equal(lseek(W.child, 0, SEEK_SET), -1);
    assert_int_equal(fstat(W.child, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_log("one\n");
}

static void who_prints_without_end_waits_for_nobody_and_fills_no_disk(void **state)
{
    const int64_t begin = sh_clock_ns();
    int64_t most;
    char text[4096];
    struct stat st;
    size_t n_lost = 0;

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\n';
    for (int i = 0; i < 4096; i++) { /* 16 MiB */
        n_lost += write(W.child, text, sizeof(text)) < 0;
        assert_ok(sh_loop_once(W.loop, 0, NULL));
    }
    assert_true(n_lost > 0);
    most = WORKER_LOG_BURST + (int64_t)WORKER_LOG_LINE_BYTES +
           (sh_clock_ns() - begin) / 1000000 * WORKER_LOG_PER_S / 1000;
    assert_int_equal(fstat(W.out, &st), 0);
    assert_true(st.st_size >= WORKER_LOG_BURST);
    assert_true(st.st_size <= most);
}

/* More than it may print, and more than the pipe holds. */
static void flood(void)
{
    char text[4096];
    ssize_t lost = 0;

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\n';
    for (int i = 0; i < 4096; i++) {
        lost += write(W.child, text, sizeof(text)) < 0;
        assert_ok(sh_loop_once(W.loop, 0, NULL));
    }
    assert_true(lost > 0); /* nobody reads any more */
}

static off_t log_bytes(void)
{
    struct stat st;

    assert_int_equal(fstat(W.out, &st), 0);
    return st.st_size;
}

static void that_lines_are_lost_is_said_once_a_minute(void **state)
{
    static const int PAUSE_S[] = {1, 1, 59, 1};
    struct sh_test_capture c;
    size_t n = 0;
    char *said;

    (void)state;
    sh_clock_fake(sh_clock_ns(), 0);
    sh_test_capture_begin(&c, STDERR_FILENO);
    flood();
    for (size_t i = 0; i < sizeof(PAUSE_S) / sizeof(PAUSE_S[0]); i++) {
        const off_t before = log_bytes();

        sh_clock_advance(PAUSE_S[i] * INT64_C(1000000000));
        flood();
        assert_true(log_bytes() - before >= WORKER_LOG_PER_S);
        assert_true(log_bytes() - before <= WORKER_LOG_BURST + (off_t)WORKER_LOG_LINE_BYTES);
    }
    said = sh_test_capture_end(&c);
    sh_clock_real();
    for (const char *at = said; (at = strstr(at, "it prints more")); at++)
        n++;
    assert_int_equal(n, 2);
    free(said);
}

static void who_ends_while_nobody_reads_is_read_to_the_end(void **state)
{
    off_t before;

    (void)state;
    sh_clock_fake(sh_clock_ns(), 0);
    flood();
    close(W.child);
    W.child = -1;
    before = log_bytes();
    assert_ok(sh_loop_once(W.loop, 0, NULL));
    sh_clock_advance(INT64_C(2000000000)); /* it would be read again, and has ended */
    for (int i = 0; i < 3; i++)
        assert_ok(sh_loop_once(W.loop, 0, NULL));
    assert_int_equal(log_bytes(), before);
    worker_log_close(W.log);
    W.log = NULL;
    sh_clock_real();
    assert_true(log_bytes() > before);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whole_lines_come_at_once_and_the_rest_at_the_end),
        TEST(a_line_without_an_end_is_broken),
        TEST(nobody_gets_at_the_log_itself),
        TEST(who_prints_without_end_waits_for_nobody_and_fills_no_disk),
        TEST(that_lines_are_lost_is_said_once_a_minute),
        TEST(who_ends_while_nobody_reads_is_read_to_the_end),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
