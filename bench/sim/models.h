/* models.h - models of a device profile (tests/sim/profiles) for the requests of a trace. */
#ifndef SH_BENCH_SIM_MODELS_H
#define SH_BENCH_SIM_MODELS_H

#include "simulate/serve.h"
#include "tests/sim/profile.h"

/* The n models of a trace are those of the profile in turns that hold a batch of MODELS_BATCH.
 * *out: OWNED, free(). Fails: SH_E_INVALID, SH_E_NOMEM. */
#define MODELS_BATCH 8u
int models_make(const struct sim_profile *p, size_t n, int64_t slo_ns, struct serve_model **out,
                struct sh_err *err);
/* ns that a byte takes to the device; a profile counts simulated ones. */
double models_ns_per_byte(const struct sim_profile *p);
/* Requests a second that a GPU could do, of these models, all resident and one by one. */
double models_capacity(const struct trace_requests *t, const struct serve_model *models);

#endif
