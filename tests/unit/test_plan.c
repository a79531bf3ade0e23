/* test_plan.c - Without it: two tensors that are needed at the same time could share bytes, and a
 * model would compute garbage at some batch size only; or the plan could waste memory unnoticed. */
/* uses: libmodel.a libdevice.a */
#include "common/mem.h"
#include "runtime/device/dev.h"
#include "runtime/model/plan.h"
#include "tests/unit/sh_test.h"

#define MAX_OPS 300
#define MAX_TENSORS 1200
#define MAX_MARKS 4000

struct fixture {
    struct dev_graph g;
    struct dev_tensor tensors[MAX_TENSORS];
    struct dev_op ops[MAX_OPS];
    size_t scratch[MAX_OPS];
    uint64_t random;
};

static uint32_t draw(struct fixture *f, uint32_t below)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((f->random >> 33) % below);
}

static uint32_t add(struct fixture *f, enum dev_role role, size_t bytes, uint32_t alias_of)
{
    f->tensors[f->g.n_tensors] = (struct dev_tensor){
        .name = "t", .role = role, .rank = 1, .dims = {1}, .bytes = bytes, .alias_of = alias_of};
    return f->g.n_tensors++;
}

static size_t some_bytes(struct fixture *f)
{
    return draw(f, 4) == 0 ? 1 + draw(f, 1000) : 1 + draw(f, 200000);
}

static uint32_t root_of(const struct fixture *f, uint32_t t)
{
    return f->tensors[t].alias_of == DEV_NONE ? t : f->tensors[t].alias_of;
}

/* Mostly what was made lately, as in a network; sometimes something old, as in a backward pass. */
static uint32_t pick(struct fixture *f, const uint32_t *made, uint32_t n)
{
    uint32_t back = draw(f, 5) == 0 ? draw(f, n) : draw(f, SH_MIN(n, 4u));

    return made[n - 1 - back];
}

static void add_op(struct fixture *f, uint32_t *made, uint32_t *n_made)
{
    struct dev_op *op = &f->ops[f->g.n_ops];
    uint32_t n_out = 1 + (draw(f, 6) == 0);

    *op = (struct dev_op){.kind = DEV_OP_ACT, .name = "op", .n_in = 1 + draw(f, 3)};
    for (uint32_t k = 0; k < op->n_in; k++)
        op->in[k] = pick(f, made, *n_made);
    if (draw(f, 3) == 0)
        op->in[op->n_in++] = DEV_NONE;
    if (draw(f, 3) == 0)
        op->in[op->n_in++] = add(f, DEV_ROLE_WEIGHT, some_bytes(f), DEV_NONE);
    for (uint32_t k = 0; k < n_out; k++) {
        static const enum dev_role ROLES[] = {DEV_ROLE_ACT, DEV_ROLE_ACT,  DEV_ROLE_ACT,
                                              DEV_ROLE_ACT, DEV_ROLE_KEEP, DEV_ROLE_OUTPUT};
        uint32_t t = add(f, ROLES[draw(f, 6)], some_bytes(f), DEV_NONE);

        op->out[op->n_out++] = t;
        if (draw(f, 4) == 0)
            t = add(f, DEV_ROLE_ACT, 1 + draw(f, 300000), t); /* an alias may be stored larger */
        made[(*n_made)++] = t;
    }
    f->scratch[f->g.n_ops++] = draw(f, 4) == 0 ? some_bytes(f) : 0;
}

static struct fixture *random_graph(uint64_t seed, uint32_t n_ops)
{
    struct fixture *f = calloc(1, sizeof(*f));
    uint32_t made[MAX_TENSORS], n_made = 0;

    assert_non_null(f);
    f->random = seed * 7919 + 1;
    f->g.tensors = f->tensors;
    f->g.ops = f->ops;
    for (uint32_t i = 0; i < 3; i++)
        made[n_made++] = add(f, i == 2 ? DEV_ROLE_LABEL : DEV_ROLE_INPUT, some_bytes(f), DEV_NONE);
    f->tensors[2].dtype = SH_I64;
    while (f->g.n_ops < n_ops)
        add_op(f, made, &n_made);
    return f;
}

/* ------------------------------------------------------------------ memory, played through */

struct marks { /* which bytes hold which tensor, as if the program ran */
    struct {
        size_t from, to;
        uint32_t owner;
    } m[MAX_MARKS];
    uint32_t n;
};

static void write_bytes(struct marks *w, size_t from, size_t bytes, uint32_t owner)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n; i++)
        if (w->m[i].to <= from || w->m[i].from >= from + bytes)
            w->m[n++] = w->m[i]; /* what is overwritten is gone */
    assert_true(n < MAX_MARKS);
    w->m[n].from = from;
    w->m[n].to = from + bytes;
    w->m[n].owner = owner;
    w->n = n + 1;
}

