/* test_transmit.c - images cut into groups and sent to the device behind tickets.
 *
 * Without it: a group could be announced before its bytes are there, a resident head could be
 * copied again (or a missing byte not at all), or a stuck switch could hold its waiter for ever. */
/* uses: tests/lab/group.o executor/memory/transmit.o executor/memory/links.o runtime/group.o libdevice.a */
/* link: -ldl -Wl,--wrap=dev_mem_measure -Wl,--wrap=dev_mem_rehearse */
#include "common/clock.h"
#include "tests/lab/group.h"
#include "tests/unit/sh_test.h"

#include <math.h>

#define N_LAYERS 40u

static void sum_up(const uint32_t *ends, uint32_t n, uint32_t layers)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < n; i++) {
        assert_true(ends[i] > at);
        at = ends[i];
    }
    assert_int_equal(at, layers);
}

static void every_mode_covers_all_layers_once(void **state)
{
    uint64_t missing[N_LAYERS];
    double ns[N_LAYERS];

    (void)state;
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        missing[i] = i < 5 ? 0 : 1000 * (i % 7); /* some layers have no weights */
        ns[i] = 500.0 * (i % 3);
    }
    for (int mode = 0; mode < LAB_N_MODES; mode++) {
        uint32_t *ends = NULL, n = 0;

        if (mode == LAB_OPTIMUM)
            assert_ok(
                tx_group(&(struct links_way){100, 1}, 1, missing, ns, N_LAYERS, &ends, &n, NULL));
        else
            assert_ok(lab_group((enum lab_mode)mode, missing, N_LAYERS, &ends, &n, NULL));
        sum_up(ends, n, N_LAYERS);
        assert_true(ends[0] >= 5); /* the resident head waits for nothing */
        free(ends);
    }
}

static void the_modes_for_comparison_are_what_their_names_say(void **state)
{
    uint64_t missing[6] = {0, 1 << 20, 1 << 20, 3 << 20, 0, 1 << 20};
    uint32_t *ends = NULL, n = 0;

    (void)state;
    assert_ok(lab_group(LAB_PER_LAYER, missing, 6, &ends, &n, NULL));
    assert_int_equal(n, 5); /* head, three layers, and the last with the empty one before it */
    free(ends);
    assert_ok(lab_group(LAB_ONE_GROUP, missing, 6, &ends, &n, NULL));
    assert_int_equal(n, 2);
    assert_int_equal(ends[0], 1);
    free(ends);
    assert_ok(lab_group(LAB_FIXED_2MB, missing, 6, &ends, &n, NULL));
    assert_int_equal(n, 4); /* head, 2 MiB, 3 MiB, the rest */
    assert_int_equal(ends[1], 3);
    assert_int_equal(ends[2], 4);
    free(ends);
}

/* The optimum lets the first layer's long computation begin as early as can be; but a group also
 * costs a wait and a launch, which a copy of 2 us is not worth. */
static void a_small_first_layer_takes_in_what_follows(void **state)
{
    uint64_t missing[N_LAYERS];
    double ns[N_LAYERS];
    uint32_t *ends = NULL, n = 0, head = 2;

    (void)state;
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        missing[i] = i < head ? 0 : 2000 + 1000 * (uint64_t)i;
        ns[i] = i < head ? 0 : 100000;
    }
    assert_ok(tx_group(&(struct links_way){3000, 1}, 1, missing, ns, N_LAYERS, &ends, &n, NULL));
    sum_up(ends, n, N_LAYERS);
    assert_int_equal(ends[0], head); /* which waits for nothing */
    for (uint32_t g = 1; g < n; g++) {
        uint64_t copy = 0;

        for (uint32_t i = ends[g - 1]; i < ends[g]; i++)
            copy += missing[i];
        assert_true(copy >= 15000 || g + 1 == n);
        if (g == 1)
            assert_true(copy < 25000);
    }
    assert_true(n > 4);
    free(ends);
}

