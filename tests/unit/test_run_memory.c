/* test_run_memory.c - how much memory shunt-run thinks is free. Without it: in a container that has
 * read large files it would refuse each model, and in one that is full it would take any. */
/* uses: runtime/run/memory.o */
#include "common/mem.h"
#include "runtime/run/run.h"
#include "tests/unit/sh_test.h"

#include <stdio.h>
#include <sys/stat.h>

static char dir[SH_TEST_DIR_BYTES];

static void write_text(const char *path, const char *text)
{
    char name[SH_TEST_DIR_BYTES + 64];

    snprintf(name, sizeof(name), "%s%s", dir, path);
    sh_test_write_file(name, text, strlen(text));
}

static void make_folder(const char *path)
{
    char name[SH_TEST_DIR_BYTES + 64];

    snprintf(name, sizeof(name), "%s%s", dir, path);
    assert_int_equal(mkdir(name, 0700), 0);
}

static void what_is_free_is_what_machine_and_container_leave(void **state)
{
    static const struct {
        const char *machine, *most, *used, *of_files;
        uint64_t is_free;
    } CASES[] = {
        {"MemTotal: 9000 kB\nMemAvailable:    2000 kB\n", "max\n", "5000\n", "", 2000 << 10},
        {"MemAvailable: 2000 kB\n", "900000\n", "100000\n", "anon 100000\n", 800000},
        {"MemAvailable: 2 kB\n", "900000\n", "100000\n", "anon 100000\n", 2048},
        {"MemAvailable: 2000 kB\n", "900000\n", "880000\n", /* files are dropped for it */
         "anon 80000\nfile 800000\ninactive_file 600000\nactive_file 200000\n", 820000},
        {"MemAvailable: 2000 kB\n", "900000\n", "900000\n", "anon 900000\n", 0},
        {"nothing\n", "max\n", "100\n", "", UINT64_MAX},
    };

    (void)state;
    sh_test_dir_make(dir);
    assert_true(run_free_memory(dir) == UINT64_MAX); /* nothing is known */
    make_folder("/proc");
    make_folder("/sys");
    make_folder("/sys/fs");
    make_folder("/sys/fs/cgroup");
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        write_text("/proc/meminfo", CASES[i].machine);
        write_text("/sys/fs/cgroup/memory.max", CASES[i].most);
        write_text("/sys/fs/cgroup/memory.current", CASES[i].used);
        write_text("/sys/fs/cgroup/memory.stat", CASES[i].of_files);
        assert_int_equal(run_free_memory(dir), CASES[i].is_free);
    }
    sh_test_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_free_is_what_machine_and_container_leave),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
