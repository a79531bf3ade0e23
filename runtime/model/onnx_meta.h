/* onnx_meta.h - the metadata that exporters attach to a node or a value: keys and texts. */
#ifndef SH_RUNTIME_MODEL_ONNX_META_H
#define SH_RUNTIME_MODEL_ONNX_META_H

#include "runtime/model/graph.h"
#include "runtime/model/onnx_file.h"
#include "runtime/model/param_forms.h"

/* *len bytes of a field that is missing from the message description we were built with; NULL: it
 * is of another kind. BORROWED from the message. */
const uint8_t *onnx_unknown(const ProtobufCMessageUnknownField *u, uint32_t tag, size_t *len);
/* The text for a key; NULL: none. OWNED, free(). */
char *onnx_meta(const Onnx__NodeProto *n, const char *key);
/* The same for the whole model: what whoever pushed it added; "": nothing. BORROWED. */
const char *onnx_told(const Onnx__ModelProto *m, const char *key);
/* Is the file as PyTorch's older exporter wrote it? That leaves numbers of the code to Constant
 * nodes, and gives initializers that it merges their names by Identity nodes. What simplifies its
 * files drops both, and makes initializers of what has an exporter's name. */
bool onnx_is_as_written(const Onnx__ModelProto *m);
/* All names of parameters and buffers that the file has; none, where it does not say. *out: call
 * param_kinds_fini(), also on failure. */
int onnx_kinds(const Onnx__GraphProto *g, struct param_kinds *out, struct sh_err *err);
/* What PyTorch's newer exporter says of an initializer: what it is in the module, or of one that it
 * computed what from, which is as a buffer where no parameter was among that. */
enum graph_said onnx_said(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds);
/* Does the exporter say what an initializer is in the module? An optimizer that folds constants of
 * any file says only what it folded. */
bool onnx_says_kind(const Onnx__ValueInfoProto *v);
/* The names of what an initializer was computed from; NULL: nothing says so. OWNED, free(). */
char *onnx_folded_from(const Onnx__ValueInfoProto *v);
/* Another list instead. Fails: SH_E_NOMEM. */
int onnx_fold_from(Onnx__ValueInfoProto *v, const char *list, struct sh_err *err);
/* Was it computed of parameters in such a way that training it is something else? */
/* It was computed of what detach() held. */
bool onnx_is_detached(const Onnx__ValueInfoProto *v);
bool onnx_is_computed(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds);
/* Is a constant a parameter and numbers of the code that were added to it? Which one. */
bool onnx_is_shifted(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds,
                     char param[static PARAM_FORM_NAME]);
/* Is it some numbers of one parameter, each once? Which one. */
bool onnx_is_part(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds,
                  char param[static PARAM_FORM_NAME]);
/* Is it one parameter, expanded? Which one. */
bool onnx_is_expanded(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds,
                      char param[static PARAM_FORM_NAME]);
/* Is it one parameter, moved and repeated? */
bool onnx_is_repeated(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds);
/* It is zeros: is it so for any parameters that it was computed of? */
bool onnx_is_of_zeros(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds);
/* Is it of one parameter that has a single letter's name? */
bool onnx_is_letter(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds);
/* The only parameter of which it was computed, if it has another name itself; NULL: there is none.
 * OWNED, free(). */
char *onnx_only_param(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds);
/* Was it only moved, from something of a module that no name calls a buffer? */
bool onnx_is_taken(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds);

#endif
