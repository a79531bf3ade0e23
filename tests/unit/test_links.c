/* test_links.c - images divided over several links of unequal speed, on the fake device.
 *
 * Without it: a run could be told of a group of which one link still carries a part, and a part
 * could be written over what came to its place later, or be wiped by a scrub that was there before
 * it. */
/* uses: executor/memory/transmit.o executor/memory/links.o runtime/group.o tests/device/fake/fake_mem.o tests/device/fake/fake_dev.o libdevice.a */
/* link: -Wl,--wrap=dev_mem_measure */
#include "common/log.h"
#include "tests/unit/links_rig.h"

#include <math.h>

/* ------------------------------------------------------------------ one link */

/* What the device is given is what it was given before there were several: no call more. */
static void with_one_link_all_goes_to_one_lane(void **state)
{
    struct rig *r = rig_open(ONE, 1);

    (void)state;
    assert_ok(tx_zero(r->tx, 0, BYTES, NULL));
    n_calls = 0;
    assert_ok(load(r, &(struct tx_place){0}));
    assert_true(r->im.n_groups > 1);
    assert_int_equal(n_calls, 2 * r->im.n_groups + 1);
    for (uint32_t i = 0; i < n_calls; i++) {
        assert_int_equal(calls[i].kind, i + 1 == n_calls ? 'm' : i % 2 ? 't' : 'c');
        assert_int_equal(calls[i].lane, 0);
    }
    pass(r, SH_MS(10));
    assert_int_equal(r->arrived, 1);
    assert_memory_equal(arena(r), r->host, BYTES);
    rig_close(r);
}

static void a_device_without_other_links_says_so(void **state)
{
    struct dev_mem_ops mem = *shunt_dev_ops.mem;
    struct dev_ops ops = shunt_dev_ops;
    struct dev_mem_conf c = {.pool_bytes = POOL};
    struct dev_lib *lib = NULL;
    struct dev_mem *m = NULL;
    struct sh_err err = {0};

    (void)state;
    mem.follow = NULL;
    ops.mem = &mem;
    links_lanes(&c, 2);
    assert_ok(dev_lib_wrap(&ops, &lib, NULL));
    assert_fails(dev_mem_open(lib, &c, &m, &err), SH_E_UNSUPPORTED, &err, "by one link, not by 2");
    assert_null(m);
    links_lanes(&c, 1);
    memset(c.links, 0, sizeof(c.links));
    assert_ok(dev_mem_open(lib, &c, &m, NULL));
    assert_int_equal(dev_mem_follow(m, 0, 1, NULL), SH_E_BUG);
    dev_mem_close(m);
    dev_lib_close(lib);
}

/* ------------------------------------------------------------------ how it is divided */

/* Of two links, every division in steps of 256 bytes: none ends sooner. Of four, all end
 * together. */
static void a_group_is_divided_so_that_its_parts_end_together(void **state)
{
    uint64_t parts[LINKS_MAX];
    struct links l;
    struct rig *r = rig_open(TWO, 2);

    (void)state;
    assert_ok(links_init(&l, r->mem, NULL));
    for (uint64_t bytes = 4096; bytes < 1000000; bytes = bytes * 3 / 2 / 256 * 256) {
        double took, best = 1e18;

        links_divide(&l, sh_clock_ns(), bytes, parts);
        assert_int_equal(parts[0] + parts[1], bytes);
        took = 5000 + (double)parts[0];
        if (parts[1])
            took = SH_MAX(took, 9000 + 2 * (double)parts[1]);
        for (uint64_t a = 0; a <= bytes; a += 256) {
            double t = a ? 5000 + (double)a : 0;

            if (a < bytes)
                t = SH_MAX(t, 9000 + 2 * (double)(bytes - a));
            best = SH_MIN(best, t);
        }
        assert_true(took <= best + (parts[1] ? 512 : 10000)); /* small parts are not worth it */
        if (parts[1])
            assert_true(took <= links_ns(l.ways, l.n_ways, bytes) + 512);
    }
    rig_close(r);
    r = rig_open(FOUR, 4);
    assert_ok(links_init(&l, r->mem, NULL));
    links_divide(&l, sh_clock_ns(), BYTES, parts);
    for (uint32_t k = 0; k < 4; k++) {
        const double end = FOUR[k].latency_us * 1e3 + (double)parts[k] / FOUR[k].gb_per_s;

        assert_true(parts[k] > 0);
        assert_true(end > links_ns(l.ways, l.n_ways, BYTES) - 1000);
        assert_true(end < links_ns(l.ways, l.n_ways, BYTES) + 1000);
    }
    rig_close(r);
}

