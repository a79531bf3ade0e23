/* test_blobs.c - what an executor fetches before it begins, and how long it keeps it.
 *
 * Without it the folder could grow above --blob-cache-bytes, a dataset in use could go, one that is
 * read every minute could go before one of last year, two jobs could fetch the same file twice, and
 * what failed could leave its parts or be refused for ever.
 */
/* uses: executor/files/blobs.o executor/files/cache.o executor/files/folder.o executor/files/transfer.o */
/* link: -lmicrohttpd -lcurl */
#include "executor/files/blobs.h"
#include "tests/unit/transfer_world.h"

#include <sys/time.h>

#define BYTES 40000

static char bytes[N_FILES][BYTES];

static char paths[N_FILES][128];

static void begin(struct world *w, int64_t cache_bytes)
{
    const struct blobs_conf c = {
        .state_dir = w->dir, .executor = w->here.executor, .cache_bytes = cache_bytes};

    assert_ok(blobs_new(&c, w->here.transfers, &w->here.blobs, NULL));
}

/* Four datasets, and room for two of them. */
static int set_up(void **state)
{
    static struct world w;

    world_start(&w);
    for (size_t i = 0; i < N_FILES; i++) {
        memset(bytes[i], (int)i + 1, BYTES);
        world_add(&w, NULL, bytes[i], BYTES);
        snprintf(paths[i], sizeof(paths[i]), "datasets/%s.safetensors", w.files[i].name);
    }
    begin(&w, 2 * BYTES + 1000);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    transfers_free(w->here.transfers);
    w->here.transfers = NULL;
    blobs_free(w->here.blobs);
    world_stop(w);
    return 0;
}

static enum blob_state settle(struct world *w, const struct blob_set *s, const struct sh_err **why)
{
    int64_t end = sh_clock_ns() + INT64_C(20000000000);
    enum blob_state state;

    while ((state = blob_set_state(s, why)) == BLOB_COMING && sh_clock_ns() < end)
        assert_ok(sh_loop_once(w->loop, 20000000, NULL));
    return state;
}

static void fetch(struct world *w, struct blob_set *s, const char *path)
{
    const struct sh_err *why = NULL;

    assert_ok(blob_want(w->here.blobs, s, path, NULL));
    if (settle(w, s, &why) != BLOB_HERE)
        fail_msg("%s: %s", path, why ? why->msg : "still coming");
}

/* It came and nobody uses it any more. */
static void keep(struct world *w, const char *path)
{
    struct blob_set s = {0};

    fetch(w, &s, path);
    blob_set_drop(&s);
}

static bool is_kept(const struct world *w, const char *path)
{
    char below[192];

    snprintf(below, sizeof(below), "blobs/%s", path);
    return world_has(w, below);
}

static int n_parts(const struct world *w)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/blobs/tmp", w->dir);
    return sh_test_dir_walk(path, false);
}

