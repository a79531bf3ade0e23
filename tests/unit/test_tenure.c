/* test_tenure.c - whose the memory of training's workspace is. Without it: a few copies could take
 * training's memory for good, training could come back at each idle moment and cost requests more
 * than it gives, or wait for ever. */
/* uses: executor/memory/tenure.o */
#include "common/mem.h"
#include "executor/memory/tenure.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)
#define COPY_NS (100 * MS)
#define STEP_NS (20 * MS)
#define CHANGE_NS (TENURE_MISSES * 3 * COPY_NS + STEP_NS) /* with a weight of 3 */

static const struct tenure_claim JOB = {.job = 7, .copy_ns = COPY_NS, .step_ns = STEP_NS};

static void begin(struct tenure *t, int64_t weight)
{
    *t = (struct tenure){.weight = 0};
    tenure_init(t, weight, 0);
    tenure_want(t, &JOB, 0);
}

/* A run that takes run_ns and whose displaced blocks take copy_ns, then a gap that is worth gap_ns
 * to training. */
static int64_t serve(struct tenure *t, int64_t now, int64_t run_ns, int64_t copy_ns, int64_t gap_ns)
{
    tenure_begin_run(t, now);
    tenure_pay(t, copy_ns, 0, now);
    now += run_ns;
    tenure_end_run(t, now);
    if (gap_ns)
        now += TENURE_RESUME_NS + gap_ns;
    tenure_look(t, now);
    return now;
}

static void what_is_displaced_is_what_fits_without_the_workspace_alone(void **state)
{
    static const struct {
        uint32_t blocks, distance, displaced;
    } CASES[] = {{10, 10, 0},   {10, 100, 0},        {10, 104, 4},    {10, 110, 10},
                 {10, 200, 10}, {10, 300, 10},       {10, 304, 6},    {10, 310, 0},
                 {10, 900, 0},  {10, UINT32_MAX, 0}, {300, 300, 200}, {400, 400, 200}};
    const struct tenure_room room = {.beside = 100, .without = 300}, same = {100, 100};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        assert_int_equal(tenure_displaced(&room, CASES[i].blocks, CASES[i].distance),
                         CASES[i].displaced);
        assert_int_equal(tenure_displaced(&same, CASES[i].blocks, CASES[i].distance), 0);
    }
}

static void nothing_changes_while_all_fits(void **state)
{
    struct tenure t;
    int64_t now = 0;

    (void)state;
    begin(&t, 3);
    while (now < 100 * SECOND) { /* training has nothing, but its memory would help nobody */
        now = serve(&t, now, 5 * MS, 0, 0);
        assert_false(t.holds_off);
    }
}

static void images_get_it_once_they_have_lost_what_a_change_costs(void **state)
{
    struct tenure t;
    int64_t now = 0, paid = 0;

    (void)state;
    begin(&t, 3);
    for (; !t.holds_off; paid += 3 * MS)
        now = serve(&t, now, MS, MS, 0);
    assert_in_range(paid, CHANGE_NS, CHANGE_NS + 3 * MS);
    tenure_init(&t, 3, now);
    begin(&t, 3);
    tenure_pay(&t, CHANGE_NS / 12 - MS, 3, 0); /* three wait behind it: four times as much */
    assert_false(t.holds_off);
    tenure_pay(&t, 2 * MS, 3, 0);
    assert_true(t.holds_off);
}

static void training_comes_back_after_a_while_without_requests(void **state)
{
    struct tenure t;
    int64_t due;

    (void)state;
    begin(&t, 3);
    tenure_pay(&t, SECOND, 0, 0);
    assert_true(t.holds_off);
    due = tenure_due_ns(&t);
    assert_int_equal(due, TENURE_RESUME_NS + CHANGE_NS);
    tenure_look(&t, due - 1);
    assert_true(t.holds_off);
    tenure_look(&t, due);
    assert_false(t.holds_off);
    assert_true(tenure_due_ns(&t) == INT64_MAX);
}

