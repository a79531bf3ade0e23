/* test_api_tenancy.c - keys, queues, usage, shares and the audit as the API's statements do them.
 *
 * Without it: a secret that was replaced could go on opening doors, a key that is in use could look
 * unused and be revoked, one that was revoked could come back from a cache, a page of usage could
 * count a minute twice, and a filter of the audit could hide a change.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/api.h"
#include "api/cache/auth.h"
#include "api/handlers.h"
#include "api/store/store_job.h"
#include "common/clock.h"
#include "common/hash.h"
#include "tests/db/db_test.h"

#include <math.h>

struct world {
    struct db *db;
    struct auth *auth;
    struct api api;
    struct api_req q; /* of an admin */
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->db = open_db("test_api_tenancy");
    make_empty(w->db);
    migrate(w->db);
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

/* id: NULL for any. */
static struct auth_new_key make_key_of(struct world *w, const char *id, const char *expires_at)
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

    assert_ok(auth_make_key(id, &made, NULL));
    assert_ok_err(store_key_create(w->db, "admin0000000", "r-1", &k, &j, &err), &err);
    assert_non_null(j);
    json_decref(j);
    return made;
}

static struct auth_new_key make_key(struct world *w, const char *expires_at)
{
    return make_key_of(w, NULL, expires_at);
}

static int check_who(struct world *w, const struct auth_new_key *k, struct api_who *who,
                     struct sh_err *err)
{
    char header[AUTH_KEY_BYTES + 16];

    *err = (struct sh_err){0};
    snprintf(header, sizeof(header), "Bearer %s", k->text);
    return auth_check(w->auth, header, w->db, who, err);
}

static int check(struct world *w, const struct auth_new_key *k, struct sh_err *err)
{
    struct api_who who;

    return check_who(w, k, &who, err);
}

