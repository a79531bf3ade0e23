/* test_model_ahead.c - images that come to the device before somebody asks for them. Without it:
 * one could go on taking the link from a run that waits, hold memory that training needs, stay
 * pinned for ever, or be broken in silence; what has come could be counted wrongly. */
/* uses: executor/models/ahead.o */
/* link: -Wl,--wrap=sh_metric_add */
#include "common/metrics.h"
#include "executor/models/apart.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/models/tables.h"
#include "tests/unit/sh_test.h"

#define IMAGE (8u * DEV_BLOCK)
#define GROUP (2u * DEV_BLOCK)

/* What the others would say, and what they were told. */
static struct world {
    struct model models[2];
    bool is_quiet, has_spare, has_spare_once_cleared, is_last, refuses_place, refuses_copy;
    bool refuses_mark, others_are_busy;
    double backlog_ns;
    tx_done_fn *on_mark; /* the mark behind the last group */
    void *mark_of;
    unsigned n_told, n_arrived, n_broken, n_forced, n_cleared, n_pins, n_parts, n_tables_lost;
    uint32_t kept_blocks;
    double brought, given_up;
} w;

static bool is_quiet(void *arg)
{
    (void)arg;
    return w.is_quiet;
}

static const struct store_env ENV = {.executor = "x"};
static const struct store_users USERS = {.is_quiet = is_quiet};

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &ENV;
}

const struct store_users *store__users(const struct store *s)
{
    (void)s;
    return &USERS;
}

struct model *store_next(struct store *s, const struct model *m)
{
    (void)s;
    return !m ? &w.models[0] : m == &w.models[0] ? &w.models[1] : NULL;
}

void store_tell_place(struct model *m)
{
    (void)m;
    w.n_told++;
}

void model__arrived(void *m)
{
    model_unpin(m);
    w.n_arrived++;
}

void model__break(struct model *m)
{
    (void)m;
    w.n_broken++;
}

int model__place(struct model *m, bool with_tables, bool may_evict, uint64_t *hit_out,
                 struct sh_err *err)
{
    assert_true(with_tables);
    assert_false(may_evict);
    *hit_out = 0;
    if (w.refuses_place)
        return SH_FAIL(err, SH_E_DEVMEM, "full");
    m->is_placed = true;
    w.n_pins++;
    return SH_OK;
}

/* The last part of those models that have any. */
uint64_t tables__at(const struct model *m)
{
    return m->image_bytes - m->tables.n * GROUP;
}

void tables__end(struct model *m, bool are_here)
{
    assert_false(are_here); /* who has all of them says so elsewhere */
    w.n_tables_lost += m->tables.n > 0;
}

bool tables__are_others_busy(const struct model *m)
{
    (void)m;
    return w.others_are_busy;
}

void model_unpin(struct model *m)
{
    (void)m;
    w.n_pins--;
}

void model__unpin_part(struct model *m)
{
    model_unpin(m);
    w.n_parts++;
}

const struct msg_batch *model_batch(const struct model *m, uint32_t batch, const double **layer_ns)
{
    static const struct msg_batch B;

    (void)m;
    assert_int_equal(batch, 1);
    *layer_ns = NULL;
    return &B;
}

uint64_t model_resident_bytes(const struct model *m)
{
    return m->at.resident;
}

static void send(struct model *m)
{
    m->tx.sent_bytes = SH_MIN(m->tx.sent_bytes + GROUP, m->image_bytes);
}

int model_transmit_begin(struct model *m, const double *layer_ns, struct sh_err *err)
{
    (void)layer_ns;
    if (w.refuses_copy)
        return SH_FAIL(err, SH_E_DEVLOST, "lost");
    m->is_placed = false;
    m->tx.groups = (struct msg_group *)m; /* some */
    m->tx.sent_bytes = m->at.resident;
    send(m);
    return SH_OK;
}

uint64_t model_link_bytes(const struct model *m, uint64_t from)
{
    return m->image_bytes - from;
}

bool model_is_apart(const struct model *m)
{
    return m->apart.at == APART_WHOLE;
}

void apart__lose(struct model *m)
{
    m->apart.at = APART_NONE;
}

void packed__forget(struct model *m)
{
    m->packed_from = m->n_layers;
}

bool tx_image_busy(const struct tx_image *im)
{
    return im->groups != NULL;
}

bool tx_load_waits(const struct tx_image *im)
{
    return im->sent_bytes < im->bytes;
}

bool tx_load_is_last(const struct tx *t, const struct tx_image *im)
{
    (void)t, (void)im;
    return w.is_last;
}

int tx_load_next(struct tx *t, struct tx_image *im, struct sh_err *err)
{
    (void)t;
    if (w.refuses_copy)
        return SH_FAIL(err, SH_E_DEVLOST, "lost");
    im->sent_bytes = SH_MIN(im->sent_bytes + GROUP, im->bytes);
    return SH_OK;
}

