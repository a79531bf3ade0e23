/* contract.h - what a route accepts besides its path and body, and what it can answer, derived from
 * its row in the route table. Requests' queries are checked against it, http_reply.c reports
 * replies that it does not allow, and /openapi.json is built from it. */
#ifndef SH_API_REQUEST_CONTRACT_H
#define SH_API_REQUEST_CONTRACT_H

#include "api/request/route.h"
#include "api/request/schema.h"

struct answer { /* a failure */
    int status;
    unsigned when;    /* set of facts about a route (contract.c) */
    const char *text; /* its meaning, for the OpenAPI document */
    /* further codes with this status, besides err.h's: "INVALID TOOBIG"; NULL: none */
    const char *also;
};
extern const struct answer API_ANSWERS[];
extern const size_t API_N_ANSWERS;

bool route_fails_with(const struct api_route *r, const struct answer *a);
/* Can it answer this? Statuses below 200 and the 405 of a path do not count. */
bool route_answers(const struct api_route *r, int status);
/* Does it accept ?dry_run=true? It does if it changes something, other than by an uploaded file. */
bool route_takes_dry_run(const struct api_route *r);

/* Does it honour Idempotency-Key? */
bool route_replays(const struct api_route *r);

struct option {            /* a parameter outside the path */
    const char *name, *in; /* in: "query" or "header" */
    struct schema schema;
    const char *text;
    bool (*taken_by)(const struct api_route *r);
    bool is_needed; /* required */
};
extern const struct option API_OPTIONS[];
extern const size_t API_N_OPTIONS;

bool route_takes_query(const struct api_route *r, const char *name);

#endif
