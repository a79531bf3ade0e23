/* models.h - the model that a path names. */
#ifndef SH_API_CONTROL_MODELS_H
#define SH_API_CONTROL_MODELS_H

#include "api/request/req.h"

/* Does q's tenant own the model? A visible one may be shared by another. Fails: SH_E_FORBIDDEN. */
int models_own(const struct api_req *q, const json_t *model, struct sh_err *err);

#endif
