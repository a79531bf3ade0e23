/* test_served.c - which READY versions are reported as READY, and what a run waits for that nobody
 * runs. Without it: an executor would be sent requests for a version that no worker of it runs for
 * minutes: the only one that has it trains, or hangs in what it compiles. */
/* uses: executor/models/served.o executor/models/lacks.o executor/pool/waits.o */
#include "common/clock.h"
#include "executor/models/loading.h"
#include "executor/models/model_int.h"
#include "tests/unit/sh_test.h"

#define MS INT64_C(1000000)
#define N 2

static struct worker workers[N];
static struct worker_ctl pages[N];
static const struct worker *trainer;
static struct model version, base, shape;
static bool has_shape[N], has_shapes, is_waited_for;
static struct store_counts counts;
static struct store_lacks lacks;
static unsigned n_reports;

size_t pool_size(const struct pool *p)
{
    (void)p;
    return N;
}

struct worker *pool_at(struct pool *p, size_t i)
{
    (void)p;
    return &workers[i];
}

bool worker_is_alive(const struct worker *w)
{
    return w->state != WORKER_DEAD;
}

bool worker_may_run(const struct worker *w)
{
    return w->state == WORKER_STANDBY && !w->job_compiling;
}

bool worker_is_idle(const struct worker *w)
{
    return worker_may_run(w) && !w->preparing;
}

void pool_set_state(struct worker *w, enum worker_state to)
{
    w->state = to;
}

/* Both have the version. */
bool worker_has_model(const struct worker *w, int64_t handle)
{
    return handle == shape.handle ? has_shape[w->index] : handle == version.handle;
}

const struct store_env *store__env(const struct store *s)
{
    static const struct store_env env;

    (void)s;
    return &env;
}

static const struct worker *trainer_of(void *arg)
{
    (void)arg;
    return trainer;
}

static bool has_waiting(void *arg, const struct model *m)
{
    (void)arg;
    return is_waited_for && m == &shape;
}

const struct store_users *store__users(const struct store *s)
{
    static const struct store_users users = {.trainer = trainer_of, .has_waiting = has_waiting};

    (void)s;
    return &users;
}

struct store_counts *store__counts(struct store *s)
{
    (void)s;
    return &counts;
}

struct model *store_next(struct store *s, const struct model *m)
{
    (void)s;
    return m ? NULL : &version;
}

struct model *store_next_shape(struct store *s, const struct model *m)
{
    (void)s;
    return m || !has_shapes ? NULL : &shape;
}

struct store_lacks *store__lacks(struct store *s)
{
    (void)s;
    return &lacks;
}

bool loading_is_before(const struct model *a, const struct model *b)
{
    return a->handle < b->handle;
}

void model_report(struct model *m)
{
    (void)m;
    n_reports++;
}

static int begin(void **state)
{
    (void)state;
    sh_clock_fake(1000 * MS, 0);
    for (uint32_t i = 0; i < N; i++) {
        workers[i] = (struct worker){.index = i,
                                     .state = WORKER_STANDBY,
                                     .progress_ns = sh_clock_ns(),
                                     .ctl_shm = {.base = &pages[i]}};
        pages[i] = (struct worker_ctl){.piece_since_ns = 0};
    }
    trainer = NULL;
    version =
        (struct model){.base = &version, .handle = 1, .phase = MODEL_READY, .is_served = true};
    counts = (struct store_counts){.n_served_changes = 0, .n_changes = 1};
    lacks = (struct store_lacks){.seen = {{.n_changes = 0}}};
    has_shapes = is_waited_for = false;
    n_reports = 0;
    return 0;
}

static bool is_served(void)
{
    served__note_all(NULL);
    return version.is_served;
}

static void a_worker_that_is_through_with_a_run_or_a_piece_soon_serves(void **state)
{
    (void)state;
    workers[0].state = WORKER_DEAD;
    assert_true(is_served());
    workers[1].state = WORKER_ACTIVE;
    assert_true(is_served());
    workers[1].preparing = 7;
    worker_ctl_begin_piece(&pages[1], sh_clock_ns());
    assert_true(is_served());
    assert_int_equal(n_reports, 0);
}

static void one_that_trains_serves_nobody(void **state)
{
    static const enum worker_state OTHERS[] = {WORKER_STARTING, WORKER_DEAD};
    static const enum worker_state TRAINS[] = {WORKER_ACTIVE, WORKER_PARKED, WORKER_CLEANING};

    (void)state;
    trainer = &workers[0];
    for (size_t k = 0; k < SH_ARRAY_LEN(TRAINS); k++)
        for (size_t i = 0; i < SH_ARRAY_LEN(OTHERS); i++) {
            workers[0].state = TRAINS[k];
            workers[1].state = OTHERS[i];
            assert_false(is_served());
            workers[1].state = WORKER_STANDBY;
            assert_true(is_served());
        }
}

