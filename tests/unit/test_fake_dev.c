/* test_fake_dev.c - the fake device: scripted time, order and failures.
 *
 * Without it a test of the executor may pass because the fake is wrong: a copy that is there too
 * early hides a missing wait.
 */
/* uses: tests/device/fake/fake_mem.o tests/device/fake/fake_dev.o libdevice.a */
#include "common/clock.h"
#include "tests/device/fake/fake.h"
#include "tests/unit/sh_test.h"

#define POOL (4 * DEV_BLOCK)

struct fixture {
    struct dev_lib *lib;
    struct dev_mem *mem;
    struct dev *dev;
    struct dev_tensor t[3]; /* of plan_two(); a plan borrows them */
    struct dev_op ops[2];
    struct dev_graph g;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct dev_mem_conf mc = {
        .pool_bytes = POOL, .copy_gb_per_s = 1, .copy_latency_us = 10, .n_lanes = 2};
    int fds[DEV_MAX_FDS];
    struct dev_conf dc = {.arena_bytes = POOL, .fds = fds};

    assert_non_null(f);
    sh_clock_fake(1000, 0);
    assert_ok(dev_lib_wrap(&shunt_dev_ops, &f->lib, NULL));
    assert_ok(dev_mem_open(f->lib, &mc, &f->mem, NULL));
    assert_ok(dev_mem_export(f->mem, fds, &dc.n_fds, NULL));
    assert_ok(dev_open(f->lib, &dc, &f->dev, NULL));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    dev_close(f->dev);
    dev_mem_close(f->mem);
    dev_lib_close(f->lib);
    sh_clock_real();
    free(f);
    return 0;
}

static void what_goes_into_a_pool_is_decided_in_whole_blocks(void **state)
{
    const size_t some = DEV_BLOCK + 1; /* takes two blocks of the four */
    struct sh_err err = {0};

    (void)state;
    assert_ok(dev_check_fits(POOL, some, 2 * DEV_BLOCK, 8, false, NULL));
    assert_ok(dev_check_fits(POOL, POOL, 0, 8, false, NULL));
    assert_fails(dev_check_fits(POOL, some, 2 * DEV_BLOCK + 1, 8, false, &err), SH_E_TOOBIG, &err,
                 "the model needs 2 MiB of device memory for weights and 4 MiB for a batch of 8, "
                 "the pool has 8 MiB; lower max_batch");
    err = (struct sh_err){0};
    assert_fails(dev_check_fits(POOL, SIZE_MAX, 1, 8, true, &err), SH_E_TOOBIG, &err,
                 "MiB of device memory for its state and 0 MiB for a batch of 8, the pool has 8 "
                 "MiB; lower the batch");
}

static void a_copy_arrives_when_the_clock_says_and_its_ticket_with_it(void **state)
{
    struct fixture *f = *state;
    unsigned char host[1000], got = 0;
    uint64_t cookie;

    memset(host, 7, sizeof(host));
    assert_ok(dev_mem_copy(f->mem, 0, DEV_H2D, 64, host, sizeof(host), NULL));
    assert_ok(dev_mem_ticket(f->mem, 0, 5, 1, NULL));
    assert_ok(dev_mem_mark(f->mem, 0, 99, NULL));
    sh_clock_advance(10999); /* 10 us + 1000 ns, less one */
    assert_int_equal(dev_ticket_value(f->mem, 5), 0);
    assert_ok(dev_download(f->dev, &got, 64, 1, NULL));
    assert_int_equal(got, 0);
    assert_false(dev_mem_next_mark(f->mem, &cookie));
    sh_clock_advance(1);
    assert_true(dev_mem_next_mark(f->mem, &cookie));
    assert_int_equal(cookie, 99);
    assert_int_equal(dev_ticket_value(f->mem, 5), 1);
    assert_ok(dev_wait(f->dev, 5, 1, 0, NULL));
    assert_ok(dev_download(f->dev, &got, 1063, 1, NULL));
    assert_int_equal(got, 7);
}

static void two_lanes_share_the_link_of_their_direction(void **state)
{
    struct fixture *f = *state;
    unsigned char host[1000] = {0};
    uint64_t cookie;

    for (uint32_t lane = 0; lane < 2; lane++) {
        assert_ok(dev_mem_copy(f->mem, lane, DEV_H2D, 0, host, sizeof(host), NULL));
        assert_ok(dev_mem_mark(f->mem, lane, lane, NULL));
    }
    sh_clock_advance(11000);
    assert_true(dev_mem_next_mark(f->mem, &cookie));
    assert_int_equal(cookie, 0);
    assert_false(dev_mem_next_mark(f->mem, &cookie));
    sh_clock_advance(11000);
    assert_true(dev_mem_next_mark(f->mem, &cookie));
    assert_int_equal(cookie, 1);
}

static struct dev_plan *plan_two(struct fixture *f, const char *second)
{
    struct dev_plan *p = NULL;

