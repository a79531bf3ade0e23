/* test_param_written.c - numbers that somebody wrote, told from those that a parameter begins with.
 *
 * Without it: a file's numbers could be read beyond their end, and heads that are mixed be taken
 * for constants. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "runtime/model/param_written.h"
#include "tests/unit/sh_test.h"

#include <math.h>

/* From memory that ends with the last of them, so that a sanitizer sees who reads on. */
static bool is_written(const float *numbers, size_t n, int rank, const int64_t *dims)
{
    void *exact = malloc(n * sizeof(*numbers));
    bool is;

    assert_non_null(exact);
    memcpy(exact, numbers, n * sizeof(*numbers));
    is = param_is_written(exact, rank, dims);
    free(exact);
    return is;
}

static void matrices_of_one_number_end_with_it(void **state)
{
    const float numbers[] = {1, 1, 1, 1, 1, 1, 1, NAN};

    (void)state;
    assert_false(is_written(numbers, 8, 3, (int64_t[]){8, 1, 1}));
}

static void what_begins_as_identity_and_a_number_is_not_written(void **state)
{
    const float mixed[] = {1.1f, 0.1f, 0.1f, 0.1f, 1.1f, 0.1f, 0.1f, 0.1f, 1.1f};
    const float laplacian[] = {2, -1, -1, -1, 2, -1, -1, -1, 2};

    (void)state;
    assert_false(is_written(mixed, 9, 2, (int64_t[]){3, 3}));
    assert_true(is_written(laplacian, 9, 2, (int64_t[]){3, 3}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_one_number_end_with_it),
        cmocka_unit_test(what_begins_as_identity_and_a_number_is_not_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
