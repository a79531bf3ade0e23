/* test_api_tenancy.c - keys, queues, usage, shares and the audit as the API's statements do them.
 *
 * Without it: a secret that was replaced could go on opening doors, a key that is in use could look
 * unused and be revoked, one that was revoked could come back from a cache, a page of usage could
 * count a minute twice, and a filter of the audit could hide a change.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq */
#include "api/api.h"
#include "api/auth.h"
#include "api/store.h"
#include "common/clock.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

struct world {
    struct db *db;
    struct auth *auth;
    struct api api;
    struct api_req q; /* of an admin */
};

/* A statement is kept by its connection, so it has to stay. */
static struct db_res *query(struct db *db, const char *sql)
{
    static struct db_stmt kept[512];
    static char names[SH_ARRAY_LEN(kept)][16];
    static size_t n;
    struct db_res *r = NULL;
    struct sh_err err = {0};

    assert_true(n < SH_ARRAY_LEN(kept));
    snprintf(names[n], sizeof(names[n]), "once%zu", n);
    kept[n] = (struct db_stmt){names[n], sql, 0};
    assert_ok_err(db_exec(db, &kept[n], NULL, &r, &err), &err);
    n++;
    return r;
}

static void run(struct db *db, const char *sql)
{
    db_res_free(query(db, sql));
}

static int64_t number(struct db *db, const char *sql)
{
    struct db_res *r = query(db, sql);
    int64_t v = db_rows(r) ? db_i64(r, 0, 0, -1) : -1;

    db_res_free(r);
    return v;
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    const char *url = getenv("DATABASE_URL");
    struct sh_err err = {0};
    int applied = 0;

    assert_non_null(w);
    assert_non_null(url);
    assert_ok(db_new(url, "test_api_tenancy", &w->db, NULL));
    run(w->db, "DROP SCHEMA public CASCADE");
    run(w->db, "CREATE SCHEMA public");
    assert_ok_err(db_migrate(w->db, "migrations", &applied, &err), &err);
    run(w->db, "INSERT INTO tenant (name) VALUES ('research'), ('vision')");
    run(w->db, "INSERT INTO quota (tenant_id) VALUES (1), (2)");
    assert_ok(auth_new(&w->auth, NULL));
    w->api.auth = w->auth;
    w->q = (struct api_req){.api = &w->api,
                            .db = w->db,
                            .request_id = "r-1",
                            .who = {.key_id = "admin0000000", .role = ROLE_ADMIN}};
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    auth_free(w->auth);
    db_free(w->db);
    free(w);
    return 0;
}

/* ------------------------------------------------------------------ keys */

static struct auth_new_key make_key(struct world *w, const char *expires_at)
{
    struct auth_new_key made;
    struct store_key k = {.tenant = "research",
                          .name = "k",
                          .role = "submit",
                          .id = made.id,
                          .hash_hex = made.hash_hex,
                          .expires_at = expires_at};
    struct sh_err err = {0};
    json_t *j = NULL;

    assert_ok(auth_make_key(NULL, &made, NULL));
    assert_ok_err(store_key_create(w->db, "admin0000000", "r-1", &k, &j, &err), &err);
    assert_non_null(j);
    json_decref(j);
    return made;
}

static int check(struct world *w, const struct auth_new_key *k, struct sh_err *err)
{
    char header[AUTH_KEY_BYTES + 16];
    struct api_who who;

    *err = (struct sh_err){0};
    snprintf(header, sizeof(header), "Bearer %s", k->text);
    return auth_check(w->auth, header, w->db, &who, err);
}

static struct auth_new_key rotate(struct world *w, const struct auth_new_key *k, int64_t overlap_s)
{
    struct auth_new_key made;
    struct store_key s = {.tenant = "research", .id = made.id, .hash_hex = made.hash_hex};
    struct sh_err err = {0};
    json_t *j = NULL;

    assert_ok(auth_make_key(k->id, &made, NULL));
    assert_string_equal(made.id, k->id);
    assert_ok_err(store_key_rotate(&w->q, &s, overlap_s, &j, &err), &err);
    assert_non_null(j);
    json_decref(j);
    auth_forget(w->auth, k->id);
    return made;
}

static void a_rotated_key_has_a_new_secret_and_the_old_one_is_refused_at_once(void **state)
{
    struct world *w = *state;
    struct auth_new_key old = make_key(w, NULL), new;
    struct sh_err err = {0};

    assert_ok_err(check(w, &old, &err), &err); /* now in the cache */
    new = rotate(w, &old, 0);
    assert_ok_err(check(w, &new, &err), &err);
    assert_fails(check(w, &old, &err), SH_E_UNAUTHENTICATED, &err, "unknown");
}

static void the_old_secret_goes_on_for_the_overlap_and_not_longer(void **state)
{
    struct world *w = *state;
    struct auth_new_key first = make_key(w, NULL), second, third;
    struct sh_err err = {0};

    second = rotate(w, &first, 3600);
    assert_ok_err(check(w, &first, &err), &err);
    assert_ok_err(check(w, &second, &err), &err);
    run(w->db, "UPDATE api_key SET old_until = now() - interval '1 ms'");
    assert_ok(auth_refresh(w->auth, w->db, NULL));
    assert_fails(check(w, &first, &err), SH_E_UNAUTHENTICATED, &err, "rotated");
    assert_ok_err(check(w, &second, &err), &err);
    third = rotate(w, &second, 3600); /* one old secret at a time */
    assert_fails(check(w, &first, &err), SH_E_UNAUTHENTICATED, &err, "unknown");
    assert_ok_err(check(w, &second, &err), &err);
    assert_ok_err(check(w, &third, &err), &err);
}

