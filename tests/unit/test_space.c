/* test_space.c - device memory handed from one user to the next while copies are on their way.
 *
 * Without it: a run could start on weights that are still being moved, or get a workspace that a
 * late scrub zeroes under it; both answer with numbers that look like any others. */
/* uses: executor/memory/space.o executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o executor/memory/transmit.o executor/memory/links.o runtime/group.o libdevice.a */
/* link: -ldl */
#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "executor/memory/space.h"
#include "tests/unit/sh_test.h"
#include "tests/unit/space_rig.h"

#define N_BLOCKS 16u
#define MINE 1u
#define OTHERS 2u

static void settle(struct space_rig *r)
{
    int64_t end = sh_clock_ns() + 120000000000;

    while (tx_is_busy(r->tx)) {
        assert_true(sh_clock_ns() < end);
        assert_ok(sh_loop_once(r->loop, 10000000, NULL));
    }
}

static void nothing(void *arg)
{
    (void)arg;
}

static void settle_copies(struct space_rig *r)
{
    assert_ok(tx_mark(r->tx, TX_LANE_IN, nothing, NULL, NULL));
    assert_ok(tx_mark(r->tx, TX_LANE_OUT, nothing, NULL, NULL));
    settle(r);
}

static struct space_range take_as(struct space_rig *r, enum arena_kind kind, uint32_t tag,
                                  uint32_t blocks)
{
    const struct residency_need need = {.kind = kind, .tag = tag, .spare = RESIDENCY_NO_IMAGE};
    struct space_range out = {0};
    struct sh_err err = {0};

    assert_ok_err(space_alloc(r->s, blocks * DEV_BLOCK, &need, &out, &err), &err);
    return out;
}

static struct space_range take(struct space_rig *r, uint32_t tag, uint32_t blocks)
{
    return take_as(r, ARENA_WORK, tag, blocks);
}

static uint32_t add_image(struct space_rig *r, uint32_t blocks)
{
    const struct residency_image im = {.n_blocks = blocks, .tag = MINE};
    uint32_t id = 0;

    assert_ok(residency_add(space_residency(r->s), &im, &id, NULL));
    return id;
}

/* A workspace takes the tail of the image, and stays; then the head must go elsewhere. */
static void a_head_that_moves_is_announced(void **state)
{
    struct space_range low, high, ws;
    struct tx_place at;
    struct space_rig r;
    uint32_t id;
    size_t first;

    (void)state;
    space_rig_open(&r, N_BLOCKS);
    id = add_image(&r, 6);
    high = take(&r, MINE, 8);
    assert_ok(space_place(r.s, id, 6 * DEV_BLOCK, true, &at, NULL));
    assert_int_equal(at.resident, 0);
    assert_false(at.moved); /* nothing of it was there */
    first = at.off / DEV_BLOCK;
    low = take(&r, MINE, 2); /* what is left: a block or two beside the image */
    residency_truncate(space_residency(r.s), id, 3);
    ws = take(&r, MINE, 3); /* where the tail was */
    assert_int_equal(ws.blocks.first, first + 3);
    space_give(r.s, &high, MINE);
    assert_ok(space_place(r.s, id, 6 * DEV_BLOCK, true, &at, NULL));
    assert_int_equal(at.resident, 3 * DEV_BLOCK);
    assert_true(at.off / DEV_BLOCK != first);
    assert_true(at.moved);
    settle(&r);
    space_give(r.s, &low, MINE);
    space_give(r.s, &ws, MINE);
    space_rig_close(&r);
}

static void a_range_given_back_before_its_scrub_keeps_its_next_user_waiting(void **state)
{
    struct space_range all;
    struct space_rig r;

    (void)state;
    space_rig_open(&r, N_BLOCKS);
    all = take(&r, OTHERS, N_BLOCKS);
    assert_false(all.must_wait); /* never used: clean */
    space_give(r.s, &all, OTHERS);
    all = take(&r, MINE, N_BLOCKS);
    assert_true(all.must_wait);
    space_give(r.s, &all, MINE); /* it was given up before the scrub had passed */
    all = take(&r, MINE, N_BLOCKS);
    assert_true(all.must_wait);
    assert_false(space_is_clean(r.s, &all));
    settle(&r);
    assert_true(space_is_clean(r.s, &all));
    space_give(r.s, &all, MINE);
    all = take(&r, MINE, N_BLOCKS);
    assert_false(all.must_wait); /* one's own data need no scrub */
    space_give(r.s, &all, MINE);
    space_rig_close(&r);
}

/* The piece that is free behind the head is just as large as the workspace, and then the image has
 * none. */
