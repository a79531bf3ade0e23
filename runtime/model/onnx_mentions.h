/* onnx_mentions.h - the parameters of which a file has several computed constants. */
#ifndef SH_RUNTIME_MODEL_ONNX_MENTIONS_H
#define SH_RUNTIME_MODEL_ONNX_MENTIONS_H

#include "runtime/model/param_kinds.h"

/* Zeroed: no list is in it. */
struct onnx_mentions {
    struct names names; /* of parameters, to their numbers in `of` */
    struct mention {
        char *name;    /* OWNED */
        uint32_t list; /* the first that has it */
        bool again;    /* so has another one */
    } * of;            /* OWNED */
    size_t n, cap;
    uint32_t n_lists;
};

/* Adds what one constant was computed of (onnx_folded_from()). All lists of a file take time in
 * proportion to their text. Fails: SH_E_NOMEM. */
int onnx_mentions_add(struct onnx_mentions *m, const char *list, const struct param_kinds *kinds,
                      struct sh_err *err);
void onnx_mentions_fini(struct onnx_mentions *m);
/* Do two lists or more have it? */
bool onnx_mentioned_again(const struct onnx_mentions *m, const char *param);

#endif