static void expect(const struct marks *w, uint32_t owner, const char *when)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->m[i].owner == owner)
            return;
    fail_msg("tensor %u was overwritten: %s", owner, when);
}

static size_t class_bytes(const struct fixture *f, uint32_t root)
{
    size_t bytes = f->tensors[root].bytes;

    for (uint32_t i = 0; i < f->g.n_tensors; i++)
        if (f->tensors[i].alias_of == root)
            bytes = SH_MAX(bytes, f->tensors[i].bytes);
    return bytes;
}

static void write_tensor(struct marks *w, const struct fixture *f, uint32_t t, size_t total)
{
    uint32_t root = root_of(f, t);
    size_t bytes = class_bytes(f, root);

    assert_int_equal(f->tensors[root].offset % DEV_ALIGN, 0);
    assert_int_equal(f->tensors[t].offset, f->tensors[root].offset);
    assert_true(f->tensors[root].offset + bytes <= total);
    write_bytes(w, f->tensors[root].offset, bytes, root);
}

static bool is_work(const struct fixture *f, uint32_t t)
{
    return t != DEV_NONE && f->tensors[root_of(f, t)].role != DEV_ROLE_WEIGHT;
}

#define KEEP (DEV_NONE - 1)

static void play(const struct fixture *f, const struct plan *p, size_t keep_bytes)
{
    struct marks *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    if (keep_bytes) {
        assert_true(p->keep + keep_bytes <= p->workspace_bytes);
        write_bytes(w, p->keep, keep_bytes, KEEP);
    }
    for (uint32_t i = 0; i < 3; i++)
        write_tensor(w, f, i, p->workspace_bytes);
    for (uint32_t i = 0; i < f->g.n_ops; i++) {
        const struct dev_op *op = &f->ops[i];

        for (uint32_t k = 0; k < op->n_out; k++)
            write_tensor(w, f, op->out[k], p->workspace_bytes);
        if (f->scratch[i]) {
            assert_true(p->scratch[i] + f->scratch[i] <= p->workspace_bytes);
            write_bytes(w, p->scratch[i], f->scratch[i], DEV_NONE);
        }
        for (uint32_t k = 0; k < op->n_in; k++)
            if (is_work(f, op->in[k]))
                expect(w, root_of(f, op->in[k]), "it is read");
        for (uint32_t k = 0; k < op->n_out; k++)
            expect(w, root_of(f, op->out[k]), "it was just written");
    }
    for (uint32_t i = 0; i < f->g.n_tensors; i++)
        if (f->tensors[i].role == DEV_ROLE_OUTPUT || f->tensors[i].role == DEV_ROLE_KEEP)
            expect(w, root_of(f, i), "the run has ended");
    expect(w, 2, "integers that come in stay");
    if (keep_bytes)
        expect(w, KEEP, "the device keeps them through the run");
    free(w);
}

static void no_tensor_is_overwritten_while_it_is_needed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct fixture *f = random_graph(seed, 5 + (uint32_t)seed * 4);
        size_t keep_bytes = seed % 3 * 5000;
        struct plan p;

        assert_ok(plan_make(&f->g, f->scratch, keep_bytes, &p, NULL));
        play(f, &p, keep_bytes);
        plan_fini(&p);
        free(f);
    }
}

static void the_plan_is_within_a_fifth_of_the_lower_bound(void **state)
{
    double worst = 1.0;

    (void)state;
    for (uint64_t seed = 100; seed < 140; seed++) {
        struct fixture *f = random_graph(seed, 200);
        struct plan p;
        double factor;

        assert_ok(plan_make(&f->g, f->scratch, 0, &p, NULL));
        factor = (double)p.workspace_bytes / (double)p.live_bytes;
        worst = SH_MAX(worst, factor);
        assert_true(factor >= 1.0);
        plan_fini(&p);
        free(f);
    }
    print_message("worst factor over the bytes alive at once: %.3f\n", worst);
    assert_true(worst <= 1.2);
}

static void two_plans_of_one_graph_are_equal(void **state)
{
    struct fixture *f = random_graph(7, 200), *h = random_graph(7, 200);
    struct plan p, q;

    (void)state;
    assert_ok(plan_make(&f->g, f->scratch, 0, &p, NULL));
    assert_ok(plan_make(&h->g, h->scratch, 0, &q, NULL));
    assert_int_equal(p.workspace_bytes, q.workspace_bytes);
    for (uint32_t i = 0; i < f->g.n_tensors; i++)
        assert_int_equal(f->tensors[i].offset, h->tensors[i].offset);
    plan_fini(&p);
    plan_fini(&q);
    free(f);
    free(h);
}

