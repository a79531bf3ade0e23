/* test_residency_twice.c - images of which a packed copy lies in device memory as well.
 *
 * Without it: a switch that needs no link could cost the place of an image that is nowhere else, or
 * what is asked for all the time could be unpacked anew for each run; a part of a packed copy, of
 * use to nobody, could keep its blocks. */
/* uses: executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o */
#include "common/mem.h"
#include "executor/memory/residency.h"
#include "tests/unit/sh_test.h"

static struct residency *r;

static int begin(void **state)
{
    (void)state;
    return residency_new(20, &(struct residency_conf){.n_chance = 1}, &r, NULL);
}

static int end(void **state)
{
    (void)state;
    residency_free(r);
    return 0;
}

static uint32_t add(uint32_t blocks, bool is_whole)
{
    const struct residency_image im = {
        .n_blocks = blocks, .keep_blocks = blocks, .tag = 1, .is_whole = is_whole};
    uint32_t id = 0;

    assert_ok(residency_add(r, &im, &id, NULL));
    return id;
}

static int place(uint32_t id, int64_t now)
{
    struct residency_place p;
    struct sh_err err = {0};
    int rc = residency_place(r, id, true, &p, NULL);

    residency_touch(r, id, now);
    assert_ok_err(residency_check(r, &err), &err);
    return rc;
}

/* Of 6 blocks, with a copy of 3 that stands behind it. */
static void place_twice(uint32_t out[2], double worth, int64_t now)
{
    out[0] = add(6, false);
    out[1] = add(3, true);
    assert_ok(place(out[0], now));
    assert_ok(place(out[1], now));
    residency_back(r, out[0], out[1], worth);
}

static void what_comes_back_without_the_link_gives_way_first(void **state)
{
    uint32_t once = add(6, false), twice[2], next = add(10, false);

    (void)state;
    assert_ok(place(once, 1000));
    place_twice(twice, 0.05, 2000);
    assert_ok(place(next, 3000));
    assert_int_equal(residency_held(r, once), 6); /* although it was used before */
    assert_int_equal(residency_held(r, twice[1]), 3);
    assert_true(residency_held(r, twice[0]) < 6);
}

static void unless_it_was_used_so_much_later(void **state)
{
    uint32_t once = add(6, false), twice[2], next = add(6, false);

    (void)state;
    assert_ok(place(once, 1000));
    place_twice(twice, 0.5, 1000);
    residency_touch(r, twice[0], 1900); /* 100 ago; the other one 1,000 */
    residency_touch(r, twice[1], 1900);
    residency_touch(r, next, 2000);
    assert_ok(place(next, 2000));
    assert_int_equal(residency_held(r, twice[0]), 6);
    assert_true(residency_held(r, once) < 6);
}

static void of_two_that_are_there_twice_the_older_one_goes(void **state)
{
    uint32_t a[2], b[2], next = add(4, false);

    (void)state;
    place_twice(a, 0.05, 2000);
    place_twice(b, 0.05, 1000);
    assert_ok(place(next, 3000));
    assert_int_equal(residency_held(r, a[0]), 6);
    assert_true(residency_held(r, b[0]) < 6);
    assert_true(residency_held(r, a[1]) == 3 && residency_held(r, b[1]) == 3);
}

static void what_is_packed_leaves_as_a_whole(void **state)
{
    uint32_t packed = add(8, true), next = add(13, false), evicted;
    struct residency_place p;

    (void)state;
    assert_ok(place(packed, 1));
    residency_pin(r, packed);
    assert_int_equal(residency_place(r, next, true, &p, NULL), SH_E_DEVMEM);
    residency_unpin(r, packed);
    assert_ok(residency_place(r, next, true, &p, NULL));
    assert_int_equal(residency_held(r, packed), 0);
    assert_int_equal(p.evicted_blocks, 8);
    residency_truncate(r, next, 0);
    assert_ok(place(packed, 2));
    evicted = residency_trim(r, 13, 1000, 0);
    assert_true(evicted == 8 && residency_held(r, packed) == 0);
}

static void a_copy_that_is_gone_stands_behind_nobody(void **state)
{
    uint32_t once = add(6, false), twice[2], next = add(10, false);

    (void)state;
    place_twice(twice, 0.05, 2000);
    assert_ok(place(once, 1000));
    residency_remove(r, twice[1]);
    assert_int_equal(add(3, true), twice[1]); /* another one has its number */
    assert_ok(place(twice[1], 2000));
    residency_touch(r, next, 3000);
    assert_ok(place(next, 3000));
    assert_int_equal(residency_held(r, twice[0]), 6);
    assert_true(residency_held(r, once) < 6);
}

