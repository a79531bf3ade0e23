/* test_pack_gains.c - an image is packed where a run gains by it, and its layers come out of it
 * again.
 *
 * Without it: a model that computes longer than it is copied could get slower for a tenth of its
 * bytes. */
/* uses: executor/worker/pack.o runtime/group.o runtime/pack/pack.o */
#include "common/mem.h"
#include "executor/worker/pack.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"
#include "tests/unit/sh_test.h"

#define N 20u
#define MANY 70u /* more than one call of the device takes */
#define LAYER ((uint64_t)1 << 20)

static struct {
    uint64_t ends[MANY];
    uint32_t n, n_tables, n_between, n_calls,
        fails_at; /* fails_at: the call of dev_unpack(); 0: none */
    enum pack_type type;
    struct dev_packed seen[MANY];
    size_t n_seen;
} T;

uint32_t program_n_layers(const struct program *p)
{
    (void)p;
    return T.n;
}

uint32_t program_n_tables(const struct program *p)
{
    (void)p;
    return T.n_tables;
}

const uint64_t *program_layer_ends(const struct program *p)
{
    (void)p;
    return T.ends;
}

int program_spans(const struct program *p, struct pack_span **out, size_t *n, struct sh_err *err)
{
    (void)p, (void)err;
    *out = calloc(T.n, sizeof(**out));
    assert_non_null(*out);
    for (*n = 0; *n < T.n; ++*n)
        (*out)[*n] = (struct pack_span){.off = layer_begin(T.ends, (uint32_t)*n),
                                        .bytes = layer_bytes(T.ends, (uint32_t)*n),
                                        .type = T.type};
    return SH_OK;
}

int dev_unpack(struct dev *d, const struct dev_packed *layers, size_t n, struct sh_err *err)
{
    (void)d;
    if (++T.n_calls == T.fails_at)
        return SH_FAIL(err, SH_E_IO, "of the device");
    for (size_t i = 0; i < n; i++)
        T.seen[T.n_seen++] = layers[i];
    return SH_OK;
}

static void begin(uint32_t n, enum pack_type type)
{
    memset(&T, 0, sizeof(T));
    T.n = n;
    T.type = type;
    for (uint32_t i = 0; i < n; i++)
        T.ends[i] = (i + 1) * LAYER;
}

static void between(void *arg)
{
    (void)arg;
    T.n_between++;
}

static void each_layer_can_be_unpacked_by_itself(void **state)
{
    unsigned char *image = calloc(N, LAYER), *back = malloc(LAYER);
    uint64_t link_ends[N];
    struct sh_shm packed;
    struct sh_err err = {0};
    uint32_t from = 3;

    (void)state;
    assert_true(image && back);
    begin(N, PACK_32);
    for (size_t i = 0; i < N * LAYER; i += 4) {
        const uint32_t v = (uint32_t)i * 2654435761u;
        const uint32_t x = 0x3c000000u | (v & 0x81ffe000u);

        memcpy(image + i, &x, 4);
    }
    assert_ok_err(pack_image(NULL, image, link_ends, between, NULL, &packed, &err), &err);
    assert_non_null(packed.base);
    assert_true(link_ends[N - 1] < N * LAYER / 2);
    assert_true(T.n_between >= 3);
    assert_ok(unpack_layers(NULL, NULL, 4096, 8192, link_ends, &from, N, NULL));
    assert_int_equal(from, N);
    assert_int_equal(T.n_seen, N - 3);
    for (size_t k = 0; k < T.n_seen; k++) {
        const struct dev_packed *l = &T.seen[k];

        assert_int_equal(l->to, 4096 + (k + 3) * LAYER);
        assert_int_equal(l->bytes, LAYER);
        assert_ok(pack_unpack((const char *)packed.base + (l->at - 8192), l->packed_bytes, back,
                              LAYER, NULL));
        assert_memory_equal(back, image + (k + 3) * LAYER, LAYER);
    }
    sh_shm_fini(&packed);
    free(image);
    free(back);
}

