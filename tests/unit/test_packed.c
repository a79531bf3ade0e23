/* test_packed.c - what of an image on the device is still packed, and where packed layers lie.
 *
 * Without it: a run could compute with layers that nobody has unpacked, or with packed ones over
 * which others were written. */
/* uses: executor/models/packed.o executor/memory/transmit.o executor/memory/links.o executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o runtime/group.o libdevice.a */
/* link: -ldl */
#include "common/mem.h"
#include "executor/models/apart.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/models/tables.h"
#include "executor/models/tier.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"
#include "tests/unit/sh_test.h"

#define N 4u
#define MIB ((uint64_t)1 << 20)
#define POOL (64 * MIB)

struct store {
    struct store_env env;
};
struct space {
    struct residency *res;
};

static struct {
    struct store store;
    struct space space;
    struct dev_mem *mem;
    struct model m;
    uint64_t ends[N], links[N];
    uint32_t n_lost, n_unkept;
} T;

const struct store_env *store__env(const struct store *s)
{
    return &s->env;
}

struct residency *space_residency(struct space *s)
{
    return s->res;
}

uint64_t tables__at(const struct model *m)
{
    return m->image_bytes; /* it has none */
}

void tables__settle(struct model *m)
{
    assert_int_equal(residency_held(T.space.res, m->res), 0);
}

void model_unkeep(struct model *m, int64_t now_ns)
{
    (void)now_ns;
    T.n_unkept++;
    if (m->is_kept)
        residency_unpin(T.space.res, m->res);
    m->is_kept = false;
}

bool model_is_apart(const struct model *m)
{
    (void)m; /* test_apart.c */
    return false;
}

void apart__lose(struct model *m)
{
    (void)m;
}

bool apart__has_lost_source(const struct model *m)
{
    (void)m;
    return false;
}

uint64_t model_resident_bytes(const struct model *m)
{
    (void)m;
    return 0;
}

int model_check_fits(struct model *m, uint64_t ws, struct sh_err *err)
{
    m->need_bytes = m->room_bytes + ws > POOL ? m->room_bytes + ws : 0;
    return m->need_bytes ? SH_FAIL(err, SH_E_TOOBIG, "too big") : SH_OK;
}

void tier_lose(struct model *m, const struct sh_err *why)
{
    assert_ptr_equal(m, &T.m);
    assert_non_null(strstr(why->msg, "damaged"));
    T.n_lost++;
}

/* Of a model whose layers end at `ends`, packed at `links`, in MiB and KiB. */
static void take(const uint64_t ends[N], const uint64_t links[N])
{
    struct residency_image im = {.tag = 1};
    struct sh_err err = {0};

    for (uint32_t i = 0; i < N; i++) {
        T.ends[i] = ends[i] * MIB;
        T.links[i] = links[i] * MIB;
    }
    free(T.m.link_ends); /* of the one before it */
    T.m = (struct model){.store = &T.store,
                         .handle = 7,
                         .n_layers = N,
                         .layer_ends = T.ends,
                         .image_bytes = T.ends[N - 1],
                         .has_image = true};
    assert_ok_err(packed__read(&T.m, (struct sh_blob){T.links, sizeof(T.links)}, &err), &err);
    T.m.tx = packed__tx(&T.m);
    im.n_blocks = (uint32_t)((T.m.room_bytes + DEV_BLOCK - 1) / DEV_BLOCK);
    assert_ok(residency_add(T.space.res, &im, &T.m.res, NULL));
}

static void place(uint64_t resident)
{
    struct residency_place p;

    assert_ok(residency_place(T.space.res, T.m.res, true, &p, NULL));
    T.m.at = (struct tx_place){.off = (size_t)p.range.first * DEV_BLOCK, .resident = resident};
    packed__send(&T.m);
}

static void tell_unpacked(uint32_t unpacked, enum msg_packed packed)
{
    const struct msg_wk_run_done d = {.unpacked = unpacked, .packed = packed};

    model_on_unpacked(&T.m, &d, true);
}

