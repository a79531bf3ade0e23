/* answers.h - what a route can answer, derived from its row of the route table. /openapi.json is
 * made from it, and http_reply.c reports a reply that is not in it. */
#ifndef SH_API_ANSWERS_H
#define SH_API_ANSWERS_H

#include "api/routes.h"

struct answer { /* a failure */
    int status;
    unsigned when;    /* set of facts about a route: answers.c */
    const char *text; /* what it means, for the description */
    const char *also; /* codes that come with it beside those of err.h: "INVALID TOOBIG"; or NULL */
};
extern const struct answer API_ANSWERS[];
extern const size_t API_N_ANSWERS;

bool route_fails_with(const struct api_route *r, const struct answer *a);
/* Success or failure; statuses below 200 and the 405 of the path are no answers of a route. */
bool route_answers(const struct api_route *r, int status);
/* Creates something, or changes it by a JSON body: then ?dry_run=true is taken. */
bool route_takes_dry_run(const struct api_route *r);

#endif
