/* test_room_memory.c - what a run that gets no memory leaves as it was: the tries of room.c on a
 * device. Without it: images could be thrown out for a workspace whose run has no room for its own
 * image, again at each of its tries, and be copied in again for whoever asks for them next. */
/* uses: executor/runs/room.o executor/memory/space.o executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o executor/memory/transmit.o executor/memory/links.o runtime/group.o libdevice.a */
/* link: -ldl */
#include "executor/models/apart.h"
#include "executor/models/tables.h"
#include "executor/runs/inputs.h"
#include "executor/runs/switch_int.h"
#include "tests/unit/sh_test.h"
#include "tests/unit/space_rig.h"

#define N_BLOCKS 16u
#define MINE 1u
#define OTHERS 2u

struct rig {
    struct space_rig of;
    struct switcher sw;
};

static struct msg_batch row = {.batch = 1};
static struct space *space; /* as the store of the models knows it */

/* ------------------------------------------------------------------ instead of the models */

int model_place(struct model *m, uint64_t *hit_out, struct sh_err *err)
{
    int rc;

    *hit_out = 0;
    if (m->apart.at == APART_WHOLE) /* from it the image is to be unpacked */
        residency_pin(space_residency(space), m->apart.res);
    rc = space_place(space, m->res, m->image_bytes, true, &m->at, err);
    if (m->apart.at == APART_WHOLE)
        residency_unpin(space_residency(space), m->apart.res);
    return rc;
}

bool model_yield_apart(struct model *m)
{
    const bool had = m->apart.at == APART_WHOLE;

    m->apart.at = APART_NONE;
    if (had)
        residency_forget(space_residency(space), m->apart.res, 0);
    return had;
}

bool model_hold_apart(struct model *m)
{
    assert_false(m->apart.is_source);
    return false;
}

const struct msg_batch *model_batch(const struct model *m, uint32_t batch, const double **layer_ns)
{
    (void)m, (void)batch;
    *layer_ns = NULL;
    return &row;
}

uint64_t model_run_bytes(const struct model *m)
{
    return m->image_bytes;
}

uint64_t model_resident_bytes(const struct model *m)
{
    return (uint64_t)residency_held(space_residency(space), m->res) * DEV_BLOCK;
}

int model_transmit_begin(struct model *m, const double *layer_ns, struct sh_err *err)
{
    (void)m, (void)layer_ns, (void)err;
    return SH_OK;
}

void model_unkeep(struct model *m, int64_t now_ns)
{
    (void)m, (void)now_ns;
}

bool store_unkeep_all(struct store *s)
{
    (void)s;
    return false;
}

void store_note_use(struct model *version, struct model *shape)
{
    (void)version, (void)shape;
}

int inputs_send(struct run *r, struct sh_err *err)
{
    (void)r, (void)err;
    return SH_OK;
}

void run__give_back(struct run *r)
{
    space_give(space, &r->ws, r->tag);
    r->has_ws = false;
}

/* ------------------------------------------------------------------ the device */

static void rig_open(struct rig *r)
{
    *r = (struct rig){0};
    space_rig_open(&r->of, N_BLOCKS);
    r->sw.env.space = space = r->of.s;
}

static void rig_close(struct rig *r)
{
    space_rig_close(&r->of);
}

static uint32_t add(uint32_t tag, uint32_t blocks)
{
    const struct residency_image im = {.n_blocks = blocks, .tag = tag};
    uint32_t id = 0;

    assert_ok(residency_add(space_residency(space), &im, &id, NULL));
    return id;
}

static uint32_t add_here(uint32_t tag, uint32_t blocks)
{
    const uint32_t id = add(tag, blocks);
    struct tx_place at;

    assert_ok(space_place(space, id, (uint64_t)blocks * DEV_BLOCK, true, &at, NULL));
    return id;
}

static int take(struct rig *r, struct model *m, uint32_t ws_blocks, struct run *run,
                struct sh_err *err)
{
    row.ws_bytes = (uint64_t)ws_blocks * DEV_BLOCK;
    *run = (struct run){.sw = &r->sw, .model = m, .shape = m, .batch = 1, .tag = MINE};
    return room__take(run, err);
}

/* A workspace of 4 blocks finds room where another's image is, and then the run's own image of 6
 * finds none: the rest is in use. */
