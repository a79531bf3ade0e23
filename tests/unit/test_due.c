/* test_due.c - without it, what has to be looked at at a time could be looked at late, twice, or
 * never. */
#include "common/due.h"
#include "tests/unit/sh_test.h"

#define N 5

static struct sh_due of[N];
static struct sh_tree t;

static int begin(void **state)
{
    (void)state;
    t = (struct sh_tree){0};
    for (size_t i = 0; i < N; i++)
        of[i] = (struct sh_due){.id = i};
    return 0;
}

static void the_first_is_told_when_its_time_has_come(void **state)
{
    (void)state;
    assert_null(sh_due_first(&t, INT64_MAX));
    sh_due_set(&t, &of[0], 30);
    sh_due_set(&t, &of[1], 10);
    sh_due_set(&t, &of[2], 20);
    assert_null(sh_due_first(&t, 9));
    assert_ptr_equal(sh_due_first(&t, 10), &of[1]);
    sh_due_set(&t, &of[1], 40); /* another time */
    assert_int_equal(sh_due_at(&of[1]), 40);
    assert_ptr_equal(sh_due_first(&t, 100), &of[2]);
    assert_int_equal(t.n, 3);
}

static void never_takes_it_out_and_is_no_time(void **state)
{
    (void)state;
    assert_int_equal(sh_due_at(&of[3]), SH_DUE_NEVER); /* it was in no tree yet */
    sh_due_set(&t, &of[3], SH_DUE_NEVER);
    assert_int_equal(t.n, 0);
    sh_due_set(&t, &of[3], 0);
    assert_int_equal(sh_due_at(&of[3]), 0);
    sh_due_set(&t, &of[3], SH_DUE_NEVER);
    assert_int_equal(t.n, 0);
    assert_null(sh_due_first(&t, INT64_MAX));
}

static void those_of_one_time_come_by_their_ids(void **state)
{
    (void)state;
    for (size_t i = N; i-- > 0;)
        sh_due_set(&t, &of[i], 7);
    for (size_t i = 0; i < N; i++) {
        struct sh_due *d = sh_due_first(&t, 7);

        assert_ptr_equal(d, &of[i]);
        sh_due_set(&t, d, SH_DUE_NEVER);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_first_is_told_when_its_time_has_come, begin),
        cmocka_unit_test_setup(never_takes_it_out_and_is_no_time, begin),
        cmocka_unit_test_setup(those_of_one_time_come_by_their_ids, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
