/* test_pack_gains.c - an image is packed where a run gains by it, in its own memory, and its layers
 * come out of it again.
 *
 * Without it: a model that computes longer than it is copied could get slower for a tenth of its
 * bytes; and a layer could be packed over one that has not been read. */
/* uses: executor/worker/pack.o runtime/group.o runtime/pack/pack.o */
/* link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc */
/* link: -Wl,--wrap=pack_layer,--wrap=sh_thread_start */
#include "common/mem.h"
#include "executor/worker/pack.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"
#include "tests/unit/oom.h"
#include "tests/unit/sh_test.h"

#include <errno.h>
#include <pthread.h>

#define N 20u
#define MANY 70u /* more than one call of the device takes */
#define LAYER ((uint64_t)1 << 20)

static struct {
    uint64_t ends[MANY];
    uint32_t n, n_tables, n_between, n_calls,
        fails_at; /* fails_at: the call of dev_unpack(); 0: none */
    enum pack_type types[MANY];
    size_t n_rooms, most_room; /* what was allocated beside the image */
    const void *place;         /* where the last layer was packed to ... */
    uint32_t n_places;         /* ... and how often one was not where the one before it was */
    unsigned n_helpers;
    uint32_t n_started, most_started;
    size_t room_fails_at; /* 0: none */
    pthread_t main;
    struct dev_packed seen[MANY];
    size_t n_seen;
} T;

static pthread_mutex_t LOCK = PTHREAD_MUTEX_INITIALIZER; /* T, where helpers are */

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
    (void)p;
    *out = calloc(T.n + 1u, sizeof(**out));
    *n = 0;
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "no memory for spans");
    for (uint32_t i = 0; i < T.n; i++)
        if (layer_bytes(T.ends, i))
            (*out)[(*n)++] = (struct pack_span){
                .off = layer_begin(T.ends, i), .bytes = layer_bytes(T.ends, i), .type = T.types[i]};
    return SH_OK;
}

void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    bool has_room;

    pthread_mutex_lock(&LOCK);
    T.n_rooms++;
    T.most_room = SH_MAX(T.most_room, n);
    has_room = T.n_rooms != T.room_fails_at;
    pthread_mutex_unlock(&LOCK);
    return !has_room || fails() ? NULL : __real_aligned_alloc(align, n);
}

int __real_sh_thread_start(pthread_t *out, void *(*main)(void *arg), void *arg);
int __wrap_sh_thread_start(pthread_t *out, void *(*main)(void *arg), void *arg);

int __wrap_sh_thread_start(pthread_t *out, void *(*main)(void *arg), void *arg)
{
    if (T.n_started == T.most_started)
        return EAGAIN;
    T.n_started++;
    return __real_sh_thread_start(out, main, arg);
}

int __real_pack_layer(const void *layer, uint64_t bytes, const struct pack_span *spans,
                      size_t n_spans, void *packed, size_t *packed_bytes, struct sh_err *err);
int __wrap_pack_layer(const void *layer, uint64_t bytes, const struct pack_span *spans,
                      size_t n_spans, void *packed, size_t *packed_bytes, struct sh_err *err);

int __wrap_pack_layer(const void *layer, uint64_t bytes, const struct pack_span *spans,
                      size_t n_spans, void *packed, size_t *packed_bytes, struct sh_err *err)
{
    pthread_mutex_lock(&LOCK);
    assert_int_equal((uintptr_t)packed % PACK_ALIGN, 0);
    T.n_places += packed != T.place;
    T.place = packed;
    pthread_mutex_unlock(&LOCK);
    return __real_pack_layer(layer, bytes, spans, n_spans, packed, packed_bytes, err);
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
    T.main = pthread_self();
    T.most_started = UINT32_MAX;
    T.n = n;
    for (uint32_t i = 0; i < n; i++) {
        T.types[i] = type;
        T.ends[i] = (i + 1) * LAYER;
    }
}

static void between(void *arg)
{
    (void)arg;
    assert_true(pthread_equal(pthread_self(), T.main)); /* it serves runs */
    T.n_between++;
}

/* ------------------------------------------------------------------ in its own memory */

