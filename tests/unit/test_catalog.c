/* test_catalog.c - which version a name means, and for whom.
 *
 * Without it a tenant could reach another's private model, or a shared one could hide its own.
 */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/cache/catalog.h"
#include "common/buf.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "tests/unit/sh_test.h"

static struct cat_version row(int64_t model_id, const char *tenant, const char *model,
                              int64_t version, const char *state_name, bool shared)
{
    struct cat_version v = {.id = model_id * 100 + version,
                            .model_id = model_id,
                            .version = version,
                            .shared = shared,
                            .max_batch = 8};

    sh_strlcpy(v.tenant, tenant, sizeof(v.tenant));
    sh_strlcpy(v.model, model, sizeof(v.model));
    sh_strlcpy(v.state, state_name, sizeof(v.state));
    cat_version_finish(&v);
    return v;
}

static struct cat_table *make(void)
{
    struct cat_version rows[] = {
        row(7, "b", "own", 1, "READY", true),       row(3, "a", "m", 3, "LOADING", false),
        row(3, "a", "m", 1, "READY", false),        row(3, "a", "m", 2, "READY", false),
        row(5, "b", "m", 9, "READY", true),         row(4, "c", "m", 1, "READY", true),
        row(6, "a", "own", 1, "REGISTERED", false), row(8, "b", "secret", 1, "READY", false),
        row(9, "a", "half", 1, "LOADING", false),   row(9, "a", "half", 2, "UNLOADED", false),
        row(10, "a", "gone", 1, "READY", false),    row(10, "a", "gone", 2, "UNLOADED", false),
    };
    struct cat_version *copy = malloc(sizeof(rows));
    struct cat_table *t = NULL;

    assert_non_null(copy);
    memcpy(copy, rows, sizeof(rows));
    assert_ok(cat_table_new(copy, SH_ARRAY_LEN(rows), &t, NULL));
    return t;
}

static void check(const char *tenant, const char *model, int64_t version, int64_t want)
{
    struct cat_table *t = make();
    const struct cat_version *v = cat_find(t, tenant, model, version);

    if ((v ? v->id : 0) != want)
        fail_msg("%s/%s:%d -> %d, want %d", tenant, model, (int)version, v ? (int)v->id : 0,
                 (int)want);
    catalog_put(t);
}

static void the_newest_ready_version_is_meant(void **state)
{
    (void)state;
    check("a", "m", 0, 302);
    check("a", "m", 1, 301);
    check("a", "m", 3, 303);
    check("a", "m", 4, 0);
    check("a", "x", 0, 0);
    check("a", "", 0, 0);
}

static void while_none_is_ready_the_one_that_will_be_is_meant(void **state)
{
    (void)state;
    check("a", "half", 0, 901);
    check("a", "half", 2, 902);
}

static void an_own_model_hides_a_shared_one(void **state)
{
    (void)state;
    check("b", "m", 0, 509);
    check("c", "m", 0, 401);
    check("d", "m", 0, 401);   /* the oldest shared one */
    check("a", "own", 0, 601); /* not ready, and still its own */
    check("c", "own", 0, 701);
}

static void a_private_model_does_not_exist_for_others(void **state)
{
    (void)state;
    check("b", "secret", 0, 801);
    check("a", "secret", 0, 0);
    check("a", "secret", 1, 0);
}

/* The version that an alias of a's model "m" gives; 0: none. READY are 1 and 2, 3 is LOADING. */
static int64_t served(struct cat_alias a, const char *key)
{
    struct cat_alias *copy = malloc(sizeof(*copy));
    struct cat_table *t = make();
    const struct cat_alias *found;
    const struct cat_version *v;
    int64_t version;

    assert_non_null(copy);
    a.id = 1;
    a.model_id = a.model_id ? a.model_id : 3;
    sh_strlcpy(a.name, "stable", sizeof(a.name));
    *copy = a;
    for (size_t i = 0; i < ALIAS_TARGETS; i++) {
        copy->now.n += copy->now.list[i].version > 0;
        copy->before.n += copy->before.list[i].version > 0;
    }
    cat_table_add_aliases(t, copy, 1);
    found = cat_alias(t, "a", a.model_id == 10 ? "gone" : "m", "stable");
    assert_non_null(found);
    assert_null(cat_alias(t, "a", "m", "canary"));
    assert_null(cat_alias(t, "b", "m", "stable")); /* another model of that name */
    assert_null(cat_alias(t, "b", "half", "stable"));
    v = cat_serving(t, found, a.model_id == 10 ? "gone" : "m", key);
    version = v ? v->version : 0;
    catalog_put(t);
    return version;
}