/* A handler, as a request with this body (NULL: none) would run it. */
static void change(struct api_req *q, api_fn *handler, const char *body)
{
    struct sh_err err = {0};

    if (body)
        assert_ok_err(sh_json_parse(body, strlen(body), 4096, &q->json, &err), &err);
    assert_ok_err(handler(q, &err), &err);
    json_decref(q->json);
    q->json = NULL;
    req_reply_free(&q->reply);
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

/* Without a refresh thread: what an admin was answered holds for the next request. */
static void a_changed_tenant_is_changed_for_keys_in_the_cache(void **state)
{
    struct world *w = *state;
    struct auth_new_key k = make_key(w, NULL);
    struct api_req *q = &w->q;
    struct api_who who;
    struct sh_err err = {0};

    q->params[0] = "research";
    assert_ok_err(check_who(w, &k, &who, &err), &err);
    assert_false(who.suspended);

    change(q, tenants_patch, "{\"state\":\"SUSPENDED\"}");
    assert_ok_err(check_who(w, &k, &who, &err), &err);
    assert_true(who.suspended);
    change(q, tenants_patch, "{\"state\":\"ACTIVE\"}");
    assert_ok_err(check_who(w, &k, &who, &err), &err);
    assert_false(who.suspended);

    change(q, quota_put, "{\"requests_per_second\":7}");
    assert_ok_err(check_who(w, &k, &who, &err), &err);
    assert_int_equal((int)who.requests_per_second, 7);

    change(q, tenants_delete, NULL);
    assert_fails(check(w, &k, &err), SH_E_UNAUTHENTICATED, &err, "revoked");
}

static void a_tenant_has_a_limited_number_of_live_keys(void **state)
{
    struct world *w = *state;
    struct auth_new_key made;
    struct store_key k = {.tenant = "research",
                          .name = "k",
                          .role = "read",
                          .id = made.id,
                          .hash_hex = made.hash_hex};
    json_t *j = NULL;

    run(w->db, "INSERT INTO api_key (id, tenant_id, name, role, hash, revoked_at) SELECT "
               "lpad(i::text, 12, '0'), 1, 'k', 'read', decode(repeat('00', 32), 'hex'), CASE WHEN "
               "i > 1000 THEN now() END FROM generate_series(1, 1010) i");
    assert_ok(auth_make_key(NULL, &made, NULL));
    assert_ok(store_key_create(w->db, "admin0000000", "r-1", &k, &j, NULL));
    assert_null(j);
    run(w->db, "UPDATE api_key SET expires_at = now() WHERE id = lpad('7', 12, '0')");
    assert_ok(store_key_create(w->db, "admin0000000", "r-1", &k, &j, NULL));
    assert_non_null(j);
    json_decref(j);
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

/* Keys of one neighbourhood of the cache: the last of them takes the place of the first. */
static void a_use_is_not_lost_with_its_place_in_the_cache(void **state)
{
    struct world *w = *state;
    uint32_t place = 0;
    size_t n = 0;

    for (unsigned i = 0; n < 9; i++) {
        struct auth_new_key k;
        struct sh_err err = {0};
        char id[AUTH_ID_CHARS + 1];

        snprintf(id, sizeof(id), "k%011u", i);
        if (n > 0 && (sh_crc32c(0, id, AUTH_ID_CHARS) & 16383u) != place)
            continue;
        place = sh_crc32c(0, id, AUTH_ID_CHARS) & 16383u;
        k = make_key_of(w, id, NULL);
        assert_ok_err(check(w, &k, &err), &err);
        n++;
    }
    assert_int_equal(number(w->db, "SELECT count(last_used_at) FROM api_key"), 1);
    assert_ok(auth_write_used(w->auth, w->db, NULL));
    assert_int_equal(number(w->db, "SELECT count(last_used_at) FROM api_key"), 9);
}

/* ------------------------------------------------------------------ usage, shares */

#define MINUTE INT64_C(60000)
#define NOON INT64_C(1790856000000) /* 2026-10-01T12:00:00Z */

/* Two models, two classes: each minute from noon on has one second and one request in each. */
static void fill_usage(struct world *w)
{
    run(w->db, "INSERT INTO model (tenant_id, name) VALUES (1, 'a'), (1, 'b'), (2, 'a')");
    run(w->db, "INSERT INTO usage SELECT m.tenant_id, m.id, c, to_timestamp(1790856000) + i * "
               "interval '1 minute', 1000000000, 1, 2 FROM model m, unnest(ARRAY['inference', "
               "'training']) c, generate_series(0, 149) i");
}

static struct req_page page_of(int64_t limit)
{
    static const uint8_t key[CURSOR_KEY_BYTES] = {1};
    struct req_page p = {.limit = limit, .cursor_key = key, .list = "usage"};

    snprintf(p.limit_text, sizeof(p.limit_text), "%lld", (long long)limit);
    return p;
}

/* Walks all pages. *n: groups; returns their GPU seconds. */
static double walk_usage(struct world *w, const struct store_usage *u, int64_t limit, size_t *n)
{
    struct req_page page = page_of(limit);
    double seconds = 0;
    const char *cursor;

    *n = 0;
    do {
        struct sh_err err = {0};
        json_t *j = NULL, *items, *item;
        int64_t id;
        size_t i;

        assert_ok_err(store_usage(&w->q, u, &page, &j, &err), &err);
        items = json_object_get(j, "items");
        assert_true(json_array_size(items) <= (size_t)limit);
        json_array_foreach(items, i, item)
        {
            seconds += json_number_value(json_object_get(item, "gpu_seconds"));
            ++*n;
        }
        cursor = json_string_value(json_object_get(j, "next_cursor"));
        page.cursor = cursor ? page.after : NULL;
        if (cursor) {
            assert_ok(cursor_open(page.cursor_key, page.list, cursor, &id, NULL));
            snprintf(page.after, sizeof(page.after), "%lld", (long long)id);
        }
        json_decref(j);
    } while (page.cursor);
    return seconds;
}

static void usage_adds_up_the_same_by_whatever_it_is_grouped(void **state)
{
    static const size_t GROUPS[USAGE_N_BY] = {2, 2, 150, 3, 1};
    struct world *w = *state;
    struct store_usage u = {.tenant = "research", .from_ms = 0, .to_ms = NOON + 1000 * MINUTE};
    size_t n;

    fill_usage(w);
    for (u.by = 0; u.by < USAGE_N_BY; u.by++) {
        for (int64_t limit = 1; limit < 200; limit += 40) {
            assert_true(walk_usage(w, &u, limit, &n) == 600);
            assert_int_equal(n, GROUPS[u.by]);
        }
    }
}

static void usage_is_of_the_range_the_class_and_the_model_that_were_asked_for(void **state)
{
    struct world *w = *state;
    struct store_usage u = {.tenant = "research",
                            .by = USAGE_BY_MINUTE,
                            .from_ms = NOON + 10 * MINUTE,
                            .to_ms = NOON + 15 * MINUTE};
    size_t n;

    fill_usage(w);
    assert_true(walk_usage(w, &u, 100, &n) == 20);
    assert_int_equal(n, 5);
    u.class = "training";
    assert_true(walk_usage(w, &u, 100, &n) == 10);
    u.model = "b";
    assert_true(walk_usage(w, &u, 100, &n) == 5);
    u.model = "c";
    assert_true(walk_usage(w, &u, 100, &n) == 0);
}

static double field(const json_t *j, const char *name)
{
    return json_number_value(json_object_get(j, name));
}

static void a_share_shows_its_row_with_the_usage_as_it_has_decayed_by_now(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    json_t *j = NULL;

    run(w->db, "UPDATE quota SET guaranteed_gpus = 2, over_quota_weight = 3 WHERE tenant_id = 1");
    assert_ok_err(store_share_get(&w->q, "research", &j, &err), &err);
    assert_true(field(j, "guaranteed_gpus") == 2 && field(j, "running_gpus") == 0);
    assert_true(json_is_null(json_object_get(j, "at")));
    json_decref(j);
    run(w->db,
        "INSERT INTO tenant_share (tenant_id, at, epoch, guaranteed_gpus, weight, "
        "running_gpus, waiting_gpus, fair_gpus, reserved_gpus, usage_ns, half_life_s) VALUES "
        "(1, now() - interval '1000 s', 1, 2, 3, 1, 4, 2, 1, 36e9, 1000), "
        "(2, now(), 1, 0, 1, 0, 0, 0, 0, 2e9, 1000)");
    assert_ok_err(store_share_get(&w->q, "research", &j, &err), &err);
    assert_true(fabs(field(j, "usage_gpu_seconds") - 18) < 0.5);
    assert_true(fabs(field(j, "usage_per_weight") - 6) < 0.2);
    assert_true(fabs(field(j, "usage_fraction") - 0.9) < 0.02);
    assert_true(fabs(field(j, "weight_fraction") - 0.75) < 1e-9);
    assert_true(field(j, "saturation") == 0.5 && field(j, "reserved_gpus") == 1);
    json_decref(j);
    assert_ok_err(store_share_get(&w->q, "vision", &j, &err), &err);
    assert_true(json_is_null(json_object_get(j, "saturation"))); /* of nothing */
    json_decref(j);
    assert_ok_err(store_share_get(&w->q, "nobody", &j, &err), &err);
    assert_null(j);
}

/* ------------------------------------------------------------------ queues */

static const char *text(const json_t *j, const char *name)
{
    const char *s = json_string_value(json_object_get(j, name));

    return s ? s : "";
}

static json_t *create_queue(struct world *w, int64_t tenant, const char *name)
{
    struct store_queue x = {.tenant_id = tenant, .name = name};
    struct sh_err err = {0};
    json_t *j = NULL;

    assert_ok_err(store_queue_create(&w->q, &x, &j, &err), &err);
    return j;
}

static void a_live_name_is_unique_among_the_queues_that_a_tenant_sees(void **state)
{
    struct world *w = *state;
    struct store_queue x = {.tenant_id = 1, .name = "night"};
    json_t *j = create_queue(w, 1, "night");

    assert_string_equal(text(j, "state"), "OPEN");
    json_decref(j);
    assert_null(create_queue(w, 1, "night"));
    assert_null(create_queue(w, 1, "default")); /* a shared one */
    assert_null(create_queue(w, 0, "night"));
    j = create_queue(w, 2, "night"); /* another tenant's */
    assert_non_null(j);
    json_decref(j);
    assert_ok(store_queue_delete(&w->q, &x, NULL, &j, NULL));
    json_decref(j);
    j = create_queue(w, 1, "night");
    assert_non_null(j);
    json_decref(j);
}

static void a_tenant_sees_its_own_queues_and_the_shared_ones(void **state)
{
    struct world *w = *state;
    json_t *j = create_queue(w, 1, "night");

    json_decref(j);
    w->q.tenant_id = 2;
    assert_ok(store_queue_get(&w->q, "night", &j, NULL));
    assert_null(j);
    assert_ok(store_queue_get(&w->q, "default", &j, NULL));
    assert_non_null(j);
    json_decref(j);
    w->q.tenant_id = 1;
    assert_ok(store_queue_get(&w->q, "night", &j, NULL));
    assert_non_null(j);
    json_decref(j);
}

static void the_queues_and_the_share_of_a_deleted_tenant_count_no_more(void **state)
{
    struct world *w = *state;
    json_t *j = create_queue(w, 2, "night");

    json_decref(j);
    run(w->db, "INSERT INTO tenant_share (tenant_id, epoch, guaranteed_gpus, weight, running_gpus, "
               "waiting_gpus, fair_gpus, reserved_gpus, usage_ns, half_life_s) SELECT id, 1, 0, 1, "
               "0, 0, 0, 0, 1e9, 1000 FROM tenant");
    assert_ok(store_tenant_delete(&w->q, "vision", NULL, &j, NULL));
    json_decref(j);
    j = create_queue(w, 0, "night");
    assert_non_null(j);
    json_decref(j);
    assert_ok(store_share_get(&w->q, "research", &j, NULL));
    assert_true(fabs(field(j, "usage_fraction") - 1) < 1e-9 && field(j, "weight_fraction") == 1);
    json_decref(j);
}

static void a_queue_with_live_jobs_stays_and_one_with_ended_ones_goes(void **state)
{
    struct world *w = *state;
    struct store_queue x = {.tenant_id = 1, .name = "night"};
    struct sh_err err = {0};
    json_t *j = create_queue(w, 1, "night");

    json_decref(j);
    w->q.tenant_id = 1;
    run(w->db, "INSERT INTO model (tenant_id, name) VALUES (1, 'm')");
    run(w->db, "INSERT INTO model_version (model_id, version) VALUES (1, 1)");
    run(w->db, "INSERT INTO dataset (tenant_id, name) VALUES (1, 'd')");
    run(w->db, "INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec) SELECT "
               "1, id, 'training', 1, 1, '{}' FROM queue WHERE name = 'night'");
    assert_ok_err(store_queue_delete(&w->q, &x, NULL, &j, &err), &err);
    assert_null(j);
    run(w->db, "UPDATE job SET state = 'CANCELLED', finished_at = now()");
    assert_ok_err(store_queue_delete(&w->q, &x, NULL, &j, &err), &err);
    assert_non_null(j);
    json_decref(j);
    assert_ok(store_queue_get(&w->q, "night", &j, NULL));
    assert_null(j);
    assert_int_equal(number(w->db, "SELECT count(*) FROM job"), 1);
    assert_fails(store_queue_refuse(&w->q, "night", &err), SH_E_NOTFOUND, &err, "no queue");
}

static void a_change_of_a_queue_leaves_the_rest_as_it_was(void **state)
{
    struct world *w = *state;
    struct store_queue x = {.tenant_id = 1, .name = "night", .priority = 7, .has_priority = true};
    struct sh_err err = {0};
    json_t *j = create_queue(w, 1, "night");

    json_decref(j);
    w->q.tenant_id = 1;
    assert_ok_err(store_queue_patch(&w->q, &x, "1", &j, &err), &err);
    assert_true(field(j, "priority") == 7 && field(j, "row_version") == 2);
    json_decref(j);
    x = (struct store_queue){.tenant_id = 1, .name = "night", .state = "DRAINING"};
    assert_ok(store_queue_patch(&w->q, &x, "1", &j, NULL));
    assert_null(j); /* an old row version */
    assert_ok_err(store_queue_patch(&w->q, &x, NULL, &j, &err), &err);
    assert_string_equal(text(j, "state"), "DRAINING");
    assert_true(field(j, "priority") == 7);
    json_decref(j);
    assert_fails(store_queue_refuse(&w->q, "night", &err), SH_E_CONFLICT, &err, "DRAINING");
}

static void a_tenant_has_a_limited_number_of_queues(void **state)
{
    struct world *w = *state;

    run(w->db, "INSERT INTO queue (tenant_id, name) SELECT 1, 'q' || i FROM generate_series(1, "
               "100) i");
    assert_null(create_queue(w, 1, "one-more"));
    run(w->db, "UPDATE queue SET state = 'DRAINING', deleted_at = now() WHERE name = 'q1'");
    json_decref(create_queue(w, 1, "one-more"));
    assert_int_equal(number(w->db, "SELECT count(*) FROM queue WHERE name = 'one-more'"), 1);
}

/* ------------------------------------------------------------------ audit */

static size_t n_audit(struct world *w, const struct store_audit *f, const char **first_action)
{
    static char kept[64];
    struct req_page page = page_of(50);
    struct sh_err err = {0};
    json_t *j = NULL, *items;
    size_t n;

    assert_ok_err(store_audit_list(w->db, f, &page, &j, &err), &err);
    items = json_object_get(j, "items");
    n = json_array_size(items);
    sh_strlcpy(kept, text(json_array_get(items, 0), "action"), sizeof(kept));
    *first_action = kept;
    json_decref(j);
    return n;
}

static void the_audit_is_found_by_tenant_actor_action_and_time(void **state)
{
    struct world *w = *state;
    struct store_audit all = {.from_ms = -1, .to_ms = -1}, f = all;
    const char *action;

    run(w->db, "INSERT INTO audit (at, key_id, tenant_id, request_id, action, resource) VALUES "
               "(to_timestamp(1000), 'anna', 1, 'r1', 'key.create', 'key/1'), "
               "(to_timestamp(2000), 'anna', 2, 'r2', 'key.rotate', 'key/1'), "
               "(to_timestamp(3000), 'bert', 1, 'r3', 'keyring.patch', 'keyring/1')");
    assert_int_equal(n_audit(w, &all, &action), 3);
    assert_string_equal(action, "keyring.patch"); /* newest first */
    f.tenant = "research";
    assert_int_equal(n_audit(w, &f, &action), 2);
    f.actor = "anna";
    assert_int_equal(n_audit(w, &f, &action), 1);
    assert_string_equal(action, "key.create");
    f = all;
    f.action = "key";
    assert_int_equal(n_audit(w, &f, &action), 2);
    f.action = "key.rotate";
    assert_int_equal(n_audit(w, &f, &action), 1);
    f = all;
    f.resource = "key/1";
    assert_int_equal(n_audit(w, &f, &action), 2);
    f = all;
    f.from_ms = 1000000;
    f.to_ms = 3000000;
    assert_int_equal(n_audit(w, &f, &action), 2);
    f.from_ms = 1000001;
    assert_int_equal(n_audit(w, &f, &action), 1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_rotated_key_has_a_new_secret_and_the_old_one_is_refused_at_once),
        TEST(the_old_secret_goes_on_for_the_overlap_and_not_longer),
        TEST(revoking_ends_both_secrets_and_such_a_key_is_not_rotated),
        TEST(a_key_of_another_tenant_is_neither_seen_nor_rotated),
        TEST(a_use_is_not_lost_with_its_place_in_the_cache),
        TEST(an_expired_key_is_refused_from_the_cache_too),
        TEST(a_key_that_was_forgotten_is_read_again),
        TEST(a_changed_tenant_is_changed_for_keys_in_the_cache),
        TEST(a_tenant_has_a_limited_number_of_live_keys),
        TEST(uses_are_written_in_one_go_and_never_backwards),
        TEST(usage_adds_up_the_same_by_whatever_it_is_grouped),
        TEST(usage_is_of_the_range_the_class_and_the_model_that_were_asked_for),
        TEST(a_share_shows_its_row_with_the_usage_as_it_has_decayed_by_now),
        TEST(a_live_name_is_unique_among_the_queues_that_a_tenant_sees),
        TEST(a_tenant_sees_its_own_queues_and_the_shared_ones),
        TEST(the_queues_and_the_share_of_a_deleted_tenant_count_no_more),
        TEST(a_queue_with_live_jobs_stays_and_one_with_ended_ones_goes),
        TEST(a_change_of_a_queue_leaves_the_rest_as_it_was),
        TEST(a_tenant_has_a_limited_number_of_queues),
        TEST(the_audit_is_found_by_tenant_actor_action_and_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
