/* test_pack_gains.c - an image is packed where a run gains by it, and its layers come out of it
 * again.
 *
 * Without it: a model that computes longer than it is copied would only get slower. */
/* uses: executor/worker/pack.o runtime/group.o runtime/pack/pack.o */
#include "common/mem.h"
#include "executor/worker/pack.h"
#include "runtime/pack/pack.h"
#include "tests/unit/sh_test.h"

#define N 20u
#define LAYER ((uint64_t)1 << 20)

static struct {
    uint64_t ends[N];
    uint32_t n, n_between;
    enum pack_type type;
    struct dev_packed seen[N];
    size_t n_seen;
} T;

uint32_t program_n_layers(const struct program *p)
{
    (void)p;
    return T.n;
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
        (*out)[*n] = (struct pack_span){.off = *n * LAYER, .bytes = LAYER, .type = T.type};
    return SH_OK;
}

int dev_unpack(struct dev *d, const struct dev_packed *layers, size_t n, struct sh_err *err)
{
    (void)d, (void)err;
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
    assert_ok(unpack_layers(NULL, NULL, 4096, 8192, link_ends, 3, N, NULL));
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
    const struct msg_wk_model costs = {.copy_ns = 2700, .link_ns = 0.018, .unpack_ns = 0.0008};
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
        ns[i] = 50000; /* a copy takes 19,000 */
    assert_false(pack_gains(NULL, link_ends, ns, 3, &costs));
    for (uint32_t i = 0; i < N; i++) /* for one batch size of three */
        ns[i] = 1000;
    assert_false(pack_gains(NULL, link_ends, ns, 3, &costs));
    assert_false(pack_gains(NULL, link_ends, ns, 0, &costs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layer_can_be_unpacked_by_itself),
        cmocka_unit_test(what_does_not_get_smaller_is_not_packed),
        cmocka_unit_test(it_is_packed_where_copying_takes_longer_than_computing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