static void idle_moments_alone_do_not_bring_it_back(void **state)
{
    struct tenure t;
    int64_t now = 0;

    (void)state;
    begin(&t, 3);
    tenure_pay(&t, SECOND, 0, 0);
    for (int i = 0; i < 2000; i++) { /* less than it would cost in copies */
        now = serve(&t, now, MS, MS, 2 * MS);
        assert_true(t.holds_off);
    }
    for (int i = 0; i < 2000; i++) /* gaps in which it could not even go on */
        now = serve(&t, now, MS, 0, 0) + TENURE_RESUME_NS;
    assert_true(t.holds_off);
    for (int i = 0; i < 400; i++)
        now = serve(&t, now, MS, MS / 10, 2 * MS);
    assert_false(t.holds_off);
}

static void a_step_that_is_always_dropped_is_not_worth_its_memory(void **state)
{
    struct tenure t;
    int64_t now = 0;

    (void)state;
    begin(&t, 3);
    for (int i = 0; i < 1000; i++) { /* one commits in each gap */
        tenure_lose(&t, now);
        now = serve(&t, now, MS, 0, 2 * STEP_NS);
        assert_false(t.holds_off);
    }
    for (int i = 0; i < 200; i++) { /* none does */
        tenure_lose(&t, now);
        now = serve(&t, now, MS, 0, STEP_NS / 2);
    }
    assert_true(t.holds_off);
}

static void without_a_job_or_a_weight_it_is_as_it_was(void **state)
{
    const struct tenure_claim none = {.job = 0}, other = {.job = 8, .copy_ns = 1, .step_ns = 1};
    struct tenure t;

    (void)state;
    begin(&t, 0);
    tenure_pay(&t, INT64_MAX, SIZE_MAX, 0);
    tenure_lose(&t, SECOND);
    tenure_look(&t, 1000 * SECOND);
    assert_false(t.holds_off);
    begin(&t, 3);
    tenure_want(&t, &none, 0);
    tenure_pay(&t, SECOND, 0, 0);
    assert_false(t.holds_off);
    tenure_want(&t, &JOB, 0);
    tenure_pay(&t, INT64_MAX, SIZE_MAX, 0);
    assert_true(t.holds_off);
    tenure_want(&t, &none, 0); /* it compiles, say: that neither ends it nor counts */
    tenure_look(&t, 1000 * SECOND);
    tenure_want(&t, &JOB, 1000 * SECOND);
    assert_true(t.holds_off);
    tenure_want(&t, &other, 1000 * SECOND);
    assert_false(t.holds_off);
}

/* A load that would always have all of the memory and leaves a twentieth of the time. */
static int64_t crowd(struct tenure *t, int64_t now, int64_t *trained)
{
    const bool had = !t->holds_off;
    const int64_t after = serve(t, now, 19 * MS, 10 * MS, MS);

    *trained += had ? MS : 0;
    return after;
}

static void it_has_a_try_within_a_bounded_time(void **state)
{
    struct tenure t;
    int64_t now = 0, wait = TENURE_WAIT_NS;

    (void)state;
    begin(&t, 3);
    for (int i = 0; i < 6; i++) {
        int64_t trained = 0, since;

        while (!t.holds_off)
            now = crowd(&t, now, &trained);
        for (since = now, trained = 0; t.holds_off;)
            now = crowd(&t, now, &trained);
        assert_in_range(now - since, wait - 50 * MS, wait + 50 * MS);
        for (since = now; !t.holds_off;)
            now = crowd(&t, now, &trained);
        assert_true(trained >= TENURE_TRY_STEPS * STEP_NS);
        assert_true(now - since <= TENURE_TRY_NS + 50 * MS);
        wait = SH_MIN(2 * wait, TENURE_WAIT_MAX_NS);
    }
    now += 2 * SECOND; /* no requests: it is worth it by itself */
    tenure_look(&t, now);
    assert_false(t.holds_off);
    for (int64_t trained = 0; !t.holds_off;)
        now = crowd(&t, now, &trained);
    assert_true(tenure_due_ns(&t) <= now + TENURE_WAIT_NS);
}

/* Nothing is summed up past the end of its type, also in a try, which no sum ends. */
static void whatever_is_said_a_sum_stays_one(void **state)
{
    struct tenure t;
    int64_t now = 0;

    (void)state;
    begin(&t, 1000);
    tenure_pay(&t, INT64_MAX, SIZE_MAX, now);
    assert_true(t.holds_off);
    for (now = 0; t.holds_off; now += SECOND)
        tenure_begin_run(&t, now);
    assert_true(t.try_ns > 0);
    now = t.since_ns;
    for (int i = 0; i < 4; i++) {
        tenure_pay(&t, INT64_MAX, SIZE_MAX, now);
        assert_true(t.sum_ns > 0);
    }
    tenure_look(&t, now + TENURE_TRY_NS);
    assert_true(t.holds_off);
}

