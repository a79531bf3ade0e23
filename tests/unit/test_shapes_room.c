/* test_shapes_room.c - who gets room for a new shape, and whose is compiled next. Without it: one
 * tenant could fill the table of an executor with shapes that wait to be compiled, and nobody else
 * would get one for minutes; or one that no free worker can compile would hold up all others. */
/* uses: executor/models/shapes.o executor/models/model_go.o executor/models/model_life.o */
#include "executor/models/model_int.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

#define MOST 512u /* of all versions */

static struct store_env env = {.max_shapes = 1000, .max_all_shapes = MOST};
static struct store_shapes shapes;
static struct model versions[2];

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &env;
}

int store__put(struct store *s, struct model *m, struct sh_err *err)
{
    (void)s, (void)m, (void)err;
    return SH_OK;
}

struct store_shapes *store__shapes(struct store *s)
{
    (void)s;
    return &shapes;
}

struct store_counts *store__counts(struct store *s)
{
    static struct store_counts counts;

    (void)s;
    return &counts;
}

struct model *store_next(struct store *s, const struct model *m)
{
    (void)s;
    return m == NULL ? &versions[0] : m == &versions[0] ? &versions[1] : NULL;
}

struct model *store_find(struct store *s, int64_t handle)
{
    (void)s;
    return &versions[handle - 1];
}

void model__free(struct model *m)
{
    free(m->tenant);
    free(m->name);
    free(m->package);
    free(m->precision);
    free(m);
}

/* Not reached: nothing is compiled here. */
void uplink_send(const struct uplink *u, const struct sh_msg *m)
{
    (void)u;
    (void)m;
}

void shape_report(const struct model *m)
{
    (void)m;
}

uint64_t model__most_workspace(const struct model *m)
{
    (void)m;
    return 0;
}

int model__read_batches(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err)
{
    (void)m;
    (void)d;
    (void)err;
    return SH_OK;
}

void model__drop_tables(struct model *m)
{
    (void)m;
}

int model_check_more(struct model *m, uint64_t ws, struct sh_err *err)
{
    (void)m;
    (void)ws;
    (void)err;
    return SH_OK;
}

static char text[] = "t";

static int begin(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        versions[i] = (struct model){.handle = i + 1,
                                     .phase = MODEL_READY,
                                     .tag = i + 1,
                                     .tenant = text,
                                     .name = text,
                                     .precision = text,
                                     .package = text,
                                     .sizes = {.v = {1}, .n = 1}};
    return 0;
}

static int end(void **state)
{
    (void)state;
    while (shapes.first) {
        struct model *next = shapes.first->next;

        model__free(shapes.first);
        shapes.first = next;
    }
    shapes = (struct store_shapes){0};
    return 0;
}

static int ask(struct model *version, uint32_t size, bool is_asked, struct sh_err *err)
{
    struct model *m;
    int rc = store_shape(version, &(struct sh_sizes){.v = {size}, .n = 1}, &m, err);

    if (!rc)
        m->is_asked = is_asked;
    return rc;
}

static void what_waits_to_be_compiled_for_one_tenant_leaves_room_for_others(void **state)
{
    struct sh_err err = {0};
    uint32_t n = 0;

    (void)state;
    while (n < MOST && ask(&versions[0], 10 + n, true, &err) == SH_OK)
        n++;
    assert_int_equal(err.rc, SH_E_QUEUEFULL);
    assert_non_null(strstr(err.msg, "are being compiled"));
    assert_in_range(n, 1, MOST / 2);
    assert_ok(ask(&versions[1], 10, true, NULL));
    shapes.first->next->phase = MODEL_READY; /* the newest of the first tenant */
    assert_ok(ask(&versions[0], 9, true, NULL));
}

static void what_nobody_asked_for_makes_room(void **state)
{
    struct sh_err err = {0};
    size_t n = 0;

    (void)state;
    for (uint32_t i = 0; i < MOST; i++)
        assert_ok(ask(&versions[0], 10 + i, false, NULL));
    for (struct model *m = shapes.first; m; m = m->next) {
        model__go(m, MODEL_READY);
        m->is_served = true;
    }
    assert_fails(ask(&versions[1], 10, true, &err), SH_E_QUEUEFULL, &err, "max-loaded-shapes");
    for (const struct model *m = shapes.first; m; m = m->next) {
        n += m->phase == MODEL_GOING;
        assert_true(m->is_served == (m->phase == MODEL_READY)); /* who goes is not reported */
    }
    assert_int_equal(n, 1); /* there is room at the next try */
}

static struct worker free_worker;
static const struct model *without; /* no free worker has its version */

static bool is_due(struct store *s, const struct model *m, bool asked)
{
    (void)s;
    return m->is_asked >= asked;
}

static struct worker *worker_for(struct store *s, const struct model *m)
{
    (void)s;
    return m == without ? NULL : &free_worker;
}

/* READY: a run waits for it, and whoever has it takes none. */
static void tenants_take_turns_and_what_has_no_worker_holds_up_nobody(void **state)
{
    static const struct shapes_ask ASK = {is_due, worker_for, true};
    struct model *old, *new, *other;
    struct worker *w = NULL;

    (void)state;
    versions[0].turn = versions[1].turn = 0;
    assert_ok(ask(&versions[0], 10, true, NULL));
    old = shapes.first;
    assert_ok(ask(&versions[1], 10, true, NULL));
    other = shapes.first;
    other->phase = MODEL_READY;
    assert_ok(ask(&versions[0], 11, true, NULL));
    new = shapes.first;
    new->phase = MODEL_READY;
    assert_ptr_equal(shapes__next(NULL, &ASK, &w), old); /* the oldest */
    assert_ptr_equal(w, &free_worker);
    versions[0].turn = 1;
    assert_ptr_equal(shapes__next(NULL, &ASK, &w), other);
    versions[1].turn = 2;
    assert_ptr_equal(shapes__next(NULL, &ASK, &w), old);
    without = old;
    assert_ptr_equal(shapes__next(NULL, &ASK, &w), new);
    new->is_asked = false;
    assert_ptr_equal(shapes__next(NULL, &ASK, &w), other); /* though its turn was later */
    other->is_asked = false;
    assert_null(shapes__next(NULL, &ASK, &w));
    without = NULL;
    assert_ptr_equal(shapes__next(NULL, &ASK, &w), old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            what_waits_to_be_compiled_for_one_tenant_leaves_room_for_others, begin, end),
        cmocka_unit_test_setup_teardown(what_nobody_asked_for_makes_room, begin, end),
        cmocka_unit_test_setup_teardown(tenants_take_turns_and_what_has_no_worker_holds_up_nobody,
                                        begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
