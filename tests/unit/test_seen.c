/* test_seen.c - how often shapes are used. Without it: the shapes that are used most would be
 * compiled while clients wait after each start, or the counts would grow without an end. */
/* uses: executor/models/seen.o */
#include "executor/models/model_int.h"
#include "executor/models/seen.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct model version;
static struct files files;
static struct store_env env = {.max_shapes = 8, .files = &files};
static uint32_t asked[SEEN_MAX];
static size_t n_asked;

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &env;
}

struct model *store_next(struct store *s, const struct model *m)
{
    (void)s;
    return m ? NULL : &version;
}

int store_shape(struct model *v, const struct sh_sizes *sizes, struct model **out,
                struct sh_err *err)
{
    (void)v;
    (void)err;
    asked[n_asked++] = sizes->v[0];
    *out = NULL;
    return SH_OK;
}

static char name[] = "cpu0";
static char dir[] = "/tmp/test_seen.XXXXXX";

static char package[] = "packages/abc";

static void begin(void)
{
    free(version.seen.shapes);
    version = (struct model){.handle = 1, .package = package, .phase = MODEL_READY};
    version.sizes = (struct sh_sizes){.v = {64}, .n = 1};
    n_asked = 0;
}

static void use(uint32_t size, int times)
{
    for (int i = 0; i < times; i++)
        seen_count(&version, &(struct sh_sizes){.v = {size}, .n = 1});
}

static void write_now(void)
{
    version.seen.written_ns = 0;
    seen_second(NULL);
    assert_false(version.seen.has_changed);
}

static uint64_t count_of(uint32_t size)
{
    for (size_t i = 0; i < version.seen.n; i++)
        if (version.seen.shapes[i].sizes.v[0] == size)
            return version.seen.shapes[i].n;
    return 0;
}

static void the_most_used_come_back_first_over_several_starts(void **state)
{
    (void)state;
    begin();
    for (uint32_t i = 1; i <= 20; i++)
        use(i, (int)(i % 7) + 1);
    use(5, 50);
    write_now();
    begin();
    seen_bring(&version);
    assert_int_equal(n_asked, 4); /* half of model_shapes */
    assert_int_equal(asked[0], 5);
    assert_true(asked[1] % 7 == 6 && asked[2] % 7 == 6);
    assert_int_equal(count_of(5), 56);
    use(7, 60); /* which had been used once */
    write_now();
    begin();
    seen_bring(&version);
    assert_int_equal(asked[0], 7);
    assert_int_equal(asked[1], 5);
}

static void counts_are_bounded_and_what_is_used_a_lot_is_not_missed(void **state)
{
    (void)state;
    begin();
    for (uint32_t i = 0; i < 100000; i++) {
        use(100 + i, 1);
        if (i % 20 == 0)
            use(9, 1);
    }
    assert_int_equal(version.seen.n, SEEN_MAX);
    write_now();
    begin();
    seen_bring(&version);
    assert_true(count_of(9) > 0);
    assert_int_equal(asked[0], 9);
}

static void what_was_used_long_ago_fades(void **state)
{
    (void)state;
    begin();
    use(3, 1000);
    use(4, 200000);
    assert_true(count_of(4) < SEEN_SUM);
    assert_true(count_of(3) < 200);
}

static void what_is_damaged_is_left_out(void **state)
{
    static const char TEXT[] = "17\n3: 18\n: 19\nx: 20\n-4: 21\n5: 0\n5: 22 23\n5: -1\n5:\n\n"
                               "99999999999999999999: 24\n5: 99999999999\n2: 25";
    char path[64];
    FILE *f;

    (void)state;
    begin();
    snprintf(path, sizeof(path), "%s/shapes/cpu0.abc", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(TEXT, 1, sizeof(TEXT) - 1, f), sizeof(TEXT) - 1);
    fclose(f);
    seen_bring(&version);
    assert_int_equal(n_asked, 3);
    assert_int_equal(asked[0], 17); /* of an older executor */
    assert_int_equal(asked[1], 18);
    assert_int_equal(asked[2], 25);
    seen_forget(&version);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_used_come_back_first_over_several_starts),
        cmocka_unit_test(counts_are_bounded_and_what_is_used_a_lot_is_not_missed),
        cmocka_unit_test(what_was_used_long_ago_fades),
        cmocka_unit_test(what_is_damaged_is_left_out),
    };
    char path[64];
    int rc;

    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/shapes", dir);
    mkdir(path, 0700);
    files.state_dir = dir;
    env.executor = name;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    free(version.seen.shapes);
    snprintf(path, sizeof(path), "%s/shapes/cpu0.abc", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/shapes", dir);
    rmdir(path);
    return rc + rmdir(dir);
}
