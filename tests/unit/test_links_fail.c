/* test_links_fail.c - images divided over several links, when one of these refuses, fails or stands
 * still, on the fake device.
 *
 * Without it: a link that refuses could cost the image, and a copy that failed half-way could go on
 * into memory that somebody else has by then. */
/* uses: executor/memory/transmit.o executor/memory/links.o runtime/group.o tests/device/fake/fake_mem.o tests/device/fake/fake_dev.o libdevice.a */
/* link: -Wl,--wrap=dev_mem_measure */
#include "common/log.h"
#include "tests/unit/links_rig.h"

/* So much that a link refuses is carried by lane 0, and the link is not asked again for a while. */
static void a_link_that_refuses_is_left_out(void **state)
{
    static const char KINDS[] = {'c', 'f'};

    (void)state;
    for (size_t i = 0; i < sizeof(KINDS); i++) {
        struct rig *r = rig_open(TWO, 2);
        const double both = tx_beta_ns(r->tx);

        script.kind = KINDS[i];
        script.lane = 1;
        script.skip = 0;
        script.times = 1;
        script.rc = SH_E_DEVMEM;
        assert_ok(load(r, &(struct tx_place){0}));
        assert_true(tx_beta_ns(r->tx) == 1); /* it counts no more */
        pass(r, SH_MS(50));
        assert_int_equal(r->arrived, 1);
        assert_memory_equal(arena(r), r->host, BYTES);
        assert_int_equal(count('c', 1), 0);
        assert_ok(load(r, &(struct tx_place){0}));
        assert_int_equal(count('c', 1), 0);
        pass(r, SH_S(1));
        assert_int_equal(r->arrived, 2);
        assert_ok(load(r, &(struct tx_place){0}));
        assert_true(count('c', 1) > 0);
        assert_true(tx_beta_ns(r->tx) < 1.01 * both);
        pass(r, SH_MS(50));
        assert_int_equal(r->arrived, 3);
        rig_close(r);
    }
}

/* The ticket waits for the lane that has got a part at last, though nothing was meant for it. */
static void what_a_link_refuses_comes_before_its_ticket(void **state)
{
    static const struct speed LATE[] = {{1, 500}, {1, 5}, {1, 6}};
    struct rig *r = rig_open(LATE, 3);
    uint64_t parts[LINKS_MAX];

    (void)state;
    r->im.n_layers = 1;
    r->im.layer_ends = r->ends;
    r->im.bytes = LAYER;
    links_divide(tx_links(r->tx), sh_clock_ns(), LAYER, parts);
    assert_true(parts[0] == 0 && parts[1] > 0 && parts[2] > 0);
    script.kind = 'c';
    script.lane = 2;
    script.skip = 0;
    script.times = 1;
    script.rc = SH_E_QUEUEFULL;
    assert_ok(load(r, &(struct tx_place){0}));
    assert_int_equal(count('c', 0), 1);
    pass(r, SH_US(400));
    assert_int_equal(check_tickets(r, 0), 0);
    pass(r, SH_US(400));
    assert_int_equal(r->arrived, 1);
    assert_memory_equal(arena(r), r->host, LAYER);
    rig_close(r);
}

/* A link that is behind gets less of the next group, so that the links are level again. */
static void a_link_that_is_behind_gets_less(void **state)
{
    struct rig *r = rig_open(FOUR, 4);
    uint64_t level[LINKS_MAX], parts[LINKS_MAX];
    struct links l = *tx_links(r->tx);

    (void)state;
    links_divide(&l, sh_clock_ns(), BYTES, level);
    l.are_apart = true;
    for (uint32_t k = 0; k < 4; k++) {
        l.at[k].is_apart = k > 0;
        l.at[k].busy_until_ns = (double)(sh_clock_ns() + (k == 1 ? SH_US(40) : 0));
    }
    links_divide(&l, sh_clock_ns(), BYTES, parts);
    assert_true(parts[1] < level[1] && parts[0] > level[0] && parts[3] > level[3]);
    assert_true(parts[0] + parts[1] + parts[2] + parts[3] == BYTES);
    rig_close(r);
}

/* What fails half-way fails as a whole; and nobody gets the range before all that had been given to
 * a link has been carried, though that link knows nothing of it. */
