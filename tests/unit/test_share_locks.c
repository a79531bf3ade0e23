/* test_share_locks.c - an image changes over to memory that it shares between runs and copies, and
 * whatever goes meanwhile leaves nothing behind. Without it: a run could wait while the pages of a
 * large image are locked, read memory that has gone, or memory could stay locked for ever. */
/* uses: tests/unit/share_world.o executor/models/share.o executor/models/model_life.o */
#include "common/clock.h"
#include "common/units.h"
#include "tests/unit/share_world.h"

static void an_image_that_is_read_changes_over_later(void **state)
{
    const void *base[2];
    (void)state;

    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    base[0] = w.m[0].image.base;
    base[1] = w.m[1].image.base;
    w.is_busy = true;
    w_all_rests();
    share__tick(NULL);
    assert_int_equal(w.share.at, SHARE_WAITS);
    assert_ptr_equal(w.m[0].image.base, base[0]);
    assert_ptr_equal(w.m[1].image.base, base[1]);
    w.is_busy = false;
    w.share.model->rest = MODEL_REST_AHEAD;
    share__tick(NULL);
    assert_int_equal(w.share.at, SHARE_WAITS);
    w.share.model->rest = MODEL_REST_NONE;
    w.share.model->is_placed = true;
    share__tick(NULL);
    assert_int_equal(w.share.at, SHARE_WAITS);
    w.share.model->is_placed = false;
    w.share.model->tables.n = 1; /* a run reads them in place */
    w.share.model->n_users = 1;
    share__tick(NULL);
    assert_int_equal(w.share.at, SHARE_WAITS);
    w.share.model->tables.n = 0;
    w.is_loud = true; /* it takes no time that another one's run would wait for */
    share__tick(NULL);
    assert_int_equal(w.share.at, SHARE_FREES);
    w.is_loud = false;
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    w_check(&w.m[0], "abX", 't');
    w_check(&w.m[1], "abY", 'u');
}

/* A run that comes meanwhile waits for one piece, and none for the next ones. */
static void pages_are_locked_a_piece_at_a_time_between_runs(void **state)
{
    (void)state;
    w_put(0, 1, "abcdX", 't');
    w_put(1, 1, "abcdY", 'u');
    for (unsigned image = 0; image < 2; image++) {
        const size_t bytes = w.m[image].image.bytes;

        w_go_to(SHARE_LOCKS);
        w.n_pieces = 0;
        for (unsigned i = 1; i <= 3; i++) {
            share__tick(NULL);
            assert_int_equal(w.n_pieces, i);
        }
        w.is_loud = true;
        for (unsigned i = 0; i < 9; i++)
            share__tick(NULL);
        assert_int_equal(w.n_pieces, 3);
        w_later(11); /* they do not keep it for ever */
        share__tick(NULL);
        assert_int_equal(w.n_pieces, 4);
        assert_int_equal(w.share.at, SHARE_LOCKS);
        share__tick(NULL);
        share__tick(NULL);
        share__tick(NULL);
        assert_int_equal(w.n_pieces, 6);
        assert_int_equal(w.share.at, SHARE_WAITS);
        assert_int_equal(w.share.locked, bytes);
        share__tick(NULL); /* the same for the old ones */
        assert_int_equal(w.share.at, SHARE_FREES);
        share__tick(NULL);
        assert_int_equal(w.share.locked, bytes);
        w.is_loud = false;
        for (unsigned i = 5; i > 0; i--) {
            share__tick(NULL);
            assert_int_equal(w.share.locked, CHUNKS(i));
            assert_null(w.out);
        }
        share__tick(NULL);
        assert_int_equal(w.share.locked, 0);
        assert_non_null(w.out); /* now the thread unmaps them */
        w_thread_works();
        assert_int_equal(w.m[image].locked, bytes);
    }
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(4));
}

/* Nor is new memory of an image whose pages no lock was had for. */
static void what_was_not_locked_is_not_locked_later(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct model *m = w_put(i, 1, i ? "abX" : "abY", 't');

        *w_locked_at(m->image.base) = m->locked = 0;
    }
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    assert_int_equal(w.n_pieces, 0);
    assert_int_equal(w.m[0].locked + w.m[1].locked, 0);
}

static void who_goes_meanwhile_takes_its_new_memory_along(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < 60; steps++) {
        struct model *m;

        w_put(0, 1, "abX", 't');
        w_put(1, 1, "abY", 'u');
        w.is_busy = steps % 2;
        share_second(NULL);
        for (unsigned i = 0; i < steps / 2 && w_goes_on(); i++)
            ;
        env.shares = false; /* it goes on with no other one */
        while (w.share.at == SHARE_FREES)
            w_goes_on();
        m = w.share.model;
        if (!m) {
            assert_true(steps >= 20);
            m = &w.m[0];
        }
        assert_int_equal(share__is_at(m), w.share.model == m);
        m->phase = MODEL_GOING;
        share__tick(NULL); /* while the thread has a chunk it stays */
        assert_int_equal(share__is_at(m), w.out != NULL);
        if (w.out)
            w_thread_works();
        env.shares = true;
        w_drop(m);
        w.is_busy = false;
        w_all_rests();
        m = m == &w.m[0] ? &w.m[1] : &w.m[0];
        w_check(m, m == &w.m[0] ? "abX" : "abY", m == &w.m[0] ? 't' : 'u');
        assert_int_equal(w_held_bytes(), CHUNKS(3) + TAIL_PAGES);
        assert_int_equal(share__bytes(m), m->image.bytes);
        w_drop(m);
        assert_int_equal(w_held_bytes(), 0);
    }
}

