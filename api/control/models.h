/* models.h - the model that a path names. */
#ifndef SH_API_CONTROL_MODELS_H
#define SH_API_CONTROL_MODELS_H

#include "api/request/req.h"

/* The model that the path's first name means, as store_model_get() reads it. *out: OWNED. Fails:
 * SH_E_NOTFOUND. */
int models_of_path(struct api_req *q, json_t **out, struct sh_err *err);
/* Does q's tenant own the model? A visible one may be shared by another. Fails: SH_E_FORBIDDEN. */
int models_own(const struct api_req *q, const json_t *model, struct sh_err *err);

#endif
