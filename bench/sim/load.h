/* load.h - a trace at another rate. */
#ifndef SH_BENCH_SIM_LOAD_H
#define SH_BENCH_SIM_LOAD_H

#include "simulate/trace.h"

/* Leaves out all requests but those for the n models that are asked for most. Fails: SH_E_NOMEM. */
int load_most_asked(struct trace_requests *t, size_t n, struct sh_err *err);

/* All requests are of one tenant from then on. Fails: SH_E_NOMEM. */
int load_one_tenant(struct trace_requests *t, struct sh_err *err);

/* n requests at so many a second in the mean. If the trace has fewer, copies of it come together,
 * each begun at another place of it; where it has more, n from its middle are taken. All times are
 * divided by one number, so that bursts stay bursts. order: whose models and tenants are asked for,
 * one after the other, instead of the trace's own; NULL: its own. Fails: SH_E_NOMEM. */
int load_make(const struct trace_requests *trace, const struct trace_requests *order, double rate,
              size_t n, struct trace_requests *out, struct sh_err *err);

#endif
