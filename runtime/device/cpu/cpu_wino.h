/* cpu_wino.h - which convolutions use Winograd's algorithm, and how their kernels are stored. */
#ifndef SH_RUNTIME_DEVICE_CPU_CPU_WINO_H
#define SH_RUNTIME_DEVICE_CPU_CPU_WINO_H

#include "runtime/device/cpu/cpu.h"

/* Does this CONV use it? Always, if its kernels are already stored transformed. */
bool cpu__wino_has(struct cpu_build *b);
cpu_builder cpu__wino;
/* w [M,C,3,3] in row-major form <-> transformed; back up to rounding. */
void cpu__wino_pack(const struct dev_tensor *w, const float *plain, float *stored);
void cpu__wino_unpack(const struct dev_tensor *w, const float *stored, float *plain);

#endif
