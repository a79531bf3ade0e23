/* test_arena.c - the map of device blocks.
 *
 * Without it: a block could be handed out twice, a tenant could read what another left behind
 * because a tag was lost, or a scrub could be noted as done that was not. */
/* uses: executor/arena.o */
#include "executor/arena.h"
#include "tests/unit/sh_test.h"

static struct arena *new_arena(uint32_t n)
{
    struct arena *a = NULL;

    assert_ok(arena_new(n, &a, NULL));
    return a;
}

static void a_block_is_taken_once(void **state)
{
    struct arena *a = new_arena(10);
    struct sh_err err = {0};

    (void)state;
    assert_ok(arena_take(a, (struct arena_range){2, 3}, ARENA_WORK, 0, NULL));
    assert_fails(arena_take(a, (struct arena_range){4, 2}, ARENA_TRAIN, 0, &err), SH_E_BUG, &err,
                 "block 4 is taken");
    assert_int_equal(arena_count(a, ARENA_FREE), 7);
    assert_int_equal(arena_count(a, ARENA_TRAIN), 0);
    arena_free(a);
}

static void what_is_not_taken_cannot_be_given_back(void **state)
{
    struct arena *a = new_arena(10);
    struct sh_err err = {0};

    (void)state;
    assert_ok(arena_take(a, (struct arena_range){2, 3}, ARENA_WORK, 0, NULL));
    assert_fails(arena_give(a, (struct arena_range){2, 4}, 1, &err), SH_E_BUG, &err,
                 "block 5 is free");
    assert_int_equal(arena_count(a, ARENA_WORK), 3);
    arena_free(a);
}

static void a_range_outside_is_refused(void **state)
{
    struct arena *a = new_arena(10);
    struct sh_err err = {0};

    (void)state;
    assert_fails(arena_take(a, (struct arena_range){8, 3}, ARENA_WORK, 0, &err), SH_E_BUG, &err,
                 "outside");
    err = (struct sh_err){0};
    assert_fails(arena_take(a, (struct arena_range){UINT32_MAX, 2}, ARENA_WORK, 0, &err), SH_E_BUG,
                 &err, "outside");
    arena_free(a);
}

static void a_block_remembers_whose_data_it_holds_until_it_is_scrubbed(void **state)
{
    struct arena *a = new_arena(10);
    const struct arena_range r = {3, 4};

    (void)state;
    assert_ok(arena_take(a, r, ARENA_WORK, 0, NULL));
    assert_ok(arena_give(a, r, 7, NULL));
    assert_ok(arena_take(a, r, ARENA_TRAIN, 0, NULL));
    assert_true(arena_has_tag(a, r, 7)); /* taking does not clean */
    arena_set_tag(a, (struct arena_range){3, 2}, ARENA_SCRUBBING);
    assert_true(arena_has_tag(a, r, ARENA_SCRUBBING));
    arena_scrubbed(a, r);
    assert_false(arena_has_tag(a, r, ARENA_SCRUBBING));
    assert_true(arena_has_tag(a, (struct arena_range){3, 2}, ARENA_CLEAN));
    assert_true(arena_has_tag(a, (struct arena_range){5, 2}, 7)); /* these were not part of it */
    arena_free(a);
}

static void a_block_given_back_during_its_scrub_is_dirty(void **state)
{
    struct arena *a = new_arena(4);
    const struct arena_range r = {0, 4};

    (void)state;
    assert_ok(arena_take(a, r, ARENA_WORK, 0, NULL));
    arena_set_tag(a, r, ARENA_SCRUBBING);
    assert_ok(arena_give(a, r, 9, NULL));
    arena_scrubbed(a, r);
    assert_true(arena_has_tag(a, r, 9));
    arena_free(a);
}

static void segments_cover_the_arena_without_gaps(void **state)
{
    struct arena *a = new_arena(12);
    uint32_t at = 0, n = 0;

    (void)state;
    assert_ok(arena_take(a, (struct arena_range){1, 2}, ARENA_IMAGE, 4, NULL));
    assert_ok(arena_take(a, (struct arena_range){3, 2}, ARENA_IMAGE, 5, NULL));
    assert_ok(arena_take(a, (struct arena_range){8, 4}, ARENA_WORK, 0, NULL));
    while (at < arena_blocks(a)) {
        struct arena_seg s = arena_seg_at(a, at);

        assert_int_equal(s.first, at);
        assert_true(s.n > 0);
        at += s.n;
        n++;
    }
    assert_int_equal(at, 12);
    assert_int_equal(n, 5); /* free, image 4, image 5, free, work */
    assert_int_equal(arena_seg_at(a, 12).n, 0);
    arena_free(a);
}

static void a_clone_is_independent(void **state)
{
    struct arena *a = new_arena(6), *c = NULL;

    (void)state;
    assert_ok(arena_take(a, (struct arena_range){0, 2}, ARENA_WORK, 0, NULL));
    assert_ok(arena_clone(a, &c, NULL));
    assert_ok(arena_give(c, (struct arena_range){0, 2}, 3, NULL));
    assert_int_equal(arena_count(a, ARENA_WORK), 2);
    assert_int_equal(arena_count(c, ARENA_FREE), 6);
    assert_false(arena_has_tag(a, (struct arena_range){0, 2}, 3));
    arena_free(a);
    arena_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_taken_once),
        cmocka_unit_test(what_is_not_taken_cannot_be_given_back),
        cmocka_unit_test(a_range_outside_is_refused),
        cmocka_unit_test(a_block_remembers_whose_data_it_holds_until_it_is_scrubbed),
        cmocka_unit_test(a_block_given_back_during_its_scrub_is_dirty),
        cmocka_unit_test(segments_cover_the_arena_without_gaps),
        cmocka_unit_test(a_clone_is_independent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