static int setup(void **state)
{
    const struct dev_mem_conf c = {.pool_bytes = POOL, .n_lanes = 2};
    static struct dev_lib *lib;
    struct residency_conf conf = {0};

    (void)state;
    memset(&T, 0, sizeof(T));
    if ((!lib && dev_lib_open("cpu", &lib, NULL)) || dev_mem_open(lib, &c, &T.mem, NULL) ||
        residency_new(32, &conf, &T.space.res, NULL))
        return -1;
    T.store.env = (struct store_env){.executor = "e", .space = &T.space, .mem = T.mem};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(T.m.link_ends);
    residency_free(T.space.res);
    dev_mem_close(T.mem);
    return 0;
}

static const uint64_t ENDS[N] = {4, 12, 20, 24}, LINKS[N] = {2, 6, 10, 12};

/* No layer reaches what is packed of itself or of those behind it. */
static void no_layer_is_unpacked_over_what_is_still_packed(void **state)
{
    static const uint64_t CASES[][2][N] = {
        {{4, 12, 20, 24}, {2, 6, 10, 12}},   {{1, 2, 3, 24}, {1, 2, 3, 13}},
        {{20, 21, 22, 23}, {9, 10, 11, 12}}, {{4, 8, 12, 16}, {5, 10, 15, 20}},
        {{0, 4, 4, 8}, {0, 3, 3, 6}},
    };

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        take(CASES[c][0], CASES[c][1]);
        for (uint32_t i = 0; i < N; i++)
            assert_true(T.ends[i] <= T.m.tx.shift + layer_begin(T.links, i));
        assert_true(T.m.tx.shift + T.links[N - 1] <= T.m.room_bytes);
        assert_true(T.m.image_bytes <= T.m.room_bytes);
        assert_int_equal(T.m.tx.shift % PACK_ALIGN, 0);
        assert_int_equal(T.m.link_bytes, T.links[N - 1]);
        /* And the place is not larger than it has to be. */
        assert_true(c >= 3 || T.m.room_bytes <= T.m.image_bytes + T.links[N - 1]);
    }
}

/* Of all layers, by the rule that none of a launch is written where a later one of it is packed. */
static uint32_t count_launches(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < N; n++) {
        const uint64_t packed = T.m.tx.shift + layer_begin(T.links, i);

        for (i++; i < N && T.ends[i] <= packed;)
            i++;
    }
    return n;
}

static void a_longer_range_is_unpacked_in_fewer_launches(void **state)
{
    static const uint64_t ENDS_OF[N] = {8, 16, 24, 32}, LINKS_OF[N] = {6, 12, 18, 24};
    uint64_t least;

    (void)state;
    take(ENDS_OF, LINKS_OF);
    least = T.m.room_bytes;
    assert_int_equal(count_launches(), N);
    packed__take_spare(&T.m, 0);
    T.m.tx = packed__tx(&T.m);
    assert_int_equal(T.m.room_bytes, least + T.m.image_bytes / 8);
    assert_true(T.m.tx.shift + T.links[N - 1] <= T.m.room_bytes);
    assert_true(count_launches() < N);
    packed__take_spare(&T.m, POOL - least); /* beside such a workspace it has no room */
    assert_int_equal(T.m.room_bytes, least);
    assert_int_equal(T.m.need_bytes, 0);
    packed__take_spare(&T.m, POOL); /* not even without it, as whoever asks knows */
    assert_int_equal(T.m.room_bytes, least);
}

static void packed_layers_begin_behind_the_image_at_the_latest(void **state)
{
    static const uint64_t ONE[N] = {32, 32, 32, 32}, ITS[N] = {24, 24, 24, 24};
    static const uint64_t LAST[N] = {2, 4, 6, 32}, THEIRS[N] = {1, 2, 3, 24};

    (void)state;
    take(ONE, ITS);
    packed__take_spare(&T.m, 0);
    assert_int_equal(packed__tx(&T.m).shift, T.m.image_bytes);
    take(LAST, THEIRS);
    packed__take_spare(&T.m, 0);
    assert_int_equal(T.m.spare_bytes, 3 * MIB);
    assert_int_equal(packed__tx(&T.m).shift, T.m.image_bytes);
}

static uint64_t range_blocks(void)
{
    return residency_blocks(T.space.res, T.m.res);
}

