/* cors.h - --cors-origins: which web pages may call the API from a browser. Pure. */
#ifndef SH_API_HTTP_CORS_H
#define SH_API_HTTP_CORS_H

#include "common/err.h"

#include <stdbool.h>

/* origins: "" (none), "*" (all), or a comma-separated list. Fails: SH_E_INVALID. */
int cors_check(const char *origins, struct sh_err *err);
bool cors_allows(const char *origins, const char *origin); /* origin: the header; NULL: none */

#endif
