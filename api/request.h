/* request.h - the steps of a request, independent of the front end; req.h shows their order. */
#ifndef SH_API_REQUEST_H
#define SH_API_REQUEST_H

#include "api/request/front.h"

extern const struct api_steps REQUEST_STEPS;

#endif
