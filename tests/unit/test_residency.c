/* test_residency.c - what stays in device memory, and who gives way.
 *
 * Without it: a model that is computing could lose its weights, two models could share a block, a
 * model could lose its head and keep its tail (the copy would then no longer hide), the clock could
 * drift away from the textbook's, and one tenant could push out what is kept for another. */
/* uses: executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o */
#include "common/mem.h"
#include "executor/memory/residency.h"
#include "tests/unit/sh_test.h"

static struct residency *new_residency(uint32_t blocks, uint32_t n_chance)
{
    struct residency *r = NULL;

    assert_ok(residency_new(blocks, &(struct residency_conf){.n_chance = n_chance}, &r, NULL));
    return r;
}

static uint32_t add(struct residency *r, uint32_t blocks, uint32_t keep)
{
    const struct residency_image im = {.n_blocks = blocks, .keep_blocks = keep, .tag = 1};
    uint32_t id = 0;

    assert_ok(residency_add(r, &im, &id, NULL));
    return id;
}

static void place(struct residency *r, uint32_t id)
{
    struct residency_place p;
    struct sh_err err = {0};

    assert_ok_err(residency_place(r, id, true, &p, &err), &err);
    assert_ok_err(residency_check(r, &err), &err);
}

static void an_image_that_is_whole_stays_where_it_is(void **state)
{
    struct residency *r = new_residency(10, 1);
    uint32_t a = add(r, 4, 4);
    struct residency_place p;

    (void)state;
    place(r, a);
    assert_ok(residency_place(r, a, true, &p, NULL));
    assert_int_equal(p.had_blocks, 4);
    assert_int_equal(p.had_first, p.range.first);
    residency_free(r);
}

static void the_tail_is_evicted_and_the_head_stays(void **state)
{
    struct residency *r = new_residency(10, 1);
    uint32_t a = add(r, 6, 2), b = add(r, 7, 7);
    struct residency_place p;

    (void)state;
    place(r, a);
    place(r, b);
    assert_int_equal(residency_held(r, a), 3);
    assert_int_equal(residency_held(r, b), 7);
    residency_touch(r, b, 1);
    residency_pin(r, b);
    assert_int_equal(residency_place(r, a, true, &p, NULL), SH_E_DEVMEM);
    assert_int_equal(residency_held(r, a), 3); /* a failure changes nothing */
    residency_unpin(r, b);
    assert_ok(residency_place(r, a, true, &p, NULL));
    assert_int_equal(p.had_blocks, 3);
    residency_free(r);
}

static void a_sticky_image_is_no_victim_and_comes_back_to_the_ring_when_it_is_not(void **state)
{
    struct residency *r = new_residency(10, 1);
    uint32_t a = add(r, 6, 2), b = add(r, 7, 7);
    struct residency_place p;
    struct arena_range range;
    uint32_t evicted = 0;
    const struct residency_need need = {
        .n_blocks = 5, .tag = 1, .kind = ARENA_WORK, .spare = RESIDENCY_NO_IMAGE};

    (void)state;
    place(r, a);
    residency_stick(r, a, true);
    assert_true(residency_is_sticky(r, a));
    assert_int_equal(residency_place(r, b, true, &p, NULL), SH_E_DEVMEM);
    assert_int_equal(residency_alloc(r, &need, &range, &evicted, NULL), SH_E_DEVMEM);
    assert_int_equal(residency_trim(r, 10, 1000, 0), 0);
    assert_int_equal(residency_held(r, a), 6);
    residency_stick(r, a, false);
    assert_ok(residency_alloc(r, &need, &range, &evicted, NULL));
    assert_int_equal(evicted, 1);
    residency_stick(r, a, true); /* what is left of it */
    assert_int_equal(residency_held(r, a), 5);
    assert_int_equal(residency_place(r, b, true, &p, NULL), SH_E_DEVMEM);
    assert_ok(residency_check(r, NULL));
    residency_free(r);
}

/* ------------------------------------------------------------------ quotas */