static void an_unknown_mode_names_the_ones_there_are(void **state)
{
    struct sh_err err = {0};
    enum lab_mode m;

    (void)state;
    assert_fails(lab_mode_parse("best", &m, &err), SH_E_INVALID, &err, "per-layer");
    assert_ok(lab_mode_parse("optimum", &m, NULL));
    assert_int_equal(m, LAB_OPTIMUM);
}

/* ------------------------------------------------------------------ with the cpu device */

static double measured_times = 1; /* the link is measured as so much slower than it is ... */
static double measured_more_ns;   /* ... and a copy as so much longer to begin */

int __real_dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                           struct sh_err *err);
int __wrap_dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                           struct sh_err *err);

int __wrap_dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                           struct sh_err *err)
{
    int rc = __real_dev_mem_measure(m, lane, alpha_ns, beta_ns, err);

    *alpha_ns += measured_more_ns;
    *beta_ns *= measured_times;
    return rc;
}

struct rig {
    struct sh_loop *loop;
    struct dev_lib *lib;
    struct dev_mem *mem;
    struct tx *tx;
    struct tx_image im;
    unsigned char *host, *back;
    uint64_t ends[N_LAYERS];
    double ns[N_LAYERS];
    int arrived;
};

static void on_arrived(void *arg)
{
    struct rig *r = arg;

    r->arrived++;
    tx_image_arrived(r->tx, &r->im);
}

static int load(struct rig *r, const struct tx_place *at)
{
    int rc = tx_load_begin(r->tx, &r->im, at, r->ns, NULL);

    return rc ? rc : tx_load_rest(r->tx, &r->im, on_arrived, r, NULL);
}

static void rig_open(struct rig *r, double gb_per_s)
{
    const struct dev_mem_conf c = {
        .pool_bytes = 8 * DEV_BLOCK, .n_lanes = 2, .copy_gb_per_s = gb_per_s};
    struct sh_err err = {0};
    uint64_t bytes = 0;

    *r = (struct rig){0};
    assert_ok(sh_loop_new(&r->loop, NULL));
    assert_ok_err(dev_lib_open("cpu", &r->lib, &err), &err);
    assert_ok_err(dev_mem_open(r->lib, &c, &r->mem, &err), &err);
    assert_ok_err(tx_new(r->loop, r->mem, "e", &r->tx, &err), &err);
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        bytes += 512 * (i * 37 % 200);
        r->ends[i] = bytes;
        r->ns[i] = 20000;
    }
    r->host = malloc(bytes);
    r->back = calloc(1, bytes);
    assert_true(r->host && r->back);
    for (uint64_t i = 0; i < bytes; i++)
        r->host[i] = (unsigned char)(i * 31 >> 3);
    r->im = (struct tx_image){.slot = TX_SLOT_IMAGE,
                              .host = (const char *)r->host,
                              .bytes = bytes,
                              .n_layers = N_LAYERS,
                              .layer_ends = r->ends};
}

static void rig_close(struct rig *r)
{
    tx_image_fini(&r->im);
    tx_free(r->tx);
    dev_mem_close(r->mem);
    dev_lib_close(r->lib);
    sh_loop_free(r->loop);
    free(r->host);
    free(r->back);
}

static void wait_for(struct rig *r, const int *what)
{
    int64_t end = sh_clock_ns() + (int64_t)120000000000;

    while (!*what && sh_clock_ns() < end)
        assert_ok(sh_loop_once(r->loop, 100000000, NULL));
    assert_true(*what);
}

static void on_flag(void *arg)
{
    *(int *)arg = 1;
}

static void read_back(struct rig *r, size_t off)
{
    int done = 0;

    assert_ok(tx_out(r->tx, TX_STATE, off, r->back, (size_t)r->im.bytes, NULL));
    assert_ok(tx_mark(r->tx, TX_LANE_OUT, on_flag, &done, NULL));
    wait_for(r, &done);
}

static void an_image_arrives_whole_and_its_tickets_with_it(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r, 0);
    assert_ok(load(&r, &(struct tx_place){.off = 4096}));
    assert_true(tx_image_busy(&r.im));
    assert_true(r.im.n_groups >= 1);
    assert_int_equal(r.im.groups[r.im.n_groups - 1].end_layer, N_LAYERS);
    wait_for(&r, &r.arrived);
    assert_false(tx_image_busy(&r.im));
    assert_int_equal(dev_ticket_value(r.mem, TX_SLOT_IMAGE), r.im.value);
    read_back(&r, 4096);
    assert_memory_equal(r.host, r.back, r.im.bytes);
    rig_close(&r);
}

