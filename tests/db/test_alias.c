/* test_alias.c - the statements of aliases: what they stand for, and what they stood for before.
 *
 * Without it: an alias could name a version that is gone, or lose its way back; a version could be
 * deleted under an alias, by two requests at once; deleting a model or a tenant could be refused.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/cache/catalog.h"
#include "api/infer/alias_count.h"
#include "api/spec/alias.h"
#include "api/store/store.h"
#include "common/clock.h"
#include "tests/db/db_test.h"

#include <pthread.h>
#include <time.h>

#define V1 "[{\"version\":1,\"weight\":1}]"
#define V2 "[{\"version\":2,\"weight\":1}]"
#define BOTH "[{\"version\":1,\"weight\":9},{\"version\":2,\"weight\":1}]"

struct world {
    struct db *db;
    struct api_req q; /* of the tenant that owns the model */
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->db = open_db("test_alias");
    make_empty(w->db);
    migrate(w->db);
    run(w->db, "INSERT INTO tenant (name) VALUES ('research'), ('vision')");
    run(w->db, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits')");
    run(w->db, "INSERT INTO model_version (model_id, version, state, digest, package) SELECT 1, v, "
               "s, repeat('a', 64), 'p' FROM (VALUES (1, 'READY'), (2, 'LOADING'), (3, 'UNLOADED'),"
               " (4, 'FAILED')) AS x (v, s)");
    w->q = (struct api_req){.db = w->db, .tenant_id = 1};
    sh_strlcpy(w->q.who.key_id, "key", sizeof(w->q.who.key_id));
    sh_strlcpy(w->q.request_id, "request", sizeof(w->q.request_id));
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    db_free(w->db);
    free(w);
    return 0;
}

/* ": " and ", " are PostgreSQL's. */
static void assert_text(struct world *w, const char *sql, const char *want)
{
    struct db_res *r = query(w->db, sql);

    assert_int_equal(db_rows(r), 1);
    assert_string_equal(db_text(r, 0, 0) ? db_text(r, 0, 0) : "NULL", want);
    db_res_free(r);
}

static int set_to(struct world *w, struct store_alias a, struct sh_err *err)
{
    json_t *j = NULL;
    int rc;

    a.model = a.model ? a.model : "digits";
    a.alias = a.alias ? a.alias : "stable";
    a.sticky = a.change == STORE_ALIAS_PUT ? "false" : NULL;
    rc = store_alias_set(&w->q, &a, &j, err);
    if (!rc && !j)
        rc = SH_E_PRECONDITION;
    json_decref(j);
    return rc;
}

static void put(struct world *w, const char *targets)
{
    struct sh_err err = {0};

    assert_ok_err(set_to(w, (struct store_alias){.targets = targets}, &err), &err);
}

static bool can_roll_back(struct world *w)
{
    json_t *j = NULL;

    assert_ok(store_alias_rollback(&w->q, "digits", "stable", NULL, &j, NULL));
    if (!j)
        return false;
    json_decref(j);
    return true;
}

static void the_way_back_is_one_step(void **state)
{
    struct world *w = *state;

    put(w, V1);
    assert_false(can_roll_back(w));
    put(w, BOTH);
    put(w, BOTH); /* changes nothing */
    assert_text(w, "SELECT previous->0->>'version' || ' ' || generation FROM model_alias", "1 2");
    put(w, V2);
    assert_true(can_roll_back(w));
    assert_text(w,
                "SELECT jsonb_array_length(targets) || ' ' || (previous IS NULL) FROM model_alias",
                "2 true");
    assert_false(can_roll_back(w));
    assert_int_equal(number(w->db, "SELECT count(*) FROM audit WHERE action = 'alias.rollback'"),
                     1);
    assert_int_equal(number(w->db, "SELECT count(*) FROM audit WHERE action = 'alias.put'"), 4);
}

