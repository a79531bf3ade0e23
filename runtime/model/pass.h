/* pass.h - rewrites of an ir that keep what it computes, in running order.
 *
 *   pass_evaluate  to evaluate a model during training: running statistics instead of a batch's,
 *                  and no dropout
 *   pass_pattern   SiLU, HardSwish, GELU and LayerNorm that an exporter spelled out become one
 *   operation each
 *   pass_fold_bn   inference: folds a BatchNorm after a convolution or product into its weights
 *   pass_fuse      fuses bias, residual and activation into the operation before them; in training
 *                  bias, residual and factor into a product
 *   pass_channels  inference: fuses factor and residual after a product with moved channels into
 *   the product
 *   pass_train     training: fuses residual and activation into the BN_TRAIN before them, a
 *                  residual into a DROPOUT
 *   pass_quant     inference: products between QUANTIZE become integer products
 *   pass_attn      spelled-out attention becomes one operation; inference: its products become one
 *   product
 *   pass_moves     chains of operations that only move rows become one operation, or none
 *   ir_drop_unused afterwards
 *   pass_pictures  training, before autodiff: converts the dataset's pictures and ids to what the
 *   model takes
 *   pass_fuse_sums training, after autodiff: BN_TRAIN_BWD adds its two gradients itself, and a
 *                  product adds its own to another (pass_fuse, on the operations of autodiff)
 *   pass_along     inference in TF32, last: weights of products lie along the sum
 *   pass_small     in FP16, last: bounds and sums away from zero do not become zero
 *   pass_turn      training in TF32, last: gradients of weights read a transposed operand
 */
#ifndef SH_RUNTIME_MODEL_PASS_H
#define SH_RUNTIME_MODEL_PASS_H

#include "common/train_spec.h"
#include "runtime/model/ir.h"

int pass_run(struct ir *ir, bool training, struct sh_err *err); /* runs all that apply */

/* A failure of one of these stays in ir, as of everything that builds. */
void pass_evaluate(struct ir *ir); /* before pass_run() */
void pass_pattern(struct ir *ir);
void pass_fold_bn(struct ir *ir);
void pass_fuse(struct ir *ir, bool training);
void pass_channels(struct ir *ir); /* after pass_fuse */
void pass_train(struct ir *ir);
void pass_quant(struct ir *ir);                /* after pass_fuse */
void pass_attn(struct ir *ir, bool training);  /* after pass_fuse */
void pass_moves(struct ir *ir, bool training); /* after pass_attn */
void pass_pictures(struct ir *ir, const struct train_spec *t);
/* Mixtures of samples: the weight of a sample itself in this step; the samples in reverse order;
 * and to = own weight + other (1 - weight). */
uint32_t pass_mix_part(struct ir *ir);
uint32_t pass_turned_round(struct ir *ir, uint32_t x);
void pass_mix(struct ir *ir, uint32_t part, uint32_t own, uint32_t other, uint32_t to);
void pass_fuse_sums(struct ir *ir);
void pass_along(struct ir *ir); /* then ir_drop_unused */
void pass_small(struct ir *ir);
void pass_turn(struct ir *ir);

/* For passes: makes `first` produce what `last` produces; `last` may then be removed. */
void pass__take_output(struct ir *ir, struct dev_op *first, const struct dev_op *last);
/* The constant w with each output channel (row or column) multiplied by its factor. */
uint32_t pass__scale_weight(struct ir *ir, uint32_t w, bool by_row, const double *factors,
                            int64_t channels);
/* Can it be fused into the operation before it? */
bool pass__fusable(enum dev_act a);
/* Two shapes of the same numbers: is axis i of the one axis k of the other? */
bool pass__same_axis(const struct dev_tensor *a, uint32_t i, const struct dev_tensor *b,
                     uint32_t k);
/* The operation that writes t, if it is of this kind; NULL otherwise. */
struct dev_op *pass__writer(const struct ir *ir, const struct ir_uses *u, uint32_t t,
                            enum dev_op_kind k);

#endif