/* A run is told of the tickets while the lane is given the rest. How many groups the optimum has
 * depends on how fast this machine copies at this moment; layers are always many. */
static void all_tickets_are_known_before_the_rest_is_sent(void **state)
{
    struct rig r;
    uint32_t first, n = 0;

    (void)state;
    rig_open(&r, 0);
    lab_set_mode(r.tx, LAB_PER_LAYER);
    first = r.im.value + 1;
    assert_ok(tx_load_begin(r.tx, &r.im, &(struct tx_place){0}, r.ns, NULL));
    assert_true(tx_image_busy(&r.im));
    for (uint32_t i = 0; i < r.im.n_groups; i++) /* layers without weights wait for nothing */
        if (r.im.groups[i].ticket_slot == TX_SLOT_IMAGE)
            assert_int_equal(r.im.groups[i].ticket_value, first + n++);
    assert_true(n > 1);
    while (dev_ticket_value(r.mem, TX_SLOT_IMAGE) != first)
        assert_ok(sh_loop_once(r.loop, 1000000, NULL));
    assert_int_equal(r.arrived, 0);
    assert_ok(tx_load_rest(r.tx, &r.im, on_arrived, &r, NULL));
    wait_for(&r, &r.arrived);
    assert_int_equal(dev_ticket_value(r.mem, TX_SLOT_IMAGE), first + n - 1);
    rig_close(&r);
    rig_open(&r, 0);
    lab_set_mode(r.tx, LAB_PER_LAYER);
    assert_ok(tx_load_begin(r.tx, &r.im, &(struct tx_place){0}, r.ns, NULL));
    r.im.off = dev_mem_bytes(r.mem); /* outside of the arena */
    assert_true(tx_load_rest(r.tx, &r.im, on_arrived, &r, NULL) != SH_OK);
    assert_false(tx_image_busy(&r.im));
    tx_image_force(r.tx, &r.im);
    assert_int_equal(dev_ticket_value(r.mem, TX_SLOT_IMAGE), r.im.value);
    rig_close(&r);
}

/* Nobody waits for the whole of what nobody has asked for yet; who asks does. */
static void groups_that_are_sent_one_by_one_do_not_hide_the_rest(void **state)
{
    struct rig r;
    uint32_t first, n = 0;

    (void)state;
    rig_open(&r, 0);
    lab_set_mode(r.tx, LAB_PER_LAYER);
    first = r.im.value + 1;
    assert_ok(tx_load_begin(r.tx, &r.im, &(struct tx_place){0}, r.ns, NULL));
    for (bool is_all = false; !is_all; is_all = !tx_load_waits(&r.im)) {
        int done = 0;

        assert_ok(n ? tx_load_next(r.tx, &r.im, NULL) : SH_OK);
        assert_ok(tx_load_mark(r.tx, &r.im, on_flag, &done, NULL));
        assert_true(!tx_load_waits(&r.im) || r.im.expected_ns >= r.im.sent_ns + r.im.predicted_ns);
        wait_for(&r, &done);
        assert_int_equal(dev_ticket_value(r.mem, TX_SLOT_IMAGE), first + n++);
    }
    assert_int_equal(dev_ticket_value(r.mem, TX_SLOT_IMAGE), r.im.value);
    read_back(&r, 0);
    assert_memory_equal(r.host, r.back, r.im.bytes);
    rig_close(&r);
}

