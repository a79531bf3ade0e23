/* test_host_lock.c - host memory that is page-locked as that of images is: in pieces, and mapped
 * for reading only (executor/models/share.h).
 *
 * Without it: an image that shares chunks with others could not be locked, or its copies would be
 * refused.
 */
#include "common/mem.h"
#include "common/shm.h"
#include "runtime/device/lock.h"
#include "tests/device/dev_test.h"

#include <stdlib.h>

static struct dev_mem *open_one_lane(void)
{
    const struct dev_mem_conf c = {.pool_bytes = (size_t)32 << 20, .n_lanes = 1};
    struct dev_mem *m = NULL;
    struct sh_err err = {0};

    assert_ok_err(dev_mem_open(t_lib(), &c, &m, &err), &err);
    return m;
}

/* With all pieces locked, one of them, none, and all again. */
static void copies_cross_the_borders_of_pieces(void **state)
{
    const size_t n = 3 * DEV_LOCK_PIECE, around = (size_t)3 << 20;
    struct dev_mem *m = open_one_lane();
    struct sh_shm shm;
    struct sh_err err = {0};
    unsigned char *border, *want = t_pattern(around);
    size_t locked = 0;

    (void)state;
    assert_ok_err(sh_shm_create("image", n, &shm, &err), &err);
    border = (unsigned char *)SH_ALIGN_UP((uintptr_t)shm.base + 1, DEV_LOCK_PIECE);
    for (int turn = 0; turn < 4; turn++) {
        unsigned char *at = border - around / 3;

        while (turn % 3 == 0 && locked < n)
            assert_ok_err(dev_mem_host_lock_next(m, shm.base, n, &locked, &err), &err);
        while (locked > (turn == 1 ? (size_t)(border - (unsigned char *)shm.base) : 0) && turn % 3)
            dev_mem_host_unlock_last(m, shm.base, &locked);
        want[around / 3] = (unsigned char)turn;
        memcpy(at, want, around);
        assert_ok_err(dev_mem_copy(m, 0, DEV_H2D, 4096, at, around, &err), &err);
        assert_ok_err(dev_mem_mark(m, 0, 1, &err), &err);
        t_wait_mark(m);
        memset(at, 0, around);
        assert_ok_err(dev_mem_copy(m, 0, DEV_D2H, 4096, at, around, &err), &err);
        assert_ok_err(dev_mem_mark(m, 0, 2, &err), &err);
        t_wait_mark(m);
        assert_memory_equal(want, at, around);
    }
    while (locked)
        dev_mem_host_unlock_last(m, shm.base, &locked);
    sh_shm_fini(&shm);
    dev_mem_close(m);
    free(want);
}

/* Two images are mapped for reading only, and show the same pages. */
static void memory_that_cannot_be_written_is_locked_and_copied(void **state)
{
    const size_t n = 304 * 1024, at = 64 * 1024;
    unsigned char *want = t_pattern(n), *got = t_pattern(n);
    struct sh_shm image[2];
    struct dev_mem *m = open_one_lane();
    struct sh_err err = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_ok_err(sh_shm_create("image", n, &image[i], &err), &err);
        memcpy(image[i].base, want, i ? at : n);
        assert_ok_err(sh_shm_close_to_writes(&image[i], &err), &err);
        assert_ok_err(sh_shm_show(&image[i], &image[0], at, n - at, &err), &err);
        assert_ok_err(dev_mem_host_lock(m, image[i].base, n, &err), &err);
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(dev_mem_copy(m, 0, DEV_H2D, 0, image[i].base, n, &err));
        assert_ok(dev_mem_copy(m, 0, DEV_D2H, 0, memset(got, 0, n), n, &err));
        assert_ok(dev_mem_mark(m, 0, 1, &err));
        t_wait_mark(m);
        assert_memory_equal(want, got, n);
        dev_mem_host_unlock(m, image[i].base);
        sh_shm_fini(&image[i]);
    }
    dev_mem_close(m);
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_cannot_be_written_is_locked_and_copied),
        cmocka_unit_test(copies_cross_the_borders_of_pieces),
    };

    return cmocka_run_group_tests_name("host_lock", tests, t_setup, t_teardown);
}