static void a_minimum_keeps_a_packed_copy_as_a_whole(void **state)
{
    const struct residency_image theirs = {.n_blocks = 16, .keep_blocks = 16, .tag = 2};
    uint32_t packed = add(8, true), id;
    struct residency_place p;

    (void)state;
    assert_ok(residency_set_quota(r, 1, &(struct residency_quota){2, RESIDENCY_NO_MAX, 1}, NULL));
    assert_ok(residency_add(r, &theirs, &id, NULL));
    assert_ok(place(packed, 1));
    assert_int_equal(residency_place(r, id, true, &p, NULL), SH_E_DEVMEM);
    assert_int_equal(residency_held(r, packed), 8);
}

/* Both images of the tenant fit below its max: no copy may take the place of one. */
static void a_max_is_for_images_before_copies(void **state)
{
    uint32_t twice[2] = {add(6, false), add(3, true)}, other = add(4, false);
    struct residency_place p;

    (void)state;
    assert_ok(residency_set_quota(r, 1, &(struct residency_quota){0, 10, 1}, NULL));
    assert_ok(place(other, 1000));
    assert_ok(place(twice[0], 2000));
    assert_int_equal(residency_place(r, twice[1], true, &p, NULL), SH_E_DEVMEM);
    assert_int_equal(residency_held(r, other), 4);
}

static void a_minimum_keeps_images_before_their_copies(void **state)
{
    const struct residency_image theirs = {.n_blocks = 8, .keep_blocks = 8, .tag = 2};
    uint32_t twice[2], other = add(4, false), id;
    struct residency_place p;

    (void)state;
    assert_ok(residency_set_quota(r, 1, &(struct residency_quota){10, RESIDENCY_NO_MAX, 1}, NULL));
    assert_ok(place(other, 1000));
    place_twice(twice, 0.05, 2000);
    assert_ok(residency_add(r, &theirs, &id, NULL));
    assert_ok(residency_place(r, id, true, &p, NULL));
    assert_int_equal(residency_held(r, other), 4);
    assert_int_equal(residency_held(r, twice[0]), 6);
    assert_int_equal(residency_held(r, twice[1]), 0);
}

/* Of 4 blocks, for which there is no room; true: it has found some. */
static bool place_more(void)
{
    const struct residency_image im = {.n_blocks = 4, .keep_blocks = 4, .tag = 1};
    struct residency_place p;
    uint32_t id = 0;
    bool found;

    assert_ok(residency_add(r, &im, &id, NULL));
    found = residency_place(r, id, true, &p, NULL) == SH_OK;
    residency_remove(r, id);
    return found;
}

/* A copy, its image and free blocks of which none alone is enough; *other: a pinned image. */
static void fill(uint32_t twice[2], uint32_t *other)
{
    *other = add(9, false);
    place_twice(twice, 0.9, 1000);
    assert_ok(place(*other, 1000));
    residency_pin(r, *other);
}

/* By the clock it would be the copy's turn as soon. */
static void a_copy_goes_behind_what_it_stands_behind(void **state)
{
    uint32_t twice[2], other = add(11, false);
    struct residency_place p;

    (void)state;
    place_twice(twice, 0.9, 1000);
    residency_touch(r, twice[0], 1001); /* too late to go before all others */
    assert_ok(place(other, 0));
    residency_pin(r, other);
    assert_ok(residency_place(r, add(2, false), true, &p, NULL));
    assert_int_equal(residency_held(r, twice[0]), 0);
    assert_int_equal(residency_held(r, twice[1]), 3);
}

enum why { NOT, STICKY, PINNED, SPARED, N_WHY };

static bool alloc_beside(uint32_t spare)
{
    const struct residency_need need = {
        .n_blocks = 4, .tag = 1, .kind = ARENA_WORK, .spare = spare};
    struct arena_range range;
    uint32_t evicted;

    if (residency_alloc(r, &need, &range, &evicted, NULL))
        return false;
    residency_release(r, &range, 1);
    return true;
}

static bool makes_room(enum why why, const uint32_t twice[2])
{
    residency_stick(r, twice[0], why == STICKY);
    if (why == PINNED)
        residency_pin(r, twice[0]);
    return why == SPARED ? alloc_beside(twice[0]) : place_more();
}

