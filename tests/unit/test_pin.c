/* test_pin.c - what the scheduler is told of where images are, once a second. Without it: each
 * version that comes to share with a hundred others would make a hundred messages, and of many
 * versions the last would never have their turn. */
/* uses: executor/models/pin.o */
#include "common/units.h"
#include "executor/models/apart.h"
#include "executor/models/host.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/models/seen.h"
#include "executor/models/share.h"
#include "executor/models/tables.h"
#include "executor/models/tier.h"
#include "tests/unit/sh_test.h"

#define N 300u
#define AT_ONCE 128u
#define PROGRAM 1000u
#define PART ((uint64_t)160 << 20)

static struct world {
    struct model m[N];
    uint64_t part[N], shared[N], program[N];
    unsigned n_told[N];
    struct store_told told;
} w;

static const struct store_env env = {.executor = "x"};

static bool no(void *arg)
{
    (void)arg;
    return false;
}

static const struct store_users users = {.is_idle = no};

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &env;
}

const struct store_users *store__users(const struct store *s)
{
    (void)s;
    return &users;
}

struct store_told *store__told(struct store *s)
{
    (void)s;
    return &w.told;
}

struct model *store_next(struct store *s, const struct model *m)
{
    size_t i = m ? (size_t)(m - w.m) + 1 : 0;

    (void)s;
    while (i < N && !w.m[i].handle)
        i++;
    return i < N ? &w.m[i] : NULL;
}

struct model *store_next_shape(struct store *s, const struct model *m)
{
    (void)s, (void)m;
    return NULL;
}

struct model *store_find(struct store *s, int64_t handle)
{
    (void)s;
    return handle && w.m[handle - 1].handle ? &w.m[handle - 1] : NULL;
}

uint64_t share__bytes(const struct model *m)
{
    return w.part[m - w.m];
}

uint64_t share__shared(const struct model *m)
{
    return w.shared[m - w.m];
}

uint64_t host_held(const struct model *m)
{
    return w.part[m - w.m] + w.program[m - w.m];
}

void uplink_send(const struct uplink *u, const struct sh_msg *m)
{
    (void)u;
    assert_int_equal(m->type, MSG_MODEL_PLACE);
    w.n_told[m->u.model_place.version_id - 1]++;
    assert_int_equal(m->u.model_place.host_bytes, host_held(&w.m[m->u.model_place.version_id - 1]));
    assert_int_equal(m->u.model_place.shared_bytes, w.shared[m->u.model_place.version_id - 1]);
}

/* Nothing of them is on the device, pinned, or apart. */
/* clang-format off */
struct residency *space_residency(struct space *s) { (void)s; return NULL; }
uint64_t space_n_evicted(const struct space *s) { (void)s; return 0; }
void residency_stick(struct residency *r, uint32_t id, bool is) { (void)r, (void)id, (void)is; }
bool residency_is_sticky(const struct residency *r, uint32_t i) { (void)r, (void)i; return false; }
bool residency_yield(struct residency *r, bool yields) { (void)r, (void)yields; return false; }
bool model_is_apart(const struct model *m) { (void)m; return false; }
bool model_yield_apart(struct model *m) { (void)m; return false; }
uint64_t model_told_bytes(const struct model *m) { (void)m; return 0; }
uint64_t model_resident_bytes(const struct model *m) { (void)m; return 0; }
int64_t model_unpack_ns(const struct model *m) { (void)m; return 0; }
uint64_t tier_disk_bytes(const struct model *m) { (void)m; return 0; }
bool tx_image_busy(const struct tx_image *im) { (void)im; return false; }
void tables__second(struct model *m) { (void)m; }
void apart__second(struct model *m) { (void)m; }
void seen_second(struct store *s) { (void)s; }
void model_report(struct model *m) { (void)m; }
/* clang-format on */

const struct msg_batch *model_batch(const struct model *m, uint32_t batch, const double **layer_ns)
{
    (void)m, (void)batch, (void)layer_ns;
    return NULL;
}

int model_transmit(struct model *m, const double *layer_ns, struct sh_err *err)
{
    (void)m, (void)layer_ns;
    return SH_FAIL(err, SH_E_BUG, "nothing is pinned");
}

static int set_up(void **state)
{
    (void)state;
    w = (struct world){.told.last = 0};
    for (size_t i = 0; i < N; i++) {
        w.m[i] = (struct model){.handle = (int64_t)i + 1, .phase = MODEL_READY};
        w.part[i] = PART;
        w.program[i] = PROGRAM;
    }
    return 0;
}

/* Messages so far, of which each has had so many, or one more. */
static unsigned told(unsigned each)
{
    unsigned n = 0;

    for (size_t i = 0; i < N; i++) {
        n += w.n_told[i];
        if (w.m[i].handle)
            assert_in_range(w.n_told[i], each, each + 1);
    }
    return n;
}

static void all_have_their_turn_whatever_changes(void **state)
{
    (void)state;
    for (unsigned s = 1; s <= 30; s++) {
        store_second(NULL);
        assert_int_equal(told(s * AT_ONCE / N), s * AT_ONCE);
        for (size_t i = 0; i < N; i++)
            w.part[i] += PART;
    }
}

static void who_was_told_last_may_go(void **state)
{
    (void)state;
    store_second(NULL);
    assert_true(w.told.last > 0);
    w.m[w.told.last - 1].handle = 0;
    w.n_told[w.told.last - 1] = 0;
    for (int s = 0; s < 4; s++)
        store_second(NULL);
    assert_int_equal(told(1), N - 1);
}

static void a_small_change_of_its_part_is_not_told(void **state)
{
    (void)state;
    for (int s = 0; s < 3; s++)
        store_second(NULL);
    assert_int_equal(told(1), N);
    w.part[7] += PART / 16;
    w.part[8] -= PART / 16;
    store_second(NULL);
    assert_int_equal(told(1), N);
    w.part[7]++; /* many small ones are a large one */
    w.part[8]--;
    store_second(NULL);
    assert_int_equal(told(1), N + 2);
    w.program[9]++; /* of programs each is */
    w.part[10] = 0; /* it is on disk alone */
    store_second(NULL);
    assert_int_equal(told(1), N + 4);
    w.shared[11] = PART / 16;
    store_second(NULL);
    assert_int_equal(told(1), N + 4);
    w.shared[11]++; /* who leaves alone frees so much less */
    w.part[12] /= 2;
    w.shared[12] = w.part[12];
    store_second(NULL);
    assert_int_equal(told(1), N + 6);
}

#define TEST(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_have_their_turn_whatever_changes),
        TEST(who_was_told_last_may_go),
        TEST(a_small_change_of_its_part_is_not_told),
    };

    return cmocka_run_group_tests_name("pin", tests, NULL, NULL);
}