static void what_is_needed_for_more_is_given_up_once_nobody_uses_it(void **state)
{
    static const uint64_t ENDS_OF[N] = {8, 16, 24, 32}, LINKS_OF[N] = {6, 12, 18, 24};
    uint64_t least, shift;

    (void)state;
    take(ENDS_OF, LINKS_OF);
    least = T.m.room_bytes;
    shift = T.m.tx.shift;
    packed__give_spare(&T.m); /* it has none */
    assert_false(T.m.gives_spare);
    packed__take_spare(&T.m, 0);
    T.m.tx = packed__tx(&T.m);
    residency_set_range(T.space.res, T.m.res, packed__blocks(T.m.room_bytes), 0);
    assert_int_equal(packed__least_room(&T.m), least);
    assert_int_equal(range_blocks(), packed__blocks(least + 4 * MIB));
    place(0);
    residency_pin(T.space.res, T.m.res); /* by a run */
    packed__give_spare(&T.m);
    packed__tick(&T.m);
    assert_int_equal(T.m.room_bytes, least + 4 * MIB);
    residency_unpin(T.space.res, T.m.res);
    packed__tick(&T.m);
    assert_int_equal(residency_held(T.space.res, T.m.res), 0);
    assert_int_equal(range_blocks(), packed__blocks(least));
    assert_int_equal(T.m.room_bytes, least);
    assert_int_equal(T.m.tx.shift, shift);
    assert_int_equal(T.m.packed_from, N); /* nothing of it is there */
    place(0);
    packed__tick(&T.m); /* once */
    assert_int_equal(residency_held(T.space.res, T.m.res), packed__blocks(least));
    assert_ok(residency_check(T.space.res, NULL));
}

static void what_is_not_packed_has_nothing_to_unpack(void **state)
{
    struct msg_wk_run r = {0};

    (void)state;
    take(ENDS, LINKS);
    assert_ok(packed__read(&T.m, (struct sh_blob){NULL, 0}, NULL));
    T.m.tx = packed__tx(&T.m);
    assert_int_equal(T.m.room_bytes, T.m.image_bytes);
    assert_int_equal(model_link_bytes(&T.m, 4 * MIB), 20 * MIB);
    place(0);
    assert_false(model_tell_packed(&T.m, &r));
    model_spoil(&T.m);
    assert_false(model_is_spoiled(&T.m));
    assert_int_equal(packed__usable(&T.m, 12 * MIB), 12 * MIB);
}

static void a_run_unpacks_what_was_sent(void **state)
{
    struct msg_wk_run r = {0};

    (void)state;
    take(ENDS, LINKS);
    assert_false(model_tell_packed(&T.m, &r));
    place(0);
    assert_int_equal(model_link_bytes(&T.m, 0), 12 * MIB);
    assert_true(model_tell_packed(&T.m, &r));
    assert_int_equal(r.packed_from, 0);
    assert_int_equal(r.packed_at, T.m.at.off + T.m.tx.shift);
    assert_int_equal(r.link_ends.len, sizeof(T.links));
    tell_unpacked(2, MSG_PACKED_KNOWN); /* it was cancelled */
    assert_true(model_tell_packed(&T.m, &r));
    assert_int_equal(r.packed_from, 2);
    tell_unpacked(1, MSG_PACKED_KNOWN); /* that cannot be */
    assert_int_equal(T.m.packed_from, 2);
    tell_unpacked(N + 9, MSG_PACKED_KNOWN);
    assert_false(model_tell_packed(&T.m, &r));
    /* A part of a layer has to come again as a whole. */
    residency_truncate(T.space.res, T.m.res, (uint32_t)(10 * MIB / DEV_BLOCK));
    place(10 * MIB);
    assert_int_equal(T.m.packed_from, 1);
    assert_int_equal(model_link_bytes(&T.m, 10 * MIB), 10 * MIB);
}

