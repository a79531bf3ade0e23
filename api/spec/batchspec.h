/* batchspec.h - what a job of batch inference asks for, and whether model and dataset fit it; the
 * other half of jobspec.h, and called from there. Pure. */
#ifndef SH_API_SPEC_BATCHSPEC_H
#define SH_API_SPEC_BATCHSPEC_H

#include "api/spec/jobspec.h"

int batchspec_read(const json_t *spec, struct jobspec *out, struct sh_err *err);
/* Batch, and the names of inputs and outputs. Fails: SH_E_INVALID, SH_E_UNSUPPORTED. */
int batchspec_fits_model(const struct jobspec *s, const json_t *version, struct sh_err *err);
/* Inputs, and the room that the result needs. Fails: SH_E_INVALID, SH_E_TOOBIG. */
int batchspec_fits_dataset(const struct jobspec *s, const json_t *version, const char *name,
                           const json_t *dataset, struct sh_err *err);

#endif
