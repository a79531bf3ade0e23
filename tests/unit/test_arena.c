/* test_arena.c - the map of device blocks.
 *
 * Without it: a block could be handed out twice, a tenant could read what another left behind
 * because a tag was lost, or a scrub could be noted as done that was not. */
/* uses: executor/memory/arena.o */
#include "common/mem.h"
#include "executor/memory/arena.h"
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

enum { BLOCKS = 60 };

struct plain { /* the same map, a record a block */
    enum arena_kind kind;
    uint32_t owner, tag;
};

static bool agree(const struct plain *x, const struct plain *y)
{
    return x->kind == y->kind && x->owner == y->owner && x->tag == y->tag;
}

static void assert_same_map(const struct arena *a, const struct plain *p)
{
    uint32_t free_blocks = 0;

    for (uint32_t b = 0; b < BLOCKS; b++) {
        const struct arena_seg s = arena_seg_at(a, b);
        uint32_t end = b + 1;

        while (end < BLOCKS && agree(&p[end], &p[b]))
            end++;
        assert_int_equal(s.first, b);
        assert_int_equal(s.n, end - b);
        assert_int_equal(s.kind, p[b].kind);
        assert_int_equal(s.owner, p[b].owner);
        assert_int_equal(s.tag, p[b].tag);
        free_blocks += p[b].kind == ARENA_FREE;
    }
    assert_int_equal(arena_count(a, ARENA_FREE), free_blocks);
}

static void take_or_give(struct arena *a, struct plain *p, struct arena_range r, uint32_t value)
{
    const enum arena_kind k = ARENA_IMAGE + (enum arena_kind)(value % 3);
    bool is_free = true, is_taken = true;

    for (uint32_t b = r.first; b < r.first + r.n; b++) {
        is_free = is_free && p[b].kind == ARENA_FREE;
        is_taken = is_taken && p[b].kind != ARENA_FREE;
    }
    assert_int_equal(arena_take(a, r, k, value, NULL), is_free ? SH_OK : SH_E_BUG);
    if (!is_free)
        assert_int_equal(arena_give(a, r, value, NULL), is_taken ? SH_OK : SH_E_BUG);
    for (uint32_t b = r.first; b < r.first + r.n && (is_free || is_taken); b++)
        p[b] = is_free ? (struct plain){k, value, p[b].tag} : (struct plain){.tag = value};
}

static void it_is_the_map_of_the_single_blocks(void **state)
{
    struct arena *a = new_arena(BLOCKS);
    struct plain p[BLOCKS] = {{ARENA_FREE, 0, 0}};
    uint32_t seed = 1;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct arena_range r;
        uint32_t value, what;

        seed = seed * 1664525u + 1013904223u;
        r.first = (seed >> 8) % BLOCKS;
        r.n = 1 + (seed >> 16) % SH_MIN(BLOCKS - r.first, 12u);
        what = (seed >> 24) % 4;
        value = (seed >> 28) % 3;
        if (what == 0)
            arena_set_tag(a, r, value == 2 ? ARENA_SCRUBBING : value);
        else if (what == 1)
            arena_scrubbed(a, r);
        else
            take_or_give(a, p, r, value);
        for (uint32_t b = r.first; b < r.first + r.n && what < 2; b++) {
            if (what == 0)
                p[b].tag = value == 2 ? ARENA_SCRUBBING : value;
            else if (p[b].tag == ARENA_SCRUBBING)
                p[b].tag = ARENA_CLEAN;
        }
        assert_same_map(a, p);
    }
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
        cmocka_unit_test(it_is_the_map_of_the_single_blocks),
        cmocka_unit_test(a_clone_is_independent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