static uint32_t add_of(struct residency *r, uint32_t tag, uint32_t blocks, int64_t used_ns)
{
    const struct residency_image im = {.n_blocks = blocks, .tag = tag};
    uint32_t id = 0;

    assert_ok(residency_add(r, &im, &id, NULL));
    place(r, id);
    residency_touch(r, id, used_ns);
    return id;
}

static void set_quota(struct residency *r, uint32_t tag, uint32_t min, uint32_t max, double share)
{
    const struct residency_quota q = {.min_blocks = min, .max_blocks = max, .share = share};

    assert_ok(residency_set_quota(r, tag, &q, NULL));
}

static int alloc_of(struct residency *r, uint32_t tag, uint32_t blocks, struct arena_range *out,
                    struct sh_err *err)
{
    const struct residency_need need = {
        .n_blocks = blocks, .tag = tag, .kind = ARENA_WORK, .spare = RESIDENCY_NO_IMAGE};
    uint32_t evicted;

    return residency_alloc(r, &need, out, &evicted, err);
}

static void a_minimum_is_not_taken_by_others_but_its_owner_may(void **state)
{
    struct residency *r = new_residency(20, 1);
    uint32_t old, last, other;
    struct arena_range range;
    struct sh_err err = {0};

    (void)state;
    set_quota(r, 1, 6, RESIDENCY_NO_MAX, 1);
    last = add_of(r, 1, 5, 2);
    old = add_of(r, 1, 5, 1);
    other = add_of(r, 2, 10, 3);
    assert_ok(alloc_of(r, 2, 14, &range, &err)); /* 20 - 6: all that is not kept */
    assert_int_equal(residency_held(r, last), 5);
    assert_int_equal(residency_held(r, old), 1); /* its head */
    assert_int_equal(residency_held(r, other), 0);
    residency_release(r, &range, ARENA_CLEAN);
    assert_fails(alloc_of(r, 2, 15, &range, &err), SH_E_DEVMEM, &err, "could not find");
    assert_int_equal(residency_held(r, last) + residency_held(r, old), 6);
    assert_int_equal(residency_trim(r, 20, INT64_MAX, 0), 0); /* nor by the background */
    assert_true(residency_yield(r, true));                    /* the last resort */
    assert_false(residency_yield(r, true));
    assert_ok(alloc_of(r, 2, 20, &range, NULL));
    residency_release(r, &range, ARENA_CLEAN);
    assert_true(residency_yield(r, false));
    place(r, last);
    assert_ok(alloc_of(r, 1, 20, &range, NULL)); /* its own */
    residency_free(r);
}

static void the_part_of_a_minimum_that_training_uses_keeps_no_image(void **state)
{
    struct residency *r = new_residency(20, 1);
    struct arena_range training, range;
    uint32_t a;

    (void)state;
    set_quota(r, 1, 8, RESIDENCY_NO_MAX, 1);
    assert_ok(alloc_of(r, 1, 7, &training, NULL));
    a = add_of(r, 1, 5, 1);
    assert_int_equal(residency_used(r, 1), 12);
    assert_ok(alloc_of(r, 2, 12, &range, NULL));
    assert_int_equal(residency_held(r, a), 1);
    residency_release(r, &training, 1);
    assert_int_equal(residency_used(r, 1), 1);
    residency_free(r);
}

static void a_maximum_lets_the_tenants_own_older_images_go(void **state)
{
    struct residency *r = new_residency(40, 1);
    uint32_t old, last, other;
    struct arena_range range;
    struct sh_err err = {0};

    (void)state;
    set_quota(r, 1, 0, 10, 1);
    other = add_of(r, 2, 8, 0);
    old = add_of(r, 1, 5, 1);
    last = add_of(r, 1, 4, 2);
    assert_ok(alloc_of(r, 1, 3, &range, NULL));
    assert_int_equal(residency_used(r, 1), 10);
    assert_int_equal(residency_held(r, old), 3);
    assert_int_equal(residency_held(r, last), 4);
    assert_int_equal(residency_held(r, other), 8); /* there was room for it, and more */
    residency_pin(r, last);
    assert_fails(alloc_of(r, 1, 5, &range, &err), SH_E_DEVMEM, &err, "gpu_memory_max_bytes");
    assert_int_equal(residency_held(r, old), 3); /* it would not have helped */
    residency_free(r);
}

