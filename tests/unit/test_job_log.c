/* test_job_log.c - the log of a job: the bounded file, the lines on their way to it.
 *
 * Without it a job that runs for weeks could fill the disk, or lose how it began; a full disk could
 * leave half a line, or the lines after it could be missing without a word; and who says a line
 * could wait for the disk. */
/* uses: executor/report/job_log.o executor/report/job_log_file.o executor/files/disk.o executor/files/disk_work.o executor/files/push.o executor/files/transfer.o executor/files/folder.o executor/files/result_file.o executor/files/claim.o */
/* link: -lcurl */
#include "common/clock.h"
#include "common/mem.h"
#include "common/msg.h"
#include "executor/report/job_log.h"
#include "tests/unit/slow_disk.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ the file */

struct file {
    char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 16];
};

static void file_open(struct file *f)
{
    sh_test_dir_make(f->dir);
    snprintf(f->path, sizeof(f->path), "%s/" JOB_LOG_NAME, f->dir);
}

/* OWNED. */
static char *content(const struct file *f, size_t *n)
{
    char *text = calloc(1, 2 * JOB_LOG_MAX);
    int fd = open(f->path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : read(fd, text, 2 * JOB_LOG_MAX - 1);

    assert_non_null(text);
    assert_true(got >= 0);
    if (fd >= 0)
        close(fd);
    *n = (size_t)got;
    return text;
}

static int64_t number(const char *text)
{
    return strtoll(text, NULL, 10);
}

static void append(const struct file *f, const char *text)
{
    struct sh_err err = {0};

    assert_ok_err(job_log_append(f->path, text, strlen(text), &err), &err);
}

#define N_LINES 60000
#define LINE (int)(sizeof("line 00000000 of the long log of a job\n") - 1)

/* Numbered lines in pieces, as the thread brings them. */
static void fill(const struct file *f, int from, int to)
{
    char piece[20 * 64];
    size_t n = 0;

    for (int i = from; i < to; i++) {
        n += (size_t)snprintf(piece + n, sizeof(piece) - n, "line %08d of the long log of a job\n",
                              i);
        if (i % 20 == 19 || i + 1 == to) {
            append(f, piece);
            n = 0;
        }
    }
}

static void the_beginning_and_the_newest_part_stay(void **state)
{
    struct file f;
    const char *mark, *first;
    long long left;
    size_t n;
    char *text;
    int at = 0, next;

    (void)state;
    file_open(&f);
    for (int from = 0; from < N_LINES; from += N_LINES / 4) { /* cut more than once */
        fill(&f, from, from + N_LINES / 4);
        text = content(&f, &n);
        assert_true(n <= JOB_LOG_MAX);
        free(text);
    }
    text = content(&f, &n);
    assert_true(n > JOB_LOG_TAIL);
    mark = strstr(text, JOB_LOG_LEFT_OUT);
    assert_non_null(mark);
    assert_null(strstr(mark + 1, JOB_LOG_LEFT_OUT)); /* one line for all that is missing */
    left = number(mark + strlen(JOB_LOG_LEFT_OUT));
    first = strchr(mark, '\n') + 1;
    assert_int_equal(left + (long long)n - (first - mark), (long long)N_LINES * LINE);
    for (const char *p = text; p < mark; p = strchr(p, '\n') + 1, at++)
        assert_int_equal(number(p + 5), at);
    assert_true(at * LINE > (int)JOB_LOG_HEAD - 100);
    next = number(first + 5);
    assert_true(next > at);
    for (const char *p = first; *p; p = strchr(p, '\n') + 1, next++)
        assert_int_equal(number(p + 5), next);
    assert_int_equal(next, N_LINES);
    free(text);
    sh_test_dir_remove(f.dir);
}

static void half_a_line_of_a_killed_process_stays_alone(void **state)
{
    struct file f;
    size_t n;
    char *text;

    (void)state;
    file_open(&f);
    append(&f, "one\ntw");
    append(&f, "three\n");
    text = content(&f, &n);
    assert_string_equal(text, "one\ntw\nthree\n");
    free(text);
    sh_test_dir_remove(f.dir);
}

/* What a full disk does, done with a limit on the size of files. */
static void limit(size_t bytes)
{
    struct rlimit r;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes ? bytes : r.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void what_cannot_be_written_leaves_the_file_as_it_was(void **state)
{
    struct sh_err err = {0};
    struct file f;
    size_t n;
    char *text;

    (void)state;
    file_open(&f);
    append(&f, "one\n");
    limit(8);
    assert_fails(job_log_append(f.path, "seven, eight\n", 13, &err), SH_E_IO, &err,
                 "the log of a job");
    limit(0);
    text = content(&f, &n);
    assert_string_equal(text, "one\n");
    free(text);
    sh_test_dir_remove(f.dir);
}

/* ------------------------------------------------------------------ the lines */

struct rig {
    struct file f;
    struct sh_loop *loop;
    struct files files;
    struct job_logs logs;
};

static void rig_open(struct rig *r)
{
    *r = (struct rig){.files = {.executor = "cpu0"}, .logs = {.files = &r->files, .device = "cpu"}};
    file_open(&r->f);
    assert_ok(sh_loop_new(&r->loop, NULL));
    assert_ok(disk_new(r->loop, &r->files.disk, NULL));
}

static void rig_close(struct rig *r)
{
    disk_free(r->files.disk);
    sh_loop_free(r->loop);
    sh_test_dir_remove(r->f.dir);
}

static struct job_log *open_log(struct rig *r, uint32_t attempt)
{
    struct job_log *l =
        job_log_open(&r->logs, &(struct job_log_conf){7, attempt, r->f.dir, "model m:1, dataset d",
                                                      "step", 40, 3});

    assert_non_null(l);
    return l;
}

static void close_log(struct rig *r, struct job_log *l)
{
    job_log_close(l);
    for (int i = 0; i < 500 && r->logs.n; i++)
        assert_ok(sh_loop_once(r->loop, 10000000, NULL));
    assert_int_equal(r->logs.n, 0);
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what))
        n++;
    return n;
}

