/* pads.h - may an input be filled up with zeros along an axis, and its outputs cut back?
 *
 * A size that a model's file leaves open may be given buckets: a request runs at the smallest one
 * that its size fits into. That is right only where what lies behind the end of an axis does not
 * reach what lies before it. It is proved by following the axis through the graph (pads.c); what is
 * not proved is refused, with the node that is to blame.
 */
#ifndef SH_RUNTIME_MODEL_PADS_H
#define SH_RUNTIME_MODEL_PADS_H

#include "common/buckets.h"
#include "runtime/model/graph.h"

#define PADS_WHY 320

/* Symbol k of g, with the sizes that it is filled up to, which rise. g: as a reader makes it, at
 * sizes that work. *harmless: proved for sizes from SH_BUCKET_FROM on; else why[] says which node
 * or output is to blame. masks: NULL, or of each input: set where the proof needs the zeros that it
 * is filled up with. Such an input masks. One that masks all of a sample must not be filled up: an
 * answer made of nothing but what is masked depends on how much there is. Fails: SH_E_NOMEM;
 * SH_E_INVALID, SH_E_UNSUPPORTED (the model does not work at one of the sizes). */
int pads_check(const struct graph *g, uint32_t k, const uint32_t *buckets, size_t n_buckets,
               bool *harmless, bool *masks, char why[static PADS_WHY], struct sh_err *err);

#endif
