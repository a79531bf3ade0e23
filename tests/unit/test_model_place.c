/* test_model_place.c - what the scheduler is told of where images are, and pinned ones.
 *
 * Without it: the scheduler could foresee the unpacking of what a run has unpacked, or none of what
 * is packed again, for as long as nothing else changes; a run could fail although a pinned image
 * has the memory that it lacks. */
/* uses: executor/models/pin.o executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o */
#include "common/clock.h"
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

#define IMAGE (4u * DEV_BLOCK)
#define UNPACK SH_MS(3)

static struct {
    struct model m;
    struct residency *res;
    struct msg_model_place said; /* the last one */
    unsigned n_said, n_sent, n_yields, n_looks;
    uint64_t n_evicted;
    struct store_told told;
    bool is_idle, is_apart, has_no_room;
    uint64_t resident;
    int64_t unpack_ns;
} T;

static bool is_idle(void *arg)
{
    (void)arg;
    return T.is_idle;
}

const struct store_env *store__env(const struct store *s)
{
    static const struct store_env ENV = {.executor = "e"};

    (void)s;
    return &ENV;
}

const struct store_users *store__users(const struct store *s)
{
    static const struct store_users USERS = {.is_idle = is_idle};

    (void)s;
    return &USERS;
}

struct model *store_next(struct store *s, const struct model *m)
{
    (void)s;
    return m ? NULL : &T.m;
}

struct model *store_next_shape(struct store *s, const struct model *m)
{
    (void)s, (void)m;
    return NULL;
}

struct model *store_find(struct store *s, int64_t handle)
{
    (void)s;
    return handle == T.m.handle ? &T.m : NULL;
}

uint64_t share__shared(const struct model *m)
{
    (void)m;
    return 0;
}

uint64_t share__bytes(const struct model *m)
{
    return m->image.bytes;
}

struct store_told *store__told(struct store *s)
{
    (void)s;
    return &T.told;
}

uint64_t space_n_evicted(const struct space *s)
{
    (void)s;
    return T.n_evicted;
}

struct residency *space_residency(struct space *s)
{
    (void)s;
    return T.res;
}

uint64_t model_resident_bytes(const struct model *m)
{
    (void)m;
    return T.resident;
}

uint64_t model_told_bytes(const struct model *m)
{
    return model_resident_bytes(m); /* it has no tables */
}

int64_t model_unpack_ns(const struct model *m)
{
    (void)m;
    return T.unpack_ns;
}

bool model_is_apart(const struct model *m)
{
    (void)m;
    return T.is_apart;
}

bool model_yield_apart(struct model *m)
{
    (void)m;
    T.n_yields++;
    T.has_no_room = false;
    return T.is_apart;
}

void apart__second(struct model *m)
{
    assert_ptr_equal(m, &T.m);
    T.n_looks++;
}

void tables__second(struct model *m)
{
    (void)m;
}

const struct msg_batch *model_batch(const struct model *m, uint32_t batch, const double **layer_ns)
{
    static const struct msg_batch B;

    (void)m, (void)batch;
    *layer_ns = NULL;
    return &B;
}

int model_transmit(struct model *m, const double *layer_ns, struct sh_err *err)
{
    (void)m, (void)layer_ns;
    T.n_sent++;
    return T.has_no_room ? SH_FAIL(err, SH_E_DEVMEM, "full") : SH_OK;
}

void model_report(struct model *m)
{
    (void)m;
}

uint64_t host_held(const struct model *m)
{
    (void)m;
    return 0;
}

uint64_t tier_disk_bytes(const struct model *m)
{
    (void)m;
    return 0;
}

bool tx_image_busy(const struct tx_image *im)
{
    (void)im;
    return false;
}

void seen_second(struct store *s)
{
    (void)s;
}

void uplink_send(const struct uplink *u, const struct sh_msg *m)
{
    (void)u;
    assert_int_equal(m->type, MSG_MODEL_PLACE);
    T.said = m->u.model_place;
    T.n_said++;
}

/* ------------------------------------------------------------------ */