static void it_arrives_as_early_as_all_links_allow(void **state)
{
    static const struct {
        const struct speed *speeds;
        uint32_t n;
        double gb_per_s;
    } SYSTEMS[] = {{ONE, 1, 1}, {TWO, 2, 1.5}, {FOUR, 4, 4.3}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(SYSTEMS); i++) {
        struct rig *r = rig_open(SYSTEMS[i].speeds, SYSTEMS[i].n);
        const int64_t least = (int64_t)(BYTES / SYSTEMS[i].gb_per_s);
        int64_t most;

        assert_ok(load(r, &(struct tx_place){0}));
        most = least + 20000 * r->im.n_groups;
        assert_true(r->im.predicted_ns >= least && r->im.predicted_ns <= most);
        assert_true(tx_backlog_ns(r->tx) >= (double)least && tx_backlog_ns(r->tx) <= (double)most);
        pass(r, least - 1000);
        assert_int_equal(r->arrived, 0);
        pass(r, most - least + 1000);
        assert_int_equal(r->arrived, 1);
        assert_memory_equal(arena(r), r->host, BYTES);
        rig_close(r);
    }
}

/* A part of a small group would not be worth the order it costs. */
static void a_small_image_goes_by_the_link_that_begins_first(void **state)
{
    struct rig *r = rig_open(FOUR, 4);

    (void)state;
    for (uint32_t i = 0; i < N_LAYERS; i++)
        r->ends[i] = (i + 1) * 64;
    r->im.bytes = N_LAYERS * 64;
    assert_ok(load(r, &(struct tx_place){0}));
    assert_int_equal(count('c', 0), r->im.n_groups);
    for (uint32_t lane = 1; lane < 6; lane++)
        assert_int_equal(count('c', lane) + count('f', lane) + count('t', lane), 0);
    assert_int_equal(count('f', 0), 0);
    rig_close(r);
}

/* ------------------------------------------------------------------ order */

static void a_ticket_comes_behind_the_last_part(void **state)
{
    (void)state;
    for (uint32_t held = 0; held < 5; held++) { /* the last: the tickets' own lane */
        struct rig *r = rig_open(FOUR, 4);

        fake__hold(r->mem, held, true);
        assert_ok(load(r, &(struct tx_place){0}));
        assert_true(count(held < 4 ? 'c' : 't', held) > 0);
        pass(r, SH_MS(50));
        assert_true(check_tickets(r, 0) < r->im.n_groups);
        assert_int_equal(r->arrived, 0);
        fake__hold(r->mem, held, false);
        look(r);
        assert_true(has_come(r, r->im.value));
        assert_int_equal(r->arrived, 1);
        assert_memory_equal(arena(r), r->host, BYTES);
        rig_close(r);
    }
}

/* At each moment: of whom the ticket has come, all bytes are there. */
static void no_ticket_is_there_before_its_bytes(void **state)
{
    struct rig *r = rig_open(FOUR, 4);
    uint32_t seen = 0;

    (void)state;
    assert_ok(load(r, &(struct tx_place){.off = 4096}));
    for (int64_t ns = 0; ns < SH_MS(1) && !r->arrived; ns += 2000) {
        pass(r, 2000);
        seen = SH_MAX(seen, check_tickets(r, 4096));
    }
    assert_true(seen > 1 && r->arrived == 1);
    rig_close(r);
}

static void a_scrub_before_an_image_does_not_wipe_it(void **state)
{
    struct rig *r = rig_open(FOUR, 4);

    (void)state;
    fake__hold(r->mem, 0, true);
    assert_ok(tx_zero(r->tx, 0, POOL, NULL));
    assert_ok(load(r, &(struct tx_place){0}));
    pass(r, SH_MS(50)); /* the other links have nothing to wait for but that */
    assert_true(is_all(arena(r), BYTES, 0));
    fake__hold(r->mem, 0, false);
    pass(r, SH_MS(50));
    assert_int_equal(r->arrived, 1);
    assert_memory_equal(arena(r), r->host, BYTES);
    rig_close(r);
}

/* A scrub, a move, training state or a mark behind an image that is still on its way: the lane gets
 * there when the slowest link is done. */
