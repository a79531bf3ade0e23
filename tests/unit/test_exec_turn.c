/* test_exec_turn.c - the steps from an event to rest. Without it: a turn could stop half-way when
 * many runs end at once, two modules that undo each other could keep the executor from its messages
 * for ever, or a run could be asked before the models that it waits for. */
/* uses: executor/turn.o */
#include "executor/batch/batch.h"
#include "executor/models/store.h"
#include "executor/runs/switch.h"
#include "executor/training/train.h"
#include "executor/turn.h"
#include "tests/unit/sh_test.h"

#define MOST_RUNS 65536u /* --max-queued-runs */

/* What the modules have to do: so many steps; after one of runs, one of models. */
static struct {
    size_t models, runs, training, batch, n_runs;
    bool runs_bring_models, never_ends;
    char asked[64]; /* who took a step, a letter each; the first of them */
    size_t n;
} world;

static bool take(size_t *left, char who)
{
    if (!*left)
        return false;
    if (!world.never_ends)
        --*left;
    if (world.n + 1 < sizeof(world.asked))
        world.asked[world.n] = who;
    world.n++;
    return true;
}

bool store_turn(struct store *s)
{
    (void)s;
    return take(&world.models, 'm');
}

bool switch_turn(struct switcher *sw)
{
    const bool did = take(&world.runs, 'r');

    (void)sw;
    if (did && world.runs_bring_models)
        world.models++;
    return did;
}

bool train_turn(struct train *t)
{
    (void)t;
    return take(&world.training, 't');
}

bool batch_turn(struct batch *b)
{
    (void)b;
    return take(&world.batch, 'b');
}

size_t store_size(const struct store *s)
{
    (void)s;
    return 0;
}

size_t pool_size(const struct pool *p)
{
    (void)p;
    return 1;
}

size_t switch_n_runs(const struct switcher *sw)
{
    (void)sw;
    return world.n_runs;
}

static bool run(void)
{
    struct exec x = {0};

    memset(world.asked, 0, sizeof(world.asked));
    world.n = 0;
    return turn_run(&x);
}

static void models_are_asked_first_again_after_each_step(void **state)
{
    (void)state;
    memset(&world, 0, sizeof(world));
    assert_true(run());
    assert_int_equal(world.n, 0);
    world.models = 2;
    world.runs = 2;
    world.training = world.batch = 1;
    world.runs_bring_models = true;
    assert_true(run());
    assert_string_equal(world.asked, "mmrmrmtb");
}

static void all_runs_that_wait_may_end_in_one_turn(void **state)
{
    (void)state;
    memset(&world, 0, sizeof(world));
    world.runs = world.n_runs = MOST_RUNS;
    assert_true(run());
    assert_int_equal(world.n, MOST_RUNS);
}

static void modules_that_do_not_come_to_rest_are_stopped(void **state)
{
    (void)state;
    memset(&world, 0, sizeof(world));
    world.training = 1;
    world.never_ends = true;
    assert_false(run());
    assert_true(world.n > TURN_PER_JOBS && world.n < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_asked_first_again_after_each_step),
        cmocka_unit_test(all_runs_that_wait_may_end_in_one_turn),
        cmocka_unit_test(modules_that_do_not_come_to_rest_are_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
