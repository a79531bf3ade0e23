/* test_share.c - chunks that images of one tenant have alike are held once. Without it: an image
 * could get bytes of another one, or lose them when that one goes; a tenant could learn from its
 * own limit what another one has; and who made one image could write to all that share with it. */
/* uses: tests/unit/share_world.o executor/models/share.o executor/models/model_life.o executor/memory/locking.o runtime/device/lock.o */
#include "common/units.h"
#include "tests/unit/share_world.h"

#include <sys/mman.h>

static void versions_of_which_the_head_differs_hold_the_rest_once(void **state)
{
    const char *const is[] = {"abcdefgX", "abcdefgY", "abcdefgZ"};
    unsigned n_locks;
    (void)state;

    for (size_t i = 0; i < 3; i++)
        w_put(i, 1, is[i], (char)('0' + i));
    assert_int_equal(w_held_bytes(), 3 * (CHUNKS(8) + TAIL_PAGES));
    w_all_rests();
    for (size_t i = 0; i < 3; i++)
        w_check(&w.m[i], is[i], (char)('0' + i));
    assert_int_equal(w_held_bytes(), CHUNKS(7) + 3 * (CHUNKS(1) + TAIL_PAGES));
    assert_int_equal(share_saved_bytes(NULL), 2 * CHUNKS(7));
    assert_in_range(w_counted_bytes(), w_held_bytes(), w_held_bytes() + 3 * 8);
    n_locks = w.n_locks;
    assert_true(n_locks >= 3);
    assert_int_equal(w.n_opened, 3);
    assert_int_equal(w.n_closed, 3);
    w_all_rests(); /* and nothing more is to be done */
    assert_int_equal(w.n_locks, n_locks);
}

static void another_tenant_with_the_same_image_shares_nothing(void **state)
{
    const uint64_t alone = CHUNKS(3) + TAIL_PAGES;
    (void)state;

    w_put(0, 1, "abc", 't');
    w_put(1, 2, "abc", 't');
    w_all_rests();
    assert_int_equal(w_held_bytes(), 2 * alone);
    assert_int_equal(w.n_locks, 0); /* nor is anything copied, which would take time */
    w_put(2, 1, "abc", 'u');        /* tenant 1 shares; others see nothing of it */
    w_all_rests();
    w_put(3, 3, "abc", 't');
    w_all_rests();
    assert_int_equal(share__bytes(&w.m[3]), alone);
    assert_int_equal(share__bytes(&w.m[1]), alone);
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(3));
    for (size_t i = 0; i < N_MODELS; i++)
        w_check(&w.m[i], "abc", i == 2 ? 'u' : 't');
}

/* What is added is a multiple of the polynomial of CRC-32C: the sum stays the same. */
static void forge(uint8_t *p)
{
    const uint64_t polynomial = UINT64_C(0x11edc6f41);

    for (unsigned i = 0; i <= 32; i++)
        if (polynomial >> (32 - i) & 1)
            p[i / 8] ^= (uint8_t)(1u << i % 8);
}

static void bytes_are_compared_not_only_sums(void **state)
{
    const size_t chunk = 2 * SHARE_CHUNK, at = chunk + 100;
    const struct model *m = w_put(0, 1, "abcdef", 't'), *o = w_put(1, 1, "abcdef", 't');
    uint8_t forged[8];
    (void)state;

    forge((uint8_t *)o->image.base + at);
    memcpy(forged, (uint8_t *)o->image.base + at, sizeof(forged));
    assert_int_equal(sh_crc32c(0, (char *)m->image.base + chunk, SHARE_CHUNK),
                     sh_crc32c(0, (char *)o->image.base + chunk, SHARE_CHUNK));
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(5));
    w_check(m, "abcdef", 't');
    assert_memory_equal((uint8_t *)o->image.base + at, forged, sizeof(forged));
    forge(forged);
    assert_memory_equal((uint8_t *)m->image.base + at, forged, sizeof(forged));
}

