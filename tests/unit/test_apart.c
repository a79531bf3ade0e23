/* test_apart.c - packed copies that stay on the device.
 *
 * Without it: a run could unpack from where others have written meanwhile, a copy that never came
 * could count as one, memory could be held for a model that has gone, or be taken for copies where
 * all images have room. */
/* uses: executor/models/apart.o executor/models/packed.o executor/models/model_life.o executor/memory/space.o executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o executor/memory/transmit.o executor/memory/links.o runtime/group.o libdevice.a */
/* link: -ldl */
#include "common/mem.h"
#include "executor/models/apart.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/models/tables.h"
#include "executor/models/tier.h"
#include "runtime/pack/pack.h"
#include "tests/unit/space_rig.h"

#define N 2u
#define BLOCKS 16u

struct store {
    struct store_env env;
};

static struct space_rig rig;
static struct store store;
static struct model m;
static unsigned n_lost; /* versions that unload themselves */
static uint64_t ends[N], links[N];

const struct store_env *store__env(const struct store *s)
{
    return &s->env;
}

struct model *store_next(struct store *s, const struct model *after)
{
    (void)s;
    return after ? NULL : &m;
}

int model_check_fits(struct model *of, uint64_t ws, struct sh_err *err)
{
    (void)of, (void)ws;
    return SH_FAIL(err, SH_E_BUG, "no image of this test is made anew");
}

void tables__settle(struct model *of)
{
    (void)of;
}

uint64_t tables__at(const struct model *of)
{
    return of->image_bytes; /* it has none */
}

uint64_t model_resident_bytes(const struct model *of)
{
    return SH_MIN((uint64_t)residency_held(space_residency(rig.s), of->res) * DEV_BLOCK,
                  of->image_bytes);
}

void model_unkeep(struct model *of, int64_t now_ns)
{
    (void)of, (void)now_ns;
}

void tier_lose(struct model *of, const struct sh_err *why)
{
    (void)of, (void)why;
    n_lost++;
}

static struct residency *device_images(void)
{
    return space_residency(rig.s);
}

static int begin(void **state)
{
    struct residency_image im = {.n_blocks = 8, .keep_blocks = 8, .tag = 1};

    (void)state;
    n_lost = 0;
    space_rig_open(&rig, BLOCKS);
    store.env = (struct store_env){
        .executor = "e", .keep_packed_percent = 0, .tx = rig.tx, .mem = rig.mem, .space = rig.s};
    for (uint32_t i = 0; i < N; i++) {
        ends[i] = 4 * (i + 1) * DEV_BLOCK;
        links[i] = 2 * (i + 1) * DEV_BLOCK;
    }
    m = (struct model){.store = &store,
                       .handle = 7,
                       .tag = 1,
                       .n_layers = N,
                       .layer_ends = ends,
                       .image_bytes = ends[N - 1],
                       .has_image = true};
    assert_ok(packed__read(&m, (struct sh_blob){links, sizeof(links)}, NULL));
    m.tx = packed__tx(&m);
    m.tx.unpack_ns_per_byte = tx_beta_ns(rig.tx) / 10;
    assert_ok(residency_add(device_images(), &im, &m.res, NULL));
    return 0;
}

static int end(void **state)
{
    (void)state;
    apart__lose(&m);
    free(m.link_ends);
    space_rig_close(&rig);
    return 0;
}

static void place_full(void)
{
    struct residency_place p;

    assert_ok(residency_place(device_images(), m.res, true, &p, NULL));
}

/* As a cold run does it. */
static void bring(void)
{
    place_full();
    assert_true(apart__place(&m, true));
    packed__send(&m);
}

static bool is_taken(uint32_t blocks)
{
    return arena_count(residency_arena(device_images()), ARENA_IMAGE) == blocks;
}

static void take_all_else(struct arena_range *out)
{
    const uint32_t n = arena_count(residency_arena(device_images()), ARENA_FREE);
    const struct residency_need need = {
        .n_blocks = n + 1, .tag = 2, .kind = ARENA_WORK, .spare = RESIDENCY_NO_IMAGE};
    uint32_t evicted;

    assert_ok(residency_alloc(device_images(), &need, out, &evicted, NULL));
}