int tx_load_mark(struct tx *t, struct tx_image *im, tx_done_fn *fn, void *arg, struct sh_err *err)
{
    (void)t, (void)im;
    assert_null(w.on_mark); /* one group on the way at a time */
    if (w.refuses_mark)
        return SH_FAIL(err, SH_E_NOMEM, "no marks");
    w.on_mark = fn;
    w.mark_of = arg;
    return SH_OK;
}

void tx_image_force(struct tx *t, struct tx_image *im)
{
    (void)t, (void)im;
    w.n_forced++;
}

void tx_image_fini(struct tx_image *im)
{
    im->groups = NULL;
}

double tx_backlog_ns(const struct tx *t)
{
    (void)t;
    return w.backlog_ns;
}

bool space_has_spare(const struct space *s, uint64_t bytes)
{
    (void)s;
    assert_true(bytes > 0 && bytes <= IMAGE);
    return w.has_spare;
}

void space_clear(struct space *s, uint32_t image, uint64_t bytes, int64_t idle_ns)
{
    (void)s, (void)image, (void)bytes;
    assert_int_equal(idle_ns, RESIDENCY_STALE_NS);
    w.n_cleared++;
    w.has_spare = w.has_spare_once_cleared;
}

struct residency *space_residency(struct space *s)
{
    (void)s;
    return NULL;
}

void residency_forget(struct residency *r, uint32_t id, uint32_t blocks)
{
    (void)r, (void)id;
    w.kept_blocks = blocks;
}

void __wrap_sh_metric_add(enum sh_metric m, const char *const *labels, double v);

void __wrap_sh_metric_add(enum sh_metric m, const char *const *labels, double v)
{
    assert_int_equal(m, M_shunt_ahead_bytes_total);
    *(strcmp(labels[1], "brought") == 0 ? &w.brought : &w.given_up) += v;
}

/* ------------------------------------------------------------------ */

static int set_up(void **state)
{
    (void)state;
    w = (struct world){.is_quiet = true, .has_spare = true, .is_last = true};
    for (int i = 0; i < 2; i++)
        w.models[i] = (struct model){.phase = MODEL_READY,
                                     .has_image = true,
                                     .image_bytes = IMAGE,
                                     .room_bytes = IMAGE,
                                     .tx.bytes = IMAGE,
                                     .at.resident = DEV_BLOCK,
                                     .tier.at = TIER_HOST};
    return 0;
}

/* The last group has arrived. */
static void mark(void)
{
    tx_done_fn *fn = w.on_mark;

    assert_non_null(fn);
    w.on_mark = NULL;
    fn(w.mark_of);
}

/* Nothing of it is on the way, and nothing holds it. */
static void assert_at_rest(const struct model *m)
{
    assert_null(w.on_mark);
    assert_int_equal(m->rest, MODEL_REST_NONE);
    assert_int_equal(w.n_pins, 0);
}

static void group_after_group_comes_until_all_is_there(void **state)
{
    struct model *m = w.models;
    unsigned n_groups = 0;

    (void)state;
    model_bring_ahead(m, false);
    assert_int_equal(m->rest, MODEL_REST_AHEAD);
    for (; m->rest == MODEL_REST_AHEAD; n_groups++)
        mark();
    assert_int_equal(n_groups, 4); /* seven blocks, two at a time */
    assert_at_rest(m);
    assert_int_equal(w.n_arrived, 1);
    assert_int_equal(w.n_told, 2); /* that it comes, and that it is there */
    assert_int_equal(w.brought, IMAGE - DEV_BLOCK);
    assert_int_equal(w.given_up, 0);
}

/* Where it stands it comes from nowhere, or in the way of others. */
static void it_comes_only_where_nothing_else_is_to_be_done(void **state)
{
    static void *const GROUPS = &w;

    for (int why = 0; why < 10; why++) {
        struct model *m = w.models;

        set_up(state);
        m->phase = why == 0 ? MODEL_BUILDING : MODEL_READY;
        m->has_image = why != 1;
        m->tier.at = why == 2 ? TIER_COMING : TIER_HOST;
        m->tx.groups = why == 3 ? GROUPS : NULL;
        w.models[1].rest = why == 4 ? MODEL_REST_AHEAD : MODEL_REST_NONE;
        w.is_quiet = why != 5;
        w.backlog_ns = why == 6 ? 1 : 0;
        w.has_spare = why != 7;
        w.refuses_place = why == 8;
        m->apart.at = why == 9 ? APART_WHOLE : APART_NONE; /* it needs no link */
        model_bring_ahead(m, false);
        assert_int_equal(m->rest, MODEL_REST_NONE);
        assert_null(w.on_mark);
        assert_int_equal(w.n_pins, 0);
        assert_int_equal(w.n_cleared, 0);
        assert_int_equal(w.n_told, 1); /* so that the scheduler asks for another one */
    }
}

