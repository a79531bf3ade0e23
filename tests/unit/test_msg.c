/* test_msg.c - without it, a field could be lost or swapped between two processes of one release,
 * and a broken or hostile frame could make a daemon read memory that is not the frame.
 *
 * Frames are decoded from heap blocks of exactly their size: run under SAN=address,undefined. */
#include "common/mem.h"
#include "common/msg.h"
#include "common/wire.h"
#include "tests/unit/sh_test.h"

#include <inttypes.h>

#define MAX_BYTES (1u << 20)
#define LAYOUT_NOW 0xb6093bce5073895au
#define VERSION_NOW 28u

static const uint16_t NUMBERS[] = {
#define F(type, name)
#define SH_MSG(NAME, name, number, ...) (number),
#include "common/msg.def"
#undef SH_MSG
#undef F
};
#define N_MESSAGES (sizeof(NUMBERS) / sizeof(NUMBERS[0]))

/* ---------------------------------------------------------------- one value for every field */

static const char *const TEXTS[] = {"", "a", "seven.7", "twelve bytes", "gr\xC3\xBC\xC3\x9F"};
static const unsigned char BYTES[64] = {0, 1, 2, 255, 0, 7, 8, 9, 10, 0};

static uint32_t value_u32(unsigned k)
{
    return 0x80000001u + k * 77u;
}

static uint64_t value_u64(unsigned k)
{
    return UINT64_MAX - k;
}

static int64_t value_i64(unsigned k)
{
    return k % 2 ? INT64_MIN + (int64_t)k : (int64_t)k;
}

static double value_f64(unsigned k)
{
    return k % 2 ? -0.1 * k : 1e300;
}

static const char *value_str(unsigned k)
{
    return TEXTS[k % (sizeof(TEXTS) / sizeof(TEXTS[0]))];
}

static struct sh_blob value_blob(unsigned k)
{
    return (struct sh_blob){.data = BYTES, .len = k * 5 % sizeof(BYTES)};
}

#define same_u32(a, b) ((a) == (b))
#define same_u64(a, b) ((a) == (b))
#define same_i64(a, b) ((a) == (b))
#define same_f64(a, b) ((a) == (b))
#define same_str(a, b) (strcmp((a), (b)) == 0)

static bool same_blob(struct sh_blob a, struct sh_blob b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static struct sh_msg make(uint16_t number, unsigned seed)
{
    struct sh_msg m;
    unsigned k = seed;

    memset(&m, 0, sizeof(m));
    m.type = (enum sh_msg_type)number;
    switch (number) {
#define F(kind, field) p->field = value_##kind(k++);
#define SH_MSG(NAME, name, number, ...)   \
    case number: {                        \
        struct msg_##name *p = &m.u.name; \
        (void)p;                          \
        __VA_ARGS__                       \
    } break;
#include "common/msg.def"
#undef SH_MSG
#undef F
    }
    return m;
}

static void check(const struct sh_msg *m, unsigned seed)
{
    unsigned k = seed;

    switch (m->type) {
#define F(kind, field)                                                            \
    if (!same_##kind(p->field, value_##kind(k)))                                  \
        fail_msg("field " #field " of message %s differs", sh_msg_name(m->type)); \
    k++;
#define SH_MSG(NAME, name, number, ...)          \
    case MSG_##NAME: {                           \
        const struct msg_##name *p = &m->u.name; \
        (void)p;                                 \
        __VA_ARGS__                              \
    } break;
#include "common/msg.def"
#undef SH_MSG
#undef F
    }
}

/* Decodes a copy in a block of exactly len bytes. Touches every view. */
static int decode_copy(uint16_t type, const void *p, size_t len, struct sh_err *err)
{
    unsigned char *copy = malloc(len ? len : 1);
    volatile size_t sum = 0;
    struct sh_msg m;
    int rc;

    assert_non_null(copy);
    memcpy(copy, p, len);
    rc = sh_msg_decode(type, copy, len, &m, err);
    if (!rc) {
        struct sh_buf b;

        sh_buf_init(&b, MAX_BYTES);
        assert_ok(sh_msg_encode(&m, &b, NULL)); /* reads every string and blob */
        sum = sum + b.len;
        assert_int_equal(b.len, len);
        sh_buf_fini(&b);
    }
    free(copy);
    return rc;
}

/* ---------------------------------------------------------------- tests */

static void every_message_comes_back_as_it_was(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MESSAGES; i++) {
        for (unsigned seed = 0; seed < 40; seed++) {
            struct sh_msg m = make(NUMBERS[i], seed), back;
            struct sh_err err = {0};
            struct sh_buf b;

            sh_buf_init(&b, MAX_BYTES);
            assert_ok_err(sh_msg_encode(&m, &b, &err), &err);
            assert_int_equal(b.len % 8, 0);
            assert_ok_err(sh_msg_decode(NUMBERS[i], b.data, b.len, &back, &err), &err);
            assert_int_equal(back.type, m.type);
            check(&back, seed);
            sh_buf_fini(&b);
        }
    }
}

static void numbers_and_names_are_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MESSAGES; i++) {
        assert_string_not_equal(sh_msg_name((enum sh_msg_type)NUMBERS[i]), "?");
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(NUMBERS[i], NUMBERS[k]);
    }
    assert_string_equal(sh_msg_name((enum sh_msg_type)65535), "?");
}

