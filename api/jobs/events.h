/* events.h - events of jobs, as lists and streams. */
#ifndef SH_API_JOBS_EVENTS_H
#define SH_API_JOBS_EVENTS_H

#include "api/request/req.h"

/* Does the request ask for text/event-stream? */
bool events_wants_stream(const struct api_req *q);

#endif