static void it_is_wanted_where_images_have_no_room(void **state)
{
    (void)state;
    assert_true(apart__is_wanted(&m));
    store.env.keep_packed_percent = 50; /* 8 of 16 blocks */
    assert_false(apart__is_wanted(&m));
    store.env.keep_packed_percent = 49;
    assert_true(apart__is_wanted(&m));
    m.tx.unpack_ns_per_byte = 0.26 * tx_beta_ns(rig.tx);
    assert_false(apart__is_wanted(&m)); /* of two bytes for each that is copied: 0.52 of its time */
    m.tx.unpack_ns_per_byte = 0.24 * tx_beta_ns(rig.tx);
    assert_true(apart__is_wanted(&m));
    store.env.keep_packed_percent = APART_NEVER;
    assert_false(apart__is_wanted(&m));
    store.env.keep_packed_percent = 0;
    m.handle = -7; /* of an evaluation */
    assert_false(apart__is_wanted(&m));
    m.handle = 7;
    m.is_pinned = true; /* it stays where it is unpacked */
    assert_false(apart__is_wanted(&m));
    m.is_pinned = false;
    assert_true(apart__is_wanted(&m));
    bring();
    assert_false(apart__is_wanted(&m));
}

static void it_comes_and_is_pinned_until_it_is_there(void **state)
{
    struct msg_wk_run r = {0};

    (void)state;
    bring();
    assert_true(m.apart.at == APART_COMING && !model_is_apart(&m));
    assert_int_equal(residency_pins(device_images(), m.apart.res), 1);
    assert_true(model_tell_packed(&m, &r));
    assert_int_equal(r.packed_at, m.apart.off);
    assert_int_equal(m.tx.shift, 0);
    apart__arrived(&m, false);
    assert_true(model_is_apart(&m));
    assert_int_equal(residency_pins(device_images(), m.apart.res), 0);
    assert_int_equal(store_apart_bytes(&store), links[N - 1]);
    apart__arrived(&m, true); /* of another copy */
    assert_true(model_is_apart(&m));
}

static void what_did_not_come_is_none(void **state)
{
    (void)state;
    bring();
    apart__arrived(&m, true);
    assert_true(m.apart.at == APART_NONE && !m.apart.has_res && is_taken(8));
    assert_true(apart__has_lost_source(&m));
    assert_int_equal(packed__usable(&m, m.image_bytes), 0);
    assert_ok(packed__settle(&m, NULL));
    assert_false(apart__has_lost_source(&m));
    assert_true(is_taken(0));
}

static void a_worker_that_dies_leaves_it_as_it_was(void **state)
{
    struct msg_wk_run r = {0};

    (void)state;
    bring();
    apart__arrived(&m, false);
    model_on_unpacked(&m, &(struct msg_wk_run_done){.unpacked = 1, .packed = MSG_PACKED_KNOWN},
                      true);
    model_spoil(&m);
    assert_false(model_is_spoiled(&m));
    assert_ok(packed__settle(&m, NULL)); /* nothing has to be copied anew */
    assert_true(model_tell_packed(&m, &r));
    assert_int_equal(r.packed_from, 1);
    model_on_unpacked(&m, &(struct msg_wk_run_done){.unpacked = N, .packed = MSG_PACKED_KNOWN},
                      true);
    assert_true(!m.apart.is_source && model_is_apart(&m));
    assert_int_equal(model_unpack_ns(&m), 0);
}

static void what_is_unpacked_leaves_first_and_is_unpacked_again(void **state)
{
    struct arena_range all;

    (void)state;
    bring();
    apart__arrived(&m, false);
    model_on_unpacked(&m, &(struct msg_wk_run_done){.unpacked = N, .packed = MSG_PACKED_KNOWN},
                      true);
    residency_truncate(device_images(), m.res, 7);
    assert_int_equal(residency_held(device_images(), m.res), 0); /* its head is of no use either */
    assert_true(model_is_apart(&m) && model_unpack_ns(&m) > 0);
    take_all_else(&all);
    apart__look(&m);
    assert_true(m.apart.at == APART_NONE && !m.apart.has_res && is_taken(0));
    assert_int_equal(model_unpack_ns(&m), 0);
}