static int n_asked(const struct world *w, const char *what)
{
    int n = 0;

    for (const char *at = w->log; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* ------------------------------------------------------------------ room */

static void the_one_that_was_used_longest_ago_makes_room(void **state)
{
    struct world *w = *state;

    keep(w, paths[0]);
    keep(w, paths[1]);
    w->log[0] = '\0';
    keep(w, paths[0]); /* from the folder */
    assert_string_equal(w->log, "");
    keep(w, paths[2]);
    assert_true(is_kept(w, paths[0]));
    assert_false(is_kept(w, paths[1]));
    assert_true(is_kept(w, paths[2]));
    keep(w, paths[1]); /* it can come again, and what went is removed by now */
    assert_false(is_kept(w, paths[0]));
    assert_int_equal(n_parts(w), 0);
}

static void what_is_in_use_stays_and_who_finds_no_room_is_told(void **state)
{
    struct world *w = *state;
    struct blob_set used = {0}, refused = {0};
    const struct sh_err *why = NULL;

    fetch(w, &used, paths[0]);
    fetch(w, &used, paths[1]);
    assert_ok(blob_want(w->here.blobs, &refused, paths[2], NULL));
    assert_int_equal(settle(w, &refused, &why), BLOB_FAILED);
    assert_int_equal(why->rc, SH_E_DISKFULL);
    assert_has(why->msg, "--blob-cache-bytes");
    assert_int_equal(n_asked(w, "GET"), 2); /* its size was enough */
    blob_set_drop(&refused);
    blob_set_drop(&used);
    keep(w, paths[2]);
    assert_true(is_kept(w, paths[1]));
    assert_false(is_kept(w, paths[0]));
}

static void a_new_process_goes_on_with_the_old_order(void **state)
{
    struct world *w = *state;
    const struct timeval old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char path[512];

    keep(w, paths[0]);
    keep(w, paths[1]);
    blobs_free(w->here.blobs);
    snprintf(path, sizeof(path), "%s/blobs/tmp/half.part", w->dir);
    sh_test_write_file(path, "x", 1);
    snprintf(path, sizeof(path), "%s/blobs/%s", w->dir, paths[1]);
    assert_int_equal(utimes(path, old), 0);
    begin(w, 2 * BYTES + 1000);
    assert_int_equal(n_parts(w), 0);
    keep(w, paths[2]);
    assert_true(is_kept(w, paths[0]));
    assert_false(is_kept(w, paths[1]));
}

/* ------------------------------------------------------------------ coming */

static void two_that_want_the_same_share_one_transfer(void **state)
{
    struct world *w = *state;
    struct blob_set a = {0}, b = {0};
    const struct sh_err *why = NULL;

    assert_ok(blob_want(w->here.blobs, &a, paths[0], NULL));
    assert_ok(blob_want(w->here.blobs, &b, paths[0], NULL));
    assert_int_equal(settle(w, &a, &why), BLOB_HERE);
    assert_int_equal(blob_set_state(&b, &why), BLOB_HERE);
    assert_int_equal(n_asked(w, "GET"), 1);
    blob_set_drop(&a);
    keep(w, paths[1]);
    keep(w, paths[2]); /* b still uses the first */
    assert_true(is_kept(w, paths[0]));
    blob_set_drop(&b);
}

static void what_is_wanted_again_while_it_is_being_stopped_comes(void **state)
{
    struct world *w = *state;
    struct blob_set s = {0};

    atomic_store(&w->stalls, true);
    assert_ok(blob_want(w->here.blobs, &s, paths[0], NULL));
    while (n_asked(w, "GET") == 0) /* the bytes do not come */
        assert_ok(sh_loop_once(w->loop, 20000000, NULL));
    blob_set_drop(&s);
    assert_ok(blob_want(w->here.blobs, &s, paths[0], NULL));
    atomic_store(&w->stalls, false);
    fetch(w, &s, paths[0]);
    assert_true(is_kept(w, paths[0]));
    blob_set_drop(&s);
}

static void what_failed_leaves_nothing_and_may_come_later(void **state)
{
    struct world *w = *state;
    struct blob_set s = {0};
    const struct sh_err *why = NULL;

    w->n_damaged = 3;
    assert_ok(blob_want(w->here.blobs, &s, paths[0], NULL));
    assert_int_equal(settle(w, &s, &why), BLOB_FAILED);
    assert_int_equal(why->rc, SH_E_IO);
    assert_has(why->msg, "SHA-256");
    assert_false(is_kept(w, paths[0]));
    assert_int_equal(n_parts(w), 0);
    keep(w, paths[1]);
    keep(w, paths[2]); /* no room was lost */
    assert_true(is_kept(w, paths[1]));
    blob_set_drop(&s);
    keep(w, paths[0]);
}

static void a_model_that_does_not_become_a_package_leaves_nothing(void **state)
{
    struct world *w = *state;
    struct blob_set s = {0};
    const struct sh_err *why = NULL;
    char path[128];

    blobs_free(w->here.blobs);
    begin(w, 0);
    snprintf(path, sizeof(path), "packages/%s", w->files[0].name);
    assert_ok(
        blob_want(w->here.blobs, &s, path, NULL)); /* there is no shunt-import beside this test */
    assert_int_equal(settle(w, &s, &why), BLOB_FAILED);
    assert_int_equal(n_asked(w, "GET"), 1);
    assert_int_equal(n_parts(w), 0);
    assert_false(is_kept(w, path));
    blob_set_drop(&s);
}

static void only_an_optional_file_of_a_job_may_be_missing(void **state)
{
    struct world *w = *state;
    struct blob_set s = {0};
    const struct sh_err *why = NULL;

    world_make_dir(w, "jobs/7");
    assert_ok(blob_want_job_file(w->here.blobs, &s, "7/losses.json", true, NULL));
    assert_int_equal(settle(w, &s, &why), BLOB_HERE);
    assert_ok(blob_want_job_file(w->here.blobs, &s, "7/ckpt-5.safetensors", false, NULL));
    assert_int_equal(settle(w, &s, &why), BLOB_FAILED);
    assert_int_equal(why->rc, SH_E_NOTFOUND);
    assert_has(w->log, "GET /api/v1/jobs/7/files/ckpt-5.safetensors ");
    assert_false(world_has(w, "jobs/7/ckpt-5.safetensors.part"));
    blob_set_drop(&s);
}

static void a_path_that_is_no_blob_is_refused(void **state)
{
    struct world *w = *state;
    struct blob_set s = {0};
    struct sh_err err = {0};

    assert_fails(blob_want(w->here.blobs, &s, "datasets/../../key", &err), SH_E_INVALID, &err,
                 "is not the name of a blob");
    assert_ok(blob_want(w->here.blobs, &s, "/data/mine.safetensors", NULL)); /* not ours */
    assert_ok(blob_want(w->here.blobs, &s, "", NULL));
    assert_int_equal(s.n, 0);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(the_one_that_was_used_longest_ago_makes_room),
        WORLD_TEST(what_is_in_use_stays_and_who_finds_no_room_is_told),
        WORLD_TEST(a_new_process_goes_on_with_the_old_order),
        WORLD_TEST(two_that_want_the_same_share_one_transfer),
        WORLD_TEST(what_is_wanted_again_while_it_is_being_stopped_comes),
        WORLD_TEST(what_failed_leaves_nothing_and_may_come_later),
        WORLD_TEST(a_model_that_does_not_become_a_package_leaves_nothing),
        WORLD_TEST(only_an_optional_file_of_a_job_may_be_missing),
        WORLD_TEST(a_path_that_is_no_blob_is_refused),
    };

    return cmocka_run_group_tests_name("blobs", tests, NULL, NULL);
}
