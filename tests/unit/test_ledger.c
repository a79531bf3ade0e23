/* test_ledger.c - without it, a kill at the wrong instruction could lose what was answered, or have
 * it counted twice, and a database that is away for a day could fill the disk. */
/* uses: executor/report/ledger.o */
#include "executor/report/ledger.h"
#include "tests/unit/sh_test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MINUTE INT64_C(29000000)

static struct msg_usage_row rows[LEDGER_BATCH];

static int set_up(void **state)
{
    char *dir = malloc(SH_TEST_DIR_BYTES);

    assert_non_null(dir);
    sh_test_dir_make(dir);
    *state = dir;
    return 0;
}

static int tear_down(void **state)
{
    sh_test_dir_remove(*state);
    free(*state);
    return 0;
}

static struct ledger *open_in(const char *dir)
{
    struct ledger *l = NULL;
    struct sh_err err = {0};

    assert_ok_err(ledger_open(dir, &l, &err), &err);
    return l;
}

static struct ledger *adopt_in(const char *dir)
{
    struct ledger *l = NULL;

    assert_ok(ledger_adopt(dir, &l, NULL));
    return l;
}

static void count(struct ledger *l, const char *tenant, int64_t version, int64_t minute)
{
    struct msg_usage_row r = {.id = version, .gpu_ns = 1000, .requests = 1, .samples = 3};

    snprintf(r.tenant, sizeof(r.tenant), "%s", tenant);
    ledger_count(l, minute, &r);
}

static void what_is_of_one_tenant_version_and_minute_is_one_row(void **state)
{
    struct ledger *l = open_in(*state);
    const struct msg_usage_row job = {.kind = MSG_USAGE_JOB, .id = 7, .gpu_ns = 5, .samples = 8};
    size_t n;

    for (int i = 0; i < 10; i++) {
        count(l, "ada", 7, MINUTE);
        count(l, "bea", 7, MINUTE);
        count(l, "ada", 7, MINUTE + i / 5);
    }
    for (int64_t step = 4; step > 1; step--) {
        struct msg_usage_row r = job;

        r.step = step;
        ledger_count(l, MINUTE, &r);
    }
    assert_int_equal(ledger_state(l).n_rows, 4);
    assert_int_equal(ledger_state(l).oldest_minute, MINUTE);
    assert_true(ledger_batch(l, MINUTE * 60 + 100, rows, &n) > 0);
    assert_int_equal(n, 4);
    assert_string_equal(rows[0].tenant, "ada");
    assert_int_equal(rows[0].requests, 15);
    assert_int_equal(rows[0].gpu_ns, 15000);
    assert_int_equal(rows[0].samples, 45);
    assert_int_equal(rows[0].age_s, 70);
    assert_int_equal(rows[1].requests, 10);
    assert_int_equal(rows[2].requests, 5);
    assert_int_equal(rows[2].age_s, 10);
    assert_int_equal(rows[3].kind, MSG_USAGE_JOB);
    assert_int_equal(rows[3].gpu_ns, 15);
    assert_int_equal(rows[3].samples, 8); /* of a step */
    assert_int_equal(rows[3].step, 4);
    ledger_close(l);
}

static void a_batch_keeps_its_number_and_rows_until_it_is_stored(void **state)
{
    struct ledger *l = open_in(*state);
    uint64_t first, next;
    size_t n;

    assert_int_equal(ledger_batch(l, 0, rows, &n), 0);
    count(l, "ada", 1, MINUTE);
    first = ledger_batch(l, 0, rows, &n);
    count(l, "ada", 1, MINUTE); /* comes too late for it */
    assert_int_equal(ledger_batch(l, 0, rows, &n), first);
    assert_int_equal(n, 1);
    assert_int_equal(rows[0].requests, 1);
    ledger_stored(l, first - 1); /* said of an older one */
    assert_int_equal(ledger_batch(l, 0, rows, &n), first);
    ledger_stored(l, first);
    next = ledger_batch(l, 0, rows, &n);
    assert_true(next > first);
    assert_int_equal(n, 1);
    ledger_stored(l, next);
    assert_int_equal(ledger_batch(l, 0, rows, &n), 0);
    assert_int_equal(ledger_state(l).n_rows, 0);
    assert_int_equal(sh_test_dir_walk(*state, false), 1);
    ledger_close(l);
    assert_int_equal(sh_test_dir_walk(*state, false), 0);
}

