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
 * nor one number on a diagonal and another beside it, as parameters begin. A single one is 1e-4,
 * 1e-5, ... */
bool param_is_written(const void *data, int rank, const int64_t *dims);

/* Such numbers, or a line, of which a parameter may begin all the same (centres at -1, -0.5, 0,
 * 0.5, 1): not 0 and one other, as in masks. */
bool param_may_begin(const void *data, int rank, const int64_t *dims);

#endif
