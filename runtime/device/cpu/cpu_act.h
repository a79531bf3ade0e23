/* cpu_act.h - activations as oneDNN's post-ops. */
#ifndef SH_RUNTIME_DEVICE_CPU_CPU_ACT_H
#define SH_RUNTIME_DEVICE_CPU_CPU_ACT_H

#include "runtime/device/cpu/cpu.h"

/* Do our own loops compute it? oneDNN has it neither as a primitive nor as a post-op. */
bool cpu__act_is_own(enum dev_act act);

/* Does po have an element-wise post-op of this kind? oneDNN 2.6 keeps their parameters by kind: a
 * second one of the same kind computes with those of the first. */
bool cpu__post_has(const_dnnl_post_ops_t po, dnnl_alg_kind_t alg);

/* Appends an activation. Returns false and leaves po as it was if oneDNN has no such post-op, or if
 * po has one of its kind. */
bool cpu__act_post(dnnl_post_ops_t po, enum dev_act act, float p0, float p1);

#endif
