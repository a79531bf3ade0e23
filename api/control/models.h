/* models.h - the model that a path names. */
#ifndef SH_API_CONTROL_MODELS_H
#define SH_API_CONTROL_MODELS_H

#include "api/request/req.h"

/* One that is seen may be another tenant's, who shares it. Fails: SH_E_FORBIDDEN. */
int models_own(const struct api_req *q, const json_t *model, struct sh_err *err);

#endif
