/* test_disk_work.c - which checkpoints of a job are removed when an attempt begins.
 *
 * An executor that was cut off may begin an old attempt while a newer one runs elsewhere on the
 * same folder. Without this test it would remove what the newer one has recorded.
 */
/* uses: executor/files/disk_work.o */
#include "common/mem.h"
#include "executor/files/disk.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const NAMES[] = {
    "ckpt-1.safetensors",  "ckpt-9.safetensors.tmp", "ckpt-10.safetensors",
    "ckpt-33.safetensors", "ckpt-x.safetensors",     "final.safetensors",
    "losses.json",         "ckpt-9-e1.safetensors",  "ckpt-33-e1.safetensors"};

static void begins(int64_t step, const bool stays[SH_ARRAY_LEN(NAMES)])
{
    char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 64];
    struct disk_task t = {.sweep_dir = dir, .sweep_below = step};

    sh_test_dir_make(dir);
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        int fd;

        snprintf(path, sizeof(path), "%s/%s", dir, NAMES[i]);
        fd = open(path, O_CREAT | O_WRONLY, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    disk_work(&t);
    assert_int_equal(t.err.rc, 0);
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, NAMES[i]);
        if ((access(path, F_OK) == 0) != stays[i])
            fail_msg("from step %d: %s %s", (int)step, NAMES[i], stays[i] ? "is gone" : "stays");
    }
    sh_test_dir_remove(dir);
}

static void checkpoints_of_earlier_steps_go_and_no_others(void **state)
{
    (void)state;
    begins(10, (bool[]){false, false, true, true, true, true, true, false, true});
}

static void what_a_newer_attempt_has_written_stays_when_an_old_one_begins(void **state)
{
    (void)state;
    begins(0, (bool[]){true, true, true, true, true, true, true, true, true});
    begins(1, (bool[]){true, true, true, true, true, true, true, true, true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_of_earlier_steps_go_and_no_others),
        cmocka_unit_test(what_a_newer_attempt_has_written_stays_when_an_old_one_begins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