/* Unpacked, the image needs it no more: it is what can go. */
static void a_copy_goes_where_its_image_stays_unpacked(void **state)
{
    for (enum why why = NOT; why < N_WHY; why++) {
        uint32_t twice[2], other;

        if (why > NOT) {
            end(state);
            begin(state);
        }
        fill(twice, &other);
        assert_true(makes_room(why, twice));
        assert_int_equal(residency_held(r, twice[0]), why == NOT ? 0 : 6);
        assert_int_equal(residency_held(r, twice[1]), why == NOT ? 3 : 0);
    }
}

/* Only packed, it would be nothing without. */
static void a_copy_stays_with_an_image_that_is_only_there_packed(void **state)
{
    for (enum why why = STICKY; why < N_WHY; why++) {
        uint32_t twice[2], other;

        if (why > STICKY) {
            end(state);
            begin(state);
        }
        fill(twice, &other);
        residency_set_packed(r, twice[0], true);
        assert_false(makes_room(why, twice));
        if (why != SPARED)
            assert_int_equal(residency_trim(r, 20, 5000, 0), 0);
        assert_int_equal(residency_held(r, twice[0]), 6);
        assert_int_equal(residency_held(r, twice[1]), 3);
    }
}

static void a_copy_of_a_sticky_image_that_is_not_there_stays(void **state)
{
    uint32_t twice[2], other, more = add(6, false);

    (void)state;
    fill(twice, &other);
    residency_stick(r, twice[0], true);
    residency_truncate(r, twice[0], 0);
    assert_ok(place(more, 1000));
    residency_pin(r, more);
    assert_false(place_more());
    assert_int_equal(residency_trim(r, 20, 5000, 0), 0);
    assert_ok(residency_set_quota(r, 1, &(struct residency_quota){0, 18, 1}, NULL));
    assert_false(place_more());
    assert_int_equal(residency_held(r, twice[1]), 3);
    residency_clear_quotas(r);
    residency_stick(r, twice[0], false); /* it gave up its place for a while */
    assert_true(place_more());
    assert_int_equal(residency_held(r, twice[1]), 0);
}

static void in_the_background_too_a_copy_goes_last(void **state)
{
    uint32_t twice[2];

    (void)state;
    place_twice(twice, 0.9, 1000);
    residency_touch(r, twice[0], 9000); /* it is used, and so is its copy */
    assert_int_equal(residency_trim(r, 20, 10000, 5000), 0);
    assert_int_equal(residency_trim(r, 20, 20000, 5000), 9);
}

/* Else the min would keep an image without what it is to be unpacked from. */
static void a_minimum_keeps_the_copy_of_what_is_still_packed(void **state)
{
    const struct residency_image theirs = {.n_blocks = 14, .keep_blocks = 14, .tag = 2};
    uint32_t twice[2], id;
    struct residency_place p;

    (void)state;
    assert_ok(residency_set_quota(r, 1, &(struct residency_quota){3, RESIDENCY_NO_MAX, 1}, NULL));
    place_twice(twice, 0.05, 2000);
    residency_set_packed(r, twice[0], true);
    residency_touch(r, twice[1], 2001);
    assert_ok(residency_add(r, &theirs, &id, NULL));
    assert_ok(residency_place(r, id, true, &p, NULL));
    assert_int_equal(residency_held(r, twice[1]), 3);
}

static void demand_is_of_what_was_used_of_late(void **state)
{
    const int64_t now = 2 * RESIDENCY_RECENT_NS;
    uint32_t a = add(6, false), b = add(5, false), c = add(4, false);

    (void)state;
    residency_touch(r, a, now - RESIDENCY_RECENT_NS - 1);
    residency_touch(r, b, now - 5);
    residency_touch(r, add(3, true), now); /* a copy is no demand */
    assert_int_equal(residency_demand(r, c, now), 5 + 4);
    assert_int_equal(residency_demand(r, b, now), 5);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        T(what_comes_back_without_the_link_gives_way_first),
        T(unless_it_was_used_so_much_later),
        T(of_two_that_are_there_twice_the_older_one_goes),
        T(what_is_packed_leaves_as_a_whole),
        T(a_copy_that_is_gone_stands_behind_nobody),
        T(a_minimum_keeps_a_packed_copy_as_a_whole),
        T(a_max_is_for_images_before_copies),
        T(a_minimum_keeps_images_before_their_copies),
        T(a_copy_goes_behind_what_it_stands_behind),
        T(a_copy_goes_where_its_image_stays_unpacked),
        T(a_copy_stays_with_an_image_that_is_only_there_packed),
        T(a_copy_of_a_sticky_image_that_is_not_there_stays),
        T(in_the_background_too_a_copy_goes_last),
        T(a_minimum_keeps_the_copy_of_what_is_still_packed),
        T(demand_is_of_what_was_used_of_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