#define GUARD 4096u
#define GUARD_BYTE 0xa5

struct world {                          /* an image, and the same packed elsewhere */
    unsigned char *was, *image, *apart; /* OWNED */
    uint64_t bytes, apart_bytes, apart_ends[MANY], link_ends[MANY];
    bool gets_smaller, is_packed;
};

static uint32_t seed = 2463534242u;

static uint32_t draw(void)
{
    return sh_test_random(&seed);
}

/* Numbers in tf32 of few exponents, or any. */
static void fill_layer(unsigned char *to, uint64_t bytes, bool gets_smaller)
{
    for (uint64_t at = 0; at < bytes; at += 4) {
        const uint32_t v = gets_smaller ? 0x3c000000u | (draw() & 0x81ffe000u) : draw();

        memcpy(to + at, &v, sizeof(v));
    }
}

/* Each layer by itself, tables behind them. */
static void pack_apart(struct world *w)
{
    const uint32_t n = T.n - T.n_tables;
    const uint64_t begin = layer_begin(T.ends, n);
    uint64_t to = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct pack_span span = {.bytes = layer_bytes(T.ends, i), .type = T.types[i]};
        size_t bytes;

        assert_ok(__real_pack_layer(w->was + layer_begin(T.ends, i), span.bytes, &span,
                                    span.bytes > 0, w->apart + to, &bytes, NULL));
        w->apart_ends[i] = to += bytes;
    }
    w->gets_smaller = to > 0 && (double)to <= 0.98 * (double)begin;
    if (T.n_tables)
        to = SH_ALIGN_UP(to, (uint64_t)DEV_TABLES_ALIGN);
    memcpy(w->apart + to, w->was + begin, w->bytes - begin);
    for (uint32_t i = n; i < T.n; i++)
        w->apart_ends[i] = to + T.ends[i] - begin;
    w->apart_bytes = T.n ? w->apart_ends[T.n - 1] : 0;
}

/* Of the layers in T; `smaller`: of which bit i says so of layer i % 64. */
static void make(struct world *w, uint64_t smaller)
{
    const uint64_t bytes = layer_begin(T.ends, T.n);
    const size_t most = pack_bound(bytes, T.n) + MANY * pack_bound(0, 0) + DEV_TABLES_ALIGN;

    *w = (struct world){.bytes = bytes,
                        .was = malloc(bytes + 1),
                        .image = malloc(bytes + GUARD),
                        .apart = aligned_alloc(PACK_ALIGN, SH_ALIGN_UP(most, (size_t)PACK_ALIGN))};
    assert_true(w->was && w->image && w->apart);
    memset(w->apart, 0, most);
    memset(w->image + bytes, GUARD_BYTE, GUARD);
    for (uint32_t i = 0; i < T.n; i++)
        fill_layer(w->was + layer_begin(T.ends, i), layer_bytes(T.ends, i), smaller >> i % 64 & 1);
    memcpy(w->image, w->was, bytes);
    pack_apart(w);
    T.n_rooms = T.most_room = 0;
}

static void drop(struct world *w)
{
    free(w->was);
    free(w->image);
    free(w->apart);
}

/* The same bytes, where they are no fewer than before. */
static void pack_as_apart(struct world *w)
{
    struct sh_err err = {0};

    assert_ok_err(
        pack_image(NULL, w->image, w->link_ends, T.n_helpers, between, NULL, &w->is_packed, &err),
        &err);
    assert_int_equal(w->is_packed, w->gets_smaller);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(w->image[w->bytes + i], GUARD_BYTE);
    if (!w->is_packed)
        return;
    assert_memory_equal(w->link_ends, w->apart_ends, T.n * sizeof(*w->link_ends));
    assert_memory_equal(w->image, w->apart, w->apart_bytes);
}