/* Its images go for more than its max, but not where that leaves it no piece: all that is between
 * them is in use. */
static void a_maximum_costs_nothing_where_there_is_no_piece(void **state)
{
    struct residency *r = new_residency(20, 1);
    uint32_t own[2], others[2], large;
    struct residency_place p;
    struct arena_range range;

    (void)state;
    set_quota(r, 1, 0, 4, 1);
    for (int i = 0; i < 2; i++) {
        own[i] = add_of(r, 1, 2, i);
        others[i] = add_of(r, 2, 8, i);
        residency_pin(r, others[i]);
    }
    assert_int_equal(alloc_of(r, 1, 3, &range, NULL), SH_E_DEVMEM);
    large = add(r, 4, 4);
    assert_int_equal(residency_place(r, large, true, &p, NULL), SH_E_DEVMEM);
    for (int i = 0; i < 2; i++)
        assert_int_equal(residency_held(r, own[i]), 2);
    residency_unpin(r, others[1]);
    assert_ok(alloc_of(r, 1, 3, &range, NULL));
    assert_int_equal(residency_used(r, 1), 4);
    assert_ok(residency_check(r, NULL));
    residency_free(r);
}

/* What is left of the second tenant's 8 blocks when the third comes: they are the clock's first
 * victims, and were used longest ago. */
static uint32_t left_of_the_second(bool with_quotas)
{
    struct residency *r = new_residency(24, 1);
    uint32_t left;

    if (with_quotas) /* 24 / 5 blocks each, the second three times that */
        set_quota(r, 2, 0, RESIDENCY_NO_MAX, 3);
    for (int i = 0; i < 2; i++)
        add_of(r, 2, 4, i);
    for (int i = 0; i < 4; i++)
        add_of(r, 1, 4, 10 + i);
    add_of(r, 3, 4, 20);
    left = residency_used(r, 2);
    assert_int_equal(residency_used(r, 1) + left, 20);
    residency_free(r);
    return left;
}

static void who_holds_more_than_its_share_gives_way_first(void **state)
{
    (void)state;
    assert_int_equal(left_of_the_second(false), 4);
    assert_int_equal(left_of_the_second(true), 8);
}

static void a_clone_knows_the_quotas(void **state)
{
    struct residency *r = new_residency(10, 1), *c = NULL;
    struct arena_range range;

    (void)state;
    set_quota(r, 1, 4, 8, 2);
    add_of(r, 1, 4, 1);
    assert_ok(residency_clone(r, &c, NULL));
    residency_clear_quotas(r);
    assert_int_equal(alloc_of(c, 2, 7, &range, NULL), SH_E_DEVMEM);
    assert_ok(alloc_of(r, 2, 7, &range, NULL));
    residency_free(c);
    residency_free(r);
}

static void a_place_without_eviction_takes_only_what_is_free(void **state)
{
    struct residency *r = new_residency(10, 1);
    uint32_t a = add(r, 6, 2), b = add(r, 7, 7), c = add(r, 4, 4);
    struct residency_place p;

    (void)state;
    place(r, a);
    assert_int_equal(residency_place(r, b, false, &p, NULL), SH_E_DEVMEM);
    assert_int_equal(residency_held(r, a), 6);
    assert_int_equal(residency_held(r, b), 0);
    assert_ok(residency_place(r, c, false, &p, NULL));
    assert_int_equal(p.evicted_blocks, 0);
    assert_ok(residency_check(r, NULL));
    residency_free(r);
}

static void an_image_that_never_arrived_leaves_blocks_that_are_foreign_to_all(void **state)
{
    struct residency *r = new_residency(10, 1);
    uint32_t a = add(r, 6, 2);

    (void)state;
    place(r, a);
    residency_forget(r, a, 0);
    assert_int_equal(residency_held(r, a), 0);
    assert_true(arena_seg_at(residency_arena(r), 0).tag == ARENA_FOREIGN);
    assert_int_equal(arena_seg_at(residency_arena(r), 0).n, 6);
    assert_ok(residency_check(r, NULL));
    residency_free(r);
}