static void memory_that_cannot_be_locked_is_not_changed_over_to(void **state)
{
    (void)state;
    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    w.most_pieces = 2; /* of four */
    w_all_rests();
    w.most_pieces = 0;
    assert_int_equal(w.n_locks, 1);
    assert_int_equal(w.n_unlocks, 1);
    assert_int_equal(w.share.locked, 0);
    w.n_locks = w.n_unlocks = 0;
    w_later(61);
    w.refuses_lock = true;
    w_all_rests();
    assert_int_equal(w.n_unlocks, 0);
    assert_int_equal(share_saved_bytes(NULL), 0);
    assert_int_equal(w_held_bytes(), 2 * (CHUNKS(3) + TAIL_PAGES));
    w_check(&w.m[0], "abX", 't');
    w.refuses_lock = false;
    w_all_rests();
    assert_int_equal(w.n_locks, 0); /* not at once ... */
    w_later(121);
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2)); /* ... but another time */
    w_check(&w.m[0], "abX", 't');
    w_check(&w.m[1], "abY", 'u');
}

/* Memory waits for the thread, and none is left when the executor ends meanwhile. */
static void old_memory_goes_in_any_case(void **state)
{
    (void)state;
    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    w.is_busy = true;
    w_all_rests();
    w.is_busy = false;
    w.is_full = true;
    while (w_goes_on())
        ;
    assert_int_equal(w.share.at, SHARE_FREES);
    assert_int_equal(w_held_bytes(), 3 * (CHUNKS(3) + TAIL_PAGES));
    w.is_full = false;
    share__tick(NULL);
    w_thread_works();
    assert_int_equal(w_held_bytes(), 2 * (CHUNKS(3) + TAIL_PAGES));
    w_go_to(SHARE_FREES);
    while (!w.out)
        share__tick(NULL);
    w_thread_drops();
    assert_int_equal(w.share.at, SHARE_FREES);
    share__stop(NULL);
    assert_int_equal(w_held_bytes(), CHUNKS(2) + 2 * (CHUNKS(1) + TAIL_PAGES));
}

static void the_executor_ends_while_pages_are_locked(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < 30; steps++) {
        w_put(0, 1, "abX", 't');
        w_put(1, 1, "abY", 'u');
        share_second(NULL);
        for (unsigned i = 0; i < steps && w_goes_on(); i++)
            ;
        if (w.out && steps % 2)
            w_thread_works();
        if (w.out)
            w_thread_drops();
        share__stop(NULL);
        assert_int_equal(w.share.at, SHARE_REST);
        w_drop(&w.m[0]); /* which looks at what is locked */
        w_drop(&w.m[1]);
        assert_int_equal(w_held_bytes(), 0);
        for (size_t i = 0; i < N_MODELS + 2; i++)
            assert_int_equal(w.locked[i].bytes, 0);
    }
}

/* Others of its tenant wait for the place where one is copied. */
static void an_image_that_is_always_read_does_not_hold_up_others(void **state)
{
    (void)state;
    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    w.m[0].is_broken = true;
    w_put(2, 2, "cdX", 'v');
    w_put(3, 2, "cdY", 'w');
    w_all_rests();
    assert_int_equal(w.share.at, SHARE_WAITS);
    assert_ptr_equal(w.share.model, &w.m[0]);
    w_later(59);
    share__tick(NULL);
    assert_int_equal(w.share.at, SHARE_WAITS);
    w_later(2);
    share__tick(NULL);
    assert_int_equal(w.share.at, SHARE_FREES);
    w.m[0].phase = MODEL_READY;
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    w.m[0].is_broken = false;
    w_later(200);
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(4));
    w_check(&w.m[0], "abX", 't');
}

static void it_is_not_tried_for_ever(void **state)
{
    (void)state;
    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    w.refuses_lock = true;
    for (int i = 0; i < 12; i++) {
        w_all_rests();
        w_later(3600);
    }
    assert_true(w.m[0].share.is_alone || w.m[1].share.is_alone); /* then none is like it */
    w.refuses_lock = false;
    w_all_rests();
    assert_int_equal(w.n_locks, 0);
}

static void it_begins_some_time_on_a_busy_executor(void **state)
{
    (void)state;
    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    w.is_loud = true;
    for (int i = 0; i < 8; i++) {
        w_all_rests();
        w_later(11);
    }
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, w_set_up, w_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_image_that_is_read_changes_over_later),
        TEST(pages_are_locked_a_piece_at_a_time_between_runs),
        TEST(what_was_not_locked_is_not_locked_later),
        TEST(who_goes_meanwhile_takes_its_new_memory_along),
        TEST(memory_that_cannot_be_locked_is_not_changed_over_to),
        TEST(old_memory_goes_in_any_case),
        TEST(the_executor_ends_while_pages_are_locked),
        TEST(an_image_that_is_always_read_does_not_hold_up_others),
        TEST(it_is_not_tried_for_ever),
        TEST(it_begins_some_time_on_a_busy_executor),
    };

    return cmocka_run_group_tests_name("share_locks", tests, NULL, NULL);
}