static void a_copy_that_fails_half_way_is_waited_for(void **state)
{
    static const struct {
        char kind;
        uint32_t lane;
        int rc;
    } FAILS[] = {{'c', 2, SH_E_DEVLOST},
                 {'c', 0, SH_E_DEVMEM},
                 {'t', 4, SH_E_DEVMEM},
                 {'f', 4, SH_E_DEVMEM}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(FAILS); i++) {
        struct rig *r = rig_open(FOUR, 4);
        int came = 0;

        fake__hold(r->mem, 3, true);
        script.kind = FAILS[i].kind;
        script.lane = FAILS[i].lane;
        script.skip = 1;
        script.times = 1;
        script.rc = FAILS[i].rc;
        assert_int_equal(load(r, &(struct tx_place){0}), FAILS[i].rc);
        assert_true(count('c', 3) > 0);
        assert_false(tx_image_busy(&r->im));
        tx_image_force(r->tx, &r->im);
        assert_ok(tx_mark(r->tx, TX_LANE_IN, on_flag, &came, NULL));
        assert_ok(tx_zero(r->tx, 0, BYTES, NULL));
        pass(r, SH_MS(50));
        assert_int_equal(came, 0);
        fake__hold(r->mem, 3, false);
        look(r);
        assert_int_equal(came, 1);
        assert_true(is_all(arena(r), BYTES, 0));
        rig_close(r);
    }
}

/* Links that cannot be put in order again: nothing else may be put on the lane until they are. */
static void what_cannot_be_joined_is_refused_and_asked_for_again(void **state)
{
    (void)state;
    for (int at = 0; at < 4; at++) { /* one of the three links, or the tickets */
        struct rig *r = rig_open(FOUR, 4);
        int came = 0;

        fake__hold(r->mem, 1, true);
        assert_ok(tx_load_begin(r->tx, &r->im, &(struct tx_place){0}, r->ns, NULL));
        script.kind = 'f';
        script.lane = 0;
        script.skip = at;
        script.times = 2;
        script.rc = SH_E_DEVMEM;
        assert_int_equal(tx_zero(r->tx, 0, BYTES, NULL), SH_E_DEVMEM);
        assert_int_equal(tx_mark(r->tx, TX_LANE_IN, on_flag, &came, NULL), SH_E_DEVMEM);
        assert_int_equal(count('z', 0) + count('m', 0), 0);
        assert_ok(tx_mark(r->tx, TX_LANE_IN, on_flag, &came, NULL));
        pass(r, SH_MS(50));
        assert_int_equal(came, 0);
        fake__hold(r->mem, 1, false);
        look(r);
        assert_int_equal(came, 1);
        rig_close(r);
    }
}

/* A link that stands still: who waits is freed by force, and what comes later takes nothing
 * back. */
static void a_link_that_gives_up_frees_its_waiters_by_force(void **state)
{
    struct rig *r = rig_open(FOUR, 4);
    uint32_t value;

    (void)state;
    fake__hold(r->mem, 3, true);
    assert_ok(load(r, &(struct tx_place){0}));
    value = r->im.value;
    pass(r, SH_S(20));
    assert_false(has_come(r, 1));
    tx_image_force(r->tx, &r->im);
    assert_int_equal(dev_ticket_value(r->mem, TX_SLOT_IMAGE), value);
    assert_int_equal(r->arrived, 0);
    assert_true(tx_is_busy(r->tx));
    fake__hold(r->mem, 3, false);
    pass(r, SH_MS(1));
    assert_int_equal(dev_ticket_value(r->mem, TX_SLOT_IMAGE), value);
    assert_int_equal(r->arrived, 1);
    rig_close(r);
}

/* Given up between two groups: the groups that were sent still come, before what follows. */
static void an_image_that_is_given_up_half_way_leaves_no_part_behind(void **state)
{
    struct rig *r = rig_open(FOUR, 4);
    int came = 0;

    (void)state;
    fake__hold(r->mem, 2, true);
    assert_ok(tx_load_begin(r->tx, &r->im, &(struct tx_place){0}, r->ns, NULL));
    tx_image_force(r->tx, &r->im);
    tx_image_fini(&r->im);
    assert_ok(tx_zero(r->tx, 0, POOL, NULL));
    assert_ok(tx_mark(r->tx, TX_LANE_IN, on_flag, &came, NULL));
    pass(r, SH_MS(50));
    assert_int_equal(came, 0);
    fake__hold(r->mem, 2, false);
    pass(r, SH_MS(50));
    assert_int_equal(came, 1);
    assert_true(is_all(arena(r), BYTES, 0));
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_that_refuses_is_left_out),
        cmocka_unit_test(what_a_link_refuses_comes_before_its_ticket),
        cmocka_unit_test(a_link_that_is_behind_gets_less),
        cmocka_unit_test(a_copy_that_fails_half_way_is_waited_for),
        cmocka_unit_test(what_cannot_be_joined_is_refused_and_asked_for_again),
        cmocka_unit_test(a_link_that_gives_up_frees_its_waiters_by_force),
        cmocka_unit_test(an_image_that_is_given_up_half_way_leaves_no_part_behind),
    };

    sh_log_set_level(SH_LOG_ERROR); /* what is refused on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
