/* autodiff.h - a forward ir becomes a training ir: loss, backward pass, optimizer, commits.
 *
 *   forward ops | loss | backward ops || update: one op per parameter, then COMMITs
 *                                     ^ update_begin
 *
 * Nothing before update_begin writes STATE: a step that is given up leaves no trace.
 *
 * The backward pass walks the forward operations from the end. Gradients are kept per root of an
 * alias class and in the root's shape. When a tensor has several readers their gradients are added
 * in the order of that walk, so that the sum is the same in every run.
 */
#ifndef SH_RUNTIME_MODEL_AUTODIFF_H
#define SH_RUNTIME_MODEL_AUTODIFF_H

#include "runtime/model/ir.h"
#include "runtime/model/program.h"

/* The losses of ir's outputs, one for each head of t in their order, the backward pass to every
 * parameter, the update. A parameter that the loss does not depend on keeps its value. Fails:
 * SH_E_UNSUPPORTED naming an operation without a gradient, SH_E_INVALID (an output does not suit
 * its loss; there is nothing to train). */
int autodiff_train(struct ir *ir, const struct train_spec *t, struct sh_err *err);

struct autodiff_seed {
    uint32_t from, gradient; /* d(loss)/d(from), shaped like it */
};

/* The backward pass alone, for tests too, from n places. Fills info[].grad of parameters. want:
 * NULL, or n_tensors flags of further roots whose gradient is wanted; it comes in info[].grad as
 * well. piece: elements of x and d_y that one operation may read for the weight gradient of a
 * convolution, unless a single sample has more; 0: no limit. */
int autodiff_backward(struct ir *ir, const struct autodiff_seed *seeds, uint32_t n,
                      const bool *want, int64_t piece, struct sh_err *err);

#endif
