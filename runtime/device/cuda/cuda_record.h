/* cuda_record.h - the launches of a plan's operations, recorded while it is warmed up. */
#ifndef SH_RUNTIME_DEVICE_CUDA_CUDA_RECORD_H
#define SH_RUNTIME_DEVICE_CUDA_CUDA_RECORD_H

#include "runtime/device/cuda/cuda.h"

/* What must lie behind the memory in which a plan is tried: records are made from captures there,
 * too. */
#define CUDA_RECORD_SLACK ((size_t)512 << 10)

/* Records what can be recorded, after the plan ran once at c's bases. Off the path; a wish: what
 * has no record runs as before. Enqueues each record once. */
void cuda__records_make(struct cuda_plan *p, const struct cuda_call *c);
/* [enqueue] false: there is no record of the operation. */
bool cuda__record_run(struct cuda_plan *p, struct cuda_call *c, uint32_t op, int *rc,
                      struct sh_err *err);
void cuda__records_free(struct cuda_plan *p);

#endif