    for (uint32_t i = 0; i < 3; i++)
        f->t[i] = (struct dev_tensor){.name = "t",
                                      .dtype = SH_F32,
                                      .rank = 1,
                                      .dims = {4},
                                      .role = i ? DEV_ROLE_ACT : DEV_ROLE_WEIGHT,
                                      .alias_of = DEV_NONE,
                                      .offset = i * 256};
    for (uint32_t i = 0; i < 2; i++)
        f->ops[i] = (struct dev_op){.kind = DEV_OP_ACT,
                                    .n_in = 1,
                                    .n_out = 1,
                                    .in = {i},
                                    .out = {i + 1},
                                    .name = i ? second : "first"};
    f->g = (struct dev_graph){.tensors = f->t, .ops = f->ops, .n_tensors = 3, .n_ops = 2};
    assert_ok(dev_plan_new(f->dev, &f->g, DEV_FP32, NULL, &p, NULL));
    assert_ok(dev_plan_finish(p, NULL));
    return p;
}

static void results_follow_from_the_inputs_and_time_passes(void **state)
{
    struct fixture *f = *state;
    struct dev_bases b = {.workspace = 4096};
    struct dev_plan *p = plan_two(f, "second !ns=5000");
    unsigned char a[16], again[16], other[16];
    int64_t t0 = sh_clock_ns();
    double ns[2];

    assert_ok(dev_plan_run(p, &b, 0, 2, NULL));
    assert_int_equal(sh_clock_ns() - t0, 6000);
    assert_ok(dev_download(f->dev, a, 4096 + 512, 16, NULL));
    assert_ok(dev_plan_run(p, &b, 0, 1, NULL));
    assert_ok(dev_plan_run(p, &b, 1, 2, NULL));
    assert_ok(dev_download(f->dev, again, 4096 + 512, 16, NULL));
    assert_memory_equal(a, again, 16);
    assert_ok(dev_fill(f->dev, 0, 1, 1, NULL)); /* one byte of the weight */
    assert_ok(dev_plan_run(p, &b, 0, 2, NULL));
    assert_ok(dev_download(f->dev, other, 4096 + 512, 16, NULL));
    assert_memory_not_equal(a, other, 16);
    assert_ok(dev_plan_profile(p, &b, 1, ns, NULL));
    assert_true(ns[0] == 1000 && ns[1] == 5000);
    dev_plan_free(p);
}

static void a_scripted_failure_happens_at_its_operation(void **state)
{
    struct fixture *f = *state;
    struct dev_bases b = {.workspace = 4096};
    struct sh_err err = {0};
    struct dev_plan *p = plan_two(f, "second !fail=DEVLOST");

    assert_ok(dev_plan_run(p, &b, 0, 1, NULL));
    assert_fails(dev_plan_run(p, &b, 1, 2, &err), SH_E_DEVLOST, &err, "second");
    dev_plan_free(p);
}

static void what_is_prepared_counts_until_its_plan_goes(void **state)
{
    struct fixture *f = *state;
    const struct dev_bases b = {.workspace = 4096}, other = {.workspace = 8192};
    struct sh_err err = {0};
    struct dev_plan *p = plan_two(f, "second !prepare=DEVMEM");

    assert_ok(dev_plan_prepare(p, &b, 0, 1, NULL));
    assert_ok(dev_plan_prepare(p, &b, 0, 1, NULL)); /* it is there */
    assert_ok(dev_plan_prepare(p, &other, 0, 1, NULL));
    assert_fails(dev_plan_prepare(p, &b, 0, 2, &err), SH_E_DEVMEM, &err, "second");
    assert_int_equal(dev_n_prepared(f->dev), 2);
    assert_ok(dev_plan_run(p, &b, 0, 2, NULL));
    dev_plan_free(p);
    assert_int_equal(dev_n_prepared(f->dev), 0);
}

static void memory_of_its_own_leaves_the_arena_as_it_was(void **state)
{
    struct fixture *f = *state;
    unsigned char got = 0;

    assert_ok(dev_fill(f->dev, 77, 5, 1, NULL));
    assert_ok(dev_own_memory(f->dev, 4096, NULL));
    assert_ok(dev_download(f->dev, &got, 77, 1, NULL));
    assert_int_equal(got, 0);
    assert_ok(dev_fill(f->dev, 77, 6, 1, NULL));
    assert_int_equal(dev_fill(f->dev, 4096, 6, 1, NULL), SH_E_BUG);
    assert_ok(dev_own_memory(f->dev, 0, NULL));
    assert_ok(dev_download(f->dev, &got, 77, 1, NULL));
    assert_int_equal(got, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_into_a_pool_is_decided_in_whole_blocks),
        cmocka_unit_test_setup_teardown(a_copy_arrives_when_the_clock_says_and_its_ticket_with_it,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(two_lanes_share_the_link_of_their_direction, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(results_follow_from_the_inputs_and_time_passes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(memory_of_its_own_leaves_the_arena_as_it_was, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_scripted_failure_happens_at_its_operation, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_prepared_counts_until_its_plan_goes, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