/* Who reads them in host memory wants them as they are, and from a page on. */
static void tables_are_not_packed(void **state)
{
    unsigned char *image = calloc(N, LAYER);
    uint64_t link_ends[N], at;
    struct sh_shm packed;

    (void)state;
    assert_non_null(image);
    begin(N, PACK_32);
    T.n_tables = 4;
    for (size_t i = 0; i < N * LAYER; i += 4) {
        const uint32_t v = (uint32_t)i * 2654435761u;
        const uint32_t x = 0x3c000000u | (v & 0x81ffe000u);

        memcpy(image + i, &x, 4);
    }
    assert_ok(pack_image(NULL, image, link_ends, between, NULL, &packed, NULL));
    assert_non_null(packed.base);
    at = SH_ALIGN_UP(link_ends[N - 5], (uint64_t)DEV_TABLES_ALIGN);
    assert_true(link_ends[N - 5] < (N - 4) * LAYER / 2);
    for (uint32_t i = 1; i <= 4; i++)
        assert_int_equal(link_ends[N - 5 + i], at + i * LAYER);
    assert_memory_equal((char *)packed.base + at, image + (N - 4) * LAYER, 4 * LAYER);
    sh_shm_fini(&packed);
    free(image);
}

static void what_was_unpacked_before_a_call_failed_counts(void **state)
{
    uint64_t link_ends[MANY];
    uint32_t from = 2;

    (void)state;
    begin(MANY, PACK_32);
    for (uint32_t i = 0; i < MANY; i++)
        link_ends[i] = (i + 1) * LAYER / 2;
    T.fails_at = 2;
    assert_int_equal(unpack_layers(NULL, NULL, 0, MANY * LAYER, link_ends, &from, MANY, NULL),
                     SH_E_IO);
    assert_int_equal(from, 2 + T.n_seen);
    assert_true(T.n_seen > 0 && from < MANY);
}

static void what_does_not_get_smaller_is_not_packed(void **state)
{
    unsigned char *image = malloc(N * LAYER);
    uint64_t link_ends[N];
    struct sh_shm packed;

    (void)state;
    assert_non_null(image);
    begin(N, PACK_BYTES);
    memset(image, 7, N * LAYER);
    assert_ok(pack_image(NULL, image, link_ends, between, NULL, &packed, NULL));
    assert_null(packed.base);
    begin(0, PACK_BYTES);
    assert_ok(pack_image(NULL, image, link_ends, between, NULL, &packed, NULL));
    assert_null(packed.base);
    free(image);
}

static void it_is_packed_where_copying_takes_longer_than_computing(void **state)
{
    struct msg_wk_model costs = {.copy_ns = 2700, .link_ns = 0.018, .unpack_ns = 0.0008};
    uint64_t link_ends[N];
    double ns[3 * N];

    (void)state;
    begin(N, PACK_32);
    for (uint32_t i = 0; i < N; i++)
        link_ends[i] = (i + 1) * LAYER * 9 / 10;
    for (uint32_t i = 0; i < 3 * N; i++)
        ns[i] = 1000;
    assert_true(pack_gains(NULL, link_ends, ns, 3, &costs));
    for (uint32_t i = 0; i < 3 * N; i++)
        ns[i] = 50000; /* a copy takes 19,000; unpacking, 800 */
    assert_true(pack_gains(NULL, link_ends, ns, 3, &costs));
    costs.unpack_ns = 0.008;
    assert_false(pack_gains(NULL, link_ends, ns, 3, &costs));
    for (uint32_t i = 0; i < N; i++) /* for one batch size of three */
        ns[i] = 1000;
    assert_false(pack_gains(NULL, link_ends, ns, 3, &costs));
    assert_false(pack_gains(NULL, link_ends, ns, 0, &costs));
}

/* As on the cpu device: nothing hides it there. */
static void where_unpacking_takes_longer_than_copying_a_run_has_to_end_sooner(void **state)
{
    struct msg_wk_model costs = {.copy_ns = 2700, .link_ns = 0.018, .unpack_ns = 0.02};
    uint64_t link_ends[N];
    double ns[N];

    (void)state;
    begin(N, PACK_32);
    for (uint32_t i = 0; i < N; i++) {
        link_ends[i] = (i + 1) * LAYER * 9 / 10;
        ns[i] = 1e6; /* it would be 3 % later */
    }
    assert_false(pack_gains(NULL, link_ends, ns, 1, &costs));
    costs.unpack_ns = 0.017;
    assert_true(pack_gains(NULL, link_ends, ns, 1, &costs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layer_can_be_unpacked_by_itself),
        cmocka_unit_test(tables_are_not_packed),
        cmocka_unit_test(what_was_unpacked_before_a_call_failed_counts),
        cmocka_unit_test(what_does_not_get_smaller_is_not_packed),
        cmocka_unit_test(where_unpacking_takes_longer_than_copying_a_run_has_to_end_sooner),
        cmocka_unit_test(it_is_packed_where_copying_takes_longer_than_computing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