static void a_workspace_leaves_its_image_a_piece(void **state)
{
    const struct residency_need need = {.kind = ARENA_WORK, .tag = MINE};
    const struct space_if now = {.n_given = 0};
    struct space_range ws;
    struct tx_place at;
    struct sh_err err = {0};
    struct space_rig r;
    uint32_t id, small;
    enum space_way way;

    (void)state;
    space_rig_open(&r, N_BLOCKS);
    id = add_image(&r, N_BLOCKS - 4);
    small = add_image(&r, 1);
    assert_ok(space_place(r.s, id, (N_BLOCKS - 4) * DEV_BLOCK, true, &at, NULL));
    assert_ok(space_place(r.s, small, DEV_BLOCK, true, &at, NULL));
    residency_truncate(space_residency(r.s), id, N_BLOCKS - 8);
    assert_ok_err(space_find_way(r.s, id, 4 * DEV_BLOCK, &need, &now, &way, &err), &err);
    assert_int_equal(way, SPACE_TOGETHER);
    assert_int_equal(residency_held(space_residency(r.s), id), N_BLOCKS - 8); /* it only asked */
    assert_ok_err(space_alloc_beside(r.s, id, 4 * DEV_BLOCK, way, &need, &ws, &err), &err);
    assert_ok_err(space_place(r.s, id, (N_BLOCKS - 4) * DEV_BLOCK, true, &at, &err), &err);
    assert_int_equal(space_bytes(r.s, ARENA_FREE), 0);
    residency_pin(space_residency(r.s), id); /* as while it arrives */
    assert_fails(space_find_way(r.s, small, DEV_BLOCK, &need, &now, &way, &err), SH_E_DEVMEM, &err,
                 "could not find 2 MiB"); /* by itself, not with its image */
    assert_ok(space_find_way(r.s, small, DEV_BLOCK, &need, &(struct space_if){.is_unpinned = true},
                             &way, NULL));
    residency_unpin(space_residency(r.s), id);
    settle(&r);
    space_give(r.s, &ws, MINE);
    space_rig_close(&r);
}

/* Two that nobody has used for long leave 4 blocks each, and between them is one in use. */
static void nothing_is_cleared_for_an_image_that_would_have_no_place(void **state)
{
    uint32_t stale[2], used, large, small;
    struct residency *res;
    struct tx_place at;
    struct space_rig r;

    (void)state;
    space_rig_open(&r, N_BLOCKS);
    res = space_residency(r.s);
    stale[0] = add_image(&r, 4);
    used = add_image(&r, N_BLOCKS - 8);
    stale[1] = add_image(&r, 4);
    assert_ok(space_place(r.s, stale[0], 4 * DEV_BLOCK, true, &at, NULL));
    assert_ok(space_place(r.s, used, (N_BLOCKS - 8) * DEV_BLOCK, true, &at, NULL));
    assert_ok(space_place(r.s, stale[1], 4 * DEV_BLOCK, true, &at, NULL));
    residency_pin(res, used);
    large = add_image(&r, 8);
    small = add_image(&r, 4);
    space_clear(r.s, large, 8 * DEV_BLOCK, 0);
    assert_int_equal(residency_held(res, stale[0]) + residency_held(res, stale[1]), 8);
    space_clear(r.s, large, 9 * DEV_BLOCK, 0); /* more than there is */
    assert_int_equal(space_bytes(r.s, ARENA_FREE), 0);
    space_clear(r.s, small, 4 * DEV_BLOCK, 0);
    assert_int_equal(space_bytes(r.s, ARENA_FREE), 4 * DEV_BLOCK);
    assert_ok(space_place(r.s, small, 4 * DEV_BLOCK, false, &at, NULL));
    residency_unpin(res, used);
    space_rig_close(&r);
}

/* In blocks; of no rule: of all. */
static double evicted(const char *rule)
{
    char line[96];
    struct sh_buf text;
    struct sh_err err = {0};
    double sum = 0;

    snprintf(line, sizeof(line), "\nshunt_evicted_bytes_total{executor=\"e\",rule=\"%s", rule);
    sh_buf_init(&text, 1 << 20);
    assert_ok_err(sh_metrics_render('e', &text, &err), &err);
    for (const char *at = text.data; at && (at = strstr(at, line)); at++)
        sum += strtod(strchr(at, '}') + 1, NULL);
    sh_buf_fini(&text);
    return sum / (double)DEV_BLOCK;
}

static void what_is_evicted_is_counted_by_what_the_room_was_for(void **state)
{
    struct space_range ws, training;
    struct tx_place at;
    struct space_rig r;
    uint32_t first, second;

    (void)state;
    sh_metrics_reset();
    sh_clock_fake(1000000000, 0);
    space_rig_open(&r, N_BLOCKS);
    first = add_image(&r, 10);
    second = add_image(&r, 10);
    assert_ok(space_place(r.s, first, 10 * DEV_BLOCK, true, &at, NULL));
    assert_true(evicted("") == 0);
    assert_ok(space_place(r.s, second, 10 * DEV_BLOCK, true, &at, NULL));
    assert_true(evicted("image") == 4 && evicted("") == 4);
    ws = take(&r, MINE, 8);
    assert_true(evicted("workspace") == 8);
    space_give(r.s, &ws, MINE);
    training = take_as(&r, ARENA_TRAIN, MINE, 12);
    assert_true(evicted("training") == 4);
    space_give(r.s, &training, MINE);
    space_idle(r.s, 100, 100); /* what is left was in use a moment ago */
    assert_true(evicted("idle") == 0);
    sh_clock_advance(3000000000);
    space_idle(r.s, 100, 100);
    assert_true(evicted("idle") == 4);
    assert_true(evicted("") == 20); /* all that there was */
    space_rig_close(&r);
    sh_clock_real();
}

