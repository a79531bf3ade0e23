/* pattern.c - see pattern.h. */
#include "tests/sim/pattern.h"

#define FNV_FIRST UINT64_C(14695981039346656037)
#define FNV_PRIME UINT64_C(1099511628211)

uint64_t sim_pattern_add(uint64_t state, const void *in, size_t n)
{
    const unsigned char *p = in;

    for (size_t i = 0; i < n; i++)
        state = (state ^ p[i]) * FNV_PRIME;
    return state;
}

uint64_t sim_pattern_begin(int64_t version_id)
{
    return sim_pattern_add(FNV_FIRST, &version_id, sizeof(version_id));
}

static unsigned char byte_of(uint64_t state, size_t i)
{
    return (unsigned char)((state + i / 8 * FNV_PRIME) >> (8 * (i % 8)));
}

void sim_pattern_write(uint64_t state, void *out, size_t n)
{
    unsigned char *p = out;

    for (size_t i = 0; i < n; i++)
        p[i] = byte_of(state, i);
}

size_t sim_pattern_check(uint64_t state, const void *out, size_t n)
{
    const unsigned char *p = out;
    size_t i = 0;

    while (i < n && p[i] == byte_of(state, i))
        i++;
    return i;
}