static void only_what_is_missing_is_copied(void **state)
{
    struct rig r;
    uint64_t resident;

    (void)state;
    rig_open(&r, 0);
    resident = r.ends[10] + 100; /* in the middle of a layer */
    assert_ok(load(&r, &(struct tx_place){0}));
    wait_for(&r, &r.arrived);
    memset(r.host, 0xEE, (size_t)resident); /* must not travel again */
    r.arrived = 0;
    assert_ok(load(&r, &(struct tx_place){.resident = resident}));
    assert_int_equal(r.im.groups[0].ticket_slot, TX_NO_TICKET); /* the resident head */
    wait_for(&r, &r.arrived);
    read_back(&r, 0);
    for (uint64_t i = 0; i < resident; i++)
        assert_int_equal(r.back[i], (unsigned char)(i * 31 >> 3));
    assert_memory_equal(r.host + resident, r.back + resident, r.im.bytes - resident);
    rig_close(&r);
}

/* A run waits for no table, and none is in a group with what it waits for; who has them sent gets
 * them behind all others, layer by layer. */
static void tables_come_last_or_not_at_all(void **state)
{
    const uint32_t n = 3, needed = N_LAYERS - n;
    uint32_t of_tables = 0;
    struct rig r;

    (void)state;
    rig_open(&r, 0);
    r.im.n_tables = n;
    assert_int_equal(tx_needed_bytes(&r.im), r.ends[needed - 1]);
    assert_true(tx_keep_bytes(r.tx, &r.im, r.ns) <= r.ends[needed - 1]);
    memset(r.host + r.ends[needed - 1], 0xEE, r.im.bytes - r.ends[needed - 1]);
    assert_ok(load(&r, &(struct tx_place){.off = 4096}));
    assert_int_equal(r.im.groups[r.im.n_groups - 1].end_layer, needed);
    assert_int_equal(r.im.copied_bytes, r.ends[needed - 1]);
    wait_for(&r, &r.arrived);
    assert_false(tx_image_busy(&r.im));
    read_back(&r, 4096);
    assert_memory_equal(r.host, r.back, r.ends[needed - 1]);
    for (uint64_t i = r.ends[needed - 1]; i < r.im.bytes; i++)
        assert_int_equal(r.back[i], 0);

    r.arrived = 0; /* the rest, later */
    assert_ok(load(
        &r, &(struct tx_place){.off = 4096, .resident = r.ends[needed - 1], .with_tables = true}));
    for (uint32_t i = 0; i < r.im.n_groups; i++) {
        const struct msg_group *g = &r.im.groups[i];

        if (g->end_layer <= needed)
            assert_int_equal(g->ticket_slot, TX_NO_TICKET);
        else
            assert_int_equal(g->end_layer, needed + ++of_tables);
    }
    assert_int_equal(of_tables, n);
    wait_for(&r, &r.arrived);
    read_back(&r, 4096);
    assert_memory_equal(r.host, r.back, r.im.bytes);
    rig_close(&r);
}

/* Whole layers go to the end of the range, where they would lie if all of them did. */
static void packed_layers_are_sent_whole_to_the_end_of_the_range(void **state)
{
    const size_t off = 8192, shift = 65536;
    uint64_t device_ends[N_LAYERS], missing;
    struct rig r;

    (void)state;
    rig_open(&r, 0);
    for (uint32_t i = 0; i < N_LAYERS; i++)
        device_ends[i] = 2 * r.ends[i];
    assert_int_equal(tx_link_bytes(&r.im, r.ends[10] + 100), r.ends[10] + 100);
    r.im.device_ends = device_ends;
    r.im.shift = shift;
    r.im.unpack_ns_per_byte = 0.001;
    assert_int_equal(tx_link_bytes(&r.im, 0), r.ends[0]); /* it has no bytes */
    assert_int_equal(tx_link_bytes(&r.im, device_ends[10]), r.ends[10]);
    assert_int_equal(tx_link_bytes(&r.im, device_ends[11] - 1), r.ends[10]);
    assert_int_equal(tx_link_bytes(&r.im, UINT64_MAX), r.im.bytes);
    assert_true(tx_keep_bytes(r.tx, &r.im, r.ns) <= device_ends[N_LAYERS - 1]);
    for (uint32_t i = 0; i < N_LAYERS; i++) /* a head ends with a layer */
        if (tx_keep_bytes(r.tx, &r.im, r.ns) <= device_ends[i]) {
            assert_int_equal(tx_keep_bytes(r.tx, &r.im, r.ns), device_ends[i]);
            break;
        }
    assert_ok(load(&r, &(struct tx_place){.off = off, .resident = device_ends[11] - 1}));
    missing = r.im.bytes - r.ends[10];
    assert_int_equal(r.im.copied_bytes, missing);
    wait_for(&r, &r.arrived);
    read_back(&r, off + shift);
    for (uint64_t i = 0; i < r.ends[10]; i++)
        assert_int_equal(r.back[i], 0);
    assert_memory_equal(r.host + r.ends[10], r.back + r.ends[10], missing);
    rig_close(&r);
}

