/* v2.h - the version that a path of the inference protocol means: the one it names, the one that an
 * alias chooses, or, if it names nothing, that of the alias "stable", else the newest. */
#ifndef SH_API_INFER_V2_H
#define SH_API_INFER_V2_H

#include "api/cache/catalog.h"
#include "api/request/req.h"

struct v2_choice {
    struct cat_table *table;       /* a reference: catalog_put(); NULL on failure */
    const struct cat_version *v;   /* BORROWED from it */
    const struct cat_alias *alias; /* BORROWED; NULL: none was asked */
};

/* The version, ready or not. Returns API_AGAIN once before it reports that it is missing or not
 * ready. key: what an alias chooses by; NULL: its version with the largest weight. */
int v2_choose(struct api_req *q, const char *key, struct v2_choice *out, struct sh_err *err);
/* The same without a key. *table: takes a reference, catalog_put(); NULL on failure. *out: BORROWED
 * from it. */
int v2_find(struct api_req *q, struct cat_table **table, const struct cat_version **out,
            struct sh_err *err);

#endif
