/* test_version_life.c - steps of a version that another leader or a client at the wrong moment
 * brings about. Without it: a version that failed under a dead leader could stay REGISTERED for
 * ever, or a client's wish end the scheduler as a step that cannot be. */
/* uses: scheduler/models/models.o scheduler/models/homes.o scheduler/decide/placement.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

static struct peer x; /* an executor */

static int begin(void **state)
{
    world_begin(state);
    x = (struct peer){.fd = -1};
    w.models[0].state = "REGISTERED";
    return 0;
}

static int end(void **state)
{
    peer_close(&x);
    return world_end(state);
}

static struct model *version(void)
{
    return models_find(&w.s->models, 1);
}

static void said(enum msg_model_phase phase)
{
    model_said(&x, (struct msg_model_state){.version_id = 1,
                                            .state = phase,
                                            .rc = phase == MSG_MODEL_FAILED ? SH_E_INVALID : 0,
                                            .msg = "why"});
}

/* A leader died before it wrote that it is LOADING; its executor tells the next one what became of
 * it. */
static void one_that_failed_under_an_earlier_leader_is_failed(void **state)
{
    (void)state;
    world_lead();
    exec_hello(&x, "x", 1);
    said(MSG_MODEL_FAILED);
    exec_synced(&x, "x");
    advance(2 * SECOND);
    assert_null(heard(&x, MSG_MODEL_LOAD));
    assert_int_equal(version()->state, MODEL_FAILED);
    assert_string_equal(w.models[0].state, "FAILED");
}

/* Its row still says that it is coming: the write that it has failed is on its way. */
static void one_that_failed_just_now_can_be_unloaded(void **state)
{
    (void)state;
    world_lead();
    exec_up(&x, "x");
    w.held = "model.state";
    said(MSG_MODEL_FAILED);
    assert_int_equal(version()->state, MODEL_FAILED);
    w.models[0].state = "UNLOADING";
    look_again();
    hear(&x, MSG_MODEL_UNLOAD);
    assert_int_equal(version()->state, MODEL_UNLOADING);
    w.held = NULL;
    said(MSG_MODEL_GONE);
    assert_int_equal(version()->state, MODEL_UNLOADED);
    assert_string_equal(w.models[0].state, "UNLOADED");
}

static void one_that_still_leaves_can_come_back(void **state)
{
    (void)state;
    world_lead();
    exec_up(&x, "x");
    said(MSG_MODEL_READY);
    w.models[0].state = "UNLOADING";
    look_again();
    hear(&x, MSG_MODEL_UNLOAD);
    w.models[0].state = "REGISTERED";
    look_again();
    assert_int_equal(version()->state, MODEL_REGISTERED);
    assert_null(heard(&x, MSG_MODEL_LOAD)); /* first it has to be gone */
    said(MSG_MODEL_GONE);
    hear(&x, MSG_MODEL_LOAD);
    assert_int_equal(version()->state, MODEL_LOADING);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(one_that_failed_under_an_earlier_leader_is_failed),
        TEST(one_that_failed_just_now_can_be_unloaded),
        TEST(one_that_still_leaves_can_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
