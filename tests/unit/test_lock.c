/* test_lock.c - host memory is page-locked in pieces that end where a back end expects it. Without
 * it: on CUDA a copy over a border that nobody knows is refused, and memory could stay locked. */
/* uses: runtime/device/lock.o */
#include "runtime/device/dev.h"
#include "runtime/device/lock.h"
#include "tests/unit/sh_test.h"

#include <stdint.h>

#define MOST 16u

static struct {
    struct {
        uintptr_t at;
        size_t bytes;
    } locked[MOST];
    size_t n;
    bool refuses;
} W;

int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    const uintptr_t at = (uintptr_t)base;

    (void)m;
    if (W.refuses)
        return SH_FAIL(err, SH_E_NOMEM, "as the test wants it");
    assert_true(bytes > 0 && W.n < MOST);
    assert_int_equal(at / DEV_LOCK_PIECE, (at + bytes - 1) / DEV_LOCK_PIECE);
    W.locked[W.n].at = at;
    W.locked[W.n++].bytes = bytes;
    return SH_OK;
}

void dev_mem_host_unlock(struct dev_mem *m, void *base)
{
    (void)m;
    assert_true(W.n > 0);
    assert_int_equal(W.locked[--W.n].at, (uintptr_t)base);
}

static void it_is_locked_and_unlocked_piece_by_piece(void **state)
{
    const size_t page = 4096, piece = DEV_LOCK_PIECE;
    const struct {
        size_t at, bytes, n;
    } is[] = {{piece, page, 1},
              {piece, 3 * piece, 3},
              {piece + page, 2 * piece, 3},
              {2 * piece - page, 2 * page, 2},
              {piece - page, page, 1},
              {page, 2 * piece - page, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof(is) / sizeof(is[0]); i++) {
        char *base = (char *)NULL + is[i].at; /* nobody looks there */
        size_t locked = 0, whole = 0;

        while (locked < is[i].bytes) {
            W.refuses = true;
            assert_int_equal(dev_mem_host_lock_next(NULL, base, is[i].bytes, &locked, NULL),
                             SH_E_NOMEM);
            W.refuses = false;
            assert_int_equal(locked, whole);
            assert_ok(dev_mem_host_lock_next(NULL, base, is[i].bytes, &locked, NULL));
            assert_int_equal(W.locked[W.n - 1].at, is[i].at + whole);
            whole += W.locked[W.n - 1].bytes;
            assert_int_equal(locked, whole);
        }
        assert_int_equal(locked, is[i].bytes);
        assert_int_equal(W.n, is[i].n);
        for (size_t n = W.n; n > 0; n--) {
            assert_int_equal(W.n, n);
            dev_mem_host_unlock_last(NULL, base, &locked);
        }
        assert_int_equal(locked, 0);
        assert_int_equal(W.n, 0);
        dev_mem_host_unlock_last(NULL, base, &locked); /* nothing */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_locked_and_unlocked_piece_by_piece),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
