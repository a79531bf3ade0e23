/* request.h - the steps of a request, without any HTTP library. See req.h for their order.
 * Every one is an api_fn. */
#ifndef SH_API_REQUEST_H
#define SH_API_REQUEST_H

#include "api/req.h"

int request_id(struct api_req *q, struct sh_err *err);    /* the client's, or one of ours */
int request_route(struct api_req *q, struct sh_err *err); /* route, limits, query, content type */
int request_auth(struct api_req *q, struct sh_err *err);  /* who, role, tenant's name */
int request_begin(struct api_req *q, struct sh_err *err); /* before the body */
int request_main(struct api_req *q, struct sh_err *err);  /* the route's handler */
/* Largest body this request may have, bytes. */
uint64_t request_max_body(const struct api_req *q);

#endif