static void each_layer_can_be_unpacked_by_itself(void **state)
{
    unsigned char *back = malloc(LAYER);
    uint32_t from = 3;
    struct world w;

    (void)state;
    assert_non_null(back);
    begin(N, PACK_32);
    make(&w, UINT64_MAX);
    pack_as_apart(&w);
    assert_true(w.is_packed);
    assert_true(w.link_ends[N - 1] < N * LAYER / 2);
    assert_true(T.n_between >= 3);
    assert_ok(unpack_layers(NULL, NULL, 4096, 8192, w.link_ends, &from, N, NULL));
    assert_int_equal(from, N);
    assert_int_equal(T.n_seen, N - 3);
    for (size_t k = 0; k < T.n_seen; k++) {
        const struct dev_packed *l = &T.seen[k];

        assert_int_equal(l->to, 4096 + (k + 3) * LAYER);
        assert_int_equal(l->bytes, LAYER);
        assert_ok(pack_unpack(w.image + (l->at - 8192), l->packed_bytes, back, LAYER, NULL));
        assert_memory_equal(back, w.was + (k + 3) * LAYER, LAYER);
    }
    drop(&w);
    free(back);
}

/* Who reads them in host memory wants them as they are, and from a page on. They lie over where
 * they were, in part. */
static void tables_are_not_packed(void **state)
{
    struct world w;
    uint64_t at;

    (void)state;
    begin(N, PACK_32);
    T.n_tables = N - 4;
    make(&w, UINT64_MAX);
    pack_as_apart(&w);
    assert_true(w.is_packed);
    at = SH_ALIGN_UP(w.link_ends[3], (uint64_t)DEV_TABLES_ALIGN);
    assert_true(w.link_ends[3] < 2 * LAYER && w.link_ends[3] < at);
    for (uint32_t i = 1; i <= T.n_tables; i++)
        assert_int_equal(w.link_ends[3 + i], at + i * LAYER);
    assert_memory_equal(w.image + at, w.was + 4 * LAYER, T.n_tables * LAYER);
    drop(&w);
}

/* No second image: what is beside it is for one layer, and as much again for what has no room. */
static void what_is_packed_goes_to_where_the_image_was_read(void **state)
{
    struct world w;

    (void)state;
    begin(N, PACK_32);
    make(&w, UINT64_MAX);
    pack_as_apart(&w);
    assert_int_equal(T.n_rooms, 1);
    assert_int_equal(T.n_places, 1); /* in the processor's cache */
    assert_true(T.most_room <= 2 * pack_bound(LAYER, 1) + PACK_ALIGN);
    drop(&w);
}

/* They are larger packed than they are, and those behind them have not been read. */
static void tiny_first_layers_wait_for_room(void **state)
{
    struct world w;

    (void)state;
    begin(MANY, PACK_32);
    for (uint32_t i = 0; i < MANY; i++)
        T.ends[i] = i < 60 ? (i + 1) * 256 : T.ends[i - 1] + 4096;
    make(&w, UINT64_MAX);
    assert_true(w.apart_ends[59] > T.ends[59] + 4096); /* it is what this is about */
    pack_as_apart(&w);
    assert_true(w.is_packed);
    assert_true(T.n_rooms < 10);
    drop(&w);
}

static void one_layer_is_packed_over_itself(void **state)
{
    struct world w;

    (void)state;
    begin(1, PACK_32);
    make(&w, UINT64_MAX);
    pack_as_apart(&w);
    assert_true(w.is_packed);
    drop(&w);
}

static enum pack_type draw_type(void)
{
    static const enum pack_type TYPES[] = {PACK_32, PACK_32, PACK_32, PACK_F16, PACK_BYTES};

    return TYPES[draw() % SH_ARRAY_LEN(TYPES)];
}

/* Of all sizes, also none, in any order, with tables or without. */
static void any_image_is_packed_as_its_layers_are(void **state)
{
    uint32_t n_packed = 0, n_tables = 0;

    (void)state;
    for (uint32_t k = 0; k < 500; k++) {
        const uint32_t n = 1 + draw() % (k % 5 ? 12 : MANY), tables = draw() % 3 * (draw() % 2);
        const uint64_t smaller = (uint64_t)(draw() | draw()) << 32 | (draw() | draw());
        struct world w;
        uint64_t to = 0;

        begin(n, PACK_32);
        T.n_helpers = k % 3;
        T.n_tables = SH_MIN(tables, n - 1);
        for (uint32_t i = 0; i < n; i++) {
            T.types[i] = draw_type();
            to += draw() % 8 ? (uint64_t)(1 + draw() % (1u << draw() % 13)) * 16 : 0;
            if (T.n_tables && i + 1 == n - T.n_tables)
                to = SH_ALIGN_UP(to, (uint64_t)DEV_TABLES_ALIGN);
            T.ends[i] = to;
        }
        make(&w, smaller);
        pack_as_apart(&w);
        n_packed += w.is_packed;
        n_tables += w.is_packed && T.n_tables;
        drop(&w);
    }
    assert_true(n_packed > 100 && n_packed < 400 && n_tables > 20);
}

