/* looks.h - GridSamples that look at places which follow from what was seen at others, as optical
 * flow and detection refine them by steps: such code mostly holds the places by detach(), of which
 * files of the older exporter say nothing. */
#ifndef SH_RUNTIME_MODEL_LOOKS_H
#define SH_RUNTIME_MODEL_LOOKS_H

#include "runtime/model/graph.h"

/* *node: the name of the first such node, of g; NULL: there is none, or the file says what is held.
 * Fails: SH_E_NOMEM. */
int looks_again(const struct graph *g, const char **node, struct sh_err *err);

#endif