static void promoting_keeps_what_is_not_named_and_takes_from_another(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct store_alias a = {.targets = BOTH, .alias = "canary", .policy = "{\"window_s\": 60}"};

    assert_ok(set_to(w, a, NULL));
    a = (struct store_alias){.change = STORE_ALIAS_PROMOTE, .alias = "canary", .targets = V2};
    assert_ok(set_to(w, a, NULL));
    assert_text(w, "SELECT policy->>'window_s' FROM model_alias", "60");
    a = (struct store_alias){.change = STORE_ALIAS_PROMOTE, .from = "canary"}; /* makes it */
    assert_ok(set_to(w, a, NULL));
    assert_text(w, "SELECT targets->0->>'version' FROM model_alias WHERE name = 'stable'", "2");
    a.from = "nobody";
    assert_fails(set_to(w, a, &err), SH_E_NOTFOUND, &err, "no alias \"nobody\"");
    a = (struct store_alias){.targets = V1, .alias = "canary"};
    assert_ok(set_to(w, a, NULL)); /* replaces it all */
    assert_text(w, "SELECT policy::text FROM model_alias WHERE name = 'canary'", "NULL");
}

static void what_cannot_serve_is_refused(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *targets, *says;
    } BAD[] = {{"[{\"version\":3,\"weight\":1}]", "version 3 is UNLOADED"},
               {"[{\"version\":4,\"weight\":1}]", "version 4 is FAILED"},
               {"[{\"version\":1,\"weight\":1},{\"version\":9,\"weight\":1}]", "no version 9"}};

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_err err = {0};

        assert_fails(set_to(w, (struct store_alias){.targets = BAD[i].targets}, &err),
                     SH_E_CONFLICT, &err, BAD[i].says);
    }
    assert_int_equal(set_to(w, (struct store_alias){.targets = V1, .model = "nothing"}, NULL),
                     SH_E_PRECONDITION);
    assert_int_equal(set_to(w, (struct store_alias){.targets = V1, .if_match = "1"}, NULL),
                     SH_E_PRECONDITION); /* it is not there yet */
    assert_int_equal(number(w->db, "SELECT count(*) FROM model_alias"), 0);
    put(w, V1);
    assert_int_equal(set_to(w, (struct store_alias){.targets = V2, .if_match = "7"}, NULL),
                     SH_E_PRECONDITION);
    w->q.tenant_id = 2; /* another tenant: not even if it is shared */
    run(w->db, "UPDATE model SET visibility = 'shared'");
    assert_int_equal(set_to(w, (struct store_alias){.targets = V2}, NULL), SH_E_PRECONDITION);
    assert_false(can_roll_back(w));
    assert_int_equal(number(w->db, "SELECT count(*) FROM audit"), 1);
}

static void a_model_has_a_limited_number(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    char name[16];

    for (int i = 0; i < SH_ALIAS_MOST; i++) {
        snprintf(name, sizeof(name), "a%d", i);
        assert_ok(set_to(w, (struct store_alias){.targets = V1, .alias = name}, NULL));
    }
    assert_fails(set_to(w, (struct store_alias){.targets = V1}, &err), SH_E_QUOTA, &err,
                 "at most 16");
    assert_ok(set_to(w, (struct store_alias){.targets = V2, .alias = "a3"}, NULL));
}

static int delete_version(struct world *w, const char *version, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = store_version_delete(&w->q, "digits", version, NULL, &j, err);

    json_decref(j);
    return rc;
}

static void a_version_that_is_named_stays_and_one_before_may_go(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    put(w, V1);
    put(w, V2);
    assert_fails(delete_version(w, "2", &err), SH_E_CONFLICT, &err,
                 "the alias \"stable\" names version 2");
    assert_ok(delete_version(w, "1", NULL));
    assert_false(can_roll_back(w));
}

struct deletion {
    struct world w;
    int rc;
    struct sh_err err;
};

static void *delete_meanwhile(void *arg)
{
    struct deletion *d = arg;

    d->rc = delete_version(&d->w, "2", &d->err);
    return NULL;
}