static void what_comes_behind_an_image_waits_for_all_of_it(void **state)
{
    unsigned char *mine = malloc(BYTES);

    (void)state;
    assert_non_null(mine);
    memset(mine, 0xEE, BYTES);
    for (int what = 0; what < 4; what++) {
        for (uint32_t held = 1; held < 4; held++) {
            struct rig *r = rig_open(FOUR, 4);
            const unsigned char *a;
            int came = 0;

            fake__hold(r->mem, held, true);
            assert_ok(tx_load_begin(r->tx, &r->im, &(struct tx_place){0}, r->ns, NULL));
            assert_ok(tx_load_rest(r->tx, &r->im, on_arrived, r, NULL));
            if (what == 0)
                assert_ok(tx_zero(r->tx, 0, BYTES, NULL));
            else if (what == 1)
                assert_ok(tx_in(r->tx, TX_STATE, 0, mine, BYTES, NULL));
            else if (what == 2)
                assert_ok(tx_move(r->tx, DEV_BLOCK, 0, BYTES, NULL));
            assert_ok(tx_ticket(r->tx, TX_LANE_IN, TX_SLOT_STATE, 1, NULL));
            assert_ok(tx_mark(r->tx, TX_LANE_IN, on_flag, &came, NULL));
            for (uint32_t k = 1; k < 4; k++)
                assert_true(tx_links(r->tx)->at[0].busy_until_ns >=
                            tx_links(r->tx)->at[k].busy_until_ns);
            pass(r, SH_MS(50));
            assert_int_equal(came, 0);
            assert_int_equal(dev_ticket_value(r->mem, TX_SLOT_STATE), 0);
            fake__hold(r->mem, held, false);
            pass(r, SH_MS(50));
            assert_int_equal(came, 1);
            assert_int_equal(dev_ticket_value(r->mem, TX_SLOT_STATE), 1);
            a = arena(r);
            if (what == 0)
                assert_true(is_all(a, BYTES, 0));
            if (what == 1)
                assert_memory_equal(a, mine, BYTES);
            if (what == 2)
                assert_memory_equal(a + DEV_BLOCK, r->host, BYTES);
            rig_close(r);
        }
    }
    free(mine);
}

/* Between an image's first group and the rest come the inputs of its run, on lane 0. */
static void inputs_between_the_groups_keep_their_order(void **state)
{
    struct rig *r = rig_open(FOUR, 4);
    unsigned char in[4096];

    (void)state;
    memset(in, 0x77, sizeof(in));
    assert_ok(tx_load_begin(r->tx, &r->im, &(struct tx_place){0}, r->ns, NULL));
    assert_ok(tx_in(r->tx, TX_INPUTS, 2 * DEV_BLOCK, in, sizeof(in), NULL));
    assert_ok(tx_ticket(r->tx, TX_LANE_IN, TX_SLOT_INPUTS, 1, NULL));
    assert_ok(tx_load_rest(r->tx, &r->im, on_arrived, r, NULL));
    while (dev_ticket_value(r->mem, TX_SLOT_INPUTS) != 1)
        pass(r, 1000);
    assert_true(has_come(r, r->im.groups[0].ticket_value));
    assert_memory_equal(arena(r) + 2 * DEV_BLOCK, in, sizeof(in));
    pass(r, SH_MS(50));
    assert_int_equal(r->arrived, 1);
    assert_memory_equal(arena(r), r->host, BYTES);
    rig_close(r);
}

static uint64_t seed = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* One thing of many kinds to the device, and to `want` at once. */
static void give_one(struct rig *r, unsigned char *want, unsigned char *from)
{
    const size_t off = draw(8) * LAYER, bytes = (1 + draw(6)) * LAYER, src = draw(16) * LAYER;
    const size_t at = draw(BYTES - bytes);
    static int done;

    switch (draw(5)) {
    case 0:
        assert_ok(tx_zero(r->tx, off, bytes, NULL));
        memset(want + off, 0, bytes);
        break;
    case 1:
        assert_ok(tx_move(r->tx, off, src, bytes, NULL));
        memmove(want + off, want + src, bytes);
        break;
    case 2:
        assert_ok(tx_in(r->tx, TX_STATE, off, from + at, bytes, NULL));
        assert_ok(tx_mark(r->tx, TX_LANE_IN, on_flag, &done, NULL));
        memcpy(want + off, from + at, bytes);
        break;
    default:
        if (tx_image_busy(&r->im))
            return;
        r->im.host = (const char *)from;
        assert_ok(load(r, &(struct tx_place){.off = off}));
        memcpy(want + off, from, BYTES);
    }
}

/* All that is given to the device in one order is done as if it were in that order, whatever the
 * links are like, and whatever is refused on the way. */
