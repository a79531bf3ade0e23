/* param_kinds.h - what PyTorch's newer exporter says of a module: which names are parameters, and
 * which are buffers, also of those that are not in the file any more. */
#ifndef SH_RUNTIME_MODEL_PARAM_KINDS_H
#define SH_RUNTIME_MODEL_PARAM_KINDS_H

#include "runtime/model/graph.h"
#include "runtime/model/names.h"

struct param_kinds {
    struct names names; /* to enum graph_said */
    char *text;         /* OWNED: what the names lie in */
};

/* Of the text of a signature, a line each: "p_a_weight: PARAMETER target='a.weight'". TAKES text
 * (malloc; NULL: there is none). */
int param_kinds_read(struct param_kinds *k, char *text, struct sh_err *err);
void param_kinds_fini(struct param_kinds *k); /* zeroed is allowed */
/* Is there a signature? Then what it does not name is not of the module. */
bool param_kinds_known(const struct param_kinds *k);
enum graph_said param_kind(const struct param_kinds *k, const char *name);

#endif
