/* autodiff.h - turns a forward ir into a training ir: loss, backward pass, optimizer, commits.
 *
 *   forward ops | loss | backward ops || update: one op per parameter, then COMMITs
 *                                     ^ update_begin
 *
 * Nothing before update_begin writes STATE, so an abandoned step leaves no trace.
 *
 * The backward pass walks the forward operations from the end. A gradient belongs to the root of an
 * alias class and has its shape. If a tensor has several readers, their gradients are added in the
 * order of that walk, so that the sum is the same in every run.
 */
#ifndef SH_RUNTIME_MODEL_AUTODIFF_H
#define SH_RUNTIME_MODEL_AUTODIFF_H

#include "runtime/model/ir.h"
#include "runtime/model/program.h"

/* Adds the losses of ir's outputs, one for each head of t in order, the backward pass to every
 * parameter, and the update. A parameter on which the loss does not depend keeps its value. Fails:
 * SH_E_UNSUPPORTED, naming an operation without a gradient; SH_E_INVALID (an output does not fit
 * its loss; there is nothing to train). */
int autodiff_train(struct ir *ir, const struct train_spec *t, struct sh_err *err);

struct autodiff_seed {
    uint32_t from, gradient; /* d(loss)/d(from), shaped like it */
};

/* The backward pass only, from n places; also for tests. Sets info[].grad of parameters. want:
 * NULL, or n_tensors flags of more roots whose gradient is wanted, also in info[].grad. piece: most
 * elements of x and d_y that one operation reads for the weight gradient of a convolution, unless a
 * single sample has more; 0: no limit. */
int autodiff_backward(struct ir *ir, const struct autodiff_seed *seeds, uint32_t n,
                      const bool *want, int64_t piece, struct sh_err *err);

#endif
