/* test_cache.c - which blobs an executor keeps.
 *
 * Without it a file could go while a worker reads it, one that is asked for every minute could go
 * before one of last year, and the folder could grow without end.
 */
/* uses: executor/files/cache.o */
#include "executor/files/cache.h"
#include "tests/unit/sh_test.h"

#include <stdio.h>
#include <string.h>

struct world {
    struct cache *c;
    char gone[256]; /* names in the order in which they went */
};

static void on_evict(const char *name, uint64_t bytes, void *arg)
{
    struct world *w = arg;

    assert_true(bytes > 0);
    snprintf(w->gone + strlen(w->gone), sizeof(w->gone) - strlen(w->gone), "%s ", name);
}

static struct cache_item *put(struct world *w, const char *name, uint64_t bytes)
{
    struct cache_item *i = NULL;

    assert_ok(cache_reserve(w->c, name, bytes, &i, NULL));
    return i;
}

static void start(struct world *w, uint64_t limit)
{
    *w = (struct world){0};
    assert_ok(cache_new(limit, on_evict, w, &w->c, NULL));
}

static void the_one_that_was_used_longest_ago_goes_first(void **state)
{
    struct world w;

    (void)state;
    start(&w, 100);
    cache_release(w.c, put(&w, "a", 40));
    cache_release(w.c, put(&w, "b", 40));
    cache_use(w.c, cache_find(w.c, "a"));
    cache_release(w.c, cache_find(w.c, "a"));
    put(&w, "c", 30);
    assert_string_equal(w.gone, "b ");
    assert_null(cache_find(w.c, "b"));
    assert_int_equal(cache_bytes(w.c), 70);
    cache_free(w.c);
}

static void what_is_in_use_never_goes(void **state)
{
    struct cache_item *i = NULL;
    struct sh_err err = {0};
    struct world w;

    (void)state;
    start(&w, 100);
    put(&w, "used", 60);
    cache_release(w.c, put(&w, "idle", 30));
    assert_fails(cache_reserve(w.c, "c", 50, &i, &err), SH_E_DISKFULL, &err, "--blob-cache-bytes");
    assert_null(i);
    assert_string_equal(w.gone, ""); /* it would not have helped */
    put(&w, "d", 40);
    assert_string_equal(w.gone, "idle ");
    cache_free(w.c);
}

static void two_users_of_one_are_counted(void **state)
{
    struct cache_item *i;
    struct world w;

    (void)state;
    start(&w, 100);
    i = put(&w, "a", 90);
    cache_use(w.c, i);
    cache_release(w.c, i);
    assert_int_equal(cache_reserve(w.c, "b", 20, &(struct cache_item *){NULL}, NULL),
                     SH_E_DISKFULL);
    cache_release(w.c, i);
    put(&w, "b", 20);
    assert_string_equal(w.gone, "a ");
    cache_free(w.c);
}

static void what_turns_out_larger_is_bounded_as_soon_as_it_can_be(void **state)
{
    struct cache_item *i;
    struct world w;

    (void)state;
    start(&w, 100);
    cache_release(w.c, put(&w, "old", 40));
    i = put(&w, "new", 50);
    cache_resize(w.c, i, 120);
    assert_string_equal(w.gone, "old ");
    assert_int_equal(cache_bytes(w.c), 120); /* in use */
    cache_release(w.c, i);
    assert_string_equal(w.gone, "old new ");
    assert_int_equal(cache_bytes(w.c), 0);
    assert_ok(cache_adopt(w.c, "there", 130, &i, NULL)); /* it lies there in any case */
    assert_int_equal(cache_bytes(w.c), 130);
    cache_free(w.c);
}

static void without_a_limit_nothing_goes(void **state)
{
    struct world w;

    (void)state;
    start(&w, 0);
    cache_release(w.c, put(&w, "a", UINT64_C(1) << 60));
    cache_release(w.c, put(&w, "b", UINT64_C(1) << 60));
    assert_string_equal(w.gone, "");
    cache_free(w.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_one_that_was_used_longest_ago_goes_first),
        cmocka_unit_test(what_is_in_use_never_goes),
        cmocka_unit_test(two_users_of_one_are_counted),
        cmocka_unit_test(what_turns_out_larger_is_bounded_as_soon_as_it_can_be),
        cmocka_unit_test(without_a_limit_nothing_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
