/* pads.h - may an input be padded with zeros along an axis, and its outputs cut back?
 *
 * A size that a model's file leaves open may have buckets: a request runs at the smallest one into
 * which its size fits. That is correct only if what follows the end of an axis does not influence
 * what precedes it. pads.c proves it by following the axis through the graph; without a proof it is
 * refused, naming the node responsible.
 */
#ifndef SH_RUNTIME_MODEL_PADS_H
#define SH_RUNTIME_MODEL_PADS_H

#include "common/buckets.h"
#include "runtime/model/graph.h"

#define PADS_WHY 320

/* Symbol k of g, with its buckets, ascending. g: as a reader makes it, at sizes that work.
 * *harmless: proved for sizes from SH_BUCKET_FROM on; else why[] names the node or output
 * responsible. masks: NULL, or set for each input whose zero padding the proof needs: it is a mask.
 * A mask that hides all of a sample must not be padded, because an answer made only of hidden
 * elements depends on how many there are. Fails: SH_E_NOMEM; SH_E_INVALID, SH_E_UNSUPPORTED (the
 * model does not work at one of the sizes). */
int pads_check(const struct graph *g, uint32_t k, const uint32_t *buckets, size_t n_buckets,
               bool *harmless, bool *masks, char why[static PADS_WHY], struct sh_err *err);

#endif
