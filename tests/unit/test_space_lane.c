/* test_space_lane.c - device memory while the copy lane stands still, on the fake device.
 *
 * Without it: a run could compute over a head that has not moved yet, a scrub that is still on the
 * lane could wipe the inputs of the run that got the blocks meanwhile, a head could be overwritten
 * before it was read, or a tenant could get what another left behind the end of an image. */
/* uses: executor/memory/space.o executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o executor/memory/transmit.o executor/memory/links.o runtime/group.o tests/device/fake/fake_mem.o tests/device/fake/fake_dev.o libdevice.a */
#include "common/clock.h"
#include "common/mem.h"
#include "executor/memory/space.h"
#include "tests/device/fake/fake.h"
#include "tests/unit/sh_test.h"

#define N_BLOCKS 8u
#define BYTES (4 * DEV_BLOCK - 4096) /* of the image: does not fill its last block */
#define MINE 1u
#define THEIRS 2u

struct rig {
    struct dev_ops ops;
    struct dev_mem_ops mem_ops;
    struct sh_loop *loop;
    struct dev_lib *lib;
    struct dev_mem *mem;
    struct dev *dev;
    struct tx *tx;
    struct space *space;
    struct tx_image im;
    uint32_t image; /* of MINE */
    unsigned char *host;
    uint64_t ends[4];
    double ns[4];
    int arrived;
};

static bool refuses_marks;

static int flaky_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie, struct sh_err *err)
{
    if (refuses_marks)
        return SH_FAIL(err, SH_E_QUEUEFULL, "no marks today");
    return fake__mem_mark(m, lane, cookie, err);
}

static void open_device(struct rig *r)
{
    const struct dev_mem_conf mc = {
        .pool_bytes = N_BLOCKS * DEV_BLOCK, .n_lanes = 2, .copy_latency_us = 50};
    int fds[DEV_MAX_FDS];
    struct dev_conf dc = {.arena_bytes = mc.pool_bytes, .fds = fds};

    r->ops = shunt_dev_ops;
    r->mem_ops = *shunt_dev_ops.mem;
    r->mem_ops.mark = flaky_mark;
    r->ops.mem = &r->mem_ops;
    refuses_marks = false;
    assert_ok(dev_lib_wrap(&r->ops, &r->lib, NULL));
    assert_ok(dev_mem_open(r->lib, &mc, &r->mem, NULL));
    assert_ok(dev_mem_export(r->mem, fds, &dc.n_fds, NULL));
    assert_ok(dev_open(r->lib, &dc, &r->dev, NULL));
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof(*r));
    const struct residency_image ri = {.n_blocks = 4, .keep_blocks = 4, .tag = MINE};
    struct sh_err err = {0};

    assert_non_null(r);
    assert_ok(sh_loop_new(&r->loop, NULL));
    open_device(r);
    assert_ok_err(tx_new(r->loop, r->mem, "e", &r->tx, &err), &err);
    assert_ok(dev_fill(r->dev, 0, 0, N_BLOCKS * DEV_BLOCK, NULL)); /* what measuring left */
    assert_ok_err(space_new(r->tx, "e", &(struct residency_conf){0}, &r->space, &err), &err);
    assert_ok(residency_add(space_residency(r->space), &ri, &r->image, NULL));
    r->host = malloc(BYTES);
    assert_non_null(r->host);
    memset(r->host, 0xA5, BYTES);
    for (uint32_t i = 0; i < 4; i++)
        r->ends[i] = SH_MIN((uint64_t)(i + 1) * DEV_BLOCK, (uint64_t)BYTES);
    r->im = (struct tx_image){.slot = TX_SLOT_IMAGE,
                              .host = (const char *)r->host,
                              .bytes = BYTES,
                              .n_layers = 4,
                              .layer_ends = r->ends};
    sh_clock_fake(sh_clock_ns(), 0); /* from here on the lane moves only in pass() */
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    sh_clock_real();
    space_free(r->space);
    tx_image_fini(&r->im);
    tx_free(r->tx);
    dev_close(r->dev);
    dev_mem_close(r->mem);
    dev_lib_close(r->lib);
    sh_loop_free(r->loop);
    free(r->host);
    free(r);
    return 0;
}

