/* test_losses.c - a range of the losses of a job.
 *
 * Without it: pages could overlap or leave a loss out, or one request could hold a million numbers
 * in memory. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/handlers.h"
#include "api/jobs/losses.h"
#include "tests/unit/sh_test.h"

struct world {
    char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 16];
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    sh_test_dir_make(w->dir);
    snprintf(w->path, sizeof(w->path), "%s/losses.json", w->dir);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    sh_test_dir_remove(w->dir);
    free(w);
    return 0;
}

static void put(const struct world *w, const char *text)
{
    FILE *f = fopen(w->path, "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void check(const struct world *w, int64_t offset, int64_t limit, const char *want,
                  int64_t want_total)
{
    struct sh_err err = {0};
    json_t *j = NULL;
    int64_t total = -1;
    char *text;

    assert_ok_err(losses_read(w->path, offset, limit, &j, &total, &err), &err);
    text = json_dumps(j, JSON_COMPACT);
    assert_string_equal(text, want);
    assert_int_equal(total, want_total);
    free(text);
    json_decref(j);
}

static void a_range_is_cut_out_whole(void **state)
{
    struct world *w = *state;

    put(w, "[0.5,null,2,-1.5e+20,7]\n");
    check(w, 0, 10, "[0.5,null,2,-1.5e20,7]", 5);
    check(w, 0, 1, "[0.5]", 5);
    check(w, 1, 2, "[null,2]", 5);
    check(w, 3, 2, "[-1.5e20,7]", 5);
    check(w, 4, 100000, "[7]", 5);
    check(w, 5, 10, "[]", 5);
    check(w, INT64_MAX, 10, "[]", 5);
}

static void before_the_first_step_there_is_none(void **state)
{
    struct world *w = *state;

    check(w, 0, 10, "[]", 0); /* no file yet */
    put(w, "[]\n");
    check(w, 0, 10, "[]", 0);
}

static void a_million_of_them_are_read_in_pages(void **state)
{
    struct world *w = *state;
    FILE *f = fopen(w->path, "w");
    int64_t total = 0, next = 0;

    assert_non_null(f);
    fputs("[0", f);
    for (int i = 1; i < 1000000; i++)
        fprintf(f, ",%d", i);
    fputs("]\n", f);
    assert_int_equal(fclose(f), 0);
    for (int64_t offset = 0; offset < 1000000; offset += 100000) {
        json_t *j = NULL;
        size_t i;
        json_t *v;

        assert_ok(losses_read(w->path, offset, 100000, &j, &total, NULL));
        assert_int_equal(total, 1000000);
        json_array_foreach(j, i, v)
        {
            assert_int_equal(json_integer_value(v), next++);
        }
        json_decref(j);
    }
    assert_int_equal(next, 1000000);
}

static void a_damaged_file_says_so(void **state)
{
    static const char *const BAD[] = {"", "{}", "[1,2", "[1,x]", "[1,,2]"};
    struct world *w = *state;

    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct sh_err err = {0};
        json_t *j = NULL;
        int64_t total;

        put(w, BAD[i]);
        assert_fails(losses_read(w->path, 0, 10, &j, &total, &err), SH_E_IO, &err, "damaged");
        assert_null(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_range_is_cut_out_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(before_the_first_step_there_is_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_million_of_them_are_read_in_pages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_file_says_so, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
