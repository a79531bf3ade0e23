/* test_scrub.c - what one tenant leaves in device memory is gone when another tenant has it: the
 * executor's memory manager over a real device, and a worker's view of the same arena.
 *
 * Without it: a tenant could read another one's activations, and nothing else would tell.
 */
/* uses: executor/memory/space.o executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o executor/memory/transmit.o executor/memory/links.o runtime/group.o */
#include "common/clock.h"
#include "executor/memory/space.h"
#include "tests/device/dev_test.h"

#define N_BLOCKS 16u
#define ALICE 1u
#define BOB 2u
#define SECRET 0xA5
#define WAIT_NS ((int64_t)60000000000)

struct rig {
    struct sh_loop *loop;
    struct dev_mem *mem;
    struct tx *tx;
    struct space *s;
    struct dev *worker;
    unsigned char *host; /* N_BLOCKS */
};

static void rig_open(struct rig *r)
{
    const struct dev_mem_conf c = {.pool_bytes = N_BLOCKS * DEV_BLOCK, .n_lanes = 2};
    struct sh_err err = {0};

    *r = (struct rig){.host = malloc(N_BLOCKS * DEV_BLOCK)};
    assert_non_null(r->host);
    assert_ok(sh_loop_new(&r->loop, NULL));
    assert_ok_err(dev_mem_open(t_lib(), &c, &r->mem, &err), &err);
    assert_ok_err(tx_new(r->loop, r->mem, "e", &r->tx, &err), &err);
    assert_ok_err(space_new(r->tx, "e", &(struct residency_conf){0}, &r->s, &err), &err);
    r->worker = t_open_worker(r->mem);
}

static void rig_close(struct rig *r)
{
    dev_close(r->worker);
    space_free(r->s);
    tx_free(r->tx);
    dev_mem_close(r->mem);
    sh_loop_free(r->loop);
    free(r->host);
}

static void on_passed(void *arg)
{
    *(bool *)arg = true;
}

/* Until the lane is done with all that it has been given. */
static void settle(struct rig *r)
{
    int64_t end = sh_clock_ns() + WAIT_NS;
    bool passed = false;

    assert_ok(tx_mark(r->tx, TX_LANE_IN, on_passed, &passed, NULL));
    while (!passed || tx_is_busy(r->tx)) {
        assert_true(sh_clock_ns() < end);
        assert_ok(sh_loop_once(r->loop, 10000000, NULL));
    }
}

static struct space_range take(struct rig *r, uint32_t tenant, uint32_t blocks)
{
    const struct residency_need need = {
        .kind = ARENA_WORK, .tag = tenant, .spare = RESIDENCY_NO_IMAGE};
    struct space_range out = {0};
    struct sh_err err = {0};

    assert_ok_err(space_alloc(r->s, blocks * DEV_BLOCK, &need, &out, &err), &err);
    return out;
}

/* A run of the tenant that has this memory. */
static void use(struct rig *r, const struct space_range *range)
{
    struct sh_err err = {0};

    assert_ok_err(
        dev_fill(r->worker, space_offset(range), SECRET, range->blocks.n * DEV_BLOCK, &err), &err);
    assert_ok_err(dev_sync(r->worker, &err), &err);
}

static void alice_had_all(struct rig *r)
{
    struct space_range all = take(r, ALICE, N_BLOCKS);

    use(r, &all);
    space_give(r->s, &all, ALICE);
}

/* How many of the bytes [off, off + n) are the secret; all others must be 0. */
static size_t secrets(struct rig *r, size_t off, size_t n)
{
    struct sh_err err = {0};
    size_t found = 0;

    memset(r->host, 1, n);
    assert_ok_err(dev_download(r->worker, r->host, off, n, &err), &err);
    assert_ok_err(dev_sync(r->worker, &err), &err);
    for (size_t i = 0; i < n; i++) {
        found += r->host[i] == SECRET;
        if (r->host[i] != SECRET && r->host[i] != 0)
            fail_msg("byte %zu is %d", off + i, r->host[i]);
    }
    return found;
}

