/* init.h - the initial values of parameters trained from scratch, by their use.
 *
 * PyTorch's defaults, as listed in docs/training.md. Numbers depend only on (seed, name of the
 * parameter, position), so they are the same on every device and for every batch.
 */
#ifndef SH_RUNTIME_MODEL_INIT_H
#define SH_RUNTIME_MODEL_INIT_H

#include "runtime/model/graph.h"
#include "runtime/model/ir.h"

struct init_count {
    uint32_t drawn, kept;   /* parameters and statistics; kept: their use is unknown */
    const char *first_kept; /* BORROWED from the ir; "" */
};

/* Notes in ir->info[].init how each parameter begins that the spec wants random and whose use is
 * known; also the running statistics of all norms. g: the graph that ir was lowered from. Call it
 * before autodiff and before `frozen` is applied: frozen parameters keep their values. */
int init_note(struct ir *ir, const struct graph *g, const struct train_spec *t,
              struct init_count *count, struct sh_err *err);
/* Writes n numbers as `how` says. */
void init_fill(const struct ir_init *how, uint64_t seed, const char *name, float *to, int64_t n);

#endif