static void revoking_ends_both_secrets_and_such_a_key_is_not_rotated(void **state)
{
    struct world *w = *state;
    struct auth_new_key old = make_key(w, NULL), new, never;
    struct store_key s = {.tenant = "research", .id = never.id, .hash_hex = never.hash_hex};
    struct sh_err err = {0};
    json_t *j = NULL;

    new = rotate(w, &old, 3600);
    assert_ok_err(check(w, &old, &err), &err);
    assert_ok(store_key_revoke(&w->q, "research", old.id, &j, NULL));
    json_decref(j);
    auth_forget(w->auth, old.id);
    assert_fails(check(w, &old, &err), SH_E_UNAUTHENTICATED, &err, "revoked");
    assert_fails(check(w, &new, &err), SH_E_UNAUTHENTICATED, &err, "revoked");
    assert_ok(auth_make_key(old.id, &never, NULL));
    assert_ok(store_key_rotate(&w->q, &s, 0, &j, NULL));
    assert_null(j);
}

static void a_key_of_another_tenant_is_neither_seen_nor_rotated(void **state)
{
    struct world *w = *state;
    struct auth_new_key k = make_key(w, NULL);
    struct store_key s = {.tenant = "vision", .id = k.id, .hash_hex = k.hash_hex};
    json_t *j = NULL;

    assert_ok(store_key_get(&w->q, "vision", k.id, &j, NULL));
    assert_null(j);
    assert_ok(store_key_rotate(&w->q, &s, 0, &j, NULL));
    assert_null(j);
}

static void an_expired_key_is_refused_from_the_cache_too(void **state)
{
    struct world *w = *state;
    struct auth_new_key k = make_key(w, "2999-01-01T00:00:00Z");
    struct sh_err err = {0};

    assert_ok_err(check(w, &k, &err), &err);
    run(w->db, "UPDATE api_key SET expires_at = now() - interval '1 ms'");
    assert_ok(auth_refresh(w->auth, w->db, NULL));
    assert_fails(check(w, &k, &err), SH_E_UNAUTHENTICATED, &err, "expired");
}

static void a_key_that_was_forgotten_is_read_again(void **state)
{
    struct world *w = *state;
    struct auth_new_key k = make_key(w, NULL);
    struct sh_err err = {0};

    assert_ok_err(check(w, &k, &err), &err);
    run(w->db, "UPDATE api_key SET revoked_at = now()");
    assert_ok_err(check(w, &k, &err), &err); /* the cache, as long as nobody said anything */
    auth_forget(w->auth, k.id);
    assert_fails(check(w, &k, &err), SH_E_UNAUTHENTICATED, &err, "revoked");
}

static void uses_are_written_in_one_go_and_never_backwards(void **state)
{
    static const struct db_stmt NAMES = {
        "used_names",
        "SELECT count(*), count(last_used_at), count(*) FILTER (WHERE last_used_at > now() - "
        "interval '1 minute') FROM api_key",
        0};
    struct world *w = *state;
    struct auth_new_key a = make_key(w, NULL), b = make_key(w, NULL);
    struct db_res *r = NULL;
    struct sh_err err = {0};
    char ids[64];

    make_key(w, NULL); /* is not used */
    assert_ok_err(check(w, &a, &err), &err);
    assert_ok_err(check(w, &b, &err), &err);
    assert_ok_err(auth_write_used(w->auth, w->db, &err), &err);
    assert_ok(db_exec(w->db, &NAMES, NULL, &r, NULL));
    assert_int_equal(db_i64(r, 0, 0, 0), 3);
    assert_int_equal(db_i64(r, 0, 1, 0), 2);
    assert_int_equal(db_i64(r, 0, 2, 0), 2);
    db_res_free(r);
    /* Another process writes later what it saw earlier. */
    snprintf(ids, sizeof(ids), "%s,%s", b.id, a.id);
    assert_ok_err(store_key_used(w->db, ids, "1000,2000", &err), &err);
    assert_int_equal(number(w->db, "SELECT count(*) FROM api_key WHERE last_used_at > now() - "
                                   "interval '1 minute'"),
                     2);
    /* What is written is not written again. */
    run(w->db, "UPDATE api_key SET last_used_at = NULL");
    assert_ok(auth_write_used(w->auth, w->db, NULL));
    assert_int_equal(number(w->db, "SELECT count(last_used_at) FROM api_key"), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_rotated_key_has_a_new_secret_and_the_old_one_is_refused_at_once),
        TEST(the_old_secret_goes_on_for_the_overlap_and_not_longer),
        TEST(revoking_ends_both_secrets_and_such_a_key_is_not_rotated),
        TEST(a_key_of_another_tenant_is_neither_seen_nor_rotated),
        TEST(an_expired_key_is_refused_from_the_cache_too),
        TEST(a_key_that_was_forgotten_is_read_again),
        TEST(uses_are_written_in_one_go_and_never_backwards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
