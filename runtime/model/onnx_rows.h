/* onnx_rows.h - parameters of which an exporter wrote what it took from them. */
#ifndef SH_RUNTIME_MODEL_ONNX_ROWS_H
#define SH_RUNTIME_MODEL_ONNX_ROWS_H

#include "runtime/model/onnx_file.h"

/* Where the sizes of a file are fixed, an exporter takes rows of a table, and expands the token of
 * a class, beforehand: sixteen times the same row ("embedding_1"), one for each frame ("expand").
 * Training changes them apart, and the parameter is one. So
 *   - an initializer of F32 that an exporter only moved (param_rules.h), and of which rows along
 *     the last axis are equal, becomes rows taken of a table that has each once, "NAME@rows";
 *   - one of rows along an earlier axis ("onnx::Add_7" of [1, heads, from, to]: what a table of
 *     distances says of places), of which at most half differ, becomes a table likewise;
 *   - one number for each channel that an exporter computed ("linear_18": a recurrent layer's first
 *     step from zeros leaves the bias), and that are those of a parameter with a name, becomes that
 *     one in another shape.
 * Only numbers that no formula gives: masks and tables of the code stay as they are. The same file
 * gives the same names each time. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int onnx_rows(Onnx__ModelProto *m, struct onnx_source *source, struct sh_err *err);

#endif
