/* samples.h - are the samples of a batch independent of each other?
 *
 * Requests are batched, split and padded with zeros only if this is proved: each row of each output
 * depends only on the same row of the inputs, and in the same way for every row. A missing proof is
 * no error: such a model runs each request alone, with exactly as many rows as it has.
 */
#ifndef SH_RUNTIME_MODEL_SAMPLES_H
#define SH_RUNTIME_MODEL_SAMPLES_H

#include "runtime/model/graph.h"

#define SAMPLES_WHY 256

/* g: as a reader makes it. *independent: proved for the batches that were tried; else why[] names
 * the node or output that mixes samples. Fails as graph_at_batch(); SH_E_NOMEM. */
int samples_check(const struct graph *g, bool *independent, char why[static SAMPLES_WHY],
                  struct sh_err *err);

#endif
