/* test_pack.c - packed layers: the same bytes come out, and what is not the same is found.
 *
 * Without it: a model could answer with other weights than were registered, by a bit that the
 * packer loses or that memory has flipped. */
/* uses: runtime/pack/pack.o */
/* link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc */
#include "common/mem.h"
#include "runtime/pack/pack.h"
#include "tests/unit/oom.h"
#include "tests/unit/sh_test.h"

#include <math.h>

#define GUARD 64u
#define GUARD_BYTE 0xa5

struct world {
    unsigned char *layer, *packed, *back; /* OWNED */
    size_t bytes, packed_bytes;
};

static uint32_t seed = 2463534242u;

static uint32_t draw(void)
{
    return sh_test_random(&seed);
}

static double unit(void) /* in (0, 1] */
{
    return (draw() + 1.0) * 0x1p-32;
}

static double normal(void)
{
    return sqrt(-2 * log(unit())) * cos(6.283185307179586 * unit());
}

static void make(struct world *w, size_t bytes, size_t n_spans)
{
    const size_t room = SH_ALIGN_UP(pack_bound(bytes, n_spans) + GUARD, (size_t)PACK_ALIGN);

    *w = (struct world){.bytes = bytes,
                        .layer = calloc(1, bytes + 1),
                        .packed = aligned_alloc(PACK_ALIGN, room),
                        .back = malloc(bytes + GUARD)};
    assert_non_null(w->layer);
    assert_non_null(w->packed);
    assert_non_null(w->back);
    memset(w->packed, GUARD_BYTE, room);
}

static void drop(struct world *w)
{
    free(w->layer);
    free(w->packed);
    free(w->back);
}

static int unpack(struct world *w, struct sh_err *err)
{
    memset(w->back, GUARD_BYTE, w->bytes + GUARD);
    return pack_unpack(w->packed, w->packed_bytes, w->back, w->bytes, err);
}

/* Packs and unpacks; returns bits a byte of the layer. */
static double there_and_back(struct world *w, const struct pack_span *spans, size_t n)
{
    struct sh_err err = {0};
    struct pack_head head;

    assert_ok_err(pack_layer(w->layer, w->bytes, spans, n, w->packed, &w->packed_bytes, &err),
                  &err);
    assert_true(w->packed_bytes <= pack_bound(w->bytes, n));
    assert_int_equal(w->packed_bytes % PACK_ALIGN, 0);
    assert_int_equal(w->packed[pack_bound(w->bytes, n)], GUARD_BYTE);
    assert_ok_err(pack_look(w->packed, w->packed_bytes, &head, &err), &err);
    assert_int_equal(head.bytes, w->bytes);
    assert_int_equal(head.packed_bytes, w->packed_bytes);
    assert_ok_err(unpack(w, &err), &err);
    assert_memory_equal(w->back, w->layer, w->bytes);
    assert_int_equal(w->back[w->bytes], GUARD_BYTE);
    return w->bytes ? 8.0 * (double)w->packed_bytes / (double)w->bytes : 0;
}

static double one_span(struct world *w, enum pack_type type)
{
    return there_and_back(w, &(struct pack_span){.bytes = w->bytes, .type = type}, 1);
}

static void put32(struct world *w, size_t i, uint32_t v)
{
    memcpy(w->layer + i * 4, &v, 4);
}

static void put16(struct world *w, size_t i, uint32_t v)
{
    memcpy(w->layer + i * 2, &v, 2);
}

