/* param_written.h - numbers that somebody wrote or derived, of which no learning leaves a trace.
 *
 * Asked only where a file says nothing of a constant (is_assumed): what has just been made may look
 * the same. */
#ifndef SH_RUNTIME_MODEL_PARAM_WRITTEN_H
#define SH_RUNTIME_MODEL_PARAM_WRITTEN_H

#include <stdbool.h>
#include <stdint.h>

/* F32 numbers, unaligned: whole multiples of one of them (how a thing moves, binomials, (2 k + 1)
 * / n), or matrices that are their own transposes (Laplacians, covariances); but not all the same,
 * nor an identity, as parameters begin. A single one is 1e-4, 1e-5, ... */
bool param_is_written(const void *data, int rank, const int64_t *dims);

#endif
