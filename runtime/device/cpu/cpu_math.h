/* cpu_math.h - exp() and functions of it that compilers can vectorise; accurate to 2 ulp. */
#ifndef SH_RUNTIME_DEVICE_CPU_CPU_MATH_H
#define SH_RUNTIME_DEVICE_CPU_CPU_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* 2^n e^r by n = round(x / ln 2); NaN stays. */
static inline float cpu__exp(float x)
{
    const float inside = x > 87.0f ? 87.0f : x < -87.0f ? -87.0f : x;
    const float n = rintf(inside * 1.44269504f);
    const float r = inside - n * 0.693359375f + n * 2.12194440e-4f;
    const float p =
        1 + r * (1 + r * (0.5f + r * (0.166666657f +
                                      r * (4.16695364e-2f + r * (8.36978e-3f + r * 1.3814e-3f)))));
    const int32_t bits = ((n == n ? (int32_t)n : 0) + 127) * (1 << 23);
    float power;

    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

static inline float cpu__logistic(float x)
{
    return 1 / (1 + cpu__exp(-x));
}

static inline float cpu__tanh(float x)
{
    return 1 - 2 / (1 + cpu__exp(2 * x));
}

#endif
