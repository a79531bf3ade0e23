/* batchspec.h - the spec of a batch inference job, and whether model and dataset fit it. The other
 * half of jobspec.h, which calls it. Pure. */
#ifndef SH_API_SPEC_BATCHSPEC_H
#define SH_API_SPEC_BATCHSPEC_H

#include "api/spec/jobspec.h"

int batchspec_read(const json_t *spec, struct jobspec *out, struct sh_err *err);
/* Checks the batch and the names of inputs and outputs. Fails: SH_E_INVALID, SH_E_UNSUPPORTED. */
int batchspec_fits_model(const struct jobspec *s, const json_t *version, struct sh_err *err);
/* Checks the inputs and the room for the result. Fails: SH_E_INVALID, SH_E_TOOBIG. */
int batchspec_fits_dataset(const struct jobspec *s, const json_t *version, const char *name,
                           const json_t *dataset, struct sh_err *err);

#endif
