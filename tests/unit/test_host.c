/* test_host.c - what an image that shares with others counts for when room is looked for. Without
 * it: versions that share would lose their workers for good where others have filled what sharing
 * freed, and one that came without room would push out all that it shares with. */
/* uses: executor/models/host.o */
#include "executor/memory/leave.h"
#include "executor/models/apart.h"
#include "executor/models/host.h"
#include "executor/models/model_int.h"
#include "executor/models/share.h"
#include "executor/models/tier.h"
#include "tests/unit/sh_test.h"

#define N 4u
#define COMMON 900u /* of an image, what all have alike */
#define OWN 100u
#define PROGRAM 10u
#define WORKERS 2u

static struct world {
    struct model m[N];
    uint64_t limit;
    unsigned n_evicted;
} w;

static struct store_env env = {.executor = "x"};
static struct host_quotas quotas;
static struct store_shapes shapes;

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    env.host_bytes = (int64_t)w.limit;
    return &env;
}

struct host_quotas *store__host_quotas(struct store *s)
{
    (void)s;
    return &quotas;
}

struct store_shapes *store__shapes(struct store *s)
{
    (void)s;
    return &shapes;
}

struct model *store_next(struct store *s, const struct model *m)
{
    const size_t i = m ? (size_t)(m - w.m) + 1 : 0;

    (void)s;
    return i < N ? &w.m[i] : NULL;
}

struct model *store_next_shape(struct store *s, const struct model *m)
{
    (void)s, (void)m;
    return NULL;
}

static unsigned n_there(void)
{
    unsigned n = 0;

    for (size_t i = 0; i < N; i++)
        n += w.m[i].image.base != NULL;
    return n;
}

uint64_t share__bytes(const struct model *m)
{
    return m->image.base ? OWN + COMMON / n_there() : 0;
}

/* Each of the others may go, and the last one takes what they have alike along. */
uint64_t tier_room(struct store *s, uint32_t only_tag, const struct model *spare)
{
    const bool stays = spare->image.base != NULL;
    const unsigned n = n_there() - stays;

    (void)s, (void)only_tag;
    return n * OWN + (n && !stays ? COMMON : 0);
}

uint64_t tier_make_room(struct store *s, uint64_t bytes, uint32_t only_tag,
                        const struct model *spare)
{
    uint64_t freed = 0;

    (void)s, (void)only_tag;
    for (size_t i = 0; i < N && freed < bytes; i++)
        if (&w.m[i] != spare && w.m[i].image.base) {
            w.m[i].image.base = NULL;
            freed += n_there() ? OWN : OWN + COMMON;
            w.n_evicted++;
        }
    return freed;
}

/* clang-format off */
size_t pool_size(const struct pool *p) { (void)p; return WORKERS; }
struct worker *pool_at(struct pool *p, size_t i) { (void)p, (void)i; return NULL; }
bool worker_has_model(const struct worker *v, int64_t h) { (void)v, (void)h; return true; }
uint64_t tier_disk_bytes(const struct model *m) { (void)m; return 0; }
uint64_t store_apart_bytes(struct store *s) { (void)s; return 0; }
uint64_t share_saved_bytes(struct store *s) { (void)s; return 0; }
size_t space_bytes(const struct space *s, enum arena_kind k) { (void)s, (void)k; return 0; }
/* clang-format on */

int space_tag(struct space *s, const char *tenant, uint32_t *out, struct sh_err *err)
{
    (void)s, (void)tenant, (void)out;
    return SH_FAIL(err, SH_E_BUG, "nobody has a quota");
}

/* All of one tenant, which may take all there is. */
static int set_up(void **state)
{
    static char image[1];
    static uint64_t most = UINT64_MAX;

    (void)state;
    w = (struct world){.limit = 10000};
    quotas = (struct host_quotas){.max = &most, .n = 1, .cap = 1};
    for (size_t i = 0; i < N; i++) {
        w.m[i] = (struct model){.handle = (int64_t)i + 1,
                                .phase = MODEL_READY,
                                .link_bytes = COMMON + OWN,
                                .program_bytes = PROGRAM,
                                .image = {.base = image, .bytes = COMMON + OWN}};
        w.m[i].base = &w.m[i];
    }
    return 0;
}

/* All of them, as they are. */
static uint64_t all(void)
{
    return COMMON + N * (OWN + WORKERS * PROGRAM);
}

static void a_worker_takes_an_image_that_is_there_as_it_counts(void **state)
{
    struct model *m = &w.m[0];

    (void)state;
    w.limit = all();
    assert_int_equal(host_left_for(m, false),
                     WORKERS * PROGRAM + tier_room(NULL, LEAVE_ANY, m)); /* if all others leave */
    assert_ok(host_check(m, COMMON + OWN, PROGRAM, NULL));
    assert_int_equal(w.n_evicted, 0);
}

static void one_that_is_away_needs_room_for_all_of_it(void **state)
{
    struct model *m = &w.m[0];

    (void)state;
    m->image.base = NULL;
    w.limit = all() + COMMON - 1;
    assert_int_equal(host_left_for(m, false),
                     w.limit - (N - 1) * WORKERS * PROGRAM - (COMMON + OWN));
    assert_true(host_make_room(m, COMMON + OWN, PROGRAM));
    assert_int_equal(w.n_evicted, 1);
}

static void one_that_has_come_to_share_pushes_nobody_out(void **state)
{
    (void)state;
    w.limit = all();
    assert_true(host_make_room(&w.m[0], COMMON + OWN, PROGRAM));
    assert_int_equal(w.n_evicted, 0);
}

/* Its part of what they shared becomes its own when they leave. */
static void what_siblings_leave_to_it_is_not_room(void **state)
{
    struct model *m = &w.m[0];
    struct sh_err err = {0};

    (void)state;
    w.limit = COMMON + OWN + N * WORKERS * PROGRAM;
    assert_true(host_make_room(m, COMMON + OWN, PROGRAM));
    assert_int_equal(w.n_evicted, N - 1);
    assert_true(set_up(NULL) == 0);
    w.limit = COMMON + OWN + N * WORKERS * PROGRAM - 1;
    assert_false(host_make_room(m, COMMON + OWN, PROGRAM));
    assert_true(set_up(NULL) == 0);
    w.limit = COMMON + OWN + N * WORKERS * PROGRAM - 1;
    assert_fails(host_check(m, COMMON + OWN, PROGRAM, &err), SH_E_QUOTA, &err, "host memory");
    assert_int_equal(w.n_evicted, 0); /* nothing leaves in vain */
    assert_true(m->short_bytes > 0);
}

#define TEST(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_worker_takes_an_image_that_is_there_as_it_counts),
        TEST(one_that_is_away_needs_room_for_all_of_it),
        TEST(one_that_has_come_to_share_pushes_nobody_out),
        TEST(what_siblings_leave_to_it_is_not_room),
    };

    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