static void a_file_belongs_to_one_and_what_it_left_to_the_next(void **state)
{
    struct ledger *a = open_in(*state), *b = open_in(*state);
    char name[LEDGER_NAME];
    uint64_t number;
    size_t n;

    assert_string_not_equal(ledger_source(a), ledger_source(b));
    assert_null(adopt_in(*state));
    snprintf(name, sizeof(name), "%s", ledger_source(a));
    count(a, "ada", 1, MINUTE);
    number = ledger_batch(a, 0, rows, &n);
    count(a, "ada", 1, MINUTE);
    ledger_close(a);
    a = adopt_in(*state);
    assert_non_null(a);
    assert_string_equal(ledger_source(a), name);
    assert_int_equal(ledger_batch(a, 0, rows, &n), number);
    ledger_stored(a, number + 5); /* the database knows more than the file: power was lost */
    assert_true(ledger_batch(a, 0, rows, &n) > number + 5);
    assert_int_equal(n, 1);
    ledger_close(a);
    ledger_close(b);
}

static void a_database_that_is_away_costs_minutes_and_then_new_tenants_only(void **state)
{
    struct ledger *l = open_in(*state);
    int64_t requests = 0;
    uint64_t number;
    char name[64];
    size_t n;

    for (int64_t i = 0; i < 3 * (int64_t)LEDGER_ROWS; i++)
        count(l, i % 2 ? "ada" : "bea", 1, MINUTE + i / 2);
    assert_int_equal(ledger_state(l).n_rows, LEDGER_ROWS);
    assert_int_equal(ledger_state(l).merged, 2 * LEDGER_ROWS);
    assert_int_equal(ledger_state(l).dropped, 0);
    count(l, "cid", 1, MINUTE);
    assert_int_equal(ledger_state(l).dropped, 1);
    while ((number = ledger_batch(l, 0, rows, &n))) {
        for (size_t i = 0; i < n; i++)
            requests += rows[i].requests;
        ledger_stored(l, number);
    }
    assert_int_equal(requests, 3 * LEDGER_ROWS);
    for (size_t i = 0; i < LEDGER_ROWS; i++) { /* all of them can be had again */
        snprintf(name, sizeof(name), "t%zu", i);
        count(l, name, 1, MINUTE);
    }
    assert_int_equal(ledger_state(l).n_rows, LEDGER_ROWS);
    assert_int_equal(ledger_state(l).dropped, 1);
    ledger_close(l);
}

static void put_file(const char *dir, const char *name, size_t bytes)
{
    char path[SH_TEST_DIR_BYTES + 80];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < bytes; i++)
        fputc('x', f);
    assert_int_equal(fclose(f), 0);
}

static void what_is_no_ledger_is_put_away_and_what_is_half_made_removed(void **state)
{
    struct ledger *l = open_in(*state);
    char path[SH_TEST_DIR_BYTES + 80];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s.usage", (char *)*state, ledger_source(l));
    assert_int_equal(stat(path, &st), 0);
    put_file(*state, "a.usage", 10);
    put_file(*state, "b.usage", (size_t)st.st_size);
    put_file(*state, "new-c", 100);
    assert_null(adopt_in(*state));
    assert_int_equal(sh_test_dir_walk(*state, false),
                     2); /* ours, and the last that could not be read */
    ledger_close(l);
}

/* The file of l, which is closed, to be written to. */
static unsigned char *map_file(const char *path, size_t *bytes)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    void *p;

    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    *bytes = (size_t)st.st_size;
    p = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    close(fd);
    return p;
}

/* Changes the word `was` of a file, wherever it stands, or the one before it. */
static void damage(const char *path, int64_t was, int before, int64_t is)
{
    size_t bytes, n = 0;
    unsigned char *p = map_file(path, &bytes);

    for (size_t at = 0; at + sizeof(was) <= bytes; at += sizeof(was))
        if (memcmp(p + at, &was, sizeof(was)) == 0) {
            memcpy(p + at - (size_t)before * sizeof(is), &is, sizeof(is));
            n++;
        }
    assert_int_equal(n, 1);
    munmap(p, bytes);
}

/* A disk or a loss of power may leave anything. One row that nobody can store would keep all that
 * comes later from being stored, for ever. */