/* Alice runs in all of it but the first and the last block, which stay hers. */
static void a_workspace_holds_nothing_of_another_tenant(void **state)
{
    struct space_range first, most, last;
    const size_t bytes = (N_BLOCKS - 2) * DEV_BLOCK;
    struct rig r;

    (void)state;
    rig_open(&r);
    first = take(&r, ALICE, 1);
    most = take(&r, ALICE, N_BLOCKS - 2);
    last = take(&r, ALICE, 1);
    use(&r, &first);
    use(&r, &most);
    use(&r, &last);
    space_give(r.s, &most, ALICE);

    most = take(&r, ALICE, N_BLOCKS - 2); /* her own: it is still there, so it was written */
    settle(&r);
    assert_int_equal(secrets(&r, space_offset(&most), bytes), bytes);
    space_give(r.s, &most, ALICE);

    most = take(&r, BOB, N_BLOCKS - 2);
    assert_true(most.must_wait);
    settle(&r);
    assert_true(space_is_clean(r.s, &most));
    assert_int_equal(secrets(&r, space_offset(&most), bytes), 0);
    assert_int_equal(secrets(&r, space_offset(&first), DEV_BLOCK), DEV_BLOCK);
    assert_int_equal(secrets(&r, space_offset(&last), DEV_BLOCK), DEV_BLOCK);
    space_give(r.s, &most, BOB);
    space_give(r.s, &first, ALICE);
    space_give(r.s, &last, ALICE);
    rig_close(&r);
}

static void an_image_that_ends_inside_a_block_brings_nothing_along(void **state)
{
    const size_t bytes = DEV_BLOCK + 12345;
    const struct residency_image im = {.n_blocks = 2, .tag = BOB};
    struct tx_place at;
    struct rig r;
    uint32_t id;

    (void)state;
    rig_open(&r);
    alice_had_all(&r);
    assert_ok(residency_add(space_residency(r.s), &im, &id, NULL));
    assert_ok(space_place(r.s, id, bytes, true, &at, NULL));
    assert_int_equal(at.resident, 0);
    settle(&r);
    assert_int_equal(secrets(&r, at.off, bytes), bytes); /* where the copy will go */
    assert_int_equal(secrets(&r, at.off + bytes, 2 * DEV_BLOCK - bytes), 0);
    rig_close(&r);
}

/* Bob's image grows: between what it had and what comes lies a part that nobody writes to. */
static void a_part_that_no_copy_comes_to_brings_nothing_along(void **state)
{
    const struct residency_image im = {.n_blocks = 5, .short_blocks = 2, .tag = BOB};
    struct residency *res;
    struct tx_place at;
    struct rig r;
    uint32_t id;

    (void)state;
    rig_open(&r);
    res = space_residency(r.s);
    alice_had_all(&r);
    assert_ok(residency_add(res, &im, &id, NULL));
    residency_set_short(res, id, true);
    assert_ok(space_place(r.s, id, 2 * DEV_BLOCK, true, &at, NULL));
    residency_set_short(res, id, false);
    assert_ok(space_place(r.s, id, 5 * DEV_BLOCK, true, &at, NULL));
    assert_ok(space_scrub(r.s, id, 2 * DEV_BLOCK, DEV_BLOCK + 777, NULL));
    assert_false(space_is_settled(r.s, at.off + 3 * DEV_BLOCK, 1)); /* whoever has it then */
    settle(&r);
    assert_int_equal(secrets(&r, at.off, 2 * DEV_BLOCK), 2 * DEV_BLOCK);
    assert_int_equal(secrets(&r, at.off + 2 * DEV_BLOCK, DEV_BLOCK + 777), 0);
    assert_int_equal(secrets(&r, at.off + 3 * DEV_BLOCK + 777, 2 * DEV_BLOCK - 777),
                     2 * DEV_BLOCK - 777); /* where copies go */
    rig_close(&r);
}

static void an_idle_device_is_scrubbed_before_anybody_asks(void **state)
{
    struct space_range all;
    struct rig r;

    (void)state;
    rig_open(&r);
    alice_had_all(&r);
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        space_idle(r.s, 0, 0);
        settle(&r);
    }
    all = take(&r, BOB, N_BLOCKS);
    assert_false(all.must_wait);
    assert_int_equal(secrets(&r, 0, N_BLOCKS * DEV_BLOCK), 0);
    space_give(r.s, &all, BOB);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_workspace_holds_nothing_of_another_tenant),
        cmocka_unit_test(an_image_that_ends_inside_a_block_brings_nothing_along),
        cmocka_unit_test(a_part_that_no_copy_comes_to_brings_nothing_along),
        cmocka_unit_test(an_idle_device_is_scrubbed_before_anybody_asks),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
