/* test_lanes.c - lanes of several links, which have no order but the one that they are given.
 *
 * Without it: a ticket behind the parts of a group, or a scrub behind an image, would come when one
 * of several links is done, on a device where lanes really run beside each other.
 */
/* uses: executor/memory/transmit.o executor/memory/links.o runtime/group.o */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/memory/transmit.h"
#include "tests/device/dev_test.h"

#define POOL ((size_t)32 << 20)
#define WAIT_MS 60000
#define ROUNDS 300
#define PIECE ((size_t)256 << 10)
#define MOST_TRIES 200

/* NULL: the device has one link, and says so. */
static struct dev_mem *open_links(uint32_t n, double gb_per_s)
{
    struct dev_mem_conf c = {.pool_bytes = POOL, .copy_gb_per_s = gb_per_s};
    struct dev_mem *m = NULL;
    struct sh_err err = {0};
    int rc;

    links_lanes(&c, n);
    rc = dev_mem_open(t_lib(), &c, &m, &err);
    if (strcmp(t_kind(), "cpu") == 0) {
        assert_ok_err(rc, &err);
        assert_int_equal(dev_mem_n_links(m), n);
    } else {
        assert_fails(rc, SH_E_UNSUPPORTED, &err, "by one link");
    }
    return m;
}

/* Each writes over what the one before it wrote, and reads it before. */
static void a_lane_begins_behind_the_one_it_follows(void **state)
{
    struct dev_mem *m = open_links(4, 0);
    unsigned char *in = malloc(ROUNDS * PIECE), *out = calloc(ROUNDS, PIECE);
    struct sh_err err = {0};

    (void)state;
    if (!m)
        skip();
    assert_true(in && out);
    for (size_t i = 0; i < ROUNDS; i++)
        memset(in + i * PIECE, (int)(i % 251 + 1), PIECE);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const uint32_t lane = i % 4, before = (i + 3) % 4;

        if (i > 0)
            assert_ok_err(dev_mem_follow(m, lane, before, &err), &err);
        if (i > 0)
            assert_ok(dev_mem_copy(m, lane, DEV_D2H, 0, out + (i - 1) * PIECE, PIECE, &err));
        assert_ok(dev_mem_copy(m, lane, DEV_H2D, 0, in + i * PIECE, PIECE, &err));
    }
    assert_ok(
        dev_mem_copy(m, (ROUNDS - 1) % 4, DEV_D2H, 0, out + (ROUNDS - 1) * PIECE, PIECE, &err));
    assert_ok(dev_mem_mark(m, (ROUNDS - 1) % 4, 1, &err));
    t_wait_mark(m);
    assert_memory_equal(in, out, ROUNDS * PIECE);
    assert_int_equal(dev_mem_follow(m, 1, 1, NULL), SH_E_BUG);
    dev_mem_close(m);
    free(in);
    free(out);
}

/* Copies by several links, all before one mark. */
static double copies_s(struct dev_mem *m, unsigned char *host, uint32_t n_links, size_t bytes)
{
    const int64_t t0 = sh_clock_ns();

    for (uint32_t k = 0; k < n_links; k++)
        assert_ok(dev_mem_copy(m, k, DEV_H2D, k * bytes, host, bytes, NULL));
    for (uint32_t k = 1; k < n_links; k++)
        assert_ok(dev_mem_follow(m, 0, k, NULL));
    assert_ok(dev_mem_mark(m, 0, 1, NULL));
    t_wait_mark(m);
    return (double)(sh_clock_ns() - t0) / 1e9;
}

static void links_carry_beside_each_other(void **state)
{
    struct dev_mem *m = open_links(2, 0.5);
    unsigned char *host = calloc(1, (size_t)8 << 20);
    double s = 1;

    (void)state;
    if (!m)
        skip();
    assert_non_null(host);
    for (int i = 0; i < MOST_TRIES && s >= 28e-3; i++) { /* the machine has other work */
        s = copies_s(m, host, 2, (size_t)8 << 20);
        assert_true(s >= 16.777e-3);
    }
    assert_true(s < 28e-3); /* by one link 33.5 */
    dev_mem_close(m);
    free(host);
}

