/* losses.h - the losses that a training job has written. */
#ifndef SH_API_JOBS_LOSSES_H
#define SH_API_JOBS_LOSSES_H

#include "common/json.h"

/* Reads [offset, offset + limit) of the JSON array in a file, and its length *total. A missing file
 * is empty. *out: OWNED, json_decref(). Fails: SH_E_IO. */
int losses_read(const char *path, int64_t offset, int64_t limit, json_t **out, int64_t *total,
                struct sh_err *err);

#endif