static void a_damaged_row_is_left_out_and_keeps_nothing_up(void **state)
{
    const struct {
        int64_t was;
        int before; /* 1: the word before it changes; before a row's minute stands its batch */
        int64_t is;
    } cases[] = {{MINUTE, 0, INT64_MAX / 2}, {MINUTE, 0, INT64_MIN / 2}, {MINUTE, 1, INT64_MIN},
                 {MINUTE, 1, INT64_MAX},     {123456789, 0, INT64_MAX},  {123456789, 0, -1}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct msg_usage_row odd = {
            .tenant = "bad", .id = 1, .gpu_ns = 123456789, .requests = 1};
        struct ledger *l = open_in(*state);
        char path[SH_TEST_DIR_BYTES + 80];
        uint64_t number;
        size_t n;

        snprintf(path, sizeof(path), "%s/%s.usage", (char *)*state, ledger_source(l));
        ledger_count(l, MINUTE, &odd);
        count(l, "ada", 1, MINUTE + 1);
        ledger_close(l);
        damage(path, cases[i].was, cases[i].before, cases[i].is);
        l = open_in(*state);
        assert_int_equal(ledger_state(l).n_rows, 1);
        assert_int_equal(ledger_state(l).oldest_minute, MINUTE + 1);
        number = ledger_batch(l, MINUTE * 60, rows, &n);
        assert_true(number > 0 && number <= INT64_MAX); /* or the scheduler takes none of it */
        assert_int_equal(n, 1);
        assert_string_equal(rows[0].tenant, "ada");
        ledger_stored(l, number);
        ledger_close(l);
        assert_int_equal(sh_test_dir_walk(*state, false), 0);
    }
}

/* As `cp --sparse` leaves it: to count in a hole, with the disk full, would end the process. */
static void a_file_that_is_taken_over_has_all_its_blocks(void **state)
{
    struct ledger *l = open_in(*state);
    char path[SH_TEST_DIR_BYTES + 80];
    struct stat st;
    int fd;

    snprintf(path, sizeof(path), "%s/%s.usage", (char *)*state, ledger_source(l));
    count(l, "ada", 1, MINUTE);
    ledger_close(l);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 20, 1 << 18),
                     0);
    close(fd);
    l = open_in(*state);
    assert_int_equal(ledger_state(l).n_rows, 1);
    assert_int_equal(stat(path, &st), 0);
    assert_true((int64_t)st.st_blocks * 512 >= (int64_t)st.st_size);
    ledger_close(l);
}

static void without_room_on_the_disk_it_counts_in_memory(void **state)
{
    struct rlimit was, none = {0};
    struct ledger *l;
    size_t n;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    none.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    l = open_in(*state);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_false(ledger_state(l).is_file);
    assert_int_equal(sh_test_dir_walk(*state, false), 0);
    count(l, "ada", 1, MINUTE);
    assert_true(ledger_batch(l, 0, rows, &n) > 0);
    assert_int_equal(n, 1);
    ledger_close(l);
}

/* ------------------------------------------------------------------ kills */

/* A process is led through its work instruction by instruction. Whenever one has changed the file
 * or the database, both are kept: a kill leaves the disk just so. Then the next process is given
 * each of them. Kills at random moments would hardly ever come between two stores. */

#define CHANGED_BYTES 8192 /* of a file, from its start, that the few rows here are in */
#define MAX_CHANGES 4096

struct world {           /* outlives who is killed */
    int64_t begun, told; /* requests: to be counted, and counted */
    unsigned which;      /* of these two; the other one is being written */
    struct {             /* the database: of a source, its highest number and all it brought */
        uint64_t number;
        int64_t requests, samples, gpu_ns;
    } stored[2];
};

struct moment {
    struct world world;
    unsigned char file[CHANGED_BYTES];
};

static void store(volatile struct world *w, struct ledger *l)
{
    const unsigned is = w->which;
    size_t n;
    uint64_t number = ledger_batch(l, 0, rows, &n);

    if (number > w->stored[is].number) { /* or it was stored, and nobody heard of it */
        w->stored[!is] = w->stored[is];
        w->stored[!is].number = number;
        for (size_t i = 0; i < n; i++) {
            w->stored[!is].requests += rows[i].requests;
            w->stored[!is].samples += rows[i].samples;
            w->stored[!is].gpu_ns += rows[i].gpu_ns;
        }
        w->which = !is; /* one store: the commit */
    }
    ledger_stored(l, number);
}

static void count_one(volatile struct world *w, struct ledger *l, const char *tenant,
                      int64_t minute)
{
    w->begun++;
    count(l, tenant, 1, minute);
    w->told++;
}

/* Takes a file over, with a batch that may be in the database; ends stopped. */
static void work_by_steps(volatile struct world *w, const char *dir)
{
    struct ledger *l = NULL;

    if (ledger_open(dir, &l, NULL) || ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 || raise(SIGSTOP))
        _exit(1);
    for (int i = 0; i < 24; i++) {
        count_one(w, l, i % 3 ? "ada" : "bea", MINUTE + i / 8);
        if (i % 5 == 0)
            store(w, l);
    }
    raise(SIGSTOP);
    _exit(1);
}

