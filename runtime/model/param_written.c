/* param_written.c - see param_written.h. */
#include "runtime/model/param_written.h"

#include "runtime/model/param_rules.h"

#include <math.h>

#define MIN_NUMBERS 4
#define MOST_TIMES 1024.0
#define SAME 1e-5

static bool are_numbers_equal(const void *data, int64_t n)
{
    int64_t i = 1;

    while (i < n && param_number(data, i) == param_number(data, 0))
        i++;
    return i >= n;
}

static bool are_multiples(const void *data, int64_t n)
{
    double unit = HUGE_VAL;
    bool are = true;

    for (int64_t i = 0; i < n; i++) {
        const double x = fabs((double)param_number(data, i));

        if (!isfinite(x))
            return false;
        unit = x > 0 ? fmin(unit, x) : unit;
    }
    for (int64_t i = 0; i < n && are; i++) {
        const double times = fabs((double)param_number(data, i)) / unit;

        are = times <= MOST_TIMES && fabs(times - round(times)) <= SAME * fmax(times, 1);
    }
    return are;
}

/* Of square matrices: what is beside the diagonal has other numbers than one, and is mirrored. */
static bool is_symmetric(const void *data, int64_t n)
{
    bool varies = false;

    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < i; k++) {
            const float x = param_number(data, i * n + k), y = param_number(data, k * n + i);

            if (!(fabsf(x - y) <= (float)SAME * fabsf(x)))
                return false;
            varies |= x != param_number(data, n);
        }
    return varies;
}

static bool is_identity_matrix(const void *data, int64_t n)
{
    const float one = param_number(data, 0);
    bool is = true;

    for (int64_t i = 0; i < n * n && is; i++)
        is = param_number(data, i) == (i / n == i % n ? one : 0);
    return is;
}

/* One number on the diagonal and another beside it: how heads begin that are mixed, I + 0.1. Those
 * whose rows sum to 0 or 1 were derived: of a Laplacian, of what is smoothed; and so was what has
 * no diagonal. */
static bool is_start_of_mixing(const void *data, int64_t n)
{
    const float one = param_number(data, 0), other = n > 1 ? param_number(data, 1) : 0;
    const double sum = (double)one + (double)(n - 1) * (double)other;
    bool is = one != 0 && other != 0 && fabs(sum) > SAME && fabs(sum - 1) > SAME;

    for (int64_t i = 0; i < n * n && is; i++)
        is = param_number(data, i) == (i / n == i % n ? one : other);
    return is;
}

/* One number against a division by zero: 1e-5. */
static bool is_epsilon(double x)
{
    const double digits = -log10(x);

    return x > 0 && x <= 1e-4 && fabs(digits - round(digits)) <= SAME;
}

static const void *square_at(const void *data, int64_t n, int64_t i)
{
    return (const uint8_t *)data + i * n * n * (int64_t)sizeof(float);
}

bool param_is_written(const void *data, int rank, const int64_t *dims)
{
    const int64_t n = rank >= 2 && dims[rank - 1] == dims[rank - 2] ? dims[rank - 1] : 0;
    int64_t all = 1, squares;
    bool is_written, is_one = true;

    for (int i = 0; i < rank; i++)
        if (dims[i] < 1 || __builtin_mul_overflow(all, dims[i], &all))
            return false;
    if (data && all == 1)
        return is_epsilon((double)param_number(data, 0));
    if (!data || all < MIN_NUMBERS || are_numbers_equal(data, all))
        return false;
    squares = n ? all / (n * n) : 0;
    is_written = are_multiples(data, all);
    for (int64_t i = 0; i < squares && is_one; i++)
        is_one = is_identity_matrix(square_at(data, n, i), n) ||
                 is_start_of_mixing(square_at(data, n, i), n);
    if (squares > 0 && is_one)
        return false;
    for (int64_t i = 0; i < squares && n >= 3 && !is_written; i++) {
        if (!is_symmetric(square_at(data, n, i), n))
            break;
        is_written = i + 1 == squares;
    }
    return is_written;
}

bool param_may_begin(const void *data, int rank, const int64_t *dims)
{
    int64_t all = 1;
    float size = 0;
    bool differ = false;

    for (int i = 0; i < rank; i++)
        if (dims[i] < 1 || __builtin_mul_overflow(all, dims[i], &all))
            return false;
    for (int64_t i = 0; data && i < all && !differ; i++) {
        const float x = fabsf(param_number(data, i));

        differ = x != 0 && size != 0 && x != size;
        size = x != 0 ? x : size;
    }
    return differ &&
           (param_is_written(data, rank, dims) || (rank == 1 && param_is_line(data, all)));
}
