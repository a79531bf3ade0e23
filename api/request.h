/* request.h - the steps of a request, independent of the HTTP library; req.h shows their order. */
#ifndef SH_API_REQUEST_H
#define SH_API_REQUEST_H

#include "api/http/http.h"

extern const struct http_steps REQUEST_STEPS;

#endif
