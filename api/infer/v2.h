/* v2.h - the version that a path of the inference protocol names. */
#ifndef SH_API_INFER_V2_H
#define SH_API_INFER_V2_H

#include "api/cache/catalog.h"
#include "api/request/req.h"

/* Ready or not. API_AGAIN once before saying that there is none or that it is not ready. *table:
 * counted, catalog_put(); NULL on failure. *out: BORROWED from it. */
int v2_find(struct api_req *q, struct cat_table **table, const struct cat_version **out,
            struct sh_err *err);

#endif