/* Returns how many moments there were. */
static size_t lead(pid_t pid, const struct world *w, const unsigned char *file, struct moment *m)
{
    int status = 0;
    size_t n = 1;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    m[0].world = *w;
    memcpy(m[0].file, file, CHANGED_BYTES);
    for (;;) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP)
            break;
        assert_int_equal(WSTOPSIG(status), SIGTRAP);
        if (memcmp(&m[n - 1].world, w, sizeof(*w)) == 0 &&
            memcmp(m[n - 1].file, file, CHANGED_BYTES) == 0)
            continue;
        assert_true(n < MAX_CHANGES);
        m[n].world = *w;
        memcpy(m[n++].file, file, CHANGED_BYTES);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return n;
}

/* The next process finds the disk and the database as they were at this moment. */
static void go_on_from(struct moment *m, unsigned char *file, const char *dir)
{
    struct world *w = &m->world;
    struct ledger *l;

    memcpy(file, m->file, CHANGED_BYTES);
    l = adopt_in(dir);
    assert_non_null(l);
    count(l, "cid", 1, MINUTE);
    while (ledger_state(l).n_rows)
        store(w, l);
    assert_in_range(w->stored[w->which].requests, w->told + 1, w->begun + 1);
    assert_int_equal(w->stored[w->which].samples, 3 * w->stored[w->which].requests);
    assert_int_equal(w->stored[w->which].gpu_ns, 1000 * w->stored[w->which].requests);
    count(l, "cid", 1, MINUTE); /* the file of who has rows stays */
    ledger_close(l);
}

static void a_kill_at_any_instruction_loses_nothing_and_doubles_nothing(void **state)
{
    struct world *w =
        mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct moment *moments = malloc(MAX_CHANGES * sizeof(*moments));
    struct ledger *l = open_in(*state);
    char path[SH_TEST_DIR_BYTES + 80];
    size_t n, bytes, n_rows;
    unsigned char *file;
    pid_t pid;

    assert_true(w != MAP_FAILED && moments);
    snprintf(path, sizeof(path), "%s/%s.usage", (char *)*state, ledger_source(l));
    count_one(w, l, "ada", MINUTE);
    assert_true(ledger_batch(l, 0, rows, &n_rows) > 0);
    count_one(w, l, "ada", MINUTE);
    ledger_close(l);
    file = map_file(path, &bytes);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        work_by_steps(w, *state);
    n = lead(pid, w, file, moments);
    assert_true(n > 24 * 4);
    assert_int_equal(w->told, 26);
    for (size_t i = CHANGED_BYTES; i < bytes; i++)
        assert_int_equal(file[i], 0);
    for (size_t i = 0; i < n; i++)
        go_on_from(&moments[i], file, *state);
    munmap(file, bytes);
    munmap(w, sizeof(*w));
    free(moments);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static void copy_file(const char *from, const char *to)
{
    size_t n = 0;
    char *bytes = sh_test_read_file(from, &n);

    sh_test_write_file(to, bytes, n);
    free(bytes);
}

/* Two that count from there would give one number to different batches, and the database takes the
 * first of them. */
static void a_copy_is_a_source_of_its_own_and_keeps_its_rows(void **state)
{
    char path[400], copied[400], name[LEDGER_NAME], other[SH_TEST_DIR_BYTES];
    struct ledger *first = open_in(*state), *second;

    count(first, "ada", 1, MINUTE);
    memcpy(name, ledger_source(first), sizeof(name));
    sh_test_dir_make(other);
    snprintf(path, sizeof(path), "%s/%s.usage", (char *)*state, name);
    snprintf(copied, sizeof(copied), "%s/%s.usage", other, name);
    copy_file(path, copied);
    second = open_in(other);
    assert_string_not_equal(ledger_source(second), name);
    assert_int_equal(ledger_state(second).n_rows, 1);
    memcpy(name, ledger_source(second), sizeof(name));
    ledger_close(second);
    second = open_in(other); /* not a copy of itself */
    assert_string_equal(ledger_source(second), name);
    ledger_close(second);
    memcpy(name, ledger_source(first), sizeof(name));
    ledger_close(first);
    first = open_in(*state);
    assert_string_equal(ledger_source(first), name);
    ledger_close(first);
    sh_test_dir_remove(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_of_one_tenant_version_and_minute_is_one_row),
        TEST(a_batch_keeps_its_number_and_rows_until_it_is_stored),
        TEST(a_file_belongs_to_one_and_what_it_left_to_the_next),
        TEST(a_database_that_is_away_costs_minutes_and_then_new_tenants_only),
        TEST(what_is_no_ledger_is_put_away_and_what_is_half_made_removed),
        TEST(a_damaged_row_is_left_out_and_keeps_nothing_up),
        TEST(a_file_that_is_taken_over_has_all_its_blocks),
        TEST(without_room_on_the_disk_it_counts_in_memory),
        TEST(a_kill_at_any_instruction_loses_nothing_and_doubles_nothing),
        TEST(a_copy_is_a_source_of_its_own_and_keeps_its_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
