/* test_sched_packed.c - what is packed on a device, as the scheduler foresees it. Without it: a run
 * that has to unpack weights could be promised as a warm one, or one that has not as another. */
/* uses: tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

static struct peer x, a; /* an executor and an API */

static struct model *version(int64_t id)
{
    return models_find(&w.s->models, id);
}

static void is_packed(struct peer *p, int64_t unpack_ns)
{
    say(p, &(struct sh_msg){.type = MSG_MODEL_PLACE,
                            .u.model_place = {.version_id = 1,
                                              .device_bytes = version(1)->image_bytes,
                                              .unpack_ns = unpack_ns}});
}

/* It says what is packed at its end, however it has ended. */
static void ends(uint64_t run, int rc, int64_t unpack_ns)
{
    say(&x, &(struct sh_msg){.type = MSG_RUN_DONE,
                             .u.run_done = {.run_id = run,
                                            .rc = rc,
                                            .resident_bytes = version(1)->image_bytes,
                                            .unpack_ns = unpack_ns}});
}

/* Until a run has ended: what is said meanwhile is older than that. */
static void what_is_packed_is_foreseen_until_a_run_has_ended(void **state)
{
    struct model *m;
    const struct exec *e;
    uint64_t run;

    (void)state;
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    api_hello(&a, 7);
    m = version(1);
    e = execs_find(&w.s->execs, "x");
    is_packed(&x, -1);
    assert_int_equal(models_unpack_ns(m, e), 0);
    is_packed(&x, INT64_MAX);
    assert_int_equal(models_unpack_ns(m, e), SH_DAYS(1));
    is_packed(&x, SH_MS(3));
    assert_int_equal(models_unpack_ns(m, e), SH_MS(3));
    infer_open(&a, 1, 1, false);
    infer_ready(&a, 1, NULL, 0);
    run = run_sent(&x);
    assert_int_equal(e->runs->kind, PREDICT_PACKED);
    assert_int_equal(models_unpack_ns(m, e), 0); /* that one does it */
    is_packed(&x, SH_MS(9));
    ends(run, SH_E_UNAVAILABLE, SH_MS(2));
    assert_int_equal(models_unpack_ns(m, e), SH_MS(2));
    infer_open(&a, 2, 1, false);
    infer_ready(&a, 2, NULL, 0);
    ends(run_sent(&x), 0, SH_MS(4)); /* it was unpacked, and others have its place already */
    assert_int_equal(models_unpack_ns(m, e), SH_MS(4));
    infer_open(&a, 3, 1, false);
    infer_ready(&a, 3, NULL, 0);
    ends(run_sent(&x), SH_E_INVALID, 0); /* of its data; it has unpacked the weights */
    assert_int_equal(models_unpack_ns(m, e), 0);
    infer_open(&a, 4, 1, false);
    infer_ready(&a, 4, NULL, 0);
    ends(run_sent(&x), 0, INT64_MAX);
    assert_int_equal(models_unpack_ns(m, e), SH_DAYS(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_packed_is_foreseen_until_a_run_has_ended,
                                        world_begin, world_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