/* So that a run of what PREPARE has brought is foreseen. */
static void who_unpacks_next_is_told_how_long(void **state)
{
    (void)state;
    take(ENDS, LINKS);
    T.m.tx.unpack_ns_per_byte = 2;
    assert_int_equal(model_unpack_ns(&T.m), 0);
    place(0);
    assert_int_equal(model_unpack_ns(&T.m), 2 * 24 * MIB);
    tell_unpacked(2, MSG_PACKED_KNOWN);
    assert_int_equal(model_unpack_ns(&T.m), 2 * 12 * MIB);
    T.m.is_broken = true;
    assert_int_equal(model_unpack_ns(&T.m), 0);
    T.m.is_broken = false;
    residency_truncate(T.space.res, T.m.res, residency_blocks(T.space.res, T.m.res) - 1);
    assert_int_equal(model_unpack_ns(&T.m), 0); /* they are copied anew */
    place(0);
    tell_unpacked(N, MSG_PACKED_KNOWN);
    assert_int_equal(model_unpack_ns(&T.m), 0);
}

static void packed_layers_are_lost_with_a_block(void **state)
{
    (void)state;
    take(ENDS, LINKS);
    place(4 * MIB);
    assert_int_equal(T.m.packed_from, 1);
    assert_int_equal(packed__usable(&T.m, 24 * MIB), 24 * MIB);
    assert_ok(packed__settle(&T.m, NULL)); /* all there: nothing to give up */
    assert_int_equal(T.m.packed_from, 1);
    residency_truncate(T.space.res, T.m.res, residency_blocks(T.space.res, T.m.res) - 1);
    assert_int_equal(packed__usable(&T.m, 24 * MIB), 4 * MIB);
    assert_ok(packed__settle(&T.m, NULL));
    assert_int_equal(T.m.packed_from, N);
    assert_int_equal(residency_held(T.space.res, T.m.res), 4 * MIB / DEV_BLOCK);
}

static void what_was_not_unpacked_is_not_its_tenants(void **state)
{
    struct residency *res = T.space.res;

    (void)state;
    take(ENDS, LINKS);
    place(0);
    residency_truncate(res, T.m.res, 3);
    assert_true(arena_seg_at(residency_arena(res), 3).tag == ARENA_FOREIGN);
    assert_ok(packed__settle(&T.m, NULL));
    place(0);
    tell_unpacked(N, MSG_PACKED_KNOWN);
    residency_truncate(res, T.m.res, 3);
    assert_int_equal(arena_seg_at(residency_arena(res), 3).tag, 1);
}

static void a_worker_that_dies_spoils_what_it_may_have_unpacked(void **state)
{
    struct sh_err err = {0};

    (void)state;
    take(ENDS, LINKS);
    place(0);
    tell_unpacked(1, MSG_PACKED_KNOWN);
    model_spoil(&T.m);
    assert_true(model_is_spoiled(&T.m));
    assert_int_equal(packed__usable(&T.m, 24 * MIB), 4 * MIB);
    tell_unpacked(N, MSG_PACKED_KNOWN); /* whoever says so */
    assert_true(model_is_spoiled(&T.m));
    T.m.is_kept = true;
    residency_pin(T.space.res, T.m.res); /* of PREPARE */
    residency_pin(T.space.res, T.m.res); /* and its copies are still on their way */
    assert_fails(packed__settle(&T.m, &err), SH_E_DEVMEM, &err, "recovered");
    assert_int_equal(T.n_unkept, 1);
    residency_unpin(T.space.res, T.m.res);
    assert_ok(packed__settle(&T.m, NULL));
    assert_false(model_is_spoiled(&T.m));
    assert_int_equal(residency_held(T.space.res, T.m.res), 4 * MIB / DEV_BLOCK);
}

static void damage_is_told_to_whoever_loads(void **state)
{
    (void)state;
    take(ENDS, LINKS);
    place(0);
    tell_unpacked(N, MSG_PACKED_DAMAGED); /* whatever the run came to */
    assert_int_equal(T.n_lost, 1);
    assert_int_equal(T.m.packed_from, 0);
    assert_true(model_is_spoiled(&T.m));
}

