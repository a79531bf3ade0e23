/* half.h - 16-bit numbers: IEEE F16, and BF16, the upper half of an F32. Rounds to nearest, ties to
 * even; what is too large becomes infinite. */
#ifndef SH_COMMON_HALF_H
#define SH_COMMON_HALF_H

#include <stdint.h>

uint16_t sh_f16_of(double v);
double sh_f16_value(uint16_t h);
uint16_t sh_bf16_of(float v);
float sh_bf16_value(uint16_t h);

#endif