static void an_image_whose_sums_mislead_is_left_alone(void **state)
{
    (void)state;
    w_put(0, 1, "abc", 't');
    w_put(1, 1, "abc", 'u');
    w_all_rests();
    w_put(2, 1, "abc", 'v');
    for (size_t i = 0; i < 3; i++)
        forge((uint8_t *)w.m[2].image.base + i * SHARE_CHUNK);
    for (int i = 0; i < 12 && !w.m[2].share.is_alone; i++) {
        w_all_rests();
        w_later(3600);
    }
    assert_true(w.m[2].share.is_alone);
    assert_null(w.m[2].share.trunk);
    assert_int_equal(w_held_bytes(), CHUNKS(6) + 3 * TAIL_PAGES);
}

static void who_made_an_image_cannot_change_what_others_share(void **state)
{
    (void)state;
    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    w.maker = mmap(NULL, SHARE_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, w.m[0].image.fd, 0);
    assert_ptr_not_equal(w.maker, MAP_FAILED);
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    memset(w.maker, 'E', SHARE_CHUNK);
    w_check(&w.m[0], "abX", 't');
    w_check(&w.m[1], "abY", 'u');
}

static void one_goes_and_the_others_stay_whole(void **state)
{
    (void)state;
    w_put(0, 1, "abcX", 't');
    w_put(1, 1, "abcY", 'u');
    w_put(2, 1, "abQZ", 'v');
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2 * 2 + 1));
    w_drop(&w.m[0]);
    assert_int_equal(w_held_bytes(), CHUNKS(3 + 1 + 2) + 2 * TAIL_PAGES);
    w_check(&w.m[1], "abcY", 'u');
    w_drop(&w.m[1]); /* what only that had of the trunk is free */
    assert_int_equal(w_held_bytes(), CHUNKS(4) + TAIL_PAGES);
    assert_int_equal(share__bytes(&w.m[2]), CHUNKS(4) + TAIL_PAGES);
    w_check(&w.m[2], "abQZ", 'v');
    w_put(0, 1, "abQX", 'w'); /* and its place is taken again */
    w_put(1, 1, "abQY", 'x');
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2 * 2 + 1));
    w_check(&w.m[0], "abQX", 'w');
    w_check(&w.m[1], "abQY", 'x');
    w_check(&w.m[2], "abQZ", 'v');
}

static void what_becomes_free_is_known_before_they_leave(void **state)
{
    struct leave_image v[] = {{.owner = &w.m[0]}, {.owner = &w.m[1]}, {.owner = &w.m[2]}};
    (void)state;

    w_put(0, 1, "abcX", 't');
    w_put(1, 1, "abcY", 'u');
    w_put(2, 1, "QRST", 'v');
    w_all_rests();
    for (unsigned set = 0; set < 8; set++) {
        const bool both = (set & 3) == 3;
        uint64_t want = both ? CHUNKS(3) : 0;

        for (unsigned i = 0; i < 3; i++) {
            v[i].leaves = set >> i & 1;
            want += v[i].leaves ? CHUNKS(i == 2 ? 4 : 1) : 0;
            want += v[i].leaves ? w.m[i].image.bytes - CHUNKS(4) : 0;
        }
        assert_int_equal(share__free_bytes(v, 3), want);
    }
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(3)); /* nobody has left */
    assert_int_equal(share__frees(&w.m[0]), w.m[0].image.bytes - CHUNKS(3));
    assert_int_equal(share__frees(&w.m[2]), w.m[2].image.bytes);
    assert_int_equal(share__shared(&w.m[0]) + share__shared(&w.m[1]), CHUNKS(3));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(share__bytes(&w.m[i]) - share__shared(&w.m[i]), share__frees(&w.m[i]));
    w_drop(&w.m[1]);
    assert_int_equal(share__frees(&w.m[0]), w.m[0].image.bytes);
    assert_int_equal(share__bytes(&w.m[0]), w.m[0].image.bytes);
}

/* What it was the last to have is not given back under who has been compared with it. */
static void a_sibling_leaves_while_one_is_compared_with_it(void **state)
{
    (void)state;
    w_put(0, 1, "abcX", 't');
    w_put(1, 1, "abQY", 'u');
    w_all_rests();
    w_put(2, 1, "abcZ", 'v');
    w_copy_chunks(3); /* a and b are of both, c of the first alone */
    w_drop(&w.m[0]);
    w_drop(&w.m[1]);
    w_all_rests();
    assert_non_null(w.m[2].share.trunk);
    w_check(&w.m[2], "abcZ", 'v');
    assert_int_equal(w_held_bytes(), CHUNKS(4) + TAIL_PAGES);
    assert_int_equal(share__bytes(&w.m[2]), w.m[2].image.bytes);
}

