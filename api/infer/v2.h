/* v2.h - the version that a path of the inference protocol names. */
#ifndef SH_API_INFER_V2_H
#define SH_API_INFER_V2_H

#include "api/cache/catalog.h"
#include "api/request/req.h"

/* The version, ready or not. Returns API_AGAIN once before it reports that it is missing or not
 * ready. *table: takes a reference, catalog_put(); NULL on failure. *out: BORROWED from it. */
int v2_find(struct api_req *q, struct cat_table **table, const struct cat_version **out,
            struct sh_err *err);

#endif
