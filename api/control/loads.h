/* loads.h - loads, unloads and pins versions, for both APIs. */
#ifndef SH_API_CONTROL_LOADS_H
#define SH_API_CONTROL_LOADS_H

#include "api/store/store.h"

/* Records the wish and hints the scheduler. version NULL: every version. *out: the version, or the
 * model, as it is now; OWNED. Fails: SH_E_NOTFOUND, SH_E_FORBIDDEN (another tenant's), SH_E_QUOTA
 * and SH_E_CONFLICT with the reason. */
int loads_wish(struct api_req *q, enum store_wish wish, const char *model, const char *version,
               json_t **out, struct sh_err *err);

#endif
