/* test_sched_links.c - what a copy of a version's weights takes on each executor.
 *
 * Without it: what one executor, which keeps them packed, says would be believed of all, and runs
 * of others would be promised too early. */
/* uses: scheduler/models/models.o scheduler/models/profile.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

static struct peer x, y;

static void each_executor_says_what_it_has_to_copy(void **state)
{
    struct msg_model_state said = {
        .version_id = 1, .state = MSG_MODEL_READY, .image_bytes = 1 << 20, .link_bytes = 1 << 19};
    struct model *m;
    struct exec *e, *f;

    (void)state;
    world_lead();
    e = exec_up(&x, "x");
    f = exec_up(&y, "y");
    m = models_find(&w.s->models, 1);
    e->ns_per_byte = f->ns_per_byte = 1;
    model_said(&x, said);
    assert_int_equal(models_copy_ns(m, e), 1 << 19);
    assert_int_equal(m->stored_bytes, 1 << 19);
    said.link_bytes = 1 << 20;
    model_said(&y, said);
    assert_int_equal(models_copy_ns(m, e), 1 << 19);
    assert_int_equal(models_copy_ns(m, f), 1 << 20);
    said.link_bytes = 0;
    model_said(&x, said);
    assert_int_equal(models_copy_ns(m, e), 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_executor_says_what_it_has_to_copy, world_begin,
                                        world_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
