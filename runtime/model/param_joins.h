/* param_joins.h - constants that an exporter put together of several parameters. Pure functions. */
#ifndef SH_RUNTIME_MODEL_PARAM_JOINS_H
#define SH_RUNTIME_MODEL_PARAM_JOINS_H

#include "runtime/model/param_kinds.h"

/* Was constant `name`, whose list that is (onnx_folded_from()), made of two parameters or more by
 * nothing but moving, repeating and joining them? Then each of its numbers is one of theirs, and
 * what has one several times learns as one that does. */
bool param_is_joined(const char *name, const char *list, const struct param_kinds *kinds);
/* It was held by detach(). */
bool param_is_detached(const char *list);

#endif
