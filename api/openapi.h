/* openapi.h - the OpenAPI document, built from the route table and the schemas. Pure. */
#ifndef SH_API_OPENAPI_H
#define SH_API_OPENAPI_H

#include "api/request/schema.h"

#include <stdio.h>

/* schemas.c */
struct api_schema {
    const char *name;
    struct schema schema;
    const char *example; /* JSON, or NULL */
};
extern const struct api_schema API_SCHEMAS[];
extern const size_t API_N_SCHEMAS;
struct path_param { /* by its name in a path pattern */
    const char *name, *text;
    struct schema schema;
};
extern const struct path_param API_PATH_PARAMS[];
extern const size_t API_N_PATH_PARAMS;

/* The OpenAPI 3.1 document. *out: OWNED, json_decref(). */
int openapi_build(json_t **out, struct sh_err *err);
/* The same as text, plain and gzipped because it is large. *out: OWNED, openapi_free(). */
struct openapi;
int openapi_new(struct openapi **out, struct sh_err *err);
void openapi_free(struct openapi *o); /* NULL is allowed */
/* Prints docs/api.md. */
void openapi_print_docs(FILE *out);

#endif
