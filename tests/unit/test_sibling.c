/* test_sibling.c - what of an image comes from the place of a sibling on the device. Without it: a
 * version could compute with layers of another one, with some that are packed yet or on their way,
 * or copy over the link what lies beside it. */
/* uses: executor/models/sibling.o */
#include "executor/models/model_int.h"
#include "executor/models/share.h"
#include "executor/models/sibling.h"
#include "tests/unit/sh_test.h"

#define N_MODELS 3u
#define N_LAYERS 5u

static struct world {
    struct model m[N_MODELS];
    uint64_t layers[N_MODELS][N_LAYERS], links[N_MODELS][N_LAYERS];
    uint64_t there[N_MODELS]; /* on the device */
    uint64_t alike;           /* of the first and others, in host memory */
    bool is_busy[N_MODELS], refuses;
    unsigned n_copies;
    uint32_t from;
    size_t to, off, bytes;
} w;

static struct store_env env;

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &env;
}

struct model *store_next(struct store *s, const struct model *m)
{
    (void)s;
    if (!m)
        return w.m;
    return m + 1 < w.m + N_MODELS ? &w.m[m - w.m + 1] : NULL;
}

uint64_t model_resident_bytes(const struct model *m)
{
    return w.there[m - w.m];
}

bool tx_image_busy(const struct tx_image *im)
{
    for (size_t i = 0; i < N_MODELS; i++)
        if (im == &w.m[i].tx)
            return w.is_busy[i];
    return false;
}

uint64_t share__alike(const struct model *a, const struct model *b)
{
    assert_ptr_equal(a, &w.m[0]);
    return b->tag == a->tag ? w.alike : 0;
}

bool space_copy(struct space *s, size_t to, uint32_t image, size_t off, size_t bytes)
{
    (void)s;
    w.n_copies++;
    w.to = to;
    w.from = image;
    w.off = off;
    w.bytes = bytes;
    return !w.refuses;
}

/* Layers of 100 bytes, packed to 40; the first image is at 1000, and has nothing. */
static int set_up(void **state)
{
    (void)state;
    w = (struct world){.alike = 400};
    for (size_t i = 0; i < N_MODELS; i++) {
        for (size_t k = 0; k < N_LAYERS; k++) {
            w.layers[i][k] = 100 * (k + 1);
            w.links[i][k] = 40 * (k + 1);
        }
        w.m[i] = (struct model){.handle = (int64_t)i + 1,
                                .tag = 1,
                                .phase = MODEL_READY,
                                .has_image = true,
                                .res = 70 + (uint32_t)i,
                                .n_layers = N_LAYERS,
                                .packed_from = N_LAYERS,
                                .layer_ends = w.layers[i],
                                .image_bytes = 500};
    }
    w.m[0].at.off = 1000;
    w.there[1] = 500;
    return 0;
}

static void pack_all(void)
{
    for (size_t i = 0; i < N_MODELS; i++)
        w.m[i].link_ends = w.links[i];
    w.alike = 160; /* four layers */
}

/* So much is there then, and `bytes` of it come from image 71 or another one. */
static void expect(uint64_t wanted, uint64_t resident, uint32_t from, size_t bytes)
{
    struct model *m = &w.m[0];
    const uint64_t had = m->at.resident;

    w.n_copies = 0;
    sibling__bring(m, wanted);
    assert_int_equal(m->at.resident, resident);
    assert_int_equal(m->at.moved, bytes > 0);
    assert_int_equal(w.n_copies, bytes > 0);
    if (bytes) {
        assert_int_equal(w.from, from);
        assert_int_equal(w.to, 1000 + had);
        assert_int_equal(w.off, had);
        assert_int_equal(w.bytes, bytes);
    }
    m->at.resident = had;
    m->at.moved = false;
}

static void whole_layers_that_both_have_come_from_there(void **state)
{
    (void)state;
    expect(500, 400, 71, 400);
    w.alike = 399; /* a layer that is alike in part is not */
    expect(500, 300, 71, 300);
    w.alike = 99;
    expect(500, 0, 0, 0);
    w.alike = 500; /* one that is the same all over */
    expect(500, 500, 71, 500);
    w.m[0].at.resident = 250; /* only what it lacks */
    expect(500, 500, 71, 250);
    expect(300, 300, 71, 50); /* and wants */
    w.m[0].at.resident = 500;
    expect(500, 500, 0, 0);
}

static void of_two_the_one_that_has_more_gives_it(void **state)
{
    (void)state;
    w.there[1] = 250;
    w.there[2] = 350;
    expect(500, 300, 72, 300);
    w.there[1] = 350;
    expect(500, 300, 71, 300);
    w.there[1] = w.there[2] = 0;
    expect(500, 0, 0, 0);
}

static void only_what_is_there_for_good_is_copied(void **state)
{
    struct model *o = &w.m[1];
    (void)state;

    w.is_busy[1] = true;
    expect(500, 0, 0, 0);
    w.is_busy[1] = false;
    o->is_placed = true;
    expect(500, 0, 0, 0);
    o->is_placed = false;
    o->is_broken = true;
    expect(500, 0, 0, 0);
    o->is_broken = false;
    o->rest = MODEL_REST_AHEAD;
    expect(500, 0, 0, 0);
    o->rest = MODEL_REST_NONE;
    o->is_spoiled = true;
    expect(500, 0, 0, 0);
    o->is_spoiled = false;
    o->phase = MODEL_GOING;
    expect(500, 0, 0, 0);
    o->phase = MODEL_READY;
    o->tag = 2;
    expect(500, 0, 0, 0);
    o->tag = 1;
    expect(500, 400, 71, 400);
}

static void packed_layers_have_to_be_unpacked_there(void **state)
{
    (void)state;
    pack_all();
    expect(500, 400, 71, 400);
    w.m[1].packed_from = 2;
    expect(500, 200, 71, 200);
    w.m[1].packed_from = 0;
    expect(500, 0, 0, 0);
    w.m[1].packed_from = N_LAYERS;
    w.m[1].link_ends = NULL; /* alike by chance */
    expect(500, 0, 0, 0);
}

static void layers_of_other_lengths_are_others(void **state)
{
    (void)state;
    w.layers[1][2] = 301;
    expect(500, 200, 71, 200);
    w.layers[1][2] = 300;
    pack_all();
    w.links[1][3] = 168;
    expect(500, 300, 71, 300);
}

static void tables_are_not_among_them(void **state)
{
    (void)state;
    w.alike = 500;
    w.m[0].tables.n = 2;
    expect(500, 300, 71, 300);
    w.m[0].tables.n = 0;
    w.m[1].tables.n = 1;
    expect(500, 400, 71, 400);
}

static void what_the_lane_refuses_comes_over_the_link(void **state)
{
    struct model *m = &w.m[0];
    (void)state;

    w.refuses = true;
    sibling__bring(m, 500);
    assert_int_equal(w.n_copies, 1);
    assert_int_equal(m->at.resident, 0);
    assert_false(m->at.moved);
}

#define TEST(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whole_layers_that_both_have_come_from_there),
        TEST(of_two_the_one_that_has_more_gives_it),
        TEST(only_what_is_there_for_good_is_copied),
        TEST(packed_layers_have_to_be_unpacked_there),
        TEST(layers_of_other_lengths_are_others),
        TEST(tables_are_not_among_them),
        TEST(what_the_lane_refuses_comes_over_the_link),
    };

    return cmocka_run_group_tests_name("sibling", tests, NULL, NULL);
}