static void a_message_cut_anywhere_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MESSAGES; i++) {
        for (unsigned seed = 0; seed < 10; seed++) {
            struct sh_msg m = make(NUMBERS[i], seed);
            struct sh_buf b;

            sh_buf_init(&b, MAX_BYTES);
            assert_ok(sh_msg_encode(&m, &b, NULL));
            for (size_t n = 0; n < b.len; n++) {
                struct sh_err err = {0};

                assert_fails(decode_copy(NUMBERS[i], b.data, n, &err), SH_E_PROTO, &err,
                             sh_msg_name(m.type));
            }
            sh_buf_fini(&b);
        }
    }
}

static void bytes_behind_the_end_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MESSAGES; i++) {
        struct sh_msg m = make(NUMBERS[i], 3);
        struct sh_err err = {0};
        struct sh_buf b;

        sh_buf_init(&b, MAX_BYTES);
        assert_ok(sh_msg_encode(&m, &b, NULL));
        assert_ok(sh_buf_append(&b, "\0\0\0\0\0\0\0\0", 8, NULL));
        assert_fails(decode_copy(NUMBERS[i], b.data, b.len, &err), SH_E_PROTO, &err, "too many");
        sh_buf_fini(&b);
    }
}

static uint32_t next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

static void garbage_never_reads_outside_the_frame(void **state)
{
    uint32_t x = 12345;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint16_t type = NUMBERS[next(&x) % N_MESSAGES];
        unsigned char junk[96];
        size_t n = next(&x) % sizeof(junk);
        struct sh_err err = {0};

        for (size_t i = 0; i < n; i++)
            junk[i] = next(&x) % 3 ? (unsigned char)(next(&x) % 16) : (unsigned char)next(&x);
        decode_copy(type, junk, n, &err);
    }
}

static void a_damaged_message_never_reads_outside_the_frame(void **state)
{
    uint32_t x = 99;

    (void)state;
    for (size_t i = 0; i < N_MESSAGES; i++) {
        struct sh_msg m = make(NUMBERS[i], (unsigned)i);
        struct sh_buf b;

        sh_buf_init(&b, MAX_BYTES);
        assert_ok(sh_msg_encode(&m, &b, NULL));
        for (size_t at = 0; at < b.len; at++) {
            char was = b.data[at];
            struct sh_err err = {0};

            b.data[at] = (char)(was ^ (char)(1u << next(&x) % 8));
            decode_copy(NUMBERS[i], b.data, b.len, &err);
            b.data[at] = (char)0xFF;
            decode_copy(NUMBERS[i], b.data, b.len, &err);
            b.data[at] = was;
        }
        sh_buf_fini(&b);
    }
}

static void an_unknown_type_is_refused_both_ways(void **state)
{
    struct sh_msg m = {.type = (enum sh_msg_type)9999};
    struct sh_err err = {0};
    struct sh_buf b;

    (void)state;
    sh_buf_init(&b, MAX_BYTES);
    assert_fails(sh_msg_encode(&m, &b, &err), SH_E_BUG, &err, "9999");
    err = (struct sh_err){0};
    assert_fails(sh_msg_decode(9999, "", 0, &m, &err), SH_E_PROTO, &err, "9999");
    sh_buf_fini(&b);
}

static void a_string_with_a_zero_inside_is_refused(void **state)
{
    struct sh_msg m = {.type = MSG_HINT, .u.hint = {.what = "jobs"}};
    struct sh_err err = {0};
    struct sh_buf b;

    (void)state;
    sh_buf_init(&b, MAX_BYTES);
    assert_ok(sh_msg_encode(&m, &b, NULL));
    b.data[5] = '\0';
    assert_fails(decode_copy(MSG_HINT, b.data, b.len, &err), SH_E_PROTO, &err, "terminated");
    b.data[5] = 'o';
    b.data[8] = 'x'; /* the terminator itself */
    err = (struct sh_err){0};
    assert_fails(decode_copy(MSG_HINT, b.data, b.len, &err), SH_E_PROTO, &err, "field what");
    sh_buf_fini(&b);
}