/* It needs two blocks more while a part of it is packed. */
static void a_packed_image_has_a_spare_end_until_it_is_unpacked(void **state)
{
    const struct residency_image im = {
        .n_blocks = 6, .keep_blocks = 1, .unpacked_blocks = 4, .tag = 1};
    struct residency *r = new_residency(8, 1);
    uint32_t a = 0;

    (void)state;
    assert_ok(residency_add(r, &im, &a, NULL));
    place(r, a);
    residency_set_packed(r, a, true);
    residency_pin(r, a);
    assert_int_equal(residency_blocks(r, a), 6);
    residency_set_packed(r, a, false); /* a run has unpacked it */
    assert_int_equal(residency_held(r, a), 6);
    residency_unpin(r, a);
    assert_int_equal(residency_held(r, a), 4);
    assert_int_equal(residency_blocks(r, a), 4);
    assert_true(arena_seg_at(residency_arena(r), 4).tag == 1); /* it was written: its own */
    place(r, a);
    assert_int_equal(residency_held(r, a), 4);
    residency_truncate(r, a, 3); /* what is sent again, is packed */
    assert_int_equal(residency_blocks(r, a), 6);
    place(r, a);
    assert_int_equal(residency_held(r, a), 6);
    residency_free(r);
}

static void what_leaves_a_packed_image_is_foreign_and_nothing_of_it_goes_first(void **state)
{
    struct residency *r = new_residency(8, 1);
    uint32_t a = add(r, 4, 1), b = add(r, 4, 1);

    (void)state;
    place(r, a);
    place(r, b);
    residency_set_packed(r, a, true);
    assert_int_equal(residency_trim(r, 3, SH_S(1), 0), 3); /* b's tail, which costs no time */
    assert_int_equal(residency_held(r, a), 4);
    residency_truncate(r, a, 2);
    assert_true(arena_seg_at(residency_arena(r), 2).tag == ARENA_FOREIGN);
    residency_remove(r, a);
    assert_true(arena_seg_at(residency_arena(r), 0).tag == ARENA_FOREIGN);
    residency_free(r);
}

static void a_pinned_image_is_never_a_victim(void **state)
{
    struct residency *r = new_residency(10, 1);
    uint32_t a = add(r, 5, 0), b = add(r, 5, 0), c = add(r, 5, 0);

    (void)state;
    place(r, a);
    place(r, b);
    residency_pin(r, a);
    place(r, c);
    assert_int_equal(residency_held(r, a), 5);
    assert_int_equal(residency_held(r, b), 0);
    residency_free(r);
}

static void a_head_whose_tail_was_taken_moves_to_a_place_for_all_of_it(void **state)
{
    struct residency *r = new_residency(10, 1);
    uint32_t a = add(r, 4, 4);
    struct residency_need need = {
        .n_blocks = 2, .kind = ARENA_WORK, .tag = 1, .spare = RESIDENCY_NO_IMAGE};
    struct arena_range w;
    struct residency_place p;

    (void)state;
    place(r, a);
    residency_truncate(r, a, 2);
    /* Something that cannot be evicted settles right behind the head. */
    assert_ok(arena_take(residency_arena(r), (struct arena_range){2, 3}, ARENA_TRAIN, 0, NULL));
    assert_ok(residency_place(r, a, true, &p, NULL));
    assert_int_equal(p.had_blocks, 2);
    assert_int_equal(p.had_first, 0);
    assert_true(p.range.first >= 5);
    assert_ok(residency_check(r, NULL));
    need.n_blocks = 7;
    assert_int_equal(residency_alloc(r, &need, &w, &(uint32_t){0}, NULL), SH_E_DEVMEM);
    residency_free(r);
}

