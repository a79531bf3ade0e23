/* init.h - parameters that training begins with from scratch, by what they are used for.
 *
 * PyTorch's defaults, as docs/training.md lists them. Numbers follow from (seed, name of the
 * parameter, place in it) alone: they are the same on every device, for every batch.
 */
#ifndef SH_RUNTIME_MODEL_INIT_H
#define SH_RUNTIME_MODEL_INIT_H

#include "runtime/model/graph.h"
#include "runtime/model/ir.h"

struct init_count {
    uint32_t drawn, kept;   /* parameters and statistics; kept: nothing is known of their use */
    const char *first_kept; /* BORROWED from the ir; "" */
};

/* Notes in ir->info[].init how each parameter begins that the spec wants drawn and whose use is
 * known; the running statistics of all norms too. g: what ir was lowered from. Before autodiff, and
 * before `frozen` is looked at: what is frozen keeps its value. */
int init_note(struct ir *ir, const struct graph *g, const struct train_spec *t,
              struct init_count *count, struct sh_err *err);
/* n numbers as `how` says. */
void init_fill(const struct ir_init *how, uint64_t seed, const char *name, float *to, int64_t n);

#endif
