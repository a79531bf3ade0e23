/* batch_spec.h - what a job of batch inference asks for. API and executor read it with the same
 * function, so that what the API has taken no executor refuses. */
#ifndef SH_COMMON_BATCH_SPEC_H
#define SH_COMMON_BATCH_SPEC_H

#include "common/field.h"

#define BATCH_MAX_IO 64u /* inputs or outputs of a model */

struct batch_spec {
    int64_t batch;                  /* at most; 0: the version's max_batch */
    json_t *inputs, *outputs;       /* BORROWED; NULL: not given. Members and elements are texts,
                                     * and no output is named twice */
    int64_t checkpoint_interval_ms; /* 0: the executor's */
};

extern const struct sh_fields BATCH_FIELDS;
/* what: of the spec, for messages. Fails: SH_E_INVALID. */
int batch_spec_read(const json_t *spec, const char *what, struct batch_spec *out,
                    struct sh_err *err);

#endif
