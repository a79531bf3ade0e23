/* onnx_alike.h - initializers of which a file says that they were made of the same. */
#ifndef SH_RUNTIME_MODEL_ONNX_ALIKE_H
#define SH_RUNTIME_MODEL_ONNX_ALIKE_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_forms.h"

/* What an initializer was made of, of its name and its list; false: it is none of those that are
 * looked for. */
typedef bool onnx_alike_key(const char *name, const char *list, const struct param_kinds *kinds,
                            char key[static PARAM_FORM_NAME]);

/* Zeroed: there are none. */
struct onnx_alike {
    struct names first; /* of each key: its first initializer */
    char **keys;        /* OWNED, of each initializer; NULL: it has none */
    uint32_t *next;     /* OWNED, of each: 1 + the next one with its key; 0: it is the last */
    uint32_t n;
};

/* initializers: the names of those of g, to their numbers. Fails: SH_E_NOMEM. Call
 * onnx_alike_fini(), also on failure. */
int onnx_alike_read(struct onnx_alike *a, const Onnx__GraphProto *g,
                    const struct names *initializers, onnx_alike_key *key,
                    const struct param_kinds *kinds, struct sh_err *err);
void onnx_alike_fini(struct onnx_alike *a);
/* The next initializer with the key of this one; NAMES_NONE: there is none. */
uint32_t onnx_alike_next(const struct onnx_alike *a, uint32_t i);

#endif
