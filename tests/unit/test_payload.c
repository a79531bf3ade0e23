/* test_payload.c - what is copied between the slabs of APIs and the memory of a worker. Without it:
 * a part that its worker refused could overwrite what lies where its wrong spans point. */
/* uses: executor/runs/payload.o */
#include "executor/requests/data.h"
#include "executor/requests/slabs.h"
#include "executor/runs/payload.h"
#include "executor/runs/switch_int.h"
#include "tests/unit/sh_test.h"

#include <string.h>

#define API 7u
#define WORKERS_OWN 99u

static struct sh_shm slab;
static struct worker worker;
static struct switcher sw;
static struct msg_span ins[2] = {{0, 8}, {64, 8}}, outs[2] = {{128, 8}, {192, 8}};
static struct run_part parts[2];
static struct run run;
static bool is_here;

bool slabs_are_hidden(const struct slabs *s)
{
    (void)s;
    return true;
}

const struct sh_shm *slabs_find(const struct slabs *s, uint64_t api_id)
{
    (void)s;
    return api_id == API ? &slab : NULL;
}

uint64_t slabs_own_id(struct slabs *s)
{
    (void)s;
    return WORKERS_OWN;
}

bool data_has(const struct data *d, uint64_t api_id, uint64_t rid)
{
    (void)d;
    (void)rid;
    return api_id == API && is_here;
}

void worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds)
{
    (void)w;
    (void)m;
    (void)fds;
    (void)n_fds;
}

static char *at(uint64_t off)
{
    return (char *)slab.base + off;
}

static int begin(void **state)
{
    struct sh_err err = {0};

    (void)state;
    assert_ok(sh_shm_create("slab", 4096, &slab, &err));
    memset(slab.base, 'a', 4096);
    worker = (struct worker){.payload.mem.fd = -1};
    for (size_t i = 0; i < 2; i++)
        parts[i] = (struct run_part){.rid = i + 1,
                                     .api_id = API,
                                     .batch = 1,
                                     .in = &ins[i],
                                     .n_in = 1,
                                     .out = &outs[i],
                                     .n_out = 1};
    run = (struct run){.sw = &sw, .parts = parts, .n_parts = 2};
    is_here = true;
    return 0;
}

static int end(void **state)
{
    (void)state;
    payload_forget(&worker);
    sh_shm_fini(&slab);
    return 0;
}

static void lend(void)
{
    struct sh_err err = {0};

    assert_ok(payload_lend(&run, &worker, &err));
}

/* Inputs and outputs lie one behind the other, in steps of 64 bytes. */
static char *lent(size_t i)
{
    return (char *)worker.payload.mem.base + 64 * i;
}

static void inputs_go_and_outputs_come(void **state)
{
    (void)state;
    lend();
    assert_memory_equal(lent(0), "aaaaaaaa", 8);
    assert_memory_equal(lent(2), "aaaaaaaa", 8);
    memcpy(lent(1), "first...", 8);
    memcpy(lent(3), "second..", 8);
    payload_take_back(&run, &worker, true);
    assert_memory_equal(at(128), "first...", 8);
    assert_memory_equal(at(192), "second..", 8);
    assert_memory_equal(lent(1), "\0\0\0\0\0\0\0\0", 8); /* nothing to the next run */
}

/* In each way that there is to clear it. */
static void all_is_cleared_however_much_it_was(void **state)
{
    static const uint64_t MIB[] = {1, 5, 17, 65};
    const struct msg_span whole = ins[0];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(MIB); i++) {
        const struct payload *m = &worker.payload;

        ins[0].len = MIB[i] << 20;
        lend();
        assert_true(m->mem.bytes >= ins[0].len);
        memset(m->mem.base, 'x', ins[0].len);
        payload_take_back(&run, &worker, true);
        for (size_t k = 0; m->mem.base && k < ins[0].len; k++)
            assert_int_equal(((const char *)m->mem.base)[k], 0);
    }
    ins[0] = whole;
}

static void a_part_that_failed_leaves_the_slab_alone(void **state)
{
    (void)state;
    lend();
    memcpy(lent(3), "second..", 8);
    parts[0].rc = SH_E_INVALID;
    payload_take_back(&run, &worker, true);
    assert_memory_equal(at(128), "aaaaaaaa", 8);
    assert_memory_equal(at(192), "second..", 8);
}

static void so_does_a_run_that_failed(void **state)
{
    (void)state;
    lend();
    payload_take_back(&run, &worker, false);
    assert_memory_equal(at(128), "aaaaaaaa", 8);
}

static void spans_beyond_the_slab_are_not_touched(void **state)
{
    const struct msg_span far = {4090, 8};

    (void)state;
    outs[0] = far;
    lend();
    memcpy(lent(1), "first...", 8);
    payload_take_back(&run, &worker, true);
    assert_memory_equal(at(4088), "aaaaaaaa", 8);
    outs[0] = (struct msg_span){128, 8};
}

static void inputs_that_are_not_there_are_not_read(void **state)
{
    (void)state;
    is_here = false;
    lend();
    assert_memory_equal(lent(0), "\0\0\0\0\0\0\0\0", 8);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(inputs_go_and_outputs_come),
        TEST(all_is_cleared_however_much_it_was),
        TEST(a_part_that_failed_leaves_the_slab_alone),
        TEST(so_does_a_run_that_failed),
        TEST(spans_beyond_the_slab_are_not_touched),
        TEST(inputs_that_are_not_there_are_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
