/* test_share_locks.c - an image changes over to memory that it shares between copies, once that has
 * been page-locked in its turn, and whatever goes meanwhile leaves nothing behind. Without it: a
 * run could wait while the pages of a large image are locked, read memory that has gone, or memory
 * could stay locked for ever. */
/* uses: tests/unit/share_world.o executor/models/share.o executor/models/model_life.o executor/memory/locking.o runtime/device/lock.o */
#include "common/clock.h"
#include "common/units.h"
#include "executor/memory/locking.h"
#include "runtime/device/lock.h"
#include "tests/unit/share_world.h"

#define LARGE "abcdefghijklmnopq" /* more than a piece: at least two */
_Static_assert(CHUNKS(sizeof(LARGE) - 1) > DEV_LOCK_PIECE, "it is one piece, perhaps");

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
    share__tick(NULL);
    assert_ptr_not_equal(w.share.model, &w.m[0]); /* it is done, and the other one is next */
    assert_ptr_not_equal(w.m[0].image.base, base[0]);
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    w_check(&w.m[0], "abX", 't');
    w_check(&w.m[1], "abY", 'u');
}

struct other { /* who waits to be locked as well */
    struct lock_task task;
    struct sh_shm memory;
};

static void on_other(struct lock_task *t, const struct sh_err *why)
{
    (void)t;
    assert_null(why);
}

static void begin_other(struct other *o)
{
    assert_ok(sh_shm_create("other", 8 * DEV_LOCK_PIECE, &o->memory, NULL));
    o->task =
        (struct lock_task){.base = o->memory.base, .bytes = o->memory.bytes, .done = on_other};
    locking_begin(env.locking, &o->task);
}

static void end_other(struct other *o)
{
    locking_stop(env.locking, &o->task);
    locking_let_go(env.locking, &o->memory, o->task.locked);
}

/* While it is in the queue, ticks do nothing. */
static void lock_in_turns_with(const struct other *o)
{
    for (unsigned n = 0; w.share.at == SHARE_LOCKS; n++) {
        const size_t was = w.share.lock.locked, others = o->task.locked;

        share__tick(NULL);
        assert_int_equal(w.share.lock.locked, was);
        w_turn();
        if (w.share.at == SHARE_LOCKS) {
            assert_int_equal(w.share.lock.locked != was, n % 2 == 0);
            assert_int_equal(o->task.locked != others, n % 2 == 1);
        }
    }
    assert_true(o->task.locked > 0);
}

static void its_pages_are_locked_and_unlocked_in_turns_with_others(void **state)
{
    (void)state;
    w_put(0, 1, LARGE "X", 't');
    w_put(1, 1, LARGE "Y", 'u');
    for (size_t i = 0; i < 2; i++) {
        const struct model *m = &w.m[i];
        const void *old = m->image.base;
        const size_t bytes = m->image.bytes;
        struct other other;
        unsigned n_calls;

        env.shares = true;
        w_go_to(SHARE_LOCKS);
        env.shares = false; /* it goes on with no other one */
        assert_ptr_equal(w.share.model, m);
        begin_other(&other);
        lock_in_turns_with(&other);
        assert_int_equal(w.share.at, SHARE_WAITS);
        assert_int_equal(w.share.lock.locked, bytes);
        end_other(&other);
        n_calls = w.n_calls;
        share__tick(NULL);
        assert_int_equal(w.share.at, SHARE_REST);
        assert_ptr_not_equal(m->image.base, old);
        assert_int_equal(m->locked, bytes);
        assert_int_equal(w.n_calls, n_calls); /* the old ones are unlocked in turns, too */
        w_all_rests();
        assert_true(w.n_calls >= n_calls + 2);
    }
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(strlen(LARGE)));
    w_check(&w.m[0], LARGE "X", 't');
    w_check(&w.m[1], LARGE "Y", 'u');
}

/* Nor is new memory of an image whose pages no lock was had for. */
static void what_was_not_locked_is_not_locked_later(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        w_unlock(w_put(i, 1, i ? "abX" : "abY", 't'));
    }
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    assert_int_equal(w.n_locks, 0);
    assert_int_equal(w.m[0].locked + w.m[1].locked, 0);
    assert_int_equal(w_held_bytes(), CHUNKS(2) + 2 * (CHUNKS(1) + TAIL_PAGES));
}

/* While the thread has a chunk of it, it stays. */
static void leave(struct model *m)
{
    assert_int_equal(share__is_at(m), w.share.model == m);
    env.shares = false; /* it goes on with no other one */
    m->phase = MODEL_GOING;
    share__tick(NULL);
    assert_int_equal(share__is_at(m), w.out != NULL);
    if (w.out)
        w_thread_works();
    env.shares = true;
    w_drop(m);
}

static void who_goes_meanwhile_takes_its_new_memory_along(void **state)
{
    unsigned n_in[SHARE_N_AT] = {0};
    (void)state;

    for (unsigned steps = 0; steps < 60; steps++) {
        struct model *m;

        w_put(0, 1, "abX", 't');
        w_put(1, 1, "abY", 'u');
        w.is_busy = steps % 2;
        share_second(NULL);
        for (unsigned i = 0; i < steps / 2 && w_goes_on(); i++)
            ;
        n_in[w.share.at]++;
        m = w.share.model ? w.share.model : &w.m[0];
        leave(m);
        w.is_busy = false;
        w_all_rests();
        m = m == &w.m[0] ? &w.m[1] : &w.m[0];
        w_check(m, m == &w.m[0] ? "abX" : "abY", m == &w.m[0] ? 't' : 'u');
        assert_int_equal(w_held_bytes(), CHUNKS(3) + TAIL_PAGES);
        assert_int_equal(share__bytes(m), m->image.bytes);
        w_drop(m);
        assert_int_equal(w_held_bytes(), 0);
    }
    for (int at = 0; at < SHARE_N_AT; at++)
        assert_true(n_in[at] > 0);
}