static void a_null_string_arrives_empty(void **state)
{
    struct sh_msg m = {.type = MSG_HINT}, back;
    struct sh_buf b;

    (void)state;
    sh_buf_init(&b, MAX_BYTES);
    assert_ok(sh_msg_encode(&m, &b, NULL));
    assert_ok(sh_msg_decode(MSG_HINT, b.data, b.len, &back, NULL));
    assert_string_equal(back.u.hint.what, "");
    sh_buf_fini(&b);
}

static void a_message_too_large_for_the_buffer_leaves_nothing_behind(void **state)
{
    struct sh_msg m = {.type = MSG_DATA_CHUNK, .u.data_chunk.bytes = {.data = BYTES, .len = 64}};
    struct sh_err err = {0};
    struct sh_buf b;

    (void)state;
    sh_buf_init(&b, 50);
    assert_ok(sh_buf_puts(&b, "head", NULL));
    assert_fails(sh_msg_encode(&m, &b, &err), SH_E_TOOBIG, &err, "50");
    assert_string_equal(b.data, "head");
    sh_buf_fini(&b);
}

static void blobs_are_aligned_for_arrays_of_structs(void **state)
{
    struct msg_span spans[3] = {{1, 2}, {3, 4}, {5, 6}};
    struct sh_msg m = {.type = MSG_INFER_READY,
                       .u.infer_ready = {.rid = 1,
                                         .batch = 2,
                                         .in_spans = {spans, sizeof(spans)},
                                         .out_spans = {spans, sizeof(spans)}}};
    struct sh_msg back;
    struct sh_buf b;

    (void)state;
    sh_buf_init(&b, MAX_BYTES);
    assert_ok(sh_msg_encode(&m, &b, NULL));
    assert_ok(sh_msg_decode(MSG_INFER_READY, b.data, b.len, &back, NULL));
    assert_int_equal((uintptr_t)back.u.infer_ready.in_spans.data % 8, 0);
    assert_int_equal((uintptr_t)back.u.infer_ready.out_spans.data % 8, 0);
    assert_int_equal(((const struct msg_span *)back.u.infer_ready.out_spans.data)[2].len, 6);
    sh_buf_fini(&b);
}

/* Hosts that are upgraded one after the other speak to each other meanwhile, and to be told that
 * their versions differ is all that can help them. */
static void another_layout_is_another_version(void **state)
{
    static const char LAYOUT[] =
#define SH_MSG(NAME, name, number, ...) #name " " #number " " #__VA_ARGS__ "\n"
#include "common/msg.def"
#undef SH_MSG
        ;
    static const size_t SIZES[] = {sizeof(struct msg_span),      sizeof(struct msg_group),
                                   sizeof(struct msg_batch),     sizeof(struct msg_profile),
                                   sizeof(struct msg_usage_row), sizeof(struct msg_use_row),
                                   sizeof(struct msg_switch),    sizeof(struct msg_span_wish)};
    uint64_t h = 0xcbf29ce484222325u;

    (void)state;
    for (size_t i = 0; LAYOUT[i]; i++)
        h = (h ^ (uint8_t)LAYOUT[i]) * 0x100000001b3u;
    for (size_t i = 0; i < SH_ARRAY_LEN(SIZES); i++)
        h = (h ^ SIZES[i]) * 0x100000001b3u;
    if (h != LAYOUT_NOW)
        fail_msg("the layout of messages is another one, %#" PRIx64 ": raise SH_WIRE_VERSION, and "
                 "write both into this test",
                 h);
    assert_int_equal(SH_WIRE_VERSION, VERSION_NOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_layout_is_another_version),
        cmocka_unit_test(every_message_comes_back_as_it_was),
        cmocka_unit_test(numbers_and_names_are_unique),
        cmocka_unit_test(a_message_cut_anywhere_is_refused),
        cmocka_unit_test(bytes_behind_the_end_are_refused),
        cmocka_unit_test(garbage_never_reads_outside_the_frame),
        cmocka_unit_test(a_damaged_message_never_reads_outside_the_frame),
        cmocka_unit_test(an_unknown_type_is_refused_both_ways),
        cmocka_unit_test(a_string_with_a_zero_inside_is_refused),
        cmocka_unit_test(a_null_string_arrives_empty),
        cmocka_unit_test(a_message_too_large_for_the_buffer_leaves_nothing_behind),
        cmocka_unit_test(blobs_are_aligned_for_arrays_of_structs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