static void one_that_hangs_in_a_piece_serves_nobody(void **state)
{
    (void)state;
    workers[0].state = WORKER_DEAD;
    workers[1].preparing = 7;
    worker_ctl_begin_piece(&pages[1], sh_clock_ns());
    sh_clock_fake(1000 * MS + WAITS_NOBODY_NS - 1, 0);
    assert_true(is_served());
    sh_clock_fake(1000 * MS + WAITS_NOBODY_NS, 0);
    assert_false(is_served());
    worker_ctl_end_piece(&pages[1], sh_clock_ns());
    workers[1].progress_ns = sh_clock_ns();
    assert_true(is_served());
    assert_int_equal(n_reports, 2);
}

static void a_shape_is_served_while_a_worker_has_it(void **state)
{
    (void)state;
    base = (struct model){.handle = 2};
    version.base = &base;
    trainer = &workers[0];
    workers[0].state = WORKER_PARKED;
    workers[1].state = WORKER_STARTING;
    assert_true(is_served());
    assert_false(served__is_taken(&version)); /* who trains runs nothing: others should have it */
    workers[1].state = WORKER_STANDBY;
    assert_true(served__is_taken(&version));
    workers[0].state = WORKER_DEAD;
    workers[1].state = WORKER_STARTING;
    assert_false(is_served());
}

/* The one that has it is paused, and compiles what else it lacks; the other one is free, and would
 * not compile anything while runs wait. */
static void a_shape_that_a_run_waits_for_comes_first(void **state)
{
    (void)state;
    shape = (struct model){
        .base = &version, .handle = STORE_SHAPES + 1, .phase = MODEL_READY, .is_served = true};
    has_shapes = is_waited_for = has_shape[0] = true;
    has_shape[1] = false;
    trainer = &workers[0];
    workers[0].state = WORKER_PARKED;
    assert_true(lacks__any_idle(NULL));
    assert_false(lacks__is_due(NULL, &shape, true)); /* what runs of it there were are over */
    shape.n_users = 1;
    assert_true(lacks__is_due(NULL, &shape, true));
    assert_false(lacks__is_due(NULL, &shape, false)); /* its time comes when nothing else is */
    is_waited_for = false;                            /* one runs */
    assert_false(lacks__is_due(NULL, &shape, true));
    is_waited_for = true;
    shape.retry_ns = 1100 * MS; /* the other one could not take it */
    assert_false(lacks__is_due(NULL, &shape, true));
    sh_clock_fake(1100 * MS, 0);
    assert_true(lacks__is_due(NULL, &shape, true));
    workers[1].preparing = shape.handle;
    assert_false(lacks__is_due(NULL, &shape, true));
    assert_false(lacks__any_idle(NULL));
    workers[1].preparing = 0;
    workers[0].state = WORKER_STANDBY; /* both are free */
    assert_false(lacks__is_due(NULL, &shape, true));
    workers[0].state = WORKER_PARKED;
    shape.phase = MODEL_GOING;
    assert_false(lacks__is_due(NULL, &shape, true));
}

static void what_nobody_has_is_due_before_all_if_somebody_waits(void **state)
{
    (void)state;
    shape = (struct model){
        .base = &version, .handle = STORE_SHAPES + 1, .phase = MODEL_BUILDING, .is_asked = true};
    assert_true(lacks__is_due(NULL, &shape, true));
    assert_true(lacks__is_due(NULL, &shape, false));
    shape.is_asked = false;
    assert_false(lacks__is_due(NULL, &shape, true));
    assert_true(lacks__is_due(NULL, &shape, false));
    workers[1].preparing = shape.handle;
    assert_false(lacks__is_due(NULL, &shape, false));
}

/* Or it would compile all that there is before it takes a run, and nobody else takes one. */
static void one_that_starts_joins_at_once_beside_one_that_trains(void **state)
{
    (void)state;
    workers[0].state = WORKER_ACTIVE;
    workers[1].state = WORKER_STARTING;
    assert_false(served__by_none_but(NULL, &workers[1])); /* a run: it is free soon */
    trainer = &workers[0];
    assert_true(served__by_none_but(NULL, &workers[1]));
    served__join(NULL, &workers[1]);
    assert_int_equal(workers[1].state, WORKER_STANDBY);
}

static void a_wait_is_told_anew_with_each_change(void **state)
{
    (void)state;
    version.wait_told_ns = 50 * MS;
    workers[0].state = workers[1].state = WORKER_DEAD;
    assert_false(is_served());
    assert_int_equal(version.wait_told_ns, 0);
    assert_int_equal(counts.n_served_changes, 1);
    assert_false(is_served());
    assert_int_equal(counts.n_served_changes, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(a_worker_that_is_through_with_a_run_or_a_piece_soon_serves),
        TEST(one_that_trains_serves_nobody),
        TEST(one_that_hangs_in_a_piece_serves_nobody),
        TEST(a_shape_is_served_while_a_worker_has_it),
        TEST(a_shape_that_a_run_waits_for_comes_first),
        TEST(what_nobody_has_is_due_before_all_if_somebody_waits),
        TEST(one_that_starts_joins_at_once_beside_one_that_trains),
        TEST(a_wait_is_told_anew_with_each_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