static void a_try_that_has_nothing_of_the_device_ends(void **state)
{
    struct tenure t;
    int64_t now = 0, begun;

    (void)state;
    begin(&t, 3);
    while (!t.holds_off)
        now = serve(&t, now, MS, MS, 0);
    while (t.holds_off)
        now = serve(&t, now, MS, MS, 0);
    for (begun = now; !t.holds_off;)
        now = serve(&t, now, MS, MS, 0);
    assert_in_range(now - begun, TENURE_TRY_NS - MS, TENURE_TRY_NS + 2 * MS);
}

/* ------------------------------------------------------------------ against hindsight */

#define N_EVENTS 4000

struct costs {
    int64_t training, images;
};

/* The best sequence of states: to TRAINING it costs `change`, to IMAGES nothing. */
static int64_t best_of(const struct costs *c, size_t n, int64_t change)
{
    int64_t training = 0, images = 0;

    for (size_t i = 0; i < n; i++) {
        const int64_t to_training = SH_MIN(training, images + change);

        images = SH_MIN(images, training) + c[i].images;
        training = to_training + c[i].training;
    }
    return SH_MIN(training, images);
}

static uint32_t below(uint64_t *x, uint32_t n)
{
    *x = *x * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((*x >> 33) % n);
}

static void it_costs_at_most_three_times_what_hindsight_would(void **state)
{
    static struct costs c[N_EVENTS];
    const struct tenure_claim job = {.job = 9, .copy_ns = 3 * MS, .step_ns = MS};
    const int64_t weight = 3, change = TENURE_MISSES * weight * job.copy_ns + job.step_ns;

    (void)state;
    for (uint64_t world = 0; world < 600; world++) {
        const uint32_t kind = (uint32_t)(world % 3), most_us = 50 + 150 * (uint32_t)(world % 7);
        uint64_t x = world;
        uint32_t lean = 50, n_changes = 0;
        int64_t now = 0, paid = 0, best;
        struct tenure t;

        begin(&t, weight);
        tenure_want(&t, &job, 0);
        for (size_t i = 0; i < N_EVENTS; i++) {
            const bool had = !t.holds_off;
            int64_t copy, gap;

            if (below(&x, 400) == 0) /* the mix changes */
                lean = below(&x, 101);
            /* Kind 0: an adversary, whatever is chosen costs; the others by chance. */
            copy = (kind == 0 ? had : below(&x, 100) < lean) ? 1 + below(&x, most_us) : 0;
            gap = (kind == 0 ? !had : kind == 1 || !copy) ? 1 + 3 * below(&x, most_us) : 0;
            copy *= 1000;
            gap *= 1000;
            c[i] = (struct costs){weight * copy, gap};
            now = serve(&t, now, MS, copy, gap);
            paid += had ? c[i].training : c[i].images;
            if (had == t.holds_off) {
                n_changes++;
                paid += t.holds_off ? 0 : change;
            }
        }
        best = best_of(c, N_EVENTS, change);
        assert_true(kind || (best > 0 && n_changes > 4));
        if (paid > 3 * best + 2 * change + n_changes * INT64_C(3000) * most_us)
            fail_msg("world %d: %.3f s, in hindsight %.3f s, %u changes", (int)world,
                     (double)paid / 1e9, (double)best / 1e9, n_changes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_displaced_is_what_fits_without_the_workspace_alone),
        cmocka_unit_test(nothing_changes_while_all_fits),
        cmocka_unit_test(images_get_it_once_they_have_lost_what_a_change_costs),
        cmocka_unit_test(training_comes_back_after_a_while_without_requests),
        cmocka_unit_test(idle_moments_alone_do_not_bring_it_back),
        cmocka_unit_test(a_step_that_is_always_dropped_is_not_worth_its_memory),
        cmocka_unit_test(without_a_job_or_a_weight_it_is_as_it_was),
        cmocka_unit_test(it_has_a_try_within_a_bounded_time),
        cmocka_unit_test(a_try_that_has_nothing_of_the_device_ends),
        cmocka_unit_test(whatever_is_said_a_sum_stays_one),
        cmocka_unit_test(it_costs_at_most_three_times_what_hindsight_would),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
