/* test_infer_main.c - what a request does on the thread of its front end when its body is complete.
 *
 * Without it: requests that were to be passed on at the end of the thread's turn could wait while
 * it parses or prints the numbers of another one, or the thread could do what takes milliseconds.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/api.h"
#include "api/handlers.h"
#include "api/infer/infer_request.h"
#include "api/request/front.h"
#include "tests/unit/sh_test.h"

#define LITTLE 1000u /* bytes of JSON, or of numbers that are printed */
#define MUCH 8000u
#define TOO_MUCH 100000u

static struct {
    struct api a;
    struct api_conf conf;
    struct cat_version v;
    struct cat_tensor y;
    struct infer i;
    struct api_req q;
    unsigned n_caught_up;
} T;

static void catch_up(struct api_req *q)
{
    assert_ptr_equal(q, &T.q);
    T.n_caught_up++;
}

static const struct api_front FRONT = {.catch_up = catch_up};

static int set_up(void **state)
{
    (void)state;
    memset(&T, 0, sizeof(T));
    T.a.conf = &T.conf;
    T.v = (struct cat_version){.outputs = &T.y, .n_outputs = 1};
    T.y = (struct cat_tensor){.name = "y", .dtype = SH_F32, .rank = 1, .dims = {-1}};
    T.i = (struct infer){.api = &T.a, .q = &T.q, .v = &T.v};
    T.q = (struct api_req){.api = &T.a, .front = &FRONT, .infer = &T.i};
    return slab_new(1 << 20, 1 << 20, &T.a.slab, NULL) ||
           slab_take(T.a.slab, "t", 1, &T.i.body, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    slab_release(T.a.slab, T.i.body);
    slab_release(T.a.slab, T.i.outputs);
    slab_free(T.a.slab);
    return 0;
}

/* On the thread of its front end, or on the pool's; what comes of it is refused then. */
static int parse(size_t bytes, bool on_pool)
{
    struct sh_err err = {0};

    T.n_caught_up = 0;
    T.q.db = on_pool ? (struct db *)&T : NULL; /* not touched */
    T.i.header_bytes = bytes;
    T.i.body_bytes = bytes + 1; /* more than has come */
    return infer_main(&T.q, &err);
}

static void nobody_waits_while_much_json_is_parsed(void **state)
{
    (void)state;
    assert_int_equal(parse(LITTLE, false), SH_E_INVALID);
    assert_int_equal(T.n_caught_up, 0); /* it would cost more than it saves */
    assert_int_equal(parse(MUCH, false), SH_E_INVALID);
    assert_int_equal(T.n_caught_up, 1);
    assert_int_equal(parse(TOO_MUCH, false), API_AGAIN);
    assert_int_equal(T.n_caught_up, 0);
    assert_int_equal(parse(TOO_MUCH, true), SH_E_INVALID);
    assert_int_equal(T.n_caught_up, 0);
}

static int print(size_t bytes, bool is_binary)
{
    struct sh_err err = {0};

    T.n_caught_up = 0;
    slab_release(T.a.slab, T.i.outputs);
    T.i.outputs = NULL;
    assert_ok(slab_take(T.a.slab, "t", bytes, &T.i.outputs, NULL));
    memset(slab_at(T.a.slab, T.i.outputs->off), 0xff,
           bytes); /* no numbers, where they are looked at */
    T.i.submitted = true;
    T.i.plan.n_out = 1;
    T.i.plan.out[0].binary = is_binary;
    T.i.plan.out_bytes[0] = T.i.plan.run_out_bytes[0] = bytes;
    return infer_main(&T.q, &err);
}

static void nobody_waits_while_many_numbers_are_printed(void **state)
{
    (void)state;
    T.i.plan.batch = LITTLE / 4;
    assert_int_equal(print(LITTLE, false), SH_E_NAN);
    assert_int_equal(T.n_caught_up, 0);
    T.i.plan.batch = MUCH / 4;
    assert_int_equal(print(MUCH, false), SH_E_NAN);
    assert_int_equal(T.n_caught_up, 1);
    assert_int_equal(print(TOO_MUCH, false), API_AGAIN);
    assert_int_equal(T.n_caught_up, 0);
}

static void what_is_sent_as_it_is_is_quick(void **state)
{
    (void)state;
    T.i.plan.batch = MUCH / 4;
    assert_ok(print(MUCH, true));
    assert_int_equal(T.n_caught_up, 0);
    free(T.q.reply.head);
    free(T.q.reply.parts);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nobody_waits_while_much_json_is_parsed),
        TEST(nobody_waits_while_many_numbers_are_printed),
        TEST(what_is_sent_as_it_is_is_quick),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