static void attempts_follow_each_other(void **state)
{
    struct rig r;
    struct job_log *l;
    size_t n;
    char *text, *second;
    int year, attempt, used = 0;

    (void)state;
    rig_open(&r);
    l = open_log(&r, 1);
    job_log_say(l, "a name with\na line end in it");
    close_log(&r, l);
    l = open_log(&r, 2);
    job_log_attempt(l, 3);
    job_log_end(l, &(struct msg_job_state){
                       .state = MSG_JOB_FAILED, .step = 12, .rc = SH_E_NAN, .msg = "not a number"});
    close_log(&r, l);
    l = open_log(&r, 4);
    job_log_end(l, &(struct msg_job_state){.state = MSG_JOB_DONE, .redone = 2, .preemptions = 1});
    close_log(&r, l);
    text = content(&r.f, &n);
    assert_int_equal(count(text, "\n"), 6);
    /* of all starts of the job */
    assert_non_null(
        strstr(text, "attempt 4: ended: it has succeeded (redone steps 42, preemptions 4)\n"));
    assert_int_equal(sscanf(text,
                            "%d-%*d-%*dT%*d:%*d:%*d.%*dZ attempt %d: started on executor cpu0 "
                            "(cpu): model m:1, dataset d\n%n",
                            &year, &attempt, &used),
                     2);
    assert_true(used > 0 && attempt == 1 && year >= 2000);
    assert_non_null(strstr(text, "attempt 1: a name with a line end in it\n"));
    second = strstr(text, "attempt 2: started on");
    assert_non_null(second);
    assert_non_null(strstr(second, "attempt 3: ended: failed at step 12, NAN: not a number\n"));
    free(text);
    rig_close(&r);
}

/* The disk does nothing for a while: nobody waits, and what there was no room for is counted. */
static void a_slow_disk_costs_lines_and_no_time(void **state)
{
    struct slow_disk disk;
    struct rig r;
    struct job_log *l;
    int64_t start;
    size_t n;
    char *text;

    (void)state;
    rig_open(&r);
    slow_disk_begin(&disk, r.files.disk);
    l = open_log(&r, 1);
    start = sh_clock_ns();
    for (int i = 0; i < 3000; i++) {
        job_log_say(l, "something of which there is very much, number %d", i);
        job_log_tick(l);
    }
    assert_true(sh_clock_ns() - start < 1000000000);
    assert_int_equal(access(r.f.path, F_OK), -1);
    slow_disk_end(&disk);
    close_log(&r, l);
    text = content(&r.f, &n);
    assert_int_equal(count(text, "started on executor"), 1);
    assert_true(count(text, "of which there is very much") < 3000);
    assert_int_equal(count(text, "lines of this log that could not be kept: "), 1);
    assert_int_equal(number(strstr(text, "kept: ") + 6),
                     3000 - count(text, "of which there is very much"));
    free(text);
    rig_close(&r);
}