/* What is unpacked behind its copy is a part of what a layer takes. */
static void unpacking_delays_the_end(void **state)
{
    uint64_t device_ends[N_LAYERS];
    struct rig r;
    double without;

    (void)state;
    rig_open(&r, 0);
    without = tx_tail_ns(r.tx, &r.im, r.ns);
    for (uint32_t i = 0; i < N_LAYERS; i++)
        device_ends[i] = r.ends[i];
    r.im.device_ends = device_ends;
    r.im.unpack_ns_per_byte = 1e9 / (double)r.im.bytes; /* a second in all */
    assert_true(tx_tail_ns(r.tx, &r.im, r.ns) > without + 9e8);
    rig_close(&r);
}

/* It comes from a disk: what is there travels at once, and no byte that is not. */
static void copies_follow_what_comes_into_host_memory(void **state)
{
    struct rig r;
    unsigned char *disk;
    uint32_t value = 0;

    (void)state;
    rig_open(&r, 0);
    lab_set_mode(r.tx, LAB_PER_LAYER);
    disk = malloc((size_t)r.im.bytes);
    assert_non_null(disk);
    memcpy(disk, r.host, (size_t)r.im.bytes);
    memset(r.host, 0xEE, (size_t)r.im.bytes);
    r.im.lacks = r.im.bytes;
    r.im.lacks_ns_per_byte = 1;
    assert_ok(load(&r, &(struct tx_place){0}));
    for (uint64_t at = 0, n; at < r.im.bytes; at += n) {
        n = r.im.bytes - at < 100000 ? r.im.bytes - at : 100000;
        assert_true(tx_load_waits(&r.im));
        assert_int_equal(r.arrived, 0);
        memcpy(r.host + at, disk + at, (size_t)n);
        r.im.lacks -= n;
        assert_ok(tx_load_rest(r.tx, &r.im, on_arrived, &r, NULL));
        for (uint32_t i = 0; i < r.im.n_groups; i++)
            if (r.im.layer_ends[r.im.groups[i].end_layer - 1] <= at + n &&
                r.im.groups[i].ticket_slot == TX_SLOT_IMAGE)
                value = r.im.groups[i].ticket_value;
        while (dev_ticket_value(r.mem, TX_SLOT_IMAGE) != value)
            assert_ok(sh_loop_once(r.loop, 1000000, NULL));
    }
    assert_false(tx_load_waits(&r.im));
    wait_for(&r, &r.arrived);
    read_back(&r, 0);
    assert_memory_equal(disk, r.back, r.im.bytes);
    free(disk);
    rig_close(&r);
}

static void forcing_an_image_frees_its_waiters_and_nobody_elses(void **state)
{
    struct rig r;
    uint32_t other;

    (void)state;
    rig_open(&r, 0.02); /* 0.7 MB: 35 ms */
    other = dev_ticket_value(r.mem, TX_SLOT_IMAGE + 1);
    assert_ok(load(&r, &(struct tx_place){0}));
    tx_image_force(r.tx, &r.im);
    assert_int_equal(dev_ticket_value(r.mem, TX_SLOT_IMAGE), r.im.value);
    assert_int_equal(dev_ticket_value(r.mem, TX_SLOT_IMAGE + 1), other);
    wait_for(&r, &r.arrived); /* the copies end all the same */
    assert_int_equal(dev_ticket_value(r.mem, TX_SLOT_IMAGE),
                     r.im.value); /* and take nothing back */
    rig_close(&r);
}

