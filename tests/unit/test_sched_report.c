/* test_sched_report.c - what a leader writes down for people and for what-if questions, where the
 * database does not take it at once.
 *
 * Without it: a statement that took too long on a busy machine would lose ten seconds of requests,
 * and what-if questions about them would rest on fewer than came. */
/* uses: scheduler/records/report.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

static struct peer x, a; /* an executor and an API */
static uint64_t n_asked;

static void ask(unsigned n)
{
    while (n-- > 0)
        say(&a,
            &(struct sh_msg){
                .type = MSG_INFER_OPEN,
                .u.infer_open = {.rid = ++n_asked, .tenant = "t", .model = "m", .version_id = 1}});
}

static void serve(void)
{
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    api_hello(&a, 7);
}

static void a_slice_is_written_once(void **state)
{
    (void)state;
    serve();
    ask(3);
    stay(9 * SECOND);
    assert_int_equal(w.n_slices, 0);
    stay(3 * SECOND);
    assert_int_equal(w.n_slices, 1);
    assert_int_equal(w.n_arrivals, 3);
    stay(30 * SECOND);
    assert_int_equal(w.n_slices, 1);
}

/* Written when it can be, as of when it began; and what came meanwhile is the next one. */
static void a_slice_that_was_not_taken_is_written_later(void **state)
{
    (void)state;
    for (int is_full = 0; is_full < 2; is_full++) {
        serve();
        ask(3);
        stay(9 * SECOND);
        w.is_full = is_full; /* the queue; or the database takes too long */
        if (!is_full)
            db_fail("report", SH_E_TIMEOUT, 100);
        stay(2 * SECOND);
        assert_int_equal(w.n_slices, 0);
        ask(2);
        w.is_full = false;
        db_fail("report", SH_OK, 0);
        stay(2 * SECOND);
        assert_int_equal(w.n_slices, 1);
        assert_int_equal(w.n_arrivals, 3);
        assert_true(w.arrived_s > 11 && w.arrived_s <= 13);
        stay(12 * SECOND);
        assert_int_equal(w.n_slices, 2);
        assert_int_equal(w.n_arrivals, 5);
        world_end(NULL);
        world_begin(NULL);
    }
}

static void places_that_were_not_taken_are_written_again(void **state)
{
    (void)state;
    serve();
    stay(2 * SECOND);
    for (int is_full = 0; is_full < 2; is_full++) {
        const size_t before = w.n_places;

        stay(2 * SECOND);
        assert_int_equal(w.n_places, before);
        w.is_full = is_full;
        if (!is_full)
            db_fail("report", SH_E_TIMEOUT, 100);
        say(&x, &(struct sh_msg){
                    .type = MSG_MODEL_PLACE,
                    .u.model_place = {.version_id = 1, .device_bytes = 5 + (uint64_t)is_full}});
        stay(2 * SECOND);
        assert_int_equal(w.n_places, before);
        w.is_full = false;
        db_fail("report", SH_OK, 0);
        stay(2 * SECOND);
        assert_int_equal(w.n_places, before + 1);
    }
}

/* It may be long before this one leads again. */
static void what_was_not_written_ends_with_the_lead(void **state)
{
    (void)state;
    serve();
    ask(3);
    db_fail("report", SH_E_TIMEOUT, 100);
    stay(13 * SECOND);
    sched_stand_down(w.s, "a test");
    db_fail("report", SH_OK, 0);
    advance(20 * SECOND);
    assert_true(w.s->epoch && w.s->loaded);
    assert_int_equal(w.n_slices, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)
    const struct CMUnitTest tests[] = {
        TEST(a_slice_is_written_once),
        TEST(a_slice_that_was_not_taken_is_written_later),
        TEST(places_that_were_not_taken_are_written_again),
        TEST(what_was_not_written_ends_with_the_lead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
