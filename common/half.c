/* half.c - see half.h. nearbyint() rounds ties to even. */
#include "common/half.h"

#include <math.h>
#include <string.h>

uint16_t sh_f16_of(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    int e = 0;

    if (isnan(v))
        return sign | 0x7e00;
    if (a >= 65520) /* half-way between the largest number and the next, which is none */
        return sign | 0x7c00;
    if (a < 0x1p-14) /* subnormal, in units of 2^-24; 1024 of them are the least normal one */
        return sign | (uint16_t)nearbyint(a * 0x1p24);
    frexp(a, &e);
    a = nearbyint(ldexp(a, 11 - e)); /* 1024 to 2048; the latter carries into the exponent */
    return (uint16_t)(sign | (((uint32_t)(e + 14) << 10) + (uint32_t)a - 1024));
}

double sh_f16_value(uint16_t h)
{
    int e = h >> 10 & 0x1f, m = h & 0x3ff;
    double a = e == 0 ? ldexp(m, -24) : e == 31 ? (m ? NAN : INFINITY) : ldexp(1024 + m, e - 25);

    return h & 0x8000 ? -a : a;
}

uint16_t sh_bf16_of(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    if (isnan(v))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float sh_bf16_value(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}
