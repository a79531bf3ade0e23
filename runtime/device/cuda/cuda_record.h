/* cuda_record.h - the launches of a plan's operations, recorded while it is warmed up. */
#ifndef SH_RUNTIME_DEVICE_CUDA_CUDA_RECORD_H
#define SH_RUNTIME_DEVICE_CUDA_CUDA_RECORD_H

#include "runtime/device/cuda/cuda.h"

/* What must lie behind the memory in which a plan is tried: records are made from captures there,
 * too. */
#define CUDA_RECORD_SLACK ((size_t)512 << 10)

/* Records what can be recorded, after the plan ran once at c's bases. If the device verifies,
 * compares it with what is launched at both ends of the arena. Off the path; a wish: what has no
 * record runs as before. Enqueues each record once. Sets base.replay: NONE, TRUSTED, VERIFIED or
 * LAUNCHES. */
void cuda__records_make(struct cuda_plan *p, const struct cuda_call *c);
/* [enqueue] false: there is no record of the operation. */
bool cuda__record_run(struct cuda_plan *p, struct cuda_call *c, uint32_t op, int *rc,
                      struct sh_err *err);
void cuda__records_free(struct cuda_plan *p);

/* cuda_verify.c: compares what comes out with and without records. Blocking; behind c's bases lies
 * CUDA_RECORD_SLACK, and all of it is zero afterwards. Sets base.replay: VERIFIED, UNSTEADY or
 * RESULTS, and then there are no records. Fails if the plan does not run without them. */
int cuda__verify_results(struct cuda_plan *p, const struct cuda_call *c, struct sh_err *err);

#endif
