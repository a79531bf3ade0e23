/* test_rivalry.c - what a run tells the choice between images and training's workspace. Without it:
 * images that fit, that no memory would have kept, or that a tenant's limit keeps out could take
 * training's memory for nothing; or a run could wait for training though nothing lacks. */
/* uses: executor/runs/rivalry.o executor/memory/tenure.o executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o */
#include "common/clock.h"
#include "common/mem.h"
#include "executor/models/tables.h"
#include "executor/runs/switch_int.h"
#include "tests/unit/sh_test.h"

#define POOL 100u
#define N_IMAGES 8u
#define STATE 10u /* blocks */
#define WS 50u
#define RUN_WS 4u
#define BLOCK_NS INT64_C(1000000) /* to copy one */
#define SECOND INT64_C(1000000000)

static struct {
    struct residency *res;
    struct switcher sw;
    struct model m[N_IMAGES];
    struct switch_wish wish;
    bool has_paused, has_dropped;
    uint64_t resident;
} R;

struct residency *space_residency(struct space *s)
{
    (void)s;
    return R.res;
}

double tx_beta_ns(const struct tx *t)
{
    (void)t;
    return (double)BLOCK_NS / DEV_BLOCK;
}

uint64_t model_run_bytes(const struct model *m)
{
    return m->image_bytes;
}

uint64_t model_resident_bytes(const struct model *m)
{
    (void)m;
    return R.resident;
}

static struct switch_wish wants(void *arg)
{
    (void)arg;
    return R.wish;
}

static bool has_yielded(void *arg, enum stop_way way)
{
    (void)arg;
    return way == STOP_PAUSE ? R.has_paused : R.has_dropped;
}

/* Images of 10 blocks each, and training that wants half of the device. */
static int begin(void **state)
{
    (void)state;
    memset(&R, 0, sizeof(R));
    sh_clock_fake(SECOND, 0);
    assert_ok(residency_new(POOL, &(struct residency_conf){0}, &R.res, NULL));
    for (uint32_t i = 0; i < N_IMAGES; i++) {
        R.m[i] = (struct model){.tag = 1, .image_bytes = 10 * DEV_BLOCK};
        assert_ok(residency_add(R.res, &(struct residency_image){.n_blocks = 10, .tag = 1},
                                &R.m[i].res, NULL));
    }
    R.wish = (struct switch_wish){
        .job = 7, .state_bytes = STATE * DEV_BLOCK, .ws_bytes = WS * DEV_BLOCK, .step_ns = 1};
    R.sw.rival = (struct switch_rival){.wants = wants, .has_yielded = has_yielded};
    R.sw.env.executor = "e";
    tenure_init(&R.sw.tenure, 1, SECOND);
    rivalry__begin(&R.sw, SECOND);
    return 0;
}

static int end(void **state)
{
    (void)state;
    residency_free(R.res);
    return 0;
}

/* What one run of each of so many models, in turns, has cost. */
static int64_t turn_of(uint32_t n, bool is_own)
{
    const int64_t before = R.sw.tenure.sum_ns;

    for (uint32_t i = 0; i < n; i++) {
        struct run r = {.sw = &R.sw,
                        .model = &R.m[i],
                        .shape = &R.m[i],
                        .ws_bytes = RUN_WS * DEV_BLOCK,
                        .is_own = is_own};

        rivalry__pay(&r);
    }
    return R.sw.tenure.sum_ns - before;
}

static void what_fits_beside_the_workspace_costs_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(turn_of(3, false), 0); /* 100 - 10 - 4 - 50 = 36 blocks */
    assert_false(switch_holds_off(&R.sw));
}

static void what_only_the_workspace_keeps_away_costs_its_copy(void **state)
{
    (void)state;
    assert_int_equal(turn_of(4, false), 0); /* nobody used them before */
    /* Of each its last 4 blocks: 40 do not fit in 36. */
    assert_int_equal(turn_of(4, false), 16 * BLOCK_NS);
    assert_int_equal(turn_of(4, true), 0); /* batch inference takes what is left */
    R.sw.queue = &(struct run){.next = &(struct run){.is_own = true}};
    assert_int_equal(turn_of(4, false), 32 * BLOCK_NS); /* one waits behind it */
    assert_false(switch_holds_off(&R.sw));
    turn_of(4, false);
    turn_of(4, false);
    assert_true(switch_holds_off(&R.sw));
}

static void what_no_memory_would_keep_costs_nothing(void **state)
{
    struct run r = {.sw = &R.sw, .model = &R.m[0], .shape = &R.m[0]};

    (void)state;
    R.wish.state_bytes = 90 * DEV_BLOCK; /* nothing is left in either state */
    rivalry__look(&R.sw, SECOND);
    turn_of(8, false);
    assert_int_equal(turn_of(8, false), 0);
    R.wish.state_bytes = STATE * DEV_BLOCK;
    rivalry__look(&R.sw, SECOND);
    /* Its tenant may not have more than what is beside the workspace. */
    assert_ok(residency_set_quota(R.res, 1, &(struct residency_quota){.max_blocks = 30, .share = 1},
                                  NULL));
    assert_int_equal(turn_of(8, false), 0);
    R.m[0].tag = 2;
    rivalry__pay(&r);
    assert_true(R.sw.tenure.sum_ns > 0);
}

static void a_run_waits_only_for_a_torn_step_that_holds_what_it_lacks(void **state)
{
    const struct run r = {.sw = &R.sw, .model = &R.m[0], .shape = &R.m[0]};

    (void)state;
    R.has_paused = true;
    assert_false(rivalry__waits_for_drop(&r));
    tenure_pay(&R.sw.tenure, SECOND, 0, SECOND);
    assert_true(switch_holds_off(&R.sw));
    assert_true(rivalry__waits_for_drop(&r));
    R.has_paused = false; /* it stops yet: its workspace goes when it has */
    assert_false(rivalry__waits_for_drop(&r));
    R.has_paused = R.has_dropped = true;
    assert_false(rivalry__waits_for_drop(&r));
    R.has_dropped = false;
    R.resident = R.m[0].image_bytes;
    assert_false(rivalry__waits_for_drop(&r));
}

static void training_comes_back_by_time_alone(void **state)
{
    (void)state;
    tenure_pay(&R.sw.tenure, SECOND, 0, SECOND);
    rivalry__end(&R.sw);
    rivalry__look(&R.sw, SECOND + TENURE_MISSES * WS * BLOCK_NS);
    assert_true(switch_holds_off(&R.sw));
    rivalry__look(&R.sw, SECOND + TENURE_MISSES * WS * BLOCK_NS + SECOND / 1000);
    assert_false(switch_holds_off(&R.sw));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(what_fits_beside_the_workspace_costs_nothing),
        TEST(what_only_the_workspace_keeps_away_costs_its_copy),
        TEST(what_no_memory_would_keep_costs_nothing),
        TEST(a_run_waits_only_for_a_torn_step_that_holds_what_it_lacks),
        TEST(training_comes_back_by_time_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
