/* param_filters.c - see param_rules.h: filters that were not learned. */
#include "runtime/model/param_rules.h"

#include <math.h>

#define MIN_WAVELET 8 /* numbers */

static bool are_whole(const uint8_t *data, int64_t n)
{
    float lo = HUGE_VALF, hi = -HUGE_VALF;
    bool between = false;

    for (int64_t i = 0; i < n; i++) {
        const float x = param_number(data, i);

        if (x != truncf(x) || fabsf(x) > 1024)
            return false;
        lo = fminf(lo, x);
        hi = fmaxf(hi, x);
    }
    for (int64_t i = 0; i < n; i++)
        between |= param_number(data, i) != lo && param_number(data, i) != hi;
    return between;
}

/* The mean of all numbers under it, of each channel by itself. */
static bool is_mean(const uint8_t *data, int64_t n)
{
    const float x = param_number(data, 0);

    return n > 1 && fabsf(x * (float)n - 1) < 1e-6f &&
           memcmp(data, data + sizeof(x), (size_t)(n - 1) * sizeof(x)) == 0;
}

/* Plus and minus the same number, as wavelets have. */
static bool have_one_size(const uint8_t *data, int64_t n)
{
    const float size = fabsf(param_number(data, 0));
    bool plus = false, minus = false;

    for (int64_t i = 0; i < n; i++) {
        const float x = param_number(data, i);

        if (fabsf(x) != size)
            return false;
        plus |= x > 0;
        minus |= x < 0;
    }
    return plus && minus && n >= MIN_WAVELET;
}

#define MIN_MIRROR 5       /* numbers of a kernel: fewer may be equal by chance */
#define MIRROR_ERROR 1e-5f /* of the largest of all */

/* From `first` on, x[i] is x[last - i], or all are minus that. */
static bool is_mirror(const uint8_t *data, int64_t from, int64_t first, int64_t n, float error)
{
    bool even = true, odd = true;

    for (int64_t i = first; i < n && (even || odd); i++) {
        const float x = param_number(data, from + i),
                    other = param_number(data, from + n - 1 + first - i);

        even &= fabsf(x - other) <= error;
        odd &= fabsf(x + other) <= error;
    }
    return even || odd;
}

/* At least three of its numbers differ. */
static bool varies(const uint8_t *data, int64_t from, int64_t n)
{
    float lo = HUGE_VALF, hi = -HUGE_VALF;
    bool between = false;

    for (int64_t i = 0; i < n; i++) {
        lo = fminf(lo, param_number(data, from + i));
        hi = fmaxf(hi, param_number(data, from + i));
    }
    for (int64_t i = 0; i < n; i++)
        between |= param_number(data, from + i) > lo && param_number(data, from + i) < hi;
    return between;
}

/* Every kernel is its own mirror around its middle, or in one axis around half of a period: waves
 * and blurs under a window, the sine of 0 among them. What was drawn is not; what begins as nothing
 * but a middle, or as the mean of neighbours for each channel by itself, may learn. */
static bool are_mirrors(const uint8_t *data, int64_t kernels, int64_t n, bool of_periods)
{
    bool middle = n >= MIN_MIRROR, period = of_periods && n > MIN_MIRROR;
    int64_t varying = 0;
    float error = 0;

    for (int64_t i = 0; i < kernels * n && (middle || period); i++)
        error = fmaxf(error, MIRROR_ERROR * fabsf(param_number(data, i)));
    for (int64_t i = 0; i < kernels && (middle || period); i++) {
        middle = middle && is_mirror(data, i * n, 0, n, error);
        period = period && is_mirror(data, i * n, 1, n, error);
        varying += varies(data, i * n, n);
    }
    return (middle || period) && 2 * varying > kernels;
}

bool param_is_filter(const void *data, int rank, const int64_t *dims)
{
    const int64_t filters = rank > 0 ? dims[0] : 0;
    int64_t n = 1;

    for (int i = 1; i < rank; i++)
        if (dims[i] < 1 || __builtin_mul_overflow(n, dims[i], &n))
            return false;
    if (!data || rank < 3 || filters < 1 || n < 2)
        return false;
    if (filters >= 2 && dims[1] == 1) {
        const size_t size = (size_t)n * sizeof(float), all = (size_t)(filters - 1) * size;
        const uint8_t *p = data;
        const bool uniform = memcmp(p, p + sizeof(float), size - sizeof(float)) == 0;

        if ((!uniform || is_mean(p, n)) && memcmp(p, p + size, all) == 0)
            return true;
    }
    return are_whole(data, filters * n) || have_one_size(data, filters * n) ||
           are_mirrors(data, filters * dims[1], n / dims[1], rank == 3);
}
