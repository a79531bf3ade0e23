/* test_regions.c - clients' shared memory.
 *
 * Without it one tenant could read another's inputs, a client that cuts its memory short could end
 * the server, and memory unregistered in mid-request could be given to the next.
 */
/* uses: api/infer/regions.o api/request/copiers.o */
#include "api/infer/regions.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#define BYTES 4096
#define MOST 4u
#define MOST_OF_TENANT 3u
#define REFUSED(call, want, text)               \
    do {                                        \
        err = (struct sh_err){0};               \
        assert_fails((call), want, &err, text); \
    } while (0)

struct world {
    struct regions *r;
    char key[64];
    int fd;
};

static int make(void **state, enum regions_mode mode)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    assert_ok(regions_new(mode, MOST, MOST_OF_TENANT, NULL, &w->r, NULL));
    snprintf(w->key, sizeof(w->key), "/red.shunt-test-%d", (int)getpid());
    w->fd = shm_open(w->key, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(w->fd >= 0);
    assert_int_equal(ftruncate(w->fd, BYTES), 0);
    *state = w;
    return 0;
}

static int set_up_own(void **state)
{
    return make(state, REGIONS_OWN);
}

static int set_up_any(void **state)
{
    return make(state, REGIONS_ANY);
}

static int set_up_off(void **state)
{
    return make(state, REGIONS_OFF);
}

static int tear_down(void **state)
{
    struct world *w = *state;

    shm_unlink(w->key);
    close(w->fd);
    regions_free(w->r);
    free(w);
    return 0;
}

static void bytes_go_both_ways(void **state)
{
    struct world *w = *state;
    struct region *g = NULL;
    char got[8] = "";

    assert_int_equal(pwrite(w->fd, "abcdefgh", 8, 100), 8);
    assert_ok(regions_add(w->r, "red", "in", w->key, 100, 50, NULL));
    assert_ok(regions_get(w->r, "red", "in", 2, 4, &g, NULL));
    assert_ok(region_read(g, 2, got, 4, NULL));
    assert_string_equal(got, "cdef");
    assert_ok(region_write(g, 3, "XY", 2, NULL));
    assert_int_equal(pread(w->fd, got, 7, 100), 7);
    assert_memory_equal(got, "abcXYfg", 7);
    region_put(g);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct region *g = NULL;

    REFUSED(regions_add(w->r, "red", "in", w->key, 0, BYTES + 1, &err), SH_E_INVALID, "4096 bytes");
    REFUSED(regions_add(w->r, "red", "in", w->key, UINT64_MAX, 1, &err), SH_E_INVALID,
            "do not fit");
    REFUSED(regions_add(w->r, "red", "in", w->key, 0, 0, &err), SH_E_INVALID, "fit");
    assert_ok(regions_add(w->r, "red", "in", w->key, 0, BYTES, NULL));
    REFUSED(regions_get(w->r, "red", "in", BYTES, 1, &g, &err), SH_E_INVALID, "fit");
    REFUSED(regions_get(w->r, "red", "in", 1, UINT64_MAX, &g, &err), SH_E_INVALID, "fit");
    assert_null(g);
}

static void a_name_is_one_tenants(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct region *g = NULL;
    json_t *list = NULL;

    assert_ok(regions_add(w->r, "red", "in", w->key, 0, 8, NULL));
    assert_ok(regions_add(w->r, "red", "in", w->key, 0, 8, NULL)); /* the same again */
    REFUSED(regions_add(w->r, "red", "in", w->key, 0, 9, &err), SH_E_CONFLICT, "unregister");
    REFUSED(regions_get(w->r, "blue", "in", 0, 8, &g, &err), SH_E_NOTFOUND, "\"in\"");
    assert_ok(regions_list(w->r, "blue", NULL, &list, NULL));
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    regions_remove(w->r, "blue", NULL);
    assert_ok(regions_list(w->r, "red", "in", &list, NULL));
    assert_int_equal(json_array_size(list), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "byte_size")), 8);
    json_decref(list);
    regions_remove(w->r, "red", "in");
    REFUSED(regions_list(w->r, "red", "in", &list, &err), SH_E_NOTFOUND, "in");
}

static void a_tenant_has_its_own_keys(void **state)
{
    struct world *w = *state;
    static const char *const BAD[] = {"/blue.x", "/red", "/red.", "/redder.x"};
    struct sh_err err = {0};

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        REFUSED(regions_add(w->r, "red", "in", BAD[i], 0, 8, &err), SH_E_FORBIDDEN, "/red.");
    REFUSED(regions_add(w->r, "blue", "in", w->key, 0, 8, &err), SH_E_FORBIDDEN, "/blue.");
    assert_ok(regions_add(w->r, "red", "in", w->key, 0, 8, NULL));
}

static void keys_are_names_and_no_paths(void **state)
{
    struct world *w = *state;
    static const char *const BAD[] = {"", "/", "x", "/a/b", "/..", "/.", "../x"};
    struct sh_err err = {0};

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        REFUSED(regions_add(w->r, "blue", "in", BAD[i], 0, 8, &err), SH_E_INVALID, "slash");
    REFUSED(regions_add(w->r, "blue", "in", "/shunt-test-none", 0, 8, &err), SH_E_NOTFOUND,
            "/shunt-test-none");
    assert_ok(regions_add(w->r, "blue", "in", w->key, 0, 8, NULL));
}