/* Everything on the lanes is done, and its marks have come. */
static void pass(struct rig *r)
{
    sh_clock_advance(10000000); /* also the real time that the lane's timer waits for */
    for (int i = 0; i < 1000 && tx_is_busy(r->tx); i++)
        assert_ok(sh_loop_once(r->loop, 10000000, NULL));
    assert_false(tx_is_busy(r->tx));
}

/* Something that the lane is busy with until pass(). */
static void hold_lane(struct rig *r)
{
    assert_ok(tx_in(r->tx, TX_WEIGHTS, (N_BLOCKS - 1) * DEV_BLOCK, r->host, 1, NULL));
}

static struct space_range take(struct rig *r, uint32_t blocks, uint32_t tag)
{
    const struct residency_need need = {
        .kind = ARENA_WORK, .tag = tag, .spare = RESIDENCY_NO_IMAGE};
    struct space_range out;
    struct sh_err err = {0};

    assert_ok_err(space_alloc(r->space, blocks * DEV_BLOCK, &need, &out, &err), &err);
    return out;
}

static struct tx_place place(struct rig *r)
{
    struct tx_place at;
    struct sh_err err = {0};

    assert_ok_err(space_place(r->space, r->image, BYTES, true, &at, &err), &err);
    return at;
}

static void on_arrived(void *arg)
{
    struct rig *r = arg;

    r->arrived++;
    tx_image_arrived(r->tx, &r->im);
}

static int load(struct rig *r, const struct tx_place *at)
{
    int rc = tx_load_begin(r->tx, &r->im, at, r->ns, NULL);

    return rc ? rc : tx_load_rest(r->tx, &r->im, on_arrived, r, NULL);
}

static unsigned char byte_at(struct rig *r, size_t off)
{
    unsigned char b = 0;

    assert_ok(dev_download(r->dev, &b, off, 1, NULL));
    return b;
}

/* The image lies whole in blocks 0 to 3, then only its first block is left, and what lay behind it
 * is taken: its next place is elsewhere. *wall: the range in the way. */
static struct tx_place relocate(struct rig *r, struct space_range *wall)
{
    struct tx_place at = place(r);
    struct space_range high;

    assert_int_equal(at.off, 0);
    assert_ok(load(r, &at));
    pass(r);
    residency_truncate(space_residency(r->space), r->image, 1);
    high = take(r, 4, MINE); /* from the far end: 4 to 7 */
    *wall = take(r, 1, MINE);
    assert_int_equal(space_offset(wall), 3 * DEV_BLOCK);
    space_give(r->space, &high, MINE);
    hold_lane(r);
    return place(r);
}

static void a_head_that_moves_has_a_ticket_that_comes_after_it(void **state)
{
    struct rig *r = *state;
    struct space_range wall;
    struct tx_place at = relocate(r, &wall);
    struct msg_group head;

    assert_true(at.moved);
    assert_int_equal(at.off, 4 * DEV_BLOCK);
    assert_int_equal(at.resident, DEV_BLOCK);
    assert_ok(load(r, &at));
    head = r->im.groups[0];
    assert_int_equal(head.end_layer, 1); /* it misses nothing */
    assert_int_equal(head.ticket_slot, TX_SLOT_IMAGE);
    assert_true((int32_t)(dev_ticket_value(r->mem, TX_SLOT_IMAGE) - head.ticket_value) < 0);
    assert_int_equal(byte_at(r, at.off), 0);
    r->arrived = 0;
    pass(r);
    assert_int_equal(r->arrived, 1);
    assert_true((int32_t)(dev_ticket_value(r->mem, TX_SLOT_IMAGE) - head.ticket_value) >= 0);
    assert_int_equal(byte_at(r, at.off), 0xA5);
    assert_int_equal(byte_at(r, at.off + BYTES - 1), 0xA5);
}

static void an_image_that_only_moves_is_one_group_with_a_ticket(void **state)
{
    struct rig *r = *state;
    const struct tx_place at = {.off = 0, .resident = BYTES, .moved = true};

    hold_lane(r);
    assert_ok(load(r, &at));
    assert_true(tx_image_busy(&r->im));
    assert_int_equal(r->im.n_groups, 1);
    assert_int_equal(r->im.groups[0].end_layer, 4);
    assert_int_equal(r->im.groups[0].ticket_slot, TX_SLOT_IMAGE);
    assert_int_equal(dev_ticket_value(r->mem, TX_SLOT_IMAGE), 0);
    pass(r);
    assert_int_equal(dev_ticket_value(r->mem, TX_SLOT_IMAGE), r->im.groups[0].ticket_value);
}

