/* contract.h - what a route takes beside its path and body, and what it can answer, derived from
 * its row of the route table. A request's query is checked by it, http_reply.c reports a reply that
 * is not in it, and /openapi.json is made from it. */
#ifndef SH_API_REQUEST_CONTRACT_H
#define SH_API_REQUEST_CONTRACT_H

#include "api/request/route.h"
#include "api/request/schema.h"

struct answer { /* a failure */
    int status;
    unsigned when;    /* set of facts about a route: contract.c */
    const char *text; /* what it means, for the description */
    const char *also; /* codes that come with it beside those of err.h: "INVALID TOOBIG"; or NULL */
};
extern const struct answer API_ANSWERS[];
extern const size_t API_N_ANSWERS;

bool route_fails_with(const struct api_route *r, const struct answer *a);
/* Success or failure; statuses below 200 and the 405 of the path are no answers of a route. */
bool route_answers(const struct api_route *r, int status);
/* Changes something otherwise than by a file that is sent: then ?dry_run=true is taken. */
bool route_takes_dry_run(const struct api_route *r);

/* Idempotency-Key is honoured. */
bool route_replays(const struct api_route *r);

struct option {            /* a parameter outside of the path */
    const char *name, *in; /* in: "query" or "header" */
    struct schema schema;
    const char *text;
    bool (*taken_by)(const struct api_route *r);
    bool is_needed; /* it may not be left out */
};
extern const struct option API_OPTIONS[];
extern const size_t API_N_OPTIONS;

bool route_takes_query(const struct api_route *r, const char *name);

#endif
