/* test_unpack.c - a device unpacks layers as the processor does, bit for bit, also towards the
 * beginning of the memory in which they lie; and says when one is not what was packed.
 *
 * Without it: a model could compute with other weights than it was registered with. */
/* uses: runtime/pack/pack.o */
#include "common/mem.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"
#include "tests/device/dev_test.h"

#define N_LAYERS 150u
#define LAYER_MOST 300000u

struct world {
    unsigned char *image, *packed; /* OWNED */
    uint64_t ends[N_LAYERS], link_ends[N_LAYERS];
    size_t bytes, link_bytes, shift;
};

static uint32_t seed = 2463534242u;

static uint32_t draw(void)
{
    return sh_test_random(&seed);
}

/* Exponents of few values, or of many, or of any. */
static void fill_layer(unsigned char *to, size_t bytes, enum pack_type type, uint32_t kind)
{
    const size_t wide = type == PACK_32 ? 4 : 2;
    const uint32_t shift = type == PACK_32 ? 23 : type == PACK_F16 ? 10 : 7;
    const uint32_t most = type == PACK_F16 ? 31 : 255;

    for (size_t at = 0; at + wide <= bytes; at += wide) {
        const uint32_t few = most / 2 - (uint32_t)__builtin_ctz(draw() | 1u << 12);
        const uint32_t e = kind == 0 ? few : kind == 1 && draw() % 3 ? few : draw() & most;
        uint32_t v = (draw() & ((1u << shift) - 1)) | e << shift | (draw() & 1) << (wide * 8 - 1);

        if (type == PACK_32 && kind != 2)
            v &= ~0x1fffu;
        memcpy(to + at, &v, wide);
    }
}

static void make(struct world *w)
{
    *w = (struct world){.image = calloc(N_LAYERS, LAYER_MOST),
                        .packed = malloc(N_LAYERS * pack_bound(LAYER_MOST, 2))};
    assert_non_null(w->image);
    assert_non_null(w->packed);
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        const enum pack_type type = (enum pack_type)(PACK_32 + i % 3);
        const size_t bytes =
            SH_ALIGN_UP(1 + draw() % (i % 5 ? 20000 : LAYER_MOST - 512), DEV_ALIGN);
        const struct pack_span spans[] = {{0, bytes - 256, type}, {bytes - 256, 256, PACK_BYTES}};
        size_t packed_bytes;

        fill_layer(w->image + w->bytes, bytes - 40, type, i % 4);
        assert_ok(pack_layer(w->image + w->bytes, bytes, spans, 2, w->packed + w->link_bytes,
                             &packed_bytes, NULL));
        w->shift = SH_MAX(w->shift,
                          w->bytes + bytes > w->link_bytes ? w->bytes + bytes - w->link_bytes : 0);
        w->ends[i] = w->bytes += bytes;
        w->link_ends[i] = w->link_bytes += packed_bytes;
    }
    w->shift = SH_ALIGN_UP(w->shift, (size_t)PACK_ALIGN);
}

static void drop(struct world *w)
{
    free(w->image);
    free(w->packed);
}

static int unpack_all(const struct world *w, size_t packed_at, uint32_t from, uint32_t to)
{
    struct dev_packed layers[N_LAYERS];
    size_t n = 0;

    for (uint32_t i = from; i < to; i++)
        layers[n++] =
            (struct dev_packed){.at = packed_at + layer_begin(w->link_ends, i),
                                .packed_bytes = w->link_ends[i] - layer_begin(w->link_ends, i),
                                .to = layer_begin(w->ends, i),
                                .bytes = w->ends[i] - layer_begin(w->ends, i)};
    return dev_unpack(t_dev(), layers, n, NULL);
}

static void same(const struct world *w)
{
    unsigned char *back = malloc(w->bytes);

    assert_non_null(back);
    assert_ok(dev_download(t_dev(), back, 0, w->bytes, NULL));
    assert_ok(dev_sync(t_dev(), NULL));
    for (uint32_t i = 0; i < N_LAYERS; i++)
        if (memcmp(back + layer_begin(w->ends, i), w->image + layer_begin(w->ends, i),
                   w->ends[i] - layer_begin(w->ends, i)) != 0)
            fail_msg("layer %u is another one", i);
    free(back);
}

static void it_unpacks_as_the_processor_does(void **state)
{
    struct world w;
    size_t at;

    (void)state;
    make(&w);
    at = SH_ALIGN_UP(w.bytes, DEV_BLOCK);
    assert_true(at + w.link_bytes < t_arena());
    assert_ok(dev_fill(t_dev(), 0, 0xa5, at, NULL));
    assert_ok(dev_upload(t_dev(), at, w.packed, w.link_bytes, NULL));
    assert_ok(unpack_all(&w, at, 0, N_LAYERS));
    same(&w);
    drop(&w);
}