static void what_a_head_leaves_is_not_used_before_it_was_read(void **state)
{
    struct rig *r = *state;
    struct space_range wall, a;
    struct tx_place at = relocate(r, &wall);

    assert_true(at.moved);
    a = take(r, 3, MINE); /* 0 to 2: the head lay in block 0; the same tenant: no scrub */
    assert_int_equal(space_offset(&a), 0);
    assert_true(a.must_wait);
    assert_false(space_is_clean(r->space, &a));
    pass(r);
    assert_true(space_is_clean(r->space, &a));
    assert_int_equal(byte_at(r, at.off), 0xA5);
}

static void what_a_sibling_gives_is_not_used_before_it_was_read(void **state)
{
    struct rig *r = *state;
    struct tx_place at = place(r);
    struct space_range a;

    assert_ok(load(r, &at));
    pass(r);
    hold_lane(r);
    refuses_marks = true; /* it counts as not copied, and the image stays what it is */
    assert_false(space_copy(r->space, 4 * DEV_BLOCK, r->image, 0, DEV_BLOCK));
    refuses_marks = false;
    assert_ok(residency_check(space_residency(r->space), NULL));
    assert_int_equal(residency_held(space_residency(r->space), r->image), 4);
    assert_true(space_is_settled(r->space, 0, N_BLOCKS * DEV_BLOCK));
    assert_true(space_copy(r->space, 4 * DEV_BLOCK + 7, r->image, DEV_BLOCK + 9, DEV_BLOCK));
    residency_truncate(space_residency(r->space), r->image, 0);
    assert_true(space_is_settled(r->space, 0, DEV_BLOCK));
    assert_false(space_is_settled(r->space, 2 * DEV_BLOCK, DEV_BLOCK)); /* its last bytes */
    a = take(r, N_BLOCKS, MINE);
    assert_true(a.must_wait);
    pass(r);
    assert_true(space_is_clean(r->space, &a));
    assert_int_equal(byte_at(r, 4 * DEV_BLOCK + 7), 0xA5);
    assert_int_equal(byte_at(r, 5 * DEV_BLOCK + 6), 0xA5);
    assert_int_equal(byte_at(r, 5 * DEV_BLOCK + 7), 0);
    space_give(r->space, &a, MINE);
}

static void a_move_that_cannot_be_noted_leaves_blocks_that_are_scrubbed_behind_it(void **state)
{
    struct rig *r = *state;
    struct space_range high, wall, a;
    struct tx_place at = place(r);

    assert_ok(load(r, &at));
    pass(r);
    residency_truncate(space_residency(r->space), r->image, 1);
    high = take(r, 4, MINE);
    wall = take(r, 1, MINE);
    space_give(r->space, &high, MINE);
    hold_lane(r);
    refuses_marks = true;
    at = place(r);
    refuses_marks = false;
    assert_true(at.moved);
    a = take(r, 3, MINE);
    assert_true(a.must_wait);
    pass(r);
    assert_true(space_is_clean(r->space, &a));
    assert_int_equal(byte_at(r, 0), 0);
    assert_int_equal(byte_at(r, at.off), 0xA5);
    space_give(r->space, &wall, MINE);
}

static void a_scrub_on_its_way_outlives_whom_it_was_for(void **state)
{
    struct rig *r = *state;
    struct space_range a = take(r, N_BLOCKS, THEIRS);

    space_give(r->space, &a, THEIRS);
    hold_lane(r);
    a = take(r, N_BLOCKS, MINE);
    assert_true(a.must_wait);
    space_give(r->space, &a, MINE); /* its image found no room */
    a = take(r, N_BLOCKS, MINE);
    assert_true(a.must_wait); /* inputs written now would be zeroed */
    assert_false(space_is_clean(r->space, &a));
    pass(r);
    assert_true(space_is_clean(r->space, &a));
}