static void an_image_has_few_mappings(void **state)
{
    const char *const all = "abcdefghijklmnopqrstuv", *const odd = "aBcDeFgHiJkLmNoPqRsTuV";
    (void)state;

    w_put(0, 1, all, 't');
    w_put(1, 1, all, 'u');
    w_all_rests();
    w_put(2, 1, odd, 'v');
    w_all_rests();
    w_check(&w.m[0], all, 't');
    w_check(&w.m[2], odd, 'v');
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(22 + 8));
    assert_int_equal(w_held_bytes(), CHUNKS(22 + 22 - 8) + 3 * TAIL_PAGES);
}

static void images_of_other_lengths_share_what_both_have(void **state)
{
    (void)state;
    w_put(0, 1, "abc", 't');
    w_put(1, 1, "abcdefg", 'u');
    w_put(2, 1, "ab", 'v');
    w_put(3, 1, "", 'w'); /* less than a chunk */
    w_all_rests();
    w_check(&w.m[0], "abc", 't');
    w_check(&w.m[1], "abcdefg", 'u');
    w_check(&w.m[2], "ab", 'v');
    w_check(&w.m[3], "", 'w');
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(3 + 2));
    assert_null(w.m[3].share.trunk);
}

static void what_is_hardly_alike_is_not_copied(void **state)
{
    (void)state;
    w_put(0, 1, "abcdefghi", 't');
    w_put(1, 1, "aBCDEFGHI", 'u');
    w_all_rests();
    assert_int_equal(w.n_locks, 0);
    w_put(2, 1, "aXCDEFGHI", 'v');
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(8)); /* with the one it is like */
}

static void it_begins_only_if_it_may(void **state)
{
    (void)state;
    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    env.shares = false;
    share_second(NULL);
    assert_null(w.out);
    env.shares = true;
    w.m[0].tier.at = w.m[1].tier.at = TIER_COMING;
    share_second(NULL);
    assert_null(w.out);
    w.m[0].tier.at = w.m[1].tier.at = TIER_HOST;
    w.is_full = true; /* the thread's queue */
    share_second(NULL);
    assert_null(w.out);
    w.is_full = false;
    share_second(NULL); /* it is at one already, whose next tick asks again */
    assert_null(w.out);
    share__tick(NULL);
    assert_non_null(w.out);
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
}

static void an_image_that_was_away_shares_again(void **state)
{
    (void)state;
    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    w_all_rests();
    share__leave(&w.m[1]);
    w_unlock(&w.m[1]);
    sh_shm_fini(&w.m[1].image);
    w.m[1].tier.at = TIER_DISK;
    w_all_rests();
    assert_int_equal(w_held_bytes(), CHUNKS(3) + TAIL_PAGES);
    assert_int_equal(share__bytes(&w.m[1]), 0);
    assert_ok(sh_shm_create("shunt-image", w_bytes_of("abY"), &w.m[1].image, NULL));
    w_fill(w.m[1].image.base, "abY", 'u');
    w.m[1].tx.host = w.m[1].image.base;
    w.m[1].tier.at = TIER_HOST;
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    w_check(&w.m[1], "abY", 'u');
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, w_set_up, w_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(versions_of_which_the_head_differs_hold_the_rest_once),
        TEST(another_tenant_with_the_same_image_shares_nothing),
        TEST(bytes_are_compared_not_only_sums),
        TEST(an_image_whose_sums_mislead_is_left_alone),
        TEST(who_made_an_image_cannot_change_what_others_share),
        TEST(one_goes_and_the_others_stay_whole),
        TEST(what_becomes_free_is_known_before_they_leave),
        TEST(a_sibling_leaves_while_one_is_compared_with_it),
        TEST(an_image_has_few_mappings),
        TEST(images_of_other_lengths_share_what_both_have),
        TEST(what_is_hardly_alike_is_not_copied),
        TEST(it_begins_only_if_it_may),
        TEST(an_image_that_was_away_shares_again),
    };

    return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