static void what_nobody_has_used_for_long_makes_room_if_it_may(void **state)
{
    (void)state;
    w.has_spare = false;
    model_bring_ahead(w.models, true);
    assert_int_equal(w.n_cleared, 1);
    assert_at_rest(w.models);
    w.has_spare_once_cleared = true;
    model_bring_ahead(w.models, true);
    assert_int_equal(w.models->rest, MODEL_REST_AHEAD);
    mark();
    assert_int_equal(w.n_cleared, 2);
}

/* A run, something else on the link, training that needs the memory, or an unload: what is there
 * stays, the rest does not come. */
static void it_gives_way_at_the_next_group(void **state)
{
    for (int why = 0; why < 4; why++) {
        struct model *m = w.models;

        set_up(state);
        assert_false(store_drop_ahead(NULL));
        model_bring_ahead(m, false);
        mark();
        w.is_quiet = why != 0;
        w.is_last = why != 1;
        m->phase = why == 2 ? MODEL_GOING : MODEL_READY;
        if (why == 3)
            assert_true(store_drop_ahead(NULL));
        assert_int_equal(m->rest, why == 3 ? MODEL_REST_GIVEN_UP : MODEL_REST_AHEAD);
        m->apart.at = APART_COMING;
        mark();
        assert_at_rest(m);
        assert_int_equal(m->apart.at, APART_NONE);
        assert_false(tx_image_busy(&m->tx));
        assert_int_equal(w.kept_blocks, 5); /* the one that was there, and two groups */
        assert_int_equal(w.n_parts, 1);     /* in the rest is what others have left */
        assert_int_equal(w.brought, 4u * DEV_BLOCK);
        assert_int_equal(w.given_up, 3u * DEV_BLOCK);
        assert_int_equal(w.n_arrived + w.n_broken, 0);
    }
}

/* Runs of the model itself read its tables in place meanwhile. */
static void tables_come_beside_runs_of_their_model_alone(void **state)
{
    for (int busy = 0; busy < 2; busy++) {
        struct model *m = w.models;

        set_up(state);
        m->tables.n = 2;
        m->at.resident = IMAGE - 2 * GROUP; /* all that runs wait for */
        w.is_quiet = false;
        w.others_are_busy = true;
        model_bring_ahead(m, false);
        assert_int_equal(m->rest, MODEL_REST_NONE);
        w.others_are_busy = false;
        model_bring_ahead(m, false);
        assert_int_equal(m->rest, MODEL_REST_AHEAD);
        w.others_are_busy = busy;
        w.kept_blocks = 99;
        mark();
        if (busy) {
            assert_at_rest(m);
            assert_int_equal(w.kept_blocks, 99); /* what runs wait for stays */
            assert_int_equal(w.n_tables_lost, 1);
            assert_int_equal(w.given_up, GROUP);
            continue;
        }
        assert_int_equal(m->rest, MODEL_REST_AHEAD);
        mark();
        assert_at_rest(m);
        assert_int_equal(w.n_arrived, 1);
        assert_int_equal(w.brought, 2 * GROUP);
    }
}

static void a_run_that_wants_it_sends_the_rest_itself(void **state)
{
    struct model *m = w.models;

    (void)state;
    model_bring_ahead(m, false);
    m->rest = MODEL_REST_ASKED; /* as model__place() does */
    w.is_quiet = false;
    mark();
    assert_int_equal(m->rest, MODEL_REST_ASKED);
    assert_null(w.on_mark);
    assert_int_equal(w.n_pins, 1);
    assert_int_equal(w.brought + w.given_up, 0);
    assert_int_equal(m->tx.sent_bytes, 3u * DEV_BLOCK);
}

/* Nobody waits for a copy that never comes. */
static void what_cannot_be_sent_is_broken_not_waited_for(void **state)
{
    struct model *m = w.models;

    w.refuses_copy = true;
    model_bring_ahead(m, false);
    assert_int_equal(m->rest, MODEL_REST_NONE);
    assert_int_equal(w.n_broken, 0); /* whoever sends it has said so (model.c) */
    for (int why = 0; why < 3; why++) {
        set_up(state);
        w.refuses_mark = why == 0;
        model_bring_ahead(m, false);
        w.refuses_copy = why == 1;
        w.refuses_mark = why == 2;
        if (why > 0)
            mark();
        assert_null(w.on_mark);
        assert_int_equal(m->rest, MODEL_REST_NONE);
        assert_int_equal(w.n_broken, 1);
        assert_int_equal(w.n_forced, 1);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, set_up)
    const struct CMUnitTest tests[] = {
        TEST(group_after_group_comes_until_all_is_there),
        TEST(it_comes_only_where_nothing_else_is_to_be_done),
        TEST(what_nobody_has_used_for_long_makes_room_if_it_may),
        TEST(it_gives_way_at_the_next_group),
        TEST(tables_come_beside_runs_of_their_model_alone),
        TEST(a_run_that_wants_it_sends_the_rest_itself),
        TEST(what_cannot_be_sent_is_broken_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
