/* request.h - the steps of a request, without any HTTP library. See req.h for their order. */
#ifndef SH_API_REQUEST_H
#define SH_API_REQUEST_H

#include "api/http/http.h"

extern const struct http_steps REQUEST_STEPS;

#endif
