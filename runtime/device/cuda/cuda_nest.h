/* cuda_nest.h - what builders share: struct k_nest from tensors, checks, operands.
 *
 * Axes of a nest are the logical ones of the destination until k_nest_pack() puts them in order.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_CUDA_NEST_H
#define SH_RUNTIME_DEVICE_CUDA_CUDA_NEST_H

#include "runtime/device/cuda/cuda.h"

/* A loop over `dims`; all strides 0. Rank 0 becomes one axis of one. */
void cuda__nest_init(struct k_nest *n, uint32_t rank, const int64_t *dims);
/* Operand k is `tensor` as stored, broadcast to the nest's dims (numpy's rules). Fails: SH_E_BUG,
 * the shapes do not fit. */
int cuda__nest_add(struct cuda_build *b, struct k_nest *n, int k, uint32_t tensor);
/* The same shape on both sides: a move from x to y, each as stored. */
int cuda__nest_move(struct cuda_build *b, struct k_nest *n, uint32_t x, uint32_t y);
/* All of them F32 (DEV_NONE passes): else SH_E_UNSUPPORTED. */
int cuda__need_f32(struct cuda_build *b, const uint32_t *tensors, uint32_t n);
int cuda__same_shape(struct cuda_build *b, uint32_t x, uint32_t y);
/* All of them F32, of the shape of the first (DEV_NONE passes). */
int cuda__same_f32(struct cuda_build *b, const uint32_t *tensors, uint32_t n);
int cuda__axis(struct cuda_build *b, uint32_t tensor, int64_t axis,
               uint32_t *out); /* dev_axis_of */
/* Zeroed memory that the plan frees with the operation; NULL: *rc says why. */
void *cuda__aux_new(struct cuda_build *b, size_t bytes, int *rc);

/* An operand that the builder takes in the type in which it is stored. Absent: no address, F32. */
struct k_operand cuda__operand_in(const struct cuda_call *c, uint32_t slot);
struct k_operand cuda__operand_out(const struct cuda_call *c, uint32_t slot);

#endif
