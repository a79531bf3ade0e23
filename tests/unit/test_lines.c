/* test_lines.c - which of the waiting jobs the scheduler holds.
 *
 * Without it: jobs of one tenant or queue could fill the memory in which others wait for their
 * turn, a job could start before one that goes first, or a line could be left with jobs behind its
 * edge that nobody reads. */
/* uses: scheduler/decide/lines.o */
#include "common/mem.h"
#include "scheduler/decide/lines.h"
#include "tests/unit/sh_test.h"

#define MOST ((size_t)16 * LINES_MAX_WINDOW)

static struct line_key key(int64_t tenant, int64_t queue)
{
    return (struct line_key){.tenant_id = tenant, .queue_id = queue, .version_id = 1};
}

static struct line_place place(int32_t priority, int64_t us, int64_t id)
{
    return (struct line_place){.priority = priority, .line_us = us, .id = id};
}

static struct line *get(struct lines *ls, struct line_key k)
{
    struct line *l = NULL;

    assert_ok(lines_get(ls, &k, &l, NULL));
    return l;
}

static void priority_goes_before_time_and_time_before_number(void **state)
{
    struct line_place urgent = place(9, 50, 7), old = place(1, 10, 8), low = place(1, 20, 5),
                      last = place(1, 20, 6);

    (void)state;
    assert_true(line_place_cmp(&urgent, &old) < 0 && line_place_cmp(&old, &low) < 0);
    assert_true(line_place_cmp(&low, &last) < 0 && line_place_cmp(&last, &low) > 0);
    assert_int_equal(line_place_cmp(&low, &low), 0);
}

static void whatever_can_hold_one_job_back_and_not_the_other_makes_two_lines(void **state)
{
    struct lines ls = {.most = MOST};
    struct line_key k[] = {key(1, 1), key(2, 1), key(1, 2), key(1, 1),
                           key(1, 1), key(1, 1), key(1, 1), key(1, 1)};

    (void)state;
    k[3].version_id = 2;
    k[4].is_batch = true;
    k[5].preemptible = true;
    k[6].array_id = 9;
    k[7].gpus = 2;
    for (size_t i = 0; i < SH_ARRAY_LEN(k); i++) {
        assert_null(lines_find(&ls, &k[i]));
        get(&ls, k[i])->n = i + 1;
    }
    assert_int_equal(ls.n, SH_ARRAY_LEN(k));
    for (size_t i = 0; i < SH_ARRAY_LEN(k); i++)
        assert_int_equal(lines_find(&ls, &k[i])->n, i + 1);
    for (size_t i = 1; i < ls.n; i++)
        assert_true(line_key_cmp(&ls.items[i - 1]->key, &ls.items[i]->key) < 0);
    lines_fini(&ls);
}

static void a_line_that_is_cut_covers_what_goes_before_its_edge(void **state)
{
    struct lines ls = {.most = MOST};
    struct line *l = get(&ls, key(1, 1));
    struct line_place edge = place(5, 100, 10), before = place(6, 900, 90),
                      after = place(5, 100, 11);

    (void)state;
    assert_true(line_covers(l, &after)); /* all of it is held */
    line_read_to(l, &edge, true);
    assert_true(line_covers(l, &before) && line_covers(l, &edge));
    assert_false(line_covers(l, &after));
    line_read_to(l, NULL, false); /* nothing was behind the edge */
    assert_true(line_covers(l, &after));
    lines_fini(&ls);
}

static void a_line_that_grew_keeps_its_first_jobs(void **state)
{
    struct lines ls = {.most = MOST};
    struct line *l = get(&ls, key(1, 1));
    struct line_place p[] = {place(0, 3, 3), place(0, 1, 1), place(7, 9, 9), place(0, 2, 2)};
    struct line_place third = place(0, 2, 2), second = place(0, 1, 1);

    (void)state;
    line_shrink(l, p, SH_ARRAY_LEN(p), 4);
    assert_false(l->cut); /* nothing had to go */
    line_shrink(l, p, SH_ARRAY_LEN(p), 2);
    assert_true(l->cut && line_covers(l, &second));
    assert_false(line_covers(l, &third));
    lines_fini(&ls);
}

