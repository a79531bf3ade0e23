/* test_slab.c - the payload slab.
 *
 * Without it two requests could share bytes, memory given back would stay in pieces until nothing
 * large fits any more, or one tenant could keep all others out.
 */
/* uses: api/request/slab.o */
#include "api/request/slab.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#define BYTES ((size_t)1 << 20)

static struct slab *make(size_t share)
{
    struct sh_err err = {0};
    struct slab *s = NULL;

    assert_ok_err(slab_new(BYTES, share, &s, &err), &err);
    return s;
}

static void slots_never_overlap(void **state)
{
    struct slab *s = make(BYTES);
    struct slab_slot *slot[64];
    uint32_t x = 12345;

    (void)state;
    for (size_t i = 0; i < 64; i++)
        assert_ok(slab_take(s, "a", 1 + (x = x * 1664525u + 1013904223u) % 8192, &slot[i], NULL));
    for (size_t round = 0; round < 2000; round++) {
        size_t i = (x = x * 1664525u + 1013904223u) % 64;

        slab_release(s, slot[i]);
        assert_ok(slab_take(s, "a", 1 + (x = x * 1664525u + 1013904223u) % 8192, &slot[i], NULL));
        assert_int_equal(slot[i]->off % SLAB_ALIGN, 0);
        for (size_t k = 0; k < 64; k++)
            assert_true(k == i || slot[k]->off + slot[k]->bytes <= slot[i]->off ||
                        slot[i]->off + slot[i]->bytes <= slot[k]->off);
    }
    for (size_t i = 0; i < 64; i++)
        slab_release(s, slot[i]);
    assert_int_equal(slab_used(s), 0);
    slab_free(s);
}

static void what_is_given_back_becomes_whole_again(void **state)
{
    static const size_t ORDER[] = {1, 3, 0, 2}; /* both neighbours, one, none */
    struct slab *s = make(BYTES);
    struct slab_slot *slot[4], *all = NULL;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_ok(slab_take(s, "a", BYTES / 4, &slot[i], NULL));
    for (size_t i = 0; i < 4; i++)
        slab_release(s, slot[ORDER[i]]);
    assert_ok(slab_take(s, "a", BYTES, &all, NULL));
    slab_release(s, all);
    slab_release(s, NULL);
    slab_free(s);
}

static void a_full_slab_says_so(void **state)
{
    struct slab *s = make(BYTES);
    struct slab_slot *all = NULL, *one = NULL;
    struct sh_err err = {0};

    (void)state;
    assert_ok(slab_take(s, "a", BYTES, &all, NULL));
    assert_fails(slab_take(s, "b", 1, &one, &err), SH_E_QUEUEFULL, &err, "full");
    assert_null(one);
    err = (struct sh_err){0};
    assert_fails(slab_take(s, "a", BYTES + 1, &one, &err), SH_E_TOOBIG, &err, "do not fit");
    slab_release(s, all);
    assert_ok(slab_take(s, "a", 0, &one, NULL)); /* a model may have empty tensors */
    slab_release(s, one);
    slab_free(s);
}

static void a_tenant_holds_no_more_than_its_share(void **state)
{
    struct slab *s = make(BYTES / 2);
    struct slab_slot *mine[2], *theirs = NULL, *more = NULL;
    struct sh_err err = {0};

    (void)state;
    assert_fails(slab_take(s, "a", BYTES / 2 + 1, &more, &err), SH_E_TOOBIG, &err, "do not fit");
    assert_ok(slab_take(s, "a", BYTES / 4, &mine[0], NULL));
    assert_ok(slab_take(s, "a", BYTES / 4, &mine[1], NULL));
    err = (struct sh_err){0};
    assert_fails(slab_take(s, "a", 1, &more, &err), SH_E_QUOTA, &err, "tenant \"a\"");
    assert_ok(slab_take(s, "b", BYTES / 2, &theirs, NULL));
    slab_release(s, mine[1]);
    assert_ok(slab_take(s, "a", BYTES / 4, &mine[1], NULL)); /* what is given back counts again */
    slab_release(s, theirs);
    slab_release(s, mine[0]);
    slab_release(s, mine[1]);
    assert_ok(slab_take(s, "a", BYTES / 2, &more, NULL));
    slab_release(s, more);
    assert_int_equal(slab_used(s), 0);
    slab_free(s);
}

static void what_a_tenant_has_elsewhere_is_in_its_share(void **state)
{
    struct slab *s = make(BYTES / 2);
    struct slab_count n = {NULL, 0}, more = {NULL, 0}, other = {NULL, 0};
    struct slab_slot *slot = NULL;
    struct sh_err err = {0};

    (void)state;
    assert_ok(slab_count(s, &n, "a", BYTES / 4, NULL));
    assert_ok(slab_count(s, &more, "a", BYTES / 4, NULL));
    assert_fails(slab_count(s, &more, "a", BYTES / 4 + 1, &err), SH_E_QUOTA, &err, "\"a\"");
    assert_int_equal(more.bytes, BYTES / 4);
    err = (struct sh_err){0};
    assert_fails(slab_take(s, "a", 1, &slot, &err), SH_E_QUOTA, &err, "payload memory");
    assert_ok(slab_count(s, &other, "b", BYTES / 2, NULL)); /* it takes nothing of the slab */
    assert_int_equal(slab_used(s), 0);
    assert_ok(slab_count(s, &n, "a", 10, NULL));
    assert_ok(slab_take(s, "a", BYTES / 8, &slot, NULL));
    assert_ok(slab_count(s, &n, "a", 0, NULL));
    assert_null(n.holder);
    slab_release(s, slot);
    assert_ok(slab_count(s, &more, "a", 0, NULL)); /* nothing stays: ASan would say */
    assert_ok(slab_count(s, &other, "b", 0, NULL));
    slab_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_never_overlap),
        cmocka_unit_test(what_is_given_back_becomes_whole_again),
        cmocka_unit_test(a_full_slab_says_so),
        cmocka_unit_test(a_tenant_holds_no_more_than_its_share),
        cmocka_unit_test(what_a_tenant_has_elsewhere_is_in_its_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