static void a_workspace_spares_the_image_it_is_for(void **state)
{
    struct residency *r = new_residency(10, 1);
    uint32_t a = add(r, 6, 0), b = add(r, 3, 0), evicted;
    struct residency_need need = {.n_blocks = 4, .kind = ARENA_WORK, .tag = 1, .spare = a};
    struct arena_range w;

    (void)state;
    place(r, a);
    place(r, b);
    assert_ok(residency_alloc(r, &need, &w, &evicted, NULL));
    assert_int_equal(residency_held(r, a), 6);
    assert_int_equal(residency_held(r, b), 0);
    residency_release(r, &w, 1);
    need.n_blocks = 5; /* only the spared image could make room */
    assert_int_equal(residency_alloc(r, &need, &w, &evicted, NULL), SH_E_DEVMEM);
    residency_free(r);
}

static void a_workspace_prefers_blocks_that_need_no_scrub(void **state)
{
    struct residency *r = new_residency(12, 1);
    struct residency_need need = {
        .n_blocks = 4, .kind = ARENA_WORK, .tag = 1, .spare = RESIDENCY_NO_IMAGE};
    struct arena_range a, b;
    uint32_t evicted, first;

    (void)state;
    assert_ok(residency_alloc(r, &need, &a, &evicted, NULL));
    first = a.first;
    residency_release(r, &a, 1);
    need.tag = 2; /* another tenant avoids what the first left */
    assert_ok(residency_alloc(r, &need, &b, &evicted, NULL));
    assert_true(b.first != first);
    need.tag = 1; /* the first one gets its own back */
    assert_ok(residency_alloc(r, &need, &a, &evicted, NULL));
    assert_false(arena_has_tag(residency_arena(r), a, 2));
    residency_free(r);
}

static void the_background_takes_what_costs_no_time_first(void **state)
{
    struct residency *r = new_residency(12, 1);
    uint32_t a = add(r, 6, 2), b = add(r, 6, 6);

    (void)state;
    place(r, a);
    place(r, b);
    residency_touch(r, a, 100);
    residency_touch(r, b, 100);
    assert_int_equal(residency_trim(r, 3, 150, 100), 0); /* used too lately */
    assert_int_equal(residency_trim(r, 3, 500, 100), 3);
    assert_int_equal(residency_held(r, a), 3);
    assert_int_equal(residency_held(r, b), 6);
    assert_int_equal(residency_trim(r, 6, 500, 100), 3); /* then heads */
    assert_ok(residency_check(r, NULL));
    residency_free(r);
}

/* So many others come to a device for two before the first one, which is costly, has to go. */
static uint32_t outlives(uint32_t n_costly)
{
    const struct residency_conf conf = {.n_chance = 1, .n_costly = n_costly};
    struct residency *r = NULL;
    uint32_t a, n = 0;

    assert_ok(residency_new(8, &conf, &r, NULL));
    a = add(r, 4, 1);
    place(r, a);
    place(r, add(r, 4, 1));
    residency_set_costly(r, a, true);
    for (place(r, add(r, 4, 1)); residency_held(r, a) && n < 100; n++)
        place(r, add(r, 4, 1));
    residency_free(r);
    return n;
}

static void the_hand_passes_what_is_costly_more_often(void **state)
{
    (void)state;
    assert_int_equal(outlives(0), 0); /* as any other */
    assert_int_equal(outlives(1), 0);
    assert_int_equal(outlives(2), 1);
    assert_true(outlives(8) > outlives(4) && outlives(4) > outlives(2));
    assert_true(outlives(16) < 100); /* but not for ever */
}

static void what_is_costly_leaves_last_in_the_background(void **state)
{
    struct residency *r = new_residency(12, 1);
    uint32_t a = add(r, 6, 2), b = add(r, 6, 6);

    (void)state;
    place(r, a);
    place(r, b);
    residency_set_costly(r, a, true);
    assert_int_equal(residency_trim(r, 5, 500, 100), 5);
    assert_int_equal(residency_held(r, a), 6); /* no tail of it costs nothing */
    residency_set_costly(r, a, false);
    assert_int_equal(residency_trim(r, 9, 500, 100), 4);
    assert_int_equal(residency_held(r, a), 2);
    residency_set_costly(r, a, true);
    assert_int_equal(residency_trim(r, 12, 500, 100), 3);
    assert_ok(residency_check(r, NULL));
    residency_free(r);
}

