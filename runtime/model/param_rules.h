/* param_rules.h - what names and numbers say of a constant: has it learned, or was it computed?
 *
 * An exporter computes what it can beforehand, and calls the result after the operation that came
 * last ("embedding_1", "val_12", "onnx::Mul_77"). Some of that are parameters that were only moved,
 * some are tables of the code. Where the name does not tell them apart, the numbers do. */
#ifndef SH_RUNTIME_MODEL_PARAM_RULES_H
#define SH_RUNTIME_MODEL_PARAM_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* Made up by an exporter for a number in the code or for what it computed; a parameter of a module
 * has the name of its attribute. */
bool param_is_made_up(const char *name);
/* Its numbers may be those of a parameter: it was taken from one, turned, expanded, joined. */
bool param_is_moved(const char *name);
/* It was computed, maybe from something that had a name in the module. */
bool param_is_turned(const char *name);
/* "layers.0.attn_mask", as modules call their buffers. */
bool param_is_buffer(const char *name);

/* Numbers of F32, aligned to 1, that no formula gives: hardly any of them
 * equal (masks, identities), not all lines along an axis rising or falling (ranges and what is
 * computed of one), nor all of one length (sines and cosines of the same angle: positions). */
bool param_is_scattered(const void *data, int rank, const int64_t *dims);

/* What a formula gives, whatever it is called: a table of positions, of which each row is as long
 * as sines and cosines are, or each column a sine of the row, however it is scaled and moved, or
 * each row one of the column; or a line, as of distances or powers. */
bool param_is_formula(const void *data, int rank, const int64_t *dims);

/* A filter that was not learned: whole numbers of which three differ (edges, 0, 1, 2, ...), or the
 * same numbers, but not the same one, for each of several channels (a blur). */
bool param_is_filter(const void *data, int rank, const int64_t *dims);

#endif
