/* batch_spec.h - the spec of a batch inference job. The API and executors read it with the same
 * function, so that no executor refuses what the API has accepted. */
#ifndef SH_COMMON_BATCH_SPEC_H
#define SH_COMMON_BATCH_SPEC_H

#include "common/field.h"

#define BATCH_MAX_IO 64u /* inputs or outputs of a model */

struct batch_spec {
    int64_t batch;                  /* most samples in a run; 0: the version's max_batch */
    json_t *inputs, *outputs;       /* BORROWED; NULL: not given. Members and elements are strings,
                                     * and no output is named twice */
    int64_t checkpoint_interval_ms; /* 0: the executor's */
};

extern const struct sh_fields BATCH_FIELDS;
/* what: names the spec in messages. Fails: SH_E_INVALID. */
int batch_spec_read(const json_t *spec, const char *what, struct batch_spec *out,
                    struct sh_err *err);

#endif