static void a_clone_answers_what_if_without_doing_it(void **state)
{
    struct residency *r = new_residency(8, 1), *c = NULL;
    uint32_t a = add(r, 8, 0), b = add(r, 8, 0);
    struct residency_place p;

    (void)state;
    place(r, a);
    assert_ok(residency_clone(r, &c, NULL));
    assert_ok(residency_place(c, b, true, &p, NULL));
    assert_int_equal(residency_held(c, a), 0);
    assert_int_equal(residency_held(r, a), 8);
    assert_ok(residency_check(r, NULL));
    residency_free(c);
    residency_free(r);
}

/* The textbook's clock over k equal frames (N-th chance), to compare with. */
struct textbook {
    uint32_t k, n_chance, n, hand;
    uint32_t frame[64], use[64], count[64];
};

static bool textbook_reference(struct textbook *t, uint32_t x)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->frame[i] == x) {
            t->use[i] = 1;
            return true;
        }
    if (t->n < t->k) {
        t->frame[t->n] = x;
        t->use[t->n] = 1;
        t->count[t->n++] = 0;
        return false;
    }
    for (;; t->hand = (t->hand + 1) % t->k) {
        uint32_t h = t->hand;

        if (t->use[h]) {
            t->use[h] = 0;
            t->count[h] = 0;
        } else if (++t->count[h] >= t->n_chance) {
            break;
        }
    }
    t->frame[t->hand] = x;
    t->use[t->hand] = 1;
    t->count[t->hand] = 0;
    t->hand = (t->hand + 1) % t->k;
    return false;
}

static void equal_images_are_replaced_as_the_textbooks_clock_does(void **state)
{
    (void)state;
    for (uint32_t n_chance = 1; n_chance <= 4; n_chance *= 2)
        for (uint32_t k = 1; k <= 16; k *= 2) {
            struct residency *r = new_residency(k, n_chance);
            struct textbook t = {.k = k, .n_chance = n_chance};
            uint32_t id[40], x = 7;

            for (uint32_t i = 0; i < 40; i++)
                id[i] = add(r, 1, 1);
            for (int i = 0; i < 3000; i++) {
                /* Skewed: small numbers come often. */
                uint32_t m = sh_test_random(&x) % (sh_test_random(&x) % 40 + 1);
                bool hit = residency_held(r, id[m]) == 1;
                struct residency_place p;

                assert_int_equal(hit, textbook_reference(&t, m));
                assert_ok(residency_place(r, id[m], true, &p, NULL));
                residency_touch(r, id[m], i);
            }
            residency_free(r);
        }
}

