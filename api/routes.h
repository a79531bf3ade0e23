/* routes.h - the table of URLs, for the server, /openapi.json and docs/api.md. */
#ifndef SH_API_ROUTES_H
#define SH_API_ROUTES_H

#include "api/request/route.h"

extern const struct api_route API_ROUTES[];
extern const size_t API_N_ROUTES;

unsigned access_roles(enum api_access a); /* set of enum api_role */
const char *access_text(enum api_access a);

/* Sets the route and params. Fails: SH_E_METHOD: the path exists with other methods, named in
 * allow; SH_E_NOTFOUND. HEAD finds GET. */
int route_find(const char *method, const struct uri *u, const struct api_route **out,
               const char **params, char allow[static 64], struct sh_err *err);

#endif