static uint32_t bits_of(double x)
{
    const float f = (float)x;
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static void every_16_bit_number_survives(void **state)
{
    static const enum pack_type TYPES[] = {PACK_F16, PACK_BF16, PACK_BYTES};
    struct world w;

    (void)state;
    make(&w, 2 * 65536, 1);
    for (size_t t = 0; t < SH_ARRAY_LEN(TYPES); t++) {
        for (uint32_t i = 0; i < 65536; i++)
            put16(&w, i, i);
        one_span(&w, TYPES[t]);
        for (uint32_t i = 0; i < 65536; i++) /* neighbours in no order */
            put16(&w, i, i * 40503u);
        one_span(&w, TYPES[t]);
    }
    drop(&w);
}

/* Zeros, denormals, infinities and NaNs of both signs among them. */
static void every_exponent_survives(void **state)
{
    static const uint32_t MANTISSAS[] = {0,        1,        0x1000,   0x2000,
                                         0x3fe000, 0x400000, 0x7fe000, 0x7fffff};
    struct world w;

    (void)state;
    for (int tf32 = 0; tf32 < 2; tf32++)
        for (size_t each = 1; each <= 4096; each *= 8) { /* so many alike in a row */
            size_t n = 0;

            make(&w, 512 * SH_ARRAY_LEN(MANTISSAS) * each * 4, 1);
            for (uint32_t e = 0; e < 512; e++)
                for (size_t m = 0; m < SH_ARRAY_LEN(MANTISSAS) * each; m++)
                    put32(&w, n++,
                          e << 23 | (MANTISSAS[m / each] & (tf32 ? ~0x1fffu : UINT32_MAX)));
            one_span(&w, PACK_32);
            drop(&w);
            if (each >= 64 && tf32)
                break; /* the largest once */
        }
}

/* Weights as training leaves them get as small as they should, or the code would be no use. */
static void normal_weights_take_the_bits_that_they_should(void **state)
{
    const size_t n = 1 << 18;
    struct world w;

    (void)state;
    make(&w, n * 4, 1);
    for (size_t i = 0; i < n; i++)
        put32(&w, i, bits_of(normal() * 0.02) & ~0x1fffu);
    assert_true(one_span(&w, PACK_32) * 4 < 14.4);
    for (size_t i = 0; i < n; i++)
        put32(&w, i, bits_of(normal() * 0.02));
    assert_true(one_span(&w, PACK_32) * 4 < 27.4);
    drop(&w);
    make(&w, n * 2, 1);
    for (size_t i = 0; i < n; i++)
        put16(&w, i, bits_of(normal() * 0.02) >> 16);
    assert_true(one_span(&w, PACK_BF16) * 2 < 11.4);
    for (size_t i = 0; i < n; i++) { /* exponents as those, of 5 bits */
        const uint32_t u = bits_of(normal() * 0.02);

        put16(&w, i, (u >> 16 & 0x8000) | ((u >> 13 & 0x3ffff) - (112u << 10)) % 0x7c00);
    }
    assert_true(one_span(&w, PACK_F16) * 2 < 14.4);
    drop(&w);
}

static void what_cannot_get_smaller_stays(void **state)
{
    const size_t n = 1 << 16;
    struct world w;

    (void)state;
    make(&w, n * 4, 1);
    for (size_t i = 0; i < n; i++)
        put32(&w, i, draw() ^ draw() << 16);
    assert_true(one_span(&w, PACK_32) < 8.05);
    assert_true(one_span(&w, PACK_F16) < 8.1);
    /* One with a low bit: its block is not of tf32, all others are. */
    for (size_t i = 0; i < n; i++)
        put32(&w, i, bits_of(normal()) & ~0x1fffu);
    put32(&w, n / 2 + 77, bits_of(1.0) | 1);
    assert_true(one_span(&w, PACK_32) * 4 < 15.2);
    drop(&w);
}

/* More escapes than a device takes at once, in one lane, in all, in none. */
static void many_escapes_come_back_in_order(void **state)
{
    const size_t n = 2 * PACK_BLOCK;
    struct world w;

    (void)state;
    make(&w, n * 4, 1);
    for (uint32_t share = 0; share <= 100; share += 10) {
        for (size_t i = 0; i < n; i++)
            put32(&w, i, (draw() % 100 < share ? draw() % 256 : 100 + draw() % 7) << 23);
        one_span(&w, PACK_32);
        for (size_t i = 0; i < n; i++) /* in lane 5 alone */
            put32(&w, i, (i % 128 / 4 == 5 ? (uint32_t)i % 256 : 100 + (uint32_t)i % 7) << 23);
        one_span(&w, PACK_32);
    }
    drop(&w);
}

static void sizes_need_not_be_of_whole_blocks(void **state)
{
    static const enum pack_type TYPES[] = {PACK_BYTES, PACK_32, PACK_F16, PACK_BF16};
    const size_t sizes[] = {0,    1,    2,    3,    4,    15,   16,   17,   62,    4094,  4095,
                            4096, 4097, 4100, 8188, 8190, 8191, 8192, 8196, 12288, 20002, 40000};
    struct world w;

    (void)state;
    for (size_t s = 0; s < SH_ARRAY_LEN(sizes); s++)
        for (size_t t = 0; t < SH_ARRAY_LEN(TYPES); t++) {
            make(&w, sizes[s], 1);
            for (size_t i = 0; i + 4 <= sizes[s]; i += 4) {
                const uint32_t v =
                    TYPES[t] == PACK_32 ? bits_of(normal()) : bits_of(normal()) >> 16;

                memcpy(w.layer + i, &v, 4);
            }
            one_span(&w, TYPES[t]);
            drop(&w);
        }
}

static void a_layer_may_have_tensors_of_all_types(void **state)
{
    const struct pack_span spans[] = {{0, 30000 / 16 * 16, PACK_32},
                                      {30000 / 16 * 16, 512, PACK_BYTES},
                                      {30000 / 16 * 16 + 512, 8192 + 16, PACK_F16},
                                      {30000 / 16 * 16 + 512 + 8192 + 16, 4111, PACK_BF16}};
    struct world w;

    (void)state;
    make(&w, (size_t)(spans[3].off + spans[3].bytes), 4);
    for (size_t i = 0; i < w.bytes; i++)
        w.layer[i] = (unsigned char)(i % 4 == 3 ? 0x3d : draw());
    there_and_back(&w, spans, 4);
    drop(&w);
}

/* Each bit of a packed layer is summed, or says nothing. */
static void every_flipped_bit_is_found(void **state)
{
    uint32_t found = 0, silent = 0;
    struct world w;

    (void)state;
    make(&w, PACK_BLOCK * 4 + 1000, 1);
    for (size_t i = 0; i < w.bytes / 4; i++)
        put32(&w, i, bits_of(normal()) & ~0x1fffu);
    one_span(&w, PACK_32);
    for (size_t bit = 0; bit < w.packed_bytes * 8; bit += 1 + bit % 3) {
        struct sh_err err = {0};
        int rc;

        w.packed[bit / 8] ^= (unsigned char)(1u << bit % 8);
        rc = unpack(&w, &err);
        assert_int_equal(w.back[w.bytes], GUARD_BYTE);
        if (rc) {
            assert_fails(rc, SH_E_IO, &err, "damaged");
            found++;
        } else {
            assert_memory_equal(w.back, w.layer, w.bytes);
            silent++;
        }
        w.packed[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(silent < found / 20); /* what fills a list up to its end */
    assert_ok(unpack(&w, NULL));
    drop(&w);
}

static void what_is_cut_off_or_of_another_layer_is_found(void **state)
{
    struct sh_err err = {0};
    struct pack_head head;
    struct world w;

    (void)state;
    make(&w, 50000, 1);
    for (size_t i = 0; i < w.bytes / 4; i++)
        put32(&w, i, bits_of(normal()));
    one_span(&w, PACK_32);
    for (size_t n = 0; n < w.packed_bytes; n += 127)
        assert_int_equal(pack_unpack(w.packed, n, w.back, w.bytes, NULL), SH_E_IO);
    assert_fails(pack_look(w.packed, w.packed_bytes - 1, &head, &err), SH_E_IO, &err, "head");
    err = (struct sh_err){0};
    assert_fails(pack_unpack(w.packed, w.packed_bytes, w.back, w.bytes - 4, &err), SH_E_IO, &err,
                 "another layer");
    drop(&w);
}

static void no_memory_is_an_error(void **state)
{
    struct world w;

    (void)state;
    make(&w, 50000, 1);
    for (int n = 0; n < 2; n++) {
        struct sh_err err = {0};
        int rc;

        calls_left = n;
        rc = pack_layer(w.layer, w.bytes, &(struct pack_span){.bytes = w.bytes, .type = PACK_32}, 1,
                        w.packed, &w.packed_bytes, &err);
        calls_left = -1;
        assert_fails(rc, SH_E_NOMEM, &err, "memory");
    }
    drop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_16_bit_number_survives),
        cmocka_unit_test(every_exponent_survives),
        cmocka_unit_test(normal_weights_take_the_bits_that_they_should),
        cmocka_unit_test(what_cannot_get_smaller_stays),
        cmocka_unit_test(many_escapes_come_back_in_order),
        cmocka_unit_test(sizes_need_not_be_of_whole_blocks),
        cmocka_unit_test(a_layer_may_have_tensors_of_all_types),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(what_is_cut_off_or_of_another_layer_is_found),
        cmocka_unit_test(no_memory_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