/* For the file that it lacks: what has been decided stays. */
static void what_is_made_again_is_packed_as_it_was(void **state)
{
    struct msg_wk_model ask = {0};
    struct sh_loop *loop;

    (void)state;
    assert_ok(sh_loop_new(&loop, NULL));
    assert_ok(tx_new(loop, T.mem, "e", &T.store.env.tx, NULL));
    take(ENDS, LINKS);
    T.m.has_image = false;
    T.store.env.packs = MSG_PACK_GAINS;
    packed__ask(&T.m, &ask);
    assert_int_equal(ask.pack, MSG_PACK_GAINS);
    T.m.has_image = true;
    packed__ask(&T.m, &ask);
    assert_int_equal(ask.pack, MSG_PACK_ALWAYS);
    assert_ok(packed__read(&T.m, (struct sh_blob){NULL, 0}, NULL));
    packed__ask(&T.m, &ask);
    assert_int_equal(ask.pack, MSG_PACK_NEVER);
    tx_free(T.store.env.tx);
    sh_loop_free(loop);
}

/* A copy that was given up left them so, or a call of the device failed: they are copied anew. */
static void what_was_not_unpacked_for_another_reason_is_no_damage(void **state)
{
    const struct msg_wk_run_done damaged = {.unpacked = N, .packed = MSG_PACKED_DAMAGED};

    (void)state;
    take(ENDS, LINKS);
    place(0);
    model_on_unpacked(&T.m, &damaged, false);
    assert_int_equal(T.n_lost, 0);
    assert_int_equal(packed__usable(&T.m, 24 * MIB), 0);
    assert_ok(packed__settle(&T.m, NULL));
    place(0);
    tell_unpacked(1, MSG_PACKED_UNSURE);
    assert_int_equal(T.n_lost, 0);
    assert_true(model_is_spoiled(&T.m));
    assert_int_equal(packed__usable(&T.m, 24 * MIB), 4 * MIB);
}

static void impossible_tables_are_refused(void **state)
{
    uint64_t bad[N] = {2 * MIB, MIB, 3 * MIB, 4 * MIB};
    struct sh_err err = {0};

    (void)state;
    take(ENDS, LINKS);
    assert_fails(packed__read(&T.m, (struct sh_blob){bad, sizeof(bad)}, &err), SH_E_PROTO, &err,
                 "before it begins");
    bad[1] = 2 * MIB + 64;
    err = (struct sh_err){0};
    assert_fails(packed__read(&T.m, (struct sh_blob){bad, sizeof(bad)}, &err), SH_E_PROTO, &err,
                 "before it begins");
    bad[1] = 3 * MIB;
    bad[3] = (uint64_t)1 << 60;
    err = (struct sh_err){0};
    assert_fails(packed__read(&T.m, (struct sh_blob){bad, sizeof(bad)}, &err), SH_E_PROTO, &err,
                 "hold");
    err = (struct sh_err){0};
    assert_fails(packed__read(&T.m, (struct sh_blob){bad, 8}, &err), SH_E_PROTO, &err, "size");
    for (int i = 0; i < 2; i++) { /* so large that what follows from it would be small */
        T.ends[N - 1] = T.m.image_bytes = UINT64_MAX - (uint64_t)i * 300;
        err = (struct sh_err){0};
        assert_fails(packed__read(&T.m, (struct sh_blob){T.links, sizeof(T.links)}, &err),
                     SH_E_PROTO, &err, "does not fit");
    }
    T.ends[N - 1] = T.m.image_bytes = ENDS[N - 1] * MIB;
    assert_ok(packed__read(&T.m, (struct sh_blob){T.links, sizeof(T.links)}, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_layer_is_unpacked_over_what_is_still_packed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_longer_range_is_unpacked_in_fewer_launches, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(packed_layers_begin_behind_the_image_at_the_latest, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_needed_for_more_is_given_up_once_nobody_uses_it,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_packed_has_nothing_to_unpack, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_unpacks_what_was_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(who_unpacks_next_is_told_how_long, setup, teardown),
        cmocka_unit_test_setup_teardown(packed_layers_are_lost_with_a_block, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_not_unpacked_is_not_its_tenants, setup, teardown),
        cmocka_unit_test_setup_teardown(a_worker_that_dies_spoils_what_it_may_have_unpacked, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(damage_is_told_to_whoever_loads, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_made_again_is_packed_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_not_unpacked_for_another_reason_is_no_damage,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(impossible_tables_are_refused, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