/* What host memory has may be sound. */
static void what_was_damaged_on_the_device_is_copied_again(void **state)
{
    const struct msg_wk_run_done sound = {.unpacked = N, .packed = MSG_PACKED_KNOWN},
                                 damaged = {.packed = MSG_PACKED_DAMAGED};

    (void)state;
    bring();
    apart__arrived(&m, false);
    model_on_unpacked(&m, &sound, true);
    residency_truncate(device_images(), m.res, 0);
    place_full();
    packed__take_apart(&m);
    assert_true(model_hold_apart(&m));
    model_on_unpacked(&m, &damaged, true);
    model_let_apart_go(&m);
    assert_int_equal(n_lost, 0);
    assert_false(model_is_apart(&m) || m.apart.has_res);
    assert_ok(packed__settle(&m, NULL));
    bring();
    apart__arrived(&m, false);
    model_on_unpacked(&m, &damaged, true); /* as it came */
    assert_int_equal(n_lost, 1);
}

static void it_makes_room_for_its_own_image(void **state)
{
    (void)state;
    bring();
    assert_false(model_yield_apart(&m)); /* it comes */
    apart__arrived(&m, false);
    assert_false(model_yield_apart(&m)); /* the image is there */
    residency_truncate(device_images(), m.res, 0);
    assert_true(model_yield_apart(&m));
    assert_true(m.apart.at == APART_NONE && !m.apart.has_res && is_taken(0));
    assert_false(model_yield_apart(&m));
}

static void nobody_takes_it_from_who_unpacks(void **state)
{
    (void)state;
    assert_false(model_hold_apart(&m));
    bring();
    apart__arrived(&m, false);
    assert_true(model_hold_apart(&m));
    residency_forget(device_images(), m.apart.res, 0);
    assert_true(model_is_apart(&m));
    apart__lose(&m); /* the version goes */
    assert_true(m.apart.has_res && is_taken(12));
    assert_false(apart__is_wanted(&m));
    model_let_apart_go(&m);
    assert_true(!m.apart.has_res && is_taken(8));
    model_let_apart_go(&m);
}

/* Weights that come ahead of a run: there is room, but it is not theirs. */
static void a_copy_that_may_wait_leaves_what_is_kept_free_for_runs(void **state)
{
    (void)state;
    space_idle(rig.s, 0, 50);
    place_full();
    assert_false(apart__place(&m, false)); /* 8 blocks are free */
    assert_true(!m.apart.has_res && is_taken(8));
    space_idle(rig.s, 0, 25);
    assert_true(apart__place(&m, false));
    assert_true(is_taken(12));
}

static void a_pinned_image_that_is_unpacked_needs_none(void **state)
{
    (void)state;
    bring();
    m.is_pinned = true;
    apart__second(&m);
    assert_int_equal(m.apart.at, APART_COMING);
    apart__arrived(&m, false);
    assert_true(model_hold_apart(&m));
    apart__second(&m);
    model_on_unpacked(&m, &(struct msg_wk_run_done){.unpacked = 1, .packed = MSG_PACKED_KNOWN},
                      true);
    apart__second(&m);
    model_let_apart_go(&m);
    apart__second(&m);
    assert_true(model_is_apart(&m)); /* a part of it is unpacked from there */
    residency_truncate(device_images(), m.res, 0);
    apart__second(&m);
    assert_true(model_is_apart(&m)); /* the image is nowhere else */
    place_full();
    packed__take_apart(&m);
    apart__second(&m);
    assert_true(model_is_apart(&m));
    model_on_unpacked(&m, &(struct msg_wk_run_done){.unpacked = N, .packed = MSG_PACKED_KNOWN},
                      true);
    m.is_pinned = false;
    apart__second(&m);
    assert_true(model_is_apart(&m));
    m.is_pinned = true;
    assert_true(residency_held(device_images(), m.res) == 8);
    apart__second(&m);
    assert_true(m.apart.at == APART_NONE && !m.apart.has_res && is_taken(8));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        T(it_is_wanted_where_images_have_no_room),
        T(it_comes_and_is_pinned_until_it_is_there),
        T(what_did_not_come_is_none),
        T(a_worker_that_dies_leaves_it_as_it_was),
        T(what_is_unpacked_leaves_first_and_is_unpacked_again),
        T(what_was_damaged_on_the_device_is_copied_again),
        T(it_makes_room_for_its_own_image),
        T(nobody_takes_it_from_who_unpacks),
        T(a_copy_that_may_wait_leaves_what_is_kept_free_for_runs),
        T(a_pinned_image_that_is_unpacked_needs_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