/* Random life: images of random sizes, pins, workspaces. Every rule holds after every step. */
static void live_long(const struct residency_conf *conf)
{
    struct residency *r = NULL;
    struct arena_range work[4] = {{0}};
    uint32_t id[12], size[12], x = 99;
    int placed = 0, refused = 0;

    assert_ok(residency_new(64, conf, &r, NULL));
    for (uint32_t i = 0; i < 12; i++) {
        size[i] = sh_test_random(&x) % 30 + 1;
        id[i] = add(r, size[i], sh_test_random(&x) % size[i]);
    }
    for (int step = 0; step < 20000; step++) {
        uint32_t i = sh_test_random(&x) % 12, w = sh_test_random(&x) % 4, before[12];
        struct residency_need need = {.n_blocks = sh_test_random(&x) % 20 + 1,
                                      .kind = ARENA_WORK,
                                      .tag = w + 1,
                                      .spare = RESIDENCY_NO_IMAGE};
        struct residency_place p = {{0}};
        struct sh_err err = {0};
        uint32_t evicted = 0;
        int rc = SH_OK;

        for (int k = 0; k < 12; k++)
            before[k] = residency_held(r, id[k]);
        switch (sh_test_random(&x) % 6) {
        case 0:
        case 1:
            rc = residency_place(r, id[i], true, &p, NULL);
            placed += rc == SH_OK;
            if (!rc)
                assert_int_equal(residency_held(r, id[i]), size[i]);
            break;
        case 2:
            if (residency_held(r, id[i]) == size[i])
                residency_pin(r, id[i]);
            break;
        case 3:
            residency_unpin(r, id[i]);
            break;
        case 4:
            if (work[w].n)
                residency_release(r, &work[w], w + 1);
            else
                rc = residency_alloc(r, &need, &work[w], &evicted, NULL);
            break;
        default:
            residency_trim(r, sh_test_random(&x) % 64, step, 0);
        }
        refused += rc != SH_OK;
        for (int k = 0; k < 12; k++) {
            if (residency_pins(r, id[k]))
                assert_int_equal(residency_held(r, id[k]), size[k]);
            if (rc) /* a refusal takes nothing from anybody */
                assert_int_equal(residency_held(r, id[k]), before[k]);
        }
        assert_ok_err(residency_check(r, &err), &err);
    }
    assert_true(placed > 1000 && refused > 100); /* both happened, so both were tested */
    residency_free(r);
}

static void the_rules_hold_in_a_long_random_life_whatever_the_policy(void **state)
{
    (void)state;
    for (int p = 0; p < RESIDENCY_N_POLICIES; p++)
        live_long(&(struct residency_conf){
            .policy = (enum residency_policy)p, .n_chance = 2, .second_share = 0.25});
}

static void policies_have_names(void **state)
{
    struct sh_err err = {0};
    enum residency_policy p;

    (void)state;
    assert_ok(residency_policy("second-chance", &p, NULL));
    assert_int_equal(p, RESIDENCY_SECOND_CHANCE);
    assert_fails(residency_policy("belady", &p, &err), SH_E_INVALID, &err, "clock, lru, fifo");
}

static void with_no_policy_one_model_is_there_at_a_time(void **state)
{
    struct residency *r = NULL;
    struct residency_place p;
    uint32_t a, b, c;

    (void)state;
    assert_ok(residency_new(16, &(struct residency_conf){.policy = RESIDENCY_NONE}, &r, NULL));
    a = add(r, 4, 2);
    b = add(r, 4, 2);
    c = add(r, 4, 2);
    place(r, a);
    residency_pin(r, a);
    place(r, b);
    assert_int_equal(residency_held(r, a), 4); /* it runs */
    residency_unpin(r, a);
    assert_ok(residency_place(r, c, true, &p, NULL));
    assert_int_equal(p.evicted_blocks, 8);
    assert_int_equal(residency_held(r, a) + residency_held(r, b), 0);
    residency_free(r);
}

static void a_model_larger_than_the_device_is_refused_at_once(void **state)
{
    struct residency *r = new_residency(8, 1);
    const struct residency_image im = {.n_blocks = 9};
    struct sh_err err = {0};
    uint32_t id;

    (void)state;
    assert_fails(residency_add(r, &im, &id, &err), SH_E_TOOBIG, &err, "raise pool-bytes");
    residency_free(r);
}

static void no_more_images_than_was_said(void **state)
{
    const struct residency_image im = {.n_blocks = 1, .tag = 1};
    struct residency *r = NULL, *copy = NULL;
    struct sh_err err = {0};
    uint32_t id, last;

    (void)state;
    assert_ok(residency_new(8, &(struct residency_conf){.max_images = 2}, &r, NULL));
    add(r, 1, 1);
    last = add(r, 1, 1);
    place(r, last);
    assert_fails(residency_add(r, &im, &id, &err), SH_E_TOOBIG, &err, "max-loaded-versions");
    assert_ok(residency_clone(r, &copy, NULL));
    assert_int_equal(residency_held(copy, last), 1);
    assert_ok(residency_check(copy, NULL));
    residency_remove(r, last);
    assert_int_equal(add(r, 1, 1), last);
    residency_free(copy);
    residency_free(r);
}