static void a_full_disk_loses_lines_and_says_so_later(void **state)
{
    struct rig r;
    struct job_log *l;
    size_t n;
    char *text;

    (void)state;
    rig_open(&r);
    l = open_log(&r, 1);
    job_log_say(l, "this one too");
    limit(4);
    job_log_tick(l);
    for (int i = 0; i < 20; i++)
        assert_ok(sh_loop_once(r.loop, 10000000, NULL));
    limit(0);
    job_log_say(l, "there is room again");
    close_log(&r, l);
    text = content(&r.f, &n);
    assert_int_equal(count(text, "\n"), 2);
    assert_non_null(strstr(text, "lines of this log that could not be kept: 2\n"));
    assert_non_null(strstr(text, "there is room again\n"));
    free(text);
    rig_close(&r);
}

/* The executor ends before the thread has come to it. */
static void an_end_of_the_process_writes_what_waits(void **state)
{
    struct slow_disk disk;
    struct rig r;
    struct job_log *l;
    size_t n;
    char *text;

    (void)state;
    rig_open(&r);
    slow_disk_begin(&disk, r.files.disk);
    l = open_log(&r, 1);
    job_log_tick(l);
    slow_disk_end(&disk);
    disk_free(r.files.disk);
    r.files.disk = NULL;
    job_log_say(l, "the last words");
    job_log_close(l);
    assert_int_equal(r.logs.n, 0);
    text = content(&r.f, &n);
    assert_non_null(strstr(text, "started on executor"));
    assert_non_null(strstr(text, "the last words\n"));
    free(text);
    rig_close(&r);
}

static void progress_is_told_now_and_then_with_what_it_was_taken_away(void **state)
{
    struct msg_job_state now = {.steps = 1000, .loss = 0.5};
    struct rig r;
    struct job_log *l;
    size_t n;
    char *text;

    (void)state;
    rig_open(&r);
    sh_clock_fake(INT64_C(1000000000), INT64_C(1700000000000));
    l = open_log(&r, 1);
    job_log_progress(l, &now, 0, 8, false); /* no step yet */
    for (int i = 1; i <= 100; i++) {        /* ten seconds, ten steps a second, half of it away */
        sh_clock_advance(INT64_C(100000000));
        now.step = i;
        now.busy_ns = i * INT64_C(50000000);
        now.preemptions = i;
        job_log_progress(l, &now, i, 8, false);
    }
    now.step = 1000;
    job_log_progress(l, &now, 1000, 8, true);
    job_log_progress(l, &now, 1001, 8, false); /* it is over */
    sh_clock_real();
    close_log(&r, l);
    text = content(&r.f, &n);
    assert_int_equal(count(text, "\n"), 4);
    assert_non_null(strstr(text, "step 1 of 1000, loss 0.5, 20 steps/s, 160 samples/s"));
    assert_non_null(strstr(text,
                           "step 51 of 1000, loss 0.5, 10 steps/s, 80 samples/s; preempted 50 "
                           "times, 2.5 s in all\n"));
    assert_non_null(strstr(text, "step 1000 of 1000, loss 0.5, "));
    free(text);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_beginning_and_the_newest_part_stay),
        cmocka_unit_test(half_a_line_of_a_killed_process_stays_alone),
        cmocka_unit_test(what_cannot_be_written_leaves_the_file_as_it_was),
        cmocka_unit_test(attempts_follow_each_other),
        cmocka_unit_test(a_slow_disk_costs_lines_and_no_time),
        cmocka_unit_test(a_full_disk_loses_lines_and_says_so_later),
        cmocka_unit_test(an_end_of_the_process_writes_what_waits),
        cmocka_unit_test(progress_is_told_now_and_then_with_what_it_was_taken_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