static void a_line_is_read_on_before_it_is_empty_and_shrunk_after_it_has_doubled(void **state)
{
    struct lines ls = {.most = MOST};
    struct line *l = get(&ls, key(1, 1));
    struct line_place edge = place(0, 1, 1);

    (void)state;
    assert_false(lines_is_low(&ls, l)); /* there is nothing to read */
    line_read_to(l, &edge, true);
    l->n = LINES_MAX_WINDOW / 2 + 1;
    assert_false(lines_is_low(&ls, l));
    l->n--;
    assert_true(lines_is_low(&ls, l));
    l->n = 2 * LINES_MAX_WINDOW;
    assert_false(lines_is_over(&ls, l));
    l->n++;
    assert_true(lines_is_over(&ls, l));
    lines_fini(&ls);
}

static void many_lines_have_smaller_windows_and_each_has_one(void **state)
{
    (void)state;
    assert_int_equal(lines_window(0, MOST), LINES_MAX_WINDOW);
    assert_int_equal(lines_window(10, MOST), LINES_MAX_WINDOW);
    assert_int_equal(lines_window(MOST / 16, MOST), 16);
    assert_int_equal(lines_window(MOST, MOST), LINES_MIN_WINDOW);
    for (size_t n = 1; n <= MOST; n++)
        assert_true(n * lines_window(n, MOST) <= MOST);
}

static void
no_more_lines_than_there_is_room_for_and_then_a_new_one_waits_for_a_full_look(void **state)
{
    struct lines ls = {.most = MOST};
    struct line_key more = key(1, MOST + 1);
    struct line_place any = place(1000, 0, 1);
    struct sh_err err = {0};
    struct line *l;

    (void)state;
    for (int64_t i = 1; i <= (int64_t)MOST; i++)
        get(&ls, key(1, i))->n = 1;
    assert_fails(lines_get(&ls, &more, &l, &err), SH_E_TOOBIG, &err, "--max-lines");
    ls.items[0]->n = 0; /* one has ended */
    lines_drop_empty(&ls);
    ls.crowded = true;
    l = get(&ls, more);
    assert_false(line_covers(l, &any)); /* others may stand there before it: */
    assert_true(lines_is_low(&ls, l));  /* they are read first */
    lines_drop_empty(&ls);
    assert_int_equal(ls.n, MOST);
    lines_fini(&ls);
}

static void a_level_is_four_times_the_device_time_and_its_handicap_64_times_that(void **state)
{
    static const int64_t S = INT64_C(1000000000);

    (void)state;
    assert_int_equal(lines_level(60 * S - 1, 60 * S), 0);
    assert_int_equal(lines_level(60 * S, 60 * S), 1);
    assert_int_equal(lines_level(240 * S - 1, 60 * S), 1);
    assert_int_equal(lines_level(240 * S, 60 * S), 2);
    assert_int_equal(lines_level(INT64_MAX, 60 * S), 7);
    assert_int_equal(lines_level(INT64_MAX, 0), 0); /* there are none */
    assert_int_equal(lines_handicap_us(60 * S - 1, 60 * S), 0);
    assert_int_equal(lines_handicap_us(60 * S, 60 * S), 64 * 60 * INT64_C(1000000));
    assert_int_equal(lines_handicap_us(1000 * S, 60 * S), 64 * 1000 * INT64_C(1000000));
    assert_int_equal(lines_handicap_us(INT64_MAX, 60 * S), 64 * 245760 * INT64_C(1000000));
    assert_int_equal(lines_handicap_us(INT64_MAX, 0), 0);
    for (uint32_t level = 1; level <= 7; level++)
        assert_int_equal(lines_level(lines_level_from_ns(level, 7 * S), 7 * S), level);
    assert_int_equal(lines_level_from_ns(8, 7 * S), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(priority_goes_before_time_and_time_before_number),
        cmocka_unit_test(whatever_can_hold_one_job_back_and_not_the_other_makes_two_lines),
        cmocka_unit_test(a_line_that_is_cut_covers_what_goes_before_its_edge),
        cmocka_unit_test(a_line_that_grew_keeps_its_first_jobs),
        cmocka_unit_test(a_line_is_read_on_before_it_is_empty_and_shrunk_after_it_has_doubled),
        cmocka_unit_test(a_level_is_four_times_the_device_time_and_its_handicap_64_times_that),
        cmocka_unit_test(many_lines_have_smaller_windows_and_each_has_one),
        cmocka_unit_test(
            no_more_lines_than_there_is_room_for_and_then_a_new_one_waits_for_a_full_look),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
