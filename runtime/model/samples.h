/* samples.h - are the samples of a batch independent of each other?
 *
 * Requests are put together, cut apart and filled up with zeros only where this is proved: where
 * each row of each output depends on the same row of the inputs alone, and in the same way
 * whichever row it is. What is not proved is no error: such a model runs for each request by
 * itself, with just as many rows as that has.
 */
#ifndef SH_RUNTIME_MODEL_SAMPLES_H
#define SH_RUNTIME_MODEL_SAMPLES_H

#include "runtime/model/graph.h"

#define SAMPLES_WHY 256

/* g: as a reader makes it. *independent: proved for the batches that were tried; else why[] says
 * which node or output mixes samples. Fails: as graph_at_batch, SH_E_NOMEM. */
int samples_check(const struct graph *g, bool *independent, char why[static SAMPLES_WHY],
                  struct sh_err *err);

#endif