static void a_run_that_gets_no_memory_evicts_nothing(void **state)
{
    struct residency *res;
    struct sh_err err = {0};
    struct run run;
    struct rig r;
    uint32_t used, idle;
    struct model m;

    (void)state;
    rig_open(&r);
    res = space_residency(space);
    used = add_here(OTHERS, N_BLOCKS - 4);
    idle = add_here(OTHERS, 4);
    residency_pin(res, used);
    m = (struct model){.res = add(MINE, 6), .image_bytes = 6 * DEV_BLOCK};
    assert_fails(take(&r, &m, 4, &run, &err), SH_E_DEVMEM, &err, "device memory");
    assert_int_equal(residency_held(res, idle), 4);
    assert_int_equal(space_n_evicted(space), 0);
    residency_unpin(res, used);
    err = (struct sh_err){0};
    assert_ok_err(take(&r, &m, 4, &run, &err), &err);
    assert_int_equal(err.rc, SH_OK);
    assert_int_equal(residency_held(res, m.res), 6);
    residency_unpin(res, m.res);
    run__give_back(&run);
    rig_close(&r);
}

/* There is room for its image, and for the workspace, but not beside the packed copy. */
static void a_run_has_no_less_room_for_its_packed_copy(void **state)
{
    struct sh_err err = {0};
    struct run run;
    struct rig r;
    uint32_t used;
    struct model m;

    (void)state;
    rig_open(&r);
    used = add_here(OTHERS, 4);
    residency_pin(space_residency(space), used);
    m = (struct model){.res = add(MINE, 8), .image_bytes = 8 * DEV_BLOCK};
    m.apart.res = add_here(MINE, 3);
    m.apart.at = APART_WHOLE;
    assert_ok_err(take(&r, &m, 4, &run, &err), &err);
    assert_int_equal(residency_held(space_residency(space), m.res), 8);
    residency_unpin(space_residency(space), m.res);
    run__give_back(&run);
    rig_close(&r);
}

/* Nothing has to go for what is free. */
static void a_run_takes_what_is_free_first(void **state)
{
    struct sh_err err = {0};
    struct run run;
    struct rig r;
    uint32_t idle;
    struct model m;

    (void)state;
    rig_open(&r);
    idle = add_here(OTHERS, 6);
    m = (struct model){.res = add(MINE, 6), .image_bytes = 6 * DEV_BLOCK};
    assert_ok_err(take(&r, &m, 4, &run, &err), &err);
    assert_int_equal(residency_held(space_residency(space), idle), 6);
    residency_unpin(space_residency(space), m.res);
    run__give_back(&run);
    rig_close(&r);
}

/* The workspace would stand in the piece that the image gets where another one gives way. */
static void a_workspace_stands_aside_of_the_image(void **state)
{
    struct residency *res;
    struct sh_err err = {0};
    struct run run;
    struct rig r;
    uint32_t before, used[2], idle, hole, more;
    struct model m;

    (void)state;
    rig_open(&r);
    res = space_residency(space);
    before = add_here(OTHERS, 1);
    used[0] = add_here(OTHERS, 1);
    idle = add_here(OTHERS, 4);
    hole = add_here(OTHERS, 1);
    more = add_here(OTHERS, 3);
    used[1] = add_here(OTHERS, N_BLOCKS - 10);
    residency_pin(res, used[0]);
    residency_pin(res, used[1]);
    residency_truncate(res, before, 0);
    residency_truncate(res, hole, 0);
    residency_touch(res, idle, 1);
    residency_touch(res, more, 2);
    m = (struct model){.res = add(MINE, 5), .image_bytes = 5 * DEV_BLOCK};
    assert_ok_err(take(&r, &m, 1, &run, &err), &err);
    assert_int_equal(residency_held(res, m.res), 5);
    assert_int_equal(residency_held(res, idle), 0);
    assert_int_equal(residency_held(res, more), 3); /* nothing else has to go */
    residency_unpin(res, m.res);
    run__give_back(&run);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_gets_no_memory_evicts_nothing),
        cmocka_unit_test(a_run_has_no_less_room_for_its_packed_copy),
        cmocka_unit_test(a_run_takes_what_is_free_first),
        cmocka_unit_test(a_workspace_stands_aside_of_the_image),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