static void a_forgotten_mark_calls_nobody(void **state)
{
    struct rig r;
    int gone = 0, kept = 0;

    (void)state;
    rig_open(&r, 0);
    assert_ok(tx_mark(r.tx, TX_LANE_IN, on_flag, &gone, NULL));
    assert_ok(tx_mark(r.tx, TX_LANE_IN, on_flag, &kept, NULL));
    tx_forget(r.tx, &gone);
    wait_for(&r, &kept);
    assert_int_equal(gone, 0);
    assert_false(tx_is_busy(r.tx));
    rig_close(&r);
}

static unsigned n_rehearsals;

int __wrap_dev_mem_rehearse(struct dev_mem *m, struct sh_err *err);
int __wrap_dev_mem_rehearse(struct dev_mem *m, struct sh_err *err)
{
    (void)m, (void)err;
    n_rehearsals++;
    return SH_OK;
}

/* It would be one more copy for what is on the way to wait for. */
static void the_way_is_rehearsed_only_while_nothing_is_on_it(void **state)
{
    struct rig r;
    int done = 0;

    (void)state;
    rig_open(&r, 0.1); /* 400 KB take 4 ms */
    tx_rehearse(r.tx);
    assert_int_equal(n_rehearsals, 1);
    assert_ok(load(&r, &(struct tx_place){0}));
    tx_rehearse(r.tx);
    assert_int_equal(n_rehearsals, 1);
    wait_for(&r, &r.arrived);
    assert_ok(tx_mark(r.tx, TX_LANE_IN, on_flag, &done, NULL));
    tx_rehearse(r.tx);
    assert_int_equal(n_rehearsals, 1);
    wait_for(&r, &done);
    sh_loop_once(r.loop, 0, NULL);
    while (tx_backlog_ns(r.tx) > 0)
        ;
    tx_rehearse(r.tx);
    assert_int_equal(n_rehearsals, 2);
    rig_close(&r);
}

static void the_head_to_keep_hides_the_copy_of_the_rest(void **state)
{
    struct rig r;
    double slow[N_LAYERS], none[N_LAYERS] = {0};
    uint64_t all, some;

    (void)state;
    rig_open(&r, 0.5); /* 2 ns a byte */
    for (uint32_t i = 0; i < N_LAYERS; i++)
        slow[i] = 1e9;
    all = tx_keep_bytes(r.tx, &r.im, none); /* nothing computes: nothing hides */
    assert_int_equal(all, r.im.bytes);
    some = tx_keep_bytes(r.tx, &r.im, slow); /* everything behind the first layer hides */
    assert_int_equal(some, r.ends[0]);
    rig_close(&r);
}

/* Sends the image so often; how the rate was learnt meanwhile, by what was measured at first. */
static double learnt(int times, double gb_per_s)
{
    struct rig r;
    double first, by;

    rig_open(&r, gb_per_s);
    first = tx_beta_ns(r.tx);
    for (int i = 1; i <= times; i++) {
        assert_ok(load(&r, &(struct tx_place){0}));
        while (r.arrived < i)
            assert_ok(sh_loop_once(r.loop, 1000000, NULL));
    }
    by = tx_beta_ns(r.tx) / first;
    rig_close(&r);
    return by;
}

/* What was measured at the start, perhaps beside other work, is not believed for good. */
static void the_rate_of_the_link_follows_the_images_that_are_sent(void **state)
{
    (void)state;
    measured_times = 8;
    assert_true(learnt(20, 0.5) < 0.5);
    measured_times = 1;
}

static void link_becomes(struct rig *r, double beta_ns)
{
    struct links *l = (struct links *)(uintptr_t)tx_links(r->tx);

    for (int i = 0; i < 100; i++)
        links_learn(l, 0, beta_ns * (1 << 20), 1 << 20);
    assert_true(fabs(tx_beta_ns(r->tx) / beta_ns - 1) < 0.001);
}

/* Of the link for which the image's groups were found when it was sent. */
static double planned_beta_ns(struct rig *r, uint64_t resident)
{
    r->arrived = 0;
    assert_ok(load(r, &(struct tx_place){.resident = resident}));
    wait_for(r, &r->arrived);
    return r->im.plan.ways[0].beta_ns;
}

