/* test_api_store.c - what the API reads of and does to the database.
 *
 * Without it: a job whose loss explodes could not be looked at any more, made-up names of models
 * could keep the database busy, files of deleted models could fill the disk, a file could be
 * removed that somebody has just come to rely on, or pins could take a whole device.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq */
#include "api/artifact.h"
#include "api/blobs.h"
#include "api/catalog.h"
#include "api/store.h"
#include "common/clock.h"
#include "tests/db/db_test.h"

#define SECOND INT64_C(1000000000)
#define KEEP_S 3600

struct world {
    struct db *db;
    char dir[SH_TEST_DIR_BYTES];
};

/* Digests are letters: version 1 has a, a deleted one d, the dataset b, and so on. */
static void fill(struct db *db)
{
    run(db, "INSERT INTO tenant (name) VALUES ('research')");
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

    assert_ok(catalog_new(3 * SECOND, &c, NULL));
    assert_int_equal(n_asks(c, 1, now), 3 * CAT_LOOKUPS_PER_S); /* the table was never filled */
    assert_ok(catalog_refresh(c, w->db, NULL));
    now = sh_clock_ns();
    assert_int_equal(n_asks(c, 2, now), CAT_LOOKUPS_PER_S);
    assert_int_equal(n_asks(c, 2, now), 0);
    assert_int_equal(n_asks(c, 3, now), CAT_LOOKUPS_PER_S); /* another tenant's */
    assert_int_equal(n_asks(c, 2, now + SECOND), CAT_LOOKUPS_PER_S);
    /* The database has not confirmed the table for too long: it must not be trusted alone. */
    assert_int_equal(n_asks(c, 2, now + 4 * SECOND), 3 * CAT_LOOKUPS_PER_S);
    assert_ok(catalog_refresh(c, w->db, NULL)); /* nothing changed; it is right again */
    assert_int_equal(n_asks(c, 4, sh_clock_ns()), CAT_LOOKUPS_PER_S);
    catalog_free(c);
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
    run(w->db, "UPDATE job SET state = 'CANCELLED', finished_at = now()");
    assert_int_equal(sweep(w), 1);
    assert_false(has(w, "packages", 'e', ""));
}

/* ------------------------------------------------------------------ pins */

/* Two tenants with four READY versions each, of 100 MiB a piece. */
static void fill_pins(struct world *w)
{
    run(w->db, "INSERT INTO tenant (name) VALUES ('vision')");
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_of_any_size_are_read),
        TEST(a_tenant_has_few_look_ups_of_what_is_not_there),
        TEST(only_old_files_without_a_row_are_removed),
        TEST(pins_are_bounded_by_quota_by_share_and_by_the_device),
        TEST(a_pinned_version_is_not_unloaded_and_an_unloaded_one_not_pinned),
        TEST(a_folder_of_a_job_goes_when_the_job_is_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