static void memory_cut_short_is_an_error(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct region *g = NULL;
    struct stat st;
    char got[16];

    assert_ok(regions_add(w->r, "red", "in", w->key, 0, BYTES, NULL));
    assert_ok(regions_get(w->r, "red", "in", 0, BYTES, &g, NULL));
    assert_int_equal(ftruncate(w->fd, 8), 0);
    REFUSED(region_read(g, 0, got, sizeof(got), &err), SH_E_INVALID, "shorter");
    REFUSED(region_write(g, 0, got, sizeof(got), &err), SH_E_INVALID, "shorter");
    assert_int_equal(fstat(w->fd, &st), 0);
    assert_int_equal(st.st_size, 8);
    region_put(g);
}

static void a_region_in_use_outlives_its_name(void **state)
{
    struct world *w = *state;
    struct region *g = NULL;
    char got[4] = "";

    assert_int_equal(pwrite(w->fd, "one", 3, 0), 3);
    assert_ok(regions_add(w->r, "red", "in", w->key, 0, 8, NULL));
    assert_ok(regions_get(w->r, "red", "in", 0, 3, &g, NULL));
    regions_remove(w->r, "red", NULL);
    assert_ok(region_read(g, 0, got, 3, NULL));
    assert_string_equal(got, "one");
    region_put(g);
}

/* A client that was started again makes its memory anew under the old name. */
static void memory_made_anew_is_registered_anew(void **state)
{
    struct world *w = *state;
    struct region *before = NULL, *g = NULL;
    char got[4] = "";

    assert_int_equal(pwrite(w->fd, "old", 3, 0), 3);
    assert_ok(regions_add(w->r, "red", "in", w->key, 0, 8, NULL));
    assert_ok(regions_get(w->r, "red", "in", 0, 3, &before, NULL));
    assert_int_equal(shm_unlink(w->key), 0);
    close(w->fd);
    w->fd = shm_open(w->key, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(w->fd >= 0);
    assert_int_equal(ftruncate(w->fd, BYTES), 0);
    assert_int_equal(pwrite(w->fd, "new", 3, 0), 3);
    assert_ok(regions_add(w->r, "red", "in", w->key, 0, 8, NULL));
    assert_ok(regions_get(w->r, "red", "in", 0, 3, &g, NULL));
    assert_ok(region_read(g, 0, got, 3, NULL));
    assert_string_equal(got, "new");
    assert_ok(region_read(before, 0, got, 3, NULL)); /* a request that runs meanwhile */
    assert_string_equal(got, "old");
    region_put(before);
    region_put(g);
}

static void there_is_a_limit_for_a_tenant_and_for_all(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    char name[32];

    for (unsigned i = 0; i < MOST_OF_TENANT; i++) {
        snprintf(name, sizeof(name), "r%u", i);
        assert_ok(regions_add(w->r, "red", name, w->key, 0, 8, NULL));
    }
    REFUSED(regions_add(w->r, "red", "more", w->key, 0, 8, &err), SH_E_QUOTA, "max-tenant-regions");
    assert_ok(regions_add(w->r, "blue", "more", w->key, 0, 8, NULL));
    REFUSED(regions_add(w->r, "green", "more", w->key, 0, 8, &err), SH_E_QUEUEFULL, "max-regions");
    regions_remove(w->r, "red", "r1");
    assert_ok(regions_add(w->r, "red", "more", w->key, 0, 8, NULL));
}

static void off_is_off(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};
    struct region *g = NULL;
    enum regions_mode m;

    REFUSED(regions_check_on(w->r, &err), SH_E_UNSUPPORTED, "client-shm");
    REFUSED(regions_get(w->r, "red", "in", 0, 8, &g, &err), SH_E_UNSUPPORTED, "client-shm");
    REFUSED(regions_add(w->r, "red", "in", w->key, 0, 8, &err), SH_E_UNSUPPORTED, "client-shm");
    REFUSED(regions_mode_parse("yes", &m, &err), SH_E_INVALID, "own");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_go_both_ways, set_up_own, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, set_up_own, tear_down),
        cmocka_unit_test_setup_teardown(a_name_is_one_tenants, set_up_own, tear_down),
        cmocka_unit_test_setup_teardown(a_tenant_has_its_own_keys, set_up_own, tear_down),
        cmocka_unit_test_setup_teardown(keys_are_names_and_no_paths, set_up_any, tear_down),
        cmocka_unit_test_setup_teardown(memory_cut_short_is_an_error, set_up_own, tear_down),
        cmocka_unit_test_setup_teardown(a_region_in_use_outlives_its_name, set_up_own, tear_down),
        cmocka_unit_test_setup_teardown(memory_made_anew_is_registered_anew, set_up_own, tear_down),
        cmocka_unit_test_setup_teardown(there_is_a_limit_for_a_tenant_and_for_all, set_up_any,
                                        tear_down),
        cmocka_unit_test_setup_teardown(off_is_off, set_up_off, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