/* With no piece of it locked, with some, and with all; and another one comes in its place while
 * these are still to be unlocked. */
static void who_goes_while_its_memory_is_in_the_queue_unlocks_what_is_locked(void **state)
{
    size_t n_half = 0;
    (void)state;

    for (unsigned turns = 0;; turns++) {
        bool is_last;

        w_put(0, 1, LARGE "X", 't');
        w_put(1, 1, LARGE "Y", 'u');
        w_go_to(SHARE_LOCKS);
        for (unsigned i = 0; i < turns && w.share.at == SHARE_LOCKS; i++)
            w_turn();
        is_last = w.share.at == SHARE_WAITS;
        n_half += w.share.lock.locked > 0 && !is_last;
        assert_ptr_equal(w.share.model, &w.m[0]);
        leave(&w.m[0]);
        assert_int_equal(w.share.at, SHARE_REST);
        w_put(0, 1, LARGE "Z", 'v');
        w_all_rests();
        w_check(&w.m[0], LARGE "Z", 'v');
        w_check(&w.m[1], LARGE "Y", 'u');
        assert_int_equal(share_saved_bytes(NULL), CHUNKS(strlen(LARGE)));
        assert_int_equal(w_held_bytes(), CHUNKS(strlen(LARGE) + 2) + 2 * TAIL_PAGES);
        w_drop(&w.m[0]);
        w_drop(&w.m[1]);
        if (is_last)
            break;
    }
    assert_true(n_half > 0);
}

static void memory_that_cannot_be_locked_is_not_changed_over_to(void **state)
{
    const uint64_t apart = 2 * (CHUNKS(strlen(LARGE) + 1) + TAIL_PAGES);
    (void)state;

    w_put(0, 1, LARGE "X", 't');
    w_put(1, 1, LARGE "Y", 'u');
    w.most_locks = 1; /* of two, or three */
    w_all_rests();
    w.most_locks = 0;
    assert_int_equal(w.n_locks, 1);
    assert_int_equal(w.n_calls, 2); /* and it was unlocked */
    w.n_calls = 0;
    w_later(61);
    w.refuses_lock = true;
    w_all_rests();
    assert_int_equal(w.n_calls, 0);
    assert_int_equal(share_saved_bytes(NULL), 0);
    assert_int_equal(w_held_bytes(), apart);
    w_check(&w.m[0], LARGE "X", 't');
    w.refuses_lock = false;
    w_all_rests();
    assert_int_equal(w.n_calls, 0); /* not at once ... */
    w_later(121);
    w_all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(strlen(LARGE))); /* ... but another time */
    w_check(&w.m[0], LARGE "X", 't');
    w_check(&w.m[1], LARGE "Y", 'u');
}

/* Its old memory waits in the queue, and none is left when the executor ends meanwhile. */
static void old_memory_goes_in_any_case(void **state)
{
    const uint64_t shared = CHUNKS(2) + 2 * (CHUNKS(1) + TAIL_PAGES);
    (void)state;

    w_put(0, 1, "abX", 't');
    w_put(1, 1, "abY", 'u');
    for (size_t i = 0; i < 2; i++) {
        env.shares = true;
        w_go_to(SHARE_WAITS);
        assert_ptr_equal(w.share.model, &w.m[i]);
        env.shares = false;
        share__tick(NULL);
        assert_int_equal(w.share.at, SHARE_REST);
        assert_true(w_held_bytes() > shared + CHUNKS(2));
        if (i == 0)
            w_all_rests();
        else
            w_end_queue();
    }
    assert_int_equal(w_held_bytes(), shared);
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
}

static void the_executor_ends_while_pages_are_locked(void **state)
{
    unsigned n_in[SHARE_N_AT] = {0};
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
        n_in[w.share.at]++;
        share__stop(NULL);
        assert_int_equal(w.share.at, SHARE_REST);
        w_drop(&w.m[0]); /* which looks at what is locked */
        w_drop(&w.m[1]);
        w_end_queue();
        assert_int_equal(w_held_bytes(), 0);
        assert_int_equal(w.n_locked, 0);
    }
    for (int at = 0; at < SHARE_N_AT; at++)
        assert_true(n_in[at] > 0);
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
    assert_ptr_not_equal(w.share.model, &w.m[0]);
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, w_set_up, w_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_image_that_is_read_changes_over_later),
        TEST(its_pages_are_locked_and_unlocked_in_turns_with_others),
        TEST(what_was_not_locked_is_not_locked_later),
        TEST(who_goes_meanwhile_takes_its_new_memory_along),
        TEST(who_goes_while_its_memory_is_in_the_queue_unlocks_what_is_locked),
        TEST(memory_that_cannot_be_locked_is_not_changed_over_to),
        TEST(old_memory_goes_in_any_case),
        TEST(the_executor_ends_while_pages_are_locked),
        TEST(an_image_that_is_always_read_does_not_hold_up_others),
        TEST(it_is_not_tried_for_ever),
    };

    return cmocka_run_group_tests_name("share_locks", tests, NULL, NULL);
}
