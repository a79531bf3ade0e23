/* cpu_quant.h - integers of 8 bits, between the files that compute with them. */
#ifndef SH_RUNTIME_DEVICE_CPU_CPU_QUANT_H
#define SH_RUNTIME_DEVICE_CPU_CPU_QUANT_H

#include "runtime/device/cpu/cpu.h"

struct cpu_number { /* how to read a tensor of F32, I8 or U8 */
    const void *p;
    enum sh_dtype type;
    struct dev_quant q;
};
float cpu__number(const struct cpu_number *n, int64_t i);
int32_t cpu__to8(float v, const struct dev_quant *q, enum sh_dtype t);
/* y[i] = x[i] in type t, I8 or U8 */
void cpu__row_to8(const float *x, int64_t n, const struct dev_quant *q, enum sh_dtype t,
                  uint8_t *y);
/* Appends a step that rounds n of F32 to type t. */
int cpu__round_step(struct cpu_build *b, struct cpu_ref from, struct cpu_ref to, int64_t n,
                    enum sh_dtype t, const struct dev_quant *q);

#endif