/* Closed while lanes wait for each other behind a copy of minutes: it ends all the same. */
static void what_waits_for_another_lane_does_not_hold_the_end(void **state)
{
    struct dev_mem *m = open_links(4, 0.0001);
    unsigned char *host = calloc(1, PIECE * 64);
    const int64_t t0 = sh_clock_ns();

    (void)state;
    if (!m)
        skip();
    assert_non_null(host);
    assert_ok(dev_mem_copy(m, 2, DEV_H2D, 0, host, PIECE * 64, NULL));
    for (uint32_t k = 0; k < 4; k++)
        if (k != 2)
            assert_ok(dev_mem_follow(m, k, 2, NULL));
    dev_mem_close(m);
    assert_true(sh_clock_ns() - t0 < SH_S(60));
    free(host);
}

static void on_flag(void *arg)
{
    *(bool *)arg = true;
}

static void wait_for(struct sh_loop *loop, const bool *what)
{
    const int64_t end = sh_clock_ns() + SH_MS(WAIT_MS);

    while (!*what && sh_clock_ns() < end)
        assert_ok(sh_loop_once(loop, SH_MS(100), NULL));
    assert_true(*what);
}

/* Images at one place, one behind the other, each with another content: at each of its tickets a
 * group is there, and after the last one the image is. */
static void images_that_are_divided_arrive_whole(void **state)
{
    enum { N = 24 };
    const size_t bytes = (size_t)6 << 20;
    struct dev_mem *m = open_links(4, 2);
    unsigned char *host = malloc(bytes), *got = malloc(bytes);
    uint64_t ends[N];
    double ns[N];
    struct sh_loop *loop = NULL;
    struct tx *tx = NULL;
    struct tx_image im = {.slot = TX_SLOT_IMAGE, .n_layers = N, .layer_ends = ends};
    struct sh_err err = {0};

    (void)state;
    if (!m)
        skip();
    assert_true(host && got);
    for (uint32_t i = 0; i < N; i++) {
        ends[i] = bytes / N * (i + 1);
        ns[i] = 100000;
    }
    im.host = (const char *)host;
    im.bytes = bytes;
    assert_ok(sh_loop_new(&loop, NULL));
    assert_ok_err(tx_new(loop, m, "e", &tx, &err), &err);
    for (int round = 0; round < 20; round++) {
        bool has_arrived = false, is_read = false;

        for (size_t i = 0; i < bytes; i++)
            host[i] = (unsigned char)(i * 31 / 251 + (size_t)round);
        assert_ok(tx_zero(tx, 0, bytes, &err));
        assert_ok_err(tx_load_begin(tx, &im, &(struct tx_place){0}, ns, &err), &err);
        assert_ok_err(tx_load_rest(tx, &im, on_flag, &has_arrived, &err), &err);
        assert_true(tx_links(tx)->at[3].n_sent > 0);
        wait_for(loop, &has_arrived);
        tx_image_arrived(tx, &im);
        assert_int_equal(dev_ticket_value(m, TX_SLOT_IMAGE), im.value);
        assert_ok(tx_out(tx, TX_STATE, 0, got, bytes, &err));
        assert_ok(tx_mark(tx, TX_LANE_OUT, on_flag, &is_read, &err));
        wait_for(loop, &is_read);
        assert_memory_equal(host, got, bytes);
    }
    tx_image_fini(&im);
    tx_free(tx);
    dev_mem_close(m);
    sh_loop_free(loop);
    free(host);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_begins_behind_the_one_it_follows),
        cmocka_unit_test(links_carry_beside_each_other),
        cmocka_unit_test(what_waits_for_another_lane_does_not_hold_the_end),
        cmocka_unit_test(images_that_are_divided_arrive_whole),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
