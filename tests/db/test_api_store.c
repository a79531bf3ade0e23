/* test_api_store.c - what the API reads of and does to the database.
 *
 * Without it: a job whose loss explodes could not be looked at any more, made-up names of models
 * could keep the database busy, an action could change a job where it makes no sense or without an
 * event, a request could be carried out twice, files of deleted models could fill the disk, a file
 * could be removed that somebody has just come to rely on, or pins could take a whole device.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/cache/catalog.h"
#include "api/files/artifact.h"
#include "api/files/blobs.h"
#include "api/files/job_folder.h"
#include "api/request/cursor.h"
#include "api/store/store_job.h"
#include "common/clock.h"
#include "tests/db/db_test.h"

#include <inttypes.h>
#include <math.h>

#define SECOND INT64_C(1000000000)
#define KEEP_S 3600

struct world {
    struct db *db;
    char dir[SH_TEST_DIR_BYTES];
};

/* Digests are letters: version 1 has a, a deleted one d, the dataset b, and so on. */
static void fill(struct db *db)
{
    run(db, "INSERT INTO tenant (name) VALUES ('research'), ('vision')");
    run(db, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits')");
    run(db, "INSERT INTO model_version (model_id, version, state, digest, package) SELECT 1, n, "
            "CASE n WHEN 1 THEN 'READY' ELSE 'DELETED' END, repeat(c, 64), 'packages/' || "
            "repeat(c, 64) FROM (VALUES (1, 'a'), (2, 'd'), (3, 'e')) x (n, c)");
    run(db, "INSERT INTO dataset (tenant_id, name, state, digest, path, n_samples) SELECT 1, c, s, "
            "repeat(c, 64), 'datasets/' || repeat(c, 64) || '.safetensors', 10 FROM (VALUES ('b', "
            "'READY'), ('c', 'DELETED')) x (c, s)");
    run(db, "INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec) VALUES (1, "
            "1, 'training', 3, 1, '{}')");
}

static void make_dirs(const struct world *w)
{
    static const char *const DIRS[] = {"blobs", "blobs/packages", "blobs/datasets", "blobs/tmp"};
    char path[256];

    for (size_t i = 0; i < SH_ARRAY_LEN(DIRS); i++) {
        snprintf(path, sizeof(path), "%s/%s", w->dir, DIRS[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->db = open_db("test_api_store");
    make_empty(w->db);
    migrate(w->db);
    fill(w->db);
    sh_test_dir_make(w->dir);
    make_dirs(w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char blobs[256];

    db_free(w->db);
    snprintf(blobs, sizeof(blobs), "%s/blobs", w->dir);
    assert_ok(artifact_empty_dir(blobs, NULL));
    assert_int_equal(rmdir(blobs), 0);
    sh_test_dir_remove(w->dir);
    free(w);
    return 0;
}

static const struct db_stmt LARGE = {
    "large",
    "SELECT jsonb_build_object('step', 12, 'loss', 1e30::float8, 'past', jsonb_build_array(0.5, "
    "-3, 1e300::float8), 'text', '1000000000000000000000000000000')",
    0,
};

static void numbers_of_any_size_are_read(void **state)
{
    struct world *w = *state;
    json_t *j = NULL, *past;
    struct sh_err err = {0};

    assert_ok_err(store_one(w->db, &LARGE, NULL, &j, &err), &err);
    assert_true(json_real_value(json_object_get(j, "loss")) == 1e30);
    assert_int_equal(json_integer_value(json_object_get(j, "step")), 12);
    past = json_object_get(j, "past");
    assert_true(json_real_value(json_array_get(past, 0)) == 0.5);
    assert_int_equal(json_integer_value(json_array_get(past, 1)), -3);
    assert_true(json_real_value(json_array_get(past, 2)) == 1e300);
    assert_string_equal(json_string_value(json_object_get(j, "text")),
                        "1000000000000000000000000000000");
    json_decref(j);
}

/* ------------------------------------------------------------------ look-ups */

#define TRUSTED_NS (300 * SECOND) /* longer than a test lasts on the slowest machine */

static int n_asks(struct catalog *c, int64_t tenant_id, int64_t now_ns)
{
    int n = 0;

    for (int i = 0; i < 3 * CAT_LOOKUPS_PER_S; i++)
        n += catalog_should_ask(c, tenant_id, now_ns);
    return n;
}

static void a_tenant_has_few_look_ups_of_what_is_not_there(void **state)
{
    struct world *w = *state;
    struct catalog *c = NULL;
    int64_t now = sh_clock_ns();

    assert_ok(catalog_new(TRUSTED_NS, &c, NULL));
    assert_int_equal(n_asks(c, 1, now), 3 * CAT_LOOKUPS_PER_S); /* the table was never filled */
    assert_ok(catalog_refresh(c, w->db, NULL));
    now = sh_clock_ns();
    assert_int_equal(n_asks(c, 2, now), CAT_LOOKUPS_PER_S);
    assert_int_equal(n_asks(c, 2, now), 0);
    assert_int_equal(n_asks(c, 3, now), CAT_LOOKUPS_PER_S); /* another tenant's */
    assert_int_equal(n_asks(c, 2, now + SECOND), CAT_LOOKUPS_PER_S);
    /* The database has not confirmed the table for too long: it must not be trusted alone. */
    assert_int_equal(n_asks(c, 2, now + TRUSTED_NS + SECOND), 3 * CAT_LOOKUPS_PER_S);
    assert_ok(catalog_refresh(c, w->db, NULL)); /* nothing changed; it is right again */
    assert_int_equal(n_asks(c, 4, sh_clock_ns()), CAT_LOOKUPS_PER_S);
    catalog_free(c);
}

static const char *state_in(struct catalog *c)
{
    struct cat_table *t = catalog_get(c);
    const struct cat_version *v = cat_find(t, "research", "digits", 1);
    const char *state = v->ready ? "READY" : "another";

    catalog_put(t);
    return state;
}

/* What a rehearsal shows is nobody else's to see. */
static void what_is_not_committed_is_not_served(void **state)
{
    struct world *w = *state;
    struct catalog *c = NULL;

    assert_ok(catalog_new(TRUSTED_NS, &c, NULL));
    assert_ok(catalog_refresh(c, w->db, NULL));
    assert_ok(db_rehearse(w->db, NULL));
    run(w->db, "UPDATE model_version SET state = 'UNLOADING', row_version = row_version + 1 "
               "WHERE id = 1");
    assert_ok(catalog_refresh(c, w->db, NULL));
    assert_string_equal(state_in(c), "READY");
    db_undo(w->db);
    assert_ok(catalog_refresh(c, w->db, NULL));
    assert_string_equal(state_in(c), "READY");
    catalog_free(c);
}

/* ------------------------------------------------------------------ jobs */

static struct api_req request(const struct world *w)
{
    return (struct api_req){.db = w->db, .tenant_id = 1, .request_id = "r", .who.key_id = "k"};
}

static void assert_json(const json_t *j, const char *field, const char *want)
{
    char *text = json_dumps(json_object_get(j, field), JSON_COMPACT | JSON_ENCODE_ANY);

    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

/* What the action did, and the state afterwards. */
static bool act(const struct world *w, const char *action, const char *state)
{
    struct api_req q = request(w);
    struct sh_err err = {0};
    json_t *j = NULL;
    int64_t n_changed = 0;

    assert_ok_err(store_job_control(&q, "1", NULL, jobctl_find(action), &n_changed, &err), &err);
    assert_ok_err(store_job_get(&q, "1", &j, &err), &err);
    assert_string_equal(json_string_value(json_object_get(j, "state")), state);
    json_decref(j);
    return n_changed == 1;
}

static void an_action_changes_the_job_where_it_is_allowed_and_only_there(void **state)
{
    struct world *w = *state;
    struct api_req q = request(w);
    struct sh_err err = {0};
    json_t *events = NULL, *e;
    struct req_page page = {.limit = 100, .limit_text = "100"};
    size_t i;

    assert_false(act(w, "release", "QUEUED"));
    assert_true(act(w, "hold", "HELD"));
    assert_false(act(w, "hold", "HELD"));
    assert_false(act(w, "suspend", "HELD"));
    assert_true(act(w, "release", "QUEUED"));
    run(w->db, "UPDATE job SET state = 'RUNNING', executor = 'e'");
    assert_true(act(w, "suspend", "RUNNING"));
    assert_false(act(w, "suspend", "RUNNING"));
    assert_false(act(w, "requeue", "RUNNING"));
    assert_true(act(w, "resume", "RUNNING"));
    assert_true(act(w, "checkpoint", "RUNNING"));
    assert_true(act(w, "requeue", "RUNNING"));
    assert_true(act(w, "cancel", "CANCELLING"));
    run(w->db, "UPDATE job SET state = 'CANCELLED', finished_at = now()");
    assert_false(act(w, "release", "CANCELLED"));
    assert_ok_err(store_job_events(&q, "1", &page, &events, &err), &err);
    assert_int_equal(json_array_size(json_object_get(events, "items")), 7); /* one for each true */
    json_array_foreach(json_object_get(events, "items"), i, e)
    {
        assert_true(json_is_string(json_object_get(e, "from")));
    }
    json_decref(events);
}

static void another_tenants_job_is_not_touched(void **state)
{
    struct world *w = *state;
    struct api_req q = request(w);
    struct sh_err err = {0};
    json_t *j = NULL;
    int64_t n_changed = 1;

    q.tenant_id = 2;
    assert_ok_err(store_job_control(&q, "1", NULL, jobctl_find("hold"), &n_changed, &err), &err);
    assert_int_equal(n_changed, 0);
    assert_ok_err(store_job_patch(&q, "1", NULL, "{\"priority\":1}", &j, &err), &err);
    assert_null(j);
    assert_true(act(w, "hold", "HELD"));
}

static void a_change_merges_labels_and_says_so_in_one_event(void **state)
{
    struct world *w = *state;
    struct api_req q = request(w);
    struct sh_err err = {0};
    json_t *j = NULL;

    run(w->db, "UPDATE job SET labels = '{\"a\":\"1\",\"b\":\"2\"}'");
    assert_ok_err(store_job_patch(&q, "1", "1",
                                  "{\"labels\":{\"a\":null,\"c\":\"3\"},\"deadline\":"
                                  "\"2999-01-01T00:00:00Z\"}",
                                  &j, &err),
                  &err);
    assert_json(j, "labels", "{\"b\":\"2\",\"c\":\"3\"}");
    assert_json(j, "deadline", "\"2999-01-01T00:00:00.000Z\"");
    assert_json(j, "priority", "0");
    json_decref(j);
    assert_ok_err(store_job_patch(&q, "1", "1", "{\"priority\":1}", &j, &err), &err);
    assert_null(j); /* an old row version */
    run(w->db, "UPDATE job SET state = 'FAILED', finished_at = now()");
    assert_ok_err(store_job_patch(&q, "1", NULL, "{\"priority\":1}", &j, &err), &err);
    assert_null(j);
}

struct idem_case {
    struct api_req *q;
    const struct req_idem *idem;
    const json_t *answer;
    json_t **found;
    struct db *other; /* asks in the middle, if not NULL */
    int other_rc;
};

static int idem_tx(struct db *db, const void *arg, struct sh_err *err)
{
    struct idem_case *c = (struct idem_case *)arg;
    int rc = store_idem_begin(c->q, c->idem, c->found, err);

    (void)db;
    if (!rc && c->other) {
        struct api_req second = *c->q;
        json_t *j = NULL;

        second.db = c->other;
        c->other_rc = store_idem_begin(&second, c->idem, &j, NULL);
    }
    return rc || *c->found ? rc : store_idem_keep(c->q, c->idem, c->answer, err);
}

static void an_idempotency_key_has_one_answer_for_a_day(void **state)
{
    struct world *w = *state;
    struct api_req q = request(w);
    struct req_idem idem = {.scope = 1, .key = "k1"};
    json_t *answer = json_pack("{s:i}", "id", 5), *found = NULL;
    struct idem_case c = {.q = &q, .idem = &idem, .answer = answer, .found = &found};
    struct sh_err err = {0};

    memset(idem.fingerprint, 'a', 64);
    assert_ok(db_new(getenv("DATABASE_URL"), "second", &c.other, NULL));
    assert_ok_err(db_tx(w->db, "idem", idem_tx, &c, &err), &err);
    assert_null(found);
    assert_int_equal(c.other_rc, SH_E_CONFLICT); /* the first was being carried out */
    assert_ok_err(store_idem_find(&q, &idem, &found, &err), &err);
    assert_true(json_equal(found, answer));
    json_decref(found);
    idem.fingerprint[0] = 'b';
    assert_fails(store_idem_find(&q, &idem, &found, &err), SH_E_CONFLICT, &err, "another request");
    assert_int_equal(q.reply.status, 422);
    idem.scope = 2; /* has keys of its own */
    assert_ok(store_idem_find(&q, &idem, &found, NULL));
    assert_null(found);
    idem.scope = 1;
    run(w->db, "UPDATE idempotency_key SET expires_at = now() - interval '1 s'");
    run(w->db, "INSERT INTO idempotency_key (tenant_id, key, fingerprint, response, expires_at) "
               "SELECT 1, 'old' || n, repeat('c', 64), '{}', now() - interval '1 day' FROM "
               "generate_series(1, 10) n");
    assert_ok_err(db_tx(w->db, "idem", idem_tx, &c, &err), &err);
    assert_null(found); /* it was forgotten: this is a new request */
    assert_ok(store_idem_find(&q, &idem, &found, NULL));
    assert_non_null(found);
    json_decref(found);
    run(w->db, "DO $$ BEGIN ASSERT (SELECT count(*) FROM idempotency_key) = 1; END $$");
    json_decref(answer);
    db_free(c.other);
}

/* ------------------------------------------------------------------ files without rows */

static char *blob(const struct world *w, const char *kind, char letter, const char *suffix)
{
    static char path[256];
    char name[65] = {0};

    memset(name, letter, 64);
    snprintf(path, sizeof(path), "%s/blobs/%s/%s%s", w->dir, kind, name, suffix);
    return path;
}

static void set_age(const char *path, int64_t age_s)
{
    const struct timespec t = {.tv_sec = sh_clock_wall_ms() / 1000 - age_s};

    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){t, t}, 0), 0);
}

static void put_file(const char *path, int64_t age_s)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs("content", f);
    assert_int_equal(fclose(f), 0);
    set_age(path, age_s);
}

static void put_package(const struct world *w, char letter, int64_t age_s)
{
    char *dir = blob(w, "packages", letter, "");
    char file[300];

    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(file, sizeof(file), "%s/model.onnx", dir);
    put_file(file, age_s);
    set_age(dir, age_s);
}

static bool has(const struct world *w, const char *kind, char letter, const char *suffix)
{
    return access(blob(w, kind, letter, suffix), F_OK) == 0;
}

static size_t sweep(const struct world *w)
{
    struct sh_err err = {0};
    atomic_bool stop = false;
    size_t removed = 0;

    assert_ok_err(blobs_sweep(w->db, w->dir, KEEP_S, &stop, &removed, &err), &err);
    return removed;
}

static void only_old_files_without_a_row_are_removed(void **state)
{
    struct world *w = *state;
    char odd[256];

    put_package(w, 'a', 2 * KEEP_S); /* of a version */
    put_package(w, 'd', 2 * KEEP_S); /* of a deleted one */
    put_package(w, 'e', 2 * KEEP_S); /* likewise, and a live job uses it */
    put_package(w, 'f', 2 * KEEP_S); /* a crash left it */
    put_package(w, '1', KEEP_S / 2); /* its row may still come */
    put_file(blob(w, "datasets", 'b', ".safetensors"), 2 * KEEP_S);
    put_file(blob(w, "datasets", 'c', ".safetensors"), 2 * KEEP_S);
    snprintf(odd, sizeof(odd), "%s/blobs/packages/README", w->dir);
    put_file(odd, 2 * KEEP_S);
    assert_int_equal(sweep(w), 3);
    assert_true(has(w, "packages", 'a', "") && has(w, "packages", 'e', ""));
    assert_true(has(w, "packages", '1', "") && has(w, "datasets", 'b', ".safetensors"));
    assert_false(has(w, "packages", 'd', "") || has(w, "packages", 'f', ""));
    assert_false(has(w, "datasets", 'c', ".safetensors"));
    assert_int_equal(access(odd, F_OK), 0);
    run(w->db, "DO $$ BEGIN ASSERT (SELECT string_agg(right(package, 1), '' ORDER BY id) "
               "FROM model_version WHERE state = 'DELETED') = 'e'; END $$");
    run(w->db, "UPDATE job SET state = 'CANCELLED', finished_at = now()");
    assert_int_equal(sweep(w), 1);
    assert_false(has(w, "packages", 'e', ""));
    run(w->db, "DO $$ BEGIN ASSERT NOT EXISTS (SELECT 1 FROM model_version WHERE state = 'DELETED' "
               "AND package IS NOT NULL); END $$");
}

/* ------------------------------------------------------------------ pins */

static void a_tenant_has_so_many_things_and_no_more(void **state)
{
    struct world *w = *state;
    struct api_req q = {.db = w->db, .tenant_id = 2, .request_id = "r"};
    struct api_req other = {.db = w->db, .tenant_id = 1, .request_id = "r"};
    struct sh_err err = {0};

    run(w->db, "INSERT INTO model (tenant_id, name) SELECT 2, 'm' || n FROM generate_series(1, "
               "9999) n");
    run(w->db, "INSERT INTO model_version (model_id, version) SELECT (SELECT min(id) FROM model "
               "WHERE tenant_id = 2), n FROM generate_series(1, 9999) n");
    run(w->db, "INSERT INTO dataset (tenant_id, name) SELECT 2, 'd' || n FROM generate_series(1, "
               "9999) n");
    for (int what = STORE_MODELS; what <= STORE_DATASETS; what++)
        assert_ok_err(store_has_place(&q, (enum store_thing)what, &err), &err);
    run(w->db, "INSERT INTO model (tenant_id, name) VALUES (2, 'one')");
    run(w->db, "INSERT INTO model_version (model_id, version) SELECT id, 1 FROM model WHERE name = "
               "'one'");
    run(w->db, "INSERT INTO dataset (tenant_id, name) VALUES (2, 'one')");
    for (int what = STORE_MODELS; what <= STORE_DATASETS; what++) {
        err = (struct sh_err){0};
        assert_fails(store_has_place(&q, (enum store_thing)what, &err), SH_E_QUOTA, &err,
                     "at most 10000");
        assert_ok(store_has_place(&other, (enum store_thing)what, NULL));
    }
    run(w->db, "UPDATE dataset SET state = 'DELETED' WHERE name = 'one'");
    assert_ok(store_has_place(&q, STORE_DATASETS, NULL));
}

/* Two tenants with four READY versions each, of 100 MiB a piece. */
static void fill_pins(struct world *w)
{
    run(w->db, "INSERT INTO quota (tenant_id) VALUES (1), (2)");
    run(w->db, "INSERT INTO model (tenant_id, name) VALUES (1, 'a'), (2, 'b')");
    run(w->db,
        "INSERT INTO model_version (model_id, version, state, digest, package, image_bytes) "
        "SELECT m.id, n, 'READY', repeat('f', 64), 'packages/f', 100 * 1048576 FROM model m, "
        "generate_series(1, 4) n WHERE m.name IN ('a', 'b')");
}

static int wish(struct world *w, enum store_wish wish, int64_t tenant, const char *version,
                int64_t *n, struct sh_err *err)
{
    struct api_req q = {.db = w->db, .tenant_id = tenant, .request_id = "r"};

    *err = (struct sh_err){0};
    return store_version_wish(&q, wish, tenant == 1 ? "a" : "b", version, n, err);
}

static void pins_are_bounded_by_quota_by_share_and_by_the_device(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    int64_t n = 0;

    fill_pins(w);
    assert_fails(wish(w, STORE_PIN, 1, "1", &n, &err), SH_E_UNAVAILABLE, &err, "no executor");
    run(w->db, "INSERT INTO executor (name, host_id, device, pool_bytes, data_addr, state, epoch) "
               "VALUES ('big', 'h', 'd', 9000 * 1048576::bigint, '', 'UP', 1), ('small', 'h', 'd', "
               "800 * 1048576, '', 'UP', 1), ('tiny', 'h', 'd', 1048576, '', 'DOWN', 1)");
    /* A quarter of the smallest that is up: 200 MiB. */
    assert_ok_err(wish(w, STORE_PIN, 1, "1", &n, &err), &err);
    assert_int_equal(n, 1);
    assert_ok_err(wish(w, STORE_PIN, 1, "1", &n, &err), &err);
    assert_int_equal(n, 0); /* is pinned already, and counts once */
    assert_ok_err(wish(w, STORE_PIN, 1, "2", &n, &err), &err);
    assert_fails(wish(w, STORE_PIN, 1, "3", &n, &err), SH_E_QUOTA, &err, "share without a quota");
    /* The other tenant may have more by its quota, but not what is left of half the device. */
    run(w->db, "UPDATE quota SET gpu_memory_max_bytes = 700 * 1048576 WHERE tenant_id = 2");
    assert_fails(wish(w, STORE_PIN, 2, NULL, &n, &err), SH_E_CONFLICT, &err, "all tenants");
    assert_ok_err(wish(w, STORE_PIN, 2, "1", &n, &err), &err);
    assert_ok_err(wish(w, STORE_PIN, 2, "2", &n, &err), &err);
    assert_fails(wish(w, STORE_PIN, 2, "3", &n, &err), SH_E_CONFLICT, &err, "50 %");
    assert_ok_err(wish(w, STORE_UNPIN, 1, NULL, &n, &err), &err);
    assert_int_equal(n, 2);
    assert_ok_err(wish(w, STORE_PIN, 2, NULL, &n, &err), &err);
    assert_int_equal(n, 2); /* the rest of its four */
}

static void a_pinned_version_is_not_unloaded_and_an_unloaded_one_not_pinned(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    int64_t n = 0;

    fill_pins(w);
    run(w->db, "INSERT INTO executor (name, host_id, device, pool_bytes, data_addr, state, epoch) "
               "VALUES ('e', 'h', 'd', 8000 * 1048576::bigint, '', 'UP', 1)");
    assert_ok_err(wish(w, STORE_PIN, 1, "1", &n, &err), &err);
    assert_ok_err(wish(w, STORE_UNLOAD, 1, NULL, &n, &err), &err);
    assert_int_equal(n, 3); /* the others */
    assert_ok_err(wish(w, STORE_PIN, 1, "2", &n, &err), &err);
    assert_int_equal(n, 0);
    assert_ok_err(wish(w, STORE_LOAD, 1, NULL, &n, &err), &err);
    assert_int_equal(n, 3);
    assert_ok_err(wish(w, STORE_LOAD, 2, "9", &n, &err), &err);
    assert_int_equal(n, 0);
}

static void put_job(const struct world *w, const char *name, int64_t age_s)
{
    char path[256], file[300];

    snprintf(path, sizeof(path), "%s/jobs/%s", w->dir, name);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(file, sizeof(file), "%s/losses.json", path);
    put_file(file, age_s);
    set_age(path, age_s);
}

static bool has_job(const struct world *w, const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/jobs/%s", w->dir, name);
    return access(path, F_OK) == 0;
}

static void a_folder_of_a_job_goes_when_the_job_is_gone(void **state)
{
    struct world *w = *state;
    char jobs[256], name[16];

    assert_int_equal(sweep(w), 0); /* there is no such folder */
    snprintf(jobs, sizeof(jobs), "%s/jobs", w->dir);
    assert_int_equal(mkdir(jobs, 0755), 0);
    put_job(w, "1", 2 * KEEP_S);
    put_job(w, "2", KEEP_S / 2);
    put_job(w, "attic", 2 * KEEP_S);
    for (int i = 1000; i < 1600; i++) { /* more than one look at the database */
        snprintf(name, sizeof(name), "%d", i);
        put_job(w, name, 2 * KEEP_S);
    }
    assert_int_equal(sweep(w), 600);
    assert_true(has_job(w, "1") && has_job(w, "2") && has_job(w, "attic"));
    assert_false(has_job(w, "1000") || has_job(w, "1599"));
    run(w->db, "DELETE FROM job");
    assert_int_equal(sweep(w), 1);
    assert_false(has_job(w, "1"));
    assert_ok(artifact_empty_dir(jobs, NULL));
    assert_int_equal(rmdir(jobs), 0);
}

static bool has_job_file(const struct world *w, const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/jobs/1/%s", w->dir, name);
    return access(path, F_OK) == 0;
}

static void a_job_without_success_leaves_its_losses_and_its_log_alone(void **state)
{
    static const char *const FILES[] = {"ckpt-10.safetensors", "ckpt-20-gpu0.safetensors",
                                        "result-ab.part", "final.safetensors"};
    struct world *w = *state;
    char jobs[256], path[300];

    snprintf(jobs, sizeof(jobs), "%s/jobs", w->dir);
    assert_int_equal(mkdir(jobs, 0755), 0);
    put_job(w, "1", 2 * KEEP_S);
    for (size_t i = 0; i < SH_ARRAY_LEN(FILES); i++) {
        snprintf(path, sizeof(path), "%s/1/%s", jobs, FILES[i]);
        put_file(path, 2 * KEEP_S);
    }
    snprintf(path, sizeof(path), "%s/1/trained-gpu0.tmp", jobs); /* of a killed executor */
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof(path), "%s/1/trained-gpu0.tmp/model.onnx", jobs);
    put_file(path, 2 * KEEP_S);
    snprintf(path, sizeof(path), "%s/1/" JOB_FOLDER_LOG, jobs);
    put_file(path, 2 * KEEP_S);
    snprintf(path, sizeof(path), "%s/1", jobs);
    set_age(path, 2 * KEEP_S);
    assert_int_equal(sweep(w), 0); /* it is queued: it may go on */
    run(w->db, "UPDATE job SET state = 'CANCELLED', finished_at = now()");
    assert_int_equal(sweep(w), 0); /* a moment ago */
    run(w->db, "UPDATE job SET finished_at = now() - interval '1 day'");
    assert_int_equal(sweep(w), 1);
    for (size_t i = 0; i < SH_ARRAY_LEN(FILES); i++)
        assert_false(has_job_file(w, FILES[i]));
    assert_false(has_job_file(w, "trained-gpu0.tmp"));
    assert_true(has_job_file(w, "losses.json") && has_job_file(w, JOB_FOLDER_LOG));
    assert_int_equal(sweep(w), 0);
    assert_ok(artifact_empty_dir(jobs, NULL));
    assert_int_equal(rmdir(jobs), 0);
}

static void results_count_as_stored_until_they_are_removed(void **state)
{
    struct world *w = *state;
    struct api_req q = {.db = w->db, .tenant_id = 1, .request_id = "r", .who.key_id = "k"};
    struct store_slot slot;
    struct sh_err err = {0};
    json_t *done = NULL;
    int64_t before;

    run(w->db, "INSERT INTO quota (tenant_id) VALUES (1)");
    run(w->db, "INSERT INTO dataset (tenant_id, name) VALUES (1, 'new')");
    assert_ok_err(store_dataset_slot(&q, "new", &slot, &err), &err);
    before = slot.used_bytes;
    run(w->db, "UPDATE job SET state = 'SUCCEEDED', finished_at = now(), tenant_id = 1, result = "
               "jsonb_build_object('bytes', 1000, 'digest', repeat('a', 64), 'samples', 5)");
    assert_ok_err(store_dataset_slot(&q, "new", &slot, &err), &err);
    assert_int_equal(slot.used_bytes, before + 1000);
    assert_ok_err(store_job_drop_result(&q, "1", &done, &err), &err);
    assert_non_null(done);
    json_decref(done);
    assert_ok_err(store_dataset_slot(&q, "new", &slot, &err), &err);
    assert_int_equal(slot.used_bytes, before);
    assert_ok_err(store_job_drop_result(&q, "1", &done, &err), &err);
    assert_null(done); /* there is none any more */
    run(w->db, "DO $$ BEGIN ASSERT (SELECT count(*) FROM audit WHERE action = "
               "'result.delete' AND before ->> 'bytes' = '1000') = 1; END $$");
}

static void only_the_executor_that_has_a_job_owns_it(void **state)
{
    struct world *w = *state;
    const struct store_owner mine = {"1", "gpu0", "3"}, older = {"1", "gpu0", "2"},
                             other = {"1", "gpu1", "3"}, none = {"77", "gpu0", "3"};
    bool owned;

    run(w->db, "UPDATE job SET state = 'RUNNING', executor = 'gpu0', attempt = 3");
    assert_ok(store_job_owned(w->db, &mine, &owned, NULL));
    assert_true(owned);
    assert_ok(store_job_owned(w->db, &older, &owned, NULL));
    assert_false(owned);
    assert_ok(store_job_owned(w->db, &other, &owned, NULL));
    assert_false(owned);
    assert_ok(store_job_owned(w->db, &none, &owned, NULL));
    assert_false(owned);
    run(w->db, "UPDATE job SET state = 'QUEUED', executor = NULL");
    assert_ok(store_job_owned(w->db, &mine, &owned, NULL));
    assert_false(owned);
}

static void a_log_comes_late_unless_another_executor_has_the_job(void **state)
{
    struct world *w = *state;
    const struct store_owner mine = {"1", "gpu0", "3", .is_late = true},
                             future = {"1", "gpu0", "4", .is_late = true};
    bool owned;

    run(w->db, "UPDATE job SET state = 'QUEUED', executor = NULL, attempt = 3");
    assert_ok(store_job_owned(w->db, &mine, &owned, NULL));
    assert_true(owned);
    assert_ok(store_job_owned(w->db, &future, &owned, NULL));
    assert_false(owned);
    run(w->db, "UPDATE job SET state = 'STARTING', executor = 'gpu1', attempt = 4");
    assert_ok(store_job_owned(w->db, &mine, &owned, NULL));
    assert_false(owned);
    run(w->db, "UPDATE job SET state = 'FAILED', finished_at = now(), executor = 'gpu0'");
    assert_ok(store_job_owned(w->db, &mine, &owned, NULL));
    assert_true(owned);
}

/* Ago, in tens of seconds, for time goes by, and in the order in which a snapshot has them. */
static void assert_arrivals(const struct world *w, double hours, const char *want)
{
    json_t *snapshot, *slice;
    char got[128] = "";
    struct sh_err err = {0};
    size_t i;

    assert_ok_err(store_snapshot(w->db, hours, &snapshot, &err), &err);
    json_array_foreach(json_object_get(snapshot, "arrivals"), i, slice)
    {
        const size_t n = strlen(got);

        const double ago_s = json_number_value(json_object_get(slice, "ago_s"));

        snprintf(got + n, sizeof(got) - n, "%.0f:%zu ", 10 * floor(ago_s / 10),
                 json_array_size(json_object_get(slice, "rows")));
    }
    assert_string_equal(got, want);
    json_decref(snapshot);
}

/* What it does not take it need not read: how long the rest is, is known from its number. */
static void a_snapshot_takes_the_last_arrivals_and_no_more_than_asked_for(void **state)
{
    const struct world *w = *state;

    run(w->db, "INSERT INTO arrival (at, seconds, requests, rows, bytes) SELECT now() - ago * "
               "interval '1 s', 10, n, rows::json, bytes FROM (VALUES (20, 5, '[{}]', 4), "
               "(4000, 900000, '[{},{}]', 7), (8000, 90000, '[{},{},{}]', 33554422), "
               "(9000, 1, '[]', 2)) x (ago, n, rows, bytes)");
    assert_arrivals(w, 0, "");
    assert_arrivals(w, 1, "20:1 ");
    assert_arrivals(w, 1.5, "4000:2 20:1 ");
    assert_arrivals(w, 24, "4000:2 20:1 "); /* of the third too many bytes */
    run(w->db, "UPDATE arrival SET bytes = 33554421 WHERE bytes > 7");
    assert_arrivals(w, 2.3, "8000:3 4000:2 20:1 ");
    run(w->db, "UPDATE arrival SET requests = 100000 WHERE bytes > 7");
    assert_arrivals(w, 24, "4000:2 20:1 "); /* of the third too many requests */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_of_any_size_are_read),
        TEST(a_tenant_has_few_look_ups_of_what_is_not_there),
        TEST(what_is_not_committed_is_not_served),
        TEST(only_old_files_without_a_row_are_removed),
        TEST(a_tenant_has_so_many_things_and_no_more),
        TEST(pins_are_bounded_by_quota_by_share_and_by_the_device),
        TEST(a_pinned_version_is_not_unloaded_and_an_unloaded_one_not_pinned),
        TEST(a_folder_of_a_job_goes_when_the_job_is_gone),
        TEST(a_job_without_success_leaves_its_losses_and_its_log_alone),
        TEST(results_count_as_stored_until_they_are_removed),
        TEST(only_the_executor_that_has_a_job_owns_it),
        TEST(a_log_comes_late_unless_another_executor_has_the_job),
        TEST(an_action_changes_the_job_where_it_is_allowed_and_only_there),
        TEST(another_tenants_job_is_not_touched),
        TEST(a_change_merges_labels_and_says_so_in_one_event),
        TEST(an_idempotency_key_has_one_answer_for_a_day),
        TEST(a_snapshot_takes_the_last_arrivals_and_no_more_than_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
