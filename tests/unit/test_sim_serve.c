/* test_sim_serve.c - without it, a replay could charge each run for the stop of a training that has
 * not gone on since the run before: one policy would look slower under load than it is. */
/* uses: simulate/serve.o simulate/queue.o */
/* link: -lm */
#include "simulate/serve.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

enum { N = 5 };
#define RUN_NS INT64_C(1000000)
#define STOP_NS INT64_C(200000)

struct fifo {
    struct serve *s;
    uint32_t next, n_waiting;
};

static void begin(struct fifo *f)
{
    if (f->s->gpus[0].n || !f->n_waiting)
        return;
    f->n_waiting--;
    f->s->next[f->next] = SERVE_NONE;
    serve_begin(f->s, 0, f->next++, 1, SERVE_PIPELINED, 0, 0, 0);
}

static void *fifo_create(struct serve *s)
{
    struct fifo *f = calloc(1, sizeof(*f));

    if (f)
        f->s = s;
    return f;
}

static void arrived(void *p, uint32_t request)
{
    (void)request;
    ((struct fifo *)p)->n_waiting++;
    begin(p);
}

static void idle(void *p, uint32_t gpu)
{
    (void)gpu;
    begin(p);
}

static void only_a_run_after_a_pause_waits_until_training_has_stopped(void **state)
{
    /* One at the beginning, one at once behind another, one that comes as another ends. */
    static const int64_t AT_NS[N] = {0, 0, 2 * RUN_NS + STOP_NS, 5 * RUN_NS, 9 * RUN_NS};
    static const int64_t STOPS[N] = {STOP_NS, 0, 0, STOP_NS, STOP_NS};
    const struct serve_policy policy = {"fifo", true, fifo_create, free, arrived, idle, NULL};
    const struct serve_place place = {.pool_bytes = 1 << 20, .ns_per_byte = .02};
    struct serve_end ends[N] = {0};
    struct serve_conf conf = {.n_gpus = 1, .places = &place, .stop_ns = STOP_NS, .ends = ends};
    struct serve_model model = {.layer_ends = {1000},
                                .layer_ns = {RUN_NS},
                                .n_layers = 1,
                                .max_batch = 1,
                                .times = {0, 1},
                                .factors = {1},
                                .n_factors = 1};
    struct trace_request items[N] = {0};
    const struct trace_requests t = {
        .items = items, .n = N, .models = {.n = 1}, .tenants = {.n = 1}};
    struct serve_result result;
    struct sh_err err;

    (void)state;
    for (size_t i = 0; i < N; i++)
        items[i].at_ns = AT_NS[i];
    assert_int_equal(serve_replay(&t, &model, &policy, &conf, &result, &err), SH_OK);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(ends[i].end_ns - ends[i].begun_ns, RUN_NS + STOPS[i]);
    assert_false(result.by_clock);
    conf.most_cpu_s = 1e-12;
    assert_int_equal(serve_replay(&t, &model, &policy, &conf, &result, &err), SH_OK);
    assert_true(result.by_clock);
}

/* Held off at the first event, and back at the third. */
static void arrived_and_held(void *p, uint32_t request)
{
    struct fifo *f = p;

    if (request == 0)
        serve_hold_off(f->s, 0, true, 10 * RUN_NS);
    if (request == 2)
        serve_hold_off(f->s, 0, false, 0);
    arrived(p, request);
}

static void what_is_held_off_neither_trains_nor_is_stopped(void **state)
{
    const struct serve_policy policy = {"fifo",           true, fifo_create, free,
                                        arrived_and_held, idle, NULL};
    const struct serve_place place = {.pool_bytes = 1 << 20, .ns_per_byte = .02};
    struct serve_end ends[N] = {0};
    const struct serve_conf conf = {
        .n_gpus = 1, .places = &place, .stop_ns = STOP_NS, .resume_ns = RUN_NS, .ends = ends};
    struct serve_model model = {.layer_ends = {1000},
                                .layer_ns = {RUN_NS},
                                .n_layers = 1,
                                .max_batch = 1,
                                .times = {0, 1},
                                .factors = {1},
                                .n_factors = 1};
    struct trace_request items[N] = {0};
    const struct trace_requests t = {
        .items = items, .n = N, .models = {.n = 1}, .tenants = {.n = 1}};
    struct serve_result result;
    struct sh_err err;

    (void)state;
    for (size_t i = 0; i < N; i++) /* the first at the end of a long time in which it trains */
        items[i].at_ns = (20 + 20 * (int64_t)i) * RUN_NS;
    assert_int_equal(serve_replay(&t, &model, &policy, &conf, &result, &err), SH_OK);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(ends[i].end_ns - ends[i].begun_ns, RUN_NS + (i > 2 ? STOP_NS : 0));
    /* 20, less what a change cost and the first resume; from the fourth on each gap but for the
     * resume, the run and the stop. */
    assert_true(result.trained * 100 > 20 - 1 - 10 + 2 * 17.5 &&
                result.trained * 100 < 20 - 1 - 10 + 2 * 18.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_run_after_a_pause_waits_until_training_has_stopped),
        cmocka_unit_test(what_is_held_off_neither_trains_nor_is_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
