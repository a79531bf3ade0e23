/* events.h - events of jobs, as lists and as streams. */
#ifndef SH_API_JOBS_EVENTS_H
#define SH_API_JOBS_EVENTS_H

#include "api/request/req.h"

/* text/event-stream is asked for. */
bool events_wants_stream(const struct api_req *q);

#endif