static void no_memory_is_an_error(void **state)
{
    uint32_t n_failed = 0;
    int rc = SH_E_NOMEM;
    struct world w;

    (void)state;
    for (int n = 0; rc; n++) {
        struct sh_err err = {0};

        begin(4, PACK_32);
        make(&w, UINT64_MAX);
        w.is_packed = true;
        calls_left = n;
        rc = pack_image(NULL, w.image, w.link_ends, T.n_helpers, between, NULL, &w.is_packed, &err);
        calls_left = -1;
        assert_int_equal(w.is_packed, rc == SH_OK);
        if (rc)
            assert_fails(rc, SH_E_NOMEM, &err, "memory");
        n_failed += rc != SH_OK;
        drop(&w);
    }
    assert_true(n_failed >= 3); /* spans, room, and what packs */
}

/* Each with a buffer for one layer; between runs are served by the thread that does that. */
static void helpers_pack_the_same(void **state)
{
    (void)state;
    for (uint32_t started = 0; started <= 3; started++) {
        struct world w;

        begin(N, PACK_32);
        T.n_helpers = 3;
        T.most_started = started;
        make(&w, UINT64_MAX);
        pack_as_apart(&w);
        assert_true(w.is_packed);
        assert_int_equal(T.n_started, started);
        assert_true(T.n_between > 0);
        assert_true(T.n_rooms <= started + 1); /* nothing is larger than it was */
        assert_true(T.most_room <= 2 * pack_bound(LAYER, 1) + PACK_ALIGN);
        drop(&w);
    }
    assert_int_equal(pack_helpers(2), 0);
    assert_int_equal(pack_helpers(64), 3);
}

/* Whoever had none: all of them end, and it is said. */
static void a_helper_without_memory_is_an_error(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 4; n++) {
        struct sh_err err = {0};
        struct world w;
        int rc;

        begin(N, PACK_32);
        T.n_helpers = 3;
        make(&w, UINT64_MAX);
        T.room_fails_at = n;
        rc = pack_image(NULL, w.image, w.link_ends, T.n_helpers, between, NULL, &w.is_packed, &err);
        if (T.n_rooms >= n)
            assert_fails(rc, SH_E_NOMEM, &err, "memory");
        else /* fewer did all */
            assert_ok_err(rc, &err);
        assert_int_equal(w.is_packed, rc == SH_OK);
        drop(&w);
    }
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
    struct world w;

    (void)state;
    begin(N, PACK_BYTES);
    make(&w, 0);
    pack_as_apart(&w);
    assert_false(w.is_packed);
    drop(&w);
    begin(0, PACK_BYTES);
    make(&w, 0);
    pack_as_apart(&w);
    assert_false(w.is_packed);
    drop(&w);
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
        cmocka_unit_test(what_is_packed_goes_to_where_the_image_was_read),
        cmocka_unit_test(tiny_first_layers_wait_for_room),
        cmocka_unit_test(one_layer_is_packed_over_itself),
        cmocka_unit_test(any_image_is_packed_as_its_layers_are),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(helpers_pack_the_same),
        cmocka_unit_test(a_helper_without_memory_is_an_error),
        cmocka_unit_test(what_was_unpacked_before_a_call_failed_counts),
        cmocka_unit_test(what_does_not_get_smaller_is_not_packed),
        cmocka_unit_test(where_unpacking_takes_longer_than_copying_a_run_has_to_end_sooner),
        cmocka_unit_test(it_is_packed_where_copying_takes_longer_than_computing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
