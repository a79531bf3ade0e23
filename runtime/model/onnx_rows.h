/* onnx_rows.h - restores parameters of which an exporter wrote only what it took from them. */
#ifndef SH_RUNTIME_MODEL_ONNX_ROWS_H
#define SH_RUNTIME_MODEL_ONNX_ROWS_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_kinds.h"

/* If a file has fixed sizes, an exporter takes rows of a table, or expands a class token, in
 * advance: sixteen copies of the same row ("embedding_1"), one for each frame ("expand"). Training
 * would change them separately, although the parameter is one. So
 *   - an F32 initializer that an exporter only moved (param_rules.h), with equal rows along the
 *     last axis, becomes rows taken from a table that has each once, "NAME@rows"; so does one that
 *     was looked up ("embedding_1") and has a row of zeros, which stands for padding;
 *   - one with rows along an earlier axis ("onnx::Add_7" of [1, heads, from, to], or [from, to] of
 *     one head: values of places in a table of distances), of which at most half differ, becomes
 *     such a table too;
 *   - a constant that an exporter computed, equal to a named parameter, becomes that parameter in
 *     another shape: one number for each channel ("linear_18": a recurrent layer's first step from
 *     zeros leaves the bias), or a filter as a matrix (spectral norm takes its length). Of two
 *     equal constants that an exporter computed with different numbers of axes (tables that were
 *     joined, with and without another axis), one becomes the other likewise.
 * This applies only to numbers that no formula gives: masks and tables from code stay as they are.
 * The same file always gives the same names. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int onnx_rows(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
              struct sh_err *err);

#endif