static void an_alias_serves_what_is_ready_of_what_it_names(void **state)
{
    (void)state;
    assert_int_equal(served((struct cat_alias){.now.list = {{1, 1}}}, "k"), 1);
    /* 3 has all of the weight, and is not ready yet. */
    assert_int_equal(served((struct cat_alias){.now.list = {{2, 1}, {3, 1000}}}, "k"), 2);
    assert_int_equal(served((struct cat_alias){.now.list = {{1, 1}, {2, 9}}}, NULL), 2);
}

static void while_none_is_ready_what_it_named_before_serves(void **state)
{
    (void)state;
    assert_int_equal(served((struct cat_alias){.now.list = {{3, 1}}, .before.list = {{1, 1}}}, "k"),
                     1);
    assert_int_equal(served((struct cat_alias){.now.list = {{3, 1}}}, "k"), 3); /* it says why */
    assert_int_equal(served((struct cat_alias){.now.list = {{3, 1}}, .before.list = {{8, 1}}}, "k"),
                     3);
    /* Somebody unloaded it: nothing else serves in its place. */
    assert_int_equal(
        served((struct cat_alias){.model_id = 10, .now.list = {{2, 1}}, .before.list = {{1, 1}}},
               "k"),
        2);
    assert_int_equal(served((struct cat_alias){.now.list = {{8, 1}}}, "k"), 0);
}

static void a_batch_axis_is_one_that_all_tensors_have(void **state)
{
    struct cat_tensor in = {.rank = 2, .dims = {-1, 3}}, out = {.rank = 1, .dims = {3}};
    struct cat_version v = {.inputs = &in, .n_inputs = 1, .outputs = &out, .n_outputs = 1};

    (void)state;
    cat_version_finish(&v);
    assert_true(v.usable);
    assert_false(v.batched);
    out.dims[0] = -1;
    cat_version_finish(&v);
    assert_true(v.batched);
}

static bool is_shown(const char *tenant, const char *model)
{
    struct sh_buf b;
    char labels[80];
    bool found;

    sh_buf_init(&b, 1 << 20);
    assert_ok(sh_metrics_render('a', &b, NULL));
    snprintf(labels, sizeof(labels), "{tenant=\"%s\",model=\"%s\",", tenant, model);
    found = b.data && strstr(b.data, labels);
    sh_buf_fini(&b);
    return found;
}

/* Without it the series of deleted models stay until a new one finds no place. */
static void series_of_models_that_are_gone_are_dropped(void **state)
{
    static const char *const SEEN[][2] = {{"a", "m"},   {"b", "m"},      {"d", "m"},
                                          {"a", "own"}, {"b", "secret"}, {"d", "half"}};
    struct cat_version left[] = {row(3, "a", "m", 2, "READY", false),
                                 row(6, "a", "own", 1, "REGISTERED", false)};
    struct cat_version *copy = malloc(sizeof(left));
    struct cat_table *old = make(), *now = NULL;

    (void)state;
    assert_non_null(copy);
    memcpy(copy, left, sizeof(left));
    assert_ok(cat_table_new(copy, SH_ARRAY_LEN(left), &now, NULL));
    for (size_t i = 0; i < SH_ARRAY_LEN(SEEN); i++)
        sh_metric_add(M_shunt_requests_total, SH_LABELS(SEEN[i][0], SEEN[i][1], "ok"), 1);
    cat_forget_gone(old, now);
    assert_true(is_shown("a", "m"));
    assert_true(is_shown("a", "own"));
    assert_false(is_shown("b", "m")); /* its owner's; a's has the name too */
    assert_true(is_shown("d", "m"));  /* perhaps of a's, perhaps of b's */
    assert_false(is_shown("b", "secret"));
    assert_false(is_shown("d", "half")); /* shared by whoever had it: the name is gone */
    catalog_put(old);
    catalog_put(now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_ready_version_is_meant),
        cmocka_unit_test(while_none_is_ready_the_one_that_will_be_is_meant),
        cmocka_unit_test(an_own_model_hides_a_shared_one),
        cmocka_unit_test(a_private_model_does_not_exist_for_others),
        cmocka_unit_test(an_alias_serves_what_is_ready_of_what_it_names),
        cmocka_unit_test(while_none_is_ready_what_it_named_before_serves),
        cmocka_unit_test(a_batch_axis_is_one_that_all_tensors_have),
        cmocka_unit_test(series_of_models_that_are_gone_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