static void the_first_of_two_scrubs_does_not_end_the_wait(void **state)
{
    struct rig *r = *state;
    struct space_range a = take(r, N_BLOCKS, THEIRS);

    space_give(r->space, &a, THEIRS);
    hold_lane(r);
    a = take(r, N_BLOCKS, MINE);
    space_give(r->space, &a, MINE);
    hold_lane(r); /* between the two: the first is done 50 us before the second */
    a = take(r, N_BLOCKS, THEIRS);
    sh_clock_advance(60000);
    for (int i = 0; i < 10; i++)
        assert_ok(sh_loop_once(r->loop, 1000000, NULL));
    assert_true(tx_is_busy(r->tx));
    assert_false(space_is_clean(r->space, &a));
    assert_true(
        arena_has_tag(residency_arena(space_residency(r->space)), a.blocks, ARENA_SCRUBBING));
    pass(r);
    assert_true(space_is_clean(r->space, &a));
    assert_false(
        arena_has_tag(residency_arena(space_residency(r->space)), a.blocks, ARENA_SCRUBBING));
}

static void a_failed_scrub_leaves_nothing_under_the_tag_of_the_next(void **state)
{
    struct rig *r = *state;
    const struct residency_need need = {
        .kind = ARENA_WORK, .tag = MINE, .spare = RESIDENCY_NO_IMAGE};
    struct space_range a = take(r, N_BLOCKS, THEIRS);

    assert_ok(dev_fill(r->dev, 0, 0x77, N_BLOCKS * DEV_BLOCK, NULL));
    space_give(r->space, &a, THEIRS);
    refuses_marks = true;
    assert_int_equal(space_alloc(r->space, N_BLOCKS * DEV_BLOCK, &need, &a, NULL), SH_E_QUEUEFULL);
    refuses_marks = false;
    a = take(r, N_BLOCKS, MINE);
    assert_true(a.must_wait);
    pass(r);
    assert_int_equal(byte_at(r, 0), 0);
}

static void behind_the_end_of_an_image_nothing_of_others_is_left(void **state)
{
    struct rig *r = *state;
    struct space_range a = take(r, N_BLOCKS, THEIRS);
    struct tx_place at;

    assert_ok(dev_fill(r->dev, 0, 0x77, N_BLOCKS * DEV_BLOCK, NULL));
    space_give(r->space, &a, THEIRS);
    at = place(r);
    assert_ok(load(r, &at));
    pass(r);
    assert_int_equal(byte_at(r, at.off + BYTES - 1), 0xA5);
    assert_int_equal(byte_at(r, at.off + BYTES), 0);
    assert_int_equal(byte_at(r, at.off + 4 * DEV_BLOCK - 1), 0);
    assert_int_equal(byte_at(r, at.off + 4 * DEV_BLOCK), 0x77); /* not its own */
}

/* That of a packed image is longer than the image. */
static void what_is_clean_behind_the_end_of_an_image_is_left_alone(void **state)
{
    struct rig *r = *state;
    const uint64_t bytes = DEV_BLOCK + 4096;
    struct space_range wall = take(r, 4, MINE), theirs = take(r, 2, THEIRS);
    struct tx_place at;

    assert_int_equal(space_offset(&theirs), 2 * DEV_BLOCK);
    assert_ok(dev_fill(r->dev, 0, 0x77, N_BLOCKS * DEV_BLOCK, NULL));
    space_give(r->space, &wall, MINE);
    space_give(r->space, &theirs, THEIRS);
    assert_ok(space_place(r->space, r->image, bytes, true, &at, NULL));
    assert_int_equal(at.off, 0);
    pass(r);
    assert_int_equal(byte_at(r, DEV_BLOCK), 0x77); /* nobody had it */
    assert_int_equal(byte_at(r, 2 * DEV_BLOCK - 1), 0x77);
    assert_int_equal(byte_at(r, 2 * DEV_BLOCK), 0);
    assert_int_equal(byte_at(r, 4 * DEV_BLOCK - 1), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_head_that_moves_has_a_ticket_that_comes_after_it),
        T(an_image_that_only_moves_is_one_group_with_a_ticket),
        T(what_a_head_leaves_is_not_used_before_it_was_read),
        T(what_a_sibling_gives_is_not_used_before_it_was_read),
        T(a_move_that_cannot_be_noted_leaves_blocks_that_are_scrubbed_behind_it),
        T(a_scrub_on_its_way_outlives_whom_it_was_for),
        T(the_first_of_two_scrubs_does_not_end_the_wait),
        T(a_failed_scrub_leaves_nothing_under_the_tag_of_the_next),
        T(behind_the_end_of_an_image_nothing_of_others_is_left),
        T(what_is_clean_behind_the_end_of_an_image_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