/* A packed image writes only the end of its range until a run unpacks it. If it is evicted before,
 * what others left in the rest of the range must not come to its tenant as that tenant's own. */
static void what_a_packed_image_has_not_written_stays_foreign(void **state)
{
    static const uint64_t ends[] = {2 * DEV_BLOCK, 4 * DEV_BLOCK};
    static const uint64_t links[] = {DEV_BLOCK, 2 * DEV_BLOCK};
    static const double ns[] = {1000, 1000};
    static char secret[N_BLOCKS * DEV_BLOCK], weights[2 * DEV_BLOCK], got[DEV_BLOCK];
    struct tx_image im = {.slot = TX_SLOT_IMAGE,
                          .host = weights,
                          .bytes = sizeof(weights),
                          .n_layers = 2,
                          .layer_ends = links,
                          .device_ends = ends,
                          .shift = 3 * DEV_BLOCK}; /* shift_of() */
    struct space_range all, ws;
    struct tx_place at;
    struct space_rig r;
    uint32_t id;

    (void)state;
    space_rig_open(&r, N_BLOCKS);
    memset(secret, 's', sizeof(secret));
    memset(weights, 'w', sizeof(weights));
    all = take(&r, OTHERS, N_BLOCKS);
    assert_ok(tx_in(r.tx, TX_STATE, 0, secret, sizeof(secret), NULL));
    settle_copies(&r);
    space_give(r.s, &all, OTHERS);
    id = add_image(&r, 5);
    im.slot += id;
    assert_ok(space_place(r.s, id, 4 * DEV_BLOCK, true, &at, NULL));
    residency_set_packed(space_residency(r.s), id, true);
    assert_ok(tx_load_begin(r.tx, &im, &at, ns, NULL));
    assert_ok(tx_load_rest(r.tx, &im, nothing, NULL, NULL));
    settle(&r);
    tx_image_arrived(r.tx, &im);
    residency_truncate(space_residency(r.s), id, 0); /* evicted, or unloaded: no run has come */
    ws = take(&r, MINE, 5);
    settle(&r);
    for (uint32_t b = 0; b < 5; b++) {
        assert_ok(
            tx_out(r.tx, TX_STATE, space_offset(&ws) + b * DEV_BLOCK, got, sizeof(got), NULL));
        settle_copies(&r);
        assert_null(memchr(got, 's', sizeof(got)));
    }
    space_give(r.s, &ws, MINE);
    tx_image_fini(&im);
    space_rig_close(&r);
}

/* Its weights are all there, unpacked, and only the end of its range, where they lay packed, is
 * gone: it can be computed with as it is. */
static void an_unpacked_image_needs_no_room_for_packed_layers(void **state)
{
    const struct residency_image im = {.n_blocks = 5, .unpacked_blocks = 4, .tag = MINE};
    struct sh_err err = {0};
    struct space_range ws;
    struct tx_place at;
    struct space_rig r;
    uint32_t id;
    size_t off;

    (void)state;
    space_rig_open(&r, N_BLOCKS);
    assert_ok(residency_add(space_residency(r.s), &im, &id, NULL));
    assert_ok(space_place(r.s, id, 4 * DEV_BLOCK, true, &at, NULL));
    off = at.off;
    residency_truncate(space_residency(r.s), id, 4); /* model_resident_bytes() = image_bytes */
    ws = take(&r, MINE, N_BLOCKS - 4);
    assert_ok_err(space_place(r.s, id, 4 * DEV_BLOCK, true, &at, &err), &err);
    assert_int_equal(at.off, off);
    assert_false(at.moved);
    settle(&r);
    space_give(r.s, &ws, MINE);
    space_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_that_moves_is_announced),
        cmocka_unit_test(a_range_given_back_before_its_scrub_keeps_its_next_user_waiting),
        cmocka_unit_test(a_workspace_leaves_its_image_a_piece),
        cmocka_unit_test(nothing_is_cleared_for_an_image_that_would_have_no_place),
        cmocka_unit_test(what_is_evicted_is_counted_by_what_the_room_was_for),
        cmocka_unit_test(what_a_packed_image_has_not_written_stays_foreign),
        cmocka_unit_test(an_unpacked_image_needs_no_room_for_packed_layers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
