/* handlers.h - declares the handlers of all routes in routes.def. */
#ifndef SH_API_HANDLERS_H
#define SH_API_HANDLERS_H

#include "api/request/req.h"

#define ROUTE(handler, ...) api_fn handler;
#include "api/routes.def"
#undef ROUTE

#endif