static void whatever_comes_in_one_order_is_done_in_it(void **state)
{
    unsigned char *want = calloc(1, POOL), *from = malloc(BYTES);
    uint32_t n_parts = 0;

    (void)state;
    assert_true(want && from);
    for (int round = 0; round < 60; round++) {
        struct speed speeds[4];
        const uint32_t n = (uint32_t[]){1, 2, 4}[draw(3)];
        struct rig *r;

        for (uint32_t k = 0; k < n; k++)
            speeds[k] = (struct speed){0.1 + (double)draw(40) / 10, (double)draw(40)};
        r = rig_open(speeds, n);
        memset(want, 0, POOL);
        memset(from, 1, BYTES);
        for (int i = 0; i < 40; i++) {
            if (n > 1 && draw(4) == 0) { /* once, of a part or of its order */
                script.kind = draw(2) ? 'c' : 'f';
                script.lane = 1 + (uint32_t)draw(n - 1);
                script.skip = 0;
                script.times = 1;
                script.rc = draw(2) ? SH_E_DEVMEM : SH_E_QUEUEFULL;
            }
            if (draw(2))
                pass(r, (int64_t)draw(SH_MS(2)));
            if (draw(4) == 0 && !tx_is_busy(r->tx)) /* it is read while it is copied */
                memset(from, (int)draw(255), BYTES);
            give_one(r, want, from);
        }
        pass(r, SH_S(2));
        assert_false(tx_is_busy(r->tx));
        assert_memory_equal(arena(r), want, POOL);
        for (uint32_t k = 1; k < n; k++)
            n_parts += count('c', k);
        rig_close(r);
    }
    assert_true(n_parts > 500); /* otherwise it proves nothing */
    free(want);
    free(from);
}

/* ------------------------------------------------------------------ what is learnt */

static double by_link(const struct rig *r, uint32_t k, uint64_t bytes)
{
    uint64_t parts[LINKS_MAX];

    links_divide(tx_links(r->tx), sh_clock_ns(), bytes, parts);
    return (double)parts[k] / (double)bytes;
}

/* The second link of two becomes half as fast: that is learnt of it alone, and it gets less. */
static void each_link_is_as_fast_as_its_own_copies_were(void **state)
{
    const uint64_t ends[] = {6 << 20};
    struct rig *r = rig_open(TWO, 2);

    (void)state;
    free(r->host);
    r->host = calloc(1, ends[0]);
    assert_non_null(r->host);
    r->im.host = (const char *)r->host;
    r->im.bytes = ends[0];
    r->im.n_layers = 1;
    r->im.layer_ends = ends;
    for (int i = 0; i < 60; i++) {
        if (i == 20) {
            assert_true(fabs(tx_links(r->tx)->at[0].beta_ns - 1) < 0.01);
            assert_true(fabs(tx_links(r->tx)->at[1].beta_ns - 2) < 0.02);
            assert_true(fabs(by_link(r, 1, ends[0]) - 1.0 / 3) < 0.01);
            fake__link(r->mem, 1, 0.25, 9);
        }
        assert_ok(load(r, &(struct tx_place){0}));
        for (int k = 0; r->arrived <= i && k < 10000; k++)
            pass(r, 10000);
        assert_int_equal(r->arrived, i + 1);
    }
    assert_true(fabs(tx_links(r->tx)->at[0].beta_ns - 1) < 0.02);
    assert_true(fabs(tx_links(r->tx)->at[1].beta_ns - 4) < 0.1);
    assert_true(fabs(by_link(r, 1, ends[0]) - 1.0 / 5) < 0.01);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_one_link_all_goes_to_one_lane),
        cmocka_unit_test(a_device_without_other_links_says_so),
        cmocka_unit_test(a_group_is_divided_so_that_its_parts_end_together),
        cmocka_unit_test(it_arrives_as_early_as_all_links_allow),
        cmocka_unit_test(a_small_image_goes_by_the_link_that_begins_first),
        cmocka_unit_test(a_ticket_comes_behind_the_last_part),
        cmocka_unit_test(no_ticket_is_there_before_its_bytes),
        cmocka_unit_test(a_scrub_before_an_image_does_not_wipe_it),
        cmocka_unit_test(what_comes_behind_an_image_waits_for_all_of_it),
        cmocka_unit_test(inputs_between_the_groups_keep_their_order),
        cmocka_unit_test(whatever_comes_in_one_order_is_done_in_it),
        cmocka_unit_test(each_link_is_as_fast_as_its_own_copies_were),
    };

    sh_log_set_level(SH_LOG_ERROR); /* what is refused on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