/* The version is looked at, and held, before the alias is written (NAMED of store_alias.c). */
static void a_version_that_is_named_while_it_is_deleted_stays(void **state)
{
    struct world *w = *state;
    struct deletion d = {.w = *w};
    struct db *naming = open_db("test_naming"), *watch = open_db("test_watch");
    pthread_t thread;

    d.w.q.db = w->db;
    run(naming, "BEGIN");
    run(naming, "SELECT 1 FROM model_version WHERE version = 2 FOR SHARE");
    assert_int_equal(pthread_create(&thread, NULL, delete_meanwhile, &d), 0);
    while (number(watch, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") <
           1)
        usleep(1000);
    run(naming, "INSERT INTO model_alias (model_id, name, targets) VALUES (1, 'stable', '" V2 "')");
    run(naming, "COMMIT");
    pthread_join(thread, NULL);
    assert_fails(d.rc, SH_E_CONFLICT, &d.err, "the alias \"stable\" names version 2");
    db_free(naming);
    db_free(watch);
}

static void nothing_goes_back_to_what_was_unloaded(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    json_t *j = NULL;

    put(w, V1);
    put(w, V2);
    run(w->db, "UPDATE model_version SET state = 'UNLOADED' WHERE version = 1");
    assert_fails(store_alias_rollback(&w->q, "digits", "stable", NULL, &j, &err), SH_E_CONFLICT,
                 &err, "version 1 is UNLOADED");
    assert_null(j);
    assert_text(w, "SELECT targets->0->>'version' FROM model_alias", "2");
    run(w->db, "UPDATE model_version SET state = 'READY' WHERE version = 1");
    assert_true(can_roll_back(w));
}

/* ---------------------------------------------------------------- two at once */

struct other { /* a second connection, whose request meets a rollback that is not committed */
    struct world w;
    int (*does)(struct world *w, struct sh_err *err);
    struct sh_err err;
    pthread_t thread;
    int rc;
};

static void *other_main(void *arg)
{
    struct other *o = arg;

    o->rc = o->does(&o->w, &o->err);
    return NULL;
}

static int roll_back_beside(struct db *db, const void *arg, struct sh_err *err)
{
    struct other *o = (struct other *)(uintptr_t)arg;
    struct api_req q = o->w.q;
    json_t *j = NULL;
    int rc;

    q.db = db;
    rc = store_alias_rollback(&q, "digits", "stable", NULL, &j, err);
    json_decref(j);
    assert_int_equal(pthread_create(&o->thread, NULL, other_main, o), 0);
    for (int i = 0; i < 500; i++) { /* until it waits for us */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (number(db, "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)
            break;
    }
    return rc;
}

static void meet_rollback(struct world *w, struct other *o)
{
    struct sh_err err = {0};

    o->w = *w;
    o->w.db = o->w.q.db = open_db("test_alias_other");
    assert_ok_err(db_tx_around(w->db, "meeting", roll_back_beside, o, &err), &err);
    assert_int_equal(pthread_join(o->thread, NULL), 0);
    db_free(o->w.db);
}

static int delete_first(struct world *w, struct sh_err *err)
{
    return delete_version(w, "1", err);
}

static void a_version_is_not_deleted_beside_a_rollback_to_it(void **state)
{
    struct world *w = *state;
    struct other o = {.does = delete_first};

    put(w, V1);
    put(w, V2);
    meet_rollback(w, &o);
    assert_text(w, "SELECT targets->0->>'version' FROM model_alias", "1");
    assert_text(w, "SELECT state FROM model_version WHERE version = 1", "READY");
    assert_int_equal(o.rc, SH_E_CONFLICT);
    assert_non_null(strstr(o.err.msg, "names version 1"));
}

static int put_as_seen(struct world *w, struct sh_err *err)
{
    return set_to(w, (struct store_alias){.targets = BOTH, .if_match = "2"}, err);
}

static void what_was_seen_before_a_rollback_is_not_written_over_it(void **state)
{
    struct world *w = *state;
    struct other o = {.does = put_as_seen};

    put(w, V1);
    put(w, V2);
    assert_text(w, "SELECT row_version::text FROM model_alias", "2");
    meet_rollback(w, &o);
    assert_int_equal(o.rc, SH_E_PRECONDITION);
    assert_text(w, "SELECT jsonb_array_length(targets)::text FROM model_alias", "1");
}

static void a_model_and_a_tenant_go_with_their_aliases(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    json_t *j = NULL;

    put(w, V1);
    assert_ok_err(store_model_delete(&w->q, "digits", NULL, &j, &err), &err);
    assert_non_null(j);
    json_decref(j);
    run(w->db, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits')");
    run(w->db,
        "INSERT INTO model_version (model_id, version, state, digest, package) VALUES (2, 1, "
        "'READY', repeat('a', 64), 'p')");
    put(w, V1);
    assert_ok_err(store_tenant_delete(&w->q, "research", NULL, &j, &err), &err);
    assert_non_null(j);
    json_decref(j);
    assert_int_equal(number(w->db, "SELECT count(*) FROM model_version WHERE state <> 'DELETED'"),
                     0);
}

static void the_catalog_follows(void **state)
{
    struct world *w = *state;
    struct catalog *c;
    struct cat_table *t;
    const struct cat_alias *a;

    assert_ok(catalog_new(0, &c, NULL));
    put(w, V1);
    put(w, BOTH);
    assert_ok(catalog_refresh(c, w->db, NULL));
    t = catalog_get(c);
    a = cat_alias(t, "research", "digits", "stable");
    assert_non_null(a);
    assert_int_equal(a->now.n, 2);
    assert_int_equal(a->before.list[0].version, 1);
    assert_int_equal(cat_serving(t, a, "digits", NULL)->version, 1); /* 2 is not ready */
    assert_null(cat_alias(t, "vision", "digits", "stable"));
    catalog_put(t);
    assert_true(can_roll_back(w));
    assert_ok(catalog_refresh(c, w->db, NULL));
    t = catalog_get(c);
    assert_int_equal(cat_alias(t, "research", "digits", "stable")->now.n, 1);
    catalog_put(t);
    /* An alias that did not change is not read again: nobody else writes such a thing. */
    run(w->db, "UPDATE model_alias SET targets = '[{\"version\": 2}]'");
    run(w->db, "UPDATE model SET row_version = row_version + 1");
    run(w->db, "UPDATE model_version SET row_version = row_version + 1 WHERE version = 1");
    assert_ok(catalog_refresh(c, w->db, NULL));
    t = catalog_get(c);
    assert_int_equal(cat_alias(t, "research", "digits", "stable")->now.list[0].version, 1);
    catalog_put(t);
    run(w->db, "UPDATE model_alias SET row_version = row_version + 1");
    assert_ok(catalog_refresh(c, w->db, NULL));
    t = catalog_get(c);
    assert_int_equal(cat_alias(t, "research", "digits", "stable")->now.list[0].version, 2);
    catalog_put(t);
    catalog_free(c);
}

/* ---------------------------------------------------------------- rollback by itself */

/* The alias as the catalog has it. */
static struct cat_alias seen(struct world *w)
{
    return (struct cat_alias){
        .id = number(w->db, "SELECT id FROM model_alias WHERE name = 'stable'"),
        .generation = number(w->db, "SELECT generation FROM model_alias WHERE name = 'stable'")};
}

static void count_some(struct world *w, struct alias_counts *c, int64_t version, int rc, int n)
{
    const struct cat_alias a = seen(w);
    struct sh_err err = {0};

    for (int i = 0; i < n; i++)
        alias_counts_add(c, &a, version, rc, false, false, sh_clock_wall_ms());
    assert_ok_err(alias_counts_flush(c, w->db, sh_clock_wall_ms(), &err), &err);
}

static int64_t rolled_back(struct world *w)
{
    struct sh_err err = {0};

    assert_ok_err(alias_watch(w->db, &err), &err);
    return number(w->db, "SELECT count(*) FROM model_alias WHERE rolled_back IS NOT NULL");
}

static void set_policy(struct world *w, const char *targets)
{
    struct store_alias a = {.targets = targets,
                            .policy = "{\"window_s\": 60, \"min_requests\": 20, "
                                      "\"error_percent\": 5, \"burn_rate\": 10}"};
    struct sh_err err = {0};

    assert_ok_err(set_to(w, a, &err), &err);
}

static void what_fails_goes_back_by_itself_once(void **state)
{
    struct world *w = *state;
    struct alias_counts *a, *b; /* two processes */

    assert_ok(alias_counts_new(&a, NULL));
    assert_ok(alias_counts_new(&b, NULL));
    set_policy(w, V1);
    count_some(w, a, 1, SH_E_TIMEOUT, 30); /* there is nothing to go back to */
    assert_int_equal(rolled_back(w), 0);
    set_policy(w, BOTH);
    count_some(w, a, 2, SH_E_INVALID, 100); /* of the client's doing */
    count_some(w, a, 2, SH_E_QUOTA, 100);
    count_some(w, a, 2, SH_E_DEVMEM, 10);
    count_some(w, a, 2, SH_OK, 1);
    assert_int_equal(rolled_back(w), 0); /* 11 are too few */
    count_some(w, b, 2, SH_E_DEVMEM, 10);
    assert_int_equal(rolled_back(w), 0); /* version 1 failed as often before */
    count_some(w, b, 1, SH_OK, 1000);
    assert_int_equal(rolled_back(w), 1);
    assert_text(w, "SELECT targets::text FROM model_alias", "[{\"weight\": 1, \"version\": 1}]");
    assert_text(w,
                "SELECT rolled_back->>'reason_code' || ': ' || (rolled_back->>'reason') FROM "
                "model_alias",
                "Errors: version 2 failed 95.2 % of 21 requests, the versions before it 2.9 %; at "
                "most 5 % more are allowed");
    assert_int_equal(number(w->db, "SELECT count(*) FROM audit WHERE action = 'alias.rollback' AND "
                                   "key_id IS NULL"),
                     1);
    count_some(w, a, 1, SH_E_DEVMEM, 2000); /* the old one, too: nothing swings */
    assert_int_equal(rolled_back(w), 1);
    assert_int_equal(number(w->db, "SELECT count(*) FROM audit WHERE action = 'alias.rollback'"),
                     1);
    alias_counts_free(a);
    alias_counts_free(b);
}

static void nothing_goes_by_itself_to_what_cannot_serve(void **state)
{
    struct world *w = *state;
    struct alias_counts *c;

    assert_ok(alias_counts_new(&c, NULL));
    set_policy(w, V1);
    set_policy(w, V2);
    run(w->db, "UPDATE model_version SET state = 'UNLOADED' WHERE version = 1");
    count_some(w, c, 2, SH_OK, 100);
    count_some(w, c, 2, SH_E_IO, 10);
    assert_int_equal(rolled_back(w), 0); /* one of eleven fails: all would */
    run(w->db, "UPDATE model_version SET state = 'READY' WHERE version = 1");
    assert_int_equal(rolled_back(w), 1);
    alias_counts_free(c);
}

/* It had a share before its weight grew. */
static void a_bad_version_gets_nothing_where_its_weight_had_grown(void **state)
{
    struct world *w = *state;
    struct alias_counts *c;

    assert_ok(alias_counts_new(&c, NULL));
    run(w->db, "UPDATE model_version SET state = 'READY'");
    set_policy(w, "[{\"version\": 1, \"weight\": 9}, {\"version\": 2}]");
    set_policy(w, "[{\"version\": 1}, {\"version\": 2}]");
    count_some(w, c, 1, SH_OK, 100);
    count_some(w, c, 2, SH_E_IO, 100);
    run(w->db, "UPDATE model_version SET state = 'UNLOADED' WHERE version = 1");
    assert_int_equal(rolled_back(w), 0); /* only the bad one could serve */
    run(w->db, "UPDATE model_version SET state = 'READY' WHERE version = 1");
    assert_int_equal(rolled_back(w), 1);
    assert_text(w, "SELECT targets::text FROM model_alias", "[{\"weight\": 9, \"version\": 1}]");
    alias_counts_free(c);
}

static void what_was_before_a_promotion_is_not_held_against_it(void **state)
{
    struct world *w = *state;
    struct alias_counts *c;

    assert_ok(alias_counts_new(&c, NULL));
    set_policy(w, BOTH);
    count_some(w, c, 1, SH_OK, 100);
    count_some(w, c, 2, SH_E_IO, 100);
    set_policy(w, V1);
    set_policy(w, BOTH); /* it was mended */
    assert_int_equal(rolled_back(w), 0);
    count_some(w, c, 2, SH_OK, 100);
    assert_int_equal(rolled_back(w), 0);
    count_some(w, c, 2, SH_E_IO, 10);
    assert_int_equal(rolled_back(w), 1);
    alias_counts_free(c);
}

static void a_target_that_is_missed_counts_with_its_percentile(void **state)
{
    struct world *w = *state;
    struct cat_alias a;
    struct alias_counts *c;

    run(w->db, "INSERT INTO slo (model_id, latency_ms, percentile) VALUES (1, 20, 99)");
    assert_ok(alias_counts_new(&c, NULL));
    set_policy(w, V1);
    set_policy(w, BOTH);
    a = seen(w);
    for (int i = 0; i < 200; i++) {
        alias_counts_add(c, &a, 1, SH_OK, true, true, sh_clock_wall_ms());
        alias_counts_add(c, &a, 2, i % 9 ? SH_OK : SH_E_SLO, true, i % 9 != 0, sh_clock_wall_ms());
    }
    assert_ok(alias_counts_flush(c, w->db, sh_clock_wall_ms(), NULL));
    assert_int_equal(rolled_back(w), 1); /* 11.5 times; refusals for the target are no failures */
    assert_text(w, "SELECT rolled_back->>'reason_code' FROM model_alias", "ErrorBudget");
    alias_counts_free(c);
}

static void counts_go_with_the_alias_and_old_ones_are_removed(void **state)
{
    struct world *w = *state;
    struct alias_counts *c;
    struct cat_alias a;

    assert_ok(alias_counts_new(&c, NULL));
    put(w, V1);
    a = seen(w);
    count_some(w, c, 1, SH_OK, 1);
    run(w->db, "INSERT INTO alias_count SELECT alias_id, generation, 2, now() - interval '25 h', "
               "api, 1, 1, 1, 1 FROM alias_count");
    assert_ok(store_alias_sweep(w->db, NULL));
    assert_int_equal(number(w->db, "SELECT count(*) FROM alias_count"), 1);
    run(w->db, "DELETE FROM model_alias");
    assert_int_equal(number(w->db, "SELECT count(*) FROM alias_count"), 0);
    alias_counts_add(c, &a, 1, SH_OK, false, false, sh_clock_wall_ms()); /* it was on its way */
    assert_ok(alias_counts_flush(c, w->db, sh_clock_wall_ms(), NULL));
    assert_int_equal(number(w->db, "SELECT count(*) FROM alias_count"), 0);
    alias_counts_free(c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_way_back_is_one_step),
        TEST(promoting_keeps_what_is_not_named_and_takes_from_another),
        TEST(what_cannot_serve_is_refused),
        TEST(a_model_has_a_limited_number),
        TEST(a_version_that_is_named_stays_and_one_before_may_go),
        TEST(a_version_that_is_named_while_it_is_deleted_stays),
        TEST(nothing_goes_back_to_what_was_unloaded),
        TEST(a_version_is_not_deleted_beside_a_rollback_to_it),
        TEST(what_was_seen_before_a_rollback_is_not_written_over_it),
        TEST(a_model_and_a_tenant_go_with_their_aliases),
        TEST(the_catalog_follows),
        TEST(what_fails_goes_back_by_itself_once),
        TEST(nothing_goes_by_itself_to_what_cannot_serve),
        TEST(a_bad_version_gets_nothing_where_its_weight_had_grown),
        TEST(what_was_before_a_promotion_is_not_held_against_it),
        TEST(a_target_that_is_missed_counts_with_its_percentile),
        TEST(counts_go_with_the_alias_and_old_ones_are_removed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
