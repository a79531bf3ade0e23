/* test_wire_oom.c - without it, a peer could go on behind a message that was lost for want of
 * memory: a run that ended and is still waited for, a part that is missing, a slab that never came.
 */
/* link: -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc */
#include "tests/unit/oom.h"
#include "tests/unit/wire_test.h"

/* The second of three is lost. */
static void check(struct world *w, const struct sh_msg *second, int rc)
{
    const struct sh_msg third = ping(3);
    struct sh_err err = {0};

    assert_int_equal(sh_wire_send(w->a.w, second, &err), rc);
    calls_left = -1;
    assert_int_equal(err.rc, rc);
    err = (struct sh_err){0};
    assert_fails(sh_wire_send(w->a.w, &third, &err), SH_E_UNAVAILABLE, &err, "closed");
    sh_wire_uncork(w->a.w);
    UNTIL(w, w->a.n_closed && w->b.n_closed);
    assert_int_equal(w->a.why.rc, rc);
    assert_true(w->b.n_msgs <= 1);
    assert_false(w->b.out_of_order);
}

static void nothing_follows_a_message_for_which_there_was_no_memory(void **state)
{
    struct world *w = *state;
    const struct sh_msg first = ping(1), second = ping(2);

    open_both(w);
    sh_wire_cork(w->a.w);
    assert_ok(sh_wire_send(w->a.w, &first, NULL));
    calls_left = 0;
    fails_once = true;
    check(w, &second, SH_E_NOMEM);
}

static void nothing_follows_a_message_that_is_too_large(void **state)
{
    static unsigned char bytes[SH_WIRE_MAX_FRAME + 1];
    struct world *w = *state;
    const struct sh_msg first = ping(1), second = chunk(2, bytes, sizeof(bytes));

    open_both(w);
    assert_ok(sh_wire_send(w->a.w, &first, NULL));
    sh_wire_cork(w->a.w);
    check(w, &second, SH_E_TOOBIG);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_follows_a_message_for_which_there_was_no_memory),
        TEST(nothing_follows_a_message_that_is_too_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
