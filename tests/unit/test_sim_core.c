/* test_sim_core.c - the scheduler's parts without processes, whose peers answer within the call.
 *
 * Without it: what an executor says at once could be overwritten by what was expected of it, and a
 * what-if question would let requests in for weights that are not there. */
/* uses: libsimulate.a libscheduler.a */
/* link: -Wl,--wrap=session_send,--wrap=session_refuse,--wrap=sched_count */
/* link: -Wl,--wrap=dbthread_is_up,--wrap=jobs_train_on -lm -lpq -lmicrohttpd */
#include "common/clock.h"
#include "scheduler/models/ahead.h"
#include "simulate/core.h"
#include "tests/unit/sh_test.h"

#define IMAGE UINT64_C(60000000)

static struct core core;
static unsigned n_asked;

/* There is no room. */
static void answer_at_once(void *ctx, uint32_t exec, const struct sh_msg *m)
{
    (void)ctx;
    if (m->type != MSG_PREPARE)
        return;
    n_asked++;
    models_on_place(&core.s, core.sessions[exec].exec,
                    &(struct msg_model_place){
                        .version_id = m->u.prepare.version_id, .device_bytes = 0, .idle_ns = -1});
}

static void what_found_no_room_ahead_is_not_thought_to_be_there(void **state)
{
    const struct core_hooks hooks = {.send = answer_at_once};
    struct store_model row = {.version_id = 1,
                              .model_id = 1,
                              .tenant_id = 1,
                              .tenant = "t",
                              .model = "m",
                              .state = "READY",
                              .package = "/nowhere",
                              .precision = "fp32",
                              .version = 1,
                              .max_batch = 1,
                              .image_bytes = IMAGE,
                              .n_runs = 5,
                              .on_miss = "reject"};
    const struct model *m;

    (void)state;
    sh_clock_fake(SH_S(1), 0);
    assert_ok(core_init(&core, &hooks, 1, 2 * IMAGE, NULL));
    assert_ok(core_models(&core, &row, 1, NULL));
    core_loaded(&core, 0, 1, IMAGE, 0, NULL, 0);
    ahead_second(&core.s);
    ahead_tick(&core.s);
    m = models_find(&core.s.models, 1);
    assert_int_equal(n_asked, 1);
    assert_int_equal(m->on[0].resident_bytes, 0);
    assert_int_equal(m->on[0].arrives_ns, 0);
    core_fini(&core);
    sh_clock_real();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_found_no_room_ahead_is_not_thought_to_be_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