static void weights_lie_in_order_of_first_use_and_begin_layers(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    uint32_t x, w[3], y[4];
    struct plan p;

    (void)state;
    assert_non_null(f);
    f->g.tensors = f->tensors;
    f->g.ops = f->ops;
    for (uint32_t i = 0; i < 3; i++)
        w[i] = add(f, DEV_ROLE_WEIGHT, 300, DEV_NONE); /* used in the order 2, 0, 1 */
    x = add(f, DEV_ROLE_INPUT, 100, DEV_NONE);
    for (uint32_t i = 0; i < 4; i++)
        y[i] = add(f, i == 3 ? DEV_ROLE_OUTPUT : DEV_ROLE_ACT, 100, DEV_NONE);
    f->ops[0] = (struct dev_op){.name = "a", .n_in = 1, .in = {x}, .n_out = 1, .out = {y[0]}};
    f->ops[1] = (struct dev_op){
        .name = "b", .n_in = 3, .in = {y[0], w[2], w[0]}, .n_out = 1, .out = {y[1]}};
    f->ops[2] =
        (struct dev_op){.name = "c", .n_in = 2, .in = {y[1], w[2]}, .n_out = 1, .out = {y[2]}};
    f->ops[3] =
        (struct dev_op){.name = "d", .n_in = 2, .in = {y[2], w[1]}, .n_out = 1, .out = {y[3]}};
    f->g.n_ops = 4;
    assert_ok(plan_make(&f->g, NULL, 0, &p, NULL));
    assert_int_equal(f->tensors[w[2]].offset, 0);
    assert_int_equal(f->tensors[w[0]].offset, 512);
    assert_int_equal(f->tensors[w[1]].offset, 1024);
    assert_int_equal(f->g.n_layers, 2);
    assert_int_equal(f->ops[0].layer, 0);
    assert_int_equal(f->ops[1].layer, 0);
    assert_int_equal(f->ops[2].layer, 0);
    assert_int_equal(f->ops[3].layer, 1);
    assert_int_equal(p.layer_ends[0], 1024);
    assert_int_equal(p.layer_ends[1], 1536);
    assert_int_equal(p.image_bytes, 1536);
    plan_fini(&p);
    free(f);
}

/* Parameters, two of which learn, a statistic and a constant. */
static void what_operations_write_of_the_state_comes_first(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    uint32_t p[3], m[2], v, stat, squares, table, alias, x, y;
    struct plan plan;

    (void)state;
    assert_non_null(f);
    f->g.tensors = f->tensors;
    f->g.ops = f->ops;
    p[0] = add(f, DEV_ROLE_STATE, 300, DEV_NONE);
    p[1] = add(f, DEV_ROLE_STATE, 5000, DEV_NONE); /* is read alone */
    p[2] = add(f, DEV_ROLE_STATE, 300, DEV_NONE);
    stat = add(f, DEV_ROLE_STATE, 4, DEV_NONE);
    m[0] = add(f, DEV_ROLE_STATE, 300, DEV_NONE);
    table = add(f, DEV_ROLE_STATE, 4, DEV_NONE); /* so is this */
    v = add(f, DEV_ROLE_STATE, 300, DEV_NONE);
    m[1] = add(f, DEV_ROLE_STATE, 300, DEV_NONE);
    squares = add(f, DEV_ROLE_STATE, 4, DEV_NONE);
    alias = add(f, DEV_ROLE_STATE, 300, p[2]);
    x = add(f, DEV_ROLE_INPUT, 100, DEV_NONE);
    y = add(f, DEV_ROLE_ACT, 100, DEV_NONE);
    f->ops[0] = (struct dev_op){
        .name = "a", .n_in = 5, .in = {x, p[0], p[1], table, alias}, .n_out = 1, .out = {y}};
    f->ops[1] = (struct dev_op){
        .kind = DEV_OP_ADAM, .name = "b", .n_in = 5, .in = {p[0], y, m[0], v, squares}};
    f->ops[2] = (struct dev_op){.kind = DEV_OP_SGD, .name = "c", .n_in = 3, .in = {alias, y, m[1]}};
    f->ops[3] =
        (struct dev_op){.kind = DEV_OP_COMMIT, .name = "d", .n_in = 1, .in = {y}, .n_out = 1};
    f->ops[3].out[0] = stat;
    f->g.n_ops = 4;
    assert_ok(plan_make(&f->g, NULL, 0, &plan, NULL));
    assert_int_equal(f->tensors[p[0]].offset, 0);
    assert_int_equal(f->tensors[p[2]].offset, 512);
    assert_int_equal(f->tensors[alias].offset, 512);
    assert_int_equal(f->tensors[stat].offset, 1024);
    assert_int_equal(f->tensors[m[0]].offset, 1280);
    assert_int_equal(f->tensors[v].offset, 1792);
    assert_int_equal(f->tensors[m[1]].offset, 2304);
    assert_int_equal(plan.written_bytes, DEV_PAGE);
    assert_int_equal(f->tensors[p[1]].offset, DEV_PAGE);
    assert_int_equal(f->tensors[table].offset, DEV_PAGE + 5120);
    assert_int_equal(f->tensors[squares].offset, DEV_PAGE + 5376);
    assert_int_equal(plan.state_bytes, DEV_PAGE + 5632);
    plan_fini(&plan);
    free(f);
}

