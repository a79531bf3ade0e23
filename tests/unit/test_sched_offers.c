/* test_sched_offers.c - which executors a new request is offered to, where many have its model.
 *
 * Without it: a request could be refused because the few that were asked are promised to others,
 * while its executors' neighbours have time for it. */
/* uses: scheduler/pass/pass_requests.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

#define N_EXECS 9
#define N_FULL 3 /* the first ones: they seem to be the soonest */
#define LONG_MS 40

static struct peer execs[N_EXECS], a;

static int begin(void **state)
{
    world_begin(state);
    w.conf.max_sessions = 2 * N_EXECS;
    a = (struct peer){.fd = -1};
    w.models[0].profile = "[{\"batch\":1,\"compute_ns\":6e6}]";
    add_model(2, "long")->profile = "[{\"batch\":1,\"compute_ns\":40e6}]";
    world_lead();
    for (size_t i = 0; i < N_EXECS; i++) {
        char name[8];

        snprintf(name, sizeof(name), "e%zu", i);
        exec_up(&execs[i], name);
        model_ready(&execs[i], 1);
    }
    api_hello(&a, 7);
    return 0;
}

static int end(void **state)
{
    for (size_t i = 0; i < N_EXECS; i++)
        peer_close(&execs[i]);
    peer_close(&a);
    return world_end(state);
}

static void open_within(uint64_t rid, int64_t version_id, int64_t within_ns)
{
    say(&a, &(struct sh_msg){.type = MSG_INFER_OPEN,
                             .u.infer_open = {.rid = rid,
                                              .tenant = "t",
                                              .model = version_id == 1 ? "m" : "long",
                                              .version_id = version_id,
                                              .budget_ns = within_ns}});
}

/* A run of the long model on each of the first ones, which has to begin at once; the others have
 * nothing to do but that a run of version 1 may wait there for a worker. */
static void fill_the_first(void)
{
    for (size_t i = 0; i < N_FULL; i++) {
        model_ready(&execs[i], 2);
        open_within(100 + i, 2, (LONG_MS + 4) * MS);
    }
    for (size_t i = N_FULL; i < N_EXECS; i++)
        say(&execs[i], &(struct sh_msg){.type = MSG_EXEC_WAIT,
                                        .u.exec_wait = {.version_id = 1, .worker_ns = 10 * MS}});
    for (size_t i = 0; i < N_FULL; i++)
        assert_int_equal(w.s->execs.items[i]->waiting.n, 1);
}

static void where_time_is_short_more_are_asked(void **state)
{
    (void)state;
    fill_the_first();
    open_within(1, 1, (LONG_MS + 4) * MS);
    assert_null(heard(&a, MSG_INFER_REFUSED));
    assert_in_range(w.s->requests.items[N_FULL]->exec->index, N_FULL, N_EXECS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(where_time_is_short_more_are_asked, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