static void groups_are_found_anew_when_the_load_is_another(void **state)
{
    struct rig r;
    double first, now;

    (void)state;
    rig_open(&r, 1);
    first = planned_beta_ns(&r, 0);
    link_becomes(&r, 1.02 * first);
    assert_true(planned_beta_ns(&r, 0) == first);
    link_becomes(&r, 1.3 * first);
    now = tx_beta_ns(r.tx);
    assert_true(planned_beta_ns(&r, 0) == now);
    link_becomes(&r, 1.01 * now);
    assert_true(planned_beta_ns(&r, 0) == now);
    assert_true(planned_beta_ns(&r, r.ends[3]) != now);
    assert_int_equal(r.im.plan.resident, r.ends[3]);
    now = r.im.plan.ways[0].beta_ns;
    link_becomes(&r, 1.02 * now);
    assert_true(planned_beta_ns(&r, r.ends[3]) == now);
    tx_image_replan(&r.im); /* the times are others */
    assert_true(planned_beta_ns(&r, r.ends[3]) != now);
    r.im.lacks = 1; /* then they are cut for the disk, too */
    r.im.lacks_ns_per_byte = 1;
    assert_ok(tx_load_begin(r.tx, &r.im, &(struct tx_place){0}, r.ns, NULL));
    assert_int_equal(r.im.plan.n_groups, 0);
    r.im.lacks = 0;
    r.arrived = 0;
    assert_ok(tx_load_rest(r.tx, &r.im, on_arrived, &r, NULL));
    wait_for(&r, &r.arrived);
    rig_close(&r);
}

static void no_single_copy_says_that_the_link_has_no_end_of_bandwidth(void **state)
{
    double by;

    (void)state;
    measured_times = 1e6;
    by = learnt(1, 0);
    assert_true(by > 0.9 && by < 1); /* a quarter of what was known, at least, by an eighth */
    measured_times = 1;
    measured_more_ns = 1e12; /* all of its time, and more, is the way there */
    assert_true(learnt(5, 0.5) == 1);
    measured_more_ns = 0;
}

/* Two for each version that may be loaded: its image and a packed copy. */
static void each_image_has_a_ticket(void **state)
{
    struct sh_err err = {0};
    struct rig r;

    (void)state;
    rig_open(&r, 0);
    assert_ok_err(tx_ticket(r.tx, TX_LANE_IN, TX_SLOT_IMAGE + 2 * 16384 - 1, 1, &err), &err);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_image_has_a_ticket),
        cmocka_unit_test(every_mode_covers_all_layers_once),
        cmocka_unit_test(the_modes_for_comparison_are_what_their_names_say),
        cmocka_unit_test(a_small_first_layer_takes_in_what_follows),
        cmocka_unit_test(an_unknown_mode_names_the_ones_there_are),
        cmocka_unit_test(an_image_arrives_whole_and_its_tickets_with_it),
        cmocka_unit_test(all_tickets_are_known_before_the_rest_is_sent),
        cmocka_unit_test(groups_that_are_sent_one_by_one_do_not_hide_the_rest),
        cmocka_unit_test(only_what_is_missing_is_copied),
        cmocka_unit_test(tables_come_last_or_not_at_all),
        cmocka_unit_test(packed_layers_are_sent_whole_to_the_end_of_the_range),
        cmocka_unit_test(unpacking_delays_the_end),
        cmocka_unit_test(copies_follow_what_comes_into_host_memory),
        cmocka_unit_test(forcing_an_image_frees_its_waiters_and_nobody_elses),
        cmocka_unit_test(a_forgotten_mark_calls_nobody),
        cmocka_unit_test(the_way_is_rehearsed_only_while_nothing_is_on_it),
        cmocka_unit_test(the_rate_of_the_link_follows_the_images_that_are_sent),
        cmocka_unit_test(groups_are_found_anew_when_the_load_is_another),
        cmocka_unit_test(no_single_copy_says_that_the_link_has_no_end_of_bandwidth),
        cmocka_unit_test(the_head_to_keep_hides_the_copy_of_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