static void a_tensor_that_nobody_wrote_is_an_error(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct sh_err err = {0};
    struct plan p;
    uint32_t x, y;

    (void)state;
    assert_non_null(f);
    f->g.tensors = f->tensors;
    f->g.ops = f->ops;
    x = add(f, DEV_ROLE_ACT, 100, DEV_NONE);
    y = add(f, DEV_ROLE_OUTPUT, 100, DEV_NONE);
    f->ops[0] = (struct dev_op){.name = "a", .n_in = 1, .in = {x}, .n_out = 1, .out = {y}};
    f->g.n_ops = 1;
    assert_fails(plan_make(&f->g, NULL, 0, &p, &err), SH_E_BUG, &err, "before anything writes it");
    free(f);
}

static void impossible_sizes_are_refused(void **state)
{
    struct fixture *f = random_graph(3, 20);
    struct sh_err err = {0};
    struct plan p;

    (void)state;
    f->tensors[f->ops[10].out[0]].bytes = SIZE_MAX / 2;
    assert_fails(plan_make(&f->g, f->scratch, 0, &p, &err), SH_E_TOOBIG, &err, "needs more than");
    free(f);
}

/* A table of so many bytes, behind a weight. */
static int plan_with_table(size_t weight, size_t table, struct plan *p, struct sh_err *err)
{
    struct fixture *f = calloc(1, sizeof(*f));
    uint32_t t, w, i, y, z;
    int rc;

    assert_non_null(f);
    f->g.tensors = f->tensors;
    f->g.ops = f->ops;
    t = add(f, DEV_ROLE_TABLE, table, DEV_NONE);
    w = add(f, DEV_ROLE_WEIGHT, weight, DEV_NONE);
    i = add(f, DEV_ROLE_INPUT, 100, DEV_NONE);
    y = add(f, DEV_ROLE_ACT, 100, DEV_NONE);
    z = add(f, DEV_ROLE_OUTPUT, 100, DEV_NONE);
    f->ops[0] = (struct dev_op){.name = "a", .n_in = 2, .in = {t, i}, .n_out = 1, .out = {y}};
    f->ops[1] = (struct dev_op){.name = "b", .n_in = 2, .in = {y, w}, .n_out = 1, .out = {z}};
    f->g.n_ops = 2;
    memset(err, 0, sizeof(*err));
    rc = plan_make(&f->g, NULL, 0, p, err);
    free(f);
    return rc;
}

/* A file says how large they are. */
static void tables_are_counted_as_weights_are(void **state)
{
    const size_t most = (size_t)1 << 46, half = most / 2;
    struct sh_err err;
    struct plan p;

    (void)state;
    assert_ok(plan_with_table(300, PLAN_LAYER_MOST + 1, &p, &err));
    assert_int_equal(p.n_tables, 2);
    assert_int_equal(p.tables_at, DEV_TABLES_ALIGN);
    assert_int_equal(p.layer_ends[0], DEV_TABLES_ALIGN);
    assert_int_equal(p.layer_ends[1], DEV_TABLES_ALIGN + PLAN_LAYER_MOST);
    assert_int_equal(p.image_bytes, p.layer_ends[2]);
    plan_fini(&p);
    assert_ok(plan_with_table(half, half, &p, &err));
    assert_int_equal(p.image_bytes, most);
    plan_fini(&p);
    assert_fails(plan_with_table(half + 1, half, &p, &err), SH_E_TOOBIG, &err, "needs more than");
    assert_fails(plan_with_table(300, SIZE_MAX, &p, &err), SH_E_TOOBIG, &err, "needs more than");
    assert_fails(plan_with_table(SIZE_MAX, 300, &p, &err), SH_E_TOOBIG, &err, "needs more than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_tensor_is_overwritten_while_it_is_needed),
        cmocka_unit_test(the_plan_is_within_a_fifth_of_the_lower_bound),
        cmocka_unit_test(two_plans_of_one_graph_are_equal),
        cmocka_unit_test(weights_lie_in_order_of_first_use_and_begin_layers),
        cmocka_unit_test(what_operations_write_of_the_state_comes_first),
        cmocka_unit_test(a_tensor_that_nobody_wrote_is_an_error),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(tables_are_counted_as_weights_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