static void a_number_is_given_again_after_its_image_has_gone(void **state)
{
    struct residency *r = new_residency(8, 1);
    uint32_t a = add(r, 2, 0), b = add(r, 2, 0);

    (void)state;
    place(r, a);
    residency_remove(r, a);
    assert_int_equal(arena_count(residency_arena(r), ARENA_IMAGE), 0);
    assert_int_equal(add(r, 3, 0), a);
    assert_true(a != b);
    residency_free(r);
}

static void a_distance_is_of_all_images_that_runs_used_since(void **state)
{
    struct residency *r = new_residency(8, 1);
    uint32_t a = add(r, 2, 0), b = add(r, 3, 0), c = add(r, 4, 0);

    (void)state;
    assert_true(residency_distance(r, a) == RESIDENCY_NEVER);
    assert_int_equal(residency_distance(r, a), 2);
    assert_true(residency_distance(r, b) == RESIDENCY_NEVER);
    assert_int_equal(residency_distance(r, b), 3);
    assert_int_equal(residency_distance(r, a), 5);
    residency_touch(r, c, 9); /* prepared, but no run used it */
    assert_int_equal(residency_distance(r, a), 2);
    assert_true(residency_distance(r, c) == RESIDENCY_NEVER);
    assert_int_equal(residency_distance(r, b), 9);
    residency_remove(r, c);
    assert_int_equal(residency_distance(r, a), 5);
    assert_int_equal(add(r, 1, 0), c); /* another image with its number */
    assert_true(residency_distance(r, c) == RESIDENCY_NEVER);
    residency_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_that_is_whole_stays_where_it_is),
        cmocka_unit_test(no_more_images_than_was_said),
        cmocka_unit_test(the_tail_is_evicted_and_the_head_stays),
        cmocka_unit_test(a_sticky_image_is_no_victim_and_comes_back_to_the_ring_when_it_is_not),
        cmocka_unit_test(a_minimum_is_not_taken_by_others_but_its_owner_may),
        cmocka_unit_test(the_part_of_a_minimum_that_training_uses_keeps_no_image),
        cmocka_unit_test(a_maximum_lets_the_tenants_own_older_images_go),
        cmocka_unit_test(a_maximum_costs_nothing_where_there_is_no_piece),
        cmocka_unit_test(who_holds_more_than_its_share_gives_way_first),
        cmocka_unit_test(a_clone_knows_the_quotas),
        cmocka_unit_test(a_place_without_eviction_takes_only_what_is_free),
        cmocka_unit_test(an_image_that_never_arrived_leaves_blocks_that_are_foreign_to_all),
        cmocka_unit_test(a_packed_image_has_a_spare_end_until_it_is_unpacked),
        cmocka_unit_test(what_leaves_a_packed_image_is_foreign_and_nothing_of_it_goes_first),
        cmocka_unit_test(a_pinned_image_is_never_a_victim),
        cmocka_unit_test(a_head_whose_tail_was_taken_moves_to_a_place_for_all_of_it),
        cmocka_unit_test(a_workspace_spares_the_image_it_is_for),
        cmocka_unit_test(a_workspace_prefers_blocks_that_need_no_scrub),
        cmocka_unit_test(the_background_takes_what_costs_no_time_first),
        cmocka_unit_test(the_hand_passes_what_is_costly_more_often),
        cmocka_unit_test(what_is_costly_leaves_last_in_the_background),
        cmocka_unit_test(a_clone_answers_what_if_without_doing_it),
        cmocka_unit_test(equal_images_are_replaced_as_the_textbooks_clock_does),
        cmocka_unit_test(the_rules_hold_in_a_long_random_life_whatever_the_policy),
        cmocka_unit_test(policies_have_names),
        cmocka_unit_test(with_no_policy_one_model_is_there_at_a_time),
        cmocka_unit_test(a_model_larger_than_the_device_is_refused_at_once),
        cmocka_unit_test(a_number_is_given_again_after_its_image_has_gone),
        cmocka_unit_test(a_distance_is_of_all_images_that_runs_used_since),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