static int set_up(void **state)
{
    struct residency_image im = {.n_blocks = 4, .keep_blocks = 4, .tag = 1};
    const struct residency_conf conf = {.n_chance = 1};
    static char name[] = "m";
    int rc;

    (void)state;
    memset(&T, 0, sizeof(T));
    rc = residency_new(8, &conf, &T.res, NULL);
    T.m = (struct model){
        .handle = 7, .name = name, .phase = MODEL_READY, .has_image = true, .image_bytes = IMAGE};
    return rc ? rc : residency_add(T.res, &im, &T.m.res, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    residency_free(T.res);
    return 0;
}

static void is_unpacked(void)
{
    T.resident = IMAGE;
    T.unpack_ns = 0;
}

static void is_packed(void)
{
    T.resident = 0;
    T.is_apart = true;
    T.unpack_ns = UNPACK;
}

static void assert_said(unsigned n, uint64_t bytes, int64_t unpack_ns)
{
    assert_int_equal(T.n_said, n);
    assert_int_equal(T.said.device_bytes, bytes);
    assert_int_equal(T.said.unpack_ns, unpack_ns);
}

static void what_has_changed_is_told_once(void **state)
{
    (void)state;
    store_second(NULL);
    assert_int_equal(T.n_said, 0); /* nothing is there, as a new scheduler thinks */
    is_packed();
    store_second(NULL);
    assert_said(1, IMAGE, UNPACK);
    store_second(NULL);
    assert_int_equal(T.n_said, 1);
    is_unpacked();
    store_second(NULL);
    assert_said(2, IMAGE, 0);
    assert_int_equal(T.n_looks, 4);
}

/* Within a second a run unpacks it, says so, and others take its place. */
static void what_is_packed_again_as_before_is_told_again(void **state)
{
    int64_t unpack_ns = -1;

    (void)state;
    is_packed();
    store_second(NULL);
    is_unpacked();
    assert_int_equal(store_say_place(&T.m, &unpack_ns), IMAGE); /* RUN_DONE */
    assert_int_equal(unpack_ns, 0);
    is_packed();
    T.n_evicted++;
    store_tell_evicted(NULL);
    assert_said(2, IMAGE, UNPACK);
    store_tell_evicted(NULL);
    store_second(NULL);
    assert_int_equal(T.n_said, 2);
}

/* The scheduler did not listen to what was told while the run was there. */
static void what_another_message_says_counts_as_told(void **state)
{
    int64_t unpack_ns = -1;

    (void)state;
    is_packed();
    assert_int_equal(store_say_place(&T.m, &unpack_ns), IMAGE);
    assert_int_equal(unpack_ns, UNPACK);
    store_second(NULL);
    assert_int_equal(T.n_said, 0);
    assert_int_equal(store_say_place(&T.m, NULL), IMAGE); /* MODEL_STATE: it is not packed */
    store_second(NULL);
    assert_said(1, IMAGE, UNPACK);
    T.is_apart = false; /* it is gone, and so was what MODEL_STATE has said */
    T.unpack_ns = 0;
    assert_int_equal(store_say_place(&T.m, NULL), 0);
    T.resident = IMAGE;
    store_second(NULL);
    assert_said(2, IMAGE, 0);
}

/* ------------------------------------------------------------------ pinned */

static void a_pinned_image_comes_back_when_nothing_is_to_be_done(void **state)
{
    (void)state;
    store_pin(NULL, 7, true);
    assert_true(residency_is_sticky(T.res, T.m.res));
    store_second(NULL);
    assert_int_equal(T.n_sent, 0);
    T.is_idle = true;
    store_second(NULL);
    assert_int_equal(T.n_sent, 1);
    T.is_apart = T.has_no_room = true;
    store_second(NULL);
    assert_int_equal(T.n_sent, 3); /* once more, in the place of its own packed copy */
    assert_int_equal(T.n_yields, 1);
    is_unpacked();
    store_second(NULL);
    assert_int_equal(T.n_sent, 3);
    store_pin(NULL, 7, false);
    assert_false(residency_is_sticky(T.res, T.m.res));
}

/* A run that finds no memory tries again only if that has changed something. */
static void what_a_pinned_image_has_can_be_given_up_for_a_while(void **state)
{
    (void)state;
    store_pin(NULL, 7, true);
    assert_false(store_yield_pins(NULL)); /* nothing of it is there */
    T.is_idle = true;
    store_second(NULL);
    is_packed();
    assert_true(store_yield_pins(NULL)); /* a copy of it is */
    assert_false(residency_is_sticky(T.res, T.m.res));
    assert_false(store_yield_pins(NULL));
    store_second(NULL);
    assert_true(residency_is_sticky(T.res, T.m.res));
    is_unpacked();
    T.is_apart = false;
    assert_true(store_yield_pins(NULL));
}

int main(void)
{
#define T_(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T_(what_has_changed_is_told_once),
        T_(what_is_packed_again_as_before_is_told_again),
        T_(what_another_message_says_counts_as_told),
        T_(a_pinned_image_comes_back_when_nothing_is_to_be_done),
        T_(what_a_pinned_image_has_can_be_given_up_for_a_while),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