/* Packed at the end of its own range, in one call and in groups. */
static void it_unpacks_towards_the_beginning(void **state)
{
    struct world w;

    (void)state;
    make(&w);
    assert_true(w.shift < w.bytes); /* they do overlap */
    for (uint32_t step = N_LAYERS; step > 0; step /= 4) {
        assert_ok(dev_fill(t_dev(), 0, 0xa5, w.shift, NULL));
        assert_ok(dev_upload(t_dev(), w.shift, w.packed, w.link_bytes, NULL));
        for (uint32_t i = 0; i < N_LAYERS; i += step)
            assert_ok(unpack_all(&w, w.shift, i, SH_MIN(i + step, N_LAYERS)));
        same(&w);
    }
    drop(&w);
}

static void damage_is_found(void **state)
{
    struct world w;
    size_t at;
    uint32_t found = 0;

    (void)state;
    make(&w);
    at = SH_ALIGN_UP(w.bytes, DEV_BLOCK);
    for (uint32_t i = 0; i < N_LAYERS; i += 7) {
        const uint64_t from = layer_begin(w.link_ends, i);
        unsigned char *byte = &w.packed[from + draw() % (w.link_ends[i] - from)];
        int rc;

        *byte ^= 16;
        assert_ok(dev_upload(t_dev(), at, w.packed, w.link_bytes, NULL));
        rc = unpack_all(&w, at, 0, N_LAYERS);
        if (!rc)
            rc = dev_sync(t_dev(), NULL);
        *byte ^= 16;
        assert_int_equal(dev_take_damage(t_dev()), rc != SH_OK);
        assert_false(dev_take_damage(t_dev())); /* it is told once */
        if (rc == SH_OK)
            same(&w); /* it fills up a list */
        else
            assert_int_equal(rc, SH_E_IO);
        found += rc == SH_E_IO;
    }
    assert_true(found > 10);
    assert_ok(dev_upload(t_dev(), at, w.packed, w.link_bytes, NULL));
    assert_ok(unpack_all(&w, at, 0, N_LAYERS));
    same(&w);
    drop(&w);
}

/* Each byte of a head, and of an entry: they say where to read and to write. */
static void damage_to_what_says_where_things_are_is_found(void **state)
{
    struct world w;
    size_t at;

    (void)state;
    make(&w);
    at = SH_ALIGN_UP(w.bytes, DEV_BLOCK);
    assert_ok(dev_upload(t_dev(), at, w.packed, w.link_bytes, NULL));
    for (uint32_t i = 0; i < N_LAYERS; i += 50)
        for (size_t k = 0; k < sizeof(struct pack_head) + 2 * sizeof(struct pack_block); k++) {
            const size_t off = (size_t)layer_begin(w.link_ends, i) + k;
            const unsigned char bad = w.packed[off] ^ (unsigned char)(1u << draw() % 8);
            int rc;

            assert_ok(dev_upload(t_dev(), at + off, &bad, 1, NULL));
            rc = unpack_all(&w, at, i, i + 1);
            if (!rc)
                rc = dev_sync(t_dev(), NULL);
            if (rc != SH_E_IO)
                fail_msg("layer %u, byte %zu: %d", i, k, rc);
            assert_true(dev_take_damage(t_dev()));
            assert_ok(dev_upload(t_dev(), at + off, &w.packed[off], 1, NULL));
        }
    assert_ok(unpack_all(&w, at, 0, N_LAYERS));
    same(&w);
    drop(&w);
}

static void what_overlaps_itself_is_refused(void **state)
{
    const struct dev_packed bad[] = {{.at = 0, .packed_bytes = 256, .to = 0, .bytes = 512},
                                     {.at = 64, .packed_bytes = 256, .to = 512, .bytes = 512},
                                     {.at = 0, .packed_bytes = 256, .to = 300, .bytes = 512},
                                     {.at = 0, .packed_bytes = 200, .to = 512, .bytes = 512},
                                     {.at = SIZE_MAX - 127, .packed_bytes = 256, .bytes = 512}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(bad); i++)
        assert_int_equal(dev_unpack(t_dev(), &bad[i], 1, NULL), SH_E_BUG);
    assert_ok(dev_unpack(t_dev(), NULL, 0, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_unpacks_as_the_processor_does),
        cmocka_unit_test(it_unpacks_towards_the_beginning),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(damage_to_what_says_where_things_are_is_found),
        cmocka_unit_test(what_overlaps_itself_is_refused),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
