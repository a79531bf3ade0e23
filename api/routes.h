/* routes.h - the one table of URLs: what the server answers, /openapi.json and docs/api.md. */
#ifndef SH_API_ROUTES_H
#define SH_API_ROUTES_H

#include "api/request/route.h"

extern const struct api_route API_ROUTES[];
extern const size_t API_N_ROUTES;

unsigned access_roles(enum api_access a); /* set of enum api_role */
const char *access_text(enum api_access a);

/* Fills route and params. A path that exists with other methods only: SH_E_METHOD, and allow names
 * them. HEAD finds GET. Fails else: SH_E_NOTFOUND. */
int route_find(const char *method, const struct uri *u, const struct api_route **out,
               const char **params, char allow[static 64], struct sh_err *err);

#endif
