/* pass.h - rewrites of an ir that keep what it computes, in the order in which they run.
 *
 *   pass_evaluate  for an evaluation of what training has so far: running statistics instead of a
 *                  batch's, and no dropout
 *   pass_pattern   SiLU, HardSwish, GELU and LayerNorm that an exporter spelled out become one
 *                  operation each
 *   pass_fold_bn   inference: a BatchNorm after a convolution or product goes into its weights
 *   pass_fuse      bias, residual and activation go into the operation before them; in training
 *                  bias, residual and factor into a product
 *   pass_channels  inference: factor and residual behind a product whose channels are moved go into
 *                  the product
 *   pass_train     training: residual and activation go into the BN_TRAIN before them, a residual
 *                  into a DROPOUT
 *   pass_quant     inference: products between QUANTIZE become products of integers
 *   pass_attn      spelled-out attention becomes one operation; inference: its products one product
 *   pass_moves     chains of operations that only move rows become one, or none
 *   ir_drop_unused afterwards
 *   pass_pictures  training, before autodiff: pictures and ids as the dataset has them become what
 *                  the model takes
 *   pass_fuse_sums training, after autodiff: BN_TRAIN_BWD adds up its two gradients itself, and a
 *                  product adds its own to another (pass_fuse, on what autodiff made)
 *   pass_turn      training in TF32, afterwards: gradients of weights read an operand turned
 */
#ifndef SH_RUNTIME_MODEL_PASS_H
#define SH_RUNTIME_MODEL_PASS_H

#include "common/train_spec.h"
#include "runtime/model/ir.h"

int pass_run(struct ir *ir, bool training, struct sh_err *err); /* all that apply */

void pass_evaluate(struct ir *ir); /* before pass_run() */
int pass_pattern(struct ir *ir, struct sh_err *err);
int pass_fold_bn(struct ir *ir, struct sh_err *err);
int pass_fuse(struct ir *ir, bool training, struct sh_err *err);
int pass_channels(struct ir *ir, struct sh_err *err); /* after pass_fuse */
int pass_train(struct ir *ir, struct sh_err *err);
int pass_quant(struct ir *ir, struct sh_err *err);                /* after pass_fuse */
int pass_attn(struct ir *ir, bool training, struct sh_err *err);  /* after pass_fuse */
int pass_moves(struct ir *ir, bool training, struct sh_err *err); /* after pass_attn */
int pass_pictures(struct ir *ir, const struct train_spec *t, struct sh_err *err);
/* Mixtures of samples: the part of a sample's own in this step, the samples from the last to the
 * first, and to = own part + other (1 - part). */
int pass_mix_part(struct ir *ir, uint32_t *part, struct sh_err *err);
int pass_turned_round(struct ir *ir, uint32_t x, uint32_t *out, struct sh_err *err);
int pass_mix(struct ir *ir, uint32_t part, uint32_t own, uint32_t other, uint32_t to,
             struct sh_err *err);
int pass_fuse_sums(struct ir *ir, struct sh_err *err);
int pass_turn(struct ir *ir, struct sh_err *err);

/* For passes: operation `first` shall produce what `last` produces; `last` may then go. */
int pass__take_output(struct ir *ir, struct dev_op *first, const struct dev_op *last,
                      struct sh_err *err);
/* *out: the constant w with each output channel, a row or a column of it, times its factor. */
int pass__scale_weight(struct ir *ir, uint32_t w, bool by_row, const double *factors,
                       int64_t channels, uint32_t *out, struct sh_err *err);
/* Does it go into the operation before it? */
bool pass__fusable(enum dev_act a);
/* The operation that writes t, if it is of this kind; NULL otherwise. */
struct dev_op *pass__writer(const struct ir *ir, const struct ir_uses *u, uint32_t t,
                            enum dev_op_kind k);

#endif
