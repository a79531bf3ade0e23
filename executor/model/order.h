/* order.h - the order of samples in one epoch: a function of (seed, epoch) alone, so that the step
 * number is the cursor of a training run. */
#ifndef SH_EXECUTOR_MODEL_ORDER_H
#define SH_EXECUTOR_MODEL_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* order[n]: 0, 1, 2, ...; with shuffle a Fisher-Yates permutation drawn from SplitMix64. */
void order_draw(uint64_t seed, int64_t epoch, bool shuffle, uint32_t *order, int64_t n);

#endif
